"""What users type means one thing in all formats, whichever way they come in."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pytest

import sawlog
from sawlog.cli import main
from tests.documents import ROOT

PAGE = ROOT / "docs" / "formats" / "index.md"
RECORDS = pa.table({"record": pa.array([b"one", b"two"], pa.binary())})
TABLES = {
    "leveldb_log": RECORDS,
    "leveldb_table": pa.table({"sequence": pa.array([1], pa.uint64()), "key": [b"a"], "value": [b"1"]}),
    "deephaven_log": pa.table({"N": pa.array([1, 2, 3], pa.int32())}),
    "filodb_record": pa.table(
        {
            "timestamp": pa.array([1], pa.timestamp("ms", "UTC")),
            "value": [1.5],
            "_metric_": ["cpu"],
            "tags": pa.array([[("_ws_", "a"), ("_ns_", "b")]], pa.map_(pa.string(), pa.string())),
        }
    ),
    "milvus_binlog": pa.table({"id": pa.array([1, 2], pa.int64()), "x": [0.5, 0.25]}),
}
FRAMES = {name: table for name, table in TABLES.items() if name != "leveldb_log"}


def write_sample(place: Path, format: str) -> Path:
    path = place / f"one{sawlog.formats()[format].suffix}"
    write_options = {"table": "gauge"} if format == "filodb_record" else {}
    sawlog.write(TABLES[format], path, format=format, **write_options)
    return path


def page_table(first: str) -> dict[str, dict[str, str]]:
    """The table of the page whose first column has this name: cells by row and column, without backquotes."""
    lines = PAGE.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    header, _, *rows = (
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in lines[begin : lines.index("", begin)]
    )
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


@pytest.mark.parametrize("format", FRAMES)
def test_frames_are_shown_by_their_name_and_by_the_formats_own(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sample(tmp_path, format)
    frames = sawlog.open(path, format=format, view="frames")
    assert frames.count_rows() > 0
    (alias,) = sawlog.formats()[format].aliases
    named = sawlog.open(path, format=format, view=alias)
    assert (named.scan.view, named.to_table()) == ("frames", frames.to_table())
    assert sawlog.open(path, view=alias).format.name == format
    assert main(["cat", str(path), "--format", format, "--view", alias, "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == frames.count_rows()
    assert main(["info", str(path), "--format", format, "--json"]) == 0
    assert {alias, "frames"} < set(json.loads(capsys.readouterr().out)["views"])


def test_the_page_names_the_views_that_formats_share() -> None:
    page = page_table("view")
    for name, format in sawlog.formats().items():
        if name in page["rows"]:
            assert page["frames"][name] == ", ".join(format.aliases)
            assert ("frames" in format.views) is bool(format.aliases)


OPTIONS = page_table("option")
SHARED = list(OPTIONS)


def test_the_page_names_the_options_that_formats_share() -> None:
    counts: Counter[str] = Counter()
    for name, format in sawlog.formats().items():
        options = {field.name: hint for field in fields(format.read_options) for hint in (hints(format)[field.name],)}
        counts.update(list(options))
        if name in OPTIONS["table"]:
            assert [option for option in SHARED if OPTIONS[option][name]] == [
                option for option in SHARED if option in options
            ], name
            for option in {"salvage", "deletes"} & options.keys():
                assert OPTIONS[option][name] == ", ".join(values(options[option]))
    assert {name for name, count in counts.items() if count > 2} == {"table", "schema", "salvage", "max_item_bytes"} | {
        "verify_checksums"
    }
    assert page_table("shared option").keys() == set(SHARED)


def hints(format: sawlog.Format) -> dict[str, Any]:
    return get_type_hints(format.read_options)


def values(hint: Any) -> tuple[str, ...]:
    """What a Literal, or a tuple of them, takes."""
    first = get_args(hint)[0]
    return get_args(hint) if isinstance(first, str) else get_args(first)


def lines() -> list[tuple[int, str]]:
    return list(enumerate(Path(__file__).read_text().splitlines(), 1))


WARNING: dict[str, Callable[[Path], object]] = {
    "to_table": lambda path: sawlog.open(path, on_damage="skip").to_table(),
    "read": lambda path: sawlog.read(path, on_damage="skip"),
    "batches": lambda path: list(sawlog.open(path, on_damage="skip").to_batches()),
    "fragment": lambda path: [list(f.to_batches()) for f in sawlog.open(path, on_damage="skip").fragments()],
    "count": lambda path: sawlog.open(path, on_damage="skip").count_rows(),
    "arrow": lambda path: pa.table(sawlog.open(path, on_damage="skip").to_reader().read_all()),
}


@pytest.mark.parametrize("format", ["leveldb_log", "leveldb_table", "deephaven_log", "filodb_record"])
@pytest.mark.parametrize("verb", WARNING)
def test_warnings_point_at_the_line_that_asks(verb: str, format: str, tmp_path: Path) -> None:
    path = write_sample(tmp_path, format)
    path.write_bytes(path.read_bytes()[:-3])
    with warnings.catch_warnings(record=True) as warning_records:
        warnings.simplefilter("always")
        WARNING[verb](path)
    line = next(number for number, text in lines() if text.strip().startswith(f'"{verb}": lambda path:'))
    assert warning_records
    assert {(record.filename, record.lineno) for record in warning_records} == {(__file__, line)}
