"""`sawlog convert`: rows from any known kind of file to any other, batch by batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
import typer

import sawlog
from sawlog.api import begin_writing, check_free
from sawlog.cli import arguments
from sawlog.cli.arguments import Reading, Selection, parse_column_names, parse_where
from sawlog.cli.errors import Exit, explain
from sawlog.cli.output import Advance, Page, Result, refuse_terminal, render_count, render_size, show, show_progress
from sawlog.cli.parts import make_file_name, open_part, open_selected
from sawlog.cli.repair import check_apart
from sawlog.cli.scan import DamageSummary, count_bytes, divide_progress, read_dataset_rows
from sawlog.cli.tabular import TABLE_FORMATS, TableFormat, find_by_suffix, open_tables
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.folder import Folder, FolderPart, describe_missed_part
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.format.contract import Format, Projection, Scan, Writer
from sawlog.format.damage import Skipped
from sawlog.format.options import parse_options
from sawlog.format.recognition import recognize
from sawlog.storage import File, Staged, Storage
from sawlog.storage.staging import STDOUT

_DEFAULT_TABLES = "parquet"
"""Format of the files that the parts of a folder are converted to, if no other is named."""


@dataclass(slots=True)
class Conversion(Result):
    """The outcome of `sawlog convert`."""

    source: str
    from_format: str
    to_format: str
    rows: int = 0
    files: list[Staged] = field(default_factory=list)
    losses: DamageSummary = field(default_factory=DamageSummary)

    def write(self, incoming: Incoming, writer: Writer, advance: Advance) -> None:
        """Write all rows; nothing is published where that fails."""
        try:
            for batch in incoming.rows(self.losses, advance):
                writer.write(batch)
                self.rows += batch.num_rows
            self.files = writer.publish()
        except BaseException:
            writer.abort()
            raise

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "from": self.from_format,
            "to": self.to_format,
            "rows": self.rows,
            "files": [{"path": file.final, "size": file.size} for file in self.files],
            "skipped": {
                path: {"bytes": report.account.damage, "kinds": dict(sorted(report.kinds.items()))}
                for path, report in self.losses.files.items()
                if report.kinds
            }
            | {skipped.path: {"bytes": skipped.bytes, "reason": skipped.reason} for skipped in self.losses.skipped},
        }

    def print_to(self, page: Page) -> None:
        page.print_line((render_count(self.rows, "row"), "bold"), (f" from {self.from_format} to {self.to_format}", ""))
        page.print_facts(("written", f"{file.final}, {render_size(file.size)}") for file in self.files)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A source, opened."""

    format: str
    schema: pa.Schema
    size: int
    rows: Callable[[DamageSummary, Advance], Iterator[pa.RecordBatch]]
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(slots=True)
class FolderConversion(Result):
    """The outcome of `sawlog convert` of a folder: a file for each of its datasets, and for each of their tables.

    Attributes:
        source: The folder.
        destination: The directory of the files.
        target: Their format.
        parts: The tables that were written.
        skipped: Files that are of no dataset, and datasets that were not written, with the reason.
    """

    source: str
    destination: str
    target: Format | TableFormat
    parts: list[Conversion] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def code(self) -> Exit:
        """1 where a part was not written, 3 where damage was skipped."""
        if any(part.missed for part in self.skipped):
            return Exit.DAMAGED
        return Exit.LOST if any(part.losses.code is not Exit.OK for part in self.parts) else Exit.OK

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self.parts)

    def write(
        self,
        folder: Folder,
        conditions: list[str] | None,
        write_options: list[str] | None,
        storage: Storage,
        *,
        no_clobber: bool,
    ) -> None:
        """Write the files, several at a time, each whole or not at all.

        Raises:
            FileExistsError: When there is something in the way.
        """
        target = self.target
        options: Any = parse_options(
            target.write_options, arguments.parse_format_options(write_options, "-O"), context=f"writing {target.name}"
        )
        with show_progress(folder.size, "converting") as advance:

            def write_part(part: FolderPart) -> list[Conversion]:
                with divide_progress(part.size, advance) as step:
                    return [
                        self._write_table(part, name, dataset, options, storage, step, no_clobber=no_clobber)
                        for name, dataset in open_part(part, conditions).items()
                    ]

            for part, outcome in folder.map_parts(write_part):
                if isinstance(outcome, Exception):
                    self.skipped.append(describe_missed_part(part, explain(outcome) or outcome, "is not written"))
                else:
                    self.parts += outcome
        self.skipped += folder.skipped

    def _write_table(
        self,
        part: FolderPart,
        table: str,
        dataset: Dataset,
        options: Any,
        storage: Storage,
        advance: Advance,
        *,
        no_clobber: bool,
    ) -> Conversion:
        incoming = of_dataset(dataset)
        path = f"{self.destination}/{make_file_name(part, self.source, table, self.target.suffix)}"
        check_free(path, "error" if no_clobber else "overwrite", storage)
        source = f"{part.path} {table}".strip()
        conversion = Conversion(source, incoming.format, self.target.name, losses=DamageSummary(incoming.skipped))
        conversion.write(incoming, begin_writing(self.target, path, None, incoming.schema, options, storage), advance)
        return conversion

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "to": self.target.name,
            "rows": self.rows,
            "parts": [part.to_dict() for part in self.parts],
            "skipped": [file.to_dict() for file in self.skipped],
        }

    def print_to(self, page: Page) -> None:
        for part in self.parts:
            page.print_line((part.source, "bold"), (f"  {render_count(part.rows, 'row')} from {part.from_format}", ""))
            page.print_facts(("written", f"{file.final}, {render_size(file.size)}") for file in part.files)
        page.print_skipped(self.skipped)
        unwritten = sum(part.missed for part in self.skipped)
        remainder = f"; {render_count(unwritten, 'part')} not written" if unwritten else ""
        summary = f"{render_count(len(self.parts), 'file')}, {render_count(self.rows, 'row')}"
        page.print_line((summary, "bold"), (f" as {self.target.name} in {self.destination}{remainder}", ""))


