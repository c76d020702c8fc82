"""Delta logs: deleted keys and when they were deleted. Section 3.4 of the format; four encodings."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fixed_array
from sawlog.damage import Damage, Findings
from sawlog.kernels.gather import gather_slices
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.columns import offsets_of
from sawlog.milvus_binlog.deletes import kernels
from sawlog.milvus_binlog.layout import DataType, Kind
from sawlog.milvus_binlog.payloads.payload import ColumnStream, Extent, Payload, UnreadableError, batch_rows
from sawlog.milvus_binlog.source import open_log
from sawlog.storage import File, Source, Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INT64 = range(-(1 << 63), 1 << 63)
_TIMES = range(1 << 63)
_CELLS = 8 << 10
"""Cells of text that are read at once: the next ones take the memory of the last, which is in the cache."""
_SMALLEST_TABLE = 64
_MARKS = 8
"""Bits per slot of a table, of which each key sets one: few rows that are not deleted find theirs set."""
_PK_TYPES = {DataType.Int64: pa.int64(), DataType.VarChar: pa.string()}


@dataclass(frozen=True, slots=True)
class Deletes:
    """Some deletes of one file.

    Attributes:
        keys: Primary keys, int64 or string.
        times: When they were deleted: TSOs, int64.
        offset: Where the event that holds them begins in the file.
    """

    keys: pa.Array
    times: pa.Array
    offset: int


def read_deletes(file: File, storage: Storage, max_page_bytes: int, findings: Findings) -> Iterator[Deletes]:
    """The deletes of one file, in order, whichever its encoding."""
    with closing(open_log(file, storage)) as source:
        head = bytes(source.window(0, 4096))
        if _envelope.sniff(head) == "parquet":
            yield from _bare(source, file.path, max_page_bytes, findings)
            return
        found = _envelope.read_envelope(source, file.path, findings)
        for event in found.events if found is not None else ():
            extent = Extent(event.payload, event.payload_length)
            yield from _payload(source, file.path, extent, event.offset, max_page_bytes, findings)


def _bare(source: Source, path: str, max_page_bytes: int, findings: Findings) -> Iterator[Deletes]:
    yield from _payload(source, path, Extent(0, source.size), 0, max_page_bytes, findings)


def _payload(
    source: Source, path: str, extent: Extent, offset: int, max_page: int, findings: Findings
) -> Iterator[Deletes]:
    try:
        payload = Payload(source, path, extent, max_page)
        bad: list[tuple[int, str]] = []
        row = 0
        for batch in _pairs(payload, bad):
            yield Deletes(batch[0], batch[1], offset)
            row += len(batch[0])
    except UnreadableError as error:
        findings.damage(error.damage)
        return
    length = extent.offset + extent.length - offset
    if bad:
        detail = f"{len(bad)} of {payload.rows} deletes cannot be read; the first is row {bad[0][0]}: {bad[0][1]}"
        findings.damage(Damage(path, offset, length, Kind.BAD_DELETE, detail))
    else:
        findings.account.record += length
    findings.rows += row


def _pairs(payload: Payload, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys and times of a payload, in batches; rows that make no sense are noted and left out."""
    if len(payload.schema) >= 2:
        yield from _columns(payload, bad)
        return
    step = min(_CELLS, batch_rows([(payload, 0)]))
    stream = ColumnStream([payload], 0, step)
    row = 0
    while (cells := stream.take(step)) is not None:
        if not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
            raise payload.unreadable(f"expected a column of text, or two columns, found one of {cells.type}")
        yield from _texts(cells, row, bad)
        row += len(cells)


