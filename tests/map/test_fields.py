"""Formats name the parts of their bytes; where these are damaged, they say what they can, and nothing breaks."""

from __future__ import annotations

import itertools
import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.format.capabilities import find_field_parser
from sawlog.format.fields import Part
from sawlog.kernels.varints import decode_varints_with_ends
from sawlog.leveldb.table.fields import iterate_spans
from sawlog.leveldb.table.rows import read_table_map
from sawlog.map import survey
from sawlog.map.excerpts import HEAD_PARTS, MAX_PARTS
from tests.leveldb_log.support import compressed_log, zstd
from tests.leveldb_table.test_laws import TestLaws as Tables
from tests.samples import FORMATS, samples
from tests.support import write_records

__all__ = ["samples"]

GOLDEN = Path(__file__).parents[1] / "golden"


def parts(path: object, offset: int, limit: int = 40, named: str = "", **options: Any) -> list[Part]:
    dataset = sawlog.open(path, on_damage="skip", **options)
    file = next(file for file in dataset.files if file.path.endswith(named))
    with closing(dataset.scan.storage.open(file.path)) as source:
        return list(itertools.islice(find_field_parser(dataset.contents, file, source)(offset), limit))


def map_values(part_list: list[Part]) -> dict[str, str]:
    return {part.name: part.value for part in part_list}


def assert_gapless(part_list: list[Part], start: int) -> None:
    for part in part_list:
        assert part.offset == start, part
        start = part.end


def test_fields_of_a_log_are_named_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    write_records(path, [b"x" * 32_754, b"hello"])
    part_list = parts(path, 0)
    assert_gapless(part_list, 0)
    assert [part.name for part in part_list] == [
        *("checksum", "length", "type", "payload"),
        "checksum", "length", "type", "payload",
        "checksum", "length", "type", "payload",
    ]  # fmt: skip
    assert [part.value for part in part_list if part.name == "type"] == ["1, full", "2, first", "4, last"]
    assert not any(part.expected for part in part_list)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert parts(path, 0)[0].expected.startswith("0x")


def test_fields_of_a_database_are_named_file_by_file(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "examples/data/shop", tmp_path, dirs_exist_ok=True)
    for named in (".log", "MANIFEST-000002"):
        part_list = parts(tmp_path, 0, named=named, format="leveldb_database")
        fields = ["sequence", "count"] if named == ".log" else ["comparator"]
        assert [part.name for part in part_list[:5]][: 3 + len(fields)] == ["checksum", "length", "type", *fields]
        assert not any(part.expected for part in part_list)
    assert parts(tmp_path, 0, named="CURRENT", format="leveldb_database") == []
    pebble = GOLDEN / "leveldb_table" / "pebble" / "13-plain"
    table = next(pebble.glob("*.sst")).name
    part_list = parts(pebble, 0, named=table, format="leveldb_database")
    assert part_list == parts(pebble / table, 0)
    assert part_list[0].name == "data block"


def test_the_marker_at_the_end_of_a_log_of_pebble_is_no_broken_fragment() -> None:
    for path in (GOLDEN / "leveldb_log" / "pebble" / "new").glob("*.log"):
        part_list = parts(path, 0, 1000)
        assert_gapless(part_list, 0)
        assert (part_list[-1].name, part_list[-1].end) == ("end of the log", path.stat().st_size)
        assert not any(part.expected for part in part_list)


