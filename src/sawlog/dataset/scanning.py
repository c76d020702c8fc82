"""Reads of contents by the threads of this process: rows, counts, and reports of every byte."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from sawlog.errors import FINDING_ERRORS, OptionError, SawlogError
from sawlog.format.capabilities import PlansWholeReads, ReportsFiles, Verification, VerifiesOtherwise
from sawlog.format.contract import BoundScan, Contents, Format, Fragment
from sawlog.format.damage import MAX_LISTED, FileReport, Findings
from sawlog.format.options import as_text, find_rescue_options
from sawlog.format.planning import bind_scan, count_threads, plan_for_threads
from sawlog.format.scan import Scan
from sawlog.storage import File, ask_ahead, confirm_files, is_remote
from sawlog.storage.workers import map_ordered, wrap_single_step

OnFragmentDone = Callable[[Fragment, Findings], None]
"""Called with a fragment and its findings after its rows were delivered."""

_Result = TypeVar("_Result")
_MIN_BATCH_BYTES = 1 << 16
"""Least bytes that a waiting batch counts for, so that thousands of tiny ones are not held."""
_MAX_HELD_REPORTS = 1000
"""Files of which all reports may wait for the last one."""


def read_fragments(fragments: Iterable[Fragment], threads: int, done: OnFragmentDone) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fragments, in order.

    Args:
        fragments: What to read.
        threads: How many read; with 1, nothing is read ahead.
        done: Called also when the consumer has stopped among the rows of a fragment.
    """
    open_fragments: dict[int, tuple[Fragment, Findings]] = {}

    def read_batches(fragment: Fragment) -> Iterator[pa.RecordBatch]:
        findings = Findings(fragment.scan.on_damage)
        open_fragments[id(fragment)] = fragment, findings
        yield from fragment.to_batches(findings)

    try:
        for _, batch in map_ordered(
            fragments, read_batches, threads, lambda part: done(*open_fragments.pop(id(part))), _count_bytes
        ):
            yield batch
    finally:
        for fragment, findings in open_fragments.values() if threads <= 1 else ():
            done(fragment, findings)


def _count_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes that a waiting batch counts for."""
    return max(int(batch.nbytes), _MIN_BATCH_BYTES)


def read_rows(
    contents: Contents, request: BoundScan, done: OnFragmentDone, task_bytes: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, as record batches, in order; what was left out goes to `done`, fragment by fragment.

    Args:
        contents: The files.
        request: The scan and its columns.
        done: Called after the rows of each fragment.
        task_bytes: As for `plan_fragments`, where one thread reads.
    """
    threads = count_threads(contents, request)
    with ask_ahead(plan_for_threads(contents, request, task_bytes), threads) as fragments:
        yield from confirm_after(contents, read_fragments(fragments, threads, done))


def run_at_once(
    contents: Contents, work: Callable[[Contents, OnFragmentDone], _Result], done: OnFragmentDone
) -> _Result:
    """Return the result of work on all rows together: see `PlansWholeReads`."""
    reported: list[tuple[Fragment, Findings]] = []

    def report(fragment: Fragment, findings: Findings) -> None:
        if findings.is_clean:  # as those of most files are, which would be kept until the end
            done(fragment, findings)
        else:
            reported.append((fragment, findings))

    result = _try_at_once(contents, lambda planned: work(planned, report))
    if result is None:
        return work(contents, done)
    for completed in reported:
        done(*completed)
    return result


def _try_at_once(contents: Contents, work: Callable[[Contents], _Result]) -> _Result | None:
    """Return the result of work by a faster plan; `None` where there is none, or it fails."""
    planned = contents.plan_whole_read() if isinstance(contents, PlansWholeReads) else None
    if planned is None:
        return None
    try:
        return work(planned)
    except SawlogError:  # what is wrong is found again, by fragments that know more
        return None


def count_rows(contents: Contents, request: BoundScan, done: OnFragmentDone) -> int:
    """Return how many rows there are before any filter; what was left out goes to `done`, fragment by fragment."""
    return run_at_once(contents, lambda planned, report: _count_rows(planned, request, report), done)


