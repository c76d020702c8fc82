"""Options for reading, and the record layouts that they settle on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.filodb_record import layout
from sawlog.filodb_record.container import RecordContainer
from sawlog.filodb_record.schema import RecordSchema
from sawlog.filodb_record.schemas import Schema, Schemas

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


@dataclass(frozen=True)
class Layout:
    """How the records of one schema are laid out.

    Attributes:
        name: Name of the schema.
        schema_id: What stands in the records; None for records without.
        record: The columns.
    """

    name: str
    schema_id: int | None
    record: RecordSchema


@dataclass(frozen=True)
class Selection:
    """What is read of some data.

    Attributes:
        layouts: The layouts of the schemas to deliver.
        chosen: Whether the user named them; other known schemas are then passed over, else they are damage.
        known: IDs of all known schemas.
        raw: Whether records of unknown schemas are delivered as bytes.
    """

    layouts: tuple[Layout, ...]
    chosen: bool
    known: frozenset[int]
    raw: bool

    @property
    def plain(self) -> bool:
        """Whether records have no schema ID."""
        return any(one.schema_id is None for one in self.layouts)


def select(options: ReadOptions, head: bytes) -> Selection:
    """Settle which schemas are read, and whether records are samples or part keys.

    Args:
        options: What the user says.
        head: The start of the data: a container, or a record.

    Raises:
        SchemaError: For a schema that is not known.
        OptionError: For a schema without partition columns beside others, or where none of several is named.
    """
    known = options.known
    records = _records(head)
    chosen: Sequence[Schema] = known.select(options.schema)
    if not chosen:
        found = {int.from_bytes(record[4:6], "little"): None for record in records}
        chosen = [schema for schema in map(known.by_id, found) if schema is not None] or known.select(("all",))
    if not chosen:
        # None has partition columns, so that records do not say their schema.
        chosen = list(known.values())
        if len(chosen) != 1:
            raise OptionError(f"records have no schema ID: name their schema with schema=; schemas: {', '.join(known)}")
    if any(schema.partition is None for schema in chosen):
        if len(chosen) > 1:
            raise OptionError(
                f"schema={','.join(options.schema)}: records without partition columns have no schema ID;"
                " such a schema is read alone"
            )
        return Selection((Layout(chosen[0].name, None, chosen[0].ingestion),), True, frozenset(), False)
    part_keys = options.records == "partkeys" or (options.records == "auto" and _are_part_keys(records, chosen))
    layouts = tuple(
        Layout(schema.name, schema.schema_id, schema.part_key if part_keys else schema.ingestion) for schema in chosen
    )
    ids = frozenset(schema.schema_id for schema in known.values() if schema.partition is not None)
    return Selection(layouts, bool(options.schema), ids, options.unknown_schemas == "raw")


def _records(head: bytes) -> list[memoryview]:
    """The records at the start of some data, as far as they can be made out."""
    view = memoryview(head)
    at, end = 0, len(head)
    try:
        container = RecordContainer(head)
        at, end = layout.CONTAINER_HEADER_SIZE, container.num_bytes + layout.LENGTH_SIZE
    except FormatError:
        if len(head) > layout.VERSION_OFFSET + 3 and head[4:8] == b"\0\0\0\1":  # a container, cut off
            at = layout.CONTAINER_HEADER_SIZE
    found = []
    while end - at > layout.SCHEMA_ID_OFFSET + 2:
        size = int.from_bytes(view[at : at + layout.LENGTH_SIZE], "little") + layout.LENGTH_SIZE
        if size > end - at:
            break
        found.append(view[at : at + size])
        at += layout.align(size)
    return found


def _are_part_keys(records: Sequence[memoryview], schemas: Sequence[Schema]) -> bool:
    """Whether the first record of these schemas is laid out as a part key and not as a sample."""
    by_id = {schema.schema_id: schema for schema in schemas}
    for record in records:
        schema = by_id.get(int.from_bytes(record[4:6], "little"))
        if schema is not None:
            return not _fits(schema.ingestion, record) and _fits(schema.part_key, record)
    return False


def _fits(schema: RecordSchema, record: memoryview) -> bool:
    """Whether a record's payloads fill its variable area in the order of the columns, as builders have it."""
    try:
        size = schema.num_bytes(record)
        at = schema.variable_area_start
        for index, column in enumerate(schema.columns):
            if column.pointer:
                slot = schema.field_offsets[index]
                if int.from_bytes(record[slot : slot + 4], "little") != at:
                    return False
                at += layout.PAYLOAD_LENGTH_SIZE + len(schema.blob(record, index))
    except (FormatError, SchemaError):
        return False
    return at == size
