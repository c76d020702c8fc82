"""Which MANIFEST of a database is the live one."""

from __future__ import annotations

from collections.abc import Iterable

from sawlog.leveldb_log.layout import CURRENT_NAME, MANIFEST_NAME, MARKER_NAME
from sawlog.storage import File, Storage


def live_manifest(manifests: Iterable[File], beside: Iterable[File], storage: Storage) -> File:
    """The one that Pebble's last marker names, or `CURRENT`; without either, the one with the highest number.

    Args:
        manifests: The MANIFEST files of one directory; at least one.
        beside: The files of that directory.
        storage: Where they lie.
    """
    by_name = {file.name: file for file in manifests}
    named = {file.name: file for file in beside}
    marked = [(int(match[1]), match[2]) for match in map(MARKER_NAME.match, named) if match]
    if marked:
        name = max(marked)[1]
    else:
        current = named.get(CURRENT_NAME)
        name = storage.read(current.path).decode("utf-8", "replace").strip() if current is not None else ""
    return by_name.get(name) or max(by_name.values(), key=_number)


def _number(file: File) -> int:
    match = MANIFEST_NAME.match(file.name)
    return int(match[1]) if match else -1
