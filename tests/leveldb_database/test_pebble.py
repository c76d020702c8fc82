"""Databases of Pebble, whose later tables have columns and blocks of values, give what Pebble answered."""

from __future__ import annotations

import shutil
import warnings
from contextlib import closing
from pathlib import Path

import pytest

import sawlog
from sawlog import SawlogError
from sawlog.errors import DamageError, IncompleteError
from sawlog.format.capabilities import find_field_parser
from sawlog.format.damage import Findings
from sawlog.testing.outcome import list_places
from tests.bytes import mask_crc
from tests.leveldb_database.mutators import with_ranges
from tests.leveldb_database.support import read_pebble_answers, read_pebble_live
from tests.unit_of_loss import assert_lost_by_unit

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_table" / "pebble"
DATABASES = ("13-plain", "15-at", "19-at", "22-plain", "24-plain", "24-cockroach")


@pytest.mark.parametrize("name", DATABASES)
def test_what_pebble_answers(name: str) -> None:
    expected = read_pebble_answers(GOLDEN / f"{name}.jsonl")
    live_state = read_pebble_live(GOLDEN / name)
    assert live_state == expected
    if not name.endswith("cockroach"):
        assert list(live_state) == list(expected)
    assert not sawlog.verify(GOLDEN / name, format="leveldb_database").damaged


@pytest.mark.parametrize("name", DATABASES)
def test_tables_are_read_by_themselves(name: str) -> None:
    """Every table is clean, and any part of it gives its rows."""
    kinds = set()
    for path in GOLDEN.joinpath(name).glob("*.sst"):
        dataset = sawlog.open(path)
        assert not sawlog.verify(path).damaged
        table = dataset.to_table()
        kinds |= set(table["operation"].to_pylist())
        parts = [batch for fragment in dataset.fragments(task_bytes=2000) for batch in fragment.to_batches()]
        assert [row for batch in parts for row in batch.to_pylist()] == table.to_pylist()
        middle = table["key"][table.num_rows // 2].as_py()
        picked = sawlog.read(path, filters=[("key", "=", middle)])
        assert picked.to_pylist() == [row for row in table.to_pylist() if row["key"] == middle]
    assert {"put", "delete"} <= kinds


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["22-plain", "24-plain"])
def test_what_is_wrong_with_a_table_of_several_parts_is_told_once(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / "db")
    for table in sorted(tmp_path.glob("db/*.sst")):
        data = table.read_bytes()
        for offset in range(20, len(data) - 60, len(data) // 6):
            table.write_bytes(data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1 :])
            for view in ("live", "all"):
                dataset = sawlog.open(tmp_path / "db", format="leveldb_database", view=view, on_damage="skip")
                checked = list_places(damage for report in dataset.verify(every=True) for damage in report.damages)
                for size in (None, 500):
                    ledgers = [Findings("skip", drained=True) for _ in dataset.fragments(size)]
                    for fragment, ledger in zip(dataset.fragments(size), ledgers, strict=True):
                        list(fragment.to_batches(ledger))
                    assert sorted(list_places(damage for ledger in ledgers for damage in ledger.damages)) == sorted(
                        checked
                    )
        table.write_bytes(data)


@pytest.mark.parametrize("first", [b"user/000018", b"user/000059", b""])
@pytest.mark.parametrize("byte", [20, -20])
def test_parts_of_a_file_from_the_same_key_tell_once_what_is_wrong(first: bytes, byte: int, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "24-plain", tmp_path / "db")
    manifest, table = tmp_path / "db" / "MANIFEST-000001", tmp_path / "db" / "000011.sst"
    manifest.write_bytes(with_ranges(manifest.read_bytes(), {12: (first, first), 13: (first, b"user/000059")}))
    data = bytearray(table.read_bytes())
    data[byte] ^= 0x10
    table.write_bytes(data)
    dataset = sawlog.open(tmp_path / "db", format="leveldb_database", on_damage="skip")
    checked = [damage for report in dataset.verify(every=True) for damage in report.damages]
    for size in (None, 500):
        ledgers = [Findings("skip", drained=True) for _ in dataset.fragments(size)]
        for fragment, ledger in zip(dataset.fragments(size), ledgers, strict=True):
            list(fragment.to_batches(ledger))
        damages = [damage for ledger in ledgers for damage in ledger.damages]
        assert sorted(list_places(damages)) == sorted(list_places(checked))


