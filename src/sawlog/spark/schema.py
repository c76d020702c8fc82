"""Arrow types as Spark's, and back; the schema of a user checked against that of the data."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as arrow
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, call_decoder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from sawlog.format.contract import Format

_ORIGINAL_KEY = "sawlog.arrow"
"""Key in the metadata of a Spark column: its Arrow field as an IPC schema in base64, where Spark's types lost some."""
_METADATA_PREFIX = "sawlog."

_SESSION_TIMEZONE = "UTC"
"""Spark hands timestamps over in this zone, whatever the session's is."""

_MAX_PRECISION = 38
_TIME: Callable[[], DataType] | None = getattr(spark, "TimeType", None)
_LAYOUTS = ("list_view", "run_end_encoded")
"""Types that Arrow has no way to cast back to; they say how values lie in memory, nothing of what they are."""

_Test = Callable[[pa.DataType], bool]
_SIMPLE: tuple[tuple[_Test, DataType], ...] = (
    (arrow.is_null, spark.NullType()),
    (arrow.is_boolean, spark.BooleanType()),
    (arrow.is_int8, spark.ByteType()),
    (arrow.is_int16, spark.ShortType()),
    (arrow.is_int32, spark.IntegerType()),
    (arrow.is_int64, spark.LongType()),
    (arrow.is_uint8, spark.ShortType()),
    (arrow.is_uint16, spark.IntegerType()),
    (arrow.is_uint32, spark.LongType()),
    (arrow.is_uint64, spark.DecimalType(20, 0)),
    (arrow.is_float16, spark.FloatType()),
    (arrow.is_float32, spark.FloatType()),
    (arrow.is_float64, spark.DoubleType()),
    (arrow.is_string, spark.StringType()),
    (arrow.is_large_string, spark.StringType()),
    (arrow.is_string_view, spark.StringType()),
    (arrow.is_binary, spark.BinaryType()),
    (arrow.is_large_binary, spark.BinaryType()),
    (arrow.is_binary_view, spark.BinaryType()),
    (arrow.is_fixed_size_binary, spark.BinaryType()),
    (arrow.is_date, spark.DateType()),
    (arrow.is_duration, spark.DayTimeIntervalType()),
)
_LISTS = (arrow.is_list, arrow.is_large_list, arrow.is_fixed_size_list, arrow.is_list_view, arrow.is_large_list_view)


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is any kind of list."""
    return any(test(kind) for test in _LISTS)


def has_integers(kind: pa.DataType) -> bool:
    """Return whether values are 64-bit integers in a unit of time, so that BIGINT holds the column without loss."""
    return bool(arrow.is_timestamp(kind) or arrow.is_duration(kind) or arrow.is_time64(kind))


def _make_spark_type(kind: pa.DataType, description: str) -> DataType:
    """Return the Spark type that holds an Arrow type.

    Raises:
        SchemaError: When Spark has no such type.
    """
    for test, simple in _SIMPLE:
        if test(kind):
            return simple
    if arrow.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if arrow.is_time(kind) and _TIME is not None:
        return _TIME()
    if arrow.is_decimal(kind) and kind.precision <= _MAX_PRECISION and kind.scale >= 0:
        return spark.DecimalType(kind.precision, kind.scale)
    if arrow.is_dictionary(kind) or arrow.is_run_end_encoded(kind):
        return _make_spark_type(kind.value_type, description)
    if isinstance(kind, pa.BaseExtensionType):
        return _make_spark_type(kind.storage_type, description)
    if is_list(kind):
        return spark.ArrayType(_make_spark_type(kind.value_type, f"{description}, element"), kind.value_field.nullable)
    if arrow.is_map(kind):
        key = _make_spark_type(kind.key_type, f"{description}, key")
        return spark.MapType(key, _make_spark_type(kind.item_type, f"{description}, value"), kind.item_field.nullable)
    if arrow.is_struct(kind):
        return spark.StructType([make_spark_field(kind.field(i), f"{description}, ") for i in range(kind.num_fields)])
    raise SchemaError(
        f"{description}: Spark {find_spark_version()} has no type for Arrow's {kind}; leave the column out"
    )


def make_spark_field(field: pa.Field, description: str = "") -> spark.StructField:
    """Return an Arrow field as a Spark one, with the metadata that brings it back. See `_make_spark_type`."""
    kind = _make_spark_type(field.type, f"{description}column {field.name!r}")
    metadata = {
        key.decode(): value.decode(errors="replace")
        for key, value in (field.metadata or {}).items()
        if key.startswith(_METADATA_PREFIX.encode())
    }
    converted = spark.StructField(field.name, kind, field.nullable)
    (back,) = make_arrow_schema(spark.StructType([converted]))
    if not description and back.type != field.type and not any(layout in str(field.type) for layout in _LAYOUTS):
        metadata[_ORIGINAL_KEY] = base64.b64encode(pa.schema([field]).serialize()).decode()
    return spark.StructField(field.name, kind, field.nullable, metadata)


def make_spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as a Spark one. See `_make_spark_type`."""
    return spark.StructType([make_spark_field(field) for field in schema])


def make_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the exact Arrow schema that Spark wants of the batches it is given."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone=_SESSION_TIMEZONE)
    return to_arrow_schema(schema)  # before 4.2, UTC is the default


