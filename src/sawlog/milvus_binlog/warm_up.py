"""Compiling the kernels of binlogs ahead of time."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

_KEYS: tuple[list[Any], ...] = ([1, 2, 3], ["a", "b", "c"])
_TEXT = "text " * 1000


def warm_up() -> None:
    """Write tiny collections with both types of keys and every storage of arrays, delete of them, and read them."""
    from sawlog.api import read, write
    from sawlog.milvus_binlog.collection.dataset import SegmentsWarning

    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", SegmentsWarning)
        for number, keys in enumerate(_KEYS):
            root = Path(place) / str(number)
            table = pa.table(
                {
                    "pk": keys,
                    "text": [_TEXT] * 3,
                    "numbers": [[1], [], [2]],
                    "floats": pa.array([[1], [], [2]], pa.list_(pa.float32())),
                    "doubles": [[1.0], [], [2.0]],
                    "texts": [["a"], [], ["b"]],
                    "vector": pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)),
                }
            )
            write(table, root, format="milvus_binlog", timestamp=1 << 60)
            (segment,) = read(root, format="milvus_binlog", view="segments")["segment"].to_pylist()
            deletes = {"pk": keys[:1], "timestamp": [(1 << 60) + 1], "partition": [2], "segment": [segment]}
            write(pa.table(deletes), root, format="milvus_binlog", content="deletes")
            read(root, format="milvus_binlog")
