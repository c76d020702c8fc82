"""Views of Chromium's storage for pages and extensions: `localStorage`, `sessionStorage`, `chrome.storage`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import binary_parts, called, constant_string, values_of
from sawlog.guard import Undecodable, decode_json
from sawlog.kernels.columns import gathered
from sawlog.leveldb.applications.protobuf import Messages, integer
from sawlog.leveldb.applications.view import (
    ApplicationView,
    Entry,
    Home,
    PlainRows,
    UnknownBytesError,
    columns_of,
    row_of,
    text,
)

_AREAS = {
    "Local Extension Settings": "local",
    "Sync Extension Settings": "sync",
    "Managed Extension Settings": "managed",
    "Local App Settings": "local",
    "Sync App Settings": "sync",
}
"""Directories that hold a database per extension, named by its ID, and the areas of `chrome.storage` that they are."""
SHARED = {"Extension State": "state", "Extension Rules": "rules", "Extension Scripts": "scripts"}
"""Databases of all extensions: keys begin with an ID and a dot."""


class ChromeStorage(ApplicationView):
    """View of `chrome.storage`: a row per key of an extension."""

    title = "Chromium's chrome.storage of extensions: area, extension, key, value (JSON)"
    columns: ClassVar = pa.schema([(name, pa.string()) for name in ("area", "extension", "key", "value")])

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory."""
        del comparator, keys
        return _place(path)[0] is not None

    def context(self, entries: Iterable[Entry], home: Home) -> tuple[str | None, str | None]:
        """Area and extension, by the directory."""
        del entries
        return _place(home.path)

    def decode(self, entry: Entry, context: tuple[str | None, str | None]) -> Mapping[str, Any]:
        """The value as it is stored, if it is JSON."""
        area, extension = context
        key, wrong = text(entry.key, "utf-8")
        if area in SHARED.values():
            extension, _, key = key.partition(".")
        row = {"area": area, "extension": extension or None, "key": key, "reason": wrong}
        if entry.value is not None:
            value, damage = text(entry.value, "utf-8")
            decoded = decode_json(value)
            if isinstance(decoded, Undecodable):
                damage = f"not JSON: {decoded.detail}"
            else:
                row["value"] = value
            row["reason"] = wrong or (damage and f"value: {damage}")
        return row


def _place(path: str) -> tuple[str | None, str | None]:
    """Area and extension that a directory is named for."""
    _, above, name = f"//{path}".rsplit("/", 2)
    return (_AREAS[above], name) if above in _AREAS else (SHARED.get(name), None)


VERSION = b"VERSION"
ITEM = b"_"
PREFIXES = {ITEM: "item", b"META:": "modified", b"METAACCESS:": "accessed"}
"""How keys begin, and the kinds of entries."""
UTF_16, LATIN_1 = 0, 1
ENCODINGS = {UTF_16: "utf-16-le", LATIN_1: "latin-1"}
"""The first byte of keys and values of pages, and what follows."""
_METADATA = Messages("Metadata: 1 time int, 2 size int")
EPOCH = 11_644_473_600_000_000
"""Microseconds from 1601 to 1970."""
_MOST = (1 << 63) - 1
"""The largest number of a column of times."""


def microseconds(value: int | None, unit: int = 1, epoch: int = EPOCH) -> int | None:
    """Microseconds since 1970; `None` where the time is not set, or has no place in a column.

    Args:
        value: The time as it is stored; 0 and less are not set.
        unit: Its microseconds.
        epoch: Microseconds from its beginning to 1970; 0 if it counts from there.
    """
    time = (value or 0) * unit - epoch
    return time if value and value > 0 and abs(time) <= _MOST else None


