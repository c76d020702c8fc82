"""FiloDB's containers as a format of sawlog."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from sawlog import api
from sawlog.damage import DamageWarning
from sawlog.filodb_record.judge import header_length
from sawlog.filodb_record.options import ReadOptions, WriteOptions
from sawlog.format import Dataset, Format, Match, Scan, Writer

if TYPE_CHECKING:
    from sawlog.damage import FileReport
    from sawlog.storage import File, Storage

_SUFFIXES = (".container", ".filodb")
_LABELS = pa.map_(pa.string(), pa.string())
_NESTED = """
[schemas.result]
columns = ["timestamp:ts", "inner:br"]
partitioned = false

[schemas.result.nested.inner]
columns = ["x:double"]
"""


class FiloDBRecord(Format):
    """FiloDB's BinaryRecord v2 in RecordContainers: one or many containers per file, trimmed or whole."""

    name = "filodb_record"
    title = "FiloDB record container"
    suffix = ".container"
    views: ClassVar = {
        "rows": "one row per record: the columns of its schema, the labels as a map",
        "partkeys": "one row per distinct series: schema, schema_id, partition_hash and the partition columns",
        "containers": "one row per container: timestamp, num_bytes, num_records, unused_bytes",
        "damage": "one row per damaged range",
    }
    read_options = ReadOptions
    write_options = WriteOptions

    def match(self, file: File, head: bytes) -> Match:
        """By a container header whose first record fits; a damaged file by its name."""
        if header_length(head, file.size) is not None:
            return Match.CONTENT
        return Match.NAME if file.name.endswith(_SUFFIXES) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Files named by the user, and those with the suffix, in natural order."""
        return [file for file in files if file.explicit or file.name.endswith(_SUFFIXES)]

    def open(self, files: Sequence[File], scan: Scan) -> Dataset:
        """See `Format.open`."""
        from sawlog.filodb_record.dataset import FiloDBRecordDataset

        return FiloDBRecordDataset(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> Writer:
        """See `Format.writer`."""
        from sawlog.filodb_record.writer import ContainerWriter

        return ContainerWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
        """See `Format.repair`."""
        from sawlog.filodb_record.repair import repair

        return repair(file, target, options, storage)

    def warm_up(self) -> None:
        """See `Format.warm_up`: write a container, read every view of it, check and repair it; and what is beside."""
        from sawlog.filodb_record.histograms import Buckets, Histogram, nibblepack
        from sawlog.filodb_record.schemas import Schemas, default_partition
        from sawlog.filodb_record.series import FIRST_SERIES
        from sawlog.filodb_record.values import ValueDecoder, partition_hashes, shards

        with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            path, copy = (os.path.join(directory, f"{number}{self.suffix}") for number in (1, 2))
            count = FIRST_SERIES + 1  # a table of series that must grow
            histogram = {"tops": [1.0, 2.0], "values": [1.0, 2.0]}
            columns: dict[str, list[Any]] = {"timestamp": [0], "sum": [0.0], "count": [2.0], "h": [histogram]}
            metrics = pa.array([f"é{n}" for n in range(count)])
            labels = pa.array([[("_ws_", "é")]] * count, _LABELS)
            values = {name: pa.array(values * count) for name, values in columns.items()}
            table = pa.table({**values, "_metric_": metrics, "tags": labels})
            api.write(table, path, format=self.name, schema="prom-histogram")
            for view in self.views:
                api.read(path, format=self.name, view=view, on_damage="skip", provenance=True)
            statistics: dict[str, Any] = {"statistics": ("count", "sum"), "quantiles": (0.5,), "verify_hashes": True}
            api.read(path, format=self.name, **statistics)
            api.verify(path, format=self.name)
            api.repair(path, copy, format=self.name)
            with open(path, "rb") as file:
                ValueDecoder(ReadOptions(schema=("prom-histogram",))).decode(pa.array([file.read()]))
            nested = pa.table({"timestamp": [0], "inner": [{"x": 1.0}]})
            schemas = Schemas.parse(_NESTED)
            api.write(nested, path, format=self.name, schemas=schemas)
            api.read(path, format=self.name, schemas=schemas)
        partition_hashes({"_metric_": metrics, "tags": labels}, Schemas.built_in()["gauge"])
        shards(metrics, labels, 4, 1, default_partition())
        whole = Histogram(Buckets.geometric(1.0, 2.0, 2), (1.0, 2.0))
        for buckets in (whole.buckets, Buckets.exponential(1, 0, 1)):
            Histogram(buckets, (1.0, 2.0)).fraction(0.0, 1.5)
        whole.quantile(0.5)
        nibblepack.unpack(nibblepack.pack([1]), 1)
        nibblepack.unpack_delta(nibblepack.pack_delta([1]), 1)
        nibblepack.unpack_doubles(nibblepack.pack_doubles([1.0]), 1)
