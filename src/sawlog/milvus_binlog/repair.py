"""Repairing one file: what stands before the magic number, behind the last event, or damaged between is left out."""

from __future__ import annotations

from contextlib import closing

from sawlog.damage import Damage, FileReport, Findings
from sawlog.errors import FormatError
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import Kind
from sawlog.milvus_binlog.options import ReadOptions
from sawlog.milvus_binlog.payloads.payload import BATCH_ROWS, Extent, Payload, UnreadableError
from sawlog.milvus_binlog.source import open_log
from sawlog.storage import File, Source, Storage


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Copy the descriptor and the intact events of a file. See `Format.repair`.

    Raises:
        FormatError: For files without an envelope that are no intact Parquet or statistics: nothing can be taken
            out of those.
    """
    findings = Findings("skip")
    with closing(open_log(file, storage)) as source:
        head = bytes(source.window(0, 4096))
        if _envelope.sniff(head) in ("parquet", "stats"):
            pieces = [_whole(source, file, options, findings)]
        else:
            pieces = _events(source, file, options, findings, head)
        staged = storage.stage(target)
        try:
            for piece in pieces:
                staged.write(source.window(piece.offset, piece.length))
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise
    return FileReport.of(file.path, file.size, [findings])


def _whole(source: Source, file: File, options: ReadOptions, findings: Findings) -> Extent:
    whole = Extent(0, source.size)
    if _envelope.sniff(bytes(source.window(0, 16))) == "parquet" and not _intact(
        source, file, whole, options, findings
    ):
        raise FormatError(f"{file.path}: a damaged Parquet file without an envelope; nothing can be taken out of it")
    findings.account.record += source.size
    return whole


def _events(source: Source, file: File, options: ReadOptions, findings: Findings, head: bytes) -> list[Extent]:
    base = max(0, head[: layout.MAGIC_SEARCH].find(layout.MAGIC))
    if base:
        detail = f"{base} bytes in front of the magic number: {head[:16].hex(' ')}"
        findings.damage(Damage(file.path, 0, base, Kind.BAD_MAGIC, detail))
    found = _envelope.read_envelope(source, file.path, findings, base)
    if found is None:
        raise FormatError(f"{file.path}: {findings.damages[-1].detail}; nothing can be taken out of it")
    pieces = [Extent(base, len(layout.MAGIC) + found.descriptor.length)]
    for event in found.events:
        extent = Extent(event.payload, event.payload_length)
        if _intact(source, file, extent, options, findings, event.offset):
            pieces.append(Extent(event.offset, event.length))
            findings.account.record += event.length
    return pieces


def _intact(
    source: Source, file: File, extent: Extent, options: ReadOptions, findings: Findings, start: int | None = None
) -> bool:
    try:
        payload = Payload(source, file.path, extent, options.max_page_bytes)
        for index in range(len(payload.schema)):
            for _ in payload.column_batches(index, BATCH_ROWS):
                pass
    except UnreadableError as error:
        begin = extent.offset if start is None else start
        length = extent.offset + extent.length - begin
        findings.damage(Damage(file.path, begin, length, error.damage.kind, error.damage.detail))
        return False
    findings.rows += payload.rows
    return True
