"""What is shared knows no format: verbs and Spark helpers of one format are found through entry points."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import sawlog

ROOT = Path(sawlog.__file__).parent
GROUPS = ("sawlog.formats", "sawlog.commands", "sawlog.spark")


def format_packages() -> set[str]:
    """Packages that belong to a format, as their entry points say."""
    found = {one.value.split(":")[0].split(".")[1] for group in GROUPS for one in entry_points(group=group)}
    assert found >= {"leveldb_log", "deephaven_import"}
    return found


def shared_modules() -> dict[str, Path]:
    """Modules of everything else, by name."""
    kept = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in format_packages()]
    names = {path: path.relative_to(ROOT.parent).with_suffix("").as_posix().replace("/", ".") for path in kept}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported(path: Path) -> set[str]:
    """Whatever a module imports, for types or when it is called included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{one.name}" for one in node.names}
    return found


def test_nothing_shared_imports_a_format() -> None:
    packages = {f"sawlog.{name}" for name in format_packages()}
    wrong = {
        (name, other)
        for name, path in shared_modules().items()
        for other in imported(path)
        if any(f"{other}.".startswith(f"{package}.") for package in packages)
    }
    assert not wrong


def test_no_format_is_loaded_before_it_is_asked_for() -> None:
    names = [name for name in shared_modules() if name != "sawlog.__main__"]
    script = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
packages = {format_packages()!r}
print(*(name for name in sys.modules if name.startswith("sawlog.") and name.split(".")[1] in packages))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
