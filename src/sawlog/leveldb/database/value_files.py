"""Pebble's blob files: blocks of values, an index of the blocks, and a footer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.arrow import array_of, values_of
from sawlog.leveldb.database.layout import (
    VALUE_CHECKSUM_TYPE,
    VALUE_FOOTER_CHECKSUM,
    VALUE_FOOTER_SIZE,
    VALUE_INDEX_OFFSET,
    VALUE_INDEX_SIZE,
    VALUE_MAGIC,
    VALUE_MAGIC_OFFSET,
    VALUE_VERSION,
)
from sawlog.leveldb.database.value_records import Part
from sawlog.leveldb.log.kernels import masked_checksum
from sawlog.leveldb.table.blocks import BlockRules
from sawlog.leveldb.table.columnar import Columns, MalformedError, Slices
from sawlog.leveldb.table.columns import OPERATION, VALUE
from sawlog.leveldb.table.layout import TRAILER_SIZE, Checksum
from sawlog.varints import decode_varints, encode_varint

if TYPE_CHECKING:
    from sawlog.storage import Source

_BLOCK = (1 << 32) - 1
"""What a virtual block says of where it is; the number of its first value there is above."""
MARK = b"P"
"""Before an address; what RocksDB's entries lead to begins with 1 or 2."""


_NOWHERE = "nothing leads to these bytes"


class Address(NamedTuple):
    """Where a value is: the number of its file, its bytes, the number of its block, and its own number there."""

    file: int
    size: int
    block: int
    value: int


def addressed(batch: pa.RecordBatch, files: tuple[int, ...], operation: int) -> pa.RecordBatch:
    """Entries of a table, with addresses instead of what leads to the files that its MANIFEST lists for the table."""
    places = np.flatnonzero(values_of(batch.column(OPERATION), np.uint8) == operation)
    if not len(places) or VALUE not in batch.schema.names:
        return batch
    values = batch.column(VALUE).to_pylist()
    for place in places.tolist():
        numbers = list(decode_varints(values[place]))
        if len(numbers) == 4 and numbers[0] < len(files):
            numbers[0] = files[numbers[0]]
            values[place] = MARK + b"".join(map(encode_varint, numbers))
    at = batch.schema.get_field_index(VALUE)
    return batch.set_column(at, batch.schema.field(at), array_of(values, pa.binary()))


def address_of(value: bytes) -> Address | None:
    """What `addressed` has written."""
    numbers = list(decode_varints(value[1:])) if value.startswith(MARK) else []
    return Address(*numbers) if len(numbers) == 4 else None


class ValueFile:
    """A blob file of Pebble's.

    Args:
        source: The file.
        verify: Whether checksums are verified.
        longest: Blocks that expand to more are damage.

    Raises:
        MalformedError: When its footer or its index is damaged.
    """

    def __init__(self, source: Source, *, verify: bool, longest: int) -> None:
        self._source = source
        footer = bytes(source.window(max(source.size - VALUE_FOOTER_SIZE, 0), min(VALUE_FOOTER_SIZE, source.size)))
        if (
            len(footer) < VALUE_FOOTER_SIZE
            or footer[VALUE_MAGIC_OFFSET:] != VALUE_MAGIC
            or VALUE_VERSION.of(footer) != 1
        ):
            raise MalformedError("no blob file of Pebble's")
        if masked_checksum(footer[VALUE_FOOTER_CHECKSUM.end :]) != VALUE_FOOTER_CHECKSUM.of(footer):
            raise MalformedError("a footer with another checksum than it should have")
        limit = source.size - VALUE_FOOTER_SIZE
        self._index = VALUE_INDEX_OFFSET.of(footer), VALUE_INDEX_SIZE.of(footer) + TRAILER_SIZE
        if VALUE_CHECKSUM_TYPE.of(footer) not in Checksum.__members__.values():
            raise MalformedError("a footer with a type of checksums that is not known")
        checksum = Checksum(VALUE_CHECKSUM_TYPE.of(footer))
        self._rules = BlockRules("pebble", 1, checksum, 0, limit, verify, longest)
        index = Columns(self._block(self._index[0], VALUE_INDEX_SIZE.of(footer)), 4)
        if max(index.rows, index.number(0, 4)) > len(index.data):
            raise MalformedError("more blocks than the index can name")
        self._virtual = index.integers(0, index.number(0, 4)).tolist()
        self._offsets: list[int] = index.integers(1, index.rows + 1).tolist()
        if self._offsets != sorted(self._offsets) or (self._offsets and self._offsets[-1] > self._index[0]):
            raise MalformedError("blocks that are not one after the other")
        self._held: tuple[int, Columns, Slices] | None = None

    def _block(self, offset: int, size: int) -> pa.Buffer:
        content = self._rules.read(self._source, offset, size)[0] if size > 0 else (0, 0, 0)
        if isinstance(content, tuple):
            raise MalformedError("a damaged block")
        return content

    def _place(self, address: Address) -> tuple[int, int]:
        """The block that holds a value, and its number there.

        Raises:
            MalformedError: When there is no such block.
        """
        block, number = address.block, address.value
        if self._virtual:
            if block >= len(self._virtual):
                raise MalformedError("no such block")
            number += self._virtual[block] >> 32
            block = self._virtual[block] & _BLOCK
        if block + 1 >= len(self._offsets):
            raise MalformedError("no such block")
        return block, number

    def block(self, address: Address) -> int:
        """The file offset of the block that holds a value.

        Raises:
            MalformedError: When there is no such block.
        """
        return self._offsets[self._place(address)[0]]

    def value(self, address: Address) -> bytes:
        """A value.

        Raises:
            MalformedError: When it is not there.
        """
        block, number = self._place(address)
        if self._held is None or self._held[0] != block:
            columns = Columns(self._stored(block))
            if columns.rows > len(columns.data):
                raise MalformedError("more values than the block can hold")
            self._held = block, columns, columns.strings(0, columns.rows)
        _, columns, slices = self._held
        if number >= columns.rows or int(slices.lengths[number]) != address.size:
            raise MalformedError("no such value")
        start = int(slices.starts[number])
        return columns.data[start : start + address.size].tobytes()

    def _stored(self, block: int) -> pa.Buffer:
        start, end = self._offsets[block : block + 2]
        return self._block(start, end - start - TRAILER_SIZE)

    def parts(self) -> Iterator[Part]:
        """All of the file."""
        at = 0
        for block, (start, end) in enumerate(pairwise(self._offsets)):
            if at < start:
                yield Part(at, start - at, _NOWHERE)
            try:
                self._stored(block)
            except MalformedError as error:
                yield Part(start, end - start, str(error))
            else:
                yield Part(start, end - start)
            at = end
        start, length = self._index
        if at < start:
            yield Part(at, start - at, _NOWHERE)
        yield Part(start, length, header=True)
        if start + length < self._rules.limit:
            yield Part(start + length, self._rules.limit - start - length, _NOWHERE)
        yield Part(self._rules.limit, VALUE_FOOTER_SIZE, header=True)
