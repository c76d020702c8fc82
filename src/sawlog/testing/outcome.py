"""What the verbs make of a file, and whether they agree."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from sawlog import api
from sawlog.dataset.dataset import Dataset
from sawlog.errors import FINDING_ERRORS, FormatError, InternalError, SawlogError
from sawlog.format.damage import UNSUPPORTED, Account, Damage, FileReport, Findings, Report, Verdict, verdict_of
from sawlog.guard import raised_by_system
from sawlog.testing.sample import Subject

Rows = list[str]
"""Rows as texts that can be compared, whatever their types; equal texts are equal rows, NaN included."""


SIZELESS = {"bad_blob", "bad_copy", "row_count_mismatch", "unsafe_path"}
"""Kinds of damage without a range of bytes: a lost value, whose bytes `bad_blob_part` counts, or a whole file."""


class Place(NamedTuple):
    """A damage, as it is compared."""

    file: str
    offset: int
    length: int
    kind: str


@dataclass
class Outcome:
    """What the verbs made of a subject.

    Attributes:
        complaints: Where they do not agree, or break a law.
        refused: Why the path is not read, if it is not.
        table: What `skip` delivers; nothing where the path is not read.
        rows: The same as texts, for comparison.
        origins: File and offset of each row, where that says which of them come before damage.
        damages: What is damaged.
        reports: What `verify` says, one per file.
        verdict: What `verify` says of all files.
        remarks: Warnings that were given.
    """

    complaints: list[str] = field(default_factory=list)
    refused: str | None = None
    table: pa.Table = field(default_factory=lambda: pa.table({}))
    rows: Rows = field(default_factory=list)
    origins: list[tuple[str, int]] | None = None
    damages: list[Place] = field(default_factory=list)
    reports: list[FileReport] = field(default_factory=list)
    verdict: Verdict = Verdict.CLEAN
    remarks: set[str] = field(default_factory=set)

    @property
    def report(self) -> FileReport:
        """What `verify` says of the only file."""
        (report,) = self.reports
        return report

    def words(self) -> set[object]:
        """What is said of the files besides their rows."""
        tails = {(report.path, report.tail.status, report.tail.unfinished) for report in self.reports}
        notes = {(name, count) for report in self.reports for name, count in report.notes.items()}
        return {*self.damages, *tails, *notes, *self.remarks, self.refused}


def plain(kind: pa.DataType) -> pa.DataType:
    """A type whose values Python can hold, whatever they are: times become numbers, dictionaries their values."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([inner.with_type(plain(inner.type)) for inner in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_type), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(plain(kind.value_type))
    return kind


def texts(table: pa.Table) -> Rows:
    """The rows of a table, for comparison."""
    columns = []
    for column in table.columns:
        wanted = plain(column.type)
        columns.append((column if column.type == wanted else column.cast(wanted)).to_pylist())
    return [repr(row) for row in zip(*columns, strict=True)] if columns else ["()"] * table.num_rows


def _placed(subject: Subject, table: pa.Table) -> Rows:
    """The same, with paths from the directory on."""
    return [row.replace(subject.directory, "") for row in texts(table)]


def subsequence(part: Rows, whole: Rows) -> bool:
    """Whether all rows of one list are in another, in the same order."""
    rest = iter(whole)
    return all(row in rest for row in part)


def opened(subject: Subject, **arguments: Any) -> Dataset:
    """The dataset of a subject."""
    arguments = {"view": subject.sample.view, **arguments}
    return api.open(subject.path, format=subject.sample.format, **subject.options, **arguments)


