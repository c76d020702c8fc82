"""info, cat, verify, repair, formats, warm-up: what they print, and their exit codes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import sawlog
from sawlog.cli.cards import make_option_cards, parse_attribute_docs
from sawlog.format.printing import unescape
from sawlog.kernels.jit import MODE
from sawlog.spark import jvm
from tests.cli.conftest import RECORDS, Run, write_log


def test_info_says_format_view_and_schema(run: Run, log: Path) -> None:
    result = run("info", log)
    assert (result.code, result.err) == (0, "")
    assert "leveldb_log" in result.out
    assert "rows " in result.out
    assert "binary not null" in result.out
    document = json.loads(run("info", log, "--json", "--view", "damage").out)
    assert document["size"] == log.stat().st_size
    assert document["format"] == "leveldb_log"
    assert [column["name"] for column in document["schema"]] == sawlog.open(log, view="damage").schema.names
    assert "rows" not in document


def test_info_counts_on_request(run: Run, log: Path, torn: Path, damaged: Path) -> None:
    assert json.loads(run("info", log, "--count", "--json").out)["rows"] == len(RECORDS)
    document = json.loads(run("info", torn, "--count", "--json").out)
    assert document["rows"] == len(RECORDS) - 1
    assert document["tails"][str(torn)]["status"] == "torn"
    result = run("info", damaged, "--count")
    assert result.code == 1
    assert "skipped" in result.err


def test_cat_shows_rows_as_a_table(run: Run, log: Path) -> None:
    result = run("cat", log)
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[:2] == ["record", "binary"]
    assert [unescape(line) for line in lines[2:]] == RECORDS


def test_cat_shows_rows_as_json_lines(run: Run, log: Path) -> None:
    rows = [json.loads(line) for line in run("cat", log, "--json").out.splitlines()]
    assert [unescape(row["record"]) for row in rows] == RECORDS
    assert run("cat", log, "--output", "jsonl").out == run("cat", log, "--json").out


def test_cat_shows_rows_as_csv(run: Run, log: Path) -> None:
    csv.field_size_limit(1 << 20)
    rows = list(csv.DictReader(io.StringIO(run("cat", log, "--output", "csv").out)))
    assert [unescape(row["record"]) for row in rows] == RECORDS


def test_cat_chooses_rows_and_columns(run: Run, log: Path) -> None:
    result = run("cat", log, "--columns", "_offset,record", "--filter", "record in (n1, n3)", "--json")
    assert [json.loads(line)["record"] for line in result.out.splitlines()] == ["n1", "n3"]
    offset = json.loads(result.out.splitlines()[0])["_offset"]
    again = run("cat", log, "--filter", f"_offset>={offset}", "--limit", 2, "--provenance", "--json")
    assert [json.loads(line)["record"] for line in again.out.splitlines()] == ["n1", "n2"]
    assert json.loads(again.out.splitlines()[0])["_file"] == str(log)
    assert run("cat", log, "--filter", r"record = caf\xc3\xa9 \\ \xff\x00", "--json").out.count("\n") == 1
    assert run("cat", log, "--limit", 0).out == "record\nbinary\n"
    assert run("cat", log, "--limit", 0, "--output", "csv").out == '"record"\n'


def test_cat_shows_what_is_intact_and_says_what_is_not(run: Run, damaged: Path, torn: Path) -> None:
    result = run("cat", damaged, "--json")
    rows = [json.loads(line)["record"] for line in result.out.splitlines()]
    assert rows == [json.loads(line)["record"] for line in run("cat", damaged, "--json").out.splitlines()]
    assert "n0" in rows
    assert len(rows) == len(RECORDS) - 1
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    assert f"{damaged}: skipped" in result.err
    result = run("cat", torn)
    assert result.code == 0
    assert f"{torn}: torn tail of" in result.err


def test_cat_fails_on_request(run: Run, damaged: Path) -> None:
    result = run("cat", damaged, "--on-damage", "fail", "--json")
    assert result.code == 1
    assert len(result.out.splitlines()) == 4
    assert len(result.err.splitlines()) == 1
    assert "--on-damage skip" in result.err


def test_cat_takes_several_paths(run: Run, log: Path, tmp_path: Path) -> None:
    other_log = write_log(tmp_path / "000010.log", [b"other"])
    assert len(run("cat", log, other_log, "--json").out.splitlines()) == len(RECORDS) + 1


def test_verify_says_what_is_clean_torn_and_damaged(run: Run, log: Path, damaged: Path, torn: Path) -> None:
    result = run("verify", log)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("clean")
    assert run("verify", torn).code == 0
    assert "torn from byte" in run("verify", torn).out
    result = run("verify", log, damaged)
    assert result.code == 1
    assert "checksum_mismatch at byte" in result.out
    assert result.out.splitlines()[-1].startswith("2 files: 1 clean, 1 damaged;")
    document = json.loads(run("verify", log, damaged, "--json").out)
    assert [path["damaged"] for path in document["paths"]] == [False, True]
    assert document["paths"][1]["files"] == [file.to_dict() for file in sawlog.verify(damaged).files]
    assert sum(document["bytes"].values()) == log.stat().st_size + damaged.stat().st_size


def test_verify_goes_on_past_what_is_unusable(run: Run, log: Path, tmp_path: Path) -> None:
    result = run("verify", tmp_path / "nothing", log)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "clean" in result.out
    result = run("verify", tmp_path / "nothing", log, "--json")
    document = json.loads(result.out)
    assert "no such file" in document["paths"][0]["error"]
    assert document["paths"][1]["damaged"] is False


def test_verify_lists_every_damage_on_request(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    write_log(path, [b"intact", *([b"y" * 100] * 400_000)])
    data = bytearray(path.read_bytes())
    for block in range(1, len(data) // 32768):
        data[block * 32768 + 200] ^= 1
    path.write_bytes(data)
    report = sawlog.verify(path).files[0]
    assert sum(report.kinds.values()) > len(report.damages), "otherwise the list is complete anyhow"
    short = run("verify", path)
    assert short.out.count(" at byte ") == 10
    assert "verify --all lists them" in short.out
    assert run("verify", path, "--all").out.count(" at byte ") == sum(report.kinds.values())
    listed = json.loads(run("verify", path, "--all", "--json").out)["paths"][0]["files"][0]["damages"]
    assert len(listed) == sum(report.kinds.values())
    assert listed[: len(report.damages)] == report.to_dict()["damages"]


def test_nested_values_are_shown_without_what_is_null(run: Run, tmp_path: Path) -> None:
    edit = bytes([7, 0, 5, 100, 9, *b"aaaaaaaaa", 9, *b"zzzzzzzzz"])  # file 5 of 100 bytes, added at level 0
    write_log(tmp_path / "MANIFEST-000001", [edit])
    result = run("cat", tmp_path / "MANIFEST-000001", "--view", "edits", "--columns", "new_files")
    name, kind, row = result.out.splitlines()
    assert (name.strip(), kind.strip()) == ("new_files", "list<struct>")
    assert '"file":5,"size":100' in row
    assert "null" not in row


def test_verify_looks_into_records_through_a_view(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    write_log(path, [b"no write batch"])
    assert run("verify", path).code == 0
    result = run("verify", path, "--view", "writes")
    assert result.code == 4
    assert "tag 0x63 at byte 12" in result.out


def test_repair_keeps_intact_rows_and_says_what_is_lost(
    run: Run, log: Path, damaged: Path, torn: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new" / "000001.log"
    assert run("repair", log, new).code == 0
    assert new.read_bytes() == log.read_bytes()
    result = run("repair", damaged, new)
    assert result.code == 3
    assert f"kept      {len(RECORDS) - 1} rows" in result.out
    assert "something lost" in result.out
    assert sawlog.read(new).column("record").to_pylist() == [record for record in RECORDS if len(record) < 1000]
    result = run("repair", torn, new, "--json")
    assert result.code == 0
    assert json.loads(result.out)["outcome"] == "everything kept"
    assert json.loads(result.out)["bytes"]["tail"] > 0


def test_repair_of_ruins(run: Run, tmp_path: Path) -> None:
    ruin = tmp_path / "000001.log"
    ruin.write_bytes(b"\x01\x02\x03\x04\x10\x00\x01" + b"z" * 100)
    result = run("repair", ruin, tmp_path / "new.log", "--format", "leveldb_log")
    assert result.code == 1
    assert "nothing recovered" in result.out


@pytest.mark.parametrize(
    ("format", "code", "message"),
    [
        ("leveldb_log", 0, "everything kept"),
        ("filodb_record", 0, "everything kept"),
        ("leveldb_table", 1, "nothing recovered"),
        ("deephaven_log", 2, ""),
        ("milvus_binlog", 2, ""),
        ("deephaven_table", 2, ""),
        ("leveldb_database", 2, ""),
    ],
)
def test_files_of_no_bytes(run: Run, tmp_path: Path, format: str, code: int, message: str) -> None:
    empty, new = tmp_path / "empty", tmp_path / "new"
    empty.touch()
    assert run("verify", empty, "--format", format).code == code
    result = run("repair", empty, new, "--format", format)
    assert (result.code, result.out.rpartition("\n")[0].rpartition("\n")[2].partition(";")[0]) == (code, message)
    assert "0 bytes in" not in result.out
    assert new.exists() == (code < 2)
    error_text = run("cat", empty, "--format", format).err
    assert len(error_text.splitlines()) == (code > 0)
    assert ("1 damaged place (1 bad_footer)" in error_text) == (code == 1)


def test_repair_of_a_directory(run: Run, log: Path, damaged: Path, tmp_path: Path) -> None:
    result = run("repair", tmp_path, tmp_path.parent / f"{tmp_path.name}-new")
    assert result.code == 3
    assert "all 2 files" in result.out
    assert (tmp_path.parent / f"{tmp_path.name}-new" / log.name).read_bytes() == log.read_bytes()


@pytest.mark.parametrize("verb", ["repair", "convert"])
def test_the_source_is_never_the_destination(run: Run, verb: str, log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(log)
    before = log.read_bytes()
    result = run(verb, log, link)
    assert result.code == 2
    assert "never changed" in result.err
    assert log.read_bytes() == before


@dataclass(frozen=True)
class Sample:
    """An example.

    Attributes:
        first: What it does,
            over two lines.
        second: Another one.

    More.
    """

    first: Literal["a", "b"] = "a"
    second: tuple[int, ...] | None = None
    third: bool = False


def test_options_are_described_from_their_dataclass() -> None:
    assert parse_attribute_docs(Sample) == {"first": "What it does, over two lines.", "second": "Another one."}
    first, second, third = make_option_cards(Sample)
    assert (first.takes, first.default) == ("a|b", "a")
    assert (second.takes, second.default) == ("integer,...", None)
    assert (third.takes, third.default, third.doc) == ("true|false", "false", "")


def test_formats_lists_views_and_options(run: Run) -> None:
    formats: dict[str, Any] = {format["name"]: format for format in json.loads(run("formats", "--json").out)["formats"]}
    assert set(formats) >= {*sawlog.formats(), "parquet", "arrow", "csv", "jsonl"}
    for name, format in sawlog.formats().items():
        assert formats[name]["views"] == dict(format.views)
        assert all(option["doc"] for option in formats[name]["read_options"] + formats[name]["write_options"]), name
    assert "verify_checksums = true" in run("formats", "leveldb_log").out
    assert run("formats", "nope").code == 2


def test_an_option_without_a_description_has_no_line_for_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sawlog.formats()["leveldb_log"], "write_options", Sample)
    lines = run("formats", "leveldb_log").out.splitlines()
    assert [line.strip() for line in lines[-6:]] == [
        "first = a  a|b",
        "What it does, over two lines.",
        "second  integer,...",
        "Another one.",
        "third = false  true|false",
        "",
    ]
    assert all(not line or line.strip() for line in lines)


def test_warm_up_makes_an_archive_where_spark_is(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "spark-classes.jsa"
    monkeypatch.setattr(jvm, "make_archive", lambda: path)
    result = run("warm-up")
    assert result.code == 0
    assert "nothing to do" in result.out or "compiled" in result.out
    assert str(path) in result.out
    assert json.loads(run("warm-up", "--json").out) == {"kernels": MODE, "archive": str(path)}
    assert json.loads(run("warm-up", "leveldb_log", "--json").out) == {"kernels": MODE}
    assert run("warm-up", "nope").code == 2


def test_warm_up_says_why_there_is_no_archive(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(Path(__file__).parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = run("warm-up")
    assert result.code == 0
    assert "none: Java makes no archive" in result.out
    assert json.loads(run("warm-up", "--json").out) == {"kernels": MODE, "archive": None}
