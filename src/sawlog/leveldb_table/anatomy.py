"""The blocks of a table and its footer, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sawlog.anatomy import Part, Use
from sawlog.leveldb_table import layout
from sawlog.leveldb_table.meta import Role

if TYPE_CHECKING:
    from sawlog.leveldb_table.meta import TableMap
    from sawlog.storage import Source

_NAMES = {Role.DATA: "data block", Role.RANGE_DELETES: "range deletions", Role.GAP: "gap", Role.OVERLAP: "overlap"}


def parts(source: Source, offset: int, table: TableMap) -> Iterator[Part]:
    """Blocks from the one on that holds an offset, each with its trailer, and the footer."""
    footer = table.rules.limit
    named = {handle.offset: name for name, handle in table.others}
    for start, length, role in table.spans[["offset", "length", "role"]].tolist():
        if start + length <= offset or not length:
            continue
        if start >= footer:
            ending = source.window(footer, table.footer.size).tobytes()
            yield from _footer(ending, footer) if len(ending) == table.footer.size else ()
            return
        use: Use = "record" if role in (Role.DATA, Role.RANGE_DELETES) else "header"
        name = named.get(start, _NAMES.get(role, "block"))
        if role in (Role.GAP, Role.OVERLAP) or length < layout.TRAILER_SIZE:
            yield Part(name, start, length)
            continue
        body = length - layout.TRAILER_SIZE
        trailer = source.window(start + body, layout.TRAILER_SIZE).tobytes()
        yield Part(name, start, body, f"{body:,} bytes", use=use)
        yield Part("compression", start + body, layout.CHECKSUM_OFFSET, str(trailer[0]))
        stored = int.from_bytes(trailer[layout.CHECKSUM_OFFSET :], "little")
        yield Part("checksum", start + body + layout.CHECKSUM_OFFSET, 4, hex(stored))


def _footer(data: bytes, at: int) -> Iterator[Part]:
    magic = len(data) - layout.MAGIC_SIZE
    here = 0
    if len(data) > layout.LEVELDB_FOOTER:
        yield Part("checksum type", at, layout.CHECKSUM_TYPE_SIZE, str(data[0]), use="header")
        here = layout.CHECKSUM_TYPE_SIZE
    yield Part("handles", at + here, layout.HANDLES_SIZE, "metaindex and index", use="header")
    here += layout.HANDLES_SIZE
    # Pebble's later footers have a checksum before the version, and the last one attributes before that.
    for name in ("attributes", "checksum", "format version")[-((magic - here) // layout.VERSION_SIZE) or 3 :]:
        number = int.from_bytes(data[here : here + layout.VERSION_SIZE], "little")
        shown = str(number) if name == "format version" else hex(number)
        yield Part(name, at + here, layout.VERSION_SIZE, shown, use="header")
        here += layout.VERSION_SIZE
    dialect = layout.MAGICS.get(int.from_bytes(data[magic:], "little"), "unknown")
    yield Part("magic", at + magic, layout.MAGIC_SIZE, dialect, use="header")
