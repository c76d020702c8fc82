"""What the author of a format has to know stays small enough to be read in one sitting."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from sawlog.errors import OptionError
from sawlog.format import capabilities
from sawlog.format.contract import (
    Contents,
    DirectoryLayout,
    Format,
    Fragment,
    Match,
    Scan,
    StreamRules,
    View,
    Writer,
    assemble,
)
from sawlog.format.damage import Findings
from sawlog.storage import Directories, File, Storage

pytestmark = pytest.mark.spread(1)  # of many parameter sets one would be taken
MAX_MEMBERS = 16
MAX_MODULES = 4
CONTRACTS = (Format, Contents, View, Fragment, Writer, Findings, Storage, Directories, DirectoryLayout, StreamRules)
PAGE = Path(__file__).parents[2] / "docs/adding-a-format.md"
NAME = re.compile(r"`(\w+)`")
EXAMPLES = Path(__file__).parents[2] / "examples"


class _Example(Contents):
    views: ClassVar = {}


class _Smallest(Format):
    name, title, suffix = "smallest", "smallest format", ".small"
    views: ClassVar = {"rows": "", "damage": ""}

    def match(self, file: File, head: bytes) -> Match:
        return Match.NO

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return _Example(self, files, scan)


def members(contract: type) -> set[str]:
    """The public names of a class: methods, attributes, and what its constructor sets."""
    names = {name for cls in contract.__mro__[:-1] for name in [*vars(cls), *getattr(cls, "__annotations__", {})]}
    if contract is Contents:
        names |= vars(_Example(Format, [File("a", 0)], None)).keys()  # type: ignore[arg-type]
    return {name for name in names if not name.startswith("_")}


def table_of(page: str, title: str) -> list[list[str]]:
    """The cells of the table below a heading, without its first two lines."""
    section = page.split(f"\n### {title}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line.strip("|").split("|") for line in lines[2:]]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_page_names_every_member_and_nothing_else(contract: type) -> None:
    named = [name for cells in table_of(PAGE.read_text(), f"`{contract.__name__}`") for name in NAME.findall(cells[0])]
    assert sorted(named) == sorted(members(contract))


def test_the_page_names_every_capability_and_nothing_else() -> None:
    rows = table_of(PAGE.read_text(), "Capabilities")
    named = {NAME.findall(cells[0])[0]: set(NAME.findall(cells[2])) for cells in rows}
    assert named == {name: members(protocol) for name, protocol in protocols().items()}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_contract_has_few_members(contract: type) -> None:
    assert 2 < len(members(contract)) <= MAX_MEMBERS, sorted(members(contract))


def protocols() -> dict[str, type]:
    """What only some formats can do, by name."""
    return {
        name: protocol
        for name, protocol in vars(capabilities).items()
        if getattr(protocol, "_is_runtime_protocol", False)
    }


def test_capabilities_are_small_and_have_callers() -> None:
    assert len(protocols()) > 15
    assert max(len(members(protocol)) for protocol in protocols().values()) <= 4
    sources = [path.read_text() for path in (Path(__file__).parents[2] / "src/sawlog").rglob("*.py")]
    for name in protocols():
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


def test_a_small_format_is_read_only_and_selects_by_suffix() -> None:
    format, storage = _Smallest(), Storage()
    files = [File("a.small", 1, False), File("b", 1, True), File("c", 1, False)]
    assert [file.path for file in format.select(files, "rows")] == ["a.small", "b"]
    with pytest.raises(OptionError, match=r"x\.small: smallest is read, and not written"):
        format.writer("x.small", pa.schema([]), format.write_options(), storage)
    contents = format.open(files, Scan(storage=storage))
    with pytest.raises(OptionError, match="view 'rows' of smallest cannot be followed as a stream"):
        capabilities.require_followable(contents)
    assert capabilities.list_tables(contents) == []


def test_a_batch_is_assembled_of_columns_and_provenance() -> None:
    calls = 0

    def make_offsets() -> pa.Array:
        nonlocal calls
        calls += 1
        return pa.array([3, 7], pa.int64())

    schema = pa.schema([("_offset", pa.int64()), ("n", pa.int8()), ("_file", pa.string())])
    columns = {"n": pa.array([1, 2], pa.int8())}
    batch = assemble(schema, 2, columns, "a", make_offsets)
    assert batch.to_pydict() == {"_offset": [3, 7], "n": [1, 2], "_file": ["a", "a"]}
    assert assemble(pa.schema([]), 2, {}, "a", make_offsets).num_rows == 2
    assert assemble(schema.remove(0), 2, columns, "a", make_offsets).column_names == ["n", "_file"]
    assert calls == 1, "offsets that no column asks for are not made"
    with pytest.raises(KeyError):
        assemble(pa.schema([("other", pa.int8())]), 2, {}, "a", make_offsets)
