"""NibblePack and histograms against FiloDB's bytes, and the quantiles of its tests."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog import FormatError, SchemaError
from sawlog.filodb import Buckets, Histogram
from sawlog.filodb.histograms import (
    add,
    histogram_add,
    histogram_fraction,
    histogram_merge,
    histogram_quantile,
    merge,
    nibblepack,
)
from sawlog.filodb.histograms.functions import HISTOGRAM, as_struct
from sawlog.filodb.histograms.merge import Scheme
from sawlog.filodb.kernels.powers import compute_powers

from . import golden

NIBBLES = golden.facts("nibblepack")
HISTOGRAMS = golden.facts("binary_histogram")
GEOMETRIC = Buckets.geometric(1.0, 2.0, 8)
CUSTOM = Buckets.custom([0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf])
ROWS = [
    (10, 15, 17, 20, 25, 34, 76, 82),
    (6, 16, 26, 26, 36, 38, 56, 59),
    (11, 16, 26, 27, 33, 42, 46, 55),
    (4, 4, 5, 33, 35, 67, 91, 121),
]
NAN = pytest.approx(math.nan, nan_ok=True)


def buckets(description: dict) -> Buckets:
    kind = description["kind"]
    if kind == "custom":
        return Buckets.custom(golden.numbers(description["les"]))
    if kind == "otel_exp":
        return Buckets.exponential(
            description["scale"], description["start_index_positive"], description["num_positive"]
        )
    return Buckets.geometric(
        description["first"], description["multiplier"], description["num"], minus_one=kind == "geometric_1"
    )


@pytest.mark.parametrize("case", NIBBLES["pack8"], ids=lambda case: case["hex"][:12])
def test_groups_are_packed_as_by_the_original(case: dict) -> None:
    assert nibblepack.pack(case["input"]).hex() == case["hex"]
    assert nibblepack.unpack(bytes.fromhex(case["hex"]), 8) == [value % (1 << 64) for value in case["input"]]


@pytest.mark.parametrize("case", NIBBLES["pack_delta"], ids=lambda case: case["hex"][:12])
def test_deltas_are_packed_as_by_the_original(case: dict) -> None:
    assert nibblepack.unpack_delta(bytes.fromhex(case["hex"]), len(case["input"])) == case["decoded"]
    if case["input"] == case["decoded"]:
        assert nibblepack.pack_delta(case["input"]).hex() == case["hex"]
    else:  # FiloDB would write something that reads back as something else
        with pytest.raises(SchemaError, match="must not decrease"):
            nibblepack.pack_delta(case["input"])


@pytest.mark.parametrize("case", NIBBLES["pack_non_increasing"], ids=lambda case: case["hex"])
def test_counts_as_differences(case: dict) -> None:
    assert nibblepack.pack(case["input"]).hex() == case["hex"]


@pytest.mark.parametrize("case", NIBBLES["pack_doubles_xor"], ids=lambda case: case["hex"][:24])
def test_doubles_are_packed_as_by_the_original(case: dict) -> None:
    values = golden.numbers(case["input"])
    assert nibblepack.pack_doubles(values).hex() == case["hex"]
    assert nibblepack.unpack_doubles(bytes.fromhex(case["hex"]), len(values)) == pytest.approx(values, nan_ok=True)


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=40))
def test_plain_values_come_back(values: list[int]) -> None:
    assert nibblepack.unpack(nibblepack.pack(values), len(values)) == values


@given(st.lists(st.integers(0, (1 << 62) // 50), max_size=40))
def test_deltas_come_back(steps: list[int]) -> None:
    values = [10_000 + sum(steps[: i + 1]) for i in range(len(steps))]
    packed = nibblepack.pack_delta(values)
    assert nibblepack.unpack_delta(packed, len(values)) == values
    longer = nibblepack.unpack_delta(packed, -(-len(values) // 8) * 8 + 8)
    assert longer[: len(values)] == values
    assert set(longer[-8:]) == {0}  # past the end of the data


def bits(value: float) -> bytes:
    return struct.pack("<d", math.nan if math.isnan(value) else value)


@given(st.lists(st.floats(), min_size=1, max_size=40))
def test_doubles_come_back(values: list[float]) -> None:
    numbers = nibblepack.unpack_doubles(nibblepack.pack_doubles(values), len(values))
    assert [struct.pack("<d", f) if f == f else b"" for f in numbers] == [
        struct.pack("<d", v) if not math.isnan(v) else b"" for v in values
    ] or math.isnan(values[0])


def test_groups_that_end_early_are_refused() -> None:
    for data in (b"\xff", b"\xff\x10\x0a", b"\x01\x0f"):
        with pytest.raises(FormatError, match="end inside a group"):
            nibblepack.unpack(data, 8)
    with pytest.raises(FormatError, match="end inside a group"):
        nibblepack.unpack_doubles(b"1234567", 2)
    with pytest.raises(SchemaError, match="at least one"):
        nibblepack.pack_doubles([])


CASES = [*HISTOGRAMS["long_delta"], *HISTOGRAMS["double_xor"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['format_code']}-{case['hex'][:40]}")
def test_blobs_are_encoded_as_by_the_original(case: dict) -> None:
    values = golden.numbers(case["values"])
    xor = case["format_code"] in (0x08, 0x0A, 0x10)
    histogram = Histogram(buckets(case["buckets"]), tuple(values), xor)
    blob = histogram.encode()
    assert (len(blob).to_bytes(2, "little") + blob).hex() == case["hex"]
    decoded_histogram = Histogram.decode(blob)
    assert decoded_histogram.values == tuple(values)
    assert decoded_histogram.xor is xor
    if values:
        assert decoded_histogram.buckets == histogram.buckets
        if "bucket_tops" in case:
            assert list(decoded_histogram.buckets.tops) == pytest.approx(golden.numbers(case["bucket_tops"]), rel=1e-15)


@pytest.mark.parametrize("case", HISTOGRAMS["bucket_definitions"], ids=lambda case: case["hex"])
def test_definitions_of_buckets_are_those_of_the_original(case: dict) -> None:
    definition = buckets(case["buckets"]).definition
    assert (len(definition).to_bytes(2, "little") + definition).hex() == case["hex"]
    assert len(definition) + 2 == case["num_bytes_written"]


def test_tops_of_buckets_follow_their_definition() -> None:
    assert Buckets.geometric(5.0, 3.0, 4).tops == (5.0, 15.0, 45.0, 135.0)
    assert Buckets.geometric(2.0, 2.0, 8, minus_one=True).tops == (1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0)


@pytest.mark.parametrize("base", [2.0, 1.1, 1.5, 0.3, -1.7, 1.0000001, 7.3, 1e150, 1e-150])
def test_powers_are_correctly_rounded(base: float) -> None:
    powers = np.zeros(1200)
    with np.errstate(all="ignore"):
        compute_powers(base, powers)
    exact = Fraction(1)
    for power in powers.tolist():
        try:
            assert power == float(exact)
        except OverflowError:
            assert power == (math.inf if exact > 0 else -math.inf)
        exact *= Fraction(base)
        if exact.denominator.bit_length() > 60_000:
            break


def test_literals_of_filodbs_documentation() -> None:
    for case in golden.facts("external_known")["exp_histograms_in_vector_doc"]:
        histogram = Histogram(
            Buckets.exponential(case["scale"], case["start"], case["num_positive"]), tuple(case["values"])
        )
        blob = histogram.encode()
        assert (len(blob).to_bytes(2, "little") + blob).hex() == case["hex"]


def test_quantiles_are_those_of_the_original() -> None:
    halves = [Histogram(GEOMETRIC, row).quantile(0.5) for row in ROWS]
    assert halves == [37.333333333333336, 10.8, 8.666666666666666, 28.75]
    assert Histogram(CUSTOM, ROWS[0][:7]).quantile(0.95) == 10
    twelve = Histogram(Buckets.exponential(3, -5, 11), tuple(range(1, 13)))
    expected = {
        0.5: 1.0,
        0.75: 1.2968395546510099,
        0.25: 0.7711054127039704,
        0.99: 1.6643974694230492,
        0.01: 0.0,
        0.085: 0.014142135623730961,
    }
    for q, value in expected.items():
        assert twelve.quantile(q) == pytest.approx(value, rel=1e-12)
    exponential = Buckets.exponential(3, -3, 7)
    rows = [Histogram(exponential, (0, *row[1:])) for row in ROWS]
    assert [r.quantile(0.95) for r in rows] == pytest.approx([1.33291366, 1.29871362, 1.37726441, 1.38971752], rel=1e-8)
    assert [r.quantile(0.05) for r in rows] == pytest.approx([0.22984502, 0.15504028, 0.14452907, 0.91998835], rel=1e-7)
    narrowed = [r.quantile(0.95, minimum=0.78, maximum=1.3) for r in rows]
    assert narrowed == pytest.approx([1.29783954, 1.29689217, 1.29903349, 1.29936202], rel=1e-8)
    row = Histogram(GEOMETRIC, ROWS[0])
    assert row.quantile(0.95, minimum=0, maximum=90) == pytest.approx(72.2, rel=1e-3)
    assert row.quantile(0.95, minimum=10, maximum=100) == pytest.approx(75.39, rel=1e-3)


def test_quantiles_at_the_edges_are_those_of_filodb() -> None:
    row = Histogram(GEOMETRIC, ROWS[0])
    assert row.quantile(-0.1) == -math.inf
    assert row.quantile(1.1) == math.inf
    assert row.count == 82
    assert Histogram(GEOMETRIC, (0,) * 8).quantile(0.5) == NAN
    assert Histogram(Buckets.exponential(3, 0, 0), (5,)).quantile(0.5) == NAN
    assert Histogram(Buckets.empty(), ()).quantile(0.5) == NAN
    assert Histogram(Buckets.empty(), ()).count == NAN


def test_text_of_histograms_is_that_of_the_original() -> None:
    three = Histogram(Buckets.custom([1.0, 2.0, math.inf]), (1, 3, 4))
    assert str(three) == "<BinHistogram: buckets[1.0, 2.0, Infinity]: {1.0=1, 2.0=3, Infinity=4}>".replace(
        "=1,", "=1.0,"
    ).replace("=3,", "=3.0,").replace("=4}", "=4.0}")
    assert str(Histogram(Buckets.empty(), ())) == "<BinHistogram: buckets[]: {}>"
    small = Histogram(Buckets.geometric(1e-5, 10.0, 2), (1, 12345678))
    assert "1.0E-5=1.0" in str(small)
    assert "=1.2345678E7" in str(small)


@pytest.mark.parametrize(
    ("make_histogram", "message"),
    [
        (lambda: Histogram(GEOMETRIC, (1, 2)), "2 values for 8 buckets"),
        (lambda: Histogram(GEOMETRIC, (1.5,) * 8), "not whole numbers"),
        (lambda: Histogram(GEOMETRIC, (math.nan,) * 8), "not whole numbers"),
        (lambda: Histogram(GEOMETRIC, (5, 4, 4, 4, 4, 4, 4, 4)), "must not decrease"),
        (lambda: Histogram(Buckets.geometric(2, 2, 1, minus_one=True), (1,), xor=True), "stored as doubles"),
        (lambda: Buckets.exponential(21, 0, 1), "scale 21"),
        (lambda: Buckets.exponential(3, 0, 181), "181 positive buckets"),
        (lambda: Buckets.custom([2.0, 1.0]), "must ascend"),
        (lambda: Buckets.geometric(1, 2, 8193), "8193 buckets"),
    ],
)
def test_what_cannot_be_written(make_histogram, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make_histogram().encode()


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "format code None"),
        (b"monkeying", "format code 109"),
        (b"\x03\xff\xff12", "definition ends at byte 65538 of 5"),
        (b"\x03\x01\x00\x08", "not a definition of geometric"),
        (b"\x09\x10\x00" + struct.pack("<HhiHiH", 2, 99, 0, 1, 0, 0), "not a definition of exponential"),
        (b"\x05\x04\x00\x03\x0012", "end inside a group"),
    ],
)
def test_histograms_that_are_broken_are_refused(blob: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Histogram.decode(blob)


EXPONENTIAL = Buckets.exponential(3, -5, 11)
TWELVE = Histogram(EXPONENTIAL, tuple(range(1, 13)))


@pytest.mark.parametrize(
    ("bounds", "options", "expected"),
    [
        ((0.8, 1.2), {}, 0.3899750004807707),
        ((0.8, 1.2), {"minimum": 0.76, "maximum": 1.21}, 0.42472117149283567),
        ((0.0, 0.0), {}, 0.08333333333),
        ((2.0, 2.1), {}, 0.0),
        ((1.0, 1.09), {}, 0.08288542333480116),
        ((0.0, 2.0), {}, 1.0),
    ],
)
def test_fractions_of_exponential_buckets(bounds: tuple, options: dict, expected: float) -> None:
    assert TWELVE.fraction(*bounds, **options) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("bounds", "options", "expected"),
    [
        ((4.5, 6.6), {}, 0.175),
        ((4.5, 6.6), {"minimum": 4.1, "maximum": 6.8}, 0.19212962962962962),
        ((1.0, 1.09), {}, 0.0075),
        ((11.1, 12.1), {}, 0.0),
        ((0.0, math.inf), {}, 1.0),
    ],
)
def test_fractions_of_custom_buckets(bounds: tuple, options: dict, expected: float) -> None:
    histogram = Histogram(Buckets.custom([*map(float, range(1, 12)), math.inf]), tuple(range(1, 13)))
    assert histogram.fraction(*bounds, **options) == pytest.approx(expected, rel=1e-9)


def test_histograms_are_added_where_buckets_agree() -> None:
    first = Histogram(GEOMETRIC, tuple(map(float, range(1, 9))))
    second = Histogram(GEOMETRIC, (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 18.0))
    assert add(first, second).values == (3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 26.0)
    assert all(map(math.isnan, add(first, Histogram(CUSTOM, tuple(map(float, range(7))))).values))
    holes = Histogram(GEOMETRIC, (1.0, math.nan, 3.0, 2.0, 5.0, 6.0, 7.0, 8.0))
    assert add(first, holes).values == (2.0, 2.0, 6.0, 6.0, 10.0, 12.0, 14.0, 16.0)
    assert merge([]).values == ()
    assert merge([first, Histogram(Buckets.empty(), ()), second]) == add(first, second)


def test_sums_of_exponential_buckets() -> None:
    """The schemes and values of FiloDB's own tests."""
    first = Histogram(EXPONENTIAL, tuple(map(float, range(12))))
    second = Histogram(Buckets.exponential(2, -2, 6), tuple(map(float, range(7))))
    total = add(first, second)
    assert total.buckets.tops[1:] == pytest.approx([2 ** (n / 4) for n in range(-3, 5)])
    assert list(total.values) == sorted(total.values)
    assert total.count == 17.0
    wide = Scheme(6, -50, 21).unite(Scheme(6, 100, 26), 128)
    assert (wide.scale, wide.start, wide.positive) == (5, -26, 90)
    narrow = Scheme(6, -50, 21).unite(Scheme(6, 100, 26), 64)
    assert (narrow.scale, narrow.start, narrow.positive) == (4, -14, 46)
    zeros = Histogram(Buckets.exponential(20, 10, 0), (5.0,))
    assert add(zeros, second).values == tuple(value + 5 for value in second.values)
    assert add(first, first).values == tuple(2 * value for value in first.values)