def _count_rows(contents: Contents, request: BoundScan, done: OnFragmentDone) -> int:
    total = 0
    threads = count_threads(contents, request)
    with ask_ahead(plan_for_threads(contents, request), threads) as fragments:
        for fragment, findings in map_ordered(
            fragments, wrap_single_step(lambda part: part.scan_into(Findings(part.scan.on_damage))), threads
        ):
            total += findings.rows
            done(fragment, findings)
    confirm_files(contents.scan.storage)
    return total


def confirm_after(contents: Contents, results: Iterable[_Result]) -> Iterator[_Result]:
    """Yield results of reading, after which remote files must still be what they were."""
    try:
        yield from results
    except FINDING_ERRORS:
        confirm_files(contents.scan.storage)  # what looks damaged may have been replaced
        raise
    confirm_files(contents.scan.storage)


def verify_contents(contents: Contents, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
    """Check every byte that the view reads; yield one report per file, in order. See `Dataset.verify`."""
    if isinstance(contents, ReportsFiles):
        return contents.report_files(request, verification)
    return verify_fragments(contents, request, verification)


def verify_fragments(contents: Contents, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
    """Check every byte of fragments; yield one report for those in a row that are of one file."""
    if isinstance(contents, VerifiesOtherwise):
        request = contents.make_verify_request(request)
    reports = _report_at_once(contents, request, verification)
    yield from _report_fragments(contents, request, verification) if reports is None else reports


def _report_at_once(contents: Contents, request: BoundScan, verification: Verification) -> list[FileReport] | None:
    """Return reports of few remote files by a plan that fetches them once; `None` where there is none, or it fails."""
    if len(contents.files) > _MAX_HELD_REPORTS or not any(is_remote(file.path) for file in contents.files):
        return None
    sizes: list[int] = []

    def advance(size: int) -> None:
        sizes.append(size)
        if verification.advance is not None:
            verification.advance(size)

    own_verification = replace(verification, advance=advance)
    reports = _try_at_once(contents, lambda planned: list(_report_fragments(planned, request, own_verification)))
    if reports is None and sizes:
        advance(-sum(sizes))
    return reports


def _report_fragments(contents: Contents, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
    sizes = {file.path: file.size for file in contents.files}
    inspected = _inspect_fragments(contents, request, verification)
    for path, results in itertools.groupby(confirm_after(contents, inspected), key=lambda result: result[0].path):
        report = FileReport.of(path, sizes.get(path, 0), (findings for _, findings in results))
        if not verification.lists_all:
            del report.damages[MAX_LISTED:]
        yield report


def _inspect_fragments(
    contents: Contents, request: BoundScan, verification: Verification
) -> Iterator[tuple[Fragment, Findings]]:
    """Yield the findings of every fragment, in order."""
    threads = count_threads(contents, request)
    with ask_ahead(plan_for_threads(contents, request, verification.task_bytes), threads) as fragments:
        for fragment, findings in map_ordered(
            fragments, wrap_single_step(lambda part: part.inspect(every=verification.lists_all)), threads
        ):
            if verification.advance is not None:
                verification.advance(fragment.size)
            yield fragment, findings


def find_more_rows(format: Format, reports: Sequence[FileReport], files: Sequence[File], scan: Scan) -> str:
    """Return what more can be read of damaged files by options that rescue rows, as a phrase; empty if nothing."""
    rescue = find_rescue_options(format.read_options)
    requested = {name: getattr(scan.options, name) for name in rescue}
    if requested == rescue or scan.view not in ("rows", "writes") or not scan.options.verify_checksums:
        return ""
    with contextlib.suppress(OptionError):  # options that exclude each other
        scan = replace(scan, options=replace(scan.options, **rescue))
        contents = format.open(files, scan)
        rescued = verify_contents(contents, bind_scan(contents, scan), Verification())
        if (extra_rows := sum(report.rows for report in rescued) - sum(report.rows for report in reports)) > 0:
            options = " ".join(f"-o {name}={as_text(value)}" for name, value in rescue.items())
            return f"{extra_rows:,} more row{'s' if extra_rows > 1 else ''} with {options}"
    return ""
