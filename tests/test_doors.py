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
from sawlog.errors import OptionError
from sawlog.format.options import parse_options
from sawlog.spark.options import read_request, write_request
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
FRAMES = {name: one for name, one in TABLES.items() if name != "leveldb_log"}


def written(place: Path, format: str) -> Path:
    path = place / f"one{sawlog.formats()[format].suffix}"
    more = {"table": "gauge"} if format == "filodb_record" else {}
    sawlog.write(TABLES[format], path, format=format, **more)
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
    path = written(tmp_path, format)
    frames = sawlog.open(path, format=format, view="frames")
    assert frames.count_rows() > 0
    (own,) = sawlog.formats()[format].aliases
    named = sawlog.open(path, format=format, view=own)
    assert (named.scan.view, named.to_table()) == ("frames", frames.to_table())
    assert sawlog.open(path, view=own).format.name == format
    assert main(["cat", str(path), "--format", format, "--view", own, "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == frames.count_rows()
    assert main(["info", str(path), "--format", format, "--json"]) == 0
    assert {own, "frames"} < set(json.loads(capsys.readouterr().out)["views"])


def test_the_page_names_the_views_that_formats_share() -> None:
    page = page_table("view")
    for name, format in sawlog.formats().items():
        if name in page["rows"]:
            assert page["frames"][name] == ", ".join(format.aliases)
            assert ("frames" in format.views) is bool(format.aliases)


OPTIONS = page_table("option")
SHARED = [name for name in OPTIONS if name != "old names"]


def test_the_page_names_the_options_that_formats_share() -> None:
    known: Counter[str] = Counter()
    for name, format in sawlog.formats().items():
        options = {one.name: hint for one in fields(format.read_options) for hint in (hints(format)[one.name],)}
        known.update(list(options))
        if name in OPTIONS["table"]:
            assert [one for one in SHARED if OPTIONS[one][name]] == [one for one in SHARED if one in options], name
            for one in {"salvage", "deletes"} & options.keys():
                assert OPTIONS[one][name] == ", ".join(values(options[one]))
            assert OPTIONS["old names"][name] == ", ".join(getattr(format.read_options, "old", {}))
    assert {name for name, count in known.items() if count > 2} == {"table", "schema", "salvage", "max_item_bytes"} | {
        "verify_checksums"
    }
    assert page_table("shared option").keys() == set(SHARED)


def hints(format: sawlog.Format) -> dict[str, Any]:
    return get_type_hints(format.read_options)


def values(hint: Any) -> tuple[str, ...]:
    """What a Literal, or a tuple of them, takes."""
    first = get_args(hint)[0]
    return get_args(hint) if isinstance(first, str) else get_args(first)


OLD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("leveldb_log", {"max_record_bytes": "7"}, {"max_item_bytes": 7}),
    ("leveldb_log", {"resync": True}, {"salvage": ("damaged",)}),
    ("leveldb_log", {"resync": "true", "stale": "include"}, {"salvage": ("damaged", "stale")}),
    ("leveldb_log", {"resync": "no", "stale": "ignore"}, {"salvage": ()}),
    ("leveldb_log", {"schema": "infer", "kind": "users"}, {"properties": "infer", "table": "users"}),
    ("leveldb_table", {"max_block_bytes": 7}, {"max_item_bytes": 7}),
    ("leveldb_database", {"column_family": "other", "orphans": True}, {"table": "other", "salvage": ("orphans",)}),
    ("leveldb_database", {"max_blob_bytes": 7}, {"max_item_bytes": 7}),
    ("leveldb_database", {"max_block_bytes": 7}, {"max_item_bytes": 7}),
    ("deephaven_log", {"max_entry_bytes": 70}, {"max_item_bytes": 70}),
    ("deephaven_log", {"incomplete": "emit"}, {"salvage": ("incomplete",), "incomplete": "drop"}),
    ("deephaven_log", {"force": "true"}, {"salvage": ("unknown_versions",)}),
    ("milvus_binlog", {"collection": "goods", "max_page_bytes": 7}, {"table": "goods", "max_item_bytes": 7}),
    ("milvus_binlog", {"deletes": "all"}, {"deletes": "apply"}),
    ("filodb_record", {"schema": "gauge, prom-counter"}, {"table": ("gauge", "prom-counter"), "schema": None}),
    ("filodb_record", {"schema": ["gauge"]}, {"table": ("gauge",)}),
    ("filodb_record", {"unknown_schemas": "raw"}, {"salvage": ("unknown_schemas",)}),
    ("filodb_record", {"unknown_schemas": "damage"}, {"salvage": ()}),
]


@pytest.mark.parametrize(("format", "old", "new"), OLD, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_old_options_are_new_ones(format: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match=f"^reading {format}: option .* is deprecated; ") as told:
        found = parse_options(sawlog.formats()[format].read_options, old, where=f"reading {format}")
    assert {name: getattr(found, name) for name in new} == new
    assert len(told) == len(old)


def test_definitions_of_schemas_keep_their_old_name_and_are_told_from_names(tmp_path: Path) -> None:
    read = sawlog.formats()["filodb_record"].read_options
    place = tmp_path / "defs.toml"
    place.write_text('[schemas.mine]\ncolumns = ["timestamp:ts", "v:double"]\n')
    with pytest.warns(DeprecationWarning, match="option schemas is deprecated; use schema$"):
        old = parse_options(read, {"schemas": str(place)}, where="reading")
    assert list(parse_options(read, {"schema": str(place)}, where="reading").known) == list(old.known) == ["mine"]
    with pytest.warns(DeprecationWarning, match="deprecated; use (schema|table)$"):
        both = parse_options(read, {"schemas": old.known, "schema": "mine"}, where="reading")
    assert (both.known, both.table) == (old.known, ("mine",))


def test_every_old_name_is_tried() -> None:
    tried = {(format, name) for format, old, _ in OLD for name in old} | {("filodb_record", "schemas")}
    known = {(name, old) for name, one in sawlog.formats().items() for old in getattr(one.read_options, "old", {})}
    assert known - tried == {("tfrecord", "max_record_bytes")} & known


def test_an_option_is_given_by_one_name() -> None:
    with (
        pytest.warns(DeprecationWarning, match="use table"),
        pytest.raises(OptionError, match="option table is given twice"),
    ):
        parse_options(
            sawlog.formats()["milvus_binlog"].read_options, {"table": "a", "collection": "b"}, where="reading"
        )


VERBS: dict[str, Callable[[Path, Path], object]] = {
    "open": lambda path, _: sawlog.open(path, format="leveldb_log", resync=False),
    "read": lambda path, _: sawlog.read(path, format="leveldb_log", resync=False),
    "verify": lambda path, _: sawlog.verify(path, format="leveldb_log", resync=False),
    "repair": lambda path, to: sawlog.repair(path, to, format="leveldb_log", resync=False),
    "write": lambda _, to: sawlog.write(TABLES["filodb_record"], to, format="filodb_record", schema="gauge"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_old_options_point_at_the_line_that_gives_them(verb: str, tmp_path: Path) -> None:
    path = written(tmp_path, "leveldb_log")
    with pytest.warns(DeprecationWarning, match=r"option \w+ is deprecated") as told:
        VERBS[verb](path, tmp_path / "copy")
    (one,) = told
    line = next(number for number, text in lines() if text.strip().startswith(f'"{verb}": lambda'))
    assert (one.filename, one.lineno) == (__file__, line)


def lines() -> list[tuple[int, str]]:
    return list(enumerate(Path(__file__).read_text().splitlines(), 1))


WARNING: dict[str, Callable[[Path], object]] = {
    "to_table": lambda path: sawlog.open(path, on_damage="skip").to_table(),
    "read": lambda path: sawlog.read(path, on_damage="skip"),
    "batches": lambda path: list(sawlog.open(path, on_damage="skip").to_batches()),
    "fragment": lambda path: [list(one.to_batches()) for one in sawlog.open(path, on_damage="skip").fragments()],
    "count": lambda path: sawlog.open(path, on_damage="skip").count_rows(),
    "arrow": lambda path: pa.table(sawlog.open(path, on_damage="skip").to_reader().read_all()),
}


@pytest.mark.parametrize("format", ["leveldb_log", "leveldb_table", "deephaven_log", "filodb_record"])
@pytest.mark.parametrize("verb", WARNING)
def test_warnings_point_at_the_line_that_asks(verb: str, format: str, tmp_path: Path) -> None:
    path = written(tmp_path, format)
    path.write_bytes(path.read_bytes()[:-3])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        WARNING[verb](path)
    line = next(number for number, text in lines() if text.strip().startswith(f'"{verb}": lambda path:'))
    assert told
    assert {(one.filename, one.lineno) for one in told} == {(__file__, line)}


def test_the_command_line_takes_old_options_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "leveldb_log")
    assert main(["cat", str(path), "--json", "-o", "resync=true"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err == ("sawlog: warning: reading leveldb_log: option resync is deprecated; use salvage=damaged\n")


def test_spark_takes_old_options_and_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, "leveldb_log")
    with pytest.warns(DeprecationWarning, match="option resync is deprecated; use salvage=damaged"):
        dataset = read_request({"path": str(path), "resync": "true"}, "leveldb_log").open()
    assert dataset.schema.names == ["record", "recovered"]
    with pytest.warns(DeprecationWarning, match="option schema is deprecated; use table"):
        _, _, options = write_request({"path": str(tmp_path / "new"), "schema": "gauge"}, "filodb_record")
    assert options.table == "gauge"
    with pytest.raises(OptionError, match="unknown option 'resink'"):
        read_request({"path": str(path), "resink": "true"}, "leveldb_log").open()
