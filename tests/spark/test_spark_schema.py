from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from sawlog.errors import SchemaError
from sawlog.format.contract import Format
from sawlog.spark.cast import cast_array, cast_batch
from sawlog.spark.schema import check_schema, check_times, make_arrow_schema, make_spark_schema, restore_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
NS = dt.datetime(1970, 1, 1, tzinfo=UTC)
TIMES = hasattr(spark_types, "TimeType")


def micro(n: int) -> dt.datetime:
    return NS + dt.timedelta(microseconds=n)


CASES: list[tuple[pa.Array, str]] = [
    (pa.array([True, None]), "boolean"),
    (pa.array([1, None], pa.int8()), "tinyint"),
    (pa.array([1, None], pa.int16()), "smallint"),
    (pa.array([1, None], pa.int32()), "int"),
    (pa.array([1, None], pa.int64()), "bigint"),
    (pa.array([255, None], pa.uint8()), "smallint"),
    (pa.array([65535, None], pa.uint16()), "int"),
    (pa.array([2**32 - 1, None], pa.uint32()), "bigint"),
    (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)"),
    (pa.array([1.5, None], pa.float16()), "float"),
    (pa.array([1.5, None], pa.float32()), "float"),
    (pa.array([1.5, None], pa.float64()), "double"),
    (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), "decimal(10,2)"),
    (pa.array([Decimal("1.50"), None], pa.decimal256(38, 2)), "decimal(38,2)"),
    (pa.array(["ä", None], pa.string()), "string"),
    (pa.array(["ä", None], pa.large_string()), "string"),
    (pa.array(["ä", None], pa.string_view()), "string"),
    (pa.array(["ä", None, "ä"]).dictionary_encode(), "string"),
    (pa.array([b"a", None], pa.binary()), "binary"),
    (pa.array([b"a", None], pa.large_binary()), "binary"),
    (pa.array([b"a", None], pa.binary_view()), "binary"),
    (pa.array([b"aa", None], pa.binary(2)), "binary"),
    (pa.array([dt.date(2026, 1, 1), None], pa.date32()), "date"),
    (pa.array([dt.date(2026, 1, 1), None], pa.date64()), "date"),
    (pa.array([-1_000, None], pa.timestamp("ns", "Asia/Tokyo")), "timestamp"),
    (pa.array([-1, None], pa.timestamp("us", "UTC")), "timestamp"),
    (pa.array([-1, None], pa.timestamp("ms", "+02:00")), "timestamp"),
    (pa.array([-1_000, None], pa.timestamp("ns")), "timestamp_ntz"),
    (pa.array([-1, None], pa.timestamp("s")), "timestamp_ntz"),
    (pa.array([-1_000, None], pa.duration("ns")), "interval day to second"),
    (pa.array([-1, None], pa.duration("s")), "interval day to second"),
    (pa.array([None, None], pa.null()), "void"),
    (pa.array([[1], None, [], [2, None]], pa.list_(pa.uint8())), "array<smallint>"),
    (pa.array([[1], None, [], [2, None]], pa.large_list(pa.int8())), "array<tinyint>"),
    (pa.array([[1], None, [], [2, None]], pa.list_view(pa.int32())), "array<int>"),
    (pa.array([[1], None, [], [2, None]], pa.large_list_view(pa.int32())), "array<int>"),
    (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)), "array<int>"),
    (pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.uint8())), "map<string,smallint>"),
    (pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
              pa.struct([("a", pa.uint16()), ("b", pa.list_(pa.large_string()))])), "struct<a:int,b:array<string>>"),
    (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None])), "string"),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None], pa.binary(16))), "binary"),
    (pa.array([[["a"], None]], pa.list_(pa.list_(pa.large_string()))), "array<array<string>>"),
]  # fmt: skip
if TIMES:
    CASES += [
        (pa.array([dt.time(1, 2, 3), None], pa.time32("s")), "time(6)"),
        (pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")), "time(6)"),
        (pa.array([1_000, None], pa.time64("ns")), "time(6)"),
    ]
LAYOUTS = ("list_view", "run_end_encoded")


def as_batch(array: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([array], schema=pa.schema([pa.field("x", array.type)]))


def values(array: pa.Array) -> list[Any]:
    """What an array means, whatever its type: instants in UTC, numbers as decimals."""

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return value.astimezone(UTC)
        return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return [plain(value) for value in array.to_pylist()]


@pytest.mark.parametrize(("array", "name"), CASES, ids=[str(array.type) for array, _ in CASES])
def test_every_type_is_handed_over_and_comes_back(array: pa.Array, name: str) -> None:
    schema = make_spark_schema(as_batch(array).schema)
    assert schema["x"].dataType.simpleString() == name
    target = make_arrow_schema(schema)
    restored = restore_schema(schema)
    if not any(layout in str(array.type) for layout in LAYOUTS):
        assert restored.field("x").type == array.type
    for piece in (array, array.slice(1), array.slice(1, 1), array.slice(0, 0)):
        handed = cast_batch(as_batch(piece), target)
        handed.validate(full=True)
        assert handed.schema.equals(target)
        assert values(handed.column(0)) == values(piece)
        back = cast_batch(handed, restored)
        back.validate(full=True)
        assert values(back.column(0)) == values(piece)


def test_spark_takes_arrays_of_every_type(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    case_arrays = [array for array, name in CASES if not name.startswith("time(")]
    arrays = [pa.concat_arrays([array.slice(0, 1), array.slice(1, 1), array.slice(0, 1)]) if len(array) > 1
              else pa.concat_arrays([array] * 3) for array in case_arrays]  # fmt: skip
    batch = pa.record_batch(arrays, [f"c{number}" for number in range(len(arrays))])
    schema = make_spark_schema(batch.schema)
    handed = cast_batch(batch, make_arrow_schema(schema))

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "every_type"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Any:
            return Reader()

    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Any:
            yield handed

        def partitions(self) -> Any:
            from pyspark.sql.datasource import InputPartition

            return [InputPartition(None)]

    spark.dataSource.register(Source)
    got = spark.read.format("every_type").load().toArrow().to_batches()[0]
    for number, array in enumerate(arrays):
        assert values(got.column(number)) == values(array), array.type


def test_finer_than_microseconds_is_rounded_down() -> None:
    for kind, target in (
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.duration("ns"), pa.duration("us")),
    ):
        cast = cast_array(pa.array([-1_000, -1, 0, 1, 999, 1_000, 1_999], kind), target)
        assert cast.type == target
        assert cast.view(pa.int64()).to_pylist() == [-1, -1, 0, 0, 0, 1, 1]


def test_the_way_back_loses_nothing_silently() -> None:
    with pytest.raises(SchemaError, match=r"column 'x': cannot turn .* into .*lose data"):
        cast_batch(as_batch(pa.array([1], pa.timestamp("us"))), pa.schema([("x", pa.timestamp("ms"))]))
    with pytest.raises(SchemaError, match=r"column 'x': cannot turn int32 into uint8: .*300"):
        cast_batch(as_batch(pa.array([300], pa.int32())), pa.schema([("x", pa.uint8())]))
    with pytest.raises(SchemaError, match="out of bounds"):
        cast_batch(as_batch(pa.array([2**60], pa.timestamp("s"))), pa.schema([("x", pa.timestamp("us"))]))
    with pytest.raises(SchemaError, match="column 'x' holds nulls"):
        cast_batch(as_batch(pa.array([None], pa.int8())), pa.schema([pa.field("x", pa.int8(), nullable=False)]))


def test_what_fits_is_not_copied() -> None:
    batch = as_batch(pa.array([b"a", b"b"]))
    cast = cast_batch(batch, make_arrow_schema(make_spark_schema(batch.schema)))
    assert [buffer.address for buffer in cast.column(0).buffers() if buffer] == [
        buffer.address for buffer in batch.column(0).buffers() if buffer
    ]


def test_columns_are_taken_by_name() -> None:
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    cast = cast_batch(batch, pa.schema([("b", pa.string()), ("a", pa.int64())]))
    assert cast.to_pydict() == {"b": ["x"], "a": [1]}


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.decimal256(50, 2), pa.dense_union([pa.field("a", pa.int8())])]
)
def test_types_that_spark_does_not_have(kind: pa.DataType) -> None:
    message = rf"column 'x', element: Spark [\d.]+ has no type for Arrow's {re.escape(str(kind))}; leave the column out"
    with pytest.raises(SchemaError, match=message):
        make_spark_schema(pa.schema([("x", pa.list_(kind))]))


