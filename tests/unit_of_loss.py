"""The law that what one decoder refuses is lost by its unit: a block, a page, a record, a value, and no other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog

Rows = list[dict[str, object]]


def assert_lost_by_unit(
    path: Path,
    format: str,
    broken: Mapping[int, bytes],
    units: Mapping[int, Rows],
    *,
    file: Path | None = None,
    remaining_units: Mapping[int, Rows] | None = None,
    damages: int | None = 1,
    unsupported: bool = False,
    rows_before: int | None = None,
    **options: Any,
) -> None:
    """Every unit, when it is broken, takes its own rows with it, however the file is cut and by how many threads read.

    `skip` delivers all others, `fail` those of the units before it.

    Args:
        path: The file, or the directory.
        format: Its format.
        broken: The file with one unit broken, by the number of that.
        units: The rows of each unit.
        file: Which file of a directory it is.
        remaining_units: What is delivered of a unit that is broken, where that is not nothing.
        damages: How many `verify` counts; `None` where one unit may be reported more than once.
        unsupported: Whether what is broken looks like something of a later version.
        rows_before: How many rows `fail` delivers, where it is not those of all units before: those of a block that
            leads to what is broken are after the damage.
        options: Of reading.
    """
    rows = [row for number in sorted(units) for row in units[number]]
    options |= {"format": format}
    for number, content in broken.items():
        (file or path).write_bytes(content)
        kept_units = {**units, number: (remaining_units or {}).get(number, [])}
        expected = [row for number_kept in sorted(kept_units) for row in kept_units[number_kept]]
        assert expected != rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sawlog.DamageWarning)
            for threads in (False, True):
                table = sawlog.read(path, on_damage="skip", use_threads=threads, **options)
                assert table.to_pylist() == expected, (number, threads)
                before = [row for unit in sorted(units) if unit < number for row in units[unit]][:rows_before]
                assert read_rows_before_damage(path, use_threads=threads, **options) == before, (number, threads)
            dataset = sawlog.open(path, on_damage="skip", **options)
            assert dataset.count_rows() == len(expected)
            for task_bytes in (700, None):
                table = [batch for fragment in dataset.fragments(task_bytes) for batch in fragment.to_batches()]
                assert pa.Table.from_batches(table, dataset.schema).to_pylist() == expected, (number, task_bytes)
        report = sawlog.verify(path, **options)
        assert (report.damaged, report.unsupported) == (not unsupported, unsupported)
        assert report.rows == len(expected)
        assert damages in (None, sum(file.kinds.total() for file in report.files))


def read_rows_before_damage(path: Path, **options: Any) -> Rows:
    """Return the rows that `fail` delivers before it raises."""
    rows: Rows = []
    batches = sawlog.open(path, **options).to_batches()
    with pytest.raises((sawlog.DamageError, sawlog.UnsupportedError)):
        rows.extend(row for batch in batches for row in batch.to_pylist())
    return rows
