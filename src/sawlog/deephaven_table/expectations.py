"""What the locations of a table are expected to be: given in Python, by options, or in a TOML file."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sawlog.errors import OptionError
from sawlog.guard import Undecodable, decode_by
from sawlog.options import parse_options
from sawlog.storage import Storage

if TYPE_CHECKING:
    from sawlog.storage import PathLike


@dataclass(frozen=True, slots=True)
class ColumnExpectation:
    """What a column is expected to be, in every location.

    Attributes:
        type: Its type, as schema files spell it.
        max_nulls: How many of its values may be null.
        max_null_fraction: How many of them, as a fraction of the rows.
        sorted: Whether its values ascend, nulls first: in the whole `location`, or in each of the `groups` that the
            grouped columns make.
        grouped: Whether it has grouping metadata.
    """

    type: str | None = None
    max_nulls: int | None = None
    max_null_fraction: float | None = None
    sorted: Literal["location", "groups"] | None = None
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is expected of every location.

    Attributes:
        min_rows: Rows that it has at least.
        max_rows: Rows that it has at most.
        columns: What is expected of columns, by name. They have to be there.
    """

    min_rows: int = 0
    max_rows: int | None = None
    columns: Mapping[str, ColumnExpectation] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str) -> Expectations:
        """Expectations from plain data: the attributes by name, and `columns` by name with theirs.

        Raises:
            OptionError: For an unknown name or a value of another type.
        """
        columns = document.get("columns", {})
        if not isinstance(columns, Mapping) or not all(isinstance(one, Mapping) for one in columns.values()):
            raise OptionError(f"{where}: columns: expected a table for each column, such as [columns.Timestamp]")
        parsed = {
            name: parse_options(ColumnExpectation, one, where=f"{where}: column {name!r}")
            for name, one in columns.items()
        }
        return replace(parse_options(cls, {**document, "columns": {}}, where=where), columns=parsed)

    @classmethod
    def read(cls, path: PathLike, storage: Storage | None = None) -> Expectations:
        """Expectations from a TOML file.

        Raises:
            OptionError: When it is none.
        """
        data = (storage or Storage()).read(path)
        found = decode_by(tomllib.load, io.BytesIO(data))
        if isinstance(found, Undecodable):
            raise OptionError(f"{path}: not TOML: {found.detail}")
        return cls.of(found, str(path))

    def expect(self, name: str, **more: Any) -> Expectations:
        """The same, and more of one column."""
        column = replace(self.columns.get(name, ColumnExpectation()), **more)
        return replace(self, columns={**self.columns, name: column})
