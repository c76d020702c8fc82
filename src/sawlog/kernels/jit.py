"""The one decorator for kernels, and how they are compiled.

Kernels run in one of three modes, chosen by Numba's own environment variables before the first import:

- compiled (default): memory primitives are raw loads, stores and CPU instructions;
- `NUMBA_BOUNDSCHECK=1`: compiled, but every memory access is an indexed one that Numba checks;
- `NUMBA_DISABLE_JIT=1`: plain Python.

The last two exist for tests, which prove by them that no kernel leaves its arrays.
"""

from __future__ import annotations

import gc
from typing import Any

import numba
from numba.core import event

from sawlog import notice

try:
    from sawlog.kernels.helper import Helper
except ImportError:  # a Numba that is built otherwise: it compiles helpers as it does kernels, which takes longer
    Helper: Any = None  # type: ignore[no-redef]

config: Any = numba.config
"""Numba's settings, of which its types name none."""
_njit: Any = numba.njit
"""Its types leave out options."""

PLAIN = bool(config.DISABLE_JIT)
CHECKED = PLAIN or bool(config.BOUNDSCHECK)


def kernel(function: Any) -> Any:
    """Compile a hot loop on its first call, with the GIL released.

    Kernels allocate nothing: all arrays are the caller's. That frees them of Numba's reference counting, whose atomic
    operations would cost more than the decoding of a small record. Machine code is cached on disk where a place is
    writable. Checked builds are never cached: Numba's cache does not tell them from ordinary ones.
    """
    if CHECKED:
        return _compiled(function, no_cfunc_wrapper=True)
    try:
        return _compiled(function, no_cfunc_wrapper=True, cache=True)
    except RuntimeError:  # no writable place for the cache
        return _compiled(function, no_cfunc_wrapper=True)


def inlined(function: Any) -> Any:
    """A helper that is compiled into the kernels that call it."""
    return _helper(function)


def walker(function: Any) -> Any:
    """A function that takes other jitted functions, and is laid into each kernel that calls it before it is compiled.

    So the kernel can be cached: a jitted function that is passed to a compiled one could not be found again.
    """
    return _compiled(function, inline="always")


def always_inlined(function: Any) -> Any:
    """As `inlined`, where the compiler would rather make a call: to pass many arrays costs more than a short loop."""
    return _helper(function, forceinline=not CHECKED)


def as_written(function: Any) -> Any:
    """The plain Python of a jitted function, for what is done so rarely that to compile it would take longer."""
    return getattr(function, "py_func", function)


_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _compiled(function: Any, **more: Any) -> Any:
    return _njit(**_OPTIONS, **more)(function)


def _helper(function: Any, **more: Any) -> Any:
    if PLAIN:
        return function
    return _compiled(function, **more) if Helper is None else Helper(function, targetoptions={**_OPTIONS, **more})


class _Compiling(event.Listener):
    """Tells of the first compilation in this process, and keeps the collector of garbage out of all of them.

    It would look again and again through all that Numba holds: a twelfth of the time.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._collects = False

    def on_start(self, event: Any) -> None:
        """Numba holds its lock: one thread at a time compiles."""
        tell, notice.compiling = notice.compiling, None
        if tell is not None:
            tell()
        if not self._depth and (collects := gc.isenabled()):
            self._collects = collects
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Of the outermost: as it was before."""
        self._depth -= 1
        if not self._depth and self._collects:
            self._collects = False
            gc.enable()


event.register("numba:compile", _Compiling())
