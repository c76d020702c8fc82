"""Messages of Milvus' metadata, declared: fields by number and kind, read from protobuf. Section 5.1 of the format.

Names are those of Milvus' own definitions. A message reads a field when it is asked for it, so that what nobody asks
for need not be sound.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from sawlog.errors import FormatError
from sawlog.kernels.varints import read_varint

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Value: TypeAlias = int | bytes

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}


class Message:
    """The fields of a message by number, in order; fixed-width values stay bytes.

    Args:
        data: Its bytes.
        name: What it is, for messages; its type where nothing else is known.

    Raises:
        FormatError: When the bytes are not a message.
    """

    def __init__(self, data: bytes, name: str = "") -> None:
        name = name or type(self).__name__
        self.values: dict[int, list[Value]] = defaultdict(list)
        pos = 0
        while pos < len(data):
            key, pos = _read_varint(data, pos, name)
            kind = key & 7
            value: Value
            if kind == VARINT:
                value, pos = _read_varint(data, pos, name)
            else:
                length, pos = _read_varint(data, pos, name) if kind == LENGTH else (WIDTHS.get(kind, -1), pos)
                if length < 0 or length > len(data) - pos:
                    raise FormatError(f"{name}: not a protobuf message (byte {pos}: {data[pos : pos + 8].hex(' ')})")
                value = data[pos : pos + length]
                pos += length
            self.values[key >> 3].append(value)

    def find_first(self) -> Any:
        """Return the first declared field that is there, as of a oneof; `None` when there is none."""
        fields = [field for field in vars(type(self)).values() if isinstance(field, Field)] if self.values else []
        return next((field.kind(self.values[field.number]) for field in fields if field.number in self.values), None)


class Field(Generic[T]):
    """A declared field: its number, and what makes a value of all that a message has of it."""

    def __init__(self, number: int, kind: Callable[[Sequence[Value]], T]) -> None:
        self.number = number
        self.kind = kind

    def __get__(self, message: Message, owner: type[Message]) -> T:
        return self.kind(message.values.get(self.number, ()))


def decode_integer(values: Sequence[Value]) -> int:
    """Return an integer, as int64; 0 when there is none."""
    for value in reversed(values):
        if isinstance(value, int):
            return value - (1 << 64) if value >= 1 << 63 else value
    return 0


def decode_boolean(values: Sequence[Value]) -> bool:
    """Return a boolean."""
    return decode_integer(values) != 0


def _decode_integers(values: Sequence[Value]) -> list[int]:
    """Return repeated integers, packed or not, as int64."""
    numbers: list[int] = []
    for value in values:
        if isinstance(value, int):
            numbers.append(decode_integer([value]))
            continue
        pos = 0
        while pos < len(value):
            number, pos = _read_varint(value, pos, "packed integers")
            numbers.append(decode_integer([number]))
    return numbers


def _decode_float(values: Sequence[Value]) -> float:
    """Return a float or double.

    Raises:
        FormatError: When it is of another width.
    """
    value = decode_bytes(values)
    if len(value) not in (0, 4, 8):
        raise FormatError(f"expected a number of 4 or 8 bytes, found {len(value)}")
    return float(struct.unpack("<f" if len(value) == 4 else "<d", value)[0]) if value else 0.0


def decode_bytes(values: Sequence[Value]) -> bytes:
    """Return the bytes of a field; empty when there are none."""
    for value in reversed(values):
        if isinstance(value, bytes):
            return value
    return b""


def decode_text(values: Sequence[Value]) -> str:
    """Return a string."""
    return decode_bytes(values).decode("utf-8", "replace")


def _decode_texts(values: Sequence[Value]) -> list[str]:
    """Return repeated strings."""
    return [decode_text([part]) for part in values if isinstance(part, bytes)]


def _decode_message(kind: type[M]) -> Callable[[Sequence[Value]], M]:
    """Return a message; one without fields when there is none."""
    return lambda values: kind(decode_bytes(values))


def decode_messages(kind: type[M]) -> Callable[[Sequence[Value]], list[M]]:
    """Return repeated messages."""
    return lambda values: [kind(part) for part in values if isinstance(part, bytes)]


def _read_varint(data: bytes, pos: int, name: str) -> tuple[int, int]:
    number = read_varint(data, pos)
    if number is None:
        raise FormatError(f"{name}: not a protobuf message (a broken varint at byte {pos})")
    value, end = number
    return value & 0xFFFFFFFFFFFFFFFF, end


class KeyValuePair(Message):
    """A parameter or a property."""

    key = Field(1, decode_text)
    value = Field(2, decode_text)


class ValueField(Message):
    """A value of one type. Numbers that are 0 are not written, but their field is."""

    bool_data = Field(1, decode_boolean)
    int_data = Field(2, decode_integer)
    long_data = Field(3, decode_integer)
    timestamptz_data = Field(8, decode_integer)
    date_data = Field(9, decode_integer)
    time_data = Field(10, decode_integer)
    float_data = Field(4, _decode_float)
    double_data = Field(5, _decode_float)
    string_data = Field(6, decode_text)
    bytes_data = Field(7, decode_bytes)


class FieldSchema(Message):
    """A field of a collection."""

    id = Field(1, decode_integer)
    name = Field(2, decode_text)
    is_primary_key = Field(3, decode_boolean)
    data_type = Field(5, decode_integer)
    type_params = Field(6, decode_messages(KeyValuePair))
    auto_id = Field(8, decode_boolean)
    state = Field(9, decode_integer)
    element_type = Field(10, decode_integer)
    default_value = Field(11, _decode_message(ValueField))
    is_dynamic = Field(12, decode_boolean)
    nullable = Field(15, decode_boolean)
    is_function_output = Field(16, decode_boolean)


class StructArrayFieldSchema(Message):
    """An array of structs."""

    name = Field(2, decode_text)
    fields = Field(4, decode_messages(FieldSchema))
    nullable = Field(6, decode_boolean)


class CollectionSchema(Message):
    """Name and fields of a collection."""

    name = Field(1, decode_text)
    fields = Field(4, decode_messages(FieldSchema))
    struct_array_fields = Field(9, decode_messages(StructArrayFieldSchema))


class DatabaseInfo(Message):
    """A database."""

    name = Field(2, decode_text)


class AliasInfo(Message):
    """Another name of a collection."""

    name = Field(1, decode_text)
    collection = Field(2, decode_integer)
    state = Field(4, decode_integer)


class CollectionInfo(Message):
    """A collection. Up to 2.1 it names its partitions; up to 2.1, too, one of these with an id only is an alias."""

    id = Field(1, decode_integer)
    schema = Field(2, _decode_message(CollectionSchema))
    create_time = Field(3, decode_integer)
    partition_ids = Field(4, _decode_integers)
    partition_names = Field(5, _decode_texts)
    virtual_channel_names = Field(7, _decode_texts)
    state = Field(13, decode_integer)
    properties = Field(14, decode_messages(KeyValuePair))
    db_id = Field(15, decode_integer)


class PartitionInfo(Message):
    """A partition of a collection."""

    id = Field(1, decode_integer)
    name = Field(2, decode_text)
    created = Field(3, decode_integer)
    state = Field(5, decode_integer)


class MsgPosition(Message):
    """A position in the message queue."""

    timestamp = Field(4, decode_integer)


class Binlog(Message):
    """Message of one log. Its path may stand for its id."""

    entries_num = Field(1, decode_integer)
    timestamp_from = Field(2, decode_integer)
    timestamp_to = Field(3, decode_integer)
    log_path = Field(4, decode_text)
    log_size = Field(5, decode_integer)
    log_id = Field(6, decode_integer)
    memory_size = Field(7, decode_integer)


class FieldBinlog(Message):
    """The logs of a field."""

    field_id = Field(1, decode_integer)
    binlogs = Field(2, decode_messages(Binlog))


class SegmentInfo(Message):
    """A segment of a collection."""

    id = Field(1, decode_integer)
    collection = Field(2, decode_integer)
    partition = Field(3, decode_integer)
    insert_channel = Field(4, decode_text)
    num_of_rows = Field(5, decode_integer)
    state = Field(6, decode_integer)
    binlogs = Field(11, decode_messages(FieldBinlog))
    deltalogs = Field(13, decode_messages(FieldBinlog))
    compaction_from = Field(15, _decode_integers)
    dropped_at = Field(16, decode_integer)
    is_importing = Field(17, decode_boolean)
    level = Field(20, decode_integer)
    storage_version = Field(21, decode_integer)
    is_invisible = Field(28, decode_boolean)
    manifest_path = Field(32, decode_text)
    commit_timestamp = Field(36, decode_integer)
