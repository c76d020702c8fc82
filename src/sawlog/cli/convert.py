"""`sawlog convert`: rows from any known kind of file to any other, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
import typer

import sawlog
from sawlog.api import begin_writing, check_free
from sawlog.cli import arguments
from sawlog.cli.arguments import column_names, parse_where
from sawlog.cli.errors import Exit
from sawlog.cli.output import Advance, Page, Result, check_binary, counted, progress, show, size_text
from sawlog.cli.repair import check_apart
from sawlog.cli.scan import DamageSummary, rows, size_of
from sawlog.cli.tabular import TABLE_FORMATS, TableFormat, by_suffix, open_tables
from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.format.contract import Format, Projection, Scan
from sawlog.format.damage import Skipped
from sawlog.format.options import parse_options
from sawlog.format.recognition import recognize
from sawlog.storage import File, Staged, Storage
from sawlog.storage.staging import STDOUT


@dataclass(slots=True)
class Conversion(Result):
    """The outcome of `sawlog convert`."""

    source: str
    from_format: str
    to_format: str
    rows: int = 0
    files: list[Staged] = field(default_factory=list)
    losses: DamageSummary = field(default_factory=DamageSummary)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "from": self.from_format,
            "to": self.to_format,
            "rows": self.rows,
            "files": [{"path": file.final, "size": file.size} for file in self.files],
            "skipped": {
                path: {"bytes": found.account.damage, "kinds": dict(sorted(found.kinds.items()))}
                for path, found in self.losses.files.items()
                if found.kinds
            }
            | {skipped.path: {"bytes": skipped.bytes, "reason": skipped.reason} for skipped in self.losses.skipped},
        }

    def print_to(self, page: Page) -> None:
        page.line((counted(self.rows, "row"), "bold"), (f" from {self.from_format} to {self.to_format}", ""))
        for file in self.files:
            page.fact("written", f"{file.final}, {size_text(file.size)}")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A source, opened."""

    format: str
    schema: pa.Schema
    size: int
    rows: Callable[[DamageSummary, Advance], Iterator[pa.RecordBatch]]
    skipped: list[Skipped] = field(default_factory=list)


