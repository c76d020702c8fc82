"""The outcomes of all verbs on a file, and whether they agree."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, NamedTuple

import pyarrow as pa

from sawlog import api
from sawlog.dataset.dataset import Dataset
from sawlog.errors import FINDING_ERRORS, FormatError, InternalError, SawlogError
from sawlog.format.damage import UNSUPPORTED, Account, Damage, FileReport, Findings, Report, Verdict, judge_kind
from sawlog.guard import is_system_error
from sawlog.testing.sample import Subject

Rows = list[str]
"""Rows as texts that can be compared, whatever their types; equal texts are equal rows, NaN included."""


_SIZELESS = {"bad_blob", "bad_copy", "bad_handle", "row_count_mismatch", "unsafe_path"}
"""Kinds of damage without a range of bytes: a lost value, whose bytes `bad_blob_part` counts; a whole file; a handle
that leads into another block, since it may be in a compressed block itself."""


class Place(NamedTuple):
    """A damage, as it is compared."""

    file: str
    offset: int
    length: int
    kind: str


@dataclass
class Outcome:
    """The outcomes of the commands on a subject.

    Attributes:
        complaints: Where they do not agree, or break a law.
        refused: Why the path is not read, if it is not.
        table: What `skip` returns; nothing where the path is not read.
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
        """The report of `verify` on the only file."""
        (report,) = self.reports
        return report

    def collect_words(self) -> set[object]:
        """Return the remarks on the files besides their rows."""
        tails = {(report.path, report.tail.status, report.tail.unfinished) for report in self.reports}
        notes = {(name, count) for report in self.reports for name, count in report.notes.items()}
        return {*self.damages, *tails, *notes, *self.remarks, self.refused}


