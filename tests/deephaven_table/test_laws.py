"""Column files keep the laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

import sawlog
from sawlog.testing import Exemption, Laws, Sample, Span

from .mutators import MUTATORS
from .reference import Shape, grouping, put_fixed, put_rows, put_symbols, put_text, put_variable

HEADER = 64
TYPES = {"n": "int", "t": "String(None)", "s": "String"}
CODECS = {
    "d": "BigDecimal(10,2)",
    "v": "BigDecimal",
    "day": "LocalDate",
    "at": "LocalTime(3)",
    "z": "ZonedDateTime",
    "m": "StringDoubleMap",
    "b": "ByteArray(2)",
    "a": "int[]",
    "set": "StringSet",
}
ZONED = bytes.fromhex("17b863fdbadca005 00000010") + b"America/New_York"
INTS = bytes.fromhex("aced0005757200025b494dba602676eab2a50200007870 00000002 00000001 80000000")
PRICES = bytes.fromhex("00000002 00000001 61 3ff0000000000000 00000001 62 ffefffffffffffff")


def collect_files(put: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that a function puts into a directory."""
    with TemporaryDirectory() as place:
        root = Path(place)
        put(root)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def plain(directory: Path, shape: Shape) -> None:
    """A small table of numbers, text and symbols."""
    put_fixed(directory, "n", "int", [1, None, 3, 4, 5], shape)
    put_text(directory, "t", ["a", "bc", None, "", "def"], shape)
    put_symbols(directory, "s", ["x", "y", "x", None, "z"], shape)
    put_rows(directory, 5)


def splayed(root: Path) -> None:
    plain(root / "T", Shape())


def headerless(root: Path) -> None:
    plain(root / "T", Shape(version=2))


def historical(root: Path, *, earlier: bool = False) -> None:
    """Two internal partitions of two dates, the symbols of one of them grouped, and a column that came later.

    An earlier state has fewer rows in the first of them, and more in the second.
    """
    places = (("0", "2024-05-06"), ("1", "2024-05-05"))
    first, second = (root / "Ns/Partitions" / internal / date / "T" for internal, date in places)
    if earlier:
        put_symbols(first, "s", ["a", "c"], Shape(metadata=grouping([("a", 0, 1), ("c", 1, 2)]), start=256))
        put_fixed(first, "n", "int", [1, 2], Shape())
        put_rows(first, 2)
        put_symbols(second, "s", ["c", None, "b"], Shape(little=False))
        put_rows(second, 3)
        return
    put_symbols(first, "s", ["a", "a", "b"], Shape(metadata=grouping([("a", 0, 2), ("b", 2, 3)]), start=256))
    put_fixed(first, "n", "int", [1, 2, 3], Shape())
    put_rows(first, 3)
    put_symbols(second, "s", ["b", None], Shape(little=False))
    put_rows(second, 2)


def column(root: Path) -> None:
    """One column, and nothing that says how long it is."""
    put_fixed(root / "T", "n", "long", [1, None, 3], Shape())


def schemed(root: Path, values: Sequence[int | None] = (1, None, 3)) -> None:
    """A table that sawlog has written, with a `table.schema`: numbers, text, symbols."""
    table = pa.table(
        {
            "n": pa.array(values, pa.int32()),
            "t": [f"text {value}" for value in values],
            "s": pa.array([f"{value}" for value in values]).dictionary_encode(),
        }
    )
    sawlog.write(table, root / "T", format="deephaven_table")


def intraday(root: Path, values: Sequence[int | None] = (1, None, 3)) -> None:
    """A table as importers write it: two internal partitions of different dates."""
    table = root / "Intraday/Ns/Trades"
    put_fixed(table / "vm-1/2024-05-06/Trades", "n", "int", list(values), Shape())
    put_rows(table / "vm-1/2024-05-06/Trades", len(values))
    put_fixed(table / "vm-2/2024-05-07/Trades", "n", "int", [7], Shape(little=False))
    put_rows(table / "vm-2/2024-05-07/Trades", 1)