def test_write_batches_are_named_down_to_keys_and_values(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    writes = pa.table(
        {
            "sequence": [7, 8, 9, 10],
            "operation": ["put", "delete", "merge", "put"],
            "column_family": [0, 3, 0, 0],
            "key": [b"a", b"b" * 200, b"<c>", b"d"],
            "value": [b"x", None, b"", b"y" * 40_000],
        }
    )
    sawlog.write(writes, path, format="leveldb_log", view="writes", operations_per_batch=4)
    part_list = parts(path, 0)
    assert_gapless(part_list, 0)
    assert not any(part.expected for part in part_list)
    data = path.read_bytes()
    stored = {
        name: [data[part.offset : part.end] for part in part_list if part.name == name] for name in ("key", "value")
    }
    assert stored["key"] == writes["key"].to_pylist()
    assert stored["value"][0] == b"x"
    assert [part.value for part in part_list if part.name == "operation"] == [
        "1, put",
        "4, delete",
        "2, merge",
        "1, put",
    ]
    named = map_values(part_list)
    assert (named["sequence"], named["count"], named["column family"], named["value length"]) == (
        "7",
        "4",
        "3",
        "40,000",
    )
    assert named["value"].startswith("the first ")
    assert named["payload"].endswith("which go on a record")


def test_records_that_are_no_write_batches_have_no_fields(tmp_path: Path) -> None:
    dice = Random(1)
    records = [b"", b"x" * 12, bytes(12), dice.randbytes(500), b"\1" + bytes(7) + b"\2\0\0\0\1\1a\1b", bytes(11)]
    path = tmp_path / "000001.log"
    write_records(path, records)
    part_list = parts(path, 0)
    assert_gapless([part for part in part_list if part.length], 0)
    assert [part.name for part in part_list if part.name in ("payload", "sequence")] == [
        *("payload", "payload", "sequence", "payload", "payload", "payload"),
    ]


@pytest.mark.parametrize("name", ["rocksdb/11-zstd.sst", "rocksdb/11-apart.sst", "pebble/small.sst"])
def test_blocks_from_an_offset_on_are_those_of_the_table(name: str) -> None:
    """From the first one on they were looked for, for each of 1,400 excerpts."""
    dataset = sawlog.open(GOLDEN / "leveldb_table" / name)
    table = read_table_map(dataset.files[0], dataset.scan)
    assert table is not None
    spans = list(iterate_spans(table))
    for offset in sorted({place for start, length, *_ in spans for place in (start, start + 1, start + length - 1)}):
        part_list = [span for span in iterate_spans(table, offset) if span[0] + span[1] > offset]
        assert part_list == [span for span in spans if span[0] + span[1] > offset]
        assert len(list(iterate_spans(table, offset))) <= len(part_list) + 1


def test_entries_of_tables_are_those_of_a_read(tmp_path: Path) -> None:
    path = tmp_path / "000001.ldb"
    rows = {
        "key": [b"key%03d" % number for number in range(300)],
        "value": [b"v" * (number % 9) for number in range(300)],
    }
    sawlog.write(pa.table(rows), path, format="leveldb_table", compression="none", block_bytes=1000)
    part_list = parts(path, 0, 10_000)
    assert_gapless(part_list, 0)
    assert part_list[-1].end == path.stat().st_size
    data = path.read_bytes()
    values = [part for part in part_list if part.name == "value length"]
    assert [int(part.value) for part in values] == [len(value) for value in rows["value"]]
    assert b"".join(data[part.offset : part.end] for part in part_list if part.name == "value") == b"".join(
        rows["value"]
    )
    keys = [part.value.split(",")[0].encode() for part in part_list if part.name == "key"]
    assert keys == rows["key"]
    assert all(part.value.endswith(", put") for part in part_list if part.name == "key")
    assert {part.name for part in part_list} >= {"restart points", "number of restart points"}


def of_block(part: Part, data: bytes, codec: str) -> bytes:
    size, _ = next(decode_varints_with_ends(data[part.offset : part.end][:10]))
    stored = pa.py_buffer(data[part.offset : part.end])
    return bytes(pa.Codec(codec).decompress(stored, decompressed_size=size, asbytes=True))


def test_compressed_blocks_have_their_entries_inside(tmp_path: Path) -> None:
    path = tmp_path / "000001.ldb"
    rows = {"key": [b"key%03d" % n for n in range(300)], "value": [b"value " * (n % 9) for n in range(300)]}
    sawlog.write(pa.table(rows), path, format="leveldb_table", compression="snappy", block_bytes=1000)
    part_list = parts(path, 0, 10_000)
    assert_gapless(part_list, 0)
    data = path.read_bytes()
    blocks = [part for part in part_list if part.inside]
    assert len(blocks) > 5
    assert len(blocks) == sum(part.name == "data block" for part in part_list)
    number = 0
    for block in blocks:
        assert_gapless(list(block.inside), 0)
        content = of_block(block, data, "snappy")
        values = [content[part.offset : part.end] for part in block.inside if part.name == "value"]
        lengths = [int(part.value) for part in block.inside if part.name == "value length"]
        keys = [part.value.split(",")[0].encode() for part in block.inside if part.name == "key"]
        number = rows["key"].index(keys[0], number)
        expected = slice(number, number + len(keys))
        assert keys == rows["key"][expected]
        assert lengths == [len(value) for value in rows["value"][expected]]
        assert values == [value for value in rows["value"][expected] if value]
        assert f"{len(content):,} bytes decompressed" in block.value
    damaged = bytearray(data)
    damaged[blocks[0].offset : blocks[0].offset + 3] = b"\xff\xff\xff"
    path.write_bytes(damaged)
    assert parts(path, 0)[0].inside == ()


@pytest.mark.parametrize(
    ("table", "laid_out"),
    [
        ("pebble/13-plain/000007.sst", False),
        ("pebble/15-at/000007.sst", True),
        ("pebble/22-plain/000007.sst", True),
        ("rocksdb/11-apart.sst", True),
        ("rocksdb/11-embedded.sst", False),
        ("rocksdb/11-trained.sst", False),
        ("rocksdb/zlib.sst", False),
    ],
)
def test_blocks_of_all_layouts_have_the_entries_of_a_read(table: str, laid_out: bool) -> None:
    path = GOLDEN / "leveldb_table" / table
    block = next(part for part in parts(path, 0) if part.inside)
    assert ("laid out as entries" in block.value) == laid_out
    keys = [part.value for part in block.inside if part.name == "key"]
    read = sawlog.read(path, on_damage="skip").slice(0, len(keys))
    named = zip(*(read.column(column).to_pylist() for column in ("key", "sequence", "operation")), strict=True)
    assert len(keys) > 5
    assert keys == [f"{key.decode()}, sequence {sequence:,}, {operation}" for key, sequence, operation in named]


def test_records_of_compressed_logs_have_their_operations_inside(tmp_path: Path) -> None:
    batch = (7).to_bytes(8, "little") + (1).to_bytes(4, "little") + b"\1\1k\5value"
    path = tmp_path / "000009.log"
    path.write_bytes(compressed_log(zstd(batch), b"broken"))
    payloads = [part for part in parts(path, 0) if part.name == "payload"][1:]
    assert [part.value for part in payloads] == [
        f"{len(zstd(batch))} bytes, compressed with zstd; {len(batch)} bytes decompressed",
        "6 bytes, compressed with zstd",
    ]
    named = {part.name: batch[part.offset : part.end] for part in payloads[0].inside}
    assert (named["key"], named["value"], payloads[1].inside) == (b"k", b"value", ())


def test_parts_inside_are_listed_within_the_room_of_an_excerpt(tmp_path: Path) -> None:
    path = tmp_path / "000001.ldb"
    rows = {"key": [b"key%03d" % n for n in range(300)], "value": [b"value"] * 300}
    sawlog.write(pa.table(rows), path, format="leveldb_table", compression="snappy", block_bytes=1000)
    (file,) = survey(sawlog.open(path)).to_dict()["files"]
    for excerpt in file["excerpts"]:
        counts = [1 + len(part[6]) for part in excerpt["parts"] if len(part) > 6]
        assert sum(counts) <= (HEAD_PARTS if excerpt["offset"] == 0 else MAX_PARTS)
    assert file["excerpts"][0]["parts"][0][6][3][:1] == ["key"]


def test_edits_are_named_as_their_columns_are(tmp_path: Path) -> None:
    manifest = Path(__file__).parents[2] / "examples/data/shop/MANIFEST-000002"
    part_list = parts(manifest, 0, 1000)
    assert_gapless(part_list, 0)
    rows = sawlog.read(manifest, view="edits").to_pylist()
    named = [part.value for part in part_list if part.name == "last_sequence"]
    assert named == [str(row["last_sequence"]) for row in rows if row["last_sequence"] is not None]
    assert map_values(part_list)["comparator"] == "leveldb.BytewiseComparator"


def test_fields_of_a_deephaven_log_are_named_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    sawlog.write(pa.table({"i": [7, None], "x": [0.5, 2.5], "s": ["ab", None]}), path, format="deephaven_log")
    part_list = parts(path, 0)
    assert_gapless(part_list, 0)
    assert part_list[-1].end == path.stat().st_size
    assert map_values(part_list[:6])["magic"] == "0xdb1aa1db"
    first = sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()[0]
    row = map_values(parts(path, first, 8))
    assert (row["flags"], row["i"], row["x"], row["s"]) == ("3, row", "7", "0.5", "'ab'")
    data = bytearray(path.read_bytes())
    data[first + 8] ^= 1
    path.write_bytes(data)
    digest = next(part for part in parts(path, first) if part.name == "digest")
    assert digest.expected not in ("", digest.value)


def test_fields_of_a_container_are_named() -> None:
    part_list = parts(GOLDEN / "filodb" / "gauge_100.container", 0)
    assert [part.name for part in part_list[:10]] == [
        "container length", "version", "timestamp", "length", "schema id", "timestamp", "value", "_metric_", "tags",
        "partition hash",
    ]  # fmt: skip
    assert_gapless(part_list, 0)
    first = sawlog.read(GOLDEN / "filodb" / "gauge_100.container").slice(0, 1).to_pylist()[0]
    record = map_values(
        part_list[10 : next(i for i, part in enumerate(part_list) if i > 10 and part.name == "schema id")]
    )
    assert record["_metric_"] == first["_metric_"]
    assert record["tags"] == ", ".join(f"{key}={value}" for key, value in first["tags"])
    assert map_values(part_list[3:])["value"] == str(first["value"]) or map_values(part_list[3:9])["value"] == str(
        first["value"]
    )


def test_fields_of_a_binlog_are_named_without_gaps() -> None:
    path = next(path for path in sorted((GOLDEN / "milvus" / "2.3.5").rglob("insert_log/**/*")) if path.is_file())
    part_list = parts(path, 0)
    assert_gapless(part_list, 0)
    assert part_list[-1].end == path.stat().st_size
    assert map_values(part_list[:5])["type"] == "0, descriptor"
    assert "insert" in [part.value for part in part_list if part.name == "type"][1]
    assert [part.value for part in part_list if part.name == "Parquet magic"] == ["PAR1", "PAR1"]
    named = {part.name: part for part in part_list}
    assert named["footer length"].value == f"{named['Parquet footer'].length:,}"
    pages = [part for part in part_list if part.name == "page header"]
    assert [part.value for part in pages] == ["column 0, dictionary", "column 0, 500 values"]
    payload = next(part for part in part_list if part.name == "Parquet magic").offset
    end = [part for part in part_list if part.name == "Parquet magic"][-1].end
    read = pq.read_table(pa.py_buffer(path.read_bytes()[payload:end])).column(0).to_pylist()
    values = [
        inner_part.value for part in part_list for inner_part in part.inside if inner_part.name.startswith("value")
    ]
    assert values == [str(key) for key in dict.fromkeys(read)][: len(values)]
    assert len(values) == 20


@pytest.mark.parametrize("values", [[7, None, -3], [0.5, None, 2.0], [True, False, None], ["a", None, "b"]])
def test_fields_of_a_column_file_are_named_without_gaps(tmp_path: Path, values: list[Any]) -> None:
    sawlog.write(pa.table({"c": values}), tmp_path / "t", format="deephaven_table")
    part_list = parts(tmp_path / "t", 0, named="c.dat")
    assert_gapless(part_list, 0)
    assert part_list[-1].end == (tmp_path / "t" / "c.dat").stat().st_size
    result_values = [part.value for part in part_list if part.name.startswith("row ")]
    texts = isinstance(values[0], str)
    expected = ["symbol 0", "symbol null", "symbol 1"] if texts else ["null" if x is None else str(x) for x in values]
    assert result_values == expected


def test_fields_of_tables_reach_the_end_of_the_footer(tmp_path: Path) -> None:
    for sample in Tables.samples()[:3]:
        path = tmp_path / sample.file_name
        path.write_bytes(sample.files)  # type: ignore[arg-type]
        part_list = parts(path, 0, 200, format="leveldb_table")
        assert_gapless(part_list, 0)
        assert (part_list[-1].name, part_list[-1].end) == ("magic", len(sample.files))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_hostile_bytes_break_nothing(samples: dict[str, Path], tmp_path: Path, name: str) -> None:
    first = sawlog.open(samples[name], format=name).files[0].path
    data = Path(first).read_bytes()[:60_000]
    dice = Random(name)
    path = tmp_path / Path(first).name
    dataset = sawlog.open(samples[name], format=name, on_damage="skip")
    file = dataset.files[0]
    for _ in range(30):
        changed = bytearray(data)
        for _ in range(dice.randrange(1, 40)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        path.write_bytes(changed[: dice.randrange(1, len(changed))])
        with closing(dataset.scan.storage.open(str(path))) as source:
            for offset in (0, dice.randrange(source.size)):
                try:
                    part_list = list(itertools.islice(find_field_parser(dataset.contents, file, source)(offset), 500))
                except Exception:  # noqa: BLE001, what a parser raises is caught by its caller
                    continue
                assert all(later.offset >= part.offset for part, later in itertools.pairwise(part_list))


def test_a_dissector_that_raises_leaves_bytes_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "000001.log"
    write_records(path, [b"hello"])
    dataset = sawlog.open(path, on_damage="skip")

    def broken(offset: int) -> Any:
        yield Part("first", offset, 2)
        raise ZeroDivisionError

    monkeypatch.setattr(dataset.contents, "make_field_parser", lambda file, source: broken)
    (excerpt,) = survey(dataset).files[0].excerpts
    assert [part.name for part in excerpt.parts] == ["first"]
