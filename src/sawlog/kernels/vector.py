"""Many values at once: loads from places that a kernel has written down, for use inside kernels.

As in `sawlog.kernels.memory`, callers check before each access, and the checked modes go one value at a time. LLVM
makes of these what the CPU at hand has: gathers where there are such instructions, single loads elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import CHECKED, always_inlined, inlined, intrinsic, ir, types
from sawlog.kernels.memory import (
    copy_bytes,
    find_address,
    load_big_u16,
    load_big_u32,
    load_big_u64,
    store_u16,
    store_u32,
    store_u64,
)

LOADED = 4
"""Bytes that must be readable at each place, for values that are narrower."""


def count_lanes(width: int) -> int:
    """Return how many values of `width` bytes a vector holds."""
    return 8 if width == 8 else 16


def _declare_function(builder: ir.IRBuilder, name: str, kind: ir.FunctionType) -> ir.Function:
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def spread(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """Return a vector that holds a value `count` times."""
    half = ir.IntType(32)
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(half, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(half, count), [0] * count))


def emit_big(builder: ir.IRBuilder, width: int, source: ir.Value, places: ir.Value) -> ir.Value:
    """Emit the loads of big-endian values of `width` bytes at the addresses `source + places[lane]`, as a vector."""
    count = count_lanes(width)
    bits = 8 * width
    loaded = max(bits, 8 * LOADED)
    wide, half = ir.IntType(64), ir.IntType(32)
    vector = ir.VectorType(ir.IntType(loaded), count)
    offsets = builder.load(builder.bitcast(places, ir.VectorType(half, count).as_pointer()), align=4)
    base = spread(builder, builder.ptrtoint(source, wide), count)
    pointers = builder.inttoptr(
        builder.add(builder.zext(offsets, base.type), base), ir.VectorType(ir.IntType(loaded).as_pointer(), count)
    )
    every = ir.Constant(ir.VectorType(ir.IntType(1), count), [1] * count)
    kind = ir.FunctionType(vector, [pointers.type, half, every.type, vector])
    gather = _declare_function(builder, f"llvm.masked.gather.v{count}i{loaded}.v{count}p0", kind)
    values = builder.call(gather, [pointers, ir.Constant(half, 1), every, ir.Constant(vector, ir.Undefined)])
    swap = _declare_function(builder, f"llvm.bswap.v{count}i{loaded}", ir.FunctionType(vector, [vector]))
    values = builder.call(swap, [values])
    if bits == loaded:
        return values
    values = builder.lshr(values, ir.Constant(vector, [loaded - bits] * count))
    return builder.trunc(values, ir.VectorType(ir.IntType(bits), count))


def _gather(width: int) -> Any:
    count = count_lanes(width)

    @intrinsic
    def gather(
        typing_context: Any,
        source: Any,
        offset: Any,
        places: Any,
        first: Any,
        target: Any,
        pos: Any,
        pattern: Any,
        mask: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            addresses = [find_address(context, builder, signature, arguments, place) for place in (0, 2, 4)]
            values = emit_big(builder, width, addresses[0], addresses[1])
            builder.store(values, builder.bitcast(addresses[2], values.type.as_pointer()), align=1)
            sought, ignored = (
                spread(builder, value if width == 8 else builder.trunc(value, ir.IntType(8 * width)), count)
                for value in arguments[6:8]
            )
            matches = builder.icmp_unsigned("==", builder.or_(values, ignored), sought)
            return builder.zext(builder.bitcast(matches, ir.IntType(count)), ir.IntType(64))

        unsigned = types.uint64
        return unsigned(source, unsigned, places, unsigned, target, unsigned, unsigned, unsigned), generate

    return gather


def _make_checked_gather(width: int) -> Any:
    def load_byte(source: Any, pos: Any) -> Any:
        return np.uint64(source[pos])

    def store_byte(target: Any, pos: Any, value: Any) -> None:
        target[pos] = value

    load = {1: inlined(load_byte), 2: load_big_u16, 4: load_big_u32, 8: load_big_u64}[width]
    store = {1: inlined(store_byte), 2: store_u16, 4: store_u32, 8: store_u64}[width]
    count = count_lanes(width)
    step = np.uint64(width)
    slack = np.uint64(max(LOADED - width, 0))

    def gather(
        source: Any, offset: Any, places: Any, first: Any, target: Any, pos: Any, pattern: Any, mask: Any
    ) -> Any:
        matches = np.uint64(0)
        for lane in range(count):
            place = np.uint64(places[first + np.uint64(lane)]) + offset
            value = load(source, place)
            source[place + step - np.uint64(1) + slack]
            store(target, pos + np.uint64(lane) * step, value)
            if (value | mask) == pattern:
                matches |= np.uint64(1 << lane)
        return matches

    return inlined(gather)


_make = _make_checked_gather if CHECKED else _gather
gather_big_u8: Any = _make(1)
"""`gather_big_u8(source, offset, places, first, target, at, pattern, mask) -> uint64`: load 16 values of 1 byte.

