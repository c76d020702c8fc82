"""Files as Spark's own sources treat them: choose among them, and add columns about them.

Directories named `key=value` below a path make columns, as `partitionBy` writes them, and `_metadata` describes the
file that a row came from. Where the data has a column of such a name, it is the data's.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import functools
import glob
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as spark

from sawlog.errors import OptionError, SchemaError
from sawlog.format.damage import DAMAGE_SCHEMA
from sawlog.format.query import bind_query, mask
from sawlog.guard import EPOCH
from sawlog.spark.schema import make_arrow_schema
from sawlog.storage.names import normalize

if TYPE_CHECKING:
    from sawlog.format.contract import Fragment
    from sawlog.storage import File, Storage

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Value of a directory for null, and for the empty string."""
METADATA = "_metadata"
METADATA_TYPE = spark.StructType(
    [
        spark.StructField("file_path", spark.StringType()),
        spark.StructField("file_name", spark.StringType()),
        spark.StructField("file_size", spark.LongType()),
        spark.StructField("file_block_start", spark.LongType()),
        spark.StructField("file_block_length", spark.LongType()),
        spark.StructField("file_modification_time", spark.TimestampType()),
    ]
)
"""Of the column `_metadata`, as Spark's own file sources have it. Size and time are null for what is no single file."""

_RESCUED_FIELDS = ["file", "offset", "length", "kind", "detail"]
RESCUED_TYPE = pa.struct(
    [*(DAMAGE_SCHEMA.field(name).with_nullable(True) for name in _RESCUED_FIELDS), ("bytes", pa.binary())]
)
"""Of the column that says what is damaged: the place and the reason as in the view of damage, and the first bytes."""
_RESCUED_BYTES = 1 << 16
"""So many bytes of a damaged range at most."""

_TIMESTAMP = pa.timestamp("us")
"""Without a zone: Spark does not say to Python sources which one the session has, by which it would read such names."""
_INTEGER, _DECIMAL = re.compile(r"[+-]?[0-9]+"), re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_DOUBLE = re.compile(rf"({_DECIMAL.pattern}[fFdD]?|[+-]?(NaN|Infinity))")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9])?")
_INT, _LONG = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_RANKS = {pa.int32(): 0, pa.int64(): 1, pa.float64(): 2, pa.date32(): 3, _TIMESTAMP: 4}
_WHOLE_DIGITS = {pa.int32(): 10, pa.int64(): 20}
"""Digits of the decimal that holds every integer of a type, as Spark counts."""
_MOST_DIGITS = 38
_EXACT = decimal.Context(prec=_MOST_DIGITS)

