"""Rows in directories named `column=value`, as Spark's own file sinks make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sawlog.errors import OptionError, SchemaError, suggest_name
from sawlog.format.capabilities import WritesPartitions
from sawlog.format.contract import Format, Writer
from sawlog.format.partitions import SpreadingWriter
from sawlog.spark.files import NO_VALUE

if TYPE_CHECKING:
    from sawlog.storage import Storage

_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""What Spark escapes in names of such directories."""


def check_partitions(names: Sequence[str], schema: pa.Schema, format: Format) -> None:
    """Look whether columns can make directories.

    Raises:
        OptionError: When there is no such column, or no other one, or the format has partitions of its own.
        SchemaError: When the values of a column have no form as text that can be read back.
    """
    if isinstance(format, WritesPartitions):
        raise OptionError(f"option partitionBy: {format.name} has partitions of its own; see its page")
    for name in names:
        if name not in schema.names:
            near = suggest_name(name, schema.names)
            raise OptionError(f"option partitionBy: no column {name!r}{near}; columns: {', '.join(schema.names)}")
        kind = schema.field(name).type
        tests = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean, pa.types.is_decimal)
        if not any(test(kind) for test in tests):
            raise SchemaError(
                f"option partitionBy: column {name!r} is {kind}; cast it to a string, an integer or a date"
            )
    if len(set(names)) < len(names) or len(names) == len(schema):
        raise OptionError("option partitionBy: expected different columns, and at least one other")


class DirectoriesWriter(SpreadingWriter):
    """Spreads rows over writers, one for each directory that the values of some columns make.

    Args:
        names: The columns; directories hold the others only.
        storage: Where the directories are.
        begin: Begins one of them, by its path below the others' root.
    """

    def __init__(self, names: Sequence[str], storage: Storage, begin: Callable[[str], Writer]) -> None:
        super().__init__(storage, begin)
        self._names = names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, see `Writer.write`. Rows keep their order within a directory."""
        places = pc.binary_join_element_wise(
            *(_make_directory_names(name, batch.column(name)) for name in self._names), "/"
        )
        rows = batch.drop_columns(list(self._names))
        for place in places.unique().to_pylist():
            self.open_writer(place).write(rows.filter(pc.equal(places, place)))


def _make_directory_names(name: str, column: pa.Array) -> pa.Array:
    """Return the name of a directory for each value."""
    coded = pc.fill_null(column.cast(pa.string()), "").dictionary_encode()
    names = [f"{_escape(name)}={_escape(value) or NO_VALUE}" for value in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
