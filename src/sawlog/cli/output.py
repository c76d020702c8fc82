"""Output of commands: results on stdout, for people or programs; progress on stderr."""

from __future__ import annotations

import codecs
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from sawlog.errors import OptionError
from sawlog.format.damage import Account, Damage, Skipped, Tail, TailStatus, Verdict, group_by_reason, judge_kind
from sawlog.format.printing import encode_ascii_json, escape_lines, escape_unprintable
from sawlog.storage import Storage
from sawlog.storage.staging import STDOUT

_PROGRESS_SECONDS = 1.0
"""Seconds that work has to last before a progress bar appears."""
_MAX_SHOWN_RANGES = 10
"""Damaged ranges listed per file, unless all are asked for."""
_MAX_SHOWN_SKIPPED = 3
"""Files named of those that are not read for one reason."""

Advance = Callable[[int], None]
"""Called with the number of input bytes processed."""


class Result(Protocol):
    """Result of a command: plain data for programs, a page for people."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""

    def print_to(self, page: Page) -> None:
        """Print the result to a page, as text for people."""


def show(result: Result, *, json: bool) -> None:
    """Print a result on stdout."""
    if json:
        sys.stdout.write(encode_ascii_json(result.to_dict(), indent=2) + "\n")
    else:
        result.print_to(Page())


def print_event(event: dict[str, Any], *, json: bool) -> None:
    """Print one log line on stdout, at once. Not through Rich, whose live status would take it for its own."""
    sys.stdout.write(f"{encode_ascii_json(event) if json else render_logfmt(event)}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result that is one line and some facts: an amount, such as `12 rows`, and what became of it."""

    document: dict[str, Any]
    amount: str
    summary: str
    facts: Sequence[tuple[str, str]] = ()
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return self.document

    def print_to(self, page: Page) -> None:
        """Print the result to a page, as text for people."""
        page.print_line((self.amount, "bold"), (f" {self.summary}", ""))
        page.print_facts(self.facts)
        if self.hint:
            page.print_line((f"  {self.hint}", ""))


