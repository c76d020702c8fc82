"""Arguments that several commands share, and what their texts mean."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
import typer

import sawlog
from sawlog.arrow import scalar_of
from sawlog.cli import completion
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError, SchemaError
from sawlog.format.planning import available_columns
from sawlog.format.printing import unescape
from sawlog.format.query import OPERATORS, element_of, parse
from sawlog.guard import Undecodable, decode_json
from sawlog.storage import Storage

READING = "Options of reading"
WRITING = "Options of writing"
"""Headings of the help below which options are that commands share."""

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH", help="Files, directories, globs or fsspec URLs.", show_default=False),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the files; recognised if not given.",
        show_default=False,
        autocompletion=completion.formats,
        rich_help_panel=READING,
    ),
]
View = Annotated[
    str,
    typer.Option(
        "--view",
        metavar="NAME",
        help="View of the bytes; sawlog formats lists them.",
        autocompletion=completion.views,
        rich_help_panel=READING,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Columns, in order; also _file and _offset.",
        show_default=False,
        autocompletion=completion.columns,
        rich_help_panel=READING,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar='"COL OP VALUE"',
        help="Rows that meet a condition, or all of several. OP: = != < <= > >= in, not in, like, ~ (regex), is null.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Provenance = Annotated[
    bool, typer.Option("--provenance", help="Append _file and _offset: where a row came from.", rich_help_panel=READING)
]
ReadOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="Option for reading the format.",
        show_default=False,
        autocompletion=completion.options,
        rich_help_panel=READING,
    ),
]
WriteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-O",
        "--write-option",
        metavar="KEY=VALUE",
        help="Option for writing.",
        show_default=False,
        rich_help_panel=WRITING,
    ),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="Column with the partition of each row, where the format of DST has partitions.",
        show_default=False,
        rich_help_panel=WRITING,
    ),
]
SchemaFile = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="Deephaven .schema file.", show_default=False)
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark.", show_default=False),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="Option of the store, such as endpoint_url; JSON where the value is JSON.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="Number of threads that decode; all cores if not given.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
NoClobber = Annotated[
    bool, typer.Option("--no-clobber", help="Do not replace a file that is there already.", rich_help_panel=WRITING)
]
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

    def settings(self, storage: Storage | None = None, call: Callable[..., Any] = sawlog.open) -> dict[str, Any]:
        """Return them as arguments of `sawlog.open`, or of a function that takes the same.

        Args:
            storage: The storage that is in use, if there is one.
            call: The function.
        """
        return {
            "storage_options": storage_options(self.storage) if storage is None else storage,
            "use_threads": True if self.threads is None else self.threads,
            **format_options(self.option, call=call),
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


def key_values(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """The texts `KEY=VALUE` as a dictionary.

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


def format_options(
    texts: Iterable[str] | None, flag: str = "-o", call: Callable[..., Any] = sawlog.open
) -> dict[str, Any]:
    """Options of a format, as a function takes them besides its own arguments.

    Raises:
        OptionError: Also for what has an option of its own.
    """
    options: dict[str, Any] = {**key_values(texts, flag)}
    for name in {**inspect.signature(sawlog.open).parameters, **inspect.signature(call).parameters}:
        if name in options and name not in _GENERAL:
            raise OptionError(f"{flag} {name}: not an option of a format; see --help for how to give it")
    return options


def storage_options(texts: Iterable[str] | None) -> dict[str, Any]:
    """Options of a store: values are JSON where they can be read as JSON, text otherwise."""
    options: dict[str, Any] = {}
    for key, value in key_values(texts, "--storage").items():
        decoded = decode_json(value)
        options[key] = value if isinstance(decoded, Undecodable) else decoded
    return options


def column_names(texts: Iterable[str] | None) -> list[str] | None:
    """Names from texts with commas; `None` when nothing is given."""
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
    """`sawlog.open` with the texts of filters understood by the types of the columns."""
    settings = reading.settings(Storage(storage_options(reading.storage)) if storage is None else storage)
    settings["view"] = selection.view
    filters = None
    if selection.where:
        dataset = sawlog.open(paths, format=format, **settings)
        format = dataset.format.name
        filters = parse_where(selection.where, available_columns(dataset.contents))
    return sawlog.open(
        paths,
        format=format,
        columns=column_names(selection.columns),
        filters=filters,
        on_damage="fail" if on_damage == "fail" else "skip",
        provenance=provenance,
        **settings,
    )


def parse_where(texts: Iterable[str], schema: pa.Schema) -> list[tuple[str, str, Any]]:
    """Filters from texts like `price >= 1.5`, `name in (a, b)`, `name like a%` or `name is null`.

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
        *_, kind = element_of(column, schema, context)
        try:
            condition = (column, op, _operand(value, op, kind))
        except (pa.ArrowException, ValueError) as error:
            raise SchemaError(f"{context}: column {column!r} is {kind}: {error}") from error
        parse(condition, schema, context)
        filters.append(condition)
    return filters


def _operand(text: str, op: str, kind: pa.DataType) -> Any:
    if op in ("in", "not in"):
        inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
        return [_value(item.strip(), kind) for item in inner.split(",")]
    if op.endswith("null"):
        return None
    return _unquoted(text) if op.endswith(("like", "~")) else _value(text, kind)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def _value(text: str, kind: pa.DataType) -> Any:
    """A Python value of the Arrow type `kind`, as filters take it."""
    text = _unquoted(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return unescape(text)
    scalar = scalar_of(text, pa.string()).cast(kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetime has no nanoseconds.
        return scalar.value if scalar.value % 1000 else scalar.cast(pa.timestamp("us", kind.tz)).as_py()
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    return scalar.as_py()
