"""Which schemas are read where nobody names them: those of the records that can be read, wherever they are."""

from __future__ import annotations

import pickle
import struct
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.filodb import Schemas
from sawlog.filodb.walk import Workspace
from sawlog.format.damage import DamageWarning

from . import golden
from .support import HEADER, containers

HISTOGRAM = Schemas.built_in()["prom-histogram"].schema_id


def list_record_offsets(container: bytes) -> list[int]:
    """Where the records of a container begin."""
    offset, offsets = HEADER, []
    while offset < struct.unpack_from("<I", container)[0] + 4:
        offsets.append(offset)
        offset += struct.unpack_from("<I", container, offset)[0] + 4 + 3 & ~3
    return offsets


def read_intact(path: Path, data: bytes) -> pa.Table:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        return sawlog.read(path, format="filodb_record", on_damage="skip")


def test_schemas_are_looked_for_after_the_first_container(tmp_path: Path) -> None:
    """It may hold what nobody knows, as `repair` leaves it where a record has lost its schema."""
    first, second = containers(2)
    unknown = bytearray(first)
    for offset in list_record_offsets(first):
        unknown[offset + 4] ^= 0xFF
    table = read_intact(tmp_path / "a.container", bytes(unknown) + second)
    assert "_schema" not in table.schema.names, "only gauges are found"
    assert table.num_rows == len(list_record_offsets(second))


def test_a_record_that_cannot_be_read_names_none(tmp_path: Path) -> None:
    """Else the repaired file, which lacks it, would have other columns."""
    data, _ = containers(2)
    changed = bytearray(data)
    changed[HEADER + 4 : HEADER + 6] = HISTOGRAM.to_bytes(2, "little")
    path = tmp_path / "a.container"
    table = read_intact(path, bytes(changed))
    assert table.num_rows == len(list_record_offsets(data)) - 1
    sawlog.repair(path, tmp_path / "b.container", format="filodb_record")
    assert sawlog.read(tmp_path / "b.container", format="filodb_record").equals(table)


def test_part_keys_are_known_after_a_damaged_one(tmp_path: Path) -> None:
    data = golden.data("gauge_100_partkeys")
    intact = read_intact(tmp_path / "a.container", data)
    first = list_record_offsets(data)[0]
    changed = data[: first + 6] + b"\xff\xff\xff\x7f" + data[first + 10 :]
    assert read_intact(tmp_path / "b.container", changed).schema == intact.schema


def test_files_of_a_read_share_memory_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that were seen in one file are known in the next one, and damaged ones end with their walk."""
    workspace_sizes: list[int] = []
    make = Workspace.of
    monkeypatch.setattr(
        Workspace, "of", lambda fields, *arguments: workspace_sizes.append(len(fields)) or make(fields, *arguments)
    )
    data = golden.data("gauge_100")
    for number in range(4):
        (tmp_path / f"{number}.container").write_bytes(data)
    dataset = sawlog.open(tmp_path, format="filodb_record", use_threads=False)
    table = dataset.to_table()
    assert len(workspace_sizes) == 1
    single = sawlog.read(tmp_path / "0.container", format="filodb_record")
    assert repr(table.to_pylist()) == repr(single.to_pylist() * 4)
    # Maps that are only judged have been decoded by nobody.
    for columns in (["value"], ["tags"], ["value"], ["tags", "value"]):
        assert repr(dataset.to_table(columns=columns).to_pylist()) == repr(table.select(columns).to_pylist())
    fragments = dataset.fragments()
    assert len(workspace_sizes) == 1 + 1 + 3
    assert len(pickle.dumps(fragments)) < 20_000
    assert pickle.loads(pickle.dumps(fragments))[0].selection == fragments[0].selection
