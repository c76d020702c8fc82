"""Options for reading and for writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sawlog.filodb import layout
from sawlog.filodb.schemas import Schemas

Extra = Literal["schema", "schema_id", "hash", "container_timestamp", "record"]
RecordLayout = Literal["auto", "ingestion", "partkeys"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading FiloDB's containers.

    Attributes:
        schema: Definitions of schemas: a file, text in TOML or HOCON, or in Python a `Schemas`. By default FiloDB's
            own.
        table: Names of the schemas to read, or `all`; by default those of the records at the start of each file.
        records: Read samples (`ingestion`) or part keys; `auto` goes by the first whole record.
        container_size: Bytes of whole containers; found from the data if a multiple of 1024.
        strings: `binary` returns strings and labels as bytes, for data that is not UTF-8.
        histograms: `binary` returns histograms as the bytes that are stored.
        statistics: Fields to add to histograms; `sum` is an estimate from the middles of the buckets.
        quantiles: Quantiles to add to histograms, such as `0.5,0.99`.
        extras: Columns to add: `_schema`, `_schema_id`, `_hash`, `_container_timestamp`, `_record`.
        verify_hashes: Compare stored partition hashes with computed ones. Producers may store hashes of their own.
        salvage: `unknown_schemas` returns records of unknown schemas, as bytes in `_record`.
    """

    schema: Schemas | None = None
    table: tuple[str, ...] = ()
    records: RecordLayout = "auto"
    container_size: int | None = None
    strings: Literal["utf8", "binary"] = "utf8"
    histograms: Literal["struct", "binary"] = "struct"
    statistics: tuple[Literal["count", "sum"], ...] = ()
    quantiles: tuple[float, ...] = ()
    extras: tuple[Extra, ...] = ()
    verify_hashes: bool = False
    salvage: tuple[Literal["unknown_schemas"], ...] = ()

    @property
    def known_schemas(self) -> Schemas:
        """The known schemas."""
        return self.schema if self.schema is not None else Schemas.built_in()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing FiloDB's containers.

    Attributes:
        schema: As for reading; by default that of the data, else FiloDB's own.
        table: Schema of all rows. Needed only where the data, a column `_schema` and the columns do not say it.
        records: What the rows are; by default as the data was read, else samples.
        container_size: Largest size of a container in bytes, a multiple of 4.
        whole: Pad full containers to `container_size`, as FiloDB ships them.
        container_timestamp: Timestamp of containers, in milliseconds; by default that in a column
            `_container_timestamp`, else now.
    """

    schema: Schemas | None = None
    table: str | None = None
    records: Literal["ingestion", "partkeys"] | None = None
    container_size: int = layout.DEFAULT_CONTAINER_SIZE
    whole: bool = False
    container_timestamp: int | None = None
