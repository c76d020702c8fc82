"""The view `history`: at every time, the versions that it says were there are the rows that there were."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import OptionError
from sawlog.milvus import layout

from .support import GOLDEN, NOW, PK, SECOND, Server, delete, message, quiet, truth, with_etcd, write_collection


def times(name: str, collection: str) -> list[int]:
    """When rows were inserted or deleted, by the diary of the program that drove the server."""
    return [
        operation["timestamp"]
        for operation in truth(name)["log"]
        if operation["collection"] == collection and operation.get("timestamp")
    ]


def count_alive(history: pa.Table, time: int) -> Counter[str]:
    """The versions that were there at a time, as texts that can be compared."""
    lifetimes = zip(history["_inserted"].to_pylist(), history["_deleted"].to_pylist(), strict=True)
    keep = pa.array([begin <= time and (ended is None or ended > time) for begin, ended in lifetimes], pa.bool_())
    return count_rows(history.drop_columns(["_inserted", "_deleted"]).filter(keep))


def count_rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@quiet
@pytest.mark.parametrize(
    ("name", "collection"), [("2.3.5", "strpk"), ("2.3.5-compacted", "alltypes"), ("2.3.5-multi", "multi")]
)
def test_history_is_the_rows_of_every_time(name: str, collection: str) -> None:
    """Of real servers, with int64 and varchar keys, deletes, upserts and compaction, whose sources are still there."""
    history = with_etcd(name, collection, view="history").to_table()
    assert count_rows(history.drop_columns(["_inserted", "_deleted"])) >= count_rows(
        with_etcd(name, collection).to_table()
    )
    assert history["_deleted"].null_count < len(history)
    moments = times(name, collection)
    assert moments
    for time in (moments[0], moments[len(moments) // 2], moments[-1], layout.MAX_TSO):
        assert count_alive(history, time) == count_rows(with_etcd(name, collection, as_of=time).to_table()), time


@quiet
@pytest.mark.parametrize("texts", [False, True])
def test_versions_end_with_their_first_later_delete(tmp_path: Path, texts: bool) -> None:
    """A key that comes and goes three times; deletes at the very time of an insert hit only what is older."""
    key: Any = str if texts else int
    for number in (0, 10, 20):
        table = pa.table({"pk": [key(1), key(2)], "value": [number, number]})
        write_collection(tmp_path, table, timestamp=NOW + number, first_id=100 * (number + 1))
    delete(tmp_path, [key(1)] * 4, [NOW, NOW + 5, NOW + 10, NOW + 30], 100, first_id=9000)
    history = sawlog.read(tmp_path, view="history").sort_by([("100", "ascending"), ("_inserted", "ascending")])
    ends = [
        (row["101"], row["_inserted"] - NOW, row["_deleted"] and row["_deleted"] - NOW) for row in history.to_pylist()
    ]
    assert ends == [(0, 0, 5), (10, 10, None), (20, 20, None), (0, 0, None), (10, 10, None), (20, 20, None)]
    level_zero = tmp_path / "delta_log/1/-1"
    shutil.copytree(tmp_path / "delta_log/1/2/100", level_zero / "700")
    history = sawlog.read(tmp_path, view="history").sort_by([("100", "ascending"), ("_inserted", "ascending")])
    assert [value and value - NOW for value in history["_deleted"].to_pylist()] == [5, 30, 30, None, None, None]


@quiet
@pytest.mark.parametrize("removed_segments", [(), (100,), (100, 200)])
def test_what_was_compacted_counts_once(tmp_path: Path, removed_segments: tuple[int, ...]) -> None:
    """Sources take the place of what they became while all of them are there; deletes of what they became hit them."""
    root = tmp_path / "files"
    for segment, keys in ((100, [1, 2]), (200, [3]), (300, [2, 3])):
        write_collection(root, pa.table({"pk": keys, "_segment": [segment] * len(keys)}), first_id=segment * 10)
    delete(root, [1], [NOW + SECOND], 100, first_id=9000)
    delete(root, [3], [NOW + 9 * SECOND], 300, first_id=9100)
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND)
    server.partition(1, 2, "kept", 0, NOW - SECOND)
    for segment in (100, 200):
        server.segment(1, 2, segment, 6, NOW + 5 * SECOND)
        if segment in removed_segments:
            shutil.rmtree(root / f"insert_log/1/2/{segment}")
    server.put("datacoord-meta/s/1/2/300", message({1: 300, 2: 1, 3: 2, 6: 4, 15: [100, 200], 20: 2}))
    history = sawlog.read(root, view="history", metadata=server.save(tmp_path / "etcd.json")).to_pylist()
    row_tuples = sorted((row["pk"], row["_deleted"] and (row["_deleted"] - NOW) // SECOND) for row in history)
    assert row_tuples == ([(1, 1), (2, None), (3, 9)] if not removed_segments else [(2, None), (3, 9)])


@quiet
def test_history_keeps_its_bounds(tmp_path: Path) -> None:
    """Filters and counts see what is delivered; deletes may take only so much memory; single files have no history."""
    write_collection(tmp_path, pa.table({"pk": range(2000)}))
    delete(tmp_path, list(range(1000)), [NOW + 1 + i for i in range(1000)], 100, first_id=9000)
    dataset = sawlog.open(tmp_path, view="history", filters=[("_deleted", "<=", NOW + 10)], columns=["100"])
    assert dataset.to_table()["100"].to_pylist() == list(range(10))
    assert dataset.count_rows() == 10
    assert sawlog.open(tmp_path, view="history").count_rows() == 2000
    assert sawlog.open(tmp_path, view="history", as_of=NOW + 5).to_table()["_deleted"].null_count == 1995
    with pytest.raises(OptionError, match="max_delete_bytes"):
        sawlog.read(tmp_path, view="history", max_delete_bytes=1000)
    with pytest.raises(OptionError, match="above insert_log"):
        sawlog.read(GOLDEN / "synthetic" / "delta" / "json_stream", view="history")
