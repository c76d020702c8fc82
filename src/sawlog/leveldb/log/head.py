"""Dialect and settings of a log, by its beginning and the directory that it is in; which MANIFEST of one is live."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sawlog.errors import UnsupportedError
from sawlog.format.damage import CUT_METADATA, MISSING_FILE, UNSUPPORTED, Damage
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.layout import Dialect, Role
from sawlog.storage import File, Storage


@dataclass(frozen=True, slots=True)
class LogHead:
    """Properties of a file that its beginning states.

    Attributes:
        dialect: Whose fragment types are in use.
        recycled: Whether the file was written over an older log.
        log_number: The number that recyclable fragments must carry (low 32 bits); -1 for any.
        compression: Compression code of the records.
        renamed: Whether the log number is another than that in the file's name.
    """

    dialect: Dialect
    recycled: bool
    log_number: int
    compression: int
    renamed: bool = False


def iterate_first_fragments(head: bytes, dialect: Dialect, *, resync: bool = False) -> Iterator[tuple[int, int, bytes]]:
    """Yield intact fragments at the block starts in `head`, and after those that hold no record but describe the log.

    Args:
        head: The first bytes of a file.
        dialect: Whose fragments are looked for.
        resync: Whether all fragments are looked for, also after damage.

    Yields:
        Offset, type, and body (what follows the type byte).
    """
    types, type_at = layout.TYPES[dialect], layout.TYPE.offset
    judge = None
    for start in range(0, len(head), layout.BLOCK_SIZE):
        pos, end = start, min(start + layout.BLOCK_SIZE, len(head))
        while pos + layout.HEADER_SIZE <= end:
            kind, size = head[pos + type_at], 0
            # What is not a fragment by that, as in files of other formats, is not worth loading a kernel for.
            if kind in types and types[kind].header_size + layout.LENGTH.of(head, pos) <= end - pos:
                if judge is None:
                    from sawlog.leveldb.log.kernels import make_judge

                    judge, state = make_judge(head, dialect)
                state.position = pos
                size = int(judge())
            if not size and resync:
                pos += 1
                continue
            if not size:
                break
            yield pos, kind, head[pos + type_at + 1 : pos + size]
            if types[kind].role not in (Role.METADATA, Role.COMPRESSION) and not resync:
                break
            pos += size


def resolve_dialect(
    file: File, dialect: Dialect | Literal["auto"], storage: Storage, siblings: Sequence[File] | None = None
) -> Dialect | Literal["auto"]:
    """Return the dialect from the options, or whose database has the log (or its archive), as other files there say.

    Where none does, Pebble's logs show by how they end, once they are closed.

    Args:
        file: The log.
        dialect: That of the options.
        storage: Where it is.
        siblings: Files next to it, if they are known: at least those that say whose a directory is.
    """
    if dialect != "auto":
        return dialect
    directory = file.directory
    is_archived = posixpath.basename(directory) == layout.ARCHIVE_NAME
    if siblings is None or is_archived:
        directory = posixpath.dirname(directory) if is_archived else directory
        beginnings = layout.OWNER_BEGINNINGS
        try:
            siblings = storage.list_files(directory or ".", fresh=False, names=layout.OWNER_NAME, beginnings=beginnings)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return dialect
    owned = {sibling.name: sibling for sibling in siblings}
    if any(name.startswith(layout.PEBBLE_MARKER) for name in owned):
        return "pebble"
    if layout.IDENTITY_NAME in owned:
        return "rocksdb"
    for name in sorted(owned, reverse=True):
        if layout.OPTIONS_NAME.match(name):
            options = storage.read(owned[name], 0, layout.OPTIONS_HEAD)
            return next((owner for key, owner in layout.OPTIONS_OWNERS.items() if key in options), dialect)
    return "pebble" if _ends_as_pebble_ends(file, storage) else dialect


def _ends_as_pebble_ends(file: File, storage: Storage) -> bool:
    """Return whether a log ends in a header of the log that follows, without a checksum: what Pebble writes last."""
    named = layout.LOG_NAME.match(file.name)
    if named is None or file.size < layout.RECYCLABLE_HEADER_SIZE:
        return False
    last = storage.read(file, file.size - layout.RECYCLABLE_HEADER_SIZE, layout.RECYCLABLE_HEADER_SIZE)
    return (
        len(last) == layout.RECYCLABLE_HEADER_SIZE
        and layout.CHECKSUM.of(last) == layout.LENGTH.of(last) == 0
        and layout.TYPE.of(last) == layout.Type.RECYCLABLE_FULL
        and layout.LOG_NUMBER.of(last) == (int(named[1]) + 1) & 0xFFFFFFFF
    )


def read_head(
    head: bytes, file: File, dialect: Dialect | Literal["auto"], storage: Storage, *, numbered: bool = False
) -> LogHead:
    """Return the dialect, log number and compression that the first `PROBE_BYTES` of a file state.

    The log's number is that of its name. Where no fragment carries it, the log was taken over from an earlier one and
    is not written yet, if it is in its database; otherwise it was renamed, and its first fragment has the number.

    Args:
        head: These bytes.
        file: The file.
        dialect: Whose fragments they are.
        storage: Where it is.
        numbered: Whether a database takes it for the log of the number in its name, wherever it is.

    Raises:
        UnsupportedError: For a compression that is not known, and for a log that is encrypted.
    """
    if dialect == "auto":
        dialect = _find_dialect(head)
    if len(head) > layout.ENCRYPTED_PREFIX and next(iterate_first_fragments(head, dialect), None) is None:
        encrypted = find_encryption(file, storage)
        if encrypted is not None:
            raise UnsupportedError(encrypted)
    if dialect == "leveldb":
        return LogHead(dialect, recycled=False, log_number=-1, compression=layout.Compression.NONE)
    named = layout.LOG_NAME.match(file.name)
    fragments = list(iterate_first_fragments(head, dialect))
    if not fragments and not (numbered or _is_in_database(file, storage)):
        fragments = list(iterate_first_fragments(head, dialect, resync=True))
    number = int(named[1]) & 0xFFFFFFFF if named else -1
    # Pebble ends every log, an empty one too, with a header of the next one.
    recycled = dialect == "pebble" and named is not None and not fragments
    compression: int = layout.Compression.NONE
    renamed = False
    for offset, kind, body in fragments:
        fragment_type = layout.TYPES[dialect][kind]
        recycled = fragment_type.header_size > layout.HEADER_SIZE
        if recycled:
            first = layout.LOG_NUMBER.of(body, -layout.TYPE.end)
            foreign = named is not None and not _has_log_number(number, fragments, dialect)
            renamed = foreign and not numbered and not _is_in_database(file, storage)
            number = first if renamed or number < 0 else number
        if fragment_type.role is Role.COMPRESSION and offset == 0 and len(body) == layout.COMPRESSION_PAYLOAD:
            compression = int.from_bytes(body, "little")
        if recycled or fragment_type.role not in (Role.METADATA, Role.COMPRESSION):
            break
    if compression not in (layout.Compression.NONE, layout.Compression.ZSTD):
        detail = f"records are compressed with type {compression}; only ZSTD (7) is known in logs"
        raise UnsupportedError(Damage(file.path, 0, file.size, UNSUPPORTED, detail))
    return LogHead(dialect, recycled, number, compression, renamed)


def _has_log_number(number: int, fragments: Iterable[tuple[int, int, bytes]], dialect: Dialect) -> bool:
    types = layout.TYPES[dialect]
    return any(
        layout.LOG_NUMBER.of(body, -layout.TYPE.end) == number
        for _, kind, body in fragments
        if types[kind].header_size > layout.HEADER_SIZE
    )


def _is_in_database(file: File, storage: Storage) -> bool:
    return storage.exists(posixpath.join(file.directory, layout.CURRENT_NAME))


@lru_cache(maxsize=8)  # a follower asks in every look
def _find_dialect(head: bytes) -> Dialect:
    """Return the dialect of the fragments that a log begins with, or has where it begins with none.

    LevelDB's where they are everyone's.
    """
    is_common = _OWN_TYPES.isdisjoint(head[layout.TYPE.offset :: layout.BLOCK_SIZE])
    if is_common and next(iterate_first_fragments(head, "leveldb"), None) is not None:
        return "leveldb"  # of types that all dialects have, none says more
    for resync in (False, True):
        types = {
            candidate: {kind for _, kind, _ in iterate_first_fragments(head, candidate, resync=resync)}
            for candidate in layout.OWN_TYPES
        }
        for dialect, own_types in layout.OWN_TYPES.items():
            if types[dialect] & own_types:
                return dialect
        if any(types.values()):
            break
    return "leveldb"


_OWN_TYPES = frozenset[int]().union(*layout.OWN_TYPES.values())
_ENCRYPTION_MESSAGE = (
    f"CURRENT begins with {layout.ENCRYPTED_PREFIX:,} random bytes: the files of this database are encrypted, and are"
    " read by RocksDB with their key only"
)


def _is_encrypted(data: bytes) -> bool:
    """Return whether a file is encrypted that should hold one name and begins so, and all files next to it with it."""
    return len(data) > layout.ENCRYPTED_PREFIX and len(set(data[:-1])) >= layout.ENCRYPTED_VALUES


def find_encryption(file: File, storage: Storage) -> Damage | None:
    """Return what to say of a file that cannot be read, if the database that it is in is encrypted."""
    try:
        current = posixpath.join(file.directory, layout.CURRENT_NAME)
        if not _is_encrypted(storage.read(current, 0, layout.CURRENT_BYTES)):
            return None
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
        return None
    return Damage(file.path, 0, file.size, UNSUPPORTED, _ENCRYPTION_MESSAGE)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The file of a directory that names its live MANIFEST: `CURRENT`, or Pebble's last marker.

    Attributes:
        path: The file, or where it should be.
        name: The name of the MANIFEST; empty where it names none.
        fault: What is missing of it, or of what it names; `None` where nothing is.
    """

    path: str
    name: str
    fault: Damage | None = None


