"""Options of the data sources: what Spark hands over as strings with lower-case names, as what sawlog understands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sawlog.api import open as open_dataset
from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, OptionError, suggest_name
from sawlog.format.contract import TASK_BYTES, Format
from sawlog.format.damage import OnDamage
from sawlog.format.options import list_option_names, parse_options
from sawlog.format.recognition import get_format, load_formats
from sawlog.guard import Undecodable, decode_json
from sawlog.spark.errors import translate_errors
from sawlog.spark.files import FileOptions
from sawlog.storage import Storage, is_remote, normalize
from sawlog.stream.limits import StreamOptions

_STORAGE_PREFIX = "storage."
_POLICIES: dict[str, OnDamage] = {"FAILFAST": "fail", "DROPMALFORMED": "skip", "PERMISSIVE": "skip"}
_OF_TABLE = "sawlog.table"
"""The option by which the jar names those that are a table's, separated by commas."""
_CATALOG_KEYS = {"location", "provider"}
"""What Spark adds to the options of CREATE TABLE. When the table is read, a Python source is given no option at all."""
_NO_TABLES = (
    "Spark gives a Python source neither path nor options of a table: tables need the jar (`sawlog spark-jar`) and"
    " USING sawlog; without it use CREATE TEMPORARY VIEW ... USING ... OPTIONS (path '...')"
)
_LISTINGS = 3
"""How often files are listed again while some of them disappear."""
_JSON_BEGINNINGS = ("{", "[")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the source, besides those of the format.

    Attributes:
        format: Name of the format; recognised if not given.
        view: The view of the bytes.
        mode: FAILFAST stops at the first damage, DROPMALFORMED delivers everything intact and logs the rest, PERMISSIVE
            delivers a row for each damaged range besides.
        columnnameofcorruptrecord: The column of those rows that says what is damaged.
        columns: Columns, in order, separated by commas.
        filters: Conditions that every row fulfils, as a JSON list of `[column, operator, value]`; what a format can
            leave out by them is not read. Times are ISO 8601 strings.
        pushdown: Whether Spark may push filters down to the source, where its configuration allows it. Not by default:
            see `sawlog.spark.filters`.
        provenance: Whether `_file` and `_offset` are appended.
        task_bytes: Input bytes per task that planning aims at.
        index: The index that `sawlog.index` has made of the path; `true`: the one in the directory.
    """

    format: str | None = None
    view: str = "rows"
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = "FAILFAST"
    columnnameofcorruptrecord: str = "_corrupt_record"
    columns: tuple[str, ...] | None = None
    filters: str | None = None
    pushdown: bool = False
    provenance: bool = False
    task_bytes: int = TASK_BYTES
    index: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of the sink, besides those of the format.

    Attributes:
        format: Name of the format.
        savemode: What `mode("append")` does where there are files already, as Spark's modes of these names: an error,
            or nothing. Spark itself allows Python sources no other modes than `append` and `overwrite`.
        partitionby: Columns, separated by commas, whose values make directories `column=value`.
        partitionoverwritemode: `dynamic`: `overwrite` replaces those directories only that it writes.
    """

    format: str | None = None
    savemode: Literal["errorifexists", "ignore"] | None = None
    partitionby: tuple[str, ...] = ()
    partitionoverwritemode: Literal["static", "dynamic"] = "static"


