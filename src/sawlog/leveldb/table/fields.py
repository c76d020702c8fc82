"""The blocks of a table, their entries, and its footer, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from sawlog.format.charts import render_key
from sawlog.format.fields import Fields, Part, Use, iterate_numbers
from sawlog.leveldb import codecs
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import join_values
from sawlog.leveldb.table.kernels import has_separate_values, locate_entries_end
from sawlog.leveldb.table.layout import Role
from sawlog.leveldb.table.meta import Footer, TableMap
from sawlog.storage import Source

_KIND = 0xFF
"""In the number that ends a key: the type of the operation."""
_MAX_BLOCK_BYTES = 4 << 20
"""Bytes of a block that is taken apart, and of its content."""
_MAX_INNER_PARTS = 60
"""Parts of a block that are named after decompression."""
_SPANS_AT_ONCE = 64
"""Spans that are looked at, though few of them may be wanted."""
DATA_BLOCK = "data block"
_NAMES = {Role.DATA: DATA_BLOCK, Role.RANGE_DELETES: "range deletions", Role.GAP: "gap", Role.OVERLAP: "overlap"}


def parse_parts(source: Source, offset: int, table: TableMap) -> Iterator[Part]:
    """Yield the blocks from an offset on, the block around it first, each with its trailer, and the footer."""
    footer = table.rules.limit
    for start, length, role, name in iterate_spans(table, offset):
        if start + length <= offset or not length:
            continue
        if start >= footer:
            ending = source.read_window(footer, table.footer.size).tobytes()
            yield from _parse_footer(ending, footer, table.footer) if len(ending) == table.footer.size else ()
            return
        if role in (Role.GAP, Role.OVERLAP) or length < layout.TRAILER_SIZE:
            yield Part(name, start, length)
            continue
        body = length - layout.TRAILER_SIZE
        trailer = source.read_window(start + body, layout.TRAILER_SIZE).tobytes()
        yield from _parse_block(source, start, body, name, role, trailer[0], table)
        text = f"{trailer[0]}, {_describe_compression(source, start, body, trailer[0], table)}"
        code_size = layout.CHECKSUM_OFFSET
        yield Part("compression", start + body, code_size, text)
        yield Part(
            "checksum",
            start + body + code_size,
            len(trailer) - code_size,
            hex(int.from_bytes(trailer[code_size:], "little")),
        )


def iterate_spans(table: TableMap, offset: int = 0) -> Iterator[tuple[int, int, Role, str]]:
    """Yield the spans of a table from that around an offset on: offset, bytes with the trailer, role, and its name."""
    named = {handle.offset: name for name, handle in table.other_blocks} | {table.rules.limit: "footer"}
    starts = table.spans["offset"]
    first = int(starts.searchsorted(offset))
    first -= bool(first and (first == len(starts) or starts[first] > offset))
    for index in range(first, len(starts), _SPANS_AT_ONCE):
        for start, length, role in table.spans[["offset", "length", "role"]][index : index + _SPANS_AT_ONCE].tolist():
            yield start, length, Role(role), named.get(start, _NAMES.get(role, "block"))


def _describe_compression(source: Source, start: int, body: int, code: int, table: TableMap) -> str:
    """Return the compression of a block, by the code of the engine that wrote it."""
    head = pa.py_buffer(source.read_window(start, min(body, len(layout.ZSTD_MAGIC))).tobytes())
    kind = codecs.find_compression(table.rules.dialect, code, head)
    return "unknown" if kind is None else kind.name.lower()


def _parse_block(
    source: Source, start: int, body: int, name: str, role: Role, code: int, table: TableMap
) -> Iterator[Part]:
    """Yield a block: as one part, or as the entries of a data block that is stored as it is, and its restart points.

    A data block that is compressed, or laid out in another way than LevelDB's, has its entries inside.
    """
    compression = _describe_compression(source, start, body, code, table)
    packed = f", compressed with {compression}" if compression not in ("none", "unknown") else ""
    of_entries = role in (Role.DATA, Role.RANGE_DELETES)
    use: Use = "record" if of_entries else "header"
    part = Part(name, start, body, f"{body:,} bytes{packed}", use=use)
    if not of_entries or body > _MAX_BLOCK_BYTES:
        yield part
        return
    stored = source.read_window(start, body).tobytes()
    if (
        compression == "none"
        and not table.rules.is_layered
        and (contained := list(_parse_content(stored, start, use, table)))
    ):
        yield from contained
        return
    data, again = _expand(pa.py_buffer(stored), code, role, table, source)
    inside = _parse_entries(data, 0, table) if again else _parse_content(data, 0, use, table)
    size = f"; {len(data):,} bytes{', laid out as entries' if again else ' decompressed'}" if data else ""
    yield replace(part, value=part.value + size, inside=tuple(islice(inside, _MAX_INNER_PARTS)))


def _expand(stored: pa.Buffer, code: int, role: Role, table: TableMap, source: Source) -> tuple[bytes, bool]:
    """Return the content of a block, empty where it is damaged.

    And whether it was laid out again, without restart points.
    """
    rules = replace(table.rules, longest=_MAX_BLOCK_BYTES)
    content = rules.expand(stored, code, of_entries=True)
    layer = replace(table, rules=rules).make_layer(source)
    again = layer is not None
    if layer is not None and not isinstance(content, tuple):
        content = layer.convert_block(content, deletions=role is Role.RANGE_DELETES)[0]
    elif not isinstance(content, tuple) and has_separate_values(np.frombuffer(content, np.uint8)):
        content, again = join_values(content), True
    if isinstance(content, tuple):
        return b"", again
    return content.to_pybytes()[: -layout.RESTART_SIZE if again else None], again


def _parse_content(data: bytes, start: int, use: Use, table: TableMap) -> Iterator[Part]:
    """Yield the entries of a block, and how they are found; nothing where it is none, or has its values apart."""
    end, last = int(locate_entries_end(np.frombuffer(data, np.uint8))), len(data) - layout.RESTART_SIZE
    if not end:
        return
    yield from _parse_entries(data[:end], start, table)
    count = int.from_bytes(data[last:], "little") & ~layout.BLOCK_FLAGS
    points = end + layout.RESTART_SIZE * count
    yield Part("restart points", start + end, points - end, f"{count:,}", use=use)
    if points < last:
        yield Part("hash index", start + points, last - points, f"{last - points:,} bytes", use=use)
    yield Part("number of restart points", start + last, layout.RESTART_SIZE, f"{count:,}", use=use)


def _parse_entries(data: bytes, start: int, table: TableMap) -> Iterator[Part]:
    """Yield entries of a block: what the key shares with the previous key, the rest of the key, and the value."""
    key, fields = b"", Fields(data, start)
    kinds = layout.OPERATIONS | (layout.PEBBLE_OPERATIONS if table.footer.dialect == "pebble" else {})
    while fields.remaining:
        try:
            shared, unshared, length = (
                fields.take_varint(name) for name in ("shared key bytes", "key bytes", "value length")
            )
            before = key[:shared]

            def show(stored: bytes, before: bytes = before) -> str:
                internal_key = before + stored
                trailer = int.from_bytes(internal_key[-layout.KEY_TRAILER :], "little")
                kind = kinds.get(trailer & _KIND, "unknown")
                user = render_key(internal_key[: -layout.KEY_TRAILER])
                return f"{user}, sequence {trailer >> layout.SEQUENCE_SHIFT:,}, {kind}"

            key = before + fields.take("key", unshared, show)
            fields.take("value", length, render_key)
        except EOFError:
            break
        finally:
            yield from fields.parts
            fields.parts.clear()


def _parse_footer(data: bytes, offset: int, footer: Footer) -> Iterator[Part]:
    texts = {
        "checksum type": f"{footer.checksum:d}, {footer.checksum.name.lower()}",
        "handles": "metaindex and index",
        "magic": footer.dialect,
    }
    for part in iterate_numbers(
        data, offset, offset, layout.list_footer_fields(footer.dialect, footer.version), use="header"
    ):
        yield replace(part, value=texts.get(part.name, part.value))