def test_a_part_of_a_file_that_ends_before_it_begins_is_told(tmp_path: Path) -> None:
    """A range that is only too small may be right: entries outside of it may be deleted."""
    shutil.copytree(GOLDEN / "24-plain", tmp_path / "db")
    manifest = tmp_path / "db" / "MANIFEST-000001"
    before = sawlog.read(tmp_path / "db", view="live", format="leveldb_database")
    manifest.write_bytes(with_ranges(manifest.read_bytes(), {13: (b"user/000059", b"user/000018")}))
    with pytest.raises(IncompleteError, match="its part that the MANIFEST names 13 ends before it begins"):
        sawlog.read(tmp_path / "db", view="live", format="leveldb_database")
    with pytest.warns(sawlog.DamageWarning, match="mismatched_file"):
        state = sawlog.read(tmp_path / "db", view="live", format="leveldb_database", on_damage="skip")
    assert state != before
    reports = sawlog.verify(tmp_path / "db", format="leveldb_database").files
    damages = [(damage.path, damage.kind) for report in reports for damage in report.damages]
    assert damages == [(str(tmp_path / "db" / "000011.sst"), "mismatched_file")]


def test_a_damaged_block_of_values_costs_its_entries(tmp_path: Path) -> None:
    path = min(GOLDEN.joinpath("15-at").glob("*.sst"))
    values = sawlog.read(path).to_pylist()
    blocks = [row for row in sawlog.read(path, view="frames").to_pylist() if row["name"] == "values"]
    assert blocks
    damaged = tmp_path / path.name
    data = bytearray(path.read_bytes())
    data[blocks[0]["offset"]] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(DamageError, match="lost_value"):
        sawlog.read(damaged)
    with pytest.warns(sawlog.DamageWarning):
        result_values = sawlog.read(damaged, on_damage="skip").to_pylist()
    assert 0 < len(result_values) < len(values)
    assert all(row in values for row in result_values)
    kinds = {damage.kind for damage in sawlog.verify(damaged).files[0].damages}
    assert kinds == {"checksum_mismatch", "lost_value"}


TRAILER = 5


@pytest.mark.parametrize("way", ["checksum", "snappy", "zstd"])
@pytest.mark.parametrize("name", ["15-at", "19-at", "24-cockroach"])
@pytest.mark.nightly
def test_every_block_of_values_is_a_unit(name: str, way: str, tmp_path: Path) -> None:
    """It takes the entries with it that lead to it, and no others, however the table is cut."""
    tables = 0
    for table in sorted(GOLDEN.joinpath(name).glob("*.sst")):
        path = tmp_path / table.name
        data = table.read_bytes()
        path.write_bytes(data)
        values = sawlog.read(path).to_pylist()
        offsets = sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()
        blocks = [row for row in sawlog.read(path, view="frames").to_pylist() if row["name"] == "values"]
        rows_seen: list[bytes] = []
        for block in blocks:
            start, end = block["offset"], block["offset"] + block["length"] - TRAILER
            content = b"\xff" * (end - start) + bytes([{"snappy": 1, "zstd": 7}.get(way, 0)])
            changed = content + mask_crc(content).to_bytes(4, "little")
            if way == "checksum":
                changed = bytes([data[start] ^ 1]) + data[start + 1 : end + TRAILER]
            path.write_bytes(data[:start] + changed + data[end + TRAILER :])
            with pytest.warns(sawlog.DamageWarning):
                result_values = sawlog.read(path, on_damage="skip", use_threads=False).to_pylist()
            rows = [row for row in values if row not in result_values]
            assert rows
            assert not any(row["key"] in rows_seen and row["value"] in rows_seen for row in rows)
            rows_seen += [value for row in rows for value in (row["key"], row["value"])]
            units = {number: [row] for number, row in enumerate(values) if row not in rows}
            first = values.index(rows[0])
            assert_lost_by_unit(
                path, "leveldb_table", {first: path.read_bytes()}, {first: rows, **units},
                damages=None, rows_before=offsets.index(offsets[first]),
            )  # fmt: skip
            tables += 1
    assert tables


