"""Charts: their numbers are those of the rows, they are bounded, and what is drawn leads to its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError
from sawlog.format.charts import (
    MAX_BOXES,
    MOST_LANES,
    TIME_BUCKETS,
    BarChart,
    KeySpan,
    LaneBox,
    Picture,
    RateChart,
    draw_key_ranges,
    render_key,
)
from sawlog.leveldb.log.dataset import LogContents
from sawlog.map import render, survey
from sawlog.map.content import ColumnStatistics
from tests.map.pictures import pictures, widths

SHOP = Path(__file__).parents[2] / "examples/data/shop"


def test_ranges_of_keys_are_as_wide_as_their_bytes() -> None:
    box = LaneBox(0, 0, "")
    spans = [
        KeySpan("level 0", b"a", b"z", 200, box),
        KeySpan("level 1", b"a", b"m", 599, box),
        KeySpan("level 1", b"n", b"z", 199, box),
    ]
    first, second = draw_key_ranges("", spans).lanes.values()
    assert [(box.start, box.end) for box in first] == [(0, 1)]
    (left_box, right) = second
    assert left_box.end - left_box.start > 2 * (right.end - right.start)
    assert left_box.end < right.start
    assert draw_key_ranges("", []).lanes == {}


def test_boxes_that_overlap_are_drawn_one_below_the_other() -> None:
    picture = Picture("", "number", {"lane": [LaneBox(0, 4, "a"), LaneBox(2, 6, "b"), LaneBox(4, 8, "c")]})
    (lane,) = picture.to_dict()["lanes"]
    assert [[box[2] for box in row] for row in lane["rows"]] == [["a", "c"], ["b"]]
    moments = Picture(
        "", "time", {"lane": [LaneBox(5, 5, "a"), LaneBox(5, 9, "b"), LaneBox(5, 5, "c"), LaneBox(9, 9, "d")]}
    )
    (lane,) = moments.to_dict()["lanes"]
    assert [[box[2] for box in row] for row in lane["rows"]] == [["a", "d"], ["c"], ["b"]]


def test_charts_are_bounded_and_say_so() -> None:
    many = {
        f"lane {lane}": [LaneBox(i, i + 1 + (i == 7), "x" * 1000, f"s{i % 2}") for i in range(5000)]
        for lane in range(60)
    }
    document = Picture("", "number", many).to_dict()
    drawn = [box for lane in document["lanes"] for row in lane["rows"] for box in row]
    assert len(document["lanes"]) == MOST_LANES
    assert len(drawn) == MAX_BOXES
    assert sum(box[1] - box[0] == 2 for box in drawn) == MOST_LANES
    assert document["note"] == f"Drawn are {MAX_BOXES} of 300,000."
    assert len(json.dumps(document)) < 300_000


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"", ""),
        (b"user:1", "user:1"),
        ("Zürich".encode(), "Zürich"),
        (b"\x00\xff", "0x00ff"),
        ("\u202edrow".encode(), "0xe280ae64726f77"),
        (b"<b>&", "<b>&"),
        (b"x" * 41, "x" * 40 + "…"),
        (("x" * 39 + "ü" * 9).encode(), "x" * 39 + "…"),
        (b"\xc3", "0xc3"),
        (b"\xff" * 50, f"0x{'ff' * 40}…"),
    ],
)
def test_keys_as_text(key: bytes, text: str) -> None:
    assert render_key(key) == text


def test_texts_of_charts_harm_nobody() -> None:
    evil = "\x1b[31m\u202e</script>"
    document = Picture(evil, "keys", {evil: [LaneBox(0, 1, evil, evil)]}, evil, (evil, evil)).to_dict()
    texts = [document["title"], document["note"], *document["ends"], *document["series"], document["lanes"][0]["label"]]
    assert all(text.isprintable() for text in [*texts, document["lanes"][0]["rows"][0][0][2]])


def test_bars_show_sums_and_shares() -> None:
    sums = BarChart("bytes")
    for lane, series, amount in (("a", "x", 3), ("a", "y", 1), ("a", "x", 4), ("b", "", 0)):
        sums.add(lane, series, amount)
    picture = sums.draw_picture("t", order=("y", "z"))
    assert [(box.start, box.end, box.text) for box in picture.lanes["a"]] == [
        (0, 1, "a: 1 byte y, 12.5%"),
        (1, 8, "a: 7 bytes x, 87.5%"),
    ]
    assert picture.lanes["b"] == [LaneBox(0, 0, "b: 0 bytes")]


@pytest.mark.parametrize("spread", [1, 10, 10**6, 10**17])
def test_rates_count_every_row_in_its_time(spread: int) -> None:
    dice = np.random.default_rng(spread)
    rates = RateChart()
    spreads = [dice.integers(-spread, spread, 1000) for _ in range(20)]
    for values in spreads:
        rates.add(values, np.full(len(values), 3))
    values = np.concatenate(spreads)
    expected = np.unique(values // rates.bucket_width, return_counts=True)
    buckets = list(rates.iterate_buckets())
    assert [(start, amount) for start, _, amount, _ in buckets] == list(
        zip((expected[0] * rates.bucket_width).tolist(), expected[1].tolist(), strict=True)
    )
    assert all(end - start == rates.bucket_width for start, end, _, _ in buckets)
    assert sum(amount for _, _, amount, _ in rates.iterate_buckets(1)) == 3 * len(values)
    assert len(buckets) <= TIME_BUCKETS
    assert max(height for *_, height in buckets) == 1


def test_rates_gaps_and_largest_rows_of_a_log(tmp_path: Path) -> None:
    times = np.cumsum(np.full(5000, 10))
    times[3000:] += 600_000
    texts = ["x"] * 5000
    texts[1234] = "y" * 9999
    table = pa.table({"t": pa.array(times).cast(pa.timestamp("ms", "UTC")), "s": texts, "n": [None, 1] * 2500})
    path = tmp_path / "t.bin"
    sawlog.write(table, path, format="deephaven_log")
    charts = pictures(path, timestamp_columns={"t": "ms"})
    offsets = sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()
    rate = charts["Rate along t"]
    (gap,) = rate.lanes["gaps"]
    assert (gap.start, gap.end, gap.offset) == (times[2999], times[3000], offsets[3000])
    assert "10 min without rows" in gap.text
    assert sum(int(box.text.split(" row")[0].replace(",", "")) for box in rate.lanes["rows"]) == 5000
    (lane, (largest,)) = next(iter(charts["Largest rows"].lanes.items()))
    assert (lane, largest.offset) == (f"at {offsets[1234]:,}", offsets[1234])
    assert largest.end == offsets[1235] - offsets[1234]
    assert widths(charts["Nulls by column"])["n"] == {"with values": 2500, "null": 2500}
    (file,) = survey(sawlog.open(path)).files
    assert any(excerpt.offset == largest.offset for excerpt in file.excerpts), "its bytes are in the page"


def test_estimates_never_exceed_what_is_possible() -> None:
    dice = np.random.default_rng(5)
    for seed in range(40):
        numbers = dice.permutation(4286) * (seed + 1)
        text = ColumnStatistics(pa.field("s", pa.string()))
        text.add(pa.array([f"{seed} {number}" for number in numbers]))
        narrow = ColumnStatistics(pa.field("n", pa.int32()))
        narrow.add(pa.array(np.repeat(dice.permutation(2000), 3), pa.int32()))
        assert text.distinct is not None
        assert text.distinct <= 4286
        assert narrow.distinct is not None
        assert narrow.distinct <= 2000


def test_a_chart_that_cannot_be_drawn_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LogContents, request: object) -> Iterator[Picture]:
        yield Picture("one", "number", {})
        raise FormatError("<b>no</b>")

    monkeypatch.setattr(LogContents, "draw_pictures", broken)
    file_map = survey(sawlog.open(SHOP, format="leveldb_log"))
    notes = {picture.title: picture.note for picture in file_map.pictures}
    assert "one" in notes, "what could be drawn is"
    assert notes["Charts of LevelDB / RocksDB log"] == "This could not be drawn: <b>no</b>"
    assert "<b>no</b>" not in render(file_map)
