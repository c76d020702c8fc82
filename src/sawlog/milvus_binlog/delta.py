"""Delta logs: deleted keys and when they were deleted. Section 3.4 of the format; four encodings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage, Findings
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import DataType, Kind
from sawlog.milvus_binlog.payload_stream import ColumnStream, Extent, Payload, Unreadable, batch_rows
from sawlog.storage import File, Source, Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT64 = range(-(1 << 63), 1 << 63)
_TIMES = range(1 << 63)
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
    with closing(storage.open(file.path)) as source:
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
    except Unreadable as error:
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
    step = batch_rows([(payload, 0)])
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
    """JSON cells all at once where they are all of one kind; otherwise one by one."""
    fast = _json_cells(cells)
    if fast is not None:
        yield _valid(*fast, row, bad)
        return
    found: dict[DataType, tuple[list[Any], list[int]]] = {}
    for at, cell in enumerate(cells.cast(pa.binary()).to_pylist()):
        try:
            key, time, kind = parse_cell(cell if cell is not None else b"null")
        except ValueError as error:
            bad.append((row + at, str(error)))
            continue
        keys, times = found.setdefault(kind, ([], []))
        keys.append(key)
        times.append(time)
    for kind, (keys, times) in found.items():
        yield pa.array(keys, _PK_TYPES[kind]), pa.array(times, pa.int64())


def _json_cells(cells: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Keys and times of JSON cells by Arrow's own JSON reader; `None` when not every cell is one that it can read."""
    import pyarrow.compute as pc
    import pyarrow.json as pj

    if not len(cells) or cells.null_count or cells[0].as_py()[:1] not in ("{", b"{"):
        return None
    try:
        _, _, kind = parse_cell(cells[0].as_py())
    except ValueError:
        return None
    joined = pa.ListArray.from_arrays(pa.array([0, len(cells)], pa.int32()), cells.cast(pa.binary()))
    text = pc.binary_join(joined, b"\n")[0].as_buffer()
    schema = pa.schema([("pk", _PK_TYPES[kind]), ("ts", pa.int64()), ("pkType", pa.int64())])
    parse = pj.ParseOptions(explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error")
    read = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    try:
        table = pj.read_json(pa.BufferReader(text), read_options=read, parse_options=parse)
    except pa.ArrowInvalid:
        return None
    kinds = table.column("pkType")
    if table.num_rows != len(cells) or kinds.null_count or pc.any(pc.not_equal(kinds, int(kind))).as_py():
        return None
    columns = [table.column(name).combine_chunks() for name in ("pk", "ts")]
    return None if any(column.null_count for column in columns) else (columns[0], columns[1])


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
        import pyarrow.compute as pc

        self.count = 0
        keys: list[pa.Array] = []
        times: list[pa.Array] = []
        for some in deletes:
            known, when = some.keys, some.times
            if until is not None:
                early = pc.less_equal(when, until)
                known, when = known.filter(early), when.filter(early)
            keys.append(known)
            times.append(when)
            self.count += len(known)
        self._texts: tuple[pa.Array, NDArray[np.int64]] | None = None
        self._table: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        numbers = [i for i, key in enumerate(keys) if pa.types.is_int64(key.type) and len(key)]
        texts = [i for i, key in enumerate(keys) if pa.types.is_string(key.type) and len(key)]
        if numbers:
            self._table = _hash_table([keys[i] for i in numbers], [times[i] for i in numbers])
        if texts:
            table = pa.table(
                {"key": pa.chunked_array([keys[i] for i in texts]), "time": pa.chunked_array([times[i] for i in texts])}
            )
            latest = table.group_by("key").aggregate([("time", "max")])
            self._texts = (latest["key"].combine_chunks(), latest["time_max"].to_numpy())

    def surviving(self, keys: pa.Array, times: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Which rows are not deleted, 1 or 0 each; `None` when all of them survive.

        Args:
            keys: Their primary keys.
            times: When they were inserted.
        """
        import numpy as np
        import pyarrow.compute as pc

        if pa.types.is_int64(keys.type):
            if self._table is None:
                return None
            from sawlog.milvus_binlog import kernels

            keep = np.empty(len(keys), np.uint8)
            kept = kernels.surviving(keys.to_numpy(), times, *self._table, keep)
            return None if kept == len(keys) else keep
        if self._texts is None:
            return None
        found = pc.index_in(keys, value_set=self._texts[0]).fill_null(-1).to_numpy()
        keep = ((found < 0) | (self._texts[1][found] <= times)).astype(np.uint8)
        return None if keep.all() else keep


def _hash_table(keys: Sequence[pa.Array], times: Sequence[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    import numpy as np

    from sawlog.milvus_binlog import kernels

    all_keys = np.concatenate([key.to_numpy() for key in keys])
    all_times = np.concatenate([time.to_numpy() for time in times])
    room = 1 << max(4, (2 * len(all_keys)).bit_length())
    table = np.zeros(room, np.int64), np.full(room, -1, np.int64)
    kernels.build_deletes(all_keys, all_times, *table)
    return table


@lru_cache(maxsize=4)
def _cached_index(files: tuple[File, ...], storage: _Shared, max_page_bytes: int, until: int | None) -> DeleteIndex:
    quiet = Findings("skip")
    deletes = (some for file in files for some in read_deletes(file, storage.storage, max_page_bytes, quiet))
    return DeleteIndex(deletes, until)


class _Shared:
    """A storage as part of a cache key: all storages count as equal, for paths name files whole."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and self.storage == other.storage

    def __hash__(self) -> int:
        return 0


def delete_index(
    files: tuple[File, ...],
    reported: Iterable[File],
    storage: Storage,
    max_page_bytes: int,
    until: int | None,
    findings: Findings,
) -> DeleteIndex:
    """The index over some delta logs. The batches of a segment share one.

    Args:
        files: The delta logs.
        reported: Those that the caller has to report on; others in the same segment did or will report the rest.
        storage: Where they are.
        max_page_bytes: See the read options.
        until: Later deletes have not happened.
        findings: Told of damage.
    """
    if findings.on_damage == "fail":
        return _strict_index(files, _Shared(storage), max_page_bytes, until)
    for file in reported:
        rows = findings.rows
        for _ in read_deletes(file, storage, max_page_bytes, findings):
            pass
        findings.rows = rows
    return _cached_index(files, _Shared(storage), max_page_bytes, until)


@lru_cache(maxsize=4)
def _strict_index(files: tuple[File, ...], storage: _Shared, max_page_bytes: int, until: int | None) -> DeleteIndex:
    strict = Findings("fail")
    deletes = (some for file in files for some in read_deletes(file, storage.storage, max_page_bytes, strict))
    return DeleteIndex(deletes, until)
