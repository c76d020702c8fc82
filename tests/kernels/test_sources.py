"""What a library is made from: nothing that its kernels use is left out, and little else is in it."""

from __future__ import annotations

import dis
import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sawlog.kernels import build, native
from sawlog.kernels.jit import Kernel
from sawlog.kernels.sources import Source

PACKAGE = {
    "__init__": "",
    "layout": '"""Numbers."""\nSIZE = 8\nWIDTH = SIZE\nUNUSED = 9\nTABLE = [1, 2]\nTABLE[0] = 5\n',
    "helpers": """
from typing import Any
import numpy as np
from made import layout as numbers
from made.layout import WIDTH
from sawlog.kernels.jit import inlined

@inlined
def step(value: Any) -> Any:
    return value + np.int64(numbers.SIZE)

@inlined
def other(value: Any) -> Any:
    return value

def python(value: int) -> int:
    return value + numbers.UNUSED
""",
    "first": """
from made.helpers import python, step
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Int64

@kernel
def add(value: Int64) -> Int64:
    # A comment.
    "A docstring."
    return step(value) + 1

def prepared() -> int:
    return python(1)
""",
    "second": """
from made.layout import TABLE
from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Int64

FIRST = TABLE[0]

@kernel
def take(value: Int64) -> Int64:
    return value + FIRST
""",
}


@pytest.fixture
def made_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with two kernels."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    native.find_root.cache_clear()
    yield folder
    native.find_root.cache_clear()


def definitions(*kernels: tuple[str, str]) -> dict[str, str]:
    """By module of the package, the digest of what its kernels use."""
    sources = build.Sources("made")
    return {
        module: sources.of(module).compute_digest(names) for module, names in sources.collect_names(kernels).items()
    }


ADD, TAKE = ("made.first", "add"), ("made.second", "take")


@pytest.mark.parametrize(
    ("name", "old", "new", "add", "take"),
    [
        ("layout", "SIZE = 8", "SIZE = 16", True, False),
        ("layout", "WIDTH = SIZE", "WIDTH = 3", False, False),
        ("layout", "UNUSED = 9", "UNUSED = 3", False, False),
        ("layout", "Numbers", "All numbers", False, False),
        ("layout", "TABLE[0] = 5", "TABLE[0] = 6", True, True),
        ("layout", "UNUSED = 9", "if SIZE:\n    SIZE = 4", True, True),
        ("layout", "UNUSED = 9", "SIZE += 1", True, True),
        ("helpers", "value + np.int64", "value - np.int64", True, False),
        ("helpers", "step(value: Any) -> Any", "step(value: int) -> int", False, False),
        ("helpers", "made import layout as", "made import second as", True, False),
        ("helpers", "return value\n", "return value + 1\n", False, False),
        ("helpers", "value + numbers.UNUSED", "value", False, False),
        ("first", "A comment", "Another", False, False),
        ("first", "A docstring", "Another", False, False),
        ("first", "value: Int64", "number: Int64", True, False),
        ("first", "-> Int64", "-> UInt64", True, False),
        ("first", "python(1)", "python(2)", False, False),
        ("first", "import python, step", "import other as step", True, False),
        ("second", "FIRST = TABLE[0]", "FIRST = TABLE[1]", False, True),
        ("__init__", "", "layout = helpers = 1", True, False),
    ],
)
def test_what_a_kernel_uses_changes_its_digest_and_nothing_else_does(
    made_package: Path, name: str, old: str, new: str, add: bool, take: bool
) -> None:
    before = definitions(ADD), definitions(TAKE)
    file = made_package / f"{name}.py"
    used = build.Sources("made").collect_names([ADD, TAKE]).get(f"made.{name}", set())
    digest = Source(f"made/{name}.py", file.read_text()).compute_digest(used)
    changed = file.read_text().replace(old, new, 1) if old else new
    assert changed != file.read_text()
    file.write_text(changed)
    assert (definitions(ADD) != before[0], definitions(TAKE) != before[1]) == (add, take)
    if name != "__init__":
        assert (Source(f"made/{name}.py", changed).compute_digest(used) != digest) == (add or take)