@dataclass(frozen=True)
class SparkRequest:
    """Options, sorted by whom they are for. Picklable.

    Attributes:
        paths: Where to read, or the one directory to write to.
        storage: How to reach it.
        source_options: `ReadOptions` or `WriteOptions`.
        format_options: What is left for the format, unparsed.
        stream: Limits of a stream source; they mean nothing to a batch.
        files: Which files are read, and what columns they make.
        of_table: Whether they are those of a table in Spark's catalog.
    """

    paths: tuple[str, ...]
    storage: Storage
    source_options: Any
    format_options: dict[str, Any] = field(repr=False)
    stream: StreamOptions = field(default_factory=StreamOptions)
    files: FileOptions = field(default_factory=FileOptions)
    of_table: bool = False

    def is_empty(self) -> bool:
        """Return whether there is no file at the only path: of a table, that is no error."""
        if len(self.paths) != 1:
            return False
        try:
            return not self.storage.find(self.paths[0])
        except FileNotFoundError:
            return True

    @property
    def rescued(self) -> str | None:
        """The column of a read that says what is damaged, if there is one: the view of damage needs none."""
        read_options: ReadOptions = self.source_options
        return (
            read_options.columnnameofcorruptrecord
            if read_options.mode == "PERMISSIVE" and read_options.view != "damage"
            else None
        )

    def open(self) -> Dataset:
        """Return the dataset that the options of a read describe.

        Raises:
            SawlogError: As `sawlog.open` does.
            FileNotFoundError: When there is nothing at a path.
        """
        read_options: ReadOptions = self.source_options
        if read_options.format is not None:
            check_known(
                self.format_options,
                ReadOptions,
                get_format(read_options.format).read_options,
                f"reading {read_options.format}",
            )
        for _ in range(_LISTINGS if self.files.ignoremissingfiles else 0):
            with contextlib.suppress(FileNotFoundError):  # it was deleted after it was listed
                return self._open()
        return self._open()

    def open_stored(self) -> Dataset | None:
        """Return the dataset; `None` where a table in Spark's catalog has no files yet. Raises as `open`."""
        try:
            return self.open()
        except (FileNotFoundError, FormatError):
            if self.of_table and self.is_empty():
                return None
            raise

    def _open(self) -> Dataset:
        read_options: ReadOptions = self.source_options
        with translate_errors():
            return open_dataset(
                self.paths,
                format=read_options.format,
                view=read_options.view,
                columns=read_options.columns,
                on_damage=_POLICIES[read_options.mode],
                provenance=read_options.provenance,
                storage_options=self.storage.make_fresh(),
                index=_parse_index(read_options.index),
                **self.format_options,
            )


def make_read_request(options: Mapping[str, str], format: str | None) -> SparkRequest:
    """Return options of a read.

    Raises:
        OptionError: For a missing path, or a value that an option cannot take.
    """
    remaining_options: dict[str, Any] = dict(options)
    of_table = _take_table(remaining_options, _READING, _WRITING)
    paths = _take_paths(remaining_options)
    if "mode" in remaining_options:
        remaining_options["mode"] = remaining_options["mode"].upper()
    if "on_damage" in remaining_options:
        raise OptionError("option 'on_damage' is spelled mode in Spark: FAILFAST, DROPMALFORMED or PERMISSIVE")
    storage = _take_storage(remaining_options)
    read_options = _take_own(ReadOptions, remaining_options, format, "reading with Spark")
    stream = _take_own(StreamOptions, remaining_options, None, "reading a stream with Spark")
    files = _take_own(FileOptions, remaining_options, None, "reading with Spark")
    if read_options.task_bytes <= 0:
        raise OptionError(f"option task_bytes={read_options.task_bytes}: expected a positive number of bytes")
    storage = replace(storage, file_filter=files.make_selection())
    return SparkRequest(paths, storage, read_options, remaining_options, stream, files, of_table)


def make_write_request(options: Mapping[str, str], format: str | None) -> tuple[SparkRequest, Format, Any]:
    """Return options of a write, the format, and its own options parsed.

    Raises:
        OptionError: For a missing path or format, an unknown option, or a value that an option cannot take.
    """
    remaining_options: dict[str, Any] = dict(options)
    of_table = _take_table(remaining_options, _WRITING, _READING)
    for name in {"savemode", "partitionoverwritemode"} & remaining_options.keys():
        remaining_options[name] = remaining_options[name].lower()
    paths = _take_paths(remaining_options)
    if len(paths) != 1:
        raise OptionError(f"writing with Spark: expected one directory, found {len(paths)} paths")
    storage = _take_storage(remaining_options)
    write_options = _take_own(WriteOptions, remaining_options, format, "writing with Spark")
    if of_table and write_options.format is None:
        write_options = replace(write_options, format=_find_stored_format(paths[0], storage))
    if write_options.format is None:
        raise OptionError('writing with Spark: option \'format\' is required, as in .option("format", "leveldb_log")')
    target_format = get_format(write_options.format)
    check_known(remaining_options, WriteOptions, target_format.write_options, f"writing {target_format.name}")
    parsed: Any = parse_options(target_format.write_options, remaining_options, context=f"writing {target_format.name}")
    return SparkRequest(paths, storage, write_options, remaining_options, of_table=of_table), target_format, parsed


