"""Locations: the files of one directory by column, and how those files begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sawlog.deephaven_table import layout
from sawlog.deephaven_table.header import HEAD_SIZE, HEADERLESS, FileHeader, parse_header
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.storage import Storage

_HEADED = (layout.DATA, layout.SYMBOL_OFFSETS)
_EDGE = 2
"""Offsets are looked at from both ends when the byte order has to be found out."""


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """The files of one column.

    Attributes:
        name: Name of the column.
        files: By suffix.
    """

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
    """One directory of column files: all columns of one internal and one column partition.

    Attributes:
        directory: Where it is.
        layout: Which tree it stands in: `intraday`, `historical` or `splayed`.
        namespace: Where the tree tells.
        table: Name of the table.
        internal_partition: Where the tree tells.
        column_partition: Where the tree tells.
        columns: Its columns by name.
        others: Files of no column: `table.size`, `table.tbl`, and what does not belong there.
    """

    directory: str
    layout: Literal["intraday", "historical", "splayed"] = "splayed"
    namespace: str | None = None
    table: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    columns: Mapping[str, ColumnFiles] = field(default_factory=dict)
    others: tuple[File, ...] = ()

    @property
    def files(self) -> list[File]:
        """All files, column by column."""
        return [file for column in self.columns.values() for file in column.files.values()] + list(self.others)

    def other(self, name: str) -> File | None:
        """A file of no column, by its name."""
        return next((file for file in self.others if file.name == name), None)

    def with_files(self, files: Iterable[File]) -> Location:
        """The location with the files that lie in its directory."""
        columns: dict[str, dict[str, File]] = {}
        others = []
        for file in files:
            parts = layout.split_name(file.name)
            if parts is None:
                others.append(file)
            else:
                columns.setdefault(parts[0], {})[parts[1]] = file
        found = {
            name: ColumnFiles(name, {suffix: given[suffix] for suffix in layout.SUFFIXES[::-1] if suffix in given})
            for name, given in columns.items()
        }
        return replace(self, columns=found, others=tuple(others))


class Headers:
    """How the files of a location begin. Files are looked at when they are asked for.

    Args:
        location: The location.
        version: Column version, where it is given; otherwise it is told by the files.
        byteorder: Byte order of the data of headerless files, where it is given.
        storage: Where the files are.
    """

    def __init__(
        self,
        location: Location,
        version: Literal["auto", 1, 2],
        byteorder: Literal["auto", "big", "little"],
        storage: Storage,
    ) -> None:
        self._location = location
        self._given_version = version
        self._given_order = byteorder
        self._storage = storage
        self._parsed: dict[str, FileHeader | None] = {}
        self._headerless: bool | None = None
        self._little: bool | None = None

    def of(self, column: ColumnFiles, suffix: str) -> FileHeader | None:
        """How a `.dat` or a `.sym` begins; None when its header is damaged, and nothing of it can be read."""
        if self._given_version == 2:
            return HEADERLESS
        header = self._parse(column, suffix)
        if header is not None and (header.certain or self._given_version == 1):
            return header
        # A file that may be headerless: the location is of one generation, so the other files decide.
        if self._given_version == 1:
            return None
        return HEADERLESS if self._all_headerless() else header

    def little(self, header: FileHeader) -> bool:
        """Whether the data behind a header is little endian."""
        if self._given_order != "auto" and header.little is None:
            return self._given_order == "little"
        return header.little if header.little is not None else self.guessed_little is not False

    @property
    def guessed_little(self) -> bool | None:
        """The byte order of headerless files, as far as end offsets tell it; None when nothing tells."""
        if self._little is None:
            for column in self._location.columns.values():
                for offsets, binary in (
                    (layout.SYMBOL_OFFSETS, layout.SYMBOL_BINARY),
                    (layout.DATA, layout.BINARY),
                ):
                    if self._little is None and offsets in column.files and binary in column.files:
                        self._little = self._order_of(column.files[offsets], column.files[binary])
        return self._little

    @property
    def assumes_order(self) -> bool:
        """Whether nothing tells the byte order of the data."""
        if self._given_order != "auto" or self._given_version == 1:
            return False
        headers = [
            self.of(column, layout.DATA) for column in self._location.columns.values() if column.data is not None
        ]
        unknown = any(header is not None and header.little is None for header in headers)
        return unknown and self.guessed_little is None

    def _parse(self, column: ColumnFiles, suffix: str) -> FileHeader | None:
        file = column.files[suffix]
        if file.path not in self._parsed:
            overflow = layout.OVERFLOW if suffix == layout.DATA else layout.SYMBOL_OVERFLOW
            head = self._storage.read(file.path, 0, HEAD_SIZE)
            self._parsed[file.path] = parse_header(
                head, file.size, overflow=overflow in column.files, forced=self._given_version == 1
            )
        return self._parsed[file.path]

    def _all_headerless(self) -> bool:
        if self._headerless is None:
            parsed = [
                self._parse(column, suffix)
                for column in self._location.columns.values()
                for suffix in _HEADED
                if suffix in column.files
            ]
            certain = any(header is not None and header.certain for header in parsed)
            self._headerless = not certain and not all(header is not None for header in parsed)
        return self._headerless

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
            # What lies behind the committed rows may be zeros.
            grown = [end for end in ends if end]
            fits[order] = bool(grown) and min(grown) > 0 and max(grown) <= binary.size and grown == sorted(grown)
        return None if fits["little"] == fits["big"] else fits["little"]
