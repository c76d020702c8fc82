"""XXH32."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import CHECKED, cgutils, inlined, intrinsic, ir, types
from sawlog.kernels.memory import load_u32
from sawlog.kernels.numbers import _FOUR, _ONE, _U32

_P1 = np.uint64(0x9E3779B1)
_P2 = np.uint64(0x85EBCA77)
_P3 = np.uint64(0xC2B2AE3D)
_P4 = np.uint64(0x27D4EB2F)
_P5 = np.uint64(0x165667B1)
_STRIPE = np.uint64(16)
_WIDTH = np.uint64(32)


def _rotate_plain(value: Any, bits: Any) -> Any:
    """Rotate a 32-bit number, held in 64, to the left."""
    return (value << np.uint64(bits) | value >> (_WIDTH - np.uint64(bits))) & _U32


@intrinsic
def _rotate_funnel(typing_context: Any, value: Any, bits: Any) -> Any:
    """Return the same as one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = ir.IntType(32)
        kind = ir.FunctionType(half, [half, half, half])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fshl.i32")
        word = builder.trunc(arguments[0], half)
        return builder.zext(builder.call(function, [word, word, builder.trunc(arguments[1], half)]), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_rotate: Any = inlined(_rotate_plain) if CHECKED else _rotate_funnel


@inlined
def _mix_word(lane: Any, word: Any) -> Any:
    return _rotate((lane + word * _P2) & _U32, 13) * _P1 & _U32


@inlined
def xxh32(buffer: Any, start: Any, length: Any, seed: Any) -> Any:
    """Return the XXH32 of `buffer[start : start + length]` as uint64. `start`, `length` and `seed` are uint64."""
    position = start
    end = start + length
    if length >= _STRIPE:
        a = (seed + _P1 + _P2) & _U32
        b = (seed + _P2) & _U32
        c = seed
        d = (seed + (_U32 - _P1 + _ONE)) & _U32
        while end - position >= _STRIPE:
            a = _mix_word(a, load_u32(buffer, position))
            b = _mix_word(b, load_u32(buffer, position + np.uint64(4)))
            c = _mix_word(c, load_u32(buffer, position + np.uint64(8)))
            d = _mix_word(d, load_u32(buffer, position + np.uint64(12)))
            position += _STRIPE
        value = (_rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)) & _U32
    else:
        value = (seed + _P5) & _U32
    value = (value + length) & _U32
    while end - position >= _FOUR:
        value = _rotate((value + load_u32(buffer, position) * _P3) & _U32, 17) * _P4 & _U32
        position += _FOUR
    while position < end:
        value = _rotate((value + np.uint64(buffer[position]) * _P5) & _U32, 11) * _P1 & _U32
        position += _ONE
    value = (value ^ value >> np.uint64(15)) * _P2 & _U32
    value = (value ^ value >> np.uint64(13)) * _P3 & _U32
    return value ^ value >> np.uint64(16)
