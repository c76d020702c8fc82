"""Charts of collections: their segments, rows and deletes are those that the server has recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sawlog.format.charts import Picture
from tests.map.pictures import pictures, widths

from .support import GOLDEN, id_of, manifest

NAME = "2.3.5-compacted"


def drawn(collection: str, **options: Any) -> dict[str, Picture]:
    id, metadata = id_of(NAME, collection), str(GOLDEN / NAME / "etcd.json")
    return pictures(GOLDEN / NAME, table=id, metadata=metadata, **options)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("collection", manifest(NAME))
def test_segments_rows_and_deletes(collection: str) -> None:
    found = drawn(collection)
    segments = manifest(NAME)[collection]["segments"]
    boxes = [box for boxes in found["Segments by partition and time"].lanes.values() for box in boxes]
    assert sorted((box.start, box.end) for box in boxes) == sorted(
        (one["min_ts"] >> 18, one["max_ts"] >> 18) for one in segments
    )
    for one in segments:
        (box,) = (box for box in boxes if f"segment {one['segment']}:" in box.text)
        assert f"{one['rows']:,} rows, {one['deletes']:,} deletes of its own" in box.text
        assert f"state {one['state'].lower()}" in box.text
        assert f"/{one['segment']}/" in box.path
        assert Path(box.path).is_file()
        assert (box.series == "not read") == (one["state"] == "Dropped")
    rows = widths(found["Rows by partition"])
    assert sum(sum(one.values()) for one in rows.values()) == sum(one["rows"] for one in segments)
    if deletes := sum(one["deletes"] for one in segments):
        boxes = found["Deletes over time"].lanes["deletes"]  # type: ignore[assignment]
        assert sum(int(box.text.split(" ")[0].replace(",", "")) for box in boxes) == deletes


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_as_of_sees() -> None:
    collection = next(iter(manifest(NAME)))
    segments = manifest(NAME)[collection]["segments"]
    first = min(segments, key=lambda one: one["max_ts"])
    found = drawn(collection, as_of=first["max_ts"] + (1 << 18))
    lanes = found["Segments by partition and time"].lanes
    (seen,) = lanes["as_of"]
    assert seen.end == (first["max_ts"] >> 18) + 1
    read = [box.text for name, boxes in lanes.items() for box in boxes if box.series == "read"]
    assert any(f"segment {first['segment']}:" in text for text in read), "it was alive then"
    merged = next(one for one in segments if one["made_by_compaction"])
    assert not any(f"segment {merged['segment']}:" in text for text in read)
    assert {box.series for box in found["Deletes over time"].lanes["deletes"]} == {"deletes after as_of"}
