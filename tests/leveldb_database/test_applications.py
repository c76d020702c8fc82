"""What applications put into databases, read as their views: real profiles, with what the pages say they stored."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.leveldb.applications import find_application
from sawlog.leveldb.applications.fragments import make_column
from sawlog.leveldb.applications.script_values import decode_script_value, render_property_name
from sawlog.leveldb.applications.view import Entries, Entry, Home, UnknownBytesError
from sawlog.storage import Storage
from tests.leveldb_database.support import (
    APPLICATION_OPTIONS,
    APPLICATION_PATHS,
    APPLICATIONS,
    BEDROCK_ENTRIES,
    COINS,
    read_application_truth,
)

from . import test_bitcoin, test_chromium_services, test_chromium_sites, test_cometbft, test_ethereum


def read_view(view: str, path: Path | None = None, **options: Any) -> list[dict[str, Any]]:
    return sawlog.read(path or APPLICATION_PATHS[view], view=view, **options).to_pylist()


def show_text(text: str) -> str:
    """Text as the views show it: halves of pairs are not Unicode."""
    return re.sub("[\ud800-\udfff]+", "\ufffd", text)


@pytest.mark.parametrize(("view", "area"), [("local_storage", "local"), ("session_storage", "session")])
def test_items_are_what_the_page_has_stored(view: str, area: str) -> None:
    rows = [row for row in read_view(view) if row["kind"] == "item"]
    assert {row["key"]: row["value"] for row in rows} == {
        key: show_text(value) for key, value in read_application_truth()["storage"][area].items()
    }
    assert {row["storage_key"].rstrip("/") for row in rows} == {read_application_truth()["storage"]["origin"]}
    reasons = {row["key"]: row["reason"] for row in rows if row["reason"]}
    assert reasons == {"lone": "value: not utf-16-le at byte 2 of the text: shown with U+FFFD"}


@pytest.mark.parametrize("view", ["local_storage", "session_storage"])
def test_history_has_older_items_and_deleted_ones(view: str) -> None:
    rows = [(row["key"], row["value"], row["operation"], row["live"]) for row in read_view(view, history=True)]
    assert [row for row in rows if row[0] in ("changed", "gone")] == [
        ("changed", "second", "put", True),
        ("changed", "first", "put", False),
        ("gone", None, "delete", False),
        ("gone", "deleted", "put", False),
    ]


def test_local_storage_knows_when_an_origin_was_written() -> None:
    rows_by_kind = {row["kind"]: row for row in read_view("local_storage")}
    assert rows_by_kind["modified"]["time"].year == rows_by_kind["accessed"]["time"].year == 2026
    items = read_application_truth()["storage"]["local"]
    assert rows_by_kind["modified"]["size"] >= sum(map(len, (*items, *items.values())))
    assert rows_by_kind["version"]["value"] == "1"


def test_session_storage_knows_the_tab() -> None:
    rows = read_view("session_storage")
    (tab,) = (row for row in rows if row["kind"] == "namespace")
    assert all(row["namespaces"] == tab["namespaces"] for row in rows if row["kind"] == "item")
    (path,) = APPLICATION_PATHS["session_storage"].glob("*.log")
    assert tab["namespaces"][0].encode() in path.read_bytes()


@pytest.mark.parametrize("area", ["local", "sync"])
def test_chrome_storage_is_what_the_extension_has_stored(area: str) -> None:
    extension = read_application_truth()["extension"]
    rows = read_view("chrome_storage", APPLICATION_OPTIONS[area] / extension["id"])
    assert {row["key"]: json.loads(row["value"]) for row in rows} == extension[area]
    assert {(row["area"], row["extension"], row["reason"]) for row in rows} == {(area, extension["id"], None)}
    deleted_rows = [
        row
        for row in read_view("chrome_storage", APPLICATION_OPTIONS[area] / extension["id"], history=True)
        if row["key"] == "gone"
    ]
    assert {(row["operation"], row["value"]) for row in deleted_rows} == {("delete", None), ("put", '"deleted"')}


def read_records(store: str, **options: Any) -> list[dict[str, Any]]:
    rows = read_view("indexed_db", **options)
    return [row for row in rows if row["kind"] == "record" and row["object_store"] == store]


def equal(text: str, expected: Any) -> bool:
    """Whether a JSON is what the page shows of the value, which cannot say -0 in JSON."""
    text_read, text_expected = (
        json.dumps(document, sort_keys=True) for document in (json.loads(text), _with_negative_zeros(expected))
    )
    return text_read == text_expected


def _with_negative_zeros(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_negative_zeros(item) for item in value]
    if isinstance(value, dict):
        return -0.0 if "$negative_zero" in value else {name: _with_negative_zeros(item) for name, item in value.items()}
    return value


@cache
def read_plain_records() -> dict[str, dict[str, Any]]:
    return {json.loads(row["key"]): row for row in read_records("plain")}


@pytest.mark.parametrize("name", read_application_truth()["indexed_db"]["plain"])
def test_values_are_what_the_browser_reads(name: str) -> None:
    row = read_plain_records()[name]
    assert row["reason"] is None
    assert equal(row["value"], read_application_truth()["indexed_db"]["plain"][name]), row["value"]


def test_keys_paths_and_indexes_are_decoded() -> None:
    truth = read_application_truth()["indexed_db"]
    records_read = [repr([json.loads(row["key"]), json.loads(row["value"])]) for row in read_records("keys")]
    pairs = zip(truth["keys"], truth["key_values"], strict=True)
    assert sorted(records_read) == sorted(repr([key, value]) for key, value in pairs)
    people = {json.loads(row["key"]): json.loads(row["value"]) for row in read_records("people")}
    assert [people[person["id"]] | {"id": person["id"]} for person in truth["people"]] == truth["people"]
    assert [json.loads(row["key"]) for row in read_records("nested")] == [[1, "x"]]
    all_rows = read_view("indexed_db")
    entries = [(row["index"], row["key"], row["value"]) for row in all_rows if row["kind"] == "index_entry"]
    assert {("by tags", '"code"', "2"), ("by both", '["Grace",1906]', "2")} < set(entries)
    assert len([entry for entry in entries if entry[0] == "by tags"]) == 4
    metadata = {(row["object_store"], row["index"], row["kind"]): row["value"] for row in all_rows}
    assert metadata["people", None, "object_store.key_path"] == '"id"'
    assert metadata["people", None, "object_store.auto_increment"] == "true"
    assert metadata["nested", None, "object_store.key_path"] == '["a.b","c"]'
    assert metadata["people", "by name", "index.unique"] == "true"
    assert metadata["people", "by tags", "index.multi_entry"] == "true"
    assert {row["database"] for row in all_rows if row["database_id"]} == {"values"}
    assert {row["origin"] for row in all_rows if row["database_id"]} == {"http_127.0.0.1_8123@1"}
    assert not [row for row in all_rows if row["reason"]]


def test_older_records_deleted_ones_and_a_deleted_database_are_in_the_history() -> None:
    rows = [
        (json.loads(row["key"]), row["value"], row["operation"], row["live"])
        for row in read_records("changes", history=True)
    ]
    assert rows == [
        ("a", None, "delete", False),
        ("a", "1", "put", False),
        ("b", '{"third":3}', "put", True),
        ("b", '"second"', "put", False),
        ("b", '"first"', "put", False),
        ("c", None, "delete", False),
        ("c", "[1]", "put", False),
    ]
    (row,) = (row for row in read_records("gone", history=True) if row["operation"] == "put")
    assert (row["database"], row["value"], row["live"]) == ("größe", '"kept in the files"', False)


def test_values_in_blobs_and_objects_of_the_browser() -> None:
    rows = {json.loads(row["key"]): row for row in read_records("blobs")}
    assert sorted(rows) == sorted(read_application_truth()["indexed_db"]["blobs"]["names"])
    state, noise = 1, []
    for _ in range(66000):
        state = state * 48271 % 2147483647
        noise.append(chr(state % 256))
    assert json.loads(rows["wrapped"]["value"]) == "".join(noise)
    values = {name: json.loads(row["value"]) for name, row in rows.items()}
    assert [values["blob"], values["file"]] == [{"$blob": 0}, [1, {"$file": 0}]]
    assert values["host"] == {
        "point": {"$host": "DOMPoint", "values": [1, 2, 3, 4]},
        "rect": {"$host": "DOMRectReadOnly", "values": [1, 2, 3, 4]},
        "matrix": {"$host": "DOMMatrix", "values": [1, 2, 3, 4, 5, 6]},
        "exception": values["host"]["exception"],
    }
    assert values["host"]["exception"] | {"stack": ""} == {
        "$host": "DOMException",
        "name": "AbortError",
        "message": "message",
        "stack": "",
    }
    assert values["image"]["bytes"] == "AQIDBA=="
    assert [values["aes"]["bytes"], values["hmac"]["bytes"]] == ["AAAAAAAAAAAAAAAAAAAAAA==", "AQID"]
    assert values["rsa"]["numbers"][2:4] == [1024, 65537]
    external = [row for row in read_view("indexed_db") if row["kind"] == "external_objects"]
    listed = {json.loads(row["key"]): json.loads(row["value"])[0] for row in external}
    assert listed["file"] == {
        "type": "file",
        "number": 3,
        "media_type": "text/x",
        "size": 4,
        "name": "name.txt",
        "modified": 12644473600000000,
    }


def test_a_blob_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    place = tmp_path / APPLICATION_PATHS["indexed_db"].name
    place.mkdir()
    for path in APPLICATION_PATHS["indexed_db"].iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    rows = [row for row in read_view("indexed_db", place) if row["reason"]]
    assert [(row["key"], row["value"], row["version"]) for row in rows] == [('"wrapped"', None, 2)]
    assert rows[0]["reason"] == "value: the value is in 4, a file that is not there"


def test_blobs_are_found_from_inside_of_the_directory_and_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(APPLICATION_PATHS["indexed_db"])
    assert not [row for row in read_view("indexed_db", Path()) if row["reason"]]
    assert "decoded by" in sawlog.open(".").info()
    memory = fsspec.filesystem("memory")
    for path in APPLICATION_PATHS["indexed_db"].parent.rglob("*"):
        if path.is_file():
            memory.pipe(f"/profile/{path.relative_to(APPLICATION_PATHS['indexed_db'].parent)}", path.read_bytes())
    place = f"memory://profile/{APPLICATION_PATHS['indexed_db'].name}"
    assert not [row for row in sawlog.read(place, view="indexed_db").to_pylist() if row["reason"]]


def test_views_that_fit_are_named() -> None:
    for view, path in {
        **APPLICATION_PATHS,
        "chrome_storage": APPLICATION_OPTIONS["sync"] / read_application_truth()["extension"]["id"],
    }.items():
        assert sawlog.open(path).info()["decoded by"] == f"--view {view}"
    assert "decoded by" not in sawlog.open(APPLICATIONS / "rocksdb-11.8.1-entities").info()


def test_options_of_other_views_are_refused() -> None:
    with pytest.raises(sawlog.OptionError, match="history is for views of applications"):
        sawlog.open(APPLICATION_PATHS["local_storage"], view="live", history=True)
    with pytest.raises(sawlog.OptionError, match="salvage=orphans is for the view 'all' and history=true"):
        sawlog.open(APPLICATION_PATHS["local_storage"], view="local_storage", salvage="orphans")
    dataset = sawlog.open(APPLICATION_PATHS["local_storage"], view="local_storage", history=True, salvage="orphans")
    assert dataset.schema.names[-4:] == ["live", "file", "level", "orphan"]


VIEWS = (
    "bedrock",
    "bitcoin_blocks",
    "bitcoin_chainstate",
    "chrome_storage",
    "cometbft_blocks",
    "ethereum",
    "file_system",
    "gcm_store",
    "indexed_db",
    "local_storage",
    "notifications",
    "service_worker",
    "session_storage",
    "shared_proto",
    "site_characteristics",
    "sync_data",
)


def stored() -> Iterator[tuple[str, bytes, bytes]]:
    """Keys and values of the profile, and of others' databases."""
    for name, path in (
        *APPLICATION_PATHS.items(),
        *test_chromium_services.PLACES.items(),
        *test_chromium_sites.PLACES.items(),
    ):
        for row in test_chromium_services.read_view(path, "all"):
            yield name, row["key"], row["value"]
    chains = {
        "ethereum": test_ethereum.PLACES["leveldb"] / "chaindata",
        "cometbft_blocks": test_cometbft.PLACE / "blockstore.db",
    }
    for name, path in chains.items():
        for row in sawlog.read(path, view="all").to_pylist():
            yield name, row["key"], row["value"][:2000]
    yield from (("bedrock", *entry) for entry in BEDROCK_ENTRIES.items())
    yield from (("bitcoin_chainstate", b"C" + bytes(33), bytes.fromhex(value)) for value in COINS)
    yield "bitcoin_blocks", b"b" + bytes(32), bytes.fromhex("8fee3c000d010008") + test_bitcoin.GENESIS