def test_columns_of_histograms(tmp_path: Path) -> None:
    rows = [Histogram(GEOMETRIC, ROWS[0]), TWELVE, Histogram(CUSTOM, ROWS[1][:7]), None]
    column = pa.array([None if row is None else as_struct(row) for row in rows], HISTOGRAM)
    assert histogram_quantile(column, 0.5).to_pylist() == [*(row.quantile(0.5) for row in rows if row), None]
    low = pa.array([0.0, 0.78, None, None])
    values = histogram_quantile(column, 0.95, low, 90.0).to_pylist()
    assert values[:2] == [
        rows[0].quantile(0.95, minimum=0, maximum=90),
        TWELVE.quantile(0.95, minimum=0.78, maximum=90),
    ]
    fractions = histogram_fraction(column, 0.8, 1.2).to_pylist()
    assert fractions == [*(row.fraction(0.8, 1.2) for row in rows if row), None]
    tail = column.slice(1)
    assert histogram_quantile(tail, 0.5).to_pylist() == histogram_quantile(column, 0.5).to_pylist()[1:]
    twice = histogram_add(column, column)
    assert twice.null_count == 1
    assert histogram_quantile(twice, 0.5).to_pylist() == histogram_quantile(column, 0.5).to_pylist()
    merged = histogram_merge(pa.concat_arrays([column.slice(1, 1), column.slice(3), column.slice(1, 1)]))
    assert merged.as_py()["values"] == [2.0 * value for value in TWELVE.values]
    with pytest.raises(SchemaError, match="negative"):
        histogram_fraction(column, -1.0, 1.0)
    with pytest.raises(SchemaError, match="expected histograms"):
        histogram_quantile(pa.array([1]), 0.5)
    with pytest.raises(SchemaError, match="more values than tops"):
        histogram_quantile(pa.array([{"tops": [1.0], "values": [1.0, 2.0]}]), 0.5)
