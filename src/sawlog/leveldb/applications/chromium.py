"""Views of Chromium's storage for pages and extensions: `localStorage`, `sessionStorage`, `chrome.storage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import call_function, make_array, make_constant, unpack_booleans
from sawlog.guard import Undecodable, decode_json
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.protobuf import Messages, find_integer
from sawlog.leveldb.applications.protobuf_rows import KeyPart, KeyPattern, KeyPatterns, MessageRows, convert_times

_AREAS = {
    "Local Extension Settings": "local",
    "Sync Extension Settings": "sync",
    "Managed Extension Settings": "managed",
    "Local App Settings": "local",
    "Sync App Settings": "sync",
}
"""Directories that hold a database per extension, named by its ID, and the areas of `chrome.storage` that they are."""
_SHARED = {"Extension State": "state", "Extension Rules": "rules", "Extension Scripts": "scripts"}
"""Databases of all extensions: keys begin with an ID and a dot."""


_SETTINGS = MessageRows(Messages(""), {})
_OWN_KEYS = KeyPatterns([KeyPattern(b"", "", (KeyPart("key"),), k.JSON_TEXT)], _SETTINGS)
_SHARED_KEYS = KeyPatterns(
    [KeyPattern(b"", "", (KeyPart("extension", "text", b"."), KeyPart("key")), k.JSON_TEXT)], _SETTINGS
)


class ChromeStorage(view.ApplicationView):
    """View of `chrome.storage`: a row per key of an extension."""

    title = "Chromium's chrome.storage of extensions: area, extension, key, value (JSON)"
    columns: ClassVar = view.make_columns("area extension key value")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Return whether a database looks like the application's: by its directory."""
        del comparator, keys
        return _parse_directory(path)[0] is not None

    def make_context(self, entries: view.Entries, home: view.Home) -> tuple[str | None, str | None]:
        """Return the area and the extension, by the directory."""
        del entries
        return _parse_directory(home.path)

    def decode_plain_rows(
        self, keys: pa.Array, values: pa.Array, context: tuple[str | None, str | None]
    ) -> view.PlainRows:
        """Return values that are JSON."""
        area, extension = context
        is_shared = area in _SHARED.values()
        stored = (_SHARED_KEYS if is_shared else _OWN_KEYS).read(keys)
        rendered = _SETTINGS.render(values, stored.roots)
        columns = {
            "area": make_constant(area, pa.string(), len(keys)),
            "extension": stored.make_texts("extension")
            if is_shared
            else make_constant(extension, pa.string(), len(keys)),
            "key": stored.make_texts("key"),
            "value": rendered.make_values(),
        }
        is_plain = rendered.is_plain & (stored.select_lengths("extension") > 0) if is_shared else rendered.is_plain
        return view.PlainRows(is_plain, columns)

    def decode(self, entry: view.Entry, context: tuple[str | None, str | None]) -> Mapping[str, Any]:
        """Return the value as it is stored, if it is JSON."""
        area, extension = context
        key, wrong = view.decode_text(entry.key, "utf-8")
        if area in _SHARED.values():
            extension, _, key = key.partition(".")
        row = {"area": area, "extension": extension or None, "key": key, "reason": wrong}
        if entry.value is not None:
            value, damage = view.decode_text(entry.value, "utf-8")
            decoded = decode_json(value)
            if isinstance(decoded, Undecodable):
                damage = f"not JSON: {decoded.detail}"
            else:
                row["value"] = value
            row["reason"] = wrong or (damage and f"value: {damage}")
        return row


def _parse_directory(path: str) -> tuple[str | None, str | None]:
    """Return the area and the extension that a directory is named for."""
    _, above, name = f"//{path}".rsplit("/", 2)
    return (_AREAS[above], name) if above in _AREAS else (_SHARED.get(name), None)


_VERSION = b"VERSION"
_ITEM = b"_"
_PREFIXES = {_ITEM: "item", b"META:": "modified", b"METAACCESS:": "accessed"}
"""How keys begin, and the kinds of entries."""
_UTF_16, _LATIN_1 = 0, 1
_ENCODINGS = {_UTF_16: "utf-16-le", _LATIN_1: "latin-1"}
"""The first byte of keys and values of pages, and what follows."""
_METADATA = Messages("Metadata: 1 time int, 2 size int")
_ITEMS = MessageRows(_METADATA, {"Metadata": {"time": ("time",), "size": ("size",)}})
_ITEM_KEYS = KeyPatterns(
    [
        KeyPattern(
            _ITEM, _PREFIXES[_ITEM], (KeyPart("storage_key", "text", b"\0"), KeyPart("key", "bytes")), k.MARKED_TEXT
        ),
        *(
            KeyPattern(prefix, kind, (KeyPart("storage_key"),), "Metadata")
            for prefix, kind in _PREFIXES.items()
            if prefix != _ITEM
        ),
    ],
    _ITEMS,
)