def test_nullability_and_metadata_are_kept() -> None:
    field = pa.field("x", pa.uint16(), nullable=False, metadata={"sawlog.type": "Char", "other": "gone"})
    schema = make_spark_schema(pa.schema([field]))
    assert not schema["x"].nullable
    restored = restore_schema(schema).field("x")
    assert (restored.type, restored.nullable, restored.metadata) == (pa.uint16(), False, {b"sawlog.type": b"Char"})


def test_a_column_that_became_another_is_not_restored() -> None:
    field_before = make_spark_schema(pa.schema([("x", pa.uint16())]))["x"]
    changed = spark_types.StructType(
        [spark_types.StructField("x", spark_types.StringType(), True, field_before.metadata)]
    )
    assert restore_schema(changed).field("x").type == pa.string()
    broken = spark_types.StructType(
        [spark_types.StructField("x", spark_types.IntegerType(), True, {"sawlog.arrow": "AAAA"})]
    )
    assert restore_schema(broken).field("x").type == pa.int32()


AVAILABLE = pa.schema(
    [
        pa.field("t", pa.timestamp("ns", "UTC")),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("l", pa.list_(pa.uint8())),
        pa.field("s", pa.struct([pa.field("a", pa.int32())])),
        pa.field("u", pa.decimal256(50, 2)),
    ]
)


