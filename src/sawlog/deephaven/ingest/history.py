"""Historical trees: what a merge has published, by which record, and which rows came from which of its parts."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import combine_column, make_array, view_values
from sawlog.deephaven.ingest.records import RECORD_NAME, Partition, Progress
from sawlog.deephaven.ingest.tree import TreeLocation, check_inside, check_part, list_directories, read_small, sweep
from sawlog.errors import FormatError, OptionError
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.storage.typed_json import parse_json_as

NamespaceSet = Literal["System", "User"]

PARTS_NAME = "_sawlog.parts.arrow"
"""Next to the record: which rows of a merged location came from which of its parts, an Arrow stream of run ends."""
TREES: dict[str, str] = {"System": "Systems", "User": "Users"}
_PARTITIONS = "Partitions"
_VERSION = 1


class HistoricalTable:
    """A table of a historical tree: `ROOT/Systems/NAMESPACE/Partitions/INTERNAL/COLUMN/TABLE`.

    Raises:
        OptionError: For names that cannot be directories.
    """

    def __init__(self, root: str, namespace_set: NamespaceSet, namespace: str, table: str) -> None:
        if namespace_set not in TREES:
            raise OptionError(f"namespace_set={namespace_set!r}: expected one of {', '.join(TREES)}")
        self.root = root
        self.namespace_set = namespace_set
        self.namespace = check_part(namespace, "namespace")
        self.table = check_part(table, "table")
        self.directory = os.path.join(root, TREES[namespace_set], namespace, _PARTITIONS)

    def build_path(self, internal: str, column: str) -> str:
        """Return the path of a location.

        Raises:
            OptionError: For names that cannot be directories.
            SawlogError: When a link leads out of the root.
        """
        parts = check_part(internal, "internal partition"), check_part(column, "column partition")
        path = os.path.join(self.directory, *parts, self.table)
        check_inside(path, self.root)
        return path

    def list_locations(self, column: str) -> list[TreeLocation]:
        """Return locations of one column partition."""
        paths = {internal: self.build_path(internal, column) for internal in self._list_internals()}
        return [
            TreeLocation(path, Partition(self.namespace, self.table, internal, column))
            for internal, path in paths.items()
            if os.path.isdir(path)
        ]

    def tidy(self, column: str) -> None:
        """Delete what a killed merge of a column partition has staged."""
        for internal in self._list_internals():
            parent = os.path.dirname(self.build_path(internal, column))
            if os.path.isdir(parent):
                sweep(parent, f".{self.table}.")

    def _list_internals(self) -> list[str]:
        return list_directories(self.directory, self.root)


@dataclass(frozen=True, slots=True)
class MergedPart:
    """An intraday location whose rows were merged.

    Attributes:
        internal: Its internal partition, as the directory is called.
        partition: The internal partition that was imported; None when it was no import that made the location.
        origin: What its position record says of the logs, as a digest; empty likewise.
        deletions: How often its partition had been deleted before.
        rows: Its rows.
        checksum: Sum of the hashes of its rows.
    """

    internal: str
    partition: str | None
    origin: str
    deletions: int
    rows: int
    checksum: int

    @classmethod
    def of(cls, location: TreeLocation, rows: int, checksum: int) -> MergedPart:
        """Return the part that an intraday location is."""
        internal, record = location.partition.internal_partition, location.record
        if record is None:
            return cls(internal, None, "", 0, rows, checksum)
        return cls(internal, record.partition.internal_partition, record.origin, record.deletions, rows, checksum)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Values that no other location has, even one that took its name later."""
        if self.partition is None:
            return self.internal, self.rows, self.checksum
        return self.partition, self.origin, self.deletions


@dataclass(frozen=True, slots=True)
class MergeRecord:
    """The record that a merged location has of its origin, in the file of an imported location's position record.

    Attributes:
        job: The merge that made it.
        rows: Its rows.
        parts: What the merge took, all of its locations together; None: a merge that did not record it.
    """

    job: str
    rows: int
    parts: tuple[MergedPart, ...] | None = field(default=None)

    def to_json(self) -> bytes:
        """Return the record as it is stored."""
        return write_document(asdict(self))

    @classmethod
    def read(cls, path: str) -> MergeRecord | None:
        """Return the record of a location; None when no merge of sawlog made it.

        Raises:
            FormatError: When it is none.
        """
        record_path = os.path.join(path, RECORD_NAME)
        document = read_document(record_path)
        if document is None:
            return None
        record: MergeRecord = parse_json_as(document, cls, f"{record_path}: not the record of a merge")
        return record


