"""Rows of logs as they are written, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.format import Dataset, Fragment


class Watch:
    """The rows of a dataset and those that are added to it, as record batches, without end.

    Args:
        dataset: What is watched; files that appear under its paths belong to it.
        positions: How much of each file is known already, as `positions` was; nothing if not given.
        poll: Seconds between two looks where nothing was added.

    Attributes:
        positions: Per file, how many bytes the batches handed out so far are made of, ends of complete records. Moves
            with the last batch of a look; saved and given back, it goes on behind that.
    """

    def __init__(
        self,
        dataset: Dataset,
        positions: Mapping[str, int] | None = None,
        poll: float = 1.0,
    ) -> None:
        self.positions: dict[str, int] = dict(positions or {})
        self._dataset = dataset
        self._poll = poll
        self._seen: list[tuple[str, int]] | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            batches = self._look()
            yield from batches
            time.sleep(self._poll)

    def look(self) -> list[pa.RecordBatch]:
        """What has been added since the last look; then it returns."""
        return list(self._look())

    def _look(self) -> Iterator[pa.RecordBatch]:
        fragments, reached = self._added()
        waiting: pa.RecordBatch | None = None
        for fragment in fragments:
            for batch in fragment.to_batches():
                if waiting is not None:
                    yield waiting
                waiting = batch
        self.positions = reached
        if waiting is not None:
            yield waiting

    def _added(self) -> tuple[list[Fragment], dict[str, int]]:
        """The fragments that follow, and the positions behind them."""
        known = self._dataset
        files = known.format.select(known.scan.storage.find(list(known.scan.roots)), known.scan.view)
        seen = [(file.path, file.size) for file in files]
        if seen == self._seen or not files:
            return [], self.positions
        found = known.format.open(files, known.scan).follow(self.positions)
        self._seen = seen
        return found
