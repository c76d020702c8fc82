"""The newest of several live rows with the same primary key, across the segments of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sawlog.damage import Findings
from sawlog.milvus_binlog.collection.fragments import BatchFragment
from sawlog.milvus_binlog.types import ROW_ID, TIMESTAMP, Field


def newest(fragments: Sequence[BatchFragment], primary: Field) -> list[BatchFragment]:
    """Fragments that leave out rows with a newer one of the same key: by timestamp, then by row id.

    Reads keys, timestamps and row ids of all of them; damaged batches are left to whoever reads the rest.
    """
    schema = pa.schema([primary.arrow(), ROW_ID.arrow(), TIMESTAMP.arrow()])
    parts = [_read(fragment, schema) for fragment in fragments]
    table = pa.concat_tables(parts) if parts else pa.table({})
    if not table.num_rows:
        return list(fragments)
    keys = table.column(0).combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((table.column(1).to_numpy(), table.column(2).to_numpy(), keys))
    last = np.ones(len(order), bool)
    last[:-1] = keys[order][1:] != keys[order][:-1]
    keep = np.zeros(len(order), np.uint8)
    keep[order[last]] = 1
    chosen = []
    at = 0
    for fragment, part in zip(fragments, parts, strict=True):
        bits = np.packbits(keep[at : at + part.num_rows], bitorder="little")
        chosen.append(replace(fragment, winners=bits.tobytes()))
        at += part.num_rows
    return chosen


def _read(fragment: BatchFragment, schema: pa.Schema) -> pa.Table:
    batches = list(fragment.decode(schema, Findings("skip")))
    return pa.Table.from_batches(batches, schema)
