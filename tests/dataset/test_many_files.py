"""Work per file does not grow with the number of files: calls are counted, at n files and at four times as many."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner

import sawlog
from sawlog.cli.app import app
from sawlog.format.recognition import get_format
from sawlog.milvus import paths
from sawlog.spark import planner
from sawlog.spark.reader import make_reader, read_schema
from sawlog.storage import File, Storage

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
FEW, MANY = 50, 200
LIMIT = 1.1
CONTAINER = Path(__file__).parents[1] / "golden/filodb/gauge_100_small_00.container"
DATABASE = Path(__file__).parents[1] / "golden/leveldb_database/rocksdb-11.8.1-timed-put/db"
LOG_NAME = "App.Table.System.host.2026-11-28.bin.2026-11-28.{:02d}{:02d}{:02d}.000+0000"


def copies(directory: Path, source: Path, names: list[str]) -> None:
    """Copies of a file under other names."""
    for name in names:
        shutil.copyfile(source, directory / name)


def write_once(directory: Path, name: str, format: str, table: pa.Table) -> Path:
    """A file that is written once, next to the directory."""
    path = directory.parent / f"{format}_{name}"
    if not path.exists():
        sawlog.write(table, path, format=format)
    return path


def leveldb_logs(directory: Path, count: int) -> None:
    log = write_once(directory, "000001.log", "leveldb_log", pa.table({"record": pa.array([b"a", b"b"], pa.binary())}))
    copies(directory, log, [f"{number:06d}.log" for number in range(1, count + 1)])


def leveldb_tables(directory: Path, count: int) -> None:
    rows = {name: pa.array([b"a", b"b"], pa.binary()) for name in ("key", "value")}
    table = write_once(directory, "000001.ldb", "leveldb_table", pa.table(rows))
    copies(directory, table, [f"{number:06d}.ldb" for number in range(1, count + 1)])


def deephaven_logs(directory: Path, count: int) -> None:
    log = write_once(directory, "log.bin", "deephaven_log", pa.table({"number": pa.array([1, 2], pa.int64())}))
    copies(directory, log, [LOG_NAME.format(i // 3600, i // 60 % 60, i % 60) for i in range(count)])


def deephaven_locations(directory: Path, count: int) -> None:
    rows = pa.table({"number": pa.array([1, 2], pa.int64())})
    location = write_once(directory, "location", "deephaven_table", rows)
    for number in range(count):
        shutil.copytree(location, directory / "Intraday" / "NS" / "T" / f"p{number}" / "2026-11-28" / "T")


def filodb_containers(directory: Path, count: int) -> None:
    copies(directory, CONTAINER, [f"{number:06d}.container" for number in range(count)])


def milvus_roots(directory: Path, count: int) -> None:
    rows = pa.table({"pk": pa.array([1, 2], pa.int64())})
    root = write_once(directory, "root", "milvus_binlog", rows)
    for number in range(count):
        shutil.copytree(root, directory / f"{number:03}")
    os.utime(directory, (0, 0))  # what has just changed is looked at again


def databases(directory: Path, count: int) -> None:
    for number in range(count):
        shutil.copytree(DATABASE, directory / f"{number:03}")


def planned_and_run(path: str, name: str) -> int:
    """The rows that Spark's tasks count, planned for the jar."""
    options = {"path": path, "format": name}
    full = StructType.fromJson(json.loads(planner.describe(options)["schema"]))
    (side,) = planner.plan(options, full, [planner.ScanRequest(StructType([]), [])], parallelism=2)
    rows = 0
    for task in side.partitions:
        batch = pa.record_batch({"task": [task], "stop": [f"{path}.stop"]})
        rows += sum(count for counts in side.function(iter([batch])) for count in counts.column(0).to_pylist())
    return rows


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "leveldb_log": leveldb_logs,
    "leveldb_table": leveldb_tables,
    "deephaven_log": deephaven_logs,
    "deephaven_table": deephaven_locations,
    "filodb_record": filodb_containers,
    "milvus_binlog": milvus_roots,
}
VERBS: dict[str, Callable[[str, str], Any]] = {
    "plan": lambda path, name: list(sawlog.open(path, format=name).fragments(1 << 20)),
    "read": lambda path, name: sawlog.read(path, format=name),
    "count": lambda path, name: sawlog.open(path, format=name).count_rows(),
    "verify": lambda path, name: sawlog.verify(path, format=name),
    "watch": lambda path, name: sawlog.open(path, format=name).watch().look(),
    "list": lambda path, name: CliRunner().invoke(app, ["ls", path]),
    "info": lambda path, name: sawlog.open(path, format=name).info(),
    "spark": lambda path, name: make_reader({"path": path}, name, read_schema({"path": path}, name)).partitions(),
    "tasks": planned_and_run,
}


