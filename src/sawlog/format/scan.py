"""Scans: what is wanted of a dataset, and the columns that have to be decoded for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import combine_table, evaluate_expressions, make_batch_from_rows
from sawlog.errors import OptionError, SchemaError, suggest_name
from sawlog.format.damage import OnDamage
from sawlog.format.query import (
    EVERY_ROW,
    And,
    bind_query,
    filter_batch,
    find_named_columns,
    list_columns,
    resolve_expression,
)
from sawlog.storage import Storage

FILE_COLUMN = "_file"
OFFSET_COLUMN = "_offset"
PROVENANCE = (pa.field(FILE_COLUMN, pa.string(), nullable=False), pa.field(OFFSET_COLUMN, pa.int64(), nullable=False))
"""Columns that every reader can add: the file a row came from, and its byte offset there."""
BYTES_COLUMN = "_bytes"
DAMAGED_BYTES = 64 << 10
"""Bytes of a damaged range that are delivered, at most."""
DAMAGE_EXTRA = (*PROVENANCE, pa.field(BYTES_COLUMN, pa.binary()))
"""Columns that can be asked for by name in the view `damage`: those, and the first bytes of the damaged range."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """Table below a path, as catalogs list it.

    Attributes:
        namespace: What its name belongs to: a database.
        name: Its name there.
        options: The read options that name it.
    """

    namespace: str
    name: str
    options: dict[str, str]

    @property
    def title(self) -> str:
        """Both of its names."""
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class Scan:
    """Columns, filters and options of a read. Picklable, shared by all fragments of a dataset.

    Attributes:
        view: The view being read.
        columns: Names, in order, or a dictionary of names and the expressions that make them; `None` for all
            columns of the view.
        filters: Conditions that every returned row satisfies, or lists of conditions of which it satisfies one.
        expression: A `pyarrow.compute.Expression` that holds for every returned row, too.
        on_damage: The damage policy.
        provenance: Whether `_file` and `_offset` are appended when `columns` is `None`.
        options: The format's own read options.
        storage: Where the bytes are.
        schema: The columns that the view is to have, whatever those of the files are; see `fix_schema`.
        roots: The paths that were named, by which a format sees what is outside of them.
        threads: How many threads decode.
        is_format_named: Whether the user has named the format, and so left out what is of others.
    """

    view: str = "rows"
    columns: tuple[str, ...] | dict[str, Any] | None = None
    filters: tuple[tuple[str, str, Any] | list[tuple[str, str, Any]], ...] = ()
    on_damage: OnDamage = "fail"
    provenance: bool = False
    options: Any = None
    storage: Storage = field(default_factory=Storage)
    schema: pa.Schema | None = None
    roots: tuple[str, ...] = ()
    expression: Any = None
    threads: int = 1
    is_format_named: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled.

        Raises:
            SchemaError: For an expression by position, for which Arrow has no bytes.
        """
        computed = self.columns.values() if isinstance(self.columns, dict) else ()
        for expression in (self.expression, *computed):
            if expression is not None and find_named_columns(expression) is None:
                raise SchemaError(f"{expression}: an expression by position cannot be pickled; name its columns")
        return vars(self)


Columns: TypeAlias = Sequence[str] | Mapping[str, Any]
"""Names of columns, or names and the `pyarrow.compute.Expression` that makes each."""


def parse_columns(columns: Columns | None) -> tuple[str, ...] | dict[str, Any] | None:
    """Return the value of `columns=`, checked.

    Raises:
        OptionError: When it is something else.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        import pyarrow.compute as pc

        for name, expression in columns.items():
            if not isinstance(name, str) or not isinstance(expression, pc.Expression):
                expectation = "a name and a pyarrow.compute.Expression, such as pc.field('key')"
                raise OptionError(f"columns={{{name!r}: {expression!r}}}: expected {expectation}")
        return dict(columns)
    if (
        isinstance(columns, str)
        or not isinstance(columns, Sequence)
        or not all(isinstance(name, str) for name in columns)
    ):
        raise OptionError(f"columns={columns!r}: expected a list of names, or a dict of names and expressions")
    return tuple(columns)


def parse_filter(expression: Any) -> Any:
    """Return the value of `filter=`, checked.

    Raises:
        OptionError: When it is something else.
    """
    if expression is not None:
        import pyarrow.compute as pc

        if not isinstance(expression, pc.Expression):
            kind = type(expression).__name__
            raise OptionError(f"filter is {kind}: expected a pyarrow.compute.Expression; filters= takes tuples")
    return expression


def resolve_sources(expressions: Mapping[str, Any], schema: pa.Schema, viewed: pa.Schema) -> tuple[pa.Schema, set[str]]:
    """Return the schema of computed columns, and the columns, some of `viewed` by position, that they are computed of.

    Raises:
        SchemaError: When an expression does not fit the columns.
    """
    fits = {
        name: resolve_expression(expression, schema, viewed, _render_expressions({name: expression}))
        for name, expression in expressions.items()
    }
    sources = frozenset().union(*(columns for _, columns in fits.values()))
    return pa.schema([(name, kind) for name, (kind, _) in fits.items()]), set(sources)


def _compute_columns(batch: pa.RecordBatch, expressions: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns that expressions make of a batch.

    Raises:
        SchemaError: When a value cannot be computed.
    """
    if not batch.num_rows:
        return make_batch_from_rows([], schema)
    return combine_table(
        evaluate_expressions(pa.Table.from_batches([batch]), expressions, _render_expressions(expressions))
    )


