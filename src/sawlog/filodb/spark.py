"""FiloDB's records in binary columns of Spark, in the manner of `from_avro`; and its hashes and shards as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as spark

from sawlog.errors import OptionError
from sawlog.filodb.columns import make_columns
from sawlog.filodb.histograms import functions as histograms_of
from sawlog.filodb.histograms.functions import HISTOGRAM
from sawlog.filodb.options import ReadOptions, WriteOptions
from sawlog.filodb.schemas import Schema, Schemas
from sawlog.filodb.selection import select
from sawlog.filodb.values import ValueDecoder, ValueEncoder, find_shards, hash_series
from sawlog.format.damage import check_on_damage
from sawlog.format.options import parse_options
from sawlog.spark.cast import cast_array
from sawlog.spark.schema import make_arrow_schema, make_nullable, make_spark_schema

ColumnOrName = Any


def from_filodb_record(
    column: ColumnOrName, table: str | Sequence[str] = "all", *, on_damage: str = "fail", **options: Any
) -> Column:
    """Return the rows of containers, or of single records such as part keys.

    `inline(from_filodb_record("value", "gauge"))` makes a table of them.

    Args:
        column: A binary column: what FiloDB's producers put into Kafka, or its tables into Cassandra.
        table: Names of the schemas to read, `all` for all known ones; with several, a field `_schema` says which.
        on_damage: `fail`; `skip` to return what is intact; or `collect` to return that, and what is damaged.
        **options: Options for reading `filodb_record`, such as `records="partkeys"` or `extras`.

    Returns:
        An array of structs; null where the value is null. With `collect` a struct: `rows`, that array; `damage`, an
        array of `kind`, `offset` (in the value), `length`, `detail` and `count`, one of each kind; and `ok`, whether
        there is none.
    """
    if on_damage == "collect":
        decoder = _make_decoder(table, options, "from_filodb_record")
        return _make_column(decoder.decode_results, _make_result_type(decoder), [column], [pa.binary()])
    decoder = replace(_make_decoder(table, options, "from_filodb_record"), on_damage=check_on_damage(on_damage))
    kind = spark.ArrayType(make_spark_schema(decoder.schema), containsNull=False)
    return _make_column(decoder.decode, kind, [column], [pa.binary()])


def filodb_records(
    frame: DataFrame, column: str = "value", table: str | Sequence[str] = "all", **options: Any
) -> DataFrame:
    """Return the rows of a binary column as `from_filodb_record(on_damage="collect")` gives them, in bounded portions.

    A value of many rows, as hostile ones may be, becomes several rows of the new frame; each value that is not null
    becomes one at least. Nothing in a value makes this fail, so that a stream never stops at one.

    Args:
        frame: A frame, streaming or not.
        column: Its binary column.
        table: As for `from_filodb_record`.
        **options: As for `from_filodb_record`.

    Returns:
        The other columns of the frame, and `rows`, `damage` and `ok`.
    """
    decoder = _make_decoder(table, options, "filodb_records")
    other_fields = [field for field in frame.schema.fields if field.name != column]
    result = _make_result_type(decoder)
    target = spark.StructType([*other_fields, *result.fields])
    names, kinds = [field.name for field in other_fields], [field.dataType for field in result.fields]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        types = [_convert_type(kind) for kind in kinds]
        for batch in batches:
            kept_batch = batch.select(names)
            for numbers, rows in decoder.decode_parts(batch.column(column)):
                parts = [cast_array(array, kind) for array, kind in zip(rows.flatten(), types, strict=True)]
                yield pa.RecordBatch.from_arrays(
                    [*kept_batch.take(pa.array(numbers)).columns, *parts], names=[*names, *result.names]
                )

    return frame.select(*names, column).mapInArrow(run, target)


def _make_decoder(table: str | Sequence[str], options: Mapping[str, Any], action: str) -> ValueDecoder:
    names = (table,) if isinstance(table, str) else tuple(table)
    values = {"records": "ingestion", "table": names, **options}
    return ValueDecoder(parse_options(ReadOptions, values, context=action))


def _make_result_type(decoder: ValueDecoder) -> spark.StructType:
    return spark.StructType(make_spark_schema(pa.schema(list(decoder.result))).fields)


def to_filodb_record(column: ColumnOrName, table: str | None = None, **options: Any) -> Column:
    """Return containers of rows: one per value.

    Args:
        column: A struct, or an array of structs as `collect_list(struct(...))` makes, with the columns of the schema.
        table: Name of the schema; not needed where a field `_schema` says it row by row.
        **options: Options for writing `filodb_record`, such as `records` or `container_timestamp`.

    Returns:
        Binary; null where the value is null.

    Raises:
        OptionError: With PySpark 4.0, which hands functions local times of the session's zone: different instants may
            have the same.
    """
    if not hasattr(functions, "arrow_udf"):
        raise OptionError("to_filodb_record needs PySpark 4.1 or later; write files with format filodb_record instead")
    action = "to_filodb_record"
    values = {"table": table, **options}
    encoder = ValueEncoder(parse_options(WriteOptions, values, context=action))
    return _make_column(encoder.encode, spark.BinaryType(), [column], [])


def filodb_partition_hash(*columns: ColumnOrName, table: str = "gauge", **options: Any) -> Column:
    """Return the hash that FiloDB stores in the records of a series: an id of the series, but for collisions.

    Args:
        *columns: The partition columns of the schema, in order: by default the metric and the map of labels.
        table: Name of any schema with these partition columns.
        **options: `schema`: the known schemas, if not the built-in ones.
    """
    schema = _find_schema(table, options, "filodb_partition_hash")
    names = [column.name for column in schema.part_key.columns]
    selection = select(ReadOptions(schema=Schemas([schema]), table=(schema.name,), records="partkeys"))
    kinds = [field.type for field in make_columns(selection, ReadOptions()).schema]

    def compute_hashes(*arrays: pa.Array) -> pa.Array:
        return hash_series(dict(zip(names, arrays, strict=True)), schema)

    return _make_column(compute_hashes, spark.IntegerType(), columns, kinds)


def filodb_shard(
    metric: ColumnOrName,
    labels: ColumnOrName,
    num_shards: int,
    spread: int = 1,
    *,
    table: str = "gauge",
    **options: Any,
) -> Column:
    """Return the shard, and with it the Kafka partition, that FiloDB ingests a series to.

    Args:
        metric: The metric's name.
        labels: The map of labels.
        num_shards: A power of two.
        spread: FiloDB's spread: 2**spread shards share the series of one shard key.
        table: Name of any schema with the partition options in force.
        **options: `schema`: the known schemas, if not the built-in ones.

    Raises:
        OptionError: When `num_shards` is no power of two, or `spread` does not fit it.
    """
    partition = _find_schema(table, options, "filodb_shard").partition
    assert partition is not None
    find_shards(
        pa.array([], pa.string()), pa.array([], pa.map_(pa.string(), pa.string())), num_shards, spread, partition
    )

    def find(part_hashes: pa.Array, shard_hashes: pa.Array) -> pa.Array:
        return find_shards(part_hashes, shard_hashes, num_shards, spread, partition)

    return _make_column(find, spark.IntegerType(), [metric, labels], [pa.string(), pa.map_(pa.string(), pa.string())])


def histogram_quantile(
    column: ColumnOrName, q: float, minimum: ColumnOrName | None = None, maximum: ColumnOrName | None = None
) -> Column:
    """Return a quantile of histograms, as Prometheus and FiloDB estimate it; see `sawlog.filodb.histogram_quantile`.

    Args:
        column: A column of histograms, as reading returns them.
        q: 0 to 1.
        minimum: A column with the least of each histogram's values, if there is one; give both or none.
        maximum: A column with the greatest.
    """

    def find(histograms: pa.Array, *bounds: pa.Array) -> pa.Array:
        return histograms_of.histogram_quantile(histograms, q, *bounds)

    return _make_column(find, spark.DoubleType(), *_with_bounds(column, minimum, maximum))


def histogram_fraction(
    column: ColumnOrName,
    lower: float,
    upper: float,
    minimum: ColumnOrName | None = None,
    maximum: ColumnOrName | None = None,
) -> Column:
    """Return the share of values between two bounds; see `sawlog.filodb.histogram_fraction`."""

    def find(histograms: pa.Array, *bounds: pa.Array) -> pa.Array:
        return histograms_of.histogram_fraction(histograms, lower, upper, *bounds)

    return _make_column(find, spark.DoubleType(), *_with_bounds(column, minimum, maximum))


def histogram_add(first: ColumnOrName, second: ColumnOrName) -> Column:
    """Return the sums of two columns of histograms; see `sawlog.filodb.histogram_add`."""
    kind = make_spark_schema(pa.schema(list(HISTOGRAM)))
    return _make_column(histograms_of.histogram_add, kind, [first, second], [HISTOGRAM, HISTOGRAM])


def histogram_merge(column: ColumnOrName) -> Column:
    """Return the sum of the histograms of a group, an aggregate; see `sawlog.filodb.histogram_merge`.

    Raises:
        OptionError: With PySpark 4.0, which has no such functions of Arrow arrays.
    """
    if not hasattr(functions, "arrow_udf"):
        raise OptionError("histogram_merge needs PySpark 4.1 or later")

    def merge_histograms(histograms: pa.Array) -> Any:
        return histograms_of.histogram_merge(histograms).as_py()

    merge_histograms.__annotations__ = {"histograms": pa.Array, "return": dict}
    merged: Column = functions.arrow_udf(merge_histograms, make_spark_schema(pa.schema(list(HISTOGRAM))))(column)
    return merged


def _with_bounds(
    column: ColumnOrName, minimum: ColumnOrName | None, maximum: ColumnOrName | None
) -> tuple[list[ColumnOrName], list[pa.DataType]]:
    """Return a column of histograms, and those of bounds, and their types."""
    if (minimum is None) != (maximum is None):
        raise OptionError("histograms: give the columns of both bounds, or none")
    bounds = [] if minimum is None else [minimum, maximum]
    return [column, *bounds], [HISTOGRAM, *(pa.float64() for _ in bounds)]


def _find_schema(table: str, options: Mapping[str, Any], action: str) -> Schema:
    parsed = parse_options(ReadOptions, {"table": table, **options}, context=action)
    return parsed.known_schemas.get_schema(parsed.table[0])


def _make_column(
    function: Callable[..., pa.Array],
    kind: spark.DataType,
    columns: Sequence[ColumnOrName],
    takes: Sequence[pa.DataType],
) -> Column:
    if not hasattr(functions, "arrow_udf"):
        return _make_pandas_column(function, kind, columns, takes)
    kind = _without_metadata(kind)
    target = _convert_type(kind)

    def run(*arrays: pa.Array) -> pa.Array:
        return cast_array(function(*arrays), target)

    result: Column = functions.arrow_udf(run, kind)(*columns)
    return result


def _make_pandas_column(
    function: Callable[..., pa.Array],
    kind: spark.DataType,
    columns: Sequence[ColumnOrName],
    takes: Sequence[pa.DataType],
) -> Column:
    """Return the same for PySpark 4.0, which hands over no Arrow, and takes nothing that cannot be null: slower.

    Structs are frames to pandas there, so that a null one is a struct of nulls.
    """
    kind = make_nullable(kind)
    target = _convert_type(kind)
    pd = import_module("pandas")
    names = kind.names if isinstance(kind, spark.StructType) else None

    def convert(*series: Any) -> Any:
        values = [value.to_dict("records") if isinstance(value, pd.DataFrame) else value for value in series]
        arrays = [pa.array(value, like, from_pandas=True) for value, like in zip(values, takes, strict=True)]
        rows = cast_array(function(*arrays), target).to_pylist(maps_as_pydicts="lossy")
        if names is None:
            return pd.Series(rows, dtype=object)
        fields = {name: [None if row is None else row[name] for row in rows] for name in names}
        return pd.DataFrame({name: pd.Series(field, dtype=object) for name, field in fields.items()})

    convert.__annotations__ = {"series": pd.Series, "return": pd.Series if names is None else pd.DataFrame}
    pandas_udf: Any = vars(functions)["pandas_udf"]  # PySpark's stub leaves it out
    result: Column = pandas_udf(convert, kind)(*columns)
    return result


def _without_metadata(kind: spark.DataType) -> Any:
    """Return the type without metadata of nested fields, which Arrow does not bring back, and PySpark 4.1 compares."""
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_without_metadata(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.StructType):
        fields = [(field.name, _without_metadata(field.dataType), field.nullable) for field in kind.fields]
        return spark.StructType([spark.StructField(*field) for field in fields])
    return kind


def _convert_type(kind: spark.DataType) -> pa.DataType:
    return make_arrow_schema(spark.StructType([spark.StructField("c", kind)])).field(0).type
