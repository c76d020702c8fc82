"""Progress of a running pipeline: one report per batch and sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryListener, StreamingQueryProgress

from sawlog.errors import SawlogError
from sawlog.guard import decode_json
from sawlog.stream.offset import Offset

_LAG = "behind"
BYTES = "bytes"
"""What sawlog's stream source reports as its latest offset: `{"behind": {"bytes": ...}}`."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Report on a batch that a sink has taken.

    Attributes:
        time: When it began, ISO 8601 in UTC.
        pipeline: Name of the pipeline.
        sink: Name of the sink.
        batch: Number of the micro-batch; 0 for pipelines that are batches.
        rows: Rows that were read, in streams; rows that were written, in batches.
        bytes: Bytes of the sources' files that were read; None where it is not known.
        lag_bytes: Bytes between what was read and the ends of the sources' files, as they were when it began; None
            where it is not known.
        damage: Damaged ranges found in all sources since this sink's last report.
        seconds: How long it took.
    """

    time: str
    pipeline: str
    sink: str
    batch: int
    rows: int
    bytes: int | None
    lag_bytes: int | None
    damage: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"event": "batch", **values, "seconds": round(self.seconds, 3)}


class Listener(StreamingQueryListener):
    """Hands on the progress of every micro-batch, and None when a query has ended. Called from threads of Spark's."""

    def __init__(self, put: Callable[[StreamingQueryProgress | None], None]) -> None:
        self._put = put

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: there is nothing to show."""

    def onQueryProgress(self, event: Any) -> None:
        """Hand on the progress of a micro-batch that is over."""
        self._put(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: there is nothing to show."""

    def onQueryTerminated(self, event: Any) -> None:
        """Hand on None: a query has ended."""
        self._put(None)


def sum_read_bytes(sources: Sequence[SourceProgress]) -> int | None:
    """Return the number of bytes of files that a micro-batch has read; None where no source says."""
    return _sum(_count_read_bytes(source.endOffset) for source in sources)


def sum_waiting_bytes(sources: Sequence[SourceProgress]) -> int | None:
    """Return the number of bytes of files that are there and not read yet; None where no source says."""
    return _sum(_count_waiting(source.latestOffset) for source in sources)


def _sum(counts: Iterable[int | None]) -> int | None:
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if known_counts else None


def _count_read_bytes(end: str | None) -> int | None:
    """Return the number of bytes that the micro-batch up to an offset has read; None for offsets of other sources."""
    try:
        after = Offset.from_json(decode_json(end or ""))
    except SawlogError:
        return None
    return sum(place.position - place.begin for place in after.files.values())


def _count_waiting(latest: str | None) -> int | None:
    offsets = decode_json(latest or "")
    lag = offsets.get(_LAG) if isinstance(offsets, dict) else None
    count = lag.get(BYTES) if isinstance(lag, dict) else None
    return int(count) if isinstance(count, int) else None