def restore_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that a sink hands to the format, with types and metadata of columns that sawlog read."""
    fields = []
    for spark_field, plain in zip(schema.fields, make_arrow_schema(schema), strict=True):
        metadata = {
            key: str(value)
            for key, value in (spark_field.metadata or {}).items()
            if key.startswith(_METADATA_PREFIX) and key != _ORIGINAL_KEY
        }
        field = _restore_field(spark_field) or plain
        fields.append(
            field.with_name(spark_field.name).with_nullable(spark_field.nullable).with_metadata(metadata or None)
        )
    return pa.schema(fields)


def check_schema(user_schema: StructType, available: pa.Schema, description: str) -> None:
    """Check a schema that a user gave against the columns that there are.

    Args:
        user_schema: The requested columns; names, types and case must be those of the data. Temporal columns of 64 bits
            may also be asked for as BIGINT: the integer, in the unit of the column. Columns may be NOT NULL whatever
            the data says, which is then checked batch by batch (see `cast_batch`); values within them may not.
        available: The columns that the view has.
        description: What has them, for messages.

    Raises:
        SchemaError: Names the column, and what was expected.
    """
    if not user_schema.fields:
        raise SchemaError(f"{description}: the schema given to Spark has no column; columns: {_render_ddl(available)}")
    for user_field in user_schema.fields:
        if user_field.name not in available.names:
            similar = [name for name in available.names if name.lower() == user_field.name.lower()]
            hint = f"did you mean {similar[0]!r}? Case matters" if similar else f"columns: {_render_ddl(available)}"
            raise SchemaError(f"{description}: no column {user_field.name!r}; {hint}")
        field = available.field(user_field.name)
        if isinstance(user_field.dataType, spark.LongType) and has_integers(field.type):
            continue
        available_type = _make_spark_type(field.type, f"{description}: column {user_field.name!r}")
        if make_nullable(user_field.dataType) != make_nullable(available_type):
            raise SchemaError(
                f"{description}: column {user_field.name!r} is {available_type.simpleString()};"
                f" the schema given to Spark says {user_field.dataType.simpleString()}"
            )
        if not _admits(user_field.dataType, available_type):
            raise SchemaError(
                f"{description}: values of column {user_field.name!r} may hold nulls; "
                "the schema given to Spark says NOT NULL"
            )


def check_times(schema: StructType, format: Format) -> None:
    """Check that no column to write is a time without a zone, unless the format declares that it holds them.

    Which instant such a time is depends on a zone that tasks do not see, and it would come back as another type.

    Raises:
        SchemaError: Names the first such column, and what to write in its place.
    """
    for column in () if format.writes_local_times else schema.fields:
        if _has_local_time(column.dataType):
            raise SchemaError(
                f"column {column.name!r} is {column.dataType.simpleString()}, and {format.name} holds no times"
                " without a zone: CAST to TIMESTAMP, which takes them in the session's zone, or to STRING"
            )


def is_of_type(field: pa.Field, spark_field: spark.StructField) -> bool:
    """Return whether a column can be asked for with a type of Spark's, as `check_schema` allows it."""
    if isinstance(spark_field.dataType, spark.LongType) and has_integers(field.type):
        return True
    return bool(
        make_nullable(spark_field.dataType) == make_nullable(_make_spark_type(field.type, f"column {field.name!r}"))
    )


def _has_local_time(kind: DataType) -> bool:
    """Return whether values of a type are, or have in them, times without a zone."""
    if isinstance(kind, spark.ArrayType):
        return _has_local_time(kind.elementType)
    if isinstance(kind, spark.MapType):
        return _has_local_time(kind.keyType) or _has_local_time(kind.valueType)
    if isinstance(kind, spark.StructType):
        return any(_has_local_time(field.dataType) for field in kind.fields)
    return isinstance(kind, spark.TimestampNTZType)


def find_spark_version() -> str:
    """Return the version of the PySpark in use."""
    import pyspark

    return str(pyspark.__version__)


def _restore_field(spark_field: spark.StructField) -> pa.Field | None:
    """Return the Arrow field kept in the metadata, unless the column has become another since."""
    original = (spark_field.metadata or {}).get(_ORIGINAL_KEY)
    if not isinstance(original, str):
        return None
    stored = call_decoder(base64.b64decode, original)
    schema = stored if isinstance(stored, Undecodable) else call_decoder(pa.ipc.read_schema, pa.py_buffer(stored))
    if isinstance(schema, Undecodable) or len(schema) != 1:
        return None
    field = schema.field(0)
    try:
        is_same_type = make_nullable(_make_spark_type(field.type, spark_field.name)) == make_nullable(
            spark_field.dataType
        )
    except SchemaError:
        return None
    return field if is_same_type else None


def _render_ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_render_type(field.type)}" for field in schema)


def _render_type(kind: pa.DataType) -> str:
    try:
        return str(_make_spark_type(kind, "").simpleString())
    except SchemaError:
        return f"({kind}, which Spark does not have)"


def make_nullable(kind: DataType) -> DataType:
    """Return the type with every nested value nullable: so only the types are compared."""
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(make_nullable(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(make_nullable(kind.keyType), make_nullable(kind.valueType))
    if isinstance(kind, spark.StructType):
        return spark.StructType([spark.StructField(field.name, make_nullable(field.dataType)) for field in kind.fields])
    return kind


def _admits(requested_type: DataType, available_type: DataType) -> bool:
    """Return whether all nulls that nested values may hold have a place in the wanted type."""
    return all(
        requested_nullable or not available_nullable
        for available_nullable, requested_nullable in zip(
            _iterate_nullability(available_type), _iterate_nullability(requested_type), strict=False
        )
    )


def _iterate_nullability(kind: DataType) -> Iterator[bool]:
    if isinstance(kind, spark.ArrayType):
        yield kind.containsNull
        yield from _iterate_nullability(kind.elementType)
    elif isinstance(kind, spark.MapType):
        yield kind.valueContainsNull
        yield from _iterate_nullability(kind.keyType)
        yield from _iterate_nullability(kind.valueType)
    elif isinstance(kind, spark.StructType):
        for field in kind.fields:
            yield field.nullable
            yield from _iterate_nullability(field.dataType)
