"""Options for reading and for writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sawlog.filodb_record import layout
from sawlog.filodb_record.schemas import Schemas

Extra = Literal["schema", "schema_id", "hash", "container_timestamp", "record"]
RecordLayout = Literal["auto", "ingestion", "partkeys"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading FiloDB's containers.

    Attributes:
        schemas: The known schemas: a `Schemas`, or the path or text of definitions in TOML or HOCON. The built-in ones
            if not given.
        schema: Names of the schemas to read; records of others are passed over. `all` for all known ones; if not
            given, those that the start of the data holds.
        records: Whether records are samples or part keys; `auto` looks at the first one.
        container_size: Bytes of whole containers. Found out from the data where it is a multiple of 1024.
        strings: `binary` delivers strings and labels as bytes, for data that is not UTF-8.
        histograms: `binary` delivers histograms as the blobs they are stored as.
        statistics: Adds `count`, or `sum` (an estimate from the buckets' middles), to histograms.
        quantiles: Adds these quantiles to histograms.
        extras: Adds the columns `_schema`, `_schema_id`, `_hash`, `_container_timestamp`, `_record`.
        verify_hashes: Whether partition hashes are computed and compared with the stored ones. Producers may store
            hashes of their own, so that a difference need not be damage.
        unknown_schemas: `raw` delivers records of unknown schemas as bytes in `_record`; else they are damage.
    """

    schemas: Schemas | None = None
    schema: tuple[str, ...] = ()
    records: RecordLayout = "auto"
    container_size: int | None = None
    strings: Literal["utf8", "binary"] = "utf8"
    histograms: Literal["struct", "binary"] = "struct"
    statistics: tuple[Literal["count", "sum"], ...] = ()
    quantiles: tuple[float, ...] = ()
    extras: tuple[Extra, ...] = ()
    verify_hashes: bool = False
    unknown_schemas: Literal["damage", "raw"] = "damage"

    @property
    def known(self) -> Schemas:
        """The known schemas."""
        return self.schemas if self.schemas is not None else Schemas.built_in()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing FiloDB's containers.

    Attributes:
        schemas: The known schemas, as for reading. If not given, those that came with the data, or the built-in ones.
        schema: The schema of all rows. Not needed where a column `_schema` says it row by row, where the data was read
            from containers, or where only one schema has such columns.
        records: Whether to write samples or part keys; as the data was read, or else samples, if not given.
        container_size: Bytes that a container has at most: a multiple of 4.
        whole: Whether full containers take that many bytes, as FiloDB ships them; else all are trimmed.
        container_timestamp: Timestamp of the containers, in milliseconds since the epoch; now, if not given. A column
            `_container_timestamp` goes before.
    """

    schemas: Schemas | None = None
    schema: str | None = None
    records: Literal["ingestion", "partkeys"] | None = None
    container_size: int = layout.DEFAULT_CONTAINER_SIZE
    whole: bool = False
    container_timestamp: int | None = None
