"""An index saves requests, and never changes an answer: of files that have changed, or when it is damaged or forged."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog
from sawlog.errors import ChangedError, OptionError, SawlogError
from sawlog.indexing import IndexWarning
from sawlog.storage import Storage
from sawlog.storage.index import INDEX_NAME, MAGIC, Index
from tests.cli.conftest import Run, run

__all__ = ["run"]

FILES = 40
OLD = time.time() - 60


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by method and path."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def counted(name: str) -> None:
        whole = getattr(MemoryFileSystem, name)

        def call(self: Any, path: str, *args: Any, **settings: Any) -> Any:
            with lock:
                counts[name] += 1
                counts[f"{name} {path.rpartition('/')[2]}"] += 1
            return whole(self, path, *args, **settings)

        monkeypatch.setattr(MemoryFileSystem, name, call)

    for name in ("cat_file", "info", "find"):
        counted(name)
    return counts


@pytest.fixture
def remote() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def put(root: str, number: int, start: int, columns: tuple[str, ...] = ("i",)) -> str:
    """A log that was written a minute ago."""
    path = f"{root}/Trades.bin.{number:06}"
    sawlog.write(pa.table({name: range(start, start + 3) for name in columns}), path, format="deephaven_log")
    age(path)
    return path


def age(path: str) -> None:
    if "://" in path:
        import datetime as dt

        store = fsspec.filesystem("memory").store
        store[path.removeprefix("memory:/")].created = dt.datetime.fromtimestamp(OLD, dt.UTC)
    else:
        os.utime(path, (OLD, OLD))


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Logs with two different headers; one is damaged, one is cut off, one has no whole header."""
    root = str(tmp_path / "logs")
    os.mkdir(root)
    for number in range(8):
        path = put(root, number, 10 * number, ("i", "j") if number % 2 else ("i",))
        data = bytearray(Path(path).read_bytes())
        if number == 3:
            data[-3] ^= 1
        Path(path).write_bytes(data[: {5: -4, 6: 20}.get(number)])
        age(path)
    return root


def answers(path: str, **options: Any) -> list[Any]:
    """Rows, entries, damage and accounts, or what is wrong, of `fail` and `skip`."""
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for view in ("rows", "frames", "commands", "damage"):
            for policy in ("fail", "skip"):
                try:
                    dataset = sawlog.open(path, view=view, on_damage=policy, provenance=True, **options)
                    found += [dataset.schema, dataset.to_table(), dataset.fragments(100)]
                except SawlogError as error:
                    found.append(str(error))
        found.append(sawlog.verify(path, **options))
    return [
        [pickle.dumps((one.path, one.extent)) for one in each] if isinstance(each, list) else each for each in found
    ]


def test_answers_are_the_same(logs: str) -> None:
    expected = answers(logs)
    done = sawlog.index(logs)
    assert (done.format, done.files, done.read, done.dropped) == ("deephaven_log", 8, 8, 0)
    assert answers(logs, index=True) == expected
    assert sawlog.index(logs).read == 0
    with pytest.warns(match="Trades"):
        table = sawlog.read(logs, on_damage="skip", index=f"{logs}/{INDEX_NAME}")
    assert table.num_rows == 19


