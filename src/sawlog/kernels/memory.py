"""Loads and copies at unsigned byte positions of uint8 arrays, and wide products, for use inside kernels.

Callers check `end - pos < need` before each access; nothing here does in the compiled mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import CHECKED, always_inlined, cgutils, inlined, intrinsic, ir, types
from sawlog.kernels.numbers import _EIGHT, _HALF, _U32


def load_number(bits: int, offset: int = 0, *, big: bool = False) -> Any:
    """Return `load(array, position) -> uint64`: a number of 8 to 64 bits at `position + offset`, by one instruction."""

    @intrinsic
    def load(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.gep(
                find_address(context, builder, signature, arguments, 0), [ir.Constant(ir.IntType(64), offset)]
            )
            value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()), align=1)
            value = builder.bswap(value) if big and bits > 8 else value
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return types.uint64(array, types.uint64), generate

    return load


def find_address(context: Any, builder: Any, signature: Any, arguments: Any, first: int) -> Any:
    """Return the address of byte `arguments[first + 1]` of the array `arguments[first]`."""
    array = context.make_array(signature.args[first])(context, builder, arguments[first])
    return builder.gep(array.data, [arguments[first + 1]])


def _make_store(bits: int, *, big: bool = False) -> Any:
    """Return a store of `bits` bits at any byte position, as one instruction."""

    @intrinsic
    def store(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = find_address(context, builder, signature, arguments, 0)
            kind = ir.IntType(bits)
            value = arguments[2] if bits == 64 else builder.trunc(arguments[2], kind)
            value = builder.bswap(value) if big else value
            builder.store(value, builder.bitcast(pointer, kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(array, types.uint64, types.uint64), generate

    return store


@intrinsic
def _copy(typing_context: Any, target: Any, pos: Any, source: Any, start: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cgutils.raw_memcpy(
            builder,
            find_address(context, builder, signature, arguments, 0),
            find_address(context, builder, signature, arguments, 2),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.uint64, source, types.uint64, types.uint64), generate


@intrinsic
def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = find_address(context, builder, signature, arguments, 0)
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def _multiply_high(typing_context: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _count_low_zeros(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inlined
def rotate_u64(value: Any, bits: Any) -> Any:
    """Return a 64-bit number, rotated to the left."""
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


def _multiply_high_checked(a: Any, b: Any) -> Any:
    low = (a & _U32) * (b & _U32)
    middle = (a >> _HALF) * (b & _U32) + (low >> _HALF)
    two = (a & _U32) * (b >> _HALF) + (middle & _U32)
    return (a >> _HALF) * (b >> _HALF) + (middle >> _HALF) + (two >> _HALF)


@inlined
def _count_low_zeros_checked(value: Any) -> Any:
    count = np.uint64(0)
    while value & np.uint64(1) == np.uint64(0):
        value >>= np.uint64(1)
        count += np.uint64(1)
    return count


def _prefetch_checked(array: Any, position: Any) -> None:
    pass


def _make_checked_load(size: int, *, big: bool = False) -> Any:
    @inlined
    def load(array: Any, position: Any) -> Any:
        value = np.uint64(0)
        for i in range(size):
            shift = np.uint64(8 * (size - 1 - i if big else i))
            value |= np.uint64(array[position + np.uint64(i)]) << shift
        return value

    return load


def _make_checked_store(size: int, *, big: bool = False) -> Any:
    @inlined
    def store(array: Any, position: Any, value: Any) -> None:
        for i in range(size):
            shift = np.uint64(8 * (size - 1 - i if big else i))
            array[position + np.uint64(i)] = value >> shift & np.uint64(255)

    return store


def _copy_checked(target: Any, pos: Any, source: Any, start: Any, length: Any) -> None:
    for i in range(length):
        target[pos + np.uint64(i)] = source[start + np.uint64(i)]


load_u16: Any = _make_checked_load(2) if CHECKED else load_number(16)
"""`load_u16(array, position) -> uint64`: 2 bytes, little endian."""
load_u32: Any = _make_checked_load(4) if CHECKED else load_number(32)
"""`load_u32(array, position) -> uint64`: 4 bytes, little endian."""
load_u64: Any = _make_checked_load(8) if CHECKED else load_number(64)
"""`load_u64(array, position) -> uint64`: 8 bytes, little endian."""
store_u16: Any = _make_checked_store(2) if CHECKED else _make_store(16)
"""`store_u16(array, position, value)`: the low 2 bytes of a uint64, little endian."""
store_u32: Any = _make_checked_store(4) if CHECKED else _make_store(32)
"""`store_u32(array, position, value)`: the low 4 bytes of a uint64, little endian."""
store_u64: Any = _make_checked_store(8) if CHECKED else _make_store(64)
"""`store_u64(array, position, value)`: a uint64, little endian."""
load_big_u16: Any = _make_checked_load(2, big=True) if CHECKED else load_number(16, big=True)
"""`load_big_u16(array, position) -> uint64`: 2 bytes, big endian."""
load_big_u32: Any = _make_checked_load(4, big=True) if CHECKED else load_number(32, big=True)
"""`load_big_u32(array, position) -> uint64`: 4 bytes, big endian."""
load_big_u64: Any = _make_checked_load(8, big=True) if CHECKED else load_number(64, big=True)
"""`load_big_u64(array, position) -> uint64`: 8 bytes, big endian."""
store_big_u16: Any = _make_checked_store(2, big=True) if CHECKED else _make_store(16, big=True)
"""`store_big_u16(array, position, value)`: the low 2 bytes of a uint64, big endian."""
store_big_u32: Any = _make_checked_store(4, big=True) if CHECKED else _make_store(32, big=True)
"""`store_big_u32(array, position, value)`: the low 4 bytes of a uint64, big endian."""
store_big_u64: Any = _make_checked_store(8, big=True) if CHECKED else _make_store(64, big=True)
"""`store_big_u64(array, position, value)`: a uint64, big endian."""
copy_bytes: Any = inlined(_copy_checked) if CHECKED else _copy
"""`copy_bytes(target, at, source, start, length)`: copy `length` bytes between arrays that do not overlap."""
prefetch: Any = inlined(_prefetch_checked) if CHECKED else _prefetch
"""`prefetch(array, position)`: have the cache line ready soon; the position may lie outside the array."""
count_low_zeros: Any = _count_low_zeros_checked if CHECKED else _count_low_zeros
"""`count_low_zeros(value) -> uint64`: how many bits below the lowest one that is set; there must be such."""
high_product: Any = inlined(_multiply_high_checked) if CHECKED else _multiply_high
"""`high_product(a, b) -> uint64`: the upper half of the 128 bits of a product of uint64."""


@always_inlined
def are_bytes_equal(a: Any, pos: Any, b: Any, start: Any, length: Any) -> Any:
    """Return whether the `length` bytes of `a` at `pos` are those of `b` at `start`; all of them uint64."""
    if length < _EIGHT:
        is_same = True
        for i in range(length):
            is_same = is_same and a[pos + i] == b[start + i]
        return is_same
    done = np.uint64(0)
    last = length - _EIGHT
    differs = load_u64(a, pos + last) ^ load_u64(b, start + last)
    while done < last:
        differs |= load_u64(a, pos + done) ^ load_u64(b, start + done)
        done += _EIGHT
    return differs == np.uint64(0)


@inlined
def compare_bytes(a: Any, start: Any, end: Any, b: Any, other_start: Any, other_end: Any) -> Any:
    """Return less than 0, 0, or more: how the bytes `a[start:end]` compare with `b[other:other_end]`."""
    pos = np.uint64(start)
    to = np.uint64(other_start)
    length = np.uint64(end) - pos
    other_length = np.uint64(other_end) - to
    shorter = min(length, other_length)
    done = np.uint64(0)
    while shorter - done >= _EIGHT:
        word = load_big_u64(a, pos + done)
        other_word = load_big_u64(b, to + done)
        if word != other_word:
            return -1 if word < other_word else 1
        done += _EIGHT
    while done < shorter:
        byte = a[pos + done]
        other_byte = b[to + done]
        if byte != other_byte:
            return -1 if byte < other_byte else 1
        done += np.uint64(1)
    if length == other_length:
        return 0
    return -1 if length < other_length else 1
