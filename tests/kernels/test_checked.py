"""The kernels again where every memory access is checked: in plain Python, and compiled with bounds checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SMALL = [
    "chain/test_chain.py",
    "deephaven_log/test_kernels.py",
    "deephaven_table/test_kernels.py",
    "filodb_record/test_kernels.py",
    "kernels/test_adler32.py",
    "kernels/test_crc32c.py",
    "kernels/test_doubles.py",
    "kernels/test_expanding.py",
    "kernels/test_intern.py",
    "kernels/test_json_text.py",
    "kernels/test_memory.py",
    "kernels/test_minlz.py",
    "kernels/test_signature.py",
    "kernels/test_text.py",
    "kernels/test_vector.py",
    "kernels/test_xxh64.py",
    "leveldb_database/test_application_kernels.py",
    "leveldb_log/test_kernels.py",
    "leveldb_log/test_payload_kernels.py",
    "leveldb_table/test_kernels.py",
    "map/test_kernels.py",
    "milvus_binlog/test_kernels.py",
]


def run(mode: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=TESTS.parent,
        env={**os.environ, **dict([(mode + "=1").split("=")[:2]])},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.nightly
def test_kernels_as_plain_python_stay_inside_their_arrays(name: str, request: pytest.FixtureRequest) -> None:
    passes("NUMBA_DISABLE_JIT", [name], is_all=request.config.getoption("--all"))


@pytest.mark.heavy
def test_compiled_kernels_stay_inside_their_arrays() -> None:
    passes("NUMBA_BOUNDSCHECK", SMALL)


def passes(mode: str, tests: list[str], *, is_all: bool = True) -> None:
    options = ["--all"] if is_all else []
    done = run(mode, "-m", "pytest", "-q", *options, "-p", "no:cacheprovider", *(str(TESTS / name) for name in tests))
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(
    "tests",
    [
        ["kernels/test_memory.py"],
        pytest.param([name for name in SMALL if name.startswith(("kernels", "chain"))], marks=pytest.mark.nightly),
        pytest.param(SMALL, marks=pytest.mark.heavy),
    ],
)
@pytest.mark.nightly
def test_kernels_that_are_compiled_on_their_first_call_give_the_same_results(tests: list[str]) -> None:
    passes("SAWLOG_KERNELS=jit", tests)


@pytest.mark.parametrize("mode", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
@pytest.mark.nightly
def test_an_access_outside_would_be_seen(mode: str) -> None:
    script = """
import numpy as np
from sawlog.kernels.jit import CHECKED, kernel
from sawlog.kernels.memory import load_u32
from sawlog.kernels.signature import Bytes, UInt64
assert CHECKED
@kernel
def load(array: Bytes, position: UInt64) -> UInt64:
    return load_u32(array, position)
load(np.zeros(8, np.uint8), np.uint64(4))
load(np.zeros(8, np.uint8), np.uint64(5))
"""
    done = run(mode, "-c", script)
    assert "IndexError" in done.stderr
    assert done.returncode == 1
