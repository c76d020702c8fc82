"""Directories of RocksDB's BackupEngine: each backup is a database, and its files are held to what it says of them."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest

import sawlog
from sawlog import FormatError, OptionError, SawlogError
from sawlog.cli.app import run
from tests.leveldb_database.support import GOLDEN, read_live_state

BACKUPS = GOLDEN / "rocksdb-11.8.1-backup" / "backup"
FORMAT = {"format": "leveldb_database"}


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    """A copy that can be damaged."""
    shutil.copytree(BACKUPS, tmp_path / "backup")
    return tmp_path / "backup"


def restored(backups: Path, number: int, target: Path) -> Path:
    """A database as RocksDB restores it: the files that the backup names, in one directory."""
    target.mkdir()
    for line in backups.joinpath("meta", str(number)).read_text().splitlines()[3:]:
        shutil.copy(backups / line.split()[0], target)
    return target


@pytest.mark.parametrize("number", [1, 2])
def test_a_backup_is_the_database_that_is_restored(number: int, tmp_path: Path) -> None:
    state = read_live_state(restored(BACKUPS, number, tmp_path / "db"), "default")
    assert state
    assert read_live_state(BACKUPS, "default", backup=number) == state
    assert read_live_state(BACKUPS / "private" / str(number), "default") == state
    report = sawlog.verify(BACKUPS, backup=number)
    assert not report.damaged
    assert not report.incomplete


def test_the_last_backup_is_the_default() -> None:
    assert sawlog.read(BACKUPS).equals(sawlog.read(BACKUPS, backup="2"))
    assert sawlog.read(BACKUPS).num_rows != sawlog.read(BACKUPS, backup=1).num_rows
    with pytest.raises(OptionError, match="no backup 3; there are: 1, 2"):
        sawlog.read(BACKUPS, backup=3)


def test_a_backup_is_chosen_by_its_time(backups: Path) -> None:
    """The last one that was made up to then; both are of the same second."""
    began = int(backups.joinpath("meta", "1").read_text().split()[0])
    meta = backups / "meta" / "2"
    meta.write_text(meta.read_text().replace(str(began), str(began + 3600)))
    first = dt.datetime.fromtimestamp(began, dt.UTC)
    hour = dt.timedelta(hours=1)
    for moment, number in [(first, 1), (first + hour / 2, 1), (first + hour, 2), (first + 9 * hour, 2)]:
        table = sawlog.read(backups, backup=number)
        assert sawlog.read(backups, as_of=moment).equals(table)
        assert sawlog.read(backups, as_of=moment.isoformat()).equals(table)
        assert sawlog.read(backups, as_of=moment.replace(tzinfo=None).isoformat()).equals(table)
    with pytest.raises(OptionError, match=f"no backup up to .*; the first is of {first.isoformat()[:19]}"):
        sawlog.read(backups, as_of=first - hour)
    with pytest.raises(OptionError, match="give one of them"):
        sawlog.read(backups, as_of=first, backup=1)
    with pytest.raises(OptionError, match="expected a time like"):
        sawlog.read(backups, as_of="then")
    with pytest.raises(OptionError, match="as_of is for directories of RocksDB"):
        sawlog.read(restored(backups, 2, backups.parent / "db"), **FORMAT, as_of=first)
    meta.write_text("when\n")
    with pytest.raises(SawlogError, match="expected a time in seconds"):
        sawlog.read(backups, as_of=first)


def test_every_file_is_checked_or_named() -> None:
    dataset = sawlog.open(BACKUPS, backup=1)
    checked = {file.path for file in dataset.report().files}
    skipped = {file.path for file in dataset.skipped if file.reason == "of another backup"}
    assert {Path(path).name for path in checked} >= {"CURRENT", "OPTIONS-000007", "000008.log", "000009.sst"}
    assert {Path(path).name for path in skipped} == {"CURRENT", "MANIFEST-000005", "000010.log", "000011.sst", "2"}


def test_backups_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run(["ls", str(BACKUPS)])
    printed = capsys.readouterr().out.replace("\n", " ")
    for number in (1, 2):
        assert f"-o backup={number}" in printed


@pytest.mark.parametrize("name", ["shared/000009.sst", "private/2/OPTIONS-000007", "private/2/MANIFEST-000005"])
def test_a_file_with_another_checksum_is_damaged(name: str, backups: Path) -> None:
    path = backups / name
    path.write_bytes(path.read_bytes()[:-1] + b"~")
    report = sawlog.verify(backups, **FORMAT)
    assert {file.path for file in report.files if "bad_copy" in file.kinds} == {str(path)}
    assert (report.damaged, report.incomplete) == (True, "MANIFEST" in name)


def test_a_file_that_is_not_there_is_missing(backups: Path) -> None:
    for name in ("shared/000011.sst", "private/2/000010.log", "private/2/OPTIONS-000007"):
        backups.joinpath(name).unlink()
    report = sawlog.verify(backups, **FORMAT)
    missing = {Path(file.path).name for file in report.files if "missing_file" in file.kinds}
    assert missing >= {"000011.sst", "000010.log", "OPTIONS-000007"}
    assert report.incomplete
    assert not report.damaged


def test_a_backup_that_nothing_describes_is_refused(backups: Path) -> None:
    """Its tables can be named; that they are all, nobody says."""
    backups.joinpath("meta", "2").unlink()
    with pytest.raises(sawlog.IncompleteError, match="paths="):
        sawlog.read(backups, **FORMAT)
    rows = sawlog.read(backups, paths=backups / "shared", **FORMAT)
    assert rows.equals(sawlog.read(BACKUPS, **FORMAT))
    assert sawlog.verify(backups, paths=backups / "shared", **FORMAT).incomplete
    shutil.rmtree(backups / "meta")
    with pytest.raises(FormatError, match="2 databases"):
        sawlog.read(backups, **FORMAT)


@pytest.mark.parametrize(
    "text",
    ["", "1\n2\n", "1\n2\n2\nshared/000009.sst crc32 1\n", "1\n2\n1\nshared/../../x crc32 1\n", "1\nx\n0\n"],
)
def test_a_damaged_description(text: str, backups: Path) -> None:
    backups.joinpath("meta", "2").write_text(text)
    with pytest.raises(SawlogError, match=r"meta/2: expected|meta/2: 2 files"):
        sawlog.read(backups, **FORMAT)


def test_descriptions_of_newer_releases(backups: Path) -> None:
    """They have a version, sizes, and fields that may be ignored; names of tables may have checksums in them."""
    meta = backups / "meta" / "2"
    shared = backups / "shared_checksum"
    backups.joinpath("shared").rename(shared)
    lines = meta.read_text().splitlines()
    files = [line.replace("shared/", "shared_checksum/") for line in lines[3:]]
    for name in ("000009", "000011"):
        path = next(shared.glob(f"{name}*"))
        other_name = f"{name}_s0123ABCDEF_{path.stat().st_size}.sst"
        path.rename(shared / other_name)
        files = [line.replace(f"{name}.sst", other_name) for line in files]
    files = [f"{line} size {backups.joinpath(line.split()[0]).stat().st_size}" for line in files]
    further_lines = ["shared_checksum/000099.sst ni::excluded true"]
    meta.write_text(
        "\n".join(
            ["schema_version 2.1", *lines[:2], "metadata 00", *lines[2:3], *files, *further_lines, "// FOOTER", ""]
        )
    )
    assert sawlog.read(backups, **FORMAT).equals(sawlog.read(BACKUPS, **FORMAT))
    assert not sawlog.verify(backups, **FORMAT).damaged
    meta.write_text(meta.read_text().replace("size 3964", "size 3963"))
    assert sawlog.verify(backups, **FORMAT).incomplete
    meta.write_text(meta.read_text().replace("schema_version 2", "schema_version 3"))
    with pytest.raises(SawlogError, match="schema version 3"):
        sawlog.read(backups, **FORMAT)
