"""Kernels of the library against the same ones by Numba's JIT, each on a call that was made while samples were read.

Both are called in turns in one process, as `SAWLOG_KERNELS=jit` loads it, and processor time is measured. The library
is for a stated baseline CPU, the JIT for this one, unless `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` say another.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import sawlog
from benchmarks.harness import Case, Settings, Side
from sawlog.kernels import native
from sawlog.kernels.jit import JIT, MODE, Kernel

CALLS = 4
"""Calls of each kernel that are looked at; the longest is measured."""
SECONDS = 0.02
"""How long a measured run is, at least, where copies of the arguments of so many calls have room."""
MOST_COPIES = 64 << 20


class Call:
    """A call of a kernel, and how long it took."""

    def __init__(self, arguments: tuple[Any, ...], seconds: float) -> None:
        self.arguments = arguments
        self.seconds = seconds


def cases(settings: Settings) -> Iterator[Case]:
    if MODE != JIT:
        raise SystemExit("set SAWLOG_KERNELS=jit: kernels of this process are to be compiled by Numba")
    library = native.library()
    for kernel, call in sorted(recorded(settings).items(), key=lambda one: one[0].signature.name):
        name = kernel.signature.name.removeprefix("sawlog.")
        if settings.wanted(name):
            size = sum(one.nbytes for one in arrays(call.arguments))
            copies = max(1, min(200, int(SECONDS / max(call.seconds, 1e-6)), MOST_COPIES // max(size, 1)))
            sides = (
                replayed("library", library.entry(kernel.signature), call, copies, size),
                replayed("JIT", kernel._entry, call, copies, size),
            )
            yield Case(name, f"{copies} calls", sides, headline=False, processor_time=True)


def recorded(settings: Settings) -> dict[Kernel, Call]:
    """The longest of the first calls of each kernel, while samples of all formats are written, read and verified."""
    found: dict[Kernel, list[Call]] = {}
    call_kernel = Kernel.__call__

    def record(kernel: Kernel, *arguments: Any) -> Any:
        calls = found.setdefault(kernel, [])
        if len(calls) >= CALLS:
            return call_kernel(kernel, *arguments)
        kept = tuple(copied(one) for one in arguments)
        _ = kernel._entry  # compiles it
        begin = time.perf_counter()
        result = call_kernel(kernel, *arguments)
        calls.append(Call(kept, time.perf_counter() - begin))
        return result

    Kernel.__call__ = record  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, (table, options) in samples(settings.size // 100).items():
                path = settings.place / name
                sawlog.write(table, path, format=name, **options)
                sawlog.verify(path, format=name)
                sawlog.read(path, format=name)
    finally:
        Kernel.__call__ = call_kernel  # type: ignore[method-assign]
    return {kernel: max(calls, key=lambda one: one.seconds) for kernel, calls in found.items()}


def samples(rows: int) -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    numbers = pa.array(np.arange(rows))
    texts = pc.utf8_lpad(numbers.cast(pa.string()), 20, "0")
    data = texts.cast(pa.binary())
    labels = pa.array([[("_ws_", "demo"), ("_ns_", "app")]], pa.map_(pa.string(), pa.string()))
    gauges = {
        "timestamp": numbers.cast(pa.timestamp("ms", "UTC")),
        "value": np.arange(rows) * 0.5,
        "_metric_": pa.repeat(pa.scalar("heap"), rows),
        "tags": labels.take(pa.array(np.zeros(rows, np.int64))),
    }
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 8, dtype=np.float32)), 8)
    both = pa.table({"i": numbers, "s": texts, "x": np.arange(rows) * 0.5})
    return {
        "leveldb_log": (pa.table({"record": data}), {}),
        "leveldb_table": (pa.table({"key": data, "value": data}), {}),
        "deephaven_log": (both, {}),
        "deephaven_table": (both, {}),
        "filodb_record": (pa.table(gauges), {"table": "gauge", "container_timestamp": 0}),
        "milvus_binlog": (pa.table({"pk": numbers, "vec": vectors}), {"timestamp": 1 << 40}),
    }


def copied(value: Any) -> Any:
    """An argument as it is before the call: what is written to is not shared."""
    if isinstance(value, tuple):
        return type(value)(*map(copied, value))
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable else value
    if isinstance(value, np.void):
        return value.copy()
    return value


def arrays(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [one for part in value for one in arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def replayed(name: str, entry: Any, call: Call, copies: int, size: int) -> Side:
    made: list[Any] = []

    def prepare() -> None:
        made[:] = [tuple(copied(one) for one in call.arguments) for _ in range(copies)]

    def run() -> None:
        for arguments in made:
            entry(*arguments)

    return Side(name, run, size * copies, prepare=prepare)
