"""Rows of logs as they are written, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from sawlog.format.contract import Contents, Scan
from sawlog.storage import ask_ahead, confirm_files
from sawlog.stream.follower import Follower
from sawlog.stream.limits import StreamOptions
from sawlog.stream.offset import Offset, ReadPosition


class Watch:
    """The rows of a dataset and those that are added to it, as record batches, without end.

    It follows files as the streams of Spark do: by what was read of them, wherever they move. A look can be repeated:
    when the storage fails in the middle, `StorageError` (or `OSError`) is raised and nothing is lost. The next look, or
    iterating again, goes on after the last row that was handed out.

    Args:
        contents: The files to begin with; those that appear under the same paths belong to them.
        scan: What is wanted of them. The columns of now stay those of the watch.
        positions: How much of each file is known already, as `positions` was, or as `{path: bytes}`, which is taken on
            trust; nothing if not given.
        poll: Seconds between two looks where nothing was added.

    Raises:
        OptionError: When the view cannot be followed; some views raise it with the first look.
    """

    def __init__(
        self, contents: Contents, scan: Scan, positions: Mapping[str, Any] | None = None, poll: float = 1.0
    ) -> None:
        paths = scan.roots or tuple(file.path for file in contents.files)
        foreign = [file.path for file in contents.unselected]
        self._follower = Follower.of(contents, paths, scan, StreamOptions(), foreign)
        self._offset = self._start(positions or {})
        self._end: Offset | None = None
        self._rows = 0
        self._poll = poll

    @property
    def positions(self) -> dict[str, Any]:
        """Positions up to which batches were handed out, as plain data for JSON: an offset, as in Spark's checkpoints.

        Per file it holds the end of its last complete record or transaction that was read, and what shows that the
        file is still the same. Moves with the last batch of a look; a watch that is given it goes on after that.
        """
        return self._offset.to_json()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            yield from self.added()
            time.sleep(self._poll)

    def look(self) -> list[pa.RecordBatch]:
        """Look once, and return what has been added since the last look.

        Raises:
            SawlogError: When a file was replaced, rewritten or cut, or removed before it was read.
        """
        rows = self._rows
        try:
            return list(self.added())
        except BaseException:
            self._rows = rows
            raise

    def added(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of a look: the rows that were added, but for those that a failed or unfinished look handed out.

        Raises:
            SawlogError: As `look` does; the batches before it count as handed out.
        """
        if not self._rows:
            self._end = self._follower.find_latest(self._offset, limited=False)
        assert self._end is not None
        waiting: pa.RecordBatch | None = None
        try:
            for batch in self._read_unseen(self._end):
                if waiting is not None:
                    self._rows += waiting.num_rows
                    yield waiting
                waiting = batch
        except Exception:
            if waiting is not None:
                self._rows += waiting.num_rows
                yield waiting
            raise
        confirm_files(self._follower.storage)
        self._offset, self._rows = self._end, 0
        if waiting is not None:
            yield waiting

    def _read_unseen(self, end: Offset) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to an offset that were not handed out."""
        known_rows = self._rows
        unread = self._follower.list_fragments(self._offset, end) if end is not self._offset else ()
        with ask_ahead(unread) as fragments:
            for batch in (batch for fragment in fragments for batch in fragment.to_batches()):
                if known_rows < batch.num_rows:
                    yield batch.slice(known_rows)
                known_rows = max(0, known_rows - batch.num_rows)

    def _start(self, positions: Mapping[str, Any]) -> Offset:
        if all(isinstance(position, int) for position in positions.values()):
            name = self._follower.make_name
            return Offset(
                {name(path): ReadPosition(position, "", position) for path, position in positions.items() if position}
            )
        return Offset.from_json(positions)