def check_known(remaining_options: Mapping[str, Any], spark_options: type, formats_own: type, action: str) -> None:
    """Refuse an option that neither the source nor the format knows.

    Raises:
        OptionError: Names the option, and lists all that are known. Values are not shown.
    """
    wrong = sorted(set(remaining_options) - set(list_option_names(formats_own)))
    if wrong:
        kinds = (spark_options, formats_own, *((FileOptions, StreamOptions) if spark_options is ReadOptions else ()))
        theirs = [f.name for kind in kinds for f in fields(kind)]
        known_names = ["path", "paths", "storage_options", f"{_STORAGE_PREFIX}*", *theirs]
        near = suggest_name(wrong[0], known_names)
        raise OptionError(f"{action}: unknown option {wrong[0]!r}{near}; known options: {', '.join(known_names)}")


_READING: tuple[tuple[type, ...], str] = (ReadOptions, StreamOptions, FileOptions), "read_options"
_WRITING: tuple[tuple[type, ...], str] = (WriteOptions,), "write_options"
"""Options of the source for one direction, and where a format has its own for it."""


def _take_table(
    remaining_options: dict[str, Any], direction: tuple[tuple[type, ...], str], opposite: tuple[tuple[type, ...], str]
) -> bool:
    """Take out the options of a table that are for the other direction. Return whether there is a table."""
    text = remaining_options.pop(_OF_TABLE, None)
    if text is None:
        return False
    format_name = remaining_options.get("format")
    all_formats = list(load_formats().values()) if format_name is None else [get_format(format_name)]
    names_of_direction, names_of_opposite = (
        {
            name
            for kind in (*kinds, *(getattr(any_format, attribute) for any_format in all_formats))
            for name in list_option_names(kind)
        }
        for kinds, attribute in (direction, opposite)
    )
    for name in text.split(","):
        if name in names_of_opposite - names_of_direction:
            del remaining_options[name]
    return True


def _find_stored_format(path: str, storage: Storage) -> str | None:
    """Return the name of the format of the files that a directory has; `None` where there are none."""
    try:
        return open_dataset(path, storage_options=storage.make_fresh()).format.name
    except (FileNotFoundError, FormatError):
        return None


def _take_paths(remaining_options: dict[str, Any]) -> tuple[str, ...]:
    if remaining_options.keys() >= _CATALOG_KEYS:
        raise OptionError(_NO_TABLES)
    path = remaining_options.pop("path", None)
    several = remaining_options.pop("paths", None)
    if several is not None:
        paths = decode_json(several)
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise OptionError(f"option paths={several!r}: expected a JSON list of paths")
        if path is not None:
            raise OptionError("options path and paths: give one of them")
        return tuple(_make_absolute(path) for path in paths)
    if not path:
        raise OptionError(f"option 'path' is required, as in .load(path) and .save(path); {_NO_TABLES}")
    return (_make_absolute(path),)


def _parse_index(value: str | None) -> str | bool:
    return value is not None and (value.lower() == "true" or (value.lower() != "false" and _make_absolute(value)))


def _make_absolute(path: str) -> str:
    """Return a local path made absolute in the driver's working directory, since executors have others."""
    name = normalize(path)
    return name if is_remote(name) else os.path.abspath(name)


def _take_storage(remaining_options: dict[str, Any]) -> Storage:
    """Return `storage_options`, a JSON object, and single ones as `storage.NAME`."""
    options: dict[str, Any] = {}
    json_text = remaining_options.pop("storage_options", None)
    if json_text is not None:
        document = decode_json(json_text)
        if not isinstance(document, dict):
            raise OptionError("option storage_options: expected a JSON object (its value is not shown)")
        options |= document
    for name in [name for name in remaining_options if name.startswith(_STORAGE_PREFIX)]:
        options[name.removeprefix(_STORAGE_PREFIX)] = _parse_storage_value(name, remaining_options.pop(name))
    return Storage(options)


def _parse_storage_value(name: str, text: str) -> Any:
    """Return the value that a text means: `true` and `false`, JSON where it begins like JSON, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not text.startswith(_JSON_BEGINNINGS):
        return text
    value = decode_json(text)
    if isinstance(value, Undecodable):
        raise OptionError(f"option {name}: expected JSON (its value is not shown)")
    return value


def _take_own(cls: Any, remaining_options: dict[str, Any], format: str | None, action: str) -> Any:
    """Take the options of a dataclass out of `remaining_options`; a short name determines the format."""
    values = {f.name: remaining_options.pop(f.name) for f in fields(cls) if f.name in remaining_options}
    parsed = parse_options(cls, values, context=action)
    if format is None or parsed.format == format:
        return parsed
    if parsed.format is not None:
        raise OptionError(f"{action}: option format={parsed.format!r} contradicts the source {format!r}")
    return parse_options(cls, {**values, "format": format}, context=action)
