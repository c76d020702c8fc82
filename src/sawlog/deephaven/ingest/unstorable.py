"""Values that column files cannot hold: null instead, or what Java would have written; all are written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from sawlog.arrow import is_text, make_array
from sawlog.deephaven.ingest.schema import convert
from sawlog.deephaven.table.column_writer import check
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.deephaven.table.values import ArrayPlace
from sawlog.deephaven.text import CHARSETS
from sawlog.errors import SchemaError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN

OnUnstorable = Literal["error", "null", "replace"]
UNSTORABLE_NAME = "_sawlog.unstorable.jsonl"
"""Next to the files of a location: a line for each value that is not in them."""
MAX_LISTED = 100_000
"""Further ones are counted."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class UnstorableValue:
    """A value that column files cannot hold."""

    file: str
    offset: int
    column: str
    value: str
    reason: str
    stored: str | None


class Mender:
    """Makes batches of logs into batches that a location can hold.

    Args:
        schema: The columns of the location.
        specs: How they are stored.
        policy: What becomes of values that cannot be: `null` is null; `replace` is text with `?` for what the charset
            lacks, as Java writes it, and else null.

    Attributes:
        count: How many there were.
    """

    def __init__(self, schema: pa.Schema, specs: Mapping[str, ColumnSpec], policy: OnUnstorable) -> None:
        self._schema = schema
        self._specs = specs
        self._policy = policy
        self._listed: list[UnstorableValue] = []
        self.count = 0

    def mend(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with `_file` and `_offset` as a batch of the location."""
        arrays = []
        for field in self._schema:
            if field.name not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            elif field.name in self._specs:
                arrays.append(self._mend_column(batch, field, self._specs[field.name]))
            else:
                arrays.append(convert(batch.column(field.name), field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def encode_listing(self) -> bytes:
        """Return the lines of the file `UNSTORABLE_NAME`."""
        return b"".join(json.dumps(asdict(row), ensure_ascii=False).encode() + b"\n" for row in self._listed)

    def _mend_column(self, batch: pa.RecordBatch, field: pa.Field, spec: ColumnSpec) -> pa.Array:
        column = batch.column(field.name)

        def attempt(part: pa.Array) -> pa.Array:
            converted = convert(part, field)
            check(spec, converted, ArrayPlace(field.name, 0))
            return converted

        reasons = _find_refused(attempt, column)
        if not reasons:
            return attempt(column)
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        stored = {row: self._make_substitute(values[row].as_py(), values.type, spec) for row in reasons}
        self.count += len(reasons)
        for row in list(reasons)[: MAX_LISTED - len(self._listed)]:
            row_key = (batch.column(FILE_COLUMN)[row].as_py(), batch.column(OFFSET_COLUMN)[row].as_py())
            value_text = repr(values[row].as_py())[:_SHOWN]
            self._listed.append(UnstorableValue(*row_key, field.name, value_text, reasons[row], stored[row]))
        return attempt(_replace_values(values, stored))

    def _make_substitute(self, value: Any, kind: pa.DataType, spec: ColumnSpec) -> str | None:
        if self._policy != "replace" or not is_text(kind) or not isinstance(value, str):
            return None
        python = CHARSETS.get(spec.charset, "utf-8")
        return value.encode(python, "replace").decode(python).strip("\0")


def _find_refused(attempt: Callable[[pa.Array], Any], array: pa.Array) -> dict[int, str]:
    """Return rows of values that are refused, and why: found by halves."""
    reasons = {}
    open_ranges = [(0, len(array))]
    while open_ranges:
        start, count = open_ranges.pop()
        try:
            attempt(array.slice(start, count))
        except SchemaError as error:
            if count == 1:
                reasons[start] = str(error)
            else:
                half = count // 2
                open_ranges += [(start + half, count - half), (start, half)]
    return reasons


def _replace_values(values: pa.Array, stored: Mapping[int, str | None]) -> pa.Array:
    """Return the values with others in some rows."""
    import pyarrow.compute as pc

    mask = make_array([row in stored for row in range(len(values))], pa.bool_())
    return pc.replace_with_mask(values, mask, make_array(list(stored.values()), values.type))
