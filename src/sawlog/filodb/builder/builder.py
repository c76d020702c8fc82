"""Building records one by one, in FiloDB's manner and with its bytes. Sections 4 and 6 of the format.

FiloDB checks neither types nor completeness. This builder does, before anything is written: what it accepts, FiloDB
accepts, with the same bytes. For tables, `sawlog.write` is many times faster.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from sawlog.errors import SchemaError
from sawlog.filodb import layout, maps
from sawlog.filodb.builder.append import Append, OpenRecord, Space
from sawlog.filodb.builder.container import RecordContainer, check_container_size
from sawlog.filodb.hashing import combine, hash_bytes, make_java_key
from sawlog.filodb.histograms import Histogram
from sawlog.filodb.schemas import Schema
from sawlog.filodb.schemas.record import Buffer, Column, RecordSchema


class RecordBuilder:
    """Builds records into containers. Not for several threads at once.

    Args:
        container_size: Bytes of a container, a multiple of 4, at least 2048.
        reuse_one_container: Never begin a second container: when the one is full, its records are dropped and it is
            refilled.
        clock: Gives the timestamp of a container, in milliseconds since the epoch.

    Raises:
        OptionError: For a container size that cannot be.
    """

    def __init__(
        self,
        container_size: int = layout.DEFAULT_CONTAINER_SIZE,
        *,
        reuse_one_container: bool = False,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        check_container_size(container_size)
        self.container_size = container_size
        self._space = Space(container_size, reuse_one_container, clock)
        self._open: OpenRecord | None = None
        if reuse_one_container:
            self._space.add_container()

    # Records.

    def start_new_record(self, schema: Schema | RecordSchema, schema_id: int | None = None) -> None:
        """Begin a record. One that was begun and not ended is dropped, as in FiloDB.

        Args:
            schema: A dataset's schema for a sample; or a record schema, with `schema_id` if it has partition columns.
            schema_id: What to write as schema ID.

        Raises:
            SchemaError: When the schema ID is missing, out of place or out of range.
        """
        if isinstance(schema, Schema):
            schema_id = schema.schema_id if schema.partition is not None and schema_id is None else schema_id
            schema = schema.ingestion
        if schema.has_partition != (schema_id is not None):
            raise SchemaError(f"{schema}: a schema ID is given where there are partition columns, and only there")
        if schema_id is not None and not 0 <= schema_id <= 0xFFFF:
            raise SchemaError(f"schema ID {schema_id}: expected 0 to 65535")
        self._open = OpenRecord(schema, schema_id or 0)

    def add_int(self, value: int) -> None:
        """Add an `int` column."""
        self._add_scalar(value, "int")

    def add_long(self, value: int) -> None:
        """Add a `long` or `ts` column."""
        self._add_scalar(value, "long", "ts")

    def add_double(self, value: float) -> None:
        """Add a `double` column."""
        self._add_scalar(value, "double")

    def add_string(self, value: str | Buffer) -> None:
        """Add a `string` column."""
        self._add_payload(value.encode() if isinstance(value, str) else bytes(value), "string")

    def add_blob(self, value: Buffer) -> None:
        """Add a `string`, `hist` or `br` column as bytes, without a length in front."""
        self._add_payload(bytes(value), "string", "hist", "br")

    def add_histogram(self, value: Histogram) -> None:
        """Add a `hist` column."""
        self._expect("hist")
        self._add_payload(value.encode(), "hist")

    def add_map(self, value: Mapping[str, str]) -> None:
        """Add a `map` column, its keys in the order of their UTF-8 bytes."""
        record, _ = self._expect("map")
        self._finish_map(maps.encode_entries(value, record.schema.predefined, str.encode), bulk_hash=True)

    def encode_map_from(self, value: Mapping[str, str]) -> None:
        """Add a `map` column, its keys in the order of Java's strings."""
        record, _ = self._expect("map")
        self.add_encoded_map(b"".join(maps.encode_entries(value, record.schema.predefined, make_java_key)))

    def add_encoded_map(self, entries: Buffer) -> None:
        """Add a `map` column from entries that `MapEncoder` made with the same predefined keys."""
        record, _ = self._expect("map")
        for _ in maps.iterate(entries, record.schema.predefined):
            pass
        self._finish_map([bytes(entries)], bulk_hash=True, incremental=False)

    def start_map(self) -> None:
        """Begin a `map` column, whose entries follow."""
        record, _ = self._expect("map")
        record.entries = []

    def add_map_key_value(self, key: str | bytes, value: str | bytes) -> None:
        """Add an entry to the map that was started. Neither order nor repetition of keys is checked."""
        record = self._require_map()
        entry = maps.encode_entry(_as_bytes(key), _as_bytes(value), record.schema.predefined)
        self._add_entry(record, entry)

    def add_map_key_value_hash(self, key: str | bytes, value: str | bytes) -> None:
        """Add an entry, not as a predefined key, and its hash to the partition hash; end with `bulk_hash=False`."""
        record = self._require_map()
        name, item = _as_bytes(key), _as_bytes(value)
        self._add_entry(record, maps.encode_entry(name, item, ()))
        record.hash = combine(record.hash, combine(hash_bytes(name), hash_bytes(item)))

    def end_map(self, bulk_hash: bool = True) -> None:
        """End the map.

        Args:
            bulk_hash: Whether its bytes enter the partition hash; producers that hash otherwise say no.
        """
        record = self._require_map()
        entries, record.entries = record.entries or [], None
        self._finish_map(entries, bulk_hash=bulk_hash)

    def update_partition_hash(self, value: int) -> None:
        """Combine a hash of the producer's own into the partition hash."""
        record = self._require_record()
        record.hash = combine(record.hash, value)

    def add_slowly(self, value: Any) -> None:
        """Add the next column, whatever its type.

        Raises:
            SchemaError: When the value is not of that type.
        """
        _, column = self._expect(*get_args(layout.ColumnType))
        if column.type == "map" and isinstance(value, Mapping):
            self.add_map(value)
        elif column.type == "hist" and isinstance(value, Histogram):
            self.add_histogram(value)
        elif column.pointer and isinstance(value, str | bytes | bytearray | memoryview):
            self._add_payload(_as_bytes(value), "string", "hist", "br")
        else:
            self._add_scalar(value, *layout.SCALARS)

    def add_from_reader(self, row: Sequence[Any], schema: Schema | RecordSchema, schema_id: int | None = None) -> int:
        """Add a whole record from a row of values.

        Returns:
            As `end_record`.
        """
        self.start_new_record(schema, schema_id)
        for value in row:
            self.add_slowly(value)
        return self.end_record()

    def add_part_key_fields(self, record: Buffer, schema: RecordSchema) -> None:
        """Add the partition columns of a record, an ingestion record or a part key, and take its hash over."""
        opened = self._require_record()
        start = schema.partition_field_start or 0
        for index in range(start, len(schema.columns)):
            column = schema.columns[index]
            if column.type == "map":
                self._expect("map")
                self._finish_map([bytes(schema.blob(record, index))], bulk_hash=False, incremental=False)
            elif column.pointer:
                self._add_payload(bytes(schema.blob(record, index)), column.type)
            else:
                self.add_slowly(schema.get(record, index))
        opened.hash = schema.partition_hash(record)

    def end_record(self, write_hash: bool = True) -> int:
        """Complete the record, and write it.

        Args:
            write_hash: Whether the partition hash is written; 0 is stored without it.

        Returns:
            The record's offset in the last container.

        Raises:
            SchemaError: When columns are missing, or the record is too long for a container. Nothing is written.
        """
        record = self._require_record()
        if record.entries is not None:
            raise SchemaError("the map was not ended: call end_map")
        missing = record.schema.columns[len(record.slots) :]
        if missing:
            raise SchemaError(f"columns are missing: {', '.join(column.name for column in missing)}")
        offset = Append(self._space, record, write_hash=write_hash).write()
        self._open = None
        return offset

    # Containers.

    @property
    def containers(self) -> list[bytearray]:
        """The bytes of all containers, whole."""
        return self._space.containers

    @property
    def current_container(self) -> RecordContainer | None:
        """The container that is being filled."""
        return RecordContainer(self.containers[-1]) if self.containers else None

    @property
    def all_containers(self) -> list[RecordContainer]:
        """All containers."""
        return [RecordContainer(array) for array in self.containers]

    def optimal_container_bytes(self, reset: bool = False) -> list[bytes]:
        """Return all containers: full ones whole, with what is left of their arrays.

        The last one trimmed, unless empty.

        Args:
            reset: Drop the full ones, and begin the last one again.
        """
        containers = self.non_current_container_bytes()
        current = self.current_container
        if current is not None and not current.is_empty:
            containers.append(current.trimmed_bytes())
        if reset:
            del self.containers[:-1]
            self.reset()
        return containers

    def non_current_container_bytes(self, reset: bool = False) -> list[bytes]:
        """Return the full containers, whole.

        Args:
            reset: Drop them.
        """
        containers = [bytes(array) for array in self.containers[:-1]]
        if reset:
            del self.containers[:-1]
        return containers

    def reset(self) -> None:
        """Begin the current container again, with a new timestamp; its old bytes stay after its end."""
        self._open = None
        if self.containers:
            self._space.begin()

    # Columns.

    def _require_record(self) -> OpenRecord:
        if self._open is None:
            raise SchemaError("no record was started: call start_new_record")
        return self._open

    def _expect(self, *kinds: str) -> tuple[OpenRecord, Column]:
        """Return the record and its next column, which must be of one of these types."""
        record = self._require_record()
        if record.entries is not None:
            raise SchemaError("a map was started: add its entries, then call end_map")
        if len(record.slots) == len(record.schema.columns):
            raise SchemaError(f"all {len(record.slots)} columns are filled: call end_record")
        column = record.schema.columns[len(record.slots)]
        if column.type not in kinds:
            raise SchemaError(f"the next column, {column.name!r}, is {column.type}, not {' or '.join(kinds)}")
        return record, column

    def _add_scalar(self, value: Any, *kinds: str) -> None:
        record, column = self._expect(*kinds)
        accepted_types: Any = (int, float) if column.type == "double" else int
        if not isinstance(value, accepted_types) or isinstance(value, bool):
            raise SchemaError(f"column {column.name!r} is {column.type}; found {type(value).__name__} {value!r}")
        try:
            slot = layout.SCALARS[column.type].encode(value)
        except (struct.error, OverflowError) as error:
            raise SchemaError(f"column {column.name!r}: {value} does not fit {column.type}") from error
        record.slots.append(slot)
        record.incremental.append(False)

    def _add_payload(self, data: bytes, *kinds: str) -> None:
        record, column = self._expect(*kinds)
        if len(data) > layout.MAX_PAYLOAD:
            raise SchemaError(f"column {column.name!r}: {len(data)} bytes; at most {layout.MAX_PAYLOAD}")
        if len(record.slots) in record.schema.hashed_columns:
            record.hash = combine(record.hash, hash_bytes(data))
        record.slots.append([data])
        record.incremental.append(False)

    def _require_map(self) -> OpenRecord:
        record = self._require_record()
        if record.entries is None:
            raise SchemaError("no map was started: call start_map")
        return record

    def _add_entry(self, record: OpenRecord, entry: bytes) -> None:
        entries = record.entries if record.entries is not None else []
        size = sum(map(len, entries)) + len(entry)
        if size > layout.MAX_PAYLOAD:
            raise SchemaError(f"map: {size} bytes of entries; a map has at most {layout.MAX_PAYLOAD}")
        entries.append(entry)

    def _finish_map(self, entries: list[bytes], *, bulk_hash: bool, incremental: bool = True) -> None:
        record, column = self._expect("map")
        data = b"".join(entries)
        if len(data) > layout.MAX_PAYLOAD:
            raise SchemaError(f"column {column.name!r}: {len(data)} bytes of entries; at most {layout.MAX_PAYLOAD}")
        if bulk_hash:
            record.hash = combine(record.hash, hash_bytes(layout.PAYLOAD.encode(data)))
        record.slots.append(entries)
        record.incremental.append(incremental)


def _as_bytes(value: str | Buffer) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
