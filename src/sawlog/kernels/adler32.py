"""Adler-32 (zlib's): by vector instructions where the CPU has them, eight bytes at a time in a register elsewhere.

Over n bytes d the checksum is `B << 16 | A` with `A = 1 + sum(d)` and `B = n + sum((n - i) * d[i])`, both modulo 65521.
Everything here works on the two plain sums, `sum(d)` and `sum((n - i) * d[i])`, and takes the remainder at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sawlog.kernels.jit import CHECKED, PLAIN, inlined
from sawlog.kernels.memory import load_u64

MODULUS = 65521

LONGEST = 1 << 27
"""Bytes whose two sums fit into 64 bits; longer stretches have to be summed in pieces."""

_BASE = np.uint64(MODULUS)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_EIGHT = np.uint64(8)
_LANES = np.uint64(0x00FF00FF00FF00FF)
_SUM = np.uint64(0x0001000100010001)
_EVEN = np.uint64(0x0008000600040002)
_ODD = np.uint64(0x0007000500030001)
_TOP = np.uint64(48)
_HALF = np.uint64(32)
_U32 = np.uint64(0xFFFFFFFF)


def vector_width(triple: str, features: Mapping[str, bool]) -> int:
    """Bytes per vector that a CPU sums at once; 0 where registers have to do."""
    if triple.startswith("x86_64"):
        if features.get("avx512bw"):
            return 64
        if features.get("avx2"):
            return 32
    return 0


WIDTH = (
    0
    if CHECKED
    else vector_width(llvmlite.binding.get_process_triple(), dict(llvmlite.binding.get_host_cpu_features()))
)
"""The vector width in use on this machine."""
_WIDTH = np.uint64(max(WIDTH, 1))

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

    All `width` bytes must be readable; those behind the first `used` count as zero.
    """
    byte, word, half, wide = (ir.IntType(bits) for bits in (8, 16, 32, 64))
    vector = ir.VectorType(byte, width)
    data = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
    places = ir.Constant(vector, [ir.Constant(byte, i) for i in range(width)])
    seed = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(used, byte), ir.Constant(half, 0))
    spread = builder.shuffle_vector(
        seed, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(half, width), [0] * width)
    )
    keep = builder.icmp_unsigned("<", places, spread)
    data = builder.select(keep, data, ir.Constant(vector, [0] * width))
    sad, multiply_bytes, multiply_words = _NAMES[width]
    quads = ir.VectorType(wide, width // 8)
    sums = _call(builder, sad, quads, data, ir.Constant(vector, [0] * width))
    weights = ir.Constant(vector, [width - i for i in range(width)])
    pairs = _call(builder, multiply_bytes, ir.VectorType(word, width // 2), data, weights)
    ones = ir.Constant(ir.VectorType(word, width // 2), [1] * (width // 2))
    fours = _call(builder, multiply_words, ir.VectorType(half, width // 4), pairs, ones)
    # Fold the weighted sums to as many lanes as the plain ones have, and add both up in one go.
    undefined = ir.Constant(fours.type, ir.Undefined)
    count = width // 8
    low, high = (
        builder.shuffle_vector(
            fours, undefined, ir.Constant(ir.VectorType(half, count), list(range(first, first + count)))
        )
        for first in (0, count)
    )
    folded = builder.shl(builder.zext(builder.add(low, high), quads), ir.Constant(quads, [32] * count))
    return _call(builder, f"llvm.vector.reduce.add.v{count}i64", wide, builder.or_(folded, sums))


@intrinsic
def _vector_sums(typing_context: Any, array: Any, position: Any, used: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return emit(builder, WIDTH, builder.gep(view.data, [arguments[1]]), arguments[2])

    return types.uint64(array, types.uint64, types.uint64), generate


def _top(lanes: Any, weights: Any) -> Any:
    return lanes * weights >> _TOP


def _plain_top(lanes: Any, weights: Any) -> Any:
    return np.uint64((int(lanes) * int(weights) & 0xFFFFFFFFFFFFFFFF) >> 48)


_dot = _plain_top if PLAIN else inlined(_top)
"""Sum of four 16-bit lanes, each times a weight: the top lane of the product; the first lane meets the last weight."""


@inlined
def sums_by_register(buffer: Any, start: Any, length: Any, total: Any, weighted: Any) -> Any:
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
def sums_by_vector(buffer: Any, start: Any, length: Any, total: Any, weighted: Any) -> Any:
    """The same by vectors. The last one may reach behind the stretch, never behind the buffer."""
    position = start
    end = start + length
    limit = np.uint64(len(buffer))
    while position < end and limit - position >= _WIDTH:
        used = min(end - position, _WIDTH)
        both = _vector_sums(buffer, position, used)
        here = both & _U32
        weighted += used * total + (both >> _HALF) - (_WIDTH - used) * here
        total += here
        position += used
    if position < end:
        total, weighted = sums_by_register(buffer, position, end - position, total, weighted)
    return total, weighted


sums: Any = sums_by_vector if WIDTH else sums_by_register
"""`sums(buffer, start, length, total, weighted) -> (uint64, uint64)`, the faster of the two on this machine."""


@inlined
def finish(total: Any, weighted: Any, length: Any) -> Any:
    """The checksum as uint64, from the two sums over `length` bytes."""
    low = (_ONE + total) % _BASE
    high = (length + weighted) % _BASE
    return high << np.uint64(16) | low


@inlined
def adler32(buffer: Any, start: Any, length: Any) -> Any:
    """Adler-32 of `buffer[start : start + length]` as uint64; at most `LONGEST` bytes. All are uint64."""
    total, weighted = sums(buffer, start, length, _ZERO, _ZERO)
    return finish(total, weighted, length)
