"""Which format a path is read as, and what `ls` says of what else is there."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError, OptionError
from sawlog.format.contract import Format
from sawlog.format.recognition import explain_unselected, find_parts, load_formats, recognize
from sawlog.format.scan import Scan
from sawlog.storage import File, Storage
from tests.cli.conftest import Run, run
from tests.samples import law_samples
from tests.support import write_records

__all__ = ["run"]

plyvel = pytest.importorskip("plyvel")

GOLDEN = Path(__file__).parents[1] / "golden"
CONTAINER = GOLDEN / "filodb/gauge_100_small_00.container"


def database(path: Path, keys: int = 3000) -> dict[bytes, bytes]:
    """Make a LevelDB most of whose keys have left the log; what it answers."""
    path.mkdir(parents=True)
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=1 << 16) as db:
        for i in range(keys):
            db.put(b"%08d" % i, b"v" * 100)
        db.delete(b"%08d" % 0)
        return dict(db.iterator())


pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
NO_WARNINGS = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of six formats, one below another's directory, and one that nobody knows."""
    root = tmp_path / "a folder"
    database(root / "kv", 300)
    sawlog.write(pa.table({"n": [1, 2]}), root / "kv" / "old" / "000009.log.d" / "N.T.bin", format="deephaven_log")
    write_records(root / "logs" / "000007.log", [b"x"])
    for table in "TU":
        name = f"N.{table}.System.w.2026-01-02.bin.2026-01-02.00-00-00.000+0000"
        sawlog.write(pa.table({"n": [1, 2, 3]}), root / "logs" / name, format="deephaven_log")
    for date in ("2026-01-01", "2026-01-02"):
        place = root / "cols" / "N" / "T" / "I" / date / "T"
        sawlog.write(pa.table({"n": [1, 2, 3]}), place, format="deephaven_table")
    sawlog.write(pa.table({"pk": [1, 2, 3]}), root / "milvus", format="milvus_binlog")
    shutil.copy(CONTAINER, root / "kafka.dump")
    (root / "notes.txt").write_text("hello")
    return root


def test_a_directory_with_current_and_manifest_is_a_database(tmp_path: Path) -> None:
    truth = database(tmp_path / "db")
    dataset = sawlog.open(tmp_path / "db")
    assert dataset.format.name == "leveldb_database"
    table = dataset.to_table()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == truth
    assert sawlog.open(tmp_path / "db", view="writes").format.name == "leveldb_log"
    assert sawlog.open(tmp_path / "db", format="leveldb_log").schema.names == ["record"]
    report = sawlog.verify(tmp_path / "db")
    dead = {file.path for file in report.skipped if "MANIFEST" in file.reason}
    data = {str(path) for path in (tmp_path / "db").iterdir() if path.suffix in (".ldb", ".log")}
    assert data - dead <= {file.path for file in report.files}
    with pytest.raises(OptionError, match="name leveldb_log"):
        dataset.watch()
    with pytest.warns(sawlog.DamageWarning, match="a table, to which the database has moved operations from its logs"):
        watch = sawlog.open(tmp_path / "db", format="leveldb_log").watch()
    assert sum(batch.num_rows for batch in watch.look())
    (tmp_path / "db" / "CURRENT").unlink()
    assert sawlog.open(tmp_path / "db").format.name == "leveldb_database"


def test_several_databases_are_listed(tmp_path: Path, run: Run) -> None:
    for name in ("a", "b"):
        database(tmp_path / "all" / name, 10)
    with pytest.raises(FormatError, match=r"2 databases: .*all/a, .*all/b; name one"):
        sawlog.open(tmp_path / "all")
    parts = json.loads(run("ls", tmp_path / "all", "--json").out)["parts"]
    assert [(Path(row["path"]).name, row["rows"], row["state"]) for row in parts] == [
        ("a", 9, "clean"),
        ("b", 9, "clean"),
    ]


def test_the_database_that_is_named_is_read_whatever_is_inside(tmp_path: Path, run: Run) -> None:
    outer = database(tmp_path / "db", 10)
    inner = database(tmp_path / "db" / "inner", 5)
    dataset = sawlog.open(tmp_path / "db")
    assert {file.command for file in dataset.skipped if file.command} == {f"sawlog cat {tmp_path}/db/inner"}
    assert not any(file.missed for file in dataset.skipped)  # who names a database does not mean one inside
    for path, truth in ((tmp_path / "db", outer), (tmp_path / "db" / "inner", inner)):
        result = run("cat", path, "--json")
        assert (result.code, len(result.out.splitlines())) == (0, len(truth)), result.err
    sawlog.write(pa.table({"pk": [*range(9999)]}), tmp_path / "db" / "milvus", format="milvus_binlog")
    assert sawlog.open(tmp_path / "db").format.name == "leveldb_database"


def test_every_file_is_in_one_part(folder: Path) -> None:
    files = Storage().find(folder)
    listed = [file.path for part in find_parts(files, Storage()) for file in [*part.files, *part.other_files]]
    assert sorted(listed) == sorted(file.path for file in files)
    assert len(set(listed)) == len(listed)


