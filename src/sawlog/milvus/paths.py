"""Paths of logs and what they say: `<root>/insert_log/<collection>/<partition>/<segment>/<field>/<log>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sawlog.errors import FormatError
from sawlog.milvus import layout
from sawlog.storage import File


@dataclass(frozen=True, slots=True)
class LogFile:
    """File of a collection, as its path names it.

    Attributes:
        file: The file.
        root: The path before the directory of its kind, without the last slash.
        kind: That directory: `insert_log`, `delta_log`, ...; `_metadata` for manifests, which are below `insert_log`.
        collection: Collection id; 0 where the path does not say (index files).
        partition: Partition id; -1 for all of them.
        segment: Segment id.
        field: Field id, or, in Storage V2, the id of a column group; -1 where there is none.
        log: Log id.
    """

    file: File
    root: str
    kind: str
    collection: int
    partition: int
    segment: int
    field: int
    log: int


_PLACE = re.compile(rf"(?:(.*)/)?({'|'.join(layout.DIRECTORIES)})(?:/(.*))?", re.DOTALL)
"""The root of logs, the last directory that says of which kind they are, and what is below it."""
_LogPlace = tuple[str, str, int, int, int, int, int]
"""Root, kind and ids of a `LogFile`."""


def parse(file: File) -> LogFile | None:
    """Read the path of a file; `None` when it is not that of a log."""
    place = parse_path(file.path)
    return None if place is None else LogFile(file, *place)


def parse_kind(file: File) -> str | None:
    """Return the directory of its kind that the path of a log names; `None` when it is not that of a log."""
    place = parse_path(file.path)
    return None if place is None else place[1]


def parse_path(path: str) -> _LogPlace | None:
    """Return what a path says of a log: root, kind, and ids; `None` when it is not that of a log.

    Backups may have a directory for a group of segments between partition and segment (section 4 of the format).
    """
    place = _PLACE.fullmatch(path)
    if place is None:
        parts = path.split("/")
        ids = _parse_trailing_ids(parts)
        if len(ids) < 5:
            return None
        collection, partition, segment, field, log = ids[-5:]
        return "/".join(parts[: -len(ids)]), layout.INSERT_LOG, collection, partition, segment, field, log
    root, kind, below = place.groups("")
    parts = below.split("/")
    if kind == layout.INSERT_LOG and layout.MANIFEST_DIRECTORY in parts:
        return _parse_manifest_path(root, parts)
    if kind == layout.INDEX_FILES:
        return _parse_index_path(root, parts)
    if kind == layout.DDL_LOG:  # `<collection>/{ts,ddl}/<log>`
        if len(parts) < 2:
            return None
        collection, log = (int(part) if layout.ID.match(part) else 0 for part in (parts[0], parts[-1]))
        return root, kind, collection, layout.ALL_PARTITIONS, -1, -1, log
    if len(parts) not in ((4, 5) if kind == layout.DELTA_LOG else (5, 6)) or not all(map(layout.ID.match, parts)):
        return None
    ids = list(map(int, parts))
    if kind == layout.DELTA_LOG:
        return root, kind, ids[0], ids[1], ids[-2], layout.DELTA_FIELD, ids[-1]
    return root, kind, ids[0], ids[1], ids[-3], ids[-2], ids[-1]


def make_segment_key(log: LogFile) -> str:
    """Return the key that the files of a segment have in common."""
    return f"{log.root}/{log.kind}/{log.collection}/{log.partition}/{log.segment}"


def _check_log_path(path: str) -> None:
    """Refuse a path out of metadata that points outside of the collection's root.

    Raises:
        FormatError: For absolute paths with `..`, or with anything else that walks upwards.
    """
    if ".." in path.split("/") or "\0" in path or "\\" in path:
        raise FormatError(f"the metadata names a log at {path!r}: expected decimal ids below {layout.INSERT_LOG}")


def parse_trailing_id(path: str) -> int:
    """Return the log id at the end of a path out of metadata.

    Raises:
        FormatError: When there is none.
    """
    _check_log_path(path)
    last = path.rsplit("/", 1)[-1]
    if not layout.ID.match(last):
        raise FormatError(f"the metadata names a log at {path!r}: expected a decimal id at its end")
    return int(last)


def _parse_trailing_ids(parts: list[str]) -> list[int]:
    ids: list[int] = []
    for part in reversed(parts):
        if len(ids) == 5 or not layout.ID.match(part):
            break
        ids.insert(0, int(part))
    return ids


def _parse_manifest_path(root: str, parts: list[str]) -> _LogPlace | None:
    """Return the log that `<collection>/<partition>/<segment>/_metadata/manifest-<version>.avro` names.

    A backup's may have a group, too.
    """
    name = layout.MANIFEST_NAME.match(parts[-1])
    if name is None or len(parts) not in (5, 6) or not all(layout.ID.match(part) for part in parts[:-2]):
        return None
    ids = (int(parts[0]), int(parts[1]), int(parts[-3]))
    return root, layout.MANIFEST_DIRECTORY, *ids, -1, int(name[1])


def _parse_index_path(root: str, parts: list[str]) -> _LogPlace | None:
    """Return the log that `<build>/<version>/<partition>/<segment>/<name>` names."""
    if len(parts) != 5 or not all(layout.ID.match(part) for part in parts[:4]):
        return None
    build, _, partition, segment = map(int, parts[:4])
    return root, layout.INDEX_FILES, 0, partition, segment, -1, build