REAL = {
    name: [entry[1:] for entry in entries] for name, entries in itertools.groupby(stored(), key=lambda entry: entry[0])
}


def decoded(name: str, key: bytes, value: bytes | None) -> dict[str, Any]:
    """What a view makes of a single entry; anything but a reason is raised."""
    view = find_application(name)
    assert view is not None
    entry = Entry(key, value, 7)
    context = view.make_context(Entries.of([entry]), Home("/nowhere/x.indexeddb.leveldb", Storage(), 1 << 20))
    try:
        row = dict(view.decode(entry, context))
    except UnknownBytesError as unknown:
        return {"reason": str(unknown)}
    for field_value in row.values():
        if isinstance(field_value, str):
            field_value.encode()
        if isinstance(field_value, int):
            assert -(1 << 63) <= field_value < 1 << 63
    if name in ("bedrock", "indexed_db") and row.get("value") is not None:
        json.loads(row["value"])
    assert row.keys() <= {*view.columns.names, "reason"}
    for field in view.columns:
        make_column([row], field)
    return row


@pytest.mark.parametrize("name", VIEWS)
@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_whatever_the_bytes_there_is_a_row_or_a_reason(name: str, key: bytes, value: bytes | None) -> None:
    decoded(name, key, value)


@settings(max_examples=400)
@given(data=st.data())
def test_changed_entries_of_a_profile_are_rows_or_reasons(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(REAL)))
    key, value = data.draw(st.sampled_from(REAL[name]))
    changed = bytearray(data.draw(st.sampled_from([key, value])))
    edits = st.tuples(st.integers(0, max(0, len(changed) - 1)), st.integers(0, 255))
    for offset, byte in data.draw(st.lists(edits, min_size=1, max_size=3)):
        changed[offset : offset + 1] = bytes([byte])
    cut = data.draw(st.integers(0, len(changed)))
    decoded(name, key, bytes(changed))
    decoded(name, bytes(changed), value)
    decoded(name, key, bytes(changed[:cut]))


