"""Measures the house: what `make house` prints, and what `make lint` keeps from growing.

The limits are in `house.toml` next to this file. Lower them with `python tools/house.py --lower` after a change that
made something smaller; raising one is a decision for a review.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import sys
import tempfile
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
LIMITS = Path(__file__).with_name("house.toml")
SHORT_FUNCTION = 8
SHORT_MODULE = 60
_POINTER = re.compile(r"See `[^`]+`[^.]*\.")
_BARE = {"ABC", "Enum", "Exception", "Generic", "IntEnum", "NamedTuple", "Protocol", "object"}
"""Bases whose methods nobody overrides."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
PRONOUNS = re.compile(
    "_*(ones?|found|given|known|held|kept|seen|said|wanted|begun|where|whole|left|some|most|here|there|at|rest|others?"
    "|what|which|how|that|this|it|these|those|them|they|asked|needed|meant|told|lost|gone|made|taken|chosen|shown|such"
    "|same|own|both|n?either|every|more|least|whom|whose|nothing|something|anything|everything|nobody|somebody|another)_*"
)
"""Pronouns, participles and question words: none of them says what a variable holds."""
QUESTIONS = ("What", "One", "How", "Where", "Which", "Those", "See", "Whatever")
"""First words of docstrings that do not say what a class is, or what a function returns."""

VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
"""First words of functions' names: verbs, and what stands for one, such as `of`, `from`, `is` and `on`."""
_LIKE_FIELDS = {"property", "cached_property", "setter", "overload"}


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules, by name."""
    paths = sorted(SRC.rglob("*.py"))
    names = [path.relative_to(SRC).with_suffix("").as_posix().replace("/", ".") for path in paths]
    return {
        name.removesuffix(".__init__"): ast.parse(path.read_text()) for name, path in zip(names, paths, strict=True)
    }


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All that is in a syntax tree: a walk takes longer than what the measures do with it."""
    return tuple(node for node in ast.walk(tree) if not isinstance(node, ast.expr_context))


def lines() -> Iterator[str]:
    """Lines of Python."""
    for path in SRC.rglob("*.py"):
        yield from path.read_text().splitlines()


def small_modules() -> Iterator[str]:
    """Modules of a few lines, packages' `__init__` with nothing in it left out."""
    for path in SRC.rglob("*.py"):
        if 0 < len(path.read_text().splitlines()) < SHORT_MODULE:
            yield str(path.relative_to(SRC))


def one_caller_functions() -> Iterator[str]:
    """Short private functions whose name is defined once and used once: what they do could be where it is used."""
    defined: Counter[str] = Counter()
    used: Counter[str] = Counter()
    short = {}
    for name, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, FUNCTION):
                defined[node.name] += 1
                if (node.end_lineno or 0) - node.lineno + 1 < SHORT_FUNCTION and not node.decorator_list:
                    short[node.name] = f"{name}.{node.name}"
            elif isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
            elif isinstance(node, ast.ImportFrom):
                used.update(name.name for name in node.names if node.module and name.name not in defined)
    for name, place in short.items():
        if defined[name] == used[name] == 1 and not name.startswith("__"):
            yield place


def pointing_docstrings() -> Iterator[str]:
    """Docstrings that say no more than where to read."""
    for name, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, (*FUNCTION, ast.ClassDef)) and _POINTER.fullmatch(ast.get_docstring(node) or ""):
                yield f"{name}.{node.name}"


def question_docstrings() -> Iterator[str]:
    """Docstrings whose first word is a question word or a pronoun."""
    for name, tree in modules().items():
        for node in (tree, *nodes(tree)):
            if isinstance(node, (*FUNCTION, ast.ClassDef, ast.Module)):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                if first.rstrip(",.:;'s") in QUESTIONS:
                    yield f"{name}.{getattr(node, 'name', '')}".rstrip(".")


