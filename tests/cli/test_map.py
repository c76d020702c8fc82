"""`sawlog map`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

import sawlog

from .conftest import Run


def test_a_map_is_a_page_in_a_file(run: Run, log: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "map.html"
    done = run("map", log, "--output", page)
    assert (done.code, done.err) == (0, "")
    assert str(page) in done.out
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert [path.name for path in page.parent.iterdir()] == ["map.html"]


def test_damage_is_the_exit_code_and_the_data_equal_verify(run: Run, damaged: Path) -> None:
    done = run("map", damaged, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    report = sawlog.verify(damaged)
    assert document["bytes"] == report.to_dict()["bytes"]
    assert document["files"][0]["damages"] == report.to_dict()["files"][0]["damages"]
    assert document["rows"] == report.rows


def test_a_map_goes_to_standard_output(run: Run, log: Path) -> None:
    assert run("map", log, "--output", "-").out.startswith("<!doctype html>")


def test_o_is_for_options_and_still_names_the_page(run: Run, damaged: Path, tmp_path: Path) -> None:
    page = tmp_path / "map.html"
    result = run("map", damaged, "-o", "verify_checksums=false", "-o", page)
    assert result.code == 0, "no checksum is looked at"
    assert page.exists()
    warning = f"sawlog: warning: -o {page}: names the page with --output; -o is for options of the format\n"
    assert result.err == warning
    assert "unknown option 'a'" in run("map", damaged, "-o", "a=b.html").err


def test_open_shows_the_page(run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(urls.append(url)) or len(urls) < 2)
    page = tmp_path / "map.html"
    assert run("map", log, "--output", page, "--open").err == ""
    assert urls == [page.as_uri()]
    assert "no browser" in run("map", log, "--output", page, "--open").err


def test_a_file_of_no_format_has_no_map(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing known")
    done = run("map", tmp_path / "x", "--output", tmp_path / "map.html")
    assert done.code == 2
    assert not (tmp_path / "map.html").exists()
