"""Numbers declared once."""

from __future__ import annotations

from struct import Struct

import numpy as np
import pyarrow as pa
import pytest

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import kernel
from sawlog.kernels.layout import Number, Scalar, locate_numbers, make_load, make_store
from sawlog.kernels.signature import OutBytes, UInt64


@pytest.mark.parametrize(
    "number", [Number(3, 1), Number(1, 2), Number(2, 4), Number(5, 8, big=True), Number(0, 2, big=True)]
)
def test_numbers_are_the_same_in_kernels_and_in_python(number: Number) -> None:
    data = np.zeros(16, np.uint8)
    value = 0x0102030405060708 & ((1 << 8 * number.size) - 1)
    load, store = make_load(number), make_store(number)

    @kernel
    def put(data: OutBytes, pos: UInt64, value: UInt64) -> UInt64:
        store(data, pos, value)
        return load(data, pos)

    assert put(data, np.uint64(1), np.uint64(value)) == value
    assert number.of(data.tobytes(), 1) == value
    assert data.tobytes()[1 + number.offset : 1 + number.end] == number.encode(value)
    with pytest.raises(OverflowError):
        number.encode(1 << 8 * number.size)


def test_names_that_records_have_attributes_by_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        make_record_type("position", "shape")


def test_the_numbers_of_a_struct_are_where_it_packs_them() -> None:
    packed = Struct(">qb3sI")
    offsets = locate_numbers(packed, "when", "kind", "tag", "length")
    data = packed.pack(1, 2, b"\0\0\3", 4)
    assert [number.of(data) for number in offsets.values()] == [1, 2, 3, 4]
    assert list(offsets.values())[-1].end == packed.size


@pytest.mark.parametrize(
    ("scalar", "value", "dtype"),
    [
        (Scalar("<q", pa.int64()), -3, "<i8"),
        (Scalar(">d", pa.float64(), (0xFFEF_FFFF_FFFF_FFFF,)), 0.25, ">f8"),
        (Scalar(">H", pa.uint16(), (0xFFFE, 0xFFFF)), 77, ">u2"),
    ],
)
def test_values_are_stored_as_numpy_stores_them(scalar: Scalar, value: float, dtype: str) -> None:
    stored = np.array([value], dtype).tobytes()
    assert scalar.encode(value) == stored
    assert scalar.of(b"." + stored, 1) == value
    assert scalar.width == len(stored)
    assert np.dtype(scalar.bits).itemsize == len(stored)
    assert scalar.render(stored) == str(value)
    assert scalar.render(stored[1:]) == ""
    for null in scalar.nulls:
        pattern = null.to_bytes(scalar.width, "big")
        assert scalar.is_null(pattern)
        assert scalar.render(pattern) == "null"
        assert not scalar.is_null(stored)
        assert null | scalar.null_mask == int.from_bytes(scalar.encode(None), "big") | scalar.null_mask
