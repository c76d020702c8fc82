"""Arguments that several commands share, and what their texts mean."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import typer

import sawlog
from sawlog.arrow import make_scalar
from sawlog.cli import completion
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError, SchemaError
from sawlog.format.planning import list_available_columns
from sawlog.format.printing import unescape
from sawlog.format.query import OPERATORS, find_element, parse
from sawlog.guard import Undecodable, decode_json
from sawlog.storage import Storage

_READING = "Options of reading"
_WRITING = "Options of writing"
"""Headings of the help below which options are that commands share."""
_read_option = partial(typer.Option, rich_help_panel=_READING)
_write_option = partial(typer.Option, rich_help_panel=_WRITING)

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Files, directories, globs or fsspec URLs.")]
FormatName = Annotated[
    str | None,
    _read_option(
        "--format",
        metavar="NAME",
        help="Format of the files; recognised if not given.",
        autocompletion=completion.complete_formats,
    ),
]
View = Annotated[
    str,
    _read_option(
        "--view",
        metavar="NAME",
        help="View of the bytes; sawlog formats lists them.",
        autocompletion=completion.complete_views,
    ),
]
Columns = Annotated[
    list[str] | None,
    _read_option(
        "--columns",
        metavar="A,B",
        help="Columns, in order; also _file and _offset.",
        autocompletion=completion.complete_columns,
    ),
]
Where = Annotated[
    list[str] | None,
    _read_option(
        "--filter",
        metavar='"COL OP VALUE"',
        help="Rows that meet a condition, or all of several. OP: = != < <= > >= in, not in, like, ~ (regex), is null.",
    ),
]
Provenance = Annotated[bool, _read_option("--provenance", help="Append _file and _offset: where a row came from.")]
ReadOptions = Annotated[
    list[str] | None,
    _read_option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="Option for reading the format.",
        autocompletion=completion.complete_options,
    ),
]
WriteOptions = Annotated[
    list[str] | None, _write_option("-O", "--write-option", metavar="KEY=VALUE", help="Option for writing.")
]
PartitionBy = Annotated[
    str | None,
    _write_option(
        "--partition-by",
        metavar="COLUMN",
        help="Column with the partition of each row, where the format of DST has partitions.",
    ),
]
SchemaFile = Annotated[str | None, typer.Option("--schema", metavar="FILE", help="Deephaven .schema file.")]
SparkSettings = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark.")]
StorageOptions = Annotated[
    list[str] | None,
    _read_option(
        "--storage",
        metavar="KEY=VALUE",
        help="Option of the store, such as endpoint_url; JSON where the value is JSON.",
    ),
]
Threads = Annotated[
    int | None,
    _read_option("--threads", metavar="N", min=1, help="Number of threads that decode; all cores if not given."),
]
NoClobber = Annotated[bool, _write_option("--no-clobber", help="Do not replace a file that is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Machine output on stdout: one JSON object.")]


@dataclass(frozen=True, slots=True)
class Selection:
    """Options of commands that choose rows and columns."""

    view: View = "rows"
    columns: Columns = None
    where: Where = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of commands that say how files are read."""

    option: ReadOptions = None
    threads: Threads = None
    storage: StorageOptions = None

    def collect_settings(
        self, storage: Storage | None = None, call: Callable[..., Any] = sawlog.open
    ) -> dict[str, Any]:
        """Return the options as arguments of `sawlog.open`, or of a function that takes the same.

        Args:
            storage: The storage that is in use, if there is one.
            call: The function.
        """
        return {
            "storage_options": parse_storage_options(self.storage) if storage is None else storage,
            "use_threads": True if self.threads is None else self.threads,
            **parse_format_options(self.option, call=call),
        }


class OnDamage(StrEnum):
    """The damage policy."""

    FAIL = "fail"
    SKIP = "skip"


