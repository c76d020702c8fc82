"""Parquet payloads as streams of column values, in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage
from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, decode_by
from sawlog.milvus_binlog.columns import decode, kind_of
from sawlog.milvus_binlog.layout import PARQUET_MINIMUM, Kind
from sawlog.milvus_binlog.payloads.parquet import (
    Page,
    ParquetError,
    Physical,
    checked_pages,
    longest_value,
    page_limit,
    read_footer,
)
from sawlog.milvus_binlog.payloads.salvage import Lost, losses, salvaged, sound_rows, what_is_lost
from sawlog.milvus_binlog.source import SMALL
from sawlog.milvus_binlog.types import Field
from sawlog.storage import Source, is_remote
from sawlog.storage.sources import MappedSource, SourceFile, SourceRange

if TYPE_CHECKING:
    import numpy as np
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

BATCH_BYTES = 8 << 20
"""Decoded bytes per batch that reading aims at."""
BATCH_ROWS = 64 << 10
DICTIONARY_BUDGET = 64 << 20
"""Bytes that one batch may grow to if every value were as long as the longest of a dictionary."""
MOST_HELD = 256 << 20
"""Remote payloads up to this size are fetched whole when the first of their pages is read: most have one column."""
_VALUE_BYTES = 8
_EXPANSION = 16
"""Lists may take that many times the bytes of their pages: a batch holds whole rows, however long they are."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a Parquet payload is in its file, and how many bytes of its event precede it."""

    offset: int
    length: int
    framing: int = 0


