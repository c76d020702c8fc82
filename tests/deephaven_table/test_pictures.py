"""Charts of column files: rows by partition, and bytes by column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import sawlog
from tests.map.pictures import pictures, widths


def test_charts_show_rows_by_partition_and_bytes_by_column(tmp_path: Path) -> None:
    counts = {"2024-05-06": 300, "2024-05-07": 200}
    for day, count in counts.items():
        numbers = list(range(count))
        table = pa.table({"Sym": ["a", "b"] * (count // 2), "Size": [None, *numbers[1:]], "Px": [0.5] * count})
        sawlog.write(table, tmp_path / day / "Trades", format="deephaven_table")
    charts = pictures(tmp_path)
    rows = widths(charts["Rows by partition"])
    assert {lane.split("/")[0]: sum(widths.values()) for lane, widths in rows.items()} == counts
    sizes = widths(charts["Bytes by column and kind of file"])
    assert {lane.split(": ")[1] for lane in sizes} == {"String", "long", "double"}
    for lane, by_suffix in sizes.items():
        for suffix, size in by_suffix.items():
            files = tmp_path.rglob(lane.split(":")[0] + suffix)
            assert size == sum(file.stat().st_size for file in files)
    assert widths(charts["Nulls by column"])["Size"] == {"with values": 498, "null": 2}
    assert all(Path(box.path).is_file() for boxes in charts["Rows by partition"].lanes.values() for box in boxes)
