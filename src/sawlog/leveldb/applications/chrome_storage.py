"""What Chromium keeps for extensions as JSON: `chrome.storage`, and the state, rules and scripts of extensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.guard import Undecodable, decode_json
from sawlog.leveldb.applications.cursor import text
from sawlog.leveldb.applications.view import ApplicationView, Entry, Home

AREAS = {
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
    """One row per key of an extension."""

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
            value, found = text(entry.value, "utf-8")
            decoded = decode_json(value)
            if isinstance(decoded, Undecodable):
                found = f"not JSON: {decoded.detail}"
            else:
                row["value"] = value
            row["reason"] = wrong or (found and f"value: {found}")
        return row


def _place(path: str) -> tuple[str | None, str | None]:
    """Area and extension that a directory is named for."""
    _, above, name = f"//{path}".rsplit("/", 2)
    return (AREAS[above], name) if above in AREAS else (SHARED.get(name), None)
