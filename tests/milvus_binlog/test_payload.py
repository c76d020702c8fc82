"""The payload interface: every column type of the first binlogs, and the later ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.errors import FormatError, SchemaError
from sawlog.milvus import PayloadReader, PayloadWriter

SCALARS: list[tuple[str, str, list[Any]]] = [
    ("Bool", "add_bool", [True, False, True]),
    ("Int8", "add_int8", [-128, 0, 127]),
    ("Int16", "add_int16", [-32768, 0, 32767]),
    ("Int32", "add_int32", [-(1 << 31), 0, (1 << 31) - 1]),
    ("Int64", "add_int64", [-(1 << 63), 0, (1 << 63) - 1]),
    ("Float", "add_float", [1.5, -0.25, float("inf")]),
    ("Double", "add_double", [0.1, -1e300, 0.0]),
]


@pytest.mark.parametrize(("kind", "method", "values"), SCALARS)
def test_scalars_are_read_as_they_were_added(kind: str, method: str, values: list[Any]) -> None:
    writer = PayloadWriter(kind)
    getattr(writer, method)(values)
    getattr(writer, method)(np.array(values))
    writer.finish()
    assert len(writer) == 6
    reader = PayloadReader(kind, writer.buffer)
    assert len(reader) == 6
    assert reader.numpy().tolist() == values * 2
    assert reader.array.to_pylist() == values * 2
    if kind != "Bool":
        assert not reader.numpy().flags.writeable


def test_strings_are_read_as_they_were_added() -> None:
    writer = PayloadWriter("String")
    for text in ("1234", "", "ключ", "a\0b"):
        writer.add_string(text)
    writer.finish()
    reader = PayloadReader("String", writer.buffer)
    assert [reader.string(i) for i in range(len(reader))] == ["1234", "", "ключ", "a\0b"]
    with pytest.raises(SchemaError, match="no fixed width"):
        reader.numpy()


@pytest.mark.parametrize(
    ("kind", "method", "dtype"),
    [
        ("FloatVector", "add_float_vector", "f4"),
        ("Float16Vector", "add_float16_vector", "f2"),
        ("BFloat16Vector", "add_bfloat16_vector", "f4"),
        ("Int8Vector", "add_int8_vector", "i1"),
    ],
)
def test_dense_vectors_are_read_as_they_were_added(kind: str, method: str, dtype: str) -> None:
    values = np.arange(24, dtype=dtype).reshape(3, 8)
    writer = PayloadWriter(kind)
    getattr(writer, method)(values[:1], 8)
    getattr(writer, method)(values[1:].reshape(-1), 8)
    writer.finish()
    reader = PayloadReader(kind, writer.buffer)
    assert (reader.dim, reader.numpy().tolist()) == (8, values.tolist())
    with pytest.raises(SchemaError, match="finished"):
        getattr(writer, method)(values, 8)


def test_binary_vectors_are_read_as_they_were_added() -> None:
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    writer = PayloadWriter("BinaryVector")
    writer.add_binary_vector(values, 32)
    writer.finish()
    reader = PayloadReader(100, writer.buffer)
    assert (reader.dim, reader.numpy().tolist()) == (32, values.tolist())
    with pytest.raises(SchemaError, match="12 dimensions"):
        PayloadWriter("BinaryVector").add_binary_vector(values, 12)


def test_sparse_vectors_are_read_as_they_were_added() -> None:
    writer = PayloadWriter("SparseFloatVector")
    writer.add_sparse_float_vector([{10: 1.25, 3: 0.5}, {}, {4_000_000_000: -2.0}])
    writer.finish()
    array = PayloadReader("SparseFloatVector", writer.buffer).array
    assert array.to_pylist() == [[(3, 0.5), (10, 1.25)], [], [(4_000_000_000, -2.0)]]


ELEMENTS = {
    "Bool": st.booleans(),
    "Int8": st.integers(-128, 127),
    "Int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "Int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "Int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "Float": st.floats(width=32, allow_nan=False),
    "Double": st.floats(allow_nan=False),
    "VarChar": st.text(st.characters(codec="utf-8"), max_size=40),
}


@pytest.mark.parametrize("element", ELEMENTS)
@given(data=st.data())
def test_cells_of_arrays_are_read_as_they_were_added(element: str, data: st.DataObject) -> None:
    cells = data.draw(st.lists(st.lists(ELEMENTS[element], max_size=12), max_size=12))
    writer = PayloadWriter("Array", element=element)
    writer.add(cells)
    writer.finish()
    assert PayloadReader("Array", writer.buffer, element=element).array.to_pylist() == cells


def test_array_cells_as_protobuf_has_them() -> None:
    """An empty array keeps its type tag; negative numbers take ten bytes."""
    writer = PayloadWriter("Array", element="Int8")
    writer.add([[], [1, -1]])
    writer.finish()
    cells = pq.read_table(pa.BufferReader(writer.buffer)).column(0).to_pylist()
    assert cells == [b"\x12\x00", b"\x12\x0d\x0a\x0b\x01" + b"\xff" * 9 + b"\x01"]


def test_unpacked_elements_are_understood() -> None:
    cells = pa.array([b"\x1a\x04\x08\x05\x08\x07", b"", b"\x1a\x00"], pa.binary())
    data = pa.BufferOutputStream()
    pq.write_table(pa.table({"val": cells}), data)
    reader = PayloadReader("Array", data.getvalue().to_pybytes(), element="Int64")
    assert reader.array.to_pylist() == [[5, 7], [], []]


def test_nulls_are_read_as_they_were_added() -> None:
    writer = PayloadWriter("VarChar", nullable=True)
    writer.add(["a", None, ""])
    writer.finish()
    assert PayloadReader("VarChar", writer.buffer).array.to_pylist() == ["a", None, ""]
    vectors = PayloadWriter("FloatVector", nullable=True, dim=2)
    vectors.add([[1.0, 2.0], None])
    vectors.finish()
    reader = PayloadReader("FloatVector", vectors.buffer)
    assert reader.array.to_pylist() == [[1.0, 2.0], None]
    with pytest.raises(SchemaError, match="no nulls"):
        reader.numpy()
    with pytest.raises(SchemaError, match="row 1: null"):
        PayloadWriter("Int8").add_int8([1, None])


def test_parquet_as_milvus_wants_it() -> None:
    """Section 3.2: one column `val`, required, data pages of version 1, zstd, one row group."""
    writer = PayloadWriter("Int16")
    writer.add_int16(range(1000))
    writer.finish()
    metadata = pq.ParquetFile(pa.BufferReader(writer.buffer)).metadata
    column = metadata.schema.column(0)
    assert (metadata.num_columns, metadata.num_row_groups) == (1, 1)
    assert (column.name, column.max_definition_level, column.physical_type) == ("val", 0, "INT32")
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert b"ARROW:schema" not in (metadata.metadata or {})


@pytest.mark.parametrize("kind", ["Int32", "FloatVector", "BinaryVector"])
def test_wrong_type_is_refused(kind: str) -> None:
    writer = PayloadWriter("Int64")
    with pytest.raises(SchemaError, match="cannot take"):
        {"Int32": lambda: writer.add_int32([1]), "FloatVector": lambda: writer.add_float_vector([1.0], 1)}.get(
            kind, lambda: writer.add_binary_vector([1], 8)
        )()


def test_errors_are_exceptions() -> None:
    with pytest.raises(SchemaError, match="finish"):
        _ = PayloadWriter("Int8").buffer
    with pytest.raises(SchemaError, match="data type"):
        PayloadWriter("Quaternion")
    with pytest.raises(SchemaError, match="dimensions"):
        PayloadWriter("FloatVector").add(pa.array([[1.0]], pa.list_(pa.float32())))
    with pytest.raises(FormatError, match="Parquet"):
        PayloadReader("Int8", b"PAR1 this is none PAR1")
    with pytest.raises(FormatError, match="too few"):
        PayloadReader("Int8", b"")
    writer = PayloadWriter("VarChar")
    writer.add_string("x")
    writer.finish()
    with pytest.raises(SchemaError):
        PayloadReader("FloatVector", writer.buffer)
    with pytest.raises(SchemaError, match="bfloat16"):
        PayloadWriter("BFloat16Vector").add_bfloat16_vector([0.1, 1.0], 2)
