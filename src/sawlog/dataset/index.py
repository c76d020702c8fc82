"""Making an index of a directory, and bringing it up to date by what has changed."""

from __future__ import annotations

import glob
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import Any

import pyarrow as pa

from sawlog.arrow import find_value_type, make_array, make_scalar
from sawlog.errors import ChangedError, FormatError, InternalError, OptionError, SawlogError, StorageError, warn
from sawlog.format.capabilities import PrefetchesHeaders, find_file_options
from sawlog.format.contract import TASK_BYTES, Format
from sawlog.format.damage import Findings, TailStatus
from sawlog.format.options import parse_options
from sawlog.format.planning import ROWS_QUESTION, bind_scan, find_whole_end, make_question, pack, plan, scan_for_splits
from sawlog.format.recognition import get_format, recognize
from sawlog.format.scan import Scan
from sawlog.guard import wrap_errors
from sawlog.storage import File, Storage, confirm_files, note_answer
from sawlog.storage.index import (
    INDEX_NAME,
    STABLE_SECONDS,
    Index,
    IndexedFileFacts,
    Notebook,
    find_last_change,
    pack_numbers,
)
from sawlog.storage.names import PathLike, is_remote, normalize
from sawlog.storage.workers import count_cores, map_all
from sawlog.stream.offset import prove

Part = Sequence[Sequence[File]]
"""Groups of files: of one, where each can be judged by itself."""
Run = Callable[[Callable[[Part], Index], Sequence[Part]], list[Index]]
"""Has a function of parts done to each of them; what it finds."""

_FILES_PER_TASK = 1000
"""That are looked into by one task."""

_MAX_COLUMNS = 32
"""Columns of which an index has limits: the first ones."""
_MAX_LIMIT_BYTES = 64
"""Of a text that is a limit."""
_WHOLE = (TailStatus.CLEAN, TailStatus.PADDING)


