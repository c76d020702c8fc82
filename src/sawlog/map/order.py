"""The column by which rows are expected to ascend: a time, or a sequence number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import view_values
from sawlog.format.charts import render_time

_SEQUENCES = ("sequence", "sequence_number", "timestamp", "row_id")
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1), ("us", 1e-3), ("ns", 1e-6))
_PER_MILLISECOND = {"s": 1e-3, "ms": 1, "us": 1e3, "ns": 1e6}

NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The column, and how its values are shown.

    Attributes:
        column: Its name.
        kind: `time`, in milliseconds since 1970, or `number`.
        scale: Stored units per shown one.
    """

    column: str
    kind: str
    scale: float

    @classmethod
    def of(cls, schema: pa.Schema) -> RowOrder | None:
        """Return the first column of times, or else one that is called like a sequence; None if there is none."""
        for field in schema:
            if pa.types.is_timestamp(field.type):
                return cls(field.name, "time", _PER_MILLISECOND[field.type.unit])
        for field in schema:
            if field.name in _SEQUENCES and pa.types.is_integer(field.type):
                return cls(field.name, "number", 1)
        return None

    def extract_values(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the values of a batch; a null has that of the row before it; nothing, if the first is null."""
        stored = pc.fill_null_forward(batch.column(self.column))
        if stored.null_count:
            return NOTHING
        return view_values(stored if pa.types.is_uint64(stored.type) else stored.cast(pa.int64()), np.int64)

    def convert_value(self, value: Any) -> float:
        """Return a stored value as it is shown."""
        return float(value) / self.scale

    def render_value(self, value: int) -> str:
        """Return a stored time for people; one that no calendar has in milliseconds."""
        return render_time(self.convert_value(value))

    def render_length(self, length: int) -> str:
        """Return a length of time for people."""
        milliseconds = self.convert_value(length)
        name, size = next((unit for unit in _UNITS if milliseconds >= unit[1]), _UNITS[-1])
        return (
            f"{milliseconds / size:,.3g} {name}" if milliseconds < 1000 * size else f"{milliseconds / size:,.0f} {name}"
        )