FileValues = dict[str, Any]
"""Values of file columns, by name; of `_metadata`, what holds for the whole file."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options that Spark's own file sources have, too.

    Attributes:
        recursivefilelookup: `true`: directories named `key=value` make no columns. `false`: no other directories are
            walked down. By default all are, and those make columns.
        pathglobfilter: Which names files have.
        modifiedbefore: Files were written before this time: ISO 8601, in the machine's zone unless it names one.
        modifiedafter: Likewise, after this time.
        ignoremissingfiles: Whether files that were found and are gone when they are read are left out.
        basepath: Where directories begin to make columns; by default below the paths that are read.
    """

    recursivefilelookup: bool | None = None
    pathglobfilter: str | None = None
    modifiedbefore: str | None = None
    modifiedafter: str | None = None
    ignoremissingfiles: bool = False
    basepath: str | None = None

    def make_selection(self) -> FileSelection | None:
        """Return the filter of files that these options make; `None` if all files pass.

        Raises:
            OptionError: For a time that is none.
        """
        before, after = (_parse_instant(name, getattr(self, name)) for name in ("modifiedbefore", "modifiedafter"))
        if self.recursivefilelookup is not False and (self.pathglobfilter, before, after) == (None, None, None):
            return None
        return FileSelection(self.recursivefilelookup is not False, self.pathglobfilter, before, after)


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Filter of the files below a path: by name, directory and time of modification.

    Attributes:
        nested: Whether those in any directory are, or only those in directories named `key=value`.
        pattern: Of their names.
        before: They were written before this, in seconds since the epoch.
        after: Likewise, after this.
    """

    nested: bool
    pattern: str | None
    before: float | None
    after: float | None

    def __call__(self, root: str, file: File) -> bool:
        """Return whether a file below `root` is read.

        Raises:
            OptionError: When its time counts, and the storage does not report it.
        """
        if self.pattern is not None and not any(
            fnmatchcase(file.name, pattern) for pattern in _expand_braces(self.pattern)
        ):
            return False
        if not self.nested and not all(_parse_pair(part) for part in _split_path(file.path, root)[:-1]):
            return False
        if self.before is None and self.after is None:
            return True
        if file.modified is None:
            raise OptionError(f"{file.path}: options modifiedBefore and modifiedAfter: when it was written is unknown")
        return (self.before is None or file.modified < self.before) and (
            self.after is None or file.modified > self.after
        )


@dataclass(frozen=True)
class FileColumns:
    """The columns that files have besides those of the data.

    Attributes:
        bases: Directories below which others make columns.
        partitions: The columns that they make.
        metadata: The type of `_metadata`, or `None` where the data has such a column itself.
        rescued: The column that says what is damaged, if there is one.
    """

    bases: tuple[str, ...]
    partitions: pa.Schema
    metadata: spark.StructType | None
    rescued: str | None = None

    @classmethod
    def of(
        cls,
        files: Sequence[File],
        paths: Sequence[str],
        options: FileOptions,
        data_columns: Iterable[str],
        user_schema: spark.StructType | None = None,
        rescued: str | None = None,
    ) -> FileColumns:
        """Return the columns of some files.

        Raises:
            OptionError: When the data has a column of that name.
            SchemaError: When the user wants another type of `_metadata`.
        """
        data_columns = set(data_columns)
        if rescued in data_columns:
            raise OptionError(
                f"option columnNameOfCorruptRecord={rescued!r}: the data has such a column; name another one"
            )
        bases = tuple(normalize(path).rstrip("/") for path in ([options.basepath] if options.basepath else paths))
        user_fields = {field.name: field for field in user_schema or ()}
        metadata = None
        if METADATA not in data_columns:
            metadata = METADATA_TYPE
            if METADATA in user_fields:
                metadata = _check_metadata_type(user_fields[METADATA].dataType)
        values: dict[str, set[str | None]] = {}
        if not options.recursivefilelookup:
            for directory in {file.directory: None for file in files}:
                for name, text in _parse_pairs(f"{directory}/", bases):
                    values.setdefault(name, set()).add(text)
        fields = [
            make_arrow_schema(spark.StructType([user_fields[name]])).field(0)
            if name in user_fields
            else pa.field(name, _infer_common_type(texts))
            for name, texts in values.items()
            if name not in data_columns and name not in (METADATA, rescued)
        ]
        return cls(bases, pa.schema(fields), metadata, rescued)

    def with_added(self, table_schema: spark.StructType, data_columns: Iterable[str]) -> FileColumns:
        """Return the same with columns, as null, that only the table has, if it has all columns of the files.

        Else a column may have been renamed, or be spelled otherwise, and its values would be hidden.
        """
        stored = set(data_columns)
        added = [field for field in table_schema.fields if field.name not in stored | self.names]
        if not added or not stored <= set(table_schema.names):
            return self
        partitions = [*self.partitions, *make_arrow_schema(spark.StructType(added))]
        return replace(self, partitions=pa.schema(partitions))

    @functools.cached_property
    def available(self) -> pa.Schema:
        """All of them."""
        extra = [spark.StructField(METADATA, self.metadata)] if self.metadata is not None else []
        rescued = [pa.field(self.rescued, RESCUED_TYPE)] if self.rescued is not None else []
        return pa.schema([*self.partitions, *make_arrow_schema(spark.StructType(extra)), *rescued])

    @functools.cached_property
    def names(self) -> set[str]:
        """Their names."""
        return set(self.available.names)

    def choose_files(self, files: Sequence[File], conditions: Sequence[tuple[str, str, Any]]) -> list[File]:
        """Return the files that conditions on directories let through."""
        if not conditions:
            return list(files)
        directories = list({file.directory: None for file in files})
        rows = [self._parse_values(f"{directory}/") for directory in directories]
        batch = pa.RecordBatch.from_pylist(rows, self.partitions)
        passes = mask(bind_query(conditions, None, self.partitions, self.partitions), batch).to_pylist()
        matching_directories = {name for name, holds in zip(directories, passes, strict=True) if holds}
        return [file for file in files if file.directory in matching_directories]

    def collect_values(
        self, paths: Iterable[str], names: Iterable[str], files: Mapping[str, File]
    ) -> dict[str, FileValues]:
        """Return the values of file columns by path, for workers; empty if no such column is requested.

        Raises:
            SchemaError: When the name of a directory is not of the type that the user wants.
        """
        requested_columns = [name for name in names if name in self.names]
        if not requested_columns:
            return {}
        values_by_path: dict[str, FileValues] = {}
        for path in dict.fromkeys(paths):
            file = files.get(path)
            values = self._parse_values(path if file is not None else f"{path}/")
            values[METADATA] = _make_metadata(path, file)
            if self.rescued is not None:
                values[self.rescued] = None  # of rows that are intact
            values_by_path[path] = {name: values[name] for name in requested_columns}
        return values_by_path

    def _parse_values(self, path: str) -> FileValues:
        """Return values of the columns that the directories of a path make."""
        texts = dict(_parse_pairs(path, self.bases))
        values: FileValues = {}
        for field in self.partitions:
            text = texts.get(field.name)
            try:
                values[field.name] = None if text is None else _parse_value(text, field.type)
            except (ValueError, ArithmeticError, pa.ArrowException):
                raise SchemaError(f"{path}: directory {field.name}={text!r}: expected {field.type}") from None
        return values


def append_file_columns(
    batch: pa.RecordBatch, file_values: FileValues, fragment: Fragment, target: pa.Schema
) -> pa.RecordBatch:
    """Return a batch of a fragment with the columns of its file, in the types that Spark wants."""
    for name, value in file_values.items():
        if name in batch.schema.names:  # a row of `rescue`
            continue
        kind = target.field(name).type
        if name == METADATA:
            start, length = fragment.extent
            metadata = {**value, "file_block_start": start, "file_block_length": length}
            column = pa.scalar({field.name: metadata[field.name] for field in kind}, kind)
        else:
            column = pa.scalar(value, kind)
        batch = batch.append_column(name, pa.repeat(column, batch.num_rows))
    return batch


def rescue(
    damage: pa.RecordBatch, name: str, file_values: FileValues, storage: Storage, target: pa.Schema
) -> pa.RecordBatch:
    """Return rows of damaged ranges: what is damaged, with its first bytes, and null in the columns of the data."""
    columns = {field.name: pa.nulls(damage.num_rows, field.type) for field in target if field.name not in file_values}
    if name in target.names:
        rows = damage.select(_RESCUED_FIELDS).to_pylist()
        for row in rows:
            with contextlib.suppress(FileNotFoundError):  # which is what is wrong
                row["bytes"] = storage.read(row["file"], row["offset"], min(row["length"], _RESCUED_BYTES))
        columns[name] = pa.array(rows, RESCUED_TYPE)
    return pa.record_batch(columns) if columns else damage


def _make_metadata(path: str, file: File | None) -> FileValues:
    modified = file.modified if file is not None else None
    return {
        "file_path": path if "://" in path else f"file://{path}",
        "file_name": path.rpartition("/")[2],
        "file_size": file.size if file is not None else None,
        "file_modification_time": None if modified is None else EPOCH + dt.timedelta(seconds=modified),
    }


def _check_metadata_type(kind: spark.DataType) -> spark.StructType:
    known_types = {field.name: field.dataType for field in METADATA_TYPE}
    if not isinstance(kind, spark.StructType) or any(known_types.get(field.name) != field.dataType for field in kind):
        raise SchemaError(
            f"column {METADATA}: expected fields of {METADATA_TYPE.simpleString()}; found {kind.simpleString()}"
        )
    return kind


def _parse_pairs(path: str, bases: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of the `key=value` directories in a path, the last too if the path ends in a slash."""
    inside = (parts for base in bases if (parts := _split_path(path, _without_glob(base, path))))
    for part in next(inside, [])[:-1]:
        pair = _parse_pair(part)
        if pair is not None:
            yield pair[0], None if pair[1] == NO_VALUE else pair[1]