HEAD = bytes.fromhex("ff15fe 000000000000000000000000 ff0f")


@given(st.binary(max_size=60))
def test_any_bytes_after_the_versions_are_json_or_a_reason(data: bytes) -> None:
    with contextlib.suppress(UnknownBytesError):
        json.loads(decode_script_value(HEAD + data)[0])


def script_value(data: bytes) -> Any:
    """The JSON of a value of which every part is shown."""
    text, reason = decode_script_value(data)
    assert reason is None
    return json.loads(text)


def test_values_of_older_versions() -> None:
    """Before version 11, holes are undefined; before 12, strings have no tags; before 13, host objects have none."""
    assert script_value(b"\xff\x0aA\x01_$\x00\x01") == [{"$hole": True}]
    assert script_value(b"\xff\x0bR\x02ab\x03") == {"$regexp": "ab", "flags": "gi"}
    assert script_value(b"\xff\x0ci\x05") == {"$blob": 5}
    assert script_value(b"\xff\x0dA\x02-I\x02$\x00\x02") == [{"$hole": True}, 1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "version 0 of V8's values, expected 1 to 16"),
        (b"\xff\x11\xff\x63_", "version 99 of V8's values, expected 1 to 16"),
        (b"\xff\x0f", "byte of 1 bytes at byte 2, where 0 are left"),
        (b"\xff\x0f!", "tag b'!' at byte 2"),
        (b"\xff\x0fA\xff\xff\xff\xff\x0f", "4294967295 values in 0 bytes, at byte 8"),
        (b"\xff\x0fS\xff\xff\xff\xff\x0f", "string of 4294967295 bytes at byte 8, where 0 are left"),
        (b"\xff\x0f^\x00", "a reference to object 0 before byte 4, where there is none"),
        (b"\xff\x0fo{\x01", "0 properties, where 1 are counted, before byte 5"),
        (b"\xff\x0f\\\x00", "host object b'\\x00' at byte 3"),
        (b"\xff\x0fI\xff\xff\xff\xff\xff\xff", "varint of more than 32 bits at byte 3"),
    ],
)
def test_reasons_say_what_and_where(data: bytes, reason: str) -> None:
    with pytest.raises(UnknownBytesError, match=f"^{re.escape(reason)}$"):
        decode_script_value(data)


