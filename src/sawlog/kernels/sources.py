"""Sources of kernels: the definitions in files that they use, and digests of these.

A kernel uses the definitions whose names appear in it, in its module or in those that it imports from, and what these
use in turn. A digest of definitions is one of their syntax: comments, docstrings and everything that no kernel uses may
change. Nothing is imported, since the library is looked at in every process.

A statement of a module that is neither a definition nor an assignment to plain names may do anything, so it belongs to
all that is used of the module. What is imported for its effects, or by a name that is made of strings, is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import symtable
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

ALL = "*"
"""In place of a name: all of a module."""
_KERNELS = {"kernel", "wide_kernel"}
_COMPILED = {"inlined", "always_inlined", "walker", "intrinsic"}
"""Decorators of functions whose annotations nobody reads."""
_NEVER = {"TYPE_CHECKING", "__name__ == '__main__'"}
"""What does not hold when a module is imported."""
_NOT_FOLLOWED = {"sawlog.kernels.jit": {"MODE", "Kernel"}}
"""By module, names of what decides how processes call kernels. The build compiles them by itself."""


def find_module(path: str) -> str:
    """Return the module in a file."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


class Use(NamedTuple):
    """A name that a definition takes from another module.

    Attributes:
        module: The module.
        name: What is imported from it, or `ALL`.
        attribute: What is taken of that; empty when it is used as a whole.
    """

    module: str
    name: str
    attribute: str = ""


def _free(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names in a statement that may be those of the module."""
    local = table.get_type() == "function"
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() or not local)
    for inner in table.get_children():
        yield from _free(inner)


class _Code(ast.NodeTransformer):
    """Drops what does not change how a definition works."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if {ast.unparse(decorator) for decorator in node.decorator_list} <= _COMPILED:
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        return self.generic_visit(node)


class Source:
    """A module's definitions.

    Attributes:
        path: Its path, which begins with that of its package.
        module: Its name.
        kernels: The names of kernels in it, and whether they have second entries.

    Args:
        path: See above.
        text: Its text.
    """

    def __init__(self, path: str, text: str | bytes) -> None:
        self.path = path
        self.module = find_module(path)
        self._package = self.module if path.endswith("/__init__.py") else self.module.rpartition(".")[0]
        self._statements: list[ast.stmt] = []
        self._always: set[int] = set()
        self._defined: dict[str, set[int]] = {}
        self._imported: dict[str, Use] = {}
        self.kernels: dict[str, bool] = {}
        for statement in ast.parse(text).body:
            self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._imported |= self._list_imports(statement)
            return
        is_never = isinstance(statement, ast.If) and ast.unparse(statement.test) in _NEVER and not statement.orelse
        if is_never or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return
        place = len(self._statements)
        self._statements.append(statement)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names = [statement.name]
            if marks := _KERNELS.intersection(map(ast.unparse, statement.decorator_list)):
                self.kernels[statement.name] = "wide_kernel" in marks
        elif isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        else:
            names = []
            self._always.add(place)
            for node in ast.walk(statement):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self._imported |= self._list_imports(node)
        for name in names:
            self._defined.setdefault(name, set()).add(place)

    def _list_imports(self, node: ast.Import | ast.ImportFrom) -> dict[str, Use]:
        """Return the names that an import binds."""
        if isinstance(node, ast.Import):
            return {alias.asname or alias.name.partition(".")[0]: Use(alias.name, ALL) for alias in node.names}
        module = node.module or ""
        if node.level:
            base = ".".join(self._package.split(".")[: len(self._package.split(".")) + 1 - node.level])
            module = f"{base}.{module}".rstrip(".")
        return {alias.asname or alias.name: Use(module, alias.name) for alias in node.names}

    @functools.cache  # noqa: B019 # as many as there are modules
    def _analyze_statement(self, place: int) -> tuple[str, set[str], set[Use]]:
        """Return the syntax of a statement, the names in it and in its texts, and what it takes from other modules."""
        statement = _Code().visit(self._statements[place])
        free = set(_free(symtable.symtable(ast.unparse(statement), self.path, "exec")))
        plain, parents = set[str](), set[str]()
        uses, visited = set[Use](), set[ast.expr]()
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in free and node.value.id in self._imported:
                    visited.add(node.value)
                    parents.add(node.value.id)
                    uses.add(self._imported[node.value.id]._replace(attribute=node.attr))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                uses.update(self._list_imports(node).values())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                plain.update(re.findall(r"\w+", node.value))
            elif isinstance(node, ast.Name) and node.id in free and node not in visited:
                plain.add(node.id)
        plain -= _NOT_FOLLOWED.get(self.module, set())
        uses.update(use for name, use in self._imported.items() if name in plain or name == ALL)
        return ast.dump(statement), plain | parents, uses

    def _reached(self, names: Iterable[str]) -> list[int]:
        """Return statements of what is defined by these names, and of what that uses, in order."""
        reached: set[int] = set()
        pending: list[int] = []
        for name in names:
            pending += range(len(self._statements)) if name == ALL else self._defined.get(name, ())
            pending += self._always if self.defines(name) else ()
        while pending:
            place = pending.pop()
            if place not in reached:
                reached.add(place)
                _, used, _ = self._analyze_statement(place)
                pending += range(len(self._statements)) if "globals" in used else []
                pending += [definition for name in used for definition in self._defined.get(name, ())]
        return sorted(reached)

    def defines(self, name: str) -> bool:
        """Return whether the module has a definition of that name, or imports it."""
        return name == ALL or name in self._defined or name in self._imported

    def uses(self, name: str) -> set[Use]:
        """Return the definitions of other modules that a definition uses, also through others in this module."""
        uses = {use for place in self._reached([name]) for use in self._analyze_statement(place)[2]}
        return uses | ({self._imported[name]} if name in self._imported else set())

    def collect_names(self, requested_names: Iterable[str]) -> set[str]:
        """Return names of definitions, and all that appear in these and in others of this module that they use."""
        requested_names = [*requested_names]
        return {
            *requested_names,
            *(name for place in self._reached(requested_names) for name in self._analyze_statement(place)[1]),
        }

    def compute_digest(self, names: Iterable[str]) -> str:
        """Return the digest of definitions, of others in this module that they use, and of what all of these import."""
        names = sorted(names)
        parts = [self._analyze_statement(place) for place in self._reached(names)]
        used = self.collect_names(names)
        imported = sorted((name, *use) for name, use in self._imported.items() if name in used)
        return hashlib.sha256(repr((names, imported, [syntax for syntax, *_ in parts])).encode()).hexdigest()
