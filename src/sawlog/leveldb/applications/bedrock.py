"""Worlds of Minecraft's Bedrock Edition: chunks, actors, players. See "Bedrock Edition level format" in its wiki."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.arrow import call_function, cast, make_array, view_binary
from sawlog.leveldb.applications import bedrock_kernels as k
from sawlog.leveldb.applications import bedrock_layout as layout
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.script_values import MAX_DEPTH, encode_base64, read_json, render_number
from sawlog.leveldb.columns import convert_codes
from sawlog.leveldb.records.kernels import Strings


class ChunkPlace(NamedTuple):
    """Fields of a chunk's key; `dimension` is 0 for the overworld, `subchunk` is there for subchunks."""

    x: int
    z: int
    dimension: int
    tag: int
    subchunk: int | None


def _read_tag(cursor: view.Cursor, kind: int, depth: int = 0) -> Any:
    """Return the payload of a tag of NBT, little endian."""
    if depth > MAX_DEPTH:
        raise view.UnknownBytesError(f"tags in tags, deeper than {MAX_DEPTH}")
    if kind in layout.NUMBERS:
        return render_number(
            struct.unpack(layout.NUMBERS[kind], cursor.take(struct.calcsize(layout.NUMBERS[kind]), "number"))[0]
        )
    if kind in layout.ARRAYS:
        width = struct.calcsize(layout.ARRAYS[kind])
        return np.frombuffer(cursor.take(width * _read_count(cursor), "array"), layout.ARRAYS[kind]).tolist()
    if kind == layout.TEXT:
        return _read_text(cursor)
    if kind == layout.LIST:
        inner, length = cursor.take_byte(), _read_count(cursor)
        if length > cursor.remaining:
            place = f"{cursor.remaining} bytes, at byte {cursor.position}"
            raise view.UnknownBytesError(f"a list of {length} tags in {place}")
        return [_read_tag(cursor, inner, depth + 1) for _ in range(length)]
    if kind != layout.COMPOUND:
        raise view.UnknownBytesError(f"tag {kind} of NBT, before byte {cursor.position}")
    return _read_compound(cursor, depth)


def _read_compound(cursor: view.Cursor, depth: int) -> dict[str, Any]:
    """Return tags by their names; from one that is not understood on, the bytes, as nothing says where it ends."""
    tags: dict[str, Any] = {}
    while kind := cursor.take_byte():
        start = cursor.position
        try:
            name = _free_name(_read_name(cursor), tags, cursor)
        except view.UnknownBytesError as unknown:
            return tags | {_free_name("", tags, cursor): _read_undecoded_bytes(cursor, start, unknown)}
        start = cursor.position
        try:
            tags[name] = _read_tag(cursor, kind, depth + 1)
        except view.UnknownBytesError as unknown:
            return tags | {name: _read_undecoded_bytes(cursor, start, unknown)}
        if cursor.reasons and not cursor.remaining:
            break
    return tags


def _read_undecoded_bytes(cursor: view.Cursor, start: int, unknown: view.UnknownBytesError) -> dict[str, str]:
    """Return the bytes from `start` on, all of which are read then, and note why they are not decoded."""
    cursor.reasons.append(str(unknown))
    cursor.position = start
    return {"$bytes": encode_base64(cursor.take_remainder())}


def _read_name(cursor: view.Cursor) -> str:
    """Return the name of a tag; bytes that are not UTF-8 are shown as U+FFFD, for a reason that is noted."""
    name, reason = view.decode_text(cursor.take(cursor.take_unsigned(2), "name"), "utf-8")
    if reason is not None:
        cursor.reasons.append(f"name of a tag before byte {cursor.position}: {reason}")
    return name


def _free_name(name: str, tags: Mapping[str, Any], cursor: view.Cursor) -> str:
    """Return a name that no tag of a compound has yet; a second tag of a name gets a number."""
    if name not in tags:
        return name
    cursor.reasons.append(f"a second tag {name[:40]!r}, before byte {cursor.position}")
    number = 2
    while f"{name}#{number}" in tags:
        number += 1
    return f"{name}#{number}"


def _read_count(cursor: view.Cursor) -> int:
    """Return a count, which is not negative."""
    count = cursor.take_unsigned(4)
    if count >> 31:
        raise view.UnknownBytesError(f"a negative count, before byte {cursor.position}")
    return count


def _read_text(cursor: view.Cursor) -> Any:
    """Return a text, or its bytes where it is not UTF-8, as the keys of actors are not."""
    data = cursor.take(cursor.take_unsigned(2), "text")
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        cursor.reasons.append(f"a text that is not UTF-8, before byte {cursor.position}: shown as bytes")
        return {"$bytes": encode_base64(data)}


