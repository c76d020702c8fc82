"""Milvus binlogs keep the laws."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from sawlog.milvus_binlog import layout
from sawlog.testing import Laws, Sample, Span

from .mutators import MUTATORS
from .support import SYNTHETIC, write

EVENT_HEADER = 17


def insert_log(name: str) -> Sample:
    """One insert log by itself."""
    data = (SYNTHETIC / name).read_bytes()
    first = len(layout.MAGIC) + struct.unpack_from("<I", data, len(layout.MAGIC) + 9)[0]
    return Sample(
        name,
        "milvus_binlog",
        data,
        name,
        headers=[Span(0, len(layout.MAGIC) + EVENT_HEADER + 60), Span(first, EVENT_HEADER + 16)],
    )


def collection() -> Sample:
    """A collection that sawlog has written."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "x": pa.array([0.5, 1.5, 2.5], pa.float32())})
    with TemporaryDirectory() as place:
        write(Path(place) / "root", table, primary_key="id")
        root = Path(place)
        files = {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}
    segment = "root/insert_log/1/2/100"
    unread = ["root/stats_log", f"{segment}/0", f"{segment}/1"]  # row ids, and the times where there are no deletes
    return Sample("collection", "milvus_binlog", files, root="root", ordered=False, beside=unread, repaired="no")


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/milvus-binlog.md"
    mutators = MUTATORS

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [insert_log("multi_event_insert"), collection()]
