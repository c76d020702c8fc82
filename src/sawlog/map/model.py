"""The findings of a survey as plain data: the document of `sawlog map --json`, drawn by the page."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from sawlog.format.charts import Picture
from sawlog.format.damage import (
    Account,
    Damage,
    HasVerdict,
    Skipped,
    Tail,
    Verdict,
    count_findings,
    count_kinds,
    dump_ranges,
)
from sawlog.format.fields import Part

VERSION = 1
"""Of the document."""
_RANKS = ["not drawn", *map(str, (Verdict.DAMAGED, Verdict.INCOMPLETE, Verdict.UNSUPPORTED, Verdict.CLEAN))]
MAX_TEXT = 80
"""Characters of the value of a part."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Bytes of a file, and the parts that the format finds in them."""

    offset: int
    data: bytes
    parts: list[Part]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; bytes as hexadecimal digits, parts as lists of their attributes.

        The last attribute, the parts inside, is there where there are any.
        """
        return {"offset": self.offset, "hex": self.data.hex(), "parts": [_list_part(part) for part in self.parts]}


def _list_part(part: Part) -> list[Any]:
    values = [part.name, part.offset, part.length, part.value[:MAX_TEXT], part.expected, part.use]
    return [*values, [_list_part(inner) for inner in part.inside]] if part.inside else values


@dataclass(slots=True)
class FileMap(HasVerdict):
    """The map of a file.

    Attributes:
        path: The file.
        size: Its bytes.
        rows: Rows of the view that were read of it; None where the view does not say which file a row is of.
        account: Where its bytes went, as `sawlog verify` counts.
        tail: How it ends.
        damages: The first damaged or unsupported ranges.
        kinds: How often each kind of them was found.
        bins: What is known of equal parts of it: one list per field of `sawlog.map.kernels.BIN`.
        bin_bytes: Bytes per bin.
        spans: Offset and bytes of rows that are known one by one, ascending; all of them, if `complete`.
        complete: Whether `spans` has every row.
        excerpts: Bytes worth showing, by offset.
        order: What is known of the order of its rows: lowest and highest value, resets, the largest step and its place.
    """

    path: str
    size: int
    rows: int | None = None
    account: Account = field(default_factory=Account)
    tail: Tail | None = None
    damages: list[Damage] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    bins: dict[str, list[Any]] = field(default_factory=dict)
    bin_bytes: int = 1
    spans: list[tuple[int, int]] = field(default_factory=list)
    complete: bool = False
    excerpts: list[Excerpt] = field(default_factory=list)
    order: dict[str, Any] | None = None

    def count(self, verdict: Verdict) -> int:
        return count_findings([self.kinds], (), verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; spans as the distances of their offsets, which are shorter, and their bytes."""
        starts = [0, *(start for start, _ in self.spans)]
        steps = [after - before for before, after in itertools.pairwise(starts)]
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "bytes": asdict(self.account),
            "unread": max(0, self.size - self.account.total),
            "tail": asdict(self.tail) if self.tail is not None else None,
            "damages": dump_ranges(self.damages, Verdict.DAMAGED),
            "incomplete": dump_ranges(self.damages, Verdict.INCOMPLETE),
            "unsupported": dump_ranges(self.damages, Verdict.UNSUPPORTED),
            "damage_count": self.count(Verdict.DAMAGED),
            "damage_kinds": count_kinds(self.kinds, Verdict.DAMAGED),
            "unsupported_count": self.count(Verdict.UNSUPPORTED),
            "bin_bytes": self.bin_bytes,
            "bins": self.bins,
            "spans": {"steps": steps, "bytes": [size for _, size in self.spans]},
            "complete": self.complete,
            "excerpts": [excerpt.to_dict() for excerpt in self.excerpts],
            "order": self.order,
        }


@dataclass(slots=True)
class ColumnMap:
    """The content of a column; bounds and keys are text."""

    name: str
    type: str
    nulls: int
    low: str | None
    high: str | None
    distinct: int | None


