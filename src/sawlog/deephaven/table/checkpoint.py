"""The verdict on a location, and how many of its rows are committed: `table.size`, and what files hold. Section 6."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from sawlog.deephaven.table import layout
from sawlog.deephaven.table.location import ColumnFiles, Headers, Location, decode_count, read_checkpoint
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.errors import Damage, OptionError
from sawlog.storage import Storage, read_indexed

_IDLE_ROWS = 64


@dataclass(frozen=True, slots=True)
class DataFile:
    """Size and row width of a data file.

    Attributes:
        size: Bytes of its data region.
        width: Bytes per row; None for files without a fixed width per row.
    """

    size: int
    width: int | None


def _guess_count(checkpoint: bytes, files: Mapping[str, DataFile]) -> int | None:
    """Return the row count of a record of a later version, whose layout is not public; None unless everything agrees.

    Of every data file that the record names, the size after the name has to be within the file. Files of a fixed width
    per row have to agree on the number of rows, and the record has to contain that number.
    """
    orders: tuple[Literal["big", "little"], ...] = ("big", "little")
    for order in orders:
        counts = set()
        for name, facts in files.items():
            encoded = name.encode("utf-8", "surrogateescape")
            needle = len(encoded).to_bytes(layout.NAME_LENGTH_SIZE, "big") + encoded
            name_offset = checkpoint.find(needle)
            if name_offset < 0:
                continue
            stored = checkpoint[name_offset + len(needle) : name_offset + len(needle) + layout.FILE_SIZE_SIZE]
            size = int.from_bytes(stored, order, signed=True)
            if len(stored) < layout.FILE_SIZE_SIZE or not 0 <= size <= facts.size:
                counts.add(-1)
                break
            if facts.width is not None:
                counts.add(size // facts.width if size % facts.width == 0 else -1)
        if len(counts) == 1 and -1 not in counts:
            count = counts.pop()
            if count.to_bytes(layout.FILE_SIZE_SIZE, order, signed=True) in checkpoint:
                return count
    return None


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of committed rows of a location, and how that is known.

    Attributes:
        count: Rows to read.
        source: `num_rows`, `table.size`, `checkpoint-heuristic` or `files`.
        stated: What `table.size` says, where the files do not hold as much; the rest is lost.
        remark: What the user should know; empty if nothing.
        unknown: Why the count cannot be known, where a record of it must be there; empty otherwise.
    """

    count: int
    source: str
    stated: int | None = None
    remark: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """A finding about a location that is not found by reading a column.

    Attributes:
        column: The column that it concerns; empty for the whole location.
        damage: What is missing, or damaged.
    """

    column: str
    damage: Damage


@dataclass(frozen=True, slots=True)
class LocationVerdict:
    """Judgement of a location, made once per open; plans, reads, views, checks and validation all ask it."""

    location: Location
    specs: Mapping[str, ColumnSpec]
    headers: Headers
    rows: RowCount
    gaps: tuple[Gap, ...] = ()

    def select_gaps(self, names: Collection[str]) -> list[Damage]:
        """Return the gaps that concern a reader of some columns: theirs, and those of columns that nobody can name."""
        return [gap.damage for gap in self.gaps if gap.column in ("", *names) or gap.column not in self.specs]


def find_committed_rows(
    location: Location, headers: Headers, specs: Mapping[str, ColumnSpec], requested_rows: int | None, storage: Storage
) -> RowCount:
    """Return the rows of a location, by the first of: what the user says, `table.size`, what the files have room for.

    Raises:
        OptionError: When the user asks for more rows than any column has.
    """
    capacities = _Capacities(location, headers, specs, storage)
    if requested_rows is not None:
        if not capacities.reach(requested_rows):
            raise OptionError(
                f"{location.directory}: num_rows={requested_rows}: the longest column has {capacities.max_rows} rows"
            )
        return RowCount(requested_rows, "num_rows")
    checkpoint = read_checkpoint(location, partial(read_indexed, storage))
    count = decode_count(checkpoint)
    if count is not None:
        if not capacities.reach(count):
            # Rows may have been committed since the files were listed.
            location = location.with_files(storage.list_files(location.directory))
            capacities = _Capacities(location, headers, specs, storage)
        if capacities.reach(count):
            return RowCount(count, "table.size")
        return RowCount(capacities.max_rows, "table.size", count)
    if checkpoint is not None and len(checkpoint) > layout.ROW_COUNT_SIZE:
        count = _guess_count(checkpoint, capacities.list_data_files())
        if count is not None and capacities.reach(count):
            return RowCount(count, "checkpoint-heuristic")
    room = capacities.count_rows()
    unknown = _explain_unknown(location, room) or capacities.describe_cut()
    if not room:
        return RowCount(0, "files", unknown=unknown)
    low = min(room, key=room.__getitem__)
    remark = ""
    if not unknown and capacities.is_idle(room[low]):
        remark = (
            f"{location.directory}: its {room[low]} rows end in zeros in every column and no row count is known: room"
            " that was reserved and not used would look like that; num_rows= says how many rows there are"
        )
    return RowCount(min(room[low], layout.MAX_ROWS), "files", remark=remark, unknown=unknown)


