"""Options for reading and writing column files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from sawlog.deephaven.table import layout as files
from sawlog.deephaven.table.location import Declared, Generation
from sawlog.deephaven.table.types import MAX_DECIMAL, split_arguments
from sawlog.deephaven.text import find_charset
from sawlog.errors import OptionError


class Types(dict[str, str]):
    """Types of columns by name; as text, `Px=double,Fee=BigDecimal(10,2)`."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Take pairs apart at the commas that are in no parentheses.

        Raises:
            OptionError: When a part is no `name=type`.
        """
        types = cls()
        depth = begin = 0
        for place, letter in enumerate(text + ","):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter != "," or depth > 0:
                continue
            part, begin = text[begin:place].strip(), place + 1
            name, equals, kind = part.partition("=")
            if equals:
                types[name.strip()] = kind.strip()
            elif part:
                raise OptionError(f"types={text!r}: expected name=type pairs")
        return types


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading Deephaven's column files.

    Attributes:
        types: Types of columns, before those of the schema file: `Px=double,Fee=BigDecimal(10,2)`; in Python also a
            dictionary.
        schema: Path of a Deephaven `.schema` file: types, codecs, order of columns, partitioning column.
        layout: Tree that locations are in; `auto` goes by their paths.
        namespace: Namespace of the table to read, if there are several.
        table: Name of the table to read, if there are several.
        partition_column: Name of the partitioning column; by default that of the schema file, or `Date`. Empty leaves
            it out.
        num_rows: Number of rows in every location, whatever `table.size` and the files say.
        column_version: 1 has headers, 2 has none; `auto` goes by the files.
        byteorder: Byte order of files without headers; `auto` goes by offsets, and is little endian without any.
        char: Return a char as the number of its UTF-16 code unit, or as a string of one character.
        decimal: Precision and scale (`38,10`) of decimals whose codec does not fix them; by default these are strings.
        sentinels_as_null: Return Deephaven's null values (such as the smallest int) as null.
    """

    types: Types | dict[str, str] = field(default_factory=dict)
    schema: str | None = None
    layout: Literal["auto", "intraday", "historical", "splayed"] = "auto"
    namespace: str | None = None
    table: str | None = None
    partition_column: str | None = None
    num_rows: int | None = None
    column_version: Literal["auto", 1, 2, "1", "2"] = "auto"
    byteorder: Literal["auto", "big", "little"] = "auto"
    char: Literal["number", "string"] = "number"
    decimal: str | None = None
    sentinels_as_null: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.types, Mapping):
            raise OptionError(f"types={self.types!r}: expected names and types")
        if self.num_rows is not None and self.num_rows < 0:
            raise OptionError(f"num_rows={self.num_rows}: expected 0 or more")
        if self.decimal is not None:
            parts = split_arguments(self.decimal)
            numbers = [int(part) for part in parts if part.isdecimal()]
            if (
                len(numbers) != 2
                or len(parts) != 2
                or not 0 <= numbers[1] <= numbers[0] <= MAX_DECIMAL
                or not numbers[0]
            ):
                raise OptionError(f"decimal={self.decimal!r}: expected precision,scale such as 38,10")

    @property
    def declared(self) -> Declared:
        """Version and byte order of files, as the reader declares them."""
        version = None if self.column_version == "auto" else int(self.column_version)
        return Declared(version, None if self.byteorder == "auto" else self.byteorder == "little")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Deephaven's column files.

    Attributes:
        column_version: 1 has headers, which every release reads; 2 has none, as since checkpoint version 4.
        byteorder: Byte order of the data; only headers record it.
        compact_header: Write headers of 4 KiB instead of the product's 128 KiB.
        charset: Charset of Strings whose metadata names none. A Deephaven schema that names none means ISO-8859-1.
        types: Types of columns, as for reading. By default those of the schema file, else of the field metadata, else
            those that fit the Arrow types.
        schema: Path of a Deephaven `.schema` file: types, codecs and charsets.
        group: Columns that get grouping metadata; rows with the same value must be adjacent.
    """

    column_version: int = 1
    byteorder: Literal["little", "big"] = "little"
    compact_header: bool = False
    charset: str = files.DEFAULT_CHARSET
    types: Types | dict[str, str] = field(default_factory=dict)
    schema: str | None = None
    group: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.column_version not in (1, 2):
            raise OptionError(f"column_version={self.column_version}: expected 1 or 2")
        if find_charset(self.charset) is None:
            raise OptionError(f"charset={self.charset!r}: expected one of {', '.join(files.CHARSETS.values())}")
        if self.group and self.column_version != 1:
            raise OptionError("group: where columns of version 2 keep their groups was never published; use version 1")

    @property
    def generation(self) -> Generation:
        """Version and byte order of the files that are written."""
        start = files.COMPACT_DATA_START if self.compact_header else files.MAX_DATA_START
        return Generation(self.column_version, self.byteorder == "little", start)
