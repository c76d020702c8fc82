"""Files of a job appear together or not at all: killed in any step, next to a reader that never stops."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

import sawlog.storage.commit
import sawlog.storage.owners
import sawlog.storage.remote
from sawlog.errors import FormatError, SawlogError
from sawlog.storage import Directories, Storage, confirm_files
from sawlog.storage.commit import Job, MicroBatch
from sawlog.storage.commit_log import LOG, CommitLog, LogRecord
from sawlog.storage.owners import find_current_owner, has_exited
from sawlog.storage.staging import find_published_path
from tests.exactly_once.commits import Commits
from tests.support import ABSENT_PROCESS, begin_commit, place, put_record, stage_file, visible_files

__all__ = ["place"]


@pytest.mark.spread(5)
@pytest.mark.parametrize("kind", ["append", "overwrite", "overwrite by side", "stream", "complete"])
def test_a_driver_that_is_killed_leaves_old_rows_or_new_ones(kind: str, tmp_path: Path) -> None:
    tally = Commits(str(tmp_path / kind), kind, {}, seed=1).run(3)
    assert not tally.faults
    assert tally.kills == 3


@pytest.mark.nightly
def test_the_same_on_an_object_store(s3: dict[str, Any], tmp_path: Path) -> None:
    tally = Commits(f"s3://logs/{tmp_path.name}/out", "overwrite", s3, seed=2).run(4)
    assert not tally.faults
    assert tally.kills == 4


def test_files_appear_in_the_directory_itself(place: tuple[Storage, str]) -> None:
    put_record(place, "one", "a", "d/b")
    assert visible_files(place) == ["a", "d/b"]
    put_record(place, "two", "c")
    put_record(place, "three", "e", "d/f")
    assert visible_files(place) == ["a", "c", "d/b", "d/f", "e"]
    job = begin_commit(place, "four")
    root = place[0].directories.resolve_directory(place[1])
    job.publish(stage_file(job, "a2", "d/b2"), lambda: [f"{root}/a", f"{root}/d/b", f"{root}/c"])
    job.sweep()
    assert visible_files(place) == ["a2", "d/b2", "d/f", "e"]
    assert place[0].directories.find_staged_paths(os.path.dirname(root), "") == []


def test_what_is_there_is_not_replaced_by_chance(place: tuple[Storage, str]) -> None:
    put_record(place, "one", "a", "b")
    for names in (("a",), ("a", "c")):
        job = begin_commit(place, "two")
        with pytest.raises(SawlogError, match="/out/a: exists already, and job two has not written it"):
            job.publish(stage_file(job, *names, data=b"other"))
        job.abort()
    assert visible_files(place) == ["a", "b"]
    assert place[0].read(f"{place[1]}/a") == b"x"


def test_a_reader_obeys_the_log(place: tuple[Storage, str]) -> None:
    storage, root = place
    put_record(place, "one", "old/1", "old/2", "other")
    log = CommitLog(storage.directories, storage.directories.resolve_directory(root))
    last = log.read_last() or LogRecord()
    states: list[tuple[dict[str, Any], list[str]]] = [
        ({"state": "publishing", "new": ["other"]}, ["old/1", "old/2"]),
        ({"state": "published", "old": ["old/"]}, ["other"]),
        ({"state": "done"}, ["old/1", "old/2", "other"]),
    ]
    for number, (changes, expected) in enumerate(states, last.number + 1):
        assert log.append(LogRecord(number, owner=find_current_owner(), **changes))
        assert not log.append(LogRecord(number)), "another one was faster"
        assert visible_files(place) == expected
        assert [file.path.rpartition("/")[2] for file in storage.find(os.path.dirname(root))], "one above"
    assert len(storage.directories.list_names(f"{root}/{LOG}")) == 1


SOUND = asdict(LogRecord(1, "published", "job", "x", old=["a"], batches={"q": 1}, runs={"q": "r"}))


@pytest.mark.parametrize(
    "changes",
    [
        *({"state": "new"}, {"number": "1"}, {"token": None}, {"job": 1}, {"batches": {"q": "1"}}, {"batches": []}),
        *({"old": ["../x"]}, {"old": ["/x"]}, {"old": [""]}, {"old": [1]}, {"new": 5}, {"runs": {"q": 1}}),
        *("", "[]", "{}", "{}x", "1", "null", "[" * 100_000, "\xff"),
    ],
)
def test_a_log_that_is_none_is_an_error(tmp_path: Path, changes: dict[str, Any] | str) -> None:
    (tmp_path / LOG).mkdir()
    path = tmp_path / LOG / "00000001.json"
    path.write_text(json.dumps({**SOUND, "added later": 1}))
    assert Storage().find(tmp_path) == []
    path.write_text(changes if isinstance(changes, str) else json.dumps({**SOUND, **changes}), encoding="latin-1")
    with pytest.raises(FormatError, match=r"_sawlog/00000001.json: not a record of a job"):
        Storage().find(tmp_path)


@pytest.mark.parametrize("state", ["publishing", "published"])
def test_the_next_job_finishes_what_a_dead_one_began(place: tuple[Storage, str], state: str) -> None:
    storage, root = place[0], place[0].directories.resolve_directory(place[1])
    put_record(place, "one", "a", "b")
    dead = begin_commit(place, "dead", owner=ABSENT_PROCESS)
    stage_file(dead, "c")
    log = CommitLog(storage.directories, root)
    number = (log.read_last() or LogRecord()).number + 1
    names = {"publishing": {"new": ["b"]}, "published": {"old": ["b"]}}[state]
    assert log.append(LogRecord(number, state=state, job="dead", owner=ABSENT_PROCESS, **names))  # type: ignore[arg-type]
    assert visible_files(place) == ["a"]
    put_record(place, "two", "d")
    assert visible_files(place) == ["a", "d"]
    assert not storage.exists(f"{root}/b")
    assert not storage.exists(dead.staging)


def test_a_job_that_is_at_work_is_waited_for(
    place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch, sleep_is: Callable[[Callable[[float], None]], None]
) -> None:
    log = CommitLog(place[0].directories, place[0].directories.resolve_directory(place[1]))
    put_record(place, "one", "a", "b")
    last = log.read_last() or LogRecord()
    log.append(LogRecord(last.number + 1, "publishing", "other", find_current_owner(), new=["a"]))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            log.append(LogRecord(last.number + 2, "done", "other"))

    sleep_is(wait)
    put_record(place, "two", "c")
    assert len(waits) == 3
    assert visible_files(place) == ["a", "b", "c"]
    log.append(LogRecord((log.read_last() or LogRecord()).number + 1, "publishing", "silent", "", new=["c"]))
    monkeypatch.setattr(sawlog.storage.commit, "LEASE_SECONDS", -1.0)
    put_record(place, "three", "d")
    assert visible_files(place) == ["a", "b", "d"]


def test_one_that_was_taken_for_dead_does_not_publish(
    place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_record(place, "one", "a", "b")
    monkeypatch.setattr(sawlog.storage.commit, "exchange", lambda *_: False)
    slow = begin_commit(place, "slow")
    staged = stage_file(slow, "c", "d")
    move = Job.move_all

    def late(job: Job, moves: list[tuple[str, str]]) -> None:
        move(job, moves)
        if job.name == "slow":
            monkeypatch.setattr(sawlog.storage.commit, "LEASE_SECONDS", -1.0)
            put_record(place, "two", "e")

    monkeypatch.setattr(Job, "move_all", late)
    with pytest.raises(SawlogError, match="another job took this one for dead"):
        slow.publish(staged)
    assert visible_files(place) == ["a", "b", "e"]


def test_jobs_that_commit_at_the_same_time(place: tuple[Storage, str]) -> None:
    names = [f"job{number}" for number in range(4)]
    jobs = [begin_commit(place, name) for name in names]
    staged = [stage_file(job, f"{job.name}-1", f"{job.name}-2") for job in jobs]
    errors: list[BaseException] = []

    def publish(job: Job, files: list[Any]) -> None:
        try:
            job.publish(files)
            job.sweep()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=publish, args=arguments) for arguments in zip(jobs, staged, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert visible_files(place) == [f"{name}-{number}" for name in names for number in (1, 2)]


def test_whole_directories_are_replaced(place: tuple[Storage, str]) -> None:
    storage, root = place[0], place[0].directories.resolve_directory(place[1])
    put_record(place, "one", "loc/a", "loc/b", "kept/a")
    job = begin_commit(place, "two")
    job.publish(stage_file(job, "new/a", "new/b"), lambda: [f"{root}/loc/"])
    job.sweep()
    assert visible_files(place) == ["kept/a", "new/a", "new/b"]
    assert not storage.exists(f"{root}/loc")
    assert storage.directories.find_staged_paths(os.path.dirname(root), "") == []


def test_micro_batches_are_remembered(place: tuple[Storage, str]) -> None:
    for query, batch in (("q1", 4), ("q2", 1), ("q1", 5)):
        job = begin_commit(place, "x").make_inner_job(f"batch-{query}-{batch}", f"{query}-{batch}", "r")
        job.publish(stage_file(job, "a", "b"), None, MicroBatch(query, batch, "r"))
        job.sweep()
    last = job.log.read_last()
    assert last is not None
    assert (last.batches, last.runs) == ({"q1": 5, "q2": 1}, {"q1": "r", "q2": "r"})
    assert len(visible_files(place)) == 6


def test_what_others_have_put_there_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another tool that comes while the directory is exchanged, links, modes, and what is open."""
    place, root = (Storage(), str(tmp_path / "out")), tmp_path / "out"
    put_record(place, "one", "a", "d/b")
    (root / "README.txt").write_text("kept")
    (root / "link").symlink_to("README.txt")
    (root / "d").chmod(0o750)
    opened = (root / "README.txt").open("a")
    exchange = sawlog.storage.commit.exchange

    def late(source: str, target: str) -> bool:
        (root / "d" / "late").write_text("1")
        (root / "new").mkdir()
        (root / "new" / "late").write_text("2")
        (root / "replaced.tmp").write_text("newer")
        os.utime(root / "replaced.tmp", (time.time() + 9,) * 2)
        os.replace(root / "replaced.tmp", root / "README2.txt")
        return exchange(source, target)

    (root / "README2.txt").write_text("older")
    monkeypatch.setattr(sawlog.storage.commit, "exchange", late)
    job = begin_commit(place, "two")
    job.publish(stage_file(job, "e", "f"), lambda: [f"{root}/a", f"{root}/d/b"])
    job.sweep()
    opened.write(", and written to")
    opened.close()
    assert (root / "README.txt").read_text() == "kept, and written to"
    assert (root / "README2.txt").read_text() == "newer"
    assert (root / "link").is_symlink()
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o750
    assert sorted(visible_files(place)) == ["README.txt", "README2.txt", "d/late", "e", "f", "link", "new/late"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_mount_point_is_not_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "out"
    root.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(root))
    place, inode = (Storage(), str(root)), root.stat().st_ino
    assert begin_commit(place, "one").staging.startswith(f"{root}/._.one.")
    for name in ("one", "two"):
        put_record(place, name, f"{name}-1", f"d/{name}-2")
    assert visible_files(place) == ["d/one-2", "d/two-2", "one-1", "two-1"]
    assert root.stat().st_ino == inode