def noun_functions() -> Iterator[str]:
    """Functions and methods whose names do not begin with a verb."""
    for name, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, FUNCTION) and not node.name.startswith("__"):
                decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
                if node.name.strip("_").partition("_")[0] not in VERBS and not decorators & _LIKE_FIELDS:
                    yield f"{name}:{node.lineno} {node.name}"


def noun_docstrings() -> Iterator[str]:
    """Docstrings of functions that begin with an article: they name a thing and do not say what is done."""
    for name, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, FUNCTION):
                decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                if first in {"A", "An", "The"} and not decorators & _LIKE_FIELDS:
                    yield f"{name}:{node.lineno} {node.name}"


def pronouns() -> Iterator[str]:
    """Variables and parameters that are called by a pronoun or a participle."""
    yield from _list_pronouns(modules())


def test_pronouns() -> Iterator[str]:
    """Variables and parameters of tests, benchmarks, examples and tools that are called so."""
    paths = [path for folder in ("tests", "benchmarks", "examples", "tools") for path in (ROOT / folder).rglob("*.py")]
    yield from _list_pronouns({str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths})


def _list_pronouns(trees: dict[str, ast.Module]) -> Iterator[str]:
    for name, tree in trees.items():
        for node in nodes(tree):
            if isinstance(node, ast.Name) and PRONOUNS.fullmatch(node.id):
                if isinstance(node.ctx, ast.Store):
                    yield f"{name}:{node.lineno} {node.id}"
            elif isinstance(node, ast.arg) and PRONOUNS.fullmatch(node.arg):
                yield f"{name}:{node.lineno} {node.arg}"


def undocumented_methods() -> Iterator[str]:
    """Public methods without a docstring whose class has no base that could have one."""
    classes_by_name: dict[str, list[ast.ClassDef]] = {}
    for tree in modules().values():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                classes_by_name.setdefault(node.name, []).append(node)

    def inherited(classes: list[ast.ClassDef], name: str) -> bool:
        bases = [re.split(r"[\[(]", ast.unparse(base))[0].rpartition(".")[2] for cls in classes for base in cls.bases]
        return any(
            base not in _BARE
            if base not in classes_by_name
            else documented(classes_by_name[base], name) or inherited(classes_by_name[base], name)
            for base in bases
        )

    def documented(classes: list[ast.ClassDef], name: str) -> bool:
        return any(
            isinstance(node, FUNCTION) and node.name == name and ast.get_docstring(node)
            for cls in classes
            for node in cls.body
        )

    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for method in node.body:
                    bare = isinstance(method, FUNCTION) and not method.decorator_list and not ast.get_docstring(method)
                    if bare and not method.name.startswith("_") and not inherited([node], method.name):
                        yield f"{module}.{node.name}.{method.name}"


