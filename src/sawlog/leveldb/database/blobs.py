"""Values that RocksDB and Pebble keep apart from their keys, in blob files; an entry says in which, and where."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, unpack_booleans, view_values
from sawlog.errors import FINDING_ERRORS
from sawlog.format.damage import MISSING_FILE, UNSUPPORTED, Damage, Findings
from sawlog.kernels.varints import decode_varints, encode_varint
from sawlog.leveldb.columns import KEY, OPERATION, STAMP, VALUE
from sawlog.leveldb.database.layout import (
    BLOB_CHECKSUM,
    BLOB_FILE_FOOTER,
    BLOB_FILE_HEADER,
    BLOB_FOOTER_CHECKSUM,
    BLOB_HEADER_CHECKSUM,
    BLOB_KEY_SIZE,
    BLOB_MAGIC,
    BLOB_MAGIC_NUMBER,
    BLOB_RECORD_HEADER,
    BLOB_VALUE_SIZE,
    BLOB_VERSION,
    LAST_BLOB_VERSION,
    VALUE_CHECKSUM_TYPE,
    VALUE_FOOTER_CHECKSUM,
    VALUE_FOOTER_SIZES,
    VALUE_INDEX_OFFSET,
    VALUE_INDEX_SIZE,
    VALUE_MAGIC_SIZE,
    VALUE_MAGICS,
    VALUE_PROPERTIES_OFFSET,
    VALUE_PROPERTIES_SIZE,
    VALUE_VERSION,
    DatabaseDamageKind,
)
from sawlog.leveldb.database.version import DatabaseVersion, LiveBlobs
from sawlog.leveldb.log.kernels import compute_masked_checksum
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.addresses import BlobIndex, find_addresses, find_inline_value, insert_values
from sawlog.leveldb.table.blocks import BlockRules, make_block_damage
from sawlog.leveldb.table.layout import SIZED_VERSION, TRAILER_SIZE, Checksum
from sawlog.leveldb.table.pebble import BlockColumns, MalformedError, Slices, UnknownLayoutError
from sawlog.leveldb.table.rows import BATCH_BYTES
from sawlog.storage import Source, Storage


def _find_record(index: BlobIndex, key: bytes) -> int:
    """Return the offset of the record of a key that holds a value."""
    return index.offset - len(key) - BLOB_RECORD_HEADER


class BlobPart(NamedTuple):
    """A part of a blob file.

    Attributes:
        offset: Where it begins.
        length: Its bytes.
        wrong: What is wrong there, if anything.
        header: Whether it leads to values.
        newer: Whether what is wrong is merely not known.
    """

    offset: int
    length: int
    wrong: str = ""
    header: bool = False
    newer: bool = False

    @classmethod
    def of(cls, offset: int, length: int, error: MalformedError) -> BlobPart:
        """Return a part of which an error says what is wrong."""
        return cls(offset, length, str(error), newer=isinstance(error, _NEWER))


class UnknownVersionError(MalformedError):
    """A blob file of a version that is not known; the caller reports it as unsupported."""

    def __init__(self, subject: str, last_version: int) -> None:
        super().__init__(
            f"{subject} of a blob file, which this version of sawlog does not know; known up to {last_version}"
        )


class RecordFile:
    """A blob file of RocksDB's.

    Raises:
        UnknownVersionError: When it is of a version that is not known.
    """

    def __init__(self, source: Source, *, verify: bool, closed: bool = True) -> None:
        self._source = source
        self._verify = verify
        head = bytes(source.read_window(0, min(BLOB_FILE_HEADER, source.size)))
        if len(head) == BLOB_FILE_HEADER and BLOB_MAGIC_NUMBER.of(head) == BLOB_MAGIC:
            version = BLOB_VERSION.of(head)
            if version > LAST_BLOB_VERSION:
                raise UnknownVersionError(f"version {version}", LAST_BLOB_VERSION)
        footer_start = source.size - BLOB_FILE_FOOTER
        has_footer = footer_start >= BLOB_FILE_HEADER and (
            BLOB_MAGIC_NUMBER.of(bytes(source.read_window(footer_start, BLOB_MAGIC_NUMBER.end))) == BLOB_MAGIC
        )
        self._closed = closed or has_footer

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    def read_value(self, index: BlobIndex, key: bytes) -> bytes:
        """Return a value as it is stored, if the record around it is that of the key.

        Raises:
            MalformedError: When it is not there, or not whole.
        """
        start = _find_record(index, key)
        if start < 0 or index.offset + index.size > self._source.size:
            raise MalformedError("no such value")
        record = bytes(self._source.read_window(start, BLOB_RECORD_HEADER + len(key) + index.size))
        header, content = record[:BLOB_RECORD_HEADER], record[BLOB_RECORD_HEADER:]
        if (BLOB_KEY_SIZE.of(header), BLOB_VALUE_SIZE.of(header)) != (len(key), index.size):
            raise MalformedError("a record of other sizes")
        if not self._is_whole(header, content) or not content.startswith(key):
            raise MalformedError("a damaged record, or that of another key")
        return content[len(key) :]

    def iterate_parts(self) -> Iterator[BlobPart]:
        """Yield all of the file. After a damaged header of a record, the next one cannot be located."""
        size = self._source.size
        sound = (
            size >= BLOB_FILE_HEADER
            and BLOB_MAGIC_NUMBER.of(bytes(self._source.read_window(0, BLOB_MAGIC_NUMBER.end))) == BLOB_MAGIC
        )
        yield BlobPart(0, min(BLOB_FILE_HEADER, size), "" if sound else "the header is damaged", header=True)
        limit = max(size - BLOB_FILE_FOOTER, min(BLOB_FILE_HEADER, size)) if self._closed else size
        position = BLOB_FILE_HEADER
        while position < limit:
            header = bytes(self._source.read_window(position, min(BLOB_RECORD_HEADER, limit - position)))
            is_sound = len(header) == BLOB_RECORD_HEADER and self._is_sound(header)
            length = BLOB_RECORD_HEADER + BLOB_KEY_SIZE.of(header) + BLOB_VALUE_SIZE.of(header) if is_sound else 0
            if not self._closed and (length > limit - position or len(header) < BLOB_RECORD_HEADER):
                yield BlobPart(position, limit - position, header=True)  # a record that is being written
                break
            if not is_sound or length > limit - position:
                yield BlobPart(
                    position,
                    limit - position,
                    "the header of a record is damaged: where the next one begins is not known",
                )
                break
            content = bytes(self._source.read_window(position + BLOB_RECORD_HEADER, length - BLOB_RECORD_HEADER))
            yield BlobPart(position, length, "" if self._is_whole(header, content) else "a damaged record")
            position += length
        if limit < size:
            footer = bytes(self._source.read_window(limit, size - limit))
            sound = len(footer) == BLOB_FILE_FOOTER and BLOB_MAGIC_NUMBER.of(footer) == BLOB_MAGIC
            sound = sound and self._checks(footer[: BLOB_FOOTER_CHECKSUM.offset], BLOB_FOOTER_CHECKSUM.of(footer))
            yield BlobPart(limit, size - limit, "" if sound else "the footer is damaged", header=True)

    def _is_sound(self, header: bytes) -> bool:
        return self._checks(header[: BLOB_HEADER_CHECKSUM.offset], BLOB_HEADER_CHECKSUM.of(header))

    def _is_whole(self, header: bytes, content: bytes) -> bool:
        """Return whether a record is: its header, and key and value."""
        return self._is_sound(header) and self._checks(content, BLOB_CHECKSUM.of(header))

    def _checks(self, data: bytes, checksum: int) -> bool:
        return not self._verify or compute_masked_checksum(data) == checksum


_NEWER = (UnknownVersionError, UnknownLayoutError)
_BLOCK = (1 << 32) - 1
"""What a virtual block says of where it is; the number of its first value there is above."""
MARK = b"P"
"""Before an address; what RocksDB's entries lead to begins with 1 or 2."""


