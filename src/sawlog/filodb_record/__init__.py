"""FiloDB's BinaryRecord v2 and RecordContainers: time series as they travel through Kafka and rest in Cassandra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.lazy import exported

if TYPE_CHECKING:
    from sawlog.filodb_record.builder import RecordBuilder
    from sawlog.filodb_record.builder.container import RecordContainer
    from sawlog.filodb_record.histograms import (
        Buckets,
        Histogram,
        histogram_add,
        histogram_fraction,
        histogram_merge,
        histogram_quantile,
    )
    from sawlog.filodb_record.maps import MapEncoder
    from sawlog.filodb_record.schemas import DatasetOptions, PartitionSchema, Schema, Schemas
    from sawlog.filodb_record.schemas.record import Column, RecordSchema

__all__ = [
    "Buckets",
    "Column",
    "DatasetOptions",
    "Histogram",
    "MapEncoder",
    "PartitionSchema",
    "RecordBuilder",
    "RecordContainer",
    "RecordSchema",
    "Schema",
    "Schemas",
    "histogram_add",
    "histogram_fraction",
    "histogram_merge",
    "histogram_quantile",
]

if not TYPE_CHECKING:
    __getattr__ = exported(
        __name__,
        {
            "builder": ("RecordBuilder",),
            "builder.container": ("RecordContainer",),
            "histograms": (
                "Buckets",
                "Histogram",
                "histogram_add",
                "histogram_fraction",
                "histogram_merge",
                "histogram_quantile",
            ),
            "maps": ("MapEncoder",),
            "schemas": ("DatasetOptions", "PartitionSchema", "Schema", "Schemas"),
            "schemas.record": ("Column", "RecordSchema"),
        },
    )
