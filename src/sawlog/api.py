"""The verbs of sawlog: open, read, write, verify, repair, formats. Every door goes through them."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import pyarrow as pa

from sawlog.arrow import check_times, validate_batches
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.index import with_index
from sawlog.dataset.opening import (
    Filters,
    find,
    list_input_names,
    make_storage,
    open_found,
    resolve_threads,
)
from sawlog.errors import ChangedError, OptionError, SchemaError
from sawlog.format.capabilities import WritesPartitions
from sawlog.format.contract import Format, Writer
from sawlog.format.damage import OnDamage, Report
from sawlog.format.options import find_rescue_options, parse_options
from sawlog.format.planning import hold_full_collections
from sawlog.format.recognition import explain_unselected, get_format
from sawlog.format.recognition import load_formats as _formats
from sawlog.format.scan import Columns, Scan
from sawlog.guard import wrap_errors
from sawlog.storage import File, PathLike, Storage, is_remote, normalize
from sawlog.storage.inputs import Input
from sawlog.storage.staging import resolve_destination, sweep

if TYPE_CHECKING:
    from sawlog.dataset.folder import FolderPart

_MAX_READINGS = 10
"""How often a directory is read from the beginning, because jobs replaced files meanwhile, before that is an error."""

WriteMode = Literal["overwrite", "error"]


class Target(Protocol):
    """Target of a write: a format, or a kind of table file."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Open a writer, as `Format.writer` says."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """A file, or a directory, that was written.

    Attributes:
        path: Where it is.
        size: Bytes in it.
    """

    path: str
    size: int


def formats() -> dict[str, Format]:
    """Return all known formats by name, those of third-party packages included."""
    return dict(_formats())


def open(
    path: Input | Sequence[Input],
    *,
    format: str | None = None,
    view: str = "rows",
    columns: Columns | None = None,
    filter: Any = None,
    filters: Filters | None = None,
    on_damage: OnDamage = "fail",
    provenance: bool = False,
    storage_options: Mapping[str, Any] | Storage | None = None,
    memory_map: bool = False,
    use_threads: bool | int = True,
    index: PathLike | bool = False,
    **options: Any,
) -> Dataset:
    """Open a file, a directory, a glob or a list of them as a dataset. No more than headers are read.

    Args:
        path: Local path, fsspec URL, `-` for standard input, bytes in memory (anything with the buffer protocol) or an
            open binary file. Pipes and streams are copied to disk first.
        format: Name of the format; recognised from names and first bytes if not given.
        view: Which view of the bytes; `sawlog.formats()[name].views` lists them.
        columns: Columns, in order; `_file` and `_offset` can be asked for in every view. Or a dictionary of
            names and expressions (`pyarrow.compute.Expression`) that make them; only what they need is decoded.
        filter: A `pyarrow.compute.Expression` over columns of the view: only rows for which it holds are returned.
            Formats prune by comparisons of columns with values that it requires.
        filters: `(column, op, value)` tuples, all of which must hold, or lists of such tuples, of which one must, as in
            `pyarrow.parquet.read_table`.
        on_damage: `fail` raises `DamageError` at the first damage, `skip` returns everything intact and warns.
        provenance: Append `_file` and `_offset` to the view's columns.
        storage_options: What fsspec needs to reach the path.
        memory_map: Whether local files are memory-mapped, as in pyarrow: a process that looks at a mapped file which
            another one truncates is killed.
        use_threads: Whether all cores decode, or how many threads. Order is kept, and no more batches are in flight
            than twice the threads.
        index: The index that `sawlog.index` has made of the path, or `True` for the one in the directory: files
            that it knows are asked for nothing but rows, if for those. Where it cannot be used, a warning says why.
        **options: The format's own options.

    Raises:
        FormatError: When the path is not recognised or holds no such files.
        FileNotFoundError: When there is nothing at the path.
        OptionError: For an unknown format, view or option.
        SchemaError: For an unknown column.
    """
    storage = make_storage(storage_options, memory_map)
    paths = list_input_names(path, storage)
    if index:
        storage = with_index(storage, index, paths)
    with hold_full_collections():
        return open_found(
            find(paths, format, view, storage),
            paths,
            is_format_named=format is not None,
            columns=columns,
            filter=filter,
            filters=filters,
            on_damage=on_damage,
            provenance=provenance,
            storage_options=storage,
            use_threads=use_threads,
            **options,
        )