def _names_directory(dst: str, to_format: str | None, storage: Storage) -> bool:
    """Return whether a destination is a directory for a file of each part of a source."""
    if dst in STDOUT or not (to_format is None or to_format in TABLE_FORMATS):
        return False
    has_name = to_format is not None or os.path.splitext(dst)[1] != ""
    return dst.endswith("/") or storage.is_directory(dst) or not has_name


def convert(
    src: Annotated[str, typer.Argument(metavar="SRC", help="File, directory, glob or fsspec URL.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="New file, or directory for a file of each part.")],
    *,
    from_format: Annotated[
        str | None,
        typer.Option("--from", "--format", metavar="NAME", help="Format of SRC; known by suffix or content otherwise."),
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Format of DST; known by suffix otherwise.")
    ] = None,
    selection: arguments.Selection,
    provenance: arguments.Provenance = False,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="fail: write nothing if there is damage. skip: write everything intact."),
    ] = arguments.OnDamage.FAIL,
    write_option: Annotated[
        list[str] | None, typer.Option("-O", "--write-option", metavar="KEY=VALUE", help="Option for writing DST.")
    ] = None,
    partition_by: arguments.PartitionBy = None,
    no_clobber: arguments.NoClobber = False,
    reading: arguments.Reading,
    json: arguments.Json = False,
) -> int:
    """Convert rows to another file format.

    Logs, Parquet, Arrow, CSV and JSONL into each other, and into DuckDB and SQLite. DST appears whole or not at all.
    Where it is a directory, each part of SRC becomes a Parquet file in it, or one of the format that --to names. Exit
    code 1 if damage stopped it, 3 if damage was skipped.
    """
    check_apart(src, dst)
    storage = Storage(arguments.parse_storage_options(reading.storage))
    opening: dict[str, Any] = {"format": from_format, "on_damage": on_damage, "provenance": provenance}
    folder = None
    if _names_directory(dst, to_format, storage) and find_source_tables(src, from_format, storage) is None:
        folder = open_selected(src, reading, selection, storage, **opening)
    if folder is not None:
        if partition_by is not None:
            raise OptionError(f"--partition-by: {dst} gets a file for each part of {src}; convert one part by itself")
        conversions = FolderConversion(src, dst.rstrip("/"), _choose_target_format("", to_format or _DEFAULT_TABLES))
        conversions.write(folder, selection.where, write_option, storage, no_clobber=no_clobber)
        show(conversions, json=json)
        for conversion in conversions.parts:
            conversion.losses.report()
        return conversions.code
    target = _choose_target_format(dst, to_format)
    if not (isinstance(target, TableFormat) and target.is_text):
        refuse_terminal(dst, target.title)
    check_free(dst, "error" if no_clobber else "overwrite", storage)
    options: Any = parse_options(
        target.write_options, arguments.parse_format_options(write_option, "-O"), context=f"writing {target.name}"
    )
    incoming = open_source(src, reading, selection, storage, **opening)
    conversion = Conversion(src, incoming.format, target.name, losses=DamageSummary(incoming.skipped))
    writer = begin_writing(target, dst, partition_by, incoming.schema, options, storage)
    with show_progress(incoming.size, "converting") as advance:
        conversion.write(incoming, writer, advance)
    if dst not in STDOUT:
        show(conversion, json=json)
    conversion.losses.report()
    return Exit.OK if conversion.losses.code is Exit.OK else Exit.LOST


