"""Manifests of Storage V3: which files hold the columns of a segment, and its deletes. Section 4.2 of the format."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder, decoder_raising, optional
from sawlog.kernels.varints import read_varint
from sawlog.milvus import layout
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.model import reading


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Range of rows of a file: those from `first` to before `last`."""

    path: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns that are kept together.

    Attributes:
        columns: Their names: ids of fields, in decimal.
        format: How the files are stored: `parquet`, `vortex`, `lance-table`, ...
        files: Where the rows are, in order.
    """

    columns: tuple[str, ...]
    format: str
    files: tuple[PackedFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest of one version of a segment. Paths are complete.

    Attributes:
        groups: Its column groups.
        deltas: Its delta logs.
        stats: Its statistics files, by their key (`bloom_filter.100`).
        unsupported: What it says that is not read; empty where all is. Nothing of the segment is read then.
        delete_counts: The numbers of deletes of its delta logs, by path, where it says them.
    """

    groups: tuple[ColumnGroup, ...]
    deltas: tuple[str, ...]
    stats: dict[str, tuple[str, ...]]
    unsupported: str = ""
    delete_counts: Mapping[str, int] = field(default_factory=dict)


def manifest_version(place: str) -> int:
    """The version of a manifest by its place, the JSON of `base_path` and `ver`; 0 for no place.

    Raises:
        FormatError: When it is another text.
    """
    problem = "the place of its manifest"
    return shape.number(shape.mapping(shape.parse_json(place, problem), problem), "ver") if place else 0


def read_manifest(data: bytes, path: str, root: str) -> Manifest:
    """Read a manifest, an Avro container with one record; all of its paths have to be below `root`.

    Raises:
        FormatError: Says what is wrong with it.
    """
    with reading(path):
        if (bare := _read_bare_version(data)) is not None and bare[0] > layout.LAST_MANIFEST:
            newer = f"a manifest of version {bare[0]}; versions up to {layout.LAST_MANIFEST} are read"
            return Manifest((), (), {}, newer)
        record = manifest_record(data)
        logs = shape.mappings(shape.require(record, "delta_logs"), "'delta_logs'")
        if strange := next((log for log in logs if shape.require(log, "type") != layout.DELETES_BY_KEY), None):
            problem = (
                f"the delta log {strange.get('path')!r} is of type {strange['type']}; only deletes by key are read"
            )
            return Manifest((), (), {}, problem)
        place = _Place(root, posixpath.dirname(posixpath.dirname(path)))
        groups = tuple(
            ColumnGroup(tuple(_texts(group, "columns")), _text(group, "format"), tuple(_files(group, place)))
            for group in shape.mappings(shape.require(record, "column_groups"), "'column_groups'")
        )
        deltas = [place.of(layout.PACKED_DELTAS, _text(log, "path")) for log in logs]
        counts = {path: shape.number(log, "num_entries") for path, log in zip(deltas, logs, strict=True)}
        listed = {
            key: _texts({"paths": paths} if isinstance(paths, list) else shape.mapping(paths, key), "paths")
            for key, paths in shape.mapping(record.get("stats", {}), "'stats'").items()
        }
        stats = {
            key: tuple(place.of(layout.PACKED_STATS, stats_path) for stats_path in paths)
            for key, paths in listed.items()
        }
        _check_rows(groups)
        return Manifest(groups, tuple(deltas), stats, delete_counts={path: n for path, n in counts.items() if n > 0})


@dataclass(frozen=True, slots=True)
class _Place:
    """A segment's directory below the root."""

    root: str
    segment: str

    def of(self, directory: str, path: str) -> str:
        """A path of the manifest, which is relative to one of the segment's directories.

        Raises:
            FormatError: When it is outside the root.
        """
        below = self.segment[len(self.root) :].strip("/")
        joined = posixpath.normpath(posixpath.join(below, directory, path))
        if "://" in path or "\0" in path or posixpath.isabs(path) or joined.split("/")[0] == "..":
            raise FormatError(f"it names {path!r}: expected a file of the server, below {self.root or 'its root'}")
        return f"{self.root}/{joined}" if self.root else joined


def _files(group: Mapping[str, Any], place: _Place) -> Iterator[PackedFile]:
    for file in shape.mappings(shape.require(group, "files"), "'files'"):
        path = _text(file, "path")
        first, last = (shape.integer(shape.require(file, key), repr(key)) for key in ("start_index", "end_index"))
        if not 0 <= first < last:
            raise FormatError(f"rows {first} to {last} of {path!r}: expected a range that is not empty")
        yield PackedFile(place.of(layout.PACKED_DATA, path), first, last)


