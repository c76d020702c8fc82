"""Whether the files of a location have headers: judged by all of them, by the files next to them, by their sizes.

Eight bytes of numbers can look like a header without metadata, so no file is judged by itself. Section 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.header import HEAD_SIZE, HEADERLESS, NOTHING_TOLD, FileHeader, Told, parse_header
from sawlog.deephaven_table.location import ColumnFiles, Location, plain_count, read_checkpoint

if TYPE_CHECKING:
    from sawlog.storage import File, Source, Storage

_USUAL_STARTS = (layout.MAX_DATA_START, layout.COMPACT_DATA_START)
_CHUNK = 4 << 10
_HEADED = (layout.DATA, layout.SYMBOL_OFFSETS)
_EDGE = 2
"""Offsets are looked at from both ends when the byte order has to be found out."""


@dataclass(frozen=True, slots=True)
class _Primary:
    """A `.dat` or a `.sym`, and how it begins.

    Attributes:
        column: The column it belongs to.
        suffix: Which of its files.
        header: The header that its first bytes can be; None when they can be none.
    """

    column: ColumnFiles
    suffix: str
    header: FileHeader | None

    @property
    def file(self) -> File:
        """The file."""
        return self.column.files[self.suffix]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The generation of a location.

    Attributes:
        version: Column version.
        certain: Whether something proves it.
    """

    version: int
    certain: bool = True


def _judge(primaries: list[_Primary], widths: Mapping[str, int], count: int | None, storage: Storage) -> _Verdict:
    """Weigh what there is: metadata, overflow files, sizes, unused space.

    Args:
        primaries: Every `.dat` and `.sym` of the location.
        widths: Bytes per row of the columns whose type is given, by name.
        count: Committed rows, where `table.size` gives them.
        storage: Where the files are.
    """
    headers = [one.header for one in primaries]
    if any(header is not None and header.certain for header in headers):
        return _Verdict(1)
    if any(layout.OVERFLOW in one.column.files or layout.SYMBOL_OVERFLOW in one.column.files for one in primaries):
        return _Verdict(1)
    if not primaries or any(header is None for header in headers):
        return _Verdict(2)
    with_header, without = (_exact(primaries, widths, count, version) for version in (1, 2))
    if with_header != without:
        return _Verdict(1 if with_header else 2)
    if not all(_unused_is_zero(one, storage) for one in primaries):
        return _Verdict(2)
    starts = Counter(header.data_start for header in headers if header is not None)
    alike = len(starts) == 1 and (len(primaries) > 1 or next(iter(starts)) in _USUAL_STARTS)
    return _Verdict(1, certain=alike)


def _exact(primaries: list[_Primary], widths: Mapping[str, int], count: int | None, version: int) -> bool:
    """Whether the data files are exactly as long as the committed rows make them in a column version."""
    data = [one for one in primaries if one.suffix == layout.DATA]
    if not count or not data:
        return False
    for one in data:
        start = one.header.data_start if version == 1 and one.header is not None else 0
        if one.file.size - start not in {count * width for width in _widths(one.column, widths)}:
            return False
    return True