def _explain_unknown(location: Location, room: Mapping[str, int]) -> str:
    """Return why no record of the rows, which must be there, is usable; empty if files may speak for themselves."""
    file = location.find_other_file(layout.TABLE_SIZE)
    if file is not None and file.size < layout.ROW_COUNT_SIZE:
        return f"expected {layout.ROW_COUNT_SIZE} bytes or more, found {file.size}: the rows are those of the files"
    low, high = (min(room, key=room.__getitem__), max(room, key=room.__getitem__)) if room else ("", "")
    if room and room[low] != room[high]:
        return (
            f"its columns hold {room[low]} ({low}) to {room[high]} ({high}) rows and no row count is known: the first"
            f" {room[low]} are read"
        )
    if file is None and location.declared.version is not None:
        return f"the writer of {layout.TABLE_SCHEMA} writes it last, and it is not there: the files say how many rows"
    return ""


class _Capacities:
    """Rows that the columns of a location have room for. Headers are read as far as they are needed."""

    def __init__(self, location: Location, headers: Headers, specs: Mapping[str, ColumnSpec], storage: Storage) -> None:
        self._storage = storage
        self._location = location
        self._headers = headers
        self._specs = specs
        self._rows_by_column: dict[str, int | None] = {}
        self._over: dict[str, tuple[int, int]] = {}

    def reach(self, count: int) -> bool:
        """Return whether any column has so many rows."""
        return any((self._of(name) or 0) >= count for name in self._location.columns) or not count

    @property
    def max_rows(self) -> int:
        """Rows of the longest column."""
        return max(self.count_rows().values(), default=0)

    def count_rows(self) -> dict[str, int]:
        """Return how many rows the files of each column have room for; without columns that cannot be counted."""
        return {name: count for name in self._location.columns if (count := self._of(name)) is not None}

    def describe_cut(self) -> str:
        """Say which column ends within a value, so that its file was cut; empty where none does."""
        for name in self.count_rows():
            width, over = self._over[name]
            if over:
                return (
                    f"the last {over} bytes of column {name} are no whole value of {width}, and no row count is known:"
                    " the file was cut"
                )
        return ""

    def is_idle(self, rows: int) -> bool:
        """Return whether the last rows, quite a few, are zeros in every column."""
        if rows <= _IDLE_ROWS:
            return False
        for name in self.count_rows():
            column = self._location.columns[name]
            header = self._headers.of(column, layout.DATA)
            width = compute_row_width(self._specs.get(name), column)
            assert column.data is not None
            assert header is not None
            assert width is not None
            first_byte = header.data_start + (rows - _IDLE_ROWS) * width
            if read_indexed(self._storage, column.data, first_byte, _IDLE_ROWS * width).strip(b"\0"):
                return False
        return True

    def list_data_files(self) -> dict[str, DataFile]:
        data_files = {}
        for name, column in self._location.columns.items():
            for suffix in (layout.DATA, layout.SYMBOL_OFFSETS):
                file = column.files.get(suffix)
                header = self._headers.of(column, suffix) if file is not None else None
                if file is not None and header is not None:
                    width = compute_row_width(self._specs.get(name), column) if suffix == layout.DATA else None
                    data_files[file.name] = DataFile(file.size - header.data_start, width)
            for suffix in (layout.BINARY, layout.SYMBOL_BINARY):
                if suffix in column.files:
                    data_files[column.files[suffix].name] = DataFile(column.files[suffix].size, None)
        return data_files

    def _of(self, name: str) -> int | None:
        if name not in self._rows_by_column:
            column = self._location.columns[name]
            width = compute_row_width(self._specs.get(name), column)
            header = self._headers.of(column, layout.DATA) if column.data is not None and width else None
            size = column.data.size - header.data_start if column.data is not None and header is not None else None
            self._rows_by_column[name] = None if size is None or width is None else size // width
            if size is not None and width is not None:
                self._over[name] = width, size % width
        return self._rows_by_column[name]


def compute_row_width(spec: ColumnSpec | None, column: ColumnFiles) -> int | None:
    """Return the number of bytes per row in a column's `.dat`; None for an unknown type."""
    if spec is None:
        return None
    if layout.BINARY in column.files and spec.slot_width:
        return layout.OFFSET_SIZE
    return spec.adapt_to_files(column.files).width
