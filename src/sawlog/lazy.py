"""What is imported when it is asked for: the exports of packages, and attributes of classes."""

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


class _Imported:
    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(importlib.import_module(self._module), self._name)


def imported(module: str, name: str) -> Any:
    """An attribute of a class that is what a module defines under a name, and is imported when it is asked for."""
    return _Imported(module, name)