def calls(action: Callable[[], Any]) -> int:
    """How many Python functions and generators are entered, in any thread; none by garbage of other tests."""
    gc.collect()
    gc.disable()
    entered = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        entered[0] += event == "call"

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return entered[0]


FOLLOWED = ("leveldb_log", "deephaven_log", "filodb_record")
OPENED_ALONE = [(name, "") for name in ("leveldb_table", "deephaven_log", "filodb_record")]
CASES = [(name, verb) for name in MAKERS for verb in VERBS if verb != "watch" or name in FOLLOWED]


def check_growth(
    make: Callable[[Path, int], None],
    action: Callable[[str], Any],
    few: int,
    many: int,
    place: Path,
) -> None:
    work = []
    for count in (2, few, many):  # the first one imports
        directory = place / str(count)
        directory.mkdir()
        make(directory, count)
        work.append(calls(lambda: action(str(directory))) / count)  # noqa: B023
    assert work[2] <= LIMIT * work[1], f"{work[1]:.0f} calls each of {few}, {work[2]:.0f} each of {many}"


@pytest.mark.parametrize("verb", ["plan", "count"])
@pytest.mark.parametrize("format", MAKERS)
def test_a_file_takes_a_kilobyte_beyond_its_name(format: str, verb: str, tmp_path: Path) -> None:
    few, many = (measure_memory(tmp_path / str(count), format, verb, count) for count in (MANY, 5 * MANY))
    assert (many[1] - few[1]) / (many[0] - few[0]) <= 1 << 10


def measure_memory(directory: Path, format: str, verb: str, count: int) -> tuple[int, int]:
    """Files, and the most memory that work on them takes beyond their names."""
    directory.mkdir()
    MAKERS[format](directory, count)
    paths = [str(path) for path in directory.rglob("*") if path.is_file()]
    VERBS[verb](str(directory), format)
    gc.collect()  # which also empties the lists of what the interpreter uses again
    tracemalloc.start()
    VERBS[verb](str(directory), format)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(paths), peak - sum(map(len, paths))


