"""Small inputs that reach every branch of the kernels: quick enough for plain Python and for checked builds."""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.table import symbol_table
from sawlog.deephaven.table.kernels import holds, reaches
from sawlog.deephaven.table.values import ArrayPlace
from sawlog.format.damage import DamageWarning
from sawlog.kernels import intern

from .reference import Shape, put, put_fixed, put_rows, put_symbols, put_text


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_patterns_are_found_wherever_they_are(dtype: Any) -> None:
    top = dtype(1 << dtype(0).itemsize * 8 - 1)
    for length in range(40):
        values = np.arange(length).astype(dtype)
        for place in range(length):
            changed_values = values.copy()
            changed_values[place] = top
            changed_values.flags.writeable = False
            assert holds(changed_values, top)
        values.flags.writeable = False
        assert not holds(values, top)


def test_limits_are_reached_from_any_side() -> None:
    for length in range(20):
        values = np.arange(length, dtype=np.uint32)
        values.flags.writeable = False
        assert reaches(values, np.uint32(max(0, length - 1))) == (length > 0)
        assert not reaches(values, np.uint32(length))
    high = np.array([0, 1 << 31], np.uint32)
    high.flags.writeable = False
    assert reaches(high, np.uint32(1 << 30))


@pytest.mark.parametrize("is_shared", [False, True])
def test_symbols_are_numbered_as_they_first_appear(monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    """In tables that grow, and where all hashes are the same."""
    monkeypatch.setattr(intern, "CHUNK", 7)
    if is_shared:
        monkeypatch.setattr(intern, "hash_strings", lambda strings, seed, hashes: hashes.fill(1 << 63))
    rng = random.Random(2)
    table, ids_by_text = symbol_table.SymbolTable("UTF-8"), dict[str, int]()
    ends, characters = [], b""
    for _ in range(12):
        texts = [rng.choice([None, "", "é", f"s{rng.randrange(40)}", "x" * rng.randrange(40)]) for _ in range(20)]
        expected_ids = [
            -(1 << 31) if text is None else ids_by_text.setdefault(text, len(ids_by_text)) for text in texts
        ]
        array = pa.array(["before", *texts], pa.string())[1:]
        with np.errstate(over="ignore"):  # hashes, where the JIT is off
            ids = table.assign_ids(array.dictionary_encode() if rng.random() < 0.5 else array, ArrayPlace("S", 0))
        assert ids.tolist() == expected_ids
        text_ends, data = table.take()
        ends += text_ends.tolist()
        characters += data
    stored = [characters[start:end] for start, end in itertools.pairwise([0, *ends])]
    assert stored == [text.encode() or b"\0" for text in ids_by_text]


def test_small_locations_are_read_in_every_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.deephaven.table.fragments.BATCH_ROWS", 5)
    rng = random.Random(1)
    numbers = [rng.choice([None, rng.randrange(-100, 100)]) for _ in range(17)]
    texts = [None if number is None else "x" * (number % 7) for number in numbers]
    for version in (1, 2):
        for little in (True, False):
            shape = Shape(version, little, start=24)
            leaf = tmp_path / f"{version}-{little}"
            for kind in ("byte", "short", "int", "long", "DateTime"):
                put_fixed(leaf, kind, kind, numbers, shape)
            put_symbols(leaf, "s", texts, shape, forget=2)
            put_text(leaf, "t", texts, shape)
            types = {kind: kind for kind in ("byte", "short", "int", "long", "DateTime")}
            table = sawlog.read(leaf, types={**types, "t": "String(None)"}, byteorder="little" if little else "big")
            assert table.column("s").to_pylist() == table.column("t").to_pylist() == texts
            assert all(table.column(kind).to_pylist() == numbers for kind in ("byte", "short", "int", "long"))


def test_values_with_damage_between_them(tmp_path: Path) -> None:
    rng = random.Random(2)
    for _ in range(30):
        shape = Shape()
        ends = [rng.choice([rng.randrange(-3, 30), 3 * i]) for i in range(1, 9)]
        put(tmp_path, "t", shape, shape.pack("q", ends), bytes=bytes(range(65, 89)))
        put_rows(tmp_path, 8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            table = sawlog.read(tmp_path, types={"t": "String(None)"}, on_damage="skip")
        assert table.num_rows == 8
        table.validate(full=True)
        text = bytes(range(65, 89)).decode()
        for start, end, value in zip([0, *ends], ends, table.column("t").to_pylist(), strict=False):
            fits = 0 <= start <= end <= len(text)
            assert value in ((text[start:end] or None, None) if fits else (None,))
