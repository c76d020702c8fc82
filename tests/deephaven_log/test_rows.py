"""Columns: types, nulls, constants, charsets, enums, several files, schema files, older versions."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, FormatError, OptionError, SchemaError, UnsupportedError
from sawlog.format.damage import DamageWarning

from .reference import CODES, Col, entry, header, row, row_body, text
from .support import ALL_COLUMNS, NULLS, convert_values, save

VALUES = {
    "Bool": st.booleans(),
    "Byte": st.integers(-127, 127),
    "Char": st.integers(0, 0xFFFD),
    "Short": st.integers(-0x7FFF, 0x7FFF),
    "Int": st.integers(-0x7FFFFFFF, 0x7FFFFFFF),
    "Long": st.integers(-0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF),
    "Float": st.floats(width=32, allow_nan=False, min_value=-(2.0**100)),
    "Double": st.floats(allow_nan=False, min_value=-(2.0**1000)),
    "Blob": st.binary(max_size=20),
    "Str": st.text(st.characters(codec="utf-8"), max_size=12),
    "Enum": st.sampled_from([0, 1, 2]),
}
ROW = st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()})


@given(rows=st.lists(ROW, max_size=12))
def test_all_types_and_nulls_are_read(tmp_path_factory, rows):
    path = save(
        tmp_path_factory.mktemp("types") / "t.bin", header(ALL_COLUMNS), *(row(ALL_COLUMNS, values) for values in rows)
    )
    table = sawlog.read(path)
    assert table.to_pylist() == [convert_values(values) for values in rows]
    table.validate(full=True)
    for name in ("Str", "Long", "Bool"):
        assert sawlog.read(path, columns=[name]).to_pylist() == [{name: values[name]} for values in rows]
    again = path.parent / "again.bin"
    sawlog.write(table, again, format="deephaven_log")
    assert again.read_bytes() == path.read_bytes()


@st.composite
def schemas(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(CODES)), min_size=0, max_size=19))
    return [Col(f"C{i}", kind, table=("a", "b", "c") if kind == "Enum" else ()) for i, kind in enumerate(kinds)]


@settings(max_examples=40)
@given(cols=schemas(), data=st.data(), count=st.integers(0, 6))
def test_rows_of_any_schema_are_read_and_written_back(tmp_path_factory, cols, data, count):
    names = {"Boolean": "Bool", "EnhancedString": "Str"}
    rows = [{c.name: data.draw(st.none() | VALUES[names.get(c.type, c.type)]) for c in cols} for _ in range(count)]
    path = save(tmp_path_factory.mktemp("random") / "t.bin", header(cols), *(row(cols, values) for values in rows))
    table = sawlog.read(path, provenance=True)
    assert table.num_rows == count
    for col in cols:
        expected = [values[col.name] for values in rows]
        if col.type == "Enum":
            expected = [None if value is None else col.table[value] for value in expected]
        assert table.column(col.name).to_pylist() == expected
    again = path.parent / "again.bin"
    sawlog.write(table.drop_columns(["_file", "_offset"]), again, format="deephaven_log")
    if cols:
        assert again.read_bytes() == path.read_bytes()


def test_rows_in_runs_and_mixtures_of_presence(tmp_path: Path):
    """Long enough for every way in which rows are located: runs with the same columns, and mixtures."""
    rng = np.random.default_rng(3)
    rows = []
    for run in range(60):
        present = rng.random(len(ALL_COLUMNS)) < (0.0 if run == 3 else 0.7)
        for i in range(int(rng.integers(1, 300))):
            if run % 3 == 0:
                present = rng.random(len(ALL_COLUMNS)) < 0.5
            full = {"Bool": i % 2 == 0, "Byte": i % 100, "Char": 65 + i % 9, "Short": -i, "Int": i * 7, "Long": i << 33}
            full |= {"Float": 0.5, "Double": -i / 4, "Blob": bytes(i % 40), "Str": "é" * (i % 25), "Enum": i % 3}
            rows.append(
                {name: full[name] if is_present else None for name, is_present in zip(full, present, strict=True)}
            )
    path = save(tmp_path / "t.bin", header(ALL_COLUMNS), *(row(ALL_COLUMNS, values) for values in rows))
    expected = [convert_values(values) for values in rows]
    for options in ({}, {"verify_checksums": False}):
        assert sawlog.read(path, **options).to_pylist() == expected
    tasks = sawlog.open(path).fragments(50_000)
    assert [r for f in tasks for b in f.to_batches() for r in b.to_pylist()] == expected


def test_a_value_longer_than_a_batch_is_read(tmp_path: Path):
    cols = [Col("N", "Int"), Col("B", "Blob")]
    big = bytes(range(256)) * (40 << 10)
    parts = [row(cols, {"N": i, "B": big if i in (3, 4) else b"x" * i}) for i in range(9)]
    path = save(tmp_path / "t.bin", header(cols), *parts)
    table = sawlog.read(path)
    assert table.column("N").to_pylist() == list(range(9))
    assert table.column("B")[4].as_py() == big
    with pytest.warns(DamageWarning, match="1 bad_size"):
        few = sawlog.read(path, max_item_bytes=1 << 20, on_damage="skip", columns=["N"])
    assert few.column("N").to_pylist() == [0, 1, 2, 5, 6, 7, 8]


@pytest.mark.parametrize("kind", sorted(NULLS))
def test_constants_that_are_null_are_read_and_written_back(tmp_path: Path, kind):
    cols = [Col("K", kind, table=("a",), constant=bytes.fromhex(NULLS[kind])), Col("N", "Int")]
    path = save(tmp_path / "t.bin", header(cols), *(row(cols, {"N": i}) for i in range(3)))
    table = sawlog.read(path)
    assert table.column("K").to_pylist() == [None] * 3
    again = tmp_path / "again.bin"
    sawlog.write(table, again, format="deephaven_log")
    assert again.read_bytes() == path.read_bytes()


def test_constants_of_every_type(tmp_path: Path):
    values = {"Bool": True, "Byte": -3, "Char": 66, "Short": 9, "Int": -1, "Long": 1 << 40, "Float": 0.5}
    values |= {"Double": -0.25, "Blob": b"\x00\x01", "Str": "é", "Enum": 1}
    cols = [Col(c.name, c.type, c.charset, c.table, c.encode(values[c.name])) for c in ALL_COLUMNS]
    path = save(tmp_path / "t.bin", header([*cols, Col("N", "Int")]), row([Col("N", "Int")], {"N": 1}))
    table = sawlog.read(path)
    assert table.to_pylist() == [{**convert_values(values), "N": 1}]
    again = tmp_path / "again.bin"
    sawlog.write(table, again, format="deephaven_log")
    assert again.read_bytes() == path.read_bytes()


def test_values_that_stand_for_null_in_rows(tmp_path: Path):
    cols = [Col(f"C{i}", kind) for i, kind in enumerate(NULLS) if kind not in ("EnhancedString", "Blob", "Enum")]
    body = bytes([255]) + b"".join(bytes.fromhex(NULLS[col.type]) for col in cols)
    data = bytes([255]) + body[1:4].replace(b"\xff\xfe", b"\xff\xff") + body[4:]
    path = save(tmp_path / "t.bin", header(cols), entry(3, body), entry(3, data), row(cols, {"C4": 5}))
    table = sawlog.read(path)
    assert all(value is None for record in table.to_pylist()[:2] for value in record.values())
    assert table.column("C4").to_pylist() == [None, None, 5]
    values = sawlog.read(path, sentinels_as_null=False).to_pylist()[0]
    assert values["C4"] == -(1 << 31)
    assert values["C2"] == 0xFFFE
    assert struct.pack(">d", values["C7"]).hex() == NULLS["Double"]


@pytest.mark.parametrize("charset", ["US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16"])
def test_text_is_read_by_the_charset_of_its_column(tmp_path: Path, charset):
    values = ["", "plain", "x" * 40, "naïve" if charset != "US-ASCII" else "naive", None]
    if charset.startswith("UTF"):
        values.append("€ 語 🙂")
    python = {"UTF-16": "utf-16-be"}.get(charset, charset)
    mark = b"\xfe\xff" if charset == "UTF-16" else b""
    col = Col("S", "EnhancedString", charset)
    parts = []
    for value in values:
        if value is None:
            parts.append(entry(3, b"\0"))
        else:
            data = mark + value.encode(python)
            parts.append(entry(3, b"\1" + struct.pack(">i", len(data)) + data))
    path = save(tmp_path / "t.bin", header([col]), *parts)
    table = sawlog.read(path)
    assert table.column("S").to_pylist() == values
    again = tmp_path / "again.bin"
    sawlog.write(table, again, format="deephaven_log")
    assert again.read_bytes() == path.read_bytes()


def test_malformed_text_is_replaced_as_java_does(tmp_path: Path):
    col = Col("S", "EnhancedString")
    path = save(tmp_path / "t.bin", header([col]), entry(3, b"\1\0\0\0\3a\xffb"), row([col], {"S": "é"}))
    assert sawlog.read(path).column("S").to_pylist() == ["a\ufffdb", "é"]
    with pytest.raises(DamageError, match="UTF-8"):
        sawlog.read(path, strict=True)


def test_enum_indices_outside_the_table_are_damage(tmp_path: Path):
    cols = [Col("E", "Enum", table=("a", "b"))]
    path = save(tmp_path / "t.bin", header(cols), *(row(cols, {"E": i}) for i in (0, 1, 2, -5)))
    with pytest.raises(DamageError, match="index 2 in a table of 2"):
        sawlog.read(path)
    with pytest.warns(DamageWarning, match="bad_value"):
        assert sawlog.read(path, on_damage="skip").column("E").to_pylist() == ["a", "b", None, None]


def test_chars_as_strings(tmp_path: Path):
    cols = [Col("C", "Char")]
    path = save(tmp_path / "t.bin", header(cols), *(row(cols, {"C": c}) for c in (65, None, 0x20AC, 0xD800)))
    assert sawlog.read(path).column("C").to_pylist() == [65, None, 0x20AC, 0xD800]
    table = sawlog.read(path, char="string")
    assert table.column("C").to_pylist() == ["A", None, "€", "\ufffd"]
    sawlog.write(table.slice(0, 3), tmp_path / "again.bin", format="deephaven_log")
    assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()[: -len(row(cols, {"C": 1}))]


def test_numbers_are_times_where_an_option_says_so(tmp_path: Path):
    cols = [Col("T", "Long"), Col("U", "Long")]
    path = save(tmp_path / "t.bin", header(cols), row(cols, {"T": 1_700_000_000_123, "U": 5}))
    for given_as in ({"T": "ms"}, "T=ms"):
        table = sawlog.read(path, timestamp_columns=given_as)
        assert table.schema.field("T").type == pa.timestamp("ms", "UTC")
        assert table.column("T").cast(pa.int64()).to_pylist() == [1_700_000_000_123]
        sawlog.write(table, tmp_path / "again.bin", format="deephaven_log")
        assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()
    with pytest.raises(OptionError, match="no column 'X'"):
        sawlog.read(path, timestamp_columns={"X": "ms"})
    with pytest.raises(OptionError, match="fortnight"):
        sawlog.read(path, timestamp_columns="T=fortnight")
    with pytest.raises(SchemaError, match="times are Long"):
        sawlog.read(save(tmp_path / "i.bin", header([Col("T", "Int")])), timestamp_columns={"T": "ms"})


SCHEMA_XML = """<?xml version="1.0"?>
<Table namespace="Ns" name="T" namespaceSet="System" storageType="NestedPartitionedOnDisk">
  <Partitions keyFormula="${autobalance_single}" />
  <Column name="Day" dataType="String" columnType="Partitioning" />
  <Column name="B" dataType="java.time.Instant" />
  <Column name="A" dataType="DateTime" columnType="Normal"/>
  <column Name="Sym" DATATYPE="String" columntype="Grouping" unknown="x"/>
  <Listener logFormat="1"><Column name="B" dbSetter="microsToTime(B)"/></Listener>
