"""Adler-32 (zlib's): by vector instructions where the CPU has them, eight bytes at a time in a register elsewhere.

Over n bytes d the checksum is `B << 16 | A` with `A = 1 + sum(d)` and `B = n + sum((n - i) * d[i])`, both modulo 65521.
Everything here works on the two plain sums, `sum(d)` and `sum((n - i) * d[i])`, and takes the remainder at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sawlog.kernels.jit import CHECKED, PLAIN, find_target, inlined, intrinsic, ir, types
from sawlog.kernels.memory import load_u64
from sawlog.kernels.numbers import _EIGHT, _HALF, _ONE, _U32, _ZERO
from sawlog.kernels.vector import spread

MODULUS = 65521

LONGEST = 1 << 27
"""Bytes whose two sums fit into 64 bits; longer stretches have to be summed in pieces."""
BRIEF = 5552
"""Bytes whose two sums fit into 32 bits."""

_BASE = np.uint64(MODULUS)
_LANES = np.uint64(0x00FF00FF00FF00FF)
_SUM = np.uint64(0x0001000100010001)
_EVEN = np.uint64(0x0008000600040002)
_ODD = np.uint64(0x0007000500030001)
_TOP = np.uint64(48)


def _make_byte_type() -> ir.IntType:
    return ir.IntType(8)


def _make_wide(value: int | None = None) -> Any:
    """Return the type of 64 bits, or a constant of it."""
    return ir.IntType(64) if value is None else ir.IntType(64)(value)


def choose_vector_width(triple: str, features: Mapping[str, bool]) -> int:
    """Return the number of bytes that a CPU sums at once in a vector; 0 where registers have to do."""
    if triple.startswith("x86_64"):
        if features.get("avx512bw"):
            return 64
        if features.get("avx2"):
            return 32
    return 0


WIDTH = 0 if CHECKED else choose_vector_width(*find_target())
"""The vector width in use."""
_WIDTH = np.uint64(max(WIDTH, 1))
LEAD = WIDTH
"""Bytes before a stretch that `adler32_before` may look at."""

_NAMES = {
    64: ("llvm.x86.avx512.psad.bw.512", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    32: ("llvm.x86.avx2.psad.bw", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
}


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def emit(builder: ir.IRBuilder, width: int, pointer: ir.Value, used: ir.Value) -> ir.Value:
    """Emit the sums over the first `used` of `width` bytes at a pointer: `sum((width - i) * d[i]) << 32 | sum(d)`.

    All `width` bytes must be readable; those after the first `used` count as zero.
    """
    vector = ir.VectorType(_make_byte_type(), width)
    data = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
    places = ir.Constant(vector, list(range(width)))
    keep = builder.icmp_unsigned("<", places, spread(builder, builder.trunc(used, _make_byte_type()), width))
    data = builder.select(keep, data, ir.Constant(vector, [0] * width))
    return _add_up(builder, width, *_sum_lanes(builder, width, data))


def emit_before(builder: ir.IRBuilder, width: int, end: ir.Value, length: ir.Value) -> ir.Value:
    """Emit Adler-32 of the `length` bytes before the pointer `end`: at least 1, at most `BRIEF`.

    The first vector may reach `width` bytes before them, which must be readable. It is summed for the bytes that count,
    the others as a whole: what is before a vector weighs its width more.
    """
    vector, quads = ir.VectorType(_make_byte_type(), width), ir.VectorType(_make_wide(), width // 8)
    used = builder.add(builder.and_(builder.sub(length, _make_wide(1)), _make_wide(width - 1)), _make_wide(1))
    unread = builder.sub(length, used)
    distances = ir.Constant(vector, [width - i for i in range(width)])
    keep = builder.icmp_unsigned("<=", distances, spread(builder, builder.trunc(used, _make_byte_type()), width))
    data = builder.select(keep, _load_vector(builder, width, end, unread), ir.Constant(vector, [0] * width))
    initial_state = (unread, *_sum_lanes(builder, width, data), ir.Constant(quads, [0] * (width // 8)))
    entry, head, body, done = builder.block, *(builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    state = [builder.phi(value.type) for value in initial_state]
    unread, plain, weighted, before = state
    builder.cbranch(builder.icmp_unsigned("==", unread, _make_wide(0)), done, body)
    builder.position_at_end(body)
    next_left = builder.sub(unread, _make_wide(width))
    more = _sum_lanes(builder, width, _load_vector(builder, width, end, next_left))
    passed = (next_left, builder.add(plain, more[0]), builder.add(weighted, more[1]), builder.add(before, plain))
    builder.branch(head)
    for value, first, following in zip(state, initial_state, passed, strict=True):
        value.add_incoming(first, entry)
        value.add_incoming(following, body)
    builder.position_at_end(done)
    lifted = builder.shl(before, ir.Constant(quads, [31 + width.bit_length()] * (width // 8)))
    sums = _add_up(builder, width, builder.add(plain, lifted), weighted)
    low = builder.urem(builder.add(builder.and_(sums, _make_wide(0xFFFFFFFF)), _make_wide(1)), _make_wide(MODULUS))
    high = builder.urem(builder.add(builder.lshr(sums, _make_wide(32)), length), _make_wide(MODULUS))
    return builder.or_(builder.shl(high, _make_wide(16)), low)


def _load_vector(builder: ir.IRBuilder, width: int, end: ir.Value, unread: ir.Value) -> ir.Value:
    """Return the vector that ends `unread` bytes before a pointer."""
    start = builder.gep(end, [builder.neg(builder.add(unread, _make_wide(width)))])
    return builder.load(builder.bitcast(start, ir.VectorType(_make_byte_type(), width).as_pointer()), align=1)


def _sum_lanes(builder: ir.IRBuilder, width: int, data: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the plain sums of a vector's bytes in lanes of 64 bits, and those weighted from its end in lanes of 32."""
    sad, multiply_bytes, multiply_words = _NAMES[width]
    plain = _call(builder, sad, ir.VectorType(_make_wide(), width // 8), data, ir.Constant(data.type, [0] * width))
    weights = ir.Constant(data.type, [width - i for i in range(width)])
    pairs = _call(builder, multiply_bytes, ir.VectorType(ir.IntType(16), width // 2), data, weights)
    unit_weights = ir.Constant(pairs.type, [1] * (width // 2))
    return plain, _call(builder, multiply_words, ir.VectorType(ir.IntType(32), width // 4), pairs, unit_weights)


def _add_up(builder: ir.IRBuilder, width: int, plain: ir.Value, weighted: ir.Value) -> ir.Value:
    """Return all lanes in one go: plain sums to the lower half of the result, weighted ones to the upper."""
    count = width // 8
    pairs = builder.bitcast(weighted, plain.type)
    upper = builder.and_(pairs, ir.Constant(plain.type, [0xFFFFFFFF << 32] * count))
    lower = builder.shl(pairs, ir.Constant(plain.type, [32] * count))
    total = builder.add(builder.add(upper, lower), plain)
    return _call(builder, f"llvm.vector.reduce.add.v{count}i64", _make_wide(), total)


@intrinsic
def _sum_vector(typing_context: Any, array: Any, position: Any, used: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return emit(builder, WIDTH, builder.gep(view.data, [arguments[1]]), arguments[2])

    return types.uint64(array, types.uint64, types.uint64), generate


@intrinsic
def _sum_vector_before(typing_context: Any, array: Any, end: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return emit_before(builder, WIDTH, builder.gep(view.data, [arguments[1]]), arguments[2])

    return types.uint64(array, types.uint64, types.uint64), generate


def _take_top(lanes: Any, weights: Any) -> Any:
    return lanes * weights >> _TOP


def _take_top_plain(lanes: Any, weights: Any) -> Any:
    return np.uint64((int(lanes) * int(weights) & 0xFFFFFFFFFFFFFFFF) >> 48)


_dot = _take_top_plain if PLAIN else inlined(_take_top)
"""Sum of four 16-bit lanes, each times a weight: the top lane of the product; the first lane takes the last weight."""


@inlined
def sum_by_register(buffer: Any, start: Any, length: Any, total: Any, weighted: Any) -> Any:
    """Continue the two sums (`total` already counts for every byte before) over `buffer[start : start + length]`."""
    position = start
    end = start + length
    while end - position >= _EIGHT:
        word = load_u64(buffer, position)
        even = word & _LANES
        odd = word >> _EIGHT & _LANES
        weighted += _EIGHT * total + _dot(even, _EVEN) + _dot(odd, _ODD)
        total += _dot(even + odd, _SUM)
        position += _EIGHT
    while position < end:
        total += np.uint64(buffer[position])
        weighted += total
        position += _ONE
    return total, weighted


@inlined
def sum_by_vector(buffer: Any, start: Any, length: Any, total: Any, weighted: Any) -> Any:
    """Return the same by vectors. The last one may reach past the stretch, never past the buffer."""
    position = start
    end = start + length
    limit = np.uint64(len(buffer))
    while position < end and limit - position >= _WIDTH:
        used = min(end - position, _WIDTH)
        sums: Any = _sum_vector(buffer, position, used)  # type: ignore[call-arg] # called without the first argument
        low_sum = sums & _U32
        weighted += used * total + (sums >> _HALF) - (_WIDTH - used) * low_sum
        total += low_sum
        position += used
    if position < end:
        total, weighted = sum_by_register(buffer, position, end - position, total, weighted)
    return total, weighted


sums: Any = sum_by_vector if WIDTH else sum_by_register
"""`sums(buffer, start, length, total, weighted) -> (uint64, uint64)`, the faster of the two on this machine."""


@inlined
def finish(total: Any, weighted: Any, length: Any) -> Any:
    """Return the checksum as uint64, from the two sums over `length` bytes."""
    low = (_ONE + total) % _BASE
    high = (length + weighted) % _BASE
    return high << np.uint64(16) | low


@inlined
def adler32(buffer: Any, start: Any, length: Any) -> Any:
    """Return the Adler-32 of `buffer[start : start + length]` as uint64; at most `LONGEST` bytes. All are uint64."""
    total, weighted = sums(buffer, start, length, _ZERO, _ZERO)
    return finish(total, weighted, length)


@inlined
def _sum_before(buffer: Any, end: Any, length: Any) -> Any:
    return adler32(buffer, end - length, length)


adler32_before: Any = _sum_vector_before if WIDTH else _sum_before
"""`adler32_before(buffer, end, length) -> uint64`: Adler-32 of the `length` bytes before `end`, 1 to `BRIEF` of them.

For many short stretches: it is compiled into its caller. The `LEAD` bytes before the stretch must be in the buffer.
"""