def test_commands_of_a_listing_show_the_rows(folder: Path, run: Run) -> None:
    parts = json.loads(run("ls", folder, "--json").out)["parts"]
    assert [(str(Path(row["path"]).relative_to(folder)), row["format"], row["rows"]) for row in parts] == [
        (".", None, None),
        ("cols/N/T", "deephaven_table", 6),
        ("kafka.dump", "filodb_record", 13),
        ("kv", "leveldb_database", 299),
        ("kv/old/000009.log.d", "deephaven_log", 2),
        ("logs", "leveldb_log", 1),
        ("logs/N.T.*", "deephaven_log", 3),
        ("logs/N.U.*", "deephaven_log", 3),
        ("milvus", "milvus_binlog", 3),
    ]
    for row in parts[1:]:
        _, *words = shlex.split(row["command"])
        result = run(*words, "--json")
        assert (result.code, len(result.out.splitlines())) == (0, row["rows"]), row["command"]


def test_what_another_format_reads_is_named_by_each(folder: Path, run: Run) -> None:
    with pytest.warns(sawlog.DamageWarning) as caught:
        sawlog.read(folder)
    text = " ".join(str(record.message) for record in caught)
    assert sawlog.open(folder).format.name == "deephaven_table"
    for command in ("cat {}/kv --format leveldb_database", "cat {}/milvus", "cat {}/logs --format leveldb_log"):
        assert command.format(str(folder)) in text.replace("'", "")
    assert " in 8 parts: " in run("verify", folder).out
    assert "8 parts, " in run("info", folder).out
    assert "sawlog ls" not in run("info", folder / "kv" / "000003.log").out


def test_commands_for_what_another_format_reads_work(tmp_path: Path, run: Run) -> None:
    write_records(tmp_path / "000007.log", [b"x" * 100_000])
    for id in (101, 102):
        rows = pa.table({"pk": list(range(id))})
        sawlog.write(rows, tmp_path / "milvus", format="milvus_binlog", collection_id=id, first_id=id * 1000)
    skipped = sawlog.open(tmp_path).skipped
    commands = {file.reason.partition(" by: ")[2] for file in skipped}
    results = [run(*shlex.split(command)[1:], "--json") for command in sorted(commands)]
    assert [(result.code, len(result.out.splitlines())) for result in results] == [(0, 101), (0, 102)], commands


def test_the_format_that_explains_most_bytes_is_read(tmp_path: Path) -> None:
    write_records(tmp_path / "000007.log", [b"x" * 100])
    shutil.copy(CONTAINER, tmp_path / "kafka.container")
    assert sawlog.open(tmp_path).format.name == "filodb_record"
    write_records(tmp_path / "000008.log", [b"x" * 100_000])
    assert sawlog.open(tmp_path).format.name == "leveldb_log"


def test_a_tree_explains_what_is_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    sawlog.write(pa.table({"pk": [1, 2, 3]}), tmp_path / "milvus", format="milvus_binlog")
    database(tmp_path / "milvus" / "rdb_data")
    assert sawlog.open(tmp_path / "milvus").format.name == "milvus_binlog"
    assert sawlog.open(tmp_path).format.name == "milvus_binlog"
    shutil.rmtree(tmp_path / "milvus" / "rdb_data")
    database(tmp_path / "kv")
    assert sawlog.open(tmp_path).format.name == "leveldb_database"


def test_damage_and_unfinished_tails_are_listed(tmp_path: Path, run: Run) -> None:
    write_records(tmp_path / "000007.log", [b"x" * 100] * 9)
    data = (tmp_path / "000007.log").read_bytes()
    (tmp_path / "000007.log").write_bytes(data[:-1])
    assert "8 rows, tail" in run("ls", tmp_path).out
    (tmp_path / "000007.log").write_bytes(data[:300] + b"?" + data[301:])
    assert "damaged" in run("ls", tmp_path).out


def rows_of_part(part: dict[str, Any]) -> int:
    """Rows of a listed part; of a directory of backups, which are states of one database, those of the last."""
    backups = [table for table in part["tables"] if "backup" in table["options"]]
    rows: int | None = backups[-1]["rows"] if backups else part["rows"]
    return rows or 0


def check_commands(run: Run, path: Path) -> None:
    """Run the commands that a listing prints: each works, and gives as many rows as the listing says.

    The rows of the parts add up to those that `verify` finds in all of the path.
    """
    parts = json.loads(run("ls", path, "--json").out)["parts"]
    printed = [line.strip() for line in run("ls", path).out.splitlines() if line.startswith("  sawlog ")]
    rows: dict[str, int | None] = {}
    for part in parts:
        listed = part["tables"] or [part]
        rows |= {entry["command"]: entry["rows"] for entry in listed if entry["command"]}
    assert set(rows) <= set(printed)
    verified = json.loads(run("verify", path, "--json").out)
    assert sum(map(rows_of_part, parts)) == verified["rows"], (rows, verified["paths"])
    intact = all(part["state"] in (None, "clean") or part["state"].startswith("tail") for part in parts)
    for command in printed:
        result = run(*shlex.split(command)[1:], "--json")
        assert result.code in ((0,) if intact else (0, 1, 4)), (command, result.err)
        assert f"  {command}\n" not in result.err, "the hint names another command than this one"
        if rows.get(command) is not None and command.startswith("sawlog cat "):
            assert len(result.out.splitlines()) == rows[command], command


