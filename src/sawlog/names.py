"""Names of files: which of them are left out, and their order."""

from __future__ import annotations

import re

_HIDDEN = (".", "_")


def hidden(name: str) -> bool:
    """Whether a file or directory of that name is left out of directories and globs."""
    return name.startswith(_HIDDEN)


def natural_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key that orders digits by value: `9` before `10`. Names that differ in leading zeros are not the same."""
    parts = [part for part in re.split(r"(\d+)", path) if part]
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]
