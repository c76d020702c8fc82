"""The decorators of kernels, and where the machine code of kernels comes from.

The environment variable `SAWLOG_KERNELS` says it, before the first kernel is imported:

- `library`: the shared library that comes with the package; neither Numba nor a compiler is needed. Other packages may
  have one of their own (`python -m sawlog.kernels.build PACKAGE`); without it, their kernels are plain Python;
- `jit`: Numba compiles each kernel on its first call. For development, and where there is no library that fits;
- `python`: plain Python.

By default it is the library if it fits, and otherwise the JIT if Numba is installed. Numba's own variables count, too:
`NUMBA_DISABLE_JIT=1` is plain Python, and with `NUMBA_BOUNDSCHECK=1` every memory access of compiled kernels is an
indexed one that is checked. By these two, tests prove that no kernel leaves its arrays.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import struct
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sawlog.kernels import native
from sawlog.kernels.signature import NUMBERS, Signature

LIBRARY, JIT, PYTHON = "library", "jit", "python"


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _choose_mode() -> str:
    if _is_set("NUMBA_DISABLE_JIT"):
        return PYTHON
    if _is_set("NUMBA_BOUNDSCHECK"):
        return JIT
    mode = os.environ.get("SAWLOG_KERNELS")
    if mode:
        if mode not in (LIBRARY, JIT, PYTHON):
            raise ValueError(f"SAWLOG_KERNELS={mode}: expected {LIBRARY}, {JIT} or {PYTHON}")
        return mode
    return LIBRARY if native.find_misfit() is None or importlib.util.find_spec("numba") is None else JIT


MODE = _choose_mode()
"""Where machine code comes from: `LIBRARY`, `JIT` or `PYTHON`."""
PLAIN = MODE != JIT
"""Whether the functions that kernels call are plain Python in this process, because nothing is compiled."""
CHECKED = PLAIN or _is_set("NUMBA_BOUNDSCHECK")
"""Whether primitives are indexed accesses instead of instructions."""

if TYPE_CHECKING or not PLAIN:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from sawlog.kernels import compiler
else:  # what generates instructions is not called
    ir = types = cgutils = None

    def intrinsic(function: Any) -> Any:
        """Return the function as it is: it is not called, either."""
        return function


__all__ = ["CHECKED", "MODE", "PLAIN", "Kernel", "cgutils", "intrinsic", "ir", "make_caller", "types"]


def make_caller(signature: Signature, reader: Any, function: Any) -> Callable[..., Any]:
    """Return a kernel of machine code as Python calls it.

    A call costs few microseconds, for wide kernels, too: `reader`, which is machine code, looks at arrays and records
    as NumPy's C API describes them (`PyArrayObject_fields`, `PyVoidScalarObject`), and compares them with what is
    declared. Where it finds a difference, Python looks again, and says what it is.

    Args:
        signature: Its declaration.
        reader: `reader(objects, layout, words)`: fills the words of arrays and records in; None where Python does it.
        function: The machine code.
    """
    names: dict[str, Any] = {
        **NUMBERS,
        "_words": ctypes.c_int64 * (signature.words + 1),
        "_pack": struct.Struct(f"{len(signature.objects)}q").pack,
        "_array": np.ndarray,
        "_record": np.void,
        "_reader": reader,
        "_layout": native.make_layout(signature),
        "_check": signature.check,
        "_fill": signature.fill,
        "_function": function,
    }
    exec(signature.caller, names)  # noqa: S102 # from the declaration
    call: Callable[..., Any] = names["call"]
    return call


class Kernel:
    """A kernel, as Python calls it: with the GIL released, and with arguments as it declares them.

    Attributes:
        py_func: Its plain Python.
        wide: Whether the library has a second entry for CPUs with wider vectors.

    Args:
        function: Its plain Python.
        wide: See above.
    """

    def __init__(self, function: Any, *, wide: bool = False) -> None:
        self.py_func = function
        self.wide = wide
        functools.update_wrapper(self, function)

    @functools.cached_property
    def signature(self) -> Signature:
        """Return the signature of the kernel."""
        return Signature(self.py_func)

    @functools.cached_property
    def entry(self) -> Any:
        if MODE == PYTHON:
            return self._run_plain
        if MODE == JIT:
            return make_caller(self.signature, compiler.compile_reader(), compiler.compile_entry(self))
        package = self.__module__.partition(".")[0]
        reason = native.find_misfit(package) if package != native.SAWLOG else None
        if reason is not None:
            if os.path.exists(native.find_folder(package)):
                warnings.warn(f"{package}: {reason}: its kernels are slow, plain Python", RuntimeWarning, stacklevel=3)
            return self._run_plain
        library = native.load_library(package)
        return make_caller(self.signature, library.reader, library.find_entry(self.signature.name))

    def _run_plain(self, *arguments: Any) -> Any:
        self.signature.check(arguments)
        return self.signature.convert_result(self.py_func(*self.signature.convert_arguments(arguments)))

    def __call__(self, *arguments: Any) -> Any:
        """Run it.

        Raises:
            TypeError: For arguments that are not as declared.
            InternalError: When there is no machine code for it.
        """
        return self.entry(*arguments)


def kernel(function: Any) -> Any:
    """Return a hot loop that Python calls.

    The annotations of its parameters declare them, see `sawlog.kernels.signature`.

    Kernels allocate nothing: all arrays are the caller's. That frees them of Numba's reference counting, whose atomic
    operations would cost more than the decoding of a small record.
    """
    return Kernel(function)


def wide_kernel(function: Any) -> Any:
    """Return a kernel whose loops are measured to be faster with vectors of 512 bits, where the CPU has them."""
    return Kernel(function, wide=True)


def inlined(function: Any) -> Any:
    """Return a helper that is compiled into the kernels that call it."""
    return function if PLAIN else compiler.make_helper(function)


def walker(function: Any) -> Any:
    """Return a function that takes other jitted functions.

    It is laid into each kernel that calls it before it is compiled.
    """
    return function if PLAIN else compiler.make_helper(function, inline="always")


def always_inlined(function: Any) -> Any:
    """Inline like `inlined`, even if the compiler prefers a call: to pass many arrays costs more than a short loop."""
    return function if PLAIN else compiler.make_helper(function, forceinline=not CHECKED)


def find_target() -> tuple[str, dict[str, bool]]:
    """Return the platform that is compiled for, and features of its CPU, as LLVM names them."""
    return compiler.find_target()


def as_written(function: Any) -> Any:
    """Return the plain Python of a jitted function, for what is done so rarely that to compile it would take longer."""
    return getattr(function, "py_func", function)
