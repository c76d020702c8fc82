"""Segments of Storage V3: manifests, column groups cut anywhere, deletes, texts; and manifests that lie."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.errors import DamageError, IncompleteError, OptionError, UnsupportedError
from sawlog.format.damage import DamageWarning, Findings
from sawlog.milvus.payloads.payload import Payload
from sawlog.testing.outcome import list_places
from sawlog.testing.outcome import read_rows as read_outcome

from .packing import DELTA, SCHEMA, STATS, array, group, mapping, packed_file, record, write_manifest, write_segment
from .support import NOW, PK, SECOND, Server, delete, field, message, open_as_it_lies, quiet, write_collection

pytestmark = quiet
ROWS = 100
COLUMNS = {100: pa.array(range(ROWS), pa.int64()), 101: pa.array([f"text {row}" for row in range(ROWS)])}
CUTS = {(0, 1, 100): [40, 60], (101,): [10, 30, 25, 35]}


def read_collection(root: Path, **options: Any) -> pa.Table:
    return open_as_it_lies(root, **options).to_table()


def test_groups_are_joined_by_position_wherever_they_are_cut(tmp_path: Path) -> None:
    write_segment(tmp_path, 900, COLUMNS, CUTS)
    dataset = open_as_it_lies(tmp_path)
    assert dataset.format.name == "milvus_binlog"
    assert dataset.to_table() == pa.table({"100": COLUMNS[100], "101": COLUMNS[101]}).cast(dataset.schema)
    assert dataset.count_rows() == ROWS
    assert read_collection(tmp_path, columns=["101"], filters=[("100", "in", [9, 10, 39, 40, 64, 65])])[
        "101"
    ].to_pylist() == [f"text {row}" for row in (9, 10, 39, 40, 64, 65)]
    assert read_collection(tmp_path, view="inserts")["RowID"].to_pylist() == list(range(ROWS))
    files = sawlog.read(tmp_path, columns=["_file", "_offset"]).to_pylist()
    assert {Path(file["_file"]).name for file in files} == {"0_0.parquet", "0_1.parquet"}
    (segment,) = read_collection(tmp_path, view="segments").to_pylist()
    assert (segment["segment"], segment["rows"], segment["files"]) == (900, ROWS, 7)


def test_a_part_that_fails_otherwise_than_by_lost_rows_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is one of an earlier part, too, which has read its own rows of it, and reports nothing."""
    cuts = {(0, 1, 100, 101): [ROWS]}
    directory = write_segment(tmp_path, 900, COLUMNS, cuts, {"row_group_size": 30, "use_dictionary": False})
    place = directory / "_data" / "0_0.parquet"
    chunk = pq.read_metadata(place).row_group(2).column(3)
    data = bytearray(place.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size
    data[end - 30 : end] = bytes(30)
    place.write_bytes(data)
    monkeypatch.setattr(Payload, "resolve", lambda *_: [])  # what no page is found to lack
    findings = Findings("skip")
    fragments = open_as_it_lies(tmp_path, on_damage="skip").fragments(1)
    rows = sum(batch.num_rows for fragment in fragments for batch in fragment.to_batches(findings))
    assert (len(fragments), rows) == (4, 70)
    assert [damage.path for damage in findings.damages] == [str(place)]


@pytest.mark.parametrize("verb", [sawlog.read, sawlog.verify])
def test_without_fastavro_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[..., Any]
) -> None:
    write_segment(tmp_path, 900, COLUMNS, CUTS)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(OptionError, match=r"manifests of Storage V3: pip install '.*\[milvus\]'"):
        verb(tmp_path)


