"""A TOML file whose mistakes can be named by line and key, and whose secrets stay where they are."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import OptionError
from sawlog.pipeline.secrets import Secrets, looks_secret

Path = tuple[str, ...]

_REQUIRED: Any = object()
_NAMED = ("sources", "steps", "sinks")
"""Tables of tables whose names are the user's."""


@dataclass(frozen=True)
class Document:
    """A file, parsed.

    Attributes:
        name: The file, as it was named to sawlog.
        root: Its values, with what they take from the environment.
        written: Its values as they were written.
        lines: The line, from 1, on which each key and table stands.
        secrets: What was taken from the environment.
    """

    name: str
    root: dict[str, Any] = field(repr=False)
    written: dict[str, Any] = field(repr=False)
    lines: dict[Path, int] = field(repr=False)
    secrets: Secrets

    @classmethod
    def load(cls, name: str, environment: Mapping[str, str] | None = None) -> Document:
        """Read a file.

        Args:
            name: Its path.
            environment: What `${env:NAME}` refers to; by default the environment of the process.

        Raises:
            OptionError: For what is no TOML, for variables that are not set, and for secrets written out.
            OSError: When it cannot be read.
        """
        with open(name, "rb") as file:
            data = file.read()
        try:
            text = data.decode()
            written = tomllib.loads(text)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise OptionError(f"{name}:{line}: expected UTF-8; found byte {data[error.start]:#04x}") from None
        except tomllib.TOMLDecodeError as error:
            raise OptionError(f"{name}: no TOML: {error}") from None
        secrets = Secrets(os.environ if environment is None else environment)
        lines: dict[Path, int] = {}
        for path, line in _locate(text):
            lines.setdefault(path, line)
        document = cls(name, {}, written, lines, secrets)
        document.root.update(document._resolve(written, ()))
        return document

    def error(self, path: Path, message: str) -> OptionError:
        """An error that begins with file, line and key."""
        return OptionError(f"{self.where(path)}: {message}")

    def where(self, path: Path) -> str:
        """File, line and key, as messages begin."""
        found = path
        while found and found not in self.lines:
            found = found[:-1]
        line = f":{self.lines[found]}" if found else ""
        key = f": {'.'.join(path)}" if path else ""
        return f"{self.name}{line}{key}"

    def table(self, *path: str) -> Table:
        """A table of the file; an empty one where there is none."""
        value: Any = self.root
        for key in path:
            value = value.get(key, {})
        if not isinstance(value, dict):
            raise self.error(path, f"expected a table; found {_name(value)}")
        return Table(self, path, value)

    def _resolve(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: self._resolve(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner, path) for inner in value]
        if not isinstance(value, str):
            return value
        try:
            resolved = self.secrets.resolve(value)
        except OptionError as error:
            raise self.error(path, str(error)) from None
        own = path[2:] if path[0] in _NAMED else path[1:]
        if resolved == value and looks_secret(own, value):
            raise self.error(path, "secrets are not written into the file; name a variable, as in ${env:NAME}")
        return resolved


@dataclass(frozen=True)
class Table:
    """One table of a document, whose keys are taken one by one, each with the type that is expected."""

    document: Document
    path: Path
    values: dict[str, Any] = field(repr=False)

    def known(self, keys: Iterable[str]) -> None:
        """Refuse every key but these.

        Raises:
            OptionError: Names the first unknown key, its line and what it may have been meant to be.
        """
        names = list(keys)
        for key in self.values:
            if key not in names:
                close = difflib.get_close_matches(key, names, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"
                raise self.error(key, f"unknown key; {hint}")

    def error(self, key: str | None, message: str) -> OptionError:
        """An error about one key, or about the table."""
        return self.document.error(self.path if key is None else (*self.path, key), message)

    def text(self, key: str, default: str | None = _REQUIRED) -> Any:
        """A string that is not empty."""
        value = self._take(key, str, "a string", default)
        if value == "":
            raise self.error(key, "expected a string that is not empty")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = _REQUIRED) -> Any:
        """One of some strings."""
        value = self._take(key, str, f"one of {', '.join(choices)}", default)
        if value is not default and value not in choices:
            raise self.error(key, f"expected one of {', '.join(choices)}; found {value!r}")
        return value

    def truth(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self._take(key, bool, "true or false", default))

    def port(self, key: str) -> int:
        """The number of a port; 0 lets the system choose."""
        value = self._take(key, int, "the number of a port", _REQUIRED)
        if isinstance(value, bool) or not 0 <= value < 1 << 16:
            raise self.error(key, f"expected the number of a port; found {value!r}")
        return int(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, by default an empty one."""
        values = self._take(key, list, "a list of strings", [])
        if not all(isinstance(value, str) and value for value in values):
            raise self.error(key, "expected a list of strings")
        return tuple(values)

    def table(self, key: str) -> Table:
        """A table in this one, by default an empty one."""
        return self.document.table(*self.path, key)

    def tables(self) -> Iterator[tuple[str, Table]]:
        """The named tables that this one is made of, in order."""
        for key in self.values:
            yield key, self.table(key)

    def options(self) -> dict[str, str]:
        """All values as Spark takes options: strings, with the names of tables joined by dots.

        Raises:
            OptionError: For a value that is no string, number, truth or list of them.
        """
        return dict(self._flatten(self.values, ()))

    def _flatten(self, values: dict[str, Any], path: Path) -> Iterator[tuple[str, str]]:
        for key, value in values.items():
            inner = (*path, key)
            if isinstance(value, dict):
                yield from self._flatten(value, inner)
            elif isinstance(value, list):
                if not all(isinstance(item, str | int | float) for item in value):
                    raise self.document.error((*self.path, *inner), "expected strings or numbers in the list")
                yield ".".join(inner), ",".join(map(option_text, value))
            elif isinstance(value, str | int | float):
                yield ".".join(inner), option_text(value)
            else:
                raise self.document.error((*self.path, *inner), f"expected a string or a number; found {_name(value)}")

    def _take(self, key: str, kind: type, expected: str, default: Any) -> Any:
        if key not in self.values:
            if default is _REQUIRED:
                raise self.error(None, f"key {key!r} is missing; expected {expected}")
            return default
        value = self.values[key]
        if not isinstance(value, kind):
            raise self.error(key, f"expected {expected}; found {_name(value)}")
        return value


def option_text(value: str | float) -> str:
    """A value as Spark takes options."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(value: object) -> str:
    names = {
        dict: "a table",
        list: "a list",
        str: "a string",
        bool: "a truth value",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "a date or time")


def _locate(text: str) -> Iterator[tuple[Path, int]]:
    """The line of every table and key of a text that is known to be TOML.

    A statement of TOML ends where a line ends and all before it can be parsed.
    """
    lines = [line + "\n" for line in text.split("\n")]
    table: Path = ()
    start = 0
    while start < len(lines):
        statement, end = lines[start], start + 1
        while (parsed := _parse(statement)) is None and end < len(lines):
            statement += lines[end]
            end += 1
        paths = list(_paths(parsed or {}, ()))
        if statement.lstrip().startswith("["):
            table = max(paths, key=len)
            yield from ((path, start + 1) for path in paths)
        else:
            yield from ((table + path, start + 1) for path in paths)
        start = end


def _parse(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return None


def _paths(values: Any, path: Path) -> Iterator[Path]:
    if isinstance(values, list) and len(values) == 1:  # [[table]]
        yield from _paths(values[0], path)
    if isinstance(values, dict):
        for key, value in values.items():
            yield (*path, key)
            yield from _paths(value, (*path, key))