def _read_roots(cursor: view.Cursor) -> list[Any]:
    """Return tags with names, one after the other."""
    tags: list[Any] = []
    while cursor.remaining:
        start = cursor.position
        try:
            kind, _ = cursor.take_byte(), _read_name(cursor)
            tags.append(_read_tag(cursor, kind))
        except view.UnknownBytesError as unknown:
            if not tags:
                raise
            tags.append(_read_undecoded_bytes(cursor, start, unknown))
    return tags


def _read_root(cursor: view.Cursor) -> Any:
    """Return one tag, or several as a list."""
    tags = _read_roots(cursor)
    return tags[0] if len(tags) == 1 else tags


def _read_dictionary(cursor: view.Cursor) -> Any:
    """Return the metadata of chunks: a count, then of each its hash, which `MetaDataHash` names, and a tag of NBT."""
    entries: list[dict[str, Any]] = []
    for _ in range(_read_count(cursor)):
        if cursor.reasons and not cursor.remaining:
            break
        entry: dict[str, Any] = {"hash": cursor.take_unsigned(layout.HASH_SIZE)}
        kind = cursor.take_byte()
        _read_name(cursor)
        entries.append(entry | {"value": _read_tag(cursor, kind)})
    return entries


def _read_subchunk(cursor: view.Cursor) -> Any:
    """Return layers of 16 by 16 by 16 blocks: the kinds of blocks, and how many there are of each."""
    version = cursor.take_byte()
    if version not in layout.VERSIONS:
        raise view.UnknownBytesError(f"version {version} of a subchunk")
    layers = 1 if version == 1 else cursor.take_byte()
    subchunk: dict[str, Any] = {"version": version}
    if version == 9:
        subchunk["y"] = struct.unpack("b", cursor.take(1, "height"))[0]
    subchunk["layers"] = [_read_layer(cursor) for _ in range(layers)]
    return subchunk


