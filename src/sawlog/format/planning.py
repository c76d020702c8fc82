"""Plans of a read: contents into fragments, fragments into tasks, files left out by an index."""

from __future__ import annotations

import copy
import gc
import hashlib
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

import pyarrow as pa

from sawlog.format.capabilities import (
    ChecksScans,
    JoinsFiles,
    NeedsScanToSplit,
    PlansFewRows,
    ScansForSplits,
    SplitsGroups,
    find_file_options,
    require_followable,
)
from sawlog.format.contract import BoundScan, Contents, Fragment
from sawlog.format.damage import DAMAGE_SCHEMA
from sawlog.format.query import can_match_within, list_columns
from sawlog.format.scan import DAMAGE_EXTRA, Projection, Scan, fix_schema
from sawlog.guard import wrap_errors
from sawlog.storage import File, find_answer, note_answer
from sawlog.storage.index import Index, pack_numbers, unpack_numbers
from sawlog.storage.names import is_remote
from sawlog.storage.workers import PIECE_BYTES

FRAGMENTS_PER_TASK = 256
"""So many small files share a task. Of 100 rows each takes Spark's task 0.1 to 0.5 ms, and the task itself 20 to 40."""
_ENOUGH_TASKS = 32
"""With as many tasks there is work for all cores: they have up to four times as many files before there are more."""
_MAX_THREADED_FILES = 128
"""So many files may `PIECE_BYTES` have, on average, that threads share: 128 KiB each.

On two cores, two threads were faster than one from 50 KiB (tables) to 500 KiB (FiloDB) on, and half as fast for less.
"""
ROWS_QUESTION = "rows"
"""What an index with statistics is asked of an intact file whose rows depend on no other: how many it has."""

_Part = TypeVar("_Part")
_C = TypeVar("_C", bound=Contents)


class _Postponement:
    """Context in which no full collection of garbage begins, in any thread."""

    _NEVER = 1 << 30

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._threshold = 0

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                first, second, self._threshold = gc.get_threshold()
                gc.set_threshold(first, second, self._NEVER)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            first, second, third = gc.get_threshold()
            if self._depth == 0 and third == self._NEVER:  # which nobody else has set meanwhile
                gc.set_threshold(first, second, self._threshold)


_POSTPONEMENT = _Postponement()


def hold_full_collections() -> _Postponement:
    """Hold back full collections of garbage while an object is made for each of many files, and all of them stay.

    They go over all that stays whenever that is a quarter more: for 100,000 files six to nine times while they are
    opened, which took a sixth of the time, and twice while they are planned. Young objects are collected as ever.
    """
    return _POSTPONEMENT


def find_view_schema(contents: Contents) -> pa.Schema:
    """Return the schema of the whole view, without provenance."""
    return contents.find_view(contents.scan.view).schema_of(contents)


def list_available_columns(contents: Contents) -> pa.Schema:
    """Return every column that can be asked for by name: those of the view, and the extra ones."""
    view, extra = _find_columns(contents, contents.scan)
    return pa.schema([*view, *(field for field in extra if field.name not in view.names)])


def _find_columns(contents: Contents, scan: Scan) -> tuple[pa.Schema, Iterable[pa.Field]]:
    """Return the columns of a view, fixed ones if there are any, and those besides that can be asked for by name."""
    if scan.view == "damage":
        return DAMAGE_SCHEMA, DAMAGE_EXTRA
    extra = contents.find_view(contents.scan.view).extra
    view = find_view_schema(contents)
    if scan.schema is not None:
        view = fix_schema(scan.schema, view, describe_files(contents))
    return view, extra(contents) if callable(extra) else extra


def bind_scan(contents: Contents, scan: Scan) -> BoundScan:
    """Return a scan of contents with its columns.

    Raises:
        SchemaError: For a column that the view does not have.
    """
    view, extra = _find_columns(contents, scan)
    request = BoundScan(scan, Projection.of(view, scan, extra))
    if issubclass(type(contents), ChecksScans):  # which is remembered, unlike `isinstance` of a protocol
        cast(ChecksScans, contents).check_scan(scan)
    return request


def describe_files(contents: Contents) -> str:
    """Return the files of contents as a phrase for messages."""
    first = contents.files[0].path if contents.files else "(no files)"
    return f"{first} and {len(contents.files) - 1} more" if len(contents.files) > 1 else first