_NOWHERE = "nothing leads to these bytes"


class Address(NamedTuple):
    """The address of a value: the number of its file, its bytes, the number of its block, and its own number there."""

    file: int
    size: int
    block: int
    value: int


def insert_addresses(batch: pa.RecordBatch, files: tuple[int, ...], operation: int) -> pa.RecordBatch:
    """Return entries of a table with addresses in place of what leads to the files that the MANIFEST lists for it."""
    places = np.flatnonzero(view_values(batch.column(OPERATION), np.uint8) == operation)
    if not len(places) or VALUE not in batch.schema.names:
        return batch
    values = batch.column(VALUE).to_pylist()
    for place in places.tolist():
        numbers = list(decode_varints(values[place]))
        if len(numbers) == 4 and numbers[0] < len(files):
            numbers[0] = files[numbers[0]]
            values[place] = MARK + b"".join(map(encode_varint, numbers))
    value_index = batch.schema.get_field_index(VALUE)
    return batch.set_column(value_index, batch.schema.field(value_index), make_array(values, pa.binary()))


def _read_footer(source: Source) -> bytes:
    """Return the footer of a blob file of Pebble's.

    Raises:
        UnknownVersionError: When it, or the type of its checksums, is not known.
        MalformedError: When it is damaged.
    """
    length = min(max(VALUE_FOOTER_SIZES.values()), source.size)
    tail = bytes(source.read_window(source.size - length, length))
    last_version = max(VALUE_FOOTER_SIZES)
    first = VALUE_MAGICS.get(tail[-VALUE_MAGIC_SIZE:])
    if first is None:
        raise MalformedError("no blob file of Pebble's")
    footer = tail[-VALUE_FOOTER_SIZES[first] :]
    if len(footer) < VALUE_FOOTER_SIZES[first]:
        raise MalformedError("a footer that is cut off")
    if compute_masked_checksum(footer[VALUE_FOOTER_CHECKSUM.end :]) != VALUE_FOOTER_CHECKSUM.of(footer):
        raise MalformedError("a footer with another checksum than it should have")
    version = VALUE_VERSION.of(footer)
    if version > last_version or (version > 1 and first == 1):
        raise UnknownVersionError(f"version {version}", last_version)
    if version < first:
        raise MalformedError(f"version {version} in a footer of version {first}")
    if VALUE_CHECKSUM_TYPE.of(footer) not in set(Checksum):
        raise UnknownVersionError(f"checksum type {VALUE_CHECKSUM_TYPE.of(footer)}", max(Checksum))
    return footer


