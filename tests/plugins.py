"""Packages of formats, as if they were installed in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sawlog.format import lazy, recognition
from sawlog.kernels import native


@contextmanager
def installed_package(package: str, paths: Sequence[str]) -> Iterator[None]:
    """Have a package found in these directories, which hold its modules and its entry points."""
    sys.path[:0] = paths
    forget_package(package)
    try:
        yield
    finally:
        for path in paths:
            sys.path.remove(path)
        forget_package(package)


def forget_package(package: str) -> None:
    """Forget what this process knows of a package: other tests find it in another directory."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    for cached in (
        lazy.list_entry_points,
        lazy.find_entry_points,
        recognition.load,
        recognition.load_formats,
        recognition.get_format,
        native.find_root,
        native.read_table,
        native.find_misfit,
        native.load_library,
    ):
        cached.cache_clear()
