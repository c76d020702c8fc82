"""Verbs over folders of several datasets, part by part: convert, diff, info."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.dataset.folder import open_folder
from sawlog.storage import File
from tests.cli.conftest import Run, run
from tests.support import DATABASE, damage_file, folder, nested, write_records

__all__ = ["folder", "nested", "run"]

GOLDEN = Path(__file__).parents[1] / "golden"
pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def files_below(path: Path) -> list[str]:
    return sorted(file_path.relative_to(path).as_posix() for file_path in path.rglob("*") if file_path.is_file())


def test_each_part_of_a_folder_is_converted(folder: Path, tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    new = tmp_path_factory.mktemp("new") / "tables"
    done = run("convert", folder, new)
    assert done.code == 0, done.err
    names = ["db.parquet", "db/inner.parquet", "logs.parquet", "milvus.parquet"]
    assert files_below(new) == names
    parts = sawlog.verify(folder).parts
    assert [pq.read_metadata(new / name).num_rows for name in names] == [part.rows for part in parts]
    assert pq.read_table(new / "logs.parquet")["record"].to_pylist() == [b"x" * 100] * 9
    assert f"4 files, {sum(part.rows for part in parts)} rows as parquet in {new}" in done.out
    assert "notes.txt" in done.out
    document = json.loads(run("convert", folder, f"{new}/", "--to", "jsonl", "--json").out)
    assert [part["rows"] for part in document["parts"]] == [part.rows for part in parts]
    assert [part["source"] for part in document["parts"]] == [part.path for part in parts]
    assert len(files_below(new)) == 8
    refused = run("convert", folder, new, "--no-clobber")
    assert (refused.code, refused.out.count("is not written: ")) == (1, 4)
    assert run("convert", folder, new, "--partition-by", "key").code == 2


def test_a_damaged_part_costs_itself(folder: Path, tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    new = tmp_path_factory.mktemp("new")
    damage_file(folder / "logs" / "000007.log")
    failed = run("convert", folder, new)
    assert (failed.code, "which is not written: " in failed.out) == (1, True)
    assert "; 1 part not written" in failed.out
    assert files_below(new) == ["db.parquet", "db/inner.parquet", "milvus.parquet"]
    skipped = run("convert", folder, new, "--on-damage", "skip")
    assert (skipped.code, len(files_below(new))) == (3, 4)
    assert "logs/000007.log: skipped " in skipped.err


def test_one_dataset_is_converted_into_a_directory(folder: Path, tmp_path: Path, run: Run) -> None:
    assert run("convert", folder / "logs", tmp_path / "tables").code == 0
    assert files_below(tmp_path / "tables") == ["logs.parquet"]
    assert run("convert", folder / "logs" / "000007.log", tmp_path / "tables", "--filter", "record = y").code == 0
    assert pq.read_metadata(tmp_path / "tables" / "000007.log.parquet").num_rows == 0
    assert run("convert", folder / "nothing", tmp_path / "tables").code == 2


def test_each_collection_becomes_a_file_and_is_compared(tmp_path: Path, run: Run) -> None:
    root = tmp_path / "a"
    shutil.copytree(GOLDEN / "milvus/2.3.5-multi", root / "milvus")
    write_records(root / "logs" / "000007.log", [b"x"] * 9)
    assert run("convert", root, tmp_path / "tables").code == 0
    tables = [f"milvus/default.{name}.parquet" for name in ("idx", "multi")]
    assert files_below(tmp_path / "tables") == ["logs.parquet", *tables]
    assert [pq.read_metadata(tmp_path / "tables" / table).num_rows for table in tables] == [1500, 460]
    shutil.copytree(root, tmp_path / "b")
    assert "equal: 3 of 3 parts equal, 1,969 rows" in run("diff", root, tmp_path / "b").out
    shutil.rmtree(next((tmp_path / "b").rglob("insert_log")) / "470611912309218180")
    assert run("diff", root, tmp_path / "b").code == 1


def test_two_folders_are_compared_part_by_part(folder: Path, tmp_path: Path, run: Run) -> None:
    other_path = tmp_path.with_name(f"{tmp_path.name}-other")
    shutil.copytree(folder, other_path)
    rows = sawlog.verify(folder).rows
    result = run("diff", folder, other_path)
    assert (result.code, f"equal: 4 of 4 parts equal, {rows} rows" in result.out) == (0, True)
    write_records(other_path / "logs" / "000007.log", [b"x" * 100] * 8 + [b"y"])
    shutil.rmtree(other_path / "milvus")
    shutil.copytree(folder / "logs", other_path / "more")
    done = run("diff", folder, other_path)
    assert done.code == 1
    assert f"only in {folder}: milvus" in done.out
    assert f"only in {other_path}: more" in done.out
    assert '+ row 8  {"record":"y"}' in done.out
    assert f"different: 2 of 5 parts equal, {rows - 4} rows" in done.out
    document = json.loads(run("diff", folder, other_path, "--json").out)
    assert [(part["part"], part["different"]) for part in document["parts"]] == [
        ("db", False),
        ("db/inner", False),
        ("logs", True),
    ]
    assert (document["different"], document["only_a"], document["only_b"]) == (True, ["milvus"], ["more"])
    keyless = json.loads(run("diff", folder, other_path, "--key", "key", "--json").out)
    assert list(keyless["errors"]) == ["logs"]


def test_a_part_stays_itself_where_the_others_are_gone(folder: Path, tmp_path: Path, run: Run) -> None:
    """One dataset below a path is named as among several."""
    other_path = tmp_path.with_name(f"{tmp_path.name}-other")
    shutil.copytree(folder / "logs", other_path / "logs")
    document = json.loads(run("diff", folder, other_path, "--json").out)
    assert [part["part"] for part in document["parts"]] == ["logs"]
    assert document["only_a"] == ["db", "db/inner", "milvus"]


def test_a_part_that_cannot_be_opened_is_named_by_info(folder: Path, run: Run) -> None:
    done = run("info", folder, "--count", "-o", "as_of=then")
    assert done.code == 1
    assert "1 part, " in done.out
    assert "3 not read" in done.out
    document = json.loads(run("info", folder, "-o", "as_of=then", "--json").out)
    assert [len(document["parts"]), sum(file["missed"] for file in document["skipped"])] == [1, 3]


@pytest.mark.parametrize("threads", [1, 3])
def test_many_parts_at_a_time_are_what_each_is(tmp_path: Path, run: Run, threads: int) -> None:
    for number in range(12):
        shutil.copytree(DATABASE, tmp_path / f"{number:02}")
    rows = sawlog.verify(tmp_path / "00").rows
    report = sawlog.verify(tmp_path, use_threads=threads)
    assert [(Path(part.path).name, part.rows) for part in report.parts] == [(f"{n:02}", rows) for n in range(12)]
    described = json.loads(run("info", tmp_path, "--count", "--threads", threads, "--json").out)["parts"]
    assert [part["rows"] for part in described] == [rows] * 12


def test_the_work_to_find_parts_grows_as_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = type(sawlog.formats()["leveldb_database"].directory_layout)
    original = layout.dataset_directory
    calls: list[str] = []

    def counted(self: Any, file: File) -> str:
        calls.append(file.path)
        return original(self, file)

    monkeypatch.setattr(layout, "dataset_directory", counted)
    counts = []
    for number in range(32):
        shutil.copytree(DATABASE, tmp_path / f"{number:02}")
        (tmp_path / f"{number:02}" / "LOCK").touch()
        if number in (7, 31):
            calls.clear()
            assert len(open_folder(tmp_path).parts) == number + 1
            counts.append(len(calls))
    assert counts[1] == 4 * counts[0]


def test_a_listing_prints_warnings_with_their_part(folder: Path, run: Run) -> None:
    done = run("ls", folder)
    assert done.err == ""
    lines = done.out.splitlines()
    heads = [number for number, line in enumerate(lines) if not line.startswith("  ")]
    warned = [number for number, line in enumerate(lines) if line.startswith("  warning: ")]
    assert warned
    assert {lines[max(head for head in heads if head < number)].split()[0] for number in warned} == {
        str(folder / "milvus")
    }
    parts = json.loads(run("ls", folder, "--json").out)["parts"]
    assert [Path(part["path"]).name for part in parts if part["remarks"]] == ["milvus"]


def test_tables_of_one_folder_are_parts(tmp_path: Path, run: Run) -> None:
    source, new = tmp_path / "logs", tmp_path / "new"
    source.mkdir()
    for count, name in enumerate(("Quotes", "Trades"), 2):
        rows = pa.table({"id": pa.array(range(count), pa.int64())})
        path = source / f"Market.{name}.System.host.2024-05-06.bin.2024-05-06.000000.000-0000"
        sawlog.write(rows, path, format="deephaven_log")
    report = sawlog.verify(source)
    assert [part.rows for part in report.parts] == [2, 3]
    for verb in ("verify", "info", "report"):
        extra_arguments = ["--output", tmp_path / "report.html"] if verb == "report" else []
        assert run(verb, source, *extra_arguments).code == 0, verb
    assert run("convert", source, new).code == 0
    assert files_below(new) == ["Market.Quotes.parquet", "Market.Trades.parquet"]
    assert sawlog.verify(source, namespace="Market", table="Trades").rows == 3


def test_each_of_several_parts_that_are_looked_at_at_a_time_has_its_own_warnings(tmp_path: Path, run: Run) -> None:
    for number in range(6):
        sawlog.write(pa.table({"pk": [number]}), tmp_path / f"milvus_{number}", format="milvus_binlog")
        write_records(tmp_path / f"logs_{number}" / "000007.log", [b"x"])
    parts = json.loads(run("ls", str(tmp_path), "--json").out)["parts"]
    noted = {Path(part["path"]).name: len(part["remarks"]) for part in parts}
    assert noted == {f"logs_{number}": 0 for number in range(6)} | {f"milvus_{number}": 1 for number in range(6)}
