"""The one way to open a file: what it is, its descriptor, its events, and their payloads. Section 2 of the format.

A file has few events, and each costs more to decode than to find: they are walked in plain Python, for to compile the
walk would take longer than to read thousands of files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sawlog.chain.kernels import (
    DAMAGED,
    DONE,
    ENDED,
    GOOD,
    SHORT,
    TAKEN,
    Window,
    make_record_type,
    make_state_type,
    note,
    run_nothing,
    walk_chain,
)
from sawlog.chain.kernels import blame as blame_kernel
from sawlog.chain.walk import ChainWalk, Span
from sawlog.chain.walk import WalkEvent as Wrong
from sawlog.errors import FINDING_ERRORS, ChangedError, DiskError
from sawlog.format.damage import Damage, Findings
from sawlog.guard import Undecodable, decode_json
from sawlog.kernels.jit import as_written
from sawlog.milvus import layout
from sawlog.milvus.layout import BinlogDamageKind, EventType, Shape
from sawlog.milvus.payloads.payload import SMALL_FILE_BYTES, Extent, Payload, UnreadableError
from sawlog.storage import File, Source, Storage, find_answer, is_remote, note_answer
from sawlog.storage.flight import WHOLE_BYTES
from sawlog.storage.sources import MemorySource, SourceRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        is_legacy: Whether this is the layout from before 2.0, with 21-byte headers.
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
    is_legacy: bool = False

    @property
    def is_nullable(self) -> bool:
        """Whether the column may hold nulls (2.5 and later say so)."""
        return self.extra.get("nullable") is True

    @property
    def is_encrypted(self) -> bool:
        """Whether everything after the descriptor is cipher text."""
        return "edek" in self.extra

    @property
    def type_name(self) -> str:
        """Name of the payload's type; its code where it is unknown."""
        return find_type_name(self.payload_type)


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Data event of a file.

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


def find_type_name(code: int) -> str:
    """Return Milvus' name of a data type; the code itself where it is unknown."""
    try:
        return layout.DataType(code).name.rstrip("_")
    except ValueError:
        return str(code)


def find_content(event: EventType, descriptor: Descriptor) -> Content:
    """Return the content of an event."""
    if event is EventType.DELETE and descriptor.field in (layout.DELTA_FIELD, 0):
        return "delta"
    if event is EventType.INDEX_FILE:
        return "index"
    return "ddl" if event in layout.DDL_EVENTS and descriptor.payload_type == layout.DataType.String else "insert"


def explain(head: bytes) -> str:
    """Return what is wrong with the first bytes of a file, quoting them; with a hint where there is one."""
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


def _read_descriptor(source: Source, path: str, findings: Findings, head: bytes) -> Descriptor | None:
    """Return the first event of a V1 file.

    Args:
        source: The file.
        path: Its name, for messages.
        findings: Receives damage; the descriptor is accounted for here.
        head: The first `HEAD` bytes of the file.

    Returns:
        `None` when it cannot be read.
    """
    if not head.startswith(layout.MAGIC):
        is_encrypted = layout.sniff(head) == "encrypted_parquet"
        kind = BinlogDamageKind.ENCRYPTED if is_encrypted else BinlogDamageKind.BAD_MAGIC
        findings.add_damage(Damage(path, 0, source.size, kind.label, explain(head)))
        return None
    descriptor = _parse_descriptor(source, head, path, findings)
    if descriptor is not None:
        findings.account.header += descriptor.end
    return descriptor


