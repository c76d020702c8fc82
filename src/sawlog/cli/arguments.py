"""Arguments that several verbs share, and what their texts mean."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import json
import operator
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
import typer

import sawlog
from sawlog.cli import completion
from sawlog.cli.render import unescape
from sawlog.errors import OptionError, SchemaError
from sawlog.filters import OPERATORS, element_of
from sawlog.format import PROVENANCE, Dataset
from sawlog.spelling import meant
from sawlog.storage import Storage

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
    ),
]
View = Annotated[
    str,
    typer.Option(
        "--view",
        metavar="NAME",
        help="Which view of the bytes; sawlog formats lists them.",
        autocompletion=completion.views,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Columns to deliver, in order.",
        show_default=False,
        autocompletion=completion.columns,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar='"COL OP VALUE"',
        help="Rows that meet a condition; all of several. OP: = != < <= > >= in, not in, like, ~ (regex), is null.",
        show_default=False,
    ),
]
Provenance = Annotated[bool, typer.Option("--provenance", help="Append _file and _offset: where a row came from.")]
ReadOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="Option for reading the format.",
        show_default=False,
        autocompletion=completion.options,
    ),
]
WriteOptions = Annotated[
    list[str] | None,
    typer.Option("-O", "--write-option", metavar="KEY=VALUE", help="Option for writing.", show_default=False),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="Column that tells the partition of each row, where the format of DST has partitions.",
        show_default=False,
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
        help="What fsspec needs to reach the path; JSON where the value is JSON.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", min=1, help="How many threads decode; all cores if not given.", show_default=False
    ),
]
NoClobber = Annotated[bool, typer.Option("--no-clobber", help="Leave a file alone that is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Machine output on stdout: one JSON object.")]


class OnDamage(StrEnum):
    """The damage policy."""

    FAIL = "fail"
    SKIP = "skip"


_SYMBOLS = sorted((op for op in OPERATORS if not op.endswith(("in", "~"))), key=len, reverse=True)
_CONDITION = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<column>[^\s=!<>]+))"""
    rf"""(?:\s*(?P<op>{"|".join(map(re.escape, _SYMBOLS))})|\s+(?P<member>not\s+in|in)(?=[\s(\[]))(?P<value>.*)""",
    re.DOTALL,
)


_PATTERN = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<column>[^\s=!<>~]+))
    (?:(?:\s+(?=\w)|\s*(?=[!~]))(?P<op>not\s+like|like|!~|~)\s*(?P<value>.+)|\s+(?P<null>is\s+null|is\s+not\s+null))\s*""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
"""Conditions that are no comparison: patterns, and nulls."""


def key_values(given: Iterable[str] | None, flag: str) -> dict[str, str]:
    """The texts `KEY=VALUE` as a dictionary.

    Raises:
        OptionError: For a text without `=`.
    """
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OptionError(f"{flag} {text!r}: expected KEY=VALUE")
        pairs[key.strip()] = value
    return pairs


def format_options(given: Iterable[str] | None, flag: str = "-o") -> dict[str, Any]:
    """Options of a format, as `sawlog.open` takes them.

    Raises:
        OptionError: Also for what has an option of its own.
    """
    options: dict[str, Any] = {**key_values(given, flag)}
    for name in inspect.signature(sawlog.open).parameters:
        if name in options:
            raise OptionError(f"{flag} {name}: not an option of a format; see --help for how to give it")
    return options


def storage_options(given: Iterable[str] | None) -> dict[str, Any]:
    """Options for fsspec: values are JSON where they can be read as JSON, text otherwise."""
    options: dict[str, Any] = {}
    for key, value in key_values(given, "--storage").items():
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def column_names(given: Iterable[str] | None) -> list[str] | None:
    """Names from texts with commas; `None` when nothing is given."""
    if given is None:
        return None
    return [name.strip() for text in given for name in text.split(",") if name.strip()] or None


def open_dataset(
    paths: list[str],
    *,
    format: str | None,
    view: str,
    storage: Mapping[str, Any] | Storage,
    options: Mapping[str, Any],
    columns: list[str] | None = None,
    where: list[str] | None = None,
    on_damage: str = "skip",
    provenance: bool = False,
    threads: int | None = None,
) -> Dataset:
    """`sawlog.open` with the texts of filters understood by the types of the columns."""
    if not isinstance(storage, Storage):
        storage = Storage(storage)

    def opened(**wanted: Any) -> Dataset:
        use_threads = True if threads is None else threads
        given = {**wanted, **options}
        return sawlog.open(paths, format=format, view=view, storage_options=storage, use_threads=use_threads, **given)

    filters = expression = None
    if where:
        dataset = opened()
        format = dataset.format.name
        filters, expression = understood(where, dataset.schema, dataset.extra_columns())
    return opened(
        columns=columns,
        filter=expression,
        filters=filters,
        on_damage="fail" if on_damage == "fail" else "skip",
        provenance=provenance,
    )


