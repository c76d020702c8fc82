"""Manifests of Storage V3: which files hold the columns of a segment, and its deletes. Section 4.2 of the format."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sawlog.errors import FormatError
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.metadata.model import reading


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Some rows of a file: those from `first` to before `last`."""

    path: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns that are kept together.

    Attributes:
        columns: Their names: ids of fields, in decimal.
        format: How the files are stored: `parquet`, `vortex`, `lance`.
        files: Where the rows are, in order.
    """

    columns: tuple[str, ...]
    format: str
    files: tuple[PackedFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a segment. Paths are complete.

    Attributes:
        groups: Its column groups.
        deltas: Its delta logs.
        stats: Its statistics files, by their key (`bloom_filter.100`).
    """

    groups: tuple[ColumnGroup, ...]
    deltas: tuple[str, ...]
    stats: dict[str, tuple[str, ...]]


def read_manifest(data: bytes, path: str, root: str) -> Manifest:
    """Read a manifest.

    Args:
        data: Its bytes, an Avro container with one record.
        path: Where it lies, `<segment>/_metadata/manifest-<version>.avro`.
        root: What all of its paths have to lie below.

    Raises:
        FormatError: Says what is wrong with it.
    """
    with reading(path):
        record = _record(data)
        place = _Place(root, posixpath.dirname(posixpath.dirname(path)))
        groups = tuple(
            ColumnGroup(tuple(group["columns"]), group["format"], tuple(_files(group, place)))
            for group in record["column_groups"]
        )
        deltas = [place.of(layout.PACKED_DELTAS, log["path"]) for log in record["delta_logs"] if _by_key(log)]
        stats = {
            key: tuple(place.of(layout.PACKED_STATS, one) for one in found["paths"])
            for key, found in record.get("stats", {}).items()
        }
        _check_rows(groups)
        return Manifest(groups, tuple(deltas), stats)


@dataclass(frozen=True, slots=True)
class _Place:
    """A segment's directory below the root."""

    root: str
    segment: str

    def of(self, directory: str, path: str) -> str:
        """A path of the manifest, which is relative to one of the segment's directories.

        Raises:
            FormatError: When it lies outside of the root.
        """
        below = self.segment[len(self.root) :].strip("/")
        found = posixpath.normpath(posixpath.join(below, directory, path))
        if "://" in path or "\0" in path or posixpath.isabs(path) or found.split("/")[0] == "..":
            raise FormatError(f"it names {path!r}: expected a file of the server, below {self.root or 'its root'}")
        return f"{self.root}/{found}" if self.root else found


def _files(group: dict[str, Any], place: _Place) -> Iterator[PackedFile]:
    for file in group["files"]:
        first, last = int(file["start_index"]), int(file["end_index"])
        if not 0 <= first < last:
            raise FormatError(f"rows {first} to {last} of {file['path']!r}: expected a range that is not empty")
        yield PackedFile(place.of(layout.PACKED_DATA, file["path"]), first, last)


def _check_rows(groups: Sequence[ColumnGroup]) -> None:
    """Refuse column groups that disagree about the number of rows.

    Raises:
        FormatError: Says how many they have.
    """
    counts = {sum(file.rows for file in group.files) for group in groups}
    if len(counts) > 1:
        raise FormatError(f"its column groups have {', '.join(map(str, sorted(counts)))} rows; expected as many each")


def _by_key(log: dict[str, Any]) -> bool:
    """Whether a delta log holds keys.

    Raises:
        FormatError: When it holds positions, or something else.
    """
    if log["type"] != layout.DELETES_BY_KEY:
        raise FormatError(f"the delta log {log['path']!r} is of type {log['type']}; only deletes by key are read")
    return True


def _record(data: bytes) -> dict[str, Any]:
    """The record of a container.

    Raises:
        FormatError: When there is none.
    """
    if len(data) > layout.MAX_MANIFEST:
        raise FormatError(f"a manifest of {len(data)} bytes; expected no more than {layout.MAX_MANIFEST}")
    if not data.startswith(layout.AVRO_MAGIC):
        raise FormatError(f"expected an Avro container ({layout.AVRO_MAGIC.hex(' ')}), found {data[:4].hex(' ')}")
    import fastavro

    try:
        container = fastavro.reader(io.BytesIO(data))
        _check_container(container.codec, container.writer_schema)
        found = next(container, None)
    except FormatError:
        raise
    except Exception as error:  # noqa: BLE001 what the library raises for bytes that are no Avro is not one type
        raise FormatError(f"no Avro container: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict):
        raise FormatError("an Avro container without a record")
    return found


def _check_container(codec: str, schema: Any) -> None:
    """Refuse what can grow when it is read: the writer compresses nothing.

    Raises:
        FormatError: Says what was found.
    """
    if codec != "null":
        raise FormatError(f"compressed with {codec}; expected none")
    _check_types(schema)


def _check_types(schema: Any) -> None:
    """Refuse a schema of values that take no bytes: any number of them would be justified.

    Raises:
        FormatError: Names the type.
    """
    if isinstance(schema, list):
        for one in schema:
            _check_types(one)
    elif isinstance(schema, dict):
        if schema.get("type") == "record" and not schema.get("fields"):
            raise FormatError("its schema has a record without fields")
        if schema.get("type") == "fixed" and not schema.get("size"):
            raise FormatError("its schema has a type of no bytes")
        for key in ("type", "items", "values", "fields"):
            _check_types(schema.get(key, "string"))
    elif schema == "null":
        raise FormatError("its schema has the type null")