def _without_glob(base: str, path: str) -> str:
    """Return the directory that a glob has matched of a path, as far as it is known."""
    if not glob.has_magic(base):
        return base
    if "**" in base:
        return base[: base.index("*")].rpartition("/")[0]
    return "/".join(path.split("/")[: base.count("/") + 1])


def _split_path(path: str, root: str) -> list[str]:
    """Return the parts of a path below a directory; none if it is elsewhere."""
    path, start = (text.replace(":///", "://") for text in (path, root.rstrip("/") + "/"))  # a matter of the store
    return path[len(start) :].split("/") if path.startswith(start) else []


def _parse_pair(part: str) -> tuple[str, str] | None:
    """Return the key of a directory's name, and its value as it is spelled there: so Spark looks at it, too."""
    key, equals, value = part.partition("=")
    return (unquote(key), value) if key and equals and value else None


def _infer_common_type(texts: Iterable[str | None]) -> pa.DataType:
    """Return the type of values in directory names as Spark infers it (PartitioningUtils), but for zones of times."""
    return reduce(_choose_wider, (_infer_type(text) for text in texts if text is not None), None) or pa.string()


def _infer_type(text: str) -> pa.DataType:
    if _INTEGER.fullmatch(text) and _INT[0] <= int(text) <= _INT[1]:
        return pa.int32()
    if _INTEGER.fullmatch(text) and _LONG[0] <= int(text) <= _LONG[1]:
        return pa.int64()
    if _DECIMAL.fullmatch(text) and (digits := _count_digits(text)) is not None:
        return pa.decimal128(digits, 0)
    if _DOUBLE.fullmatch(text):
        return pa.float64()
    for pattern, kind in ((_TIME, _TIMESTAMP), (_DATE, pa.date32())):
        if pattern.fullmatch(unquote(text) if kind == _TIMESTAMP else text):
            with contextlib.suppress(ValueError):
                _parse_value(text, kind)
                return kind
    return pa.string()


