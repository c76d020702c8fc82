"""Delta logs: deleted keys and when they were deleted. Section 3.4 of the format; four encodings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import fill_null, make_array, make_fixed_array, make_scalar
from sawlog.format.damage import Damage, Findings
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.kernels.columns import gather_bytes
from sawlog.milvus import layout
from sawlog.milvus.columns import split_binary
from sawlog.milvus.deletes import kernels
from sawlog.milvus.layout import BinlogDamageKind, DataType
from sawlog.milvus.log import Log, LogPart, blame
from sawlog.milvus.payloads.payload import Payload, UnreadableError, zip_columns

_INT64 = range(-(1 << 63), 1 << 63)
_TIMES = range(1 << 63)
_CELLS_AT_ONCE = 8 << 10
"""Cells of text that are read at once: the next ones take the memory of the last, which is in the cache."""
_PK_TYPES = {DataType.Int64: pa.int64(), DataType.VarChar: pa.string()}


@dataclass(frozen=True, slots=True)
class Deletes:
    """Deletes of one file.

    Attributes:
        keys: Primary keys, int64 or string.
        times: When they were deleted: TSOs, int64.
        offset: Where the event that holds them begins in the file.
    """

    keys: pa.Array
    times: pa.Array
    offset: int


def read_deletes(log: Log, findings: Findings, key: pa.DataType | None = None, expected: int = 0) -> Iterator[Deletes]:
    """Yield the deletes of one file, in order, whichever its encoding.

    Args:
        log: The file, open.
        findings: Receives damage, and the use of every byte.
        key: Type that the keys have to have; `None`: whichever they have.
        expected: How many there are by the metadata; 0 where unknown.
    """
    count, before = 0, sum(findings.kinds.values())
    for part in log.iterate_parts(log.load_descriptor(findings), findings):
        try:
            for part_delete in read_part_deletes(part, log.open_payload(part), key):
                findings.rows += len(part_delete.keys)
                count += len(part_delete.keys)
                yield part_delete
        except UnreadableError as error:
            blame(part, error.damage, findings)
        else:
            findings.account.record += part.length
    if expected not in (0, count) and before == sum(findings.kinds.values()):
        findings.add_damage(describe_other_count(log.path, "deletes", expected, count))


def describe_other_count(path: str, noun: str, expected: int, actual: int) -> Damage:
    """Return what to say of a log that has another number of rows, or of deletes, than the metadata says."""
    detail = f"expected {expected:,} {noun}, as the metadata says, found {actual:,}: {layout.OTHER_STATE}"
    return Damage(path, 0, 0, BinlogDamageKind.MISMATCHED_FILE.label, detail)


def read_part_deletes(part: LogPart, payload: Payload, key: pa.DataType | None) -> Iterator[Deletes]:
    """Yield the deletes of one event. See `read_deletes`.

    Raises:
        UnreadableError: After the others, when some of them make no sense, or when the rest cannot be read.
    """
    bad: list[tuple[int, str]] = []
    rows = 0
    for keys, times in _read_pairs(payload, bad):
        if key is not None and keys.type != key and len(keys):
            bad.append((rows, f"key {keys[0]}, of type {keys.type}; those of the collection are {key}"))
            continue
        rows += len(keys)
        yield Deletes(keys, times, part.offset)
    if bad:
        lost_rows = payload.rows - rows
        detail = f"{lost_rows} of {payload.rows} deletes cannot be read; the first is row {bad[0][0]}: {bad[0][1]}"
        raise payload.make_error(detail, BinlogDamageKind.BAD_DELETE.label)


def encode_deletes(payload: Payload, deletes: Iterable[Deletes]) -> pa.Table:
    """Return deletes in the form in which a payload stores them."""
    batches = list(deletes)
    if len(payload.schema) < 2:
        cells = [cell for batch in batches for cell in render_delta_cells(batch.keys, batch.times)]
        return pa.Table.from_arrays([make_array(cells, payload.schema.types[0])], schema=payload.schema)
    places = _find_columns(payload)
    stored = pa.schema([payload.schema.field(place) for place in places])
    keys, times = (
        pa.chunked_array(column) for column in zip(*((batch.keys, batch.times) for batch in batches), strict=True)
    )
    return pa.Table.from_arrays([keys, times.cast(stored.types[1])], schema=stored)


def render_delta_cells(keys: pa.Array, times: pa.Array) -> list[str]:
    """Return deletes in JSON, as Milvus writes them."""
    kind = DataType.Int64 if pa.types.is_int64(keys.type) else DataType.VarChar
    quoted = [key if kind is DataType.Int64 else json.dumps(key, ensure_ascii=False) for key in keys.to_pylist()]
    pairs = zip(quoted, times.to_pylist(), strict=True)
    return [f'{{"pk":{key},"ts":{time},"pkType":{kind:d}}}' for key, time in pairs]


def _read_pairs(payload: Payload, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield keys and times of a payload, in batches; rows that make no sense are noted and left out."""
    if len(payload.schema) >= 2:
        yield from _read_columns(payload, bad)
        return
    if not payload.schema:
        raise payload.make_error("the payload has no column")
    row = 0
    for (cells,), keep in zip_columns(payload, [(0, None)], _CELLS_AT_ONCE):
        if not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
            raise payload.make_error(f"expected a column of text, or two columns, found one of {cells.type}")
        yield from parse_text_deletes(cells, row, bad)
        row += len(keep)


