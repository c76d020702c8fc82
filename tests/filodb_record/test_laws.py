"""FiloDB containers keep the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sawlog.testing import Laws, Sample, Span

from . import golden
from .mutators import MUTATORS

CONTAINER_HEADER = 16


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/filodb-record.md"
    mutators = MUTATORS
    # To be emptied: what each test says when it fails is what is to be mended.
    not_yet: ClassVar[Mapping[str, str]] = {
        "same_columns": "with some columns, damage in the others is not seen: more rows come out than with all",
    }

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        data = golden.data("mixed_schemas_4")
        return [
            Sample(
                "mixed",
                "filodb_record",
                data * 2,
                "mixed.container",
                options={"schema": "gauge,prom-histogram,prom-counter"},
                headers=[Span(at, CONTAINER_HEADER + 8) for at in (0, len(data))],
                grows=True,
                repaired="rows",
            ),
        ]
