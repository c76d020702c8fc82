"""Whether two sets of rows are the same, in whatever order: counted and hashed over all columns."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types as arrow

from sawlog.arrow import fill_null, is_binary, is_text, unpack_booleans, view_binary, view_offsets, view_values
from sawlog.deephaven.ingest.kernels import hash_bytes, hash_lists, hash_rows, hash_words
from sawlog.format.digest import Digest

_ALL = np.zeros(0, np.uint8)
_NAN = np.array([np.nan]).view(np.uint64)[0]


def hash_batch(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return a hash of each row. The order of columns does not matter; a null counts as a column that is not there.

    Numbers of any width are the same number; 0.0 and -0.0 are not, and every NaN is one.
    """
    return hash_columns(list(zip(batch.schema.names, batch.columns, strict=True)))


def make_digest(hashes: NDArray[np.uint64]) -> Digest:
    """Return the digest of rows with these hashes."""
    return Digest(len(hashes), int(hash_rows(hashes)))


def hash_columns(columns: Sequence[tuple[str, pa.Array]]) -> NDArray[np.uint64]:
    """Return a hash of each row over some columns, which are named; there is one at least."""
    hashes = np.zeros(len(columns[0][1]), np.uint64)
    for name, array in columns:
        seed = np.frombuffer(blake2b(name.encode(), digest_size=8).digest(), "<u8")[0]
        validity = unpack_booleans(array.is_valid()).view(np.uint8) if array.null_count else _ALL
        hash_words(_convert_words(array), validity, seed, hashes)
    return hashes


def _convert_words(array: pa.Array) -> NDArray[np.uint64]:
    """Return a number for each value, the same for the same ones; any number for null."""
    kind = array.type
    if arrow.is_dictionary(kind):
        distinct = np.append(_convert_words(array.dictionary), np.uint64(0))
        hashes: NDArray[np.uint64] = distinct[
            view_values(fill_null(array.indices.cast(pa.int64()), len(distinct) - 1), "<i8")
        ]
        return hashes
    if arrow.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if arrow.is_boolean(kind):
        return unpack_booleans(array).astype(np.uint64)
    if arrow.is_floating(kind):
        values = view_values(array.cast(pa.float64()), "<f8")
        return np.where(np.isnan(values), _NAN, values.view(np.uint64))
    if arrow.is_integer(kind) or arrow.is_temporal(kind):
        dtype = ("u" if arrow.is_unsigned_integer(kind) else "i") + str(kind.bit_width // 8)
        return view_values(array, f"<{dtype}").astype(np.int64).view(np.uint64)
    if arrow.is_map(kind) or arrow.is_list(kind):
        return _of_lists(array)
    words = np.empty(len(array), np.uint64)
    if arrow.is_struct(kind):
        words[:] = hash_columns([(str(i), array.field(i)) for i in range(kind.num_fields)])
        return words
    if not (is_text(kind) or is_binary(kind)):
        array = array.cast(pa.string())
    binary = array.cast(pa.large_string() if is_text(array.type) else pa.large_binary())
    if len(array):
        hash_bytes(*view_binary(binary), words)
    return words


def _of_lists(array: Any) -> NDArray[np.uint64]:
    """Return a number per list: lists count by their elements in order, maps by their entries in any order."""
    words = np.empty(len(array), np.uint64)
    if not len(array):
        return words
    if arrow.is_map(array.type):
        elements = hash_columns([("key", array.keys), ("value", array.items)])
    else:
        elements = hash_columns([("element", array.values)])
    hash_lists(elements, view_offsets(array).astype(np.int64), not arrow.is_map(array.type), words)
    return words
