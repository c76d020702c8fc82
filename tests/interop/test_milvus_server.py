"""What sawlog writes, a real Milvus imports; what a real Milvus writes, sawlog reads."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.format.damage import DamageWarning
from sawlog.milvus import layout
from tests.interop.milvus_server import Milvus, milvus

pytestmark = pytest.mark.interop

ROWS = 600
NOW = layout.encode_tso(dt.datetime(2024, 5, 1, tzinfo=dt.UTC)) + 7
SCHEMA = {
    "name": "everything",
    "auto_id": False,
    "enable_dynamic_field": True,
    "fields": [
        {"name": "pk", "type": 5, "is_primary": True},
        {"name": "b", "type": 1},
        {"name": "i8", "type": 2},
        {"name": "i16", "type": 3},
        {"name": "i32", "type": 4},
        {"name": "i64", "type": 5},
        {"name": "f", "type": 10},
        {"name": "d", "type": 11},
        {"name": "s", "type": 21, "params": {"max_length": 64}},
        {"name": "j", "type": 23},
        {"name": "a8", "type": 22, "element_type": 2, "params": {"max_capacity": 8}},
        {"name": "as", "type": 22, "element_type": 21, "params": {"max_capacity": 8, "max_length": 16}},
        {"name": "af", "type": 22, "element_type": 10, "params": {"max_capacity": 8}},
        {"name": "v", "type": 101, "params": {"dim": 8}},
    ],
}
BINARY_SCHEMA = {
    "name": "binary",
    "auto_id": False,
    "enable_dynamic_field": False,
    "fields": [
        {"name": "name", "type": 21, "is_primary": True, "params": {"max_length": 64}},
        {"name": "bv", "type": 100, "params": {"dim": 16}},
    ],
}
NAMES = [field["name"] for field in SCHEMA["fields"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milvus]:
    with milvus(tmp_path_factory.mktemp("milvus")) as running:
        yield running


def meta(kind: str, element: str | None = None, **values: str) -> dict[str, str]:
    metadata = {"sawlog.milvus.type": kind, **{f"sawlog.milvus.{key}": value for key, value in values.items()}}
    return metadata | ({"sawlog.milvus.element_type": element} if element else {})


def make_rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    rows = []
    for i in range(ROWS):
        rows.append(
            {
                "pk": (i - 300) * (1 << 52) + i,
                "b": i % 3 == 0,
                "i8": i % 256 - 128,
                "i16": i * 91 % 65536 - 32768,
                "i32": i * 7_000_001 - (1 << 31),
                "i64": -(1 << 63) + i if i % 2 else (1 << 63) - 1 - i,
                "f": float(np.float32(i / 7)),
                "d": i / 7,
                "s": ["", "a", "héllo", "日本語", 'quote"s', "tab\tx", "🎉"][i % 7] + (str(i) if i % 5 else ""),
                "j": json.dumps({"k": i, "l": [1, i], "t": "é"}, ensure_ascii=False),
                "a8": [k - 64 for k in range(i % 5)],
                "as": ["", "x", "ключ", "🎉"][: i % 5],
                "af": [float(np.float32(k / 3)) for k in range(i % 3)],
                "v": rng.standard_normal(8).astype("f4").tolist(),
                "$meta": json.dumps({"dyn": i} if i % 2 else {}),
            }
        )
    return rows


def arrow_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("pk", pa.int64(), metadata=meta("Int64", primary_key="true")),
            pa.field("b", pa.bool_()),
            pa.field("i8", pa.int8()),
            pa.field("i16", pa.int16()),
            pa.field("i32", pa.int32()),
            pa.field("i64", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("s", pa.string()),
            pa.field("j", pa.string(), metadata=meta("JSON")),
            pa.field("a8", pa.list_(pa.int8())),
            pa.field("as", pa.list_(pa.string())),
            pa.field("af", pa.list_(pa.float32())),
            pa.field("v", pa.list_(pa.float32(), 8)),
            pa.field("$meta", pa.string()),
        ]
    )


def directories(root: Path, collection: int = 1, partition: int = 2) -> dict[str, str]:
    return {
        "inserts": str(root / "insert_log" / str(collection) / str(partition)),
        "deltas": str(root / "delta_log" / str(collection) / str(partition)),
    }


def prepared(server: Milvus, name: str, schema: dict[str, Any], shards: int = 2) -> None:
    server.create(name=name, schema={**schema, "name": name}, shards=shards)
    vector = next(field["name"] for field in schema["fields"] if field["type"] in (100, 101))
    kind = next(field["type"] for field in schema["fields"] if field["name"] == vector)
    metric = {"index_type": "FLAT", "metric_type": "L2", "params": {}}
    if kind == 100:
        metric = {"index_type": "BIN_FLAT", "metric_type": "HAMMING", "params": {}}
    server.index(name=name, field=vector, params=metric)


def make_expected_rows(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    rows_by_key = {}
    for row in rows:
        plain = {**row, "j": json.loads(row["j"]), **json.loads(row["$meta"])}
        del plain["$meta"]
        rows_by_key[row["pk"]] = plain
    return rows_by_key


def test_milvus_imports_what_sawlog_writes(server: Milvus, tmp_path: Path) -> None:
    rows = make_rows()
    table = pa.Table.from_pylist(rows, arrow_schema())
    # Small batches and segments: several binlogs per field, and several segments.
    sawlog.write(table, tmp_path, format="milvus_binlog", timestamp=NOW, binlog_bytes=16 << 10, segment_bytes=64 << 10)
    segments = sawlog.read(tmp_path, view="segments", table="1")
    assert segments.num_rows > 1
    assert max(segments["batches"].to_pylist()) > 1
    deleted_pks = [row["pk"] for row in rows[::10]]
    updated_pks = [row["pk"] for row in rows[1::10]]
    for segment in segments["segment"].to_pylist():
        deletes = {
            "pk": deleted_pks + updated_pks,
            "timestamp": [NOW + 1] * len(deleted_pks) + [NOW] * len(updated_pks),
        }
        deletes |= {
            "partition": [2] * len(deleted_pks + updated_pks),
            "segment": [segment] * len(deleted_pks + updated_pks),
        }
        sawlog.write(pa.table(deletes), tmp_path, format="milvus_binlog", content="deletes")

    prepared(server, "everything", SCHEMA)
    outcome = server.backup_import(name="everything", **directories(tmp_path))
    assert "failed" not in outcome, outcome
    server.load(name="everything")
    rows_read = server.query(name="everything", fields=["*"], expression="pk > -9223372036854775807")

    expected_rows = {pk: row for pk, row in make_expected_rows(rows).items() if pk not in deleted_pks}
    assert len(rows_read) == len(expected_rows) == ROWS - len(deleted_pks)
    for row in rows_read:
        assert {name: row[name] for name in expected_rows[row["pk"]]} == expected_rows[row["pk"]]


def test_milvus_imports_strings_as_keys_and_binary_vectors(server: Milvus, tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).integers(0, 256, (200, 2), np.uint8)
    table = pa.table(
        {
            "name": pa.array([f"key-{i}-é" for i in range(200)]),
            "bv": pa.array([vector.tobytes() for vector in vectors], pa.binary(2)),
        }
    )
    sawlog.write(table, tmp_path, format="milvus_binlog", timestamp=NOW)
    deletes = pa.table({"pk": ["key-0-é", "key-7-é"], "timestamp": [NOW + 1, NOW + 1]})
    sawlog.write(deletes, tmp_path, format="milvus_binlog", content="deletes")
    prepared(server, "binary", BINARY_SCHEMA)
    outcome = server.backup_import(name="binary", **directories(tmp_path))
    assert "failed" not in outcome, outcome
    server.load(name="binary")
    rows = server.query(name="binary", fields=["name", "bv"], expression='name >= ""')
    assert {row["name"]: base64.b64decode(row["bv"][0]["b64"]) for row in rows} == {
        f"key-{i}-é": vector.tobytes() for i, vector in enumerate(vectors) if i not in (0, 7)
    }


BACKUP_PROGRAM = "SAWLOG_MILVUS_BACKUP"
"""Names the program milvus-backup, where it is not on PATH."""


def backup_program() -> str:
    program = os.environ.get(BACKUP_PROGRAM) or shutil.which("milvus-backup")
    if program is None:
        pytest.skip(
            f"milvus-backup is not on PATH: build 0.5.9 from its repository with Go, or name it in {BACKUP_PROGRAM}"
        )
    return program


def test_milvus_backup_restores_what_sawlog_writes(server: Milvus, tmp_path: Path) -> None:
    """The tree of a backup, under its names: fields of every type, several segments, deletes."""
    program = backup_program()
    backups, rows = tmp_path / "backups", make_rows()
    table = pa.Table.from_pylist(rows, arrow_schema())
    options = {"format": "milvus_binlog", "tree": "backup", "collection_name": "products"}
    sawlog.write(table, backups / "mine", timestamp=NOW, segment_bytes=64 << 10, **options)
    pks = [row["pk"] for row in rows[::10]]
    for segment in sawlog.read(backups / "mine", view="segments")["segment"].to_pylist():
        deletes = {"pk": pks, "timestamp": [NOW + 1] * len(pks)}
        deletes |= {"partition": [2] * len(pks), "segment": [segment] * len(pks)}
        sawlog.write(pa.table(deletes), backups / "mine", content="deletes", **options)
    (tmp_path / "backup.yaml").write_text(
        json.dumps(
            {
                "milvus": {"address": "127.0.0.1", "port": 19530, "user": "", "password": ""},
                "minio": {
                    "storageType": "local",
                    "rootPath": str(server.storage),
                    "backupStorageType": "local",
                    "backupRootPath": str(backups),
                },
            }
        )
    )
    command = (program, "restore", "--name", "mine", "--suffix", "_again", "--config", str(tmp_path / "backup.yaml"))
    outcome = server.run(*command, directory=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    server.index(name="products_again", field="v", params={"index_type": "FLAT", "metric_type": "L2", "params": {}})
    server.load(name="products_again")
    rows_read = server.query(name="products_again", fields=["*"], expression="pk > -9223372036854775807")
    expected_rows = {pk: row for pk, row in make_expected_rows(rows).items() if pk not in pks}
    assert len(rows_read) == len(expected_rows) == ROWS - len(pks)
    for row in rows_read:
        assert {name: row[name] for name in expected_rows[row["pk"]]} == expected_rows[row["pk"]]


def test_sawlog_reads_what_milvus_writes(server: Milvus, tmp_path: Path) -> None:
    rows = make_rows()
    prepared(server, "written", SCHEMA, shards=1)
    sent = [{**row, "j": json.loads(row["j"]), **json.loads(row["$meta"])} for row in rows]
    for row in sent:
        del row["$meta"]
    server.insert(name="written", rows=sent[:400])
    server.flush(name="written")
    pks = [row["pk"] for row in rows[5:300:5]]
    server.delete(name="written", expression=f"pk in {pks}")
    server.insert(name="written", rows=sent[400:])
    again = [{**row, "s": "again"} for row in sent[5:50:15]]
    server.insert(name="written", rows=again)
    server.flush(name="written")
    server.load(name="written")
    rows_read = server.query(name="written", fields=["*"], expression="pk > -9223372036854775807")

    dump = tmp_path / "etcd.json"
    dump.write_text(json.dumps(server.etcd()))
    options = {"table": "written", "metadata": str(dump), "dynamic_fields": ("dyn:int64",)}
    with pytest.warns(DamageWarning, match="rocksmq_meta_kv"):  # a RocksDB of the server itself
        table = sawlog.read(server.storage, format="milvus_binlog", **options)
    read = {}
    for row in table.to_pylist():
        row["j"] = json.loads(row["j"])
        del row["$meta"]
        if row["dyn"] is None:
            del row["dyn"]
        read[row["pk"]] = row
    assert len(read) == table.num_rows == len(rows_read) == ROWS - len(pks) + len(again)
    for row in rows_read:
        assert read[row["pk"]] == {name: row[name] for name in read[row["pk"]]}
    assert {pk for pk, row in read.items() if row["s"] == "again"} == {row["pk"] for row in again}
