"""The one way to open a file: what it is, its descriptor, its events, and their payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from sawlog.damage import Damage, Findings
from sawlog.milvus_binlog import envelope, layout, source
from sawlog.milvus_binlog.envelope import Content, Descriptor, Event, content_of
from sawlog.milvus_binlog.layout import Kind, Shape
from sawlog.milvus_binlog.payloads.payload import Extent, Payload, UnreadableError
from sawlog.storage import File, Source, Storage
from sawlog.storage.sources import SourceRange

_HARMLESS = (Kind.TRAILING_BYTES, Kind.BAD_EXTRA)
"""Damage that leaves the rows of a file whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """What holds rows in a file: an event with its payload; `None` for the event of a bare Parquet file."""

    event: Event | None
    extent: Extent

    @property
    def offset(self) -> int:
        """Where it begins in the file."""
        return self.extent.offset - self.extent.framing

    @property
    def length(self) -> int:
        """Bytes of it, the event's header included."""
        return self.extent.length + self.extent.framing


def blame(part: Part, damage: Damage, findings: Findings) -> None:
    """Tell of damage to an event, or to its payload, and account for all of its bytes.

    Raises:
        DamageError: When the policy is `fail`.
    """
    findings.damage(damage)
    findings.account.header += part.length - damage.length


def check_content(part: Part, descriptor: Descriptor | None, content: Content, path: str) -> None:
    """Refuse an event of another type than those of its file.

    Raises:
        UnreadableError: Says which one it is.
    """
    if part.event is not None and descriptor is not None and content_of(part.event.type, descriptor) != content:
        detail = f"an event of type {part.event.type.name} in a log of type {content}"
        raise UnreadableError(Damage(path, part.offset, part.length, Kind.UNKNOWN_EVENT, detail))


class Log:
    """One file, open.

    Args:
        file: The file.
        source: Its bytes.
        max_page_bytes: See the read options.
    """

    def __init__(self, file: File, source: Source, max_page_bytes: int | None) -> None:
        self.path = file.path
        self.source = source
        self._limit = max_page_bytes
        self.head = bytes(source.window(0, envelope.HEAD))
        self.shape: Shape = layout.sniff(self.head)

    @property
    def bare(self) -> bool:
        """Whether it is Parquet without an envelope."""
        return self.shape == "parquet"

    def descriptor(self, findings: Findings) -> Descriptor | None:
        """The descriptor; `None` for bare Parquet, and where it cannot be read."""
        return None if self.bare else envelope.read_descriptor(self.source, self.path, findings, self.head)

    def parts(self, descriptor: Descriptor | None, findings: Findings) -> Iterator[Part]:
        """The file's events, or the one payload that a bare file is. Damage is reported when the walk finds it."""
        if self.bare:
            yield Part(None, Extent(0, self.source.size))
        elif descriptor is not None:
            from sawlog.milvus_binlog.walk import events

            for event in events(self.source, self.path, descriptor, findings):
                yield Part(event, Extent(event.payload, event.payload_length, event.payload - event.offset))

    def payload(self, part: Part) -> Payload:
        """The payload of a part, its footer checked.

        Raises:
            UnreadableError: When it is no Parquet, or claims more than its bytes justify.
        """
        return Payload(self.source, self.path, part.extent, self._limit)

    def whole(self, report: Callable[[Damage], None] | None = None) -> list[tuple[Part, Payload]]:
        """Every part of a file of inserts of which nothing may be missing, at least one.

        Args:
            report: Called with each damage that costs no row.

        Raises:
            UnreadableError: When the file does not hold all of its rows.
        """
        strict = Findings("skip", drained=True)
        descriptor = self.descriptor(strict)
        parts = list(self.parts(descriptor, strict))
        lost = [damage for damage in strict.damages if damage.kind not in _HARMLESS]
        if lost:
            raise UnreadableError(lost[0])
        if not parts:
            raise UnreadableError(self.without_events())
        for part in parts:
            check_content(part, descriptor, "insert", self.path)
        found = [(part, self.payload(part)) for part in parts]
        if report is not None:
            for damage in strict.damages:
                report(damage)
        return found

    def without_events(self) -> Damage:
        """The damage that an insert log without events is."""
        return Damage(self.path, self.source.size, 0, Kind.TRUNCATED, "no data event after the descriptor")

    def behind(self, base: int) -> Log:
        """The rest of the file from an offset, as a file."""
        rest = SourceRange(self.source, base)
        return Log(File(self.path, rest.size), rest, self._limit)

    def content(self) -> bytes:
        """All bytes, of files that are small by nature."""
        return bytes(self.source.window(0, self.source.size))


def open_log(file: File, storage: Storage, max_page_bytes: int | None) -> Log:
    """Open a file. The caller closes its source."""
    bytes_ = source.open_log(file, storage)
    try:
        return Log(file, bytes_, max_page_bytes)
    except BaseException:
        bytes_.close()
        raise


@contextmanager
def opened(file: File, storage: Storage, max_page_bytes: int | None) -> Iterator[Log]:
    """Open a file, and close it in the end."""
    log = open_log(file, storage, max_page_bytes)
    with closing(log.source):
        yield log
