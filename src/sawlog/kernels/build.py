"""Compile all kernels of a package into its library: `python -m sawlog.kernels.build`. Needs Numba and a linker.

    python -m sawlog.kernels.build                  sawlog's own
    python -m sawlog.kernels.build sawlog_tfrecord  those of a package that adds a format

The linker is the C compiler `cc` (or `$CC`), or `ziglang` from PyPI where there is none. The same sources, the same
Numba and the same linker make the same bytes. Object files are kept next to the library, and made again when something
that they depend on has changed.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import NamedTuple

from sawlog.kernels import native
from sawlog.kernels.sources import ALL, Source, find_module

FROM_LIBC = {"memmove", "memset", "exp", "exp2", "frexp", "ldexp", "log", "log2", "pow"}
"""What kernels may call."""
OBJECTS = "_objects"
"""Where a package keeps object files, each named by its entry and by what that was made from."""
_MARK = re.compile(rb"^@(wide_)?kernel\b", re.MULTILINE)
_MAKERS = [("sawlog.kernels.build", "_compile"), ("sawlog.kernels.compiler", ALL)]
"""What object files are made by."""


class Sources:
    """The modules of packages, each read and parsed when it is asked for.

    Attributes:
        paths: Their paths, each of which begins with its package, by their names.

    Args:
        packages: Their names.

    Raises:
        RuntimeError: When there is no such package.
    """

    def __init__(self, *packages: str) -> None:
        self.paths: dict[str, str] = {}
        for package in packages:
            root = native.find_root(package)
            if root is None:
                raise RuntimeError(f"{package}: no such package")
            for folder, _, files in os.walk(root):
                for name in files:
                    if name.endswith(".py"):
                        path = "/".join((package, *os.path.relpath(os.path.join(folder, name), root).split(os.sep)))
                        self.paths[find_module(path)] = path

    @functools.cache  # noqa: B019 # lives as long as a build
    def of(self, module: str) -> Source:
        """Return a module."""
        path = self.paths[module]
        return Source(path, native.read_source(path) or b"")

    def with_kernels(self, package: str) -> list[str]:
        """Return the modules of a package in which kernels are."""
        package_files = [path for path in sorted(self.paths) if path.partition(".")[0] == package]
        return [path for path in package_files if _MARK.search(native.read_source(self.paths[path]) or b"")]

    def collect_names(self, roots: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
        """Return, by module, the names of the definitions that `roots`, each given by its module and name, use."""
        names_by_file: dict[str, set[str]] = {}
        pending = [*roots]
        while pending:
            module, name = pending.pop()
            if module not in self.paths or name in names_by_file.setdefault(module, set()):
                continue
            names_by_file[module].add(name)
            for use in self.of(module).uses(name):
                pending.append((use.module, use.name))
                within = f"{use.module}.{use.name}"
                if within in self.paths and not self.of(use.module).defines(use.name):
                    pending.append((within, use.attribute or ALL))
        return names_by_file


class _Entry(NamedTuple):
    symbol: str
    module: str
    kernel: str
    wide: bool
    made_from: str

    @property
    def file(self) -> str:
        """The name of its object file."""
        return f"{self.symbol}.{self.made_from}.o"


def _list_entries(package: str, sources: Sources) -> list[_Entry]:
    """Return the entries of a library, those that a process compiles next to each other, in its order.

    What Numba has compiled before shows in the code, so object files are those of a whole part of the package.
    """
    reader = _compute_digest(sources, _MAKERS)
    entries = [_Entry(native.READER, "", "", wide=False, made_from=reader)]
    for _, modules in itertools.groupby(sources.with_kernels(package), _find_part):
        kernels = {(module, name): wide for module in modules for name, wide in sources.of(module).kernels.items()}
        made_from = _compute_digest(sources, [*_MAKERS, *kernels])
        for wide in (False, True)[: 1 + (native.find_machine() in native.WIDE)]:
            for module, kernel in (kernel_name for kernel_name, is_wide in kernels.items() if is_wide >= wide):
                symbol = native.make_symbol(f"{module}.{kernel}", wide=wide)
                entries.append(_Entry(symbol, module, kernel, wide, made_from))
    return entries


def _find_part(module: str) -> str:
    """Return the part of a package, such as a format, that a module is in. Its kernels share helpers."""
    return ".".join(module.split(".")[:2])


def _compute_digest(sources: Sources, roots: list[tuple[str, str]]) -> str:
    """Return the digest of what definitions use, of the machine, and of what compiles."""
    digests = sorted(
        (module, sources.of(module).compute_digest(names)) for module, names in sources.collect_names(roots).items()
    )
    versions = [platform.python_version(), *(version(package) for package in ("llvmlite", "numba", "numpy"))]
    return native.compute_digest(repr((platform.system(), native.find_machine(), versions, digests)).encode())[:32]


def make_digests(package: str, sources: Sources) -> dict[str, dict[str, object]]:
    """Return the digests of a package's definitions, see `sawlog.kernels.native.read_digests`."""
    kernels = [(module, kernel) for module in sources.with_kernels(package) for kernel in sources.of(module).kernels]
    used = sources.collect_names([*_MAKERS, ("sawlog.kernels.build", "_link"), *kernels])
    definitions_by_path: dict[str, dict[str, object]] = {}
    for module, names in sorted(used.items()):
        path = sources.paths[module]
        digests = {
            "file": native.compute_digest(native.read_source(path) or b""),
            "digest": sources.of(module).compute_digest(names),
        }
        definitions_by_path[path] = {**digests, "names": sorted(names)}
    return definitions_by_path


