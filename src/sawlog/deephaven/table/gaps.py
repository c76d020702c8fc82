"""Gaps of a location: files that its schema, its other files or the locations next to it promise, and are not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import Gap, RowCount
from sawlog.deephaven.table.layout import ColumnDamageKind
from sawlog.deephaven.table.location import Headers, Location
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.format.damage import CUT_METADATA, MISSING_FILE, Damage


def find_lost_columns(locations: Sequence[Location]) -> dict[str, frozenset[str]]:
    """Return the columns that a location without them must have lost, by its directory.

    In a historical tree, one merge writes all internal partitions of a date; and what an earlier and a later date of
    an internal partition have, those between them have.
    """
    dates: dict[tuple[str | None, ...], list[Location]] = defaultdict(list)
    streams: dict[tuple[str | None, ...], list[Location]] = defaultdict(list)
    for location in locations:
        if location.layout == "historical" and location.has_all_columns:
            dates[location.namespace, location.table, location.column_partition].append(location)
            streams[location.namespace, location.table, location.internal_partition].append(location)
    promised: dict[str, set[str]] = defaultdict(set)
    for group in dates.values():
        data_columns = {name for location in group for name in _with_data(location)}
        for location in group:
            promised[location.directory] |= data_columns
    for group in streams.values():
        before: set[str] = set()
        prefixes: list[set[str]] = []
        for location in group:
            before |= _with_data(location)
            prefixes.append(set(before))
        after: set[str] = set()
        for location, prefix in zip(reversed(group), reversed(prefixes), strict=True):
            after |= _with_data(location)
            promised[location.directory] |= prefix & after
    return {directory: frozenset(names) for directory, names in promised.items()}


def _with_data(location: Location) -> set[str]:
    return {name for name, column in location.columns.items() if column.data is not None}


def find_gaps(
    location: Location,
    rows: RowCount,
    headers: Headers,
    specs: Mapping[str, ColumnSpec],
    schema: tuple[Collection[str], str],
    promised: Collection[str],
) -> tuple[Gap, ...]:
    """Return what a location lacks, or holds a stump of, that no column's own reader comes across.

    Args:
        location: The location.
        rows: How many rows are committed.
        headers: How its files begin.
        specs: The columns that are known.
        schema: The columns that its `table.schema` defines, and why that cannot be read; empty where it can.
        promised: Columns that other locations show it must have.
    """
    defined, unreadable = schema
    gaps = list(
        _find_missing_columns(
            location, defined if location.has_all_columns else (), promised if location.has_all_columns else ()
        )
    )
    if unreadable:
        path = f"{location.directory}/{layout.TABLE_SCHEMA}"
        detail = f"{unreadable}: types were inferred and may be others; give schema= or types=, or restore the file"
        gaps.append(Gap("", Damage(path, 0, 0, CUT_METADATA, detail)))
    if rows.unknown:
        kind = MISSING_FILE if location.find_other_file(layout.TABLE_SIZE) is None else CUT_METADATA
        detail = f"{rows.unknown}; num_rows= says how many rows there are"
        gaps.append(Gap("", Damage(f"{location.directory}/{layout.TABLE_SIZE}", 0, 0, kind, detail)))
    return (*gaps, *_find_stumps(location, rows, headers, specs))


def _find_missing_columns(location: Location, defined: Iterable[str], promised: Iterable[str]) -> Iterable[Gap]:
    """Yield a gap for each column without a data file."""
    reasons = dict.fromkeys(promised, "other locations have the column")
    reasons |= dict.fromkeys(defined, f"{layout.TABLE_SCHEMA} names the column")
    for name, column in location.columns.items():
        if column.data is None:
            file_names = ", ".join(file.name for file in column.files.values())
            reasons[name] = f"the column's other files are there ({file_names})"
    names_with_data = _with_data(location)
    for name, reason in reasons.items():
        if name not in names_with_data:
            detail = f"{reason}, and its data are not: it reads as null; restore the file, or leave the column out"
            yield Gap(name, Damage(f"{location.directory}/{name}{layout.DATA}", 0, 0, MISSING_FILE, detail))


def _find_stumps(
    location: Location, rows: RowCount, headers: Headers, specs: Mapping[str, ColumnSpec]
) -> Iterable[Gap]:
    """Yield the damage of data files too short for a type to be inferred: no reader opens them."""
    for name, column in location.columns.items():
        data = column.data
        if name in specs or data is None or not rows.count:
            continue
        header = headers.of(column, layout.DATA)
        if header is None:
            start, kind = 0, ColumnDamageKind.BAD_HEADER
            detail = "expected sizes of metadata and header within the file"
        elif data.size - header.data_start < rows.count:
            start, kind = header.data_start, ColumnDamageKind.SHORT_FILE
            detail = f"expected {rows.count} rows of at least a byte, found {data.size - start} bytes"
        else:
            continue
        yield Gap(name, Damage(data.path, start, data.size - start, kind.label, f"column {name!r}: {detail}"))
