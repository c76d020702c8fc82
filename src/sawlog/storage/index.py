"""An index next to the data: what planning has asked of files, and the limits of their columns.

The file is `MAGIC`, the SHA-256 digest of what follows, and a table in Arrow's IPC format without compression, a row
for each file. A row counts only for a file of the same size and version, so that an index that is older than the data
costs requests, and nothing else. In place of a version, local files have the time of any change, renaming included;
files of a store without versions have the time when they were written.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    combine_column,
    fill_null,
    find_value_type,
    make_array,
    make_constant,
    make_fixed_array,
    unpack_booleans,
    view_values,
)
from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder
from sawlog.storage.names import is_remote

INDEX_NAME = "_sawlog_index"
"""Of the index of a directory, in the directory."""
MAGIC = b"sawlog index 2\n"
STABLE_SECONDS = 2.0
"""Seconds without a change after which a time of change tells versions apart."""

MOST_BYTES, FRACTION = 64 << 10, 1 << 10
"""An answer that is remembered has no more bytes than this, or than this fraction of its file."""

_MAX_REMEMBERED = 256
"""Answers that `Searches` keeps in a process."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_SCHEMA = pa.schema(
    [
        pa.field("path", pa.large_binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("changed", pa.float64()),
        pa.field("answers", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("measured", pa.bool_(), nullable=False),
    ]
)
"""Of every index; columns of limits follow, two for each column of the data: `low.NAME` and `high.NAME`."""
_LOW, _HIGH = "low.", "high."
_ANSWERS = b"answers"
"""Key of the schema's metadata: the distinct answers with their questions, as a table in IPC format."""
_OPTIONS = b"options"
"""Key of the schema's metadata: under which read options the statistics hold."""
_ANSWERS_SCHEMA = pa.schema(
    [pa.field("question", pa.string(), nullable=False), pa.field("answer", pa.binary(), nullable=False)]
)


class ListedFile(Protocol):
    """A file as a listing shows it; see `sawlog.storage.File`."""

    @property
    def path(self) -> str:
        """Path or URL."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def version(self) -> str:
        """Version of the file, as a remote storage says it."""
        ...

    @property
    def modified(self) -> float | None:
        """When it was last written to."""
        ...

    @property
    def changed(self) -> float | None:
        """When a local one was last changed in any way."""
        ...

    @property
    def is_tagged(self) -> bool:
        """Whether the store of a remote file gives other contents another tag."""
        ...


AnyFile = TypeVar("AnyFile", bound=ListedFile)


class Memory(Protocol):
    """Memory that planning asks before it asks a store."""

    def answer(self, file: ListedFile, question: str) -> bytes | None:
        """Return what is known of a file; `None` where that is nothing."""
        ...

    def note(self, file: ListedFile, question: str, answer: bytes) -> None:
        """Take in what a store has been asked."""
        ...


class Notebook:
    """Remembers what is asked of files, for an index to be made of it."""

    def __init__(self) -> None:
        self._noted: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, file: ListedFile, question: str) -> bytes | None:
        """Return what was noted before."""
        return self.of(file).get(question)

    def note(self, file: ListedFile, question: str, answer: bytes) -> None:
        """Remember an answer. What is large is no less work to read from an index than from its file."""
        with self._lock:
            if len(answer) <= max(MOST_BYTES, file.size // FRACTION):
                self._noted.setdefault(file.path, {})[question] = answer

    def of(self, file: ListedFile) -> Mapping[str, bytes]:
        """Return all that was asked of a file."""
        return self._noted.get(file.path, {})


class Searches:
    """Memory of what files were searched for, which lasts as long as the files stay as they are.

    Questions hold all that an answer depends on, the state of the file included.

    Attributes:
        directory: Where other processes find it, too; None: only this process has it.
    """

    def __init__(self) -> None:
        self.directory: str | None = None
        self._answers: dict[str, bytes] = {}

    def recall(self, question: object) -> bytes | None:
        """Return the answer that was kept; `None` where there is none."""
        key = self._make_key(question)
        if key not in self._answers and self.directory is not None:
            with contextlib.suppress(OSError), open(self._build_path(key), "rb") as kept_file:
                return kept_file.read()
        return self._answers.get(key)

    def keep(self, question: object, answer: bytes, *, is_shared: bool = True) -> None:
        """Keep an answer, for other processes if it is worth a file."""
        key = self._make_key(question)
        if len(self._answers) >= _MAX_REMEMBERED:
            self._answers.clear()  # at once: other threads plan, too
        self._answers[key] = answer
        if is_shared and self.directory is not None:
            with contextlib.suppress(OSError):  # it is searched again
                staged = f"{self._build_path(key)}.{os.getpid()}-{threading.get_ident()}"
                with open(staged, "wb") as kept_file:
                    kept_file.write(answer)
                os.replace(staged, self._build_path(key))

    def _build_path(self, key: str) -> str:
        return os.path.join(self.directory or "", f"sawlog-search-{key}")

    @staticmethod
    def _make_key(question: object) -> str:
        return hashlib.sha256(repr(question).encode(errors="surrogatepass")).hexdigest()


SEARCHES = Searches()
"""That of this process."""


def find_remote_state(file: ListedFile) -> tuple[Any, ...] | None:
    """Return what a listed remote file has in no other state; None where its store does not say."""
    changed = find_last_change(file)
    if not file.is_tagged and (changed is None or changed > time.time() - STABLE_SECONDS):
        return None
    return file.path, file.size, file.version, changed


def find_last_change(file: ListedFile) -> float | None:
    """Return the time by which states of a file without a version are told apart."""
    return file.modified if file.changed is None else file.changed


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Return numbers as an answer: int64, little endian."""
    return np.array(numbers, "<i8").tobytes()


def unpack_numbers(answer: bytes) -> list[int]:
    """Return the numbers of an answer."""
    numbers: list[int] = np.frombuffer(answer[: len(answer) // 8 * 8], "<i8").tolist()
    return numbers


@dataclass(frozen=True, slots=True)
class IndexedFileFacts:
    """Facts that an index holds of a file.

    Attributes:
        answers: What planning has asked.
        measured: Whether it was read whole for statistics; what is damaged or unfinished has none even so.
        limits: By column what no value is less than, and what none is greater than.
    """

    answers: Mapping[str, bytes]
    measured: bool = False
    limits: Mapping[str, tuple[pa.Scalar, pa.Scalar]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Index:
    """Index of facts of files, by path. Many have answers in common: each different one is held once.

    Attributes:
        rows: A row for each file; `answers` are numbers of answers.
        answers: The different questions and answers.
        options: Under which read options the statistics hold.
    """

    rows: pa.Table = field(default_factory=lambda: pa.Table.from_batches([], _SCHEMA))
    answers: tuple[tuple[str, bytes], ...] = ()
    options: str = ""

    @classmethod
    def of(cls, facts_by_file: Mapping[AnyFile, IndexedFileFacts], options: str = "") -> Self:
        """Return the index of some files."""
        numbers: dict[tuple[str, bytes], int] = {}
        columns: list[list[Any]] = [
            [_hash_path(file.path) for file in facts_by_file],
            [file.size for file in facts_by_file],
            [file.version for file in facts_by_file],
            [find_last_change(file) for file in facts_by_file],
            [
                [numbers.setdefault(answer, len(numbers)) for answer in facts.answers.items()]
                for facts in facts_by_file.values()
            ],
            [facts.measured for facts in facts_by_file.values()],
        ]
        arrays = [make_array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        fields = list(_SCHEMA)
        for name in dict.fromkeys(name for facts in facts_by_file.values() for name in facts.limits):
            pairs = [facts.limits.get(name, (None, None)) for facts in facts_by_file.values()]
            kind = next(low.type for low, _ in pairs if low is not None)
            for prefix, column in zip((_LOW, _HIGH), zip(*pairs, strict=True), strict=True):
                bounds = [bound if bound is not None and bound.type == kind else None for bound in column]
                arrays.append(make_array(bounds, kind))
                fields.append(pa.field(f"{prefix}{name}", kind))
        return cls(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), tuple(numbers), options)

    @classmethod
    def join_indexes(cls, parts: Iterable[Index], options: str = "") -> Self:
        """Return the index of the files of several, none of which is in two of them."""
        numbers: dict[tuple[str, bytes], int] = {}
        tables: list[pa.Table] = []
        kinds: dict[str, pa.Field] = {field.name: field for field in _SCHEMA}
        for part in parts:
            codes = np.array([numbers.setdefault(answer, len(numbers)) for answer in part.answers] or [0], np.int32)
            column = combine_column(part.rows["answers"])
            values = make_fixed_array(pa.int32(), codes[view_values(column.values, np.int32)])
            answers = pa.ListArray.from_arrays(column.offsets, values, _SCHEMA.field("answers").type)
            tables.append(part.rows.set_column(_SCHEMA.get_field_index("answers"), _SCHEMA.field("answers"), answers))
            for column_field in part.rows.schema:
                kinds.setdefault(column_field.name, column_field)
        schema = pa.schema(kinds.values())
        complete_tables = [
            pa.Table.from_arrays([_read_column(table, field) for field in schema], schema=schema) for table in tables
        ]
        return cls(
            pa.concat_tables(complete_tables).combine_chunks()
            if complete_tables
            else pa.Table.from_batches([], schema),
            tuple(numbers),
            options,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the index that a file holds.

        Raises:
            FormatError: When it is not an index, cut off or damaged; says what.
        """
        if not data.startswith(MAGIC):
            raise FormatError(f"expected {MAGIC!r} at byte 0, found {data[: len(MAGIC)]!r}")
        start = len(MAGIC) + _DIGEST_BYTES
        body = memoryview(data)[start:]
        if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
            raise FormatError(f"byte {len(MAGIC)}: the digest does not match the {len(body)} bytes that follow")
        rows = call_decoder(_read_table, body)
        if isinstance(rows, Undecodable):
            raise FormatError(f"byte {start}: not a table")
        low = [(field.name.removeprefix(_LOW), field.type) for field in list(rows.schema)[len(_SCHEMA) :: 2]]
        limits = [pa.field(f"{prefix}{name}", kind) for name, kind in low for prefix in (_LOW, _HIGH)]
        if list(rows.schema) != [*_SCHEMA, *limits]:
            raise FormatError(f"byte {start}: not a table of files")
        metadata = rows.schema.metadata or {}
        answer_table = call_decoder(_read_table, metadata.get(_ANSWERS, b""))
        if isinstance(answer_table, Undecodable) or not answer_table.schema.equals(_ANSWERS_SCHEMA):
            raise FormatError(f"byte {start}: not a table of answers")
        codes = view_values(combine_column(rows["answers"]).values, np.int32)
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(answer_table):
            raise FormatError(f"byte {start}: expected numbers of {len(answer_table)} answers, found {codes.max()}")
        answers = zip(answer_table["question"].to_pylist(), answer_table["answer"].to_pylist(), strict=True)
        return cls(rows, tuple(answers), metadata.get(_OPTIONS, b"").decode(errors="replace"))

    def to_bytes(self) -> bytes:
        """Return the file that holds it."""
        questions, answers = zip(*self.answers, strict=True) if self.answers else ((), ())
        arrays = [make_array(questions, pa.string()), make_array(answers, pa.binary())]
        metadata = {
            _ANSWERS: _write_stream(pa.Table.from_arrays(arrays, schema=_ANSWERS_SCHEMA)),
            _OPTIONS: self.options.encode(),
        }
        body = _write_stream(self.rows.replace_schema_metadata(metadata))
        return MAGIC + hashlib.sha256(body).digest() + body

    def answer(self, file: ListedFile, question: str) -> bytes | None:
        """Return what is held of this state of a file."""
        row = self._find_row(file)
        if row is None:
            return None
        codes = self._codes[self._ends[row] : self._ends[row + 1]]
        return next(
            (answer for answered, answer in (self.answers[code] for code in codes) if answered == question), None
        )

    def note(self, file: ListedFile, question: str, answer: bytes) -> None:
        """Do nothing: an index that is in use stays as it is."""

    @property
    def has_statistics(self) -> bool:
        """Whether files were read whole for it."""
        return bool(self._are_measured.any())

    def without_statistics(self) -> Index:
        """Return the same with what planning asks only."""
        rows = self.rows.select(_SCHEMA.names[:-1])
        return Index(
            rows.append_column(_SCHEMA.field("measured"), make_constant(False, pa.bool_(), rows.num_rows)), self.answers
        )

    def select_indexed(self, files: Iterable[AnyFile], *, statistics: bool = False) -> set[AnyFile]:
        """Return the files of which something is known; with `statistics`, of which these are known as well."""
        return {
            file
            for file in files
            if (row := self._find_row(file)) is not None and (self._are_measured[row] or not statistics)
        }

    def of_files(self, files: Iterable[ListedFile]) -> Index:
        """Return the index of some of the files."""
        rows = make_array(sorted(row for file in files if (row := self._find_row(file)) is not None), pa.int64())
        return Index(self.rows.take(rows).combine_chunks(), self.answers, self.options)

    def find_limits(
        self, files: Sequence[ListedFile], columns: Iterable[pa.Field]
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the least and greatest values of columns in files, or null; unknown columns are left out."""
        kinds = {field.name: field.type for field in self.rows.schema}
        names = [column.name for column in columns if kinds.get(f"{_LOW}{column.name}") == find_value_type(column.type)]
        rows = make_array([self._find_row(file) for file in files] if names else [], pa.int64())
        low, high = (
            [combine_column(self.rows[f"{prefix}{name}"]).take(rows) for name in names] for prefix in (_LOW, _HIGH)
        )
        return pa.RecordBatch.from_arrays(low, names), pa.RecordBatch.from_arrays(high, names)

    def _find_row(self, file: ListedFile) -> int | None:
        """Return the row of a file, if it is of this state of it."""
        row = self._places.get(_hash_path(file.path))
        if row is None or self._sizes[row] != file.size or self._versions[row].as_py() != file.version:
            return None
        if not file.version and ((changed := find_last_change(file)) is None or self._change_times[row] != changed):
            return None
        return row

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {path: row for row, path in enumerate(self.rows["path"].to_pylist())}

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return view_values(combine_column(self.rows["size"]), np.int64)

    @cached_property
    def _change_times(self) -> NDArray[np.float64]:
        return view_values(fill_null(combine_column(self.rows["changed"]), math.nan), np.float64)

    @cached_property
    def _are_measured(self) -> NDArray[np.bool_]:
        return unpack_booleans(combine_column(self.rows["measured"]))

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        return view_values(combine_column(self.rows["answers"]).values, np.int32)

    @cached_property
    def _ends(self) -> NDArray[np.int32]:
        return view_values(combine_column(self.rows["answers"]).offsets, np.int32)

    @cached_property
    def _versions(self) -> pa.Array:
        return combine_column(self.rows["version"])


def _read_column(table: pa.Table, field: pa.Field) -> pa.Array:
    """Return a column of a table; nulls where it has none of the type."""
    index = table.schema.get_field_index(field.name)
    if index < 0 or table.schema.field(index).type != field.type:
        return pa.nulls(table.num_rows, field.type)
    return table.column(index)


def _hash_path(path: str) -> bytes:
    """Return the key of a path in an index, wherever a process is."""
    return os.fsencode(path if is_remote(path) else os.path.abspath(path))


def _read_table(data: bytes | memoryview) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all().combine_chunks()
    table.validate(full=True)
    for column, column_field in zip(table.columns, table.schema, strict=True):
        inner = combine_column(column).values.null_count if pa.types.is_list(column_field.type) else 0
        if inner or (column.null_count and not column_field.nullable):
            raise ValueError("nulls where there are none")
    return table


def _write_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