def _parse_descriptor(source: Source, head: bytes, path: str, findings: Findings) -> Descriptor | None:
    size = source.size
    pos = len(layout.MAGIC)
    legacy = _is_legacy(head, size)
    header = layout.LEGACY_HEADER if legacy else layout.HEADER
    fixed = header.size + (layout.LEGACY_DESCRIPTOR.size if legacy else layout.DESCRIPTOR.size)
    if len(head) < pos + fixed + (0 if legacy else layout.EXTRA_LENGTH.size):
        detail = f"the file ends inside the descriptor, which takes at least {pos + fixed} bytes; it has {size}"
        findings.add_damage(Damage(path, 0, size, BinlogDamageKind.TRUNCATED.label, detail))
        return None
    timestamp, code, *_, length, next_position = header.unpack_from(head, pos)
    if code != EventType.DESCRIPTOR:
        detail = f"expected a descriptor event (type code 0) first, found type code {code}"
        findings.add_damage(Damage(path, 0, size, BinlogDamageKind.BAD_DESCRIPTOR.label, detail))
        return None
    if length < fixed or pos + length > size:
        detail = f"the descriptor's length, {wrap_signed(length)}, does not fit into the file ({size} bytes)"
        findings.add_damage(Damage(path, 0, size, BinlogDamageKind.BAD_EVENT_LENGTH.label, detail))
        return None
    common = (timestamp, length, wrap_signed(next_position))
    end = pos + length
    if legacy:
        return _parse_legacy_descriptor(head, common, end)
    *values, _ = layout.DESCRIPTOR.unpack_from(head, pos + header.size)
    (extra_length,) = layout.EXTRA_LENGTH.unpack_from(head, pos + fixed)
    start = pos + fixed + layout.EXTRA_LENGTH.size
    room = pos + length - start
    if extra_length > room:
        detail = f"the extras' length, {extra_length}, reaches beyond the descriptor, which has room for {room}"
        findings.add_damage(Damage(path, 0, size, BinlogDamageKind.BAD_DESCRIPTOR.label, detail))
        return None
    text = bytes(source.read_window(start, extra_length))
    return _make_descriptor(common, values, end, _parse_extra(text, start, path, findings), legacy=False)


def _make_descriptor(
    common: tuple[int, int, int], values: list[int], end: int, extra: dict[str, Any], *, legacy: bool
) -> Descriptor:
    collection, partition, segment, field, start, last, code = values
    return Descriptor(*common, collection, partition, segment, field, start, last, code, end, extra, legacy)


def _parse_extra(text: bytes, offset: int, path: str, findings: Findings) -> dict[str, Any]:
    extra = decode_json(text)
    if isinstance(extra, dict):
        return extra
    detail = f"expected a JSON object, found {text[:60]!r}"
    if isinstance(extra, Undecodable):
        detail += f": {extra.detail}"
    size = len(text)
    if not text:  # only the length is wrong
        size = layout.EXTRA_LENGTH.size
        offset -= size
    findings.add_damage(Damage(path, offset, size, BinlogDamageKind.BAD_EXTRA.label, detail))
    findings.account.header -= size
    return {}


def _is_legacy(head: bytes, size: int) -> bool:
    """Return whether the descriptor makes sense with 21-byte headers, and none with 17-byte ones (section 2.6)."""
    pos = len(layout.MAGIC)
    fixed = pos + layout.HEADER.size + layout.DESCRIPTOR.size
    if len(head) >= fixed + layout.EXTRA_LENGTH.size:
        *_, length, _ = layout.HEADER.unpack_from(head, pos)
        (extra_length,) = layout.EXTRA_LENGTH.unpack_from(head, fixed)
        if pos + length == fixed + layout.EXTRA_LENGTH.size + extra_length:
            return False
    if len(head) < pos + layout.LEGACY_HEADER.size + layout.LEGACY_DESCRIPTOR.size:
        return False
    _, code, _, length, _ = layout.LEGACY_HEADER.unpack_from(head, pos)
    _, _, _, header_length, *_ = layout.LEGACY_DESCRIPTOR.unpack_from(head, pos + layout.LEGACY_HEADER.size)
    return bool(code == EventType.DESCRIPTOR and header_length == layout.LEGACY_HEADER.size and pos + length <= size)


def _parse_legacy_descriptor(head: bytes, common: tuple[int, int, int], end: int) -> Descriptor:
    """Return the pre-GA descriptor; a shape from spring 2021 has a field id after the segment id."""
    pos = len(layout.MAGIC) + layout.LEGACY_HEADER.size
    extra_bytes = common[1] - layout.LEGACY_HEADER.size - layout.LEGACY_DESCRIPTOR.size
    if extra_bytes >= 8:
        _, _, _, _, *values = layout.LEGACY_FIELD_DESCRIPTOR.unpack_from(head, pos)
        return _make_descriptor(common, values, end, {}, legacy=True)
    _, _, _, _, collection, partition, segment, *remaining, _ = layout.LEGACY_DESCRIPTOR.unpack_from(head, pos)
    values = [collection, partition, segment, layout.DELTA_FIELD, *remaining]
    return _make_descriptor(common, values, end, {}, legacy=True)


