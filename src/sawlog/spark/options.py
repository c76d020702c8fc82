"""Options of the data sources: what Spark hands over as strings with lower-case names, as what sawlog understands."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sawlog.api import open as open_dataset
from sawlog.damage import OnDamage
from sawlog.dataset import Dataset
from sawlog.errors import OptionError, meant
from sawlog.format import TASK_BYTES, Format
from sawlog.guard import Undecodable, decode_json
from sawlog.options import names, parse_options, show_deprecations
from sawlog.recognition import get_format
from sawlog.spark.errors import in_sparks_words
from sawlog.spark.files import FileOptions
from sawlog.storage import Storage, is_remote, normalize
from sawlog.stream.limits import StreamOptions

STORAGE_PREFIX = "storage."
_POLICIES: dict[str, OnDamage] = {"FAILFAST": "fail", "DROPMALFORMED": "skip", "PERMISSIVE": "skip"}
_CATALOG_KEYS = {"location", "provider"}
"""What Spark adds to the options of CREATE TABLE. When the table is read, a Python source is given no option at all."""
_NO_TABLES = (
    "tables made by CREATE TABLE lose their options; use CREATE TEMPORARY VIEW ... USING ... OPTIONS (path '...')"
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
        columns: Columns to deliver, in order, separated by commas.
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
class Request:
    """Options, sorted by whom they are for. Picklable.

    Attributes:
        paths: Where to read, or the one directory to write to.
        storage: How to reach it.
        own: `ReadOptions` or `WriteOptions`.
        rest: What is left for the format, unparsed.
        stream: Limits of a stream source; they mean nothing to a batch.
        files: Which files are read, and what columns they make.
    """

    paths: tuple[str, ...]
    storage: Storage
    own: Any
    rest: dict[str, Any] = field(repr=False)
    stream: StreamOptions = field(default_factory=StreamOptions)
    files: FileOptions = field(default_factory=FileOptions)

    @property
    def rescued(self) -> str | None:
        """The column of a read that says what is damaged, if there is one: the view of damage needs none."""
        own: ReadOptions = self.own
        return own.columnnameofcorruptrecord if own.mode == "PERMISSIVE" and own.view != "damage" else None

    def open(self) -> Dataset:
        """The dataset that the options of a read describe.

        Raises:
            SawlogError: As `sawlog.open` does.
            FileNotFoundError: When there is nothing at a path.
        """
        own: ReadOptions = self.own
        if own.format is not None:
            check_known(self.rest, ReadOptions, get_format(own.format).read_options, f"reading {own.format}")
        for _ in range(_LISTINGS if self.files.ignoremissingfiles else 0):
            with contextlib.suppress(FileNotFoundError):  # it was deleted after it was listed
                return self._open()
        return self._open()

    def _open(self) -> Dataset:
        own: ReadOptions = self.own
        with in_sparks_words(), warnings.catch_warnings():
            show_deprecations()
            return open_dataset(
                self.paths,
                format=own.format,
                view=own.view,
                columns=own.columns,
                on_damage=_POLICIES[own.mode],
                provenance=own.provenance,
                storage_options=self.storage.fresh(),
                index=_index(own.index),
                **self.rest,
            )


def read_request(options: Mapping[str, str], format: str | None) -> Request:
    """Options of a read.

    Raises:
        OptionError: For a missing path, or a value that an option cannot take.
    """
    rest: dict[str, Any] = dict(options)
    paths = _take_paths(rest)
    if "mode" in rest:
        rest["mode"] = rest["mode"].upper()
    if "on_damage" in rest:
        raise OptionError("option 'on_damage' is spelled mode in Spark: FAILFAST, DROPMALFORMED or PERMISSIVE")
    storage = _take_storage(rest)
    own = _take_own(ReadOptions, rest, format, "reading with Spark")
    stream = _take_own(StreamOptions, rest, None, "reading a stream with Spark")
    files = _take_own(FileOptions, rest, None, "reading with Spark")
    if own.task_bytes <= 0:
        raise OptionError(f"option task_bytes={own.task_bytes}: expected a positive number of bytes")
    return Request(paths, replace(storage, chosen=files.choice()), own, rest, stream, files)


def write_request(options: Mapping[str, str], format: str | None) -> tuple[Request, Format, Any]:
    """Options of a write, the format, and its own options parsed.

    Raises:
        OptionError: For a missing path or format, an unknown option, or a value that an option cannot take.
    """
    rest: dict[str, Any] = dict(options)
    for name in {"savemode", "partitionoverwritemode"} & rest.keys():
        rest[name] = rest[name].lower()
    paths = _take_paths(rest)
    if len(paths) != 1:
        raise OptionError(f"writing with Spark: expected one directory, found {len(paths)} paths")
    storage = _take_storage(rest)
    own = _take_own(WriteOptions, rest, format, "writing with Spark")
    if own.format is None:
        raise OptionError('writing with Spark: option \'format\' is required, as in .option("format", "leveldb_log")')
    chosen = get_format(own.format)
    check_known(rest, WriteOptions, chosen.write_options, f"writing {chosen.name}")
    with warnings.catch_warnings():
        show_deprecations()
        parsed: Any = parse_options(chosen.write_options, rest, where=f"writing {chosen.name}")
    return Request(paths, storage, own, rest), chosen, parsed


def check_known(rest: Mapping[str, Any], own: type, formats_own: type, where: str) -> None:
    """Refuse an option that neither the source nor the format knows.

    Raises:
        OptionError: Names the option, and lists all that are known. Values are not shown.
    """
    wrong = sorted(set(rest) - set(names(formats_own)))
    if wrong:
        kinds = (own, formats_own, *((FileOptions, StreamOptions) if own is ReadOptions else ()))
        theirs = [f.name for kind in kinds for f in fields(kind)]
        known = ["path", "paths", "storage_options", f"{STORAGE_PREFIX}*", *theirs]
        near = meant(wrong[0], known)
        raise OptionError(f"{where}: unknown option {wrong[0]!r}{near}; known options: {', '.join(known)}")


def _take_paths(rest: dict[str, Any]) -> tuple[str, ...]:
    if rest.keys() >= _CATALOG_KEYS:
        raise OptionError(f"Spark hands a Python source nothing of what a table says: {_NO_TABLES}")
    one = rest.pop("path", None)
    several = rest.pop("paths", None)
    if several is not None:
        paths = decode_json(several)
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise OptionError(f"option paths={several!r}: expected a JSON list of paths")
        if one is not None:
            raise OptionError("options path and paths: give one of them")
        return tuple(_absolute(path) for path in paths)
    if not one:
        raise OptionError(f"option 'path' is required, as in .load(path) and .save(path); {_NO_TABLES}")
    return (_absolute(one),)


def _index(given: str | None) -> str | bool:
    return given is not None and (given.lower() == "true" or (given.lower() != "false" and _absolute(given)))


def _absolute(path: str) -> str:
    """Local paths mean the driver's working directory; executors have others."""
    name = normalize(path)
    return name if is_remote(name) else os.path.abspath(name)