def open_source(
    src: str,
    reading: Reading,
    selection: Selection,
    storage: Storage,
    *,
    format: str | None,
    on_damage: str,
    provenance: bool = False,
) -> Incoming:
    """Return rows of any format of sawlog, or of table files.

    Raises:
        OptionError: For a view or provenance of table files.
    """
    table = find_source_tables(src, format, storage)
    if table is not None:
        if selection.view != "rows" or provenance:
            raise OptionError(f"{src}: {table[0].title} has neither views nor provenance")
        return of_tables(*table, reading, selection, storage)
    dataset = arguments.open_dataset(
        [src], reading, selection, storage, format=format, on_damage=on_damage, provenance=provenance
    )
    return of_dataset(dataset)


def _choose_target_format(dst: str, name: str | None) -> Format | TableFormat:
    """Return the format of the destination, by name or by suffix.

    Raises:
        OptionError: When there is none, or more than one.
    """
    formats: dict[str, Format | TableFormat] = {**sawlog.formats(), **TABLE_FORMATS}
    if name is not None:
        if name not in formats:
            raise OptionError(f"--to: unknown format {name!r}; known formats: {', '.join(formats)}")
        return formats[name]
    table = find_by_suffix(dst)
    if table is not None:
        return table
    fitting = [format for format in sawlog.formats().values() if format.suffix and dst.lower().endswith(format.suffix)]
    if len(fitting) != 1:
        candidates = " or ".join(format.name for format in fitting) or "none of " + ", ".join(formats)
        raise OptionError(f"{dst}: its suffix says {candidates}; name the format with --to")
    return fitting[0]


def find_source_tables(src: str, name: str | None, storage: Storage) -> tuple[TableFormat, list[File]] | None:
    """Return the table files at a path, if that is what is there. A directory that a log format knows is not.

    Raises:
        FormatError: When the named table format has no files there.
    """
    if name is not None and name not in TABLE_FORMATS:
        return None
    files = storage.find(src)
    if name is None:
        kinds = {find_by_suffix(file.path) for file in files}
        table = kinds.pop() if len(kinds) == 1 else None
        if table is None or (not files[0].explicit and _is_recognized(files, storage)):
            return None
    else:
        table = TABLE_FORMATS[name]
    table_files = [file for file in files if file.explicit or find_by_suffix(file.path) is table]
    if not table_files:
        raise FormatError(f"{src}: none of the {len(files)} files there is {table.title}")
    return table, table_files


def _is_recognized(files: list[File], storage: Storage) -> bool:
    try:
        recognize(files, storage, "")
    except FormatError:
        return False
    return True


def of_dataset(dataset: Dataset) -> Incoming:
    """Return rows of any sawlog format."""
    return Incoming(
        dataset.format.name,
        dataset.schema,
        count_bytes(dataset),
        lambda losses, advance: read_dataset_rows(dataset, losses, advance),
        dataset.skipped,
    )


def of_tables(
    table: TableFormat, files: list[File], reading: Reading, selection: Selection, storage: Storage
) -> Incoming:
    """Return rows of table files.

    Raises:
        SchemaError: For a column that they do not have.
    """
    options: Any = parse_options(
        table.read_options, arguments.parse_format_options(reading.option), context=f"reading {table.name}"
    )
    schema, batches = open_tables(table, files, options, storage)
    columns = parse_column_names(selection.columns)
    for name in columns or ():
        if name not in schema.names:
            raise SchemaError(f"no column {name!r} in {files[0].path}; columns: {', '.join(schema.names)}")
    names = None if columns is None else tuple(columns)
    projection = Projection.of(schema, Scan(columns=names, filters=tuple(parse_where(selection.where or (), schema))))
    return Incoming(
        table.name,
        projection.schema,
        sum(file.size for file in files),
        lambda _, advance: map(projection.apply, batches(advance)),
    )
