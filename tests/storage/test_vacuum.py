"""What killed writers have left is deleted where it is proven that they are dead, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sawlog.storage import Storage
from sawlog.storage.commit_log import CommitLog, LogRecord
from sawlog.storage.owners import find_current_owner
from sawlog.storage.vacuum import vacuum
from tests.cli.conftest import Run, run
from tests.support import ABSENT_PROCESS, begin_commit, place, put_record, stage_file, visible_files

__all__ = ["place", "run"]


@pytest.fixture
def leftovers(place: tuple[Storage, str]) -> Callable[[], list[str]]:
    storage, root = place[0], place[0].directories.resolve_directory(place[1])
    put_record(place, "one", "a", "b")
    for name, owner in (("dead", ABSENT_PROCESS), ("alive", find_current_owner()), ("elsewhere", "00000000-1-1")):
        stage_file(begin_commit(place, name, owner=owner), "c", "d")
    file = storage.stage(f"{root}/single")
    file.write(b"1")
    file.finish()
    aside = storage.stage(f"{root}/aside", "job.old.")
    aside.write(b"it may have to come back")
    aside.finish()
    return lambda: sorted(
        {name for path in storage.directories.list_paths(os.path.dirname(root)) for name in WORDS if name in path}
    )


WORDS = ("dead", "alive", "elsewhere", "single", "aside")


def test_vacuum_deletes_what_is_dead(place: tuple[Storage, str], leftovers: Callable[[], list[str]]) -> None:
    storage, root = place[0], place[0].directories.resolve_directory(place[1])
    dead_leftovers = vacuum(root, dry_run=True, storage_options=storage.options)
    assert leftovers() == sorted(WORDS)
    assert sorted((leftover.files, leftover.dead) for leftover in dead_leftovers) == [
        (1, False),
        (2, False),
        (2, False),
        (2, True),
    ]
    vacuum(root, storage_options=storage.options)
    assert leftovers() == ["alive", "aside", "elsewhere", "single"]
    vacuum(root, older_than=-5, storage_options=storage.options)
    assert leftovers() == ["alive", "aside"]
    assert visible_files(place) == ["a", "b"]
    log = CommitLog(storage.directories, root)
    number = (log.read_last() or LogRecord()).number + 1
    log.append(LogRecord(number, "publishing", "dead", ABSENT_PROCESS, new=["b"]))
    (commit,) = (leftover for leftover in vacuum(root, storage_options=storage.options) if leftover.kind == "commit")
    assert (commit.path, commit.dead) == (root, True)
    assert visible_files(place) == ["a"]
    assert (log.read_last() or LogRecord()).state == "done"


def test_vacuum_on_the_command_line(run: Run, tmp_path: Path) -> None:
    place = (Storage(), str(tmp_path / "out"))
    put_record(place, "one", "a")
    stage_file(begin_commit(place, "dead", owner=ABSENT_PROCESS), "c", "d")
    done = run("vacuum", str(tmp_path / "out"), "--dry-run")
    assert done.out.startswith("1 leftover would be deleted, 0 kept\n")
    assert "2 files, 2 bytes: its process has ended" in " ".join(done.out.split())
    document = json.loads(run("vacuum", str(tmp_path / "out"), "--json").out)
    assert [leftover["dead"] for leftover in document["leftovers"]] == [True]
    assert os.listdir(tmp_path) == ["out"]
    assert run("vacuum", str(tmp_path / "out"), "--older-than", "1 fortnight").code == 2
    assert run("vacuum", str(tmp_path / "missing")).code == 2