@pytest.mark.parametrize(
    "ddl",
    [
        "n int",
        "n int not null, t timestamp",
        "t bigint",
        "t bigint not null",
        "t timestamp not null",
        "l array<smallint>",
        "s struct<a:int>",
        "s struct<a:int> not null",
    ],
)
def test_schemas_that_fit(ddl: str, spark: SparkSession) -> None:
    check_schema(spark_types.StructType.fromDDL(ddl), AVAILABLE, "here")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("n bigint", "here: column 'n' is int; the schema given to Spark says bigint"),
        ("N int", "here: no column 'N'; did you mean 'n'? Case matters"),
        ("q int", "here: no column 'q'; columns: t timestamp, n int, l array<smallint>, s struct<a:int>, u (dec"),
        ("u int", "here: column 'u': Spark"),
        (
            "s struct<a:int not null>",
            "here: values of column 's' may hold nulls; the schema given to Spark says NOT NULL",
        ),
        ("l array<int>", "column 'l' is array<smallint>"),
    ],
)
def test_schemas_that_do_not_fit(ddl: str, message: str, spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match=re.escape(message)):
        check_schema(spark_types.StructType.fromDDL(ddl), AVAILABLE, "here")


def test_a_schema_without_columns() -> None:
    with pytest.raises(SchemaError, match="has no column"):
        check_schema(spark_types.StructType(), AVAILABLE, "here")


def test_time_as_integer_keeps_the_nanoseconds() -> None:
    batch = pa.record_batch([pa.array([1_234_567_891, None], pa.timestamp("ns", "UTC"))], ["t"])
    cast = cast_batch(batch, pa.schema([("t", pa.int64())]))
    assert cast.to_pydict() == {"t": [1_234_567_891, None]}


def test_times_without_a_zone_are_for_formats_that_declare_them() -> None:
    """A format of any package: one that says nothing holds none."""
    schema = spark_types.StructType().add("record", spark_types.ArrayType(spark_types.TimestampNTZType()))
    silent: Any = type("Other", (Format,), {"name": "other"})
    declared: Any = type("Other", (Format,), {"name": "other", "writes_local_times": True})
    check_times(schema, declared)
    with pytest.raises(SchemaError, match=r"'record' is array<timestamp_ntz>, and other holds no times without a zone"):
        check_times(schema, silent)