def test_paths_of_milvus_are_parsed_twice_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory of paths that is smaller than a folder remembers nothing of it."""
    milvus_roots(tmp_path, FEW)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    parsed: list[str] = []
    monkeypatch.setattr(paths, "parse_path", noted("parse", paths.parse_path, parsed))
    for _ in range(2):
        parsed.clear()
        assert sawlog.open(tmp_path, format="milvus_binlog").schema
        assert len(parsed) <= 2.2 * len(files)


@pytest.mark.parametrize("format", sawlog.formats())
def test_choosing_files_again_costs_the_same_however_many_there_are(format: str) -> None:
    """A memory of names that is smaller than a folder remembers nothing of it."""
    work = []
    for count in (FEW, 40 * FEW):
        files = [File(f"folder/NS.T.bin.{number:06}", 1, False) for number in range(count)]
        get_format(format).select(files, "rows")
        work.append(calls(lambda: get_format(format).select(files, "rows")) / count)  # noqa: B023
    assert work[1] <= LIMIT * work[0]


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("format", MAKERS)
def test_a_folder_is_opened_and_planned_without_full_collections_of_garbage(
    format: str, is_planned: bool, tmp_path: Path
) -> None:
    MAKERS[format](tmp_path, MANY)
    dataset = sawlog.open(str(tmp_path), format=format)
    dataset.fragments()  # which imports
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.collect()  # after which a full one follows whenever there is a quarter more
    gc.set_threshold(20, 1, 1)
    before = gc.get_stats()[2]["collections"]
    try:
        results = dataset.fragments() if is_planned else sawlog.open(str(tmp_path), format=format).files
        collections = gc.get_stats()[2]["collections"] - before
        assert gc.get_threshold() == (20, 1, 1)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert results
    assert collections <= 1, collections  # when it is over


def test_following_a_log_looks_at_no_row_by_itself(tmp_path: Path) -> None:
    work = []
    for rows in (10, 100, 1000):  # the first one imports
        sawlog.write(pa.table({"number": range(rows)}), tmp_path / f"{rows}.bin", format="deephaven_log")
        work.append(calls(lambda: sawlog.open(tmp_path / f"{rows}.bin").watch().look()))  # noqa: B023
    assert work[2] <= LIMIT * work[1]


@pytest.mark.spread(3)
@pytest.mark.parametrize(("format", "verb"), CASES)
def test_work_per_file_does_not_grow(format: str, verb: str, tmp_path: Path) -> None:
    check_growth(MAKERS[format], lambda path: VERBS[verb](path, format), FEW, MANY, tmp_path)


CALLS = {
    "leveldb_log": 135,
    "leveldb_table": 210,
    "deephaven_log": 284,
    "deephaven_table": 440,
    "filodb_record": 320,
    "milvus_binlog": 590,
    "leveldb_database": 2010,
}
"""Of functions and generators for each small file of a folder, or each database, at most."""


OPENS = {
    "leveldb_log": 1,
    "leveldb_table": 1,
    "deephaven_log": 2,
    "deephaven_table": 2,
    "filodb_record": 2,
    "milvus_binlog": 1,
    "leveldb_database": 1,
}
"""How often a small file is opened in a read, at most: for what says which rows there are, and for the rows."""


def read_small_files(directory: Path, format: str) -> None:
    """Read a folder of small files, or databases one by one, in one thread."""
    for path in sorted(directory.iterdir()) if format == "leveldb_database" else [directory]:
        for _ in sawlog.open(path, format=format, use_threads=False).to_batches():
            pass


@pytest.mark.spread(1)
@pytest.mark.parametrize("format", CALLS)
def test_a_small_file_takes_few_calls(format: str, tmp_path: Path) -> None:
    count = 8 if format == "leveldb_database" else 2 * FEW
    {**MAKERS, "leveldb_database": databases}[format](tmp_path, count)
    read_small_files(tmp_path, format)  # which imports
    assert calls(lambda: read_small_files(tmp_path, format)) <= count * CALLS[format]


@pytest.mark.spread(1)
@pytest.mark.parametrize("format", OPENS)
def test_a_small_file_is_opened_few_times(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    {**MAKERS, "leveldb_database": databases}[format](tmp_path, 4)
    opens: Counter[str] = Counter()
    open_file = os.open

    def count_open(path: Any, *arguments: Any, **settings: Any) -> int:
        opens[str(path)] += str(path).startswith(f"{tmp_path}/")
        return open_file(path, *arguments, **settings)

    monkeypatch.setattr(os, "open", count_open)
    read_small_files(tmp_path, format)
    assert sorted(opens.values())[-2] == OPENS[format]  # what comes first may also say how the others are read


def test_neighbours_of_a_root_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata may lie next to a root, and thousands of other roots."""
    # Directories of the last seconds are listed again: however fast the machine is, these are older.
    monkeypatch.setattr(time, "time", lambda: 1e10)
    work = []
    for count in (2, FEW, MANY):  # the first one imports
        directory = tmp_path / str(count)
        directory.mkdir()
        milvus_roots(directory, count)
        first = str(min(directory.iterdir()))
        VERBS["read"](first, "milvus_binlog")
        work.append(calls(lambda: VERBS["read"](first, "milvus_binlog")))  # noqa: B023
    assert work[1] == work[2]


