"""Values of RocksDB's that are in tables between blocks, and those of entities in blob files, are read as it does."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from pathlib import Path
from zipfile import ZipFile

import pytest

import sawlog
from tests.bytes import decode_varint

pytestmark = pytest.mark.interop

ROCKSDB = "org.rocksdb:rocksdbjni:11.8.1"
LIBRARY = "librocksdbjni-linux64.so"
PROGRAM = Path(__file__).parent / "rocksdb_embedded.py"
Columns = list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RocksDB."""
    place = tmp_path_factory.mktemp("rocksdb")
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={ROCKSDB}"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    with ZipFile(next(place.glob("*.jar"))) as jar:
        jar.extract(LIBRARY, place)
    return place / LIBRARY


def columns(entity: bytes) -> Columns:
    """The columns of an entity in the version where all values are in their places."""
    version, offset = decode_varint(entity, 0)
    assert version == 1
    count, offset = decode_varint(entity, offset)
    names, sizes = [], []
    for _ in range(count):
        size, offset = decode_varint(entity, offset)
        names.append(entity[offset : offset + size])
        size, offset = decode_varint(entity, offset + size)
        sizes.append(size)
    ends = [offset + sum(sizes[: number + 1]) for number in range(count)]
    assert [offset, *ends][-1] == len(entity)
    return [(name, entity[end - size : end]) for name, size, end in zip(names, sizes, ends, strict=True)]


def content(row: dict[str, object]) -> bytes | Columns:
    """What a row holds."""
    value = row["value"]
    assert isinstance(value, bytes)
    return columns(value) if row["operation"] == "put_entity" else value


@pytest.mark.parametrize("seed", range(40))
def test_what_rocksdb_answers(library: Path, seed: int, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(library), str(tmp_path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    written: dict[str, dict[bytes, bytes | Columns]] = {}
    for (_, number, key), cells in groupby([line for line in lines if line[0] == "row"], key=lambda line: line[:3]):
        named = [(name, bytes.fromhex(value)) for *_, name, value in cells]
        entity = [(bytes.fromhex(name[1:]), value) for name, value in named if name]
        written.setdefault(number, {})[bytes.fromhex(key)] = entity or named[0][1]

    for number, rows in written.items():
        table = tmp_path / f"{number}.sst"
        read = sawlog.read(table).to_pylist()
        assert {row["key"]: content(row) for row in read} == rows
        assert {row["operation"] for row in read} <= {"put", "put_entity"}
        assert not sawlog.verify(table).damaged

    live = sawlog.read(tmp_path / "db", format="leveldb_database", view="live").to_pylist()
    answers = [(bytes.fromhex(key), bytes.fromhex(value)) for kind, _, key, _, value in lines if kind == "answer"]
    newest = {key: value for rows in written.values() for key, value in rows.items()}
    for row, (key, value) in zip(live, answers, strict=True):
        answer = content(row)
        assert row["key"] == key
        assert (answer if isinstance(answer, bytes) else dict(answer).get(b"", b"")) == value
        assert isinstance(answer, bytes) or answer == newest[key]
    assert not sawlog.verify(tmp_path / "db", format="leveldb_database").damaged
