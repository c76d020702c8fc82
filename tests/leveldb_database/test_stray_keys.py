"""A table that holds keys which its MANIFEST does not know of, below a valid checksum: none of them is lost."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.format.damage import Findings
from sawlog.testing import check
from sawlog.testing.reading import check_counts, check_filters, check_fragments, check_threads
from tests.bytes import mask_crc
from tests.leveldb_table.mutators import places

from .mutators import with_ranges
from .support import make_small_database as leveldb_files
from .support import rocksdb_files
from .support import sample as sample_of

DATABASE = Path(__file__).parent / "stray_keys"


@pytest.mark.parametrize("size", [1, 200])
def test_every_part_of_a_table_is_read_once(size: int) -> None:
    """The key '\"' is in a table that begins with 'a', as the MANIFEST has it; the first range ends below 'a'."""
    dataset = sawlog.open(DATABASE, format="leveldb_database", view="all", on_damage="skip")

    def entries(fragments: list[sawlog.format.contract.Fragment]) -> Counter[str]:
        findings = Findings("skip", drained=True)
        batches = [batch for fragment in fragments for batch in fragment.to_batches(findings)]
        table = pa.Table.from_batches(batches, dataset.schema).drop_columns(["live"])
        return Counter(map(repr, table.to_pylist()))

    whole_entries = entries(dataset.fragments(None))
    parts = dataset.fragments(size)
    assert entries(parts) == whole_entries
    assert sum(whole_entries.values()) == 12
    assert any("b'\"'" in entry for entry in whole_entries)


def narrowed(files: dict[str, bytes], ranges: dict[int, tuple[bytes, bytes]]) -> dict[str, bytes]:
    """The files of a database whose MANIFEST gives tables other ranges of keys."""
    (name,) = (file for file in files if file.startswith("MANIFEST"))
    return {**files, name: with_ranges(files[name], ranges)}


def placed(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


LEVELDB = [{5: (b"b", b"c")}, {5: (b"z", b"a")}, {8: (b"", b"\xff")}, {5: (b"b", b"b"), 8: (b"b", b"b")}]
ROCKSDB = [
    {10: (b"bbb", b"ddd")},
    {14: (b"d", b"hi")},
    {11: (b"aaa", b"lll")},
    {12: (b"lll", b"kkk"), 10: (b"\xff", b"\xff")},
]


@pytest.mark.spread(8)
@pytest.mark.parametrize("view", ["live", "all"])
@pytest.mark.parametrize(
    ("make", "ranges"),
    [
        *((leveldb_files, sample_range) for sample_range in LEVELDB),
        *((rocksdb_files, sample_range) for sample_range in ROCKSDB),
    ],
)
@pytest.mark.nightly
def test_ranges_that_are_wrong_below_the_checksums(
    make: Callable[[], dict[str, bytes]], ranges: dict[int, tuple[bytes, bytes]], view: str
) -> None:
    """However the database is cut and asked, the same entries are live, and all are there."""
    sample = sample_of(view, make(), view)
    outcome = check(
        sample, narrowed(make(), ranges), laws=(check_fragments, check_threads, check_counts, check_filters)
    )
    if sample.view == "all":
        assert len(outcome.rows) == len(check(sample, laws=()).rows)
    kinds = {damage.kind for damage in outcome.damages} - {"mismatched_file"}  # its first or last key is another, too
    assert kinds == (set() if ranges in (LEVELDB[2], ROCKSDB[2]) else {"misplaced_key"})


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("ranges", LEVELDB)
def test_live_is_what_leveldb_finds(tmp_path: Path, ranges: dict[int, tuple[bytes, bytes]]) -> None:
    """It does not look for a key in a table whose range has not got it."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    files = narrowed(leveldb_files(), ranges)
    path = placed(tmp_path / "db", files)
    table = sawlog.read(path, format="leveldb_database", view="live", on_damage="skip", columns=["key", "value"])
    shutil.copytree(path, tmp_path / "copy")
    with plyvel.DB(str(tmp_path / "copy")) as database:
        state = {bytes([key]): database.get(bytes([key])) for key in range(97, 123)}
    expected = {key: value for key, value in state.items() if value is not None}
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected


def test_a_range_deletion_ends_where_its_table_does(tmp_path: Path) -> None:
    """As RocksDB has it, which writes the same one into several tables; so it is no damage."""
    files = narrowed(rocksdb_files(), {14: (b"ccc", b"i")})
    path = placed(tmp_path / "db", files)
    for size in (None, 1):
        fragments = sawlog.open(path, format="leveldb_database", view="live").fragments(size)
        live = [
            key for fragment in fragments for batch in fragment.to_batches() for key in batch.column("key").to_pylist()
        ]
        assert live == [bytes([key]) * 3 for key in b"abcdfgijkl"]
    database = Rdict(str(shutil.copytree(path, tmp_path / "copy")), Options(raw_mode=True))
    assert list(database.keys()) == live
    database.close()


@pytest.mark.parametrize("view", ["live", "all"])
def test_the_first_damage_of_a_table_is_met_at_the_same_time_under_both_policies(view: str) -> None:
    """Two tables are damaged: which of them is found first depends on how far the others are read."""
    files = {path.name: path.read_bytes() for path in (DATABASE.parent / "two_damages").iterdir()}
    check(sample_of(view, files, view), laws=())


@pytest.mark.parametrize("view", ["live", "all"])
def test_keys_out_of_order(view: str) -> None:
    """After `y` a database would not look for `c` and `d`."""
    sample = sample_of(view, leveldb_files(), view)
    table = sample.content["000005.ldb"]
    offset, length = places(table)[0]
    content = table[offset : offset + length + 1].replace(b"b\1\2\0", b"y\1\2\0")
    assert content != table[offset : offset + length + 1]
    changed = table[:offset] + content + mask_crc(content).to_bytes(4, "little") + table[offset + len(content) + 4 :]
    outcome = check(
        sample, {**sample.content, "000005.ldb": changed}, laws=(check_fragments, check_counts, check_filters)
    )
    assert [(damage.file, damage.kind) for damage in outcome.damages] == [("000005.ldb", "misplaced_key")]
    assert outcome.table is not None
    rows = outcome.table.to_pylist()
    assert [row["key"] for row in rows if row.get("live", True)] == [b"c", b"d", b"e", b"f", b"y"]
    if sample.view == "all":
        assert len(rows) == len(check(sample, laws=()).rows)


def test_a_range_deletion_that_ends_before_it_begins() -> None:
    """It deletes nothing, and is a row of the range of keys that it begins in."""
    files = rocksdb_files()
    (name,) = (file_name for file_name, data in files.items() if b"hh\x0f" in data)
    data = files[name]
    offset, length = next(
        (offset, length) for offset, length in places(data) if b"hh\x0f" in data[offset : offset + length]
    )
    content = bytearray(data[offset : offset + length + 1])
    content[content.index(b"hh\x0f") + 2 + 8] = ord("b")
    changed = (
        data[:offset] + content + mask_crc(bytes(content)).to_bytes(4, "little") + data[offset + len(content) + 4 :]
    )
    outcome = check(sample_of("all", files, "all"), {**files, name: changed}, laws=(check_fragments, check_counts))
    assert outcome.table is not None
    (row,) = (row for row in outcome.table.to_pylist() if row["operation"] == "delete_range")
    assert (row["key"], row["value"]) == (b"hh", b"b")
