"""Laws 6 to 8: repairing, following, writing."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog import api
from sawlog.dataset.dataset import Dataset
from sawlog.errors import InternalError, OptionError, SawlogError
from sawlog.format.capabilities import RepairsParts, list_marks
from sawlog.format.contract import Format
from sawlog.format.damage import UNSUPPORTED, DamageWarning, OnDamage, Report
from sawlog.format.options import find_rescue_options
from sawlog.format.recognition import get_format
from sawlog.testing.mutations import count_changes, make_random
from sawlog.testing.outcome import list_places, open_subject, read_rows, render_rows
from sawlog.testing.sample import Files, Sample, Subject, make_scratch, put

_EVERY_LENGTH_BYTES = 400
"""Files of less are looked at after each of their bytes."""


def check_repair(subject: Subject) -> Iterator[str]:
    """Yield complaints where a repaired file is not clean, not what `skip` delivers, or not repaired into itself.

    Damage to what no row needs may be in the way: without it, the copy would lack a file.
    """
    sample = subject.sample
    format = open_subject(subject, on_damage="skip").format
    rescue = _rescue(subject, format)
    source = open_subject(subject, on_damage="skip", **rescue)
    rows = _render_values(read_rows(source)[0], format)
    parts = format.list_repaired_parts(source.contents) if isinstance(format, RepairsParts) else ()
    is_whole = sample.view == "rows" and not sample.folded and len(parts) < 2
    with make_scratch() as place:
        try:
            report = _repair(subject, subject.path, f"{place}/once/x", rescue)
        except InternalError:
            raise
        except SawlogError as error:
            if rows and not _is_unneeded(subject):
                yield f"repair gives up, where skip returns {len(rows)} rows: {error}"
            return
        once = _move_subject(subject, f"{place}/once/x")
        for file_report in open_subject(once, on_damage="skip").verify():
            damages = [damage for damage in file_report.damages if damage.kind not in (*sample.kept, UNSUPPORTED)]
            if damages or file_report.tail.unfinished:
                name = os.path.basename(file_report.path)
                yield f"the repaired {name} is not clean: {damages[:2]} {file_report.tail}"
        repaired_rows = _render_values(read_rows(open_subject(once, on_damage="skip"))[0], format)
        if repaired_rows != rows:
            yield f"skip returns {len(rows)} rows, the repaired file {len(repaired_rows)}, or others"
        if is_whole and report.rows != len(rows):
            yield f"skip returns {len(rows)} rows, repair reports {report.rows}"
        yield from _check_other_views(subject, once)
        _repair(subject, once.path, f"{place}/twice/x", rescue)
        repaired_files = _read_contents(f"{place}/once")
        if repaired_files != _read_contents(f"{place}/twice"):
            yield "repairing the repaired file changes it"
        copies = {name.removeprefix("x").removeprefix("/"): data for name, data in repaired_files.items()}
        path = subject.path
        original = {"": Path(path).read_bytes()} if os.path.isfile(path) else _read_contents(path)
        if subject.is_intact and sample.repaired == "bytes" and copies != original:
            yield "repair changes an intact file"


def _is_unneeded(subject: Subject) -> bool:
    """Return whether damage is found that a read of the rows has no need to see."""
    dataset = open_subject(subject, view="rows", on_damage="skip")
    read_places = {place for findings in read_rows(dataset)[1] for place in list_places(findings.damages)}
    return any(
        place not in read_places for report in dataset.verify(every=True) for place in list_places(report.damages)
    )


def _render_values(table: pa.Table, format: Format) -> list[str]:
    """Return the rows of a table, as a repaired copy has them.

    Columns without a value, which only damaged files may show, say nothing.
    """
    if isinstance(format, RepairsParts) and len(table):
        batches = [batch for batch in table.to_batches() if batch.num_rows]
        table = pa.Table.from_batches(map(format.convert_repaired_rows, batches))
    columns = [(name, index) for index, name in enumerate(table.schema.names) if name not in list_marks(format)]
    named = sorted((name, index) for name, index in columns if table.column(index).null_count < len(table))
    return [f"{[name for name, _ in named]} {row}" for row in render_rows(table.select([index for _, index in named]))]


def _check_other_views(subject: Subject, once: Subject) -> Iterator[str]:
    """Yield complaints where a repaired path does not open in a view in which the source does."""
    for view in open_subject(once, on_damage="skip").format.views:
        try:
            read_rows(open_subject(subject, on_damage="skip", view=view))
        except SawlogError:
            continue
        try:
            read_rows(open_subject(once, on_damage="skip", view=view))
        except SawlogError as error:
            yield f"the repaired file is refused in view {view}, which the source is not: {error}"


def _rescue(subject: Subject, format: Format) -> dict[str, Any]:
    """Return options under which the view reads what `repair` saves; turned off where the view does not take them."""
    rescue = {
        name: value for name, value in find_rescue_options(format.read_options).items() if name not in subject.options
    }
    try:
        open_subject(subject, on_damage="skip", **rescue)
    except OptionError:
        return {option.name: option.default for option in fields(format.read_options) if option.name in rescue}
    except SawlogError:
        pass
    return rescue


def _repair(subject: Subject, source: str, target: str, rescue: Mapping[str, Any]) -> Report:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source) and not get_format(subject.sample.format).directory_layout.is_directory:
        os.makedirs(target, exist_ok=True)
    return api.repair(source, target, format=subject.sample.format, **rescue, **_choose_options(subject))


def _choose_options(subject: Subject) -> dict[str, Any]:
    """Return the options of the sample, unless they are for another view than that of rows, which repair reads."""
    try:
        open_subject(subject, view="rows", on_damage="skip")
    except OptionError:
        return {}
    except SawlogError:
        pass
    return subject.options


def _move_subject(subject: Subject, target: str) -> Subject:
    """Return the same sample at another place."""
    return _MovedSubject(subject.sample, subject.directory, subject.files, subject.mutation, target)


class _MovedSubject(Subject):
    """A subject at some other path."""

    def __init__(self, sample: Sample, directory: str, files: Files, mutation: object, moved_path: str) -> None:
        super().__init__(sample, directory, files, mutation)  # type: ignore[arg-type]
        object.__setattr__(self, "_at", moved_path)

    @property
    def path(self) -> str:
        return str(self._at)  # type: ignore[attr-defined]


def _read_contents(directory: str) -> dict[str, bytes]:
    """Return all files below a directory."""
    root = Path(directory)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def check_following(subject: Subject) -> Iterator[str]:
    """Yield complaints where a file that comes in pieces is followed wrongly; each look has its positions from JSON."""
    intact = subject.is_intact
    ((name, data),) = subject.files.items()
    expected_rows = render_rows(read_rows(open_subject(subject, on_damage="skip"))[0])
    dice = make_random(subject.sample.format, subject.sample.name, "follow", data)
    histories: list[list[int]] = [[]]
    if intact and len(data) < _EVERY_LENGTH_BYTES:
        histories.append(list(range(len(data))))
    looks = count_changes(subject.sample, 12 if intact else 2) if data else 0
    histories += [sorted(dice.choices(range(len(data)), k=dice.randrange(1, 12))) for _ in range(looks)]
    for ends in histories:
        rows: list[str] = []
        yield from _follow_file(subject, name, [*ends, len(data)], rows, "fail" if intact else "skip")
        if rows != expected_rows:
            yield f"looks after {ends} bytes: {len(rows)} rows, one read gives {len(expected_rows)}, or others"


def _follow_file(subject: Subject, name: str, ends: list[int], rows: list[str], policy: OnDamage) -> Iterator[str]:
    """Look after each of some lengths, and collect the rows."""
    positions: dict[str, Any] = {}
    data = subject.files[name]
    for end in ends:
        put(subject.directory, {name: data[:end]})
        try:
            dataset = open_subject(subject, on_damage=policy)
        except InternalError:
            raise
        except SawlogError:
            if end == len(data):
                raise
            continue  # too little of it to be known
        (new_rows, reached), (again, _) = (_look(dataset, positions) for _ in range(2))
        if again != new_rows:
            yield f"after {end} bytes: two looks from the same positions differ"
        rows += new_rows
        positions = json.loads(json.dumps(reached))
        if any(offset > end for offset, _, _ in positions["files"].values()):
            yield f"after {end} bytes: positions {positions}"


def _look(dataset: Dataset, positions: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the rows after some positions, and the positions after them."""
    watch = dataset.watch(positions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        batches = watch.look()
    return render_rows(pa.Table.from_batches(batches, dataset.schema)), watch.positions


def check_writing(subject: Subject) -> Iterator[str]:
    """Write, read back, write again; and tables that are slightly wrong."""
    sample = subject.sample
    table = sample.written
    if table is None:
        return
    with make_scratch() as place:
        first, second = f"{place}/1/x", f"{place}/2/x"
        for path in (first, second):
            os.makedirs(os.path.dirname(path))
            api.write(table, path, format=sample.format, **sample.write_options)
        if _read_contents(f"{place}/1") != _read_contents(f"{place}/2"):
            yield "the same rows give other bytes"
        back = open_subject(_move_subject(subject, first)).to_table()
        if render_rows(back) != render_rows(table.select(back.schema.names)):
            yield f"wrote {table.num_rows} rows, read {back.num_rows}, or others"
        for change, wrong in _make_wrong_tables(table):
            target = f"{place}/{change}/x"
            os.makedirs(os.path.dirname(target))
            source = wrong if wrong.num_rows else pa.RecordBatch.from_pylist([], schema=wrong.schema)
            try:
                api.write(source, target, format=sample.format, **sample.write_options)
            except InternalError:
                raise
            except SawlogError:
                if _read_contents(os.path.dirname(target)):
                    yield f"{change}: refused, and yet something was written"
                continue
            back = open_subject(_move_subject(subject, target)).to_table()
            # Columns that were left out may have been filled in; none that was given may be missing.
            shared = [name for name in back.schema.names if name in wrong.schema.names]
            if len(shared) < wrong.num_columns:
                yield f"{change}: accepted, and columns {sorted({*wrong.schema.names} - {*shared})} are not there"
                continue
            back = back.select(shared)
            if not wrong.num_rows and back.schema.types != table.select(shared).schema.types:
                yield f"{change}: read back with other columns: {back.schema}"
            if render_rows(back) != render_rows(wrong.select(shared).cast(back.schema)):
                yield f"{change}: accepted, and read back as something else"


def _make_wrong_tables(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield tables that a format may or may not be able to hold."""
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if len(table):
            nulls = pa.concat_arrays([*column.slice(1).chunks, pa.nulls(1, field.type)])
            yield f"null-in-{index}", table.set_column(index, field.with_nullable(True), nulls)
        if (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)) and len(table):
            yield f"least-in-{index}", table.set_column(index, field, pa.array([_find_least(field.type)] * len(table)))
        if pa.types.is_integer(field.type) and len(table):
            big = pa.array([2**63 - 1] * len(table), pa.int64())
            yield f"big-in-{index}", table.set_column(index, pa.field(field.name, pa.int64()), big)
        yield f"without-{index}", table.remove_column(index)
        yield (
            f"nul-in-name-{index}",
            table.rename_columns(
                [f"{name}\0x" if position == index else name for position, name in enumerate(table.schema.names)]
            ),
        )
    yield "with-one-more", table.append_column("never heard of", pa.array(range(len(table)), pa.int16()))
    yield "without-rows", table.slice(0, 0)


def _find_least(kind: pa.DataType) -> pa.Scalar:
    """Return the least number of a type, which some systems take for null."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(np.finfo(kind.to_pandas_dtype()).min), kind)
    return pa.scalar(0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1)), kind)
