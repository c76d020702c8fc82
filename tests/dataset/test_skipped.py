"""What a path holds and a read leaves out is reported: in the dataset, in reports, on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import sawlog
from sawlog.format.recognition import explain_unselected
from sawlog.format.scan import Scan
from tests.cli.conftest import Run, run
from tests.support import write_records

__all__ = ["run"]

plyvel = pytest.importorskip("plyvel")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A real LevelDB whose operations have mostly left the log; with a foreign and a hidden file."""
    path = tmp_path / "db"
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=1 << 16) as db:
        for i in range(3000):
            db.put(b"%08d" % i, b"v" * 100)
    (path / "notes.txt").write_text("hello")
    (path / ".hidden").write_text("x")
    return path


def test_tables_beside_a_log_are_told_and_make_the_answer_incomplete(database: Path) -> None:
    dataset = sawlog.open(database, view="writes")
    skipped = {Path(file.path).name: file for file in dataset.skipped}
    tables = [name for name in skipped if name.endswith(".ldb")]
    assert set(skipped) == {p.name for p in database.iterdir()} - {Path(f.path).name for f in dataset.files} - {
        ".hidden"
    }
    assert tables
    assert all(skipped[name].missed and "a table" in skipped[name].reason for name in tables)
    assert skipped["notes.txt"] == sawlog.Skipped(str(database / "notes.txt"), "not a LevelDB / RocksDB log", 5)
    manifest = next(name for name in skipped if name.startswith("MANIFEST"))
    assert skipped[manifest].reason == "read by view 'edits' or 'files'"
    size = sum((database / name).stat().st_size for name in tables)
    for read in (dataset.to_table, dataset.count_rows, lambda: list(dataset.to_batches())):
        with pytest.warns(sawlog.DamageWarning, match=rf"and {len(tables) - 1} more were not read \({size} bytes\)"):
            read()


def test_an_answer_that_is_complete_is_without_a_warning(database: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sawlog.read(database, view="files")
        sawlog.read([p for p in database.iterdir() if p.suffix == ".log"], view="writes")


def test_reports_have_what_was_not_read(database: Path, tmp_path: Path) -> None:
    expected = {file.path for file in sawlog.open(database).skipped}
    assert {file.path for file in sawlog.verify(database).skipped} == expected
    expected = {file.path for file in sawlog.open(database, format="leveldb_log").skipped}
    report = sawlog.repair(database, tmp_path / "saved", format="leveldb_log")
    assert {file.path for file in report.skipped} == expected
    assert {file["path"] for file in report.to_dict()["skipped"]} == expected


def test_commands_tell_it(run: Run, database: Path, tmp_path: Path) -> None:
    as_logs = ("--format", "leveldb_log")
    expected = {file.path for file in sawlog.open(database, format="leveldb_log").skipped}
    for verb in ("info", "verify"):
        assert "not read  " in run(verb, database, *as_logs).out
        document = json.loads(run(verb, database, *as_logs, "--json").out)
        document = document["paths"][0] if verb == "verify" else document
        assert {file["path"] for file in document["skipped"]} == expected
    assert "more were not read" in run("cat", database, *as_logs, "--limit", 1).err
    converted = run("convert", database, tmp_path / "rows.parquet", "--from", "leveldb_log", "--json")
    assert (converted.code, "more were not read" in converted.err) == (3, True)  # rows of the path are left out
    assert set(json.loads(converted.out)["skipped"]) == expected


def test_a_view_without_files_is_told_apart_from_a_path_without_logs(run: Run, database: Path) -> None:
    result = run("cat", database, "--view", "entities")
    assert result.code == 2
    assert "files there is read by view 'entities'; views with files: rows, writes" in result.err
    for file in database.glob("*.log"):
        file.unlink()
    (database / "CURRENT").unlink()
    for file in database.glob("MANIFEST*"):
        file.unlink()
    assert "is a LevelDB / RocksDB log" in run("cat", database, "--format", "leveldb_log").err


@pytest.mark.parametrize("format", ["deephaven_log", "filodb_record", "leveldb_log"])
def test_foreign_files_are_told_by_every_format_that_goes_by_names(format: str, tmp_path: Path) -> None:
    format_object = sawlog.formats()[format]
    foreign = [sawlog.storage.File(str(tmp_path / "README.md"), 7, explicit=False)]
    assert format_object.select(foreign, "rows") == []
    assert explain_unselected(format_object, [], foreign, Scan()) == [
        sawlog.Skipped(foreign[0].path, f"not a {format_object.title}", 7)
    ]


def test_packages_are_attributes_after_import_sawlog() -> None:
    script = "import sawlog; print(sawlog.spark.register, sawlog.leveldb)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_kept_once() -> None:
    from importlib.metadata import version

    assert version("sawlog") == sawlog.__version__
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{sawlog.__version__}"' not in project


def test_a_table_of_nothing_is_without_skipped_files(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    write_records(path, [b"x"])
    assert sawlog.open(path).skipped == []


def test_warnings_point_at_the_line_that_called(database: Path) -> None:
    dataset = sawlog.open(database, format="leveldb_log")
    calls = (
        lambda: sawlog.read(database, format="leveldb_log"),
        dataset.to_table,
        dataset.count_rows,
        dataset.head,
        lambda: list(dataset.to_batches()),
        lambda: dataset.scanner().to_table(),
    )
    for call in calls:
        with pytest.warns(sawlog.DamageWarning) as warning_records:
            call()
        assert {record.filename for record in warning_records} == {__file__}


def test_bytes_decide_what_a_file_next_to_a_database_is(run: Run, tmp_path: Path) -> None:
    """Chromium keeps `Nigori.bin`, which has the name of a log of Deephaven's, next to `Sync Data/LevelDB`."""
    profile = Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156-services"
    shutil.copytree(profile / "Sync Data", tmp_path / "Sync Data")
    file = tmp_path / "Sync Data" / "Nigori.bin"
    file.write_bytes(bytes.fromhex("763130f1") * 8)
    assert run("verify", tmp_path / "Sync Data").code == 0
    assert sawlog.open(tmp_path / "Sync Data").skipped == [
        sawlog.Skipped(str(file), "not a LevelDB / RocksDB database", 32)
    ]
    file.write_bytes(bytes.fromhex("db1aa1dc") * 8)
    assert run("verify", tmp_path / "Sync Data").code == 1