class ValueFile:
    """A blob file of Pebble's.

    Raises:
        UnknownVersionError: When it, or what it names, is of a version that is not known.
        MalformedError: When its footer or its index is damaged.
    """

    def __init__(self, source: Source, *, verify: bool, longest: int) -> None:
        self._source = source
        footer = _read_footer(source)
        limit = source.size - len(footer)
        self._index = VALUE_INDEX_OFFSET.of(footer), VALUE_INDEX_SIZE.of(footer) + TRAILER_SIZE
        checksum = Checksum(VALUE_CHECKSUM_TYPE.of(footer))
        self._properties = None
        if VALUE_VERSION.of(footer) > 1:
            self._properties = VALUE_PROPERTIES_OFFSET.of(footer), VALUE_PROPERTIES_SIZE.of(footer) + TRAILER_SIZE
            if self._properties[0] < sum(self._index):
                raise MalformedError("properties before the end of the index")
        self._rules = BlockRules("pebble", 1, checksum, 0, limit, verify, longest)
        index = BlockColumns(self._read_content(self._index[0], VALUE_INDEX_SIZE.of(footer)), 4)
        if max(index.rows, index.read_number(0, 4)) > len(index.data):
            raise MalformedError("more blocks than the index can name")
        self._virtual = index.read_integers(0, index.read_number(0, 4)).tolist()
        self._offsets: list[int] = index.read_integers(1, index.rows + 1).tolist()
        if self._offsets != sorted(self._offsets) or (self._offsets and self._offsets[-1] > self._index[0]):
            raise MalformedError("blocks that are not one after the other")
        self._last_block: tuple[int, BlockColumns, Slices] | None = None

    def _read_content(self, offset: int, size: int) -> pa.Buffer:
        if size <= 0:
            raise MalformedError("a block without content")
        content = self._rules.read(self._source, offset, size)[0]
        if isinstance(content, tuple):
            if content[0].label == UNSUPPORTED:
                raise UnknownLayoutError(*content[:2])
            raise MalformedError("a damaged block")
        return content

    def _find_place(self, address: Address) -> tuple[int, int]:
        """Return the block that holds a value, and its number there."""
        block, number = address.block, address.value
        if self._virtual:
            if block >= len(self._virtual):
                raise MalformedError("no such block")
            number += self._virtual[block] >> 32
            block = self._virtual[block] & _BLOCK
        if block + 1 >= len(self._offsets):
            raise MalformedError("no such block")
        return block, number

    def find_block(self, address: Address) -> int:
        """Return the file offset of the block that holds a value.

        Raises:
            MalformedError: When there is no such block.
        """
        return self._offsets[self._find_place(address)[0]]

    def read_value(self, address: Address) -> bytes:
        """Return a value.

        Raises:
            MalformedError: When it is not there.
        """
        block, number = self._find_place(address)
        if self._last_block is None or self._last_block[0] != block:
            columns = BlockColumns(self._read_block(block))
            if columns.rows > len(columns.data):
                raise MalformedError("more values than the block can hold")
            self._last_block = block, columns, columns.read_strings(0, columns.rows)
        _, columns, slices = self._last_block
        if number >= columns.rows or int(slices.lengths[number]) != address.size:
            raise MalformedError("no such value")
        start = int(slices.starts[number])
        return columns.data[start : start + address.size].tobytes()

    def _read_block(self, block: int) -> pa.Buffer:
        start, end = self._offsets[block : block + 2]
        return self._read_content(start, end - start - TRAILER_SIZE)

    def iterate_parts(self) -> Iterator[BlobPart]:
        """Yield all of the file."""
        position = 0
        for block, (start, end) in enumerate(pairwise(self._offsets)):
            if position < start:
                yield BlobPart(position, start - position, _NOWHERE)
            if start == end:
                continue
            try:
                self._read_block(block)
            except MalformedError as error:
                yield BlobPart.of(start, end - start, error)
            else:
                yield BlobPart(start, end - start)
            position = end
        start, length = self._index
        if position < start:
            yield BlobPart(position, start - position, _NOWHERE)
        is_wrong = len(set(self._offsets)) < len(self._offsets)
        yield BlobPart(start, length, "an index of blocks without content" if is_wrong else "", header=not is_wrong)
        end = start + length
        place, size = self._properties or (end, 0)
        if size > TRAILER_SIZE and place < self._rules.limit:
            if end < place:
                yield BlobPart(end, place - end, _NOWHERE)
            yield self._judge_properties(place, size)
            end = place + size
        if end < self._rules.limit:
            yield BlobPart(end, self._rules.limit - end, _NOWHERE)
        yield BlobPart(self._rules.limit, self._source.size - self._rules.limit, header=True)

    def _judge_properties(self, offset: int, size: int) -> BlobPart:
        """Return the properties, which say how values were compressed; no value depends on them."""
        length = min(size, self._rules.limit - offset)
        try:
            self._read_content(offset, size - TRAILER_SIZE)
        except MalformedError as error:
            return BlobPart.of(offset, length, error)
        return BlobPart(offset, length, header=True)


