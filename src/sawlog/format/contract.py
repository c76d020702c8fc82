"""The contract between formats and doors: Format, Contents, View, Fragment, Writer."""

from __future__ import annotations

import copy
import itertools
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, make_batch, make_constant_string, view_values
from sawlog.errors import FINDING_ERRORS, BitrotError, DiskError, IncompleteError, OptionError, UnsupportedError
from sawlog.format.damage import Findings, Skipped, TailStatus, take_damage_batch, warn_of_losses
from sawlog.format.options import NoOptions
from sawlog.format.scan import (
    BYTES_COLUMN,
    DAMAGE_EXTRA,
    DAMAGED_BYTES,
    FILE_COLUMN,
    OFFSET_COLUMN,
    PROVENANCE,
    Projection,
    Scan,
)
from sawlog.guard import wrap_errors
from sawlog.storage import File, Staged, StagedFile, Storage, map_files
from sawlog.storage.workers import map_all

__all__ = [
    "FILE_COLUMN",
    "MIN_TASK_BYTES",
    "OFFSET_COLUMN",
    "PROBE_BYTES",
    "PROVENANCE",
    "TASK_BYTES",
    "BoundScan",
    "Contents",
    "DirectoryLayout",
    "FileRange",
    "FileWriter",
    "Findings",
    "Format",
    "Fragment",
    "Match",
    "Projection",
    "Range",
    "Scan",
    "StreamRules",
    "View",
    "Writer",
    "WriterPosition",
    "assemble",
    "find_intact_end",
    "list_view_names",
    "probe",
    "repair_each",
    "space_offsets",
]

PROBE_BYTES = 64 << 10
"""Bytes from the start of a file that recognition may look at."""

CUT_BYTES = 1 << 20
"""Distance of the places that an index knows where a file may be cut."""
TASK_BYTES = 64 << 20
"""Input bytes per task that planning aims at."""
MIN_TASK_BYTES = 4 << 20
"""Input bytes that a task of Spark's reads at least, where there are so many; Spark reckons likewise for its files."""

_C = TypeVar("_C", bound="Contents")


class Match(IntEnum):
    """The certainty of a format that a file is its own."""

    NO = 0
    ADJACENT = 1
    """It is next to files of another format, and is meant only where none of them is there."""
    NAME = 2
    """It is called so."""
    CONTENT = 3
    """It begins so."""
    TREE = 4
    """Nobody else lays a whole directory out like this: all files in it are a part of it, whatever their formats."""


