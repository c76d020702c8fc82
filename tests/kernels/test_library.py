"""The library of kernels: what refers to it, what refuses it, and that nothing else is needed."""

from __future__ import annotations

import ctypes
import functools
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

import sawlog
from sawlog.deephaven.ingest.kernels import count_order, hash_rows, hash_words
from sawlog.deephaven.table.kernels import reaches
from sawlog.errors import InternalError
from sawlog.kernels import build, native
from sawlog.kernels.columns import gather_slices
from sawlog.kernels.jit import Kernel, make_caller
from sawlog.kernels.signature import Signature
from sawlog.map import kernels as map_kernels
from sawlog.testing.sample import place_sample
from tests.samples import law_samples
from tests.sealed import sealed

SHOP = Path(__file__).parents[2] / "examples" / "data" / "shop"
LIBRARY = os.path.join(native.find_folder(), native.LIBRARY)
MODULES = build.Sources(native.SAWLOG).with_kernels(native.SAWLOG)
TABLE = os.path.join(native.find_folder(), native.TABLE)
NEEDS_LIBRARY = pytest.mark.skipif(native.find_misfit() is not None, reason=f"make kernels: {native.find_misfit()}")


@functools.cache
def definitions() -> dict[str, dict[str, object]]:
    """What the library is made from."""
    return build.make_digests(native.SAWLOG, build.Sources(native.SAWLOG))


@pytest.fixture
def library_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A table that can be changed, of a library that is there."""
    table = {
        "system": "Linux" if sys.platform == "linux" else "Darwin",
        "machine": native.find_machine(),
        "cpu": native.BASELINES[native.find_machine()].cpu,
        "entries": [],
        "definitions": {path: {**used} for path, used in definitions().items()},
    }
    (tmp_path / "kernels.so").touch()
    monkeypatch.setattr(native, "find_folder", lambda package: str(tmp_path))
    monkeypatch.setattr(native, "read_table", lambda package: table)
    native.find_misfit.cache_clear()
    native.load_library.cache_clear()
    yield table
    native.find_misfit.cache_clear()
    native.load_library.cache_clear()


def test_a_library_that_fits_is_taken(library_table: dict[str, Any]) -> None:
    assert native.find_misfit() is None


def test_another_machine_is_refused(library_table: dict[str, Any]) -> None:
    library_table["machine"] = "sparc"
    assert "is for" in str(native.find_misfit())
    assert "sparc" in str(native.find_misfit())


def test_an_older_cpu_is_refused(library_table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = native.read_cpu_flags()
    first = min(native.BASELINES[native.find_machine()].flags.split())
    monkeypatch.setattr(native, "read_cpu_flags", lambda: flags - {first})
    assert str(native.find_misfit()).endswith(f"this CPU lacks {first}")
    with pytest.raises(InternalError, match=r"lacks .*the extra `jit`"):
        native.load_library()


@NEEDS_LIBRARY
def test_a_cpu_without_wide_vectors_never_gets_a_second_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that has them gets it for the kernels that have one, and the first of all others."""
    if native.find_machine() not in native.WIDE:
        pytest.skip("this kind of CPU has no wider vectors")
    flags = set(native.WIDE[native.find_machine()].flags.split())
    called: list[str] = []

    class LoadedLibrary:
        def __init__(self, path: str) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            if not name.endswith(("read_objects", "hash_rows_wide", "hash_rows", "count_order")):
                raise AttributeError(name)
            return lambda words: called.append(name.rpartition("kernels_")[2])

    monkeypatch.setattr("ctypes.CDLL", LoadedLibrary)
    monkeypatch.setattr(native, "reads_objects", lambda reader: False)
    numbers = np.zeros(3, np.int64)

    def calls(of: set[str]) -> list[str]:
        monkeypatch.setattr(native, "read_cpu_flags", lambda: of)
        library = native.Library()
        called.clear()
        make_caller(hash_rows.signature, None, library.find_entry(hash_rows.signature.name))(numbers.view(np.uint64))
        make_caller(count_order.signature, None, library.find_entry(count_order.signature.name))(
            numbers, 0, numbers, numbers, numbers
        )
        return called

    for missing in sorted(flags - set(native.BASELINES[native.find_machine()].flags.split())):
        assert calls(flags - {missing}) == ["hash_rows", "count_order"]
    assert calls(flags) == ["hash_rows_wide", "count_order"]