def test_every_byte_is_accounted_for(tmp_path: Path) -> None:
    write_segment(tmp_path, 900, COLUMNS, CUTS)
    write_collection(tmp_path, pa.table({"pk": [1000], "t": ["old"]}))
    report = sawlog.verify(tmp_path)
    sizes = {str(path): path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    assert {file.path: file.account.total for file in report.files} == sizes
    assert not report.damaged
    assert report.rows == ROWS + 1
    target = tmp_path / "insert_log/1/2/900/_data/1_2.parquet"
    data = bytearray(target.read_bytes())
    data[20] ^= 0xFF
    target.write_bytes(data)
    assert [file.path for file in sawlog.verify(tmp_path).files if file.damaged] == [str(target)]
    with pytest.raises(DamageError, match=r"1_2\.parquet"):
        read_collection(tmp_path)


def test_deletes_that_the_manifest_names_are_applied(tmp_path: Path) -> None:
    directory = write_segment(tmp_path, 900, COLUMNS, CUTS)
    delete(tmp_path, [3, 50], [NOW + SECOND] * 2, 900, first_id=9000)
    with pytest.warns(DamageWarning, match="does not name it"):
        assert read_collection(tmp_path)["100"].to_pylist() == list(range(ROWS))
    assert any("delta_log" in file.path for file in open_as_it_lies(tmp_path).skipped)
    (log,) = tmp_path.rglob("delta_log/1/2/900/*")
    groups = [
        group([0, 1, 100], [packed_file("0_0.parquet", 0, 40), packed_file("0_1.parquet", 5, 60)]),
        group([101], [packed_file("1_3.parquet", 0, 35), *[packed_file("1_0.parquet", 0, 10)] * 6]),
    ]
    deltas = [f"../../../../../{log.relative_to(tmp_path)}"]
    write_manifest(directory, groups, deltas, version=10, deletes=2)
    rows_kept = [*(row for row in range(40) if row != 3), *(row for row in range(45, ROWS) if row != 50)]
    assert read_collection(tmp_path)["100"].to_pylist() == rows_kept  # rows 5 to 60 of a file, by the latest manifest
    history = read_collection(tmp_path, view="history", filters=[("_deleted", "=", NOW + SECOND)])
    assert history["100"].to_pylist() == [3, 50]
    write_manifest(directory, groups, deltas, version=11, deletes=3)
    with pytest.raises(IncompleteError, match="expected 3 deletes, as the metadata says, found 2"):
        read_collection(tmp_path)


def test_the_metadata_says_which_version_is_meant(tmp_path: Path) -> None:
    directory = write_segment(tmp_path, 900, COLUMNS, CUTS)
    write_manifest(directory, [group([0, 1, 100], [packed_file("0_0.parquet", 0, 7)])], version=2)
    server = Server()
    server.collection(1, "c", [PK, field(101, "t", 21, {15: 1})], NOW - SECOND)
    server.partition(1, 2, "p", 0, NOW - SECOND)
    for version, rows in ((1, ROWS), (2, 7), (3, None)):
        place = f'{{"ver":{version},"base_path":"insert_log/1/2/900"}}'
        info = {1: 900, 2: 1, 3: 2, 6: 4, 20: 2, 21: 3, 32: place}
        server.put("datacoord-meta/s/1/2/900", message(info))
        dataset = open_as_it_lies(tmp_path, metadata=server.save(tmp_path / "etcd.json"))
        if rows is not None:
            assert dataset.to_table().num_rows == rows
        else:
            with pytest.raises(IncompleteError, match="version 3 of the manifest, which is not there"):
                dataset.to_table()


def test_texts_are_inline_or_told(tmp_path: Path) -> None:
    texts = pa.array([b"\0plain", b"\0", None, "\0€".encode()], pa.binary())
    write_segment(tmp_path, 900, {100: pa.array(range(4)), 101: texts}, {(0, 1, 100): [4], (101,): [4]})
    schema = {"name": "c", "fields": [{"name": "pk", "type": 5, "is_primary": True}, {"name": "t", "type": 25}]}
    assert read_collection(tmp_path, schema=schema)["t"].to_pylist() == ["plain", "", None, "€"]
    large = b"\1\0\0\0" + bytes(range(16)) + b"\5\0\0\0"
    cells = {
        large: "row 5 of a file of large texts, lobs/101/_data/00010203-0405-0607-0809-0a0b0c0d0e0f.vx",
        large[:-1]: "23 bytes name",
        b"": "without the byte",
        b"\7x": "of kind 7",
    }
    for cell, expected_text in cells.items():
        texts = pa.array([b"\0plain", cell], pa.binary())
        write_segment(tmp_path, 900, {100: pa.array(range(2)), 101: texts}, {(0, 1, 100): [2], (101,): [2]})
        with pytest.raises(UnsupportedError if cell == large else DamageError, match=expected_text):
            read_collection(tmp_path, schema=schema)
        with pytest.warns(DamageWarning):
            assert read_collection(tmp_path, schema=schema, on_damage="skip")["t"].to_pylist() == ["plain"]
        assert read_collection(tmp_path, schema=schema, columns=["pk"]).num_rows == 2


def test_files_of_large_texts_are_no_segment(tmp_path: Path) -> None:
    """They are next to the segments of their partition: nothing is taken for damage where no row needs one."""
    write_segment(tmp_path, 900, COLUMNS, CUTS)
    large = tmp_path / "insert_log/1/2/lobs/101/_data/00010203-0405-0607-0809-0a0b0c0d0e0f.vx"
    large.parent.mkdir(parents=True)
    large.write_bytes(b"VTXF" + bytes(60) + b"\1\0\x10\0VTXF")
    assert read_collection(tmp_path).num_rows == ROWS
    report = sawlog.verify(tmp_path)
    assert not report.damaged
    assert report.rows == ROWS


def lie(directory: Path, **options: Any) -> None:
    write_manifest(
        directory, options.pop("groups", [group([0, 1, 100], [packed_file("0_0.parquet", 0, 40)])]), **options
    )


BOTH_GROUPS = [
    group([0, 1, 100], [packed_file("0_0.parquet", 0, 40)]),
    group([101], [packed_file("1_3.parquet", 0, 35), packed_file("1_0.parquet", 0, 5)]),
]
LIES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "rows": (
        "40, 60 rows",
        lambda d: lie(
            d,
            groups=[group([0], [packed_file("0_0.parquet", 0, 40)]), group([101], [packed_file("0_1.parquet", 0, 60)])],
        ),
    ),
    "more": (
        "rows 0 to 41 by the manifest",
        lambda d: lie(d, groups=[group([0, 1, 100], [packed_file("0_0.parquet", 0, 41)])]),
    ),
    "empty": ("expected a range", lambda d: lie(d, groups=[group([0], [packed_file("0_0.parquet", 4, 4)])])),
    "endless": ("rows 0 to", lambda d: lie(d, groups=[group([0, 1, 100], [packed_file("0_0.parquet", 0, 1 << 60)])])),
    "gone": ("not there", lambda d: lie(d, groups=[group([0, 1, 100], [packed_file("9.parquet", 0, 40)])])),
    "outside": ("below", lambda d: lie(d, groups=[group([0], [packed_file("../../../../../../secret", 0, 40)])])),
    "absolute": ("below", lambda d: lie(d, groups=[group([0], [packed_file("/etc/passwd", 0, 40)])])),
    "elsewhere": ("below", lambda d: lie(d, groups=[group([0], [packed_file("s3://b/x", 0, 40)])])),
    "no delta": ("not there", lambda d: lie(d, groups=BOTH_GROUPS, deltas=["gone"])),
    "compressed": ("compressed with deflate", lambda d: lie(d, codec="deflate")),
    "avro": ("Avro", lambda d: (d / "_metadata/manifest-1.avro").write_bytes(b"Obj\x01" + bytes(64))),
    "legacy": (
        "expected an Avro container",
        lambda d: (d / "_metadata/manifest-1.avro").write_bytes(b"MILV" + bytes(64)),
    ),
    "large": ("no more than", lambda d: (d / "_metadata/manifest-1.avro").write_bytes(b"Obj\x01" + bytes(1 << 21))),
    "other": ("missing", lambda d: lie_by_schema(d, record("Other", x="long"), {"x": 1})),
    "no groups": ("names no file", lambda d: lie(d, groups=[])),
    "no files": ("names no file", lambda d: lie(d, groups=[group([0, 1, 100, 101], [])])),
    "nothing": ("type null", lambda d: lie_by_schema(d, record("Other", x=array("null")), {"x": [None] * 9})),
}