def _read_layer(cursor: view.Cursor) -> list[Any]:
    """Return the numbers of blocks, which are packed into words of 32 bits, and the kinds that they stand for."""
    bits = cursor.take_byte() >> 1
    if bits not in layout.BLOCK_BITS:
        raise view.UnknownBytesError(f"{bits} bits per block, before byte {cursor.position}")
    counts = np.array([layout.BLOCKS])
    size = 1
    if bits:
        per_word = layout.WORD_BITS // bits
        words = np.frombuffer(cursor.take(-(-layout.BLOCKS // per_word) * 4, "blocks"), "<u4")
        shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
        numbers = words[:, None] >> shifts & np.uint32((1 << bits) - 1)
        counts = np.bincount(numbers.reshape(-1)[: layout.BLOCKS].astype(np.int64))
        size = _read_count(cursor)
    if len(counts) > size or size > cursor.remaining:
        raise view.UnknownBytesError(
            f"{size} kinds of blocks, where block {len(counts) - 1} is used, at byte {cursor.position}"
        )
    palette = []
    for place in range(size):
        kind, _ = cursor.take_byte(), _read_name(cursor)
        palette.append({"block": _read_tag(cursor, kind), "count": int(counts[place]) if place < len(counts) else 0})
    return palette


def _refuse_value(cursor: view.Cursor) -> Any:
    raise view.UnknownBytesError(f"{cursor.remaining}{_UNDECODED}")


_READERS: Mapping[str, Callable[[view.Cursor], Any]] = {
    "": _refuse_value,
    "number": view.Cursor.take_last_integer,
    "roots": _read_roots,
    "subchunk": _read_subchunk,
}
"""Readers of the values that `TAGS` names."""


def _parse_chunk_key(key: bytes) -> ChunkPlace | None:
    """Return the fields of a chunk's key; `None` for other keys."""
    if len(key) not in layout.CHUNK_SIZES:
        return None
    x, z = struct.unpack_from("<ii", key)
    tag_at = 8 if len(key) < layout.CHUNK_SIZES[2] else 12
    dimension = int.from_bytes(key[8:tag_at], "little", signed=True)
    subchunk = struct.unpack_from("b", key, tag_at + 1)[0] if len(key) > tag_at + 1 else None
    if key[tag_at] not in layout.TAGS or (key[tag_at] == layout.SUBCHUNK) != (subchunk is not None):
        return None
    return ChunkPlace(x, z, dimension, key[tag_at], subchunk)


def _is_within_world(place: ChunkPlace | None) -> bool:
    """Return whether a chunk is inside of a world, which few other keys of the same length say."""
    return place is not None and max(abs(place.x), abs(place.z)) <= layout.WORLD_CHUNKS


_UNDECODED = " bytes of a kind that is not decoded"
_MAX_BYTES = 16 << 20
"""Values that add up to more are left to Python: the room for their text is several times that."""

_TEXTS = view.TextRoom(k.ROOM, k.ROW_ROOM)


class Bedrock(view.ApplicationView):
    """View of a Minecraft Bedrock world: a row per part of a chunk, actor, player or other thing."""

    title = "Minecraft Bedrock's worlds: kind, x, z, dimension, subchunk, name, value (JSON)"
    columns: ClassVar = view.make_columns("kind x:int32 z:int32 dimension:int32 subchunk:int32 name value")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Return whether a database looks like Bedrock's: half of its first keys are of chunks, actors or by names."""
        del path, comparator
        recognized = sum(_read_named_key(key) is not None or _is_within_world(_parse_chunk_key(key)) for key in keys)
        return bool(keys) and 2 * recognized >= len(keys)

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows | None:
        """Return entries whose values are decoded as a whole, but for the dictionary of metadata."""
        del context
        rows = len(keys)
        entries, contents = Strings(*view_binary(keys)), Strings(*view_binary(values))
        size = int(contents.offsets[-1] - contents.offsets[0])
        if size > _MAX_BYTES:
            return None
        names = view.TextColumn(rows, int(entries.offsets[-1] - entries.offsets[0]))
        kinds, places = np.zeros(rows, np.uint8), np.zeros((4, rows), np.int32)
        ends, scratch = np.zeros(rows + 1, np.int32), k.make_scratch()
        rendered = k.Rendered(kinds, places, *names.buffers, np.empty(0, np.uint8), ends)
        texts = _TEXTS.write(
            size, ends, lambda out, row: k.render_world(entries, contents, row, rendered._replace(out=out), scratch)
        )
        is_actor, is_list, is_named = (kinds == k.KINDS.index(name) for name in ("actor", "actors", "named"))
        is_chunk = ~(is_actor | is_list | is_named)
        is_subchunk = kinds == k.KINDS.index(layout.TAGS[layout.SUBCHUNK][0])
        validity = [is_chunk | is_list, is_chunk | is_list, is_chunk | is_list, is_subchunk]
        columns = {
            name: make_array(column, pa.int32(), ~is_there)
            for name, column, is_there in zip(("x", "z", "dimension", "subchunk"), places, validity, strict=True)
        }
        sizes = make_array(np.diff(contents.offsets), pa.int32(), ~k.UNDECODED[kinds])
        columns |= {
            "kind": convert_codes(kinds, k.KINDS),
            "name": names.take(pa.string(), is_actor | is_named),
            "value": view.make_text_array(pa.string(), texts, ends, ~k.UNDECODED[kinds]),
            "reason": call_function("binary_join_element_wise", "value: ", cast(sizes, pa.string()), _UNDECODED, ""),
        }
        return view.PlainRows(kinds > 0, columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return the place of a chunk, or a name; values are NBT for the most part."""
        del context
        read: Callable[[view.Cursor], Any]
        if (named := _read_named_key(entry.key)) is not None:
            row, read = named
        elif (place := _parse_chunk_key(entry.key)) is not None:
            kind, content = layout.TAGS[place.tag]
            read = _READERS[content]
            row = {"kind": kind, "x": place.x, "z": place.z, "dimension": place.dimension, "subchunk": place.subchunk}
        else:
            raise view.UnknownBytesError(f"a key of {len(entry.key)} bytes that is neither of a chunk nor a known name")
        return row | view.read_columns(entry.value, partial(read_json, read))


def _read_named_key(key: bytes) -> tuple[dict[str, Any], Callable[[view.Cursor], Any]] | None:
    """Return the columns of a key that is not of a chunk, and the reader of its value; `None` for unknown ones."""
    tail = key.removeprefix(layout.ACTOR)
    if tail != key and len(tail) == layout.ACTOR_SIZE:
        return {"kind": "actor", "name": tail.hex()}, _read_root
    tail = key.removeprefix(layout.DIGEST)
    if tail != key and len(tail) in (8, 12):
        x, z = struct.unpack_from("<ii", tail)
        return {
            "kind": "actors",
            "x": x,
            "z": z,
            "dimension": int.from_bytes(tail[8:], "little", signed=True),
        }, _read_actors
    name, wrong = view.decode_text(key, "utf-8")
    if name in layout.NAMES or name.startswith(layout.PREFIXES):
        return {
            "kind": "named",
            "name": name,
            "reason": wrong,
        }, _read_dictionary if name == layout.DICTIONARY else _read_root
    return None


def _read_actors(cursor: view.Cursor) -> Any:
    """Return the numbers of actors, as their keys have them."""
    count = -(-cursor.remaining // layout.ACTOR_SIZE)
    return [cursor.take(layout.ACTOR_SIZE, "number of an actor").hex() for _ in range(count)]