class IndexWarning(UserWarning):
    """An index was not used: it is missing or damaged. Answers are the same without it."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """The outcome of making an index.

    Attributes:
        path: The index.
        format: Name of the format of the files.
        files: Files that it knows.
        read: Those of them that were looked into, because the index did not know them, or not as they are now.
        dropped: Files that it knew and that are gone, or no longer the same.
    """

    path: str
    format: str
    files: int
    read: int
    dropped: int


def index(
    path: PathLike,
    *,
    to: PathLike | None = None,
    format: str | None = None,
    statistics: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    run: Run | None = None,
    **options: Any,
) -> Indexed:
    """Make an index of the files below a path, or bring one up to date: only what has changed is looked into.

    It is used by `sawlog.open(path, index=True)`, which then asks files that it knows for nothing but rows.

    Args:
        path: The directory; a glob or a file needs `to`.
        to: Where the index is; `_sawlog_index` in the directory if not given, where no reader takes it for data.
        format: Name of the format; recognised if not given.
        statistics: Whether files are read whole, once, for what that shows: between which values the columns are,
            where files can be cut, and what they delete. As in the index that there is, if not given.
        storage_options: What fsspec needs to reach the paths.
        run: What looks into the files; threads of this process if not given. See `sawlog.spark.index`.
        **options: The format's own options. Statistics count for reads by the same ones.

    Raises:
        OptionError: When the format plans without looking into its files: then there is nothing to keep.
        FormatError: When the path is not recognised or holds no such files.
        FileNotFoundError: When there is nothing at the path.
    """
    storage = Storage(dict(storage_options or {}))
    location, start_time = normalize(path), time.time()
    place = _choose_index_path(to if to is not None else True, [location])
    listed = storage.find(location)
    detected_format = get_format(format) if format is not None else recognize(listed, storage, location)
    files = detected_format.select(listed, "rows")
    if not files:
        raise FormatError(f"{location}: none of the {len(listed)} files there is a {detected_format.title}")
    parsed: Any = parse_options(detected_format.read_options, options, context=f"reading {detected_format.name}")
    parsed = find_file_options(detected_format, parsed)
    before = _load_index(storage, place, missing=True) or Index(options=repr(parsed))
    if statistics is None:
        statistics = before.has_statistics
    if before.options != repr(parsed):
        before = before.without_statistics()
    known_files = before.select_indexed(files, statistics=statistics)
    groups: dict[str, list[File]] = {}
    for file in files:
        groups.setdefault(detected_format.directory_layout.judged_together(file) or file.path, []).append(file)
    unknown = [group for group in groups.values() if not known_files.issuperset(group)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reader of the files gets warnings
        look = partial(_look_into, detected_format, storage, parsed, statistics=statistics)
        parts = _split_parts(unknown, statistics=statistics, many=run is not None)
        indexes = run(look, parts) if run is not None else map_all(parts, look, count_cores())
    if not (statistics or known_files or any(index_part.answers for index_part in indexes)):
        raise OptionError(
            f"{location}: no index is needed: {detected_format.name} is planned without a look into these files"
        )
    confirm_files(storage)
    looked = [file for group in unknown for file in group]
    stable = [file for file in looked if _is_stable(storage, file, start_time)]
    old = before.of_files(known_files.difference(looked))
    new = Index.join_indexes([old, *(index_part.of_files(stable) for index_part in indexes)], repr(parsed))
    dropped = before.rows.num_rows - len(before.select_indexed(files))
    if looked or dropped or not before.rows.num_rows:
        staged = storage.stage(place)
        try:
            staged.write(new.to_bytes())
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise
    return Indexed(place, detected_format.name, new.rows.num_rows, len(looked), dropped)


def _look_into(format: Format, storage: Storage, options: Any, part: Part, *, statistics: bool) -> Index:
    """Return answers to planning's questions, and limits, of files that have not changed since they were listed."""
    notebook = Notebook()
    scan = Scan(on_damage="skip", options=options, storage=replace(storage, index=notebook))
    changed_files: set[File] = set()
    try:
        _ask(format, scan, [file for group in part for file in group])
    except (SawlogError, FileNotFoundError):
        for group in part:
            try:
                _ask(format, scan, group)
            except (ChangedError, FileNotFoundError):
                changed_files.update(group)
            except (StorageError, InternalError):
                raise
            except SawlogError:
                pass  # its reader sees why it cannot be read
    facts: dict[File, IndexedFileFacts] = {}
    for group in part:
        single = statistics and len(group) == 1 and changed_files.isdisjoint(group)
        limits = _measure_limits(format, scan, group[0]) if single else {}
        facts |= {
            file: IndexedFileFacts(notebook.of(file), statistics, limits) for file in group if file not in changed_files
        }
    return Index.of(facts, repr(options))


def _ask(format: Format, scan: Scan, files: Sequence[File]) -> None:
    with wrap_errors(f"{files[0].path}: looking into files failed"):
        contents = format.open(files, scan)
        request = bind_scan(contents, scan)
        if isinstance(contents, PrefetchesHeaders):
            contents.prefetch_headers(request)


