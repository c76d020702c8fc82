"""Chromium's Session Storage: what pages keep in `sessionStorage`, by tab and origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.cursor import text
from sawlog.leveldb.applications.view import ApplicationView, Entry, Home, UnknownBytesError

MAP, NAMESPACE = b"map-", b"namespace-"
"""How keys begin: of an item, then the number of its map; of an origin in a tab, whose value is such a number."""
SINGLE = {b"version": "version", b"next-map-id": "next_map_id"}
ID_LENGTH = 36
"""Characters that a tab is known by."""


class SessionStorage(ApplicationView):
    """One row per item of a page, and per origin in a tab."""

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
        return named or all(any(key.startswith(one) for key in keys) for one in (MAP, NAMESPACE))

    def context(self, entries: Iterable[Entry], home: Home) -> dict[str, dict[str, str]]:
        """By the number of a map: the tabs that have it, and for which origin."""
        del home
        found: dict[str, dict[str, str]] = {}
        for entry in entries:
            if entry.value is not None and len(entry.key) > len(NAMESPACE) + ID_LENGTH:
                tab, origin, _ = _namespace(entry.key)
                found.setdefault(entry.value.decode("ascii", "replace"), {}).setdefault(tab, origin)
        return found

    def decode(self, entry: Entry, context: dict[str, dict[str, str]]) -> Mapping[str, Any]:
        """Items in UTF-16, numbers of maps as text."""
        key, value = entry.key, entry.value
        if key in SINGLE:
            return {"kind": SINGLE[key], "value": None if value is None else value.decode("ascii", "backslashreplace")}
        if key.startswith(NAMESPACE) and len(key) > len(NAMESPACE) + ID_LENGTH:
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
            row["value"], found = text(value, "utf-16-le")
            wrong = wrong or (found and f"value: {found}")
        return row | {"reason": wrong}


def _namespace(key: bytes) -> tuple[str, str, str | None]:
    """Tab and origin of a key, and what is wrong with them."""
    rest = key[len(NAMESPACE) :]
    tab, wrong = text(rest[:ID_LENGTH], "utf-8")
    origin, wrong_too = text(rest[ID_LENGTH + 1 :], "utf-8")
    return tab, origin, wrong or wrong_too