def plan(contents: Contents, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
    """Yield fragments in reading order, pruned by what filters allow.

    Args:
        contents: The files.
        request: The scan and its columns.
        task_bytes: Cut what can be cut into pieces of about this size; `None`: one fragment per file.
    """
    return contents.find_view(request.scan.view).fragments(contents, request, task_bytes)


def plan_fragments(contents: Contents, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
    """Yield what `plan` yields, without the files of which an index says that no row can be wanted.

    Raises:
        InternalError: For an exception that is not sawlog's own.
    """
    with wrap_errors(f"{describe_files(contents)}: planning failed"):
        yield from plan(prune_files(contents, request), request, task_bytes)


def prune_files(contents: _C, request: BoundScan) -> _C:
    """Return contents without files of which an index says that no row of them can be wanted."""
    index, query = contents.scan.storage.index, request.projection.query
    if not isinstance(index, Index) or not (contents.files_are_independent and request.scan.view == "rows"):
        return contents
    if not query.parts or index.options != repr(find_file_options(contents.format, contents.scan.options)):
        return contents
    names = list_columns(query)
    limits = index.find_limits(contents.files, [field for field in find_view_schema(contents) if field.name in names])
    if not limits[0].num_columns:
        return contents
    matches = can_match_within(query, *limits).to_pylist()
    if all(matches):
        return contents
    return contents.with_files([file for file, matching in zip(contents.files, matches, strict=True) if matching])


def plan_for_threads(contents: Contents, request: BoundScan, task_bytes: int | None = None) -> Iterator[Fragment]:
    """Yield fragments for the threads of this process; of the size asked for, where one thread reads."""
    splits = contents.threads_split_files and count_threads(contents, request) > 1
    return plan_fragments(contents, request, PIECE_BYTES if splits else task_bytes)


def count_threads(contents: Contents, request: BoundScan) -> int:
    """Return how many threads read.

    What is small is read before they are up, and small files keep one busy with Python, which others would wait for;
    where they do not split files, each has files of its own.
    """
    threads = request.scan.threads
    min_bytes = max(PIECE_BYTES, len(contents.files) * (PIECE_BYTES // _MAX_THREADED_FILES))
    if threads <= 1 or sum(file.size for file in contents.files) <= min_bytes:
        return 1
    if not contents.threads_split_files:
        joined = contents.count_parts(request) if isinstance(contents, JoinsFiles) else len(contents.files)
        threads = min(threads, joined)
    return threads


def pack(
    parts: Iterable[_Part], task_bytes: int, size: Callable[[_Part], int] = operator.attrgetter("size")
) -> list[list[_Part]]:
    """Return fragments, or what has a size, packed in order into tasks of about `task_bytes`.

    A task has at most `FRAGMENTS_PER_TASK` parts; four times as many where there would be more than a few tasks.
    """
    parts = list(parts)
    tasks: list[list[_Part]] = []
    min_bytes = task_bytes // min(max(FRAGMENTS_PER_TASK, -(-len(parts) // _ENOUGH_TASKS)), 4 * FRAGMENTS_PER_TASK)
    room = 0
    for part in parts:
        cost = max(size(part), min_bytes)
        if not tasks or cost > room:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(part)
        room -= cost
    return tasks


def plan_tasks(contents: Contents, request: BoundScan, task_bytes: int) -> list[list[Fragment]]:
    """Return fragments packed, in order, into tasks of about `task_bytes` of input."""
    with hold_full_collections():
        return pack(plan_fragments(contents, request, task_bytes), task_bytes)


def split_contents(contents: Contents, request: BoundScan, task_bytes: int) -> Iterable[Contents | Fragment]:
    """Yield fragments, and contents to be planned by the task that reads them, which together are these, in order.

    There are none where planning needs no more than headers, or the bytes are near: then the caller can plan all.
    """
    if isinstance(contents, SplitsGroups):
        yield from contents.split_groups(request, task_bytes)
    elif unscanned_files := _list_unscanned_files(contents, task_bytes):
        for file in contents.files:
            part = contents.with_files([file])
            yield from [part] if file in unscanned_files else plan(part, request, task_bytes)


def list_unscanned_parts(contents: Contents, request: BoundScan, task_bytes: int) -> Iterable[Contents]:
    """Return the remote parts that need `scan_for_splits`, each in a task of its own, before all can be planned."""
    if isinstance(contents, SplitsGroups):
        return contents.list_unscanned_parts(request, task_bytes)
    return [contents.with_files([file]) for file in _list_unscanned_files(contents, task_bytes)]


def _list_unscanned_files(contents: Contents, task_bytes: int) -> list[File]:
    """Return the large remote files that have to be read before they can be cut into pieces of this size."""
    if not isinstance(contents, NeedsScanToSplit):
        return []
    large_files = [file for file in contents.files if is_remote(file.path) and file.size > task_bytes]
    return [file for file in large_files if contents.needs_scan(file, task_bytes)]


def scan_for_splits(contents: Contents, request: BoundScan) -> bool:
    """Note what is known once all of intact files was read: where they may be cut, and what they say of others.

    Returns:
        Whether other files are read without these as they are with them.
    """
    if isinstance(contents, ScansForSplits):
        return contents.scan_for_splits(request)
    return contents.files_are_independent


def plan_for_few_rows(contents: Contents) -> Contents:
    """Return contents as a reader wants them that ends when it has some rows, whichever these are."""
    planned = contents.plan_few_rows() if isinstance(contents, PlansFewRows) else None
    return contents if planned is None else planned


def with_scan(contents: _C, scan: Scan) -> _C:
    """Return contents under a scan that differs in columns, filters, or what planning has asked before."""
    changed = copy.copy(contents)
    changed.scan = scan
    return changed


def make_question(contents: Contents, question: str) -> str:
    """Return a question to an index whose answer depends on the options by which files are read."""
    options = repr(find_file_options(contents.format, contents.scan.options)).encode()
    return f"{question} {hashlib.sha256(options).hexdigest()[:16]}"


def count_indexed_rows(contents: Contents) -> int | None:
    """Return how many rows the files have, if an index knows that of all of them."""
    index = contents.scan.storage.index
    if not (isinstance(index, Index) and index.has_statistics and contents.scan.view == "rows"):
        return None
    question = make_question(contents, ROWS_QUESTION)
    counts = [index.answer(file, question) for file in contents.files]
    return sum(unpack_numbers(count)[0] for count in counts if count) if all(counts) else None


def find_whole_end(contents: Contents, request: BoundScan, file: File) -> int:
    """Return the committed end of a file of which nothing was read; an index with statistics knows it of intact files.

    Raises:
        OptionError: When the view cannot be followed.
    """
    storage = contents.scan.storage
    question = make_question(contents, f"end of {contents.scan.view}")
    answer = find_answer(storage, file, question)
    if answer:
        return unpack_numbers(answer)[0]
    end = require_followable(contents).find_committed_end(request, file, 0)
    note_answer(storage, file, question, pack_numbers([end]))
    return end
