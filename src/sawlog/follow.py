"""What streams need of datasets and formats beside what batches need."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sawlog.errors import OptionError, SawlogError

if TYPE_CHECKING:
    from sawlog.format import Format, Fragment
    from sawlog.scan import Scan
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


class FollowedDataset:
    """The part of a dataset that streams use.

    A stream asks `frontier` how far each file can be read, and `between` for the fragments of a micro-batch. Both
    depend on nothing but the bytes up to the end of what is asked about, so that a micro-batch can be repeated.
    """

    format: Format
    scan: Scan
    files: list[File]

    def frontier(self, file: File, position: int) -> int:
        """How far a file can be read: the end of its last complete record or transaction; unfinished tails wait.

        Args:
            file: One of the dataset's files; it is taken to end at its size.
            position: A committed position: 0, or what an earlier call has answered.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del file, position
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        """The fragments that read ranges of the dataset's files, in reading order.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del ranges
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def follow(self, positions: Mapping[str, int]) -> tuple[list[Fragment], dict[str, int]]:
        """What has been added since `positions`.

        Args:
            positions: Per path, how many bytes are committed; files that are not named are new.

        Returns:
            The fragments that follow, and the positions behind them. Positions only ever stand at the end of a
            complete record or transaction.

        Raises:
            OptionError: When the view cannot be followed.
            SawlogError: When a file is shorter than what is committed of it.
        """
        ranges = []
        for file in self.files:
            start = int(positions.get(file.path, 0))
            if file.size < start:
                raise SawlogError(f"{file.path}: the file shrank to {file.size} bytes; {start} bytes are committed")
            ranges.append(Range(file, start, self.frontier(file, start)))
        reached = {one.file.path: one.end for one in ranges}
        return self.between([one for one in ranges if one.end > one.start]), {**positions, **reached}


class FollowedFormat:
    """The part of a format that streams use, with what is right for files that grow, each by itself."""

    recycles: ClassVar[bool] = False
    """Whether writers use finished files again for later ones, under new names: such a file has not been read."""

    def stream_name(self, name: str) -> str:
        """What a stream calls a file, whose name is given relative to the stream's path; the same after a move."""
        return name

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
