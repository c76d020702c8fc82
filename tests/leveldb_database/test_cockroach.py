"""CockroachDB's and RocksDB's reverse order of keys: deletions of ranges, parts of tables, tables under other keys."""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import UnsupportedError
from sawlog.format.damage import Findings
from sawlog.leveldb.columns import ENTRY_SCHEMA, OPERATION_NAMES, RANGE
from sawlog.leveldb.database.layout import COCKROACH_NAME
from sawlog.leveldb.database.merge import select_virtual_entries
from sawlog.leveldb.database.order import ORDERS, VirtualTable
from sawlog.leveldb.table.layout import REVERSE_NAME
from sawlog.testing.outcome import list_places
from tests.leveldb_database.support import COCKROACH, GOLDEN, read_answers, read_cockroach_live, rename_comparator

DATABASES = ("pebble-2.1.7-cockroach-ranges", "pebble-2.1.7-cockroach-external")


@pytest.mark.parametrize("name", DATABASES)
def test_rows_come_in_the_order_of_pebble(name: str) -> None:
    assert read_cockroach_live(GOLDEN / name / "db") == list(read_answers(GOLDEN / name / "db.kv").items())


def test_rows_come_in_the_reverse_order_of_rocksdb() -> None:
    home = GOLDEN / "rocksdb-11.8.1-reverse-ranges"
    keys = sawlog.read(home / "db", format="leveldb_database", view="live", table="zweite")["key"].to_pylist()
    assert keys == sorted(read_answers(home / "db.kv2"), reverse=True)


@pytest.mark.parametrize("name", DATABASES)
def test_a_damaged_block_is_reported_once(name: str, tmp_path: Path) -> None:
    """Several tables may show one file; a read says of a block what `verify` says, if it reads it at all."""
    shutil.copytree(GOLDEN / name, tmp_path / "copy")
    database = tmp_path / "copy" / "db"
    reported = 0
    for path in sorted([*database.glob("*.sst"), *tmp_path.glob("copy/remote/*")]):
        data = path.read_bytes()
        path.write_bytes(data[:8] + bytes([data[8] ^ 4]) + data[9:])
        opened = sawlog.open(database, format="leveldb_database", on_damage="skip")
        checked = list_places(damage for report in opened.verify(every=True) for damage in report.damages)
        ledgers = [Findings("skip", drained=True) for _ in opened.fragments()]
        for fragment, ledger in zip(opened.fragments(), ledgers, strict=True):
            list(fragment.to_batches(ledger))
        assert sorted(list_places(damage for ledger in ledgers for damage in ledger.damages)) == sorted(checked)
        reported += len(checked)
        path.write_bytes(data)
    assert reported > 3


def compared(left_key: bytes, right: bytes) -> int:
    """Whether the first key is smaller, as CockroachDB has it: by the key, then by the version."""

    def parts(key: bytes) -> tuple[bytes, bytes]:
        size = key[-1] if key else 0
        version = key[len(key) - size : -1] if size else b""
        version = version[:12] if len(version) == 13 else version
        return key[: len(key) - size], version[:8] if len(version) == 12 and not any(version[8:]) else version

    (left_place, old), (two, new) = parts(left_key), parts(right)
    if left_place != two:
        return -1 if left_place < two else 1
    if not old or not new:
        return (old > new) - (old < new)
    return (new > old) - (new < old)


def drawn_keys(dice: random.Random) -> Iterator[bytes]:
    yield b""
    for _ in range(400):
        stem = bytes(dice.choice([0, 0, 1, 97, 255]) for _ in range(dice.randrange(4))) + b"\0"
        version = bytes(dice.choice([0, 0, 1, 255]) for _ in range(dice.choice([8, 8, 12, 13, 17])))
        yield stem if dice.random() < 0.3 else stem + version + bytes([len(version) + 1])


def test_places_compare_as_cockroach_compares_keys() -> None:
    dice = random.Random(5)
    keys = list(drawn_keys(dice))
    place_of = dict(zip(keys, COCKROACH.compute_column(pa.array(keys, pa.binary())).to_pylist(), strict=True))
    for _ in range(20_000):
        first_key, two = dice.choice(keys), dice.choice(keys)
        assert (place_of[first_key] > place_of[two]) - (place_of[first_key] < place_of[two]) == compared(first_key, two)
    assert sorted(keys, key=place_of.__getitem__) == sorted(keys, key=functools.cmp_to_key(compared))


def test_places_descend_in_reverse() -> None:
    dice = random.Random(6)
    keys = list({bytes(dice.choice([0, 1, 254, 255]) for _ in range(dice.randrange(5))) for _ in range(300)})
    assert sorted(keys, key=ORDERS[REVERSE_NAME].compute_place) == sorted(keys, reverse=True)


@pytest.mark.parametrize("key", [b"\x05", b"ab\xff", b"\0\x01", bytes(20) + b"\x12"])
def test_keys_that_are_none_have_places(key: bytes) -> None:
    """Their last bytes say more than they have."""
    assert COCKROACH.compute_place(key)


def test_a_virtual_table_shows_other_keys() -> None:
    """A prefix is before all keys, a suffix in the place of each version; deletions of ranges are cut at its bounds."""
    put, version, newer = OPERATION_NAMES.index("put"), bytes([*range(8), 9]), bytes([9] * 8 + [9])
    rows = [
        (3, RANGE, b"a\0", b"z\0"),
        (2, put, b"b\0", b"1"),
        (2, put, b"c\0" + version, b"2"),
        (2, put, b"d\0", b"3"),
    ]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ENTRY_SCHEMA, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
    table = VirtualTable(COCKROACH, b"/x/", newer, b"/x/b\0", b"/x/d\0", closed=False)
    rows_shown = select_virtual_entries(table, batch).to_pylist()
    assert [(row["key"], row["value"]) for row in rows_shown] == [
        (b"/x/b\0", b"/x/d\0"),
        (b"/x/b\0" + newer, b"1"),
        (b"/x/c\0" + newer, b"2"),
    ]
    keys_only = select_virtual_entries(table, batch.select([name for name in batch.schema.names if name != "value"]))
    assert keys_only["key"].to_pylist() == [b"/x/a\0", b"/x/b\0" + newer, b"/x/c\0" + newer]


def test_other_keys_in_an_order_that_is_not_known_are_unsupported(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / DATABASES[1], tmp_path / "copy")
    rename_comparator(tmp_path / "copy" / "db", COCKROACH_NAME, "cockroach_comparatos")
    with pytest.raises(UnsupportedError, match="than this version of sawlog knows"):
        sawlog.read(tmp_path / "copy" / "db", format="leveldb_database")


def test_what_is_repaired_is_in_the_order_of_pebble(tmp_path: Path) -> None:
    source = GOLDEN.parent / "leveldb_table" / "pebble" / "24-cockroach"
    sawlog.repair(source, tmp_path / "copy")
    assert read_cockroach_live(tmp_path / "copy") == read_cockroach_live(source)
    for path in tmp_path.glob("copy/*.sst"):
        written = [COCKROACH.compute_place(key) for key in sawlog.read(path)["key"].to_pylist()]
        assert written == sorted(written)
