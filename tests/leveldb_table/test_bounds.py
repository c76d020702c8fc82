"""Keys that are not where the index says: one judgement of them, whatever is asked of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

import sawlog
from sawlog.testing import Sample, check
from sawlog.testing.outcome import Outcome
from sawlog.testing.reading import check_counts, check_filters, check_fragments
from sawlog.testing.writing import check_repair
from tests.bytes import mask_crc
from tests.leveldb_table.support import rocksdb_tables

FORMAT = "leveldb_table"
TRAILER = 5
KEYS = [b"apple", b"apricot", b"avocado", b"banana", b"cherry", b"date"]


@pytest.fixture(scope="module")
def table_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A table whose blocks hold one key each; the last separator is `date`."""
    data = {key: b"%d" % number for number, key in enumerate(KEYS)}
    return rocksdb_tables(tmp_path_factory.mktemp("bounds"), data, table={"set_block_size": 1})[0].read_bytes()


def change_table(data: bytes, old: bytes, new: bytes, tmp_path: Path) -> bytes:
    """The table with other bytes in one of its blocks, below the checksum of that."""
    path = tmp_path / "intact.sst"
    path.write_bytes(data)
    place = data.index(old)
    for block in sawlog.read(path, format=FORMAT, view="frames").to_pylist():
        start, end = block["offset"], block["offset"] + block["length"] - TRAILER
        if start <= place < end:
            content = data[start:end].replace(old, new, 1) + data[end : end + 1]
            return data[:start] + content + mask_crc(content).to_bytes(4, "little") + data[end + TRAILER :]
    raise AssertionError(f"{old!r} is in no block")


def judged(data: bytes, *laws: object) -> Outcome:
    return check(Sample("bounds", FORMAT, data, "a.sst", repaired="rows"), laws=(check_fragments, check_counts, *laws))


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"banana", b"zanana"),
        (b"banana", b"aanana"),
        (b"banana", b"coconu"),
        (b"apricot", b"apples!"),
        (b"apricot", b"arsides"),
        (b"avocado", b"\xffvocado"),
    ],
)
def test_a_key_that_stands_in_the_block_of_others_is_damage_under_every_verb(
    table_bytes: bytes, old: bytes, new: bytes, tmp_path: Path
) -> None:
    """Filters would not look for it there."""
    judgement = judged(change_table(table_bytes, b"\x01" + old, b"\x01" + new, tmp_path), check_filters, check_repair)
    assert dict(judgement.report.kinds) == {"misplaced_key": 1}
    assert judgement.table["key"].to_pylist() == [key for key in KEYS if key != old]


@pytest.mark.parametrize(("old", "new"), [(b"date", b"kiwi"), (b"apple", b"\0\0\0\0\0")])
def test_before_the_first_separator_and_after_the_last_no_other_block_could_hold_a_key(
    table_bytes: bytes, old: bytes, new: bytes, tmp_path: Path
) -> None:
    judgement = judged(
        change_table(table_bytes, b"\x01" + old + b"\x01", b"\x01" + new + b"\x01", tmp_path),
        check_filters,
        check_repair,
    )
    assert not judgement.report.damaged
    assert judgement.table["key"].to_pylist() == [new if key == old else key for key in KEYS]


def test_an_index_whose_separators_are_out_of_order_leads_to_all_rows_and_is_damage(
    table_bytes: bytes, tmp_path: Path
) -> None:
    """Filters find nothing by it, so they read every block."""
    judgement = judged(change_table(table_bytes, b"\x00\x01c", b"\x00\x01a", tmp_path), check_filters, check_repair)
    assert dict(judgement.report.kinds) == {"bad_index": 1}
    assert judgement.table["key"].to_pylist() == KEYS


def test_what_ends_internal_keys_is_no_part_of_separators(table_bytes: bytes, tmp_path: Path) -> None:
    """As raw keys, which hold it, they are not held to the index, and filters on them not led by it."""
    path = tmp_path / "a.sst"
    path.write_bytes(table_bytes)
    keys = sawlog.read(path, format=FORMAT, keys="raw")["key"].to_pylist()
    assert [key[:-8] for key in keys] == KEYS
    for key in keys:
        assert sawlog.read(path, format=FORMAT, keys="raw", filters=[("key", "=", key)]).num_rows == 1
