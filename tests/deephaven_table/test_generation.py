"""Everything that there is decides whether files have headers: a few bytes of numbers can look like a header."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import DamageError

from .reference import Shape, put, put_fixed, put_rows, put_symbols

ROUND = [1.0, 2.0, 4.0, 1.5, 100.0, 1000.0, 131072.0]
"""Doubles whose eight bytes, little endian, begin like a header without metadata; their data would start somewhere."""
HEADERLESS = Shape(version=2)


def doubles(first: float, count: int) -> list[float]:
    return [first, *(n / 8 for n in range(1, count))]


@pytest.mark.parametrize("first", ROUND)
@pytest.mark.parametrize("count", [1, 20_000])
def test_what_sawlog_writes_it_reads(tmp_path: Path, first: float, count: int) -> None:
    """With the schema file next to it, without it, and without the count of the rows too."""
    table = pa.table({"d": doubles(first, count)})
    sawlog.write(table, tmp_path / "T", format="deephaven_table", column_version=2)
    assert b'columnVersion="2" byteOrder="little"' in (tmp_path / "T" / "table.schema").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sawlog.read(tmp_path / "T", format="deephaven_table").column("d") == table.column("d")
    for name in ("table.schema", "table.size"):
        (tmp_path / "T" / name).unlink()
        result_table = sawlog.read(tmp_path / "T", format="deephaven_table", types={"d": "double"}, byteorder="little")
        assert result_table.column("d") == table.column("d")


@pytest.mark.parametrize("little", [True, False])
def test_the_byte_order_stands_beside_the_files(tmp_path: Path, little: bool) -> None:
    order = "little" if little else "big"
    for version in (1, 2):
        path = tmp_path / str(version)
        table = pa.table({"n": [1, 2], "m": [3, 4]})
        options = {"column_version": version, "byteorder": order, "compact_header": True}
        sawlog.write(table, path, format="deephaven_table", **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sawlog.read(path, format="deephaven_table").to_pydict() == {"n": [1, 2], "m": [3, 4]}
    data = bytearray((tmp_path / "1" / "n.dat").read_bytes())
    data[0] ^= 0x80
    (tmp_path / "1" / "n.dat").write_bytes(data)
    with pytest.raises(DamageError, match="bad_header"):
        sawlog.read(tmp_path / "1", format="deephaven_table")


@pytest.mark.parametrize("reserved", [1 << 18, 1 << 31, 0xFFFC_0000])
def test_reserved_bits_are_masked(tmp_path: Path, reserved: int) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, None], Shape())
    put_symbols(tmp_path, "s", ["a", None, "b"], Shape())
    for name in ("n.dat", "s.dat", "s.sym"):
        data = (tmp_path / name).read_bytes()
        (start,) = struct.unpack(">I", data[4:8])
        (tmp_path / name).write_bytes(data[:4] + struct.pack(">I", start | reserved) + data[8:])
    assert sawlog.read(tmp_path, types={"n": "int"}).to_pydict() == {"n": [1, 2, None], "s": ["a", None, "b"]}
    assert not sawlog.verify(tmp_path, types={"n": "int"}).damaged


def test_headers_without_metadata(tmp_path: Path) -> None:
    """m = 0 is null metadata; the sizes prove the header, or the unused space makes it likely."""
    shape = Shape(metadata=b"")
    put_fixed(tmp_path, "n", "int", [1, 2], shape)
    with pytest.warns(UserWarning, match="nothing shows that these files have headers"):
        assert sawlog.read(tmp_path, types={"n": "int"}, format="deephaven_table").to_pydict() == {"n": [1, 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put_rows(tmp_path, 2)
        assert sawlog.read(tmp_path, types={"n": "int"}).to_pydict() == {"n": [1, 2]}
        (tmp_path / "table.size").unlink()
        put_fixed(tmp_path, "m", "long", [3, 4], shape)
        types = {"n": "int", "m": "long"}
        assert sawlog.read(tmp_path, types=types, format="deephaven_table").to_pydict() == {"n": [1, 2], "m": [3, 4]}


def test_all_columns_decide_together(tmp_path: Path) -> None:
    """One column could have a header by its bytes; the sizes of all of them say that none has."""
    put_fixed(tmp_path, "d", "double", doubles(2.0, 40), HEADERLESS)
    put_fixed(tmp_path, "e", "double", doubles(2.0, 40), HEADERLESS)
    put_rows(tmp_path, 40)
    types = {"d": "double", "e": "double"}
    expected = {name: doubles(2.0, 40) for name in types}
    assert sawlog.read(tmp_path, types=types, byteorder="little").to_pydict() == expected
    assert {row["column_version"] for row in sawlog.read(
        tmp_path, types=types, byteorder="little", view="columns"
    ).to_pylist()} == {2}  # fmt: skip


def test_an_overflow_file_goes_with_a_header(tmp_path: Path) -> None:
    put(tmp_path, "n", Shape(metadata=bytes(100), start=16), struct.pack("<2i", 1, 2))
    assert (tmp_path / "n.ovr").exists()
    table = sawlog.read(tmp_path, types={"n": "int"}, format="deephaven_table")
    assert table.to_pydict() == {"n": [1, 2]}
