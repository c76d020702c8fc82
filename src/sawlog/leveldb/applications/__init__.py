"""What applications put into keys and values of databases, as views: a module for each, found by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sawlog.format.lazy import entry_points

if TYPE_CHECKING:
    from sawlog.leveldb.applications.view import ApplicationView

ENTRY_POINT_GROUP = "sawlog.leveldb_views"


@cache
def application(name: str) -> ApplicationView | None:
    """The view of that name, if an application has it."""
    point = entry_points(ENTRY_POINT_GROUP).get(name)
    found: ApplicationView | None = None if point is None else point.load()()
    return found


def recognized(path: str, comparator: str, keys: Sequence[bytes]) -> list[str]:
    """Views that a database looks made for; see `ApplicationView.recognizes`."""
    found = [(name, application(name)) for name in entry_points(ENTRY_POINT_GROUP)]
    return [name for name, one in found if one is not None and one.recognizes(path, comparator, keys)]


class Views(Mapping[str, str]):
    """Views of a format and those of applications, which are loaded when somebody asks what they are.

    Args:
        own: The format's own, and one line on each.
    """

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own

    def __getitem__(self, name: str) -> str:
        if name in self._own:
            return self._own[name]
        if (found := application(name)) is None:
            raise KeyError(name)
        return found.title

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *entry_points(ENTRY_POINT_GROUP)))

    def __len__(self) -> int:
        return len(self._own) + len(entry_points(ENTRY_POINT_GROUP))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in entry_points(ENTRY_POINT_GROUP)