def convert(
    src: Annotated[str, typer.Argument(metavar="SRC", help="File, directory, glob or fsspec URL.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="New file; one that exists is replaced.")],
    from_format: Annotated[
        str | None,
        typer.Option("--from", "--format", metavar="NAME", help="Format of SRC; known by suffix or content otherwise."),
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Format of DST; known by suffix otherwise.")
    ] = None,
    view: arguments.View = "rows",
    columns: arguments.Columns = None,
    where: arguments.Where = None,
    provenance: arguments.Provenance = False,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="fail: write nothing if there is damage. skip: write everything intact."),
    ] = arguments.OnDamage.FAIL,
    option: arguments.ReadOptions = None,
    write_option: Annotated[
        list[str] | None,
        typer.Option("-O", "--write-option", metavar="KEY=VALUE", help="Option for writing DST.", show_default=False),
    ] = None,
    partition_by: arguments.PartitionBy = None,
    no_clobber: arguments.NoClobber = False,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Convert logs, Parquet, Arrow, CSV and JSONL into each other, and into DuckDB and SQLite.

    DST appears whole or not at all. Exit code 3 if damage was skipped.
    """
    check_apart(src, dst)
    target = target_format(dst, to_format)
    if not (isinstance(target, TableFormat) and target.is_text):
        check_binary(dst, target.title)
    where_to = Storage(arguments.storage_options(storage))
    check_free(dst, "error" if no_clobber else "overwrite", where_to)
    options: Any = parse_options(
        target.write_options, arguments.format_options(write_option, "-O"), where=f"writing {target.name}"
    )
    incoming = open_source(
        src,
        format=from_format,
        view=view,
        columns=column_names(columns),
        where=where,
        on_damage=on_damage,
        provenance=provenance,
        storage=where_to,
        options=arguments.format_options(option),
        threads=threads,
    )
    conversion = Conversion(src, incoming.format, target.name, losses=DamageSummary(incoming.skipped))
    writer = begin_writing(target, dst, partition_by, incoming.schema, options, where_to)
    try:
        with progress(incoming.size, "converting") as advance:
            for batch in incoming.rows(conversion.losses, advance):
                writer.write(batch)
                conversion.rows += batch.num_rows
            conversion.files = writer.publish()
    except BaseException:
        writer.abort()
        raise
    if dst not in STDOUT:
        show(conversion, json=json)
    conversion.losses.report()
    return Exit.OK if conversion.losses.code is Exit.OK else Exit.LOST


def open_source(
    src: str,
    *,
    format: str | None,
    view: str,
    columns: list[str] | None,
    where: list[str] | None,
    on_damage: str,
    storage: Storage,
    options: dict[str, Any],
    threads: int | None,
    provenance: bool = False,
) -> Incoming:
    """Rows of any format of sawlog, or of table files.

    Raises:
        OptionError: For a view or provenance of table files.
    """
    table = source_tables(src, format, storage)
    if table is not None:
        if view != "rows" or provenance:
            raise OptionError(f"{src}: {table[0].title} has neither views nor provenance")
        return of_tables(*table, options, columns, where, storage)
    dataset = arguments.open_dataset(
        [src],
        format=format,
        view=view,
        columns=columns,
        where=where,
        on_damage=on_damage,
        provenance=provenance,
        storage=storage,
        options=options,
        threads=threads,
    )
    return of_dataset(dataset)


def target_format(dst: str, name: str | None) -> Format | TableFormat:
    """The format of the destination, by name or by suffix.

    Raises:
        OptionError: When there is none, or more than one.
    """
    formats: dict[str, Format | TableFormat] = {**sawlog.formats(), **TABLE_FORMATS}
    if name is not None:
        if name not in formats:
            raise OptionError(f"--to: unknown format {name!r}; known formats: {', '.join(formats)}")
        return formats[name]
    table = by_suffix(dst)
    if table is not None:
        return table
    fitting = [format for format in sawlog.formats().values() if format.suffix and dst.lower().endswith(format.suffix)]
    if len(fitting) != 1:
        candidates = " or ".join(format.name for format in fitting) or "none of " + ", ".join(formats)
        raise OptionError(f"{dst}: its suffix says {candidates}; name the format with --to")
    return fitting[0]


def source_tables(src: str, name: str | None, storage: Storage) -> tuple[TableFormat, list[File]] | None:
    """The table files at a path, if that is what is there. A directory that a log format knows is not.

    Raises:
        FormatError: When the named table format has no files there.
    """
    if name is not None and name not in TABLE_FORMATS:
        return None
    files = storage.find(src)
    if name is None:
        kinds = {by_suffix(file.path) for file in files}
        table = kinds.pop() if len(kinds) == 1 else None
        if table is None or (not files[0].explicit and _recognized(files, storage)):
            return None
    else:
        table = TABLE_FORMATS[name]
    table_files = [file for file in files if file.explicit or by_suffix(file.path) is table]
    if not table_files:
        raise FormatError(f"{src}: none of the {len(files)} files there is {table.title}")
    return table, table_files


def _recognized(files: list[File], storage: Storage) -> bool:
    try:
        recognize(files, storage, "")
    except FormatError:
        return False
    return True


def of_dataset(dataset: Dataset) -> Incoming:
    """Rows of any sawlog format."""
    return Incoming(
        dataset.format.name,
        dataset.schema,
        size_of(dataset),
        lambda losses, advance: rows(dataset, losses, advance),
        dataset.skipped,
    )


def of_tables(
    table: TableFormat,
    files: list[File],
    given: dict[str, Any],
    columns: list[str] | None,
    where: list[str] | None,
    storage: Storage,
) -> Incoming:
    """Rows of table files.

    Raises:
        SchemaError: For a column that they do not have.
    """
    options: Any = parse_options(table.read_options, given, where=f"reading {table.name}")
    schema, batches = open_tables(table, files, options, storage)
    for name in columns or ():
        if name not in schema.names:
            raise SchemaError(f"no column {name!r} in {files[0].path}; columns: {', '.join(schema.names)}")
    names = None if columns is None else tuple(columns)
    projection = Projection.of(schema, Scan(columns=names, filters=tuple(parse_where(where or (), schema))))
    return Incoming(
        table.name,
        projection.schema,
        sum(file.size for file in files),
        lambda _, advance: map(projection.apply, batches(advance)),
    )
