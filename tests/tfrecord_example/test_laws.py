"""The format of examples/tfrecord keeps the laws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa

from sawlog.testing import Exemption, Laws, Mutation, Sample, Span
from sawlog.testing.mutations import bend_bytes, change_file

from .reference import frame, offsets, record

RECORDS = [b"", b"x", b"hello", b"y" * 60, b"", bytes(range(40))]
NESTED = [b"x", record(b"a record in a record"), b"hello"]
HIDDEN = "A record inside the data of another one comes out if the length in front of it is damaged"


def change_record(sample: Sample, dice: Random) -> Mutation:
    """One record changed, and written again with right checksums."""
    records = list(RECORDS if sample.name == "records" else NESTED)
    index = dice.randrange(len(records))
    records[index] = bend_bytes(records[index], dice)
    return change_file(sample, sample.file_name, frame(*records), f"record {index} below its checksums")


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "examples/tfrecord/README.md"
    mutators = (change_record,)
    test_removal = None  # every file is a sample of its own
    exemptions = (
        Exemption("every_header_bit", HIDDEN, ["nested"], [Span(offsets(*NESTED)[1], 12)]),
        Exemption("bits", HIDDEN, ["nested"], [Span(offsets(*NESTED)[1], 12)]),
        Exemption("splices", HIDDEN, ["nested"]),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [sample("records", RECORDS), sample("nested", NESTED)]


def sample(name: str, records: list[bytes]) -> Sample:
    rows = pa.table({"record": pa.array(records, pa.binary())})
    headers = [Span(offset, 12) for offset in offsets(*records)]
    data = frame(*records)
    return Sample(
        name, "tfrecord", data, "a.tfrecord", headers=headers, checked=True, rows=rows, grows=True, written=rows, body=0
    )