@dataclass(frozen=True)
class Fragment(ABC):
    """A piece of a dataset that can be decoded by itself. Small and picklable.

    Attributes:
        scan: What is wanted, shared by all fragments of the dataset.
        projection: The columns of the scan.
        path: What the fragment reads, for messages.
        size: Input bytes, for planning.
    """

    scan: Scan
    projection: Projection
    path: str
    size: int

    several: ClassVar[bool] = False
    """Whether `path` is one of the files of a directory that are read as one."""

    @property
    def about(self) -> str:
        """The name in warnings."""
        return (posixpath.dirname(self.path) or ".") if self.several else self.path

    @property
    def extent(self) -> tuple[int, int]:
        """Offset and length of the bytes of `path` that the fragment accounts for."""
        return 0, self.size

    @property
    def extents(self) -> Iterable[tuple[File | str, int, int]]:
        """Files that decoding reads, with offsets and lengths: remote ones are asked for before the fragment's turn."""
        return [(getattr(self, "file", self.path), *self.extent)]

    @abstractmethod
    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode the fragment.

        Args:
            schema: The columns to gather, of the view and of `PROVENANCE`; batches must have exactly this schema. It
                may be empty, when only the findings are wanted: then batches may be empty too, but must still be
                yielded at the usual pace.
            findings: Receives all damage, the tail, the use of every byte, and the rows decoded.

        Yields:
            Record batches of bounded size.
        """

    def to_batches(self, findings: Findings | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the returned rows. Without `findings` of the caller's own, what was left out becomes a warning.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`; rows before it were returned.
        """
        if self.scan.view == "damage":
            yield from self._read_damage()
            return
        ledger = findings if findings is not None else Findings(self.scan.on_damage)
        for batch in self._decode_batches(self.projection.decoded, ledger):
            delivered = self.projection.apply(batch)
            if delivered.num_rows:
                yield delivered
        if findings is None:
            warn_of_losses(ledger, self.about)

    def inspect(self, *, every: bool = False) -> Findings:
        """Scan without gathering any column; damage never raises. Lists `every` damage, or the first ones."""
        return self.scan_into(Findings("skip", drained=every))

    def scan_into(self, findings: Findings) -> Findings:
        """Scan without gathering any column; return the findings, filled.

        Raises:
            DamageError: At the first damage, if their policy is `fail`.
        """
        for _ in self._decode_batches(pa.schema([]), findings):
            pass
        return findings

    def _decode_batches(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield batches of `decode`; only judges, `call_decoder` and stores report damage: other errors are faults."""
        with wrap_errors(f"{self.path}: reading failed"):
            try:
                yield from self.decode(schema, findings)
            except (BitrotError, IncompleteError, UnsupportedError) as error:
                if findings.on_damage == "fail":
                    raise
                findings.add_damage(error.damage)  # of a store that keeps checksums

    def _read_damage(self) -> Iterator[pa.RecordBatch]:
        findings = Findings("skip", drained=True, columns=[])
        for _ in self._decode_batches(pa.schema([]), findings):
            if (batch := take_damage_batch(findings)) is not None:
                yield self._deliver_damage(batch)
        if (batch := take_damage_batch(findings)) is not None:
            yield self._deliver_damage(batch)

    def _deliver_damage(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for provenance, source in zip(PROVENANCE, ("file", "offset"), strict=True):
            batch = batch.append_column(provenance, batch.column(source))
        if BYTES_COLUMN in self.projection.decoded.names:
            batch = batch.append_column(DAMAGE_EXTRA[-1], self._read_damaged_bytes(batch))
        return self.projection.apply(batch.select(self.projection.decoded.names))

    def _read_damaged_bytes(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the first bytes of each damaged range; null where nothing can be read, as of a missing file."""
        contents: list[bytes | None] = []
        for path, offset, length in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True):
            try:
                contents.append(self.scan.storage.read(path, offset, min(length, DAMAGED_BYTES)) if length else b"")
            except (FileNotFoundError, NotADirectoryError, DiskError):
                contents.append(None)
        return make_array(contents, pa.binary())


@dataclass(frozen=True)
class FileRange(Fragment):
    """A range of one file.

    Attributes:
        file: The file; its size is where this scan takes it to end.
        start: Where the range begins.
        end: Where it ends: where another may begin, or the size of the file.
    """

    file: File
    start: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.start, self.end - self.start


def find_intact_end(batches: Iterable[pa.RecordBatch], findings: Findings, size: int) -> int:
    """Return the end of the last complete record of a file, or of the intact part, if damage reaches up to that.

    Damage there may be something that is still being written.

    Args:
        batches: A walk up to the end of the file; they are not looked at.
        findings: What it reports; drained, with `columns`.
        size: Of the file.
    """
    start = stop = -1
    for _ in itertools.chain(batches, (None,)):
        if (batch := take_damage_batch(findings)) is not None:
            starts = view_values(batch.column("offset"), np.int64)
            stops = starts + view_values(batch.column("length"), np.int64)
            gaps = (starts[1:] > stops[:-1]).nonzero()[0]
            if len(gaps) or starts[0] > stop:
                start = int(starts[gaps[-1] + 1 if len(gaps) else 0])
            stop = int(stops[-1])
    tail = findings.tail
    end = size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
    return start if stop >= end else end