def read(
    path: Input | Sequence[Input],
    *,
    format: str | None = None,
    view: str = "rows",
    columns: Columns | None = None,
    filter: Any = None,
    filters: Filters | None = None,
    on_damage: OnDamage = "fail",
    provenance: bool = False,
    storage_options: Mapping[str, Any] | Storage | None = None,
    memory_map: bool = False,
    use_threads: bool | int = True,
    index: PathLike | bool = False,
    **options: Any,
) -> pa.Table:
    """Read into a table in memory. Arguments and errors are those of `open`; damage raises `DamageError`.

    Where a job replaces the files of a directory while they are read, what it has put there is read.
    """

    def attempt() -> pa.Table:
        return open(
            path,
            format=format,
            view=view,
            columns=columns,
            filter=filter,
            filters=filters,
            on_damage=on_damage,
            provenance=provenance,
            storage_options=storage_options,
            memory_map=memory_map,
            use_threads=use_threads,
            index=index,
            **options,
        ).to_table()

    for _ in range(_MAX_READINGS):
        try:
            return attempt()
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError | ChangedError) or isinstance(
                error.__cause__, FileNotFoundError
            )
            storage = make_storage(storage_options)
            if not is_gone or not isinstance(path, str | os.PathLike) or not storage.is_directory(path):
                raise
    return attempt()


def write(
    data: Any,
    path: PathLike,
    *,
    format: str,
    mode: WriteMode = "overwrite",
    partition_by: str | None = None,
    storage_options: Mapping[str, Any] | Storage | None = None,
    **options: Any,
) -> list[Written]:
    """Write a table, a record batch reader, or anything with `__arrow_c_stream__`. It appears whole, or not at all.

    Args:
        data: What to write.
        path: Local path or fsspec URL of the file to make. A symbolic link stays, and what it points to is replaced; a
            pipe or a terminal is written to as rows come (`-` is standard output).
        format: Name of the format.
        mode: What becomes of a file that is there: `overwrite` replaces it and keeps its mode and owner, `error`
            keeps it.
        partition_by: A column whose values name the partition of each row, where the format has partitions.
        storage_options: What fsspec needs to reach the path.
        **options: The format's own options.

    Returns:
        The files that were made.

    Raises:
        FileExistsError: With `mode="error"`, when there is something at the path.
        SchemaError: For anything the format cannot represent; names column and row.
        OptionError: For an unknown format or option.
    """
    target_format = get_format(format)
    schema, batches = _open_tabular(data)
    parsed: Any = parse_options(
        target_format.write_options, options, context=f"writing {target_format.name}", general=_list_parameters(write)
    )
    storage = make_storage(storage_options)
    check_free(path, mode, storage)
    final = normalize(path).rstrip("/")
    if not is_remote(final):
        sweep(resolve_destination(final))
    writer = begin_writing(target_format, os.fspath(path), partition_by, schema, parsed, storage)
    try:
        for batch in batches:
            writer.write(batch)
        return [Written(staged.final, staged.size) for staged in writer.publish()]
    except BaseException:
        writer.abort()
        raise


def begin_writing(
    format: Target, path: str, partition_by: str | None, schema: pa.Schema, options: Any, storage: Storage
) -> Writer:
    """Begin writing to a path, or to the partitions below it.

    Raises:
        SchemaError: For names with a NUL, at which they end outside of Python, and for times without a zone, unless the
            format holds them: they would come back as instants.
    """
    _check_names(schema)
    if isinstance(format, Format) and not format.writes_local_times:
        check_times(schema, format.name)
    if partition_by is None:
        return format.writer(path, schema, options, storage)
    if not isinstance(format, WritesPartitions):
        advice = "write what belongs apart by itself"
        raise OptionError(f"partition_by={partition_by!r}: {format.name} has no partitions; {advice}")
    return format.open_partitioned_writer(path, partition_by, schema, options, storage)


def _check_names(schema: pa.Schema) -> None:
    """Refuse names that would be cut off.

    Raises:
        SchemaError: For a NUL in one.
    """
    fields = list(schema)
    while fields:
        field = fields.pop()
        if "\0" in field.name:
            raise SchemaError(f"column {field.name!r} has a NUL in its name, where Arrow's C stream cuts names off")
        fields += [field.type.field(child) for child in range(field.type.num_fields)]


def verify(
    path: Input | Sequence[Input],
    *,
    format: str | None = None,
    storage_options: Mapping[str, Any] | Storage | None = None,
    **options: Any,
) -> Report:
    """Check every byte: damage, tail status and exact byte accounting per file. Takes what `open` takes.

    Of a folder of several datasets, each is read by itself; `Report.parts` has what was found in each.
    """
    from sawlog.dataset.folder import open_folder, report

    folder = open_folder(path, format=format, on_damage="skip", storage_options=storage_options, **options)
    return report(folder, lambda part: part.open().report())


