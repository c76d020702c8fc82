"""The head of V1 files: magic number and descriptor, and what an event is. Section 2 of the format."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from sawlog.damage import Damage, Findings
from sawlog.guard import Undecodable, decode_json
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import EventType, Kind
from sawlog.storage import Source

Content = Literal["insert", "delta", "ddl", "index", "columns", "stats", "bm25"]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The first event of a file.

    Attributes:
        timestamp: When the file was made, as a TSO; 0 where the writer did not say.
        length: Bytes of the event, header included.
        next_position: As stored. Not to be trusted (section 2.1).
        collection: Collection id.
        partition: Partition id; -1 for none.
        segment: Segment id; -1 for none.
        field: Field id; -1 in delta, DDL and old files.
        start_timestamp: As stored; not a bound (section 2.5).
        end_timestamp: As stored; not a bound.
        payload_type: Code of the payload's type, see `layout.DataType`.
        end: Where the event ends in the file.
        extra: The JSON object after the fixed part, unknown keys included.
        legacy: Whether this is the layout from before 2.0, with 21-byte headers.
    """

    timestamp: int
    length: int
    next_position: int
    collection: int
    partition: int
    segment: int
    field: int
    start_timestamp: int
    end_timestamp: int
    payload_type: int
    end: int
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    legacy: bool = False

    @property
    def nullable(self) -> bool:
        """Whether the column may hold nulls (2.5 and later say so)."""
        return self.extra.get("nullable") is True

    @property
    def encrypted(self) -> bool:
        """Whether everything after the descriptor is cipher text."""
        return "edek" in self.extra

    @property
    def type_name(self) -> str:
        """Name of the payload's type; its code where it is unknown."""
        return data_type_name(self.payload_type)


@dataclass(frozen=True, slots=True)
class Event:
    """One data event.

    Attributes:
        type: Type code.
        offset: Where its header begins in the file.
        length: Bytes of the event, header included.
        next_position: As stored. Not to be trusted.
        timestamp: When it was made, as a TSO.
        start_timestamp: As stored; not a bound.
        end_timestamp: As stored; not a bound.
        payload: Where its Parquet payload begins in the file.
    """

    type: EventType
    offset: int
    length: int
    next_position: int
    timestamp: int
    start_timestamp: int
    end_timestamp: int
    payload: int

    @property
    def payload_length(self) -> int:
        """Bytes of the payload."""
        return self.offset + self.length - self.payload


def data_type_name(code: int) -> str:
    """Milvus' name of a data type; the code itself where it is unknown."""
    try:
        return layout.DataType(code).name.rstrip("_")
    except ValueError:
        return str(code)


def content_of(event: EventType, descriptor: Descriptor) -> Content:
    """What an event holds."""
    if event is EventType.DELETE and descriptor.field in (layout.DELTA_FIELD, 0):
        return "delta"
    if event is EventType.INDEX_FILE:
        return "index"
    return "ddl" if event in layout.DDL_EVENTS and descriptor.payload_type == layout.DataType.String else "insert"


def explain(head: bytes) -> str:
    """What is wrong with the first bytes of a file, quoting them; with a hint where there is one."""
    quoted = head[:16].hex(" ") or "nothing, the file is empty"
    expected = f"expected {layout.MAGIC.hex(' ')} (a binlog) or {layout.PARQUET_MAGIC.hex(' ')} (Parquet)"
    shape = layout.sniff(head)
    if shape == "encrypted_parquet":
        return f"an encrypted Parquet file ({quoted}); reading it needs its keys"
    if shape == "manifest":
        return (
            f"an Avro manifest of Storage V3 ({quoted}), which says where the rows of its segment are: name the"
            f" directory of the segment, or one above it; {expected}"
        )
    displaced = head[: layout.MAGIC_SEARCH].find(layout.MAGIC)
    if displaced > 0:
        return (
            f"{expected}, found {quoted}; the magic number is at byte {displaced}, after what looks like an S3"
            " chunk signature that the object store failed to take off: sawlog repair cuts it away"
        )
    if head.startswith(layout.GZIP_MAGIC):
        return f"{expected}, found {quoted}: gzip; decompress it first"
    return f"{expected}, found {quoted}"


HEAD = 4096
"""Bytes from the beginning of a file that sniffing and the descriptor look at."""


def read_descriptor(source: Source, path: str, findings: Findings, head: bytes) -> Descriptor | None:
    """The first event of a V1 file; `sawlog.milvus_binlog.walk` has the others.

    Args:
        source: The file.
        path: Its name, for messages.
        findings: Receives damage; the descriptor is accounted for here.
        head: The first `HEAD` bytes of the file.

    Returns:
        `None` when it cannot be read.
    """
    if not head.startswith(layout.MAGIC):
        kind = Kind.UNSUPPORTED if layout.sniff(head) == "encrypted_parquet" else Kind.BAD_MAGIC
        findings.damage(Damage(path, 0, source.size, kind, explain(head)))
        return None
    descriptor = _descriptor(source, head, path, findings)
    if descriptor is not None:
        findings.account.header += descriptor.end
    return descriptor