def list_parts(locations: Iterable[TreeLocation]) -> tuple[list[MergedPart], list[TreeLocation]]:
    """Return parts that historical locations were made of, and the locations that do not say so."""
    jobs: dict[str, tuple[MergedPart, ...]] = {}
    unknown = []
    for location in locations:
        record = MergeRecord.read(location.path)
        if record is None or record.parts is None:
            unknown.append(location)
        else:
            jobs[record.job] = record.parts
    return [part for parts in jobs.values() for part in parts], unknown


def select_void_parts(parts: Iterable[MergedPart], locations: Iterable[TreeLocation]) -> list[MergedPart]:
    """Return parts whose partition was deleted since, by the intraday locations that there are."""
    records = [location.record for location in locations if location.record is not None]
    deletions: Mapping[str, int] = {
        partition: Progress.of(
            record for record in records if record.partition.internal_partition == partition
        ).deletions
        for partition in {record.partition.internal_partition for record in records}
    }
    return [part for part in parts if part.partition is not None and part.deletions < deletions.get(part.partition, 0)]


def read_document(path: str) -> dict[str, Any] | None:
    """Return a small JSON record of ours, its version taken off; None when there is none.

    Raises:
        FormatError: When it is none, or of another version.
    """
    data = read_small(path)
    if data is None:
        return None
    document: dict[str, Any] = parse_json_as(decode_json(data), dict[str, Any], f"{path}: not a record of sawlog")
    version = document.pop("version", None)
    if version != _VERSION:
        raise FormatError(f"{path}: a record of version {version}; known is {_VERSION}")
    return document


def write_document(document: Mapping[str, Any]) -> bytes:
    """Return a record as `read_document` takes it."""
    return (json.dumps({"version": _VERSION, **document}, indent=1, sort_keys=True) + "\n").encode()


_SCHEMA = pa.schema([pa.field("end", pa.int64(), nullable=False), pa.field("part", pa.int32(), nullable=False)])


class PartsWriter:
    """Takes the parts of rows, batch by batch."""

    def __init__(self) -> None:
        self._data = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._stream: Any = pa.ipc.new_stream(self._data, _SCHEMA, options=options)
        self._row = 0

    def add(self, parts: NDArray[np.int64]) -> None:
        """Take the parts of the next rows."""
        if not len(parts):
            return
        ends = np.append(np.flatnonzero(np.diff(parts)), len(parts) - 1) + 1
        columns = [make_array(ends + self._row, pa.int64()), make_array(parts[ends - 1], pa.int32())]
        self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._row += len(parts)

    def finish(self) -> bytes:
        """Return the content of the file."""
        self._stream.close()
        return self._data.getvalue()


@dataclass(frozen=True, slots=True)
class PartsOfRows:
    """The parts of the rows of a location."""

    ends: NDArray[np.int64]
    parts: NDArray[np.int64]

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the parts of some rows; a row after the last one belongs to none (-1)."""
        places = np.searchsorted(self.ends, rows, side="right")
        return np.append(self.parts, -1)[places]


def read_parts(path: str) -> PartsOfRows | None:
    """Return the parts of the rows of a merged location; None when all of them are of its only part.

    Raises:
        FormatError: When the file is damaged.
    """
    parts_path = os.path.join(path, PARTS_NAME)
    try:
        with open(parts_path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    stream = call_decoder(pa.ipc.open_stream, data)
    table = stream if isinstance(stream, Undecodable) else call_decoder(stream.read_all)
    if isinstance(table, Undecodable):
        raise FormatError(f"{parts_path}: not the parts of a merged location: {table.detail}")
    if table.schema != _SCHEMA:
        raise FormatError(f"{parts_path}: not the parts of a merged location")
    return PartsOfRows(
        view_values(combine_column(table.column("end")), np.int64),
        view_values(combine_column(table.column("part")), np.int32).astype(np.int64),
    )
