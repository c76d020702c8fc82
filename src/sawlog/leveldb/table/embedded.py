"""Values of RocksDB's that stand between the blocks of their own table: each put in the place of its address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.addresses import BlobIndex, addresses_of, in_place
from sawlog.leveldb.table.blocks import Expanded, Flaw, joined
from sawlog.leveldb.table.columnar import MalformedError
from sawlog.leveldb.table.layout import Kind
from sawlog.leveldb.table.pebble import Entries, laid_out, split_rows

if TYPE_CHECKING:
    from sawlog.leveldb.table.blocks import BlockRules
    from sawlog.storage import Source

_TYPE = np.uint64(255)


class EmbeddedLayer:
    """Lays out the blocks of a table."""

    def __init__(self, rules: BlockRules, source: Source) -> None:
        self._rules = rules
        self._source = source

    def plain(self, content: pa.Buffer, *, deletions: bool) -> tuple[Expanded, int]:
        """A block of entries, each with its value, and how many are left out because their values are lost."""
        if deletions:
            return content, 0
        entries = self._split(content)
        if not isinstance(entries, Entries):
            return entries, 0
        sources, _, trailers, values, _ = entries
        whole = np.ones(len(trailers), np.bool_)
        at, size = sum(map(len, sources)), 0
        for row, operation, value, places in _elsewhere(entries):
            found = [self._value(place) for place in places]
            contents = [one for one in found if one is not None]
            whole[row] = len(contents) == len(found)
            if not whole[row]:
                continue
            content = in_place(operation, value, contents)
            size += len(content)
            if size > self._rules.longest:
                return (Kind.BLOCK_TOO_LARGE, size, self._rules.longest), 0
            sources.append(np.frombuffer(content, np.uint8))
            values.starts[row], values.lengths[row] = at, len(content)
            at += len(content)
            if operation == layout.BLOB_INDEX:
                trailers[row] = trailers[row] & ~_TYPE | np.uint64(layout.PUT)
        return laid_out(entries, whole, self._rules.longest)

    def _split(self, content: pa.Buffer) -> Entries | Flaw:
        if k.values_apart(np.frombuffer(content, np.uint8)):
            together = joined(content)
            if isinstance(together, tuple):
                return together
            content = together
        try:
            return split_rows(content, self._rules.longest)
        except MalformedError:
            return Kind.BAD_BLOCK, content.size, 0

    def handles(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Offset and size of each value that entries of a block lead to; none where the block is damaged."""
        content = self._rules.read(self._source, offset, size, of_entries=True)[0]
        entries = content if isinstance(content, tuple) else self._split(content)
        if isinstance(entries, Entries):
            for _, _, _, places in _elsewhere(entries):
                yield from ((place.offset, place.size) for place in places)

    def _value(self, place: BlobIndex) -> bytes | None:
        content = self._rules.read(self._source, place.offset, place.size)[0]
        return None if isinstance(content, tuple) else content.to_pybytes()


def _elsewhere(entries: Entries) -> Iterator[tuple[int, int, bytes, list[BlobIndex]]]:
    """Of entries whose values are elsewhere in the file: row, operation, what is there, and the addresses."""
    operations = (entries.trailers & _TYPE).astype(np.int64)
    for row in np.flatnonzero((operations == layout.BLOB_INDEX) | (operations == layout.PUT_ENTITY)).tolist():
        start = int(entries.values.starts[row])
        value = entries.sources[0][start : start + int(entries.values.lengths[row])].tobytes()
        places = addresses_of(int(operations[row]), value)
        if places and all(place.file == layout.SAME_FILE for place in places):
            yield row, int(operations[row]), value, places
