"""What Chromium keeps of sites' files, service workers and notifications: real databases, and what the site says."""

from __future__ import annotations

import json
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.leveldb.applications.file_system import FileSystem
from sawlog.leveldb.applications.view import Entry, Home
from sawlog.storage import Storage

PROFILE = Path(
    os.environ.get("SAWLOG_SITE", Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156-sites")
)
"""`tests/interop/chromium/make_sites.py` has a browser make another one."""
FILES = PROFILE / "File System"
PLACES = {"file_system": FILES / "000" / "t" / "Paths"}


@cache
def truth() -> dict[str, Any]:
    told: dict[str, Any] = json.loads((PROFILE / "truth.json").read_text())
    return told


@cache
def rows(view: str, *, history: bool = False) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = sawlog.read(PLACES[view], view=view, history=history).to_pylist()
    return entries


def test_files_are_what_the_page_lists() -> None:
    files = {row["path"]: row for row in rows("file_system") if row["kind"] in ("file", "directory")}
    listed = truth()["files"]["temporary"]
    assert files.keys() == {entry["path"] for entry in listed}
    for entry in listed:
        row = files[entry["path"]]
        assert (row["kind"], row["reason"]) == ("directory" if entry["is_directory"] else "file", None)
        if entry["is_directory"]:
            assert row["time"].timestamp() * 1000 == entry["time"]
        else:
            assert (PLACES["file_system"].parent / row["data_path"]).stat().st_size == entry["size"]
            assert row["time"] is None  # that of the data counts
    data = FILES / "000" / "t" / files["/größe 😀/b:c.txt"]["data_path"]
    assert data.read_text() == "content of größe 😀/b:c.txt"
    (private,) = truth()["files"]["private"].items()
    assert {f"/{private[0]}/{name}" for name in private[1]} < files.keys()


def test_names_in_directories_lead_to_the_files() -> None:
    files = {row["file_id"]: row for row in rows("file_system") if row["kind"] in ("file", "directory")}
    children = [row for row in rows("file_system") if row["kind"] == "child"]
    assert {row["file_id"] for row in children} == files.keys() - {0}
    for row in children:
        assert [row[name] for name in ("path", "name", "parent_id", "storage", "directory")] == [
            files[row["file_id"]][name] for name in ("path", "name", "parent_id", "storage", "directory")
        ]
    assert {(row["storage"], row["directory"]) for row in files.values()} == {("temporary", "000")}
    (last,) = (row["number"] for row in rows("file_system") if row["kind"] == "last_file_id")
    assert last >= max(files)


def test_deleted_and_moved_files_are_in_the_history() -> None:
    past = [
        (row["path"], row["operation"], row["live"])
        for row in rows("file_system", history=True)
        if row["kind"] == "file" and not row["path"].startswith("/private")
    ]
    assert [entry for entry in past if "gone" in entry[0]] == [
        ("/gone.txt", "delete", False),
        ("/gone.txt", "put", False),
    ]
    assert ("/old name.txt", "put", False) in past
    assert ("/empty/new name.txt", "put", True) in past


def test_the_directory_of_a_site_is_that_of_its_origin() -> None:
    (row,) = (row for row in sawlog.read(FILES / "Origins", view="file_system").to_pylist() if row["kind"] == "origin")
    assert (row["origin"], row["directory"], row["reason"]) == ("http_127.0.0.1_8125", "000", None)


def pickled(parent: int, data_path: bytes, name: bytes, time: int) -> bytes:
    """A file or a directory as the database has it."""
    texts = b"".join(struct.pack("<I", len(part)) + part + bytes(-len(part) % 4) for part in (data_path, name))
    record = struct.pack("<q", parent) + texts + struct.pack("<q", time)
    return struct.pack("<I", len(record)) + record


WINDOWS = pickled(0, b"00\\00000001", "ä".encode(), 11_644_473_600_000_001)
STORED = {b"0": pickled(0, b"", b"", 0), b"7": pickled(8, b"", b"x", 0), b"8": pickled(7, b"", b"y", 0), b"1": WINDOWS}


@pytest.mark.parametrize(
    ("key", "value", "columns", "reason"),
    [
        (b"1", WINDOWS, {"path": "/ä", "data_path": "00\\00000001"}, None),
        (b"7", STORED[b"7"], {"name": "x"}, "path: more than 4096 characters, or a directory is in itself"),
        (b"2", pickled(9, b"a", b"b", 0), {"name": "b", "path": None}, "path: there is no directory 9"),
        (b"2", WINDOWS[:20], {"kind": "file"}, "value: 40 bytes of a file's record, where 16 are left"),
        (b"2", WINDOWS + b"\0", {"path": "/ä"}, "value: 1 bytes after the end, at byte 44"),
        (
            b"2",
            pickled(0, b"a", b"\xff", 0),
            {"name": "\ufffd"},
            "value: not utf-8 at byte 0 of the text: shown with U+FFFD",
        ),
        (b"CHILD_OF:0:a:b", b"1", {"kind": "child", "name": "a:b", "path": "/a:b", "file_id": 1}, None),
        (b"CHILD_OF:1:a", b"x", {"path": "/ä/a"}, "value: b'x', expected an integer in decimal digits"),
        (
            b"LAST_INTEGER",
            b"9" * 19,
            {"number": None},
            "value: b'9999999999999999999', expected an integer in decimal digits",
        ),
        (b"LAST_PATH", b"-1", {"kind": "last_directory", "number": -1}, None),
    ],
)
def test_records_of_files(key: bytes, value: bytes, columns: dict[str, Any], reason: str | None) -> None:
    view = FileSystem()
    files = view.context([Entry(*entry, 1) for entry in STORED.items()], Home("x/010/p/Paths", Storage(), 1))
    row = view.decode(Entry(key, value, 1), files)
    assert {name: row.get(name) for name in columns} == columns
    assert row.get("reason") == reason
    if not key.startswith(b"LAST_PATH"):
        assert (row["directory"], row["storage"]) == ("010", "persistent")


def test_views_that_fit_are_named() -> None:
    for view, path in (*PLACES.items(), ("file_system", FILES / "Origins")):
        assert sawlog.open(path).info()["decoded by"] == f"--view {view}"
