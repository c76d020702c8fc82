"""Kernels of the library against the same ones by Numba's JIT, each on a call that was made while samples were read.

Each is given copies of the arguments of that call, one after the other, by a loop in machine code; what it writes to is
restored before. The library, another copy of it and the JIT take turns with the same memory, in changing order, and
processor time is measured. How much the copy differs is what the measurement cannot tell.

The same code can be a fifth slower or faster at another address. So either side is loaded several times, as several
processes would have it.

The library is for a stated baseline CPU, the JIT for this one, unless `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` say
another.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.harness import Probe, Settings
from benchmarks.kernel_calls import copied, kernels, recorded, size
from sawlog.kernels import native
from sawlog.kernels.jit import JIT, MODE, Kernel, make_caller
from sawlog.kernels.signature import Array

PLACES = 7
"""How many times the library is loaded, and the JIT's code."""
PAIRS = 7
"""Measured runs of each side at each place, at least."""
NANOSECONDS = 400_000
"""How long a run is, at least, where as many copies of the arguments have room."""
MOST_COPIES, MOST_BYTES = 16_384, 4 << 20
SLOW = 0.97
OF_JIT, OF_COPY = "of the JIT's speed", "of the speed of a copy of the library"
LOOP = """
define void @loop(ptr %function, ptr %words, i64 %width, i64 %calls) {
entry:
  br label %call
call:
  %i = phi i64 [0, %entry], [%next, %call]
  %place = mul i64 %i, %width
  %given = getelementptr i64, ptr %words, i64 %place
  %status = call i32 %function(ptr %given)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %calls
  br i1 %more, label %call, label %done
done:
  ret void
}
"""


def cases(settings: Settings) -> Iterator[Probe]:
    if MODE != JIT:
        raise SystemExit("set SAWLOG_KERNELS=jit: kernels of this process are to be compiled by Numba")
    names = {name for name in kernels() if settings.wanted(name.removeprefix("sawlog."))}
    calls = recorded(settings.place, max(100, settings.size // 25_000), names)
    gc.freeze()
    library = os.path.join(native.find_folder(), native.LIBRARY)
    copies = [ctypes.CDLL(shutil.copy(library, settings.place / f"copy{i}.so")) for i in range(PLACES)]
    pairs = max(settings.repeat, PAIRS)
    ratios_found: dict[str, float] = {}
    for name, kernel in sorted(kernels().items()):
        short = name.removeprefix("sawlog.")
        if settings.wanted(short):
            run = partial(compare, kernel, calls[name].arguments, copies, pairs)
            description = f"processor time of {pairs} pairs at each of {PLACES} places"
            yield Probe(short, description, partial(noted, ratios_found, short, run), "ratio")
    yield Probe(
        "slow",
        f"below {SLOW} {OF_JIT}",
        lambda: {name: ratio for name, ratio in ratios_found.items() if ratio < SLOW},
        "",
    )


def noted(ratios_found: dict[str, float], name: str, run: Any) -> dict[str, float]:
    result: dict[str, float] = run()
    ratios_found[name] = result[OF_JIT]
    return result


def compare(kernel: Kernel, arguments: tuple[Any, ...], copies: list[Any], pairs: int) -> dict[str, float]:
    """Ratios of runs that follow each other: their medians at each place, and the mean of those."""
    symbol = native.load_library().find_entry(kernel.signature.name).__name__
    symbols = [getattr(copy, symbol) for copy in copies]
    sides = {"": symbols, OF_COPY: [*symbols[1:], symbols[0]], OF_JIT: loaded(kernel)}
    entries = {name: [ctypes.cast(address, ctypes.c_void_p).value for address in side] for name, side in sides.items()}
    calls = Calls.enough(kernel, arguments, entries[""][0])
    ratios: dict[str, list[list[float]]] = {name: [[] for _ in copies] for name in (OF_COPY, OF_JIT)}
    for turn in range(PLACES * (pairs + 1)):
        order = list(entries)[turn % 3 :] + list(entries)[: turn % 3]
        place = turn % PLACES
        times = {name: calls.run(entries[name][place]) for name in order[:: 1 if turn % 2 else -1]}
        if turn >= PLACES:
            for name, ratio_list in ratios.items():
                ratio_list[place].append(times[name] / times[""])
    return {name: statistics.mean(map(statistics.median, ratio_list)) for name, ratio_list in ratios.items()}


def loaded(kernel: Kernel) -> list[Any]:
    """A kernel by the JIT, at several places."""
    from sawlog.kernels import compiler

    code = compiler.optimize_module(compiler.lower_kernel(kernel, compiler.ENTRY))
    return [compiler.load(code) for _ in range(PLACES)]


class Calls:
    """The same call many times, each with arrays of its own that it writes to."""

    def __init__(self, kernel: Kernel, arguments: tuple[Any, ...], copies: int) -> None:
        signature = kernel.signature
        self._words = np.zeros((copies, signature.words), np.int64)
        fill = make_caller(signature, None, lambda filled: self._words.__setitem__(slice(None), filled[:-1]))
        fill(*arguments)
        self._held: list[Any] = []
        self._restored: list[tuple[Any, Any]] = []
        for words in self._words:
            named = SimpleNamespace(**dict(zip(signature.parameters, copied(arguments), strict=True)))
            for leaf in signature.objects:
                value = attrgetter(leaf.path)(named)
                is_array = isinstance(leaf.kind, Array)
                place = signature.places[leaf.path]
                array = value if is_array else np.array([value], value.dtype)
                words[place] = array.__array_interface__["data"][0]
                if is_array:
                    words[place + 1 : place + 1 + array.ndim] = array.shape
                self._held.append(array)
                if array.size and (not is_array or leaf.kind.writable):
                    self._restored.append((array, array.copy()))

    @classmethod
    def enough(cls, kernel: Kernel, arguments: tuple[Any, ...], entry: int | None) -> Calls:
        """As many as a run takes that can be measured."""
        copies, max_copies = 1, max(1, min(MOST_COPIES, MOST_BYTES // max(size(arguments), 1)))
        while True:
            calls = cls(kernel, arguments, copies)
            if copies == max_copies or min(calls.run(entry) for _ in range(3)) >= NANOSECONDS:
                return calls
            copies = min(4 * copies, max_copies)

    def run(self, entry: int | None) -> int:
        """Nanoseconds of processor time of all calls of an entry."""
        for array, before in self._restored:
            array[...] = before
        begin = time.thread_time_ns()
        _LOOP(entry, self._words.ctypes.data, self._words.shape[1], len(self._words))
        return time.thread_time_ns() - begin


def _loop() -> Any:
    import llvmlite.binding as llvm

    from sawlog.kernels import compiler

    machine = llvm.Target.from_triple(compiler.find_target()[0]).create_target_machine(opt=3, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(LOOP), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return engine, function(engine.get_function_address("loop"))


_ENGINE, _LOOP = _loop() if MODE == JIT else (None, None)
