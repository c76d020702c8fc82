"""Names of files: one spelling per place, which of them are left out, and their order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]

_URL = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]+):")
_DIGITS = re.compile(r"([0-9]+)")
_SHAPE = str.maketrans(dict.fromkeys("123456789", "0"))
_HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}

HIDDEN = (".", "_")
"""What the names of files and directories begin with that are left out of directories and globs."""


def is_hidden_directory(directory: str) -> bool:
    """Return whether a directory of that name, and all that is below it, is left out of a walk.

    A directory `_metadata` is not: storage engines keep there what says which of the other files are alive.
    """
    return directory.startswith(HIDDEN) and directory != "_metadata"


def sort_files(files: Iterable[Any]) -> list[Any]:
    """Return files in the natural order of their paths.

    Where digits are at the same places of all paths, as in `000007` and `000010`, that is the order of texts.
    """
    files = list(files)
    shapes = {file.path.translate(_SHAPE) for file in files}
    return sorted(files, key=lambda file: make_natural_key(file.path) if len(shapes) > 1 else file.path)


def make_natural_key(path: str) -> str:
    """Return a sort key that orders digits by value: `9` before `10`. Names with other leading zeros stay different.

    It is one string, because sorting holds the keys of all files at a time. A number comes before any text.
    """
    directory, separator, name = path.rpartition("/")
    key = _make_part_key.__wrapped__(name)  # while names of directories are those of many files
    return f"{'/'.join(map(_make_part_key, directory.split('/')))}/{key}" if separator else key


@lru_cache(1 << 10)
def _make_part_key(name: str) -> str:
    """Return the sort key of a name in a path."""
    parts = _DIGITS.split(name)  # every other part is of digits
    parts[1::2] = [
        f"\0{chr(len(number))}{number}{digits}\0" for digits in parts[1::2] for number in (digits.lstrip("0"),)
    ]
    return "".join(parts)


def normalize(path: PathLike) -> str:
    """Return one spelling per place: `file:` URLs become local paths, Hadoop's schemes their fsspec counterparts."""
    text = os.fspath(path)
    match = _URL.match(text)
    if match is None:
        return text
    scheme = match[1].lower()
    if scheme == "file":
        return re.sub(r"^file:(//[^/]*)?", "", text)
    return _HADOOP_SCHEMES.get(scheme, match[1]) + text[match.end() - 1 :]


def is_remote(path: str) -> bool:
    """Return whether a normalized path is a URL for fsspec."""
    return "://" in path or "::" in path