def test_paths_say_what_they_will_be() -> None:
    job = begin_commit((Storage(), "/a.b/Trades/w1"), "0f-1")
    assert find_published_path(f"{job.staging}/2024/T") == "/a.b/Trades/w1/2024/T"
    inside = job.make_inner_job("batch-1", "q-1", "r")
    assert find_published_path(f"{inside.staging}/x") == "/a.b/Trades/w1/batch-1/x"
    assert find_published_path(f"/a/._.0f.{find_current_owner()}.sawlog-staged/x") == "/a/x"
    assert find_published_path("/a/b") == "/a/b"


def test_an_owner_has_exited_or_runs_or_is_unknown() -> None:
    assert has_exited(find_current_owner()) is False
    assert has_exited(ABSENT_PROCESS) is True
    assert has_exited("00000000-1-1") is None
    assert has_exited("x") is None


def test_in_a_worker_of_spark_the_driver_owns() -> None:
    worker = subprocess.run(
        [sys.executable, "-c", "from sawlog.storage.owners import find_current_owner; print(find_current_owner())"],
        env={**os.environ, "PYTHON_WORKER_FACTORY_PORT": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert worker.stdout.strip() == find_current_owner()


def test_a_directory_that_is_replaced_while_it_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, root = (Storage(), str(tmp_path / "out")), str(tmp_path / "out")
    put_record(place, "one", "a", "b")
    scandir, calls = os.scandir, itertools.count()

    def slow(path: Any) -> Any:
        entries_found = scandir(path)
        if str(path) == root and next(calls) == 0:
            monkeypatch.undo()
            job = begin_commit(place, "two")
            job.publish(stage_file(job, "c", "d"), lambda: [f"{root}/a", f"{root}/b"])
            job.sweep()
        return entries_found

    monkeypatch.setattr(os, "scandir", slow)
    assert visible_files(place) == ["c", "d"]


def test_a_record_is_read_as_it_is_now(place: tuple[Storage, str]) -> None:
    """A job that is late makes a number again that others have gone past, and takes it back."""
    log = CommitLog(place[0].directories, place[1])
    for job in "ab":
        assert log.append(LogRecord(number=1, job=job))
        last = log.read_last()
        assert last is not None
        assert last.job == job
        place[0].directories.remove(f"{place[1]}/{LOG}/00000001.json")
    assert log.read_last() is None


def test_a_record_that_is_deleted_while_it_is_asked_for_is_not_old(
    place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog(place[0].directories, place[1])
    assert log.append(LogRecord(number=2))
    names, before = Directories.list_names, [["00000001.json"]]
    monkeypatch.setattr(Directories, "list_names", lambda *arguments: before.pop() if before else names(*arguments))
    assert log.find_modified_time() is None


def test_what_is_read_next_to_a_job_is_what_was_found(
    place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of the log are no part of it, also on stores that know no conditions."""
    storage, root = place
    monkeypatch.setattr(sawlog.storage.remote.StoreFileSystem, "has_objects", False)
    put_record(place, "one", "a", "b")
    put_record(place, "two", "c", "d")
    reader = replace(storage)
    files = reader.find(root)
    assert [reader.read(file) for file in files] == [b"x"] * 4
    put_record(place, "three", "e", "f")
    confirm_files(reader)


def test_names_are_not_those_that_another_thread_has_listed(
    s3: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads share the cache of fsspec: what one of them lists is in it right after another one has emptied it."""
    storage, place = Storage(s3), f"s3://logs/{tmp_path.name}"
    storage.directories.create(f"{place}/a", b"1")
    assert storage.directories.list_names(place) == ["a"]
    other_filesystem = fsspec.filesystem("s3", skip_instance_cache=True, **s3)
    monkeypatch.setattr(type(other_filesystem), "invalidate_cache", lambda *_: None)
    other_filesystem.pipe_file(f"{place}/b", b"2")
    assert storage.directories.list_names(place) == ["a", "b"]