def _render_expressions(expressions: Mapping[str, Any]) -> str:
    return f"columns={{{', '.join(f'{name!r}: {expression}' for name, expression in expressions.items())}}}"


@dataclass(frozen=True)
class Projection:
    """The columns of a scan, resolved against the schema of its view."""

    schema: pa.Schema
    """What is delivered."""
    decoded: pa.Schema
    """What has to be decoded for it: the delivered columns and those that filters need."""
    query: And = EVERY_ROW
    """What holds for every returned row, for formats to prune by, too."""
    computed: Mapping[str, Any] | None = None
    """The expressions that make the delivered columns, where these are computed."""

    @classmethod
    def of(cls, view_schema: pa.Schema, scan: Scan, extra: Iterable[pa.Field] = PROVENANCE) -> Projection:
        """Resolve the columns and filters of a scan.

        Raises:
            SchemaError: For a column that the view does not have.
        """
        if scan.columns is None and not (scan.provenance or scan.filters or scan.expression is not None):
            return cls(view_schema, view_schema.remove_metadata())
        viewed = dict.fromkeys(view_schema.names)
        full_schema = pa.schema([*view_schema, *(f for f in extra if f.name not in viewed)])
        known_names = dict.fromkeys(full_schema.names)
        computed = scan.columns if isinstance(scan.columns, dict) else None
        names: Collection[str]
        if computed is not None:
            schema, names = resolve_sources(computed, full_schema, view_schema)
            names = names or {
                OFFSET_COLUMN if OFFSET_COLUMN in known_names else full_schema.names[0]
            }  # which counts the rows
        else:
            names = _choose_columns(scan, viewed, known_names)
            schema = pa.schema([full_schema.field(name) for name in names], metadata=view_schema.metadata)
        query = bind_query(scan.filters, scan.expression, full_schema, view_schema)
        read_names = {*names, *list_columns(query)}
        return cls(schema, pa.schema([f for f in full_schema if f.name in read_names]), query, computed)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a decoded batch and bring it to the delivered columns."""
        batch = filter_batch(self.query, batch)
        if self.computed is not None:
            return _compute_columns(batch, self.computed, self.schema)
        if batch.schema.names == self.schema.names:
            return batch.replace_schema_metadata(self.schema.metadata) if self.schema.metadata else batch
        return pa.RecordBatch.from_arrays([batch.column(name) for name in self.schema.names], schema=self.schema)


def _choose_columns(scan: Scan, viewed: Collection[str], known_names: Collection[str]) -> Collection[str]:
    """Return the names of the columns to deliver."""
    if scan.columns is None:
        return [*viewed, *(f.name for f in PROVENANCE if scan.provenance and f.name not in viewed)]
    for name in scan.columns:
        if name not in known_names:
            near = suggest_name(name, known_names)
            raise SchemaError(f"no column {name!r} in view {scan.view!r}{near}; columns: {', '.join(known_names)}")
    return list(scan.columns)


_WIDENED = "start it again where it has stopped, with widen=True, and with that type in its schema if it was given one"
"""Advice of `fix_schema` where a stream can go on with a wider type."""
_CHANGED = "files of another type need a path, and a stream, of their own"
"""Advice of `fix_schema` where no type holds the values of both."""


def fix_schema(fixed: pa.Schema, schema: pa.Schema, files: str) -> pa.Schema:
    """Return the columns of a begun stream for files that came later: what they lack is null, new ones are left out.

    Raises:
        SchemaError: When a column has become another.
    """
    fields = []
    for fixed_field in fixed:
        place = schema.get_field_index(fixed_field.name)
        field = schema.field(place) if place >= 0 else fixed_field.with_nullable(True)
        if field.type != fixed_field.type:
            if not is_wider(fixed_field.type, field.type):
                raise SchemaError(
                    f"{files}: column {fixed_field.name!r} is {field.type}; the stream began with {fixed_field.type}: "
                    + (_WIDENED if is_wider(field.type, fixed_field.type) else _CHANGED)
                )
            field = fixed_field
        fields.append(fixed_field if field.nullable and not fixed_field.nullable else field)
    return pa.schema(fields, metadata=schema.metadata)


def is_wider(kind: pa.DataType, narrow: pa.DataType) -> bool:
    """Return whether every number of another type is one of this."""
    for test in (pa.types.is_signed_integer, pa.types.is_floating):
        if test(kind) and test(narrow):
            return bool(kind.bit_width > narrow.bit_width)
    return False
