"""The parts of fragments, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sawlog.anatomy import Part, numbers
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.layout import Dialect, Role
from sawlog.leveldb.records.anatomy import batch_parts, edit_parts

if TYPE_CHECKING:
    from sawlog.storage import Source

_HEADER = {"checksum": layout.CHECKSUM, "length": layout.LENGTH}


def parts(source: Source, offset: int, dialect: Dialect, *, edits: bool = False) -> Iterator[Part]:
    """The fragments from an offset on, each as its header and its payload, and unused ends of blocks.

    Args:
        source: The log.
        offset: Where to begin.
        dialect: Whose it is.
        edits: Whether records are version edits; otherwise they are write batches, or something that is not known.
    """
    at = offset
    while at < source.size:
        block_end = at - at % layout.BLOCK_SIZE + layout.BLOCK_SIZE
        end = min(block_end, source.size)
        if end - at < layout.HEADER_SIZE:
            yield Part("unused", at, end - at, "end of the block" if end == block_end else "", use="padding")
            at = end
            continue
        data = source.window(at, end - at).tobytes()
        length, kind = layout.LENGTH.of(data), layout.TYPE.of(data)
        known = layout.TYPES[dialect].get(kind)
        size = known.header_size if known is not None else layout.HEADER_SIZE
        fits = size + length <= end - at
        checksum, told = numbers(data, at, at, _HEADER)
        yield Part(checksum.name, checksum.offset, checksum.length, checksum.value, _expected(data, size, length, fits))
        room = "" if fits else f"at most {end - at - size}"
        yield Part(told.name, told.offset, told.length, told.value, room)
        yield Part("type", at + layout.TYPE.offset, layout.TYPE.size, *_type(kind, layout.TYPES[dialect]))
        if size > layout.HEADER_SIZE:
            yield from numbers(data, at, at, {"log number": layout.LOG_NUMBER})
        if size > layout.RECYCLABLE_HEADER_SIZE:
            rest = data[layout.RECYCLABLE_HEADER_SIZE : size]
            synced = f"{int.from_bytes(rest, 'little'):,}"
            yield Part("synced up to", at + layout.RECYCLABLE_HEADER_SIZE, len(rest), synced)
        payload = min(length, end - at - size)
        role = known.role if known is not None else Role.UNKNOWN
        yield from _payload(data[size : size + payload], at + size, role, dialect, edits=edits)
        at += size + payload


def _payload(data: bytes, at: int, role: Role, dialect: Dialect, *, edits: bool) -> Iterator[Part]:
    """What a fragment carries, down to fields where it begins a record that is known."""
    if edits and role is Role.FULL:
        yield from edit_parts(data, at)
        return
    begins = not edits and role in (Role.FULL, Role.FIRST)
    found = batch_parts(data, at, dialect, cut=role is Role.FIRST) if begins else []
    goes_on = ", which go on a record" if role in (Role.MIDDLE, Role.LAST) else ""
    yield from found or [Part("payload", at, len(data), f"{len(data):,} bytes{goes_on}")]


def _expected(data: bytes, size: int, length: int, fits: bool) -> str:
    """The checksum that should be there, if it is another."""
    from sawlog.leveldb.log.kernels import masked_checksum

    if not fits:
        return ""
    expected = masked_checksum(data[layout.TYPE.offset : size + length])
    return "" if expected == layout.CHECKSUM.of(data) else hex(expected)


def _type(kind: int, known: Mapping[int, layout.FragmentType]) -> tuple[str, str]:
    """A type byte in words, and what is expected in its place."""
    if kind not in known:
        return str(kind), f"a known type: {', '.join(str(int(one)) for one in sorted(known)[:8])}"
    return f"{kind}, {known[kind].role.name.lower()}", ""
