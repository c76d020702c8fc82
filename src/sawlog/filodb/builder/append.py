"""Writing records into containers as FiloDB does, piece by piece. Section 6 of the format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sawlog.errors import SchemaError
from sawlog.filodb import layout
from sawlog.filodb.schemas.record import RecordSchema

_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_VERSION_WORD = layout.VERSION << layout.VERSION_SHIFT


@dataclass
class OpenRecord:
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


@dataclass
class Space:
    """The containers that records are written to.

    Attributes:
        size: Bytes of each.
        reuse: Never begin a second one: when it is full, it is begun again.
        clock: Gives the timestamp of a container, in milliseconds since the epoch.
        containers: Their bytes; the last one is being filled.
        end: Where the next record goes in it.
    """

    size: int
    reuse: bool
    clock: Callable[[], int]
    containers: list[bytearray] = field(default_factory=list)
    end: int = 0

    def add_container(self) -> None:
        """Begin another container."""
        if not (self.reuse and self.containers):
            self.containers.append(bytearray(self.size))
        self.begin()

    def begin(self) -> None:
        """Begin the last container again; its old bytes stay after its end."""
        array = self.containers[-1]
        _INT.pack_into(array, 0, layout.EMPTY_CONTAINER)
        _INT.pack_into(array, layout.VERSION_WORD.offset, _VERSION_WORD)
        _LONG.pack_into(array, layout.TIMESTAMP.offset, self.clock())
        self.end = layout.CONTAINER_HEADER_SIZE


class Append:
    """Writes one record as FiloDB does, piece by piece: when a container is full, the pieces so far stay in it.

    They stay behind its end, where no reader looks; a builder that did without would not have FiloDB's bytes.
    """

    def __init__(self, space: Space, record: OpenRecord, *, write_hash: bool) -> None:
        self._space = space
        self._record = record
        self._hash = record.hash if write_hash else 0
        self._size = 0

    def write(self) -> int:
        """Write the record; return its offset in the last container."""
        self._rehearse()
        space, record = self._space, self._record
        schema = record.schema
        self._make_room(schema.variable_area_start)
        if schema.has_partition:
            self._put(layout.SCHEMA_ID_OFFSET, record.schema_id.to_bytes(layout.SCHEMA_ID_SIZE, "little"))
        self._grow(schema.variable_area_start)
        for offset, slot, incremental in zip(schema.field_offsets, record.slots, record.incremental, strict=True):
            if isinstance(slot, bytes):
                self._put(offset, slot)
            elif incremental:
                self._put_entries(offset, slot)
            else:
                self._put_payload(offset, b"".join(slot))
        if schema.hash_offset is not None:
            self._put(schema.hash_offset, _INT.pack(self._hash))
        start = space.end
        space.end = layout.align(start + self._size)
        _INT.pack_into(space.containers[-1], 0, space.end - layout.LENGTH_SIZE)
        return start

    def _needs(self) -> Iterator[int]:
        """Yield bytes that are appended at a time."""
        yield self._record.schema.variable_area_start
        for slot, incremental in zip(self._record.slots, self._record.incremental, strict=True):
            if not isinstance(slot, bytes):
                yield layout.PAYLOAD_LENGTH_SIZE + (0 if incremental else sum(map(len, slot)))
                if incremental:
                    yield from map(len, slot)

    def _rehearse(self) -> None:
        """Find out whether the record fits, before anything is written."""
        space = self._space
        end, size = (space.end, 0) if space.containers else (layout.CONTAINER_HEADER_SIZE, 0)
        room = space.size - layout.CONTAINER_HEADER_SIZE
        for need in self._needs():
            if end + size + need > space.size:
                if size + need >= room:
                    raise SchemaError(
                        f"a record of {sum(self._needs())} bytes is too long for containers of"
                        f" {space.size}: give a larger container_size"
                    )
                end = layout.CONTAINER_HEADER_SIZE
            size += need

    def _make_room(self, need: int) -> None:
        """Move on to a new container if this one has no room, and take the record's bytes so far along."""
        space = self._space
        if not space.containers:
            space.add_container()
        elif space.end + self._size + need > space.size:
            so_far = bytes(space.containers[-1][space.end : space.end + self._size])
            space.add_container()
            self._put(0, so_far)

    def _put(self, offset: int, data: bytes) -> None:
        pos = self._space.end + offset
        self._space.containers[-1][pos : pos + len(data)] = data

    def _grow(self, size: int) -> None:
        self._size = size
        self._put(0, _INT.pack(size - layout.LENGTH_SIZE))

    def _put_payload(self, slot: int, data: bytes) -> None:
        self._make_room(layout.PAYLOAD_LENGTH_SIZE + len(data))
        start = self._size
        self._put(start, layout.PAYLOAD.encode(data))
        self._put(slot, _INT.pack(start))
        self._grow(start + layout.PAYLOAD_LENGTH_SIZE + len(data))

    def _put_entries(self, slot: int, entries: list[bytes]) -> None:
        self._put_payload(slot, b"")
        start = self._size
        for entry in entries:
            self._make_room(len(entry))
            self._put(self._size, entry)
            self._grow(self._size + len(entry))
            length = self._size - start
            self._put(start - layout.PAYLOAD_LENGTH_SIZE, layout.PAYLOAD.length.encode(length))
