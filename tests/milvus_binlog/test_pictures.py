"""Charts of collections: their segments, rows and deletes are those that the server has recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sawlog.format.charts import Picture
from tests.map.pictures import pictures, widths

from .support import GOLDEN, id_of, manifest

NAME = "2.3.5-compacted"


def draw_charts(collection: str, **options: Any) -> dict[str, Picture]:
    id, metadata = id_of(NAME, collection), str(GOLDEN / NAME / "etcd.json")
    return pictures(GOLDEN / NAME, table=id, metadata=metadata, **options)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("collection", manifest(NAME))
def test_charts_show_segments_rows_and_deletes(collection: str) -> None:
    charts = draw_charts(collection)
    segments = manifest(NAME)[collection]["segments"]
    boxes = [box for boxes in charts["Segments by partition and time"].lanes.values() for box in boxes]
    assert sorted((box.start, box.end) for box in boxes) == sorted(
        (segment["min_ts"] >> 18, segment["max_ts"] >> 18) for segment in segments
    )
    for segment in segments:
        (box,) = (box for box in boxes if f"segment {segment['segment']}:" in box.text)
        assert f"{segment['rows']:,} rows, {segment['deletes']:,} deletes of its own" in box.text
        assert f"state {segment['state'].lower()}" in box.text
        assert f"/{segment['segment']}/" in box.path
        assert Path(box.path).is_file()
        assert (box.series == "not read") == (segment["state"] == "Dropped")
    rows = widths(charts["Rows by partition"])
    assert sum(sum(row.values()) for row in rows.values()) == sum(segment["rows"] for segment in segments)
    if deletes := sum(segment["deletes"] for segment in segments):
        boxes = charts["Deletes over time"].lanes["deletes"]  # type: ignore[assignment]
        assert sum(int(box.text.split(" ")[0].replace(",", "")) for box in boxes) == deletes


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_as_of_sees() -> None:
    collection = next(iter(manifest(NAME)))
    segments = manifest(NAME)[collection]["segments"]
    first = min(segments, key=lambda segment: segment["max_ts"])
    charts = draw_charts(collection, as_of=first["max_ts"] + (1 << 18))
    lanes = charts["Segments by partition and time"].lanes
    (box,) = lanes["as_of"]
    assert box.end == (first["max_ts"] >> 18) + 1
    read = [box.text for name, boxes in lanes.items() for box in boxes if box.series == "read"]
    assert any(f"segment {first['segment']}:" in text for text in read), "it was alive then"
    merged = next(segment for segment in segments if segment["made_by_compaction"])
    assert not any(f"segment {merged['segment']}:" in text for text in read)
    assert {box.series for box in charts["Deletes over time"].lanes["deletes"]} == {"deletes after as_of"}
