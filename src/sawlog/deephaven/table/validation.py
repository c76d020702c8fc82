"""Validation of the locations of a table against expectations, from options or a TOML file."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog import api
from sawlog.arrow import fill_null, unpack_booleans
from sawlog.deephaven.table.dataset import DeephavenTableContents
from sawlog.deephaven.table.fragments import RowRange
from sawlog.deephaven.table.groups.grouping import GroupComparison, Grouping, is_comparable
from sawlog.deephaven.table.location import Location
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.deephaven.table.views import read_column_grouping
from sawlog.errors import FormatError, OptionError
from sawlog.format.damage import Findings
from sawlog.format.options import parse_options
from sawlog.guard import Undecodable, call_decoder
from sawlog.storage import PathLike, Storage
from sawlog.storage.workers import count_cores, map_all


@dataclass(frozen=True, slots=True)
class ColumnExpectation:
    """Expectations of a column, in every location.

    Attributes:
        type: Its type, as schema files spell it.
        max_nulls: How many of its values may be null.
        max_null_fraction: How many of them, as a fraction of the rows.
        sorted: Whether its values ascend, nulls first: in the whole `location`, or in each of the `groups` that the
            grouped columns make.
        grouped: Whether it has grouping metadata.
    """

    type: str | None = None
    max_nulls: int | None = None
    max_null_fraction: float | None = None
    sorted: Literal["location", "groups"] | None = None
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expectations of every location.

    Attributes:
        min_rows: Rows that it has at least.
        max_rows: Rows that it has at most.
        columns: What is expected of columns, by name. They have to be there.
    """

    min_rows: int = 0
    max_rows: int | None = None
    columns: Mapping[str, ColumnExpectation] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any], context: str) -> Expectations:
        """Return expectations from plain data: the attributes by name, and `columns` by name with theirs.

        Raises:
            OptionError: For an unknown name or a value of another type.
        """
        columns = document.get("columns", {})
        if not isinstance(columns, Mapping) or not all(isinstance(column, Mapping) for column in columns.values()):
            raise OptionError(f"{context}: columns: expected a table for each column, such as [columns.Timestamp]")
        parsed = {
            name: parse_options(ColumnExpectation, column, context=f"{context}: column {name!r}")
            for name, column in columns.items()
        }
        return replace(parse_options(cls, {**document, "columns": {}}, context=context), columns=parsed)

    @classmethod
    def read(cls, path: PathLike, storage: Storage | None = None) -> Expectations:
        """Return expectations from a TOML file.

        Raises:
            OptionError: When it is none.
        """
        data = (storage or Storage()).read(path)
        document = call_decoder(tomllib.load, io.BytesIO(data))
        if isinstance(document, Undecodable):
            raise OptionError(f"{path}: not TOML: {document.detail}")
        return cls.of(document, str(path))

    def expect(self, name: str, **expectations: Any) -> Expectations:
        """Return the same, and more of one column."""
        column = replace(self.columns.get(name, ColumnExpectation()), **expectations)
        return replace(self, columns={**self.columns, name: column})


@dataclass(slots=True)
class ValidatedColumn:
    """Facts that were found of a column of a location.

    Attributes:
        type: Its type, as schema files spell it.
        nulls: How many of its values are null.
        groups: How many groups its metadata lists; None when it has none that can be read.
        ascends: Whether its values ascend where that is expected; None where it is not.
    """

    type: str
    nulls: int = 0
    groups: int | None = None
    ascends: bool | None = None


@dataclass(slots=True)
class ValidatedLocation:
    """Facts and problems that were found of a location.

    Attributes:
        path: Its directory.
        internal_partition: Its internal partition, if the path names it.
        column_partition: Its column partition, likewise.
        rows: How many rows it has.
        columns: Its columns by name.
        problems: What is not as it should be, a sentence each.
    """

    path: str
    internal_partition: str | None
    column_partition: str | None
    rows: int = 0
    columns: dict[str, ValidatedColumn] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Validation:
    """Result of `validate`: the locations, and their problems.

    Attributes:
        locations: Every location, in order.
    """

    locations: Sequence[ValidatedLocation]

    @property
    def rows(self) -> int:
        """Rows of all locations."""
        return sum(location.rows for location in self.locations)

    @property
    def problems(self) -> list[str]:
        """The problems of all locations, each with its path."""
        return [f"{location.path}: {problem}" for location in self.locations for problem in location.problems]

    @property
    def valid(self) -> bool:
        """Whether there are none."""
        return not self.problems