def test_foreign_logs_list_their_directory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file that begins with no fragment is asked whether it is encrypted."""
    listings: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": listings.append(str(path)) or scandir(path))  # type: ignore[func-returns-value]
    work = []
    for count in (5, 20):
        directory = tmp_path / str(count)
        directory.mkdir()
        for number in range(count):
            (directory / f"{number:06d}.log").write_bytes(b"something else\n" * 400)
        listings.clear()
        sawlog.verify(str(directory), format="leveldb_log")
        work.append(len(listings))
    assert work[0] == work[1]


@pytest.mark.parametrize(("format", "mark"), [("leveldb_log", ""), ("leveldb_log", "OPTIONS-000003"), *OPENED_ALONE])
def test_a_file_opened_by_itself_asks_nothing_of_its_neighbours(
    format: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations of the system are counted, and functions."""
    requests: list[str] = []
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)  # as though nobody had written there for a minute
    for name in ("scandir", "listdir", "stat"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name), requests))
    work = []
    for count in (FEW, MANY):
        directory = tmp_path / str(count)
        directory.mkdir()
        MAKERS[format](directory, count)
        if mark:
            (directory / mark).write_text("[Version]\nrocksdb_version=9.0\n")
        paths = sorted(directory.glob("*0*"))[:8]
        sawlog.read(paths[0], format=format)  # which imports
        requests.clear()
        entered = calls(lambda: [sawlog.read(path, format=format) for path in paths])  # noqa: B023
        work.append((len(requests), entered))
        assert requests.count("scandir") + requests.count("listdir") == 0
    assert work[0][0] == work[1][0]
    assert work[1][1] <= LIMIT * work[0][1]


def noted(name: str, call: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """A function that also notes its name."""

    def note(*arguments: Any, **settings: Any) -> Any:
        names.append(name)
        return call(*arguments, **settings)

    return note


def test_a_directory_is_listed_again_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = re.compile("^OPTIONS-")
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    for count in range(3):
        (tmp_path / f"OPTIONS-{count}").touch()
        (tmp_path / f"other-{count}").touch()
        storage_files = Storage().list_files(tmp_path, names=names)
        assert [file.name for file in storage_files] == [f"OPTIONS-{number}" for number in range(count + 1)]
        time.sleep(0.02)


def run_report(path: str) -> None:
    """Examine a folder, and check that it was examined."""
    result = CliRunner().invoke(app, ["report", path, "--json"])
    assert json.loads(result.stdout)["parts"]


FOLDER_VERBS: dict[str, Callable[[str], Any]] = {
    "list": lambda path: VERBS["list"](path, ""),
    "verify": sawlog.verify,
    "info": lambda path: CliRunner().invoke(app, ["info", path]),
    "report": run_report,
}


@pytest.mark.parametrize("verb", FOLDER_VERBS)
def test_work_per_database_of_a_folder_does_not_grow(verb: str, tmp_path: Path) -> None:
    check_growth(databases, FOLDER_VERBS[verb], 8, 32, tmp_path)


def fill_tables(directory: Path, tables: list[list[int]]) -> None:
    """A database of tables of level 0, newest last, with a value for each of their keys: nothing merges them."""
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = rocksdict.Rdict(str(directory), options)
    for keys in tables:
        for key in keys:
            database[b"%06d" % key] = b"value"
        database.flush()
    database.close()


def disjoint_tables(directory: Path, count: int) -> None:
    fill_tables(directory, [[number] for number in range(count)])


def overlapping_tables(directory: Path, count: int) -> None:
    """Each has keys from everywhere."""
    fill_tables(directory, [list(range(number, 40 * count, count)) for number in range(count)])


def neighbouring_tables(directory: Path, count: int) -> None:
    """Each overlaps the one before and the one after."""
    fill_tables(directory, [list(range(20 * number, 20 * number + 40)) for number in range(count)])


@pytest.mark.parametrize("verb", ["plan", "list", "info", "spark", "read", "count", "verify"])
def test_work_per_table_of_a_database_does_not_grow(verb: str, tmp_path: Path) -> None:
    check_growth(disjoint_tables, lambda path: VERBS[verb](path, "leveldb_database"), FEW // 2, MANY // 2, tmp_path)


@pytest.mark.parametrize("make", [overlapping_tables, neighbouring_tables])
def test_work_per_table_does_not_grow_where_tables_overlap(make: Callable[[Path, int], None], tmp_path: Path) -> None:
    check_growth(make, lambda path: VERBS["read"](path, "leveldb_database"), FEW // 2, MANY // 2, tmp_path)
