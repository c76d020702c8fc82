"""Manifests of Storage V3: which files hold the columns of a segment, and its deletes. Section 4.2 of the format."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder, import_optional, wrap_decoder
from sawlog.kernels.varints import read_varint
from sawlog.milvus import layout
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.model import locate_errors


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


def parse_version(place: str) -> int:
    """Return the version of a manifest by its place, the JSON of `base_path` and `ver`; 0 for no place.

    Raises:
        FormatError: When it is another text.
    """
    problem = "the place of its manifest"
    return shape.read_number(shape.require_mapping(shape.parse_json(place, problem), problem), "ver") if place else 0


def read_manifest(data: bytes, path: str, root: str) -> Manifest:
    """Read a manifest, an Avro container with one record; all of its paths have to be below `root`.

    Raises:
        FormatError: Says what is wrong with it.
    """
    with locate_errors(path):
        if (bare := _read_bare_version(data)) is not None and bare[0] > layout.LAST_MANIFEST:
            newer = f"a manifest of version {bare[0]}; versions up to {layout.LAST_MANIFEST} are read"
            return Manifest((), (), {}, newer)
        record = read_record(data)
        logs = shape.require_mappings(shape.require(record, "delta_logs"), "'delta_logs'")
        if strange := next((log for log in logs if shape.require(log, "type") != layout.DELETES_BY_KEY), None):
            problem = (
                f"the delta log {strange.get('path')!r} is of type {strange['type']}; only deletes by key are read"
            )
            return Manifest((), (), {}, problem)
        place = _Place(root, posixpath.dirname(posixpath.dirname(path)))
        groups = tuple(
            ColumnGroup(
                tuple(_read_texts(group, "columns")), _read_text(group, "format"), tuple(_iterate_files(group, place))
            )
            for group in shape.require_mappings(shape.require(record, "column_groups"), "'column_groups'")
        )
        deltas = [place.of(layout.PACKED_DELTAS, _read_text(log, "path")) for log in logs]
        counts = {path: shape.read_number(log, "num_entries") for path, log in zip(deltas, logs, strict=True)}
        listed = {
            key: _read_texts(
                {"paths": paths} if isinstance(paths, list) else shape.require_mapping(paths, key), "paths"
            )
            for key, paths in shape.require_mapping(record.get("stats", {}), "'stats'").items()
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
        """Return a path of the manifest, which is relative to one of the segment's directories.

        Raises:
            FormatError: When it is outside the root.
        """
        below = self.segment[len(self.root) :].strip("/")
        joined = posixpath.normpath(posixpath.join(below, directory, path))
        if "://" in path or "\0" in path or posixpath.isabs(path) or joined.split("/")[0] == "..":
            raise FormatError(f"it names {path!r}: expected a file of the server, below {self.root or 'its root'}")
        return f"{self.root}/{joined}" if self.root else joined


def _iterate_files(group: Mapping[str, Any], place: _Place) -> Iterator[PackedFile]:
    for file in shape.require_mappings(shape.require(group, "files"), "'files'"):
        path = _read_text(file, "path")
        first, last = (
            shape.require_integer(shape.require(file, key), repr(key)) for key in ("start_index", "end_index")
        )
        if not 0 <= first < last:
            raise FormatError(f"rows {first} to {last} of {path!r}: expected a range that is not empty")
        yield PackedFile(place.of(layout.PACKED_DATA, path), first, last)


def _read_text(record: Mapping[str, Any], key: str) -> str:
    return shape.require_text(shape.require(record, key), repr(key))


def _read_texts(record: Mapping[str, Any], key: str) -> list[str]:
    return [shape.require_text(text, repr(key)) for text in shape.require_list(shape.require(record, key), repr(key))]


def _check_rows(groups: Sequence[ColumnGroup]) -> None:
    """Refuse column groups that have no files, or disagree about the number of rows.

    Raises:
        FormatError: Says so, or how many they have.
    """
    if not any(group.files for group in groups):
        raise FormatError("it names no file of a column group")
    counts = {sum(file.rows for file in group.files) for group in groups}
    if len(counts) > 1:
        raise FormatError(f"its column groups have {', '.join(map(str, sorted(counts)))} rows; expected as many each")


_FILE = {"path": "string", "start_index": "long", "end_index": "long", "metadata": "bytes"}
_NUMBER_BYTES = 5
"""Bytes of one of Avro's ints, at most."""
_LISTS = {"type": "array", "items": "string"}
_TEXTS = {"type": "map", "values": "string"}


def make_record_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def make_list_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of a list of records."""
    return {"type": "array", "items": make_record_schema(name, fields)}


def _make_bare_schema(version: int) -> dict[str, Any]:
    """Return the schema of a manifest without a container, which does not say it itself, up to what is read of it."""
    stats: Any = make_record_schema("Statistics", {"paths": _LISTS, "metadata": _TEXTS}) if version >= 3 else _LISTS
    groups = make_list_schema(
        "ColumnGroup", {"columns": _LISTS, "files": make_list_schema("File", _FILE), "format": "string"}
    )
    deltas = make_list_schema("DeltaLog", {"path": "string", "type": "int", "num_entries": "long"})
    return make_record_schema(
        "Manifest", {"column_groups": groups, "delta_logs": deltas, "stats": {"type": "map", "values": stats}}
    )


def _read_bare_version(data: bytes) -> tuple[int, int] | None:
    """Return the version of a manifest without a container, and where what follows it begins.

    `None` for any other bytes.
    """
    mark, pos = _read_number(data, 0)
    return _read_number(data, pos) if mark == layout.MANIFEST_MARK else None


def _read_number(data: bytes, pos: int) -> tuple[int, int]:
    """Return one of Avro's ints, and where it ends; -1 where there is none."""
    value, end = read_varint(data, pos, _NUMBER_BYTES) or (1, min(pos + _NUMBER_BYTES, len(data)))
    return value >> 1 ^ -(value & 1), end


def read_record(data: bytes) -> dict[str, Any]:
    """Return the record of a container.

    Raises:
        FormatError: When there is none.
    """
    if len(data) > layout.MAX_MANIFEST:
        raise FormatError(f"a manifest of {len(data)} bytes; expected no more than {layout.MAX_MANIFEST}")
    bare = _read_bare_version(data)
    if bare is None and not data.startswith(layout.AVRO_MAGIC):
        raise FormatError(f"expected an Avro container ({layout.AVRO_MAGIC.hex(' ')}), found {data[:4].hex(' ')}")
    fastavro = import_optional("fastavro", "milvus", "manifests of Storage V3")

    if bare is not None:
        version, pos = bare
        record = decode_avro(fastavro.schemaless_reader, io.BytesIO(data[pos:]), _make_bare_schema(version), None)
    else:
        container = decode_avro(fastavro.reader, io.BytesIO(data))
        _check_container(container.codec, container.writer_schema)
        record = decode_avro(next, container, None)
    if not isinstance(record, dict):
        raise FormatError("an Avro container without a record")
    return record


def decode_avro(decoder: Callable[..., Any], *args: Any) -> Any:
    """Return what fastavro makes of bytes; it does not check the shape of a schema.

    Raises:
        FormatError: Says what it found.
    """
    decoded = call_decoder(wrap_decoder(decoder, AttributeError, RecursionError, TypeError), *args)
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
