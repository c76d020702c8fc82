"""Repair: what a format has written of the intact part is published once it reads as `skip` reads the source."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, InternalError, SawlogError, StorageError
from sawlog.format.capabilities import RemarksOnRepairs, RepairsParts, RepairsTogether, list_marks, list_tables
from sawlog.format.contract import Format, Scan, repair_each
from sawlog.format.damage import FileReport, Remark, Report, Skipped
from sawlog.storage import File, PathLike, Source, Storage, confirm_files, discard_staged, normalize
from sawlog.storage.staging import STAGED_SUFFIX, Staged, StagedFile, resolve_destination


def repair_files(format: Format, places: Sequence[tuple[File, str]], scan: Scan, target: str) -> Report:
    """Write the intact part of files to new ones, and publish these if they prove to hold it.

    Returns:
        What `verify` finds in the files, and what the new ones are without.

    Raises:
        SawlogError: When the new files are not clean, or their rows are not those that `skip` delivers. Nothing is
            published then.
    """
    storage = scan.storage
    holding = _HoldingStorage(**vars(copy.copy(storage)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report says it
            source = _open_source(format, [file for file, _ in places], scan)
            if isinstance(format, RepairsTogether):
                format.repair_files(source.contents, places, holding)
            else:
                repair_each(format, source.scan.options, places, holding, source.scan.threads)
            copies = [
                File(place, holding.count_bytes(place), file.explicit) for file, place in places if holding.holds(place)
            ]
            directories = [staged.temporary for staged in holding.staged_by_path.values() if staged.directory]
            copies += [file for directory in directories for file in holding.list_files(directory)]
            copied = replace(scan, storage=holding, roots=(normalize(target),))
            files = [file for file, _ in places]
            unsupported = _prove(source, files, copies, copied, target)
            report = Report(format.name, _merge_reports(source, files), source.contents.skipped_files(source.request))
            report.unsupported_in_copy = unsupported
            if isinstance(format, RemarksOnRepairs):
                remarks = format.remark_on_repair(source.contents)
                report.skipped = [*report.skipped, *(remark for remark in remarks if isinstance(remark, Skipped))]
                report.remarks = [remark for remark in remarks if isinstance(remark, Remark)]
        holding.release()
    except BaseException as error:
        holding.drop()
        if isinstance(error, SawlogError) and not isinstance(error, StorageError | InternalError):
            confirm_files(scan.storage)  # what cannot be repaired may have been replaced
        raise
    return report


@dataclass(frozen=True)
class _HoldingStorage(Storage):
    """A storage that holds back what is published on it: until it is released, only its own readers see that."""

    staged_by_path: dict[str, Staged] = field(default_factory=dict, repr=False, compare=False)
    pipes: dict[str, StagedFile] = field(default_factory=dict, repr=False, compare=False)
    dropped: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def publish(self, staged: Iterable[Staged]) -> None:
        """Hold staged files back until `release`; delete them where the repair has failed already."""
        self.staged_by_path.update({staged_file.final: staged_file for staged_file in staged})
        if self.dropped.is_set():  # by a thread that was still at work
            self.drop()

    def stage(self, path: PathLike, marker: str = "") -> StagedFile:
        """Return a staged file; bytes that go into a pipe are held in a temporary file."""
        staged = super().stage(path, marker)
        if staged.temporary != staged.final:
            return staged
        self.pipes[staged.final] = staged
        descriptor, temporary = tempfile.mkstemp(suffix=STAGED_SUFFIX)
        return StagedFile(os.fdopen(descriptor, "wb", buffering=0), temporary, staged.final)

    def open(self, path: PathLike | File, end: int | None = None) -> Source:
        return super().open(self._redirect(path), end)

    def read(self, path: PathLike | File, offset: int = 0, length: int | None = None) -> bytes:
        return super().read(self._redirect(path), offset, length)

    def _redirect(self, path: PathLike | File) -> PathLike | File:
        name = path.path if isinstance(path, File) else normalize(path)
        place = self._find_place(name)
        return path if place == name else place

    def holds(self, path: str) -> bool:
        """Return whether something was published at a path."""
        return resolve_destination(normalize(path)) in self.staged_by_path

    def count_bytes(self, path: str) -> int:
        """Return the size of what was published at a path."""
        return self.staged_by_path[resolve_destination(normalize(path))].size

    def release(self) -> None:
        """Publish what is held."""
        super().publish(staged for staged in self.staged_by_path.values() if staged.final not in self.pipes)
        for final, pipe in self.pipes.items():
            with open(self.staged_by_path[final].temporary, "rb") as file:
                shutil.copyfileobj(file, pipe)
            pipe.finish()
            self.directories.remove(self.staged_by_path[final].temporary)

    def drop(self) -> None:
        """Delete what is held."""
        self.dropped.set()
        discard_staged(self, list(self.staged_by_path.values()))
        for pipe in self.pipes.values():
            pipe.stream.close()

    def _find_place(self, path: PathLike) -> str:
        name = normalize(path)
        staged = self.staged_by_path.get(resolve_destination(name))
        return name if staged is None else staged.temporary


def _open_source(format: Format, files: Sequence[File], scan: Scan) -> Dataset:
    """Return the rows of what is repaired; its damage where no row is read before it is repaired."""
    try:
        return Dataset(format.open(files, scan), scan)
    except FormatError:
        scan = replace(scan, view="damage")
        return Dataset(format.open(files, scan), scan)


def _open_tables(dataset: Dataset, files: Sequence[File]) -> Iterator[Dataset]:
    """Yield a dataset for each of the tables below a path, which these files make up."""
    format, contents = dataset.format, dataset.contents
    parts = format.list_repaired_parts(contents) if isinstance(format, RepairsParts) else ()
    parts = parts or [table.options for table in list_tables(contents)]
    named = {repr(options): options for options in parts}
    for options in named.values():
        scan = replace(dataset.scan, options=replace(dataset.scan.options, **options))
        yield Dataset(dataset.format.open(files, scan), scan)
    if not named:
        yield dataset


def _merge_reports(source: Dataset, files: Sequence[File]) -> list[FileReport]:
    """Return the reports of `verify` on all parts: files that only options lead to are added to that of the path."""
    reports = {report.path: report for report in source.verify()}
    parts = () if list_tables(source.contents) else _open_tables(source, files)
    for part in (table for table in parts if table.scan.options != source.scan.options):
        for report in part.verify():
            before = reports.setdefault(report.path, report)
            if before is not report:
                before.rows += report.rows
                before.damages += [damage for damage in report.damages if damage not in before.damages]
                before.kinds |= report.kinds
    return list(reports.values())


def _prove(source: Dataset, files: Sequence[File], copies: Sequence[File], scan: Scan, target: str) -> int:
    """Compare new files with the source; return how many of their bytes this version does not support."""
    if not copies:
        raise FormatError(f"{source.files[0].path}: nothing can be taken out of it")
    copy = Dataset(source.format.open(copies, scan), scan)
    refused = f"{target}: the repaired copy was not published:"
    unsupported = 0
    for report in copy.verify():
        unsupported += report.account.unsupported
        if report.damaged or report.incomplete or report.tail.unfinished:
            wrong = next((damage for damage in report.damages), report.tail)
            raise SawlogError(f"{refused} it is not clean: {wrong}")
    for before, after in (
        zip(_open_tables(source, files), _open_tables(copy, copies), strict=True) if source.scan.view == "rows" else ()
    ):
        if not _are_rows_equal(*map(_read_repaired_rows, (before, after))):
            raise SawlogError(
                f"{refused} on_damage='skip' returns {before.count_rows()} rows of the source, and"
                f" {after.count_rows()} of the copy, or others; sawlog convert --on-damage skip rewrites them"
            )
    return unsupported


def _read_repaired_rows(dataset: Dataset) -> Iterator[pa.RecordBatch]:
    format, marks = dataset.format, list_marks(dataset.format)
    for batch in dataset.to_batches():
        if isinstance(format, RepairsParts):
            yield format.convert_repaired_rows(batch)
        else:
            yield batch.select([name for name in batch.schema.names if name not in marks])


def _are_rows_equal(expected: Iterable[pa.RecordBatch], actual: Iterable[pa.RecordBatch]) -> bool:
    """Return whether two streams have equal rows in the same order, however they are cut; NaN is equal to itself.

    A column that only one of them has may hold nothing but nulls.
    """
    remaining, right = (iter(batch for batch in batches if batch.num_rows) for batches in (expected, actual))
    first, second = next(remaining, None), next(right, None)
    while first is not None and second is not None:
        count = min(first.num_rows, second.num_rows)
        if not _are_batches_equal(first.slice(0, count), second.slice(0, count)):
            return False
        first = first.slice(count) if first.num_rows > count else next(remaining, None)
        second = second.slice(count) if second.num_rows > count else next(right, None)
    return first is second


def _are_batches_equal(first: pa.RecordBatch, second: pa.RecordBatch) -> bool:
    shared = [name for name in first.schema.names if name in second.schema.names]
    unshared = [batch.column(name) for batch in (first, second) for name in batch.schema.names if name not in shared]
    return all(column.null_count == len(column) for column in unshared) and all(
        _are_values_equal(first.column(name), second.column(name)) for name in shared
    )


def _are_values_equal(first: pa.Array, second: pa.Array) -> bool:
    """Return whether values are equal: to Arrow, NaN is not NaN, and a dictionary in another order is another one."""
    kind = first.type
    if first.equals(second):
        return True
    if kind != second.type or len(first) != len(second):
        return False
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return bool(first.view(bits).equals(second.view(bits)))
    if pa.types.is_dictionary(kind):
        return _are_values_equal(first.dictionary_decode(), second.dictionary_decode())
    if not pa.types.is_nested(kind) or not first.is_valid().equals(second.is_valid()):
        return False
    if pa.types.is_struct(kind):
        return all(map(_are_values_equal, first.flatten(), second.flatten()))
    if pa.types.is_map(kind):
        first, second = (
            array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))) for array in (first, second)
        )
    lengths = pc.list_value_length(first).equals(pc.list_value_length(second))
    return bool(lengths) and _are_values_equal(first.flatten(), second.flatten())
