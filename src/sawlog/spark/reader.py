"""The batch source: one input partition per task that sawlog plans."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from sawlog.damage import Findings
from sawlog.errors import OptionError, SchemaError
from sawlog.format import Dataset, Fragment, Scan
from sawlog.spark.cast import cast_batch
from sawlog.spark.filters import pushing_down, read_filters, translate_filters
from sawlog.spark.options import Request, read_request
from sawlog.spark.schema import arrow_schema, check_schema, spark_schema, spark_version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("sawlog")


def read_schema(options: Mapping[str, str], format: str | None) -> StructType:
    """Schema of what the options of a read ask for."""
    return spark_schema(read_request(options, format).open().schema)


def make_reader(options: Mapping[str, str], format: str | None, schema: StructType) -> SawlogReader:
    """The reader for these options: one that takes filters only where that is wanted, and Spark will push them."""
    request = read_request(options, format)
    pushdown = request.own.pushdown and pushing_down()
    return PushdownReader(request, schema) if pushdown else SawlogReader(request, schema)


class SawlogReader(DataSourceReader):
    """Plans and reads the columns of `schema`. Picklable; holds no open file."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._filters: list[Any] = []

    def partitions(self) -> list[InputPartition]:
        """One partition per task: small files share one, large ones make several."""
        scan = projected(self._request, dataset := self._request.open(), self._schema, self._filters)
        return [InputPartition(fragments) for fragments in tasks(self._request, dataset, scan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        return read_fragments(partition.value or [], self._schema)  # without partitions, Spark makes one of None


class PushdownReader(SawlogReader):
    """A reader that Spark may push filters to."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Remember the filters, to read less, and leave all of them for Spark to check."""
        self._filters = list(filters)
        return self._filters


class NoStreams(DataSourceStreamReader):
    """What stands for a stream source where PySpark is too old for one."""

    def initialOffset(self) -> dict[str, Any]:
        """Refuse.

        Raises:
            OptionError: Always.
        """
        raise OptionError(f"streams need PySpark 4.2 or later; found {spark_version()}")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never asked: `initialOffset` comes first."""
        raise NotImplementedError


def tasks(request: Request, dataset: Dataset, scan: Scan) -> list[list[Fragment]]:
    """What each task reads."""
    return dataset.format.open(dataset.files, scan).tasks(request.own.task_bytes)


def projected(request: Request, dataset: Dataset, schema: StructType, pushed: Sequence[Any] = ()) -> Scan:
    """The scan of a dataset with the columns of a schema, and the filters of the option and of Spark.

    Raises:
        OptionError: When the option `columns` says otherwise.
        SchemaError: When the dataset has no such columns.
    """
    scan = dataset.scan
    available = dataset.available
    names = tuple(schema.names)
    if scan.columns is not None and scan.columns != names:
        raise OptionError(
            f"option columns={','.join(scan.columns)!r}: the schema given to Spark has the columns"
            f" {', '.join(names)}; give one of the two"
        )
    check_schema(schema, available, f"view {scan.view!r} of {dataset.format.name}")
    filters = read_filters(request.own.filters, available)
    filters += translate_filters(pushed, available, schema)
    return replace(scan, columns=names, filters=filters)


def read_fragments(fragments: Sequence[Fragment], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of fragments, in order, as Spark wants them. What is left out is logged.

    Raises:
        SchemaError: When a value has no place in the schema, as a null where it says NOT NULL; names file and column.
    """
    target = arrow_schema(schema)
    for fragment in fragments:
        findings = Findings(fragment.scan.on_damage)
        for batch in fragment.to_batches(findings):
            _settle()
            try:
                ready = cast_batch(batch, target)
            except SchemaError as error:
                raise SchemaError(f"{fragment.path}: {error}") from error
            yield ready
        for remark in findings.remarks(fragment.path):
            logger.warning(remark)


def count_fragments(fragments: Sequence[Fragment]) -> Iterator[pa.RecordBatch]:
    """How many rows fragments have, without filters no column is decoded."""
    for fragment in fragments:
        findings = Findings(fragment.scan.on_damage)
        if fragment.projection.filters or fragment.scan.view == "damage":
            rows = sum(batch.num_rows for batch in fragment.to_batches(findings))
        else:
            for _ in fragment.decode(pa.schema([]), findings):
                _settle()
            rows = findings.rows
        yield pa.record_batch({"rows": pa.array([rows], pa.int64())})
        for remark in findings.remarks(fragment.path):
            logger.warning(remark)


@dataclass(frozen=True)
class PartitionFunction:
    """What the jar has Spark's workers do: pickled fragments in, the batches of a schema out.

    Attributes:
        schema: The wanted columns; when there are none, rows are counted.
    """

    schema: StructType

    def __call__(self, partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        (given,) = [batch.column(0)[0].as_py() for batch in partition]
        fragments = CPickleSerializer().loads(given)
        return read_fragments(fragments, self.schema) if self.schema.fields else count_fragments(fragments)


@cache
def _settle() -> None:
    """Take what the first batch has loaded out of garbage collection, which Spark runs after every task."""
    gc.collect()
    gc.freeze()
