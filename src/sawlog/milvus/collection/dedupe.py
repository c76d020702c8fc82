"""The newest of several live rows with the same primary key, across the segments of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import combine_column, view_values
from sawlog.format.damage import Findings
from sawlog.milvus.collection.fragments import BatchFragment
from sawlog.milvus.types import ROW_ID, TIMESTAMP, Field

if TYPE_CHECKING:
    from numpy.typing import NDArray


def keep_newest(fragments: Sequence[BatchFragment], primary: Field) -> list[BatchFragment]:
    """Return fragments that leave out rows with a newer one of the same key: by timestamp, then by row id.

    Reads keys, timestamps and row ids of all of them. Rows of which one of these is lost neither
    replace others nor are replaced.
    """
    schema = pa.schema([primary.to_arrow(), ROW_ID.to_arrow(), TIMESTAMP.to_arrow()])
    parts, masks = zip(*(_read(fragment, schema) for fragment in fragments), strict=True) if fragments else ((), ())
    table = pa.concat_tables(parts) if parts else pa.table({})
    if not table.num_rows:
        return list(fragments)
    values, ids, times = (combine_column(column) for column in table.columns)
    keys = view_values(values.dictionary_encode().indices, np.int32)
    order = np.lexsort((view_values(ids, np.int64), view_values(times, np.int64), keys))
    last = np.ones(len(order), bool)
    last[:-1] = keys[order][1:] != keys[order][:-1]
    keep = np.zeros(len(order), np.uint8)
    keep[order[last]] = 1
    selections = []
    row = 0
    for fragment, part, rows in zip(fragments, parts, masks, strict=True):
        replaced = np.zeros(len(rows), np.uint8)
        replaced[rows == 1] = 1 - keep[row : row + part.num_rows]
        selections.append(replace(fragment, replaced=np.packbits(replaced, bitorder="little").tobytes()))
        row += part.num_rows
    return selections


def _read(fragment: BatchFragment, schema: pa.Schema) -> tuple[pa.Table, NDArray[np.uint8]]:
    masks: list[NDArray[np.uint8]] = []
    batches = list(fragment.decode_traced(schema, Findings("skip"), masks))
    return pa.Table.from_batches(batches, schema), np.concatenate([np.empty(0, np.uint8), *masks])
