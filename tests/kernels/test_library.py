"""The library of kernels: what refers to it, what refuses it, and that nothing else is needed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawlog.errors import InternalError
from sawlog.kernels import build, native
from sawlog.kernels.gather import gather_slices
from sawlog.kernels.jit import Kernel

SHOP = Path(__file__).parents[2] / "examples" / "data" / "shop"
LIBRARY = os.path.join(native.folder(), native.LIBRARY)
TABLE = os.path.join(native.folder(), native.TABLE)
NEEDS_LIBRARY = pytest.mark.skipif(not os.path.exists(LIBRARY), reason="make kernels")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A table that can be changed, of a library that is there."""
    found = {
        "system": "Linux" if sys.platform == "linux" else "Darwin",
        "machine": native.machine(),
        "cpu": native.BASELINES[native.machine()].cpu,
        "entries": [],
        "sources": build.sources(),
    }
    (tmp_path / "kernels.so").touch()
    monkeypatch.setattr(native, "folder", lambda package: str(tmp_path))
    monkeypatch.setattr(native, "_table", lambda package: found)
    native.misfit.cache_clear()
    native.library.cache_clear()
    yield found
    native.misfit.cache_clear()
    native.library.cache_clear()


def test_a_library_that_fits_is_taken(table: dict[str, Any]) -> None:
    assert native.misfit() is None


def test_another_machine_is_refused(table: dict[str, Any]) -> None:
    table["machine"] = "sparc"
    assert "is for" in str(native.misfit())
    assert "sparc" in str(native.misfit())


