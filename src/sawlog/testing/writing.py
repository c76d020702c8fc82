"""Laws 6 to 8: repairing, following, writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from sawlog import api
from sawlog.damage import Findings, OnDamage
from sawlog.errors import SawlogError
from sawlog.format import Dataset
from sawlog.testing.mutations import effort, seeded
from sawlog.testing.outcome import delivered, opened, texts
from sawlog.testing.sample import Files, Sample, Subject, put, scratch

_EVERY_LENGTH = 400
"""Files of less are looked at after each of their bytes."""


def repaired(subject: Subject) -> Iterator[str]:
    """A repaired file is clean, holds what `skip` delivers, and is repaired into itself."""
    sample = subject.sample
    rows = texts(delivered(opened(subject, on_damage="skip"))[0])
    with scratch() as place:
        try:
            _repair(subject, subject.path, f"{place}/once/x")
        except SawlogError as error:
            if rows:
                yield f"repair gives up, where skip delivers {len(rows)} rows: {error}"
            return
        once = _moved(subject, f"{place}/once/x")
        for report in opened(once, on_damage="skip").verify():
            damages = [one for one in report.damages if one.kind not in sample.kept]
            if damages or report.tail.unfinished:
                yield f"the repaired {os.path.basename(report.path)} is not clean: {damages[:2]} {report.tail}"
        kept = texts(delivered(opened(once, on_damage="skip" if sample.kept else "fail"))[0])
        if kept != rows:
            yield f"skip delivers {len(rows)} rows, the repaired file {len(kept)}, or others"
        _repair(subject, once.path, f"{place}/twice/x")
        if contents(f"{place}/once") != contents(f"{place}/twice"):
            yield "repairing the repaired file changes it"
        if subject.intact and sample.repaired == "bytes" and _beneath(contents(f"{place}/once")) != _original(subject):
            yield "repair changes an intact file"


def _repair(subject: Subject, source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    api.repair(source, target, format=subject.sample.format, **subject.options)


def _moved(subject: Subject, target: str) -> Subject:
    """The same sample at another place."""
    return _At(subject.sample, subject.directory, subject.files, subject.mutation, target)


class _At(Subject):
    """A subject at some other path."""

    def __init__(self, sample: Sample, directory: str, files: Files, mutation: object, at: str) -> None:
        super().__init__(sample, directory, files, mutation)  # type: ignore[arg-type]
        object.__setattr__(self, "_at", at)

    @property
    def path(self) -> str:
        """What is opened."""
        return str(self._at)  # type: ignore[attr-defined]


def contents(directory: str) -> dict[str, bytes]:
    """All files below a directory."""
    root = Path(directory)
    return {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}


def _beneath(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name.removeprefix("x").removeprefix("/"): data for name, data in files.items()}


def _original(subject: Subject) -> dict[str, bytes]:
    if os.path.isfile(subject.path):
        return {"": Path(subject.path).read_bytes()}
    return contents(subject.path)


def followed(subject: Subject) -> Iterator[str]:
    """The file in pieces, each look a new process with what JSON kept of the positions."""
    intact = subject.intact
    ((name, data),) = subject.files.items()
    whole = texts(delivered(opened(subject, on_damage="skip"))[0])
    dice = seeded(subject.sample.format, subject.sample.name, "follow", data)
    histories: list[list[int]] = [[]]
    if intact and len(data) < _EVERY_LENGTH:
        histories.append(list(range(len(data))))
    looks = effort(subject.sample, 12 if intact else 2) if data else 0
    histories += [sorted(dice.choices(range(len(data)), k=dice.randrange(1, 12))) for _ in range(looks)]
    for ends in histories:
        rows: list[str] = []
        yield from _followed(subject, name, [*ends, len(data)], rows, "fail" if intact else "skip")
        if rows != whole:
            yield f"looks after {ends} bytes: {len(rows)} rows, one read gives {len(whole)}, or others"


def _followed(subject: Subject, name: str, ends: list[int], rows: list[str], policy: OnDamage) -> Iterator[str]:
    """Look after each of some lengths, and collect the rows."""
    positions: dict[str, int] = {}
    data = subject.files[name]
    for end in ends:
        put(subject.directory, {name: data[:end]})
        try:
            dataset = opened(subject, on_damage=policy)
        except SawlogError:
            if end == len(data):
                raise
            continue  # too little of it to be known
        (found, reached), (again, _) = (_look(dataset, positions) for _ in range(2))
        if again != found:
            yield f"after {end} bytes: two looks from the same positions differ"
        rows += found
        positions = json.loads(json.dumps(reached))
        if any(place > end for place in positions.values()):
            yield f"after {end} bytes: positions {positions}"


def _look(dataset: Dataset, positions: dict[str, int]) -> tuple[list[str], dict[str, int]]:
    """The rows behind some positions, and the positions behind them."""
    fragments, reached = dataset.follow(positions)
    batches = [batch for one in fragments for batch in one.to_batches(Findings(dataset.scan.on_damage))]
    return texts(pa.Table.from_batches(batches, dataset.schema)), reached


def written(subject: Subject) -> Iterator[str]:
    """Write, read back, write again; and tables that are slightly wrong."""
    sample = subject.sample
    table = sample.written
    if table is None:
        return
    with scratch() as place:
        first, second = f"{place}/1/x", f"{place}/2/x"
        for path in (first, second):
            os.makedirs(os.path.dirname(path))
            api.write(table, path, format=sample.format, **sample.write_options)
        if contents(f"{place}/1") != contents(f"{place}/2"):
            yield "the same rows give other bytes"
        back = opened(_moved(subject, first)).to_table()
        if texts(back) != texts(table.select(back.schema.names)):
            yield f"wrote {table.num_rows} rows, read {back.num_rows}, or others"
        for what, wrong in _wrong(table):
            target = f"{place}/{what}/x"
            os.makedirs(os.path.dirname(target))
            try:
                api.write(wrong, target, format=sample.format, **sample.write_options)
            except SawlogError:
                if contents(os.path.dirname(target)):
                    yield f"{what}: refused, and yet something was written"
                continue
            back = opened(_moved(subject, target)).to_table()
            if texts(back) != texts(wrong.select(back.schema.names).cast(back.schema)):
                yield f"{what}: accepted, and read back as something else"


def _wrong(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Tables that a format may or may not be able to hold."""
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if len(table):
            nulls = pa.concat_arrays([*column.slice(1).chunks, pa.nulls(1, field.type)])
            yield f"null-in-{index}", table.set_column(index, field.with_nullable(True), nulls)
        if pa.types.is_integer(field.type) and len(table):
            big = pa.array([2**63 - 1] * len(table), pa.int64())
            yield f"big-in-{index}", table.set_column(index, pa.field(field.name, pa.int64()), big)
        yield f"without-{index}", table.remove_column(index)
    yield "with-one-more", table.append_column("never heard of", pa.array(range(len(table)), pa.int16()))
    yield "without-rows", table.slice(0, 0)
