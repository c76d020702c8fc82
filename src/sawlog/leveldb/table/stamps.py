"""User-defined timestamps: the last eight bytes of keys, as RocksDB's comparators called `….u64ts` have them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, fixed_array
from sawlog.errors import SchemaError
from sawlog.kernels.gather import gather_slices

SUFFIX = ".u64ts"
"""Ends the name of a comparator: keys are ordered as by the one before, and then by timestamps, newest first."""
WIDTH = 8


def split_stamps(keys: pa.Array, path: str) -> tuple[pa.Array, pa.Array]:
    """Keys without their timestamps, and the timestamps.

    Raises:
        SchemaError: When a key has none.
    """
    _, ends, data = keys.buffers()
    edges = np.frombuffer(ends or bytes(4), np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    source = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(edges) - WIDTH
    if (lengths < 0).any():
        raise SchemaError(f"{path}: a key of {int(lengths.min()) + WIDTH} bytes has no timestamp")
    places = (edges[1:] - WIDTH)[:, None] + np.arange(WIDTH)
    stamps = source[places].reshape(-1).view("<u8").astype(np.uint64)
    out = Column(np.uint8, int(lengths.sum()))
    found = np.zeros(len(keys) + 1, np.int32)
    gather_slices(source, edges[:-1], lengths, out.values, found)
    kept = pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(found), out.take(int(found[-1]))])
    return kept, fixed_array(pa.uint64(), stamps)