def _columns(payload: Payload, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Two columns: by field id where there are any, else by name, else in order."""
    ids = [(field.metadata or {}).get(layout.FIELD_ID_KEY) for field in payload.schema]
    names = payload.schema.names
    if b"0" in ids and b"1" in ids:
        places = (ids.index(b"0"), ids.index(b"1"))
    elif "pk" in names and "ts" in names:
        places = (names.index("pk"), names.index("ts"))
    else:
        places = (0, 1)
    key_type = payload.schema.types[places[0]]
    if key_type not in _PK_TYPES.values() or payload.schema.types[places[1]] not in (pa.int64(), pa.uint64()):
        raise payload.unreadable(f"expected columns of keys and timestamps, found {payload.schema.types}")
    step = batch_rows((payload, place) for place in places)
    keys, times = (ColumnStream([payload], place, step) for place in places)
    row = 0
    while (some := keys.take(step)) is not None:
        when = times.take(len(some))
        if when is None or len(when) != len(some):
            raise payload.unreadable("keys without timestamps")
        yield _valid(some, when.view(pa.int64()), row, bad)
        row += len(some)


def _valid(keys: pa.Array, times: pa.Array, row: int, bad: list[tuple[int, str]]) -> tuple[pa.Array, pa.Array]:
    import pyarrow.compute as pc

    fine = pc.and_(pc.and_(keys.is_valid(), times.is_valid()), pc.greater_equal(times, 0)).fill_null(False)
    if fine.false_count:
        rows = [at for at, good in enumerate(fine.to_pylist()) if not good]
        bad += [(row + at, f"key {keys[at]}, timestamp {times[at]}") for at in rows]
        keys, times = keys.filter(fine), times.filter(fine)
    return keys, times


def _texts(cells: pa.Array, row: int, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Cells as Milvus writes them all at once; from the first that looks otherwise, one by one."""
    usual = _usual_cells(cells)
    at = 0
    if usual is not None:
        yield usual
        at = len(usual[0])
    found: dict[DataType, tuple[list[Any], list[int]]] = {}
    for cell in cells.slice(at).cast(pa.binary()).to_pylist():
        try:
            key, time, kind = parse_cell(cell if cell is not None else b"null")
        except ValueError as error:
            bad.append((row + at, str(error)))
        else:
            keys, times = found.setdefault(kind, ([], []))
            keys.append(key)
            times.append(time)
        at += 1
    for kind, (keys, times) in found.items():
        yield pa.array(keys, _PK_TYPES[kind]), pa.array(times, pa.int64())


def _usual_cells(cells: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Keys and times of the first cells, those in the very form that Milvus writes; `None` where there are none."""
    rows = len(cells)
    offsets, data = offsets_of(cells)
    times = np.empty(rows, np.int64)
    numbers = np.empty(rows, np.int64)
    count = kernels.number_cells(data, offsets, numbers, times)
    if count:
        return fixed_array(pa.int64(), numbers[:count]), fixed_array(pa.int64(), times[:count])
    lengths = np.empty(rows, np.int64)
    count = kernels.text_cells(data, offsets, numbers, lengths, times)
    if not count:
        return None
    keys = np.empty(int(lengths[:count].sum()), np.uint8)
    ends = np.zeros(count + 1, np.int32)
    gather_slices(data, numbers[:count], lengths[:count], keys, ends)
    binary = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(keys)])
    try:
        return binary.cast(pa.string()), fixed_array(pa.int64(), times[:count])
    except pa.ArrowInvalid:  # not UTF-8; one by one, it is found where
        return None


def parse_cell(cell: str | bytes) -> tuple[Any, int, DataType]:
    """One delete: JSON with `pk`, `ts` and `pkType`, or the legacy text `pk,ts`.

    Raises:
        ValueError: When it is neither; says why.
    """
    try:
        data = json.loads(cell)
    except (ValueError, RecursionError):
        return _legacy_cell(cell)
    key, time, kind = (data.get(name) if isinstance(data, dict) else None for name in ("pk", "ts", "pkType"))
    if kind == DataType.Int64 and _is_int(key, _INT64) and _is_int(time, _TIMES):
        return key, int(str(time)), DataType.Int64
    if kind == DataType.VarChar and isinstance(key, str) and _is_int(time, _TIMES):
        return key, int(str(time)), DataType.VarChar
    raise ValueError(f"expected pk, ts and pkType of types that go together, found {_quote(cell)}")


def _legacy_cell(cell: str | bytes) -> tuple[int, int, DataType]:
    text = cell if isinstance(cell, str) else cell.decode("utf-8", "replace")
    try:
        key, time = map(int, text.split(","))
    except ValueError:
        raise ValueError(f"expected JSON or `key,timestamp`, found {_quote(cell)}") from None
    if key not in _INT64 or time not in _TIMES:
        raise ValueError(f"a key or timestamp beyond 64 bits: {_quote(cell)}")
    return key, time, DataType.Int64


def _is_int(value: Any, allowed: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


def _quote(cell: str | bytes) -> str:
    return repr(cell[:60])


class DeleteIndex:
    """The latest delete of every key, to look rows up in.

    Args:
        deletes: All deletes that concern the rows; keys of one type.
        until: Later deletes have not happened.
    """

    def __init__(self, deletes: Iterable[Deletes], until: int | None) -> None:
        some = [(one.keys, one.times) if until is None else _until(one, until) for one in deletes]
        numbers = [pair for pair in some if pa.types.is_int64(pair[0].type) and len(pair[0])]
        texts = [pair for pair in some if pa.types.is_string(pair[0].type) and len(pair[0])]
        self._numbers = _Numbers(numbers) if numbers else None
        self._texts = _Texts(texts) if texts else None

    def surviving(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Which rows are not deleted, 1 or 0 each; `None` when all of them survive.

        Args:
            keys: Their primary keys.
            times: When they were inserted.
        """
        table = self._numbers if pa.types.is_int64(keys.type) else self._texts
        if table is None:
            return None
        keep = np.empty(len(keys), np.uint8)
        return None if table.surviving(keys, times, keep) == len(keys) else keep


def _until(deletes: Deletes, until: int) -> tuple[pa.Array, pa.Array]:
    import pyarrow.compute as pc

    early = pc.less_equal(deletes.times, until)
    return deletes.keys.filter(early), deletes.times.filter(early)


class _Table:
    """What hash tables of both types of keys have in common."""

    def __init__(self, count: int) -> None:
        room = max(_SMALLEST_TABLE, 1 << (2 * count).bit_length())
        self._salt = np.uint64(secrets.randbits(64))
        self._table = np.full(2 * room, -1, np.int64)
        self._marks = np.zeros(room // 64 * _MARKS, np.uint64)


class _Numbers(_Table):
    """The latest delete of every int64 key."""

    def __init__(self, pairs: Sequence[tuple[pa.Array, pa.Array]]) -> None:
        keys, times = (np.concatenate([one.to_numpy() for one in column]) for column in zip(*pairs, strict=True))
        super().__init__(len(keys))
        kernels.index_numbers(keys, times, self._salt, self._table, self._marks)

    def surviving(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        table = (self._salt, self._table, self._table.view(np.uint8), self._marks)
        suspects = np.empty(len(keys), np.int64)
        return int(kernels.surviving_numbers(keys.to_numpy(), times, *table, suspects, keep))


class _Texts(_Table):
    """The latest delete of every varchar key."""

    def __init__(self, pairs: Sequence[tuple[pa.Array, pa.Array]]) -> None:
        keys = pa.concat_arrays([key for key, _ in pairs])
        times = np.concatenate([time.to_numpy() for _, time in pairs])
        super().__init__(len(keys))
        self._offsets, self._data = offsets_of(keys)
        kernels.index_texts(self._data, self._offsets, times, self._salt, self._table, self._marks)

    def surviving(self, keys: pa.Array, times: NDArray[np.int64], keep: NDArray[np.uint8]) -> int:
        """Mark the rows that are not deleted, and count them."""
        offsets, data = offsets_of(keys)
        table = (self._salt, self._data, self._offsets, self._table, self._marks)
        return int(kernels.surviving_texts(data, offsets, times, *table, keep))


@dataclass(frozen=True, slots=True)
class DeltaLogs:
    """Some delta logs whose deletes are looked up together.

    Attributes:
        files: The delta logs.
        opened: Stands for the dataset that they were found by. What another one reads is read anew.
        until: Later deletes have not happened.
        max_page_bytes: See the read options.
        storage: Where they are.
    """

    files: tuple[File, ...]
    opened: str
    until: int | None = field(compare=False)
    max_page_bytes: int = field(compare=False)
    storage: Storage = field(compare=False)

    def index(self, reported: Iterable[File], findings: Findings) -> DeleteIndex:
        """The index over all of them, which the batches of a segment, or of a partition, share.

        Args:
            reported: Those of them that the caller has to report on; others did or will report the rest.
            findings: Told of damage.
        """
        if findings.on_damage == "fail":
            return _cached(self, strict=True)
        rows = findings.rows
        for file in self.files:
            if file in reported:
                for _ in read_deletes(file, self.storage, self.max_page_bytes, findings):
                    pass
        findings.rows = rows
        return _cached(self, strict=False)


@lru_cache(maxsize=2)
def _cached(logs: DeltaLogs, *, strict: bool) -> DeleteIndex:
    findings = Findings("fail" if strict else "skip")
    read = (read_deletes(file, logs.storage, logs.max_page_bytes, findings) for file in logs.files)
    return DeleteIndex((some for deletes in read for some in deletes), logs.until)
