"""Tables and logs that the MANIFEST does not name, in view `all`."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

import sawlog
from sawlog.errors import DamageError, OptionError

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

Entry = tuple[bytes, bytes, str]


def fill(path: Path, keys: range, value: bytes) -> None:
    with plyvel.DB(str(path), create_if_missing=True, compression=None) as database:
        for key in keys:
            database.put(b"%04d" % key, value)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A LevelDB with the files that a compaction has deleted since put back, as a copy of a disk shows them."""
    path = tmp_path / "db"
    fill(path, range(20), b"old")
    fill(path, range(10), b"new")  # opening writes the log before into a table
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in (".ldb", ".log")}
    with plyvel.DB(str(path)) as database:
        database.delete(b"0000")
        database.compact_range(start=b"0", stop=b"9")
    gone_files = {name: data for name, data in before.items() if not (path / name).exists()}
    for name, data in gone_files.items():
        (path / name).write_bytes(data)
    return path


def entries(table: object) -> list[Entry]:
    return [(row["key"], row["value"], row["operation"]) for row in table.to_pylist()]  # type: ignore[attr-defined]


def test_what_a_compaction_has_left_is_read(database: Path) -> None:
    plain = sawlog.read(database, view="all")
    table = sawlog.read(database, view="all", salvage="orphans")
    orphans = table.filter(table["orphan"])
    assert table.filter(pc.invert(table["orphan"])).drop(["orphan"]).equals(plain)
    assert {Path(name).suffix for name in orphans["file"].to_pylist()} == {".ldb", ".log"}
    assert not any(orphans["live"].to_pylist())
    truth = [(b"%04d" % key, b"old", "put") for key in range(20)]
    truth += [(b"%04d" % key, b"new", "put") for key in range(10)]
    assert set(truth) <= set(entries(orphans))
    skipped = sawlog.open(database, view="all", salvage="orphans").skipped
    assert not [file for file in skipped if "MANIFEST" in file.reason]
    assert [file for file in sawlog.open(database, view="all").skipped if "MANIFEST" in file.reason]


def test_columns_counts_filters_and_checks_agree(database: Path) -> None:
    dataset = sawlog.open(database, view="all", salvage="orphans")
    table = dataset.to_table()
    assert dataset.count_rows() == len(table)
    assert sawlog.read(database, view="all", salvage="orphans", columns=["orphan"]).equals(table.select(["orphan"]))
    result_table = sawlog.read(database, view="all", salvage="orphans", filters=[("key", "=", b"0003")])
    assert entries(result_table) == [entry for entry in entries(table) if entry[0] == b"0003"]
    report = dataset.report()
    assert {Path(file.path).name for file in report.files} >= set(table["file"].to_pylist())
    assert not report.damaged


def test_damage_in_an_orphan_is_its_own(database: Path) -> None:
    live = sawlog.read(database)
    orphans = sawlog.read(database, view="all", salvage="orphans", filters=[("orphan", "=", True)])
    victim = next(name for name in orphans["file"].to_pylist() if name.endswith(".ldb"))
    data = bytearray((database / victim).read_bytes())
    data[3] ^= 255
    (database / victim).write_bytes(data)
    assert sawlog.read(database).equals(live)
    with pytest.raises(DamageError, match=victim):
        sawlog.read(database, view="all", salvage="orphans")
    with pytest.warns(sawlog.DamageWarning, match=victim):
        table = sawlog.read(database, view="all", salvage="orphans", on_damage="skip")
    assert len(table) >= len(sawlog.read(database, view="all"))
    damaged = [file.path for file in sawlog.verify(database, view="all", salvage="orphans").files if file.damaged]
    assert damaged == [str(database / victim)]


def test_the_option_is_for_one_view(database: Path) -> None:
    with pytest.raises(OptionError, match="view 'all'"):
        sawlog.open(database, salvage="orphans")