</Table>"""


def test_a_schema_file_gives_types(tmp_path: Path):
    schema = tmp_path / "T.schema"
    schema.write_text(SCHEMA_XML)
    cols = [Col("A", "Long"), Col("Sym", "EnhancedString"), Col("B", "Long"), Col("More", "Int")]
    name = "Ns.T.System.host.2024-05-06.bin.2024-05-06.120000.000+0000"
    path = save(tmp_path / name, header(cols), row(cols, {"A": 1, "B": 2, "Sym": "x"}))
    table = sawlog.read(path, schema=str(schema))
    assert table.schema.names == ["Day", "B", "A", "Sym", "More"]
    assert table.schema.field("A").type == pa.timestamp("ms", "UTC")
    assert table.schema.field("B").type == pa.timestamp("us", "UTC")
    assert table.column("Day").to_pylist() == ["2024-05-06"]
    assert sawlog.read(path, partition_column="").schema.names == ["A", "Sym", "B", "More"]


@pytest.mark.parametrize(
    "hostile",
    [
        '<!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Table name="&b;"/>',
        '<!DOCTYPE Table SYSTEM "file:///etc/passwd"><Table/>',
        '<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><Table name="x">&x;</Table>',
        "<Table>" + "<a>" * 100 + "</a>" * 100 + "</Table>",
        "<Table>" + "<a/>" * 200_001 + "</Table>",
        "<Other/>",
        "<Table",
        "",
        "\0\1\2",
        '<Table><Column name="&undefined;"/></Table>',
    ],
)
def test_hostile_schema_files_are_refused(tmp_path: Path, hostile):
    schema = tmp_path / "hostile.schema"
    schema.write_text(hostile)
    path = save(tmp_path / "t.bin", header([Col("A", "Int")]))
    with pytest.raises(FormatError, match=r"hostile\.schema"):
        sawlog.read(path, schema=str(schema))


def test_files_of_different_schemas_are_united_by_name(tmp_path: Path):
    columns = [Col("A", "Int"), Col("E", "Enum", table=("x", "y"))]
    two = [Col("E", "Enum", table=("z", "y")), Col("B", "EnhancedString"), Col("K", "Int", constant=b"\0\0\0\7")]
    save(tmp_path / "1.bin", header(columns, app=1), row(columns, {"A": 1, "E": 1}))
    save(tmp_path / "2.bin", header(two, app=2), row(two, {"E": 0, "B": "b"}), row(two, {"E": 1}))
    table = sawlog.read(tmp_path)
    assert table.to_pylist() == [
        {"A": 1, "E": "y", "B": None, "K": None},
        {"A": None, "E": "z", "B": "b", "K": 7},
        {"A": None, "E": "y", "B": None, "K": 7},
    ]
    table.validate(full=True)
    save(tmp_path / "3.bin", header([Col("A", "Long")]), row([Col("A", "Long")], {"A": 1 << 40}))
    with pytest.raises(SchemaError, match=r"'A' is Int in .*1\.bin and Long in .*3\.bin.*widen=True"):
        sawlog.read(tmp_path)
    wide = sawlog.read(tmp_path, widen=True)
    assert wide.column("A").to_pylist() == [1, None, None, 1 << 40]
    save(tmp_path / "4.bin", header([Col("A", "EnhancedString")]))
    with pytest.raises(SchemaError, match="EnhancedString"):
        sawlog.read(tmp_path, widen=True)


def test_filters_prune_partitions(tmp_path: Path):
    cols = [Col("N", "Int")]
    for day in (1, 2, 3):
        name = f"Ns.T.System.h.2024-01-0{day}.bin.2024-01-0{day}.000000.000+0000"
        save(tmp_path / name, header(cols), row(cols, {"N": day}))
    dataset = sawlog.open(tmp_path, filters=[("Date", ">", "2024-01-01"), ("N", "!=", 3)])
    assert len(dataset.fragments()) == 2
    assert dataset.to_table().to_pylist() == [{"N": 2, "Date": "2024-01-02"}]


def test_several_tables_need_a_choice(tmp_path: Path):
    cols = [Col("N", "Int")]
    for table in ("T", "U"):
        save(tmp_path / f"Ns.{table}.System.h.2024-01-01.bin.2024-01-01.000000.000+0000", header(cols))
    with pytest.raises(OptionError, match=r"Ns\.T, Ns\.U"):
        sawlog.read(tmp_path)
    assert [log.name.table for log in sawlog.open(tmp_path, table="U").contents.logs] == ["U"]
    with pytest.raises(FormatError, match="none of the 2 logs"):
        sawlog.open(tmp_path, table="V")
    (path,) = tmp_path.glob("Ns.T*")
    assert sawlog.open(path, column_partition="else").contents.logs[0].name.column_partition == "else"


def test_unknown_header_records_are_unsupported(tmp_path: Path):
    cols = [Col("N", "Int")]
    path = save(tmp_path / "t.bin", header(cols, extra=struct.pack(">ii", 3, 77) + b"abc"), row(cols, {"N": 1}))
    with pytest.raises(UnsupportedError, match="type 77"):
        sawlog.read(path)
    with pytest.warns(DamageWarning, match="does not support"):
        assert sawlog.read(path, on_damage="skip").num_rows == 1
    (report,) = sawlog.verify(path).files
    assert [(damage.kind, damage.offset, damage.length) for damage in report.damages] == [
        ("unsupported", report.account.header - 4, 11)
    ]
    table = sawlog.read(path, salvage="unknown_versions")
    assert table.num_rows == 1
    assert not sawlog.verify(path, salvage="unknown_versions").files[0].account.unsupported
    assert sawlog.open(path).info()["unknown header records"] == "type 77 (3 bytes)"
    sawlog.write(table, tmp_path / "again.bin", format="deephaven_log")
    assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()
    other_path = save(tmp_path / "u.bin", header(cols), row(cols, {"N": 2}))
    result_table = sawlog.read([path, other_path], salvage="unknown_versions")
    assert b"sawlog.header_records" not in (result_table.schema.metadata or {})


def test_a_newer_file_among_others_is_unsupported(tmp_path: Path):
    cols = [Col("N", "Int")]
    save(tmp_path / "t.bin", header(cols), row(cols, {"N": 1}))
    newer = save(tmp_path / "u.bin", header(cols, version=4), row(cols, {"N": 2}))
    reports = {report.path: report for report in sawlog.verify(tmp_path).files}
    assert list(reports[str(newer)].kinds) == ["unsupported"]
    assert reports[str(newer)].account.unsupported == newer.stat().st_size


@pytest.mark.parametrize("stored", [b"{", b"[1]", b'[[77, "xy"]]', b'[[1, ""]]', b'[[4294967296, ""]]', b'[["a", ""]]'])
def test_header_records_that_cannot_be_written(tmp_path: Path, stored: bytes):
    table = pa.table({"N": [1]}).replace_schema_metadata({b"sawlog.header_records": stored})
    with pytest.raises(SchemaError, match="header_records"):
        sawlog.write(table, tmp_path / "t.bin", format="deephaven_log")


def test_what_a_schema_file_says_of_blobs(tmp_path: Path):
    cols = [Col("Amt", "Blob"), Col("Raw", "Blob")]
    path = save(tmp_path / "t.bin", header(cols), row(cols, {"Amt": b"\0\1", "Raw": b"\xac\xed"}))
    xml = tmp_path / "t.schema"
    xml.write_text(
        '<Table namespace="N" name="T"><Column name="Amt" dataType="java.math.BigDecimal"'
        ' objectCodec="com.x.BigDecimalCodec" objectCodecArguments="20,5"/></Table>'
    )
    schema = sawlog.read(path, schema=str(xml)).schema
    assert schema.types == [pa.binary(), pa.binary()]
    assert schema.field("Raw").metadata == {b"sawlog.type": b"Blob"}
    assert schema.field("Amt").metadata == {
        b"sawlog.type": b"Blob",
        b"sawlog.java_class": b"java.math.BigDecimal",
        b"sawlog.codec": b"com.x.BigDecimalCodec",
        b"sawlog.codec_arguments": b"20,5",
    }


def test_a_wrong_digest_of_the_header(tmp_path: Path):
    cols = [Col("N", "Int")]
    head = header(cols)
    path = save(tmp_path / "t.bin", head[:-1] + bytes([head[-1] ^ 1]), row(cols, {"N": 1}))
    with pytest.warns(DamageWarning, match="digest of the header"):
        assert sawlog.read(path).num_rows == 1
    with pytest.raises(FormatError, match="digest of the header"):
        sawlog.read(path, strict=True)
    (report,) = sawlog.verify(path).files
    assert report.kinds == {"header_digest": 1}
    assert report.account.total == report.size
    sawlog.repair(path, tmp_path / "fixed.bin")
    assert (tmp_path / "fixed.bin").read_bytes() == head + row(cols, {"N": 1})


def test_presence_maps_count_from_the_least_significant_bit(tmp_path: Path):
    """The published rule, whatever a row looks like; one that counts from the other end does not fit its columns."""
    cols = [Col("A", "Long"), Col("B", "Byte"), Col("S", "EnhancedString")]
    rows = [{"A": 1}, {"B": 2, "S": "s"}, {"A": 3, "B": 4, "S": "t"}]
    path = save(tmp_path / "t.bin", header(cols), *(entry(3, row_body(cols, r, big_bits=True)) for r in rows))
    with pytest.raises(DamageError, match="bad_row"):
        sawlog.read(path, strict=True)
    assert sawlog.verify(path, strict=True).files[0].kinds["bad_row"] == 3


JAVA_UTF_8 = bytes.fromhex(
    "aced00057e7200246 36f6d2e666973686c69622e626173652e737472696e672e456e636f64696e67496e666f".replace(" ", "")
    + "000000000000000012000078720 00e6a6176612e6c616e672e456e756d0000000000000000120000787074 00055554465f38".replace(
        " ", ""
    )
)


@pytest.mark.parametrize("prefix", [b"", struct.pack(">i", len(JAVA_UTF_8))])
def test_columns_of_version_2_are_read(tmp_path: Path, prefix):
    class Java(Col):
        def meta(self) -> bytes:
            return prefix + JAVA_UTF_8

    class BareColumn(Col):
        def meta(self) -> bytes:
            return struct.pack(">i", 2) + text("a") + text("b")

    cols = [Java("S", "EnhancedString"), BareColumn("E", "Enum"), Col("F", "Enum", table=("c",))]
    path = save(tmp_path / "t.bin", header(cols, version=2), row(cols, {"S": "é", "E": 1, "F": 0}))
    assert sawlog.read(path).to_pylist() == [{"S": "é", "E": "b", "F": "c"}]

    class UnknownColumn(Col):
        def meta(self) -> bytes:
            return b"\xac\xed\0\5nothing"

    cols = [UnknownColumn("S", "EnhancedString")]
    path = save(tmp_path / "u.bin", header(cols, version=2), row(cols, {"S": "x"}))
    with pytest.warns(DamageWarning, match="unknown charset"):
        assert sawlog.read(path).to_pylist() == [{"S": "x"}]


def test_later_versions_need_force(tmp_path: Path):
    cols = [Col("N", "Int")]
    path = save(tmp_path / "t.bin", header(cols, version=4), row(cols, {"N": 1}))
    with pytest.raises(FormatError, match=r"version 4 is not supported.*salvage=.unknown_versions"):
        sawlog.read(path)
    assert sawlog.read(path, salvage="unknown_versions").num_rows == 1


def test_the_format_before_the_magic_number_is_recognised_and_refused(tmp_path: Path):
    columns = [("S", "java.lang.String"), ("N", "int")]
    head = struct.pack(">i", len(columns))
    head += b"".join(name.encode() + b"\0" + kind.encode() + b"\0" + struct.pack(">ii", 8, 0) for name, kind in columns)
    path = save(tmp_path / "t.bin", head, bytes([3]) + text("x") + struct.pack(">i", 1))
    with pytest.raises(FormatError, match="not a Deephaven log, or one from before version 2"):
        sawlog.read(path, format="deephaven_log")


def test_work_grows_with_the_columns_of_a_header_and_no_faster(tmp_path: Path):
    """Headers of 250 and of 1,000 columns: four times as many steps of Python, not sixteen times as many."""

    def steps(count: int) -> int:
        path = save(tmp_path / f"{count}.bin", header([Col(f"c{i}", "Int") for i in range(count)]))
        step_count = 0

        def step(frame: object, event: str, argument: object) -> Any:
            nonlocal step_count
            step_count += 1
            return step

        before = sys.gettrace()
        sys.settrace(step)
        try:
            table = sawlog.read(path)
            sawlog.verify(path)
            sawlog.write(table, path.with_suffix(".again"), format="deephaven_log")
        finally:
            sys.settrace(before)
        assert len(table.schema) == count
        return step_count

    steps(10)
    few, middle, many = steps(250), steps(500), steps(1000)
    assert many - middle < 2.2 * (middle - few)