def wrap_signed(value: int, bits: int = 32) -> int:
    """Return a number of so many bits as the signed number that it is."""
    return value - (1 << bits) if value >= 1 << bits - 1 else value


BLOCK = 64 << 10
"""Bytes fetched at least: those of headers, or of a footer."""


def open_bytes(file: File, storage: Storage, *, planning: bool = False) -> Source:
    """Return the bytes of a file. Windows stay what they are: Arrow's arrays may point into them."""
    if (file.size <= BLOCK and not storage.memory_map) or is_remote(file.path):
        return _RemoteSource(file, storage, WHOLE_BYTES if planning else SMALL_FILE_BYTES)
    return storage.open(file)


class _RemoteSource:
    """Source of a remote log. Small ones are fetched whole; of large ones, what is asked for.

    What was fetched last is kept, and windows within it cost nothing.

    Args:
        file: The log.
        storage: Where it is.
        whole_bytes: Logs up to this size are fetched whole: for planning, those that are kept until they are read.
    """

    def __init__(self, file: File, storage: Storage, whole_bytes: int) -> None:
        self.size = file.size
        self._file = file
        self._storage = storage
        self._whole_bytes = whole_bytes
        self._start = 0
        self._bytes = b""

    def read_window(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Return a window as `Source.read_window` does; windows may go anywhere.

        Raises:
            ChangedError: When the file has become shorter.
        """
        length = min(length, self.size - offset)
        if length <= 0:
            return np.empty(0, np.uint8)
        if offset < self._start or offset + length > self._start + len(self._bytes):
            self._fetch(offset, length)
        return np.frombuffer(self._bytes, np.uint8, length, offset - self._start)

    def close(self) -> None:
        """Let go of what was fetched, once no array points into it."""
        self._bytes = b""

    def _fetch(self, offset: int, length: int) -> None:
        start, size = (0, self.size) if self.size <= self._whole_bytes else (offset, max(length, BLOCK))
        size = min(size, self.size - start)
        self._bytes = self._storage.read(self._file, start, size)
        self._start = start
        if len(self._bytes) < size:
            raise ChangedError.from_sizes(self._file.path, start + size, start + len(self._bytes))


class _IndexedSource:
    """Source of a log whose windows may be in an index.

    Args:
        source: Its bytes.
        file: The log.
        storage: Where the index is.
    """

    def __init__(self, source: Source, file: File, storage: Storage) -> None:
        self.size = file.size
        self._source = source
        self._file = file
        self._storage = storage

    def read_window(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Return bytes from an offset; planning asks for the same ones each time."""
        question = f"{offset}+{length}"
        answer = find_answer(self._storage, self._file, question)
        if answer is not None:
            return np.frombuffer(answer, np.uint8)
        window = self._source.read_window(offset, length)
        note_answer(self._storage, self._file, question, window.tobytes())
        return window

    def close(self) -> None:
        """Give the log back."""
        self._source.close()


EVENT = make_record_type("kind", "start", "length", "next_position", "timestamp", "first", "last", "payload")
"""An event, as `LogEvent` has it."""


class Rules(NamedTuple):
    """Rules by which events are judged, from the descriptor.

    Attributes:
        end: Where it ends.
        legacy: Whether headers are those from before 2.0.
        encrypted: Whether the events are cipher text.
    """

    end: int
    legacy: bool
    encrypted: bool


class Out(NamedTuple):
    """Arrays that events go to: records of `EVENT`, and what is damaged."""

    found: Any
    events: Any


_walk, _no_run, _note, _blame = map(as_written, (walk_chain, run_nothing, note, blame_kernel))


def measure_header(rules: Rules) -> int:
    """Return the size of an event's header."""
    return (layout.LEGACY_HEADER if rules.legacy else layout.HEADER).size


def _read_header(data: Any, pos: int, rules: Rules) -> tuple[int, int, int, int]:
    """Return the timestamp, type code, length and next position of the event at `pos`."""
    if rules.legacy:
        timestamp, code, _, length, following = layout.LEGACY_HEADER.unpack_from(data, pos)
        return timestamp, code, length, following
    return layout.HEADER.unpack_from(data, pos)


def judge(window: Any, pos: Any, state: Any, rules: Rules) -> tuple[int, int]:
    """Judge what is at a position. Damage lasts up to the end of the file: the next event cannot be located.

    An event of a type beyond those that are known is unsupported where its length and its next position agree.
    """
    offset = int(window.base + pos)
    remaining = int(window.size) - offset
    if remaining <= 0:
        return ENDED, 0
    min_length = measure_header(rules) + layout.EVENT_DATA.size
    if rules.encrypted:
        _blame(state, BinlogDamageKind.ENCRYPTED, 0, 0)
        return DAMAGED, remaining
    if remaining < min_length:
        kind = BinlogDamageKind.TRAILING_BYTES if offset > rules.end else BinlogDamageKind.TRUNCATED
        _blame(state, kind, remaining, min_length)
        return DAMAGED, remaining
    if len(window.data) < int(pos) + min_length:
        return SHORT, min_length
    _, code, length, following = _read_header(window.data, pos, rules)
    if not EventType.INSERT <= code <= EventType.INDEX_FILE:
        if code > EventType.INDEX_FILE and min_length <= length <= remaining and following == offset + length:
            _blame(state, BinlogDamageKind.UNSUPPORTED, code, 0)
            return DAMAGED, length
        _blame(state, BinlogDamageKind.UNKNOWN_EVENT, code, 0)
        return DAMAGED, remaining
    if length < min_length or length > remaining:
        cut = length > remaining and following == offset + length
        _blame(state, BinlogDamageKind.TRUNCATED if cut else BinlogDamageKind.BAD_EVENT_LENGTH, length, min_length)
        return DAMAGED, remaining
    return GOOD, length


def _gather(window: Any, pos: Any, size: int, state: Any, out: Out, rules: Rules) -> int:
    """Write an event down; the last one ends the walk."""
    event = _read_event(window, pos, size, rules)
    out.found[state.rows] = event
    state.rows += 1
    return DONE if event[1] + size == window.size else TAKEN


def _read_event(window: Any, pos: Any, size: int, rules: Rules) -> tuple[int, ...]:
    """Return the numbers of an event, as `EVENT` has them."""
    offset, body = int(window.base + pos), int(pos) + measure_header(rules)
    timestamp, code, _, following = _read_header(window.data, pos, rules)
    span = layout.EVENT_DATA.unpack_from(window.data, body)
    payload = int(window.base) + body + layout.EVENT_DATA.size
    return code, offset, size, wrap_signed(following), timestamp, *span, payload


def on_damage(window: Any, start: Any, length: int, state: Any, out: Out, rules: Rules) -> int:
    """Write damage down."""
    state.zeros = -1
    _note(out.events, state, state.kind, start, length, state.one, state.two)
    return TAKEN


_STATE = make_state_type()
_ROWS = 128
"""Events that are looked for at a time."""


def _iterate_events(source: Source, path: str, descriptor: Descriptor, findings: Findings) -> Iterator[LogEvent]:
    """Yield the data events of a V1 file, one by one, walked by their length only.

    Damage is reported when the walk finds it, after the events before it. The reader of an event accounts for it.
    Most files have one event, and are whole: the walk begins where something is wrong.
    """
    rules = Rules(descriptor.end, descriptor.is_legacy, descriptor.is_encrypted)
    position = descriptor.end
    while position < source.size:
        try:
            window = Window(source.read_window(position, HEAD), position, source.size, source.size)
        except DiskError:
            break
        verdict, length = judge(window, 0, _State(), rules)
        if verdict != GOOD:
            break
        code, *numbers = _read_event(window, 0, length, rules)
        yield LogEvent(EventType(code), *numbers)
        position += length
    else:
        return
    span = Span(File(path, source.size), position, source.size)
    for batch in _EventWalk(span, source, descriptor, findings).read_batches():
        yield from batch


class _State(dict[str, int]):
    """A walk's state for plain Python, which takes ten times as long for fields of a record."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class _EventWalk(ChainWalk):
    """Pass over the events; its batches are lists of them."""

    kinds = BinlogDamageKind
    window_passes = True

    def __init__(self, span: Span, source: Source, descriptor: Descriptor, findings: Findings) -> None:
        super().__init__(span, source, findings, _STATE, max_rows=_ROWS, event_room=1)
        self.state = _State(zip(_STATE.names or (), self.state.item(), strict=True))
        self._rules = Rules(descriptor.end, descriptor.is_legacy, descriptor.is_encrypted)
        self._descriptor = descriptor
        self._out = Out(np.zeros(_ROWS, EVENT), self.events)
        self.starts = self._out.found["start"]

    def read(self, window: Window) -> int:
        return int(_walk(_no_run, judge, _gather, on_damage, window, self.state, self._out, self._rules))

    def deliver(self, rows: int) -> Iterator[tuple[int, list[LogEvent]]]:
        """Yield the events, none of which is a row."""
        yield 0, [LogEvent(EventType(code), *numbers) for code, *numbers in self._out.found[:rows].tolist()]

    def reset(self) -> None:
        """Do nothing: what was delivered is written over."""

    def choose_window_length(self, position: int) -> int:
        """Return the length of an event's head: nothing beyond it is looked at."""
        del position
        return HEAD

    def describe(self, event: Wrong) -> str:
        """Return the detail of an event's damage, with the header quoted."""
        header = measure_header(self._rules)
        min_length = header + layout.EVENT_DATA.size
        if event.kind == BinlogDamageKind.ENCRYPTED:
            zone = self._descriptor.extra.get("encryption_zone")
            return f"the events are encrypted (zone {zone}); reading them needs the cluster's key"
        quoted = bytes(self.source.read_window(event.offset, header))
        if event.length < min_length:
            expected = f"an event, of at least {min_length} bytes, was expected"
            return f"{event.length} bytes where {expected}: {quoted[:16].hex(' ')}"
        if event.kind in (BinlogDamageKind.UNKNOWN_EVENT, BinlogDamageKind.UNSUPPORTED):
            return f"unknown type code {wrap_signed(event.one, 8)} in an event header: {quoted.hex(' ')}"
        possible = f"at least {min_length} and at most {event.length} bytes are possible"
        return f"the event's length is {wrap_signed(event.one)}; {possible}"

    def _account(self) -> None:
        """Do nothing: the reader of an event accounts for it."""


_HARMLESS = (BinlogDamageKind.TRAILING_BYTES.label, BinlogDamageKind.BAD_EXTRA.label)
"""Damage that leaves the rows of a file whole."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Rows in a file: an event with its payload; `None` for the event of a bare Parquet file."""

    event: LogEvent | None
    extent: Extent

    @property
    def offset(self) -> int:
        """Offset in the file at which it begins."""
        return self.extent.offset - self.extent.framing

    @property
    def length(self) -> int:
        """Bytes of it, the event's header included."""
        return self.extent.length + self.extent.framing


def blame(part: LogPart, damage: Damage, findings: Findings) -> None:
    """Report damage to an event, or to its payload, and account for all of its bytes.

    Raises:
        DamageError: When the policy is `fail`.
    """
    findings.add_damage(damage)
    findings.account.header += part.length - damage.length


def check_content(part: LogPart, descriptor: Descriptor | None, content: Content, path: str) -> None:
    """Refuse an event of another type than those of its file.

    Raises:
        UnreadableError: Says which one it is.
    """
    if part.event is not None and descriptor is not None and find_content(part.event.type, descriptor) != content:
        detail = f"an event of type {part.event.type.name} in a log of type {content}"
        raise UnreadableError(Damage(path, part.offset, part.length, BinlogDamageKind.UNKNOWN_EVENT.label, detail))


class Log:
    """Milvus file, open.

    Args:
        file: The file.
        source: Its bytes.
        max_page_bytes: See the read options.
        fault: Why its store does not deliver them.
        planning: Whether few of the bytes are wanted.
    """

    def __init__(
        self,
        file: File,
        source: Source,
        max_page_bytes: int | None,
        fault: Damage | None = None,
        *,
        planning: bool = False,
    ) -> None:
        self.path = file.path
        self.source = source
        self.fault = fault
        self._limit = max_page_bytes
        self._planning = planning
        self.head = bytes(source.read_window(0, HEAD))
        self.shape: Shape = layout.sniff(self.head)

    @property
    def is_bare_parquet(self) -> bool:
        """Whether it is Parquet without an envelope."""
        return self.shape == "parquet"

    def load_descriptor(self, findings: Findings) -> Descriptor | None:
        """Return the descriptor; `None` for bare Parquet, and where it cannot be read."""
        if self.fault is not None:
            findings.add_damage(self.fault)
            return None
        return None if self.is_bare_parquet else _read_descriptor(self.source, self.path, findings, self.head)

    def iterate_parts(self, descriptor: Descriptor | None, findings: Findings) -> Iterator[LogPart]:
        """Yield the file's events, or the only payload of a bare file. Damage is reported when the walk finds it."""
        if self.is_bare_parquet:
            yield LogPart(None, Extent(0, self.source.size))
        elif descriptor is not None:
            for event in _iterate_events(self.source, self.path, descriptor, findings):
                yield LogPart(event, Extent(event.payload, event.payload_length, event.payload - event.offset))

    def open_payload(self, part: LogPart, span: tuple[int, int] | None = None) -> Payload:
        """Return the payload of a part, its footer checked; `span` is that of `Payload`.

        Raises:
            UnreadableError: When it is no Parquet, or claims more than its bytes justify.
        """
        return Payload(self.source, self.path, part.extent, self._limit, span, planning=self._planning)

    def require_parts(
        self, report: Callable[[Damage], None] | None = None, span: tuple[int, int] | None = None
    ) -> list[tuple[LogPart, Payload]]:
        """Return all parts of a file of inserts, at least one, of which nothing may be missing.

        Args:
            report: Called with each damage that costs no row.
            span: The rows that are wanted of a bare file, as those of `Payload`.

        Raises:
            UnreadableError: When the file does not hold all of its rows.
        """
        strict = Findings("skip", drained=True)
        descriptor = self.load_descriptor(strict)
        parts = list(self.iterate_parts(descriptor, strict))
        damages = [damage for damage in strict.damages if damage.kind not in _HARMLESS]
        if damages:
            raise UnreadableError(damages[0])
        if not parts:
            raise UnreadableError(self.without_events())
        for part in parts:
            check_content(part, descriptor, "insert", self.path)
        payloads = [(part, self.open_payload(part, span)) for part in parts]
        if report is not None:
            for damage in strict.damages:
                report(damage)
        return payloads

    def without_events(self) -> Damage:
        """Return the damage that an insert log without events is."""
        return Damage(
            self.path, self.source.size, 0, BinlogDamageKind.TRUNCATED.label, "no data event after the descriptor"
        )

    def from_offset(self, base: int) -> Log:
        """Return the rest of the file from an offset, as a file."""
        remaining = SourceRange(self.source, base)
        return Log(File(self.path, remaining.size), remaining, self._limit)

    def close(self) -> None:
        """Give the file back."""
        self.source.close()

    def read_all(self) -> bytes:
        """Return all bytes, of files that are small by nature."""
        return bytes(self.source.read_window(0, self.source.size))


def open_log(file: File, storage: Storage, max_page_bytes: int | None, *, planning: bool = False) -> Log:
    """Open a file. The caller closes its source. For planning, an index may know what is asked for."""
    try:
        bytes_ = open_bytes(file, storage, planning=planning)
    except FINDING_ERRORS as error:
        return Log(file, MemorySource(b""), max_page_bytes, error.damage)
    if planning and storage.index is not None:
        bytes_ = _IndexedSource(bytes_, file, storage)
    try:
        return Log(file, bytes_, max_page_bytes, planning=planning)
    except FINDING_ERRORS as error:
        bytes_.close()
        return Log(file, MemorySource(b""), max_page_bytes, error.damage)
    except BaseException:
        bytes_.close()
        raise


def hold_log(file: File, storage: Storage, max_page_bytes: int | None, *, planning: bool = False) -> closing[Log]:
    """Open a file, and close it in the end."""
    return closing(open_log(file, storage, max_page_bytes, planning=planning))
