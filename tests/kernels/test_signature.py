"""A kernel takes what it declares, in every mode, and says what is wrong with anything else."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import MODE, PYTHON, kernel
from sawlog.kernels.signature import (
    WRITABLE,
    Array,
    Bool,
    Bytes,
    Float64,
    Int32s,
    Int64,
    OutBytes,
    Record,
    Signature,
    UInt64,
)

STATE = make_record_type("row", "used")
CELL = make_record_type(("offset", np.uint64), "length")


class Texts(NamedTuple):
    data: Bytes
    ends: Int32s


class Rules(NamedTuple):
    inverted: Bool
    factor: Float64
    texts: Texts


@kernel
def work(
    data: Bytes,
    table: Annotated[Any, Array(np.int16, 2)],
    cells: Annotated[Any, Array(CELL, writable=True)],
    state: Annotated[Any, Record(STATE)],
    rules: Rules,
    into: Annotated[Texts, WRITABLE],
    start: UInt64,
    step: Int64,
) -> tuple[UInt64, Int64, Bool, Float64]:
    state.row += len(data)
    cells[0].offset = start
    cells[0].length = step
    into.data[0] = data[start]
    into.ends[0] = table[1, 2]
    return start, step + rules.texts.ends[1], not rules.inverted, rules.factor * 2


def arguments() -> dict[str, Any]:
    read_only = np.frombuffer(b"abcd", np.uint8)
    return {
        "data": read_only,
        "table": np.arange(6, dtype=np.int16).reshape(2, 3),
        "cells": np.zeros(2, CELL),
        "state": np.zeros(1, STATE)[0],
        "rules": Rules(inverted=False, factor=1.25, texts=Texts(read_only, np.array([0, 4], np.int32))),
        "into": Texts(np.zeros(1, np.uint8), np.zeros(1, np.int32)),
        "start": np.uint64(1),
        "step": -7,
    }


def test_what_is_declared_arrives_and_comes_back() -> None:
    values = arguments()
    assert work(*values.values()) == (1, -3, True, 2.5)
    assert [type(value) for value in work(*values.values())] == [int, int, bool, float]
    assert values["state"].row == 8
    assert (int(values["cells"][0].offset), int(values["cells"][0].length)) == (1, -7)
    assert values["into"].data.tolist() == [ord("b")]
    assert values["into"].ends.tolist() == [5]


def test_all_64_bits_of_unsigned_numbers_arrive() -> None:
    @kernel
    def return_value(value: UInt64) -> UInt64:
        return value

    assert return_value(np.uint64((1 << 64) - 1)) == (1 << 64) - 1
    assert return_value((1 << 63) + 1) == (1 << 63) + 1


@pytest.mark.parametrize(
    ("name", "value", "expected", "message"),
    [
        ("data", np.zeros(4, np.int8), "array uint8[*]", "array int8[4]"),
        ("data", b"abcd", "array uint8[*]", "<class 'bytes'>"),
        ("data", np.zeros((2, 2), np.uint8), "array uint8[*]", "array uint8[2, 2]"),
        ("data", np.zeros(8, np.uint8)[::2], "array uint8[*]", "strided array uint8[4]"),
        ("table", np.zeros(6, np.int16), "array int16[*, *]", "array int16[6]"),
        ("table", np.frombuffer(bytes(13), np.uint8)[1:].view(np.int16).reshape(2, 3), "array int16", "unaligned"),
        ("cells", np.zeros(2, STATE), "writable array (offset, length)[*]", "array (row, used)[2]"),
        ("cells", np.frombuffer(bytes(16), CELL), "writable array (offset, length)[*]", "read-only array"),
        ("state", np.zeros(1, CELL)[0], "record (row, used)", "record (offset, length)"),
        ("state", np.zeros(1, STATE), "record (row, used)", "array (row, used)[1]"),
        ("rules", None, "rules.inverted: expected bool", "<class 'NoneType'>"),
        ("rules", Rules(1, 1.0, Texts(np.zeros(0, np.uint8), np.zeros(2, np.int64))), "rules.", "found"),
        (
            "into",
            Texts(np.frombuffer(b"a", np.uint8), np.zeros(1, np.int32)),
            "into.data: expected writable",
            "read-only",
        ),
        ("start", 1.0, "uint64", "<class 'float'>"),
        ("step", "1", "int64", "<class 'str'>"),
    ],
)
def test_anything_else_is_refused_by_name(name: str, value: Any, expected: str, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        work(*{**arguments(), name: value}.values())
    assert str(caught.value).startswith(f"{work.__module__}.work: {name}")
    assert expected in str(caught.value)
    assert message in str(caught.value)


def test_the_number_of_arguments_is_checked() -> None:
    with pytest.raises(TypeError, match="expected 8 arguments, found 1"):
        work(np.zeros(1, np.uint8))


def test_equal_types_of_other_descriptions_fit() -> None:
    values = arguments()
    values["cells"] = np.zeros(2, np.dtype((np.record, [("offset", np.uint64), ("length", np.int64)])))
    values["data"] = np.frombuffer(b"abcd", np.uint8).view(type("Sub", (np.ndarray,), {}))
    assert work(*values.values()) == (1, -3, True, 2.5)
    assert int(values["cells"][0].length) == -7


@pytest.mark.skipif(MODE != PYTHON, reason="plain Python sees it")
def test_nothing_is_written_that_is_not_declared_as_writable() -> None:
    @kernel
    def wrong(data: Bytes) -> None:
        data[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        wrong(np.zeros(1, np.uint8))


def test_parameters_must_be_declared() -> None:
    def skip_data(data: Any) -> None: ...

    with pytest.raises(TypeError, match="data is declared as"):
        Signature(skip_data)

    def back(data: OutBytes) -> Any: ...

    with pytest.raises(TypeError, match="declared to return"):
        Signature(back)
