"""Cuckoo tables of RocksDB: buckets of one size, each with a key and a value, where the hash of the key puts it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from sawlog.kernels.varints import decode_varints
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import Buckets, Expanded
from sawlog.leveldb.table.pebble import BlockEntries, MalformedError, Slices, encode_plain
from sawlog.storage import Source


def read_buckets(properties: Mapping[bytes, bytes], end: int) -> Buckets:
    """Return what the properties of a table say of the buckets before the byte `end`.

    Raises:
        MalformedError: When they do not say it, or the buckets do not end there.
    """
    key = next(decode_varints(properties.get(layout.FIXED_KEY, b"")), 0)
    user = int.from_bytes(properties.get(layout.BUCKET_USER_KEY, b""), "little")
    value = int.from_bytes(properties.get(layout.BUCKET_VALUE, b""), "little")
    empty = properties.get(layout.BUCKET_EMPTY, b"")
    if not end:
        return Buckets(0, 0, 0, b"", 0)
    if not user or key - user not in (0, layout.KEY_TRAILER) or len(empty) != key or end % (key + value):
        raise MalformedError(f"{end} bytes of buckets with keys of {key} and values of {value} bytes")
    return Buckets(key, user, value, empty, end)


class BucketLayer:
    """Lays out the buckets of a table as one block of entries in the order of their keys."""

    def __init__(self, buckets: Buckets, source: Source) -> None:
        self._buckets = buckets
        self._source = source

    def convert_block(self, content: pa.Buffer, *, deletions: bool) -> tuple[Expanded, int]:
        """Return all entries; no value is ever lost. The table is the only block: the argument is not looked at."""
        del content, deletions
        buckets = self._buckets
        if not buckets.end:
            return pa.py_buffer(bytes(layout.RESTART_SIZE)), 0
        size = buckets.key + buckets.value
        data = np.frombuffer(bytes(self._source.read_window(0, buckets.end)), np.uint8)
        rows = data.reshape(-1, size)
        used = np.flatnonzero((rows[:, : buckets.key] != np.frombuffer(buckets.empty, np.uint8)).any(1))
        trailers = np.full(len(used), layout.PUT, np.uint64)
        if buckets.key > buckets.user:
            trailers = rows[used, buckets.user : buckets.key].copy().view("<u8").ravel().astype(np.uint64)
        keys = rows[used, : buckets.user].copy().view(f"S{buckets.user}").ravel()
        order = np.lexsort((~trailers, keys))
        used, trailers = used[order], trailers[order]
        starts = used.astype(np.int64) * size
        is_live = np.ones(len(used), np.bool_)
        entries = BlockEntries(
            [data],
            [Slices(starts, np.full(len(used), buckets.user, np.int64))],
            trailers,
            Slices(starts + buckets.key, np.full(len(used), buckets.value, np.int64)),
            np.zeros(len(used), np.uint8),
        )
        return encode_plain(entries, is_live, 2 * buckets.end + 64 * len(rows) + 64)
