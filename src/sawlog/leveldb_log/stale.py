"""What is left of the former lives of a recycled log, behind its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sawlog.damage import Findings
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.head import LogHead, first_fragments
from sawlog.leveldb_log.walk import Walk

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.leveldb_log.fragments import LogRange
    from sawlog.storage import Source

SEARCHED = 32 * layout.BLOCK_SIZE
"""Bytes in which the next life is looked for at a time."""


def former_lives(fragment: LogRange, walk: Walk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a file that was written over, from where its log ends.

    The log that the file was before goes on behind that place, up to where it ended in turn; and so forth. What cannot
    be read there is no damage: it was given up when the file was written over.

    Args:
        fragment: All of the log.
        walk: The walk over it, at its end.
        schema: As for `Fragment.decode`.
    """
    findings = walk.findings
    while walk.doubtful >= 0:
        found = _next_life(walk.doubtful, fragment.file.size, walk.head, walk.source)
        if found is None:
            return
        start, head = found
        ledger = Findings("skip")
        begin = walk.doubtful if "damaged" in fragment.scan.options.salvage else start
        range_ = replace(fragment, start=begin, end=fragment.file.size, synced=True)
        walk = Walk(range_, walk.source, head, schema, ledger, stale=True)
        for batch in walk.batches():
            findings.rows += ledger.rows
            findings.notes["stale_rows"] += ledger.rows
            ledger.rows = 0
            yield batch


def _next_life(doubtful: int, size: int, head: LogHead, source: Source) -> tuple[int, LogHead] | None:
    """The first block behind a place that begins with a fragment of another log, and that log's number."""
    for start in range(layout.block_end(doubtful), size, SEARCHED):
        window = bytes(source.window(start, min(SEARCHED, size - start)))
        for offset, kind, body in first_fragments(window, head.dialect):
            if layout.TYPES[head.dialect][kind].header_size == layout.HEADER_SIZE:
                continue
            number = layout.LOG_NUMBER.of(body, -layout.TYPE.end)
            if number != head.log_number:
                return start + offset, replace(head, log_number=number)
    return None
