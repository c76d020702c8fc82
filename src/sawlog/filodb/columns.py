"""The columns of the views: their Arrow types, and where each layout keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.filodb import layout
from sawlog.filodb.layout import ColumnType
from sawlog.filodb.options import Extra, ReadOptions
from sawlog.filodb.schemas.record import Column, RecordSchema
from sawlog.filodb.selection import RecordLayout, Selection

_FieldKind = ColumnType | Literal["schema", "schema_id", "hash", "container_timestamp", "record"]

TYPE_KEY = b"sawlog.type"
"""Field metadata: the column in FiloDB's notation."""
SCHEMAS_KEY = b"sawlog.filodb_record.schemas"
"""Schema metadata: the definitions of the schemas that were read."""
RECORDS_KEY = b"sawlog.filodb_record.records"
"""Schema metadata: `ingestion` or `partkeys`."""

SCALARS = {
    **layout.SCALARS,
    "schema_id": layout.SCALARS["int"],
    "hash": layout.SCALARS["int"],
    "container_timestamp": layout.SCALARS["ts"],
}
"""The fields of fixed width."""
POINTED = {*get_args(ColumnType), "record"} - layout.SCALARS.keys()
"""The fields that are bytes of a record."""
_ARROW = {**{kind: scalar.arrow for kind, scalar in SCALARS.items()}, "schema": pa.string(), "record": pa.binary()}

CONTAINERS_SCHEMA = pa.schema(
    [
        pa.field("timestamp", layout.SCALARS["ts"].arrow, nullable=False),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("num_records", pa.int64(), nullable=False),
        pa.field("unused_bytes", pa.int64(), nullable=False),
    ]
)
"""Schema of the view `frames`; `num_bytes` is the length field, `unused_bytes` what follows the records."""

_NESTED_HEADS: tuple[Extra, ...] = ("schema_id", "hash")
"""What nested records with partition columns have besides them."""
_UNKNOWN_FIELDS: tuple[Extra, ...] = ("schema_id", "record")


@dataclass(frozen=True)
class ViewField:
    """Column of a view.

    Attributes:
        name: Its name.
        kind: The column type, or what else it is.
        sources: Per layout: the number of the column; None where the layout has none.
        arrow: The Arrow field.
        nested: For `br` columns: the fields of the nested records.
        nested_schema: For `br` columns: their layout.
    """

    name: str
    kind: _FieldKind
    sources: tuple[int | None, ...]
    arrow: pa.Field
    nested: tuple[ViewField, ...] = ()
    nested_schema: RecordSchema | None = None


class ViewColumns(NamedTuple):
    """Columns of a view, and those that can be asked for besides.

    Attributes:
        schema: Those of the view.
        extra: The others.
        fields: All of them.
    """

    schema: pa.Schema
    extra: tuple[pa.Field, ...]
    fields: tuple[ViewField, ...]


@lru_cache(maxsize=8)  # files that are opened one by one mostly have the same schemas
def make_columns(
    selection: Selection, options: ReadOptions, view: str = "rows", *, by_type: bool = False
) -> ViewColumns:
    """Return the columns of a view, with the metadata that the writer needs to make the same records again.

    Args:
        selection: What is read.
        options: How it is delivered.
        view: The view.
        by_type: Whether columns of one name and different types are told apart by their types.

    Raises:
        SchemaError: When a column has different types in different schemas, or part keys are asked for of records
            without partition columns.
    """
    is_series = view == "partkeys"
    fields = _make_series_fields(selection, options) if is_series else _make_row_fields(selection, options, by_type)
    kinds: tuple[Extra, ...] = get_args(Extra) if view == "rows" else ()
    extra = tuple(_make_extra_field(f"_{kind}", kind, selection) for kind in kinds)
    records = "partkeys" if is_series or selection.part_keys else "ingestion"
    metadata = {SCHEMAS_KEY: selection.definitions.encode(), RECORDS_KEY: records.encode()}
    named = {field.name for field in fields}
    return ViewColumns(
        pa.schema([field.arrow for field in fields], metadata=metadata),
        tuple(field.arrow for field in extra),
        (*fields, *(field for field in extra if field.name not in named)),
    )


def _make_row_fields(selection: Selection, options: ReadOptions, by_type: bool) -> tuple[ViewField, ...]:
    """Return columns of the view `rows`: those of all layouts, and the extra ones.

    Raises:
        SchemaError: When a column has different types in different schemas.
    """
    layouts = selection.layouts
    fields = list(_make_fields(layouts, options, selection.raw, by_type=by_type))
    extra_names = list(options.extras)
    if len(layouts) > 1 and "schema" not in extra_names:
        fields.insert(0, _make_extra_field("_schema", "schema", selection))
    if selection.raw:
        extra_names += [kind for kind in _UNKNOWN_FIELDS if kind not in extra_names]
    return (*fields, *(_make_extra_field(f"_{kind}", kind, selection) for kind in extra_names))


