"""Logs that must be there, by what the MANIFEST and the engine's own files say, and older ones that may be of use."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from sawlog.arrow import view_values
from sawlog.format.damage import MISMATCHED_FILE, MISSING_FILE, Damage, Findings
from sawlog.format.scan import Projection, Scan
from sawlog.leveldb.columns import OPERATION, SEQUENCE, WRITES_SCHEMA
from sawlog.leveldb.database.layout import ENGINE_FILE, LOCK_NAME, OPTIONS_BYTES
from sawlog.leveldb.database.manifest import Manifest
from sawlog.leveldb.database.places import StoredPlace
from sawlog.leveldb.log.layout import OPTIONS_NAME, Dialect
from sawlog.leveldb.options import LogReadOptions
from sawlog.leveldb.records.writes import WriteRange
from sawlog.storage import File, Storage

_REPEATABLE = {"put", "delete", "single_delete", "delete_range"}
"""Operations that change nothing where they are done again, with all that follow them."""


def find_missing_logs(
    manifest: Manifest, stored: StoredPlace, dialect: Dialect | str, directory: str, storage: Storage
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


def find_repeatable_logs(
    manifest: Manifest, stored: StoredPlace, dialect: Dialect | Literal["auto"], storage: Storage
) -> frozenset[int]:
    """Return the numbers of the last logs, as many of them as hold every operation from their first one on.

    These may be read even where tables hold the same entries: no deleted key comes back, since they have its deletion.
    """
    first_live = max(manifest.logs.values(), default=0)  # older ones hold what tables of some family hold
    if min(stored.logs, default=first_live) >= first_live or manifest.find_fault(dialect) is not None:
        return frozenset()
    if any(map(manifest.is_later, stored.tables)):
        return frozenset()
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    schema = pa.schema([WRITES_SCHEMA.field(SEQUENCE), WRITES_SCHEMA.field(OPERATION)])
    repeatable: list[int] = []
    following: int | None = None
    for number in sorted(stored.logs, reverse=True):
        parts = stored.list_parts(number)
        log_range = WriteRange.cover_file(parts[0], scan, Projection.of(schema, scan), dialect, numbered=True)
        batches = list(log_range.decode(schema, Findings("skip")))
        sequences = np.concatenate(
            [np.empty(0, np.int64), *(view_values(rows[SEQUENCE], np.int64) for rows in batches)]
        )
        names = {name for rows in batches for name in rows[OPERATION].unique().to_pylist()}
        if len(parts) > 1 or (number < first_live and not names <= _REPEATABLE) or (np.diff(sequences) > 1).any():
            break
        if len(sequences):
            last = (manifest.last_sequence or 0) if following is None else following - 1
            if sequences[-1] < last:
                break
            following = int(sequences[0])
        repeatable.append(number)
    return frozenset(repeatable)