def _compile(entry: _Entry, folder: str) -> None:
    """Compile an entry to an object file."""
    import llvmlite.binding as llvm

    from sawlog.kernels import compiler

    baseline = (native.WIDE if entry.wide else native.BASELINES)[native.find_machine()]
    compiler.aim_at(baseline.cpu, baseline.features)
    if entry.module:
        module = compiler.lower_kernel(getattr(importlib.import_module(entry.module), entry.kernel), entry.symbol)
    else:
        module = compiler.lower_reader(entry.symbol)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=baseline.cpu, features=baseline.features, opt=3, reloc="pic", codemodel="small"
    )
    compiler.optimize(module, machine)
    foreign = compiler.find_external_names(module) - FROM_LIBC
    if foreign:
        names = ", ".join(sorted(foreign))
        raise RuntimeError(f"{entry.symbol} refers to {names}: kernels may allocate and raise nothing")
    with open(os.path.join(folder, entry.file), "wb") as file:
        file.write(machine.emit_object(module))


def _run(entries: list[_Entry], folder: str) -> float:
    """Compile entries one after the other; return the processor seconds that this took.

    Garbage is not collected: to look through all of Numba once for each of them took a quarter of it.
    """
    gc.disable()
    for entry in entries:
        _compile(entry, folder)
    return _measure_cpu_time()


def _find_linker() -> list[str]:
    command = os.environ.get("CC", "cc").split()
    if command and shutil.which(command[0]):
        return command
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no linker: install a C compiler, or ziglang from PyPI")


def _link(objects: Iterable[str], target: str) -> None:
    if platform.system() == "Darwin":
        flags = ["-dynamiclib", "-undefined", "dynamic_lookup", "-Wl,-x"]
    else:
        flags = ["-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,--strip-all", "-Wl,-z,noexecstack"]
    subprocess.run([*_find_linker(), *flags, "-o", target, *objects], check=True)  # noqa: S603 # our own


