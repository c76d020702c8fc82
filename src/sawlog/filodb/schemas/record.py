"""Columns, record schemas, and access to single records by them. Sections 1, 5 and 7 of the format.

Columns are written `name:type:parameters`, all of which enter the schema ID.

A record is any bytes that begin with its length field; what follows its end is not looked at. Every access is checked:
what leads outside the record raises `FormatError`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, get_args

from sawlog.errors import FormatError, SchemaError
from sawlog.filodb import layout, maps
from sawlog.filodb.hashing import combine, hash_bytes, hash_java_string, render_java_double, wrap_signed
from sawlog.filodb.histograms import Histogram
from sawlog.filodb.layout import HASH_INIT, POINTER_SIZE, SCALARS, ColumnType
from sawlog.guard import Undecodable, call_decoder, decode_json

Buffer = bytes | bytearray | memoryview


_FORBIDDEN = re.compile("[:() ,\u0001]")
_TYPE_NAMES: dict[ColumnType, str] = {
    "int": "IntColumn",
    "long": "LongColumn",
    "double": "DoubleColumn",
    "ts": "TimestampColumn",
    "string": "StringColumn",
    "map": "MapColumn",
    "hist": "HistogramColumn",
    "br": "BinaryRecordColumn",
}
"""FiloDB's own names of the types: their hashes enter the schema ID."""
_EMPTY_PARAMS = 70602
"""What a column without parameters adds to the schema hash."""

ParamValue = bool | int | float | str | None
_WORDS: dict[str, ParamValue] = {"true": True, "false": False, "null": None}
_PARAMETER = re.compile(
    r"""\s*(?:(?P<key>"(?:[^"\\]|\\.)*"|[\w-]+)\s*[=:]\s*"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|(?:[^\n,{}\[\]"#$+`^?!@*&\\=:]|(?<=[eE])\+)+))?\s*(?:[,\n]|$)"""
)
_NUMBER = re.compile(r"[-\d][\d.eE+-]*")
_BARE = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class Column:
    """Column of a schema.

    Attributes:
        name: Its name.
        type: One of `int long double ts string map hist br`.
        params: Parameters such as `detectDrops`, in the order they were given; they enter the schema ID.
        schema: For `br` columns: the schema of the nested records.
    """

    name: str
    type: ColumnType
    params: tuple[tuple[str, ParamValue], ...] = ()
    schema: RecordSchema | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.type not in get_args(ColumnType):
            raise SchemaError(
                f"column {self.name!r}: unknown type {self.type!r}; types: {', '.join(get_args(ColumnType))}"
            )
        if not self.name or _FORBIDDEN.search(self.name):
            raise SchemaError(f"column {self.name!r}: a name is not empty and holds none of ':', '(', ')', ' ', ','")

    @classmethod
    def parse(cls, text: str) -> Column:
        """Parse FiloDB's notation of a column: `value:double:detectDrops=false`, `h:hist:{counter=false,delta=true}`.

        Raises:
            SchemaError: When it is none.
        """
        name, separator, params_text = text.partition(":")
        if not separator:
            raise SchemaError(f"column {text!r}: expected name:type or name:type:parameters")
        kind, _, params = params_text.partition(":")
        parameters = _parse_parameters(params.replace(":", "\n"), name)
        if kind == "hist" and not isinstance(parameters.get("counter"), bool):
            raise SchemaError(f"column {name!r}: a histogram needs the parameter counter=true or counter=false")
        column_type: Any = kind
        return cls(name, column_type, tuple(parameters.items()))

    @property
    def pointer(self) -> bool:
        """Whether the slot is a pointer into the variable area."""
        return self.type not in SCALARS

    @property
    def slot_size(self) -> int:
        """Bytes of the slot."""
        return POINTER_SIZE if self.pointer else SCALARS[self.type].width

    @cached_property
    def hash(self) -> int:
        """Hash that the column adds to a schema hash, a signed 32-bit number."""
        return wrap_signed(
            hash_bytes(self.name.encode()) * hash_java_string(_TYPE_NAMES[self.type]) + hash_params(self.params)
        )

    def __str__(self) -> str:
        """Return the column in FiloDB's notation."""
        if not self.params:
            return f"{self.name}:{self.type}"
        keys = (key if re.fullmatch(r"[\w-]+", key) else json.dumps(key) for key, _ in self.params)
        pairs = [f"{key}={_as_text(value)}" for key, (_, value) in zip(keys, self.params, strict=True)]
        params = pairs[0] if len(pairs) == 1 else "{" + ",".join(pairs) + "}"
        return f"{self.name}:{self.type}:{params}"


