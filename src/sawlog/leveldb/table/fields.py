"""The blocks of a table, their entries, and its footer, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sawlog.fields import Fields, Part, Use
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.meta import Role
from sawlog.pictures import key_text

if TYPE_CHECKING:
    from sawlog.leveldb.table.meta import TableMap
    from sawlog.storage import Source

_KIND = 0xFF
"""In the number that ends a key: the type of the operation."""
_MOST = 64 << 10
"""Bytes of entries of a block that are named."""
DATA_BLOCK = "data block"
_NAMES = {Role.DATA: DATA_BLOCK, Role.RANGE_DELETES: "range deletions", Role.GAP: "gap", Role.OVERLAP: "overlap"}


def parts(source: Source, offset: int, table: TableMap) -> Iterator[Part]:
    """Blocks from the one on that holds an offset, each with its trailer, and the footer."""
    footer = table.rules.limit
    for start, length, role, name in named_spans(table):
        if start + length <= offset or not length:
            continue
        if start >= footer:
            ending = source.window(footer, table.footer.size).tobytes()
            yield from _footer(ending, footer) if len(ending) == table.footer.size else ()
            return
        use: Use = "record" if role in (Role.DATA, Role.RANGE_DELETES) else "header"
        if role in (Role.GAP, Role.OVERLAP) or length < layout.TRAILER_SIZE:
            yield Part(name, start, length)
            continue
        body = length - layout.TRAILER_SIZE
        trailer = source.window(start + body, layout.TRAILER_SIZE).tobytes()
        compression = _compression(trailer[0], table)
        yield from _block(source, start, body, name, use, role, table, compression)
        yield Part("compression", start + body, layout.CHECKSUM_OFFSET, f"{trailer[0]}, {compression}")
        stored = int.from_bytes(trailer[layout.CHECKSUM_OFFSET :], "little")
        yield Part("checksum", start + body + layout.CHECKSUM_OFFSET, 4, hex(stored))


def named_spans(table: TableMap) -> Iterator[tuple[int, int, Role, str]]:
    """The spans of a table: offset, bytes with the trailer, role, and the name of the block."""
    named = {handle.offset: name for name, handle in table.others} | {table.rules.limit: "footer"}
    for start, length, role in table.spans[["offset", "length", "role"]].tolist():
        yield start, length, Role(role), named.get(start, _NAMES.get(role, "block"))


def _compression(code: int, table: TableMap) -> str:
    """What a block is compressed with, by the code of the engine that wrote it."""
    if table.footer.dialect == "leveldb" and code == layout.LEVELDB_ZSTD:
        return "zstd or zlib"
    return Compression(code).name.lower() if code in set(Compression) else "unknown"


def _block(
    source: Source, start: int, body: int, name: str, use: Use, role: Role, table: TableMap, compression: str
) -> Iterator[Part]:
    """A block as one part, or the entries of a data block that is stored as it is, and its restart points."""
    columnar = table.footer.pebble(layout.COLUMNAR)
    if role not in (Role.DATA, Role.RANGE_DELETES) or compression != "none" or columnar or body < layout.RESTART_SIZE:
        stored = f", compressed with {compression}" if compression not in ("none", "unknown") else ""
        yield Part(name, start, body, f"{body:,} bytes{stored}", use=use)
        return
    count = int.from_bytes(source.window(start + body - layout.RESTART_SIZE, layout.RESTART_SIZE).tobytes(), "little")
    end = body - layout.RESTART_SIZE * (1 + (count & ~layout.BLOCK_FLAGS))
    if count & layout.BLOCK_FLAGS & ~layout.UNIFORM_KEYS or end < 0:
        yield Part(name, start, body, f"{body:,} bytes", use=use)
        return
    looked_at = source.window(start, min(end, _MOST)).tobytes()
    yield from _entries(looked_at, start, table)
    if end > len(looked_at):
        yield Part("further entries", start + len(looked_at), end - len(looked_at), use=use)
    points = body - layout.RESTART_SIZE - end
    yield Part("restart points", start + end, points, f"{points // layout.RESTART_SIZE:,}")
    yield Part("number of restart points", start + body - layout.RESTART_SIZE, layout.RESTART_SIZE, f"{count:,}")


def _entries(data: bytes, start: int, table: TableMap) -> Iterator[Part]:
    """The entries of a block: what of the key each shares with the one before, the rest of the key, and the value."""
    key, fields = b"", Fields(data, start)
    kinds = layout.OPERATIONS | (layout.PEBBLE_OPERATIONS if table.footer.dialect == "pebble" else {})
    while fields.left:
        try:
            shared, rest, length = (fields.varint(name) for name in ("shared key bytes", "key bytes", "value length"))
            before = key[:shared]

            def show(taken: bytes, before: bytes = before) -> str:
                whole = before + taken
                trailer = int.from_bytes(whole[-layout.KEY_TRAILER :], "little")
                kind = kinds.get(trailer & _KIND, "unknown")
                user = key_text(whole[: -layout.KEY_TRAILER])
                return f"{user}, sequence {trailer >> layout.SEQUENCE_SHIFT:,}, {kind}"

            key = before + fields.take("key", rest, show)
            fields.take("value", length, key_text)
        except EOFError:
            break
        finally:
            yield from fields.found
            fields.found.clear()


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