def _read_columns(payload: Payload, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    places = _find_columns(payload)
    key_type = payload.schema.types[places[0]]
    if key_type not in _PK_TYPES.values() or payload.schema.types[places[1]] not in (pa.int64(), pa.uint64()):
        raise payload.make_error(f"expected columns of keys and timestamps, found {payload.schema.types}")
    row = 0
    for (keys, times), keep in zip_columns(payload, [(place, None) for place in places]):
        yield _select_valid(keys, times.view(pa.int64()), row, bad)
        row += len(keep)


def _find_columns(payload: Payload) -> tuple[int, int]:
    """Return where keys and timestamps are: by field id where there are any, else by name, else in order."""
    ids = [(field.metadata or {}).get(layout.FIELD_ID_KEY) for field in payload.schema]
    names = payload.schema.names
    if b"0" in ids and b"1" in ids:
        return ids.index(b"0"), ids.index(b"1")
    return (names.index("pk"), names.index("ts")) if "pk" in names and "ts" in names else (0, 1)


def _select_valid(keys: pa.Array, times: pa.Array, row: int, bad: list[tuple[int, str]]) -> tuple[pa.Array, pa.Array]:
    import pyarrow.compute as pc

    fine = pc.and_(pc.and_(keys.is_valid(), times.is_valid()), pc.greater_equal(times, make_scalar(0, times.type)))
    fine = fill_null(fine, False)
    if pa.types.is_string(keys.type) and not _is_text(keys):
        fine = pc.and_(
            fine, make_array([_is_text(keys.slice(row_index, 1)) for row_index in range(len(keys))], pa.bool_())
        )
        keys = keys.cast(pa.binary())
    if fine.false_count:
        rows = [row_index for row_index, good in enumerate(fine.to_pylist()) if not good]
        bad += [(row + row_index, f"key {keys[row_index]}, timestamp {times[row_index]}") for row_index in rows]
        keys, times = keys.filter(fine), times.filter(fine)
    return keys.cast(pa.string()) if pa.types.is_binary(keys.type) else keys, times


def _is_text(array: pa.Array) -> bool:
    """Return whether strings are UTF-8, as those of Parquet need not be."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def parse_text_deletes(cells: pa.Array, row: int, bad: list[tuple[int, str]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield cells as Milvus writes them all at once; from the first that looks otherwise, one by one."""
    usual = _parse_usual_cells(cells)
    row_index = 0
    if usual is not None:
        yield usual
        row_index = len(usual[0])
    groups: dict[DataType, tuple[list[Any], list[int]]] = {}
    for cell in cells.slice(row_index).cast(pa.binary()).to_pylist():
        parsed = parse_cell(cell if cell is not None else b"null")
        if isinstance(parsed, Undecodable):
            bad.append((row + row_index, parsed.detail))
        else:
            key, time, kind = parsed
            keys, times = groups.setdefault(kind, ([], []))
            keys.append(key)
            times.append(time)
        row_index += 1
    for kind, (keys, times) in groups.items():
        yield make_array(keys, _PK_TYPES[kind]), make_array(times, pa.int64())


def _parse_usual_cells(cells: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Return keys and times of the first cells, those in the very form that Milvus writes.

    `None` where there are none.
    """
    rows = len(cells)
    offsets, data = split_binary(cells)
    times = np.empty(rows, np.int64)
    numbers = np.empty(rows, np.int64)
    count = kernels.parse_number_cells(data, offsets, numbers, times)
    if count:
        return make_fixed_array(pa.int64(), numbers[:count]), make_fixed_array(pa.int64(), times[:count])
    lengths = np.empty(rows, np.int64)
    count = kernels.parse_text_cells(data, offsets, numbers, lengths, times)
    if not count:
        return None
    keys = gather_bytes(data, numbers[:count], lengths[:count])
    binary = pa.Array.from_buffers(pa.binary(), count, [None, *keys])
    try:
        return binary.cast(pa.string()), make_fixed_array(pa.int64(), times[:count])
    except pa.ArrowInvalid:  # not UTF-8; one by one, it is found where
        return None


def parse_cell(cell: str | bytes) -> tuple[Any, int, DataType] | Undecodable:
    """Parse a delete: JSON with `pk`, `ts` and `pkType`, or the legacy text `pk,ts`; else, why it is neither."""
    data = decode_json(cell)
    if isinstance(data, Undecodable):
        return _parse_legacy_cell(cell)
    key, time, kind = (data.get(name) if isinstance(data, dict) else None for name in ("pk", "ts", "pkType"))
    if kind == DataType.Int64 and _is_int(key, _INT64) and _is_int(time, _TIMES):
        return key, int(str(time)), DataType.Int64
    if kind == DataType.VarChar and isinstance(key, str) and _is_int(time, _TIMES):
        return key, int(str(time)), DataType.VarChar
    return Undecodable(f"expected pk, ts and pkType of types that go together, found {_quote(cell)}")


def _parse_legacy_cell(cell: str | bytes) -> tuple[int, int, DataType] | Undecodable:
    text = cell if isinstance(cell, str) else cell.decode("utf-8", "replace")
    parts = [call_decoder(int, part) for part in text.split(",")]
    numbers = [part for part in parts if not isinstance(part, Undecodable)]
    if len(numbers) != 2 or len(parts) != 2:
        return Undecodable(f"expected JSON or `key,timestamp`, found {_quote(cell)}")
    key, time = numbers
    if key not in _INT64 or time not in _TIMES:
        return Undecodable(f"a key or timestamp beyond 64 bits: {_quote(cell)}")
    return key, time, DataType.Int64


def _is_int(value: Any, allowed: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


def _quote(cell: str | bytes) -> str:
    return repr(cell[:60])
