"""Building records one by one, in FiloDB's manner and with its bytes. Sections 4 and 6 of the format.

FiloDB checks neither types nor completeness. This builder does, before anything is written: what it accepts, FiloDB
accepts, with the same bytes. For tables, `sawlog.write` is many times faster.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.filodb_record import layout, maps
from sawlog.filodb_record.columns import Column
from sawlog.filodb_record.hashing import combine, h32, java_order
from sawlog.filodb_record.histogram import Histogram
from sawlog.filodb_record.schema import Buffer, RecordSchema
from sawlog.filodb_record.schemas import Schema

_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_VERSION_WORD = layout.VERSION << layout.VERSION_SHIFT


def _now() -> int:
    return time.time_ns() // 1_000_000


class RecordContainer:
    """Bytes that begin with a container header; what follows the container's end is not looked at.

    Raises:
        FormatError: When they hold no complete container of version 1.
    """

    def __init__(self, data: Buffer) -> None:
        self.array = data
        if len(data) < layout.CONTAINER_HEADER_SIZE:
            raise FormatError(f"container: {len(data)} bytes; its header alone has {layout.CONTAINER_HEADER_SIZE}")
        if self.version != layout.VERSION:
            raise FormatError(f"container: version {self.version}; only version {layout.VERSION} is known")
        if not layout.EMPTY_CONTAINER <= self.num_bytes <= len(data) - layout.LENGTH_SIZE:
            raise FormatError(f"container: length {self.num_bytes}; {len(data)} bytes are there")

    @property
    def num_bytes(self) -> int:
        """Bytes after the length field: the rest of the header, and the records with their padding."""
        return int(_INT.unpack_from(self.array, 0)[0])

    @property
    def version(self) -> int:
        """Version of the container."""
        return self.array[layout.VERSION_OFFSET + layout.LENGTH_SIZE - 1]

    @property
    def timestamp(self) -> int:
        """When the container was begun, in milliseconds since the epoch."""
        return int(_LONG.unpack_from(self.array, layout.TIMESTAMP_OFFSET)[0])

    @property
    def is_empty(self) -> bool:
        """Whether it holds no records."""
        return self.num_bytes <= layout.EMPTY_CONTAINER

    def trimmed_bytes(self) -> bytes:
        """The container without what follows its end."""
        return bytes(self.array[: self.num_bytes + layout.LENGTH_SIZE])

    def offsets(self) -> Iterator[int]:
        """Offset of each record.

        Raises:
            FormatError: When a record runs over the end.
        """
        end = self.num_bytes + layout.LENGTH_SIZE
        at = layout.CONTAINER_HEADER_SIZE
        while at < end:
            length = _INT.unpack_from(self.array, at)[0] if end - at >= layout.LENGTH_SIZE else -1
            if not 0 <= length <= end - at - layout.LENGTH_SIZE:
                raise FormatError(
                    f"container: the record at byte {at} has length {length}; the container ends at {end}"
                )
            yield at
            at += layout.align(length + layout.LENGTH_SIZE)

    def __iter__(self) -> Iterator[memoryview]:
        """The records: views, not copies, each without padding."""
        view = memoryview(self.array)
        for at in self.offsets():
            yield view[at : at + layout.LENGTH_SIZE + _INT.unpack_from(self.array, at)[0]]

    def __len__(self) -> int:
        return sum(1 for _ in self.offsets())


@dataclass
class _Open:
    """A record that is being built.

    Attributes:
        slots: Per column: the bytes of its slot, or the pieces of its payload, the length in front not included.
        incremental: Whether the pieces were added one by one, as map entries are.
    """

    schema: RecordSchema
    schema_id: int
    hash: int = layout.HASH_INIT
    slots: list[bytes | list[bytes]] = field(default_factory=list)
    incremental: list[bool] = field(default_factory=list)
    entries: list[bytes] | None = None


class RecordBuilder:
    """Builds records into containers. Not for several threads at once.

    Args:
        container_size: Bytes of a container, a multiple of 4, at least 2048.
        reuse_one_container: Never begin a second container: when the one is full, its records are dropped and it is
            filled anew.
        clock: Gives the timestamp of a container, in milliseconds since the epoch.

    Raises:
        OptionError: For a container size that cannot be.
    """

    def __init__(
        self,
        container_size: int = layout.DEFAULT_CONTAINER_SIZE,
        *,
        reuse_one_container: bool = False,
        clock: Callable[[], int] = _now,
    ) -> None:
        check_container_size(container_size)
        self.container_size = container_size
        self.containers: list[bytearray] = []
        self._reuse = reuse_one_container
        self._clock = clock
        self._end = 0
        self._open: _Open | None = None
        if reuse_one_container:
            self._new_container()

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
        self._open = _Open(schema, schema_id or 0)

    def add_int(self, value: int) -> None:
        """Add an `int` column."""
        self._add_scalar(value, _INT, "int")

    def add_long(self, value: int) -> None:
        """Add a `long` or `ts` column."""
        self._add_scalar(value, _LONG, "long", "ts")

    def add_double(self, value: float) -> None:
        """Add a `double` column."""
        self._add_scalar(value, _DOUBLE, "double")

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
        predefined = record.schema.predefined
        pairs = sorted(((k.encode(), v.encode()) for k, v in value.items()), key=lambda pair: pair[0])
        self._finish_map([maps.encode_entry(key, item, predefined) for key, item in pairs], bulk_hash=True)

    def encode_map_from(self, value: Mapping[str, str]) -> None:
        """Add a `map` column, its keys in the order of Java's strings."""
        record, _ = self._expect("map")
        ordered = sorted(value, key=java_order)
        predefined = record.schema.predefined
        self.add_encoded_map(b"".join(maps.encode_entry(k.encode(), value[k].encode(), predefined) for k in ordered))

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
        record = self._in_map()
        entry = maps.encode_entry(_as_bytes(key), _as_bytes(value), record.schema.predefined)
        self._add_entry(record, entry)

    def add_map_key_value_hash(self, key: str | bytes, value: str | bytes) -> None:
        """Add an entry, not as a predefined key, and its hash to the partition hash; end with `bulk_hash=False`."""
        record = self._in_map()
        name, item = _as_bytes(key), _as_bytes(value)
        self._add_entry(record, maps.encode_entry(name, item, ()))
        record.hash = combine(record.hash, combine(h32(name), h32(item)))

    def end_map(self, bulk_hash: bool = True) -> None:
        """End the map.

        Args:
            bulk_hash: Whether its bytes enter the partition hash; producers that hash otherwise say no.
        """
        record = self._in_map()
        entries, record.entries = record.entries or [], None
        self._finish_map(entries, bulk_hash=bulk_hash)

    def update_partition_hash(self, value: int) -> None:
        """Combine a hash of the producer's own into the partition hash."""
        record = self._record()
        record.hash = combine(record.hash, value)

    def add_slowly(self, value: Any) -> None:
        """Add the next column, whatever its type.

        Raises:
            SchemaError: When the value is not of that type.
        """
        _, column = self._expect(*layout.SLOT_SIZES)
        if column.type == "map" and isinstance(value, Mapping):
            self.add_map(value)
        elif column.type == "hist" and isinstance(value, Histogram):
            self.add_histogram(value)
        elif column.pointer and isinstance(value, str | bytes | bytearray | memoryview):
            self._add_payload(_as_bytes(value), "string", "hist", "br")
        else:
            packer = {"int": _INT, "double": _DOUBLE}.get(column.type, _LONG)
            self._add_scalar(value, packer, *(kind for kind in layout.SLOT_SIZES if kind not in layout.POINTER_TYPES))

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
        opened = self._record()
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
            write_hash: Whether the partition hash is written; without it stands 0.

        Returns:
            The record's offset in the last container.

        Raises:
            SchemaError: When columns are missing, or the record is too long for a container. Nothing is written.
        """
        record = self._record()
        if record.entries is not None:
            raise SchemaError("the map was not ended: call end_map")
        missing = record.schema.columns[len(record.slots) :]
        if missing:
            raise SchemaError(f"columns are missing: {', '.join(column.name for column in missing)}")
        offset = _Append(self, record, write_hash=write_hash).write()
        self._open = None
        return offset

    def rewind(self) -> None:
        """Drop the record that was begun."""
        self._open = None

    # Containers.

    @property
    def current_container(self) -> RecordContainer | None:
        """The container that is being filled."""
        return RecordContainer(self.containers[-1]) if self.containers else None

    @property
    def all_containers(self) -> list[RecordContainer]:
        """All containers."""
        return [RecordContainer(array) for array in self.containers]

    @property
    def container_remaining(self) -> int:
        """Bytes free in the current container."""
        return self.container_size - self._end if self.containers else 0

    def optimal_container_bytes(self, reset: bool = False) -> list[bytes]:
        """All containers: full ones whole, with what is left of their arrays; the last one trimmed, unless empty.

        Args:
            reset: Drop the full ones, and begin the last one anew.
        """
        found = self.non_current_container_bytes()
        current = self.current_container
        if current is not None and not current.is_empty:
            found.append(current.trimmed_bytes())
        if reset:
            del self.containers[:-1]
            self.reset()
        return found

    def non_current_container_bytes(self, reset: bool = False) -> list[bytes]:
        """The full containers, whole.

        Args:
            reset: Drop them.
        """
        found = [bytes(array) for array in self.containers[:-1]]
        if reset:
            del self.containers[:-1]
        return found

    def remove_containers(self, count: int) -> None:
        """Drop the first containers."""
        del self.containers[:count]

    def reset(self) -> None:
        """Begin the current container anew, with a new timestamp; its old bytes stay behind its end."""
        self._open = None
        if self.containers:
            self._begin(self.containers[-1])

    def _new_container(self) -> bytearray:
        if self._reuse and self.containers:
            array = self.containers[-1]
        else:
            array = bytearray(self.container_size)
            self.containers.append(array)
        self._begin(array)
        return array

    def _begin(self, array: bytearray) -> None:
        _INT.pack_into(array, 0, layout.EMPTY_CONTAINER)
        _INT.pack_into(array, layout.VERSION_OFFSET, _VERSION_WORD)
        _LONG.pack_into(array, layout.TIMESTAMP_OFFSET, self._clock())
        self._end = layout.CONTAINER_HEADER_SIZE

    # Columns.

    def _record(self) -> _Open:
        if self._open is None:
            raise SchemaError("no record was started: call start_new_record")
        return self._open

    def _expect(self, *kinds: str) -> tuple[_Open, Column]:
        """The record and its next column, which must be of one of these types."""
        record = self._record()
        if record.entries is not None:
            raise SchemaError("a map was started: add its entries, then call end_map")
        if len(record.slots) == len(record.schema.columns):
            raise SchemaError(f"all {len(record.slots)} columns are filled: call end_record")
        column = record.schema.columns[len(record.slots)]
        if column.type not in kinds:
            raise SchemaError(f"the next column, {column.name!r}, is {column.type}, not {' or '.join(kinds)}")
        return record, column

    def _add_scalar(self, value: Any, packer: struct.Struct, *kinds: str) -> None:
        record, column = self._expect(*kinds)
        wanted: Any = (int, float) if column.type == "double" else int
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise SchemaError(f"column {column.name!r} is {column.type}; found {type(value).__name__} {value!r}")
        try:
            slot = packer.pack(value)
        except (struct.error, OverflowError) as error:
            raise SchemaError(f"column {column.name!r}: {value} does not fit {column.type}") from error
        record.slots.append(slot)
        record.incremental.append(False)

    def _add_payload(self, data: bytes, *kinds: str) -> None:
        record, column = self._expect(*kinds)
        if len(data) > layout.MAX_PAYLOAD:
            raise SchemaError(f"column {column.name!r}: {len(data)} bytes; at most {layout.MAX_PAYLOAD}")
        if len(record.slots) in record.schema.hashed_columns:
            record.hash = combine(record.hash, h32(data))
        record.slots.append([data])
        record.incremental.append(False)

    def _in_map(self) -> _Open:
        record = self._record()
        if record.entries is None:
            raise SchemaError("no map was started: call start_map")
        return record

    def _add_entry(self, record: _Open, entry: bytes) -> None:
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
            record.hash = combine(record.hash, h32(len(data).to_bytes(layout.PAYLOAD_LENGTH_SIZE, "little") + data))
        record.slots.append(entries)
        record.incremental.append(incremental)


class _Append:
    """Writes one record as FiloDB does, piece by piece: when a container is full, the pieces so far stay in it.

    They stay behind its end, where no reader looks; a builder that did without would not have FiloDB's bytes.
    """

    def __init__(self, builder: RecordBuilder, record: _Open, *, write_hash: bool) -> None:
        self._builder = builder
        self._record = record
        self._hash = record.hash if write_hash else 0
        self._size = 0

    def write(self) -> int:
        """Write the record; its offset in the last container."""
        self._rehearse()
        builder, record = self._builder, self._record
        schema = record.schema
        self._make_room(schema.variable_area_start)
        if schema.has_partition:
            self._put(layout.SCHEMA_ID_OFFSET, record.schema_id.to_bytes(layout.SCHEMA_ID_SIZE, "little"))
        self._grow(schema.variable_area_start)
        for offset, slot, incremental in zip(schema.field_offsets, record.slots, record.incremental, strict=True):
            if isinstance(slot, bytes):
                self._put(offset, slot)
            elif incremental:
                self._entries(offset, slot)
            else:
                self._payload(offset, b"".join(slot))
        if schema.hash_offset is not None:
            self._put(schema.hash_offset, _INT.pack(self._hash))
        start = builder._end
        builder._end = layout.align(start + self._size)
        _INT.pack_into(builder.containers[-1], 0, builder._end - layout.LENGTH_SIZE)
        return start

    def _needs(self) -> Iterator[int]:
        """Bytes that are appended at a time."""
        yield self._record.schema.variable_area_start
        for slot, incremental in zip(self._record.slots, self._record.incremental, strict=True):
            if not isinstance(slot, bytes):
                yield layout.PAYLOAD_LENGTH_SIZE + (0 if incremental else sum(map(len, slot)))
                if incremental:
                    yield from map(len, slot)

    def _rehearse(self) -> None:
        """Find out whether the record fits, before anything is written."""
        builder = self._builder
        end, size = (builder._end, 0) if builder.containers else (layout.CONTAINER_HEADER_SIZE, 0)
        room = builder.container_size - layout.CONTAINER_HEADER_SIZE
        for need in self._needs():
            if end + size + need > builder.container_size:
                if size + need >= room:
                    raise SchemaError(
                        f"a record of {sum(self._needs())} bytes is too long for containers of"
                        f" {builder.container_size}: give a larger container_size"
                    )
                end = layout.CONTAINER_HEADER_SIZE
            size += need

    def _make_room(self, need: int) -> None:
        """Move on to a new container if this one has no room, and take the record's bytes so far along."""
        builder = self._builder
        if not builder.containers:
            builder._new_container()
        elif builder._end + self._size + need > builder.container_size:
            so_far = bytes(builder.containers[-1][builder._end : builder._end + self._size])
            builder._new_container()
            self._put(0, so_far)

    def _put(self, offset: int, data: bytes) -> None:
        at = self._builder._end + offset
        self._builder.containers[-1][at : at + len(data)] = data

    def _grow(self, size: int) -> None:
        self._size = size
        self._put(0, _INT.pack(size - layout.LENGTH_SIZE))

    def _payload(self, slot: int, data: bytes) -> None:
        self._make_room(layout.PAYLOAD_LENGTH_SIZE + len(data))
        start = self._size
        self._put(start, len(data).to_bytes(layout.PAYLOAD_LENGTH_SIZE, "little") + data)
        self._put(slot, _INT.pack(start))
        self._grow(start + layout.PAYLOAD_LENGTH_SIZE + len(data))

    def _entries(self, slot: int, entries: list[bytes]) -> None:
        self._payload(slot, b"")
        start = self._size
        for entry in entries:
            self._make_room(len(entry))
            self._put(self._size, entry)
            self._grow(self._size + len(entry))
            length = self._size - start
            self._put(start - layout.PAYLOAD_LENGTH_SIZE, length.to_bytes(layout.PAYLOAD_LENGTH_SIZE, "little"))


def check_container_size(size: int) -> None:
    """Check the size of containers to be written.

    Raises:
        OptionError: When it is no multiple of 4, or not between 2048 and 2**31 - 1.
    """
    if size % layout.ALIGNMENT or not layout.MIN_CONTAINER_SIZE <= size <= layout.MAX_CONTAINER_SIZE:
        raise OptionError(
            f"container_size={size}: expected a multiple of {layout.ALIGNMENT},"
            f" at least {layout.MIN_CONTAINER_SIZE} and less than 2 GiB"
        )


def _as_bytes(value: str | Buffer) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