def test_a_lost_blob_file_costs_its_values(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "24-plain", tmp_path / "db")
    for path in (tmp_path / "db").glob("*.blob"):
        path.unlink()
    with pytest.raises(IncompleteError, match="missing_file"):
        read_pebble_live(tmp_path / "db")
    expected = read_pebble_answers(GOLDEN / "24-plain.jsonl")
    with pytest.warns(sawlog.DamageWarning):
        live_state = read_pebble_live(tmp_path / "db", on_damage="skip")
    assert 0 < len(live_state) < len(expected)
    assert live_state.items() <= expected.items()


@pytest.mark.nightly
def test_every_block_of_a_blob_file_is_a_unit(tmp_path: Path) -> None:
    """It takes the entries with it that lead to it, and no others."""
    database = tmp_path / "db"
    shutil.copytree(GOLDEN / "24-plain", database)
    values = sawlog.read(database, format="leveldb_database", view="live").to_pylist()
    lost_of_file = 0
    for path in sorted(database.glob("*.blob")):
        data = path.read_bytes()
        losses: list[list[dict[str, object]]] = []
        for offset in range(0, len(data), 500):
            path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
            dataset = sawlog.open(database, format="leveldb_database", view="live", on_damage="skip", use_threads=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sawlog.DamageWarning)
                result_values = dataset.to_table().to_pylist()
            rows = [row for row in values if row not in result_values]
            if rows and rows not in losses:
                losses.append(rows)
                units = {number: [row] for number, row in enumerate(values) if row not in rows}
                first = values.index(rows[0])
                assert_lost_by_unit(
                    database, "leveldb_database", {first: path.read_bytes()}, {first: rows, **units},
                    file=path, damages=None, view="live",
                )  # fmt: skip
        path.write_bytes(data)
        parts = [str(row) for loss in losses if len(loss) < max(map(len, losses)) for row in loss]
        assert len(set(parts)) == len(parts)
        lost_of_file += len(losses)
    assert lost_of_file


def test_keys_of_an_unknown_schema_are_named(tmp_path: Path) -> None:
    """A table whose keys are cut into columns by an application's rule: nothing is guessed."""
    path = min(GOLDEN.joinpath("19-at").glob("*.sst"))
    data = path.read_bytes().replace(b"DefaultKeySchema(", b"AnotherKeySchema(")
    (tmp_path / "a.sst").write_bytes(data)
    with pytest.raises(SawlogError):
        sawlog.read(tmp_path / "a.sst")


def test_the_footers_of_later_tables_have_names_for_all_of_their_bytes() -> None:
    """A checksum from the sixth version on, attributes in the seventh."""
    for name, expected in (("19-at", []), ("22-plain", ["checksum"]), ("24-plain", ["attributes", "checksum"])):
        dataset = sawlog.open(min(GOLDEN.joinpath(name).glob("*.sst")))
        (file,) = dataset.files
        with closing(dataset.scan.storage.open(file.path)) as source:
            parts = list(find_field_parser(dataset.contents, file, source)(file.size - 1))
        assert [part.name for part in parts] == ["checksum type", "handles", *expected, "format version", "magic"]