def parse_columns(columns: Sequence[Column | str]) -> tuple[Column, ...]:
    """Return columns from columns, or from their notation."""
    return tuple(column if isinstance(column, Column) else Column.parse(column) for column in columns)


def hash_columns(columns: Sequence[Column]) -> int:
    """Return the hash of some columns, 16 bits: names, types, parameters and order enter."""
    total = HASH_INIT
    for column in columns:
        total = combine(total, column.hash)
    return total & 0xFFFF


def hash_params(params: Sequence[tuple[str, ParamValue]] | Mapping[str, ParamValue]) -> int:
    """Return the hash that Typesafe Config gives to a flat object, a signed 32-bit number."""
    pairs = sorted(params.items() if isinstance(params, Mapping) else params)
    if not pairs:
        return _EMPTY_PARAMS
    keys = 1
    for key, _ in pairs:
        keys = wrap_signed(31 * keys + hash_java_string(key))
    return wrap_signed(41 * (41 * (41 + keys) + sum(_hash_value(value) for _, value in pairs)))


def _hash_value(value: ParamValue) -> int:
    """Return the hash of a value: numbers that are whole hash alike, however they are written."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, str):
        return hash_java_string(value)
    if isinstance(value, float) and not (value.is_integer() and -(2**63) <= value < 2**63):
        bits = int.from_bytes(struct.pack("<d", value), "little")
    else:
        bits = int(value) & 0xFFFFFFFFFFFFFFFF
    return wrap_signed(bits ^ bits >> 32)


def _parse_parameters(text: str, column: str) -> dict[str, ParamValue]:
    """Return a column's parameters: pairs of `key=value`, or an object of them, typed as Typesafe Config types them."""
    params: dict[str, ParamValue] = {}
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    pos = 0
    while pos < len(inner):
        match = _PARAMETER.match(inner, pos)
        if match is None:
            raise SchemaError(f"parameters of column {column!r}: expected key=value, found {inner[pos:].strip()!r}")
        pos = match.end()
        if match["key"]:
            key = match["key"]
            params[_quote(key) if key.startswith('"') else key] = _parse_value(match["value"].strip())
    return params


def _parse_value(text: str) -> ParamValue:
    if text.startswith('"'):
        return _quote(text)
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    number = call_decoder(float if set(text) & set(".eE") else int, text)
    if isinstance(number, Undecodable):  # of more digits than Python takes
        return text
    return number if isinstance(number, float) or -(2**63) <= number < 2**63 else text


def _quote(text: str) -> str:
    parsed = decode_json(text)
    if not isinstance(parsed, str):
        raise SchemaError(f"parameters of a column: expected a string as in JSON, found {text}")
    return parsed


def _as_text(value: ParamValue) -> str:
    for word, meaning in _WORDS.items():
        if value is meaning:
            return word
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and isinstance(_parse_value(value), str) else json.dumps(value)
    return str(value).replace("inf", "1e999")


class PartKeyBuilder(Protocol):
    """Protocol of a `RecordBuilder`."""

    def start_new_record(self, schema: RecordSchema, schema_id: int | None = None) -> None:
        """Begin a record."""
        ...

    def add_part_key_fields(self, record: Buffer, schema: RecordSchema) -> None:
        """Add the partition columns of a record."""
        ...

    def end_record(self) -> int:
        """End the record, and return its offset in the container."""
        ...