def _widths(column: ColumnFiles, known: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes that a row of a column can have."""
    if column.name in known:
        return (known[column.name],)
    if layout.SYMBOL_OFFSETS in column.files:
        return layout.SYMBOL_SIZE, FIXED[ColumnType.STRING_SET].width
    return (layout.OFFSET_SIZE,) if layout.BINARY in column.files else layout.WIDTHS


def _unused_is_zero(one: _Primary, storage: Storage) -> bool:
    """Whether nothing is in the space between the metadata and the data."""
    assert one.header is not None
    begin, end = layout.HEADER_SIZE + one.header.prefix_size, one.header.data_start
    for at in range(begin, end, _CHUNK):
        if storage.read(one.file.path, at, min(_CHUNK, end - at)).strip(b"\0"):
            return False
    return True


class Headers:
    """How the files of a location begin. Files are looked at when they are asked for.

    Args:
        location: The location.
        storage: Where the files are.
        given: What the reader says: nothing comes before that.
        widths: Bytes per row of columns whose type is known, by name.
    """

    def __init__(
        self,
        location: Location,
        storage: Storage,
        given: Told = NOTHING_TOLD,
        widths: Mapping[str, int] | None = None,
    ) -> None:
        self._location = location
        self._storage = storage
        self._given = given
        self._widths = widths or {}
        self._parsed = dict(location.parsed)

    def of(self, column: ColumnFiles, suffix: str, source: Source | None = None) -> FileHeader | None:
        """How a `.dat` or a `.sym` begins; None when its header is damaged, and nothing of it can be read.

        Args:
            column: The column.
            suffix: Which of its files.
            source: That file, where it is open.
        """
        if self._given.version == 2:
            return HEADERLESS
        header = self._parse(column, suffix, source=source)
        if self.version == 2:
            return HEADERLESS
        if header is None:  # metadata that cannot be read costs the groups, not the data
            header = self._parse(column, suffix, forced=True)
        told = self._location.told.little
        return header if header is not None and told in (None, header.little) else None

    @property
    def version(self) -> int:
        """The column version of the location."""
        return self._given.version or self._verdict.version

    @property
    def judged(self) -> Location:
        """The location with what was found out here: the next reader looks at no file again for that."""
        told = replace(self._location.told, version=self.version)
        return replace(self._location, told=told, parsed=dict(self._parsed))

    @property
    def assumes_version(self) -> bool:
        """Whether nothing proves the column version."""
        return self._given.version is None and not self._verdict.certain

    def little(self, header: FileHeader) -> bool:
        """Whether the data after a header is little endian."""
        if header.little is not None:
            return header.little
        return self._headerless_little is not False

    @cached_property
    def _headerless_little(self) -> bool | None:
        """The byte order of headerless files, as it is said, or as far as end offsets show it; None: unknown."""
        for told in (self._given, self._location.told):
            if told.little is not None:
                return told.little
        pairs = ((layout.SYMBOL_OFFSETS, layout.SYMBOL_BINARY), (layout.DATA, layout.BINARY))
        for column in self._location.columns.values():
            for offsets, binary in pairs:
                if offsets in column.files and binary in column.files:
                    little = self._order_of(column.files[offsets], column.files[binary])
                    if little is not None:
                        return little
        return None

    @property
    def assumes_order(self) -> bool:
        """Whether the byte order of the data is unknown."""
        return self.version == 2 and self._headerless_little is None

    def _parse(
        self, column: ColumnFiles, suffix: str, *, forced: bool = False, source: Source | None = None
    ) -> FileHeader | None:
        file = column.files[suffix]
        key = file.path, forced
        if key not in self._parsed:
            read = self._storage.read(file.path, 0, HEAD_SIZE) if source is None else source.window(0, HEAD_SIZE)
            head = bytes(read)
            self._parsed[key] = parse_header(head, file.size, forced=forced)
        return self._parsed[key]

    @cached_property
    def _verdict(self) -> _Verdict:
        if any(header is not None and header.certain for header in self._parsed.values()):
            return _Verdict(1)
        if self._location.told.version is not None:
            return _Verdict(self._location.told.version)
        primaries = [
            _Primary(column, suffix, self._parse(column, suffix))
            for column in self._location.columns.values()
            for suffix in _HEADED
            if suffix in column.files
        ]
        count = plain_count(read_checkpoint(self._location, self._storage))
        return _judge(primaries, self._widths, count, self._storage)

    def _order_of(self, offsets: File, binary: File) -> bool | None:
        count = offsets.size // layout.OFFSET_SIZE
        if not count:
            return None
        width = layout.OFFSET_SIZE
        data = self._storage.read(offsets.path, 0, min(_EDGE, count) * width)
        at = max(len(data), (count - _EDGE) * width)
        data += self._storage.read(offsets.path, at, count * width - at)
        fits = {}
        for order in ("little", "big"):
            ends = [
                int.from_bytes(data[i : i + width], "little" if order == "little" else "big", signed=True)
                for i in range(0, len(data), width)
            ]
            # What follows the committed rows may be zeros.
            grown = [end for end in ends if end]
            fits[order] = bool(grown) and min(grown) > 0 and max(grown) <= binary.size and grown == sorted(grown)
        return None if fits["little"] == fits["big"] else fits["little"]
