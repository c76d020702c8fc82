"""Logs that must be there, by what the MANIFEST and the engine's own files say."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from sawlog.format.damage import MISMATCHED_FILE, MISSING_FILE, Damage
from sawlog.leveldb.database.layout import ENGINE_FILE, LOCK_NAME, OPTIONS_BYTES
from sawlog.leveldb.database.manifest import Manifest
from sawlog.leveldb.database.places import StoredPlace
from sawlog.leveldb.log.layout import OPTIONS_NAME, Dialect
from sawlog.storage import File, Storage


def find_missing_logs(
    manifest: Manifest,
    stored: StoredPlace,
    dialect: Dialect | str,
    directory: str,
    storage: Storage,
) -> Iterator[Damage]:
    """Yield the logs that are not there, or not whole, although an engine that was closed has left them."""
    last = manifest.last_sequence
    after = "" if last is None else f": writes after sequence number {last} may be missing"
    for number, size in sorted(manifest.wals.items()):
        path = posixpath.join(directory, f"{number:06d}.log")
        parts = stored.list_parts(number)
        if not parts:
            yield Damage(path, 0, 0, MISSING_FILE, f"the MANIFEST names this log, and it is not there{after}")
        elif size is not None and (logged_size := sum(part.size for part in parts)) < size:
            detail = f"expected at least {size} bytes, as the MANIFEST says, found {logged_size}{after}"
            yield Damage(parts[0].path, 0, 0, MISMATCHED_FILE, detail)
    first, logs = manifest.oldest_log, stored.logs
    if not first or first in logs or first in manifest.wals:
        return
    siblings = storage.list_files(directory or ".", fresh=False, names=ENGINE_FILE)
    path = posixpath.join(directory, f"{first:06d}.log")
    if dialect == "rocksdb" or (dialect == "auto" and manifest.leveled):
        # The number is only a bound. But where RocksDB has been opened for writing, there is a log.
        locked = any(file.name == LOCK_NAME for file in siblings)
        if locked and not any(number >= first for number in logs) and _has_logs(siblings, storage):
            detail = f"a database that was opened has a log with this number or a higher one, and there is none{after}"
            yield Damage(path, 0, 0, MISSING_FILE, detail)
    elif dialect != "pebble" or (_has_logs(siblings, storage) and not any(number >= first for number in logs)):
        # In Pebble, too, the number is a bound: one that is opened and closed again may go on in a later log.
        detail = f"the MANIFEST names this log as the next one, and it is not there{after}"
        yield Damage(path, 0, 0, MISSING_FILE, detail)


def _has_logs(siblings: Sequence[File], storage: Storage) -> bool:
    """Return whether an engine with such options has logs, and next to its tables."""
    options = max(
        (file for file in siblings if OPTIONS_NAME.match(file.name)),
        key=lambda file_of_options: file_of_options.name,
        default=None,
    )
    if options is None:
        return True
    text = storage.read(options, 0, OPTIONS_BYTES)
    return re.search(rb"^\s*(wal_dir=[^\s]+|disable_wal=true|secondary_dir=[^\s]+)\s*$", text, re.MULTILINE) is None
