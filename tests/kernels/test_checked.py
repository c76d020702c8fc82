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
    "kernels/test_memory.py",
    "kernels/test_vector.py",
    "kernels/test_xxh64.py",
    "leveldb_log/test_kernels.py",
    "leveldb_log/test_payload_kernels.py",
    "leveldb_table/test_kernels.py",
    "milvus_binlog/test_kernels.py",
]


def run(mode: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=TESTS.parent,
        env={**os.environ, mode: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize("mode", ["NUMBA_DISABLE_JIT", pytest.param("NUMBA_BOUNDSCHECK", marks=pytest.mark.heavy)])
def test_kernels_stay_inside_their_arrays(mode: str) -> None:
    done = run(mode, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(TESTS / name) for name in SMALL))
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("mode", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_an_access_outside_would_be_seen(mode: str) -> None:
    script = """
import numpy as np
from sawlog.kernels.jit import CHECKED, kernel
from sawlog.kernels.memory import load_u32
assert CHECKED
@kernel
def load(array, position):
    return load_u32(array, position)
load(np.zeros(8, np.uint8), np.uint64(4))
load(np.zeros(8, np.uint8), np.uint64(5))
"""
    done = run(mode, "-c", script)
    assert "IndexError" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("otherwise", [True, False])
def test_helpers_compile_also_with_a_numba_that_is_built_otherwise(otherwise: bool) -> None:
    script = f"""
import sys
if {otherwise}:
    sys.modules["sawlog.kernels.helper"] = None
import numpy as np
from sawlog.kernels.jit import inlined, kernel
@inlined
def twice(value):
    return value * 2
@kernel
def four_times(value):
    return twice(twice(value))
assert four_times(3) == 12
assert twice(3) == 6
"""
    subprocess.run([sys.executable, "-c", script], cwd=TESTS.parent, check=True)