def test_an_older_cpu_is_refused(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = native._cpu_flags()
    first = min(native.BASELINES[native.machine()].flags.split())
    monkeypatch.setattr(native, "_cpu_flags", lambda: flags - {first})
    assert str(native.misfit()).endswith(f"this CPU lacks {first}")
    with pytest.raises(InternalError, match=r"lacks .*the extra `jit`"):
        native.library()


def test_other_sources_are_refused(table: dict[str, Any]) -> None:
    table["sources"]["sawlog/kernels/memory.py"] = "0"
    assert str(native.misfit()) == "the library of kernels was made from another sawlog/kernels/memory.py"


def test_a_library_of_another_system_is_refused(table: dict[str, Any]) -> None:
    table["system"] = "Plan9"
    assert str(native.misfit()).startswith("the library of kernels is for Plan9")


def test_no_library_is_no_library(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "folder", lambda package: "/nowhere")
    assert "no library" in str(native.misfit())


def test_every_file_with_a_kernel_and_every_layout_is_among_the_sources() -> None:
    found = build.sources()
    assert {"sawlog/kernels/memory.py", "sawlog/chain/kernels.py", "sawlog/leveldb_log/layout.py"} <= set(found)
    assert all(path and digest for path, digest in found.items())


def test_every_kernel_declares_what_it_takes() -> None:
    count = 0
    for module in build.kernel_modules():
        for one in vars(importlib.import_module(module)).values():
            if isinstance(one, Kernel) and one.__module__ == module:
                assert one.signature.words
                count += 1
    assert count > 80


@NEEDS_LIBRARY
def test_the_library_holds_every_kernel_and_refers_to_the_c_library_alone() -> None:
    with open(TABLE, encoding="utf-8") as file:
        entries = set(json.load(file)["entries"])
    expected = {
        native.symbol(one.signature.name)
        for module in build.kernel_modules()
        for one in vars(importlib.import_module(module)).values()
        if isinstance(one, Kernel) and one.__module__ == module
    }
    assert entries == {*expected, native.READER}
    said = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = {(line.split()[-2], line.split()[-1]) for line in said}
    assert {name for kind, name in symbols if kind == "T"} == entries
    assert {name for kind, name in symbols if kind == "U"} <= build.FROM_LIBC


@NEEDS_LIBRARY
def test_where_arrays_lie_otherwise_in_memory_python_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    library = native.Library()
    assert library._reader is not None
    monkeypatch.setattr(native, "_HEAD", native._HEAD + 8)
    assert not native.reads_objects(library._reader)
    monkeypatch.setattr(library, "_reader", None)
    ends, out = np.array([0, 0], np.int32), np.zeros(3, np.uint8)
    entry = library.entry(gather_slices.signature)
    data = np.frombuffer(b"abcdef", np.uint8)
    entry(data, np.array([2], np.int64), np.array([3], np.int64), out, ends)
    assert (bytes(out), ends.tolist()) == (b"cde", [0, 3])


@NEEDS_LIBRARY
def test_nothing_of_numba_is_imported() -> None:
    script = f"""
import sys, warnings
warnings.simplefilter("ignore")
class Refused:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in ("numba", "llvmlite"), name
sys.meta_path.insert(0, Refused())
import sawlog
from sawlog.kernels import build
for module in build.kernel_modules():
    __import__(module)
print(sawlog.read({str(SHOP)!r}).num_rows)
"""
    environment = {**os.environ, "SAWLOG_KERNELS": "library"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "3903\n", done.stderr


@pytest.mark.heavy
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """Wherever they are, whatever the seed of hashes is, and in whichever order processes take them."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(native.root("sawlog") or "", elsewhere / "sawlog")
    made = []
    for seed, jobs, place in (("1", "1", Path(native.folder()).parents[1]), ("2", "3", elsewhere)):
        target = tmp_path / seed
        environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "sawlog.kernels.build", "--jobs", jobs, "--folder", str(target)]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True)
        made.append([(target / name).read_bytes() for name in (native.LIBRARY, native.TABLE)])
    assert made[0] == made[1]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of the wheel's build, in a tree that is empty, and with a compiler that does nothing."""
    names = ["hatchling", "builders", "hooks", "plugin", "interface"]
    for count in range(1, 6):
        monkeypatch.setitem(sys.modules, ".".join(names[:count]), types.ModuleType(names[count - 1]))
    vars(sys.modules[".".join(names)])["BuildHookInterface"] = object
    spec = importlib.util.spec_from_file_location("hatch_build", Path(__file__).parents[2] / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.KernelsHook()
    made.machines = module._MACHINES
    made.root, made.target_name = str(tmp_path), "wheel"

    def compiled(command: list[str], **_: Any) -> None:
        target = command[command.index("--folder") + 1] if "--folder" in command else tmp_path / "src/sawlog/_native"
        (Path(target) / "kernels.so").touch()

    (tmp_path / "src/sawlog/_native").mkdir(parents=True)
    monkeypatch.setattr(module.subprocess, "run", compiled)
    return made


def wheel(hook: Any, version: str) -> tuple[list[str], dict[str, str]]:
    """Artifacts and files from elsewhere of a wheel."""
    data: dict[str, Any] = {"artifacts": [], "force_include": {}}
    hook.initialize(version, data)
    assert all(map(os.path.exists, data["force_include"]))
    hook.finalize(version, data, "x.whl")
    assert not any(map(os.path.exists, data["force_include"]))
    return data["artifacts"], data["force_include"]


def test_the_library_of_a_wheel_stays_in_the_tree(hook: Any, tmp_path: Path) -> None:
    assert wheel(hook, "standard") == (["src/sawlog/_jars/*", "src/sawlog/_native/*"], {})
    assert (tmp_path / "src/sawlog/_native/kernels.so").exists()


def test_a_tree_that_cannot_be_written_to_gives_a_wheel_with_a_library(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    artifacts, others = wheel(hook, "standard")
    assert (artifacts, list(others.values())) == (["src/sawlog/_jars/*"], ["sawlog/_native/kernels.so"])
    assert wheel(hook, "editable") == (["src/sawlog/_jars/*", "src/sawlog/_native/*"], {})
    assert not (tmp_path / "src/sawlog/_native/kernels.so").exists()


def test_elsewhere_a_wheel_is_plain_python(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert hook.dependencies() == []
    data: dict[str, Any] = {"artifacts": [], "force_include": {}}
    hook.initialize("standard", data)
    assert data == {"artifacts": ["src/sawlog/_jars/*"], "force_include": {}}


def test_the_hook_names_the_machines_that_there_are_libraries_for(hook: Any) -> None:
    assert set(hook.machines) == set(native.BASELINES)
