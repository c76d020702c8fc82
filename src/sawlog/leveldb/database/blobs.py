"""Values that RocksDB and Pebble keep apart from their keys, in blob files; an entry says in which, and where."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.damage import UNSUPPORTED, Damage, Findings
from sawlog.leveldb.database.layout import Kind
from sawlog.leveldb.database.value_files import Address, ValueFile, address_of
from sawlog.leveldb.database.value_records import RecordFile, record_of
from sawlog.leveldb.database.version import DatabaseVersion, LiveBlobs
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.addresses import BlobIndex, addresses_of, in_place
from sawlog.leveldb.table.blocks import BlockRules, block_damage
from sawlog.leveldb.table.columnar import MalformedError
from sawlog.leveldb.table.columns import KEY, OPERATION, VALUE
from sawlog.leveldb.table.layout import SIZED_VERSION, Checksum
from sawlog.leveldb.table.rows import BATCH_BYTES

if TYPE_CHECKING:
    from sawlog.storage import Source, Storage

BLOB_INDEX = "put_blob_index"
_CODES = {BLOB_INDEX: layout.BLOB_INDEX, "put_entity": layout.PUT_ENTITY}
"""Operations whose entries may have addresses in place of values."""


def blob_file(blobs: LiveBlobs, source: Source, *, verify: bool, longest: int) -> ValueFile | RecordFile:
    """A blob file, by whose it is.

    Raises:
        MalformedError: When nothing of it can be found.
    """
    if blobs.dialect == "rocksdb":
        return RecordFile(source, verify=verify)
    return ValueFile(source, verify=verify, longest=longest)


class Blobs:
    """The blob files of a database.

    Args:
        version: The database.
        storage: Where it is.
        verify: Whether checksums are verified.
        longest: Longer values are damage.
        findings: Where values that cannot be read are reported; their entries are left out then.

    Attributes:
        lost: How many entries were left out.
    """

    def __init__(
        self, version: DatabaseVersion, storage: Storage, findings: Findings, *, verify: bool, longest: int
    ) -> None:
        self._version = version
        self._storage = storage
        self._findings = findings
        self._verify = verify
        self._longest = longest
        self._files: dict[int, ValueFile | RecordFile | None] = {}
        self._rules = BlockRules("rocksdb", SIZED_VERSION, Checksum.CRC32C, 0, 0, verify, longest)
        self.lost = 0
        self._open = ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def resolved(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches with `key`, `operation` and `value`, with values in the places of those that lead to them.

        They are cut by the bytes of these values: many entries may lead to the same.
        """
        for batch in batches:
            names = batch.column(OPERATION).to_numpy(zero_copy_only=False)
            places = np.flatnonzero(np.isin(names, list(_CODES)))
            first = size = 0
            values: dict[int, bytes | None] = {}
            for place in places.tolist():
                key, value = batch.column(KEY)[place].as_py(), batch.column(VALUE)[place].as_py()
                value = self._read(key, _CODES[names[place]], value)
                values[place - first] = value
                size += len(value or b"")
                if size >= BATCH_BYTES:
                    yield self._replaced(batch.slice(first, place + 1 - first), values)
                    first, size, values = place + 1, 0, {}
            rest = batch.slice(first)
            if rest.num_rows or not first:
                yield self._replaced(rest, values) if values else rest

    def _replaced(self, batch: pa.RecordBatch, found: dict[int, bytes | None]) -> pa.RecordBatch:
        """A batch with values in the places of some; without the rows of those that are lost."""
        values = batch.column(VALUE).to_pylist()
        for place, value in found.items():
            values[place] = value
        at = batch.schema.get_field_index(VALUE)
        whole = np.array([value is not None for value in values])
        columns = [*batch.columns[:at], array_of(values, batch.schema.field(at).type), *batch.columns[at + 1 :]]
        if whole.all():
            return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        kept = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).filter(array_of(whole, pa.bool_()))
        self.lost += int((~whole).sum())
        return pa.RecordBatch.from_arrays(kept.columns, schema=batch.schema)

    def _read(self, key: bytes, operation: int, value: bytes) -> bytes | None:
        address = address_of(value) if operation == layout.BLOB_INDEX else None
        places = [address] if address else addresses_of(operation, value)
        contents = []
        for place in places:
            found = self._found(place, key)
            if isinstance(found, Damage):
                self._findings.damage(found)
                return None
            contents.append(found)
        return in_place(operation, value, contents) if contents else value

    def _found(self, place: Address | BlobIndex, key: bytes) -> bytes | Damage:
        """A value, or why it is not there: at the record or block that would hold it, whose bytes the file counts."""
        number = place.file
        if number not in self._version.blobs:
            path = posixpath.join(posixpath.dirname(self._version.manifest.path), f"{number:06d}.blob")
            return _lost(path, 0, Kind.MISSING_FILE, place.size, key)
        path = self._version.blobs[number].file.path
        offset = 0
        try:
            file = self._file(number)
            if isinstance(place, Address) and isinstance(file, ValueFile):
                offset = file.block(place)
                return file.value(place)
            if isinstance(place, BlobIndex) and isinstance(file, RecordFile):
                offset = record_of(place, key) if 0 <= record_of(place, key) <= file.size else 0
                content = self._rules.expand(pa.py_buffer(file.value(place, key)), place.compression)
                if not isinstance(content, tuple):
                    expanded: bytes = content.to_pybytes()
                    return expanded
                if content[0].label == UNSUPPORTED:
                    return block_damage(path, offset, 0, content)
        except FileNotFoundError:
            return _lost(path, 0, Kind.MISSING_FILE, place.size, key)
        except MalformedError:
            pass
        return _lost(path, offset, Kind.BAD_BLOB, place.size, key)

    def _file(self, number: int) -> ValueFile | RecordFile | None:
        """A blob file; `None` where nothing of it can be found."""
        if number not in self._files:
            blobs = self._version.blobs[number]
            source = self._storage.open(blobs.file.path)
            self._open.callback(source.close)
            self._files[number] = None
            self._files[number] = blob_file(blobs, source, verify=self._verify, longest=self._longest)
        return self._files[number]


def _lost(path: str, offset: int, kind: Kind, size: int, key: bytes) -> Damage:
    detail = f"the value of {size} bytes that the key {key[:40]!r} leads to is not there, or not whole"
    return Damage(path, offset, 0, kind.name.lower(), detail)