def space_offsets(offsets: Iterable[int], min_distance: int) -> Iterator[int]:
    """Yield the ascending offsets that are at least `min_distance` after the previous one, or byte 0."""
    following = min_distance
    for offset in offsets:
        if offset >= following:
            yield offset
            following = offset + min_distance


class BoundScan(NamedTuple):
    """A scan bound to a schema: the options and the resolved columns. Every fragment begins with it."""

    scan: Scan
    projection: Projection


@dataclass(frozen=True)
class View(Generic[_C]):
    """A view of the bytes of a format.

    Attributes:
        schema: Its columns, without provenance; where the files define them, a function of the contents.
        fragments: A function of the contents, the scan with its columns and the size of a task in bytes, which yields
            fragments in reading order, pruned by what filters allow. It cuts what can be cut into pieces of about this
            size; `None`: one fragment per file.
        extra: Columns besides those of the view that can be asked for by name.
    """

    schema: pa.Schema | Callable[[_C], pa.Schema]
    fragments: Callable[[_C, BoundScan, int | None], Iterator[Fragment]]
    extra: Sequence[pa.Field] | Callable[[_C], Sequence[pa.Field]] = field(default=PROVENANCE)

    def schema_of(self, contents: _C) -> pa.Schema:
        """Return the columns that the view of some files has, without provenance."""
        return self.schema if isinstance(self.schema, pa.Schema) else self.schema(contents)


def assemble(
    schema: pa.Schema,
    rows: int,
    columns: Mapping[str, pa.Array] | Callable[[str], pa.Array],
    path: str,
    make_offsets: Callable[[], pa.Array],
) -> pa.RecordBatch:
    """Return a batch with exactly the columns of a schema, which may be provenance.

    Args:
        schema: The columns; there may be none.
        rows: How many rows there are.
        columns: Those of the view, by name, also if it is one of provenance; or a function that makes them.
        path: The file that the rows are from.
        make_offsets: Returns where each row begins, int64; called where the schema asks for it.

    Raises:
        KeyError: For a column that is neither.
    """
    stored: Mapping[str, pa.Array] = {} if callable(columns) else columns
    make_column = columns if callable(columns) else columns.__getitem__
    arrays = [
        stored[name]
        if name in stored
        else make_constant_string(path, rows)
        if name == FILE_COLUMN
        else make_offsets()
        if name == OFFSET_COLUMN
        else make_column(name)
        for name in schema.names
    ]
    return make_batch(arrays, schema, rows)


class Contents(ABC):
    """Files that were opened: their views, and what they say of themselves, whichever columns and rows are wanted.

    Args:
        format: The format that has opened them.
        files: The files.
        scan: How they were opened. Its view, options and storage hold for all that is read of the contents.

    Attributes:
        views: The views by name. Where there is none for `damage`, that has the fragments of `rows`.
        unselected: Files of the path that `Format.select` did not choose.
        threads_split_files: Whether threads may share one file; `False` where to find out where to cut costs too much.
        files_are_independent: Whether the rows of a file stay the same whatever the others hold.
    """

    views: ClassVar[Mapping[str, View[Any]]]
    threads_split_files: bool = True
    files_are_independent: ClassVar[bool] = False
    unselected: Sequence[File] = ()

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self.format = format
        self.files = list(files)
        self.scan = scan

    def find_view(self, name: str) -> View[Any]:
        """Return a view; that of `rows` where there is none for `damage`.

        Raises:
            OptionError: When these files do not have it.
        """
        return self.views[name if name in self.views else "rows"]

    def with_files(self, files: Sequence[File]) -> Self:
        """Return the same contents of some of the files."""
        part = copy.copy(self)
        part.files = list(files)
        return part

    def skipped_files(self, request: BoundScan) -> list[Skipped]:
        """Return what a read leaves out of the files, or of what their metadata names, with the reasons."""
        del request
        return []

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return facts about the content that cost no more than headers, for people to read."""
        del request
        return {}


class Range(NamedTuple):
    """Bytes of one file that a stream reads next; both ends are committed positions."""

    file: File
    start: int
    end: int


class WriterPosition(NamedTuple):
    """A file's place among those that one writer has written, one after the other."""

    writer: Hashable
    place: Any