def test_loose_files_above_others_of_their_format_are_listed_once(tmp_path: Path, run: Run) -> None:
    """A path that is read takes all below it; the command of a part names its own files."""
    database = GOLDEN / "leveldb_database/rocksdb-11.8.1-timed-put/db"
    shutil.copytree(database, tmp_path / "db")
    for number, place in enumerate([".", ".", "a", "a/b", "db/notes", "x.log"]):
        path = tmp_path / place / f"{900 + number:06}.log"
        write_records(path, [b"x"] * (number + 1))
    listed = {part["path"]: part for part in json.loads(run("ls", tmp_path, "--json").out)["parts"]}
    rows = {Path(path).relative_to(tmp_path).as_posix(): part["rows"] for path, part in listed.items()}
    inside = sawlog.open(database).count_rows()
    assert rows == {".": 3, "a": 3, "a/b": 4, "db": inside, "db/notes": 5, "x.log": 6}
    assert sum(rows.values()) == sawlog.verify(tmp_path).rows
    assert f"{tmp_path}/000900.log {tmp_path}/000901.log" in listed[str(tmp_path)]["command"]
    check_commands(run, tmp_path)
    shutil.rmtree(tmp_path / "x.log")
    check_commands(run, tmp_path)
    assert f"'{tmp_path}/*.log'" in run("ls", tmp_path).out


@pytest.mark.spread(6)
@NO_WARNINGS
@pytest.mark.parametrize("sample", law_samples())
def test_every_command_of_a_listing_works(tmp_path: Path, run: Run, sample: Any) -> None:
    for name, data in sample.content.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for path in {tmp_path, tmp_path / sample.opened}:
        check_commands(run, path)


FOLDERS = sorted(
    {
        *GOLDEN.glob("*/*"),
        *(GOLDEN / "leveldb_database").glob("*/*"),
    }
)


@pytest.mark.spread(4)
@NO_WARNINGS
@pytest.mark.parametrize("folder", [path for path in FOLDERS if path.is_dir()], ids=lambda path: path.name)
def test_every_command_of_a_listing_of_a_real_folder_works(folder: Path, run: Run) -> None:
    check_commands(run, folder)


def test_each_format_selects_its_files_once_for_a_view(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of files, each selection takes as long as much of the rest of planning."""
    calls: Counter[tuple[str, str]] = Counter()

    def count_calls(cls: type[Format]) -> None:
        select = cls.select

        def select_counted(format: Format, files: Sequence[File], view: str) -> list[File]:
            calls[format.name, view] += 1
            return select(format, files, view)

        monkeypatch.setattr(cls, "select", select_counted)

    for cls in {type(format) for format in load_formats().values()}:
        count_calls(cls)
    recognize(Storage().find([folder / "logs"]), Storage(), [str(folder / "logs")])
    assert calls.keys() == {(name, "rows") for name in load_formats()}
    assert set(calls.values()) == {1}


@pytest.mark.parametrize("names", [("CURRENT", "MANIFEST-000001", "000003.log", "LOCK"), ("000003.log", "notes")])
def test_what_is_left_out_of_many_datasets_is_said_in_linear_time(names: Sequence[str]) -> None:
    """Sets that are copied for every dataset cost no calls that could be counted."""
    seconds = []
    for count in (10, 300, 2400):  # the first one imports
        files = [File(f"d/{number:06}/{name}", 10, False) for number in range(count) for name in names]
        start_time = time.process_time()
        skipped = explain_unselected(
            load_formats()["deephaven_log"], [File("d/N.T.bin.1", 5, False)], files, Scan(is_format_named=True)
        )
        seconds.append(time.process_time() - start_time)
        assert [file.path for file in skipped] == [file.path for file in files]
    assert seconds[2] < 8 * 3 * seconds[1], f"{seconds[1]:.2f} s for 300, {seconds[2]:.2f} s for 2,400"


@pytest.mark.parametrize(
    ("name", "start", "format"),
    [
        ("Nigori.bin", "763130f1", None),  # of Chromium
        ("log.bin", "db1aa1dc", "deephaven_log"),
        ("log.bin", "ffffa1db", "deephaven_log"),
        ("log.bin", "00000000", "deephaven_log"),
        ("log.bin", "", "deephaven_log"),
        ("ns.table.System.writer.2026-01-02.bin.2026-01-02.030405.678", "763130f1", "deephaven_log"),
    ],
)
def test_a_name_without_a_table_is_no_log_where_the_content_is_another(
    name: str, start: str, format: str | None, tmp_path: Path
) -> None:
    """A damaged magic number is one for which most bytes are right, or zero."""
    (tmp_path / name).write_bytes(bytes.fromhex(start) + bytes(100 if start else 0))
    (part,) = find_parts(Storage().find([tmp_path]), Storage())
    assert (part.format and part.format.name) == format