class LocalStorage(ApplicationView):
    """View of `localStorage`: a row per item of a page, and per piece of metadata on its origin."""

    title = "Chromium's Local Storage: kind, storage_key, key, value"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("storage_key", pa.string()),
            ("key", pa.string()),
            ("value", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("size", pa.int64()),
        ]
    )

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or by metadata on origins."""
        del comparator
        return path.endswith("Local Storage/leveldb") or any(key.startswith((b"META:", b"METAACCESS:")) for key in keys)

    def plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> PlainRows:
        """Items whose origin is ASCII, and whose texts have no surrogates."""
        del context
        data, offsets = binary_parts(keys)
        stored, value_offsets = binary_parts(values)
        starts, ends = (bounds.astype(np.int64) for bounds in (offsets[:-1], offsets[1:]))
        value_starts, value_ends = (bounds.astype(np.int64) for bounds in (value_offsets[:-1], value_offsets[1:]))
        zeros = called("find_substring", keys, options=("MatchSubstringOptions", b"\0"))
        names = starts + values_of(zeros, np.int32) + 1
        is_plain = (names > starts + 1) & (names < ends) & (value_starts < value_ends)
        is_plain[is_plain] = data[starts[is_plain]] == ITEM[0]
        is_plain &= _are_below(data, starts, names, 128)
        columns = {}
        for column, bytes_of, first, last in (
            ("key", data, names, ends),
            ("value", stored, value_starts, value_ends),
        ):
            columns[column], is_text = _texts(bytes_of, first, last, is_plain)
            is_plain = is_plain & is_text
        origins = _slices(data, starts + 1, names - starts - 2, is_plain)
        columns["storage_key"] = pa.Array.from_buffers(pa.string(), len(keys), [None, *origins])
        columns["kind"] = constant_string(PREFIXES[ITEM], len(keys))
        return PlainRows(is_plain, columns)

    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """Items in two encodings, metadata in protobuf, the version as text."""
        del context
        if entry.key == VERSION:
            value = None if entry.value is None else entry.value.decode("ascii", "backslashreplace")
            return {"kind": "version", "value": value}
        prefix = next((candidate for candidate in PREFIXES if entry.key.startswith(candidate)), None)
        if prefix is None:
            raise UnknownBytesError(f"a key that begins with neither of {', '.join(map(repr, PREFIXES))}")
        suffix = entry.key[len(prefix) :]
        if prefix != ITEM:
            origin, wrong = text(suffix, "utf-8")
            metadata = columns_of(entry.value, _metadata)
            return row_of({"kind": PREFIXES[prefix], "storage_key": origin}, wrong, metadata)
        stored, end, name = suffix.partition(b"\0")
        if not end:
            raise UnknownBytesError("an item without the byte 0 after its origin")
        origin, wrong = text(stored, "utf-8")
        row: dict[str, Any] = {"kind": "item", "storage_key": origin}
        for column, data in (("key", name), ("value", entry.value)):
            if data is not None:
                row[column], damage = _string(data)
                wrong = wrong or (damage and f"{column}: {damage}")
        return row | {"reason": wrong}


def _string(data: bytes) -> tuple[str | None, str | None]:
    """A string after the byte that says how it is encoded, and what is wrong with it."""
    if not data or data[0] not in ENCODINGS:
        return None, f"encoding {data[:1].hex() or 'missing'}, expected {' or '.join(map(str, ENCODINGS))}"
    return text(data[1:], ENCODINGS[data[0]])


def _texts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], is_wanted: NDArray[np.bool_]
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return strings, each after the byte that says how it is encoded, and which of them have no surrogates.

    Args:
        data: The bytes.
        starts: String i is `data[starts[i] : ends[i]]`.
        ends: See there.
        is_wanted: Which are read; these are not empty.
    """
    encodings = np.full(len(starts), -1)
    encodings[is_wanted] = data[starts[is_wanted]]
    lengths = ends - starts - 1
    is_wide = (encodings == UTF_16) & (lengths % 2 == 0)
    is_text = (encodings == LATIN_1) | is_wide
    parts = []
    for encoding, dtype, is_selected in ((LATIN_1, "u1", encodings == LATIN_1), (UTF_16, "<u2", is_wide)):
        if not is_selected.any():
            continue
        width = np.dtype(dtype).itemsize
        end_buffer, bytes_of = _slices(data, starts + 1, lengths, is_selected)
        units = np.frombuffer(bytes_of or b"", dtype)
        unit_ends = np.frombuffer(end_buffer, np.int32) // width
        if width > 1:
            is_text &= ~_have(units & 0xF800 == 0xD800, unit_ends)
        if len(units) and units.max() >= 128:
            # Surrogates, which are not shown of these strings, become as many bytes as any other unit would.
            plain_units = np.where(units & 0xF800 == 0xD800, 0x0800, units).astype("<u2") if width > 1 else units
            longer = (np.searchsorted(np.flatnonzero(plain_units >= least), unit_ends) for least in (0x80, 0x0800))
            unit_ends = (unit_ends + sum(longer)).astype(np.int32)
            bytes_of = pa.py_buffer(plain_units.tobytes().decode(ENCODINGS[encoding]).encode())
        elif width > 1:
            bytes_of = pa.py_buffer(units.astype(np.uint8))
        buffers = [None, pa.py_buffer(np.ascontiguousarray(unit_ends)), bytes_of]
        parts.append(pa.Array.from_buffers(pa.string(), len(starts), buffers))
    if not parts:
        return pa.nulls(len(starts), pa.string()), is_text
    # Each string is in one of them, and empty in the other.
    return parts[0] if len(parts) == 1 else called("binary_join_element_wise", *parts, ""), is_text


