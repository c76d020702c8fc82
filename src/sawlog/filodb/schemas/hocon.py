"""FiloDB's configuration files: HOCON, with substitutions and includes."""

from __future__ import annotations

import os
import re
from typing import Any

from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, call_decoder, decoder_raising, optional

_REMOTE = re.compile(r"^[^#\n]*\binclude\b[^#\n]*\b(?:url|package)\s*\(", re.MULTILINE)


def parse(text: str, *, source: str, directory: str | None = None) -> dict[str, Any]:
    """Parse a document to plain dictionaries, lists and values.

    Args:
        text: The document. `include` finds files only.
        source: What it is, to begin error messages with.
        directory: Where included files are looked for; without it there are none.

    Raises:
        OptionError: When pyhocon is not installed.
        SchemaError: When it is not understood.
    """
    pyhocon = optional("pyhocon", "filodb", f"{source}: definitions in HOCON")

    if _REMOTE.search(text):
        raise SchemaError(f"{source}: include: only files can be included")
    if directory is None and re.search(r"^[^#\n]*\binclude\b\s*[\"(r]", text, re.MULTILINE):
        raise SchemaError(f"{source}: include: give the path of the definitions, so that files are found next to it")
    read = decoder_raising(pyhocon.ConfigFactory.parse_string, RecursionError, TypeError, AttributeError)
    tree = call_decoder(read, text, basedir=directory or os.devnull)
    if isinstance(tree, Undecodable):
        raise SchemaError(f"{source}: {tree.detail}")
    if not isinstance(tree, pyhocon.ConfigTree):
        raise SchemaError(f"{source}: expected an object, found a list")
    plain: dict[str, Any] = _plain(tree)
    return plain


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {_unquoted(key): _plain(value) for key, value in tree.items()}
    return [_plain(subtree) for subtree in tree] if isinstance(tree, list) else tree


def _unquoted(key: str) -> str:
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
