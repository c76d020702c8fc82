"""CRC-32C (Castagnoli): by the CPU's own instruction where it has one, by tables elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sawlog.kernels.jit import CHECKED, find_target, inlined, intrinsic, ir, types
from sawlog.kernels.memory import load_u32, load_u64, prefetch

if TYPE_CHECKING:
    Tables = np.ndarray[Any, np.dtype[np.uint64]]

POLYNOMIAL = 0x82F63B78
"""Reflected."""

_ONES = np.uint64(0xFFFFFFFF)
_LONG = 8192
_SHORT = 256
"""Lengths of the three stretches that the CPU works on at a time; one instruction has a latency of three."""


_X86 = {8: "llvm.x86.sse42.crc32.64.64", 4: "llvm.x86.sse42.crc32.32.32", 1: "llvm.x86.sse42.crc32.32.8"}
_ARM = {8: "llvm.aarch64.crc32cx", 4: "llvm.aarch64.crc32cw", 1: "llvm.aarch64.crc32cb"}


_LINE = 64
_AHEAD = np.uint64(1024)
"""How far before their use cache lines are asked for."""


def choose_instructions(triple: str, features: Mapping[str, bool]) -> dict[int, str]:
    """Return LLVM's intrinsics for CRC-32C on a CPU, by the number of bytes they take.

    None where it has no instruction.
    """
    if triple.startswith("x86_64") and features.get("crc32"):
        return _X86
    if triple.startswith(("aarch64", "arm64")) and features.get("crc"):
        return _ARM
    return {}


def emit(builder: ir.IRBuilder, name: str, width: int, crc: ir.Value, word: ir.Value) -> ir.Value:
    """Emit one step over `width` bytes: `crc` and `word` in as 64 bits, the result out as 64 bits."""
    wide, half = ir.IntType(64), ir.IntType(32)
    state = wide if name == _X86[8] else half
    # The intrinsics of AArch64 take every operand narrower than 64 bits as 32.
    operand = ir.IntType(8 * width) if name in _X86.values() or width == 8 else half
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(state, [state, operand]), name)
    step = builder.call(
        function,
        [
            builder.trunc(crc, state) if state != wide else crc,
            builder.trunc(word, operand) if operand != wide else word,
        ],
    )
    return builder.zext(step, wide) if state != wide else step


INSTRUCTIONS = {} if CHECKED else choose_instructions(*find_target())
"""The intrinsics in use; none means tables."""


def _make_step(width: int) -> Any:
    """Return a kernel function that continues a CRC by one little-endian word of `width` bytes."""

    @intrinsic
    def step(typing_context: Any, crc: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, INSTRUCTIONS[width], width, *arguments)

        return types.uint64(types.uint64, types.uint64), generate

    return step


_step_8 = _make_step(8)
_step_4 = _make_step(4)
_step_1 = _make_step(1)


def _make_slicing_tables() -> Tables:
    """Return tables for eight bytes at a time: entry [k, b] is byte b followed by k zero bytes."""
    crc = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        crc = crc >> np.uint64(1) ^ (crc & np.uint64(1)) * np.uint64(POLYNOMIAL)
    tables = [crc]
    for _ in range(7):
        tables.append(tables[-1] >> np.uint64(8) ^ crc[tables[-1] & np.uint64(255)])
    return np.stack(tables)


_TABLES = _make_slicing_tables()


def _make_shift_tables(length: int) -> Tables:
    """Return tables that carry a CRC over `length` zero bytes, a power of two: entry [k, b] is for byte k being b."""
    crc = np.arange(256, dtype=np.uint64) << np.array([[0], [8], [16], [24]], np.uint64)
    tables: Tables = crc >> np.uint64(8) ^ _TABLES[0, crc & np.uint64(255)]
    for _ in range(length.bit_length() - 1):
        tables = _combine_entries(tables, tables)
    return tables


def _combine_entries(crc: Any, tables: Any) -> Any:
    """Return the combined table entries of the four bytes of a CRC."""
    return (
        tables[0, crc & np.uint64(255)]
        ^ tables[1, crc >> np.uint64(8) & np.uint64(255)]
        ^ tables[2, crc >> np.uint64(16) & np.uint64(255)]
        ^ tables[3, crc >> np.uint64(24)]
    )


_carry = inlined(_combine_entries)
_LONG_SHIFT = _make_shift_tables(_LONG)
_SHORT_SHIFT = _make_shift_tables(_SHORT)


@inlined
def _step_table(crc: Any, word: Any) -> Any:
    word ^= crc
    crc = np.uint64(0)
    for k in range(8):
        crc ^= _TABLES[7 - k, word >> np.uint64(8 * k) & np.uint64(255)]
    return crc


@inlined
def _step_byte(crc: Any, byte: Any) -> Any:
    return crc >> np.uint64(8) ^ _TABLES[0, (crc ^ np.uint64(byte)) & np.uint64(255)]


@inlined
def extend_table(crc: Any, buffer: Any, start: Any, length: Any) -> Any:
    """Continue a CRC-32C, a uint64 that is 0 at first, over `buffer[start : start + length]`, by tables."""
    crc ^= _ONES
    position = start
    end = start + length
    while end - position >= np.uint64(8):
        crc = _step_table(crc, load_u64(buffer, position))
        position += np.uint64(8)
    while position < end:
        crc = _step_byte(crc, buffer[position])
        position += np.uint64(1)
    return crc ^ _ONES


@inlined
def _extend_stretches(buffer: Any, position: Any, stretch: Any, tables: Any, crc: Any) -> Any:
    """Continue `crc` over three neighbouring stretches, worked on side by side."""
    second = np.uint64(0)
    third = np.uint64(0)
    end = position + stretch
    while position < end:
        prefetch(buffer, position + _AHEAD)
        prefetch(buffer, position + _AHEAD + stretch)
        prefetch(buffer, position + _AHEAD + stretch + stretch)
        for _ in range(_LINE // 8):
            crc = _step_8(crc, load_u64(buffer, position))
            second = _step_8(second, load_u64(buffer, position + stretch))
            third = _step_8(third, load_u64(buffer, position + stretch + stretch))
            position += np.uint64(8)
    crc = _carry(crc, tables) ^ second
    return _carry(crc, tables) ^ third


@inlined
def extend_hardware(crc: Any, buffer: Any, start: Any, length: Any) -> Any:
    """Continue a CRC-32C, a uint64 that is 0 at first, over `buffer[start : start + length]`, by the instruction."""
    crc ^= _ONES
    position = start
    end = start + length
    while end - position >= np.uint64(3 * _LONG):
        crc = _extend_stretches(buffer, position, np.uint64(_LONG), _LONG_SHIFT, crc)
        position += np.uint64(3 * _LONG)
    while end - position >= np.uint64(3 * _SHORT):
        crc = _extend_stretches(buffer, position, np.uint64(_SHORT), _SHORT_SHIFT, crc)
        position += np.uint64(3 * _SHORT)
    while end - position >= np.uint64(8):
        crc = _step_8(crc, load_u64(buffer, position))
        position += np.uint64(8)
    if end - position >= np.uint64(4):
        crc = _step_4(crc, load_u32(buffer, position))
        position += np.uint64(4)
    while position < end:
        crc = _step_1(crc, np.uint64(buffer[position]))
        position += np.uint64(1)
    return crc ^ _ONES


crc32c_extend: Any = extend_hardware if INSTRUCTIONS else extend_table
"""`crc32c_extend(crc, buffer, start, length) -> uint64`, the faster of the two on this machine."""


@inlined
def crc32c(buffer: Any, start: Any, length: Any) -> Any:
    """Return the CRC-32C of `buffer[start : start + length]` as uint64. `start` and `length` are uint64."""
    return crc32c_extend(np.uint64(0), buffer, start, length)