def codecs(root: Path) -> None:
    """Objects of codecs of both kinds, sets and arrays, by the worked examples of the format, and nulls."""
    directory, shape = root / "T", Shape(metadata=b"")
    for name, values in {
        "d": ["010000000096", "00ffffffff69", "00ffffffffff"],
        "day": ["7735a36221", "7735a3ce5d", "ff00000000"],
        "at": ["0322e315", "0322e315", "80000000"],
        "b": ["000102", "000304", "ff0000"],
    }.items():
        directory.mkdir(exist_ok=True)
        data = b"".join(map(bytes.fromhex, values))
        (directory / f"{name}.dat").write_bytes(Shape().header() + data)
    put_variable(directory, "v", [bytes.fromhex("000000010f"), b"", bytes.fromhex("fffffffe0c")], Shape())
    put_variable(directory, "z", [ZONED, b"", ZONED], Shape())
    put_variable(directory, "m", [PRICES, b"", bytes(4)], Shape())
    put_variable(directory, "a", [INTS, b"", INTS], Shape())
    put_symbols(directory, "set", ["p", "q", "p"], Shape())
    put_fixed(directory, "set", "StringSet", [3, None, 1], shape)
    put_rows(directory, 3)


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/deephaven-table.md"
    mutators = MUTATORS
    exemptions = (
        Exemption(
            "removal",
            "A file that was cut within its header looks like one of column version 2, if it is the only one of its"
            " location.",
            samples=("intraday",),
            told=r"^the first \d+ bytes of .*\.dat",
        ),
        Exemption(
            "removal",
            "Without it and without a `table.schema`, nothing says that there was a `table.size`",
            samples=("columns",),
            told=r"^without .*table\.size",
        ),
        Exemption(
            "removal",
            "A file of another location, or of another state, with as many rows is read as if it belonged there.",
            samples=("intraday", "columns"),
            told=r"^that of earlier state \d instead of .*\.(dat|sym): ",
        ),
        Exemption(
            "removal",
            "Where nothing says how many rows there are, a file that was cut has fewer of them, and an empty one none",
            samples=("column",),
            told=r"^(nothing|the first \d+ bytes) of T/n\.dat: \d of 3 rows are missing",
        ),
        Exemption(
            "removal",
            "A `table.schema` that is gone says nothing of its types either",
            samples=("schemed",),
            told=r"^without T/table\.schema: ",
        ),
    )
    test_follow = test_follow_damaged = None  # locations appear whole
    test_repair = None  # whole files are what can be lost

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        advisory = ["bad_metadata"]
        samples = [
            Sample(
                "splayed",
                "deephaven_table",
                collect_files(splayed),
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
                advisory=advisory,
                repaired="no",
                rows=pa.table(
                    {
                        "n": pa.array([1, None, 3, 4, 5], pa.int32()),
                        "t": ["a", "bc", None, "", "def"],
                        "s": ["x", "y", "x", None, "z"],
                    }
                ),
            ),
            Sample(
                "headerless",
                "deephaven_table",
                collect_files(headerless),
                root="T",
                options={"types": TYPES},
                headers=[Span(0, 4, "T/table.size")],
                ordered=False,
                advisory=advisory,
                repaired="no",
                effort=0.5,
            ),
            Sample(
                "historical",
                "deephaven_table",
                collect_files(historical),
                options={"types": {"n": "int"}},
                ordered=False,
                advisory=advisory,
                repaired="no",
                filters=[[("s", "=", "b")], [("s", "in", ["a", "b"])], [("Date", "=", "2024-05-06"), ("n", ">", 1)]],
                effort=0.5,
                earlier=[collect_files(partial(historical, earlier=True))],
            ),
            Sample(
                "intraday",
                "deephaven_table",
                collect_files(intraday),
                options={"types": {"n": "int"}},
                ordered=False,
                advisory=advisory,
                repaired="no",
                filters=[[("Date", "=", "2024-05-07")], [("Date", "=", "2024-05-06"), ("n", ">", 1)]],
                earlier=[
                    collect_files(partial(intraday, values=[1, 2])),
                    collect_files(partial(intraday, values=[4, 5, 6])),
                ],
            ),
            Sample(
                "schemed",
                "deephaven_table",
                collect_files(schemed),
                root="T",
                ordered=False,
                advisory=advisory,
                repaired="no",
                effort=0.5,
                earlier=[
                    collect_files(partial(schemed, values=[7, 8])),
                    collect_files(partial(schemed, values=[7, 8, 9, None])),
                ],
            ),
            Sample(
                "column",
                "deephaven_table",
                collect_files(column),
                root="T",
                options={"types": {"n": "long"}},
                ordered=False,
                advisory=advisory,
                repaired="no",
                body=Span(HEADER, 0, "T/n.dat"),
                written=pa.table({"n": pa.array([1, None, -3], pa.int64())}),
            ),
            Sample(
                "codecs",
                "deephaven_table",
                collect_files(codecs),
                root="T",
                options={"types": CODECS},
                ordered=False,
                advisory=advisory,
                repaired="no",
            ),
        ]
        # They say of columns what their headers say; `verify` checks all of the table in these views, too.
        described = replace(
            samples[2], name="columns", view="columns", advisory=(), filters=(), beside=["Ns"], folded=True, effort=0.3
        )
        return [*samples, described, replace(described, name="groups", view="groups")]
