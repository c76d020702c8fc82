"""What the beginning of a log, and the directory that it lies in, say about the rest of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sawlog.errors import FormatError
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.layout import Dialect, Role
from sawlog.storage import File, Storage


@dataclass(frozen=True, slots=True)
class LogHead:
    """What the beginning of a file says about the rest of it.

    Attributes:
        dialect: Whose fragment types are in use.
        recycled: Whether the file was written over an older log.
        log_number: The number that recyclable fragments must carry (low 32 bits); -1 for any.
        compression: Compression code of the records.
    """

    dialect: Dialect
    recycled: bool
    log_number: int
    compression: int


def first_fragments(head: bytes, dialect: Dialect) -> Iterator[tuple[int, int, bytes]]:
    """Intact fragments at the block starts in `head`, and behind those that hold no record but tell of the log.

    Yields:
        Offset, type, and body (what follows the type byte).
    """
    from sawlog.leveldb_log import kernels as k

    window = k.window_of(head)
    rules = k.rules_of(dialect, gather=False, longest=0)
    state = k.first_state()
    known = layout.TYPES[dialect]
    for start in range(0, len(head), layout.BLOCK_SIZE):
        at = start
        while at < min(start + layout.BLOCK_SIZE, len(head)):
            state.position = at
            size = int(k.judge_fragment(window, state, rules))
            if not size or (kind := layout.TYPE.of(head, at)) not in known:
                break
            yield at, kind, head[at + layout.TYPE.end : at + size]
            if known[kind].role not in (Role.METADATA, Role.COMPRESSION):
                break
            at += size


def settle_dialect(file: File, dialect: Dialect | Literal["auto"], storage: Storage) -> Dialect | Literal["auto"]:
    """The dialect from the options, or RocksDB's where its IDENTITY file lies beside the log (or its archive)."""
    directory = posixpath.dirname(file.path)
    if posixpath.basename(directory) == layout.ARCHIVE_NAME:
        directory = posixpath.dirname(directory)
    if dialect == "auto" and storage.exists(posixpath.join(directory, layout.IDENTITY_NAME)):
        return "rocksdb"
    return dialect


def read_head(head: bytes, file: File, dialect: Dialect | Literal["auto"]) -> LogHead:
    """Settle dialect, log number and compression from the first `PROBE_BYTES` of a file.

    Raises:
        FormatError: For a compression that is not supported.
    """
    if dialect == "auto":
        foreign = any(kind in layout.ROCKSDB_ONLY for _, kind, _ in first_fragments(head, "rocksdb"))
        dialect = "rocksdb" if foreign else "leveldb"
    if dialect == "leveldb":
        return LogHead(dialect, recycled=False, log_number=-1, compression=layout.COMPRESSION_NONE)
    named = layout.LOG_NAME.match(file.name)
    number = int(named[1]) & 0xFFFFFFFF if named else -1
    recycled = False
    compression = layout.COMPRESSION_NONE
    for offset, kind, body in first_fragments(head, dialect):
        known = layout.TYPES[dialect][kind]
        recycled = known.header_size > layout.HEADER_SIZE
        if recycled and number < 0:
            number = int.from_bytes(body[:4], "little")
        if known.role is Role.COMPRESSION and offset == 0 and len(body) == layout.COMPRESSION_PAYLOAD:
            compression = int.from_bytes(body, "little")
        if recycled or known.role not in (Role.METADATA, Role.COMPRESSION):
            break
    if compression not in (layout.COMPRESSION_NONE, layout.COMPRESSION_ZSTD):
        raise FormatError(
            f"{file.path}: records are compressed with type {compression}; only ZSTD (7) is known in logs"
        )
    return LogHead(dialect, recycled, number, compression)