NEWER: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{
        name: (
            f"kept as {name}",
            lambda d, name=name: lie(d, groups=[group([0, 1, 100], [packed_file("0_0.vx", 0, 40)], name)]),
        )
        for name in ("vortex", "lance-table", "iceberg-table", "paimon-table")
    },
    "positions": ("of type 1", lambda d: lie(d, deltas=["x"], type=1)),
    "version": ("version 7", lambda d: bare_manifest(d / "_metadata/manifest-1.avro", 7, [])),
}
"""What Milvus' storage library writes, or will, and sawlog does not read."""


def lie_by_schema(directory: Path, schema: dict[str, Any], record: dict[str, Any]) -> None:
    with (directory / "_metadata/manifest-1.avro").open("wb") as out:
        fastavro.writer(out, schema, [record])


@pytest.mark.parametrize("name", LIES)
def test_manifests_that_lie_are_damage(tmp_path: Path, name: str) -> None:
    """Every verb says so; the other segments are read, and where only a delta log is missing, all rows are."""
    message, damage = LIES[name]
    directory = write_segment(tmp_path, 900, COLUMNS, CUTS)
    write_collection(tmp_path, pa.table({"pk": [1000, 1001], "t": ["a", "b"]}))
    damage(directory)
    error = IncompleteError if name in ("gone", "no delta") else DamageError
    with pytest.raises(error, match=message):
        read_collection(tmp_path)
    rows = [*(range(40) if name == "no delta" else ()), 1000, 1001]
    with pytest.warns(DamageWarning):
        assert sorted(read_collection(tmp_path, on_damage="skip")["100"].to_pylist()) == rows
    with pytest.warns(DamageWarning):
        assert open_as_it_lies(tmp_path, on_damage="skip").count_rows() == len(rows)
    report = sawlog.verify(tmp_path)
    assert report.verdict == ("incomplete" if error is IncompleteError else "damaged")
    assert report.rows == len(rows)
    assert any(message.split()[0] in str(row["detail"]) for row in sawlog.read(tmp_path, view="damage").to_pylist())


