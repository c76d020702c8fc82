"""The column by which rows are expected to ascend: a time, or a sequence number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import values_of
from sawlog.format.charts import time_text

_SEQUENCES = ("sequence", "sequence_number", "timestamp", "row_id")
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1), ("us", 1e-3), ("ns", 1e-6))
_PER_MILLISECOND = {"s": 1e-3, "ms": 1, "us": 1e3, "ns": 1e6}

NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Order:
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
    def of(cls, schema: pa.Schema) -> Order | None:
        """The first column of times, or else one that is called like a sequence; None if there is none."""
        for field in schema:
            if pa.types.is_timestamp(field.type):
                return cls(field.name, "time", _PER_MILLISECOND[field.type.unit])
        for field in schema:
            if field.name in _SEQUENCES and pa.types.is_integer(field.type):
                return cls(field.name, "number", 1)
        return None

    def values(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """The values of a batch; a null has that of the row before it; nothing, if the first is null."""
        stored = pc.fill_null_forward(batch.column(self.column))
        if stored.null_count:
            return NOTHING
        return values_of(stored if pa.types.is_uint64(stored.type) else stored.cast(pa.int64()), np.int64)

    def shown(self, value: Any) -> float:
        """A stored value as it is shown."""
        return float(value) / self.scale

    def text(self, value: int) -> str:
        """A stored time for people; one that no calendar has in milliseconds."""
        return time_text(self.shown(value))

    def length_text(self, length: int) -> str:
        """A length of time for people."""
        milliseconds = self.shown(length)
        name, size = next((unit for unit in _UNITS if milliseconds >= unit[1]), _UNITS[-1])
        return (
            f"{milliseconds / size:,.3g} {name}" if milliseconds < 1000 * size else f"{milliseconds / size:,.0f} {name}"
        )