@pytest.fixture(scope="module")
def sawlog() -> build.Sources:
    """All of it."""
    return build.Sources(native.SAWLOG)


@pytest.mark.nightly
def test_little_of_sawlog_is_what_kernels_are_made_from(sawlog: build.Sources) -> None:
    digests = build.make_digests(native.SAWLOG, sawlog)
    assert {"sawlog/kernels/memory.py", "sawlog/kernels/signature.py", "sawlog/kernels/layout.py"} <= digests.keys()
    assert not digests.keys() & {
        "sawlog/format/scan.py",
        "sawlog/chain/records.py",
        "sawlog/format/contract.py",
        "sawlog/__init__.py",
    }
    assert digests["sawlog/format/damage.py"]["names"] == ["DamageKind", "UNSUPPORTED"]


def reached(function: Any, visited: set[tuple[str, str]]) -> None:
    """Add the names of modules of sawlog that a function takes from its globals, and so on for functions of these."""
    pending: list[types.CodeType] = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            if name not in function.__globals__ or (function.__module__, name) in visited:
                continue
            visited.add((function.__module__, name))
            value = function.__globals__[name]
            value = value.py_func if isinstance(value, Kernel) else value
            if isinstance(value, types.ModuleType) and value.__name__.startswith("sawlog."):
                steps = list(dis.get_instructions(code))
                visited.update((value.__name__, two.argval) for step, two in pairwise(steps) if step.argval == name)
            elif isinstance(value, types.FunctionType) and value.__module__.startswith("sawlog."):
                if value.__qualname__.isidentifier():
                    visited.add((value.__module__, value.__qualname__))
                reached(value, visited)
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, types.FunctionType):
            reached(cell.cell_contents, visited)


@pytest.mark.nightly
def test_every_name_that_kernels_find_when_they_run_is_among_their_definitions(sawlog: build.Sources) -> None:
    """By their code objects and globals, which the digests do not look at."""
    count = 0
    for module in sawlog.with_kernels(native.SAWLOG):
        for kernel in sawlog.of(module).kernels:
            definitions: set[tuple[str, str]] = set()
            reached(getattr(importlib.import_module(module), kernel).py_func, definitions)
            used = sawlog.collect_names([(module, kernel)])
            for module_name, name in definitions:
                if sawlog.of(module_name).defines(name):
                    assert name in sawlog.of(module_name).collect_names(used.get(module_name, ())), (
                        kernel,
                        module_name,
                        name,
                    )
                    count += 1
    assert count > 1000


def compiled(*arguments: str) -> str:
    """Build the library of the package; how many entries were compiled."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "sawlog.kernels.build", "made", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stderr.partition(" KiB, ")[2].partition(",")[0]


@pytest.mark.nightly
def test_only_what_has_changed_is_compiled_again_and_gives_the_same_bytes(made_package: Path, tmp_path: Path) -> None:
    assert compiled() == "3 of 3 entries compiled"
    library = made_package / "_native" / native.LIBRARY
    before = library.read_bytes()
    file = made_package / "layout.py"
    file.write_text(f"{file.read_text()}# A comment.\n")
    assert compiled("--if-needed") == ""
    table = json.loads((made_package / "_native" / native.TABLE).read_bytes())
    assert table["definitions"]["made/layout.py"]["file"] == native.compute_digest(file.read_bytes())
    assert compiled() == "0 of 3 entries compiled"
    assert library.read_bytes() == before
    for name, old, new in (("layout", "SIZE = 8", "SIZE = 9"), ("first", "A docstring", "Another")):
        file = made_package / f"{name}.py"
        file.write_text(file.read_text().replace(old, new))
    assert compiled("--if-needed") == "1 of 3 entries compiled"
    assert library.read_bytes() != before
    assert len(os.listdir(made_package / build.OBJECTS)) == 3
    assert compiled("--folder", str(tmp_path / "clean")) == "3 of 3 entries compiled"
    assert (tmp_path / "clean" / native.LIBRARY).read_bytes() == library.read_bytes()
