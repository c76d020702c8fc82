"""Charts of containers: their records by schema, and the times of their series."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import sawlog
from tests.map.pictures import pictures, widths

GOLDEN = Path(__file__).parents[1] / "golden" / "filodb"


@pytest.mark.parametrize("name", ["gauge_100", "mixed_schemas_4", "otel_exp_delta_histogram_10"])
def test_charts_show_records_by_schema_and_series_by_time(name: str) -> None:
    path = GOLDEN / f"{name}.container"
    columns = ["_schema", "_metric_", "_hash", "timestamp", "_offset"]
    rows = sawlog.read(path, columns=columns).to_pylist()
    charts = pictures(path)
    counted = {lane: lane_widths[""] for lane, lane_widths in widths(charts["Records by schema"]).items()}
    assert counted == Counter(row["_schema"] for row in rows)
    expected: dict[tuple[str, int], list[dict[str, object]]] = {}
    for row in rows:
        expected.setdefault((row["_metric_"], row["_hash"]), []).append(row)
    lanes = charts["Series by metric and time"].lanes
    assert sum(map(len, lanes.values())) == len(expected)
    for (metric, number), series_rows in expected.items():
        (box,) = (candidate for candidate in lanes[metric] if f"partition hash {number}:" in candidate.text)
        times = [row["timestamp"].timestamp() * 1000 for row in series_rows]  # type: ignore[attr-defined]
        assert (box.start, box.end) == (min(times), max(times))
        assert (box.path, box.offset) == (str(path), min(row["_offset"] for row in series_rows))  # type: ignore[type-var]
        assert f": {len(series_rows):,} record{'s' if len(series_rows) > 1 else ''}, " in box.text


def test_records_without_series_have_no_such_chart() -> None:
    assert "Series by metric and time" not in pictures(GOLDEN / "no_partition_5.container")