class DirectoryLayout:
    """The rules by which files make up datasets. The defaults are right where every file is read without the others.

    Attributes:
        absorbs: Formats whose files are parts of this one's: where it is recognised, it is meant instead of them.
        is_directory: Whether a dataset is one directory: what is below it, or next to it, is another.
        file_names: How files are called where their suffix does not say it, as a phrase for messages.
    """

    absorbs: ClassVar[frozenset[str]] = frozenset()
    is_directory: ClassVar[bool] = False
    file_names: ClassVar[str] = ""

    def dataset_directory(self, file: File) -> str:
        """Return the directory of the dataset that a file belongs to, judged by its path."""
        return file.directory

    def table_name(self, file: File) -> str | None:
        """Return the table that a file belongs to, by its name; `None` where that does not say."""
        del file
        return None

    def table_options(self, file: File) -> dict[str, str]:
        """Return the options that choose the table of a file where a path holds several, by its path."""
        del file
        return {}

    def judged_together(self, file: File) -> str | None:
        """Return a name shared by files that can only be judged together; `None` for a file by itself."""
        del file
        return None

    def unread(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Return why files that `Format.select` left out are not read, besides those that another view reads.

        A format whose rows can also be in files that it cannot read names them, as `missed`.
        """
        del files, view
        return []

    def replaced_paths(self, files: Sequence[File], root: str) -> list[str]:
        """Return what is deleted when new files replace those below a directory: files, or directories.

        Args:
            files: What `Format.select` has chosen.
            root: The directory that was written; it stays.
        """
        del root
        return [file.path for file in files]


class StreamRules:
    """The order, names and ends of the files that a stream follows. The defaults: any order, never finished."""

    def stream_name(self, name: str) -> str:
        """Return what a stream calls a file, whose name is relative to the stream's path; the same after a move."""
        return name

    def is_followed(self, file: File, view: str) -> bool:
        """Return whether a stream of a view reads a file that `Format.select` chooses."""
        del file, view
        return True

    def is_complete(self, view: str) -> bool:
        """Return whether the files of a view appear whole and never grow."""
        del view
        return False

    def writer_position(self, file: File) -> WriterPosition | None:
        """Return the writer of a file, and the file's place among that writer's; `None` where its name does not say.

        When a writer has begun a file, it has finished those before.
        """
        del file
        return None

    def overwritten_names(self, name: str, head: bytes) -> Iterable[str]:
        """Return what a stream calls the earlier files that a writer may have written this one over.

        Args:
            name: What a stream calls the file, which has not been read.
            head: How the file begins.
        """
        del name, head
        return ()


class Writer(ABC):
    """Takes record batches and makes files that the original system accepts.

    Nothing is visible before `publish`. As a context manager it publishes on success and leaves nothing on failure.
    """

    storage: Storage

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch.

        Raises:
            SchemaError: For anything the format cannot represent; names column and row.
        """

    @abstractmethod
    def finish(self) -> list[Staged]:
        """Complete all files and make them durable, still under their temporary names."""

    @abstractmethod
    def abort(self) -> None:
        """Stop, and leave nothing of it."""

    def publish(self) -> list[Staged]:
        """Complete all files and make them visible."""
        staged = self.finish()
        self.storage.publish(staged)
        return staged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.publish()
        except BaseException:
            self.abort()
            raise


class FileWriter(Writer):
    """A writer of one file."""

    _file: StagedFile
    """The file, or something else that is finished or discarded; the writer's to open."""

    def finish(self) -> list[Staged]:
        self._flush()
        return [self._file.finish()]

    def abort(self) -> None:
        self._file.discard(self.storage)

    def _flush(self) -> None:
        """Write what is still in hand, at the end."""
        return


class Format(ABC):
    """Knows one kind of file: recognises it, opens it as a dataset, writes and repairs it.

    Third-party packages add formats through the entry point group `sawlog.formats`.
    """

    name: ClassVar[str]
    """Short name: of the package, in Python, in Spark and on the command line."""
    title: ClassVar[str]
    """What people call it."""
    suffix: ClassVar[str]
    """Suffix of the files that it writes, with the dot."""
    views: ClassVar[Mapping[str, str]]
    """Views and one line on each; every format has `rows` and `damage`."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of views, such as the format's own word for `frames`."""
    read_options: ClassVar[type] = NoOptions
    """Frozen dataclass of the options for reading; see `sawlog.format.options` for what metadata of a field says."""
    write_options: ClassVar[type] = NoOptions
    """Frozen dataclass of the options for writing."""
    writes_local_times: ClassVar[bool] = False
    """Whether times without a zone come back as they were written; else they are refused."""
    directory_layout: ClassVar[DirectoryLayout] = DirectoryLayout()
    """How files make up datasets."""
    stream_rules: ClassVar[StreamRules] = StreamRules()
    """How writers name, order and finish files."""

    @abstractmethod
    def match(self, file: File, head: bytes) -> Match:
        """Return the certainty that a file is of this format, by its name and its first `PROBE_BYTES`."""

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return the files of a directory or glob that belong to a dataset of this format, in reading order.

        By default those that the user has named, and those with the suffix.
        """
        del view
        return [file for file in files if file.explicit or file.name.endswith(self.suffix)]

    @abstractmethod
    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        """Open files. No more than headers are read."""

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Begin writing to `path`.

        Raises:
            OptionError: When the format is not written.
            SchemaError: When the schema cannot be represented.
        """
        del schema, options, storage
        raise OptionError(f"{path}: {self.name} is read, and not written")

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        """Write the intact content of one file to a new file at `target`: by default the rows that `skip` returns.

        Args:
            file: The damaged file; it is not changed.
            target: The new file.
            options: Read options.
            storage: Where both are.

        Raises:
            FormatError: When nothing can be taken out of it.
        """
        scan = Scan(options=options, on_damage="skip", storage=storage)
        contents = self.open([file], scan)
        view = contents.find_view(scan.view)
        schema = view.schema_of(contents)
        with self.writer(target, schema, self.write_options(), storage) as writer:
            for fragment in view.fragments(contents, BoundScan(scan, Projection.of(schema, scan)), None):
                for batch in fragment.to_batches(Findings("skip")):
                    writer.write(batch)

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """Return the certainty that a path, given as the list of its files, is of the format."""
        probed = map_files(lambda file: self.match(file, probe(storage, file, PROBE_BYTES)), files[:8])
        return max(probed, default=Match.NO)


def probe(storage: Storage, file: File, length: int) -> bytes:
    """Return the first bytes of a file for recognition; none where its store knows that they are not what they were."""
    try:
        return storage.read(file, 0, length)
    except FINDING_ERRORS:
        return b""


def list_view_names(format: Format) -> dict[str, str]:
    """Return every name of the views of a format, with the name that the view has in `views`."""
    return {**{name: name for name in format.views}, **format.aliases}


def repair_each(
    format: Format, options: Any, places: Sequence[tuple[File, str]], storage: Storage, threads: int
) -> None:
    """Write what is intact of files to new ones, each by itself.

    Args:
        format: The format of the files.
        options: Read options.
        places: The files, and where the new ones go.
        storage: Where both are; it publishes what is written once it has proven to be what a read delivers.
        threads: How many work.
    """

    def repair_file(place: tuple[File, str]) -> None:
        file, target = place
        with wrap_errors(f"{file.path}: repair as {format.name} failed"):
            format.repair(file, target, options, storage)

    map_all(places, repair_file, threads if len(places) > 1 else 1)
