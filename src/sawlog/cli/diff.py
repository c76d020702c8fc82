"""`sawlog diff`: whether two paths hold the same rows."""

from __future__ import annotations

import itertools
import json as json_text
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
import typer

from sawlog.cli import arguments
from sawlog.cli.convert import Incoming, find_source_tables, of_dataset, open_source
from sawlog.cli.errors import Exit, explain
from sawlog.cli.output import Advance, Page, Result, render_count, show, show_progress
from sawlog.cli.parts import make_part_name, open_part, open_selected
from sawlog.cli.scan import DamageSummary, divide_progress
from sawlog.cli.table import render_type
from sawlog.dataset.folder import Folder, FolderPart, map_items
from sawlog.errors import DiskError, SchemaError
from sawlog.format.printing import encode_json_lines
from sawlog.storage import Storage

WINDOW_ROWS = 10_000
"""Rows of either side among which the next equal one is looked for."""
WINDOW_BYTES = 16 << 20

_REACH_ROWS = (32, 1024, WINDOW_ROWS)
"""How far is looked, one after the other: most differences are short."""

_JOINED = """
CREATE TEMP TABLE numbered AS
  SELECT side, place, key, line, row_number() OVER (PARTITION BY side, key ORDER BY place) AS nth FROM entries;
CREATE INDEX temp.by_key ON numbered (side, key, nth);
CREATE TEMP TABLE joined AS
  SELECT a.place AS a, b.place AS b, a.line AS line_a, b.line AS line_b
  FROM numbered a LEFT JOIN numbered b ON b.side = 1 AND b.key = a.key AND b.nth = a.nth WHERE a.side = 0
  UNION ALL SELECT NULL, b.place, NULL, b.line
  FROM numbered b LEFT JOIN numbered a ON a.side = 0 AND a.key = b.key AND a.nth = b.nth
  WHERE b.side = 1 AND a.side IS NULL
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that only one side has."""

    side: str
    number: int
    line: str