def _take_storage(rest: dict[str, Any]) -> Storage:
    """`storage_options`, a JSON object, and single ones as `storage.NAME`."""
    options: dict[str, Any] = {}
    given = rest.pop("storage_options", None)
    if given is not None:
        options = _json_object(given)
    for name in [name for name in rest if name.startswith(STORAGE_PREFIX)]:
        options[name.removeprefix(STORAGE_PREFIX)] = _storage_value(name, rest.pop(name))
    return Storage(options)


def _json_object(text: str) -> dict[str, Any]:
    options = decode_json(text)
    if not isinstance(options, dict):
        raise OptionError("option storage_options: expected a JSON object (its value is not shown)")
    return options


def _storage_value(name: str, text: str) -> Any:
    """`true` and `false` are meant as such, what begins like JSON is JSON; all else stays a string."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not text.startswith(_JSON_BEGINNINGS):
        return text
    found = decode_json(text)
    if isinstance(found, Undecodable):
        raise OptionError(f"option {name}: expected JSON (its value is not shown)")
    return found


def _take_own(cls: Any, rest: dict[str, Any], format: str | None, where: str) -> Any:
    """Take the options of a dataclass out of `rest`; a short name determines the format."""
    taken = {f.name: rest.pop(f.name) for f in fields(cls) if f.name in rest}
    own = parse_options(cls, taken, where=where)
    if format is None or own.format == format:
        return own
    if own.format is not None:
        raise OptionError(f"{where}: option format={own.format!r} contradicts the source {format!r}")
    return parse_options(cls, {**taken, "format": format}, where=where)