def _count_digits(text: str) -> int | None:
    """Return the number of digits of a whole decimal number; None for other texts, and for more than 38 digits."""
    number = decimal.Decimal(text)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent < 0:
        return None
    count = len(digits) + exponent
    return count if count <= _MOST_DIGITS else None


def _choose_wider(first: pa.DataType | None, second: pa.DataType) -> pa.DataType:
    if first is None or first == second:
        return second
    kinds = sorted((first, second), key=_RANKS.__getitem__) if {first, second} <= _RANKS.keys() else []
    if kinds in ([pa.int32(), pa.int64()], [pa.int32(), pa.float64()], [pa.date32(), _TIMESTAMP]):
        return kinds[1]
    numbers = [_WHOLE_DIGITS.get(kind, getattr(kind, "precision", 0)) for kind in (first, second)]
    return pa.decimal128(max(numbers), 0) if all(numbers) else pa.string()


def _parse_value(text: str, kind: pa.DataType) -> Any:
    """Return the value of a directory's name, which may be escaped.

    Raises:
        ValueError: When it is not of that type.
    """
    if pa.types.is_integer(kind) and _INTEGER.fullmatch(text):
        return pa.scalar(int(text), kind).as_py()
    if pa.types.is_decimal(kind) and _DECIMAL.fullmatch(text):
        return pa.scalar(decimal.Decimal(text).quantize(decimal.Decimal(1), context=_EXACT), kind).as_py()
    if pa.types.is_floating(kind) and _DOUBLE.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    if pa.types.is_date(kind) and _DATE.fullmatch(text):
        return dt.date.fromisoformat(text)
    if kind == _TIMESTAMP and (_DATE.fullmatch(text) or _TIME.fullmatch(unquote(text))):
        return dt.datetime.fromisoformat(unquote(text))
    return pa.scalar(unquote(text)).cast(kind).as_py()


def _parse_instant(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise OptionError(f"option {name}={text!r}: expected a time such as 2026-01-31T12:00:00Z") from None


@functools.cache
def _expand_braces(pattern: str) -> tuple[str, ...]:
    """Return a pattern with `{a,b}` as patterns without."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return (pattern,)
    alternatives = (
        pattern[: braces.start()] + alternative + pattern[braces.end() :] for alternative in braces[1].split(",")
    )
    return tuple(itertools.chain.from_iterable(map(_expand_braces, alternatives)))