def late_imports() -> Iterator[str]:
    """Imports inside functions."""
    for name, tree in modules().items():
        inside = [range(node.lineno, (node.end_lineno or 0) + 1) for node in nodes(tree) if isinstance(node, FUNCTION)]
        for node in nodes(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and any(node.lineno in lines for lines in inside):
                yield f"{name}:{node.lineno}"


def circles() -> Iterator[str]:
    """Groups of modules that import each other, imports for types included."""
    trees = modules()
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        names = set()
        for node in nodes(tree):
            if isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {f"{node.module}.{name.name}" for name in node.names}
        names = {
            imported_name if imported_name in trees else imported_name.rpartition(".")[0] for imported_name in names
        }
        graph[name] = (names & trees.keys()) - {name, "sawlog"}
    reach = {name: _reached(graph, name) for name in graph}
    groups = {frozenset({name, *(module for module in reach[name] if name in reach[module])}) for name in graph}
    for group in groups:
        if len(group) > 1:
            yield " ".join(sorted(group))


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    visited: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - visited:
            visited.add(module)
            waiting.append(module)
    return visited


def public_names() -> Iterator[str]:
    """Functions, classes and constants at the top of modules whose names have no underscore in front."""
    for name, tree in modules().items():
        for node in tree.body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if isinstance(node, (*FUNCTION, ast.ClassDef)):
                names = [node.name]
            yield from (f"{name}.{name_at_top}" for name_at_top in names if not name_at_top.startswith("_"))


MEASURES: dict[str, Callable[[], Iterator[str]]] = {
    "lines": lines,
    "small_modules": small_modules,
    "one_caller_functions": one_caller_functions,
    "pointing_docstrings": pointing_docstrings,
    "question_docstrings": question_docstrings,
    "noun_functions": noun_functions,
    "noun_docstrings": noun_docstrings,
    "pronouns": pronouns,
    "test_pronouns": test_pronouns,
    "undocumented_methods": undocumented_methods,
    "late_imports": late_imports,
    "circles": circles,
    "public_names": public_names,
}


def measured(name: str) -> int:
    """How many there are of what one measure counts."""
    return sum(1 for _ in MEASURES[name]())


def limits() -> dict[str, int]:
    """How many there may be."""
    return tomllib.loads(LIMITS.read_text())


def trips() -> Iterator[tuple[str, int, int]]:
    """For one read of each format: the modules it enters, and how often it moves from one to another."""
    import pyarrow as pa

    import sawlog
    from sawlog.cli import main

    data, containers = ROOT / "examples/data/shop", ROOT / "tests/golden/filodb/gauge_100.container"
    log = data / "000003.log"
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "value": [1.0] * 100})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sawlog.write(rows, folder / "binlog", format="milvus_binlog", primary_key="id")
        sawlog.write(rows, folder / "log.bin", format="deephaven_log")
        sawlog.write(rows, folder / "columns", format="deephaven_table")
        operations = sawlog.read(log, view="writes", columns=["sequence", "operation", "key", "value"])
        sawlog.write(operations.slice(0, 1), folder / "table.ldb", format="leveldb_table")
        reads = {
            "leveldb_log": log,
            "leveldb_table": folder / "table.ldb",
            "leveldb_database": data,
            "deephaven_log": folder / "log.bin",
            "deephaven_table": folder / "columns",
            "filodb_record": containers,
            "milvus_binlog": folder / "binlog",
        }
        for name, path in reads.items():
            yield name, *_trip(lambda path=path, name=name: sawlog.read(path, format=name, use_threads=False))
        yield "one look of a watch", *_trip(lambda: sawlog.open(log, format="leveldb_log").watch().look())
        yield "sawlog verify FILE", *_trip(lambda: main(["verify", str(log)]))


def _trip(call: Callable[[], Any]) -> tuple[int, int]:
    root = str(SRC / "sawlog") + os.sep
    rooms: list[str] = []

    def entered(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root) and (not rooms or rooms[-1] != name):
            rooms.append(name)

    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()  # imports, and kernels that are compiled
        sys.setprofile(entered)
        try:
            call()
        finally:
            sys.setprofile(None)
    return len(set(rooms)), len(rooms) - 1


def main() -> int:
    """Print the measures next to their limits: 1 where one is exceeded."""
    parser = argparse.ArgumentParser(description="Measure the house.")
    parser.add_argument("--lower", action="store_true", help="make what is measured the limit, where that is lower")
    parser.add_argument("--limits", action="store_true", help="leave out how many modules a read enters")
    parser.add_argument("--list", choices=MEASURES, help="list what one measure counts")
    arguments = parser.parse_args()
    if arguments.list:
        print(*sorted(MEASURES[arguments.list]()), sep="\n")
        return 0
    counts, allowed = {name: measured(name) for name in MEASURES}, limits() if LIMITS.exists() else {}
    for name, count in counts.items():
        print(f"{name:22}{count:8,} of {allowed.get(name, 0):,}")
    if arguments.lower:
        lowered = {name: min(count, allowed.get(name, count)) for name, count in counts.items()}
        LIMITS.write_text("".join(f"{name} = {count}\n" for name, count in lowered.items()))
    for name, rooms, moves in () if arguments.limits else trips():
        print(f"{name:22}{rooms:8} rooms, {moves:,} moves")
    return 1 if any(count > allowed.get(name, 0) for name, count in counts.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
