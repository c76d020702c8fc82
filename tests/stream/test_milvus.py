"""Collections of Milvus as streams: batches and deletes as their files appear."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import OptionError
from sawlog.stream.follower import Follower
from sawlog.stream.limits import StreamOptions
from sawlog.stream.offset import Offset

FORMAT = "milvus_binlog"


def insert(root: Path, first: int, last: int, number: int) -> None:
    keys = list(range(first, last))
    table = pa.table({"id": pa.array(keys), "text": [f"row {key}" for key in keys]})
    sawlog.write(table, root, format=FORMAT, primary_key="id", timestamp=100, first_id=number * 1000)


def delete(root: Path, keys: list[int], number: int) -> None:
    table = pa.table({"pk": keys, "timestamp": [200] * len(keys), "segment": [number] * len(keys)})
    table = table.append_column("partition", pa.array([2] * len(keys)))
    sawlog.write(table, root, format=FORMAT, content="deletes", first_id=number * 1000 + 500)


class Stream:
    def __init__(self, root: Path, view: str, offset: Offset | None = None, **options: Any) -> None:
        dataset = sawlog.open(root, format=FORMAT, view=view)
        self.follower = Follower.of(dataset.contents, [str(root)], dataset.scan, StreamOptions(**options))
        self.offset = offset or Offset()

    def step(self) -> list[int]:
        end = self.follower.find_latest(self.offset)
        if end is self.offset:
            return []
        fragments = self.follower.list_fragments(self.offset, end)
        self.offset = end
        return [key for fragment in fragments for batch in fragment.to_batches() for key in batch.column(0).to_pylist()]

    def drain(self) -> list[int]:
        keys_read = []
        before = None
        while before is not self.offset:
            before = self.offset
            keys_read += self.step()
        return keys_read


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_batches_arrive_once_whatever_else_lies_there(tmp_path: Path, limit: int) -> None:
    insert(tmp_path, 0, 10, 1)
    delete(tmp_path, [3], 1)
    inserts = Stream(tmp_path, "inserts", maxfilespertrigger=limit)
    deletes = Stream(tmp_path, "deletes", maxfilespertrigger=limit)
    assert inserts.drain() == list(range(10))
    assert deletes.drain() == [3]
    insert(tmp_path, 10, 20, 2)
    delete(tmp_path, [11, 12], 2)
    assert inserts.drain() == list(range(10, 20))
    assert deletes.drain() == [11, 12]
    again = Stream(tmp_path, "inserts", inserts.offset)
    insert(tmp_path, 20, 21, 3)
    assert again.drain() == [20]
    assert again.step() == []


def test_a_batch_waits_for_all_of_its_files(tmp_path: Path) -> None:
    root, other_path = tmp_path / "root", tmp_path / "other"
    insert(root, 0, 5, 1)
    stream = Stream(root, "inserts")
    stream.drain()
    insert(other_path, 5, 9, 2)
    for path in sorted(path for path in (other_path / "insert_log").rglob("*") if path.is_file()):
        target = root / path.relative_to(other_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes()[:-10])
        assert stream.drain() == []
        shutil.copy(path, target)
    assert stream.drain() == [5, 6, 7, 8]


def test_rows_less_deletes_are_no_stream(tmp_path: Path) -> None:
    insert(tmp_path, 0, 5, 1)
    with pytest.raises(
        OptionError, match=r"view 'rows' of milvus_binlog cannot be followed .* 'inserts' and 'deletes'"
    ):
        Stream(tmp_path, "rows").step()
