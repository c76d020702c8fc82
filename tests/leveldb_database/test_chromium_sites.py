"""What Chromium keeps of sites' files, service workers and notifications: real databases, and what the site says."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb.applications.chromium_workers import Notifications, ServiceWorker
from sawlog.leveldb.applications.file_system import FileSystem
from sawlog.leveldb.applications.view import Entries, Entry, Home, UnknownBytesError
from sawlog.leveldb.database.fragments import KeyRange
from sawlog.storage import Storage

from .support import pickled

PROFILE = Path(
    os.environ.get("SAWLOG_SITE", Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156-sites")
)
"""`tests/interop/chromium/make_sites.py` has a browser make another one."""
FILES = PROFILE / "File System"
PLACES = {
    "file_system": FILES / "000" / "t" / "Paths",
    "notifications": PROFILE / "Platform Notifications",
    "service_worker": PROFILE / "Service Worker" / "Database",
}


@cache
def read_truth() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PROFILE / "truth.json").read_text())
    return document


@cache
def read_place(view: str, *, history: bool = False) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = sawlog.read(PLACES[view], view=view, history=history).to_pylist()
    return entries


def test_files_are_what_the_page_lists() -> None:
    files = {row["path"]: row for row in read_place("file_system") if row["kind"] in ("file", "directory")}
    listed = read_truth()["files"]["temporary"]
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
    (private,) = read_truth()["files"]["private"].items()
    assert {f"/{private[0]}/{name}" for name in private[1]} < files.keys()


def test_names_in_directories_lead_to_the_files() -> None:
    files = {row["file_id"]: row for row in read_place("file_system") if row["kind"] in ("file", "directory")}
    children = [row for row in read_place("file_system") if row["kind"] == "child"]
    assert {row["file_id"] for row in children} == files.keys() - {0}
    for row in children:
        assert [row[name] for name in ("path", "name", "parent_id", "storage", "directory")] == [
            files[row["file_id"]][name] for name in ("path", "name", "parent_id", "storage", "directory")
        ]
    assert {(row["storage"], row["directory"]) for row in files.values()} == {("temporary", "000")}
    (last,) = (row["number"] for row in read_place("file_system") if row["kind"] == "last_file_id")
    assert last >= max(files)


def test_deleted_and_moved_files_are_in_the_history() -> None:
    past = [
        (row["path"], row["operation"], row["live"])
        for row in read_place("file_system", history=True)
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
    files = view.make_context(
        Entries.of(Entry(*entry, 1) for entry in STORED.items()), Home("x/010/p/Paths", Storage(), 1)
    )
    row = view.decode(Entry(key, value, 1), files)
    assert {name: row.get(name) for name in columns} == columns
    assert row.get("reason") == reason
    if not key.startswith(b"LAST_PATH"):
        assert (row["directory"], row["storage"]) == ("010", "persistent")


def test_what_explains_entries_is_read_once_for_all_ranges_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    path = tmp_path / "000" / "t" / "Paths"
    path.mkdir(parents=True)
    database = plyvel.DB(str(path), create_if_missing=True, write_buffer_size=16 << 10, compression=None)
    for number in range(1, 1000):
        database.put(b"%d" % number, pickled(number // 2, b"", b"%d" % number, 0))
        database.put(b"CHILD_OF:%d:%d" % (number // 2, number), b"%d" % number)
    database.compact_range()
    database.close()
    calls = []
    original = FileSystem.make_context
    monkeypatch.setattr(FileSystem, "make_context", lambda *arguments: calls.append(1) or original(*arguments))
    fragments = sawlog.open(path, view="file_system").fragments(4 << 10)
    assert len(fragments) > 4
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda fragment: list(fragment.to_batches()), fragments))
    assert len(calls) == 1
    rows = [row for part in parts for batch in part for row in batch.to_pylist()]
    assert [(row["path"], row["reason"]) for row in rows if row["file_id"] == 25] == [("/1/3/6/12/25", None)] * 2
    again = [pickle.loads(pickle.dumps(fragment)).to_batches() for fragment in fragments]
    assert [row for part in again for batch in part for row in batch.to_pylist()] == rows
    assert len(calls) == 1 + len(fragments)


def make_files(path: Path, *, names_first: bool) -> Path:
    """Write a database of files, some of which were written again or deleted, in tables and in a log."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    path = path / "000" / "t" / "Paths"
    path.mkdir(parents=True)
    database = plyvel.DB(str(path), create_if_missing=True, write_buffer_size=64 << 10, compression=None)
    for number in range(0 if names_first else 4000):
        database.put(b"+%06d" % number, b"x" * 500)
    for round_name in (b"old", b"new"):
        for number in range(1, 2000):
            if round_name == b"old" or number % 3:
                name = b"%s%d" % (round_name, number)
                database.put(b"%d" % number, pickled(number // 2, b"", name, 0))
                database.put(b"CHILD_OF:%d:%s" % (number // 2, name), b"%d" % number)
        if round_name == b"old":
            database.compact_range()
    for number in range(3, 2000, 9):
        database.delete(b"%d" % number)
    database.close()
    return path


@pytest.mark.parametrize("names_first", [True, False])
@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("history", [False, True])
def test_what_explains_entries_is_read_together_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names_first: bool, is_damaged: bool, history: bool
) -> None:
    path = make_files(tmp_path, names_first=names_first)
    for table in path.glob("*.ldb") if is_damaged else ():  # which of them LevelDB is done with is a matter of time
        data = bytearray(table.read_bytes())
        data[len(data) // 3] ^= 0xFF
        table.write_bytes(data)
    reads = []
    decode = KeyRange.decode
    monkeypatch.setattr(KeyRange, "decode", lambda *arguments: reads.append(1) or decode(*arguments))
    options = {"view": "file_system", "on_damage": "skip", "history": history}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = sawlog.open(path, **options)
        (whole_fragment,) = dataset.fragments(1 << 30)
        rows = [row for batch in whole_fragment.to_batches() for row in batch.to_pylist()]
        assert len(reads) == (1 if names_first and not is_damaged else 2)
        parts = sawlog.open(path, **options).fragments(16 << 10)
        assert len(parts) > 4
        assert [row for part in parts for batch in part.to_batches() for row in batch.to_pylist()] == rows
        if is_damaged:
            with pytest.raises(sawlog.DamageError):
                list(sawlog.open(path, view="file_system", history=history).to_batches())
    if not is_damaged:
        assert {row["path"] for row in rows if row["file_id"] == 1} >= {"/new1"}
        assert "/new1/old3/new7" in {row["path"] for row in rows}


def test_workers_are_what_the_browser_says_of_them() -> None:
    entries = read_place("service_worker")
    assert not [row for row in entries if row["reason"]]
    rows_by_id = {str(row["registration_id"]): row for row in entries if row["kind"] == "registration"}
    registrations = read_truth()["registrations"]
    assert rows_by_id.keys() == {
        number for number, registration in registrations.items() if not registration["isDeleted"]
    }
    for number, row in rows_by_id.items():
        version = read_truth()["versions"][str(row["version_id"])]
        assert (version["registrationId"], version["status"]) == (number, "activated")
        assert (row["scope"], row["url"]) == (registrations[number]["scopeURL"], version["scriptURL"])
        assert row["script_time"].timestamp() == version["scriptResponseTime"]
        assert row["time"] >= row["script_time"]
        assert row["storage_key"] == "http://127.0.0.1:8125/"
    first, second = (json.loads(rows_by_id[number]["value"]) for number in "01")
    preload = read_truth()["worker"]["preload"]
    assert first["navigation_preload_state"] == {"enabled": preload["enabled"], "header": preload["headerValue"]}
    assert [(worker["is_active"], worker["has_fetch_handler"]) for worker in (first, second)] == [
        (True, True),
        (True, False),
    ]
    assert [(worker["script_type"], worker["update_via_cache"]) for worker in (first, second)] == [
        ("CLASSIC", "IMPORTS"),
        ("MODULE", "NONE"),
    ]
    (rule,) = first["router_rules"]["v1"]
    (expected_rule,) = json.loads(read_truth()["versions"]["0"]["routerRules"])
    pattern = rule["condition"][0]["url_pattern"]
    for part, shown_part in expected_rule["condition"]["urlPattern"].items():
        stored = [part_value.get("fixed", part_value.get("full_wildcard", {})) for part_value in pattern[part]]
        assert "".join(row["value"] or row.get("prefix", "") + "*" for row in stored) == shown_part
    assert [[*source] for source in rule["source"]] == [[f"{name}_source"] for name in expected_rule["source"]]


def test_scripts_of_workers_have_the_size_and_the_hash_of_what_was_served() -> None:
    scripts = {row["url"].rpartition("/")[2]: row for row in read_place("service_worker") if row["kind"] == "resource"}
    assert {name: row["registration_id"] for name, row in scripts.items()} == {
        "worker.js": 0,
        "part.js": 0,
        "module.js": 1,
    }
    digest = hashlib.sha256(b"// nothing").hexdigest().upper()
    assert [
        (row["size"], json.loads(row["value"])["sha256_checksum"])
        for name, row in scripts.items()
        if name != "worker.js"
    ] == [(10, digest)] * 2


def test_what_services_keep_for_a_worker_is_what_the_page_says() -> None:
    worker = read_truth()["worker"]
    data = {
        re.sub("_[0-9a-f-]{36}.*", "", row["name"]): row
        for row in read_place("service_worker")
        if row["kind"] == "user_data"
    }
    values = {name: json.loads(row["value"]) for name, row in data.items()}
    assert values["cookie_store_subscriptions"]["subscriptions"] == worker["cookies"]
    assert values["push_sender_id"] == {"$bytes": worker["sender"]}
    fetch = values["bgfetch_registration"]["registration"]
    assert (fetch["developer_id"], fetch["download_total"]) == (worker["fetched"]["id"], worker["fetched"]["total"])
    assert values["bgfetch_ui_options"] == {"title": "Größe"}
    request = values["bgfetch_active_request"]
    assert (request["unique_id"], request["serialized_request"]["url"]) == (
        fetch["unique_id"],
        "http://127.0.0.1:8125/slow",
    )
    assert data["bgfetch_registration"]["time"].year >= 2026
    past = [
        json.loads(row["value"])
        for row in read_place("service_worker", history=True)
        if row["value"] and row["name"] == "BackgroundSyncUserData"
    ]
    assert "tag of sync" in [sync["tag"] for syncs in past for sync in syncs.get("registration", [])]


def test_an_unregistered_worker_is_in_the_history() -> None:
    past = [
        row
        for row in read_place("service_worker", history=True)
        if row["registration_id"] == 2 and row["kind"] == "registration"
    ]
    assert [row["operation"] for row in past][:2] == ["delete", "put"]
    assert past[1]["scope"] == read_truth()["registrations"]["2"]["scopeURL"]
    (script,) = (
        row
        for row in read_place("service_worker", history=True)
        if row["version_id"] == 2 and row["kind"] == "resource" and row["value"]
    )
    assert script["registration_id"] == 2


@pytest.mark.parametrize(
    ("key", "value", "columns", "reason"),
    [
        (
            b"REG:https://a/^0https://b\0007",
            b"\xd8\x06\x05",
            {"storage_key": "https://a/^0https://b", "registration_id": 7, "value": '{"107":5}'},
            None,
        ),
        (b"REG:https://a/\0" + b"9" * 19, b"", {}, "b'9999999999999999999', expected an integer in decimal digits"),
        (b"RES:5", b"", {}, "a key of resource without the byte 0 in it"),
        (b"URES:5", b"x", {"resource_id": 5}, "value: 1 bytes, where nothing is expected"),
        (
            b"REG_USER_DATA:7\0new",
            b"\xff",
            {"name": "new", "value": '{"$bytes":"/w=="}'},
            "value: of a service that is not known",
        ),
        (b"REG_HAS_USER_DATA:a\0b\0007", b"", {"name": "a\0b", "registration_id": 7}, None),
        (b"REG_USER_DATA:7\0push_sender_id", b"12", {"value": '"12"'}, None),
        (b"INITDATA_NEW", b"", {}, "a key that is none of the service workers'"),
        (b"RES:1\0002", bytes.fromhex("18ffffffffffffffffff01"), {"size": -1}, None),
    ],
)
def test_entries_of_service_workers(key: bytes, value: bytes, columns: dict[str, Any], reason: str | None) -> None:
    view = ServiceWorker()
    entry = Entry(key, value, 1)
    try:
        row = view.decode(entry, view.make_context(Entries.of([entry]), Home("x", Storage(), 1)))
    except UnknownBytesError as unknown:
        row = {"reason": str(unknown)}
    assert {name: row.get(name) for name in columns} == columns
    assert row.get("reason") == reason


def test_notifications_are_what_the_page_has_shown() -> None:
    entries = {row["title"]: row for row in read_place("notifications")}
    assert not [row for row in entries.values() if row["reason"]]
    notifications = {notification["title"]: notification for notification in read_truth()["notifications"]}
    assert entries.keys() == notifications.keys()
    names = {"requireInteraction": "require_interaction", "vibrate": "vibration_pattern"}
    directions = {"LEFT_TO_RIGHT": "ltr", "RIGHT_TO_LEFT": "rtl", "AUTO": "auto"}
    for title, notification in notifications.items():
        row, message = entries[title], json.loads(entries[title]["value"])
        data = message["notification_data"]
        assert (row["origin"], row["registration_id"]) == ("http_127.0.0.1_8125", 0)
        assert row["notification_id"] == message["notification_id"]
        assert (row["body"], row["tag"]) == (notification["body"], notification["tag"])
        assert (row["timestamp"] - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1) == notification[
            "timestamp"
        ]
        for name in ("lang", "icon", "silent", "requireInteraction", "vibrate"):
            assert data.get(names.get(name, name), []) == notification[name]
        assert directions[data["direction"]] == notification["dir"]
        actions = [action | {"type": action["type"].lower()} for action in data.get("actions", [])]
        assert actions == [
            {name: part for name, part in action.items() if part is not None} for action in notification["actions"]
        ]
    assert abs(entries["Second"]["time"] - entries["Second"]["timestamp"]) < timedelta(seconds=5)
    carried = json.loads(entries["Größe 😀"]["value"])["notification_data"]["data"]
    document = json.loads(notifications["Größe 😀"]["data"])
    assert carried == document | {"list": [*document["list"][:2], {"$date": document["list"][2]}]}


def test_what_a_notification_carries_may_be_deep() -> None:
    """A value of a script is shown down to 150 levels; what is deeper in it is bytes."""
    script = b"\xff\x0f" + b";I\x02" * 400
    data = b"\x42" + encode_varint(len(script)) + script
    row = Notifications().decode(Entry(b"DATA:a\0p#", b"\x22" + encode_varint(len(data)) + data, 1), None)
    assert row["value"].startswith('{"notification_data":{"data":{"$map":[[1,{"$map":[[1,')
    assert row["reason"] == "value: data: values in values, deeper than 150"


def test_a_notification_that_was_closed_is_in_the_history() -> None:
    past = [
        row for row in read_place("notifications", history=True) if str(row["notification_id"]).endswith("#1closed")
    ]
    assert [(row["kind"], row["title"], row["operation"]) for row in past] == [
        ("notification", None, "delete"),
        ("notification", "Closed", "put"),
        ("resources", None, "delete"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "columns", "reason"),
    [
        (
            b"RESOURCES:https_a_0\0p#1",
            "12024142 2200 220143",
            {
                "kind": "resources",
                "value": '{"notification_icon":{"$bytes":"QUI="},"action_icons":[{"$bytes":""},{"$bytes":"Qw=="}]}',
            },
            None,
        ),
        (
            b"DATA:https_a_0\0p#1",
            "22064201ff 0a0162",
            {"title": "b", "body": None},
            "value: data: byte of 1 bytes at byte 1, where 0 are left",
        ),
        (
            b"DATA:https_a_0\0p#1",
            "82010a 0a0163 120568656c6c6f 2201",
            {"value": '{"serialized_metadata":[{"key":"c","value":"hello"}],"$bytes":"IgE="}'},
            "value: Notification: field of 1 bytes at byte 15, where 0 are left",
        ),
        (
            b"DATA:https_a_0\0\xff",
            "8803 05",
            {"notification_id": "\ufffd", "value": '{"49":5}'},
            "not utf-8 at byte 0 of the text: shown with U+FFFD",
        ),
        (b"DATA:https_a_0", "", {}, "a notification without the byte 0 after its origin"),
    ],
)
def test_entries_of_notifications(key: bytes, value: str, columns: dict[str, Any], reason: str | None) -> None:
    try:
        row = Notifications().decode(Entry(key, bytes.fromhex(value), 1), None)
    except UnknownBytesError as unknown:
        row = {"reason": str(unknown)}
    assert {name: row.get(name) for name in columns} == columns
    assert row.get("reason") == reason


@pytest.mark.parametrize(("view", "path"), [*PLACES.items(), ("file_system", FILES / "Origins")])
def test_views_that_fit_are_named_by_the_directory_or_by_the_keys(view: str, path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "copy")
    for place in (path, tmp_path / "copy"):
        assert sawlog.open(place).info()["decoded by"] == f"--view {view}"