Value i is `source[places[first + i] + offset]`, and goes to `target[at + i]`, for i below `count_lanes(1)`. The result
has bit i set where the value with the bits of `mask` set is `pattern`. `places` is uint32, other numbers are uint64.
"""
gather_big_u16: Any = _make(2)
"""The same for 16 big-endian values of 2 bytes, stored in little endian."""
gather_big_u32: Any = _make(4)
"""The same for 16 values of 4 bytes."""
gather_big_u64: Any = _make(8)
"""The same for 8 values of 8 bytes."""


def _make_copy(size: int) -> Any:
    @intrinsic
    def copy(typing_context: Any, target: Any, pos: Any, source: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = ir.VectorType(ir.IntType(8), size).as_pointer()
            target_pointer, source_pointer = (
                builder.bitcast(find_address(context, builder, signature, arguments, place), pointer)
                for place in (0, 2)
            )
            builder.store(builder.load(source_pointer, align=1), target_pointer, align=1)
            return context.get_dummy_value()

        return types.void(target, types.uint64, source, types.uint64), generate

    def copy_checked(target: Any, pos: Any, source: Any, start: Any) -> None:
        for i in range(size):
            target[pos + np.uint64(i)] = source[start + np.uint64(i)]

    return inlined(copy_checked) if CHECKED else copy


copy_16: Any = _make_copy(16)
"""`copy_16(target, at, source, start)`: copy 16 bytes between places that do not overlap."""
copy_32: Any = _make_copy(32)
"""The same for 32 bytes."""

_PLAIN = 16


@intrinsic
def _copy_plain(typing_context: Any, target: Any, pos: Any, source: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        pointer = ir.VectorType(byte, _PLAIN).as_pointer()
        target_pointer, source_pointer = (
            builder.bitcast(find_address(context, builder, signature, arguments, place), pointer) for place in (0, 2)
        )
        values = builder.load(source_pointer, align=1)
        builder.store(values, target_pointer, align=1)
        limit, quote, backslash = (ir.Constant(values.type, [ord(character)] * _PLAIN) for character in ' "\\')
        marks = builder.icmp_signed("<", values, limit)  # control characters and, by their sign, what is not ASCII
        for character in (quote, backslash):
            marks = builder.or_(marks, builder.icmp_unsigned("==", values, character))
        return builder.zext(builder.bitcast(marks, ir.IntType(_PLAIN)), ir.IntType(64))

    return types.uint64(target, types.uint64, source, types.uint64), generate


def _copy_plain_checked(target: Any, pos: Any, source: Any, start: Any) -> Any:
    marks = np.uint64(0)
    for i in range(_PLAIN):
        byte = source[start + np.uint64(i)]
        target[pos + np.uint64(i)] = byte
        if byte < 32 or byte >= 128 or byte in (34, 92):
            marks |= np.uint64(1) << np.uint64(i)
    return marks


copy_plain_16: Any = inlined(_copy_plain_checked) if CHECKED else _copy_plain
"""`copy_plain_16(target, at, source, start) -> uint64`: copy 16 bytes between places that do not overlap.

Bit i of the result is set where byte i is no character of ASCII that JSON has as it is.
"""

SLACK = 16
"""What `copy_short` may write past the bytes it copies."""
_SLACK = np.uint64(SLACK)
_LONG = np.uint64(128)


@always_inlined
def copy_short(target: Any, pos: Any, source: Any, start: Any, length: Any) -> None:
    """Copy a string that is mostly short, in steps of 16 bytes; what comes after it in the target may be overwritten.

    No array is read or written past its end.
    """
    room = min(np.uint64(len(source)) - start, np.uint64(len(target)) - pos)
    if length > _LONG or room < length + _SLACK:
        copy_bytes(target, pos, source, start, length)
        return
    copy_16(target, pos, source, start)
    done = _SLACK
    while done < length:
        copy_16(target, pos + done, source, start + done)
        done += _SLACK


PLACES = 64
"""How many places `pairs` looks at."""


@intrinsic
def _find_pairs(typing_context: Any, data: Any, pos: Any, first: Any, second: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, wide = ir.IntType(8), ir.IntType(64)
        start = find_address(context, builder, signature, arguments, 0)
        comparisons = []
        for distance, sought in enumerate(arguments[2:]):
            pointer = builder.gep(start, [wide(distance)])
            values = builder.load(builder.bitcast(pointer, ir.VectorType(byte, PLACES).as_pointer()), align=1)
            comparisons.append(
                builder.icmp_unsigned("==", values, spread(builder, builder.trunc(sought, byte), PLACES))
            )
        return builder.bitcast(builder.and_(*comparisons), wide)

    return types.uint64(data, types.uint64, types.uint64, types.uint64), generate


def _find_pairs_checked(data: Any, pos: Any, first: Any, second: Any) -> Any:
    matches = np.uint64(0)
    for place in range(PLACES):
        lane_pos = pos + np.uint64(place)
        if data[lane_pos] == first and data[lane_pos + np.uint64(1)] == second:
            matches |= np.uint64(1) << np.uint64(place)
    return matches


pairs: Any = inlined(_find_pairs_checked) if CHECKED else _find_pairs
"""`pairs(data, at, first, second) -> uint64`: bit i is set where `data[at + i]` is `first`, and the next byte `second`.

All numbers are uint64. `PLACES + 1` bytes must be readable.
"""
