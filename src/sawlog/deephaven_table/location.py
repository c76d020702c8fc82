"""Locations: the files of one directory by column, and how those files begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sawlog.deephaven_table import layout
from sawlog.deephaven_table.checkpoint import plain_count, read_checkpoint
from sawlog.deephaven_table.generation import Primary, Verdict, judge
from sawlog.deephaven_table.header import HEAD_SIZE, HEADERLESS, NOTHING_TOLD, FileHeader, Told, parse_header
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.storage import Source, Storage

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
        layout: Which tree it is in: `intraday`, `historical` or `splayed`.
        namespace: Where the tree names it.
        table: Name of the table.
        internal_partition: Where the tree names it.
        column_partition: Where the tree names it.
        told: What is said of how its files begin: by a schema file in it, or by an earlier judgement.
        columns: Its columns by name.
        others: Files of no column: `table.size`, `table.tbl`, and what does not belong there.
        parsed: How its files begin, as far as they were looked at before: see `Headers.judged`.
    """

    directory: str
    layout: Literal["intraday", "historical", "splayed"] = "splayed"
    namespace: str | None = None
    table: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    told: Told = NOTHING_TOLD
    columns: Mapping[str, ColumnFiles] = field(default_factory=dict)
    others: tuple[File, ...] = ()
    parsed: Mapping[tuple[str, bool], FileHeader | None] = field(default_factory=dict)

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
    def _verdict(self) -> Verdict:
        if any(header is not None and header.certain for header in self._parsed.values()):
            return Verdict(1)
        if self._location.told.version is not None:
            return Verdict(self._location.told.version)
        primaries = [
            Primary(column, suffix, self._parse(column, suffix))
            for column in self._location.columns.values()
            for suffix in _HEADED
            if suffix in column.files
        ]
        count = plain_count(read_checkpoint(self._location, self._storage))
        return judge(primaries, self._widths, count, self._storage)

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
