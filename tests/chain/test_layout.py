"""Numbers declared once, and kernels that the next process finds in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import pytest

from sawlog.chain.kernels import record_type
from sawlog.chain.layout import Number, loader, places, storer
from sawlog.kernels.jit import kernel


@pytest.mark.parametrize(
    "number", [Number(3, 1), Number(1, 2), Number(2, 4), Number(5, 8, big=True), Number(0, 2, big=True)]
)
def test_numbers_are_the_same_in_kernels_and_in_python(number: Number) -> None:
    data = np.zeros(16, np.uint8)
    value = 0x0102030405060708 & ((1 << 8 * number.size) - 1)
    load, store = loader(number), storer(number)

    @kernel
    def put(data: Any, pos: Any, value: Any) -> Any:
        store(data, pos, value)
        return load(data, pos)

    assert put(data, np.uint64(1), np.uint64(value)) == value
    assert number.of(data.tobytes(), 1) == value
    assert data.tobytes()[1 + number.offset : 1 + number.end] == number.encode(value)
    with pytest.raises(OverflowError):
        number.encode(1 << 8 * number.size)


def test_the_kernel_is_found_in_the_cache_by_the_next_process(tmp_path: Path) -> None:
    script = (
        "from tests.chain import toy; from tests.chain.test_chain import Bytes, DATA, read;"
        "read(Bytes(DATA)); print(sum(toy.read.stats.cache_hits.values()), sum(toy.read.stats.cache_misses.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for name in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"):
        environment.pop(name, None)
    seen = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        seen.append(done.stdout.split())
        assert done.returncode == 0, done.stderr
    assert seen == [["0", "1"], ["1", "0"]]


def test_names_that_records_have_attributes_by_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        record_type("position", "shape")


def test_the_numbers_of_a_struct_are_where_it_packs_them() -> None:
    packed = Struct(">qb3sI")
    found = places(packed, "when", "kind", "tag", "length")
    data = packed.pack(1, 2, b"\0\0\3", 4)
    assert [number.of(data) for number in found.values()] == [1, 2, 3, 4]
    assert list(found.values())[-1].end == packed.size