@pytest.mark.parametrize(
    ("data", "value", "reason"),
    [
        (b"__", {"$undefined": True}, "1 bytes after the end, at byte 3"),
        (b'A\x02"\x01aS\x02\xff\x01$\x00\x02', ["a", {"$bytes": "/wE="}], "a string that is not UTF-8, before byte 11"),
        (b'o"\x01aI\x02"\x01bS\x01\xff"\x01cT{\x03', {"a": 1, "b": {"$bytes": "/w=="}, "c": True}, "a string that"),
        (b'o"\x01aI\x02"\x01b!xyz', {"a": 1, "b": {"$bytes": "IXh5eg=="}}, "tag b'!' at byte 11"),
        (b'o"\x01aI\x02!xyz', {"$object": {"a": 1, "$bytes": "IXh5eg=="}}, "tag b'!' at byte 8"),
        (
            b'o"\x01aA\x02I\x02I!',
            {"a": {"$array": [1, -17], "properties": {"$bytes": ""}}},
            "byte of 1 bytes at byte",
        ),
        (b";I\x02\\\x00", {"$map": [[1, {"$bytes": "XAA="}]]}, "host object"),
        (b"'I\x02\\\x00", {"$set": [1, {"$bytes": "XAA="}]}, "host object"),
        (b"rc!", {"$error": "Error", "cause": {"$bytes": "IQ=="}}, "tag b'!'"),
    ],
)
def test_a_part_that_cannot_be_shown_keeps_the_rest_of_its_value(data: bytes, value: Any, reason: str) -> None:
    """What follows a part without an end that is known is shown as bytes together with it."""
    text, explanation = decode_script_value(b"\xff\x0f" + data)
    assert json.loads(text) == value
    assert str(explanation).startswith(reason)


