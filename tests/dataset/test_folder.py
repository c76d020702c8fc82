"""A folder of several datasets: what is read of it, and verdicts that are about all of it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError, OptionError
from tests.cli.conftest import Run, run
from tests.support import GOLDEN_DATABASES, damage_file, folder, nested, write_records

__all__ = ["folder", "nested", "run"]


pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def test_several_databases_are_named_by_commands(nested: Path) -> None:
    with pytest.raises(FormatError, match=r"2 databases: .*name one of them: sawlog cat .*/db; sawlog ls lists all"):
        sawlog.open(nested.parent)


def test_each_part_of_a_folder_is_verified(folder: Path, run: Run) -> None:
    report = sawlog.verify(folder)
    assert [Path(part.path).relative_to(folder).as_posix() for part in report.parts] == [
        "db",
        "db/inner",
        "logs",
        "milvus",
    ]
    assert report.verdict is sawlog.Verdict.CLEAN
    assert report.rows == sum(part.rows for part in report.parts) == 9 + 3 + 2 * sawlog.verify(folder / "db/inner").rows
    assert [file.path for file in report.skipped if file.reason == "of no known format"] == [str(folder / "notes.txt")]
    damage_file(folder / "logs" / "000007.log")
    damaged = sawlog.verify(folder)
    assert [part.verdict.value for part in damaged.parts] == ["clean", "clean", "damaged", "clean"]
    result = run("verify", folder)
    assert result.code == 1
    assert " in 4 parts: " in result.out
    reports = json.loads(run("verify", folder, "--json").out)["paths"]
    assert [(Path(row["path"]).name, row["format"], row["damaged"]) for row in reports] == [
        ("db", "leveldb_database", False),
        ("inner", "leveldb_database", False),
        ("logs", "leveldb_log", True),
        ("milvus", "milvus_binlog", False),
    ]


def test_the_only_part_of_a_folder_is_read_where_it_is(tmp_path: Path, run: Run) -> None:
    """A bare delta log of Milvus below no directory of a collection: a read of the folder does not select it."""
    sawlog.write(pa.table({"pk": [1, 2, 3]}), tmp_path / "root", format="milvus_binlog")
    binlog = next(path for path in (tmp_path / "root").rglob("*") if path.is_file() and "insert_log" in str(path))
    (tmp_path / "folder").mkdir()
    shutil.copy(binlog, tmp_path / "folder" / "4")
    (listed,) = json.loads(run("ls", tmp_path / "folder", "--json").out)["parts"]
    for verb in ("verify", "info"):
        assert run(verb, tmp_path / "folder").code == 0
    assert listed["rows"] == sawlog.verify(tmp_path / "folder").rows > 0
    (tmp_path / "folder" / "4").write_bytes(binlog.read_bytes()[:-20])
    assert run("verify", tmp_path / "folder").code == 1


def test_damage_of_a_database_inside_another_counts(nested: Path, run: Run) -> None:
    assert run("verify", nested).code == 0
    damage_file(next((nested / "inner").glob("*.sst"), None) or next((nested / "inner").glob("*.log")))
    assert run("verify", nested).code == 1
    assert run("verify", nested, "--format", "leveldb_database").code == 1


def test_options_go_to_the_parts_that_have_them(folder: Path, run: Run) -> None:
    assert sawlog.verify(folder, salvage="damaged", format="leveldb_log").rows > 0
    assert len(sawlog.verify(folder, as_of="2100-01-01T00:00:00Z").parts) == 4
    assert all("as_of" in file.reason for file in sawlog.verify(folder, as_of="then").skipped if file.missed)
    assert sum(file.missed for file in sawlog.verify(folder, as_of="then").skipped) == 3
    with pytest.raises(OptionError, match="unknown option 'nothing'"):
        sawlog.verify(folder, nothing=1)
    with pytest.raises(OptionError, match="unknown option 'nothing'"):
        sawlog.verify(folder / "logs", nothing=1)
    assert run("ls", folder, "-o", "nothing=1").code == 2
    part = next(
        part for part in json.loads(run("ls", folder, "-o", "table=1", "--json").out)["parts"] if part["rows"] == 3
    )
    assert part["command"].endswith(" -o table=1")


def test_each_part_of_a_folder_is_drawn(folder: Path, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "map.html"
    done = run("map", folder, "--output", page)
    assert done.code == 0
    pages = [f"map-{number}.html" for number in (1, 2, 3, 4)]
    assert sorted(path.name for path in page.parent.iterdir()) == [*pages, "map.html"]
    assert str(folder / "logs") in done.out
    assert f"4 parts: 4 clean; {sawlog.verify(folder).rows} rows drawn in {page}" in done.out
    summary = page.read_text()
    assert [name for name in pages if f"<a href='{name}'>" in summary] == pages
    assert all(str(folder / name) in summary for name in ("db", "db/inner", "logs", "milvus", "notes.txt"))
    assert summary.count("'verdict'>clean") == 4
    drawn = [json.loads(line) for line in run("map", folder, "--json").out.splitlines()]
    assert [part["rows"] for part in drawn] == [part.rows for part in sawlog.verify(folder).parts]
    refused = run("map", folder, "--output", "-")
    assert refused.code == 2
    assert "there are 4 parts: name a file with --output for a summary and a page of each, or draw one" in refused.err
    assert run("map", *shlex.split(refused.err.split("one of them: sawlog map ")[1].split(";")[0])).code == 0
    damage_file(folder / "logs" / "000007.log")
    assert run("map", folder, "--output", page).code == run("verify", folder).code == 1
    assert page.read_text().index("logs") < page.read_text().index("db/inner")
    assert "4 parts: 3 clean, 1 damaged; " in run("map", folder, "--output", page).out


def test_each_collection_of_a_root_is_drawn(tmp_path: Path, run: Run) -> None:
    """Of two collections in one root there is a page each, by itself and in a folder with a log."""
    shutil.copytree(GOLDEN_DATABASES / "milvus/2.3.5-multi", tmp_path / "folder" / "a")
    write_records(tmp_path / "folder" / "b" / "000007.log", [b"x"] * 9)
    for directory, pages in ((tmp_path / "folder", ["1-1", "1-2", "2"]), (tmp_path / "folder" / "a", ["1", "2"])):
        output = tmp_path / directory.name / "pages" / "map.html"
        done = run("map", directory, "--output", output)
        assert done.code == run("verify", directory).code == 0
        drawn = sorted(path.name for path in output.parent.iterdir())
        assert drawn == [*(f"map-{page}.html" for page in pages), "map.html"]
        documents = [json.loads(line) for line in run("map", directory, "--json").out.splitlines()]
        assert [document["rows"] for document in documents] == (
            [460, 1500, 9] if directory.name == "folder" else [460, 1500]
        )
        shutil.rmtree(output.parent)
    refused = run("map", tmp_path / "folder" / "a", "--output", "-")
    assert (refused.code, refused.err.count("-o table=")) == (2, 2)
    assert run("map", *shlex.split(refused.err.split("one of them: sawlog map ")[1].split(";")[0])).code == 0
    cut = max((tmp_path / "folder/a/insert_log").rglob("*"), key=lambda path: path.is_file() * path.stat().st_size)
    cut.write_bytes(cut.read_bytes()[:-100])
    assert run("map", tmp_path / "folder", "--json").code == run("verify", tmp_path / "folder").code == 1


def test_a_part_that_cannot_be_drawn_costs_itself(folder: Path, tmp_path: Path, run: Run) -> None:
    done = run("map", folder, "--output", tmp_path / "pages" / "map.html", "-o", "as_of=then")
    assert (done.code, done.err.count(": not drawn: ")) == (1, 3)
    assert "4 parts: 1 clean, 3 not drawn; 9 rows" in done.out
    assert [path.name for path in (tmp_path / "pages").iterdir()].count("map-3.html") == 1
    assert "<td>then" not in (tmp_path / "pages" / "map.html").read_text()
    lines = [json.loads(line) for line in run("map", folder, "--json", "-o", "as_of=then").out.splitlines()]
    assert ["error" in line for line in lines] == [True, True, False, True]
    assert run("verify", folder, "-o", "as_of=then").code == 1


def test_each_part_of_a_folder_is_described(folder: Path, run: Run) -> None:
    result = run("info", folder, "--count")
    assert result.code == 0
    assert "4 parts, " in result.out
    parts = json.loads(run("info", folder, "--json").out)["parts"]
    assert [Path(row["paths"][0]).name for row in parts] == ["db", "inner", "logs", "milvus"]


def test_a_folder_is_repaired_part_by_part(tmp_path: Path, run: Run) -> None:
    root = tmp_path / "all"
    write_records(root / "logs" / "000007.log", [b"x" * 100] * 9)
    sawlog.write(pa.table({"key": [b"a"], "value": [b"b"]}), root / "tables" / "000009.ldb", format="leveldb_table")
    sawlog.write(pa.table({"n": [1, 2]}), root / "N.T.bin", format="deephaven_log")
    result = run("repair", root, tmp_path / "new")
    assert (result.code, sawlog.verify(tmp_path / "new").rows) == (0, 12), result.out
    assert "everything kept" in result.out


def test_what_is_not_repaired_is_lost(folder: Path, tmp_path: Path, run: Run) -> None:
    sawlog.write(pa.table({"n": [1, 2]}), folder / "cols", format="deephaven_table")
    result = run("repair", folder, tmp_path.with_name(f"{tmp_path.name}-new"))
    assert result.code == 3
    assert "something lost" in result.out
    assert "which is not repaired" in result.out


def test_tables_without_a_manifest_are_no_less_than_their_log(nested: Path, run: Run) -> None:
    inner = nested / "inner"
    rows = sawlog.open(inner, view="all").count_rows()
    for path in (*inner.glob("MANIFEST-*"), inner / "CURRENT"):
        path.unlink()
    report = sawlog.verify(inner)
    assert report.rows >= rows or report.incomplete


def test_a_query_over_several_collections_says_how_to_choose(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("duckdb")
    root = tmp_path / "milvus"
    for id in (101, 102):
        rows = pa.table({"pk": list(range(id))})
        sawlog.write(rows, root, format="milvus_binlog", collection_id=id, first_id=id * 1000)
    query = f"SELECT count(*) AS n FROM '{root}'"
    result = run("sql", query)
    assert (result.code, result.out) == (2, "")
    assert str(root) in result.err
    assert "2 tables" in result.err
    assert "Invalid Input" not in result.err
    for id in (101, 102):
        assert f"-o table={id}" in result.err
        outcome = run("sql", query, "-o", f"table={id}", "--json")
        assert (outcome.code, json.loads(outcome.out)) == (0, {"n": id}), outcome.err
    assert run("sql", f"SELECT count(*) FROM '{root}#collections'").code == 0