class RecordSchema:
    """The columns of a record, and where they are in it.

    Args:
        columns: Columns, or their notation; data columns before partition columns.
        partition_field_start: Number of data columns; 0 for a part key; None for records without schema ID and hash.
        predefined_keys: Keys that maps name by number.
        br_schemas: By column number: the schema of the records nested in `br` columns.

    Raises:
        SchemaError: For no columns, too many or too long predefined keys, or a start beyond the columns.
    """

    def __init__(
        self,
        columns: Sequence[Column | str],
        partition_field_start: int | None = None,
        predefined_keys: Sequence[str] = (),
        br_schemas: Mapping[int, RecordSchema] | None = None,
    ) -> None:
        self.columns = parse_columns(columns)
        self.partition_field_start = partition_field_start
        self.predefined_keys = tuple(predefined_keys)
        self.br_schemas = dict(br_schemas or {})
        for index, column in enumerate(self.columns):
            if column.schema is not None:
                self.br_schemas.setdefault(index, column.schema)
        self._check()

    def _check(self) -> None:
        if not self.columns:
            raise SchemaError("a record schema has at least one column")
        if len(self.predefined_keys) > layout.MAX_PREDEFINED_KEYS:
            raise SchemaError(f"{len(self.predefined_keys)} predefined keys; there can be {layout.MAX_PREDEFINED_KEYS}")
        for key in self.predefined_keys:
            if len(key.encode()) > layout.MAX_KEY:
                raise SchemaError(f"predefined key {key[:20]!r}…: a key has at most {layout.MAX_KEY} bytes")
        start = self.partition_field_start
        if start is not None and not 0 <= start < len(self.columns):
            raise SchemaError(f"partition_field_start={start}: expected less than {len(self.columns)}, the columns")

    @property
    def has_partition(self) -> bool:
        """Whether records have partition columns, and with them a schema ID and a hash."""
        return self.partition_field_start is not None

    @cached_property
    def fixed_start(self) -> int:
        """Offset of the first slot."""
        return layout.LENGTH_SIZE + (layout.SCHEMA_ID_SIZE if self.has_partition else 0)

    @cached_property
    def field_offsets(self) -> tuple[int, ...]:
        """Offset of each column's slot."""
        offsets = [self.fixed_start]
        for column in self.columns:
            offsets.append(offsets[-1] + column.slot_size)
        return tuple(offsets[:-1])

    @cached_property
    def _pointer_offsets(self) -> tuple[int, ...]:
        """Offset of each slot that is a pointer."""
        offsets = zip(self.columns, self.field_offsets, strict=True)
        return tuple(offset for column, offset in offsets if column.pointer)

    @cached_property
    def slots_end(self) -> int:
        """Offset after the last slot."""
        return self.field_offsets[-1] + self.columns[-1].slot_size

    @property
    def hash_offset(self) -> int | None:
        """Offset of the partition hash."""
        return self.slots_end if self.has_partition else None

    @cached_property
    def variable_area_start(self) -> int:
        """Offset of the variable area, which is the smallest size of a record."""
        return self.slots_end + (layout.HASH_SIZE if self.has_partition else 0)

    @cached_property
    def max_record_size(self) -> int:
        """No record can be longer than this."""
        pointers = sum(column.pointer for column in self.columns)
        return self.variable_area_start + pointers * (layout.PAYLOAD_LENGTH_SIZE + layout.MAX_PAYLOAD)

    @cached_property
    def hashed_columns(self) -> tuple[int, ...]:
        """The columns whose payloads make up the partition hash."""
        start = len(self.columns) if self.partition_field_start is None else self.partition_field_start
        return tuple(
            index
            for index, column in enumerate(self.columns)
            if column.type == "map" or (index >= start and column.pointer)
        )

    @cached_property
    def predefined(self) -> tuple[bytes, ...]:
        """The predefined keys as bytes."""
        return tuple(key.encode() for key in self.predefined_keys)

    @cached_property
    def part_key_schema(self) -> RecordSchema:
        """The schema of part keys: only the partition columns."""
        if self.partition_field_start is None:
            raise SchemaError(f"{self}: no partition columns, so no part keys")
        start = self.partition_field_start
        nested = {index - start: schema for index, schema in self.br_schemas.items() if index >= start}
        return RecordSchema(self.columns[start:], 0, self.predefined_keys, nested)

    def __eq__(self, other: object) -> bool:
        """Return whether types, partition start and predefined keys are the same; names do not matter."""
        return isinstance(other, RecordSchema) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"RecordSchema<{', '.join(map(str, self.columns))}; {self.partition_field_start}>"

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        return tuple(column.type for column in self.columns), self.partition_field_start, self.predefined_keys

    # Access to records.

    def num_bytes(self, record: Buffer) -> int:
        """Return the size of the record with its length field.

        Raises:
            FormatError: When it is shorter than its schema's fixed area, or longer than the bytes given.
        """
        if len(record) < layout.LENGTH_SIZE:
            raise FormatError(f"record: {len(record)} bytes, fewer than a length field")
        size = int.from_bytes(record[: layout.LENGTH_SIZE], "little", signed=True) + layout.LENGTH_SIZE
        if not self.variable_area_start <= size <= len(record):
            raise FormatError(
                f"record: {size} bytes by its length field; expected {self.variable_area_start} to {len(record)}"
            )
        return size

    def schema_id(self, record: Buffer) -> int:
        """Return the schema ID, 0 to 65535."""
        self.num_bytes(record)
        if not self.has_partition:
            raise SchemaError(f"{self}: records have no schema ID")
        start = layout.SCHEMA_ID_OFFSET
        return int.from_bytes(record[start : start + layout.SCHEMA_ID_SIZE], "little")

    def partition_hash(self, record: Buffer) -> int:
        """Return the stored partition hash, signed."""
        self.num_bytes(record)
        if self.hash_offset is None:
            raise SchemaError(f"{self}: records have no partition hash")
        return int(SCALARS["int"].of(record, self.hash_offset))

    def compute_partition_hash(self, record: Buffer) -> int:
        """Return the hash that FiloDB computes for the record; producers may have stored another (section 3.2)."""
        total = layout.HASH_INIT
        for index in self.hashed_columns:
            payload = self.blob(record, index)
            if self.columns[index].type == "map":
                payload = memoryview(layout.PAYLOAD.encode(bytes(payload)))
            total = combine(total, hash_bytes(payload))
        return total

    def get_int(self, record: Buffer, index: int) -> int:
        """Return an `int` column."""
        return int(self._read_scalar(record, index, "int"))

    def get_long(self, record: Buffer, index: int) -> int:
        """Return a `long` or `ts` column; milliseconds since the epoch."""
        return int(self._read_scalar(record, index, "long", "ts"))

    def get_double(self, record: Buffer, index: int) -> float:
        """Return a `double` column."""
        return float(self._read_scalar(record, index, "double"))

    def is_whole(self, record: Buffer) -> bool:
        """Return whether the payloads of a record lie in it."""
        try:
            for index, column in enumerate(self.columns):
                if column.pointer:
                    self.blob(record, index)
        except (FormatError, SchemaError):
            return False
        return True

    def is_filled(self, record: Buffer) -> bool:
        """Return whether a record's payloads fill its variable area in the order of the columns, as builders do."""
        try:
            size = self.num_bytes(record)
        except FormatError:
            return False
        pos = self.variable_area_start
        for offset in self._pointer_offsets:
            if pos + layout.PAYLOAD_LENGTH_SIZE > size or layout.POINTER.of(record, offset) != pos:
                return False
            _, pos = layout.PAYLOAD.find_ends(record, pos)
        return pos == size

    def blob(self, record: Buffer, index: int) -> memoryview:
        """Return the payload of a pointer column, without its length. A view of the record, not a copy."""
        size = self.num_bytes(record)
        column = self.columns[index]
        if not column.pointer:
            raise SchemaError(f"column {column.name!r} is {column.type}; it has no payload")
        pos = self.field_offsets[index]
        pointer = layout.POINTER.of(record, pos)
        if not self.variable_area_start <= pointer <= size - layout.PAYLOAD_LENGTH_SIZE:
            raise FormatError(
                f"record, column {column.name!r}: pointer {pointer}; expected"
                f" {self.variable_area_start} to {size - layout.PAYLOAD_LENGTH_SIZE}"
            )
        start, end = layout.PAYLOAD.find_ends(record, pointer)
        if end > size:
            raise FormatError(
                f"record, column {column.name!r}: {end - start} bytes at {start} run over its end at {size}"
            )
        return memoryview(record)[start:end]

    def utf8_bytes(self, record: Buffer, index: int) -> bytes:
        """Return a `string` column as its bytes."""
        self._expect(index, "string")
        return bytes(self.blob(record, index))

    def utf8_string(self, record: Buffer, index: int) -> str:
        """Return a `string` column.

        Raises:
            FormatError: When it is not UTF-8; `utf8_bytes` gives the bytes.
        """
        return self._decode_text(self.utf8_bytes(record, index), index)

    def map_items(self, record: Buffer, index: int) -> Iterator[tuple[str, str]]:
        """Yield keys and values of a `map` column in the order they are in; keys may repeat."""
        for key, value in self.map_bytes(record, index):
            yield self._decode_text(key, index), self._decode_text(value, index)

    def map_bytes(self, record: Buffer, index: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a `map` column as bytes."""
        self._expect(index, "map")
        for key, value in maps.iterate(self.blob(record, index), self.predefined):
            yield key, bytes(value)

    def get_map(self, record: Buffer, index: int) -> dict[str, str]:
        """Return a `map` column; of repeated keys the last one counts."""
        return dict(self.map_items(record, index))

    def get_histogram(self, record: Buffer, index: int) -> Histogram:
        """Return a `hist` column."""
        self._expect(index, "hist")
        return Histogram.decode(self.blob(record, index))

    def nested_record(self, record: Buffer, index: int) -> memoryview:
        """Return the record in a `br` column; `br_schemas[index]` is its schema."""
        self._expect(index, "br")
        return self.blob(record, index)

    def get(self, record: Buffer, index: int) -> Any:
        """Return any column: int, float, str, dict, `Histogram`, or a dict of columns for a nested record."""
        kind = self.columns[index].type
        if kind in SCALARS:
            return self._read_scalar(record, index, kind)
        if kind == "string":
            return self.utf8_string(record, index)
        if kind == "map":
            return self.get_map(record, index)
        if kind == "hist":
            return self.get_histogram(record, index)
        nested = self.br_schemas.get(index)
        inner = self.nested_record(record, index)
        return bytes(inner) if nested is None else nested.to_dict(inner)

    def to_dict(self, record: Buffer) -> dict[str, Any]:
        """Return all columns by name."""
        return {column.name: self.get(record, index) for index, column in enumerate(self.columns)}

    def stringify(self, record: Buffer, name: str | None = None) -> str:
        """Return the record as FiloDB prints it; `name` is that of its schema, if known."""
        values = ",".join(f"{c.name}={self._as_text(record, index)}" for index, c in enumerate(self.columns))
        if not self.has_partition:
            return f"b2[ {values}]"
        return f"b2[schema={name or f'schemaID:{self.schema_id(record)}'}  {values}]"

    # Part keys.

    def partition_match(self, ingest: Buffer, part_key: Buffer) -> bool:
        """Return whether a record of this schema belongs to the series of a part key.

        Schema IDs and the values of all partition columns decide; stored hashes are not compared.
        """
        keys = self.part_key_schema
        if self.schema_id(ingest) != keys.schema_id(part_key):
            return False
        start = self.partition_field_start or 0
        return all(
            self._read_raw(ingest, start + index) == keys._read_raw(part_key, index)
            for index in range(len(keys.columns))
        )

    def build_part_key_from_ingest(self, ingest: Buffer, builder: PartKeyBuilder) -> int:
        """Add the part key of a record of this schema to a builder; the stored hash is taken over.

        Returns:
            The offset of the new record in its container, as `RecordBuilder.end_record`.
        """
        keys = self.part_key_schema
        builder.start_new_record(keys, self.schema_id(ingest))
        builder.add_part_key_fields(ingest, self)
        return builder.end_record()

    def _read_raw(self, record: Buffer, index: int) -> bytes:
        """Return a column's slot, or its payload where the slot is a pointer."""
        if self.columns[index].pointer:
            return bytes(self.blob(record, index))
        pos = self.field_offsets[index]
        return bytes(record[pos : pos + self.columns[index].slot_size])

    def _read_scalar(self, record: Buffer, index: int, *kinds: str) -> Any:
        self._expect(index, *kinds)
        self.num_bytes(record)
        return SCALARS[self.columns[index].type].of(record, self.field_offsets[index])

    def _expect(self, index: int, *kinds: str) -> None:
        column = self.columns[index]
        if column.type not in kinds:
            raise SchemaError(f"column {column.name!r} is {column.type}, not {' or '.join(kinds)}")

    def _decode_text(self, data: bytes, index: int) -> str:
        text = call_decoder(bytes.decode, data)
        if isinstance(text, Undecodable):
            raise FormatError(f"record, column {self.columns[index].name!r}: not UTF-8: {text.detail}")
        return text

    def _as_text(self, record: Buffer, index: int) -> str:
        kind = self.columns[index].type
        value = self.get(record, index)
        if kind == "map":
            return "{" + ", ".join(f"{key}: {item}" for key, item in self.map_items(record, index)) + "}"
        if kind == "hist":
            return f" {value}"
        if kind == "br" and index in self.br_schemas:
            return self.br_schemas[index].stringify(self.nested_record(record, index))
        return render_java_double(value) if kind == "double" else str(value)