def repair(
    src: PathLike,
    dst: PathLike,
    *,
    format: str | None = None,
    mode: WriteMode = "overwrite",
    storage_options: Mapping[str, Any] | Storage | None = None,
    use_threads: bool | int = True,
    **options: Any,
) -> Report:
    """Write everything intact in `src` to `dst`: a file to a new file, a directory's files to a directory.

    What is written appears only if it is clean to `verify` and has the rows that `on_damage="skip"` returns of `src`,
    under the options that rescue rows, unless others are given.

    Of a folder of several datasets, each is repaired by itself; those that cannot be are in `Report.skipped`.

    Returns:
        What `verify` finds in the source; `rows` counts what was written.

    Raises:
        OptionError: When `dst` is `src`.
        SawlogError: When what was written does not hold the same rows, or is not clean; says both counts.
    """
    from sawlog.dataset.folder import open_folder, report

    storage = make_storage(storage_options)
    open_options = {"on_damage": "skip", "storage_options": storage, "use_threads": use_threads, **options}
    folder = open_folder(os.fspath(src), format=format, **open_options)
    for part in folder.parts:
        _choose_places(part.dataset_files.files, src, dst, mode, storage)

    def repair_part(part: FolderPart) -> Report:
        places = _choose_places(part.dataset_files.files, src, dst, mode, storage)
        return _repair(part, places, src, dst, storage, use_threads, is_format_named=format is not None)

    return report(folder, repair_part, "is not repaired", threads=1)


def _choose_places(
    files: Sequence[File], src: PathLike, dst: PathLike, mode: WriteMode, storage: Storage
) -> list[tuple[File, str]]:
    """Return files of `src`, and where what is repaired of each goes."""
    target = os.fspath(dst)
    into_directory = storage.is_directory(src) or storage.is_directory(dst)
    places: list[tuple[File, str]] = []
    for file in files:
        name = file.name if file.explicit else os.path.relpath(file.path, os.fspath(src))
        place = f"{target.rstrip('/')}/{name}" if into_directory else target
        check_free(place, mode, storage)
        if os.path.abspath(place) == os.path.abspath(file.path):
            raise OptionError(f"{place}: repair never changes its source; name another destination")
        places.append((file, place))
    return places


def _repair(
    part: FolderPart,
    places: Sequence[tuple[File, str]],
    src: PathLike,
    dst: PathLike,
    storage: Storage,
    use_threads: bool | int,
    *,
    is_format_named: bool,
) -> Report:
    """Repair one dataset of `src` to `dst`, or below it."""
    from sawlog.dataset.repair import repair_files

    (source_format, _, files, unselected), options = part.dataset_files, part.options
    parsed: Any = parse_options(source_format.read_options, options, context=f"reading {source_format.name}")
    if getattr(parsed, "verify_checksums", True):
        # What is given comes before, but for a list: only an empty one says that nothing is to be rescued.
        rescue = find_rescue_options(source_format.read_options)
        given_rescue = {name: getattr(parsed, name) for name in rescue.keys() & options.keys()}
        combined_lists = {
            name: (*values, *rescue[name])
            for name, values in given_rescue.items()
            if isinstance(values, tuple) and values
        }
        parsed = replace(parsed, **{**rescue, **given_rescue, **combined_lists})
    scan = Scan(
        on_damage="skip",
        options=parsed,
        storage=storage,
        roots=(normalize(os.fspath(src)),),
        threads=resolve_threads(use_threads),
        is_format_named=is_format_named,
    )
    with wrap_errors(f"{scan.roots[0]}: repair as {source_format.name} failed"):
        missed = explain_unselected(source_format, files, unselected, scan)
        report_of_files = repair_files(source_format, places, scan, os.fspath(dst))
    return replace(report_of_files, skipped=[*missed, *report_of_files.skipped])


def _open_tabular(data: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Return the schema and record batches of anything tabular."""
    if isinstance(data, Dataset):  # not through the C stream, which would turn errors into Arrow's
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, validate_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        if isinstance(declared_schema := getattr(data, "schema", None), pa.Schema):
            _check_names(declared_schema)
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, validate_batches(reader)
    raise SchemaError(f"cannot write {type(data).__name__}: expected a table, a record batch reader or an Arrow stream")


def check_free(path: PathLike, mode: WriteMode, storage: Storage) -> None:
    """Refuse to replace anything that is to stay.

    Raises:
        OptionError: For an unknown mode.
        FileExistsError: When there is something at the path, and it is to stay.
    """
    if mode not in get_args(WriteMode):
        raise OptionError(f"mode={mode!r}: expected one of {', '.join(get_args(WriteMode))}")
    if mode == "error" and storage.exists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))


@cache
def _list_parameters(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