def _measure_limits(format: Format, scan: Scan, file: File) -> Mapping[str, tuple[pa.Scalar, pa.Scalar]]:
    """Return the least and greatest value of each column of a file; nothing where it is damaged."""
    intact = True
    ends: dict[pa.Field, list[pa.Scalar]] = {}
    rows = 0
    try:
        with wrap_errors(f"{file.path}: reading for statistics failed"):
            contents = format.open([file], scan)
            request = bind_scan(contents, scan)
            for fragment in plan(contents, request, None):
                findings = Findings("skip")
                for batch in fragment.to_batches(findings):
                    _widen(ends, batch)
                    rows += batch.num_rows
                intact = intact and not findings.kinds and (findings.tail is None or findings.tail.status in _WHOLE)
            if not intact:
                return {}
            with suppress(OptionError):  # a view that cannot be followed
                prove(file, find_whole_end(contents, request, file), scan.storage)
            if not scan_for_splits(contents, request):
                return {}
            note_answer(scan.storage, file, make_question(contents, ROWS_QUESTION), pack_numbers([rows]))
    except (StorageError, InternalError):
        raise
    except SawlogError:
        return {}
    limits = {field.name: _choose_limits(field.type, values) for field, values in ends.items()}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _widen(ends: dict[pa.Field, list[pa.Scalar]], batch: pa.RecordBatch) -> None:
    """Take in the least and the greatest values of a batch's columns."""
    import pyarrow.compute as pc

    for field, column in list(zip(batch.schema, batch.columns, strict=True))[:_MAX_COLUMNS]:
        kind = find_value_type(field.type)
        if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or _is_text(kind)):
            continue
        if pa.types.is_boolean(kind) or pa.types.is_float16(kind) or pa.types.is_duration(kind):
            continue
        values = column.cast(kind)
        limits = pc.min_max(values)
        limit_values = ends.setdefault(field.with_type(kind), [])
        limit_values += [limits["min"], limits["max"]]
        if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
            limit_values.append(make_scalar(float("nan"), kind))


def _choose_limits(kind: pa.DataType, values: list[pa.Scalar]) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the least and the greatest value of a column.

    `None` for nulls only, where there are NaNs, and for long texts.
    """
    import pyarrow.compute as pc

    limits = pc.min_max(make_array(values, kind))
    low, high = limits["min"], limits["max"]
    if not low.is_valid or (
        pa.types.is_floating(kind) and any(value.is_valid and isnan(value.as_py()) for value in values)
    ):
        return None
    return None if _is_text(kind) and max(len(low.as_py()), len(high.as_py())) > _MAX_LIMIT_BYTES else (low, high)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _split_parts(groups: list[list[File]], *, statistics: bool, many: bool) -> Sequence[Part]:
    """Return the groups in parts of as much work as one task has."""
    if statistics:
        return pack(groups, TASK_BYTES, lambda group: sum(file.size for file in group))
    step = _FILES_PER_TASK if many else max(1, len(groups))
    return [groups[start : start + step] for start in range(0, len(groups), step)]


def _choose_index_path(index_option: PathLike | bool, paths: Sequence[str]) -> str:
    """Return where the index of some paths is: by its path, or, for `True` or the text `true`, in the directory.

    Raises:
        OptionError: When there is not one directory.
    """
    if not isinstance(index_option, bool) and index_option != "true":
        return normalize(index_option)
    if len(paths) != 1 or glob.has_magic(paths[0]):
        raise OptionError(f"index={index_option}: {', '.join(paths)} is not one directory; give the path of the index")
    return f"{normalize(paths[0]).rstrip('/')}/{INDEX_NAME}"


def _load_index(storage: Storage, place: str, *, missing: bool = False) -> Index | None:
    """Return an index; `None`, with a warning that says why, where it cannot be used."""
    try:
        return Index.from_bytes(storage.make_fresh().read(place))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not missing:
            warn(f"{place}: there is no index; `sawlog index` makes it ({type(error).__name__})", IndexWarning)
    except FormatError as error:
        warn(f"{place}: the index is not used: {error}; `sawlog index` makes another one", IndexWarning)
    return None


def with_index(storage: Storage, index_option: PathLike | bool, paths: Sequence[str]) -> Storage:
    """Return the storage that answers from an index where it can."""
    if index_option == "false":
        return storage
    return replace(storage, index=_load_index(storage, _choose_index_path(index_option, paths)))


def _is_stable(storage: Storage, file: File, start_time: float) -> bool:
    """Return whether another version of a file would be recognised as one."""
    if is_remote(file.path) and file.is_tagged:
        return True
    return (changed := find_last_change(file)) is not None and changed < start_time - STABLE_SECONDS