def test_values_that_are_nested_too_deep_are_shown_down_to_there() -> None:
    text, reason = decode_script_value(b"\xff\x0f" + b"A\x01" * 10_000)
    assert reason == "values in values, deeper than 150"
    assert text.startswith("[" * 150 + '{"$bytes":"')


@pytest.mark.parametrize("version", [1, 100, 127, 128, 200, 255, 256, 300, 671, 16384, 1 << 40, (1 << 63) - 1])
def test_versions_of_exists_are_little_endian_integers(version: int) -> None:
    """Chromium's `EncodeInt`; records and entries of indexes have varints, which agree below 128."""
    key = bytes([0, 1, 1, 2, 1, 1]) + "a".encode("utf-16-be")
    stored = version.to_bytes(-(-version.bit_length() // 8), "little")
    row = decoded("indexed_db", key, stored)
    assert (row["kind"], row["version"], row.get("reason")) == ("exists", version, None)


def test_a_list_of_external_objects_is_shown_up_to_the_one_that_is_unknown() -> None:
    key = bytes([0, 1, 1, 3, 1, 1]) + "a".encode("utf-16-be")
    row = decoded("indexed_db", key, bytes([0, 5, 0, 7, 9, 9]))
    assert json.loads(row["value"]) == [{"type": "blob", "number": 5, "media_type": "", "size": 7}, {"$bytes": "CQk="}]
    assert row["reason"] == "value: type 9 of an external object, at byte 4"


def test_references_do_not_multiply_what_they_refer_to() -> None:
    """Each object holds the one before twice: written out, there would be 2 ** 100 of them."""
    count = 100
    body = b"A\x02I\x02I\x02$\x00\x02"
    for number in range(count):
        body = b"A\x02" + body + b"^" + bytes([count - number]) + b"$\x00\x02"
    assert len(decode_script_value(b"\xff\x0f" + body)[0]) < 10_000


def test_numbers_as_names_are_those_of_javascript() -> None:
    names = {
        0.5: "0.5",
        1e21: "1e+21",
        1e-7: "1e-7",
        1e20: "100000000000000000000",
        1.5e-6: "0.0000015",
        -2.5e-9: "-2.5e-9",
    }
    assert {value: render_property_name(value) for value in names} == names
    name = b"\xff\x0foN" + struct.pack("<d", 1.5e300) + b"T{\x01"
    assert decode_script_value(name) == ('{"1.5e+300":true}', None)
