"""The work of an operator's timer every night: merge all dates that are over, of all tables."""

from __future__ import annotations

import datetime as dt
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sawlog.deephaven.ingest.spark.merge import Merge, merge
from sawlog.deephaven.ingest.tree import IntradayTable, list_directories, require_root
from sawlog.deephaven.table.layout import INTRADAY
from sawlog.errors import OptionError, SawlogError
from sawlog.storage import PathLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class MergedDate:
    """The outcome of merging one date of one table.

    Attributes:
        namespace: Namespace of the table.
        table: The table.
        date: The column partition.
        merge: What was done; None when it failed.
        error: Why it failed; empty otherwise.
    """

    namespace: str
    table: str
    date: str
    merge: Merge | None = None
    error: str = ""


@dataclass(slots=True)
class Nightly:
    """The outcome of `nightly`.

    Attributes:
        dates: Every date that was due, in order.
    """

    dates: list[MergedDate] = field(default_factory=list)

    @property
    def failed(self) -> list[MergedDate]:
        """The dates that are still due."""
        return [date for date in self.dates if date.merge is None]


def nightly(
    spark: SparkSession | None,
    root: PathLike,
    *,
    before: str | None = None,
    namespace: str | None = None,
    delete_intraday: bool = True,
    **options: Any,
) -> Nightly:
    """Merge every date that is over, of every intraday table; what fails does not keep the others.

    Args:
        spark: As for `merge`.
        root: The root of both trees, on a file system.
        before: Dates before this one are over, as `2024-03-01`; by default before today, in UTC.
        namespace: Only tables of this namespace.
        delete_intraday: Delete the intraday locations of what is proven.
        **options: As for `merge`, for all tables.

    Raises:
        OptionError: When `before` is no date, or there is no such root.
    """
    end = before if before is not None else dt.datetime.now(dt.UTC).date().isoformat()
    if not _DATE.fullmatch(end):
        raise OptionError(f"before={end!r}: expected a date such as 2024-03-01")
    place = require_root(root)
    done = Nightly()
    for of, table, date in _list_due_dates(place, namespace, end):
        try:
            with warnings.catch_warnings():
                # Guessed types are refused, which the date's error says.
                warnings.filterwarnings("ignore", message=".*types were inferred")
                merged = merge(spark, root, of, table, date, delete_intraday=delete_intraday, **options)
        except (SawlogError, OSError) as error:
            done.dates.append(MergedDate(of, table, date, error=str(error)))
        else:
            done.dates.append(MergedDate(of, table, date, merged))
    return done


def _list_due_dates(root: str, namespace: str | None, end: str) -> Iterator[tuple[str, str, str]]:
    """Yield namespace, table and date of what has intraday rows and is over."""
    place = os.path.join(root, INTRADAY)
    for of in list_directories(place, root):
        for table in list_directories(os.path.join(place, of), root) if namespace in (None, of) else ():
            filled = {
                location.partition.column_partition
                for location in IntradayTable(root, of, table).list_locations()
                if location.record is None or location.record.rows
            }
            yield from ((of, table, date) for date in sorted(filled) if _DATE.fullmatch(date) and date < end)
