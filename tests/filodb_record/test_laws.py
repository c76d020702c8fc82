"""FiloDB containers keep the laws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import sawlog
from sawlog.testing import Exemption, Laws, Sample, Span, check
from tests.filodb_record.support import CONTAINER_HEADER, trim_container

from . import golden
from .mutators import MUTATORS

FINDINGS = Path(__file__).parent / "findings"
RECORD_HEAD = 6
GOLDEN = golden.TIMESTAMP
PLAIN = """
[schemas.result]
columns = ["timestamp:ts", "value:double", "s:string", "n:int"]
partitioned = false
"""


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/filodb-record.md"
    mutators = MUTATORS
    test_removal = None  # every file is a sample of its own
    exemptions = (
        Exemption(
            "follow_damaged",
            "A stream of the view `frames` may miss a container next to damage that one read of the finished file"
            " reports: the bytes that show where it ends may arrive in another micro-batch.",
            samples=("containers",),
        ),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        mixed = golden.data("mixed_schemas_4")
        data = b"".join(golden.data(f"gauge_100_small_{i:02}") for i in (0, 1))
        data += golden.data("gauge_100_small_02")[:1200]
        data = data[:4096] + trim_container(golden.data("gauge_100_small_02"), 3)
        keys = trim_container(golden.data("gauge_100_partkeys"), 4)
        plain = golden.data("no_partition_5")
        heads = [Span(2048, CONTAINER_HEADER + RECORD_HEAD)]
        return [
            Sample(
                "mixed",
                "filodb_record",
                mixed * 2,
                "mixed.container",
                options={"table": "gauge,prom-histogram,prom-counter"},
                headers=[Span(len(mixed), CONTAINER_HEADER + 8)],
                grows=True,
                repaired="rows",
            ),
            Sample("whole", "filodb_record", data, "a.container", headers=heads, grows=True, repaired="rows"),
            Sample(
                "raw",
                "filodb_record",
                mixed * 2,
                "mixed.container",
                options={"table": "gauge", "salvage": "unknown_schemas"},
                grows=True,
                repaired="rows",
                effort=0.5,
            ),
            Sample("series", "filodb_record", keys, "a.container", view="partkeys", repaired="no"),
            Sample("containers", "filodb_record", data, "a.container", view="frames", grows=True, repaired="no"),
            Sample(
                "plain",
                "filodb_record",
                plain,
                "a.container",
                options={"schema": PLAIN},
                headers=[Span(16, 4)],
                grows=True,
                body=0,
                written=sawlog.read(golden.path("no_partition_5"), schema=PLAIN),
                write_options={"schema": PLAIN, "container_timestamp": GOLDEN},
            ),
        ]


@pytest.mark.parametrize(("name", "file"), [("containers", "order_in_containers"), ("whole", "order_in_rows")])
def test_files_that_the_fuzzer_found_obey_the_laws(name: str, file: str) -> None:
    """Damage was listed in another order where files were cut."""
    (sample,) = (sample for sample in TestLaws.samples() if sample.name == name)
    outcome = check(sample, (FINDINGS / f"{file}.container").read_bytes())
    assert outcome.report.damaged
