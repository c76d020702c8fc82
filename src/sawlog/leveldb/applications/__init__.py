"""Views of the keys and values that applications put into databases: a module for each, found by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sawlog.format.lazy import find_entry_points

if TYPE_CHECKING:
    from sawlog.leveldb.applications.view import ApplicationView

ENTRY_POINT_GROUP = "sawlog.leveldb_views"


@cache
def find_application(name: str) -> ApplicationView | None:
    """Return the view of that name, if an application has it."""
    point = find_entry_points(ENTRY_POINT_GROUP).get(name)
    view: ApplicationView | None = None if point is None else point.load()()
    return view


def recognize_views(path: str, comparator: str, keys: Sequence[bytes]) -> list[str]:
    """Return views that a database looks made for; see `ApplicationView.recognizes`."""
    views = [(name, find_application(name)) for name in find_entry_points(ENTRY_POINT_GROUP)]
    return [name for name, view in views if view is not None and view.recognizes(path, comparator, keys)]


class Views(Mapping[str, str]):
    """Views of a format and those of applications, which are loaded when somebody asks what they are.

    Args:
        titles: The format's own views, and one line on each.
    """

    def __init__(self, titles: Mapping[str, str]) -> None:
        self._titles = titles

    def __getitem__(self, name: str) -> str:
        if name in self._titles:
            return self._titles[name]
        if (view := find_application(name)) is None:
            raise KeyError(name)
        return view.title

    def __iter__(self) -> Iterator[str]:
        return iter((*self._titles, *find_entry_points(ENTRY_POINT_GROUP)))

    def __len__(self) -> int:
        return len(self._titles) + len(find_entry_points(ENTRY_POINT_GROUP))

    def __contains__(self, name: object) -> bool:
        return name in self._titles or name in find_entry_points(ENTRY_POINT_GROUP)
