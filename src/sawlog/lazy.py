"""Packages that import what they export when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def exported(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: Its name.
        places: Its modules, and the names that come from each.
    """
    homes = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find