class LocalStorage(view.ApplicationView):
    """View of `localStorage`: a row per item of a page, and per piece of metadata on its origin."""

    title = "Chromium's Local Storage: kind, storage_key, key, value"
    directory: ClassVar = "Local Storage/leveldb"
    own_key: ClassVar = b"META(ACCESS)?:.*"
    columns: ClassVar = view.make_columns("kind storage_key key value time:time size:int")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows:
        """Return all but the version."""
        del context
        stored = _ITEM_KEYS.read(keys)
        are_items = stored.are_of(_PREFIXES[_ITEM])
        rendered = _ITEMS.render(values, stored.roots)
        names = _ITEMS.render(stored.find_spans("key"), np.where(are_items, k.MARKED_TEXT, k.NOTHING))
        columns = {
            "kind": stored.kinds,
            "storage_key": stored.make_texts("storage_key"),
            "key": names.make_values(are_items),
            "value": rendered.make_values(are_items),
            "time": convert_times(rendered.select_numbers("time"), rendered.are_there("time")),
            "size": rendered.make_integers("size"),
        }
        return view.PlainRows(rendered.is_plain & names.is_plain, columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return items in two encodings, metadata in protobuf, the version as text."""
        del context
        if entry.key == _VERSION:
            value = None if entry.value is None else entry.value.decode("ascii", "backslashreplace")
            return {"kind": "version", "value": value}
        prefix = next((candidate for candidate in _PREFIXES if entry.key.startswith(candidate)), None)
        if prefix is None:
            raise view.UnknownBytesError(f"a key that begins with neither of {', '.join(map(repr, _PREFIXES))}")
        suffix = entry.key[len(prefix) :]
        if prefix != _ITEM:
            origin, wrong = view.decode_text(suffix, "utf-8")
            metadata = view.read_columns(entry.value, _read_metadata)
            return view.make_row({"kind": _PREFIXES[prefix], "storage_key": origin}, wrong, metadata)
        stored, end, name = suffix.partition(b"\0")
        if not end:
            raise view.UnknownBytesError("an item without the byte 0 after its origin")
        origin, wrong = view.decode_text(stored, "utf-8")
        row: dict[str, Any] = {"kind": "item", "storage_key": origin}
        for column, data in (("key", name), ("value", entry.value)):
            if data is not None:
                row[column], damage = _decode_string(data)
                wrong = wrong or (damage and f"{column}: {damage}")
        return row | {"reason": wrong}


def _decode_string(data: bytes) -> tuple[str | None, str | None]:
    """Return a string after the byte that says how it is encoded, and what is wrong with it."""
    if not data or data[0] not in _ENCODINGS:
        return None, f"encoding {data[:1].hex() or 'missing'}, expected {' or '.join(map(str, _ENCODINGS))}"
    return view.decode_text(data[1:], _ENCODINGS[data[0]])


def _read_metadata(value: bytes) -> dict[str, Any]:
    """Return the time and size, which are fields of a message in protobuf."""
    fields, reason = _METADATA.read(value, "Metadata")
    time, size = (find_integer(fields, name) for name in ("time", "size"))
    return {"time": view.convert_time(time), "size": size, "reason": reason}


MAP, NAMESPACE = b"map-", b"namespace-"
"""How keys begin: of an item, then the number of its map; of an origin in a tab, whose value is such a number."""
_SINGLE = {b"version": "version", b"next-map-id": "next_map_id"}
_ID_LENGTH = 36
"""Characters that a tab is known by."""


_MAP_KEYS = KeyPatterns(
    [KeyPattern(MAP, "item", (KeyPart("map_id", "digits", b"-"), KeyPart("key")), k.UTF_16_TEXT)], _SETTINGS
)
_TAB_KEYS = KeyPatterns([KeyPattern(NAMESPACE, "", (KeyPart("tab", "text", b"-"), KeyPart("origin")))], _SETTINGS)
_MAP_IDS = KeyPatterns([KeyPattern(b"", "", (KeyPart("map_id", "ascii"),))], _SETTINGS)


class _Maps:
    """The tabs that have maps, and for which origin.

    Attributes:
        rows: What items have of it, by the number of their map.

    Args:
        tabs: The tabs by the number of a map, and their origins.
    """

    def __init__(self, tabs: Mapping[str, Mapping[str, str]]) -> None:
        self.rows: dict[str, dict[str, Any]] = {
            number: {"namespaces": sorted(origins), "storage_key": min(origins.values())}
            for number, origins in tabs.items()
        }
        self._numbers = make_array(list(self.rows), pa.string())
        self._columns = {
            name: make_array([row[name] for row in self.rows.values()], kind)
            for name, kind in (("namespaces", pa.list_(pa.string())), ("storage_key", pa.string()))
        }

    def take(self, numbers: pa.Array) -> dict[str, pa.Array]:
        """Return the columns of items, by the numbers of their maps."""
        places = call_function("index_in", numbers, options=("SetLookupOptions", self._numbers))
        return {name: column.take(places) for name, column in self._columns.items()}


class SessionStorage(view.ApplicationView):
    """View of `sessionStorage`: a row per item of a page, and per origin in a tab."""

    title = "Chromium's Session Storage: kind, namespaces (tabs), storage_key, key, value"
    columns: ClassVar = view.make_columns("kind namespaces:texts storage_key map_id key value")
    names: ClassVar = (NAMESPACE, NAMESPACE[:-1] + b".")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Return whether a database looks like the application's: by its directory, or by keys of both kinds."""
        del comparator
        named = path.endswith("/Session Storage")
        return named or all(any(key.startswith(start) for key in keys) for start in (MAP, NAMESPACE))

    def make_context(self, entries: view.Entries, home: view.Home) -> _Maps:
        """Return the tabs that have maps, newest first."""
        del home
        keys, values = _TAB_KEYS.read(entries.keys), _MAP_IDS.read(entries.values)
        rows = [
            column.to_pylist()
            for column in (values.make_texts("map_id"), keys.make_texts("tab"), keys.make_texts("origin"))
        ]
        is_plain = (keys.select_lengths("tab") == _ID_LENGTH) & values.are_there("map_id")
        is_plain &= unpack_booleans(call_function("is_valid", entries.values))
        doubtful = entries.filter(make_array(~is_plain, pa.bool_()))
        for index, entry in zip(np.flatnonzero(~is_plain).tolist(), doubtful, strict=True):
            is_named = entry.value is not None and len(entry.key) > len(NAMESPACE) + _ID_LENGTH
            rows[0][index] = entry.value.decode("ascii", "replace") if entry.value is not None and is_named else None
            rows[1][index], rows[2][index], _ = _parse_namespace(entry.key)
        tabs: dict[str, dict[str, str]] = {}
        for number, tab, origin in zip(*rows, strict=True):
            if number is not None:
                tabs.setdefault(number, {}).setdefault(tab, origin)
        return _Maps(tabs)

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: _Maps) -> view.PlainRows:
        """Return items."""
        stored = _MAP_KEYS.read(keys)
        rendered = _SETTINGS.render(values, stored.roots)
        numbers = stored.make_texts("map_id")
        columns = {
            "kind": stored.kinds,
            **context.take(numbers),
            "map_id": numbers,
            "key": stored.make_texts("key"),
            "value": rendered.make_values(),
        }
        return view.PlainRows(rendered.is_plain & (stored.select_lengths("map_id") > 0), columns)

    def decode(self, entry: view.Entry, context: _Maps) -> Mapping[str, Any]:
        """Return items in UTF-16, numbers of maps as text."""
        key, value = entry.key, entry.value
        if key in _SINGLE:
            return {"kind": _SINGLE[key], "value": None if value is None else value.decode("ascii", "backslashreplace")}
        if key.startswith(NAMESPACE) and len(key) > len(NAMESPACE) + _ID_LENGTH:
            tab, origin, wrong = _parse_namespace(key)
            shared = None if value is None else value.decode("ascii", "backslashreplace")
            row = {"kind": "namespace", "namespaces": [tab], "storage_key": origin, "map_id": shared}
            return row | {"reason": wrong}
        number, end, name = key.removeprefix(MAP).partition(b"-")
        if not key.startswith(MAP) or not end or not number.isdigit():
            raise view.UnknownBytesError("neither a key of an item (map-) nor of an origin in a tab (namespace-)")
        item, wrong = view.decode_text(name, "utf-8")
        map_id = number.decode("ascii")
        row = {"kind": "item", **context.rows.get(map_id, {}), "map_id": map_id, "key": item}
        if value is not None:
            row["value"], damage = view.decode_text(value, "utf-16-le")
            wrong = wrong or (damage and f"value: {damage}")
        return row | {"reason": wrong}


def _parse_namespace(key: bytes) -> tuple[str, str, str | None]:
    """Return the tab and the origin of a key, and what is wrong with them."""
    suffix = key[len(NAMESPACE) :]
    tab, wrong = view.decode_text(suffix[:_ID_LENGTH], "utf-8")
    origin, wrong_too = view.decode_text(suffix[_ID_LENGTH + 1 :], "utf-8")
    return tab, origin, wrong or wrong_too
