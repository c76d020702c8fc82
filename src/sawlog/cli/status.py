"""The live status of a running pipeline, on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from sawlog.cli.output import can_show_progress

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from sawlog.pipeline.progress import BatchReport
    from sawlog.pipeline.settings import Pipeline


def is_shown(pipeline: Pipeline) -> bool:
    """Return whether a pipeline has a live status: it streams, and somebody may see it."""
    return pipeline.mode == "stream" and can_show_progress()


@contextlib.contextmanager
def show_status(pipeline: Pipeline) -> Iterator[Callable[[BatchReport], None]]:
    """Show a table on stderr in the block, which follows the sinks of a stream, where somebody may see it.

    Yields:
        What is to be reported of every batch.
    """
    status = Status(pipeline)
    if not is_shown(pipeline):
        yield status.add
        return
    from rich.console import Console
    from rich.live import Live

    with Live(
        status,
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
    ):
        yield status.add


class Status:
    """Every sink: its last batch, what it has taken so far, how fast, and how far it lags."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._last: dict[str, BatchReport] = {}
        self._report_times: dict[str, float] = {}
        self._rows = dict.fromkeys((sink.name for sink in pipeline.sinks), 0)
        self._damage = dict.fromkeys(self._rows, 0)
        self._start = time.monotonic()

    def add(self, report: BatchReport) -> None:
        """Enter what a batch that is over has done."""
        self._last[report.sink] = report
        self._report_times[report.sink] = time.monotonic()
        self._rows[report.sink] = self._rows.get(report.sink, 0) + report.rows
        self._damage[report.sink] = self._damage.get(report.sink, 0) + report.damage

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        now = time.monotonic()
        table = Table(title=f"{self._pipeline.name}, up {_render_duration(now - self._start)}", title_justify="left")
        for name in ("sink", "batch", "rows", "rows/s", "lag", "damage", "last batch"):
            table.add_column(name, justify="left" if name == "sink" else "right")
        for sink, rows in self._rows.items():
            last = self._last.get(sink)
            if last is None:
                table.add_row(sink, "", "", "", "", "", "waiting for rows")
                continue
            rate = last.rows / last.seconds if last.seconds else 0
            lag = "" if last.lag_bytes is None else f"{last.lag_bytes:,} bytes"
            age = f"{_render_duration(now - self._report_times[sink])} ago"
            damage = f"{self._damage[sink]:,}"
            table.add_row(Text(sink), f"{last.batch:,}", f"{rows:,}", f"{rate:,.0f}", lag, damage, age)
        yield table


def _render_duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
