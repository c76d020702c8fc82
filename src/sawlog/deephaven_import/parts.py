"""Which rows of a merged location came from which of its parts: run ends and numbers, as a compressed Arrow stream."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.deephaven_import.history import PARTS_NAME
from sawlog.errors import FormatError
from sawlog.guard import Undecodable, decode_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCHEMA = pa.schema([pa.field("end", pa.int64(), nullable=False), pa.field("part", pa.int32(), nullable=False)])


class PartsWriter:
    """Takes the parts of rows, batch by batch."""

    def __init__(self) -> None:
        self._data = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._stream: Any = pa.ipc.new_stream(self._data, _SCHEMA, options=options)
        self._row = 0

    def add(self, parts: NDArray[np.int64]) -> None:
        """Take the parts of the next rows."""
        if not len(parts):
            return
        ends = np.append(np.flatnonzero(np.diff(parts)), len(parts) - 1) + 1
        columns = [pa.array(ends + self._row), pa.array(parts[ends - 1].astype(np.int32))]
        self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._row += len(parts)

    def finish(self) -> bytes:
        """The content of the file."""
        self._stream.close()
        return self._data.getvalue()


@dataclass(frozen=True, slots=True)
class PartsOfRows:
    """The parts of the rows of a location."""

    ends: NDArray[np.int64]
    parts: NDArray[np.int64]

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The parts of some rows; a row after the last one belongs to none (-1)."""
        places = np.searchsorted(self.ends, rows, side="right")
        return np.append(self.parts, -1)[places]


def read_parts(path: str) -> PartsOfRows | None:
    """The parts of the rows of a merged location; None when all of them are of its only part.

    Raises:
        FormatError: When the file is damaged.
    """
    where = os.path.join(path, PARTS_NAME)
    try:
        with open(where, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    stream = decode_by(pa.ipc.open_stream, data)
    table = stream if isinstance(stream, Undecodable) else decode_by(stream.read_all)
    if isinstance(table, Undecodable):
        raise FormatError(f"{where}: not the parts of a merged location: {table.detail}")
    if table.schema != _SCHEMA:
        raise FormatError(f"{where}: not the parts of a merged location")
    return PartsOfRows(
        np.ascontiguousarray(table.column("end")), np.ascontiguousarray(table.column("part")).astype(np.int64)
    )