@dataclass(slots=True)
class KeysMap:
    """The values of a column with most bytes: value, rows, bytes; `least` where the counts are lower bounds."""

    column: str
    top: list[tuple[str | None, int, int]]
    least: bool


@dataclass(slots=True)
class Map(HasVerdict):
    """A file, or what a directory holds.

    Attributes:
        paths: As they were named.
        format: The format's name.
        title: What people call it.
        view: The view that rows are of.
        facts: What the format says of itself.
        rows: Rows of the view.
        files: One entry per file, in reading order.
        skipped: What the paths hold and the view does not read.
        columns: What the columns hold.
        head: The first rows, as text.
        keys: The largest keys or series.
        order: The column that the rows are expected to ascend by, and what its values are: `time` or `number`.
        pictures: Charts: those of the format, then those that every format has.
    """

    paths: list[str]
    format: str
    title: str
    view: str
    facts: dict[str, Any]
    rows: int = 0
    files: list[FileMap] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    columns: list[ColumnMap] = field(default_factory=list)
    head: list[list[str | None]] = field(default_factory=list)
    keys: list[KeysMap] = field(default_factory=list)
    order: tuple[str, str] | None = None
    pictures: list[Picture] = field(default_factory=list)

    @property
    def account(self) -> Account:
        """Bytes by use, over all files."""
        return Account.sum(file.account for file in self.files)

    def count(self, verdict: Verdict) -> int:
        return count_findings((file.kinds for file in self.files), self.skipped, verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "version": VERSION,
            "paths": self.paths,
            "format": self.format,
            "title": self.title,
            "view": self.view,
            "facts": {name: str(value) for name, value in self.facts.items()},
            "rows": self.rows,
            "size": sum(file.size for file in self.files),
            "damaged": self.damaged,
            "incomplete": self.incomplete,
            "unsupported": self.unsupported,
            "bytes": asdict(self.account),
            "files": [file.to_dict() for file in self.files],
            "skipped": [file.to_dict() for file in self.skipped],
            "columns": [asdict(column) for column in self.columns],
            "head": self.head,
            "keys": [asdict(keys) for keys in self.keys],
            "order": {"column": self.order[0], "kind": self.order[1]} if self.order else None,
            "pictures": [picture.to_dict() for picture in self.pictures],
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a summary: a dataset, or a table of one.

    Attributes:
        path: Where it is.
        title: The title of its format.
        size: Bytes of its files.
        table: Its name, where it is one of several tables of a dataset.
        rows: Rows of its page; `None` where it has none.
        verdict: What was found; `None` where it could not be drawn.
        page: The name of its page, in the directory of the summary; empty where it has none.
        error: Why it could not be drawn.
    """

    path: str
    title: str
    size: int
    table: str = ""
    rows: int | None = None
    verdict: Verdict | None = None
    page: str = ""
    error: str = ""

    @property
    def state(self) -> str:
        """The verdict in words."""
        return "not drawn" if self.verdict is None else str(self.verdict)


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a folder of several datasets, each of which has a page.

    Attributes:
        paths: As they were named.
        entries: Its datasets and their tables.
        skipped: Files that are of none of them.
    """

    paths: list[str]
    entries: list[Entry]
    skipped: list[Skipped]

    @property
    def worst_first(self) -> list[Entry]:
        """The entries, those that were not drawn first, clean ones last."""
        return sorted(self.entries, key=lambda entry: _RANKS.index(entry.state))

    @property
    def states(self) -> str:
        """The number of datasets of each verdict, as a phrase; that of a dataset is the worst of its tables."""
        counts = Counter({entry.path: entry.state for entry in reversed(self.worst_first)}.values())
        parts = f"{counts.total():,} part{'' if counts.total() == 1 else 's'}"
        return f"{parts}: {', '.join(f'{counts[state]:,} {state}' for state in reversed(_RANKS) if counts[state])}"

    @property
    def rows(self) -> int:
        """Rows of all pages."""
        return sum(entry.rows or 0 for entry in self.entries)