@NEEDS_LIBRARY
def test_second_entries_give_what_the_first_ones_give() -> None:
    if native.find_machine() not in native.WIDE or native.list_missing_features(native.WIDE[native.find_machine()]):
        pytest.skip("no CPU with wider vectors")
    loaded = ctypes.CDLL(LIBRARY)
    numbers = np.random.default_rng(5)

    def words(count: int, dtype: Any = np.uint64) -> Any:
        return numbers.integers(0, np.iinfo(dtype).max, count, dtype)

    for count in [*range(1, 70), 511, 4096, 5553]:
        bits = words(count, np.uint8) & np.uint8(1)
        calls: list[tuple[Any, tuple[Any, ...]]] = [
            (hash_rows, (words(count),)),
            (hash_words, (words(count), bits[:0], 3, words(count))),
            (hash_words, (words(count), bits, 3, words(count))),
            (map_kernels.hash_words, (words(count), words(count))),
            (reaches, (words(count, np.uint32), int(words(1, np.uint32)[0]))),
        ]
        for kernel, arguments in calls:
            results = []
            for wide in (False, True):
                entry = make_caller(
                    kernel.signature, None, getattr(loaded, native.make_symbol(kernel.signature.name, wide=wide))
                )
                copies = [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments]
                result = entry(*copies)
                results.append((result, [array.tobytes() for array in copies if isinstance(array, np.ndarray)]))
            assert results[0] == results[1], (kernel.signature.name, count)


def test_other_sources_are_refused(library_table: dict[str, Any]) -> None:
    library_table["definitions"]["sawlog/kernels/memory.py"] |= {"file": "0", "digest": "0"}
    assert str(native.find_misfit()) == "the library of kernels was made from another sawlog/kernels/memory.py"