def _slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], is_wanted: NDArray[np.bool_]
) -> tuple[pa.Buffer, pa.Buffer]:
    """Return ends and bytes of `data[start : start + length]`; nothing of those that are not wanted."""
    return gathered(data, np.where(is_wanted, starts, 0), np.where(is_wanted, lengths, 0))


def _have(is_marked: NDArray[np.bool_], ends: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which strings have a unit that is marked; string i ends at `ends[i + 1]`."""
    places = np.searchsorted(np.flatnonzero(is_marked), ends)
    has_mark: NDArray[np.bool_] = places[1:] > places[:-1]
    return has_mark


def _are_below(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], limit: int
) -> NDArray[np.bool_]:
    """Return of which strings `data[start:end]` all bytes are below a limit."""
    if not len(starts):
        return np.zeros(0, np.bool_)
    first = int(starts[0])
    places = np.flatnonzero(data[first : int(ends.max(initial=first))] >= limit) + first
    is_below: NDArray[np.bool_] = np.searchsorted(places, starts) == np.searchsorted(places, ends)
    return is_below


def _metadata(value: bytes) -> dict[str, Any]:
    """Time and size, which are fields of a message in protobuf."""
    fields, reason = _METADATA.read(value, "Metadata")
    time, size = (integer(fields, name) for name in ("time", "size"))
    return {"time": microseconds(time), "size": size, "reason": reason}


MAP, NAMESPACE = b"map-", b"namespace-"
"""How keys begin: of an item, then the number of its map; of an origin in a tab, whose value is such a number."""
SINGLE = {b"version": "version", b"next-map-id": "next_map_id"}
_ID_LENGTH = 36
"""Characters that a tab is known by."""


class SessionStorage(ApplicationView):
    """View of `sessionStorage`: a row per item of a page, and per origin in a tab."""

    title = "Chromium's Session Storage: kind, namespaces (tabs), storage_key, key, value"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("namespaces", pa.list_(pa.string())),
            ("storage_key", pa.string()),
            ("map_id", pa.string()),
            ("key", pa.string()),
            ("value", pa.string()),
        ]
    )
    names: ClassVar = (NAMESPACE, NAMESPACE[:-1] + b".")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or by keys of both kinds."""
        del comparator
        named = path.endswith("/Session Storage")
        return named or all(any(key.startswith(start) for key in keys) for start in (MAP, NAMESPACE))

    def context(self, entries: Iterable[Entry], home: Home) -> dict[str, dict[str, str]]:
        """By the number of a map: the tabs that have it, and for which origin."""
        del home
        maps: dict[str, dict[str, str]] = {}
        for entry in entries:
            if entry.value is not None and len(entry.key) > len(NAMESPACE) + _ID_LENGTH:
                tab, origin, _ = _namespace(entry.key)
                maps.setdefault(entry.value.decode("ascii", "replace"), {}).setdefault(tab, origin)
        return maps

    def decode(self, entry: Entry, context: dict[str, dict[str, str]]) -> Mapping[str, Any]:
        """Items in UTF-16, numbers of maps as text."""
        key, value = entry.key, entry.value
        if key in SINGLE:
            return {"kind": SINGLE[key], "value": None if value is None else value.decode("ascii", "backslashreplace")}
        if key.startswith(NAMESPACE) and len(key) > len(NAMESPACE) + _ID_LENGTH:
            tab, origin, wrong = _namespace(key)
            shared = None if value is None else value.decode("ascii", "backslashreplace")
            row = {"kind": "namespace", "namespaces": [tab], "storage_key": origin, "map_id": shared}
            return row | {"reason": wrong}
        number, end, name = key.removeprefix(MAP).partition(b"-")
        if not key.startswith(MAP) or not end or not number.isdigit():
            raise UnknownBytesError("neither a key of an item (map-) nor of an origin in a tab (namespace-)")
        tabs = context.get(number.decode("ascii"), {})
        item, wrong = text(name, "utf-8")
        row = {"kind": "item", "namespaces": sorted(tabs) or None, "storage_key": min(tabs.values(), default=None)}
        row |= {"map_id": number.decode("ascii"), "key": item}
        if value is not None:
            row["value"], damage = text(value, "utf-16-le")
            wrong = wrong or (damage and f"value: {damage}")
        return row | {"reason": wrong}


def _namespace(key: bytes) -> tuple[str, str, str | None]:
    """Tab and origin of a key, and what is wrong with them."""
    suffix = key[len(NAMESPACE) :]
    tab, wrong = text(suffix[:_ID_LENGTH], "utf-8")
    origin, wrong_too = text(suffix[_ID_LENGTH + 1 :], "utf-8")
    return tab, origin, wrong or wrong_too
