"""Deephaven logs keep the laws."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.testing import Exemption, Laws, Sample, Span

from .mutators import MUTATORS
from .reference import DELETE, Col, committed, entry, header, row, text
from .support import ALL_COLUMNS, HEADER, make

FLAGS = [3, 1, 0, 2, 3, 3, 1, 2]
TYPES = [*ALL_COLUMNS[:-1], Col("Enum", "Enum", table=("Buy", "Sell", ""))]
TYPED = [
    {"Bool": True, "Byte": -3, "Char": 65, "Short": -9, "Int": 7, "Long": 1 << 40, "Float": 0.5, "Double": -0.25},
    {"Blob": b"\0\1", "Str": "é", "Enum": 1},
    {"Str": "", "Blob": b"", "Enum": 2, "Int": -1},
]
CHARSETS = [Col(f"S{n}", "EnhancedString", name) for n, name in enumerate(("ISO-8859-1", "UTF-16BE", "US-ASCII"))]
TEXTS = [{"S0": "é", "S1": "€", "S2": "a"}, {"S1": "🙂"}]
CONSTANT = [
    Col("K", "EnhancedString", constant=text("NYSE")),
    Col("L", "Long", constant=(5).to_bytes(8, "big")),
    Col("N", "Int"),
]
COMMAND = struct.pack(">iii", 20000, 1, 99) + b"data"
CUT_REASON = "If a log ends before a DELETE_PARTITION, the rows that it would delete are returned"
HEADER_REASON = "A header with a wrong digest is still read, with a warning"


def sizes(data: bytes) -> list[Span]:
    """The header; size and flags of every entry."""
    offset = 12 + int.from_bytes(data[8:12], "big")
    spans = [Span(0, offset)]
    while offset < len(data):
        spans.append(Span(offset, 5))
        offset += 4 + int.from_bytes(data[offset : offset + 4], "big")
    return spans


def typed(cols: list[Col], rows: list[dict[str, Any]]) -> bytes:
    return header(cols, app=2) + b"".join(row(cols, values) for values in rows)


def sample(name: str, data: bytes, **settings: Any) -> Sample:
    return Sample(name, "deephaven_log", data, f"{name}.bin", within=("bad_value",), **{"checked": True, **settings})


STRICT = {"strict": True}
LENIENT = make([1, 2, 3])
HEADER_SPAN = Span(0, len(HEADER) + 1)


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/deephaven-log.md"
    mutators = MUTATORS
    test_removal = None  # every file is a sample of its own
    exemptions: ClassVar[Sequence[Exemption]] = [
        *(
            Exemption(law, HEADER_REASON, ["lenient"], [HEADER_SPAN])
            for law in ("every_header_bit", "bits", "lying_numbers")
        ),
        # Where a change reaches from the header into the rows.
        Exemption("below_checksums", HEADER_REASON, ["lenient"], told="header_digest", fuzzed=True),
        Exemption("splices", HEADER_REASON, ["lenient"], [Span(0, 1 << 20)]),
        Exemption("cuts", CUT_REASON, ["deletes"]),
    ]

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
            sample(
                "sets",
                data,
                headers=sizes(data),
                options=STRICT,
                rows=rows,
                grows=True,
                written=rows,
                body=len(HEADER),
            ),
            sample("entries", make([3, 1, 2, 3]), view="frames", options=STRICT, checked=False, repaired="no"),
            sample("lenient", LENIENT, headers=sizes(LENIENT)),
            sample("types", typed(TYPES, TYPED), options=STRICT, grows=True),
            sample("charsets", typed(CHARSETS, TEXTS), options=STRICT),
            sample("constants", typed(CONSTANT, [{"N": 1}, {"N": 2}, {}]), options=STRICT),
            sample("deletes", make([3, 3, 4, 3, 1, 2]), options=STRICT, checked=False),
            sample("emitted", make([1, 0, 2, 3, 3]), options=STRICT | {"salvage": "incomplete", "deletes": "ignore"}),
            sample("errors", make([3, 1, 2, 3]), options=STRICT | {"incomplete": "error"}),
            sample(
                "commands",
                make([3]) + entry(4, COMMAND) + entry(4, DELETE),
                view="commands",
                checked=False,
                repaired="no",
                options=STRICT,
            ),
        ]
