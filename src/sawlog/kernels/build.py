"""Compile all kernels of a package into its library: `python -m sawlog.kernels.build`. Needs Numba and a linker.

    python -m sawlog.kernels.build                  sawlog's own
    python -m sawlog.kernels.build sawlog_tfrecord  those of a package that adds a format

The linker is the C compiler `cc` (or `$CC`), or `ziglang` from PyPI where there is none. The same sources, the same
Numba and the same linker make the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
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
from collections.abc import Iterable
from typing import NamedTuple

from sawlog.kernels import native

FROM_LIBC = {"memmove", "memset", "exp", "exp2", "frexp", "ldexp", "log", "log2", "pow"}
"""What kernels may call."""
_TOGETHER = 4
"""Modules that a process compiles one after the other: neighbours call the same helpers."""


def _texts(*packages: str) -> dict[str, tuple[str, str]]:
    """Of each module of packages, its path, which begins with the package, and its text."""
    found = {}
    for package in packages:
        root = native.root(package)
        if root is None:
            raise RuntimeError(f"{package}: no such package")
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    place = os.path.join(folder, name)
                    path = "/".join((package, *os.path.relpath(place, root).split(os.sep)))
                    with open(place, encoding="utf-8") as file:
                        found[path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")] = path, file.read()
    return found


def kernel_modules(package: str = native.SAWLOG, *, wide: bool = False) -> list[str]:
    """The modules in which kernels are, or those with a second entry."""
    decorated = re.compile(r"^@wide_kernel$" if wide else r"^@(wide_)?kernel$", re.MULTILINE)
    return sorted(name for name, (_, text) in _texts(package).items() if decorated.search(text))


def sources(package: str = native.SAWLOG) -> dict[str, str]:
    """Digests of all files from which the kernels of a package are made, by paths that begin with their package.

    They are those in which functions are compiled, and what these, and layouts, import.
    """
    files = _texts(*{native.SAWLOG: None, package: None})
    texts = {name: text for name, (_, text) in files.items()}
    decorated = re.compile(r"^ *@((wide_)?kernel|inlined|always_inlined|walker|intrinsic)$|= inlined\(", re.MULTILINE)
    compiled = {name for name, text in texts.items() if decorated.search(text)}
    own = {name for name in compiled if name.partition(".")[0] == package}
    pending = sorted(own | {f"sawlog.kernels.{name}" for name in ("compiler", "jit", "native", "signature")})
    seen = set(pending)
    while pending:
        name = pending.pop()
        for node in ast.walk(ast.parse(texts[name])):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                within = {f"{node.module}.{alias.name}" for alias in node.names} & texts.keys()
                used = node.module in compiled or any(
                    _reaches_kernels(alias.name, texts.get(node.module, "")) for alias in node.names
                )
                for one in sorted(within | ({node.module} if used else set())):
                    if one in texts and one not in seen:
                        seen.add(one)
                        if one in compiled or one.endswith(".layout"):
                            pending.append(one)
    return {path: native.digest(path) or "" for path in sorted(files[name][0] for name in seen)}


def _reaches_kernels(name: str, text: str) -> bool:
    """Whether a kernel may use what a module that is not compiled has by that name: a constant, or a plain type."""
    return (
        name.isupper() or re.search(rf"^class {name}\((NamedTuple|\w*Enum|\w*Flag)\)", text, re.MULTILINE) is not None
    )


class _Task(NamedTuple):
    """What a process compiles: the kernels of modules, or the reader of arrays where there are none.

    Attributes:
        modules: Their names.
        folder: Where object files go.
        wide: Whether second entries are made.
    """

    modules: list[str]
    folder: str
    wide: bool


def _compile(module: str, folder: str, *, wide: bool) -> list[str]:
    """Compile the kernels of a module, each to an object file; the names of their entries."""
    from sawlog.kernels import compiler
    from sawlog.kernels.jit import Kernel

    baseline = (native.WIDE if wide else native.BASELINES)[native.machine()]
    compiler.aim_at(baseline.cpu, baseline.features)
    found = importlib.import_module(module)
    names = []
    for kernel in [one for one in vars(found).values() if isinstance(one, Kernel)]:
        if kernel.__module__ == module and kernel.wide >= wide:
            name = native.symbol(kernel.signature.name, wide=wide)
            _emit(compiler.module_of(kernel, name), name, folder, baseline)
            names.append(name)
    return names


def _compile_reader(folder: str) -> list[str]:
    from sawlog.kernels import compiler

    baseline = native.BASELINES[native.machine()]
    _emit(compiler.reader_module(native.READER), native.READER, folder, baseline)
    return [native.READER]


def _emit(module: object, name: str, folder: str, baseline: native.Baseline) -> None:
    import llvmlite.binding as llvm

    from sawlog.kernels import compiler

    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=baseline.cpu, features=baseline.features, opt=3, reloc="pic", codemodel="small"
    )
    compiler.optimize(module, machine)
    foreign = compiler.declared(module) - FROM_LIBC
    if foreign:
        raise RuntimeError(f"{name} refers to {', '.join(sorted(foreign))}: kernels may allocate and raise nothing")
    with open(os.path.join(folder, name + ".o"), "wb") as file:
        file.write(machine.emit_object(module))


def _run(task: _Task) -> tuple[list[str], float]:
    """The names of entries, and the processor seconds that they took."""
    made = [] if task.modules else _compile_reader(task.folder)
    for module in task.modules:
        made += _compile(module, task.folder, wide=task.wide)
    return made, _used()


def _linker() -> list[str]:
    given = os.environ.get("CC", "cc").split()
    if given and shutil.which(given[0]):
        return given
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no linker: install a C compiler, or ziglang from PyPI")


def _link(objects: Iterable[str], target: str) -> None:
    if platform.system() == "Darwin":
        flags = ["-dynamiclib", "-undefined", "dynamic_lookup", "-Wl,-x"]
    else:
        flags = ["-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,--strip-all", "-Wl,-z,noexecstack"]
    subprocess.run([*_linker(), *flags, "-o", target, *objects], check=True)  # noqa: S603 # our own


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
    begun, used = time.perf_counter(), _used()
    baseline = native.BASELINES[native.machine()]
    os.environ.update(SAWLOG_KERNELS="jit", NUMBA_CPU_NAME=baseline.cpu, NUMBA_CPU_FEATURES=baseline.features)
    for variable in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"):
        os.environ.pop(variable, None)
    digests = sources(package)
    folder = folder or native.folder(package)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as objects:
        modules = kernel_modules(package)
        tasks = [_Task(modules[at : at + _TOGETHER], objects, wide=False) for at in range(0, len(modules), _TOGETHER)]
        if native.machine() in native.WIDE and (also_wide := kernel_modules(package, wide=True)):
            tasks.append(_Task(also_wide, objects, wide=True))
        tasks.append(_Task([], objects, wide=False))
        done = _in_processes(tasks, jobs)
        names = sorted(name for made, _ in done for name in made)
        library = os.path.join(objects, native.LIBRARY)
        _link([os.path.join(objects, f"{name}.o") for name in names], library)
        _publish(library, os.path.join(folder, native.LIBRARY))
        table = os.path.join(objects, native.TABLE)
        with open(table, "w", encoding="utf-8") as file:
            described = {"system": platform.system(), "machine": native.machine(), "cpu": baseline.cpu}
            json.dump({**described, "entries": names, "sources": digests}, file, indent=1)
        _publish(table, os.path.join(folder, native.TABLE))
    taken = time.perf_counter() - begun
    processor = _used() - used + sum(seconds for _, seconds in done)
    size = os.path.getsize(os.path.join(folder, native.LIBRARY))
    wide = sum(len(made) for task, (made, _) in zip(tasks, done, strict=True) if task.wide)
    also = f", {wide} of them also for {native.WIDE[native.machine()].cpu}" if wide else ""
    return (
        f"{len(names) - 1 - wide} kernels for {baseline.cpu}{also}, {size >> 10} KiB, "
        f"in {taken:.0f} s ({processor:.0f} processor seconds)"
    )


def _in_processes(tasks: list[_Task], jobs: int | None) -> list[tuple[list[str], float]]:
    """Each task in a process of its own: what Numba has compiled before shows in the code."""
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sawlog.kernels.compiler"])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with context.Pool(jobs or cores, maxtasksperchild=1) as pool:
        return list(pool.imap(_run, tasks))


def _used() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _publish(made: str, target: str) -> None:
    """Put a file in its place, whole."""
    staged = f"{target}.{os.getpid()}"
    shutil.copyfile(made, staged)
    os.replace(staged, target)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m sawlog.kernels.build", description=__doc__)
    parser.add_argument("package", nargs="?", default=native.SAWLOG, help="the package (sawlog)")
    parser.add_argument("--if-needed", action="store_true", help="keep a library that fits")
    parser.add_argument("--jobs", type=int, help="processes at a time")
    parser.add_argument("--folder", help="where the library goes")
    given = parser.parse_args()
    if given.if_needed and native.misfit(given.package) is None:
        return
    print("Compiling kernels", end=" ", flush=True, file=sys.stderr)  # noqa: T201 # progress
    print(build(given.package, given.folder, given.jobs), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
