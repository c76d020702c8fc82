"""What streams need of formats besides what batches need."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sawlog.storage import File


class Range(NamedTuple):
    """Bytes of one file that a stream reads next; both ends are committed positions."""

    file: File
    start: int
    end: int


class Succession(NamedTuple):
    """A file's place among those that one writer has written, one after the other."""

    writer: Hashable
    place: Any


class FollowedFormat:
    """The part of a format that streams use, with what is right for files that grow, each by itself."""

    def stream_name(self, name: str) -> str:
        """What a stream calls a file, whose name is given relative to the stream's path; the same after a move."""
        return name

    def predecessors(self, name: str, head: bytes) -> Iterable[str]:
        """What a stream calls the earlier files that a writer may have written this one over: it has not been read.

        Args:
            name: What a stream calls the file.
            head: How the file begins.
        """
        del name, head
        return ()

    def succession(self, file: File) -> Succession | None:
        """The writer of a file, and the file's place among that writer's; `None` where its name does not tell.

        When a writer has begun a file, it has finished those before.
        """
        del file
        return None

    def table(self, file: File) -> str | None:
        """The table that a file belongs to, by its name; `None` where that does not tell. A stream is of one table."""
        del file
        return None

    def follows(self, file: File, view: str) -> bool:
        """Whether a stream of the view reads a file that `select` chooses."""
        del file, view
        return True

    def whole(self, view: str) -> bool:
        """Whether the files of a view appear whole and never grow."""
        del view
        return False

    def companions(self, file: File) -> str | None:
        """A name that those files share that can only be judged together; `None` for a file by itself."""
        del file
        return None
