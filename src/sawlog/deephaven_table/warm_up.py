"""Compiling the kernels of column files ahead of time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa


def warm_up() -> None:
    """Write a tiny location with every kind of storage, and read it."""
    from sawlog.api import read, write
    from sawlog.deephaven_table.kernels import holds
    from sawlog.kernels.gather import gather_slices

    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        values = np.zeros(1, dtype)
        values.flags.writeable = False
        holds(values, dtype(1))
    data = np.zeros(1, np.uint8)
    data.flags.writeable = False
    lengths = np.zeros(1, np.int64)
    gather_slices(data, lengths, lengths, np.zeros(1, np.uint8), np.zeros(2, np.int32))
    table = pa.table(
        {
            "Byte": pa.array([1, None], pa.int8()),
            "Char": pa.array([1, None], pa.uint16()),
            "Price": pa.array([1.5, None]),
            "Sym": pa.array(["a", None]).dictionary_encode(),
            "Text": pa.array(["", None]),
            "Sizes": pa.array([[1, 2], None], pa.list_(pa.int32())),
        }
    )
    with tempfile.TemporaryDirectory() as place:
        location = Path(place) / "location"
        write(table, location, format="deephaven_table", compact_header=True)
        read(location, format="deephaven_table", types={"Text": "String(None)", "Price": "double", "Char": "char"})