@pytest.mark.parametrize("name", NEWER)
def test_what_a_newer_writer_may_mean_is_unsupported(tmp_path: Path, name: str) -> None:
    """It is no damage, and is named; the other segments are read."""
    message, make = NEWER[name]
    directory = write_segment(tmp_path, 900, COLUMNS, CUTS)
    write_collection(tmp_path, pa.table({"pk": [1000, 1001], "t": ["a", "b"]}))
    make(directory)
    with pytest.raises(UnsupportedError, match=message):
        read_collection(tmp_path)
    with pytest.warns(DamageWarning):
        assert read_collection(tmp_path, on_damage="skip")["100"].to_pylist() == [1000, 1001]
    report = sawlog.verify(tmp_path)
    assert report.unsupported
    assert not report.damaged
    assert report.rows == 2


def beside_vortex(root: Path) -> None:
    """A segment of two column groups, of which one is kept in a format that is not read, and a segment of Parquet."""
    directory = write_segment(root, 900, COLUMNS, CUTS)
    files = [packed_file(f"0_{index}.parquet", 0, size) for index, size in enumerate(CUTS[0, 1, 100])]
    lie(directory, groups=[group([0, 1, 100], files), group([101], [packed_file("1_0.vx", 0, ROWS)], "vortex")])
    write_collection(root, pa.table({"pk": [1000, 1001], "t": ["a", "b"]}))


VORTEX_SCHEMA = {
    "name": "c",
    "fields": [{"name": "pk", "type": 5, "is_primary": True}, {"name": "t", "type": 21, "nullable": True}],
}


def test_column_groups_beside_one_that_is_not_supported_are_read(tmp_path: Path) -> None:
    beside_vortex(tmp_path)
    options = {"schema": VORTEX_SCHEMA}
    keys = [*range(ROWS), 1000, 1001]
    assert sorted(read_collection(tmp_path, columns=["pk"], **options)["pk"].to_pylist()) == keys
    with pytest.raises(UnsupportedError, match="columns 101 are kept as vortex"):
        read_collection(tmp_path, **options)
    with pytest.warns(DamageWarning):
        assert read_collection(tmp_path, on_damage="skip", **options).to_pylist() == [
            {"pk": 1000, "t": "a"},
            {"pk": 1001, "t": "b"},
        ]
    with pytest.warns(DamageWarning):
        assert open_as_it_lies(tmp_path, on_damage="skip", **options).count_rows() == 2
    report = sawlog.verify(tmp_path, **options)
    assert (report.damaged, report.unsupported, report.rows) == (False, True, 2)
    (named,) = [damage for file in report.files for damage in file.damages]
    assert "vortex" in named.detail


def test_a_column_group_that_no_schema_tells_of_is_named(tmp_path: Path) -> None:
    beside_vortex(tmp_path)
    for path in tmp_path.glob("insert_log/1/2/*"):
        if path.name != "900":
            shutil.rmtree(path)
    with pytest.raises(UnsupportedError, match="columns 101 are kept as vortex"):
        read_collection(tmp_path)
    with pytest.warns(DamageWarning, match="does not support"):
        assert read_collection(tmp_path, on_damage="skip")["100"].to_pylist() == list(range(ROWS))
    report = sawlog.verify(tmp_path)
    assert (report.damaged, report.unsupported, report.rows) == (False, True, ROWS)


