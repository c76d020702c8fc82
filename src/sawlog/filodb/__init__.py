"""FiloDB's BinaryRecord v2 and RecordContainers: time series as they travel through Kafka and rest in Cassandra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.format.lazy import lazy_module_getattr

if TYPE_CHECKING:
    from sawlog.filodb.builder import RecordBuilder
    from sawlog.filodb.builder.container import RecordContainer
    from sawlog.filodb.histograms import (
        Buckets,
        Histogram,
        histogram_add,
        histogram_fraction,
        histogram_merge,
        histogram_quantile,
    )
    from sawlog.filodb.maps import MapEncoder
    from sawlog.filodb.schemas import DatasetOptions, PartitionSchema, Schema, Schemas
    from sawlog.filodb.schemas.record import Column, RecordSchema

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
    __getattr__ = lazy_module_getattr(
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