def understood(
    texts: Iterable[str], schema: pa.Schema, extra: Iterable[pa.Field] = PROVENANCE
) -> tuple[list[tuple[str, str, Any]], Any]:
    """Comparisons as filters, and what looks for patterns and nulls as one expression; None if there is no such text.

    Raises:
        OptionError: For a text of another shape.
        SchemaError: For an unknown column, or a value that does not fit its type.
    """
    texts, extra = list(texts), list(extra)
    patterns = [(text, match) for text in texts if (match := _PATTERN.fullmatch(text)) is not None]
    every = pa.schema([*schema, *(field for field in extra if field.name not in schema.names)])
    filters = [one for text, match in patterns for one in _element(match, every)]
    found = [_pattern(text, match, schema, extra) for text, match in patterns if not _element(match, every)]
    rest = [text for text in texts if _PATTERN.fullmatch(text) is None]
    expression = functools.reduce(operator.and_, found) if found else None
    return [*parse_where(rest, schema, extra), *filters], expression


def _element(match: re.Match[str], schema: pa.Schema) -> list[tuple[str, str, Any]]:
    """A regular expression for one key of maps as a filter; nothing for other patterns."""
    name = match["quoted"] or match["column"]
    if name in schema.names or element_of(name, schema) is None or match["op"] not in ("~", "!~"):
        return []
    return [(name, match["op"], _unquoted(match["value"].strip()))]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def _pattern(text: str, match: re.Match[str], schema: pa.Schema, extra: Iterable[pa.Field]) -> Any:
    import pyarrow.compute as pc

    known = {field.name: field.type for field in (*extra, *schema)}
    name = match["quoted"] or match["column"]
    if name not in known:
        near = meant(name, known)
        raise SchemaError(f"--filter {text!r}: no column {name!r}{near}; columns: {', '.join(schema.names)}")
    column, op = pc.field(name), " ".join((match["op"] or match["null"]).lower().split())
    if op in ("is null", "is not null"):
        return column.is_null() if op == "is null" else column.is_valid()
    if not any(test(known[name]) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)):
        raise SchemaError(f"--filter {text!r}: column {name!r} is {known[name]}; {op} is for text and bytes")
    pattern = _unquoted(match["value"].strip())
    function = pc.match_like if op.endswith("like") else pc.match_substring_regex
    try:
        function(pa.array([""]), pattern)
    except pa.ArrowException as error:
        raise OptionError(f"--filter {text!r}: {str(error).splitlines()[0]}") from error
    found = function(column, pattern)
    return ~found if op.startswith(("not", "!")) else found


def parse_where(
    texts: Iterable[str], schema: pa.Schema, extra: Iterable[pa.Field] = PROVENANCE
) -> list[tuple[str, str, Any]]:
    """Filters from texts like `price >= 1.5` or `name in (a, b)`.

    Raises:
        OptionError: For a text of another shape.
        SchemaError: For an unknown column, or a value that does not fit its type.
    """
    every = pa.schema([*schema, *(field for field in extra if field.name not in schema.names)])
    filters = []
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise OptionError(f"--filter {text!r}: expected COLUMN OP VALUE with OP one of {', '.join(OPERATORS)}")
        column = match["quoted"] or match["column"]
        found = element_of(column, every)
        if found is None:
            raise SchemaError(f"--filter {text!r}: no column {column!r}; columns: {', '.join(schema.names)}")
        *_, kind = found
        op = match["op"] or " ".join(match["member"].split())
        try:
            value = _operand(match["value"].strip(), op, kind)
        except (pa.ArrowException, ValueError) as error:
            raise SchemaError(f"--filter {text!r}: column {column!r} is {kind}: {error}") from error
        filters.append((column, op, value))
    return filters


def _operand(text: str, op: str, kind: pa.DataType) -> Any:
    if op.endswith("in"):
        inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
        return [_value(item.strip(), kind) for item in inner.split(",")]
    return _value(text, kind)


def _value(text: str, kind: pa.DataType) -> Any:
    """A Python value of the Arrow type `kind`, as filters take it."""
    text = _unquoted(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return unescape(text)
    scalar = pa.scalar(text).cast(kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetime has no nanoseconds.
        return scalar.value if scalar.value % 1000 else scalar.cast(pa.timestamp("us", kind.tz)).as_py()
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    return scalar.as_py()
