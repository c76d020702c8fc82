"""What the author of a format meets stays small enough to be read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

import pytest

from sawlog import capabilities
from sawlog.damage import Findings
from sawlog.format import Contents, DirectoryLayout, Format, Fragment, StreamRules, View, Writer
from sawlog.storage import File

MAX_MEMBERS = 16
MAX_MODULES = 4
CONTRACTS = (Format, Contents, View, Fragment, Writer, Findings, DirectoryLayout, StreamRules)
EXAMPLES = Path(__file__).parents[1] / "examples"


class _Example(Contents):
    views: ClassVar = {}


def members(contract: type) -> set[str]:
    """The public names of a class: methods, attributes, and what its constructor sets."""
    own = {name for one in contract.__mro__[:-1] for name in [*vars(one), *getattr(one, "__annotations__", {})]}
    if contract is Contents:
        own |= vars(_Example(Format, [File("a", 0)], None)).keys()  # type: ignore[arg-type]
    return {name for name in own if not name.startswith("_")}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_contract_has_few_members(contract: type) -> None:
    assert 2 < len(members(contract)) <= MAX_MEMBERS, sorted(members(contract))


def test_capabilities_are_small_and_have_callers() -> None:
    protocols = {name: one for name, one in vars(capabilities).items() if getattr(one, "_is_runtime_protocol", False)}
    assert len(protocols) > 15
    assert max(len(members(one)) for one in protocols.values()) <= 4
    sources = [path.read_text() for path in (Path(__file__).parents[1] / "src/sawlog").rglob("*.py")]
    for name in protocols:
        assert any(f", {name})" in text or f"{name} |" in text or f"| {name}" in text for text in sources), name


@pytest.mark.parametrize(
    "example", sorted(path.name for path in EXAMPLES.iterdir() if (path / "pyproject.toml").exists())
)
def test_an_example_imports_from_few_modules(example: str) -> None:
    imported = {
        f"{node.module}.{name.name}"
        if (EXAMPLES.parent / "src" / node.module.replace(".", "/") / f"{name.name}.py").exists()
        else node.module
        for path in (EXAMPLES / example).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "sawlog"
        for name in node.names
    }
    assert 0 < len(imported) <= MAX_MODULES, sorted(imported)