def test_a_file_may_change_but_for_what_kernels_use(
    library_table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = native.read_source
    edits = {
        (b'"""', b'"""More. '): True,
        (b"\nUNSUPPORTED = ", b"\nANOTHER = 1\nUNSUPPORTED = "): True,
        (b"\nUNSUPPORTED = ", b"\nUNSUPPORTED = 1 + "): False,
        (b"\nUNSUPPORTED = ", b"\nif UNSUPPORTED = "): False,
        (b"\nUNSUPPORTED = ", b"\n@kernel\ndef one(): pass\n\n\nUNSUPPORTED = "): False,
    }
    for (old, new), fits in edits.items():
        changed = (content("sawlog/format/damage.py") or b"").replace(old, new, 1)
        monkeypatch.setattr(
            native,
            "read_source",
            lambda path, data=changed: data if path == "sawlog/format/damage.py" else content(path),
        )
        native.find_misfit.cache_clear()
        assert (native.find_misfit() is None) == fits, new


def test_a_library_of_another_system_is_refused(library_table: dict[str, Any]) -> None:
    library_table["system"] = "Plan9"
    assert str(native.find_misfit()).startswith("the library of kernels is for Plan9")


def test_no_library_is_no_library(library_table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_folder", lambda package: "/nowhere")
    assert "no library" in str(native.find_misfit())


def test_every_kernel_declares_what_it_takes() -> None:
    count = 0
    for module in MODULES:
        for member in vars(importlib.import_module(module)).values():
            if isinstance(member, Kernel) and member.__module__ == module:
                assert member.signature.words
                count += 1
    assert count > 80


@NEEDS_LIBRARY
def test_the_library_holds_every_kernel_and_refers_to_the_c_library_alone() -> None:
    with open(TABLE, encoding="utf-8") as file:
        entries = set(json.load(file)["entries"])
    expected = {
        native.make_symbol(member.signature.name, wide=wide)
        for module in MODULES
        for member in vars(importlib.import_module(module)).values()
        if isinstance(member, Kernel) and member.__module__ == module
        for wide in (False, True)
        if not wide or (member.wide and native.find_machine() in native.WIDE)
    }
    assert entries == {*expected, native.READER}
    lines = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = {(line.split()[-2], line.split()[-1]) for line in lines}
    assert {name for kind, name in symbols if kind == "T"} == entries
    assert {name for kind, name in symbols if kind == "U"} <= build.FROM_LIBC


@NEEDS_LIBRARY
def test_threads_wait_once_for_a_kernel() -> None:
    """What reads its arguments keeps the GIL, as a function of Python's API does."""
    library = native.Library()
    flags = ctypes.pythonapi.Py_IncRef._flags_
    assert library.reader._flags_ == flags != library.find_entry(gather_slices.signature.name)._flags_


@NEEDS_LIBRARY
def test_where_arrays_lie_otherwise_in_memory_python_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    library = native.Library()
    assert library.reader is not None
    monkeypatch.setattr(native, "HEAD_BYTES", native.HEAD_BYTES + 8)
    assert not native.reads_objects(library.reader)
    monkeypatch.setattr(library, "reader", None)
    ends, out = np.zeros(2, np.int32), np.zeros(3, np.uint8)
    entry = make_caller(gather_slices.signature, library.reader, library.find_entry(gather_slices.signature.name))
    data = np.frombuffer(b"abcdef", np.uint8)
    entry(data, np.array([2], np.int64), np.array([3], np.int64), out, ends.view(np.uint8))
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
for module in {MODULES}:
    __import__(module)
print(sawlog.read({str(SHOP)!r}).num_rows)
"""
    environment = {**os.environ, "SAWLOG_KERNELS": "library"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "3903\n", done.stderr


@pytest.mark.heavy
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """Wherever they are, also where they cannot be written to, and without a network.

    And whatever the seed of hashes is, in whichever order processes take them.
    """
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(native.find_root("sawlog") or "", elsewhere / "sawlog")
    libraries = []
    for seed, jobs, place in (("1", "1", Path(native.find_folder()).parents[1]), ("2", "3", elsewhere)):
        target = tmp_path / seed
        environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "sawlog.kernels.build", "--jobs", jobs, "--folder", str(target)]
        subprocess.run([*sealed(place), *command], env=environment, cwd=tmp_path, check=True)
        libraries.append([(target / name).read_bytes() for name in (native.LIBRARY, native.TABLE)])
    assert libraries[0] == libraries[1]


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
    build_hook = module.KernelsHook()
    build_hook.machines = module.MACHINES
    build_hook.root, build_hook.target_name = str(tmp_path), "wheel"

    def compiled(command: list[str], **_: Any) -> None:
        target = command[command.index("--folder") + 1] if "--folder" in command else tmp_path / "src/sawlog/_native"
        (Path(target) / "kernels.so").touch()

    (tmp_path / "src/sawlog/_native").mkdir(parents=True)
    monkeypatch.setattr(module.subprocess, "run", compiled)
    return build_hook


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
    artifacts, other_files = wheel(hook, "standard")
    assert (artifacts, list(other_files.values())) == (["src/sawlog/_jars/*"], ["sawlog/_native/kernels.so"])
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


@NEEDS_LIBRARY
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_machine_code_finds_what_sawlog_gives_to_kernels_as_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not, Python looks again in every call, which takes it ten times as long."""
    checked: set[str] = set()
    monkeypatch.setattr(Signature, "check", lambda signature, arguments: checked.add(signature.name))
    for number, parameters in enumerate(law_samples()):
        sample = parameters.values[0]
        with place_sample(sample) as subject:
            sawlog.read(subject.path, format=sample.format, view=sample.view, **subject.options)
        if sample.written is not None:
            sawlog.write(sample.written, tmp_path / str(number), format=sample.format, **sample.write_options)
    assert checked == set()