def explain(error: BaseException) -> str:
    """An exception that should not have left, and where it came from."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}sawlog{os.sep}" in frame.filename
    ]
    inner = [frame for frame in frames if f"{os.sep}testing{os.sep}" not in frame.filename]
    where = f" from {os.path.basename(inner[-1].filename)}:{inner[-1].lineno} ({inner[-1].name})" if inner else ""
    return f"{type(error).__name__} left{where}: {str(error)[:300]}"


@contextmanager
def _attending(outcome: Outcome, verb: str) -> Iterator[None]:
    """Note what a verb does: what it warns of, and exceptions that are not for users."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            yield
        except InternalError as error:
            outcome.complaints.append(f"{verb}: {error}")
        except SawlogError as error:
            outcome.complaints.append(f"{verb} refuses what skip reads: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            if not raised_by_system(error):
                outcome.complaints.append(f"{verb}: {explain(error)}")
    outcome.remarks |= {f"{one.category.__name__}: {one.message}" for one in given}


@contextmanager
def refusable() -> Iterator[None]:
    """Pass over what may be refused; a fault of sawlog's own is none of that."""
    try:
        yield
    except InternalError:
        raise
    except SawlogError:
        pass


def places(damages: Iterable[Damage]) -> list[Place]:
    """Damaged ranges, as they are compared."""
    return [Place(one.path, one.offset, one.length, one.kind) for one in damages]


def examine(subject: Subject, *, every_verb: bool = True) -> Outcome:
    """Read a subject with every verb, or with `skip` and `verify`, and see whether they agree: laws 3, 4 and 9."""
    outcome = Outcome()
    with _attending(outcome, "skip"):
        try:
            dataset = opened(subject, on_damage="skip")
        except (SawlogError, OSError) as error:
            outcome.refused = _refusal(subject, error)
        else:
            try:
                table, findings = delivered(dataset)
            except FormatError as error:  # what only reading a file shows: a version that is not supported
                outcome.refused = _refusal(subject, error)
    if outcome.refused is not None or outcome.complaints:
        if every_verb:
            _refuse(subject, outcome)
        return outcome
    with _attending(outcome, "skip"):
        table.validate(full=True)
        outcome.table, outcome.rows = table, _placed(subject, table)
        with _attending(outcome, "info"):
            dataset.info()
        with _attending(outcome, "verify"):
            outcome.reports = list(dataset.verify(every=True))
        outcome.verdict = _verdict(dataset, outcome)
        outcome.damages = [one for report in outcome.reports for one in places(report.damages)]
        seen = [one for found in findings for one in places(found.damages)]
        concerned = [one for one in outcome.damages if one in seen or not _beside(subject, one)]
        if sorted(seen) != sorted(concerned):
            concerned = _without_skipped(concerned, dataset, outcome.reports)
        if subject.sample.view != "damage" and sorted(seen) != sorted(concerned):
            outcome.complaints.append(f"skip finds {_some(seen)}, verify {_some(concerned)}")
        for report in outcome.reports:
            wrong = misaccounted(report.damages, report.account, report.size)
            outcome.complaints += [f"{os.path.basename(report.path)}: {one}" for one in wrong]
        _counted(subject, dataset, outcome)
        if every_verb:
            _damage_view(subject, outcome)
            outcome.origins = _origins(subject, table)
            _fail(subject, outcome, concerned if subject.sample.ordered else seen)
    outcome.remarks = {remark.replace(subject.directory, "") for remark in outcome.remarks}
    outcome.damages = [one._replace(file=os.path.relpath(one.file, subject.directory)) for one in outcome.damages]
    for report in outcome.reports:
        report.path = os.path.relpath(report.path, subject.directory)
    return outcome


def _verdict(dataset: Dataset, outcome: Outcome) -> Verdict:
    """What all reports together say: clean if, and only if, nothing was found and no file with rows was left out."""
    report = Report(dataset.format.name, outcome.reports, dataset.skipped)
    clean = not any(+one.kinds for one in report.files) and not any(one.missed for one in report.skipped)
    if (report.verdict is Verdict.CLEAN) != clean:
        outcome.complaints.append(f"the verdict is {report.verdict}, found was {[one.kinds for one in report.files]}")
    return report.verdict


def delivered(dataset: Dataset) -> tuple[pa.Table, list[Findings]]:
    """The rows of a dataset, and what each fragment found."""
    batches: list[pa.RecordBatch] = []
    ledgers = []
    for fragment in dataset.fragments(None):
        ledgers.append(Findings(dataset.scan.on_damage, drained=True))
        batches += fragment.to_batches(ledgers[-1])
    return pa.Table.from_batches(batches, dataset.schema), ledgers


def _some(found: list[Any]) -> str:
    return f"{[tuple(one) for one in found[:3]]}{f' and {len(found) - 3} more' if len(found) > 3 else ''}"


def _refusal(subject: Subject, error: SawlogError | OSError) -> str:
    """Why a path is not read; errors of the operating system are those that it gives for the path."""
    if isinstance(error, InternalError) or (isinstance(error, OSError) and not raised_by_system(error)):
        raise error
    return f"{type(error).__name__}: {error}".replace(subject.directory, "")


_COUNTING: dict[str, tuple[dict[str, str], Callable[[Dataset], int]]] = {
    "fail": ({"on_damage": "fail"}, lambda dataset: dataset.to_table().num_rows),
    "verify": ({"on_damage": "skip"}, lambda dataset: sum(report.rows for report in dataset.verify(every=True))),
    "the damage view": ({"view": "damage"}, lambda dataset: dataset.to_table().num_rows),
}


def _refuse(subject: Subject, outcome: Outcome) -> None:
    """What `skip` does not read is not read otherwise."""
    for verb, (options, rows_of) in _COUNTING.items():
        with _attending(outcome, verb):
            try:
                rows = rows_of(opened(subject, **options))
            except (SawlogError, OSError) as error:
                _refusal(subject, error)
                continue
            # That view may describe what no other can be opened for.
            if verb != "the damage view" or not rows:
                outcome.complaints.append(f"skip refuses ({outcome.refused}), {verb} delivers {rows} rows")


def misaccounted(damages: Iterable[Damage], account: Account, size: int) -> Iterator[str]:
    """Where a file's account does not cover every byte once: damaged ranges are in the file, in order, and apart.

    Only findings at the end of a file, or of `SIZELESS` kinds, have no bytes: for what ends too soon, concerns a whole
    file, or is counted by another finding.
    """
    if account.total != size:
        yield f"{account} adds up to {account.total} of {size}"
    last = end = damaged = unsupported = 0
    for one in damages:
        if (one.length and one.offset < end) or one.length < 0 or not 0 <= one.offset <= size - one.length:
            yield f"damage {one} overlaps another, or leaves the {size} bytes"
        if one.offset < last:
            yield f"damage {one} is out of order"
        if (
            not one.length
            and one.offset < size
            and one.kind not in SIZELESS
            and verdict_of(one.kind) is Verdict.DAMAGED
        ):
            yield f"damage {one} has no bytes"
        last, end = one.offset, max(end, one.offset + one.length)
        if one.kind == UNSUPPORTED:
            unsupported += one.length
        else:
            damaged += one.length
    if damaged != account.damage:
        yield f"the damaged ranges do not add up to {account.damage} bytes"
    if unsupported != account.unsupported:
        yield f"what is unsupported does not add up to {account.unsupported} bytes"


def _beside(subject: Subject, damage: Place) -> bool:
    """Whether only `verify` reads what is damaged."""
    name = os.path.relpath(damage.file, subject.directory)
    return damage.kind in subject.sample.advisory or any(
        name == one or name.startswith(f"{one}/") for one in subject.sample.beside
    )


def _without_skipped(damages: list[Place], dataset: Dataset, reports: Iterable[FileReport]) -> list[Place]:
    """Damage except in files that the dataset says it leaves out as a whole: `verify` may check these, too."""
    sizes = {report.path: report.size for report in reports}
    whole = {one.path for one in dataset.skipped if one.bytes == sizes.get(one.path)}
    return [one for one in damages if one.file not in whole]


def _counted(subject: Subject, dataset: Dataset, outcome: Outcome) -> None:
    """`Report.rows` and `count_rows` are what `skip` delivers."""
    with _attending(outcome, "count_rows"):
        counts = {"count_rows": dataset.count_rows()}
        if subject.sample.view != "damage" and not subject.sample.folded:
            counts["verify"] = sum(report.rows for report in outcome.reports)
        for verb, count in counts.items():
            if count != len(outcome.rows):
                outcome.complaints.append(f"skip delivers {len(outcome.rows)} rows, {verb} counts {count}")


def _damage_view(subject: Subject, outcome: Outcome) -> None:
    if subject.sample.view != "rows":
        return
    with _attending(outcome, "the damage view"):
        rows = opened(subject, view="damage", on_damage="fail").to_table().to_pylist()
        listed = [Place(row["file"], row["offset"], row["length"], row["kind"]) for row in rows]
        if sorted(listed) != sorted(outcome.damages):
            outcome.complaints.append(f"verify names {_some(outcome.damages)}, the damage view {_some(listed)}")


def _origins(subject: Subject, table: pa.Table) -> list[tuple[str, int]] | None:
    """Where the rows of a table come from."""
    if not subject.sample.ordered:
        return None
    columns = list(dict.fromkeys([*table.schema.names, "_file", "_offset"]))
    found, _ = delivered(opened(subject, on_damage="skip", columns=columns))
    return list(zip(found.column("_file").to_pylist(), found.column("_offset").to_pylist(), strict=True))


def _fail(subject: Subject, outcome: Outcome, damages: list[Place]) -> None:
    """`fail` delivers the rows before the first damage that `skip` finds, then raises it."""
    dataset = opened(subject, on_damage="fail")
    batches: list[pa.RecordBatch] = []
    raised: Damage | None = None
    with _attending(outcome, "fail"):
        try:
            batches.extend(dataset.to_batches())
        except FINDING_ERRORS as error:
            raised = error.damage
    rows = _placed(subject, pa.Table.from_batches(batches, dataset.schema))
    if raised is None or not damages:
        if (raised is None) != (not damages):
            first = places([raised]) if raised is not None else "nothing"
            outcome.complaints.append(f"fail finds {first}, skip {_some(damages)}")
        elif rows != outcome.rows:
            outcome.complaints.append(f"fail delivers {len(rows)} rows, skip {len(outcome.rows)}, and all is intact")
        return
    (seen,) = places([raised])
    # Where rows are not in order, the first found need not be the first in the file.
    earliest = min((one for one in damages if one.file == seen.file), default=None)
    if seen != damages[0] and (subject.sample.ordered or seen != earliest):
        outcome.complaints.append(f"fail finds {[seen]}, skip first {damages[:1]}")
    if rows != outcome.rows[: len(rows)]:
        outcome.complaints.append(f"fail delivers {len(rows)} rows before the damage that skip does not begin with")
    if outcome.origins is not None:
        files = [report.path for report in outcome.reports]
        limit = (files.index(raised.path) if raised.path in files else len(files), raised.offset)
        origins = [(files.index(file) if file in files else -1, offset) for file, offset in outcome.origins]
        before = sum(place < limit for place in origins)
        most = before + (origins.count(limit) if subject.sample.blocks else 0)
        if not before <= len(rows) <= most:
            outcome.complaints.append(
                f"fail delivers {len(rows)} rows, {before} are before the damage at byte {raised.offset}"
            )