BLOB_INDEX = "put_blob_index"
_CODES = {BLOB_INDEX: layout.BLOB_INDEX, "put_entity": layout.PUT_ENTITY}
"""Operations whose entries may have addresses in place of values."""


def open_blob_file(blobs: LiveBlobs, source: Source, *, verify: bool, longest: int) -> ValueFile | RecordFile:
    """Return a blob file, by whose it is.

    Raises:
        MalformedError: When nothing of it can be found.
    """
    if blobs.dialect == "rocksdb":
        return RecordFile(source, verify=verify, closed=blobs.closed)
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
        lost_values: How many entries were left out.
    """

    def __init__(
        self, version: DatabaseVersion, storage: Storage, findings: Findings, *, verify: bool, longest: int
    ) -> None:
        self._version = version
        self._storage = storage
        self._findings = findings
        self._verify = verify
        self._longest = longest
        self._files: dict[int, ValueFile | RecordFile | MalformedError] = {}
        self._rules = BlockRules("rocksdb", SIZED_VERSION, Checksum.CRC32C, 0, 0, verify, longest)
        self.lost_values = 0
        self._open = ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def resolve_values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with `key`, `operation` and `value`, with values in the places of those that lead to them.

        Where keys have timestamps, batches need `timestamp` too.

        They are cut by the bytes of these values: many entries may lead to the same.
        """
        import pyarrow.compute as pc

        for batch in batches:
            names = batch.column(OPERATION)
            is_address = pc.is_in(names, value_set=make_array(list(_CODES), pa.string()))
            places = np.flatnonzero(unpack_booleans(is_address))
            first = size = 0
            values: dict[int, bytes | None] = {}
            for place in places.tolist():
                key, value = batch.column(KEY)[place].as_py(), batch.column(VALUE)[place].as_py()
                if STAMP in batch.schema.names:  # records have the keys of tables
                    key += batch.column(STAMP)[place].as_py().to_bytes(layout.STAMP_WIDTH, "little")
                try:
                    value = self._read(key, _CODES[names[place].as_py()], value)
                except FINDING_ERRORS:  # the policy is `fail`: the rows before are delivered
                    if place > first:
                        yield self._replace_values(batch.slice(first, place - first), values)
                    raise
                values[place - first] = value
                size += len(value or b"")
                if size >= BATCH_BYTES:
                    yield self._replace_values(batch.slice(first, place + 1 - first), values)
                    first, size, values = place + 1, 0, {}
            remainder = batch.slice(first)
            if remainder.num_rows or not first:
                yield self._replace_values(remainder, values) if values else remainder

    def _replace_values(self, batch: pa.RecordBatch, resolved_values: dict[int, bytes | None]) -> pa.RecordBatch:
        """Return a batch with values in the places of some; without the rows of those that are lost."""
        values = batch.column(VALUE).to_pylist()
        for place, value in resolved_values.items():
            values[place] = value
        value_index = batch.schema.get_field_index(VALUE)
        has_value = np.array([value is not None for value in values])
        columns = [
            *batch.columns[:value_index],
            make_array(values, batch.schema.field(value_index).type),
            *batch.columns[value_index + 1 :],
        ]
        if has_value.all():
            return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        intact = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).filter(make_array(has_value, pa.bool_()))
        self.lost_values += int((~has_value).sum())
        return pa.RecordBatch.from_arrays(intact.columns, schema=batch.schema)

    def _read(self, key: bytes, operation: int, value: bytes) -> bytes | None:
        marked = operation == layout.BLOB_INDEX and value.startswith(MARK)
        numbers = list(decode_varints(value[1:])) if marked else []
        places = [Address(*numbers)] if len(numbers) == 4 else find_addresses(operation, value)
        if operation == layout.BLOB_INDEX and not marked and value[:1] > bytes([layout.BLOB_WITH_EXPIRATION]):
            detail = f"the value of the key {key[:40]!r} is elsewhere, by an address of type {value[0]}"
            limits = f"known up to {layout.BLOB_WITH_EXPIRATION}"
            self._findings.add_damage(Damage(self._version.path, 0, 0, UNSUPPORTED, f"{detail}; {limits}"))
            return None
        contents = []
        if operation == layout.BLOB_INDEX and (inline := find_inline_value(value)) is not None:
            return inline
        for place in places:
            content = self._find_value(place, key)
            if isinstance(content, Damage) and (former_key := self._make_former_key(key)) is not None:
                former = self._find_value(place, former_key)
                content = content if isinstance(former, Damage) else former
            if isinstance(content, Damage):
                self._findings.add_damage(content)
                return None
            contents.append(content)
        if not contents and operation == layout.BLOB_INDEX and self._version.dialect == "pebble":
            detail = f"in which blob file the value of the key {key[:40]!r} is, only the MANIFEST says"
            self._findings.add_damage(Damage(self._version.path, 0, 0, MISSING_FILE, detail))
            return None
        return insert_values(operation, value, contents) if contents else value

    def _make_former_key(self, key: bytes) -> bytes | None:
        """Return the key of a record that is older than the switching on or off of timestamps.

        `None` where there was none.
        """
        unstamped = bytes(layout.STAMP_WIDTH)
        if not self._version.has_stamps:
            return key + unstamped if self._version.is_plain else None
        return key.removesuffix(unstamped) if self._version.stripped and key.endswith(unstamped) else None

    def _find_value(self, place: Address | BlobIndex, key: bytes) -> bytes | Damage:
        """Return a value, or why it is not there, at the record or block that holds it; the file counts its bytes."""
        number = place.file
        if number not in self._version.blobs:
            path = posixpath.join(self._version.directory, f"{number:06d}.blob")
            return _make_lost_damage(path, 0, DatabaseDamageKind.MISSING_FILE, place.size, key)
        path = self._version.blobs[number].file.path
        offset = 0
        try:
            file = self._open_file(number)
            if isinstance(place, Address) and isinstance(file, ValueFile):
                offset = file.find_block(place)
                return file.read_value(place)
            if isinstance(place, BlobIndex) and isinstance(file, RecordFile):
                offset = _find_record(place, key) if 0 <= _find_record(place, key) <= file.size else 0
                content = self._rules.expand(pa.py_buffer(file.read_value(place, key)), place.compression)
                if not isinstance(content, tuple):
                    expanded: bytes = content.to_pybytes()
                    return expanded
                if content[0].label == UNSUPPORTED:
                    return make_block_damage(path, offset, 0, content)
        except FileNotFoundError:
            return _make_lost_damage(path, 0, DatabaseDamageKind.MISSING_FILE, place.size, key)
        except MalformedError as error:
            if isinstance(error, _NEWER):
                return Damage(path, offset, 0, UNSUPPORTED, f"the value that the key {key[:40]!r} leads to: {error}")
        return _make_lost_damage(path, offset, DatabaseDamageKind.BAD_BLOB, place.size, key)

    def _open_file(self, number: int) -> ValueFile | RecordFile:
        """Return a blob file.

        Raises:
            MalformedError: When nothing of it can be found.
        """
        if number not in self._files:
            blobs = self._version.blobs[number]
            source = self._storage.open(blobs.file.path)
            self._open.callback(source.close)
            try:
                self._files[number] = open_blob_file(blobs, source, verify=self._verify, longest=self._longest)
            except MalformedError as error:
                self._files[number] = error
        file = self._files[number]
        if isinstance(file, MalformedError):
            raise file
        return file


def _make_lost_damage(path: str, offset: int, kind: DatabaseDamageKind, size: int, key: bytes) -> Damage:
    detail = f"the value of {size} bytes that the key {key[:40]!r} leads to is not there, or not whole"
    return Damage(path, offset, 0, kind.label, detail)