@dataclass(slots=True)
class Comparison(Result):
    """The outcome of `sawlog diff`.

    Attributes:
        a: One path.
        b: The other.
        columns: Columns that are not the same, and how.
        max_rows: How many differing rows are kept.
        equal: Rows that both have.
        changed: Keys that both have, with other values.
        only_a: Rows that only `a` has, changed ones not among them.
        only_b: Rows that only `b` has.
        rows: The first differing rows.
    """

    a: str
    b: str
    columns: dict[str, str]
    max_rows: int
    equal: int = 0
    changed: int = 0
    only_a: int = 0
    only_b: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def different(self) -> bool:
        """Whether anything differs."""
        return bool(self.columns or self.changed or self.only_a or self.only_b)

    def add_unmatched(self, side: str, first: int, lines: list[str]) -> None:
        """Take in rows that one side only has."""
        if side == "a":
            self.only_a += len(lines)
        else:
            self.only_b += len(lines)
        self.keep(Row(side, first + place, line) for place, line in enumerate(lines))

    def keep(self, rows: Iterator[Row]) -> None:
        """Keep rows to show, as long as there are few."""
        self.rows += itertools.islice(rows, max(0, self.max_rows - len(self.rows)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "different": self.different,
            "columns": self.columns,
            **{name: getattr(self, name) for name in ("equal", "changed", "only_a", "only_b")},
            "rows": [{"side": r.side, "row": r.number, "values": json_text.loads(r.line)} for r in self.rows],
        }

    def print_to(self, page: Page) -> None:
        page.print_facts(("column", f"{name}: {change}") for name, change in self.columns.items())
        for row in self.rows:
            sign, style = ("-", "red") if row.side == "a" else ("+", "green")
            page.print_line((f"{sign} row {row.number:,}  ", style), (row.line, ""))
        changed = f", {self.changed:,} changed" if self.changed else ""
        only = f"{self.only_a:,} only in {self.a}, {self.only_b:,} only in {self.b}"
        page.print_line(
            ("different" if self.different else "equal", "bold"), (f": {render_count(self.equal, 'row')} equal", "")
        )
        if self.different:
            page.print_line((f"{only}{changed}", ""))


class PeekableRows:
    """The rows of one side on their way past."""

    def __init__(self, batches: Iterator[pa.RecordBatch], names: list[str]) -> None:
        self._batches = (batch.select(names) for batch in batches if batch.num_rows)
        self._ahead: list[pa.RecordBatch] = []
        self.passed = 0

    def peek_batch(self) -> pa.RecordBatch | None:
        """Return the rest of the current batch; None at the end."""
        if not self._ahead:
            self._ahead = list(itertools.islice(self._batches, 1))
        return self._ahead[0] if self._ahead else None

    def peek_lines(self) -> list[str]:
        """Return the next rows as lines of JSON, within bounds."""
        self.peek_batch()
        while sum(b.num_rows for b in self._ahead) < WINDOW_ROWS and sum(b.nbytes for b in self._ahead) < WINDOW_BYTES:
            next_batch = next(self._batches, None)
            if next_batch is None:
                break
            self._ahead.append(next_batch)
        lines = (line for batch in self._ahead for line in encode_json_lines(batch.slice(0, WINDOW_ROWS)))
        return list(itertools.islice(lines, WINDOW_ROWS))

    def skip(self, count: int) -> None:
        """Go past some rows of those ahead."""
        self.passed += count
        while count:
            first = self._ahead.pop(0)
            if count < first.num_rows:
                self._ahead.insert(0, first.slice(count))
            count -= min(count, first.num_rows)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="File, directory, glob or fsspec URL.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one, of any format.")],
    *,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="A,B", help="Columns by which rows are matched.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Differing rows to show.")] = 10,
    selection: arguments.Selection,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="skip: compare everything intact, report the rest. fail: stop there."),
    ] = arguments.OnDamage.SKIP,
    format: arguments.FormatName = None,
    reading: arguments.Reading,
    json: arguments.Json = False,
) -> int:
    """Compare the rows of two paths.

    In their order or by a key; of two folders, the rows of parts of the same name. Exit code 0 equal, 1 different.
    """
    storage = Storage(arguments.parse_storage_options(reading.storage))
    terms = _Terms(arguments.parse_column_names(key), limit, selection.where)
    folders = []
    if all(find_source_tables(path, format, storage) is None for path in (a, b)):
        folders = [
            open_selected(path, reading, selection, storage, format=format, on_damage=on_damage) for path in (a, b)
        ]
    if any(not folder.is_single for folder in folders):
        return _compare_folders(FolderComparison(a, b), folders, terms, json=json)
    sides = [open_source(path, reading, selection, storage, format=format, on_damage=on_damage) for path in (a, b)]
    with show_progress(sum(side.size for side in sides), "comparing") as advance:
        comparison, losses = terms.compare(a, b, sides, advance)
    show(comparison, json=json)
    sys.stdout.flush()
    for loss in losses:
        loss.report()
    return Exit.DIFFERENT if comparison.different else Exit.OK


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of a comparison.

    Attributes:
        keys: Columns that say which rows belong together, if not their order does.
        limit: How many differing rows are kept.
        conditions: Conditions of rows.
    """

    keys: list[str] | None
    limit: int
    conditions: list[str] | None

    def compare(
        self, a: str, b: str, sides: Sequence[Incoming], advance: Advance
    ) -> tuple[Comparison, list[DamageSummary]]:
        """Compare two sources by their names, and return what differs, and what either has lost.

        Raises:
            SchemaError: For a key that is not in both.
        """
        names, differing = _compare_columns(*(side.schema for side in sides))
        for name in self.keys or ():
            if name not in names:
                raise SchemaError(f"--key: no column {name!r} in both; columns of both: {', '.join(names)}")
        comparison = Comparison(a, b, differing, self.limit)
        losses = [DamageSummary(side.skipped) for side in sides]
        first, second = (side.rows(summary, advance) for side, summary in zip(sides, losses, strict=True))
        if self.keys:
            _compare_by_key(comparison, [first, second], names, self.keys)
        else:
            compare_in_order(comparison, PeekableRows(first, names), PeekableRows(second, names))
        return comparison, losses


@dataclass(slots=True)
class FolderComparison(Result):
    """The outcome of `sawlog diff` of two folders.

    Attributes:
        a: One path.
        b: The other.
        parts: The comparison of each table that both have, by its name below the paths.
        only_a: Names of what only `a` has.
        only_b: Names of what only `b` has.
        errors: Why a part could not be compared, by its name.
    """

    a: str
    b: str
    parts: dict[str, Comparison] = field(default_factory=dict)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def different(self) -> bool:
        """Whether anything differs, or could not be compared."""
        alike = not any(part.different for part in self.parts.values())
        return not alike or bool(self.only_a or self.only_b or self.errors)

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "different": self.different,
            "parts": [{"part": name, **part.to_dict()} for name, part in self.parts.items()],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "errors": self.errors,
        }

    def print_to(self, page: Page) -> None:
        for name, part in self.parts.items():
            if part.different:
                page.print_line((name, "bold"))
                part.print_to(page)
        for path, names in ((self.a, self.only_a), (self.b, self.only_b)):
            for name in names:
                page.print_line((f"only in {path}: ", "yellow"), (name, "bold"))
        for name, error in self.errors.items():
            page.print_line((f"{name}: not compared: ", "red"), (error, ""))
        equal = sum(not part.different for part in self.parts.values())
        count = len(self.parts) + len(self.only_a) + len(self.only_b) + len(self.errors)
        rows = render_count(sum(part.equal for part in self.parts.values()), "row")
        page.print_line(
            ("different" if self.different else "equal", "bold"),
            (f": {equal:,} of {render_count(count, 'part')} equal, {rows}", ""),
        )


_Pair = tuple[str, FolderPart | None, FolderPart | None]
"""The name of a part, and the part of either side."""


def _compare_folders(comparison: FolderComparison, folders: Sequence[Folder], terms: _Terms, *, json: bool) -> Exit:
    """Compare two folders part by part, several at a time."""
    first, second = (
        {make_part_name(part, path): part for part in folder.parts}
        for path, folder in zip((comparison.a, comparison.b), folders, strict=True)
    )
    pairs: list[_Pair] = [(name, first.get(name), second.get(name)) for name in sorted({*first, *second})]
    losses: list[DamageSummary] = []
    with show_progress(sum(folder.size for folder in folders), "comparing") as advance:

        def compare(pair: _Pair) -> tuple[FolderComparison, list[DamageSummary]]:
            parts = [part for part in pair[1:] if part is not None]
            with divide_progress(sum(part.size for part in parts), advance) as step:
                return _compare_parts(comparison.a, comparison.b, pair, terms, step)

        for (name, *_), outcome in map_items(pairs, compare, max(folder.threads for folder in folders)):
            if isinstance(outcome, Exception):
                comparison.errors[name] = explain(outcome) or str(outcome)
                continue
            compared, skipped = outcome
            comparison.parts |= compared.parts
            comparison.only_a += compared.only_a
            comparison.only_b += compared.only_b
            losses += skipped
    show(comparison, json=json)
    sys.stdout.flush()
    for summary in losses:
        summary.report()
    return Exit.DIFFERENT if comparison.different else Exit.OK


def _compare_parts(
    a: str, b: str, pair: _Pair, terms: _Terms, advance: Advance
) -> tuple[FolderComparison, list[DamageSummary]]:
    """Compare the tables of two parts of the same name."""
    name, *parts = pair
    first, second = ({} if part is None else open_part(part, terms.conditions) for part in parts)
    compared, losses = FolderComparison(a, b), list[DamageSummary]()
    for table in dict.fromkeys([*first, *second]):
        title = f"{name} {table}".strip()
        if table in first and table in second:
            sides = [of_dataset(first[table]), of_dataset(second[table])]
            compared.parts[title], summaries = terms.compare(f"{a} {title}", f"{b} {title}", sides, advance)
            losses += summaries
        else:
            (compared.only_a if table in first else compared.only_b).append(title)
    return compared, losses


def _compare_columns(a: pa.Schema, b: pa.Schema) -> tuple[list[str], dict[str, str]]:
    """Return the columns that both have, and what differs of the others and of types."""
    names = [name for name in a.names if name in b.names]
    differing = {name: "only in the first" for name in a.names if name not in names}
    differing |= {name: "only in the second" for name in b.names if name not in names}
    for name in names:
        type_a, type_b = a.field(name).type, b.field(name).type
        if type_a != type_b:
            differing[name] = f"{render_type(type_a)} in the first, {render_type(type_b)} in the second"
    return names, differing


def compare_in_order(comparison: Comparison, a: PeekableRows, b: PeekableRows) -> None:
    """Compare rows in their order; after a difference, go on at the next row that both have."""
    while (batch_a := a.peek_batch()) is not None and (batch_b := b.peek_batch()) is not None:
        count = min(batch_a.num_rows, batch_b.num_rows)
        if batch_a.slice(0, count).equals(batch_b.slice(0, count)):
            comparison.equal += count
            a.skip(count)
            b.skip(count)
        else:
            _compare_window(comparison, a, b)
    for name, side in (("a", a), ("b", b)):
        while lines := side.peek_lines():
            comparison.add_unmatched(name, side.passed, lines)
            side.skip(len(lines))


def _compare_window(comparison: Comparison, a: PeekableRows, b: PeekableRows) -> None:
    """Compare the next rows one by one, as far as is certain within the window."""
    lines_a, lines_b = a.peek_lines(), b.peek_lines()
    at_a = at_b = 0
    while at_a < len(lines_a) and at_b < len(lines_b):
        if lines_a[at_a] == lines_b[at_b]:
            comparison.equal += 1
            to_a, to_b = at_a + 1, at_b + 1
        else:
            reached = (
                _find_meeting(lines_a[at_a : at_a + reach], lines_b[at_b : at_b + reach]) for reach in _REACH_ROWS
            )
            meeting = next((meeting for meeting in reached if meeting is not None), None)
            if meeting is None and (at_a or at_b):
                break  # there may be one beyond the window
            to_a, to_b = (at_a + meeting[0], at_b + meeting[1]) if meeting else (len(lines_a), len(lines_b))
            comparison.add_unmatched("a", a.passed + at_a, lines_a[at_a:to_a])
            comparison.add_unmatched("b", b.passed + at_b, lines_b[at_b:to_b])
        at_a, at_b = to_a, to_b
    a.skip(at_a)
    b.skip(at_b)


def _find_meeting(a: list[str], b: list[str]) -> tuple[int, int] | None:
    """Return how many rows of both are before the nearest one that both have, if there is one."""
    places: dict[str, int] = {}
    for place, line in enumerate(b):
        places.setdefault(line, place)
    meetings = [(place, places[line]) for place, line in enumerate(a) if line in places]
    return min(meetings, key=sum, default=None)


def _compare_by_key(
    comparison: Comparison, sides: list[Iterator[pa.RecordBatch]], names: list[str], keys: list[str]
) -> None:
    """Compare rows of equal keys, whatever their order: the n-th of a key with the n-th. They are sorted on disk."""
    with _on_disk() as database:
        database.execute("CREATE TABLE entries (side INTEGER, place INTEGER, key TEXT, line TEXT)")
        for number, batches in enumerate(sides):
            place = itertools.count()
            for batch in batches:
                rows = zip(encode_json_lines(batch.select(keys)), encode_json_lines(batch.select(names)), strict=True)
                entries = ((number, next(place), key, line) for key, line in rows)
                database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", entries)
        database.executescript(_JOINED)
        counts = "count(*) FILTER (WHERE {})".format
        query = ", ".join(map(counts, ("line_a = line_b", "line_a <> line_b", "b IS NULL", "a IS NULL")))
        comparison.equal, comparison.changed, comparison.only_a, comparison.only_b = database.execute(
            f"SELECT {query} FROM joined"  # noqa: S608 # of constants
        ).fetchone()
        differing = database.execute(
            "SELECT a, line_a, b, line_b FROM joined WHERE line_a IS NOT line_b"
            " ORDER BY coalesce(a, b), a IS NULL LIMIT ?",
            (comparison.max_rows,),
        )
        for row_a, line_a, row_b, line_b in differing:
            pair = (("a", row_a, line_a), ("b", row_b, line_b))
            comparison.keep(Row(*row) for row in pair if row[1] is not None)


@contextmanager
def _on_disk() -> Iterator[sqlite3.Connection]:
    """Provide a database in the directory for temporary files, so that memory stays bounded, in the block."""
    with tempfile.TemporaryDirectory(prefix="sawlog-") as place, closing(sqlite3.connect(f"{place}/rows")) as database:
        try:
            database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE")
            yield database
        except sqlite3.OperationalError as error:
            raise DiskError(f"rows cannot be sorted on disk: {error}") from error
