"""Where bytes go: what is there is replaced whole, with its mode, by way of links; what is no file is written to."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from tests.cli.conftest import Run, run, write_log

__all__ = ["run"]

TABLE = pa.table({"record": pa.array([b"a", b"b"], pa.binary())})


def save(path: Path, **options: object) -> list[sawlog.Written]:
    return sawlog.write(TABLE, path, format="leveldb_log", **options)


def test_the_result_of_write_is_public(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    assert save(path) == [sawlog.Written(str(path), path.stat().st_size)]


def test_a_mode_is_kept_and_a_new_file_has_the_usual_one(tmp_path: Path) -> None:
    path, other_path = tmp_path / "1.log", tmp_path / "2.log"
    other_path.write_bytes(b"")
    save(path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other_path.stat().st_mode)
    path.chmod(0o600)
    save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sawlog.read(path).num_rows == 2


def test_links_stay_and_what_they_point_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "1.log", tmp_path / "link.log"
    link.symlink_to(target)
    for _ in range(2):  # of nothing, and of a file
        assert [file.path for file in save(link)] == [str(target)]
        assert link.is_symlink()
        assert sawlog.read(target).num_rows == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.log", "there"]
    directory = tmp_path / "tree"
    directory.mkdir()
    tree = tmp_path / "tree-link"
    tree.symlink_to(directory)
    sawlog.write(pa.table({"i": [1]}), tree, format="deephaven_table")
    assert tree.is_symlink()
    assert sawlog.open(directory).count_rows() == 1


def test_a_pipe_is_written_to(run: Run, tmp_path: Path) -> None:
    pipe, records_found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: records_found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    source = write_log(tmp_path / "1.log", [b"a", b"b"])
    assert run("convert", source, pipe, "--to", "jsonl").code == 0
    reader.join(10)
    assert records_found == [b'{"record":"a"}\n{"record":"b"}\n']
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_is_written_to(name: str, tmp_path: Path) -> None:
    source = write_log(tmp_path / "1.log", [b"a", b"b"])
    command = [sys.executable, "-m", "sawlog", "convert", str(source), name, "--to", "jsonl", "--from", "leveldb_log"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b'{"record":"a"}\n{"record":"b"}\n')
    with (tmp_path / "out").open("wb") as out:
        out.write(b"before\n")
        out.flush()
        assert subprocess.run(command, stdout=out, check=False).returncode == 0
    assert (tmp_path / "out").read_bytes() == b'before\n{"record":"a"}\n{"record":"b"}\n'


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        save(tmp_path)
    save(Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(sawlog.OptionError, match="a location is a directory"):
        sawlog.write(pa.table({"i": [1]}), pipe, format="deephaven_table")
    assert os.listdir(tmp_path) == ["pipe"]


def test_what_is_to_stay_stays(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    save(path, mode="error")
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        save(path, mode="error")
    with pytest.raises(sawlog.OptionError, match=r"mode='append': expected one of overwrite, error"):
        save(path, mode="append")
    source = write_log(tmp_path / "2.log", [b"c"])
    for verb in ("convert", "repair"):
        result = run(verb, source, path, "--no-clobber")
        assert (result.code, result.err) == (2, f"sawlog: {path}: File exists\n")
    assert path.read_bytes() == before
    assert run("convert", source, tmp_path / "3.log", "--no-clobber", "--to", "leveldb_log").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_conversion_that_is_ended_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    target = tmp_path / "out" / "rows.csv"
    pipe = tmp_path / "slow.jsonl"
    pipe.write_text("".join(f'{{"i":{i}}}\n' for i in range(10)))
    script = f"""
import sys, time
from sawlog.cli import main, tabular
write = tabular.TableWriter.write
def slow(self, batch):
    write(self, batch)
    print("begun", flush=True)
    time.sleep(60)
tabular.TableWriter.write = slow
sys.exit(main(["convert", {str(pipe)!r}, {str(target)!r}]))
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    assert [name for name in os.listdir(target.parent) if name.endswith(".sawlog-staged")]
    child.send_signal(number)
    assert child.wait(30) == 143
    child.stdout.close()
    assert os.listdir(target.parent) == []
