"""What verbs say to people."""

from __future__ import annotations

import itertools
import json
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.text import Text

from sawlog.cli.output import Outcome, Output, counted
from sawlog.cli.render import metadata, printable
from sawlog.cli.terminal import Terminal
from sawlog.damage import Account, Damage, FileReport, Tail, TailStatus, places
from sawlog.skipped import Skipped, by_reason

if TYPE_CHECKING:
    from sawlog.cli.cards import OptionCard
    from sawlog.cli.convert import Conversion
    from sawlog.cli.formats import FormatCard
    from sawlog.cli.info import Info
    from sawlog.cli.init import Created
    from sawlog.cli.repair import Repaired
    from sawlog.cli.run import Planned
    from sawlog.cli.verify import Verified
    from sawlog.cli.warm_up import Warmed

SHOWN_DAMAGES = 10
"""Damages listed per file, unless all are asked for."""

SHOWN_SKIPPED = 3
"""Files that are named of those that are not read for one reason."""

_STRIP_STYLES = {"damage": "bold red", "tail": "yellow", "header": "blue", "record": "cyan", "padding": "dim"}
_USES = ("header", "record", "padding", "tail", "damage")


class ConsoleOutput(Output):
    """Text on stdout; plain where that is no terminal."""

    def __init__(self) -> None:
        self._console = Terminal()

    def info(self, info: Info) -> None:
        """See `Output.info`."""
        self._fact("format", f"{info.format.name} ({info.format.title})")
        if len(info.files) == 1:
            self._fact("file", info.files[0].path)
        else:
            self._fact("files", f"{len(info.files)}: {info.files[0].path} … {info.files[-1].path}")
        self._fact("size", size_text(info.size))
        for name, value in info.facts.items():
            self._fact(name, str(value))
        if info.rows is not None:
            self._fact("rows", f"{info.rows:,}")
        for path, tail in info.tails.items():
            if tail.status is not TailStatus.CLEAN:
                self._fact("tail", (f"{path}: " if len(info.files) > 1 else "") + tail_text(tail))
        self._strips(info)
        self._skipped(info.skipped)
        self._line(("views", "bold"))
        self._grid("  ", list(info.format.views.items()))
        self._line((f"columns of {info.view}", "bold"))
        rows = []
        for column in info.schema:
            nulls = "" if column.nullable else " not null"
            facts = "".join(f" {key}={value}" for key, value in metadata(column).items())
            rows.append((column.name, f"{column.type}{nulls}{facts}"))
        self._grid("  ", rows)

    def _strips(self, info: Info) -> None:
        """Where the bytes of small files went, a line each, damage in red."""
        if not info.strips:
            return
        from sawlog.map.strip import SIGNS, cells

        margin = 10
        for file in info.strips:
            if len(info.files) > 1:
                self._fact("", file.path)
            shown = itertools.groupby(cells(file, max(20, min(self._console.width, 130) - margin)))
            parts = [(SIGNS[use] * len(list(group)), _STRIP_STYLES.get(use, "")) for use, group in shown]
            self._line((f"{'map':<{margin}}" if file is info.strips[0] else " " * margin, "bold"), *parts)
        signs = "  ".join(f"{sign} {use or 'not read'}" for use, sign in SIGNS.items() if sign.strip())
        self._line((" " * margin + signs, "dim"))

    def verified(self, verified: Verified) -> None:
        """See `Output.verified`."""
        for path in verified.paths:
            for file in path.report.files if path.report is not None else ():
                self._file(file, every=verified.every)
            self._skipped(path.report.skipped if path.report is not None else ())
        files = verified.files
        if not files:
            return
        damaged = sum(file.damaged for file in files)
        unusable = sum(path.report is None for path in verified.paths)
        account = verified.account
        parts = [
            counted(len(files), "file") + f": {len(files) - damaged} clean, {damaged} damaged",
            counted(sum(file.rows for file in files), "row"),
            f"{account.damage:,} of {account.total:,} bytes damaged",
        ]
        unfinished = sum(file.tail.unfinished for file in files)
        if unfinished:
            parts.append(counted(unfinished, "unfinished tail"))
        if unusable:
            parts.append(f"{counted(unusable, 'path')} unusable")
        self._line(("; ".join(parts), "bold"))

    def repaired(self, repaired: Repaired) -> None:
        """See `Output.repaired`."""
        files = repaired.report.files
        for file in files:
            if len(files) > 1:
                self._line((printable(file.path), "bold"))
            count = sum(file.kinds.values())
            self._kept_and_lost(file.rows, file.account, count)
            if file.tail.status is not TailStatus.CLEAN:
                self._fact("tail", tail_text(file.tail))
            self._damages(file.damages, count, every=False)
        if len(files) > 1:
            self._line((f"all {len(files)} files", "bold"))
            count = sum(sum(file.kinds.values()) for file in files)
            self._kept_and_lost(repaired.report.rows, repaired.report.account, count)
        self._skipped(repaired.report.skipped)
        self._line((repaired.outcome, "bold"), (f"; written to {printable(repaired.destination)}", ""))

    def converted(self, conversion: Conversion) -> None:
        """See `Output.converted`."""
        self._line(
            (counted(conversion.rows, "row"), "bold"), (f" from {conversion.from_format} to {conversion.to_format}", "")
        )
        for file in conversion.files:
            self._fact("written", f"{file.final}, {size_text(file.size)}")

    def formats(self, cards: list[FormatCard]) -> None:
        """See `Output.formats`."""
        for card in cards:
            self._line((card.name, "bold"), (f"  {card.title}, {card.suffix}", ""))
            if card.views:
                self._line(("  views", "dim"))
                self._grid("    ", list(card.views.items()))
            self._options("  options for reading (-o)", card.read_options)
            self._options("  options for writing (-O)", card.write_options)
            self._line()

    def done(self, outcome: Outcome) -> None:
        """See `Output.done`."""
        self._line((outcome.amount, "bold"), (f" {printable(outcome.summary)}", ""))
        for name, value in outcome.facts:
            self._fact(name, value)

    def warmed(self, warmed: Warmed) -> None:
        """See `Output.warmed`."""
        rows = [(name, f"{seconds:.1f} s") for name, seconds in warmed.seconds.items()]
        self._grid("", [*rows, ("kernel cache", warmed.cache)])

    def created(self, created: Created) -> None:
        """See `Output.created`."""
        self._line((printable(created.path), "bold"), (" written; edit it, then", ""))
        self._line((f"  sawlog run {printable(created.path)} --dry-run", ""))

    def planned(self, planned: Planned) -> None:
        """See `Output.planned`."""
        self._line((printable(planned.name), "bold"))
        self._grid("  ", list(planned.facts.items()))
        for part in planned.parts:
            self._line((f"{part.kind} {part.name}".rstrip(), "bold"))
            self._grid("  ", list(part.facts.items()))
            self._line(("  columns", "dim"))
            self._grid("    ", list(part.schema.items()))

    def _tell(self, event: dict[str, Any]) -> None:
        # Not through Rich, whose live status would take it for its own.
        sys.stdout.write(f"{logfmt(event)}\n")
        sys.stdout.flush()

    def _line(self, *parts: tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def _fact(self, name: str, value: str) -> None:
        self._line((f"{name:<9} ", "bold"), (printable(value), ""))

    def _skipped(self, skipped: Iterable[Skipped]) -> None:
        """What was not read, one line per reason."""
        for reason, group in by_reason(skipped).items():
            names = [one.path for one in group[:SHOWN_SKIPPED]]
            more = f" and {len(group) - len(names):,} more" if len(group) > len(names) else ""
            self._fact("not read", f"{', '.join(names)}{more}, {size_text(sum(one.bytes for one in group))}: {reason}")

    def _grid(self, indent: str, rows: list[tuple[str, str]]) -> None:
        """Names and what is to be said on them, aligned, and wrapped where a terminal has an edge."""
        margin = max((len(name) for name, _ in rows), default=0) + 2
        for name, text in rows:
            first, *rest = self._wrapped(printable(text), len(indent) + margin)
            self._line((indent, ""), (f"{printable(name):<{margin}}", "bold"), (first, ""))
            for line in rest:
                self._line((f"{'':<{len(indent) + margin}}{line}", ""))

    def _wrapped(self, text: str, used: int) -> list[str]:
        """Lines for the room that is left beside `used` columns."""
        if not self._console.is_terminal:
            return [text]
        return textwrap.wrap(text, max(20, self._console.width - used), break_on_hyphens=False) or [""]

    def _options(self, title: str, options: list[OptionCard]) -> None:
        if not options:
            return
        self._line((title, "dim"))
        for option in options:
            default = "" if option.default is None else f" = {option.default or '(none)'}"
            self._line((f"    {option.name}", "bold"), (default, ""), (f"  {option.takes}", "dim"))
            for line in self._wrapped(option.doc, 8):
                self._line((f"        {line}", ""))

    def _file(self, file: FileReport, *, every: bool) -> None:
        status, style = ("damaged", "bold red") if file.damaged else ("clean", "green")
        self._line(
            (f"{status:<8} ", style),
            (printable(file.path), "bold"),
            (f"  {counted(file.rows, 'row')}, {size_text(file.size)}", ""),
        )
        self._line((f"         {account_text(file.account)}; tail {tail_text(file.tail)}", ""))
        self._damages(file.damages, sum(file.kinds.values()), every=every)

    def _damages(self, damages: list[Damage], count: int, *, every: bool) -> None:
        shown = damages if every else damages[:SHOWN_DAMAGES]
        for damage in shown:
            place = f"byte {damage.offset:,}, {damage.length:,} bytes: "
            self._line((f"         {damage.kind} ", "red"), (f"at {place}{printable(damage.detail)}", ""))
        if count > len(shown):
            self._line((f"         and {count - len(shown):,} more damages; sawlog verify --all lists them", ""))

    def _kept_and_lost(self, rows: int, account: Account, damages: int) -> None:
        self._fact("kept", f"{counted(rows, 'row')}, {account.record:,} bytes")
        lost = places(damages) if damages else "nothing"
        if account.damage:
            lost = f"{account.damage:,} bytes in {counted(damages, 'damaged range')}"
        self._fact("lost", lost)
        self._fact("source", f"{account.total:,} bytes: {account_text(account)}")


def logfmt(event: dict[str, Any]) -> str:
    """One line of `name=value`; what is not known is left out, what needs them is in quotes."""
    pairs = []
    for name, value in event.items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            if one is not None:
                text = str(one)
                plain = text.isprintable() and text and not set(text) & set(' ="\\')
                pairs.append(f"{name}{'.' if key else ''}{key}={text if plain else json.dumps(text)}")
    return " ".join(pairs)


def account_text(account: Account) -> str:
    """The five uses of bytes, in the order of the `Account`."""
    return ", ".join(f"{use} {getattr(account, use):,}" for use in _USES)


def tail_text(tail: Tail) -> str:
    """How a file ends, and where."""
    if tail.status is TailStatus.CLEAN:
        return str(tail.status)
    detail = f" ({tail.detail})" if tail.detail else ""
    return printable(f"{tail.status} from byte {tail.offset:,}, {tail.length:,} bytes{detail}")


def size_text(size: int) -> str:
    """Bytes in the unit that suits, and exactly."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return counted(size, "byte") if unit == "bytes" else f"{value:,.1f} {unit} ({size:,} bytes)"
