"""Locations: the files of one directory by column, the record of its rows, and whether the files have headers.

Eight bytes of numbers can look like a header without metadata: no file is judged by itself, but by all of them, by the
files next to them, and by their sizes. Sections 1 to 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Literal

from sawlog.deephaven.table import layout
from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.errors import FormatError
from sawlog.storage import File, Source, Storage, read_indexed

HEAD_SIZE = 16
"""Bytes from the start of a file that show its generation."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """Header at the beginning of a column's file.

    Attributes:
        version: Column version: 1 has a header, 2 has none.
        little: Whether the data is little endian; None when the file does not say.
        data_start: Where the data begins.
        metadata_size: Bytes of the metadata, the overflow included.
        certain: Whether the bytes can hardly be anything but such a header: there is a Java stream in it.
    """

    version: int
    little: bool | None
    data_start: int
    metadata_size: int = 0
    certain: bool = False

    @property
    def prefix_size(self) -> int:
        """Bytes of the metadata that are in the header."""
        return min(self.data_start - layout.HEADER_SIZE, self.metadata_size) if self.version == 1 else 0

    @property
    def overflow_size(self) -> int:
        """Bytes of the metadata that are in the overflow file."""
        return self.metadata_size - self.prefix_size


@dataclass(frozen=True, slots=True)
class Declared:
    """Version and byte order of files, as the reader or a schema file in a location declares them.

    Attributes:
        version: Column version; None when it is not said.
        little: Whether data is little endian; None likewise.
    """

    version: int | None = None
    little: bool | None = None


_NOTHING_DECLARED = Declared()
HEADERLESS = FileHeader(2, None, 0)
"""A file of column version 2."""


def parse_header(head: bytes, size: int, *, forced: bool = False) -> FileHeader | None:
    """Return the header of column version 1, if the bytes can be one.

    Args:
        head: The first `HEAD_SIZE` bytes of the file, or all of it.
        size: Size of the file.
        forced: Whether the file is known to have a header: unknown metadata is then left aside.
    """
    if size < layout.HEADER_SIZE:
        return None
    first = int.from_bytes(head[: layout.DATA_START_OFFSET], "big")
    second = int.from_bytes(head[layout.DATA_START_OFFSET : layout.HEADER_SIZE], "big")
    metadata, start = first & layout.METADATA_SIZE_MASK, second & layout.DATA_START_MASK
    if not layout.HEADER_SIZE <= start <= min(layout.MAX_DATA_START, size):
        return None
    room = min(start - layout.HEADER_SIZE, metadata)
    body = head[layout.HEADER_SIZE : layout.HEADER_SIZE + room]
    java = body.startswith(layout.JAVA_STREAM_MAGIC)
    is_stream = body.startswith((layout.OBJECT_STREAM_START, layout.OBJECT_STREAM_LONG_START))
    if metadata and not (java or is_stream or forced):
        return None
    little = bool(first & layout.LITTLE_ENDIAN_BIT)
    return _find_equal(FileHeader(1, little, start, metadata, java))


@lru_cache(maxsize=64)
def _find_equal(header: FileHeader) -> FileHeader:
    """Return a header as an equal file had it: most files of a table begin alike."""
    return header


def read_metadata(file: File, overflow: File | None, header: FileHeader, storage: Storage) -> bytes:
    """Return the metadata of a file, from its header and its overflow file.

    Raises:
        FormatError: When the overflow file is missing or too short.
    """
    if not header.metadata_size or header.version != 1:
        return b""
    available = overflow.size if overflow is not None else 0
    if available < header.overflow_size:
        raise FormatError(
            f"{file.path}: the metadata has {header.metadata_size} bytes: expected {header.overflow_size} of them in"
            f" the overflow file, found {available}"
        )
    prefix = read_indexed(storage, file, layout.HEADER_SIZE, header.prefix_size)
    if overflow is None or not header.overflow_size:
        return prefix
    return prefix + read_indexed(storage, overflow, 0, header.overflow_size)


@dataclass(frozen=True, slots=True)
class Generation:
    """Version and byte order of the files of a location that is written.

    Attributes:
        version: Column version, 1 or 2.
        little: Whether numbers are little endian.
        data_start: Where the data begins, in files that have a header.
    """

    version: int = 1
    little: bool = True
    data_start: int = layout.MAX_DATA_START

    def encode_header(self, metadata: bytes) -> tuple[bytes, bytes]:
        """Return the beginning of a file up to its data, and what of the metadata belongs into the overflow file."""
        if self.version != 1:
            return b"", b""
        order = layout.LITTLE_ENDIAN_BIT if self.little else 0
        numbers = (order | len(metadata)).to_bytes(4, "big") + self.data_start.to_bytes(4, "big")
        room = self.data_start - layout.HEADER_SIZE
        return (numbers + metadata[:room]).ljust(self.data_start, b"\0"), metadata[room:]


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """The files of one column."""

    name: str
    files: Mapping[str, File]

    @property
    def data(self) -> File | None:
        """The primary file; a column without one is null in every row."""
        return self.files.get(layout.DATA)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True, slots=True)
class Location:
    """Directory of column files: all columns of one internal and one column partition.

    Attributes:
        directory: Where it is.
        layout: Which tree it is in: `intraday`, `historical` or `splayed`.
        namespace: Where the tree names it.
        table: Name of the table.
        internal_partition: Where the tree names it.
        column_partition: Where the tree names it.
        declared: What a schema file in it says of how its files begin.
        columns: Its columns by name.
        other_files: Files of no column: `table.size`, `table.tbl`, and what does not belong there.
        has_all_columns: Whether all of its columns were named, not files of some.
    """

    directory: str
    layout: Literal["intraday", "historical", "splayed"] = "splayed"
    namespace: str | None = None
    table: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    declared: Declared = _NOTHING_DECLARED
    columns: Mapping[str, ColumnFiles] = field(default_factory=dict)
    other_files: tuple[File, ...] = ()
    has_all_columns: bool = True

    @property
    def files(self) -> list[File]:
        """All files, column by column."""
        return [file for column in self.columns.values() for file in column.files.values()] + list(self.other_files)

    def find_other_file(self, name: str) -> File | None:
        """Return a file of no column, by its name."""
        return next((file for file in self.other_files if file.name == name), None)

    def with_files(self, files: Iterable[File], *, has_all_columns: bool = True) -> Location:
        """Return the location with the files that lie in its directory, those of all of its columns or of some."""
        columns: dict[str, dict[str, File]] = {}
        other_files = []
        for file in files:
            parts = layout.split_name(file.name)
            if parts is None:
                other_files.append(file)
            else:
                columns.setdefault(parts[0], {})[parts[1]] = file
        column_files = {
            name: ColumnFiles(
                name, {suffix: files_by_suffix[suffix] for suffix in layout.SUFFIXES[::-1] if suffix in files_by_suffix}
            )
            for name, files_by_suffix in columns.items()
        }
        has_all = self.has_all_columns and has_all_columns
        return replace(self, columns=column_files, other_files=tuple(other_files), has_all_columns=has_all)


def read_checkpoint(location: Location, read: Callable[[File, int, int], bytes]) -> bytes | None:
    """Return the bytes of `table.size`; None when there is none, or it is unreasonably large.

    Args:
        location: Where it is.
        read: Reads a range of a file: `Storage.peek` for planning, `Storage.read` for what is there now.
    """
    file = location.find_other_file(layout.TABLE_SIZE)
    if file is None:
        return None
    data = read(file, 0, layout.MAX_CHECKPOINT_SIZE + 1)
    return data if len(data) <= layout.MAX_CHECKPOINT_SIZE else None


def decode_count(checkpoint: bytes | None) -> int | None:
    """Return the row count of a record of version 0; None for other versions and for the count that means unknown."""
    if checkpoint is None or len(checkpoint) != layout.ROW_COUNT_SIZE:
        return None
    count = int.from_bytes(checkpoint, "big", signed=True)
    return count if count >= 0 else None


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
        return self.column.files[self.suffix]


@dataclass(frozen=True, slots=True)
class _ColumnVersion:
    version: int
    certain: bool = True


def _judge(primaries: list[_Primary], widths: Mapping[str, int], count: int | None, storage: Storage) -> _ColumnVersion:
    """Return the column version that metadata, overflow files, sizes and unused space speak for.

    Args:
        primaries: Every `.dat` and `.sym` of the location.
        widths: Bytes per row of the columns whose type is given, by name.
        count: Committed rows, where `table.size` gives them.
        storage: Where the files are.
    """
    headers = [primary.header for primary in primaries]
    if any(header is not None and header.certain for header in headers):
        return _ColumnVersion(1)
    if any(
        layout.OVERFLOW in primary.column.files or layout.SYMBOL_OVERFLOW in primary.column.files
        for primary in primaries
    ):
        return _ColumnVersion(1)
    if not primaries or any(header is None for header in headers):
        return _ColumnVersion(2)
    with_header, without = (_fits_exactly(primaries, widths, count, version) for version in (1, 2))
    if with_header != without:
        return _ColumnVersion(1 if with_header else 2)
    if not all(_is_unused_zero(primary, storage) for primary in primaries):
        return _ColumnVersion(2)
    starts = Counter(header.data_start for header in headers if header is not None)
    alike = len(starts) == 1 and (len(primaries) > 1 or next(iter(starts)) in _USUAL_STARTS)
    return _ColumnVersion(1, certain=alike)


def _fits_exactly(primaries: list[_Primary], widths: Mapping[str, int], count: int | None, version: int) -> bool:
    """Return whether the data files are exactly as long as the committed rows make them in a column version."""
    data = [primary for primary in primaries if primary.suffix == layout.DATA]
    if not count or not data:
        return False
    for primary in data:
        start = primary.header.data_start if version == 1 and primary.header is not None else 0
        if primary.file.size - start not in {count * width for width in _list_widths(primary.column, widths)}:
            return False
    return True


def _list_widths(column: ColumnFiles, widths: Mapping[str, int]) -> tuple[int, ...]:
    """Return the numbers of bytes that a row of a column can have."""
    if column.name in widths:
        return (widths[column.name],)
    if layout.SYMBOL_OFFSETS in column.files:
        return layout.SYMBOL_SIZE, FIXED[ColumnType.STRING_SET].width
    return (layout.OFFSET_SIZE,) if layout.BINARY in column.files else layout.WIDTHS


def _is_unused_zero(primary: _Primary, storage: Storage) -> bool:
    """Return whether nothing is in the space between the metadata and the data."""
    assert primary.header is not None
    begin, end = layout.HEADER_SIZE + primary.header.prefix_size, primary.header.data_start
    return all(
        not read_indexed(storage, primary.file, offset, min(_CHUNK, end - offset)).strip(b"\x00")
        for offset in range(begin, end, _CHUNK)
    )


class Headers:
    """Headers of the files of a location. Picklable: a file is looked at when it is asked for, and only once."""

    def __init__(self, location: Location, storage: Storage, declared: Declared, widths: Mapping[str, int]) -> None:
        self._location = location
        self._storage = storage
        self._declared = declared
        self._widths = widths
        self._parsed: dict[tuple[str, bool], FileHeader | None] = {}

    def of(self, column: ColumnFiles, suffix: str, source: Source | None = None) -> FileHeader | None:
        """Return the header of a `.dat` or a `.sym`; None when it is damaged, and nothing of it can be read."""
        if self._declared.version == 2:
            return HEADERLESS
        header = self._parse(column, suffix, source=source)
        if self.version == 2:
            return HEADERLESS
        if header is None:  # metadata that cannot be read costs the groups, not the data
            header = self._parse(column, suffix, forced=True)
        little = self._location.declared.little
        return header if header is not None and little in (None, header.little) else None

    @property
    def version(self) -> int:
        """The column version of the location."""
        return self._declared.version or self._judged_version.version

    @property
    def assumes_version(self) -> bool:
        """Whether nothing proves the column version."""
        return self._declared.version is None and not self._judged_version.certain

    def is_little(self, header: FileHeader) -> bool:
        """Return whether the data after a header is little endian."""
        if header.little is not None:
            return header.little
        return self._headerless_little is not False

    @cached_property
    def _headerless_little(self) -> bool | None:
        """The byte order of headerless files, as it is said, or as far as end offsets show it; None: unknown."""
        for declared in (self._declared, self._location.declared):
            if declared.little is not None:
                return declared.little
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
            read = (
                read_indexed(self._storage, file, 0, HEAD_SIZE) if source is None else source.read_window(0, HEAD_SIZE)
            )
            head = bytes(read)
            self._parsed[key] = parse_header(head, file.size, forced=forced)
        return self._parsed[key]

    @cached_property
    def _judged_version(self) -> _ColumnVersion:
        if any(header is not None and header.certain for header in self._parsed.values()):
            return _ColumnVersion(1)
        if self._location.declared.version is not None:
            return _ColumnVersion(self._location.declared.version)
        primaries = [
            _Primary(column, suffix, self._parse(column, suffix))
            for column in self._location.columns.values()
            for suffix in _HEADED
            if suffix in column.files
        ]
        count = decode_count(read_checkpoint(self._location, partial(read_indexed, self._storage)))
        return _judge(primaries, self._widths, count, self._storage)

    def _order_of(self, offsets: File, binary: File) -> bool | None:
        count = offsets.size // layout.OFFSET_SIZE
        if not count:
            return None
        width = layout.OFFSET_SIZE
        data = read_indexed(self._storage, offsets, 0, min(_EDGE, count) * width)
        tail_start = max(len(data), (count - _EDGE) * width)
        data += read_indexed(self._storage, offsets, tail_start, count * width - tail_start)
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
