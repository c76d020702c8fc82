"""Values as text: nothing lost, nothing that could harm a terminal."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.format.printing import (
    DECODE,
    ENCODE,
    encode_json_lines,
    encode_texts,
    escape,
    escape_unprintable,
    make_text_array,
    unescape,
)
from sawlog.format.printing import encode_values as json_values


@given(st.binary(max_size=200))
def test_escaped_bytes_are_printable_and_come_back(value: bytes) -> None:
    text = escape(value)
    assert text.isprintable()
    assert unescape(text) == value


@pytest.mark.parametrize("name", ENCODE)
@given(value=st.binary(max_size=50))
def test_every_rendering_of_binary_comes_back(name: str, value: bytes) -> None:
    assert DECODE[name](ENCODE[name](value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"plain", "plain"),
        ("caf\u00e9 \u65e5".encode(), "caf\u00e9 \u65e5"),
        (b"a\\b", r"a\\b"),
        (b"\x00\xff\n", r"\x00\xff\x0a"),
        ("\u202e".encode(), r"\xe2\x80\xae"),
        (b"\xed\xb2\x80", r"\xed\xb2\x80"),
    ],
)
def test_control_characters_are_escaped(value: bytes, text: str) -> None:
    assert escape(value) == text


@pytest.mark.parametrize("text", ["\\", "a\\q", "\\x4", "\\xzz"])
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        unescape(text)


@given(st.text())
def test_printable_is_printable(text: str) -> None:
    assert escape_unprintable(text).isprintable()


ZONED = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
NESTED = pa.struct([("a", pa.list_(pa.int8())), ("b", pa.map_(pa.string(), pa.binary()))])
CASES = [
    (pa.array([1, None], pa.uint64()), [1, None]),
    (pa.array([True, None]), [True, None]),
    (pa.nulls(1), [None]),
    (pa.array([0.1, float("nan"), float("inf"), None], pa.float32()), [0.1, "NaN", "Infinity", None]),
    (pa.array([-float("inf"), 1e300]), ["-Infinity", 1e300]),
    (pa.array([decimal.Decimal("1.50"), None]), ["1.50", None]),
    (pa.array([ZONED, None], pa.timestamp("us", "Europe/Berlin")), ["2024-05-06T07:08:09.123456Z", None]),
    (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
    (pa.array([dt.date(2024, 5, 6)]), ["2024-05-06"]),
    (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
    (pa.array([-1500, 60_000], pa.duration("ms")), ["-PT1.5S", "PT60S"]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    (pa.array([[1, 2], None, []], pa.large_list(pa.int8())), [[1, 2], None, []]),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    (pa.array([b"ab", None], pa.binary(2)), ["ab", None]),
    (
        pa.array([{"a": [1], "b": [("k", b"\xff")]}, None, {"a": None, "b": None}], NESTED),
        [{"a": [1], "b": {"k": r"\xff"}}, None, {"a": None, "b": None}],
    ),
    (pa.array([[(1, 2)], None], pa.map_(pa.int8(), pa.int8())), [[[1, 2]], None]),
    (pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8())), [[["k", 1], ["k", 2]]]),
]


@pytest.mark.parametrize(("array", "expected"), CASES, ids=[str(array.type) for array, _ in CASES])
def test_values_of_every_type_become_json_and_text(array: pa.Array, expected: list[object]) -> None:
    assert json_values(array) == expected
    padded = pa.concat_arrays([array, array, array])
    assert json_values(padded.slice(len(array), len(array))) == expected
    json.dumps(json_values(array), allow_nan=False)
    assert len(encode_texts(array)) == len(make_text_array(array, escape)) == len(array)


def test_json_lines_are_json() -> None:
    batch = pa.record_batch({"s": ["\u2028\x9b", None], "b": pa.array([b"\xff", b"{}"])})
    lines = list(encode_json_lines(batch))
    assert all(line.isprintable() for line in lines)
    assert [json.loads(line) for line in lines] == [{"s": "\u2028\x9b", "b": r"\xff"}, {"s": None, "b": "{}"}]


def test_nested_text_is_json() -> None:
    assert encode_texts(pa.array([[1, None]])) == ["[1,null]"]
    assert encode_texts(pa.array([True, False, None])) == ["true", "false", None]
