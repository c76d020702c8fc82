"""Parquet payloads as streams of column values, in bounded memory, and what is left of a column with a broken page.

Where a page is broken, every other one is decoded by itself, as a Parquet file of its own.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from sawlog.arrow import pack_bits
from sawlog.errors import SchemaError
from sawlog.format.damage import Damage
from sawlog.guard import Undecodable, call_decoder
from sawlog.milvus.columns import decode, find_damage_kind
from sawlog.milvus.layout import PARQUET_MAGIC, PARQUET_MINIMUM, BinlogDamageKind
from sawlog.milvus.payloads.parquet import (
    FILE_META_DATA,
    FOOTER_END,
    Page,
    ParquetError,
    Physical,
    check_size,
    compute_page_limit,
    encode_thrift,
    measure_longest_value,
    read_checked_pages,
    read_footer,
)
from sawlog.milvus.types import Field
from sawlog.storage import Source, is_remote
from sawlog.storage.flight import WHOLE_BYTES
from sawlog.storage.sources import MappedSource, SourceFile, SourceRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SMALL_FILE_BYTES = 8 << 20
"""Remote files up to this size are fetched whole."""
BATCH_BYTES = 8 << 20
"""Decoded bytes per batch that reading aims at."""
BATCH_ROWS = 64 << 10
DICTIONARY_BUDGET = 64 << 20
"""Bytes that one batch may grow to if every value were as long as the longest of a dictionary."""
_MAX_HELD_BYTES = 256 << 20
"""Remote payloads up to this size are fetched whole when the first of their pages is read: most have one column."""
_MAX_BAD_VALUES = 1000
"""Values of a column that are looked for one by one: each takes a dozen attempts."""
_NAME = b"values"
_VALUE_BYTES = 8
_EXPANSION = 16
"""Lists may take that many times the bytes of their pages: a batch holds whole rows, however long they are."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of a Parquet payload in its file, and how many bytes of its event precede it."""

    offset: int
    length: int
    framing: int = 0


