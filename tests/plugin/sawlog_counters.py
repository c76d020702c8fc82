"""A view of a third-party package: counters that an application keeps in LevelDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.view import ApplicationView, Entry, Home, UnknownBytesError


class Counters(ApplicationView):
    title = "counters: name, unit, count"
    columns: ClassVar = pa.schema([("name", pa.string()), ("unit", pa.string()), ("count", pa.int64())])
    names: ClassVar = (b"unit/", b"unit0")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        return any(key.startswith(b"counter/") for key in keys)

    def make_context(self, entries: Iterable[Entry], home: Home) -> dict[str, str]:
        return {entry.key[5:].decode(): entry.value.decode() for entry in entries if entry.value is not None}

    def decode(self, entry: Entry, context: dict[str, str]) -> Mapping[str, Any]:
        if not entry.key.startswith(b"counter/"):
            raise UnknownBytesError("not a counter")
        name = entry.key[8:].decode()
        count = None if entry.value is None else int.from_bytes(entry.value, "little")
        return {"name": name, "unit": context.get(name), "count": count}