def _descriptor(source: Source, head: bytes, path: str, findings: Findings) -> Descriptor | None:
    size = source.size
    at = len(layout.MAGIC)
    legacy = _is_legacy(head, size)
    header = layout.LEGACY_HEADER if legacy else layout.HEADER
    fixed = header.size + (layout.LEGACY_DESCRIPTOR.size if legacy else layout.DESCRIPTOR.size)
    if len(head) < at + fixed + (0 if legacy else layout.EXTRA_LENGTH.size):
        detail = f"the file ends inside the descriptor, which takes at least {at + fixed} bytes; it has {size}"
        findings.damage(Damage(path, 0, size, Kind.TRUNCATED, detail))
        return None
    timestamp, code, *_, length, next_position = header.unpack_from(head, at)
    if code != EventType.DESCRIPTOR:
        detail = f"expected a descriptor event (type code 0) first, found type code {code}"
        findings.damage(Damage(path, 0, size, Kind.BAD_DESCRIPTOR, detail))
        return None
    if length < fixed or at + length > size:
        detail = f"the descriptor's length, {signed(length)}, does not fit into the file ({size} bytes)"
        findings.damage(Damage(path, 0, size, Kind.BAD_EVENT_LENGTH, detail))
        return None
    common = (timestamp, length, signed(next_position))
    end = at + length
    if legacy:
        return _legacy_descriptor(head, common, end)
    *values, _ = layout.DESCRIPTOR.unpack_from(head, at + header.size)
    (extra_length,) = layout.EXTRA_LENGTH.unpack_from(head, at + fixed)
    start = at + fixed + layout.EXTRA_LENGTH.size
    room = at + length - start
    if extra_length > room:
        detail = f"the extras' length, {extra_length}, reaches beyond the descriptor, which has room for {room}"
        findings.damage(Damage(path, 0, size, Kind.BAD_DESCRIPTOR, detail))
        return None
    text = bytes(source.window(start, extra_length))
    return _make(common, values, end, _extra(text, start, path, findings), legacy=False)


def _make(
    common: tuple[int, int, int], values: list[int], end: int, extra: dict[str, Any], *, legacy: bool
) -> Descriptor:
    collection, partition, segment, field, start, last, code = values
    return Descriptor(*common, collection, partition, segment, field, start, last, code, end, extra, legacy)


def _extra(text: bytes, offset: int, path: str, findings: Findings) -> dict[str, Any]:
    extra = decode_json(text)
    if isinstance(extra, dict):
        return extra
    detail = f"expected a JSON object, found {text[:60]!r}"
    if isinstance(extra, Undecodable):
        detail += f": {extra.detail}"
    findings.damage(Damage(path, offset, len(text), Kind.BAD_EXTRA, detail))
    findings.account.header -= len(text)
    return {}


def _is_legacy(head: bytes, size: int) -> bool:
    """Whether the descriptor makes sense with 21-byte headers, and none with 17-byte ones (section 2.6)."""
    at = len(layout.MAGIC)
    fixed = at + layout.HEADER.size + layout.DESCRIPTOR.size
    if len(head) >= fixed + layout.EXTRA_LENGTH.size:
        *_, length, _ = layout.HEADER.unpack_from(head, at)
        (extra_length,) = layout.EXTRA_LENGTH.unpack_from(head, fixed)
        if at + length == fixed + layout.EXTRA_LENGTH.size + extra_length:
            return False
    if len(head) < at + layout.LEGACY_HEADER.size + layout.LEGACY_DESCRIPTOR.size:
        return False
    _, code, _, length, _ = layout.LEGACY_HEADER.unpack_from(head, at)
    _, _, _, header_length, *_ = layout.LEGACY_DESCRIPTOR.unpack_from(head, at + layout.LEGACY_HEADER.size)
    return bool(code == EventType.DESCRIPTOR and header_length == layout.LEGACY_HEADER.size and at + length <= size)


def _legacy_descriptor(head: bytes, common: tuple[int, int, int], end: int) -> Descriptor:
    """The pre-GA descriptor; a shape from spring 2021 has a field id after the segment id."""
    at = len(layout.MAGIC) + layout.LEGACY_HEADER.size
    behind = common[1] - layout.LEGACY_HEADER.size - layout.LEGACY_DESCRIPTOR.size
    if behind >= 8:
        _, _, _, _, *values = layout.LEGACY_FIELD_DESCRIPTOR.unpack_from(head, at)
        return _make(common, values, end, {}, legacy=True)
    _, _, _, _, collection, partition, segment, *rest, _ = layout.LEGACY_DESCRIPTOR.unpack_from(head, at)
    return _make(common, [collection, partition, segment, layout.DELTA_FIELD, *rest], end, {}, legacy=True)


def signed(value: int, bits: int = 32) -> int:
    """A number of so many bits as the signed number that it is."""
    return value - (1 << bits) if value >= 1 << bits - 1 else value
