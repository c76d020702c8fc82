"""Deephaven logs keep the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from sawlog.testing import Laws, Sample, Span

from .mutators import MUTATORS
from .reference import committed
from .test_sets import HEADER, make

FLAGS = [3, 1, 0, 2, 3, 3, 1, 2]


def sizes(data: bytes) -> list[Span]:
    """Size and flags of every entry."""
    found, at = [], len(HEADER)
    while at < len(data):
        found.append(Span(at, 5))
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return found


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/deephaven-log.md"
    mutators = MUTATORS
    # To be emptied: what each test says when it fails is what is to be mended.
    not_yet: ClassVar[Mapping[str, str]] = {
        "every_header_bit": "`fail` passes over a header whose digest is wrong; a type changed there loses all rows",
        "bits": "`fail` passes over the header's digest, and names another end of a broken set than `skip`",
        "lying_numbers": "`count_rows` and `verify` count rows that `skip` does not deliver",
        "splices": "`count_rows` and `verify` count rows that `skip` does not deliver",
    }

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        data = make(FLAGS)
        rows = pa.table(
            {
                "N": pa.array(committed(FLAGS), pa.int32()),
                "S": pa.array(["x" * (n % 7) if n % 3 else None for n in committed(FLAGS)], pa.string()),
            }
        )
        return [
            Sample(
                "sets",
                "deephaven_log",
                data,
                "sets.bin",
                headers=[Span(0, len(HEADER)), *sizes(data)],
                checked=True,
                rows=rows,
                grows=True,
                written=rows,
            ),
        ]
