"""Orders of keys that are not that of their bytes, and tables of Pebble's that show a part of a file, or other keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, view_binary
from sawlog.leveldb.database import kernels as k
from sawlog.leveldb.database.layout import COCKROACH_NAME
from sawlog.leveldb.records.layout import MAX_SEQUENCE
from sawlog.leveldb.table.layout import REVERSE_NAME


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """An order of keys, as places: byte strings that compare as the engine compares the keys.

    Keys whose places are equal are the same key to the engine.

    Attributes:
        versioned: Whether keys end in a version and its length, as those of CockroachDB do: of keys that are the same
            otherwise, one without a version is first, then the newest. If not, the largest key is first.
    """

    versioned: bool

    def compute_places(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the places of the keys `data[start : end]`, back to back and eight bytes longer, and their ends."""
        room = k.PLACE_GROWTH * int((ends - starts).sum()) + k.PLACE_ROOM * len(starts) + k.PLACE_SLACK
        out, out_ends = np.zeros(room, np.uint8), np.zeros(len(starts) + 1, np.int64)
        k.write_places(data, starts, ends, self.versioned, out, out_ends)
        return out[: int(out_ends[-1]) + k.PLACE_SLACK], out_ends

    def compute_column(self, keys: pa.Array) -> pa.Array:
        """Return the places of a column of keys."""
        data, offsets = view_binary(keys)
        edges = offsets.astype(np.int64)
        places, ends = self.compute_places(data, edges[:-1], edges[1:])
        return pa.Array.from_buffers(pa.large_binary(), len(keys), [None, pa.py_buffer(ends), pa.py_buffer(places)])

    def compute_place(self, key: bytes) -> bytes:
        """Return the place of a key."""
        place: bytes = self.compute_column(make_array([key], pa.binary()))[0].as_py()
        return place


ORDERS: Mapping[str, KeyOrder] = {COCKROACH_NAME: KeyOrder(versioned=True), REVERSE_NAME: KeyOrder(versioned=False)}
"""The orders that are known besides that of the bytes, by the names of their comparators."""


@dataclass(frozen=True, slots=True)
class VirtualTable:
    """A table of Pebble's that shows a part of the entries of a file, or shows them under other keys.

    Attributes:
        order: The order of its keys; `None` where that is the bytes', and its bounds are judged like those of others.
        prefix: Bytes that are before all keys.
        suffix: The version that replaces those of all keys, except in range deletions; empty where none does.
        first: The first key, as it is shown.
        last: The last key, likewise.
        closed: Whether the last key is a part of it.
    """

    order: KeyOrder | None
    prefix: bytes
    suffix: bytes
    first: bytes
    last: bytes
    closed: bool

    @classmethod
    def of(cls, row: Mapping[str, Any], order: KeyOrder | None) -> VirtualTable | None:
        """Return the table that an edit names; `None` where it shows a file, or a part of it, as others do."""
        prefix, suffix = row.get("synthetic_prefix") or b"", row.get("synthetic_suffix") or b""
        if not (prefix or suffix or (order is not None and row.get("backing_file") is not None)):
            return None
        # A largest key with the last sequence number is itself past the end of the table.
        closed = row["largest_key_sequence"] != MAX_SEQUENCE
        return cls(order, prefix, suffix, row["smallest_key"], row["largest_key"], closed)


def list_places(keys: Sequence[bytes], order: KeyOrder | None) -> list[bytes]:
    """Return the places of keys in an order; they themselves where that is the bytes'."""
    return list(keys) if order is None else order.compute_column(make_array(keys, pa.binary())).to_pylist()
