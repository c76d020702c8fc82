"""Which schemas are read where nobody names them: those of the records that can be read, wherever they are."""

from __future__ import annotations

import pickle
import random
import struct
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError
from sawlog.filodb import RecordSchema, Schemas
from sawlog.filodb.selection import Pool
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


def count_workspaces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many fields each workspace has that is made from now on."""
    sizes: list[int] = []
    make = Workspace.of
    monkeypatch.setattr(
        Workspace, "of", lambda fields, *arguments: sizes.append(len(fields)) or make(fields, *arguments)
    )
    monkeypatch.setattr(Workspace, "small_pool", Pool(limit=2))
    return sizes


def test_files_of_a_read_share_memory_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that were seen in one file are known in the next one, and damaged ones end with their walk."""
    workspace_sizes = count_workspaces(monkeypatch)
    data = golden.data("gauge_100")
    for number in range(4):
        (tmp_path / f"{number}.container").write_bytes(data)
    dataset = sawlog.open(tmp_path, format="filodb_record", use_threads=False)
    table = dataset.to_table()
    assert len(workspace_sizes) == 1
    single = sawlog.read(tmp_path / "0.container", format="filodb_record")
    assert repr(table.to_pylist()) == repr(single.to_pylist() * 4)
    assert len(workspace_sizes) == 1, "what small files need is kept from dataset to dataset"
    # Maps that are only judged have been decoded by nobody.
    for columns in (["value"], ["tags"], ["value"], ["tags", "value"]):
        assert repr(dataset.to_table(columns=columns).to_pylist()) == repr(table.select(columns).to_pylist())
    fragments = dataset.fragments()
    assert len(workspace_sizes) == 1 + 3
    assert len(pickle.dumps(fragments)) < 20_000
    assert pickle.loads(pickle.dumps(fragments))[0].selection == fragments[0].selection


def test_memory_for_many_rows_is_gone_with_its_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace_sizes = count_workspaces(monkeypatch)
    monkeypatch.setattr(Workspace, "small_rows", 8)
    path = Path(golden.path("gauge_100"))
    dataset = sawlog.open([path, path], format="filodb_record", use_threads=False)
    assert repr(dataset.to_table().to_pylist()) == repr(dataset.to_table().to_pylist())
    assert len(workspace_sizes) == 1
    for count in range(2, 4):
        sawlog.read(path, format="filodb_record")
        assert len(workspace_sizes) == count


def test_a_pool_keeps_what_was_given_last() -> None:
    pool = Pool(limit=2)
    for number in range(3):
        pool.give("a" if number < 2 else "b", number)
    assert [pool.take(key) for key in ("b", "a", "a", "b")] == [2, 1, None, None]
    pool.give("a", 3)
    assert pickle.loads(pickle.dumps(pool)).take("a") is None
    assert pool.take("a") == 3


def test_columns_of_one_type_are_called_as_their_own_definitions_say(tmp_path: Path) -> None:
    """Records without a schema ID look the same, whatever their columns are called."""
    path = tmp_path / "a.container"
    notation = 'schemas.x.columns = ["{}:int", "{}:long"]\nschemas.x.partitioned = false'
    first, second = notation.format("a", "b"), notation.format("c", "d")
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": [3, 4]})
    sawlog.write(table, path, format="filodb_record", schema=first, table="x")
    for definitions, names in ((first, ["a", "b"]), (second, ["c", "d"]), (first, ["a", "b"])):
        assert sawlog.read(path, format="filodb_record", schema=definitions, table="x").schema.names == names


def test_schemas_are_made_once_for_files_that_are_opened_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[object] = []
    to_json = Schemas.to_json
    monkeypatch.setattr(Schemas, "to_json", lambda self, *names: texts.append(names) or to_json(self, *names))
    datasets = [sawlog.open(golden.path("gauge_100"), format="filodb_record") for _ in range(3)]
    assert len(texts) <= 2, "the definitions of all schemas, whose digest is kept, and of those that are read"
    assert len({id(dataset.contents.selection) for dataset in datasets}) == 1
    by_hand = sawlog.open(
        golden.path("gauge_100"), format="filodb_record", schema=Schemas.parse(Schemas.built_in().to_json())
    )
    assert by_hand.schema.equals(datasets[0].schema, check_metadata=True)


def test_a_record_is_filled_by_payloads_one_after_the_other() -> None:
    rng = random.Random(4)
    layouts = [layout for schema in Schemas.built_in().values() for layout in (schema.ingestion, schema.part_key)]
    outcomes: set[bool] = set()
    for name in ("mixed_schemas_4", "gauge_100_partkeys"):
        data = golden.data(name)
        for offset in list_record_offsets(data) * 20:
            record = bytearray(data[offset : offset + struct.unpack_from("<I", data, offset)[0] + 4])
            for _ in range(rng.randrange(3)):
                record[rng.randrange(len(record))] = rng.choice([0, 1, 255, rng.randrange(256)])
            for layout in layouts:
                outcomes.add(layout.is_filled(record))
                assert layout.is_filled(record) == are_payloads_adjacent(layout, record)
    assert outcomes == {False, True}


def are_payloads_adjacent(layout: RecordSchema, record: bytearray) -> bool:
    pos = layout.variable_area_start
    try:
        for index, column in enumerate(layout.columns):
            if column.pointer:
                if struct.unpack_from("<I", record, layout.field_offsets[index])[0] != pos:
                    return False
                pos += 2 + len(layout.blob(record, index))
        return pos == layout.num_bytes(record)
    except (FormatError, struct.error):
        return False
