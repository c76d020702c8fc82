"""A TOML file whose mistakes can be named by line and key, and whose secrets stay where they are."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import OptionError
from sawlog.guard import Undecodable, call_decoder, wrap_decoder
from sawlog.pipeline.secrets import Secrets, looks_secret

Path = tuple[str, ...]

_NAMED = ("sources", "steps", "sinks")
"""Tables of tables whose names are the user's."""


@dataclass(frozen=True)
class Document:
    """A file, parsed.

    Attributes:
        name: The file, as it was named to sawlog.
        root: Its values, with what they take from the environment.
        written: Its values as they were written.
        lines: The line, from 1, of each key and table.
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
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise OptionError(f"{name}:{line}: expected UTF-8; found byte {data[error.start]:#04x}") from None
        written = call_decoder(_parse_toml, text)
        if isinstance(written, Undecodable):
            raise OptionError(f"{name}: no TOML: {written.detail}")
        secrets = Secrets(os.environ if environment is None else environment)
        lines: dict[Path, int] = {}
        for path, line in _locate_keys(text):
            lines.setdefault(path, line)
        document = cls(name, {}, written, lines, secrets)
        document.root.update(document._resolve(written, ()))
        return document

    def make_error(self, path: Path, message: str) -> OptionError:
        """Return an error that begins with file, line and key."""
        return OptionError(f"{self.describe_place(path)}: {message}")

    def describe_place(self, path: Path) -> str:
        """Return the file, line and key, as messages begin."""
        located_path = path
        while located_path and located_path not in self.lines:
            located_path = located_path[:-1]
        line = f":{self.lines[located_path]}" if located_path else ""
        key = f": {'.'.join(path)}" if path else ""
        return f"{self.name}{line}{key}"

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
            raise self.make_error(path, str(error)) from None
        relative_path = path[2:] if path[0] in _NAMED else path[1:]
        if resolved == value and looks_secret(relative_path, value):
            raise self.make_error(path, "secrets are not written into the file; name a variable, as in ${env:NAME}")
        return resolved


def _locate_keys(text: str) -> Iterator[tuple[Path, int]]:
    """Yield the line of every table and key of a text that is known to be TOML.

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
        paths = list(_walk_paths(parsed or {}, ()))
        if statement.lstrip().startswith("["):
            table = max(paths, key=len)
            yield from ((path, start + 1) for path in paths)
        else:
            yield from ((table + path, start + 1) for path in paths)
        start = end


_parse_toml = wrap_decoder(tomllib.loads, RecursionError)


def _parse(statement: str) -> dict[str, Any] | None:
    document = call_decoder(_parse_toml, statement)
    return None if isinstance(document, Undecodable) else document


def _walk_paths(values: Any, path: Path) -> Iterator[Path]:
    if isinstance(values, list) and len(values) == 1:  # [[table]]
        yield from _walk_paths(values[0], path)
    if isinstance(values, dict):
        for key, value in values.items():
            yield (*path, key)
            yield from _walk_paths(value, (*path, key))