def validate(
    path: PathLike | Sequence[PathLike],
    expected: Expectations | None = None,
    *,
    column_partition: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Validation:
    """Read every row of every location of a table, and report what is not as it should be.

    Damage, groups that are not the rows, and rows that are not of their group are problems always.

    Args:
        path: A tree or a location of column files.
        expected: What else every location has to be.
        column_partition: Only locations of this one, such as `2024-03-01`.
        storage_options: What fsspec needs to reach the path.
        **options: Options for reading `deephaven_table`.

    Raises:
        FormatError: When there is no such location.
        SawlogError: When the path cannot be read as one table.
    """
    settings: dict[str, Any] = {"storage_options": storage_options, **options}
    opened = api.open(path, format="deephaven_table", on_damage="skip", **settings)
    contents = cast(DeephavenTableContents, opened.contents)
    fragments: dict[str, list[RowRange]] = {}
    for fragment in opened.fragments(None):
        fragments.setdefault(fragment.path, []).append(cast(RowRange, fragment))
    checks = [
        _Check(
            contents.specs, opened.schema, location, fragments.get(location.directory, []), expected or Expectations()
        )
        for location in contents.locations
        if column_partition in (None, location.column_partition)
    ]
    if not checks:
        raise FormatError(f"{path}: no location of the column partition {column_partition!r}")
    return Validation(map_all(checks, _Check.run, count_cores()))


class _Check:
    """The validation of one location."""

    def __init__(
        self,
        specs: Mapping[str, ColumnSpec],
        schema: pa.Schema,
        location: Location,
        fragments: Sequence[RowRange],
        expected: Expectations,
    ) -> None:
        self._fragments = fragments
        self._expected = expected
        self._specs = specs
        self._schema = schema
        self._validated = ValidatedLocation(location.directory, location.internal_partition, location.column_partition)
        self._problems = self._validated.problems
        self._groupings: dict[str, Grouping] = {}
        self._compared: dict[str, GroupComparison] = {}

    def run(self) -> ValidatedLocation:
        self._begin()
        orders = self._make_orders()
        findings = Findings("skip")
        row = 0
        for fragment in self._fragments:
            for batch in fragment.to_batches(findings):
                self._take(batch, row, orders)
                row += batch.num_rows
        self._validated.rows = row
        self._problems += [
            f"{damage.kind} in {damage.path} at byte {damage.offset}: {damage.detail}" for damage in findings.damages
        ]
        for name, order in orders.items():
            self._validated.columns[name].ascends = order.broken is None
            if order.broken is not None:
                self._problems.append(f"column {name!r}: row {order.broken} is less than the row before it")
        self._compare()
        return self._validated

    def _begin(self) -> None:
        """Look at the columns and their groups."""
        specs = self._fragments[0].verdict.specs if self._fragments else self._specs
        for name in self._specs:
            if name in specs:
                self._validated.columns[name] = ValidatedColumn(specs[name].type.value)
        for fragment in self._fragments[:1]:
            for name, column in fragment.verdict.location.columns.items():
                if name not in self._validated.columns:
                    continue
                try:
                    grouping = read_column_grouping(column, fragment.verdict, fragment.scan.storage)
                except FormatError as error:
                    self._problems.append(f"column {name!r}: {error}")
                    continue
                if grouping is not None:
                    self._groupings[name] = grouping
                    self._validated.columns[name].groups = len(grouping)
                    if is_comparable(grouping, specs[name].type):
                        target = self._schema.field(name).type
                        self._compared[name] = GroupComparison(grouping, specs[name].type, target)

    def _make_orders(self) -> dict[str, _Order]:
        firsts = [grouping.firsts for grouping in self._groupings.values()]
        starts = np.unique(np.concatenate(firsts)) if firsts else np.zeros(0, np.int64)
        nowhere = np.zeros(0, np.int64)
        return {
            name: _Order(starts if expectation.sorted == "groups" else nowhere)
            for name, expectation in self._expected.columns.items()
            if expectation.sorted is not None and name in self._validated.columns
        }

    def _take(self, batch: pa.RecordBatch, row: int, orders: Mapping[str, _Order]) -> None:
        for name, column in self._validated.columns.items():
            array = batch.column(name)
            column.nulls += array.null_count
            if name in orders:
                orders[name].take(array, row)
            compared = self._compared.get(name)
            wrong = compared.find_differing(row, array) if compared is not None else None
            if wrong is not None:
                del self._compared[name]
                value = array[wrong - row]
                self._problems.append(f"column {name!r}: row {wrong} is {value}, and in the group of another value")

    def _compare(self) -> None:
        """Hold what was found against what is expected."""
        rows, expected = self._validated.rows, self._expected
        if rows < expected.min_rows:
            self._problems.append(f"expected at least {expected.min_rows} rows, found {rows}")
        if expected.max_rows is not None and rows > expected.max_rows:
            self._problems.append(f"expected at most {expected.max_rows} rows, found {rows}")
        for name, expectation in expected.columns.items():
            column = self._validated.columns.get(name)
            if column is None:
                self._problems.append(f"column {name!r}: expected it, found none")
            else:
                self._problems += [
                    f"column {name!r}: {problem}" for problem in _list_differences(expectation, column, rows)
                ]


def _list_differences(expected: ColumnExpectation, column: ValidatedColumn, rows: int) -> list[str]:
    problems = []
    if expected.type is not None and expected.type.lower() != column.type.lower():
        problems.append(f"expected the type {expected.type}, found {column.type}")
    if expected.max_nulls is not None and column.nulls > expected.max_nulls:
        problems.append(f"expected at most {expected.max_nulls} nulls, found {column.nulls}")
    if expected.max_null_fraction is not None and column.nulls > expected.max_null_fraction * rows:
        problems.append(f"expected at most {expected.max_null_fraction:.3%} nulls, found {column.nulls} in {rows} rows")
    if expected.grouped and column.groups is None and rows:
        problems.append("expected groups, found none that can be read")
    return problems


class _Order:
    """Whether values ascend, nulls first, batch by batch.

    Args:
        starts: int64, ascending: rows that may be less than the one before them.

    Attributes:
        broken: The first row that is less than the one before it, and must not be.
    """

    def __init__(self, starts: NDArray[np.int64]) -> None:
        self._starts = starts
        self._last: pa.Array | None = None
        self.broken: int | None = None

    def take(self, array: pa.Array, row: int) -> None:
        """Take the values of the next rows."""
        import pyarrow.compute as pc

        if self.broken is not None or not len(array):
            return
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        values = plain if self._last is None else pa.concat_arrays([self._last, plain])
        first = row if self._last is None else row - 1
        self._last = plain[-1:]
        before, after = values[:-1], values[1:]
        less = pc.or_(fill_null(pc.less(after, before), False), pc.and_(pc.is_null(after), pc.is_valid(before)))
        rows = np.flatnonzero(unpack_booleans(less)) + first + 1
        wrong = rows[~np.isin(rows, self._starts)]
        self.broken = int(wrong[0]) if len(wrong) else None
