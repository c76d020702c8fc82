"""Options for reading and for writing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sawlog.filodb import layout
from sawlog.filodb.schemas import Schemas
from sawlog.format.options import moved, renamed

Extra = Literal["schema", "schema_id", "hash", "container_timestamp", "record"]
RecordLayout = Literal["auto", "ingestion", "partkeys"]
_NAMES = re.compile(r"[\w-]+(\s*,\s*[\w-]+)*\s*")


def _old_schema(value: Any) -> Mapping[str, Any] | None:
    """Names of schemas are `table` now; `schema` takes definitions, or a path with a dot or a slash in it."""
    names = isinstance(value, list | tuple) or (isinstance(value, str) and _NAMES.fullmatch(value))
    return {"table": value} if names else None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading FiloDB's containers.

    Attributes:
        schema: The known schemas: a `Schemas`, or the path or text of definitions in TOML or HOCON. The built-in ones
            if not given.
        table: Names of the schemas to read; records of others are skipped. `all` for all known ones; if not given,
            those that the start of the data holds.
        records: Whether records are samples or part keys; `auto` looks at the first one.
        container_size: Bytes of whole containers. Found out from the data where it is a multiple of 1024.
        strings: `binary` delivers strings and labels as bytes, for data that is not UTF-8.
        histograms: `binary` delivers histograms as the blobs they are stored as.
        statistics: Adds `count`, or `sum` (an estimate from the buckets' middles), to histograms.
        quantiles: Adds these quantiles to histograms.
        extras: Adds the columns `_schema`, `_schema_id`, `_hash`, `_container_timestamp`, `_record`.
        verify_hashes: Whether partition hashes are computed and compared with the stored ones. Producers may store
            hashes of their own, so that a difference need not be damage.
        salvage: What is delivered that the system itself would not read. `unknown_schemas`: records of unknown
            schemas, as bytes in `_record`; else they are damage.
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

    old: ClassVar = {
        "schemas": renamed("schema"),
        "schema": _old_schema,
        "unknown_schemas": moved({"raw": {"salvage": ("unknown_schemas",)}, "damage": {}}),
    }

    @property
    def known(self) -> Schemas:
        """The known schemas."""
        return self.schema if self.schema is not None else Schemas.built_in()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing FiloDB's containers.

    Attributes:
        schema: The known schemas, as for reading. If not given, those that came with the data, or the built-in ones.
        table: The schema of all rows. Not needed where a column `_schema` says it row by row, where the data was read
            from containers, or where only one schema has such columns.
        records: Whether to write samples or part keys; as the data was read, or else samples, if not given.
        container_size: Bytes that a container has at most: a multiple of 4.
        whole: Whether full containers take that many bytes, as FiloDB ships them; else all are trimmed.
        container_timestamp: Timestamp of the containers, in milliseconds since the epoch; now, if not given. A column
            `_container_timestamp` goes before.
    """

    schema: Schemas | None = None
    table: str | None = None
    records: Literal["ingestion", "partkeys"] | None = None
    container_size: int = layout.DEFAULT_CONTAINER_SIZE
    whole: bool = False
    container_timestamp: int | None = None

    old: ClassVar = {"schemas": renamed("schema"), "schema": _old_schema}
