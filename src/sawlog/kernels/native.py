"""The library of a package's kernels: machine code that was compiled when it was built, called through `ctypes`.

`sawlog/_native/` holds one shared library for this platform and a table in JSON: what CPU it is for, from which sources
it was made, and its entries. See `sawlog.kernels.compiler` for what an entry is. Packages that add formats may have a
library of their own in the same place of theirs.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sawlog.errors import InternalError
from sawlog.kernels.signature import Array, Signature

SAWLOG = "sawlog"
LIBRARY = "kernels.so"
TABLE = "kernels.json"
READER = "sawlog_read_objects"


class Baseline(NamedTuple):
    """A CPU that libraries are compiled for.

    Attributes:
        cpu: As LLVM names it.
        features: Of those that it has, what kernels ask for, and what it is to have besides, in LLVM's words.
        flags: What Linux calls all that it has and that some CPUs lack.
    """

    cpu: str
    features: str
    flags: str


_V3 = "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave"
BASELINES: Mapping[str, Baseline] = {
    "x86_64": Baseline("x86-64-v3", "+avx2,+crc32", _V3),
    "aarch64": Baseline("generic", "+crc,+neon", "crc32"),
    "arm64": Baseline("apple-m1", "+crc,+neon", ""),
}
"""By the machine's name in Python."""
WIDE: Mapping[str, Baseline] = {
    "x86_64": Baseline(
        "x86-64-v4",
        "+avx2,+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl,+crc32,-prefer-256-bit",
        f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl",
    ),
}
"""Those with wider vectors, for which kernels that gain from them have a second entry in the same library."""


def find_machine() -> str:
    """Return the kind of machine, as Python names it."""
    return platform.machine() if os.name != "nt" else platform.machine().lower()


def make_symbol(name: str, *, wide: bool = False) -> str:
    """Return the name of a kernel's entry in the library, or of its second one."""
    return "sawlog_" + name.replace(".", "_") + "_wide" * wide


@functools.cache
def find_root(package: str) -> str | None:
    """Return the folder of an importable package; None for anything else."""
    if package == SAWLOG:
        return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return os.path.abspath(places[0]) if places else None


def find_folder(package: str = SAWLOG) -> str:
    """Return the folder of a package's library and its table."""
    return os.path.join(find_root(package) or os.devnull, "_native")


@functools.cache
def read_table(package: str) -> Mapping[str, Any] | None:
    """Return the table of the library of a package; None where there is none."""
    try:
        with open(os.path.join(find_folder(package), TABLE), encoding="utf-8") as file:
            table: Mapping[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) and "definitions" in table else None


def read_digests(package: str = SAWLOG) -> Mapping[str, Any]:
    """Return the digests of a library's definitions by paths of files, which begin with their package.

    Of each, `names` of definitions that kernels use, the `digest` of these, and that of the `file`.
    """
    table = read_table(package)
    definitions_by_path: Mapping[str, Any] = table["definitions"] if table is not None else {}
    return definitions_by_path


def read_source(path: str) -> bytes | None:
    """Return the bytes of a source file, whose path begins with its package; None where it is not there."""
    package, _, within = path.partition("/")
    try:
        with open(os.path.join(find_root(package) or os.devnull, within), "rb") as file:
            return file.read()
    except OSError:
        return None


def compute_digest(data: bytes) -> str:
    """Return the digest of a source file."""
    return hashlib.sha256(data).hexdigest()


def _is_changed(path: str, used: Mapping[str, Any]) -> bool:
    """Return whether definitions that kernels use are others now. A file is parsed only if anything in it is."""
    data = read_source(path)
    if data is None or compute_digest(data) == used["file"]:
        return data is None
    from sawlog.kernels.sources import Source

    try:
        source = Source(path, data)
    except (SyntaxError, ValueError):
        return True
    return source.compute_digest(used["names"]) != used["digest"] or not set(used["names"]) >= source.kernels.keys()