@pytest.mark.parametrize("change", ["rewritten", "grown", "gone", "new"])
def test_what_has_changed_is_looked_into(logs: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sawlog.index(logs)
    path = f"{logs}/Trades.bin.000002"
    if change == "rewritten":
        sawlog.write(pa.table({"k": ["a", "b"]}), path, format="deephaven_log")
    elif change == "grown":
        other = Path(f"{logs}/Trades.bin.000004").read_bytes()
        with open(path, "ab") as file:
            file.write(other[-20:])
    elif change == "gone":
        os.unlink(path)
    else:
        put(logs, 9, 90, ("k",))
    age(path) if change == "grown" else None
    assert answers(logs, index=True) == answers(logs)
    done = sawlog.index(logs)
    assert (done.read, done.dropped) == {"gone": (0, 1), "new": (1, 0)}.get(change, (1, 1))
    assert answers(logs, index=True) == answers(logs)


def test_a_file_that_was_written_just_now_is_not_kept(tmp_path: Path) -> None:
    sawlog.write(pa.table({"i": [1]}), tmp_path / "Trades.bin.1", format="deephaven_log")
    done = sawlog.index(tmp_path)
    assert (done.files, done.read) == (0, 1), "another one of its size in the same tick would not be noticed"
    age(str(tmp_path / "Trades.bin.1"))
    assert sawlog.index(tmp_path).files == 1


def test_a_damaged_index_is_not_used(logs: str) -> None:
    sawlog.index(logs)
    place = Path(logs, INDEX_NAME)
    whole = place.read_bytes()
    expected = sawlog.open(logs, on_damage="skip").schema
    for at in range(0, len(whole), 97):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            place.write_bytes(data)
            with pytest.warns(IndexWarning, match="the index is not used"):
                assert sawlog.open(logs, on_damage="skip", index=True).schema == expected
    place.unlink()
    with pytest.warns(IndexWarning, match="there is no index"):
        sawlog.open(logs, on_damage="skip", index=True)


def forged(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def test_what_only_looks_like_an_index_is_not_used(logs: str) -> None:
    """The digest is right, what it covers is not: every byte of the table is changed."""
    sawlog.index(logs)
    place = Path(logs, INDEX_NAME)
    whole = place.read_bytes()
    start = len(MAGIC) + 32
    outcomes: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sawlog.open(logs, on_damage="skip").to_table()
        for at in range(start, len(whole), 7):
            place.write_bytes(forged(whole[start:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]))
            try:
                assert sawlog.open(logs, on_damage="skip", index=True).to_table() == expected
                outcomes["same"] += 1
            except SawlogError as error:
                outcomes[type(error).__name__] += 1
    assert outcomes["same"] > outcomes.total() // 2, outcomes


def test_a_header_that_is_not_the_files_is_noticed(tmp_path: Path) -> None:
    path = put(str(tmp_path), 1, 0)
    (file,) = Storage().find(path)
    other = put(str(tmp_path), 2, 0, ("j",))
    with open(other, "rb") as wrong:
        head = sawlog.formats()["deephaven_log"].head_bytes(wrong.read())
        wrong.seek(0)
        place = tmp_path / "index"
        place.write_bytes(Index.of({file: wrong.read(head)}).to_bytes())
    for view in ("rows", "frames"):
        with pytest.raises(ChangedError, match="the header is not the one that the read was planned by"):
            sawlog.open(path, index=place, view=view).to_table()


def test_requests(requests: Counter[str], remote: str) -> None:
    for number in range(FILES):
        put(remote, number, 0)
    requests.clear()
    assert sawlog.index(remote, format="deephaven_log").read == FILES
    heads = {name: count for name, count in requests.items() if name.startswith("cat_file Trades")}
    assert len(heads) == FILES
    assert set(heads.values()) == {1}
    requests.clear()
    dataset = sawlog.open(remote, index=True, format="deephaven_log", deletes="ignore")
    assert len(dataset.fragments()) == FILES
    assert requests["find"] == 1
    assert (requests["cat_file"], requests[f"cat_file {INDEX_NAME}"]) == (1, 1), "no header is read"
    assert dataset.count_rows() == 3 * FILES
    for number in range(5):
        put(remote, number, 7, ("i", "j"))
    requests.clear()
    assert sawlog.open(remote, index=True, format="deephaven_log").schema.names == ["i", "j"]
    assert requests["cat_file"] == 1 + 5, "those that have changed"
    requests.clear()
    done = sawlog.index(remote, format="deephaven_log")
    assert (done.read, done.dropped) == (5, 5)
    assert requests["cat_file"] == 1 + 5


def test_an_object_store(s3: dict[str, Any], tmp_path: Path) -> None:
    root = f"s3://logs/{tmp_path.name}"
    for number in range(3):
        table = pa.table({"i": [number]})
        sawlog.write(table, f"{root}/T.bin.{number}", format="deephaven_log", storage_options=s3)
    assert sawlog.index(root, storage_options=s3).files == 3, "its tags tell versions apart at once"
    assert sawlog.read(root, storage_options=s3, index=True)["i"].to_pylist() == [0, 1, 2]
    sawlog.write(pa.table({"i": [9]}), f"{root}/T.bin.1", format="deephaven_log", storage_options=s3)
    assert sawlog.read(root, storage_options=s3, index=True)["i"].to_pylist() == [0, 9, 2]
    done = sawlog.index(root, storage_options=s3)
    assert (done.files, done.read) == (3, 1)


def test_on_the_command_line(run: Run, logs: str, tmp_path: Path) -> None:
    place = tmp_path / "the.index"
    assert "8 files of deephaven_log in the index" in run("index", logs, "--output", str(place)).out
    shown = run("cat", logs, "--json", "-o", f"index={place}")
    assert shown.out == run("cat", logs, "--json").out
    assert not Path(logs, INDEX_NAME).exists()
    run("index", logs)
    assert run("cat", logs, "--json", "-o", "index=true").out == shown.out
    assert run("index", str(tmp_path / "missing")).code == 2


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        (lambda logs: f"{logs}/Trades.bin.*", {}, "is not one directory; give the path of the index"),
        (lambda logs: f"{logs}/../log", {"format": "leveldb_log"}, "no index is needed"),
    ],
)
def test_mistakes(logs: str, path: Callable[[str], str], settings: dict[str, str], message: str) -> None:
    sawlog.write(pa.table({"record": [b"x"]}), f"{logs}/../log/000001.log", format="leveldb_log")
    with pytest.raises(OptionError, match=message):
        sawlog.index(path(logs), **settings)