class UnreadableError(Exception):
    """A payload that cannot be read on; carries the damage."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


class Payload:
    """Parquet payload, opened: its footer read, its page sizes checked.

    Args:
        source: The file, open.
        path: Its name, for messages.
        extent: Where the payload is.
        max_page_bytes: Larger pages are damage; `None`: those larger than their compressed bytes justify.
        span: The first row that is wanted, and the one after the last: only the row groups that hold them are looked
            at. `None` for all. Rows are counted from `first_row`, with which the first of these groups begins.
        planning: Whether no rows are wanted, only what the footer says.

    Raises:
        UnreadableError: When it is no Parquet, or claims more memory than it may.
    """

    def __init__(
        self,
        source: Source,
        path: str,
        extent: Extent,
        max_page_bytes: int | None,
        span: tuple[int, int] | None = None,
        *,
        planning: bool = False,
    ) -> None:
        self.source = source
        self.path = path
        self._extent = extent
        self.max_page_bytes = max_page_bytes
        self._limits: dict[int, int] = {}
        self._refused: dict[int, Damage] = {}
        self._losses: dict[int, list[_LostRows]] = {}
        if extent.length < PARQUET_MINIMUM:
            raise self.make_error(f"{extent.length} bytes are too few for a Parquet file")
        with self.catch_errors():
            self.footer = read_footer(source, extent.offset, extent.length)
        limits = {f"thrift_{item}_size_limit": max(1, self.footer.length) for item in ("string", "container")}
        self.reader, self.schema, self.columns = self._decode(_open_reader, self._open(span, planning), **limits)
        if any(len(group.chunks) != len(self.columns) for group in self.footer.groups):
            raise self.make_error(f"row groups that do not have all of the {len(self.columns)} columns")
        self.groups = range(len(self.footer.groups))
        self.file_rows = self.footer.rows
        self.first_row = 0
        self._pages = extent.offset, extent.length
        if span is not None:
            self._narrow(*span)
        self.rows = self.footer.rows

    def _narrow(self, first: int, last: int) -> None:
        """Leave out the row groups that hold none of some rows."""
        groups = self.footer.groups
        ends = list(itertools.accumulate(group.rows for group in groups))
        self.groups = range(bisect_right(ends, first), min(bisect_left(ends, last) + 1, len(groups)))
        kept_groups = groups[self.groups.start : self.groups.stop]
        self.first_row = sum(group.rows for group in groups[: self.groups.start])
        self.footer = replace(self.footer, groups=kept_groups, rows=sum(group.rows for group in kept_groups))
        chunks = [chunk for group in kept_groups for chunk in group.chunks if chunk.values]
        start = min((chunk.start for chunk in chunks), default=0)
        end = max((chunk.start + chunk.compressed for chunk in chunks), default=0)
        self._pages = self._extent.offset + start, end - start

    @property
    def length(self) -> int:
        """Bytes of the payload in its file."""
        return self._extent.length

    def estimate_row_bytes(self, column: int) -> float:
        """Return about how many decoded bytes a value of a top-level column has: as the footer says, and for a number.

        Vectors take what they take, however often a dictionary stands for one.
        """
        total = 0
        for group, leaf in itertools.product(self.footer.groups, self.leaves(column)):
            chunk = group.chunks[leaf]
            width = max(0, self.columns[leaf].length) if chunk.type == Physical.FIXED_LEN_BYTE_ARRAY else 0
            total += max(chunk.uncompressed, chunk.values * width)
        return total / max(1, self.rows) + _VALUE_BYTES

    def read_column_batches(self, index: int, batch_rows: int) -> Iterator[pa.Array]:
        """Yield the values of a top-level column, in arrays of at most `batch_rows`, to which nobody else holds on.

        Raises:
            UnreadableError: When a page cannot be decoded. After `resolve` there is something for each value that is
                lost, instead.
        """
        batch_rows = min(batch_rows, self.compute_row_limit(index))
        if index in self._losses:
            yield from _salvage_column(self, index, self._losses[index], batch_rows)
            return
        groups = list(self.groups)
        # By position: names may come twice.
        leaves = self.leaves(index)
        try:
            batches = self._decode(self.reader.iter_batches, batch_rows, groups, leaves, use_threads=False)
            while True:
                self._check_length()
                batch = self._decode(next, batches, None)
                if batch is None:
                    return
                yield _take_only_column(batch)
        except UnreadableError as error:
            self._refused[index] = error.damage
            raise

    def resolve(self, index: int, field: Field | None) -> list[_LostRows]:
        """Find which rows of a column are lost, in order, page by page; from here on its values are read so.

        Args:
            index: Which column.
            field: The field whose values it holds; `None`: whatever is stored.
        """
        if index not in self._losses:
            with suppress(UnreadableError):
                self.compute_row_limit(index)
            if index in self._refused:
                self._limits[index] = self._compute_least_limit(index)
            losses = _find_losses(self, index, field, self._limits[index])
            if index in self._refused and not losses:
                damage = self._refused[index]
                losses = [_LostRows(self.rows, self.rows, damage.kind, damage.detail)]
            self._losses[index] = losses
        return self._losses[index]

    def find_losses(self, index: int) -> list[_LostRows]:
        """Return what `resolve` found to be lost of a column."""
        return self._losses.get(index, [])

    def _compute_least_limit(self, index: int) -> int:
        """Return the row limit where some pages cannot be checked: no value is longer than its dictionary."""
        longest = self.schema.types[index].byte_width if self.has_vectors(index) else 1
        for group, leaf in itertools.product(range(len(self.footer.groups)), self.leaves(index)):
            with suppress(ParquetError):
                for page in self.iterate_pages(group, leaf, any_size=True):
                    longest = max(longest, page.uncompressed if page.is_dictionary else 0)
        return max(1, min(BATCH_ROWS, DICTIONARY_BUDGET // longest))

    def _check_length(self) -> None:
        """Look whether the file is still as long as it was: pyarrow reads a map without windows."""
        if isinstance(self.source, MappedSource):
            self.source.check(self._extent.offset + self._extent.length)

    def read_column(self, max_bytes: int) -> list[pa.Array]:
        """Return all values of the first column.

        Raises:
            UnreadableError: When a page cannot be decoded, or there are more bytes.
        """
        arrays = []
        size = 0
        for array in self.read_column_batches(0, BATCH_ROWS):
            size += array.nbytes
            if size > max_bytes:
                raise self.make_error(
                    f"more than {max_bytes} bytes of values", BinlogDamageKind.PAYLOAD_TOO_LARGE.label
                )
            arrays.append(array)
        return arrays

    def compute_row_limit(self, index: int) -> int:
        """Return how many values of a column can be decoded at once without bursting; checks its pages, once.

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

    def make_loss_error(self, losses: Sequence[_LostRows]) -> UnreadableError:
        """Return the error to raise, after the rows that can be read, when some are lost."""
        return self.make_error(*describe_losses(losses))

    @property
    def is_available(self) -> bool:
        """Whether its pages are there: in a local file, or fetched at once."""
        return not is_remote(self.path) or self._pages[1] <= _MAX_HELD_BYTES

    def has_vectors(self, index: int) -> bool:
        """Return whether the values of a top-level column are all of one width, and that is more than nothing."""
        kind = self.schema.types[index]
        return pa.types.is_fixed_size_binary(kind) and bool(kind.byte_width)

    def leaves(self, index: int) -> list[int]:
        """Return the leaf columns below a top-level column."""
        if len(self.columns) == len(self.schema):
            return [index]
        first = sum(map(_count_leaves, self.schema.types[:index]))
        return list(range(first, first + _count_leaves(self.schema.types[index])))

    def iterate_pages(self, group: int, leaf: int, *, any_size: bool = False) -> Iterator[Page]:
        """Return the pages of one column chunk, headers only, none of them larger than it may be, unless of `any_size`.

        Raises:
            ParquetError: For pages that are broken or too large.
        """
        if is_remote(self.path) and self.is_available:
            self.source.read_window(*self._pages)  # all of them, at once
        chunk = self.footer.groups[group].chunks[leaf]
        return read_checked_pages(self.source, self._extent.offset, chunk, self.max_page_bytes, any_size=any_size)

    def _check(self, index: int) -> int:
        """Check the pages of a column; return the length of its longest dictionary value, if that bursts a batch."""
        longest = self.schema.types[index].byte_width if self.has_vectors(index) else 0
        with self.catch_errors():
            for group, leaf in itertools.product(range(len(self.footer.groups)), self.leaves(index)):
                dictionary = self.check_chunk(group, leaf)
                chunk = self.footer.groups[group].chunks[leaf]
                texts = chunk.type == Physical.BYTE_ARRAY
                if dictionary is not None and texts and dictionary.uncompressed * BATCH_ROWS > DICTIONARY_BUDGET:
                    longest = max(longest, measure_longest_value(self.source, dictionary, chunk.compression))
        return longest

    def check_chunk(self, group: int, leaf: int) -> Page | None:
        """Check the pages of one column chunk; return its dictionary.

        Raises:
            ParquetError: For pages that are broken or too large, that hold more or fewer values than the footer says,
                and for lists that few bytes make long.
        """
        dictionary = None
        values = size = 0
        for page in self.iterate_pages(group, leaf):
            dictionary = page if page.is_dictionary else dictionary
            values += page.values
            size += page.uncompressed
        column = self.columns[leaf]
        rows, chunk = self.footer.groups[group].rows, self.footer.groups[group].chunks[leaf]
        lists = column.max_repetition_level
        if values != chunk.values or (values != rows and not lists):
            raise ParquetError(f"pages of {values} values, where the footer says {chunk.values} values in {rows} rows")
        decoded = values * max(_VALUE_BYTES, column.length)
        limit = self.max_page_bytes if self.max_page_bytes is not None else compute_page_limit(chunk.compressed)
        if lists and decoded > max(limit, _EXPANSION * size):
            claim = f"lists of {values} elements, {decoded} bytes, in pages of {size}; max_item_bytes is {limit}"
            raise ParquetError(claim, BinlogDamageKind.PAYLOAD_TOO_LARGE.label)
        return dictionary

    def _open(self, span: tuple[int, int] | None, planning: bool) -> Any:
        extent = self._extent
        is_long = extent.length > (WHOLE_BYTES if planning else SMALL_FILE_BYTES)
        if is_long and (span is not None or planning or is_remote(self.path)):
            return pa.PythonFile(SourceFile(SourceRange(self.source, extent.offset, extent.length)), mode="r")
        return pa.BufferReader(pa.py_buffer(self.source.read_window(extent.offset, extent.length)))

    def make_error(self, detail: str, kind: str = BinlogDamageKind.BAD_PAYLOAD.label) -> UnreadableError:
        """Return the error to raise when the payload cannot be read on."""
        return UnreadableError(Damage(self.path, self._extent.offset, self._extent.length, kind, detail))

    @contextmanager
    def catch_errors(self) -> Iterator[None]:
        """Turns what a check of the footer or of pages says into `UnreadableError`."""
        try:
            yield
        except ParquetError as error:
            raise self.make_error(f"not a Parquet payload to read: {error}", error.kind) from None

    def _decode(self, decoder: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """Return what pyarrow makes of the payload.

        Raises:
            UnreadableError: When it refuses the bytes.
        """
        decoded = call_decoder(decoder, *args, **settings)
        if isinstance(decoded, Undecodable):
            raise self.make_error(f"pyarrow cannot read the Parquet payload: {decoded.detail[:200]}")
        return decoded


def _open_reader(file: Any, **limits: int) -> tuple[ParquetReader, pa.Schema, list[Any]]:
    """Open pyarrow's inner reader, without `pyarrow.parquet`, which also imports the clients of all object stores.

    Returns:
        The reader, and the columns of the file: as Arrow's, and the leaves of Parquet.
    """
    reader = ParquetReader()
    reader.open(file, pre_buffer=False, page_checksum_verification=True, **limits)
    stored = reader.metadata.schema
    return reader, _decode_names(reader.schema_arrow), [stored.column(index) for index in range(len(stored))]


def _decode_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose names can be asked for: values do not need them, and they need not be UTF-8."""
    if not isinstance(call_decoder(attrgetter("names"), schema), Undecodable):
        return schema
    fields = [
        field.with_name("\N{REPLACEMENT CHARACTER}")
        if isinstance(call_decoder(attrgetter("name"), field), Undecodable)
        else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def _take_only_column(batch: pa.RecordBatch) -> pa.Array:
    """Return the only column's values; `RecordBatch.column` would ask for its name, which need not be UTF-8."""
    return batch.to_struct_array().field(0)


def _count_leaves(kind: pa.DataType) -> int:
    """Return how many leaf columns of Parquet a type is spread over."""
    if isinstance(kind, pa.BaseExtensionType):
        return _count_leaves(kind.storage_type)
    if pa.types.is_map(kind):
        return _count_leaves(kind.key_type) + _count_leaves(kind.item_type)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        return _count_leaves(kind.value_type)
    return (
        sum(_count_leaves(kind.field(index).type) for index in range(kind.num_fields))
        if pa.types.is_struct(kind)
        else 1
    )


def compute_batch_rows(columns: Iterable[tuple[Payload, int]]) -> int:
    """Return how many rows of some columns make a batch of about `BATCH_BYTES`.

    Raises:
        UnreadableError: For pages that are broken or too large.
    """
    columns = list(columns)
    size = sum(payload.estimate_row_bytes(index) for payload, index in columns)
    limit = min((payload.compute_row_limit(index) for payload, index in columns), default=BATCH_ROWS)
    return max(1, min(limit, int(BATCH_BYTES / max(size, 1))))


class ColumnStream:
    """The values of one column of one file: those of all its payloads, one after the other."""

    def __init__(self, payloads: Sequence[Payload], index: int, batch_rows: int) -> None:
        self.rows = sum(payload.rows for payload in payloads)
        self._arrays = (array for payload in payloads for array in payload.read_column_batches(index, batch_rows))
        self._remainder: list[pa.Array] = []
        self._have = 0

    def take(self, count: int) -> pa.Array | None:
        """Return the next `count` values, or fewer at the end; `None` when there are no more.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        while self._have < count:
            array = next(self._arrays, None)
            if array is None:
                break
            self._remainder.append(array)
            self._have += len(array)
        if not self._have:
            return None
        joined = self._remainder[0] if len(self._remainder) == 1 else pa.concat_arrays(self._remainder)
        part = joined.slice(0, count)
        self._have -= len(part)
        self._remainder = [joined.slice(count)] if self._have else []
        return part

    def skip(self, count: int) -> None:
        """Pass over the next `count` values.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        while count > 0 and (part := self.take(min(count, BATCH_ROWS))) is not None:
            count -= len(part)

    def take_selected(self, keep: NDArray[np.uint8], rows_left: int) -> pa.Array | None:
        """Return the values to keep of the next ones; `None` when there are too few.

        Args:
            keep: 1 for every value to keep, 0 for the others.
            rows_left: How many are kept.

        Raises:
            UnreadableError: When a page cannot be decoded.
        """
        part = self.take(len(keep))
        if part is None or len(part) != len(keep):
            return None
        if rows_left == len(keep):
            return part
        return _compact_rows(part, keep, rows_left) if _is_movable(part) else part.filter(make_mask(keep))


def _is_movable(array: pa.Array) -> bool:
    """Return whether values have slots of one width in memory that may be written to."""
    if not pa.types.is_fixed_size_binary(array.type) or not array.type.byte_width or array.null_count:
        return False
    data = array.buffers()[1]
    return data is not None and data.is_mutable


def _compact_rows(array: pa.Array, keep: NDArray[np.uint8], rows_left: int) -> pa.Array:
    """Return the slots to keep, moved together in place: vectors are large, and a copy would cost as much again.

    Args:
        array: Whose memory nobody else looks at.
        keep: 1 for every slot to keep, 0 for the others.
        rows_left: How many are kept.
    """
    import numpy as np

    from sawlog.milvus.deletes import kernels

    width = array.type.byte_width
    first, last = array.offset * width, (array.offset + len(array)) * width
    kernels.keep_slots(np.frombuffer(array.buffers()[1], np.uint8)[first:last], keep, np.uint64(width))
    return array.slice(0, rows_left)


def make_mask(keep: NDArray[np.uint8]) -> pa.BooleanArray:
    """Return ones and zeros as Arrow's Booleans."""
    bits = pack_bits(keep)
    return pa.Array.from_buffers(pa.bool_(), len(keep), [None, bits])


def zip_columns(
    payload: Payload, fields: Sequence[tuple[int, Field | None]], max_rows: int = BATCH_ROWS, *, is_strict: bool = False
) -> Iterator[tuple[list[pa.Array], NDArray[np.uint8]]]:
    """Yield rows of a payload of which no value is lost, some at a time: the values of some columns, and which rows.

    Args:
        payload: The payload.
        fields: Places of columns, and the fields whose values are made of them; `None` for what is stored.
        max_rows: How many rows there are at a time, at most.
        is_strict: Whether no row is yielded that follows one of which a value is lost.

    Raises:
        UnreadableError: After the last rows that are delivered.
    """
    start = 0
    try:
        for arrays, keep in _zip_columns(payload, fields, None, range(payload.rows), max_rows):
            yield arrays, keep
            start += len(keep)
    except UnreadableError:
        losses = [loss for index, field in fields for loss in payload.resolve(index, field)]
        if not losses:
            raise
        end = min(loss.first for loss in losses) if is_strict else payload.rows
        yield from _zip_columns(payload, fields, _mark_intact_rows(losses, payload.rows), range(start, end), max_rows)
        raise payload.make_loss_error(losses) from None


def _zip_columns(
    payload: Payload,
    fields: Sequence[tuple[int, Field | None]],
    sound: NDArray[np.uint8] | None,
    rows: range,
    max_rows: int,
) -> Iterator[tuple[list[pa.Array], NDArray[np.uint8]]]:
    """Yield the sound ones of some rows of a payload, some at a time; `None`: all of them are."""
    import numpy as np

    step = min(max_rows, limit_rows(payload, [index for index, _ in fields]))
    streams = [(ColumnStream([payload], index, step), field) for index, field in fields]
    for stream, _ in streams:
        stream.skip(rows.start)
    for row in rows[::step]:
        count = min(step, rows.stop - row)
        keep = np.ones(count, np.uint8) if sound is None else sound[row : row + count]
        if not keep.any():  # what is none of the field's has no value, even of no rows
            for stream, _ in streams:
                stream.skip(count)
            continue
        yield [_take(stream, keep, field, payload) for stream, field in streams], keep


def limit_rows(payload: Payload, columns: Sequence[int]) -> int:
    """Return how many rows of a payload are decoded at a time.

    Raises:
        UnreadableError: For pages that are broken or too large.
    """
    return compute_batch_rows((payload, index) for index in columns) if columns else payload.compute_row_limit(0)


def _take(stream: ColumnStream, keep: NDArray[np.uint8], field: Field | None, payload: Payload) -> pa.Array:
    part = stream.take_selected(keep, int(keep.sum()))
    if part is None:
        raise payload.make_error(f"fewer values than the {payload.rows} that the footer claims")
    try:
        return part if field is None else decode(field, part)
    except SchemaError as error:
        raise payload.make_error(str(error), find_damage_kind(error)) from None


@dataclass(frozen=True, slots=True)
class _LostRows:
    """Rows of a column that cannot be read.

    Attributes:
        first: The first of them, counted from the beginning of the payload.
        end: The one after the last; `first` for damage that costs no row.
        kind: What kind of damage it is.
        detail: What is wrong.
        is_decoded: Whether pyarrow decodes them, and their values are not the field's.
    """

    first: int
    end: int
    kind: str
    detail: str
    is_decoded: bool = False


class _RefusedError(Exception):
    """Values that cannot be decoded; says why."""

    def __init__(self, detail: str, kind: str = BinlogDamageKind.BAD_PAYLOAD.label) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows that are decoded by themselves: of a page, or of a row group where values are lists.

    Attributes:
        first: The first of them.
        rows: How many they are.
        read: Decodes them, so many at a time; raises `_RefusedError`.
        is_single: Whether rows in front of the damage are intact when they are read one by one.
    """

    first: int
    rows: int
    read: Callable[[int], Iterator[pa.Array]]
    is_single: bool = False


def _find_losses(payload: Payload, index: int, field: Field | None, batch_rows: int) -> list[_LostRows]:
    """Return the rows of a column that cannot be read, in order.

    Args:
        payload: The payload.
        index: Which column.
        field: The field whose values it holds; `None`: whatever is stored.
        batch_rows: How many values may be decoded at once.
    """
    losses: list[_LostRows] = []
    values: list[_LostRows] = []
    for piece in _split_into_pieces(payload, index):
        row, end = piece.first, piece.first + piece.rows
        refused: _RefusedError | None = None
        try:
            for array in piece.read(batch_rows):
                if field is not None:
                    _find_bad_values(field, array, row, values)
                row += len(array)
        except _RefusedError as error:
            refused = error
        if refused is None and row != end:
            refused = _RefusedError(f"{row - piece.first} values where {piece.rows} were expected")
        if refused is not None:
            row = piece.first + (sum(map(len, _read_until_error(piece))) if piece.is_single else 0)
            values = [value for value in values if value.first < row]
            losses.append(_LostRows(row, end, refused.kind, str(refused)))
    return sorted([*losses, *values], key=lambda loss: loss.first)


def _salvage_column(payload: Payload, index: int, losses: list[_LostRows], batch_rows: int) -> Iterator[pa.Array]:
    """Yield the values of a column, at most so many at a time; nulls, or what is stored, for those that are lost."""
    broken = {loss.end for loss in losses if loss.first < loss.end and not loss.is_decoded}
    for piece in filter(lambda piece: piece.rows, _split_into_pieces(payload, index)):
        row, end = piece.first, piece.first + piece.rows
        if end not in broken:
            yield from piece.read(batch_rows)
            continue
        for array in _read_until_error(piece) if piece.is_single else ():
            row += len(array)
            yield array
        for start in range(row, end, batch_rows):
            yield pa.nulls(min(batch_rows, end - start), payload.schema.types[index])


def read_first_values(payload: Payload, index: int, count: int) -> list[pa.Array]:
    """Return the first values of a column that can be decoded, each an array of its own."""
    pieces = itertools.chain.from_iterable(map(_read_until_error, _split_into_pieces(payload, index)))
    return list(itertools.islice(pieces, count))


def _mark_intact_rows(losses: Iterable[_LostRows], rows: int) -> NDArray[np.uint8]:
    """Return 1 for each row of which nothing is lost, 0 for the others."""
    import numpy as np

    sound = np.ones(rows, np.uint8)
    for loss in losses:
        sound[loss.first : loss.end] = 0
    return sound


def describe_losses(losses: Sequence[_LostRows]) -> tuple[str, str]:
    """Return a message on all that is lost of a payload, and its kind: damage, unless all is unsupported."""
    first = min(losses, key=lambda loss: (loss.kind == BinlogDamageKind.UNSUPPORTED.label, loss.first))
    if first.first == first.end:
        return first.detail, first.kind
    rows = f"rows {first.first} to {first.end - 1}" if first.end - first.first > 1 else f"row {first.first}"
    omission = f"; and {len(losses) - 1} more places" if len(losses) > 1 else ""
    return f"{rows}: {first.detail}{omission}", first.kind


def _read_until_error(piece: _Piece) -> Iterator[pa.Array]:
    """Yield the rows of a piece, one by one, up to the first that cannot be decoded."""
    arrays = piece.read(1)
    for _ in range(piece.rows):
        try:
            array = next(arrays, None)
        except _RefusedError:
            return
        if array is None:
            return
        yield array


def _find_bad_values(field: Field, array: pa.Array, first: int, losses: list[_LostRows]) -> None:
    """Note the rows whose values are none of the field's; where there are very many, their neighbours with them."""
    try:
        decode(field, array)
    except SchemaError as error:
        half = len(array) // 2
        if half and len(losses) < _MAX_BAD_VALUES:
            _find_bad_values(field, array.slice(0, half), first, losses)
            _find_bad_values(field, array.slice(half), first + half, losses)
        else:
            losses.append(_LostRows(first, first + len(array), find_damage_kind(error), str(error), is_decoded=True))


def _split_into_pieces(payload: Payload, index: int) -> Iterator[_Piece]:
    """Yield the pages of a column; its row groups, where values are lists: those may go on in the next page."""
    first = 0
    leaves = payload.leaves(index)
    kind = payload.schema.types[index]
    has_parts = pa.types.is_nested(kind) or pa.types.is_dictionary(kind)
    flat = len(leaves) == 1 and payload.columns[leaves[0]].max_definition_level <= 1 and not has_parts
    for group, row_group in enumerate(payload.footer.groups):
        if flat:
            yield from _split_flat_group(payload, index, group, first)
        elif row_group.rows:
            yield _Piece(first, row_group.rows, partial(_read_group, payload, index, group), is_single=True)
        first += row_group.rows


def _read_group(payload: Payload, index: int, group: int, batch_rows: int) -> Iterator[pa.Array]:
    try:
        for leaf in payload.leaves(index):
            payload.check_chunk(group, leaf)
    except ParquetError as error:
        raise _make_refused_error(error) from None
    groups = [payload.groups[group]]
    batches = _call_decoder(payload.reader.iter_batches, batch_rows, groups, payload.leaves(index), use_threads=False)
    while (batch := _call_decoder(next, batches, None)) is not None:
        yield _take_only_column(batch)


def _split_flat_group(payload: Payload, index: int, group: int, first: int) -> Iterator[_Piece]:
    """Yield the data pages of one column chunk; what follows a broken page header cannot be found."""
    (leaf,) = payload.leaves(index)
    rows, chunk = payload.footer.groups[group].rows, payload.footer.groups[group].chunks[leaf]
    end = first + rows
    kind = payload.columns[leaf].physical_type
    count = 0
    broken: _RefusedError | None = None
    try:
        for page in payload.iterate_pages(group, leaf, any_size=True):
            count += page.values
    except ParquetError as error:
        broken = _make_refused_error(error)
    if chunk.type != Physical.__members__.get(kind):
        broken = _RefusedError(f"pages of physical type {chunk.type} where the schema says {kind}")
        count = 0
    elif count > rows or chunk.values != rows or (count < rows and not broken):
        broken = _RefusedError(f"pages of {count} values, where the footer says {chunk.values} values in {rows} rows")
        count = 0
    dictionary: Page | None = None
    known_end = first + count
    pages = payload.iterate_pages(group, leaf, any_size=True)
    while first < known_end:
        page = next(pages)
        dictionary = page if page.is_dictionary else dictionary
        if page.values:
            yield _Piece(first, page.values, partial(_read_page, payload, index, group, dictionary, page))
            first += page.values
    if broken is not None:
        yield _Piece(first, end - first, partial(_refuse, broken))


def _refuse(error: _RefusedError, batch_rows: int) -> Iterator[pa.Array]:
    del batch_rows
    raise error
    yield


def _read_page(
    payload: Payload, index: int, group: int, dictionary: Page | None, page: Page, batch_rows: int
) -> Iterator[pa.Array]:
    pages = [page] if dictionary is None or not page.has_indices else [dictionary, page]
    try:
        for needed_page in pages:
            check_size(needed_page, payload.max_page_bytes)
    except ParquetError as error:
        raise _make_refused_error(error) from None
    data = _make_page_file(payload, index, group, pages)
    reader, *_ = _call_decoder(_open_reader, pa.BufferReader(data))
    batches = _call_decoder(reader.iter_batches, batch_rows, [0], [0], use_threads=False)
    while (batch := _call_decoder(next, batches, None)) is not None:
        yield _cast_to_stored(_take_only_column(batch), payload.schema.types[index])


def _make_page_file(payload: Payload, index: int, group: int, pages: list[Page]) -> bytes:
    """Return a Parquet file of one column: some pages, as they are."""
    (leaf,) = payload.leaves(index)
    column, chunk = payload.columns[leaf], payload.footer.groups[group].chunks[leaf]
    content = b"".join(
        bytes(payload.source.read_window(page.offset, page.start + page.compressed - page.offset)) for page in pages
    )
    rows, start = pages[-1].values, len(PARQUET_MAGIC)
    before = sum(page.start + page.compressed - page.offset for page in pages[:-1])
    meta: dict[str, Any] = {
        "type": chunk.type,
        "encodings": [0],
        "path_in_schema": [_NAME],
        "codec": chunk.codec,
        "num_values": rows,
        "total_uncompressed_size": len(content),
        "total_compressed_size": len(content),
        "data_page_offset": start + before,
        **({"dictionary_page_offset": start} if before else {}),
    }
    values = {
        "type": chunk.type,
        "type_length": max(0, column.length),
        "repetition_type": column.max_definition_level,
        "name": _NAME,
    }
    row_group = {"columns": [{"file_offset": 0, "meta_data": meta}], "total_byte_size": len(content), "num_rows": rows}
    schema = [{"name": b"root", "num_children": 1}, values]
    footer = encode_thrift(
        FILE_META_DATA, {"version": 2, "schema": schema, "num_rows": rows, "row_groups": [row_group]}
    )
    return PARQUET_MAGIC + content + footer + FOOTER_END.pack(len(footer), PARQUET_MAGIC)


def _cast_to_stored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of a physical type as those of the logical type of their column."""
    if array.type == kind:
        return array
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        array = array.cast(pa.large_binary())
    is_same_layout = (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or _measure_width(kind) == _measure_width(array.type)
    )
    cast = call_decoder(array.view, kind) if is_same_layout else call_decoder(array.cast, kind, safe=False)
    if isinstance(cast, Undecodable):
        raise _RefusedError(cast.detail)
    return cast


def _measure_width(kind: pa.DataType) -> int:
    return int(kind.bit_width) if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) else -1


def _make_refused_error(error: ParquetError) -> _RefusedError:
    return _RefusedError(str(error), error.kind)


def _call_decoder(decoder: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Return what pyarrow makes of the bytes."""
    decoded = call_decoder(decoder, *args, **settings)
    if isinstance(decoded, Undecodable):
        raise _RefusedError(f"pyarrow cannot read the Parquet payload: {decoded.detail[:200]}")
    return decoded
