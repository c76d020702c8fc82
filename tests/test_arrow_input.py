"""Arrow arrays from outside: whatever they claim, they are written as they are, or refused with column and row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.arrow import validate_batches

FAR = 2_000_000_000
"""Past the end of any buffer here."""


def with_offsets(kind: pa.DataType, offsets: list[int], data: bytes = b"abcdef") -> pa.Array:
    width = np.int64 if kind in (pa.large_string(), pa.large_binary()) else np.int32
    buffers = [None, pa.py_buffer(np.array(offsets, width).tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def list_of(offsets: list[int]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32).tobytes())]
    return pa.Array.from_buffers(pa.list_(pa.int64()), len(offsets) - 1, buffers, children=[pa.array([1, 2, 3, 4])])


def dictionary_of(indices: list[int]) -> pa.Array:
    places = pa.Array.from_buffers(
        pa.int32(), len(indices), [None, pa.py_buffer(np.array(indices, np.int32).tobytes())]
    )
    return pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]), safe=False)


INVALID: dict[str, tuple[dict[str, pa.Array], str, int]] = {
    "string offset past the data": ({"Sym": with_offsets(pa.string(), [0, 3, FAR, 4])}, "Sym", 1),
    "string offset below 0": ({"Sym": with_offsets(pa.string(), [0, -500_000_000, 3, 4])}, "Sym", 0),
    "string offsets that fall": ({"Sym": with_offsets(pa.string(), [0, 4, 2, 6])}, "Sym", 1),
    "binary offset past the data": ({"record": with_offsets(pa.binary(), [0, 3, FAR, 4])}, "record", 1),
    "large binary": ({"record": with_offsets(pa.large_binary(), [0, 3, 1 << 50, 4])}, "record", 1),
    "second column": (
        {"key": with_offsets(pa.binary(), [0, 1, 2, 3]), "value": with_offsets(pa.binary(), [0, 3, FAR, 4])},
        "value",
        1,
    ),
    "list offset past the values": ({"v": list_of([0, 2, FAR, 4])}, "v", 1),
    "dictionary index": ({"Sym": dictionary_of([0, 900_000_000, 1])}, "Sym", 1),
    "negative dictionary index": ({"Sym": dictionary_of([0, 1, -2])}, "Sym", 2),
    "text that is not UTF-8": ({"Sym": with_offsets(pa.string(), [0, 2, 4, 6], b"abcd\xff\xfe")}, "Sym", 2),
}
TARGETS = ["leveldb_log", "leveldb_table", "deephaven_log", "deephaven_table", "filodb_record", "milvus_binlog"]


def batch_of(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns.values(), pa.array([1, 2, 3])], names=[*columns, "x"])


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_array_is_refused_with_column_and_row(name: str, tmp_path: Path) -> None:
    columns, column, row = INVALID[name]
    valid = pa.RecordBatch.from_arrays(
        [pa.nulls(2, array.type) for array in columns.values()] + [pa.array([8, 9])], names=[*columns, "x"]
    )
    batches = [valid, batch_of(columns)]
    with pytest.raises(sawlog.SchemaError, match=rf"^column '{column}', row {row + 2}: not a valid Arrow array"):
        list(validate_batches(batches))
    if column == "v":  # no format below has lists: it says that first
        return
    for data in (pa.Table.from_batches(batches), pa.RecordBatchReader.from_batches(valid.schema, batches)):
        with pytest.raises(sawlog.SchemaError, match=rf"^column '{column}', row {row + 2}: not a valid Arrow array"):
            sawlog.write(data, tmp_path / "out.bin", format="deephaven_log")
    with pytest.raises(sawlog.SchemaError, match=rf"^column '{column}', row {row}: not a valid Arrow array"):
        sawlog.write(batch_of(columns), tmp_path / "out", format="deephaven_table")
    assert list(tmp_path.iterdir()) == []


def test_a_dictionary_that_is_invalid_by_itself_names_no_row(tmp_path: Path) -> None:
    texts = with_offsets(pa.string(), [0, 2, 4, 6], b"\xff\xfeabcd")
    array = pa.DictionaryArray.from_arrays(pa.array([1, 2, 1], pa.int32()), texts)
    with pytest.raises(sawlog.SchemaError, match=r"^column 'Sym': not a valid Arrow array of type dictionary"):
        sawlog.write(batch_of({"Sym": array}), tmp_path / "out.bin", format="deephaven_log")


def convert(source: Path, target: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what this is about ended processes."""
    command = [sys.executable, "-m", "sawlog", "convert", str(source), str(target), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.spread(8)
@pytest.mark.parametrize("target", [*TARGETS, "parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize("name", INVALID)
def test_convert_refuses_invalid_arrow_files(name: str, target: str, tmp_path: Path) -> None:
    columns, column, row = INVALID[name]
    batch = batch_of(columns)
    source = tmp_path / "source.arrow"
    with pa.OSFile(str(source), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    result = convert(source, tmp_path / "out", "--to", target)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    # A format that cannot hold the columns says that first.
    if "not a valid Arrow array" in result.stderr:
        assert f"source.arrow: column '{column}', row {row}:" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"source.arrow"}


def test_valid_arrays_of_every_kind_pass(tmp_path: Path) -> None:
    """Slices, views and nulls are not refused."""
    table: Any = pa.table({"a": ["x", None, "ü", "z"], "n": [1, 2, None, 4]}).slice(1, 2)
    sawlog.write(table, tmp_path / "out.bin", format="deephaven_log")
    assert sawlog.read(tmp_path / "out.bin").num_rows == 2