def bare_manifest(path: Path, version: int, groups: list[dict[str, Any]]) -> None:
    """A manifest without an Avro container, as the storage library wrote them before it had one."""
    file = record("File", path="string", start_index="long", end_index="long", metadata="bytes")
    stats = STATS if version >= 3 else array("string")
    schema = record(
        "Manifest",
        magic="int",
        version="int",
        column_groups=array(record("ColumnGroup", columns=array("string"), files=array(file), format="string")),
        delta_logs=array(DELTA),
        stats=mapping(stats),
    )
    paths = ["stats"]
    manifest = {
        "magic": 0x4D494C56,
        "version": version,
        "column_groups": [
            {**group, "files": [{**file, "metadata": b"\x01\xff"} for file in group["files"]]} for group in groups
        ],
        "delta_logs": [],
        "stats": {"bloom_filter.100": {"paths": paths, "metadata": {}} if version >= 3 else paths},
    }
    with path.open("wb") as out:
        fastavro.schemaless_writer(out, schema, manifest)
        out.write(bytes(2 if version >= 6 else 1 if version >= 5 else 0))  # no indexes, no files of large texts


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_manifests_without_a_container_are_read(tmp_path: Path, version: int) -> None:
    directory = write_segment(tmp_path, 900, COLUMNS, CUTS)
    path = directory / "_metadata/manifest-1.avro"
    with path.open("rb") as file:
        (manifest,) = fastavro.reader(file)
    bare_manifest(path, version, manifest["column_groups"])
    assert read_collection(tmp_path)["100"].to_pylist() == list(range(ROWS))
    assert not sawlog.verify(tmp_path).damaged
    data = path.read_bytes()
    for size in range(len(data) - 40):
        path.write_bytes(data[:size])
        with pytest.raises(DamageError):
            read_collection(tmp_path)


def test_the_manifest_of_the_public_writer_is_the_tests_own() -> None:
    """The names that the library gives its records and fields."""
    names = [field["name"] for field in SCHEMA["fields"]]
    assert names == ["column_groups", "delta_logs", "stats"]


def test_rows_that_a_file_lacks_are_reported_by_the_batch_that_lacks_them(tmp_path: Path) -> None:
    """The file of keys has 40 rows, of which the first 10 go with a file of texts, and 20 by another state of it."""
    write_segment(tmp_path, 900, COLUMNS, CUTS)
    shorter = {100: COLUMNS[100].slice(0, 20), 101: COLUMNS[101].slice(0, 20)}
    write_segment(tmp_path / "other", 900, shorter, {(0, 1, 100): [20], (101,): [20]})
    files = [
        next(path for path in sorted((root / "insert_log").rglob("*.parquet")) if "100" in pq.read_schema(path).names)
        for root in (tmp_path, tmp_path / "other")
    ]
    files[0].write_bytes(files[1].read_bytes())
    shutil.rmtree(tmp_path / "other")
    report = sawlog.verify(tmp_path)
    assert report.damaged
    with pytest.raises(DamageError, match=r"row_count_mismatch.*rows 10 to 40 by the manifest, where the file has 20"):
        read_collection(tmp_path)
    with pytest.warns(DamageWarning, match="1 row_count_mismatch"):
        rows = sawlog.read(tmp_path, on_damage="skip")
    assert rows["101"].to_pylist() == [f"text {row}" for row in (*range(10), *range(40, 100))]
    assert report.rows == len(rows)


@pytest.mark.parametrize("keys", [(25,), (5,), (5, 25), (15, 25), (25, 35), (35,), (45,)])
@pytest.mark.parametrize("texts", ["1_1.parquet", "1_2.parquet", None])
def test_damage_of_a_file_of_several_batches_is_reported_once(
    tmp_path: Path, keys: tuple[int, ...], texts: str | None
) -> None:
    """Pages of keys are damaged, and the end of a file of texts is gone: of rows 10 to 40, or 40 to 65."""
    data = write_segment(tmp_path, 900, COLUMNS, CUTS, {"row_group_size": 5}) / "_data"
    for row in keys:
        name, group_number = ("0_0.parquet", row // 5) if row < 40 else ("0_1.parquet", (row - 40) // 5)
        metadata = pq.read_metadata(data / name).row_group(group_number)
        place = next(
            column.dictionary_page_offset or column.data_page_offset
            for column in map(metadata.column, range(metadata.num_columns))
            if column.path_in_schema == "100"
        )
        content = bytearray((data / name).read_bytes())
        content[place : place + 8] = b"\xff" * 8
        (data / name).write_bytes(content)
    if texts is not None:
        (data / texts).write_bytes((data / texts).read_bytes()[:-20])
    dataset = open_as_it_lies(tmp_path, on_damage="skip")
    _, findings = read_outcome(dataset)
    reported = [damage for part in findings for damage in list_places(part.damages)]
    assert sorted(reported) == sorted(list_places(damage for report in dataset.verify() for damage in report.damages))