class Page:
    """Text on stdout; plain where that is no terminal.

    Attributes:
        margin: Terminal cells before what follows names that are short.
        file_margin: Terminal cells before what is said of a file, of which the verdict comes first.
    """

    margin: ClassVar = 10
    file_margin: ClassVar = 9

    def __init__(self) -> None:
        from rich.console import Console

        class Terminal(Console):
            def on_broken_pipe(self) -> None:  # Rich would exit with code 1
                raise BrokenPipeError

        self.console = Terminal(highlight=False, markup=False, emoji=False)

    def print_line(self, *parts: tuple[str, str]) -> None:
        """Print texts in their styles, on one line; escape what a terminal might obey."""
        from rich.text import Text

        self.console.print(Text.assemble(*((escape_unprintable(text), style) for text, style in parts)), soft_wrap=True)

    def measure_margin(self, names: Iterable[str], min_cells: int = margin) -> int:
        """Return the cells before what follows names in a column: room for the longest, and a space."""
        return max([min_cells, *(measure_width(escape_unprintable(name)) + 1 for name in names)])

    def pad_text(self, text: str, width: int) -> str:
        """Return a text, escaped, that takes as many terminal cells, if it does not take more."""
        text = escape_unprintable(text)
        return text + " " * (width - measure_width(text))

    def print_facts(self, facts: Iterable[tuple[str, str]], margin: int = 0) -> None:
        """Print names in bold and what is known of each, a line each, aligned by the longest name or by a margin."""
        facts = list(facts)
        margin = margin or self.measure_margin(name for name, _ in facts)
        for name, value in facts:
            self.print_line((self.pad_text(name, margin), "bold"), (value, ""))

    def print_grid(self, indent: str, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and descriptions, aligned, wrapped at the edge of a terminal."""
        rows = list(rows)
        margin = self.measure_margin((name for name, _ in rows), 0) + 1
        for name, text in rows:
            first, *more_lines = self.wrap_text(escape_unprintable(text), len(indent) + margin)
            self.print_line((indent, ""), (self.pad_text(name, margin), "bold"), (first, ""))
            for line in more_lines:
                self.print_line((f"{'':<{len(indent) + margin}}{line}", ""))

    def wrap_text(self, text: str, used: int) -> list[str]:
        """Return a text in lines that fit a terminal next to `used` columns; one line where stdout is no terminal."""
        if not self.console.is_terminal:
            return [text]
        lines = self.console.render_str(text).wrap(self.console, max(20, self.console.width - used))
        return [line.plain.rstrip() for line in lines] or [""]

    def print_skipped(self, skipped: Iterable[Skipped], margin: int = 0) -> None:
        """Print which files were not read, one line per reason."""
        for reason, group in group_by_reason(skipped).items():
            names = [skipped.path for skipped in group[:_MAX_SHOWN_SKIPPED]]
            omission = f" and {len(group) - len(names):,} more" if len(group) > len(names) else ""
            size = render_size(sum(skipped.bytes for skipped in group))
            self.print_facts([("not read", f"{', '.join(names)}{omission}, {size}: {reason}")], margin)

    def print_damage(
        self, damages: list[Damage], count: int, margin: int = file_margin, *, show_all: bool = False
    ) -> None:
        """Print a line per damage, of `count` that there are, after a margin."""
        listed = damages if show_all else damages[:_MAX_SHOWN_RANGES]
        for damage in listed:
            verdict = judge_kind(damage.kind)
            place = "" if verdict is Verdict.INCOMPLETE else f"at byte {damage.offset:,}, {damage.length:,} bytes: "
            style = "yellow" if verdict is Verdict.UNSUPPORTED else "red"
            self.print_line((f"{'':<{margin}}{damage.kind} ", style), (f"{place}{damage.detail}", ""))
        if count > len(listed):
            self.print_line((f"{'':<{margin}}and {count - len(listed):,} more; sawlog verify --all lists them", ""))


def measure_width(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def write_page(page: str, path: str) -> None:
    """Write a page of HTML to a file, which appears whole."""
    storage = Storage()
    staged = storage.stage(path)
    try:
        staged.write(page.encode("utf-8", "surrogatepass"))
        storage.publish([staged.finish()])
    except BaseException:
        staged.discard(storage)
        raise


def render_logfmt(event: dict[str, Any]) -> str:
    """Return a line of `name=value`, quoted where needed; unknown values are left out."""
    pairs = []
    for name, value in event.items():
        for key, field in value.items() if isinstance(value, dict) else [("", value)]:
            if field is not None:
                text = str(field)
                plain = text.isprintable() and text and not set(text) & set(' ="\\')
                pairs.append(f"{name}{'.' if key else ''}{key}={text if plain else encode_ascii_json(text)}")
    return " ".join(pairs)


def render_count(count: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def describe_account(account: Account) -> str:
    """Return a phrase on bytes by use; what is unsupported is named where there is any."""
    uses = ["header", "record", "padding", "tail", "damage", *(["unsupported"] if account.unsupported else [])]
    return ", ".join(f"{use} {getattr(account, use):,}" for use in uses)


def describe_tail(tail: Tail) -> str:
    """Return the text of how a file ends, and where."""
    if tail.status is TailStatus.CLEAN:
        return str(tail.status)
    detail = f" ({tail.detail})" if tail.detail else ""
    return escape_unprintable(f"{tail.status} from byte {tail.offset:,}, {tail.length:,} bytes{detail}")


def render_size(size: int) -> str:
    """Return a number of bytes as text, in a suitable unit and exactly."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return render_count(size, "byte") if unit == "bytes" else f"{value:,.1f} {unit} ({size:,} bytes)"


def make_text_sink(write: Callable[[bytes], Any]) -> Callable[[Any], Any]:
    """Return a function that hands UTF-8 text to `write`; what a terminal might obey is escaped, if stdout is one."""
    if not sys.stdout.isatty():
        return write
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    return lambda data: write(escape_lines(decode(bytes(data))).encode())


def refuse_terminal(path: str, title: str) -> None:
    """Refuse to write bytes to a terminal.

    Raises:
        OptionError: When the path is stdout, and that is one.
    """
    if path in STDOUT and sys.stdout.isatty():
        raise OptionError(f"{path}: {title} is binary, and stdout is a terminal; name a file or a pipe")


def can_show_progress() -> bool:
    """Return whether stderr is a terminal, which shows progress bars."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def show_progress(total: int, label: str) -> Iterator[Advance]:
    """Show a progress bar on stderr for work on `total` bytes that takes longer than `_PROGRESS_SECONDS`; 0: no bar."""
    if not (total and can_show_progress()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    start = time.monotonic()

    def advance(size: int) -> None:
        bar.advance(task, size)
        if not bar.live.is_started and time.monotonic() - start > _PROGRESS_SECONDS:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
