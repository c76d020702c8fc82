"""Maps of one line, in terminals and notebooks."""

from __future__ import annotations

from pathlib import Path

import sawlog
from sawlog.map import strip
from tests.support import write_records


def damaged(path: Path) -> Path:
    write_records(path, [b"x" * 1000] * 400)
    data = bytearray(path.read_bytes())
    data[200_000] ^= 1
    path.write_bytes(data[:-100])
    return path


def test_cells_show_damage_before_all(tmp_path: Path) -> None:
    (file,) = strip.make_strips(sawlog.open(damaged(tmp_path / "000001.log")))
    cells = strip.choose_cells(file, 40)
    assert len(cells) == 40
    assert set(cells) == {"record", "damage", "tail"}
    assert cells[200_000 * 40 // file.size] == "damage"
    assert cells[-1] == "tail"
    assert set(strip.choose_cells(file, 5000)) >= {"record", "damage"}


def test_what_is_large_is_not_read_for_a_strip(tmp_path: Path) -> None:
    with (tmp_path / "000001.log").open("wb") as file:
        file.truncate(strip.STRIP_BYTES + 1)
    assert strip.make_strips(sawlog.open(tmp_path / "000001.log", format="leveldb_log")) == []


def test_notebooks_show_a_strip_and_nothing_that_runs(tmp_path: Path) -> None:
    place = tmp_path / "<script>"
    place.mkdir()
    html = sawlog.open(damaged(place / "000001.log"), on_damage="skip")._repr_html_()
    assert "<svg" in html
    assert strip.COLOURS["damage"] in html
    assert "<script" not in html
