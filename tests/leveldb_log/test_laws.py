"""LevelDB logs keep the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from sawlog.testing import Laws, Sample, Span

from .fragments import HEADER, offsets, write
from .mutators import MUTATORS

RECORDS = [b"", b"x", b"hello", b"y" * 60, b"", bytes(range(40))]


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/leveldb-log.md"
    mutators = MUTATORS
    not_yet: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        rows = pa.table({"record": pa.array(RECORDS, pa.binary())})
        return [
            Sample(
                "records",
                "leveldb_log",
                write(*RECORDS),
                "000007.log",
                headers=[Span(at, HEADER) for at in offsets(*RECORDS)],
                checked=True,
                rows=rows,
                grows=True,
                written=rows,
            ),
        ]
