"""`sawlog run`: a pipeline on Spark."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Page, print_event, show
from sawlog.errors import PipelineError
from sawlog.pipeline.settings import Pipeline, load

if TYPE_CHECKING:
    from sawlog.pipeline.plan import Plan, PlanPart


@dataclass(slots=True)
class _PlanOutcome:
    """The outcome of `sawlog run --dry-run`: what would be done."""

    name: str
    facts: dict[str, str]
    parts: list[PlanPart]

    @classmethod
    def of(cls, plan: Plan) -> _PlanOutcome:
        """Return the plan of a pipeline, without its secrets."""
        pipeline = plan.pipeline
        redact = pipeline.document.secrets.redact
        facts = {"mode": pipeline.mode, "checkpoint": pipeline.checkpoint or "", "trigger": pipeline.trigger or ""}
        facts.update(pipeline.spark)
        if pipeline.metrics is not None:
            facts["metrics"] = f"http://{pipeline.metrics.address}:{pipeline.metrics.port}/metrics"
        parts = plan.list_parts()
        for part in parts:
            part.facts.update({name: redact(value) for name, value in part.facts.items()})
        return cls(pipeline.name, {name: redact(value) for name, value in facts.items() if value}, parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def print_to(self, page: Page) -> None:
        page.print_line((self.name, "bold"))
        page.print_grid("  ", self.facts.items())
        for part in self.parts:
            page.print_line((f"{part.kind} {part.name}".rstrip(), "bold"))
            page.print_grid("  ", part.facts.items())
            page.print_line(("  columns", "dim"))
            page.print_grid("    ", part.schema.items())


def run(
    path: Annotated[str, typer.Argument(metavar="PIPELINE", help="TOML file; sawlog init writes an example.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show plan and columns, and write nothing.")
    ] = False,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark, before those of the file."),
    ] = None,
    json: arguments.Json = False,
) -> int:
    """Run a pipeline of sources, SQL and sinks.

    On Spark, once or as a stream. One line on stdout per batch. Streams end with Ctrl-C or SIGTERM, and go on where
    they were when run again. What may pass, such as a lost connection, is tried again up to five times in a row, after
    1, 2, 4, 8 and 16 seconds. Exit code 1 if damage stopped it, 3 if damage was skipped.
    """
    pipeline = load(path)
    settings = choose_log_level(pipeline) | arguments.parse_key_values(conf, "--conf")
    from sawlog.pipeline.plan import Plan
    from sawlog.pipeline.session import open_session

    if find_spec("pyspark") is not None:
        from sawlog.pipeline.beforehand import check

        check(pipeline, settings)
    try:
        with open_session(pipeline, settings) as spark:
            plan = Plan(pipeline, spark)
            if dry_run:
                show(_PlanOutcome.of(plan), json=json)
                return Exit.OK
            return run_pipeline(pipeline, plan, json=json)
    except PipelineError as error:
        complain(str(error))
        return Exit.DAMAGED if error.damaged else Exit.UNUSABLE


def choose_log_level(pipeline: Pipeline) -> dict[str, str]:
    """Return Spark's log level: the file's, or only errors where warnings of the JVM would break the live status."""
    from sawlog.cli.status import is_shown

    level = "spark.log.level"
    return {level: "ERROR"} if is_shown(pipeline) and level not in pipeline.spark else {}


def run_pipeline(pipeline: Pipeline, plan: Plan, *, json: bool = False) -> int:
    """Run a planned pipeline to its end, with its status on the screen or as JSON; return the exit code."""
    from sawlog.cli.status import show_status
    from sawlog.pipeline.metrics import serve
    from sawlog.pipeline.progress import BatchReport
    from sawlog.pipeline.run import PipelineRun

    with contextlib.ExitStack() as stack:
        listeners: list[Callable[[BatchReport], None]] = []
        if pipeline.metrics is not None:
            listeners.append(stack.enter_context(serve(pipeline.metrics)))
        # The status comes before the line: printing the line draws the status again below it.
        listeners += [stack.enter_context(show_status(pipeline)), lambda batch: print_event(batch.to_dict(), json=json)]

        def report(batch: BatchReport) -> None:
            for listener in listeners:
                listener(batch)

        # A batch has no end but its own: a signal ends it as it ends any other command.
        stop = stack.enter_context(_catch_stop_signals()) if pipeline.mode == "stream" else None
        totals = PipelineRun(plan, report, stop, complain)()
    print_event(totals.to_dict(), json=json)
    if totals.skipped:
        return Exit.LOST
    return Exit.INTERRUPTED if stop is not None and stop.interrupted else Exit.OK


class _Stop(threading.Event):
    """Asks a stream to end.

    Attributes:
        interrupted: Whether Ctrl-C did; to send SIGTERM to a stream is the way to end it.
    """

    interrupted = False


@contextlib.contextmanager
def _catch_stop_signals() -> Iterator[_Stop]:
    """Provide an event in the block, which SIGTERM and the first Ctrl-C set; the second Ctrl-C interrupts."""
    stop = _Stop()

    def ask(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.interrupted |= number == signal.SIGINT
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
