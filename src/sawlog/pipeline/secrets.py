"""Secrets: taken from the environment, never written into a pipeline's file, never printed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sawlog.errors import OptionError

_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET = {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "credential", "credentials", "jaas"}
_SECRET_PAIRS = {
    ("access", "key"),
    ("account", "key"),
    ("api", "key"),
    ("connection", "string"),
    ("encryption", "key"),
    ("private", "key"),
    ("session", "key"),
}
_SECRET_WORDS = {"apikey", "accesskey", "accountkey", "privatekey"}
_NO_SECRETS = {"class", "enabled", "endpoint", "file", "location", "path", "provider", "type", "url"}
"""Last words of keys that only say where a secret is, or what kind of one."""
_CREDENTIALS_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")
_SHORTEST = 3
"""Characters below which hiding a value would hide ordinary text."""


@dataclass
class Secrets:
    """Values from the environment, and texts without them."""

    environment: Mapping[str, str] = field(repr=False)
    values: dict[str, str] = field(default_factory=dict, repr=False)

    def resolve(self, text: str) -> str:
        """Return a text with the values of the variables that it names as `${env:NAME}`.

        Raises:
            OptionError: When one is not set, or its name is none.
        """

        def resolve_variable(match: re.Match[str]) -> str:
            name = match[1]
            if not _NAME.fullmatch(name):
                raise OptionError(f"{match[0]}: expected the name of an environment variable, as in ${{env:NAME}}")
            if name not in self.environment:
                raise OptionError(f"environment variable {name} is not set")
            self.values[name] = self.environment[name]
            return self.values[name]

        return _VARIABLE.sub(resolve_variable, text)

    def redact(self, text: str) -> str:
        """Return a text in which every value from the environment is the name of its variable again."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            if len(value) >= _SHORTEST:
                for written in (value, json.dumps(value)[1:-1]):
                    text = text.replace(written, f"${{env:{name}}}")
        return text


def looks_secret(path: tuple[str, ...], value: str) -> bool:
    """Return whether a key, given with the tables around it, or the value itself says that the value is a secret."""
    if _CREDENTIALS_IN_URL.search(value):
        return True
    words = [word.lower() for word in _WORD.findall(" ".join(path))]
    if not value or not words or words[-1] in _NO_SECRETS:
        return False
    named = _SECRET.intersection(words) or _SECRET_WORDS.intersection(words)
    return bool(named) or not _SECRET_PAIRS.isdisjoint(itertools.pairwise(words))