@functools.cache
def find_misfit(package: str = SAWLOG) -> str | None:
    """Return why the library of a package cannot be used, in one line; None if it can."""
    table = read_table(package)
    if table is None or not os.path.exists(os.path.join(find_folder(package), LIBRARY)):
        return f"this installation of {package} has no library of kernels"
    if table["machine"] != find_machine() or table["system"] != platform.system():
        return f"the library of kernels is for {table['system']} on {table['machine']}"
    missing = list_missing_features(BASELINES[table["machine"]])
    if missing:
        return f"the library of kernels is for {table['cpu']}; this CPU lacks {', '.join(missing)}"
    if read_source(f"{SAWLOG}/kernels/native.py") is None:
        return None  # an installation without sources
    for path, used in read_digests(package).items():
        if _is_changed(path, used):
            return f"the library of kernels was made from another {path}"
    return None


def list_missing_features(baseline: Baseline) -> list[str]:
    """Return the features of another CPU that this one lacks."""
    return sorted(set(baseline.flags.split()) - read_cpu_flags())


@functools.cache
def read_cpu_flags() -> set[str]:
    """Return the CPU's features as Linux reports them; without Linux, all that are requested."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, flags = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return set(flags.split())
    except OSError:
        pass
    return set(BASELINES[find_machine()].flags.split())


class Library:
    """The library of a package, loaded.

    Raises:
        InternalError: When it cannot be used.
    """

    def __init__(self, package: str = SAWLOG) -> None:
        if reason := find_misfit(package):
            raise InternalError(f"{reason}; the extra `jit` brings the compiler of kernels")
        path = os.path.join(find_folder(package), LIBRARY)
        self._loaded = ctypes.CDLL(path)
        reader = getattr(ctypes.PyDLL(path), READER)  # it looks at Python's objects, and is done before a lock is taken
        self.reader = reader if reads_objects(reader) else None
        self._wide = find_machine() in WIDE and not list_missing_features(WIDE[find_machine()])

    def find_entry(self, kernel: str) -> Any:
        """Return the entry of a kernel, its second one where there is one and the CPU has what that takes.

        Raises:
            InternalError: When the library does not have it.
        """
        names = [make_symbol(kernel, wide=True)] * self._wide + [make_symbol(kernel)]
        function = next((getattr(self._loaded, name) for name in names if hasattr(self._loaded, name)), None)
        if function is None:
            raise InternalError(f"{kernel} is not in the library of kernels: SAWLOG_KERNELS=jit compiles it")
        return function


@functools.cache
def load_library(package: str = SAWLOG) -> Library:
    """Return the library of a package."""
    return Library(package)


HEAD_BYTES = object.__basicsize__
"""Bytes of an object before what its type adds."""
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


def reads_objects(reader: Any) -> bool:
    """Return whether memory holds arrays and records as `reader` expects: as in NumPy 2, with Python's own head."""
    array = np.zeros((2, 3), np.int16)
    record = np.zeros(1, np.dtype((np.record, [("a", np.int64)])))[0]
    flags = _CONTIGUOUS | _ALIGNED | _WRITEABLE
    numbers = [HEAD_BYTES, 2, 4, 0, 2, id(array.dtype), flags, 3, -1, id(record.dtype), 0]
    layout, words = (ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_int64 * 5)()
    reader((ctypes.c_int64 * 2)(id(array), id(record)), layout, words)
    places = [array_like.__array_interface__["data"][0] for array_like in (array, record)]
    return list(words) == [places[0], 2, 3, places[1], 0]


def make_layout(signature: Signature) -> Any:
    """Return the layout with which the reader of objects compares arguments of a kernel."""
    layout = [HEAD_BYTES, len(signature.objects), signature.words]
    for leaf in signature.objects:
        place, dtype = signature.places[leaf.path], np.dtype(leaf.kind.dtype)
        if isinstance(leaf.kind, Array):
            flags = _CONTIGUOUS | _ALIGNED | (_WRITEABLE if leaf.kind.writable else 0)
            layout += place, leaf.kind.ndim, id(dtype), flags
        else:
            layout += place, -1, id(dtype), 0
    return (ctypes.c_int64 * len(layout))(*layout)
