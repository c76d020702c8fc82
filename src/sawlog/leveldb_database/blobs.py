"""Values that RocksDB and Pebble keep apart from their keys, in blob files; an entry says in which, and where."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.damage import Damage, Findings
from sawlog.leveldb_database.layout import (
    BLOB_CHECKSUM,
    BLOB_HEADER_CHECKSUM,
    BLOB_IN_FILE,
    BLOB_KEY_SIZE,
    BLOB_RECORD_HEADER,
    BLOB_VALUE_SIZE,
    BLOB_WITH_EXPIRATION,
    Kind,
)
from sawlog.leveldb_database.value_files import Address, ValueFile, address_of
from sawlog.leveldb_log.kernels import masked_checksum
from sawlog.leveldb_table.blocks import BlockRules
from sawlog.leveldb_table.columns import KEY, OPERATION, VALUE
from sawlog.leveldb_table.layout import SIZED_VERSION, Checksum
from sawlog.varints import decode_varints

if TYPE_CHECKING:
    from sawlog.storage import Source, Storage

BLOB_INDEX = "put_blob_index"


class BlobIndex(NamedTuple):
    """Where a value is: the number of its file, its place there, its bytes as stored, and how they are compressed."""

    file: int
    offset: int
    size: int
    compression: int


def blob_index(value: bytes) -> BlobIndex | None:
    """What the value of an entry of the type `put_blob_index` says; `None` where it is no place in a file."""
    if not value or value[0] not in (BLOB_IN_FILE, BLOB_WITH_EXPIRATION):
        return None
    skipped = 1 if value[0] == BLOB_WITH_EXPIRATION else 0
    numbers = list(decode_varints(value[1:-1]))[skipped:]
    if len(numbers) != 3:
        return None
    file, offset, size = numbers
    return BlobIndex(file, offset, size, value[-1])


class Blobs:
    """The blob files of a database.

    Args:
        directory: The database.
        storage: Where it is.
        verify: Whether checksums are verified.
        longest: Longer values are damage.
        findings: Told of values that cannot be read; their entries are left out then.

    Attributes:
        lost: How many entries were left out.
    """

    def __init__(self, directory: str, storage: Storage, findings: Findings, *, verify: bool, longest: int) -> None:
        self._directory = directory
        self._storage = storage
        self._findings = findings
        self._verify = verify
        self._longest = longest
        self._files: dict[int, ValueFile | None] = {}
        self._rules = BlockRules("rocksdb", SIZED_VERSION, Checksum.CRC32C, 0, 0, verify, longest)
        self.lost = 0
        self._sources: dict[int, Source | None] = {}
        self._open = ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def resolved(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches with `key`, `operation` and `value`, with values in the places of those that lead to them."""
        for batch in batches:
            names = batch.column(OPERATION).to_numpy(zero_copy_only=False)
            places = np.flatnonzero(names == BLOB_INDEX)
            yield self._replaced(batch, places) if len(places) else batch

    def _replaced(self, batch: pa.RecordBatch, places: np.ndarray) -> pa.RecordBatch:
        values: list[bytes | None] = batch.column(VALUE).to_pylist()
        for place in places.tolist():
            values[place] = self._read(batch.column(KEY)[place].as_py(), values[place] or b"")
        at = batch.schema.get_field_index(VALUE)
        whole = np.array([value is not None for value in values])
        columns = [*batch.columns[:at], pa.array(values, batch.schema.field(at).type), *batch.columns[at + 1 :]]
        if whole.all():
            return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        kept = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).filter(pa.array(whole))
        self.lost += int((~whole).sum())
        return pa.RecordBatch.from_arrays(kept.columns, schema=batch.schema)

    def _read(self, key: bytes, value: bytes) -> bytes | None:
        address = address_of(value)
        if address is not None:
            return self._addressed(address, key)
        index = blob_index(value)
        if index is None:
            return value
        path = self._path(index.file)
        found = self._stored(path, index, key)
        kind = found if isinstance(found, Kind) else Kind.BAD_BLOB
        if isinstance(found, bytes):
            content = self._rules.expand(pa.py_buffer(found), index.compression)
            if not isinstance(content, tuple):
                expanded: bytes = content.to_pybytes()
                return expanded
        self._lose(path, index.offset, index.size, kind, key)
        return None

    def _lose(self, path: str, offset: int, size: int, kind: Kind, key: bytes) -> None:
        detail = f"the value of {size} bytes that the key {key[:40]!r} leads to is not there, or not whole"
        self._findings.damage(Damage(path, offset, size, kind.name.lower(), detail))

    def _addressed(self, address: Address, key: bytes) -> bytes | None:
        """A value in one of Pebble's files."""
        path = self._path(address.file)
        kind = Kind.BAD_BLOB
        try:
            if address.file not in self._files:
                source = self._source(path)
                kind = Kind.BAD_BLOB if source is not None else Kind.MISSING_FILE
                self._files[address.file] = None
                if source is not None:
                    self._files[address.file] = ValueFile(source, verify=self._verify, longest=self._longest)
            file = self._files[address.file]
            if file is not None:
                return file.value(address)
        except ValueError:
            pass
        self._lose(path, 0, address.size, kind, key)
        return None

    def _path(self, number: int) -> str:
        return posixpath.join(self._directory, f"{number:06d}.blob")

    def _stored(self, path: str, index: BlobIndex, key: bytes) -> bytes | Kind:
        """A value as it is stored, if the record around it is that of the key."""
        if index.file not in self._sources:
            self._sources[index.file] = self._source(path)
        source = self._sources[index.file]
        if source is None:
            return Kind.MISSING_FILE
        start = index.offset - len(key) - BLOB_RECORD_HEADER
        length = BLOB_RECORD_HEADER + len(key) + index.size
        if start < 0 or index.offset + index.size > source.size:
            return Kind.BAD_BLOB
        record = bytes(source.window(start, length))
        header, content = record[:BLOB_RECORD_HEADER], record[BLOB_RECORD_HEADER:]
        same = BLOB_KEY_SIZE.of(header) == len(key) and BLOB_VALUE_SIZE.of(header) == index.size
        if not same or not content.startswith(key):
            return Kind.BAD_BLOB
        if self._verify and (
            masked_checksum(header[: BLOB_HEADER_CHECKSUM.offset]) != BLOB_HEADER_CHECKSUM.of(header)
            or masked_checksum(content) != BLOB_CHECKSUM.of(header)
        ):
            return Kind.BAD_BLOB
        return content[len(key) :]

    def _source(self, path: str) -> Source | None:
        try:
            source = self._storage.open(path)
        except FileNotFoundError:
            return None
        self._open.callback(source.close)
        return source