def simplify_type(kind: pa.DataType) -> pa.DataType:
    """Return a type whose values Python can hold: times become numbers, dictionaries their values."""
    if pa.types.is_dictionary(kind):
        return simplify_type(kind.value_type)
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([inner.with_type(simplify_type(inner.type)) for inner in kind])
    if pa.types.is_map(kind):
        return pa.map_(simplify_type(kind.key_type), simplify_type(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(simplify_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(simplify_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(simplify_type(kind.value_type))
    return kind


def render_rows(table: pa.Table) -> Rows:
    """Return the rows of a table, for comparison."""
    columns = []
    for column in table.columns:
        plain_type = simplify_type(column.type)
        columns.append((column if column.type == plain_type else column.cast(plain_type)).to_pylist())
    return [repr(row) for row in zip(*columns, strict=True)] if columns else ["()"] * table.num_rows


def _render_local_rows(subject: Subject, table: pa.Table) -> Rows:
    """Return the same, with paths from the directory on."""
    return [row.replace(subject.directory, "") for row in render_rows(table)]


def is_subsequence(part: Rows, rows: Rows) -> bool:
    """Return whether all rows of one list are in another, in the same order."""
    remaining_rows = iter(rows)
    return all(row in remaining_rows for row in part)


def open_subject(subject: Subject, **arguments: Any) -> Dataset:
    """Return the dataset of a subject."""
    arguments = {"view": subject.sample.view, **arguments}
    return api.open(subject.path, format=subject.sample.format, **subject.options, **arguments)


def explain(error: BaseException) -> str:
    """Return an exception that should not have left, and where it came from."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}sawlog{os.sep}" in frame.filename
    ]
    inner = [frame for frame in frames if f"{os.sep}testing{os.sep}" not in frame.filename]
    origin = f" from {os.path.basename(inner[-1].filename)}:{inner[-1].lineno} ({inner[-1].name})" if inner else ""
    return f"{type(error).__name__} left{origin}: {str(error)[:300]}"


@contextmanager
def _record_verb(outcome: Outcome, verb: str) -> Iterator[None]:
    """Note what a verb does: what it warns of, and exceptions that are not for users."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            yield
        except InternalError as error:
            outcome.complaints.append(f"{verb}: {error}")
        except SawlogError as error:
            outcome.complaints.append(f"{verb} refuses what skip reads: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            if not is_system_error(error):
                outcome.complaints.append(f"{verb}: {explain(error)}")
    outcome.remarks |= {f"{caught.category.__name__}: {caught.message}" for caught in caught_warnings}


@contextmanager
def allow_refusal() -> Iterator[None]:
    """Pass over what may be refused; a fault of sawlog's own is none of that."""
    try:
        yield
    except InternalError:
        raise
    except SawlogError:
        pass


def list_places(damages: Iterable[Damage]) -> list[Place]:
    """Return the damaged ranges, as they are compared."""
    return [Place(damage.path, damage.offset, damage.length, damage.kind) for damage in damages]


def examine(subject: Subject, *, every_verb: bool = True) -> Outcome:
    """Read a subject with every verb, or with `skip` and `verify`, and see whether they agree: laws 3, 4 and 9."""
    outcome = Outcome()
    with _record_verb(outcome, "skip"):
        try:
            dataset = open_subject(subject, on_damage="skip")
        except (SawlogError, OSError) as error:
            outcome.refused = _explain_refusal(subject, error)
        else:
            try:
                table, findings = read_rows(dataset)
            except FormatError as error:  # what only reading a file shows: a version that is not supported
                outcome.refused = _explain_refusal(subject, error)
    if outcome.refused is not None or outcome.complaints:
        if every_verb:
            _refuse(subject, outcome)
        return outcome
    with _record_verb(outcome, "skip"):
        table.validate(full=True)
        outcome.table, outcome.rows = table, _render_local_rows(subject, table)
        with _record_verb(outcome, "info"):
            dataset.info()
        with _record_verb(outcome, "verify"):
            outcome.reports = list(dataset.verify(every=True))
        outcome.verdict = _judge_reports(dataset, outcome)
        outcome.damages = [place for report in outcome.reports for place in list_places(report.damages)]
        read_places = [place for fragment_findings in findings for place in list_places(fragment_findings.damages)]
        concerned = [
            place for place in outcome.damages if place in read_places or not _is_for_verify_only(subject, place)
        ]
        if sorted(read_places) != sorted(concerned):
            concerned = _without_skipped(concerned, dataset, outcome.reports)
        if subject.sample.view != "damage" and sorted(read_places) != sorted(concerned):
            outcome.complaints.append(f"skip finds {_render_first(read_places)}, verify {_render_first(concerned)}")
        for report in outcome.reports:
            wrong = check_account(report.damages, report.account, report.size)
            outcome.complaints += [f"{os.path.basename(report.path)}: {complaint}" for complaint in wrong]
        _check_counts(subject, dataset, outcome)
        if every_verb:
            _check_damage_view(subject, outcome)
            outcome.origins = _read_origins(subject, table)
            _fail(subject, outcome, concerned if subject.sample.ordered else read_places)
    outcome.remarks = {remark.replace(subject.directory, "") for remark in outcome.remarks}
    outcome.damages = [place._replace(file=os.path.relpath(place.file, subject.directory)) for place in outcome.damages]
    for report in outcome.reports:
        report.path = os.path.relpath(report.path, subject.directory)
    return outcome


def _judge_reports(dataset: Dataset, outcome: Outcome) -> Verdict:
    """Return the verdict of all reports: clean if and only if nothing was found and no file with rows was left out."""
    report = Report(dataset.format.name, outcome.reports, dataset.skipped)
    clean = not any(+report.kinds for report in report.files) and not any(report.missed for report in report.skipped)
    if (report.verdict is Verdict.CLEAN) != clean:
        outcome.complaints.append(
            f"the verdict is {report.verdict}, found was {[report.kinds for report in report.files]}"
        )
    return report.verdict


def read_rows(dataset: Dataset) -> tuple[pa.Table, list[Findings]]:
    """Return the rows of a dataset, and what each fragment found."""
    batches: list[pa.RecordBatch] = []
    ledgers = []
    for fragment in dataset.fragments(None):
        ledgers.append(Findings(dataset.scan.on_damage, drained=True))
        batches += fragment.to_batches(ledgers[-1])
    return pa.Table.from_batches(batches, dataset.schema), ledgers


def _render_first(items: list[Any]) -> str:
    return f"{[tuple(item) for item in items[:3]]}{f' and {len(items) - 3} more' if len(items) > 3 else ''}"


def _explain_refusal(subject: Subject, error: SawlogError | OSError) -> str:
    """Return why a path is not read; errors of the operating system are those that it gives for the path."""
    if isinstance(error, InternalError) or (isinstance(error, OSError) and not is_system_error(error)):
        raise error
    return f"{type(error).__name__}: {error}".replace(subject.directory, "")


_COUNTING: dict[str, tuple[dict[str, str], Callable[[Dataset], int]]] = {
    "fail": ({"on_damage": "fail"}, lambda dataset: dataset.to_table().num_rows),
    "verify": ({"on_damage": "skip"}, lambda dataset: sum(report.rows for report in dataset.verify(every=True))),
    "the damage view": ({"view": "damage"}, lambda dataset: dataset.to_table().num_rows),
}


def _refuse(subject: Subject, outcome: Outcome) -> None:
    """Check that a file that `skip` does not read is not read otherwise."""
    for verb, (options, rows_of) in _COUNTING.items():
        with _record_verb(outcome, verb):
            try:
                rows = rows_of(open_subject(subject, **options))
            except (SawlogError, OSError) as error:
                _explain_refusal(subject, error)
                continue
            # That view may describe what no other can be opened for.
            if verb != "the damage view" or not rows:
                outcome.complaints.append(f"skip refuses ({outcome.refused}), {verb} returns {rows} rows")


def check_account(damages: Iterable[Damage], account: Account, size: int) -> Iterator[str]:
    """Yield complaints about an account: it covers every byte once.

    Damaged ranges are in the file, in order, and apart.

    Only findings at the end of a file, or of `_SIZELESS` kinds, have no bytes: for what ends too soon, concerns a whole
    file, or is counted by another finding.
    """
    if account.total != size:
        yield f"{account} adds up to {account.total} of {size}"
    last = end = damaged = unsupported = 0
    for damage in damages:
        if (
            (damage.length and damage.offset < end)
            or damage.length < 0
            or not 0 <= damage.offset <= size - damage.length
        ):
            yield f"damage {damage} overlaps another, or leaves the {size} bytes"
        if damage.offset < last:
            yield f"damage {damage} is out of order"
        if (
            not damage.length
            and damage.offset < size
            and damage.kind not in _SIZELESS
            and judge_kind(damage.kind) is Verdict.DAMAGED
        ):
            yield f"damage {damage} has no bytes"
        last, end = damage.offset, max(end, damage.offset + damage.length)
        if damage.kind == UNSUPPORTED:
            unsupported += damage.length
        else:
            damaged += damage.length
    if damaged != account.damage:
        yield f"the damaged ranges do not add up to {account.damage} bytes"
    if unsupported != account.unsupported:
        yield f"what is unsupported does not add up to {account.unsupported} bytes"


def _is_for_verify_only(subject: Subject, damage: Place) -> bool:
    """Return whether only `verify` reads what is damaged."""
    name = os.path.relpath(damage.file, subject.directory)
    advisory = subject.sample.advisory
    return (
        damage.kind in advisory
        or any(fnmatch(f"{name}: {damage.kind}", pattern) for pattern in advisory)
        or any(name == path or name.startswith(f"{path}/") for path in subject.sample.beside)
    )


def _without_skipped(damages: list[Place], dataset: Dataset, reports: Iterable[FileReport]) -> list[Place]:
    """Return the damage outside of files that the dataset leaves out as a whole, which `verify` may check."""
    sizes = {report.path: report.size for report in reports}
    skipped_paths = {file.path for file in dataset.skipped if file.bytes == sizes.get(file.path)}
    return [place for place in damages if place.file not in skipped_paths]


def _check_counts(subject: Subject, dataset: Dataset, outcome: Outcome) -> None:
    """Check that `Report.rows` and `count_rows` are what `skip` delivers."""
    with _record_verb(outcome, "count_rows"):
        counts = {"count_rows": dataset.count_rows()}
        if subject.sample.view != "damage" and not subject.sample.folded:
            counts["verify"] = sum(report.rows for report in outcome.reports)
        for verb, count in counts.items():
            if count != len(outcome.rows):
                outcome.complaints.append(f"skip returns {len(outcome.rows)} rows, {verb} counts {count}")


def _check_damage_view(subject: Subject, outcome: Outcome) -> None:
    if subject.sample.view != "rows":
        return
    with _record_verb(outcome, "the damage view"):
        rows = open_subject(subject, view="damage", on_damage="fail").to_table().to_pylist()
        listed = [Place(row["file"], row["offset"], row["length"], row["kind"]) for row in rows]
        if sorted(listed) != sorted(outcome.damages):
            outcome.complaints.append(
                f"verify names {_render_first(outcome.damages)}, the damage view {_render_first(listed)}"
            )


def _read_origins(subject: Subject, table: pa.Table) -> list[tuple[str, int]] | None:
    """Return the files and offsets that the rows of a table come from."""
    if not subject.sample.ordered:
        return None
    columns = list(dict.fromkeys([*table.schema.names, "_file", "_offset"]))
    with_origins, _ = read_rows(open_subject(subject, on_damage="skip", columns=columns))
    return list(zip(with_origins.column("_file").to_pylist(), with_origins.column("_offset").to_pylist(), strict=True))


def _fail(subject: Subject, outcome: Outcome, damages: list[Place]) -> None:
    """Check that `fail` delivers the rows before the first damage that `skip` finds, and then raises that."""
    dataset = open_subject(subject, on_damage="fail")
    batches: list[pa.RecordBatch] = []
    raised: Damage | None = None
    with _record_verb(outcome, "fail"):
        try:
            batches.extend(dataset.to_batches())
        except FINDING_ERRORS as error:
            raised = error.damage
    rows = _render_local_rows(subject, pa.Table.from_batches(batches, dataset.schema))
    if raised is None or not damages:
        if (raised is None) != (not damages):
            first = list_places([raised]) if raised is not None else "nothing"
            outcome.complaints.append(f"fail finds {first}, skip {_render_first(damages)}")
        elif rows != outcome.rows:
            outcome.complaints.append(f"fail returns {len(rows)} rows, skip {len(outcome.rows)}, and all is intact")
        return
    (raised_place,) = list_places([raised])
    # Where rows are not in order, it may be of another file: what was found first there, or is first in it.
    of_file = [place for place in damages if place.file == raised_place.file] or damages[:1]
    if raised_place != damages[0] and (subject.sample.ordered or raised_place not in (of_file[0], min(of_file))):
        outcome.complaints.append(f"fail finds {[raised_place]}, skip first {damages[:1]}")
    if rows != outcome.rows[: len(rows)]:
        outcome.complaints.append(f"fail returns {len(rows)} rows before the damage that skip does not begin with")
    if outcome.origins is not None:
        files = [report.path for report in outcome.reports]
        limit = (files.index(raised.path) if raised.path in files else len(files), raised.offset)
        origins = [(files.index(file) if file in files else -1, offset) for file, offset in outcome.origins]
        before = sum(place < limit for place in origins) - (raised.kind in subject.sample.within)
        max_rows = before + (origins.count(limit) if subject.sample.blocks else 0)
        if subject.sample.pages:
            last = max((place for place in origins if place < limit), default=limit)
            before -= origins.count(last)
        if not before <= len(rows) <= max_rows:
            outcome.complaints.append(
                f"fail returns {len(rows)} rows, {before} are before the damage at byte {raised.offset}"
            )
