"""NibblePack and histograms against FiloDB's bytes, and the quantiles of its tests."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog import FormatError, SchemaError
from sawlog.filodb_record import Buckets, Histogram
from sawlog.filodb_record.histograms import nibblepack
from sawlog.filodb_record.kernels.powers import powers

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


def buckets(given: dict) -> Buckets:
    kind = given["kind"]
    if kind == "custom":
        return Buckets.custom(golden.numbers(given["les"]))
    if kind == "otel_exp":
        return Buckets.exponential(given["scale"], given["start_index_positive"], given["num_positive"])
    return Buckets.geometric(given["first"], given["multiplier"], given["num"], minus_one=kind == "geometric_1")


@pytest.mark.parametrize("case", NIBBLES["pack8"], ids=lambda case: case["hex"][:12])
def test_groups(case: dict) -> None:
    assert nibblepack.pack(case["input"]).hex() == case["hex"]
    assert nibblepack.unpack(bytes.fromhex(case["hex"]), 8) == [value % (1 << 64) for value in case["input"]]


@pytest.mark.parametrize("case", NIBBLES["pack_delta"], ids=lambda case: case["hex"][:12])
def test_delta(case: dict) -> None:
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
def test_doubles(case: dict) -> None:
    values = golden.numbers(case["input"])
    assert nibblepack.pack_doubles(values).hex() == case["hex"]
    assert nibblepack.unpack_doubles(bytes.fromhex(case["hex"]), len(values)) == pytest.approx(values, nan_ok=True)


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=40))
def test_plain_round_trip(values: list[int]) -> None:
    assert nibblepack.unpack(nibblepack.pack(values), len(values)) == values


@given(st.lists(st.integers(0, (1 << 62) // 50), max_size=40))
def test_delta_round_trip(steps: list[int]) -> None:
    values = [10_000 + sum(steps[: i + 1]) for i in range(len(steps))]
    packed = nibblepack.pack_delta(values)
    assert nibblepack.unpack_delta(packed, len(values)) == values
    longer = nibblepack.unpack_delta(packed, -(-len(values) // 8) * 8 + 8)
    assert longer[: len(values)] == values
    assert set(longer[-8:]) == {0}  # behind the end of the data


def bits(value: float) -> bytes:
    return struct.pack("<d", math.nan if math.isnan(value) else value)


@given(st.lists(st.floats(), min_size=1, max_size=40))
def test_double_round_trip(values: list[float]) -> None:
    found = nibblepack.unpack_doubles(nibblepack.pack_doubles(values), len(values))
    assert [struct.pack("<d", f) if f == f else b"" for f in found] == [
        struct.pack("<d", v) if not math.isnan(v) else b"" for v in values
    ] or math.isnan(values[0])


def test_broken_groups() -> None:
    for data in (b"\xff", b"\xff\x10\x0a", b"\x01\x0f"):
        with pytest.raises(FormatError, match="end inside a group"):
            nibblepack.unpack(data, 8)
    with pytest.raises(FormatError, match="end inside a group"):
        nibblepack.unpack_doubles(b"1234567", 2)
    with pytest.raises(SchemaError, match="at least one"):
        nibblepack.pack_doubles([])


CASES = [*HISTOGRAMS["long_delta"], *HISTOGRAMS["double_xor"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['format_code']}-{case['hex'][:40]}")
def test_blobs(case: dict) -> None:
    values = golden.numbers(case["values"])
    xor = case["format_code"] in (0x08, 0x0A, 0x10)
    histogram = Histogram(buckets(case["buckets"]), tuple(values), xor)
    blob = histogram.encode()
    assert (len(blob).to_bytes(2, "little") + blob).hex() == case["hex"]
    found = Histogram.decode(blob)
    assert found.values == tuple(values)
    assert found.xor is xor
    if values:
        assert found.buckets == histogram.buckets
        if "bucket_tops" in case:
            assert list(found.buckets.tops) == pytest.approx(golden.numbers(case["bucket_tops"]), rel=1e-15)


@pytest.mark.parametrize("case", HISTOGRAMS["bucket_definitions"], ids=lambda case: case["hex"])
def test_definitions(case: dict) -> None:
    definition = buckets(case["buckets"]).definition
    assert (len(definition).to_bytes(2, "little") + definition).hex() == case["hex"]
    assert len(definition) + 2 == case["num_bytes_written"]


def test_tops() -> None:
    assert Buckets.geometric(5.0, 3.0, 4).tops == (5.0, 15.0, 45.0, 135.0)
    assert Buckets.geometric(2.0, 2.0, 8, minus_one=True).tops == (1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0)


@pytest.mark.parametrize("base", [2.0, 1.1, 1.5, 0.3, -1.7, 1.0000001, 7.3, 1e150, 1e-150])
def test_powers_are_correctly_rounded(base: float) -> None:
    found = np.zeros(1200)
    with np.errstate(all="ignore"):
        powers(base, found)
    exact = Fraction(1)
    for power in found.tolist():
        try:
            assert power == float(exact)
        except OverflowError:
            assert power == (math.inf if exact > 0 else -math.inf)
        exact *= Fraction(base)
        if exact.denominator.bit_length() > 60_000:
            break


def test_literals_of_filodbs_documentation() -> None:
    for case in golden.facts("external_known")["exp_histograms_in_vector_doc"]:
        made = Histogram(Buckets.exponential(case["scale"], case["start"], case["num_positive"]), tuple(case["values"]))
        blob = made.encode()
        assert (len(blob).to_bytes(2, "little") + blob).hex() == case["hex"]


def test_quantiles() -> None:
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


def test_quantiles_at_the_edges() -> None:
    row = Histogram(GEOMETRIC, ROWS[0])
    assert row.quantile(-0.1) == -math.inf
    assert row.quantile(1.1) == math.inf
    assert row.count == 82
    assert Histogram(GEOMETRIC, (0,) * 8).quantile(0.5) == NAN
    assert Histogram(Buckets.exponential(3, 0, 0), (5,)).quantile(0.5) == NAN
    assert Histogram(Buckets.empty(), ()).quantile(0.5) == NAN
    assert Histogram(Buckets.empty(), ()).count == NAN


def test_text() -> None:
    three = Histogram(Buckets.custom([1.0, 2.0, math.inf]), (1, 3, 4))
    assert str(three) == "<BinHistogram: buckets[1.0, 2.0, Infinity]: {1.0=1, 2.0=3, Infinity=4}>".replace(
        "=1,", "=1.0,"
    ).replace("=3,", "=3.0,").replace("=4}", "=4.0}")
    assert str(Histogram(Buckets.empty(), ())) == "<BinHistogram: buckets[]: {}>"
    small = Histogram(Buckets.geometric(1e-5, 10.0, 2), (1, 12345678))
    assert "1.0E-5=1.0" in str(small)
    assert "=1.2345678E7" in str(small)


@pytest.mark.parametrize(
    ("made", "message"),
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
def test_what_cannot_be_written(made, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        made().encode()


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
def test_bad_blobs(blob: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Histogram.decode(blob)
