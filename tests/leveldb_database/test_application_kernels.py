"""Kernels of applications: what they decode is what Python says of it; small enough for plain Python."""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb.applications import (
    chromium_services,
    chromium_workers,
    cometbft,
    find_application,
    sync_data,
)
from sawlog.leveldb.applications.bedrock_layout import NAMES, PREFIXES, TAGS
from sawlog.leveldb.applications.fragments import decode_parts, make_column
from sawlog.leveldb.applications.indexed_db import Names
from sawlog.leveldb.applications.indexed_db_layout import KeyPrefix
from sawlog.leveldb.applications.protobuf import Messages
from sawlog.leveldb.applications.view import Entries, Entry, Home, TextRoom, UnknownBytesError, put_rows
from sawlog.storage import Storage
from tests.leveldb_database.support import (
    APPLICATION_PATHS,
    BEDROCK_ENTRIES,
    COINS,
    OBFUSCATION_KEY,
    TXID,
    key_of,
    named_block,
)

from . import test_chromium_services, test_chromium_sites, test_cometbft
from .support import GENESIS, pickled

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # products do, in plain Python


def find_plain_entries(view: str, entries: Sequence[tuple[bytes, bytes]], context: Any = None) -> list[bool]:
    """Which entries kernels decode; that they, and those between them, are what Python says is made sure of."""
    decoder = find_application(view)
    assert decoder is not None
    fields = [*decoder.columns, pa.field("reason", pa.string())]
    columns = [pa.array(column, pa.binary()) for column in zip((b"", b""), *entries, strict=True)]
    operations = pa.array(["delete", *["put"] * len(entries)], pa.string())
    batch = pa.record_batch(
        [*columns, pa.array(range(len(operations)), pa.int64()), operations],
        names=["key", "value", "sequence", "operation"],
    ).slice(1)
    expected = []
    for number, (key, value) in enumerate(entries, 1):
        try:
            expected.append(decoder.decode(Entry(key, value, number), context))
        except UnknownBytesError as unknown:
            expected.append({"reason": str(unknown)})
    values: dict[str, list[Any]] = {field.name: [] for field in fields}
    undecoded = 0
    for part in decode_parts(decoder, context, batch, fields):
        undecoded += part.undecoded
        for name, column in part.columns.items():
            column.validate(full=True)
            assert len(column) == part.entries.num_rows
            values[name] += values_of(column)
    assert values == {field.name: values_of(make_column(expected, field)) for field in fields}
    assert undecoded == len(entries) - values["reason"].count(None)
    rows = decoder.decode_plain_rows(batch.column("key"), batch.column("value"), context)
    assert rows is not None
    return list(map(bool, rows.is_plain))


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column; times, which may be later than Python's, are numbers."""
    values: list[Any] = (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def encode_bitcoin_varint(value: int) -> bytes:
    """Bitcoin's, see `bitcoin.varint`."""
    out = bytes([value & 127])
    while value > 127:
        value = (value >> 7) - 1
        out = bytes([value & 127 | 128]) + out
    return out


def masked(value: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ (mask or b"\0")[index % max(len(mask), 1)] for index, byte in enumerate(value))


NUMBERS = st.one_of(st.integers(0, 200), st.integers(0, (1 << 63) - 1))
MASKS = st.sampled_from([b"", OBFUSCATION_KEY, b"\x07\xff\x80"])
SCRIPTS = st.one_of(
    st.builds(
        lambda code, data: bytes([code]) + data[: 20 if code < 2 else 32],
        st.integers(0, 5),
        st.binary(min_size=32, max_size=32),
    ),
    st.binary(max_size=300).map(lambda data: encode_bitcoin_varint(len(data) + 6) + data),
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes]:
    status = draw(st.sampled_from([0, 1, 8, 9, 16, 24, 31, 157]) | NUMBERS)
    fields = [draw(NUMBERS), draw(NUMBERS), status, draw(NUMBERS)]
    fields += [draw(NUMBERS) for is_there in (status & 24, status & 8, status & 16) if is_there]
    header = draw(st.binary(min_size=80, max_size=80) | st.just(GENESIS))
    return b"b" + draw(st.binary(min_size=32, max_size=32)), b"".join(map(encode_bitcoin_varint, fields)) + header


@st.composite
def draw_changed_entry(draw: st.DrawFn, entries: st.SearchStrategy[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """An entry in which some bytes are others, missing, or more."""
    parts = list(draw(entries))
    place = draw(st.integers(0, 1))
    data = bytearray(parts[place])
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | st.just(b"\xff" * 9))
    parts[place] = bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
    return parts[0], parts[1]


BLOCKS = st.one_of(
    blocks(),
    st.tuples(
        st.binary(min_size=32, max_size=32).map(lambda data: b"t" + data),
        st.lists(NUMBERS, min_size=3, max_size=3).map(lambda fields: b"".join(map(encode_bitcoin_varint, fields))),
    ),
)
COIN_ENTRIES = st.tuples(
    st.builds(
        lambda data, output: b"C" + data + encode_bitcoin_varint(output), st.binary(min_size=32, max_size=32), NUMBERS
    ),
    st.builds(
        lambda code, amount, script: encode_bitcoin_varint(code) + encode_bitcoin_varint(amount) + script,
        NUMBERS,
        NUMBERS,
        SCRIPTS,
    ),
)


@given(
    st.lists(BLOCKS | draw_changed_entry(BLOCKS) | st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=6),
    MASKS,
)
def test_blocks_are_what_python_says(entries: list[tuple[bytes, bytes]], mask: bytes) -> None:
    find_plain_entries("bitcoin_blocks", [(key, masked(value, mask)) for key, value in entries], mask)


@given(st.lists(COIN_ENTRIES | draw_changed_entry(COIN_ENTRIES), max_size=6), MASKS)
def test_coins_are_what_python_says(entries: list[tuple[bytes, bytes]], mask: bytes) -> None:
    find_plain_entries("bitcoin_chainstate", [(key, masked(value, mask)) for key, value in entries], mask)


def test_what_most_entries_of_bitcoin_are_is_left_to_the_kernels() -> None:
    coin = b"C" + TXID + b"\x07"
    values = [bytes.fromhex(value) for value in COINS]
    values += [
        encode_bitcoin_varint(3) + encode_bitcoin_varint(9) + script
        for script in (b"\2" + TXID, b"\1" + TXID[:20], b"\x07j", b"\x04" + TXID)
    ]
    assert find_plain_entries("bitcoin_chainstate", [(coin, value) for value in values], b"") == [True] * 5 + [
        False
    ]  # no point
    block = bytes.fromhex("8fee3c000d010008") + GENESIS
    entries = [(b"b" + TXID, block), (b"t" + TXID, b"\1\2\3"), (b"l", bytes(4)), (b"b" + TXID, block[:-1])]
    assert find_plain_entries("bitcoin_blocks", entries, b"") == [True, True, False, False]


def test_public_keys_are_plain_where_they_are_on_the_curve() -> None:
    prime = 2**256 - 2**32 - 977
    numbers = [0, 1, 2, 3, 4, 5, 2**128 + 1, 2**255, *range(prime - 5, prime + 5), 2**256 - 1]
    keys = [(x, code) for x in numbers for code in (4, 5)]
    entries = [(b"C" + TXID + b"\0", b"\x03\x09" + bytes([code]) + x.to_bytes(32, "big")) for x, code in keys]
    squares = [(x**3 + 7) % prime for x, _ in keys]
    is_point = [x < prime and pow(square, prime >> 1, prime) == 1 for (x, _), square in zip(keys, squares, strict=True)]
    assert find_plain_entries("bitcoin_chainstate", entries, b"") == is_point


@pytest.mark.parametrize("size", [10_000, 10_001])
def test_the_longest_script_of_a_coin_is_plain_and_a_longer_one_is_not(size: int) -> None:
    value = encode_bitcoin_varint(3) + encode_bitcoin_varint(9) + encode_bitcoin_varint(size + 6) + bytes(size)
    assert find_plain_entries("bitcoin_chainstate", [(b"C" + TXID + b"\0", value)], b"") == [size == 10_000]


def test_the_room_for_a_part_is_not_that_of_the_batch() -> None:
    """Long texts of entries in doubt cut a batch; plain rows before and after stay in their places."""
    view = find_application("bitcoin_blocks")
    assert view is not None
    entries = [(b"t" + TXID, b"\1\2\3"), (b"R", b"x" * (9 << 20)), (b"t" + TXID, b"\1\2\4"), (b"R", b"1")]
    assert find_plain_entries("bitcoin_blocks", [*entries, entries[0]], b"") == [True, False, True, False, True]


def nbt_text(data: bytes) -> bytes:
    return struct.pack("<H", len(data)) + data


SHORT = st.binary(max_size=3) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))
DOUBLES = st.floats() | st.integers(-5, 1 << 54).map(float) | st.sampled_from([0.1, -0.0, 1e16, 1e-5, 1e22])
SCALARS = st.one_of(
    *(
        st.binary(min_size=size, max_size=size).map(lambda data, tag=tag: (tag, data))
        for tag, size in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 4), (6, 8))
    ),
    DOUBLES.map(lambda value: (6, struct.pack("<d", value))),
    st.floats(width=32).map(lambda value: (5, struct.pack("<f", value))),
    SHORT.map(lambda data: (8, nbt_text(data))),
    st.builds(
        lambda array, count: (array[0], struct.pack("<I", count) + bytes(range(array[1] * count))),
        st.sampled_from([(7, 1), (11, 4), (12, 8)]),
        st.integers(0, 4),
    ),
)


