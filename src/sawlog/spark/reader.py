"""The batch source: one input partition per task that sawlog plans."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sawlog.damage import Findings
from sawlog.errors import OptionError
from sawlog.format import Dataset, Fragment
from sawlog.spark.cast import cast_batch
from sawlog.spark.filters import pushing_down, read_filters, translate_filters
from sawlog.spark.options import Request, read_request
from sawlog.spark.schema import arrow_schema, check_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
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
        dataset = self._project(self._request.open())
        return [InputPartition(fragments) for fragments in dataset.tasks(self._request.own.task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        target = arrow_schema(self._schema)
        fragments: list[Fragment] = partition.value or []  # without partitions, Spark makes one of None
        for fragment in fragments:
            findings = Findings(fragment.scan.on_damage)
            for batch in fragment.to_batches(findings):
                _settle()
                yield cast_batch(batch, target)
            for remark in findings.remarks(fragment.path):
                logger.warning(remark)

    def _project(self, dataset: Dataset) -> Dataset:
        """The dataset with the columns that Spark wants, and the filters that it pushed down."""
        scan = dataset.scan
        available = dataset.available
        names = tuple(self._schema.names)
        if scan.columns is not None and scan.columns != names:
            raise OptionError(
                f"option columns={','.join(scan.columns)!r}: the schema given to Spark has the columns"
                f" {', '.join(names)}; give one of the two"
            )
        check_schema(self._schema, available, f"view {scan.view!r} of {dataset.format.name}")
        filters = read_filters(self._request.own.filters, available)
        filters += translate_filters(self._filters, available, self._schema)
        return dataset.format.open(dataset.files, replace(scan, columns=names, filters=filters))


class PushdownReader(SawlogReader):
    """A reader that Spark may push filters to."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Remember the filters, to read less, and leave all of them for Spark to check."""
        self._filters = list(filters)
        return self._filters


@cache
def _settle() -> None:
    """Take what the first batch has loaded out of garbage collection, which Spark runs after every task."""
    gc.collect()
    gc.freeze()
