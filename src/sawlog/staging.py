"""What is written and not yet visible: how it is named, and how it is made durable."""

from __future__ import annotations

import contextlib
import os
import re
import uuid

STAGED_SUFFIX = ".sawlog-staged"


def staged_name(final: str, marker: str) -> str:
    """A new hidden name beside the place where something will be published."""
    tail = os.path.split(final)[1]
    # What stands before the name stays as it is: `memory://name` has no directory that could be joined to it.
    return f"{final[: len(final) - len(tail)]}.{tail}.{marker}{uuid.uuid4().hex[:12]}{STAGED_SUFFIX}"


def staged_end(path: str) -> int:
    """Where the name of the outermost staged file or directory of a path ends but for its suffix; -1: there is none."""
    for place in re.finditer(re.escape(STAGED_SUFFIX), path):
        if path[place.end() : place.end() + 1] in ("", "/", os.sep):
            return place.start()
    return -1


def sync_file(path: str) -> None:
    """Have the bytes of a file safe on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make a rename durable, where directories can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
