"""Answers of stores on what is below a path, kept while it is read."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from sawlog.storage.directories import File
from sawlog.storage.minio.drives import is_below


class Listings:
    """Directories of stores as the last listings had them. A later one may say otherwise.

    Attributes:
        answers: By path that is below none of the listed ones: whether there was something when it was asked for.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bool] = {}
        self._files: dict[str, list[File]] = {}
        self._directories: set[str] = set()
        self._roots: set[str] = set()

    def add(self, root: str, files: Mapping[str, list[File]]) -> None:
        """Take in a listing."""
        self._files.update(files)
        self._roots.add(root)
        for directory in files:
            above = directory
            while above not in self._directories and is_below(above, root):
                self._directories.add(above)
                above = posixpath.dirname(above)

    def list_files(self, directory: str) -> list[File] | None:
        """Return the files that lie directly in a directory; `None` where none were listed."""
        return self._files.get(directory)

    def has_directory(self, path: str) -> bool:
        """Return whether a listed file is below a path."""
        return path.rstrip("/") in self._directories

    def covers(self, path: str) -> bool:
        """Return whether a path is below a listed one: all that is there is known."""
        directory = posixpath.dirname(path.rstrip("/"))
        while directory not in self._roots:
            above = posixpath.dirname(directory)
            if above == directory or not above:
                return False
            directory = above
        return True

    def clear(self) -> None:
        """Forget everything."""
        for answers in (self.answers, self._files, self._directories, self._roots):
            answers.clear()
