"""Trees as milvus-backup makes them: names and types survive writing and reading again."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError, OptionError
from sawlog.milvus import layout

from .support import NOW, delete, message, with_etcd, write_collection


@pytest.fixture(autouse=True)
def no_warnings() -> None:
    """The metadata says which segments are alive."""
    warnings.simplefilter("error")


def make_table(first: int, count: int) -> pa.Table:
    values = pa.array(np.arange(count * 2, dtype="f4"))
    return pa.table(
        {
            "key": range(first, first + count),
            "Größe.A": [f"{i}" for i in range(count)],
            "vec": pa.FixedSizeListArray.from_arrays(values, 2),
            "tags": pa.array([[i] for i in range(count)], pa.list_(pa.int8())),
            "$meta": ['{"a":1}'] * count,
            "_partition": [2 + i % 2 for i in range(count)],
        }
    )


def test_names_are_those_of_the_backup(tmp_path: Path) -> None:
    root = tmp_path / "backup"
    options = {"tree": "backup", "collection_name": "products", "partition_names": ("3=sold",)}
    write_collection(root, make_table(0, 10), **options)
    dataset = sawlog.open(root)
    assert dataset.schema.names == ["key", "Größe.A", "vec", "tags", "$meta"]
    expected = make_table(0, 10).sort_by([("_partition", "ascending"), ("key", "ascending")]).drop(["_partition"])
    assert dataset.to_table().cast(expected.schema).equals(expected)
    assert dataset.contents.primary.name == "key"
    assert sawlog.open(root, table="products").count_rows() == 10
    assert sawlog.open(root, partitions=("sold",)).count_rows() == 5
    assert sorted(path.name for path in root.iterdir()) == ["binlogs", "meta"]
    # More rows, deletes, deletes for all partitions, and another collection go into the same tree.
    write_collection(root, make_table(10, 4), **options, first_id=5000)
    (first, *_) = sorted(int(path.name) for path in root.glob("binlogs/insert_log/1/2/*"))
    delete(root, [0], [NOW + 1], first, tree="backup")
    delete(root, [13], [NOW + 1], 900, -1, tree="backup")
    write_collection(
        root, pa.table({"other": ["x"]}), tree="backup", collection_name="more", collection_id=7, first_id=9000
    )
    assert sorted(sawlog.read(root, table="products")["key"].to_pylist()) == list(range(1, 13))
    assert sawlog.read(root, table="more").to_pydict() == {"other": ["x"]}
    assert not sawlog.verify(root).damaged
    with pytest.raises(OptionError, match="id=name"):
        write_collection(root, make_table(0, 1), tree="backup", partition_names=("sold",))


def test_a_real_collection_is_written_and_read_with_its_names(tmp_path: Path) -> None:
    source = with_etcd("2.3.5", "alltypes")
    rows = source.to_table()
    sawlog.write(source, tmp_path / "copy", format="milvus_binlog", tree="backup", collection_name="alltypes")
    copy = sawlog.open(tmp_path / "copy")
    assert copy.schema.equals(source.schema, check_metadata=True)
    assert copy.to_table().sort_by("pk").equals(rows.sort_by("pk"))


def test_the_metadata_has_the_form_of_a_real_backup(tmp_path: Path) -> None:
    """Zero values are left out, paths end in ids, ids are numbers; what Milvus asks for when it makes a collection."""
    write_collection(tmp_path / "backup", make_table(0, 4), tree="backup")
    document = json.loads((tmp_path / "backup" / "meta" / "full_meta.json").read_text())
    (collection,) = document["collection_backups"]
    assert [field["fieldID"] for field in collection["schema"]["fields"]] == [100, 101, 102, 103]  # and $meta
    assert collection["schema"]["enable_dynamic_field"]
    assert collection["schema"]["fields"][1]["type_params"] == [{"key": "max_length", "value": "65535"}]
    assert collection["schema"]["fields"][3]["type_params"] == [{"key": "max_capacity", "value": "4096"}]
    head = json.loads((tmp_path / "backup" / "meta" / "backup_meta.json").read_text())
    assert head == {key: value for key, value in document.items() if key != "collection_backups"}
    segment = collection["partition_backups"][0]["segment_backups"][0]
    assert segment["num_of_rows"] == 2
    assert "fieldID" not in segment["binlogs"][0]
    (log,) = segment["binlogs"][0]["binlogs"]
    stored = tmp_path / "backup" / "binlogs" / log["log_path"]
    assert stored.stat().st_size == log["log_size"]
    assert segment["size"] == sum(path.stat().st_size for path in stored.parents[1].rglob("*") if path.is_file())


def test_metadata_that_is_none_is_not_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "meta" / "full_meta.json"
    place.parent.mkdir()
    place.write_text("{")
    with pytest.raises(FormatError, match="metadata of a backup"):
        write_collection(tmp_path, make_table(0, 1), tree="backup")
    assert place.read_text() == "{"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != place]


def test_what_newer_backups_say_of_their_collections(tmp_path: Path) -> None:
    """Aliases, when a collection was made, and the positions of its channels, in base64."""
    write_collection(tmp_path, make_table(0, 3), tree="backup", collection_name="products")
    place = tmp_path / "meta" / "full_meta.json"
    data = json.loads(place.read_text())
    (collection_entry,) = data["collection_backups"]
    collection_entry |= {"aliases": ["goods"], "created_timestamp": NOW}
    for position, expected_time in ((message({1: "a", 2: b"id", 4: NOW + 7}), NOW + 7), (message({1: "a"}), 0)):
        collection_entry["channel_checkpoints"] = {"a": base64.b64encode(position).decode()}
        place.write_text(json.dumps(data))
        (row,) = sawlog.read(tmp_path, view="collections", table="goods").to_pylist()
        assert (row["aliases"], row["created"], row["checkpoints"]) == (["goods"], NOW, [("a", expected_time)])
    for wrong in ("####", base64.b64encode(message({4: 1 << 63})).decode(), base64.b64encode(b"\x0a\xff").decode()):
        collection_entry["channel_checkpoints"] = {"a": wrong}
        place.write_text(json.dumps(data))
        with pytest.raises(FormatError, match="collection 'products'"):
            sawlog.read(tmp_path)


def test_repair_knows_the_fields_that_a_read_knows(tmp_path: Path) -> None:
    """The metadata says of which type a field is; a file whose own word for that is broken is whole all the same."""
    rows = pa.table({"pk": pa.array(range(5), pa.int64()), "t": [f"text {n}" for n in range(5)]})
    sawlog.write(rows, tmp_path / "b", format="milvus_binlog", primary_key="pk", timestamp=1 << 18, tree="backup")
    (keys,) = (tmp_path / "b").glob("binlogs/insert_log/*/*/*/100/*")
    data = bytearray(keys.read_bytes())
    offset = len(layout.MAGIC) + layout.HEADER.size + layout.DESCRIPTOR.size - 4
    data[offset : offset + 4] = (-251).to_bytes(4, "little", signed=True)
    keys.write_bytes(data)
    table = sawlog.read(tmp_path / "b", format="milvus_binlog")
    assert table["pk"].to_pylist() == list(range(5))
    assert sawlog.repair(tmp_path / "b", tmp_path / "c", format="milvus_binlog").rows == 5
    assert sawlog.read(tmp_path / "c", format="milvus_binlog").equals(table)
