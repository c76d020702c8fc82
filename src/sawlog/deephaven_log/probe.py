"""Points that the published text leaves open, settled by the first entries of a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

from sawlog.deephaven_log import layout
from sawlog.deephaven_log.header import Header
from sawlog.deephaven_log.layout import Flag

_PROBED_ROWS = 32


def probe_entries(header: Header, head: bytes) -> Header:
    """Settle where the digest of entries stands and which end of a presence byte comes first.

    Args:
        header: What the header says.
        head: The first bytes of the file, entries behind the header included.
    """
    header = replace(header, trailing_digest=_trailing_digest(head[header.size :]))
    bodies = list(_row_bodies(header, head))
    usual = all(parses(header, body, big_bits=False) for body in bodies)
    big_bits = bool(bodies) and not usual and all(parses(header, body, big_bits=True) for body in bodies)
    return replace(header, big_bits=big_bits)


def _trailing_digest(data: bytes) -> bool:
    """Whether only a digest behind `size` bytes matches that of the first entry."""
    size = int.from_bytes(data[: layout.SIZE_SIZE], "big", signed=True)
    if size < layout.FLAGS_SIZE or len(data) < layout.SIZE_SIZE + size + layout.DIGEST_SIZE:
        return False
    inside = layout.SIZE_SIZE + size - layout.DIGEST_SIZE
    return not _matches(data, inside) and _matches(data, inside + layout.DIGEST_SIZE)


def _matches(data: bytes, end: int) -> bool:
    return end > 0 and zlib.adler32(data[:end]) == int.from_bytes(data[end : end + layout.DIGEST_SIZE], "big")


def _row_bodies(header: Header, head: bytes) -> Iterator[bytes]:
    """Bodies (presence map and values) of the first rows whose digests match."""
    position = header.size
    extra = layout.DIGEST_SIZE if header.trailing_digest else 0
    for _ in range(_PROBED_ROWS):
        size = int.from_bytes(head[position : position + layout.SIZE_SIZE], "big", signed=True)
        total = layout.SIZE_SIZE + size + extra
        entry = head[position : position + total]
        if size < layout.MIN_ENTRY_SIZE - extra or len(entry) < total or not _matches(entry, total - 4):
            return
        if entry[layout.SIZE_SIZE] < Flag.RECORD:
            yield entry[layout.SIZE_SIZE + layout.FLAGS_SIZE : -layout.DIGEST_SIZE]
        position += total


def parses(header: Header, body: bytes, *, big_bits: bool) -> bool:
    """Whether the values of a row end exactly where its body does."""
    position = header.presence_bytes
    if len(body) < position:
        return False
    for index, column in enumerate(header.stored):
        byte, bit = divmod(index, layout.PRESENCE_BITS)
        if not body[byte] & (0x80 >> bit if big_bits else 1 << bit):
            continue
        if column.width:
            position += column.width
        else:
            length = int.from_bytes(body[position : position + layout.COUNT_SIZE], "big", signed=True)
            if length < 0:
                return False
            position += layout.COUNT_SIZE + length
        if position > len(body):
            return False
    return position == len(body)
