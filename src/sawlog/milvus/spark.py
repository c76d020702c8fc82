"""Milvus collections in Spark: deletes that reach across segments by one join, and compaction."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from sawlog.api import open as open_dataset
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError, SawlogError
from sawlog.format.digest import MODULUS, Digest
from sawlog.format.planning import find_view_schema
from sawlog.milvus import layout
from sawlog.milvus.collection.dataset import CollectionContents, SegmentsWarning
from sawlog.milvus.layout import PARTITION_COLUMN
from sawlog.milvus.metadata.written import WrittenCollection, WrittenLog, WrittenSegment, describe_field, make_documents
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.types import ROW_ID, TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

FORMAT = "milvus_binlog"
_SOURCE = "sawlog"
_SYSTEM = (ROW_ID.name, TIMESTAMP.name, PARTITION_COLUMN)


def read_collection(
    spark: SparkSession,
    path: str,
    *,
    columns: list[str] | None = None,
    task_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """Return a collection. A segment's own deletes are applied as its rows are read, those of L0 segments by one join.

    The plain source applies both kinds while it reads, which has every task read all L0 delta logs of its partition.
    Take this function when there are many of them.

    Args:
        spark: The session.
        path: The collection's root.
        columns: Columns to read; system columns (`RowID`, `Timestamp`, `_partition`, `_segment`) can be asked for.
        task_bytes: Input bytes per task.
        storage_options: What fsspec needs to reach the path.
        **options: Read options of the format.

    Raises:
        OptionError: When the path is no collection, or for options that are none.
    """
    from pyspark.sql import functions as f

    dataset = _open(path, storage_options, options)
    names = columns if columns is not None else list(find_view_schema(dataset).names)
    reader = _make_reader(spark, task_bytes, storage_options, {**options, "table": str(dataset.collection.id)})
    across = dataset.collection.list_l0_segments()
    moved = any(s.meta is not None and s.meta.commit_timestamp for s in dataset.collection.segments.values())
    if not across or moved or dataset.primary is None or options.get("deletes", "apply") != "apply":
        return reader.option("columns", ",".join(names)).load(path)
    key = dataset.primary.name
    needed_columns = [*names, *(name for name in (key, TIMESTAMP.name, PARTITION_COLUMN) if name not in names)]
    rows = reader.option("columns", ",".join(needed_columns)).option("deletes", "own").load(path)
    deletes = _make_reader(spark, task_bytes, storage_options, {**options, "table": str(dataset.collection.id)})
    deleted = deletes.option("view", "deletes").load(path).where("l0")
    until = ReadOptions(**{o.name: options[o.name] for o in fields(ReadOptions) if o.name in options}).until
    if until is not None:
        deleted = deleted.where(f.col("timestamp") <= f.lit(until))
    return rows.join(deleted, _make_hit_condition(rows, deleted, key), "left_anti").select(
        *(rows[_quote_name(name)] for name in names)
    )


def _make_hit_condition(rows: DataFrame, deleted: DataFrame, key: str) -> Column:
    """Return the condition under which a delete hits a row: in its partition or any, of its key, strictly older."""
    everywhere = deleted["partition"] == layout.ALL_PARTITIONS
    return (
        (rows[_quote_name(key)] == deleted["pk"])
        & (rows[TIMESTAMP.name] < deleted["timestamp"])
        & (everywhere | (rows[PARTITION_COLUMN] == deleted["partition"]))
    )


@dataclass(frozen=True, slots=True)
class Compaction:
    """Result of `compact`.

    Attributes:
        rows: Rows in the source, and in the target: they are the same.
        checksum: Sum of the 64-bit hashes of all rows over all columns, modulo 2**64, the same on both sides.
        segments_before: Segments that were read.
        segments_after: Segments that were written.
        files_before: Insert, delta and stats logs of the collection in the source.
        files_after: Insert and stats logs in the target.
    """

    rows: int
    checksum: int
    segments_before: int
    segments_after: int
    files_before: int
    files_after: int


def compact(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    segment_bytes: int = 512 << 20,
    binlog_bytes: int = 64 << 20,
    tree: Literal["plain", "backup"] = "plain",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Compaction:
    """Rewrite a collection: deletes applied, few large segments without delta logs, same rows.

    Row ids, timestamps and partitions are kept. When both sides do not hold the same rows, nothing of the target is
    deleted, and an error says so.

    Args:
        spark: The session.
        source: The collection's root.
        target: A root that does not hold the collection yet.
        segment_bytes: Bytes of rows per segment, about.
        binlog_bytes: Bytes of rows per binlog batch, about.
        tree: `plain`, or `backup`: the tree of a milvus-backup, with metadata by which names survive.
        storage_options: What fsspec needs to reach both.
        **options: Read options of the format.

    Raises:
        OptionError: When the source is no collection, or the target holds it already.
        SawlogError: When the rows of the target are not those of the source.
    """
    dataset, logs = open_source_and_place(source, target, tree, storage_options, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SegmentsWarning)  # was shown above
        sizes = {"segment_bytes": segment_bytes, "binlog_bytes": binlog_bytes}
        done = rewrite_collection(spark, dataset, source, logs, sizes, storage_options, options)
    if tree == "backup":
        _describe(dataset, target.rstrip("/"), logs, storage_options)
    return done


def open_source_and_place(
    source: str,
    target: str,
    tree: Literal["plain", "backup"],
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> tuple[CollectionContents, str]:
    """Return the collection to compact, and the directory where logs will go.

    Arguments and errors are those of `compact`.
    """
    dataset = _open(source, storage_options, options)
    root = target.rstrip("/")
    logs = f"{root}/{layout.BACKUP_LOGS}" if tree == "backup" else root
    log_path, storage = f"{logs}/{layout.INSERT_LOG}/{dataset.collection.id}", dataset.scan.storage
    if storage.exists(log_path) and storage.find(log_path):  # one that was ended has left empty directories
        raise OptionError(f"{target}: holds the collection {dataset.collection.id} already; compact into another root")
    dataset.list_batches()  # warns of what the rows are, or are not, or says why they cannot be read
    return dataset, logs


def rewrite_collection(
    spark: SparkSession,
    dataset: CollectionContents,
    source: str,
    logs: str,
    sizes: Mapping[str, int],
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Compaction:
    """Write the collection below `logs`, and prove it."""
    collection = dataset.collection
    # Under names that Spark takes as they are: those of Milvus may hold dots, or differ only in case.
    fields = [replace(field, name=f"field_{field.id}") for field in dataset.fields]
    schema = json.dumps({"name": collection.name, "fields": list(map(describe_field, fields))})
    names = [*(field.name for field in fields), *_SYSTEM]
    read_options = {name: value for name, value in options.items() if name != "dynamic_fields"} | {"schema": schema}
    rows = read_collection(spark, source, columns=names, storage_options=storage_options, **read_options)
    size = sum(fragment.batch.size for fragment in dataset.list_batches())
    tasks = max(1, -(-size // sizes["segment_bytes"]))
    arranged = rows.repartitionByRange(tasks, PARTITION_COLUMN, ROW_ID.name)
    writer = arranged.sortWithinPartitions(PARTITION_COLUMN, ROW_ID.name).write.format(_SOURCE).mode("append")
    settings: dict[str, str | int] = {
        "format": FORMAT,
        "collection_id": collection.id,
        **_prefix_options(storage_options),
    }
    settings |= sizes
    primary = next((field for field in fields if field.primary), None)
    if primary is not None:
        settings["primary_key"] = primary.name
    writer.options(**settings).save(logs)
    return _prove(spark, rows, dataset, logs, names, schema, storage_options)


def _describe(dataset: CollectionContents, root: str, logs: str, storage_options: Mapping[str, Any] | None) -> None:
    """Write the metadata of a backup over what was compacted."""
    collection, storage = dataset.collection, dataset.scan.storage
    written = _open(logs, storage_options, {"table": str(collection.id), "view": "segments", "metadata": "none"})
    counts = {row["segment"]: row["rows"] for row in Dataset(written, written.scan).to_table().to_pylist()}
    segments = []
    for segment in written.collection.segments.values():
        written_segment = WrittenSegment(segment.partition, segment.id, counts[segment.id])
        for id, files in segment.inserts.items():
            written_segment.inserts[id] = [
                WrittenLog(log.file.path.removeprefix(f"{logs}/"), log.file.size) for log in files
            ]
        segments.append(written_segment)
    names = {segment.partition: collection.find_partition_name(segment.partition) for segment in segments}
    database = collection.meta.database if collection.meta is not None else layout.DEFAULT_DATABASE
    about = WrittenCollection(collection.id, collection.name, tuple(dataset.fields), names, database)
    staged = []
    for path, data in make_documents(root, [(about, segments)], storage).items():
        staged_file = storage.stage(path)
        staged_file.write(data)
        staged.append(staged_file.finish())
    storage.publish(staged)


def _prove(
    spark: SparkSession,
    rows: DataFrame,
    dataset: CollectionContents,
    target: str,
    names: list[str],
    schema: str,
    storage_options: Mapping[str, Any] | None,
) -> Compaction:
    """Read the target back, and compare counts and hashes of all rows."""
    expected = compute_digest(rows)
    if not expected.rows:
        return Compaction(0, 0, _count(dataset), 0, _count_files(dataset), 0)
    # What is next to the target says nothing of it yet.
    options: dict[str, Any] = {"schema": schema, "table": str(dataset.collection.id), "metadata": "none"}
    written = _open(target, storage_options, options)
    segments = tuple(segment.id for segment in written.collection.segments.values())
    actual = compute_digest(
        read_collection(spark, target, columns=names, storage_options=storage_options, segments=segments, **options)
    )
    if expected != actual:
        raise SawlogError(f"{target}: holds {actual}; expected {expected}")
    return Compaction(
        actual.rows, actual.checksum, _count(dataset), len(segments), _count_files(dataset), _count_files(written)
    )


def _count(dataset: CollectionContents) -> int:
    return len({fragment.place[2] for fragment in dataset.list_batches()})


def _count_files(dataset: CollectionContents) -> int:
    """Insert, delta and stats logs of the collection."""
    segments = dataset.collection.segments.values()
    inserts = sum(len(logs) for segment in segments for logs in segment.inserts.values())
    return inserts + sum(len(segment.deltas) + len(segment.stats) for segment in segments)


def _open(path: str, storage_options: Mapping[str, Any] | None, options: Mapping[str, Any]) -> CollectionContents:
    """Return the dataset, on the driver.

    Raises:
        OptionError: When the path is no collection.
    """
    dataset = open_dataset(path, format=FORMAT, storage_options=storage_options, **options).contents
    if not isinstance(dataset, CollectionContents):
        raise OptionError(f"{path}: expected the root of a collection, above {layout.INSERT_LOG}")
    return dataset


def _make_reader(
    spark: SparkSession, task_bytes: int | None, storage_options: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> DataFrameReader:
    reader = spark.read.format(_SOURCE).option("format", FORMAT)
    if task_bytes is not None:
        reader = reader.option("task_bytes", task_bytes)
    return reader.options(
        **{name: _render_option(value) for name, value in options.items()}, **_prefix_options(storage_options)
    )


def _prefix_options(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    return {f"storage.{name}": _render_option(value) for name, value in (storage_options or {}).items()}


def _render_option(value: Any) -> str:
    """Return the text of an option's value, as the Spark reader parses it."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def compute_digest(rows: DataFrame) -> Digest:
    """Return the number of rows and a hash of them, whatever the order of rows and columns.

    A column that is null counts as one that is not there.
    """
    from pyspark.sql import functions as f

    row = _hash_rows(rows).agg(f.count("*").alias("rows"), f.sum("hash").alias("total")).first()
    assert row is not None
    return Digest(int(row["rows"]), int(row["total"] or 0) % MODULUS)


def _hash_rows(rows: DataFrame) -> DataFrame:
    """Return the hashes of rows.

    Spark's hash passes over nulls, so that every value is hashed with the name of its column; it takes no maps, so that
    these are hashed as their entries in order. Numbers of any width are the same number.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ByteType, FloatType, IntegerType, MapType, ShortType

    hashes = []
    for field in rows.schema.fields:
        name, kind = field.name, field.dataType
        value = hashable = f.col(_quote_name(name))
        if isinstance(kind, MapType):
            hashable = f.array_sort(f.map_entries(value))
        elif isinstance(kind, ByteType | ShortType | IntegerType):
            hashable = value.cast("long")
        elif isinstance(kind, FloatType):
            hashable = value.cast("double")
        hashes.append(f.when(value.isNotNull(), f.xxhash64(f.lit(name), hashable)).otherwise(f.lit(0).cast("long")))
    together = reduce(lambda left_hash, right_hash: left_hash.bitwiseXOR(right_hash), hashes)
    return rows.select(f.xxhash64(together).cast("decimal(38,0)").alias("hash"))


def _quote_name(name: str) -> str:
    """Return a name as Spark takes it for exactly that, dots and all."""
    return f"`{name.replace('`', '``')}`"
