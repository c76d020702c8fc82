"""Repairing one file: what is intact of it is rewritten as a file that is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.errors import FormatError
from sawlog.format.damage import Damage, Findings
from sawlog.milvus import layout, paths
from sawlog.milvus.deletes.log import Deletes, encode_deletes, read_part_deletes
from sawlog.milvus.encode import NewEvent, encode_descriptor, encode_event, encode_parquet
from sawlog.milvus.fragments import FileSubject, decode_part, decode_rows, read_subject
from sawlog.milvus.layout import BinlogDamageKind, DataType
from sawlog.milvus.log import Descriptor, Log, LogPart, blame, check_content, hold_log
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.payloads.payload import ColumnStream, Payload, UnreadableError, limit_rows
from sawlog.milvus.payloads.stored import make_event_field
from sawlog.milvus.stats import check_stats, decode_bm25_batch
from sawlog.milvus.types import Field
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray


def repair(
    file: File,
    target: str,
    options: ReadOptions,
    storage: Storage,
    mask: NDArray[np.uint8] | None = None,
    fields: Mapping[int, Field] = MappingProxyType({}),
) -> int:
    """Write what can be read of a file. See `Format.repair`.

    Events that are whole are copied; of one that is not, the rows that can be read are encoded again.

    Args:
        file: The file.
        target: The new one.
        options: Read options.
        storage: Where both are.
        mask: 1 for each row of an insert log whose other columns have it, too, 0 for the others; `None` for all.
        fields: Those of its collection that are known, by id.

    Returns:
        How many bytes the new one has.

    Raises:
        FormatError: When nothing can be taken out of it.
    """
    findings = Findings("skip", drained=True)
    with hold_log(file, storage, options.max_item_bytes) as log:
        if log.fault is not None:
            raise FormatError(str(log.fault))
        base = max(0, log.head[: layout.MAGIC_SEARCH].find(layout.MAGIC)) if log.shape == "unknown" else 0
        if base:
            detail = f"{base} bytes in front of the magic number: {log.head[:16].hex(' ')}"
            findings.add_damage(Damage(file.path, 0, base, BinlogDamageKind.BAD_MAGIC.label, detail))
        inside = Findings("skip", drained=True)
        staged = storage.stage(target)
        size = 0
        try:
            for piece in _iterate_pieces(log.from_offset(base) if base else log, file, inside, mask, fields):
                staged.write(piece)
                size += memoryview(piece).nbytes
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise
    return size


def _iterate_pieces(
    log: Log, file: File, findings: Findings, rows: NDArray[np.uint8] | None, fields: Mapping[int, Field]
) -> Iterator[Any]:
    """Yield the bytes of the repaired file, with some rows. See `repair`."""
    place = paths.parse(file)
    try:
        subject = read_subject(log, place, fields)
    except FormatError as error:
        raise FormatError(f"{error}; nothing can be taken out of it") from None
    if subject.content in ("stats", "bm25"):
        check = check_stats if subject.content == "stats" else decode_bm25_batch
        check(log.read_all(), log.path, findings)
        _refuse(findings, log.path)
        yield log.read_all()
        return
    descriptor = log.load_descriptor(findings)
    position = kept_events = 0
    if descriptor is not None:
        if descriptor.is_encrypted:
            raise FormatError(f"{log.path}: encrypted; nothing can be taken out of it")
        head = _make_descriptor(log, descriptor, findings)
        position += len(head)
        yield head
    for part in log.iterate_parts(descriptor, findings):
        piece, count = _repair_part(log, part, descriptor, subject, position, findings, rows)
        rows = None if rows is None else rows[count:]
        if piece is None and descriptor is None:
            _refuse(findings, log.path)
        if piece is not None:
            position += len(piece)
            kept_events += 1
            yield piece
    typed = descriptor is not None and make_event_field(descriptor, 0).type is not DataType.None_
    if not kept_events and descriptor is not None and not (typed and subject.content == "insert"):
        _refuse(findings, log.path)


def _refuse(findings: Findings, path: str) -> None:
    """Refuse a file without an envelope of which nothing is left.

    Raises:
        FormatError: Says what is wrong with it.
    """
    if findings.damages:
        raise FormatError(f"{path}: {findings.damages[0].detail}; nothing can be taken out of it")


def _make_descriptor(log: Log, descriptor: Descriptor, findings: Findings) -> bytes:
    """Return the magic number and the descriptor of a repaired file.

    With extras that say what has to be said where those of the file are broken.
    """
    stored = bytes(log.source.read_window(0, descriptor.end))
    if not findings.kinds[BinlogDamageKind.BAD_EXTRA.label]:
        return stored
    pos = len(layout.MAGIC) + layout.HEADER.size
    fixed = stored[pos : pos + layout.DESCRIPTOR.size]
    extra = {layout.ORIGINAL_SIZE: str(log.source.size - descriptor.end)}
    return layout.MAGIC + encode_descriptor(descriptor.timestamp, fixed, extra)


def _repair_part(
    log: Log,
    part: LogPart,
    descriptor: Descriptor | None,
    subject: FileSubject,
    position: int,
    findings: Findings,
    rows: NDArray[np.uint8] | None,
) -> tuple[Any, int]:
    """Return the bytes of one event, or of a bare file, `None` where nothing of it is left; and how many rows it has.

    Args:
        log: The file.
        part: The event.
        descriptor: That of the file; `None` for bare Parquet.
        subject: What the file holds.
        position: Where the event goes in the repaired file.
        findings: Receives damage, and the rows that are kept.
        rows: Which rows are kept from the event on; `None` for all.
    """
    masks: list[NDArray[np.uint8]] = []
    payload: Payload | None = None
    is_whole = False
    try:
        check_content(part, descriptor, subject.content, log.path)
        payload = log.open_payload(part)
        masks.extend(_read(part, payload, subject))
        is_whole = True
    except UnreadableError as error:
        blame(part, error.damage, findings)
        if payload is None:
            return None, 0
    keep = np.concatenate([np.empty(0, np.uint8), *masks])
    if rows is not None:
        keep = keep[: len(rows)] & rows[: len(keep)]
        is_whole = is_whole and len(keep) == payload.rows and bool(keep.all())
    count = int(keep.sum())
    if not is_whole and (not count or (descriptor is not None and descriptor.is_legacy)):
        return None, payload.rows
    findings.rows += count
    if is_whole:
        return log.source.read_window(part.offset, part.length), payload.rows
    data = encode_parquet(
        _read_rows(payload, subject, keep, part), store_schema=any(field.metadata for field in payload.schema)
    )
    if part.event is None:
        return data, payload.rows
    event = NewEvent(part.event.type, part.event.start_timestamp, part.event.end_timestamp, data)
    end = position + layout.HEADER.size + layout.EVENT_DATA.size + len(data)
    return encode_event(event, part.event.timestamp, end) + data, payload.rows


def _read(part: LogPart, payload: Payload, subject: FileSubject) -> Iterator[NDArray[np.uint8]]:
    """Yield which rows of the event a read delivers: 1 for each of them, 0 for the others.

    Raises:
        UnreadableError: After the last that it delivers, when the event is damaged.
    """
    if subject.content == "delta":
        for part_delete in read_part_deletes(part, payload, None):
            yield np.ones(len(part_delete.keys), np.uint8)
    elif subject.content in ("insert", "columns"):
        for _, keep in decode_rows(payload, list(enumerate(subject.fields))):
            yield keep
    else:
        yield np.ones(decode_part(payload, part, subject).num_rows, np.uint8)


def _read_rows(payload: Payload, subject: FileSubject, keep: NDArray[np.uint8], part: LogPart) -> pa.Table:
    """Return the rows of a damaged event that can be read, as they are stored."""
    if subject.content == "delta":
        return encode_deletes(payload, _read_until_damage(read_part_deletes(part, payload, None)))
    step = limit_rows(payload, range(len(subject.fields)))
    columns = range(len(payload.schema))
    columns_kept = [ColumnStream([payload], index, step).take_selected(keep, int(keep.sum())) for index in columns]
    return pa.Table.from_arrays(columns_kept, schema=payload.schema)


def _read_until_damage(deletes: Iterator[Deletes]) -> Iterator[Deletes]:
    with suppress(UnreadableError):
        yield from deletes
