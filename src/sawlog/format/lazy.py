"""Imports on demand: the exports of packages, attributes of classes, and entry points."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def exported(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: Its name.
        places: Its modules, and the names that come from each; "" for the names of modules.
    """
    homes = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(f"{package}.{homes[name] or name}")
        return getattr(home, name) if homes[name] else home

    return find


class _Imported:
    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: object, owner: type) -> Any:
        loaded = getattr(importlib.import_module(self._module), self._name)
        setattr(owner, self._attribute, loaded)
        return loaded


def imported(module: str, name: str) -> Any:
    """An attribute of a class that is what a module defines under a name, and is imported when it is asked for."""
    return _Imported(module, name)


@functools.cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of all installed packages in a group, by their names, in the order of these."""
    return {point.name: point for point in sorted(installed().select(group=group), key=lambda point: point.name)}


@functools.cache
def installed() -> Any:
    """All of them: to look for one group takes as long, for the files of all packages are read."""
    from importlib.metadata import entry_points

    return entry_points()