def read_pointer(directory: str, siblings: Iterable[File], storage: Storage) -> Pointer:
    """Return the MANIFEST that a directory with these files names, and whether it is there."""
    named = {file.name: file for file in siblings}
    marked = [(int(match[1]), match[2], name) for name in named if (match := layout.MARKER_NAME.match(name))]
    current = named.get(layout.CURRENT_NAME)
    if marked:
        _, name, marker = max(marked)
        path = named[marker].path
    elif current is None:
        path = posixpath.join(directory, layout.CURRENT_NAME)
        return Pointer(path, "", Damage(path, 0, 0, MISSING_FILE, "nothing says which MANIFEST is the live one"))
    else:
        text = storage.read(current, 0, layout.CURRENT_BYTES)
        if _is_encrypted(text):
            raise UnsupportedError(Damage(current.path, 0, current.size, UNSUPPORTED, _ENCRYPTION_MESSAGE))
        path = current.path
        name = text.decode("utf-8", "replace").removesuffix("\n")
        if not layout.MANIFEST_NAME.fullmatch(name):
            detail = f"expected the name of a MANIFEST, found {text[:40]!r}"
            return Pointer(path, "", Damage(path, 0, 0, CUT_METADATA, detail))
        if not text.endswith(b"\n"):
            detail = f"{name} without the line feed after it: the number may be cut"
            return Pointer(path, name if name in named else "", Damage(path, 0, 0, CUT_METADATA, detail))
    if name not in named:
        detail = f"{posixpath.basename(path)} names this MANIFEST, and it is not there"
        return Pointer(path, name, Damage(posixpath.join(directory, name), 0, 0, MISSING_FILE, detail))
    return Pointer(path, name)


def sort_manifests(manifests: Iterable[File]) -> list[File]:
    """Return the MANIFEST files, the newest first."""
    return sorted(manifests, key=_parse_number, reverse=True)


def _parse_number(file: File) -> int:
    match = layout.MANIFEST_NAME.match(file.name)
    return int(match[1]) if match else -1
