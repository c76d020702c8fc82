"""Rows of damaged tables that are still in the logs which these were written from, and keys that never come back."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.format.damage import DamageWarning, Report

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

KEYS = 3000
Rows = dict[bytes, bytes]


class Scene:
    """A database that is written step by step, and the logs that it has deleted meanwhile.

    Args:
        path: Where it is.
        put: Writes a row.
        delete: Deletes a key.

    Attributes:
        logs: The logs that were copied, by name.
    """

    def __init__(self, path: Path, put: Callable[[bytes, bytes], None], delete: Callable[[bytes], None]) -> None:
        self.path, self.put, self.delete = path, put, delete
        self.logs: dict[str, bytes] = {}

    def keep_logs(self) -> None:
        """Take copies of the logs that are there now."""
        self.logs |= {log.name: log.read_bytes() for log in self.path.glob("*.log")}

    def fill(self, value: bytes) -> None:
        for number in range(KEYS):
            self.put(b"k%05d" % number, value * 5 + b"%d" % number)


@contextlib.contextmanager
def open_rocksdb(path: Path) -> Iterator[tuple[Scene, Callable[[], None], Callable[[], None]]]:
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(path), options)
    scene = Scene(path, database.__setitem__, database.__delitem__)
    yield scene, database.flush, lambda: database.compact_range(None, None)
    database.close()


def copy_with_logs(scene: Scene, target: Path, names: list[str]) -> Path:
    """Copy the database, with logs that it has done with."""
    shutil.copytree(scene.path, target)
    for name in names:
        if not (target / name).exists():
            (target / name).write_bytes(scene.logs[name])
    return target


def damage_table(path: Path) -> None:
    table = max([*path.glob("*.sst"), *path.glob("*.ldb")])
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 1
    table.write_bytes(data)


def read_rows(path: Path, **options: str) -> Rows:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        table = sawlog.read(path, on_damage="skip", **options)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def check_repair(path: Path, target: Path) -> Rows:
    """Repair a database, and return what an engine reads of the copy."""
    report = sawlog.repair(path, target)
    assert isinstance(report, Report)
    rows = read_rows(target)
    assert rows == read_rows(path, salvage="logs")
    with contextlib.closing(Rdict(str(target), Options(raw_mode=True))) as database:
        assert dict(database.items()) == rows
    return rows


def write_and_flush(place: Path) -> Path:
    """A database with one table, and the log that it was written from."""
    with open_rocksdb(place / "db") as (scene, flush, _):
        scene.fill(b"text")
        scene.keep_logs()
        flush()
        return copy_with_logs(scene, place / "source", list(scene.logs))


def test_a_flushed_table_is_read_from_its_log(tmp_path: Path) -> None:
    source = write_and_flush(tmp_path)
    all_rows = read_rows(source)
    assert sawlog.verify(source).skipped
    damage_table(source)
    assert len(read_rows(source)) < KEYS == len(all_rows)
    assert check_repair(source, tmp_path / "target") == all_rows
    assert f"{KEYS - len(read_rows(source))} more rows with -o salvage=logs" in sawlog.verify(source).rescue


def test_a_missing_table_is_read_from_its_log(tmp_path: Path) -> None:
    source = write_and_flush(tmp_path)
    (table,) = source.glob("*.sst")
    table.unlink()
    assert not read_rows(source)
    assert len(check_repair(source, tmp_path / "target")) == KEYS


def test_leveldb_is_read_from_the_log_that_it_was_opened_with(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with plyvel.DB(str(path), create_if_missing=True) as database:
        scene = Scene(path, database.put, database.delete)
        scene.fill(b"text")
    scene.keep_logs()
    with plyvel.DB(str(path)) as database:  # writes the log into a table
        database.delete(b"k00001")
    source = copy_with_logs(scene, tmp_path / "source", list(scene.logs))
    damage_table(source)
    rows = read_rows(source, salvage="logs")
    assert len(read_rows(source)) < len(rows) == KEYS - 1
    sawlog.repair(source, tmp_path / "target")
    with plyvel.DB(str(tmp_path / "target")) as database:
        assert dict(database) == rows


def write_and_delete(path: Path) -> Scene:
    """Write rows; then delete every third of them, and have a compaction forget that."""
    with open_rocksdb(path) as (scene, flush, compact):
        scene.fill(b"text")
        scene.keep_logs()
        flush()
        for number in range(0, KEYS, 3):
            scene.delete(b"k%05d" % number)
        scene.keep_logs()
        flush()
        compact()
    return scene


def test_a_key_that_a_compaction_has_forgotten_stays_deleted(tmp_path: Path) -> None:
    """The log that deletes it is there, too."""
    scene = write_and_delete(tmp_path / "db")
    source = copy_with_logs(scene, tmp_path / "source", list(scene.logs))
    all_rows = read_rows(source)
    damage_table(source)
    assert len(read_rows(source)) < len(all_rows) == KEYS - KEYS // 3
    assert check_repair(source, tmp_path / "target") == all_rows


def test_a_log_is_of_no_use_without_those_that_follow_it(tmp_path: Path) -> None:
    scene = write_and_delete(tmp_path / "db")
    source = copy_with_logs(scene, tmp_path / "source", [min(scene.logs)])
    damage_table(source)
    assert check_repair(source, tmp_path / "target") == read_rows(source)


def test_a_log_with_a_hole_is_of_no_use(tmp_path: Path) -> None:
    scene = write_and_delete(tmp_path / "db")
    first, second = sorted(scene.logs)[:2]
    data = bytearray(scene.logs[second])
    data[len(data) // 2] ^= 1
    scene.logs[second] = bytes(data)
    source = copy_with_logs(scene, tmp_path / "source", [first, second])
    damage_table(source)
    assert check_repair(source, tmp_path / "target") == read_rows(source)


def test_whole_tables_need_no_logs(tmp_path: Path) -> None:
    scene = write_and_delete(tmp_path / "db")
    source = copy_with_logs(scene, tmp_path / "source", list(scene.logs))
    dataset = sawlog.open(source, salvage="logs")
    assert {Path(file.path).name for file in dataset.skipped} >= set(scene.logs) - {
        log.name for log in scene.path.glob("*.log")
    }
    assert dataset.to_table().equals(sawlog.read(scene.path))


def test_operations_on_what_was_there_before_are_not_done_twice(tmp_path: Path) -> None:
    """A log with others than those that replace or delete is left alone, be it whole."""
    source = write_and_flush(tmp_path)
    log = min(source.glob("*.log"))
    damage_table(source)
    operations = sawlog.read(log, view="writes")
    names = ["merge", *operations["operation"].to_pylist()[1:]]
    changed = operations.set_column(1, operations.schema.field(1), [names])
    log.unlink()
    sawlog.write(changed, log, format="leveldb_log", view="writes")
    assert read_rows(source, salvage="logs") == read_rows(source)
