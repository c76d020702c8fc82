"""As much of HOCON as FiloDB's schema definitions use: objects, lists, strings, numbers, booleans, comments.

Substitutions, includes and `+=` are refused by name. Keys with dots make nested objects.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sawlog.errors import SchemaError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*|//[^\n]*)|(?P<line>\n|,)|(?P<mark>[{}\[\]=:])|"""
    r'''(?P<long>"""(?:.|\n)*?""")|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<bare>[^\s{}\[\]=:,"\#$+`^?!@*&\\]+)'''
)
_NUMBER = re.compile(r"-?\d+")
_MAX_DEPTH = 32


def parse(text: str, *, where: str) -> dict[str, Any]:
    """Parse a document: an object with or without its outer braces.

    Args:
        text: The document.
        where: What it is, to begin error messages with.

    Raises:
        SchemaError: When it is not understood; the message names the line.
    """
    parser = _Parser(text, where)
    parser.skip_lines()
    if parser.peek() == "{":
        parser.take()
        found = parser.object("}")
    else:
        found = parser.object("")
    parser.skip_lines()
    if parser.peek():
        raise parser.error("expected the end")
    return found


def quote(text: str) -> str:
    """A string as HOCON reads it back."""
    return (
        text if re.fullmatch(r"[A-Za-z_][\w-]*", text) and text not in ("true", "false", "null") else json.dumps(text)
    )


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens: list[tuple[str, str, int]] = []
        self._next = 0
        self._depth = 0
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise SchemaError(f"{where}: line {line}: unexpected {text[at : at + 20]!r}")
            if match.lastgroup != "space":
                self._tokens.append((match.lastgroup or "", match[0], line))
            line += match[0].count("\n")
            at = match.end()

    def peek(self) -> str:
        """The next token's text; empty at the end."""
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def take(self) -> tuple[str, str]:
        """The next token's group and text."""
        if self._next >= len(self._tokens):
            raise self.error("unexpected end")
        group, text, _ = self._tokens[self._next]
        self._next += 1
        return group, text

    def skip_lines(self) -> None:
        while self.peek() in ("\n", ","):
            self._next += 1

    def error(self, what: str) -> SchemaError:
        """An error at the current token."""
        if self._next >= len(self._tokens):
            return SchemaError(f"{self._where}: {what} at the end")
        _, text, line = self._tokens[self._next]
        return SchemaError(f"{self._where}: line {line}: {what}, found {text!r}")

    def object(self, end: str) -> dict[str, Any]:
        """Fields up to the closing token."""
        self._enter()
        found: dict[str, Any] = {}
        self.skip_lines()
        while self.peek() != end:
            path = self._key()
            while self.peek() == "\n":
                self._next += 1
            if self.peek() in ("=", ":"):
                self._next += 1
            elif self.peek() != "{":
                raise self.error(f"expected '=', ':' or '{{' after {'.'.join(path)!r}")
            _put(found, path, self.value())
            self.skip_lines()
        if end:
            self._next += 1
        self._depth -= 1
        return found

    def value(self) -> Any:
        """One value."""
        while self.peek() == "\n":
            self._next += 1
        if self.peek() == "{":
            self._next += 1
            return self.object("}")
        if self.peek() == "[":
            self._next += 1
            return self._list()
        group, text = self.take()
        if group in ("string", "long"):
            return _unquote(group, text)
        if group != "bare":
            self._next -= 1
            raise self.error("expected a value")
        words = [text]
        while self._next < len(self._tokens) and self._tokens[self._next][0] == "bare":
            words.append(self.take()[1])
        return _plain(" ".join(words))

    def _list(self) -> list[Any]:
        self._enter()
        found = []
        self.skip_lines()
        while self.peek() != "]":
            found.append(self.value())
            self.skip_lines()
        self._next += 1
        self._depth -= 1
        return found

    def _key(self) -> list[str]:
        group, text = self.take()
        if group in ("string", "long"):
            return [_unquote(group, text)]
        if group != "bare":
            self._next -= 1
            raise self.error("expected a name")
        if text == "include":
            raise SchemaError(f"{self._where}: include is not supported: put the definitions into one file")
        return text.split(".")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(f"nested more than {_MAX_DEPTH} deep")


def _unquote(group: str, text: str) -> str:
    if group == "long":
        return text[3:-3]
    try:
        return str(json.loads(text))
    except json.JSONDecodeError as error:
        raise SchemaError(f"not a string: {text}") from error


def _plain(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        return None
    return int(text) if _NUMBER.fullmatch(text) else text


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    *outer, name = path
    for part in outer:
        inner = found.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = found[part] = {}
        found = inner
    old = found.get(name)
    if isinstance(old, dict) and isinstance(value, dict):
        for key, one in value.items():
            _put(old, [key], one)
    else:
        found[name] = value