class UnreadableError(Exception):
    """A payload that cannot be read on; carries the damage."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


class Payload:
    """One Parquet payload, opened: its footer read, its page sizes checked.

    Args:
        source: The file, open.
        path: Its name, for messages.
        extent: Where the payload is.
        max_page_bytes: Larger pages are damage; `None`: those larger than their compressed bytes justify.

    Raises:
        UnreadableError: When it is no Parquet, or claims more memory than it may.
    """

    def __init__(self, source: Source, path: str, extent: Extent, max_page_bytes: int | None) -> None:
        import pyarrow.parquet as pq

        self.source = source
        self.path = path
        self._extent = extent
        self.max_page_bytes = max_page_bytes
        self._limits: dict[int, int] = {}
        self._refused: dict[int, Damage] = {}
        self._lost: dict[int, list[Lost]] = {}
        if extent.length < PARQUET_MINIMUM:
            raise self.unreadable(f"{extent.length} bytes are too few for a Parquet file")
        with self.judged():
            self.footer = read_footer(source, extent.offset, extent.length)
        limits = {f"thrift_{what}_size_limit": max(1, self.footer.length) for what in ("string", "container")}
        self.file: pq.ParquetFile = self._decode(
            pq.ParquetFile, self._open(), pre_buffer=False, page_checksum_verification=True, **limits
        )
        self.schema: pa.Schema = self._decode(lambda: self.file.schema_arrow)
        stored = self.file.schema
        self.columns = self._decode(lambda: [stored.column(at) for at in range(len(stored))])
        self.rows = self.footer.rows
        if any(len(group.chunks) != len(self.columns) for group in self.footer.groups):
            raise self.unreadable(f"row groups that do not have all of the {len(self.columns)} columns")

    @property
    def length(self) -> int:
        """Bytes of the payload in its file."""
        return self._extent.length

    def row_bytes(self, column: int) -> float:
        """Decoded bytes per value of a top-level column, about: as the footer has it, and what a number takes.

        Vectors take what they take, however often a dictionary stands for one.
        """
        total = 0
        for group, leaf in itertools.product(self.footer.groups, self.leaves(column)):
            chunk = group.chunks[leaf]
            width = max(0, self.columns[leaf].length) if chunk.type == Physical.FIXED_LEN_BYTE_ARRAY else 0
            total += max(chunk.uncompressed, chunk.values * width)
        return total / max(1, self.rows) + _VALUE_BYTES

    def column_batches(self, index: int, batch_rows: int) -> Iterator[pa.Array]:
        """The values of a top-level column, in arrays of at most `batch_rows`, to which nobody else holds on.

        Raises:
            UnreadableError: When a page cannot be decoded. After `settle` there is something for each value that is
                lost, instead.
        """
        batch_rows = min(batch_rows, self.row_limit(index))
        if index in self._lost:
            yield from salvaged(self, index, self._lost[index], batch_rows)
            return
        groups = list(range(len(self.footer.groups)))
        # By position: names may stand twice.
        leaves = self.leaves(index)
        try:
            batches = self._decode(self.file.reader.iter_batches, batch_rows, groups, leaves, use_threads=False)
            while True:
                self._check_length()
                batch = self._decode(next, batches, None)
                if batch is None:
                    return
                yield batch.column(0)
        except UnreadableError as error:
            self._refused[index] = error.damage
            raise

    def settle(self, index: int, field: Field | None) -> list[Lost]:
        """Which rows of a column are lost, in order, page by page; from here on its values are read so.

        Args:
            index: Which column.
            field: The field whose values it holds; `None`: whatever is stored.
        """
        if index not in self._lost:
            with suppress(UnreadableError):
                self.row_limit(index)
            if index in self._refused:
                self._limits[index] = self._least_limit(index)
            lost = losses(self, index, field, self._limits[index])
            if index in self._refused and not lost:
                damage = self._refused[index]
                lost = [Lost(self.rows, self.rows, Kind(damage.kind), damage.detail)]
            self._lost[index] = lost
        return self._lost[index]

    def lost(self, index: int) -> list[Lost]:
        """What `settle` found to be lost of a column."""
        return self._lost.get(index, [])

    def _least_limit(self, index: int) -> int:
        """See `row_limit`, of a column whose pages cannot all be checked: no value is longer than its dictionary."""
        longest = self.schema.types[index].byte_width if self.holds_vectors(index) else 1
        for group, leaf in itertools.product(range(len(self.footer.groups)), self.leaves(index)):
            with suppress(ParquetError):
                for page in self.pages(group, leaf, any_size=True):
                    longest = max(longest, page.uncompressed if page.dictionary else 0)
        return max(1, min(BATCH_ROWS, DICTIONARY_BUDGET // longest))

    def _check_length(self) -> None:
        """Look whether the file is still as long as it was: pyarrow reads a map without windows."""
        if isinstance(self.source, MappedSource):
            self.source.check(self._extent.offset + self._extent.length)

    def whole_column(self, index: int, most: int) -> list[pa.Array]:
        """All values of a column.

        Args:
            index: Which one.
            most: Bytes that they may take.

        Raises:
            UnreadableError: When a page cannot be decoded, or there are more bytes.
        """
        arrays = []
        size = 0
        for array in self.column_batches(index, BATCH_ROWS):
            size += array.nbytes
            if size > most:
                raise self.unreadable(f"more than {most} bytes of values", Kind.PAYLOAD_TOO_LARGE)
            arrays.append(array)
        return arrays

    def row_limit(self, index: int) -> int:
        """How many values of a column can be decoded at once without bursting; checks its pages, once.

        Raises:
            UnreadableError: For pages that are broken or too large.
        """
        if index not in self._limits:
            try:
                longest = self._check(index)
            except UnreadableError as error:
                self._refused[index] = error.damage
                raise
            self._limits[index] = max(1, min(BATCH_ROWS, DICTIONARY_BUDGET // longest)) if longest else BATCH_ROWS
        return self._limits[index]

    def what_is_lost(self, lost: Sequence[Lost]) -> UnreadableError:
        """What to raise, after the rows that can be read, when some are lost."""
        return self.unreadable(*what_is_lost(lost))

    @property
    def held(self) -> bool:
        """Whether its pages are at hand: in a local file, or fetched at once."""
        return not is_remote(self.path) or self._extent.length <= MOST_HELD

    def holds_vectors(self, index: int) -> bool:
        """Whether the values of a top-level column are all of one width, and that is more than nothing."""
        kind = self.schema.types[index]
        return pa.types.is_fixed_size_binary(kind) and bool(kind.byte_width)

    def leaves(self, index: int) -> list[int]:
        """Leaf columns below a top-level column."""
        if len(self.columns) == len(self.schema):
            return [index]
        first = sum(map(_leaves, self.schema.types[:index]))
        return list(range(first, first + _leaves(self.schema.types[index])))

    def pages(self, group: int, leaf: int, *, any_size: bool = False) -> Iterator[Page]:
        """The pages of one column chunk, headers only, none of them larger than it may be, unless of `any_size`.

        Raises:
            ParquetError: For pages that are broken or too large.
        """
        if is_remote(self.path) and self.held:
            self.source.window(self._extent.offset, self._extent.length)  # all of it, at once
        chunk = self.footer.groups[group].chunks[leaf]
        return checked_pages(self.source, self._extent.offset, chunk, self.max_page_bytes, any_size=any_size)

    def _check(self, index: int) -> int:
        """Check the pages of a column; the length of its longest dictionary value, where a batch might burst by it."""
        longest = self.schema.types[index].byte_width if self.holds_vectors(index) else 0
        with self.judged():
            for group, leaf in itertools.product(range(len(self.footer.groups)), self.leaves(index)):
                dictionary = self.check_chunk(group, leaf)
                chunk = self.footer.groups[group].chunks[leaf]
                texts = chunk.type == Physical.BYTE_ARRAY
                if dictionary is not None and texts and dictionary.uncompressed * BATCH_ROWS > DICTIONARY_BUDGET:
                    longest = max(longest, longest_value(self.source, dictionary, chunk.compression))
        return longest

    def check_chunk(self, group: int, leaf: int) -> Page | None:
        """Check the pages of one column chunk; its dictionary.

        Raises:
            ParquetError: For pages that are broken or too large, that hold more or fewer values than the footer says,
                and for lists that few bytes make long.
        """
        dictionary = None
        values = size = 0
        for page in self.pages(group, leaf):
            dictionary = page if page.dictionary else dictionary
            values += page.values
            size += page.uncompressed
        column = self.columns[leaf]
        rows, chunk = self.footer.groups[group].rows, self.footer.groups[group].chunks[leaf]
        lists = column.max_repetition_level
        if values != chunk.values or (values != rows and not lists):
            raise ParquetError(f"pages of {values} values, where the footer says {chunk.values} values in {rows} rows")
        decoded = values * max(_VALUE_BYTES, column.length)
        limit = self.max_page_bytes if self.max_page_bytes is not None else page_limit(chunk.compressed)
        if lists and decoded > max(limit, _EXPANSION * size):
            claim = f"lists of {values} elements, {decoded} bytes, in pages of {size}; max_page_bytes is {limit}"
            raise ParquetError(claim, Kind.PAYLOAD_TOO_LARGE)
        return dictionary

    def _open(self) -> Any:
        extent = self._extent
        if is_remote(self.path) and extent.length > SMALL:
            return pa.PythonFile(SourceFile(SourceRange(self.source, extent.offset, extent.length)), mode="r")
        return pa.BufferReader(pa.py_buffer(self.source.window(extent.offset, extent.length)))

    def unreadable(self, detail: str, kind: Kind = Kind.BAD_PAYLOAD) -> UnreadableError:
        """What to raise when the payload cannot be read on."""
        return UnreadableError(Damage(self.path, self._extent.offset, self._extent.length, kind, detail))

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Turns what a check of the footer or of pages says into `UnreadableError`."""
        try:
            yield
        except ParquetError as error:
            raise self.unreadable(f"not a Parquet payload to read: {error}", error.kind) from None

    def _decode(self, decoder: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """What pyarrow makes of the payload.

        Raises:
            UnreadableError: When it refuses the bytes.
        """
        found = decode_by(decoder, *args, **settings)
        if isinstance(found, Undecodable):
            raise self.unreadable(f"pyarrow cannot read the Parquet payload: {found.detail[:200]}")
        return found


def _leaves(kind: pa.DataType) -> int:
    """How many leaf columns of Parquet a type is spread over."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if pa.types.is_struct(kind) else 1


def batch_rows(columns: Iterable[tuple[Payload, int]]) -> int:
    """How many rows of some columns make a batch of about `BATCH_BYTES`.

    Raises:
        UnreadableError: For pages that are broken or too large.
    """
    columns = list(columns)
    size = sum(payload.row_bytes(index) for payload, index in columns)
    limit = min((payload.row_limit(index) for payload, index in columns), default=BATCH_ROWS)
    return max(1, min(limit, int(BATCH_BYTES / max(size, 1))))


class ColumnStream:
    """The values of one column of one file: those of all its payloads, one after the other."""

    def __init__(self, payloads: Sequence[Payload], index: int, batch_rows: int) -> None:
        self.rows = sum(payload.rows for payload in payloads)
        self._arrays = (array for payload in payloads for array in payload.column_batches(index, batch_rows))
        self._rest: list[pa.Array] = []
        self._have = 0

    def take(self, count: int) -> pa.Array | None:
        """The next `count` values, or fewer at the end; `None` when there are no more.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        while self._have < count:
            array = next(self._arrays, None)
            if array is None:
                break
            self._rest.append(array)
            self._have += len(array)
        if not self._have:
            return None
        whole = self._rest[0] if len(self._rest) == 1 else pa.concat_arrays(self._rest)
        taken = whole.slice(0, count)
        self._have -= len(taken)
        self._rest = [whole.slice(count)] if self._have else []
        return taken

    def skip(self, count: int) -> None:
        """Pass over the next `count` values.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        while count > 0 and (taken := self.take(min(count, BATCH_ROWS))) is not None:
            count -= len(taken)

    def take_kept(self, keep: NDArray[np.uint8], left: int) -> pa.Array | None:
        """Of the next values those to keep; `None` when there are too few.

        Args:
            keep: 1 for every value to keep, 0 for the others.
            left: How many are kept.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        taken = self.take(len(keep))
        if taken is None or len(taken) != len(keep):
            return None
        if left == len(keep):
            return taken
        return _moved(taken, keep, left) if _is_movable(taken) else taken.filter(mask_of(keep))


def _is_movable(array: pa.Array) -> bool:
    """Whether values have slots of one width in memory that may be written to."""
    if not pa.types.is_fixed_size_binary(array.type) or not array.type.byte_width or array.null_count:
        return False
    data = array.buffers()[1]
    return data is not None and data.is_mutable


def _moved(array: pa.Array, keep: NDArray[np.uint8], left: int) -> pa.Array:
    """The slots to keep, moved together where they are: vectors are large, and other memory would cost as much again.

    Args:
        array: Whose memory nobody else looks at.
        keep: 1 for every slot to keep, 0 for the others.
        left: How many are kept.
    """
    import numpy as np

    from sawlog.milvus_binlog.deletes import kernels

    width = array.type.byte_width
    first, last = array.offset * width, (array.offset + len(array)) * width
    kernels.keep_slots(np.frombuffer(array.buffers()[1], np.uint8)[first:last], keep, np.uint64(width))
    return array.slice(0, left)


def mask_of(keep: NDArray[np.uint8]) -> pa.BooleanArray:
    """Ones and zeros as Arrow's Booleans."""
    import numpy as np

    bits = pa.py_buffer(np.packbits(keep, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(keep), [None, bits])


def zipped(
    payload: Payload, fields: Sequence[tuple[int, Field | None]], most: int = BATCH_ROWS
) -> Iterator[tuple[list[pa.Array], NDArray[np.uint8]]]:
    """The rows of a payload of which no value is lost, some at a time: the values of some columns, and which rows.

    Args:
        payload: The payload.
        fields: Places of columns, and the fields whose values are made of them; `None` for what is stored.
        most: How many rows there are at a time, at most.

    Raises:
        UnreadableError: After the last rows that are delivered.
    """
    start = 0
    try:
        for arrays, keep in _zipped(payload, fields, None, 0, most):
            yield arrays, keep
            start += len(keep)
    except UnreadableError:
        lost = [some for at, one in fields for some in payload.settle(at, one)]
        if not lost:
            raise
        yield from _zipped(payload, fields, sound_rows(lost, payload.rows), start, most)
        raise payload.what_is_lost(lost) from None


def _zipped(
    payload: Payload,
    fields: Sequence[tuple[int, Field | None]],
    sound: NDArray[np.uint8] | None,
    start: int,
    most: int,
) -> Iterator[tuple[list[pa.Array], NDArray[np.uint8]]]:
    """The sound rows of a payload from one on, some at a time; `None`: all of them."""
    import numpy as np

    step = min(most, rows_at_once(payload, [at for at, _ in fields]))
    streams = [(ColumnStream([payload], at, step), one) for at, one in fields]
    for stream, _ in streams:
        stream.skip(start)
    for at in range(start, payload.rows, step):
        count = min(step, payload.rows - at)
        keep = np.ones(count, np.uint8) if sound is None else sound[at : at + count]
        yield [_take(stream, keep, one, payload) for stream, one in streams], keep


def rows_at_once(payload: Payload, columns: Sequence[int]) -> int:
    """How many rows of a payload are decoded at a time.

    Raises:
        UnreadableError: For pages that are broken or too large.
    """
    return batch_rows((payload, at) for at in columns) if columns else payload.row_limit(0)


def _take(stream: ColumnStream, keep: NDArray[np.uint8], field: Field | None, payload: Payload) -> pa.Array:
    taken = stream.take_kept(keep, int(keep.sum()))
    if taken is None:
        raise payload.unreadable(f"fewer values than the {payload.rows} that the footer claims")
    try:
        return taken if field is None else decode(field, taken)
    except SchemaError as error:
        raise payload.unreadable(str(error), kind_of(error)) from None
