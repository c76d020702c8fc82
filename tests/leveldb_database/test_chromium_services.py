"""What Chromium keeps for its own services: real databases, with what its internal pages show of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sawlog
from sawlog.cli.app import app
from sawlog.leveldb.applications.chromium_services import SharedProto, unpickle_text
from sawlog.leveldb.applications.protobuf import Messages
from sawlog.leveldb.applications.sync_data import SyncData
from sawlog.leveldb.applications.view import Entries, Entry, Home, UnknownBytesError
from sawlog.storage import Storage

PROFILE = Path(
    os.environ.get(
        "SAWLOG_SERVICE", Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156-services"
    )
)
"""`tests/interop/chromium/make_services.py` has a browser make another one."""
PLACES = {
    "gcm_store": PROFILE / "GCM Store",
    "shared_proto": PROFILE / "shared_proto_db",
    "site_characteristics": PROFILE / "Site Characteristics Database",
    "sync_data": PROFILE / "Sync Data" / "LevelDB",
}


@cache
def read_truth() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PROFILE / "truth.json").read_text())
    return document


def read_view(path: Path, view: str) -> list[dict[str, Any]]:
    """Rows of a database; that there is another in it is said, and nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*/(Encryption|metadata)/000003.log and 2 more were not read")
        entries: list[dict[str, Any]] = sawlog.read(path, view=view).to_pylist()
    return entries


@cache
def read_place(view: str, place: str = "") -> list[dict[str, Any]]:
    return read_view(PLACES[view] / place, view)


def test_sites_are_what_the_browser_shows_of_them() -> None:
    sites = {row["host_md5"]: row for row in read_place("site_characteristics") if row["kind"] == "site"}
    compared = 0
    for site in read_truth()["sites"]:
        host = site["origin"].partition("//")[2].partition(":")[0]
        if site["isDirty"]:  # not written yet
            continue
        row = sites[hashlib.md5(host.encode()).hexdigest()]
        value, expected = json.loads(row["value"]), site["value"]
        assert value.pop("last_loaded") == expected["lastLoaded"] == row["time"].timestamp()
        for name, feature in value.items():
            camel = re.sub("_(.)", lambda letter: letter[1].upper(), name)
            assert feature["observation_duration"] == expected[camel]["observationDuration"]
        compared += 1
    assert compared == 2


def test_push_messages_are_what_the_browser_shows_of_them() -> None:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in read_place("gcm_store"):
        kinds.setdefault(row["kind"], []).append(row)
    push, extension = read_truth()["push"], read_truth()["extension"]
    (device,), (checked_in,), (message,) = (kinds[kind] for kind in ("device_id", "last_checkin", "outgoing_message"))
    assert f"Android Id\t{int(device['value']):#x}\n" in push
    assert checked_in["time"].strftime("%A, %B %-d, %Y at %-I:%M:%S\u202f%p") in push
    (apps,) = re.findall("Registered App Ids\t(.*)", push)
    assert {row["app"] for kind in ("registration", "token") for row in kinds[kind]} == set(apps.split(", "))
    assert (message["app"], message["sender"]) == (extension["id"], extension["message"]["destinationId"])
    value = json.loads(message["value"])
    assert value["app_data"] == [{"key": "hello", "value": "world"}]
    assert (value["id"], value["ttl"]) == ("m1", 3600)
    assert 0 < (message["time"] - checked_in["time"]).total_seconds() + 1 < 60
    (token,) = kinds["token"]
    assert read_truth()["subscription"]["endpoint"].endswith(token["value"])
    assert {row["name"]: row["value"] for row in kinds["setting"]} == {
        "gcm_hostname": "push.example",
        "checkin_interval": "172800",
    }
    assert [row["kind"] for row in read_place("gcm_store") if row["reason"]] == ["device_token"]
    assert kinds["device_token"][0]["reason"] == "value: encrypted by the browser (v10)"


def test_keys_of_push_messages_are_those_that_the_page_was_given() -> None:
    (row,) = read_place("gcm_store", "Encryption")
    (token,) = (row for row in read_place("gcm_store") if row["kind"] == "token")
    assert (row["kind"], row["app"], row["sender"]) == ("encryption_keys", token["app"], token["sender"])
    secret = json.loads(row["value"])["auth_secret"]["$bytes"]
    assert secret.translate(str.maketrans("+/", "-_")).rstrip("=") == read_truth()["subscription"]["keys"]["auth"]