def lists(tags: st.SearchStrategy[tuple[int, bytes]]) -> st.SearchStrategy[tuple[int, bytes]]:
    return st.builds(
        lambda tag, count: (9, bytes([tag[0] if count else 0]) + struct.pack("<I", count) + tag[1] * count),
        tags,
        st.integers(0, 3),
    )


def compounds(tags: st.SearchStrategy[tuple[int, bytes]]) -> st.SearchStrategy[tuple[int, bytes]]:
    fields = st.lists(st.tuples(SHORT, tags), max_size=4, unique_by=lambda field: field[0])
    return fields.map(lambda tags: (10, b"".join(bytes([t]) + nbt_text(n) + d for n, (t, d) in tags) + b"\0"))


TREES = st.recursive(SCALARS, lambda tags: lists(tags) | compounds(tags), max_leaves=8)
ROOTS = st.builds(lambda tag, name: bytes([tag[0]]) + nbt_text(name) + tag[1], TREES, SHORT)


@st.composite
def subchunks(draw: st.DrawFn) -> bytes:
    version, layers = draw(st.sampled_from([1, 8, 9])), draw(st.integers(0, 2))
    head = bytes([version]) + b"" if version == 1 else bytes([version, layers]) + (b"\xfc" if version == 9 else b"")
    out = [head]
    for _ in range(1 if version == 1 else layers):
        bits = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 8, 16]))
        size = draw(st.integers(0, 3))
        palette = b"".join(draw(ROOTS) for _ in range(size if bits else 1))
        each = 32 // (bits or 1)
        word = draw(st.integers(0, (1 << 32) - 1)) if draw(st.booleans()) else 0
        words = b"" if not bits else struct.pack("<I", word) + bytes(-(-4096 // each) * 4 - 4)
        out.append(bytes([bits << 1]) + words + (struct.pack("<I", size) if bits else b"") + palette)
    return b"".join(out)


WORLD_KEYS = st.one_of(
    st.builds(
        lambda place, tag, tail: place + bytes([tag]) + tail,
        st.sampled_from([b"", b"\1\0\0\0"]).map(lambda dimension: struct.pack("<ii", 25, -3) + dimension),
        st.sampled_from([*TAGS, 0, 200]),
        st.sampled_from([b"", b"\xfc"]),
    ),
    st.sampled_from([b"actorprefix" + b"\0\0\0\1\0\0\0\x85", b"digp" + bytes(8), b"digp" + bytes(8) + b"\2\0\0\0"]),
    st.sampled_from(sorted(NAMES)).map(str.encode),
    st.builds(lambda start, tail: start.encode() + tail, st.sampled_from(PREFIXES), SHORT),
)
WORLD = st.one_of(
    st.tuples(WORLD_KEYS, st.one_of(ROOTS, st.lists(ROOTS, max_size=3).map(b"".join), st.binary(max_size=17))),
    st.tuples(st.just(key_of(25, -3, 47, subchunk=-4)), subchunks()),
)


@given(st.lists(WORLD | draw_changed_entry(WORLD), max_size=5))
def test_worlds_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("bedrock", entries)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_blocks_of_all_kinds_are_counted(bits: int) -> None:
    rng, each = random.Random(bits), 32 // bits
    numbers = [rng.randrange(1 << bits) for _ in range(4096)]
    numbers[1001:2500] = [1] * 1499
    words = [numbers[first : first + each] for first in range(0, 4096, each)]
    layer = b"".join(struct.pack("<I", sum(n << bits * i for i, n in enumerate(word))) for word in words)
    palette = struct.pack("<I", 1 << bits) + b"".join(named_block(f"block {number}") for number in range(1 << bits))
    value = b"\x09\1\xfc" + bytes([bits << 1]) + layer + palette
    assert find_plain_entries("bedrock", [(key_of(25, -3, 47, subchunk=-4), value)]) == [True]


def test_texts_that_are_much_longer_than_the_last_ones_find_room() -> None:
    short = [(key_of(25, -3, 45), bytes(768))] * 3
    long = [(b"portals", b"\x07\0\0" + struct.pack("<I", 3000) + b"\x80" * 3000)] * 3
    for entries in (short, long, short, short + long):
        assert find_plain_entries("bedrock", entries) == [True] * len(entries)


def test_most_entries_of_a_world_are_left_to_the_kernels() -> None:
    entries = [entry for entry in BEDROCK_ENTRIES.items() if entry[0] != b"something else"]
    assert find_plain_entries("bedrock", entries) == [True] * len(entries)
    compressed = b"\x0a\0\0\x06\1\0d" + struct.pack("<d", 1.5e-7) + b"\5\1\0f" + struct.pack("<f", 0.1) + b"\0"
    assert find_plain_entries("bedrock", [(b"portals", compressed), (b"portals", b"")]) == [True, False]
    double = b"\x06\0\0" + struct.pack("<d", 1.5)  # and nothing around it, which says in whose text it is
    assert find_plain_entries("bedrock", [(b"portals", double), *entries, (b"portals", double)]) == [True] * (
        len(entries) + 2
    )


@pytest.mark.parametrize("depth", [150, 151, 2000])
def test_tags_in_tags_are_plain_down_to_the_depth_that_python_reads(depth: int) -> None:
    lists = b"\x09\1\0\0\0" * depth + b"\1\0\0\0\0"
    assert find_plain_entries("bedrock", [(b"portals", b"\x09\0\0" + lists)]) == [depth <= 150]


def test_a_compound_of_very_many_names_is_left_to_python() -> None:
    names = b"".join(b"\1" + struct.pack("<H", 2) + struct.pack("<H", number) + b"\0" for number in range(0x20, 0x7F))
    many = b"".join(b"\1\4\0%04d\0" % number for number in range(1100))
    assert find_plain_entries(
        "bedrock", [(b"portals", b"\x0a\0\0" + names + b"\0"), (b"portals", b"\x0a\0\0" + many + b"\0")]
    ) == [
        True,
        False,
    ]


def rlp(item: Any, long: int = 0) -> bytes:
    """RLP of an item; with `long`, its sizes have so many bytes or more."""
    if isinstance(item, bytes) and len(item) == 1 and item[0] < 0x80 and not long:
        return item
    base, data = (0x80, item) if isinstance(item, bytes) else (0xC0, b"".join(rlp(part, long) for part in item))
    size = len(data).to_bytes(max((len(data).bit_length() + 7) // 8, long), "big")
    return (bytes([base + len(data)]) if len(data) <= 55 and not long else bytes([base + 55 + len(size)]) + size) + data


PARTS = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([b"", b"\0", b"\1", b"\0\x0f", b"\x10", b"\xff" * 6, b"\xff" * 9]),
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=2).map(lambda data: data * 40),
)
TREE = st.recursive(PARTS, lambda items: st.lists(items, max_size=4), max_leaves=6)


def fields(count: int, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A list of about so many items; `others` by `_PLACE`."""
    parts = [strategies.get(f"_{place}", PARTS) for place in range(count + 1)]
    return st.integers(max(count - 3, 0), count + 1).flatmap(lambda length: st.tuples(*parts[:length]).map(list))


HEADERS = fields(21, _11=st.integers(0, 1 << 45).map(lambda time: time.to_bytes(8, "big").lstrip(b"\0")) | PARTS)
ACCESSES = st.lists(fields(2, _1=st.lists(PARTS, max_size=2)), max_size=2)
TRANSACTIONS = st.one_of(
    fields(9),
    st.builds(
        lambda number, item: bytes([number]) + rlp(item),
        st.integers(0, 5),
        fields(14, _7=ACCESSES, _8=ACCESSES, _9=ACCESSES) | TREE,
    ),
    TREE,
)
LOGS = st.lists(fields(3, _1=st.lists(PARTS, max_size=3)), max_size=2)
CHAIN_VALUES: dict[bytes, st.SearchStrategy[Any]] = {
    b"h": HEADERS,
    b"b": fields(3, _0=st.lists(TRANSACTIONS, max_size=3), _1=st.lists(HEADERS, max_size=1), _2=ACCESSES),
    b"r": st.lists(st.one_of(*(fields(count, _2=LOGS, _4=LOGS, _5=LOGS) for count in (3, 6, 7))), max_size=3),
    b"j": TREE,
    b"a": fields(4),
    b"l": fields(3),
    b"o": PARTS,
}
LIKELY_SIZES = {b"a": 33, b"l": 33, b"o": 65}
BLOCK_NUMBERS = st.sampled_from([bytes(8), bytes(7) + b"\5", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\xff" * 8])


@st.composite
def chains(draw: st.DrawFn) -> tuple[bytes, bytes]:
    first = draw(st.sampled_from(sorted(CHAIN_VALUES)))
    key = first + draw(BLOCK_NUMBERS) + TXID if first in b"hbrj" else (first + TXID * 2)[: LIKELY_SIZES[first]]
    return key, rlp(draw(CHAIN_VALUES[first] | TREE), draw(st.sampled_from([0] * 8 + [3, 8])))


BEGINNINGS = (
    *(b"", b"H", b"l", b"c", b"L", b"secure-key-", b"clique-", b"A", b"O" + TXID, b"O", b"o", b"B\1\2", b"iB", b"m"),
    *(b"update-", b"fixedRoot-", b"committee-", b"fm", b"fm-", b"ethereum-config-", b"LastBlock", b"TrieSync"),
)
CHAIN_KEYS = st.one_of(
    st.builds(
        lambda first, number, tail: first + number + tail,
        st.sampled_from([b"h", b"S", b"b", b"H"]),
        BLOCK_NUMBERS,
        st.sampled_from([b"", b"n", b"t", TXID + b"t", TXID[1:], TXID[:22]]),
    ),
    st.builds(
        lambda first, tail: first + tail,
        st.sampled_from(BEGINNINGS),
        st.sampled_from([b"", TXID, TXID * 2, bytes(8) + TXID, b"\1\x0f", b"\x10", bytes(16)]) | st.binary(max_size=3),
    ),
)
CHAIN = chains() | st.tuples(CHAIN_KEYS, PARTS | TREE.map(rlp))


@given(st.lists(CHAIN | draw_changed_entry(CHAIN), max_size=6))
def test_chains_of_ethereum_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("ethereum", entries)


def test_most_entries_of_a_chain_are_left_to_the_kernels() -> None:
    block = bytes(7) + b"\5" + TXID
    header = [TXID, TXID, b"a" * 20, TXID, TXID, TXID, bytes(256), b"", b"\5", b"\1\2\3", b"\4", b"\x65\0\0\0"]
    typed = [bytes([number]) + rlp([b"\1"] * 8 + [[[b"a" * 20, [TXID]]]]) for number in range(1, 5)]
    entries = [
        (b"h" + block, rlp([*header, b"geth", TXID, bytes(8), b"\7", TXID])),
        (b"b" + block, rlp([[[b"\1"] * 9, *typed], [header], [[b"\1", b"\2", b"a" * 20, b"\3"]]])),
        (b"r" + block, rlp([[b"\1", b"\2", [[b"a" * 20, [TXID] * 2, b""]]], [b"", b"\1", []]])),
        (b"h" + block[:8] + b"n", TXID),
        (b"h" + block + b"t", b"\5"),
        (b"H" + TXID, bytes(8)),
        (b"l" + TXID, b"\5"),
        (b"a" + TXID, rlp([b"", b"\5", b"", b""])),
        (b"c" + TXID, b"code"),
        (b"o" + TXID * 2, rlp(TXID)),
        (b"A\1\2", b"node"),
        (b"O" + TXID + b"\1\2", b"node"),
        (TXID, b"node"),
    ]
    assert find_plain_entries("ethereum", entries) == [True] * len(entries)
    other_entries = [
        (b"LastBlock", TXID),
        (b"b" + block, rlp([[b"\5" + rlp([])]])),
        (b"H" + TXID, bytes(9)),
        (b"?", b""),
    ]
    assert find_plain_entries("ethereum", other_entries) == [False] * len(other_entries)


@pytest.mark.parametrize("depth", [16, 17])
def test_lists_in_lists_are_plain_down_to_the_depth_that_python_reads(depth: int) -> None:
    item: list[Any] = []
    for _ in range(depth - 1):
        item = [item]
    assert find_plain_entries("ethereum", [(b"j" + bytes(8) + TXID, rlp(item))]) == [depth == 16]


def test_text_that_needs_more_room_than_most_is_plain() -> None:
    key = b"b" + bytes(8) + TXID
    entries = [(key, rlp([[[]] * 300, [[b"\1"] * 21] * 20])), (b"c" + TXID, b""), (key, rlp([[[]] * 3000]))]
    assert find_plain_entries("ethereum", entries) == [True] * 3


STRINGS = st.one_of(
    st.text(st.characters(max_codepoint=255), max_size=5).map(lambda text: b"\1" + text.encode("latin-1")),
    st.text(max_size=5).map(lambda text: b"\0" + text.encode("utf-16-le", "surrogatepass")),
    st.lists(st.sampled_from([0xD800, 0xDC00, 0x41, 0x7FF, 0x800]), max_size=4).map(
        lambda units: b"\0" + struct.pack(f"<{len(units)}H", *units)
    ),
)
ITEMS = st.tuples(
    st.builds(
        lambda origin, name: b"_" + origin.encode() + b"\0" + name,
        st.sampled_from(["https://a.example", "", "gr\xfc\xdfe"]),
        STRINGS,
    ),
    STRINGS,
)
OTHER_ITEMS = st.sampled_from(
    [(b"VERSION", b"1"), (b"META:a", b"\x08\5\x10\7"), (b"_", b"\1"), (b"", b""), (b"_a", b"\1")]
)


@given(st.lists(ITEMS | draw_changed_entry(ITEMS) | OTHER_ITEMS, max_size=6))
def test_items_of_local_storage_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("local_storage", entries)


def test_most_items_of_local_storage_are_decoded_many_at_a_time() -> None:
    key = b"_https://a.example\0\1key"
    values = [b"\1plain", b"\1gr\xfc\xdfe", b"\0" + "\u0436\u8a9e".encode("utf-16-le"), b"\1", b"\0\0\xd8", b"\0x"]
    entries = [(key, value) for value in values]
    assert find_plain_entries("local_storage", [*entries, (b"META:x", b"")]) == [True] * 4 + [False] * 2 + [True]


def field_of(number: int, wire: int, value: bytes) -> bytes:
    return encode_varint(number << 3 | wire) + (encode_varint(len(value)) + value if wire == 2 else value)


ANY_FIELD = st.builds(
    lambda number, field: field_of(number, *field),
    st.integers(1, 40),
    st.one_of(
        st.tuples(st.just(0), st.integers(0, (1 << 64) - 1).map(encode_varint)),
        st.tuples(st.just(1), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(2), st.binary(max_size=4)),
        st.tuples(st.just(5), st.binary(min_size=4, max_size=4)),
    ),
)
DECIMALS = st.integers(0, 1 << 64) | st.integers(0, 3) | st.just((1 << 64) - 5)


@st.composite
def messages(draw: st.DrawFn, declared: Messages, name: str) -> bytes:
    """A message in which fields mostly ascend, as applications write them."""
    out = []
    for number, field in declared.fields.get(name, {}).items():
        if not draw(st.booleans()):
            continue
        for _ in range(draw(st.integers(1, 3 if field.is_repeated else 1))):
            if field.kind in declared.fields:
                out.append(field_of(number, 2, draw(messages(declared, field.kind))))
            elif 0 in field.wires and field.is_repeated and draw(st.booleans()):
                out.append(field_of(number, 2, b"".join(map(encode_varint, draw(st.lists(DECIMALS, max_size=3))))))
            elif 0 in field.wires:
                out.append(field_of(number, 0, encode_varint(draw(DECIMALS))))
            elif 2 in field.wires:
                out.append(field_of(number, 2, draw(SHORT | st.just(b'a longer text with " in it'))))
            elif 1 in field.wires:
                out.append(field_of(number, 1, struct.pack("<d", draw(DOUBLES))))
            else:
                out.append(field_of(number, 5, struct.pack("<f", draw(st.floats(width=32)))))
    if draw(st.integers(0, 4)) == 0:
        out.insert(draw(st.integers(0, len(out))), draw(ANY_FIELD))
    return b"".join(out)


BLOCK_STORE = st.one_of(
    st.builds(
        lambda name, height, value: (b"%s:%d" % (name, height), value),
        st.sampled_from([b"H", b"C", b"SC", b"EC"]),
        st.integers(0, 200) | NUMBERS,
        st.sampled_from(["BlockMeta", "Commit"]).flatmap(lambda name: messages(cometbft.MESSAGES, name)),
    ),
    st.builds(
        lambda height, part, value: (b"P:%d:%d" % (height, part), value),
        st.integers(0, 200),
        st.sampled_from([0, 1, 10**9]),
        st.sampled_from(["Part", "WholePart"]).flatmap(lambda name: messages(cometbft.MESSAGES, name)),
    ),
    st.sampled_from(
        [
            (b"BH:00ff", b"12"),
            (b"BH:AB", b"-5"),
            (b"BH:\xff", b"1"),
            (b"BH:1", b"012"),
            (b"version", b"\xff"),
            (b"P:1", b""),
        ]
    ),
    messages(cometbft.MESSAGES, "Store").map(lambda value: (b"blockStore", value)),
)


@given(st.lists(BLOCK_STORE | draw_changed_entry(BLOCK_STORE), max_size=5))
def test_block_stores_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("cometbft_blocks", entries)


def test_entries_of_a_block_store_are_left_to_the_kernels() -> None:
    rows = sawlog.read(test_cometbft.PLACE / "blockstore.db", view="live").to_pylist()
    assert all(find_plain_entries("cometbft_blocks", [(row["key"], row["value"]) for row in rows]))


@pytest.mark.parametrize(
    ("value", "is_plain"),
    [
        ("08011002", True),
        ("10020801", False),  # not ascending
        ("08010802", False),  # twice
        ("0802120161", True),  # `height` with another wire type is shown by its number
        ("08ffffffffffffffffff01", True),
        ("08ffffffffffffffffff02", False),  # more than 64 bits
        ("8880808080000a00", False),  # a tag of more bytes than one has
        ("0b", False),  # a group
        ("1a0161a906ffffffffffffffff", True),
        ("08", False),
    ],
)
def test_fields_of_messages_that_the_kernels_read(value: str, is_plain: bool) -> None:
    assert find_plain_entries("cometbft_blocks", [(b"blockStore", bytes.fromhex(value))]) == [is_plain]


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 9, 10, 127, 128])
def test_small_numbers_of_all_kinds_are_plain(value: int) -> None:
    number, text = encode_varint(value), b"x" * value
    data = b"".join(
        field_of(place, 2 if place in (1, 3, 4, 5) else 0, text if place in (1, 3, 4, 5) else number)
        for place in (1, 2, 3, 4, 5, 7, 12)
    )
    message = field_of(3, 0, number) + field_of(4, 2, data) + field_of(7, 0, number) + field_of(13, 0, number)
    assert find_plain_entries("notifications", [(b"DATA:http_a\0p#1", message)]) == [True]


def test_values_whose_text_is_much_longer_find_room() -> None:
    header = b"".join(field_of(number, 2, b"") for number in range(6, 15))
    meta = field_of(3, 2, header)
    assert find_plain_entries(
        "cometbft_blocks", [(b"H:1", meta), (b"C:2", field_of(4, 2, b"\x08\1") * 2000), (b"H:3", meta)]
    ) == [
        True,
        True,
        True,
    ]


def test_what_one_value_took_says_little_of_the_room_for_many() -> None:
    room, calls = TextRoom(16, 512), []
    for rows, length in ((1000, 100), (1, 0), (1000, 100)):
        ends = np.zeros(rows + 1, np.int32)

        def render(out: Any, row: int, ends: Any = ends, length: int = length) -> int:
            calls.append(len(ends) - 1)
            last = min(row + (len(out) - int(ends[row])) // max(length, 1), len(ends) - 1)
            ends[row : last + 1] = ends[row] + length * np.arange(last + 1 - row)
            return last

        room.write(8 * rows, ends, render)
    assert calls[-2:] == [1, 1000]


REAL: dict[str, list[tuple[bytes, bytes]]] = {}
REAL_VIEWS = (
    "file_system",
    "gcm_store",
    "local_storage",
    "notifications",
    "service_worker",
    "session_storage",
    "shared_proto",
    "site_characteristics",
    "sync_data",
)
DECLARED = {
    "gcm_store": (chromium_services.PUSH, [(b"outgoing1-7", "DataMessage", b"\x08")]),
    "notifications": (chromium_workers.NOTIFICATIONS, [(b"DATA:http_a\0p#1", "Notification", b"")]),
    "service_worker": (
        chromium_workers.MESSAGES,
        [
            (b"REG:https://a/\x001", "Registration", b""),
            (b"RES:2\x003", "Resource", b""),
            (b"REG_USER_DATA:1\0bgfetch_registration_x", "Fetch", b""),
            (b"REG_USER_DATA:1\0content_index:entry_", "Content", b""),
        ],
    ),
    "shared_proto": (
        chromium_services.SHARED,
        [
            (b"29_x", "StrikeService", b""),
            (b"37_x", "SegmentInfoDatabase", b""),
            (b"38_e" + bytes(range(8, 39)), "SignalDatabase", b""),
            (b"21_\xff", "DownloadDB", b""),
            (b"21_x", "DownloadDB", b""),
            (b"5_x", "Metadata", b""),
        ],
    ),
    "site_characteristics": (chromium_services.SITES, [(b"0123456789abcdef" * 2, "Site", b"")]),
    "sync_data": (
        sync_data.MESSAGES,
        [
            (b"preferences-dt-x", "Entity", b""),
            (b"sessions-md-x", "Metadata", b""),
            (b"device_info-dt-x", "Device", b""),
            (b"device_info-md-x", "Metadata", b""),
            (b"saved_tab_group-dt-x", "LocalTabGroup", b""),
            (b"web_apps-dt-DATABASE_METADATA", "Version", b""),
            (b"other-dt-x", "Fields", b""),
            (b"-dt-x", "Fields", b""),
            (b"1-dt-x", "Fields", b""),
        ],
    ),
}
"""By view: its declarations, and keys with the messages that are their values, after some bytes."""
DECLARED_ENTRIES = st.sampled_from(sorted(DECLARED)).flatmap(
    lambda view: st.sampled_from(DECLARED[view][1]).flatmap(
        lambda entry: messages(DECLARED[view][0], entry[1]).map(lambda value: (view, entry[0], entry[2] + value))
    )
)


def real_entries(view: str) -> list[tuple[bytes, bytes]]:
    path = {**APPLICATION_PATHS, **test_chromium_services.PLACES, **test_chromium_sites.PLACES}[view]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sawlog.DamageWarning)
        return [(row["key"], row["value"]) for row in sawlog.read(path, view="live").to_pylist()]


def context_of(view: str, entries: Sequence[tuple[bytes, bytes]]) -> Any:
    decoder = find_application(view)
    assert decoder is not None
    home = Home("/x/Local Extension Settings/abc", Storage(), 1 << 20)
    low, high = decoder.names or (b"", b"")
    names = [Entry(*entry, 1) for entry in entries if low <= entry[0] and entry[0] < (high or b"\xff")]
    return decoder.make_context(Entries.of(names), home)


@pytest.mark.parametrize("view", REAL_VIEWS)
def test_entries_of_a_profile_are_what_python_says(view: str) -> None:
    entries = real_entries(view)
    is_plain = find_plain_entries(view, entries, context_of(view, entries))
    assert sum(is_plain) >= len(is_plain) / 4


@given(st.data())
def test_changed_entries_of_a_profile_are_what_python_says(data: st.DataObject) -> None:
    view = data.draw(st.sampled_from(REAL_VIEWS))
    real = REAL.setdefault(view, real_entries(view))
    entries = data.draw(st.lists(draw_changed_entry(st.sampled_from(real)), max_size=4))
    find_plain_entries(view, entries, context_of(view, real))


REGISTERED = st.sampled_from(
    [b"", b"1234", b"a:token", b"=", b"#", b",", b"|", b"\xff", b"13440341864985872", b"-5", b"05"]
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [b"reg1-app", b"reg1-iid-a,b,c", b"reg1-iid-a", b"iid1-app", b"incoming1-m", b"reg1-iid-\xff,,"]
            ),
            st.lists(REGISTERED, max_size=6).map(b"".join),
        ),
        max_size=5,
    )
)
def test_registrations_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("gcm_store", entries, False)


def test_usual_registrations_are_left_to_the_kernels() -> None:
    entries = [
        (b"reg1-app", b"745476177629=a:token#13440341864985872"),
        (b"reg1-app", b"745476177629=a:token"),
        (b"reg1-iid-wp:http://a/,b,GCM", b"a:token#13440341864986089"),
        (b"iid1-app", b"d3Hy7W0Ae0A,13440341864981282"),
        (b"incoming1-m", b"0:1%a|13440341864981282"),
        (b"incoming1-m", b"0:1%a"),
        (b"reg1-app", b"=a:token"),
        (b"reg1-iid-a,b", b"a:token"),
    ]
    assert find_plain_entries("gcm_store", entries, False) == [True] * 6 + [False] * 2


FILE_IDS = st.integers(0, 6) | st.sampled_from([-1, 1 << 60, (1 << 63) - 1, -(1 << 63)])
FILES = st.one_of(
    st.tuples(
        FILE_IDS.map(lambda number: b"%d" % number),
        st.builds(pickled, FILE_IDS, st.sampled_from([b"", b"00/1", b"\xff"]), SHORT, FILE_IDS),
    ),
    st.tuples(
        st.builds(lambda number, name: b"CHILD_OF:%d:" % number + name, FILE_IDS, SHORT),
        FILE_IDS.map(lambda number: b"%d" % number),
    ),
    st.sampled_from(
        [(b"ORIGIN:http_a_0", b"000"), (b"LAST_PATH", b"-1"), (b"LAST_FILE_ID", b"012"), (b"LAST_INTEGER", b"7")]
    ),
)


@given(
    st.lists(FILES | draw_changed_entry(FILES), max_size=8), st.sampled_from(["x/000/t/Paths", "File System/Origins"])
)
def test_files_are_what_python_says(entries: list[tuple[bytes, bytes]], path: str) -> None:
    decoder = find_application("file_system")
    assert decoder is not None
    names = [Entry(*entry, 1) for entry in entries if b"0" <= entry[0] < b":"]
    find_plain_entries("file_system", entries, decoder.make_context(Entries.of(names), Home(path, Storage(), 1)))


@given(
    st.dictionaries(
        st.integers(-2, 12),
        st.tuples(st.integers(-2, 13), st.sampled_from(["", "a", "größe", "x" * 1500]), st.booleans()),
    )
)
def test_paths_of_directories_are_what_python_says(listed: dict[int, tuple[int, str, bool]]) -> None:
    entries = [
        Entry(b"%d" % number, pickled(parent, b"00/1" if is_file else b"", name.encode(), 5), 1)
        for number, (parent, name, is_file) in listed.items()
    ]
    decoder = find_application("file_system")
    assert decoder is not None
    files = decoder.make_context(Entries.of(entries), Home("x/000/t/Paths", Storage(), 1))
    for number in {*listed, 0, 99}:
        parent, name, _ = listed.get(number, (0, "", True))
        ways = [number]  # to a directory, through those that it is in
        while ways[-1] and ways[-1] in listed and not listed[ways[-1]][2] and len(ways) <= len(listed):
            ways.append(listed[ways[-1]][0])
        path = "".join(f"/{listed[way][1]}" for way in reversed(ways[:-1])) if not ways[-1] else None
        is_short = path is not None and len(path.encode()) <= 4096
        assert files.directories.find(number) == (path if is_short else None)
        if is_short and number:
            assert files.build_path(parent, name) == path


@pytest.mark.parametrize("length", [4090, 4091, 4094, 4095, 4096])
def test_files_whose_paths_are_short_are_left_to_the_kernels(length: int) -> None:
    entries = [
        (b"1", pickled(0, b"", b"a", 5)),
        (b"2", pickled(1, b"", b"b", 5)),
        (b"3", pickled(2, b"00/1", b"c" * length, 5)),
        (b"4", pickled(4, b"", b"itself", 5)),
        (b"5", pickled(9, b"00/2", b"nowhere", 5)),
        (b"CHILD_OF:2:d", b"3"),
    ]
    decoder = find_application("file_system")
    assert decoder is not None
    context = decoder.make_context(Entries.of(Entry(*entry, 1) for entry in entries[:-1]), HOME)
    assert find_plain_entries("file_system", entries, context) == [True, True, length <= 4091, False, False, True]


def session_key(form: str, size: int, tag: bytes, node: int, after: bytes = b"") -> bytes:
    return (
        f"sessions-{form}-".encode()
        + struct.pack("<II", size, len(tag))
        + tag
        + bytes(-len(tag) % 4)
        + struct.pack("<i", node)
        + after
    )


@given(
    st.lists(
        st.tuples(
            st.builds(
                session_key,
                st.sampled_from(["dt", "md", "xx"]),
                st.integers(0, 40),
                SHORT,
                st.integers(-5, 5),
                st.sampled_from([b"", b"\0"]),
            ),
            st.sampled_from(["Session", "Metadata"]).flatmap(lambda name: messages(sync_data.MESSAGES, name)),
        ),
        max_size=3,
    )
)
def test_entities_of_sessions_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("sync_data", entries)


SIGNAL_PARTS = st.sampled_from([b"", b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7]) | st.binary(min_size=8, max_size=8)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"38_", b"19_", b"99_", b""]),
            st.binary(min_size=8, max_size=8),
            st.lists(SIGNAL_PARTS, min_size=2, max_size=4),
        ).map(lambda key: (key[0] + key[1] + b"".join(key[2]), b"")),
        max_size=5,
    ),
    st.sampled_from(["shared_proto_db", "metadata", "SignalDB"]),
)
def test_keys_of_signals_are_what_python_says(entries: list[tuple[bytes, bytes]], context: str) -> None:
    find_plain_entries("shared_proto", entries, context)


def test_usual_keys_of_signals_are_left_to_the_kernels() -> None:
    keys = [b"38_" + kind + bytes(range(i, i + 31)) for i, kind in enumerate([b"u", b"e", b"\xe9"])]
    entries = [(b"38_u" + bytes(30), b""), (b"19_x", b""), *((key, b"") for key in keys)]
    assert find_plain_entries("shared_proto", entries, "shared_proto_db") == [False, True, True, True, True]


def download(path: bytes) -> bytes:
    return field_of(1, 2, field_of(4, 2, field_of(13, 2, path)))


@given(
    st.integers(0, 30),
    st.integers(0, 6),
    st.binary(max_size=4) | st.text(max_size=8).map(lambda text: text.encode("utf-16-le", "surrogatepass")),
)
def test_paths_of_downloads_are_what_python_says(payload_size: int, length: int, path: bytes) -> None:
    sizes = struct.pack("<II", payload_size, length)
    find_plain_entries(
        "shared_proto",
        [(b"21_x", download(sizes + path)), (b"21_x", download(sizes + path + bytes(-len(path) % 4)))],
        "",
    )


def test_usual_paths_of_downloads_are_left_to_the_kernels() -> None:
    narrow = struct.pack("<II", 12, 6) + '/a/\xfc"'.encode() + bytes(2)
    wide = struct.pack("<II", 16, 5) + 'C:\\\xfc"'.encode("utf-16-le") + bytes(2)
    assert find_plain_entries(
        "shared_proto", [(b"21_x", download(path)) for path in (narrow, wide, wide[:-3])], ""
    ) == [
        True,
        True,
        False,
    ]


def test_data_of_workers_that_is_no_text_is_left_to_the_kernels() -> None:
    key = b"REG_USER_DATA:7\0push_sender_id"
    entries = [(key, b"12"), (key, b"\xff\0" * 40), (b"REG_USER_DATA:7\0new", b"")]
    assert find_plain_entries("service_worker", entries, context_of("service_worker", entries)) == [True, True, False]


@given(DECLARED_ENTRIES)
def test_messages_as_they_are_declared_are_what_python_says(entry: tuple[str, bytes, bytes]) -> None:
    entries = [entry[1:]] * 2  # the second is at the end of all bytes
    find_plain_entries(entry[0], entries, context_of(entry[0], entries))


@given(
    st.lists(st.text("ab\x7f") | st.text('a\n"\\\u00e9\U0001f600'), min_size=4, max_size=4),
    st.integers(0, (1 << 64) - 1),
)
def test_texts_and_numbers_of_notifications_are_what_python_says(texts: list[str], number: int) -> None:
    fields = [field_of(place, 2, text.encode()) for place, text in zip((1, 4, 5, 14), texts, strict=True)]
    data = b"".join([*fields[:3], field_of(12, 0, encode_varint(number)), fields[3]])
    value = field_of(3, 0, encode_varint(number)) + field_of(4, 2, data) + field_of(9, 0, encode_varint(number))
    assert find_plain_entries("notifications", [(b"DATA:http_a\0p#1", value)] * 2) == [True] * 2


SETTING_TEXT = st.recursive(
    st.sampled_from(
        ["1", "-0", "0.5e+3", "01", "1.", "-", "1e", "true", "nul", '"a\\u00e9"', '"\\ud800"', '"\\x"', '"\x01"', "NaN"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
        | st.lists(inner, max_size=3).map(lambda items: "{" + ",".join(f'"k" : {item}' for item in items) + "}")
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"x.y", b".", b"\xff"]), SETTING_TEXT.map(str.encode) | SHORT), max_size=4
    )
)
@pytest.mark.parametrize("context", [("local", "abc"), ("state", None), (None, None)])
def test_settings_are_what_python_says(context: Any, entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("chrome_storage", entries, context)
    find_plain_entries("chrome_storage", [(key, value[:-1] + b"}") for key, value in entries], context)


def test_settings_that_are_json_are_left_to_the_kernels() -> None:
    values = [
        b'{"a":[1,{}, []],"b":{"c":null}}',
        b'"\\u003c \\n"',
        b" 1.5e-7 ",
        b"[" * 63 + b"]" * 63,
        b"[" * 64 + b"]" * 64,
    ]
    assert find_plain_entries("chrome_storage", [(b"k", value) for value in values], ("local", "abc")) == [True] * 4 + [
        False
    ]


def test_items_of_sessions_are_left_to_the_kernels() -> None:
    texts = ["plain and long enough", "gr\xfc\xdfe \u8a9e \U0001f600", ""]
    entries = [(b"map-1-k%d" % place, text.encode("utf-16-le")) for place, text in enumerate(texts)]
    entries += [(b"map-1-k", b"\0\xd8"), (b"map-1-k", b"\0\xdc\0\xd8"), (b"map-1-k", b"a"), (b"map--k", b"")]
    tabs = [(f"namespace-{'0' * 35}{tab}-https://a.example".encode(), b"1") for tab in "ab"]
    decoder = find_application("session_storage")
    assert decoder is not None
    context = decoder.make_context(Entries.of(Entry(*entry, 1) for entry in tabs), HOME)
    assert context.rows["1"]["namespaces"] == ["0" * 35 + "a", "0" * 35 + "b"]
    assert find_plain_entries("session_storage", entries, context) == [True] * 3 + [False] * 4


def idb_key(store: int, index: int, key: bytes) -> bytes:
    """A key of IndexedDB's, in database 1."""
    return bytes([1 << 2 | 1, 1]) + store.to_bytes(2, "little") + index.to_bytes(2, "little") + key


def utf_16_key(units: bytes) -> bytes:
    return b"\1" + encode_varint(len(units) // 2) + units


def idb_keys(keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(keys, max_size=3).map(lambda keys: b"\4" + encode_varint(len(keys)) + b"".join(keys))


DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -5.0, 1.5, 1e21, 2.0**53, -1e-7, 1.7e12, -6.3e13, 8.64e15, float("nan")])
DOUBLE_BYTES = (DOUBLES | st.floats()).map(lambda number: struct.pack("<d", number))
IDB_KEYS = st.recursive(
    st.one_of(
        st.text(max_size=4).map(lambda text: utf_16_key(text.encode("utf-16-be"))),
        st.tuples(st.sampled_from([b"\2", b"\3"]), DOUBLE_BYTES).map(b"".join),
        st.sampled_from(
            [b"\0", b"\5", b"\6\2\xff\0", utf_16_key(b"\xd8\0"), b"\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"]
        ),
    ),
    idb_keys,
    max_leaves=4,
)


def v8_text(text: str, tag: bytes) -> bytes:
    encodings = {b'"': "latin-1", b"c": "utf-16-le", b"S": "utf-8"}
    data = text.encode(encodings[tag], "replace" if tag == b'"' else "surrogatepass")
    return tag + encode_varint(len(data)) + data


V8_TEXTS = st.builds(
    v8_text,
    st.text(max_size=12) | st.sampled_from(["a", "$a", "1", '"\\\n\x01\xfc']),
    st.sampled_from([b'"', b"c", b"S"]),
)
V8_NUMBERS = st.builds(
    lambda tag, number: tag + encode_varint(number),
    st.sampled_from([b"I", b"U"]),
    st.integers(0, 3) | st.integers(0, 1 << 33),
)
V8_SCALARS = st.one_of(
    V8_TEXTS,
    V8_NUMBERS,
    st.tuples(st.sampled_from([b"N", b"D"]), DOUBLE_BYTES).map(b"".join),
    st.sampled_from([b"T", b"F", b"0", b"_", b"\0T", b"-", b"^\0", b"B\1a", b"Z\2\1", b"c\2\0\xd8", b"?"]),
)


@st.composite
def v8_containers(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    """An object, a list, or a list that had room for holes; few of them with what does not fit."""
    items = draw(st.lists(values, max_size=4))
    kind, count = (
        draw(st.sampled_from([b"o", b"A", b"a"])),
        encode_varint(len(items) + draw(st.sampled_from([0] * 9 + [1]))),
    )
    if kind == b"A":
        return kind + count + b"".join(items) + draw(st.sampled_from([b"$\0"] * 9 + [b"\0$\1"])) + count
    indexes = [b"I" + encode_varint(2 * place) for place in range(len(items))]
    names = draw(st.lists(V8_TEXTS | V8_NUMBERS, min_size=len(items), max_size=len(items))) if kind == b"o" else indexes
    pairs = b"".join(name + item for name, item in zip(names, items, strict=True))
    return kind + pairs + b"{" + count if kind == b"o" else kind + count + pairs + b"@" + count + count


V8_VALUES = st.recursive(V8_SCALARS, v8_containers, max_leaves=8)
TRAILER = b"\xfe" + bytes(12)
ENVELOPES = st.one_of(
    st.sampled_from(
        [b"\xff\x15" + TRAILER + b"\xff\x10"] * 6 + [b"\xff\x11\xff\x0d", b"\xff\x0b", b"\xff\x0a", b"\xff\x11\1", b"o"]
    ),
    st.integers(0, 40).map(lambda place: b"\xff\x15\xfe" + struct.pack(">QI", place, 0) + b"\xff\x10"),
)
IDB_ENTRIES = st.one_of(
    st.builds(
        lambda key, version, envelope, value, end: (
            idb_key(2, 1, key),
            encode_varint(version) + envelope + value + end,
        ),
        IDB_KEYS,
        NUMBERS,
        ENVELOPES,
        V8_VALUES,
        st.sampled_from([b"", b"\0", b"1"]),
    ),
    st.builds(lambda key, version: (idb_key(2, 2, key), version), IDB_KEYS, st.binary(max_size=9)),
    st.builds(
        lambda index, key, end, version, value: (idb_key(2, index, key + end), encode_varint(version) + value),
        st.sampled_from([30, 31, 300, 7]),
        IDB_KEYS,
        IDB_KEYS.map(lambda key: b"\0" + key) | st.sampled_from([b"", b"\0"]),
        NUMBERS,
        IDB_KEYS,
    ),
)
HOME = Home("/nowhere/x.indexeddb.leveldb", Storage(), 1 << 20)


def notification(script: bytes, title: bytes = b"t") -> tuple[bytes, bytes]:
    return b"DATA:http_a\0p#1", field_of(4, 2, field_of(1, 2, title) + field_of(8, 2, script)) + field_of(9, 0, b"\5")


NOTIFICATION_ENTRIES = st.builds(
    lambda envelope, value, end, title: notification(envelope + value + end, title),
    ENVELOPES,
    V8_VALUES,
    st.sampled_from([b"", b"\0", b"1"]),
    SHORT,
)


@given(st.lists(NOTIFICATION_ENTRIES | draw_changed_entry(NOTIFICATION_ENTRIES), max_size=5))
def test_notifications_with_values_of_scripts_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    find_plain_entries("notifications", entries)


def test_usual_values_of_notifications_are_left_to_the_kernels() -> None:
    head = b"\xff\x15" + TRAILER + b"\xff\x10"
    double = b"N" + struct.pack("<d", 1.5)
    scripts = [
        head + b"o" + v8_text("a", b'"') + b"A\2" + double + b"T$\0\2{\1",
        head + b"0",
        head + double,
        head + b"?",
        b"",
    ]
    assert find_plain_entries("notifications", [notification(script) for script in scripts]) == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("depth", [60, 64, 65])
def test_values_in_values_of_a_notification_are_plain_down_to_a_depth(depth: int) -> None:
    value = b"\xff\x0f" + b"A\1" * depth + b"T" + b"$\0\1" * depth
    assert find_plain_entries("notifications", [notification(value)]) == [depth <= 64]


def test_values_of_a_notification_that_need_much_room_find_it() -> None:
    lists = b"\xff\x0fA\xc8\x01" + b"_" * 200 + b"$\0\xc8\x01"
    entries = [notification(lists), notification(b"\xff\x0f" + v8_text("\1" * 4000, b'"')), notification(lists)]
    assert find_plain_entries("notifications", entries)[1]


def test_the_last_of_fields_with_one_name_is_left_to_the_kernels() -> None:
    key = b"REG_USER_DATA:7\0bgfetch_active_request_x"
    first, last = field_of(5, 0, b"\1"), field_of(6, 0, b"\2")
    entries = [(key, last), (key, first), (key, first + last)]
    assert find_plain_entries("service_worker", entries, context_of("service_worker", entries)) == [True, False, False]


@given(st.lists(IDB_ENTRIES | draw_changed_entry(IDB_ENTRIES), max_size=6))
def test_entries_of_indexed_db_are_what_python_says(entries: list[tuple[bytes, bytes]]) -> None:
    names = Names(HOME, {1: ("https_a_0@1", "notes")}, {(1, 2): "n\xf6tes"}, {KeyPrefix(1, 2, 30): "by title"})
    find_plain_entries("indexed_db", entries, names)


def test_what_most_entries_of_indexed_db_are_is_left_to_the_kernels() -> None:
    rows = sawlog.read(APPLICATION_PATHS["indexed_db"], view="rows").to_pylist()
    decoder = find_application("indexed_db")
    assert decoder is not None
    all_entries = [Entry(row["key"], row["value"], row["sequence"]) for row in rows]
    are_names = decoder.are_names(pa.array([entry.key for entry in all_entries], pa.binary()))
    assert are_names is not None
    name_entries = [entry for entry, is_name in zip(all_entries, are_names, strict=True) if is_name]
    assert 0 < len(name_entries) < len(all_entries) // 2
    context = decoder.make_context(Entries.of(all_entries), HOME)
    assert decoder.make_context(Entries.of(name_entries), HOME) == context
    are_plain = find_plain_entries("indexed_db", [(entry.key, entry.value or b"") for entry in all_entries], context)
    assert not any(is_plain and is_name for is_plain, is_name in zip(are_plain, are_names, strict=True))
    assert sum(are_plain) == 139  # of 190: it has a value of each kind that there is


@pytest.mark.parametrize("depth", [64, 65, 151])
def test_values_in_values_are_plain_down_to_a_depth(depth: int) -> None:
    value = b"\0\xff\x0f" + b"A\1" * depth + b"T" + b"$\0\1" * depth
    keys = b"\4\1" * depth + b"\0"
    entries = [(idb_key(2, 1, b"\0"), value), (idb_key(2, 2, keys), b"\1")]
    assert find_plain_entries("indexed_db", entries, Names(HOME)) == [depth <= 64] * 2


def test_text_that_needs_more_room_than_there_is_is_left_to_python() -> None:
    head, key = b"\0\xff\x0f", idb_key(2, 1, b"\0")
    values = [b"A\x20" + b"_" * 32 + b"$\0\x20", v8_text("\1" * 90, b'"'), b"A\x87\x68" + b"_" * 13319 + b"$\0\x87\x68"]
    entries = [(key, head + value) for value in (*values, *[b"T"] * 4)]
    assert find_plain_entries("indexed_db", entries, Names(HOME)) == [True, True, False, True, True, True, True]
    many = b"".join(b"U" + encode_varint(number) + b"0" for number in range(1025))
    assert find_plain_entries("indexed_db", [(key, head + b"o" + many + b"{\x81\x08")], Names(HOME)) == [False]


@pytest.mark.parametrize("step", [1, 3, 40])
def test_rows_are_put_in_their_places(step: int) -> None:
    places = np.arange(1, 400, step)
    column = pa.array([None, *map(str, range(400))]).slice(1)
    rows = pa.array([f"row {place}" if place % 2 else None for place in places.tolist()])
    expected = column.to_pylist()
    for place, value in zip(places.tolist(), rows.to_pylist(), strict=True):
        expected[place] = value
    assert put_rows(column, places, rows).to_pylist() == expected


def test_values_that_are_too_many_bytes_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.leveldb.applications.protobuf_rows.MAX_BYTES", 4)
    assert find_plain_entries("site_characteristics", [(b"database_metadata", b"1")]) == [True]
    assert (
        find_plain_entries("site_characteristics", [(b"database_metadata", b"1"), (b"0" * 32, b"\x08\x01")] * 2)
        == [False] * 4
    )


def test_states_and_versions_of_data_types_are_what_python_says() -> None:
    entries = {
        sync_data.SCHEMA: (b"\x08\x01", True),
        b"preferences-GlobalMetadata": (b"\x2a\x01a\x48\x03", True),
        b"sessions-GlobalMetadata": (b"", True),
        b"preferences-dt-DATABASE_METADATA": (b"\x08\x05", True),
        b"preferences-md-DATABASE_METADATA": (b"\x08\x05", True),
        b"sessions-dt-DATABASE_METADATA": (b"\x08\x05", False),
        b"1x-GlobalMetadata": (b"", False),
        b"preferences-GlobalMetadata-x": (b"", False),
        b"preferences-dt": (b"", False),
        b"preferences-\xff": (b"", False),
        b"ABC-preferences-GlobalMetadata": (b"", False),
        b"preferences-GlobalMetadata\xff": (b"", False),
    }
    expected = [is_plain for _, is_plain in entries.values()]
    assert find_plain_entries("sync_data", [(key, value) for key, (value, _) in entries.items()]) == expected
    assert not any(find_plain_entries("sync_data", [(key, value + b"\x08") for key, (value, _) in entries.items()]))