_CONDITION = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<column>[^\s=!<>~]+))
    (?:\s*(?P<symbol>[=!<>]=|!~|[=<>~])
    |\s+(?P<word>(?:not\s+)?in(?=[\s(\[])|(?:not\s+)?like\b|is\s+(?:not\s+)?null(?=\s*$)))(?P<value>.*)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


def parse_key_values(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """Return the texts `KEY=VALUE` as a dictionary.

    Raises:
        OptionError: For a text without `=`.
    """
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            culprit = "" if flag == "--storage" else f" {text!r}"  # it may be a password
            raise OptionError(f"{flag}{culprit}: expected KEY=VALUE")
        pairs[key.strip()] = value
    return pairs


_GENERAL = ("index",)
"""Arguments of `sawlog.open` that are given as options of a format are."""


def parse_format_options(
    texts: Iterable[str] | None, flag: str = "-o", call: Callable[..., Any] = sawlog.open
) -> dict[str, Any]:
    """Return options of a format, as a function takes them besides its own arguments.

    Raises:
        OptionError: Also for what has an option of its own.
    """
    options: dict[str, Any] = {**parse_key_values(texts, flag)}
    for name in {**inspect.signature(sawlog.open).parameters, **inspect.signature(call).parameters}:
        if name in options and name not in _GENERAL:
            raise OptionError(f"{flag} {name}: not an option of a format; see --help for how to give it")
    return options


def parse_storage_options(texts: Iterable[str] | None) -> dict[str, Any]:
    """Return options of a store: values are JSON where they can be read as JSON, text otherwise."""
    options: dict[str, Any] = {}
    for key, value in parse_key_values(texts, "--storage").items():
        decoded = decode_json(value)
        options[key] = value if isinstance(decoded, Undecodable) else decoded
    return options


def parse_column_names(texts: Iterable[str] | None) -> list[str] | None:
    """Return names from texts with commas; `None` when nothing is given."""
    if texts is None:
        return None
    return [name.strip() for text in texts for name in text.split(",") if name.strip()] or None


def open_dataset(
    paths: list[str],
    reading: Reading,
    selection: Selection,
    storage: Storage | None = None,
    *,
    format: str | None,
    on_damage: str,
    provenance: bool = False,
) -> Dataset:
    """Return the dataset that `sawlog.open` opens, with texts of filters understood by the types of the columns."""
    settings = reading.collect_settings(Storage(parse_storage_options(reading.storage)) if storage is None else storage)
    settings["view"] = selection.view
    filters = None
    if selection.where:
        dataset = sawlog.open(paths, format=format, **settings)
        format = dataset.format.name
        filters = parse_where(selection.where, list_available_columns(dataset.contents))
    return sawlog.open(
        paths,
        format=format,
        columns=parse_column_names(selection.columns),
        filters=filters,
        on_damage="fail" if on_damage == "fail" else "skip",
        provenance=provenance,
        **settings,
    )


def parse_where(texts: Iterable[str], schema: pa.Schema) -> list[tuple[str, str, Any]]:
    """Return filters from texts like `price >= 1.5`, `name in (a, b)`, `name like a%` or `name is null`.

    Raises:
        OptionError: For a text of another shape, or an operator that the column does not have.
        SchemaError: For an unknown column, or a value that does not fit its type.
    """
    filters = []
    for text in texts:
        context = f"--filter {text!r}"
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise OptionError(f"{context}: expected COLUMN OP VALUE with OP one of {', '.join(OPERATORS)}")
        column, value = match["quoted"] or match["column"], match["value"].strip()
        op = " ".join((match["symbol"] or match["word"]).lower().split())
        *_, kind = find_element(column, schema, context)
        try:
            condition = (column, op, _parse_operand(value, op, kind))
        except (pa.ArrowException, ValueError) as error:
            raise SchemaError(f"{context}: column {column!r} is {kind}: {error}") from error
        parse(condition, schema, context)
        filters.append(condition)
    return filters


def _parse_operand(text: str, op: str, kind: pa.DataType) -> Any:
    if op in ("in", "not in"):
        inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
        return [_parse_value(item.strip(), kind) for item in inner.split(",")]
    if op.endswith("null"):
        return None
    return _unquote(text) if op.endswith(("like", "~")) else _parse_value(text, kind)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def _parse_value(text: str, kind: pa.DataType) -> Any:
    """Return a Python value of the Arrow type `kind`, as filters take it."""
    text = _unquote(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return unescape(text)
    scalar = make_scalar(text, pa.string()).cast(kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetime has no nanoseconds.
        return scalar.value if scalar.value % 1000 else scalar.cast(pa.timestamp("us", kind.tz)).as_py()
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    return scalar.as_py()