def test_a_download_is_in_the_shared_database_while_it_goes_on() -> None:
    entries = read_place("shared_proto")
    assert not [row for row in entries if row["reason"]]
    (row,) = (row for row in entries if row["database"] == "DownloadDB")
    download = json.loads(row["value"])["download_info"]
    progress = download["in_progress_info"]
    assert row["key"] == f"download,{download['guid']}"
    assert progress["url_chain"] == ["http://127.0.0.1:8124/download"]
    assert (progress["total_bytes"], progress["received_bytes"], progress["state"]) == (
        100_000_000,
        1000,
        "IN_PROGRESS",
    )
    assert progress["target_path"].endswith("/download")
    assert progress["current_path"] == progress["target_path"] + ".crdownload"
    (checked_in,) = (row for row in read_place("gcm_store") if row["kind"] == "last_checkin")
    assert 0 < (row["time"] - checked_in["time"]).total_seconds() < 60
    signals = [row["key"].split(":") for row in entries if row["database"] == "SignalDatabase"]
    configured = json.loads(next(row for row in entries if row["key"] == "config")["value"])["signals"]
    assert {int(name) for kind, name, *_ in signals if kind == "h"} <= {signal["name_hash"] for signal in configured}


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 30, "x", ""])
def test_a_number_of_a_database_that_has_no_place_in_a_column_is_a_reason(digits: str) -> None:
    with pytest.raises(UnknownBytesError, match="expected an integer in decimal digits"):
        SharedProto().decode(Entry(f"{digits}_key".encode(), b"", 1), context=False)


def test_databases_apart_have_the_same_entries_without_numbers() -> None:
    """As Chromium keeps them with `--disable-features=ProtoDBSharedMigration`."""
    view = SharedProto()
    directories = {"SegmentInfoDatabase": "SegmentInfoDB", "SignalDatabase": "SignalDB"}
    compared = 0
    for row in read_place("shared_proto"):
        if (directory := directories.get(row["database"])) is not None:
            path = f"/profile/Segmentation Platform/{directory}"
            assert view.recognizes(path, "leveldb.BytewiseComparator", [])
            entry = Entry(row["raw_key"].partition(b"_")[2], row["raw_value"], 1)
            decoded = view.decode(entry, view.make_context(Entries.of([]), Home(path, Storage(), 1)))
            for name in ("database", "number", "key", "value", "reason"):
                assert decoded[name] == row[name]
            compared += 1
    assert compared > 10


def test_numbers_of_databases_that_are_too_large_are_refused() -> None:
    with pytest.raises(UnknownBytesError):
        SharedProto().decode(Entry(b"9" * 19 + b"_", b"", 1), "shared_proto_db")
    assert SharedProto().decode(Entry(b"99_a", b"", 1), "shared_proto_db")["database"] is None


def test_metadata_names_the_databases_that_share_one() -> None:
    entries = read_place("shared_proto", "metadata")
    assert not [row for row in entries if row["reason"]]
    names = {row["database"] for row in entries if row["number"] is not None}
    assert {row["database"] for row in read_place("shared_proto")} <= names
    assert [row["value"] for row in entries if row["key"] == "__global"] == ['{"corruptions":0,"failure_count":0}']


@pytest.mark.parametrize(
    ("pickled", "path", "reason"),
    [
        ("0c000000 06000000 2f612f62632f0000", "/a/bc/", None),
        ("10000000 05000000 43003a005c0061006200 0000", "C:\\ab", None),
        ("04000000 00000000", "", None),
        ("0c000000 ff000000 2f", "\f\0\0\0\ufffd\0\0\0/", "path: value of 510 bytes at byte 8, where 1 are left"),
    ],
)
def test_paths_of_downloads_are_utf_8_or_utf_16(pickled: str, path: str, reason: str | None) -> None:
    messages = Messages("Thing: 1 path path", path=unpickle_text)
    data = bytes.fromhex(pickled)
    assert messages.read(b"\x0a" + bytes([len(data)]) + data, "Thing") == ({"path": path}, reason)


