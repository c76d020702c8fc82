from __future__ import annotations

import os
import random
import subprocess
import sys

import crc32c as reference
import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from sawlog.kernels import crc32c
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bytes, UInt64

BOUNDARIES = [0, 8, 3 * 256, 6 * 256, 3 * 8192, 6 * 8192]


@kernel
def _hardware(buffer: Bytes, start: UInt64, length: UInt64) -> UInt64:
    return crc32c.extend_hardware(np.uint64(0), buffer, start, length)


@kernel
def _table(buffer: Bytes, start: UInt64, length: UInt64) -> UInt64:
    return crc32c.extend_table(np.uint64(0), buffer, start, length)


# Checked builds, and CPUs without the instruction, have only the tables.
WAYS = [_table, _hardware] if crc32c.INSTRUCTIONS else [_table]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request):
    return request.param


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (b"foo", 0xCFC4AE1D),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_values_are_computed(way, data: bytes, expected: int) -> None:
    assert int(way(np.frombuffer(data, np.uint8), np.uint64(0), np.uint64(len(data)))) == expected


def test_every_length_is_right_around_the_boundaries_at_every_alignment(way) -> None:
    data = random.Random(1).randbytes(BOUNDARIES[-1] + 64)
    array = np.frombuffer(data, np.uint8)
    longest = BOUNDARIES[-1] if crc32c.INSTRUCTIONS else BOUNDARIES[2]
    lengths = {max(0, boundary + near) for boundary in BOUNDARIES if boundary <= longest for near in range(-9, 18)}
    for length in sorted(lengths):
        for start in range(9 if length < 1000 else 3):
            expected = reference.crc32c(data[start : start + length])
            assert int(way(array, np.uint64(start), np.uint64(length))) == expected, (start, length)


def test_the_buffer_may_end_where_the_bytes_end(way) -> None:
    for length in range(70):
        data = bytes(range(length))
        array = np.frombuffer(data, np.uint8)
        for start in range(length + 1):
            expected = reference.crc32c(data[start:])
            assert int(way(array, np.uint64(start), np.uint64(length - start))) == expected


def test_the_instruction_is_used_where_the_cpu_has_it() -> None:
    assert set(crc32c.choose_instructions("x86_64-unknown-linux-gnu", {"crc32": True})) == {1, 4, 8}
    assert set(crc32c.choose_instructions("aarch64-unknown-linux-gnu", {"crc": True})) == {1, 4, 8}
    assert set(crc32c.choose_instructions("arm64-apple-darwin23.0.0", {"crc": True})) == {1, 4, 8}
    assert crc32c.choose_instructions("x86_64-unknown-linux-gnu", {"sse4.2": True}) == {}
    assert crc32c.choose_instructions("aarch64-unknown-linux-gnu", {}) == {}
    assert crc32c.choose_instructions("powerpc64le-unknown-linux-gnu", {"crc": True}) == {}


@pytest.mark.parametrize(
    ("triple", "feature", "mnemonics"),
    [
        ("x86_64-unknown-linux-gnu", "crc32", {8: "crc32q", 4: "crc32l", 1: "crc32b"}),
        ("aarch64-unknown-linux-gnu", "crc", {8: "crc32cx", 4: "crc32cw", 1: "crc32cb"}),
    ],
)
def test_machine_code_has_the_instructions(
    monkeypatch: pytest.MonkeyPatch, triple: str, feature: str, mnemonics: dict[int, str]
) -> None:
    monkeypatch.setattr(crc32c, "ir", ir)  # which is not there where nothing is compiled
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(features=f"+{feature}")
    for width, name in crc32c.choose_instructions(triple, {feature: True}).items():
        wide = ir.IntType(64)
        module = ir.Module()
        module.triple = triple
        function = ir.Function(module, ir.FunctionType(wide, [wide, wide]), "step")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(crc32c.emit(builder, name, width, *function.args))
        parsed = llvm.parse_assembly(str(module))
        parsed.verify()
        assert mnemonics[width] in machine.emit_assembly(parsed)


@pytest.mark.nightly
def test_tables_serve_where_numba_is_told_to_compile_for_a_plain_cpu() -> None:
    script = (
        "from sawlog.kernels import crc32c; from sawlog.leveldb.log.kernels import compute_masked_checksum;"
        "print(crc32c.INSTRUCTIONS, hex(compute_masked_checksum(b'foo')))"
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "SAWLOG_KERNELS": "jit"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == "{} 0xfebe8a61\n", done.stderr
