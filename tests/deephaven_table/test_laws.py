"""Column files keep the laws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sawlog.testing import Laws, Sample, Span

from .mutators import MUTATORS
from .reference import Shape, put_fixed, put_rows, put_symbols, put_text

HEADER = 64
TYPES = {"n": "int", "t": "String(None)", "s": "String"}


def splayed() -> dict[str, bytes]:
    """The files of a small table."""
    with TemporaryDirectory() as place:
        directory = Path(place)
        put_fixed(directory, "n", "int", [1, None, 3, 4, 5], Shape())
        put_text(directory, "t", ["a", "bc", None, "", "def"], Shape())
        put_symbols(directory, "s", ["x", "y", "x", None, "z"], Shape())
        put_rows(directory, 5)
        return {f"T/{one.name}": one.read_bytes() for one in sorted(directory.iterdir())}


class TestLaws(Laws):
    mutators = MUTATORS

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [
            Sample(
                "splayed",
                "deephaven_table",
                splayed(),
                root="T",
                options={"types": TYPES},
                headers=[
                    Span(0, 20, "T/n.dat"),
                    Span(0, 8, "T/t.dat"),
                    Span(HEADER, 40, "T/t.dat"),
                    Span(HEADER, 24, "T/s.sym"),
                    Span(0, 4, "T/table.size"),
                ],
                ordered=False,
                advisory=["bad_metadata"],
                repaired="no",
            ),
        ]