def simplify(value: Any) -> Any:
    """What `chrome://sync-internals` shows of a field: numbers as text, times as they are stored."""
    if isinstance(value, dict):
        return value["$bytes"] if "$bytes" in value else {name: simplify(field) for name, field in value.items()}
    if isinstance(value, list):
        return [simplify(field) for field in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def missing(expected: Any, decoded: Any, path: str = "") -> Iterator[str]:
    """Fields that the browser shows and the view has not, or has otherwise."""
    if isinstance(expected, dict) and isinstance(decoded, dict):
        for name, field in expected.items():
            yield from missing(field, decoded.get(name), f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(decoded, list) and len(expected) == len(decoded):
        for expected_item, item in zip(expected, decoded, strict=True):
            yield from missing(expected_item, item, path)
    elif expected != decoded:
        yield f"{path}: {expected!r}, not {decoded!r}"


def test_entities_are_what_the_browser_shows_of_them() -> None:
    """Fields that have no declaration are there by number."""
    entries = read_place("sync_data")
    assert not [row for row in entries if row["reason"]]
    values = {(row["kind"], row["data_type"], row["key"]): simplify(json.loads(row["value"])) for row in entries}
    keys = {values[kind, name, key]["client_tag_hash"]: (name, key) for kind, name, key in values if kind == "metadata"}
    compared, different = set(), set()
    for node in read_truth()["nodes"]:
        if (key := keys.get(node["metadata"]["client_tag_hash"])) is None:
            assert node["type"] in ("Bookmarks", "Encryption Keys"), node  # in files of their own
            continue
        assert values["metadata", *key] == node["metadata"]
        value = values["data", *key]
        (kind,) = node["specifics"]
        entity = value.get("specifics", {kind: value})
        different |= set(missing(node["specifics"], entity if kind in entity else {kind: entity}))
        compared.add(kind)
    assert compared >= {"device_info", "reading_list", "saved_tab_group", "session"}
    assert {field.partition(":")[0] for field in different} <= {
        ".device_info.feature_fields.glic_experimental_triggering_state",  # an enum whose names are not declared
        ".saved_tab_group.attribution_metadata.updated",  # not written yet
        ".session.tab.navigation.global_id",  # shown without the microseconds that are stored
    }


def test_times_of_entities_are_those_in_them() -> None:
    reading = {row["key"]: row["time"] for row in read_place("sync_data") if row["data_type"] == "reading_list"}
    for entry in read_truth()["extension"]["reading"]:
        assert int(reading[entry["url"]].timestamp() * 1000) == entry["lastUpdateTime"]
    groups = [row["time"] for row in read_place("sync_data") if row["data_type"] == "saved_tab_group" and row["time"]]
    assert max(groups) - min(groups) < timedelta(seconds=10)


def test_older_states_of_entities_are_in_the_history() -> None:
    past = sawlog.read(PLACES["sync_data"], view="sync_data", history=True).to_pylist()
    headers = [row for row in past if row["kind"] == "data" and str(row["key"]).endswith(":-1") and row["value"]]
    tabs = [json.loads(row["value"])["header"].get("window", [{"tab": []}])[0]["tab"] for row in headers]
    assert max(map(len, tabs)) > len(tabs[0])
    assert [row["live"] for row in headers] == [True] + [False] * (len(headers) - 1)


@pytest.mark.parametrize(
    ("key", "row"),
    [
        (b"A-reading_list-dt-x-md-y", ("data", "A", "reading_list", "x-md-y", None)),
        (b"themes-GlobalMetadata", ("state", None, "themes", None, None)),
        (
            b"sessions-md-ab",
            ("metadata", None, "sessions", "ab", "key: integer of 4 bytes at byte 0, where 2 are left"),
        ),
        (b"themes-dt-\xff", ("data", None, "themes", "\ufffd", "not utf-8 at byte 0 of the text: shown with U+FFFD")),
    ],
)
def test_keys_of_entities(key: bytes, row: tuple[str | None, ...]) -> None:
    decoded = SyncData().decode(Entry(key, b"", 1), None)
    assert tuple(decoded.get(name) for name in ("kind", "storage", "data_type", "key", "reason")) == row


def test_views_that_fit_are_named() -> None:
    for view, path in PLACES.items():
        assert sawlog.open(path).info()["decoded by"] == f"--view {view}"
    for view, place in (("gcm_store", "Encryption"), ("shared_proto", "metadata")):
        assert sawlog.open(PLACES[view] / place).info()["decoded by"] == f"--view {view}"


@pytest.mark.parametrize(
    "above", ["Code", "Slack", "discord", "Code/Partitions/extension", "Teams/EBWebView/Profile 1"]
)
def test_databases_of_electron_are_recognized_in_their_folders(above: str, tmp_path: Path) -> None:
    """A folder of an application is a profile: it has databases where a browser has them in `Default`."""
    browser = Path(__file__).parents[1] / "golden" / "leveldb_database" / "chromium-156"
    places = {
        "Local Storage/leveldb": "local_storage",
        "Session Storage": "session_storage",
        "IndexedDB/http_127.0.0.1_8123.indexeddb.leveldb": "indexed_db",
        "Site Characteristics Database": "site_characteristics",
        "shared_proto_db": "shared_proto",
        "shared_proto_db/metadata": "shared_proto",
        "Sync Data/LevelDB": "sync_data",
    }
    for name in {place.partition("/")[0] for place in places}:
        (source,) = (directory / name for directory in (browser, PROFILE) if (directory / name).is_dir())
        shutil.copytree(source, tmp_path / above / name)
    (tmp_path / above / "Preferences").write_text("{}")
    bucket = tmp_path / above / "WebStorage" / "7" / "IndexedDB"
    for kind in ("leveldb", "blob"):
        shutil.copytree(browser / "IndexedDB" / f"http_127.0.0.1_8123.indexeddb.{kind}", bucket / f"indexeddb.{kind}")
    places["WebStorage/7/IndexedDB/indexeddb.leveldb"] = "indexed_db"
    outcome = CliRunner().invoke(app, ["ls", str(tmp_path), "--json"])
    listed = {part["path"]: part["decoders"] for part in json.loads(outcome.stdout)["parts"] if part["format"]}
    assert listed == {f"{tmp_path}/{above}/{place}": [view] for place, view in places.items()}
    assert not [row for row in read_view(bucket / "indexeddb.leveldb", "indexed_db") if row["reason"]]


MESSAGES = Messages("""
Thing: 1 name text, 2 count int, 3 state NEW|OLD, 4 parts Part*, 5 sizes uint*, 6 share float,
 7 seen bool, 8 id fixed
Part: 1 data bytes
""")


@pytest.mark.parametrize(
    ("data", "value", "reason"),
    [
        ("0a0161 10ffffffffffffffffff01 1801", {"name": "a", "count": -1, "state": "OLD"}, None),
        ("1807 3801", {"state": 7, "seen": True}, None),
        ("2200 22030a01ff", {"parts": [{}, {"data": {"$bytes": "/w=="}}]}, None),
        ("2a03010203 2804", {"sizes": [1, 2, 3, 4]}, None),
        ("350000003f 4101000000 00000000", {"share": 0.5, "id": 1}, None),
        ("1001 1002", {"count": [1, 2]}, None),
        ("2a02 01ff", {"sizes": [{"$bytes": "Af8="}]}, "packed numbers: varint without an end at byte 1"),
        ("10ff", {"$bytes": "EP8="}, "Thing: varint without an end at byte 1"),
        ("10", {"$bytes": "EA=="}, "Thing: varint without an end at byte 1"),
        ("7801 7a0161 7a0162", {"15": [1, {"$bytes": "YQ=="}, {"$bytes": "Yg=="}]}, None),
        ("0801 1200", {"1": 1, "2": {"$bytes": ""}}, None),
        ("0a01ff", {"name": "\ufffd"}, "not utf-8 at byte 0 of the text: shown with U+FFFD"),
        ("1001 0a05aa", {"count": 1, "$bytes": "CgWq"}, "Thing: field of 5 bytes at byte 4, where 1 are left"),
        ("0b", {"$bytes": "Cw=="}, "Thing: field 1 of wire type 3 at byte 0, expected 0, 1, 2 or 5"),
        ("00", {"$bytes": "AA=="}, "Thing: field 0 of wire type 0 at byte 0, expected 0, 1, 2 or 5"),
        ("10ffffffffffffffffffff01", {"$bytes": "EP////////////8B"}, "Thing: varint of more than 64 bits at byte 1"),
    ],
)
def test_messages_keep_what_is_not_declared(data: str, value: dict[str, Any], reason: str | None) -> None:
    """By number, as is what has another wire type; what is left when a field is broken is shown as bytes."""
    assert MESSAGES.read(bytes.fromhex(data), "Thing") == (value, reason)


def test_fields_that_are_there_often_take_time_once_for_each() -> None:
    value, _ = MESSAGES.read(b"\x78\x01" * 100_000, "Thing")
    assert len(value["15"]) == 100_000