def _make_series_fields(selection: Selection, options: ReadOptions) -> tuple[ViewField, ...]:
    """Return columns of the view `partkeys`: schema, hash, and the partition columns.

    Raises:
        SchemaError: When records have no partition columns.
    """
    if selection.plain:
        raise SchemaError(f"records of schema {selection.layouts[0].name!r} have no partition columns, so no part keys")
    heads = (_make_extra_field("schema", "schema", selection), _make_extra_field("schema_id", "schema_id", selection))
    columns = _make_fields(selection.layouts, options, False)
    records = [layout.record for layout in selection.layouts]
    names = {column.name for record in records for column in record.columns[record.partition_field_start or 0 :]}
    partition = tuple(field for field in columns if field.name in names)
    return (*heads, _make_extra_field("partition_hash", "hash", selection), *partition)


def _make_fields(
    layouts: tuple[RecordLayout, ...], options: ReadOptions, raw: bool, *, by_type: bool = False
) -> tuple[ViewField, ...]:
    """Return the columns of all layouts: data columns first, then partition columns, in the order they are found."""

    def make_name(column: Column) -> str:
        return f"{column.name}:{column.type}" if by_type else column.name

    order: dict[str, Column] = {}
    keys: dict[str, Column] = {}
    indexes: list[dict[str, int]] = []
    for file_layout in layouts:
        start = file_layout.record.partition_field_start
        index_of: dict[str, int] = {}
        indexes.append(index_of)
        for index, column in enumerate(file_layout.record.columns):
            name = make_name(column)
            index_of.setdefault(name, index)
            target = keys if start is not None and index >= start else order
            same_name = target.setdefault(name, column)
            if same_name.type != column.type:
                raise SchemaError(
                    f"column {column.name!r} is {same_name.type} in one schema and {column.type} in another:"
                    " read them one at a time, with schema="
                )
    fields = []
    for name, column in {**order, **keys}.items():
        sources = tuple(index_of.get(name) for index_of in indexes)
        first = next(i for i, source in enumerate(sources) if source is not None)
        nested = layouts[first].record.br_schemas.get(sources[first] or 0)
        field = _make_column_field(column, sources, options, raw or None in sources, nested)
        fields.append(replace(field, name=name, arrow=field.arrow.with_name(name)) if by_type else field)
    return tuple(fields)


def _make_column_field(
    column: Column, sources: tuple[int | None, ...], options: ReadOptions, nullable: bool, nested: RecordSchema | None
) -> ViewField:
    children: tuple[ViewField, ...] = ()
    if column.type == "br" and nested is not None:
        children = tuple(
            _make_column_field(inner, (index,), options, True, nested.br_schemas.get(index))
            for index, inner in enumerate(nested.columns)
        )
        if nested.has_partition:
            children += tuple(
                ViewField(f"_{kind}", kind, (None,), pa.field(f"_{kind}", _ARROW[kind])) for kind in _NESTED_HEADS
            )
    arrow = pa.field(
        column.name,
        _choose_arrow_type(column.type, options, children),
        nullable=nullable,
        metadata={TYPE_KEY: str(column)},
    )
    return ViewField(column.name, column.type, sources, arrow, children, nested if children else None)


def _choose_arrow_type(kind: ColumnType, options: ReadOptions, children: Sequence[ViewField]) -> pa.DataType:
    text = pa.string() if options.strings == "utf8" else pa.binary()
    if kind == "string":
        return text
    if kind == "map":
        return pa.map_(text, text)
    if kind == "hist":
        return _make_histogram_type(options) if options.histograms == "struct" else pa.binary()
    if kind == "br":
        return pa.struct([child.arrow for child in children]) if children else pa.binary()
    return _ARROW[kind]


def _make_histogram_type(options: ReadOptions) -> pa.DataType:
    """Return the struct of a histogram: tops, cumulative values, the stored bucket definition, and what is wanted."""
    fields = [
        pa.field("tops", pa.list_(pa.float64())),
        pa.field("values", pa.list_(pa.float64())),
        pa.field("buckets", pa.binary()),
        *(pa.field(name, pa.float64()) for name in options.statistics),
    ]
    if options.quantiles:
        fields.append(pa.field("quantiles", pa.list_(pa.float64())))
    return pa.struct(fields)


def _make_extra_field(name: str, kind: _FieldKind, selection: Selection) -> ViewField:
    """Return a column that is no column of the record. Raw records, whose schema is unknown, have only some of them."""
    nullable = selection.raw and kind in ("schema", "hash")
    if selection.plain:
        nullable = nullable or kind in ("hash", "schema_id")
    return ViewField(name, kind, (), pa.field(name, _ARROW[kind], nullable=nullable))