def build(package: str = native.SAWLOG, folder: str | None = None, jobs: int | None = None) -> str:
    """Make the library of a package.

    Args:
        package: The package, which can be imported.
        folder: Where it goes, with its table; by default where it is looked for.
        jobs: Processes at a time; by default as many as there are processors.

    Returns:
        One line on what was made.

    Raises:
        RuntimeError: When a kernel refers to anything beyond itself, or there is no linker.
    """
    start_time, used = time.perf_counter(), _measure_cpu_time()
    baseline = native.BASELINES[native.find_machine()]
    os.environ.update(SAWLOG_KERNELS="jit", NUMBA_CPU_NAME=baseline.cpu, NUMBA_CPU_FEATURES=baseline.features)
    for variable in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"):
        os.environ.pop(variable, None)
    sources = Sources(*{native.SAWLOG: None, package: None})
    entries = _list_entries(package, sources)
    described = {
        "system": platform.system(),
        "machine": native.find_machine(),
        "cpu": baseline.cpu,
        "entries": sorted(entry.symbol for entry in entries),
        "definitions": make_digests(package, sources),
    }
    object_cache = os.path.join(native.find_root(package) or os.devnull, OBJECTS) if folder is None else None
    folder = folder or native.find_folder(package)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as objects:
        cached_entries = {
            entry
            for entry in entries
            if object_cache is not None and _copy_file(os.path.join(object_cache, entry.file), objects)
        }
        # A helper is compiled once for all kernels of a task that call it.
        tasks = [
            list(task) for _, task in itertools.groupby(entries, lambda entry: (_find_part(entry.module), entry.wide))
        ]
        missing = [task for task in tasks if not cached_entries.issuperset(task)]
        processor = sum(_compile_in_processes(missing, objects, jobs)) if missing else 0
        library = os.path.join(objects, native.LIBRARY)
        _link(sorted(os.path.join(objects, entry.file) for entry in entries), library)
        _publish(library, os.path.join(folder, native.LIBRARY))
        _publish_table(described, folder)
        if object_cache is not None:
            _keep([os.path.join(objects, entry.file) for entry in entries], object_cache)
    seconds = time.perf_counter() - start_time
    processor += _measure_cpu_time() - used
    size = os.path.getsize(os.path.join(folder, native.LIBRARY))
    wide = sum(entry.wide for entry in entries)
    compiled = f"{sum(map(len, missing))} of {len(entries)} entries compiled"
    also = f", {wide} of them also for {native.WIDE[native.find_machine()].cpu}" if wide else ""
    return (
        f"{len(entries) - 1 - wide} kernels for {baseline.cpu}{also}, {size >> 10} KiB, "
        f"{compiled}, in {seconds:.0f} s ({processor:.0f} processor seconds)"
    )


def _compile_in_processes(tasks: list[list[_Entry]], folder: str, jobs: int | None) -> list[float]:
    """Compile entries, those of each task in a process of its own."""
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sawlog.kernels.compiler"])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with context.Pool(jobs or cores, maxtasksperchild=1) as pool:
        return pool.starmap(_run, [(entries, folder) for entries in tasks], chunksize=1)


def _copy_file(file: str, folder: str) -> bool:
    """Return whether there is a file, of which a copy is in a folder now."""
    try:
        shutil.copy(file, folder)
    except FileNotFoundError:
        return False
    return True


def _keep(files: list[str], folder: str) -> None:
    """Have a folder hold these files, and no others."""
    os.makedirs(folder, exist_ok=True)
    names = set(map(os.path.basename, files))
    for name in os.listdir(folder):
        if name not in names:
            os.remove(os.path.join(folder, name))
    for file in files:
        if not os.path.exists(target := os.path.join(folder, os.path.basename(file))):
            _publish(file, target)


def _measure_cpu_time() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _publish(source_path: str, target: str) -> None:
    """Put a file in its place, whole."""
    staged = f"{target}.{os.getpid()}"
    shutil.copyfile(source_path, staged)
    os.replace(staged, target)


def _publish_table(described: Mapping[str, object], folder: str) -> None:
    with tempfile.TemporaryDirectory() as folder_path:
        table = os.path.join(folder_path, native.TABLE)
        with open(table, "w", encoding="utf-8") as file:
            json.dump(described, file, indent=1)
        _publish(table, os.path.join(folder, native.TABLE))


def _refresh(package: str) -> None:
    """Note what the files of definitions that have not changed are now, so that no process has to parse them."""
    used = native.read_digests(package)
    now = {
        path: {**digests, "file": native.compute_digest(native.read_source(path) or b"")}
        for path, digests in used.items()
    }
    if now != used:
        _publish_table({**(native.read_table(package) or {}), "definitions": now}, native.find_folder(package))


def _fits(package: str) -> bool:
    """Return whether the library is there, for this machine and all kernels."""
    if native.find_misfit(package) is not None:
        return False
    sources = Sources(package)
    return {sources.paths[module] for module in sources.with_kernels(package)} <= native.read_digests(package).keys()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m sawlog.kernels.build", description=__doc__)
    parser.add_argument("package", nargs="?", default=native.SAWLOG, help="the package (sawlog)")
    parser.add_argument("--if-needed", action="store_true", help="keep a library that fits")
    parser.add_argument("--jobs", type=int, help="processes at a time")
    parser.add_argument("--folder", help="where the library goes")
    arguments = parser.parse_args()
    if arguments.if_needed and _fits(arguments.package):
        _refresh(arguments.package)
        return
    print("Compiling kernels", end=" ", flush=True, file=sys.stderr)  # noqa: T201 # progress
    print(build(arguments.package, arguments.folder, arguments.jobs), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