def _text(record: Mapping[str, Any], key: str) -> str:
    return shape.text(shape.require(record, key), repr(key))


def _texts(record: Mapping[str, Any], key: str) -> list[str]:
    return [shape.text(text, repr(key)) for text in shape.listing(shape.require(record, key), repr(key))]


def _check_rows(groups: Sequence[ColumnGroup]) -> None:
    """Refuse column groups that disagree about the number of rows.

    Raises:
        FormatError: Says how many they have.
    """
    counts = {sum(file.rows for file in group.files) for group in groups}
    if len(counts) > 1:
        raise FormatError(f"its column groups have {', '.join(map(str, sorted(counts)))} rows; expected as many each")


_FILE = {"path": "string", "start_index": "long", "end_index": "long", "metadata": "bytes"}
_NUMBER_BYTES = 5
"""Bytes of one of Avro's ints, at most."""
_LISTS = {"type": "array", "items": "string"}
_TEXTS = {"type": "map", "values": "string"}


def record_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The Avro schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def list_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The Avro schema of a list of records."""
    return {"type": "array", "items": record_schema(name, fields)}


def _bare_schema(version: int) -> dict[str, Any]:
    """The schema of a manifest without a container, which does not say it itself, up to what is read of it."""
    stats: Any = record_schema("Statistics", {"paths": _LISTS, "metadata": _TEXTS}) if version >= 3 else _LISTS
    groups = list_schema("ColumnGroup", {"columns": _LISTS, "files": list_schema("File", _FILE), "format": "string"})
    deltas = list_schema("DeltaLog", {"path": "string", "type": "int", "num_entries": "long"})
    return record_schema(
        "Manifest", {"column_groups": groups, "delta_logs": deltas, "stats": {"type": "map", "values": stats}}
    )


def _read_bare_version(data: bytes) -> tuple[int, int] | None:
    """Version of a manifest without a container, and where what follows it begins; `None` for any other bytes."""
    mark, pos = _number(data, 0)
    return _number(data, pos) if mark == layout.MANIFEST_MARK else None


def _number(data: bytes, pos: int) -> tuple[int, int]:
    """Return one of Avro's ints, and where it ends; -1 where there is none."""
    value, end = read_varint(data, pos, _NUMBER_BYTES) or (1, min(pos + _NUMBER_BYTES, len(data)))
    return value >> 1 ^ -(value & 1), end


def manifest_record(data: bytes) -> dict[str, Any]:
    """The record of a container.

    Raises:
        FormatError: When there is none.
    """
    if len(data) > layout.MAX_MANIFEST:
        raise FormatError(f"a manifest of {len(data)} bytes; expected no more than {layout.MAX_MANIFEST}")
    bare = _read_bare_version(data)
    if bare is None and not data.startswith(layout.AVRO_MAGIC):
        raise FormatError(f"expected an Avro container ({layout.AVRO_MAGIC.hex(' ')}), found {data[:4].hex(' ')}")
    fastavro = optional("fastavro", "milvus", "manifests of Storage V3")

    if bare is not None:
        version, pos = bare
        record = decoded_avro(fastavro.schemaless_reader, io.BytesIO(data[pos:]), _bare_schema(version), None)
    else:
        container = decoded_avro(fastavro.reader, io.BytesIO(data))
        _check_container(container.codec, container.writer_schema)
        record = decoded_avro(next, container, None)
    if not isinstance(record, dict):
        raise FormatError("an Avro container without a record")
    return record


def decoded_avro(decoder: Callable[..., Any], *args: Any) -> Any:
    """Return what fastavro makes of bytes; it does not check the shape of a schema.

    Raises:
        FormatError: Says what it found.
    """
    decoded = call_decoder(decoder_raising(decoder, AttributeError, RecursionError, TypeError), *args)
    if isinstance(decoded, Undecodable):
        raise FormatError(f"no Avro container: {decoded.detail}")
    return decoded


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
        for field in schema:
            _check_types(field)
    elif isinstance(schema, dict):
        if schema.get("type") == "record" and not schema.get("fields"):
            raise FormatError("its schema has a record without fields")
        if schema.get("type") == "fixed" and not schema.get("size"):
            raise FormatError("its schema has a type of no bytes")
        for key in ("type", "items", "values", "fields"):
            _check_types(schema.get(key, "string"))
    elif schema == "null":
        raise FormatError("its schema has the type null")
