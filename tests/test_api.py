from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.deephaven.table.options import WriteOptions
from sawlog.deephaven.table.writer import LocationWriter
from sawlog.format.contract import TASK_BYTES
from sawlog.format.damage import MAX_LISTED, Damage, Findings
from sawlog.format.planning import pack
from sawlog.storage import Storage
from tests.support import damage_file

RECORDS = [b"alpha", b"", b"gamma" * 10_000, b"delta"]


def make_table(records: list[bytes]) -> pa.Table:
    return pa.table({"record": pa.array(records, pa.binary())})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "000001.log"
    sawlog.write(make_table(RECORDS), path, format="leveldb_log")
    return path


def test_dataset_answers_like_one_of_pyarrow(log: Path) -> None:
    dataset = sawlog.open(log)
    assert dataset.schema == pa.schema([pa.field("record", pa.binary(), nullable=False)])
    assert dataset.count_rows() == 4
    assert dataset.head(2).column("record").to_pylist() == RECORDS[:2]
    assert dataset.head(0).num_rows == 0
    assert dataset.to_table().column("record").to_pylist() == RECORDS
    assert dataset.to_reader().read_all() == dataset.to_table()
    assert "leveldb_log" in repr(dataset)


def test_polars_and_pandas_read_a_dataset_through_arrow(log: Path) -> None:
    dataset = sawlog.open(log)
    assert pl.DataFrame(dataset)["record"].to_list() == RECORDS
    assert pd.DataFrame.from_arrow(dataset)["record"].to_list() == RECORDS


def test_duckdb_reads_a_dataset_through_arrow(log: Path) -> None:
    # In a process of its own: DuckDB's module complains on leaving one.
    script = """
import sys, duckdb, sawlog
database = duckdb.connect()
database.register("log", sawlog.open(sys.argv[1]).to_reader())
print(database.sql("select count(*), max(octet_length(record)) from log").fetchall())
"""
    done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(4, 50000)]"


def test_writes_whatever_has_an_arrow_stream(tmp_path: Path) -> None:
    source = make_table([b"a", b"b"])
    for number, data in enumerate(
        [source, source.to_batches()[0], source.to_reader(), pl.from_arrow(source), sawlog_dataset(tmp_path)]
    ):
        path = tmp_path / f"{number}.log"
        sawlog.write(data, path, format="leveldb_log")
        assert sawlog.read(path).column("record").to_pylist() == [b"a", b"b"]
    with pytest.raises(sawlog.SchemaError, match="cannot write list"):
        sawlog.write([b"a"], tmp_path / "x.log", format="leveldb_log")


@pytest.mark.parametrize("format", ["deephaven_table", "deephaven_log", "leveldb_log"])
def test_times_without_a_zone_are_refused(format: str, tmp_path: Path) -> None:
    """They came back as instants in UTC; Spark's writer has refused them."""
    column = pa.array([0, 1_705_320_000_123_000], pa.timestamp("us"))
    for values in (column, pa.StructArray.from_arrays([column], ["a"]), column.dictionary_encode()):
        with pytest.raises(sawlog.SchemaError, match=f"column 'at' is .*, and {format} holds no times without a zone"):
            sawlog.write(pa.table({"at": values}), tmp_path / "out", format=format)
        assert not (tmp_path / "out").exists()


def test_writers_that_take_rows_as_they_come_refuse_such_times_too(tmp_path: Path) -> None:
    """A logger took them for numbers, and a location for instants."""
    schema = pa.schema([pa.field("at", pa.list_(pa.timestamp("ns")))])
    with pytest.raises(sawlog.SchemaError, match=r"column 'at' is .*, and deephaven_log holds no times without a zone"):
        Logger(tmp_path / "a.bin", schema)
    with pytest.raises(
        sawlog.SchemaError, match=r"column 'at' is .*, and deephaven_table holds no times without a zone"
    ):
        LocationWriter(str(tmp_path / "a"), schema, WriteOptions(), Storage())
    assert not any(tmp_path.iterdir())


def sawlog_dataset(directory: Path) -> object:
    path = directory / "source.log"
    sawlog.write(make_table([b"a", b"b"]), path, format="leveldb_log")
    return sawlog.open(path)


def test_columns_and_provenance_are_delivered(log: Path) -> None:
    assert sawlog.read(log, columns=["_offset"]).to_pydict() == {"_offset": [0, 12, 19, 50_033]}
    assert sawlog.read(log, columns=["_file", "record"]).schema.names == ["_file", "record"]
    assert sawlog.read(log, provenance=True).schema.names == ["record", "_file", "_offset"]
    assert sawlog.read(log, columns=["_file"]).column("_file").to_pylist() == [str(log)] * 4
    assert sawlog.read(log, columns=[]).num_columns == 0
    with pytest.raises(sawlog.SchemaError, match="no column 'x' in view 'rows'; columns: record, _file, _offset"):
        sawlog.open(log, columns=["x"])


def test_filters_are_exact_and_may_name_columns_that_are_not_delivered(log: Path) -> None:
    table = sawlog.read(log, columns=["record"], filters=[("_offset", ">", 0), ("_offset", "<", 50_000)])
    assert table.column("record").to_pylist() == RECORDS[1:3]
    assert sawlog.open(log, filters=[("record", "=", b"delta")]).count_rows() == 1


def test_damage_fails_by_default_and_is_skipped_on_request(log: Path) -> None:
    damage_file(log, 40_000)
    dataset = sawlog.open(log)
    delivered = []
    with pytest.raises(sawlog.DamageError, match=r"000001\.log: checksum_mismatch at byte 32768") as caught:
        delivered.extend(row for batch in dataset.to_batches() for row in batch.column("record").to_pylist())
    assert delivered == RECORDS[:2]
    assert caught.value.damage.offset == 32768
    assert pickle.loads(pickle.dumps(caught.value)).damage == caught.value.damage
    with pytest.warns(sawlog.DamageWarning, match="skipped 50026 damaged bytes"):
        assert sawlog.read(log, on_damage="skip").column("record").to_pylist() == RECORDS[:2]
    report = sawlog.verify(log)
    assert report.damaged
    assert report.account.total == log.stat().st_size
    assert sawlog.read(log, view="damage").column("offset").to_pylist() == [32768, 19]
    only = sawlog.read(log, view="damage", columns=["kind", "_offset"], filters=[("offset", "=", 32768)])
    assert only.to_pylist() == [{"kind": "checksum_mismatch", "_offset": 32768}]


def test_a_torn_tail_is_a_warning_and_not_damage(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-2])
    with pytest.warns(sawlog.DamageWarning, match="torn tail of 10 bytes at byte 50033"):
        assert sawlog.read(log).num_rows == 3
    report = sawlog.verify(log)
    assert not report.damaged
    assert report.files[0].tail.status is sawlog.TailStatus.TORN


def test_damage_in_a_source_that_is_written_on_keeps_its_type(log: Path, tmp_path: Path) -> None:
    damage_file(log, 40_000)
    with pytest.raises(sawlog.DamageError):
        sawlog.write(sawlog.open(log), tmp_path / "copy.log", format="leveldb_log")
    assert not (tmp_path / "copy.log").exists()


def test_repair_keeps_what_is_intact(log: Path, tmp_path: Path) -> None:
    damage_file(log, 40_000)
    report = sawlog.repair(log, tmp_path / "mended.log")
    assert report.rows == 3
    assert report.account.damage == 50_014
    assert sawlog.read(tmp_path / "mended.log").column("record").to_pylist() == [*RECORDS[:2], RECORDS[3]]
    assert not sawlog.verify(tmp_path / "mended.log").damaged
    with pytest.raises(sawlog.OptionError, match="repair never changes its source"):
        sawlog.repair(log, log)


def test_repair_of_a_directory_makes_a_directory(log: Path, tmp_path: Path) -> None:
    os.makedirs(tmp_path / "db")
    for name in ("000004.log", "000003.log"):
        os.link(log, tmp_path / "db" / name)
    report = sawlog.repair(tmp_path / "db", tmp_path / "mended")
    assert [os.path.basename(file.path) for file in report.files] == ["000003.log", "000004.log"]
    assert sawlog.open(tmp_path / "mended").count_rows() == 8


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"format": "no_log"}, sawlog.OptionError, r"unknown format 'no_log'; known formats: .*leveldb_log"),
        ({"view": "no_view"}, sawlog.OptionError, "leveldb_log has no view 'no_view'; views: rows, damage"),
        ({"on_damage": "shrug"}, sawlog.OptionError, "on_damage='shrug': expected one of fail, skip"),
        ({"colour": "red"}, sawlog.OptionError, "reading leveldb_log: unknown option 'colour'"),
    ],
)
def test_wrong_arguments_are_named(
    log: Path, arguments: dict[str, str], error: type[sawlog.SawlogError], message: str
) -> None:
    with pytest.raises(error, match=message):
        sawlog.open(log, **arguments)


@pytest.mark.parametrize(
    ("format", "name", "names"),
    [
        ("leveldb_log", "a.log", r"a number and \.log, such as 000007\.log"),
        ("deephaven_log", "a.txt", r"\*\.bin"),
        ("filodb_record", "a.bin", r"\*\.container"),
        ("leveldb_table", "a.log", r"\*\.ldb"),
    ],
)
def test_a_name_by_which_no_directory_is_read(tmp_path: Path, format: str, name: str, names: str) -> None:
    (tmp_path / name).write_bytes(bytes(100))
    message = rf"none of the 1 files there is a .* by its name \({names}\).*: rename .*{name}, or read the file"
    with pytest.raises(sawlog.FormatError, match=message):
        sawlog.open(tmp_path, format=format)


def test_what_is_not_recognised_says_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(sawlog.FormatError, match=r"not recognised .first bytes: 89 50 4e 47"):
        sawlog.open(tmp_path / "picture.png")
    with pytest.raises(sawlog.FormatError, match="none of the 1 files there is a LevelDB"):
        sawlog.open(tmp_path, format="leveldb_log")
    (tmp_path / "empty").mkdir()
    with pytest.raises(sawlog.FormatError, match="holds no files"):
        sawlog.open(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sawlog.open(tmp_path / "nowhere")


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    sawlog.write(make_table([b"old"]), path, format="leveldb_log")

    def broken() -> object:
        yield make_table([b"new"]).to_batches()[0]
        raise RuntimeError("the source died")

    reader = pa.RecordBatchReader.from_batches(make_table([]).schema, broken())
    with pytest.raises(pa.ArrowInvalid, match="the source died"):
        sawlog.write(reader, path, format="leveldb_log")
    assert os.listdir(tmp_path) == ["a.log"]
    assert sawlog.read(path).column("record").to_pylist() == [b"old"]


def test_tasks_pack_small_files_and_cut_large_ones(tmp_path: Path) -> None:
    for number in range(20):
        sawlog.write(make_table([bytes(30_000)] * 3), tmp_path / f"{number:06}.log", format="leveldb_log")
    dataset = sawlog.open(tmp_path)
    assert [len(task) for task in dataset.tasks()] == [20]
    assert len(dataset.tasks(200_000)) == 10
    cut = dataset.tasks(32_768)
    assert len(cut) == 60
    assert all(fragment.size <= 32_768 for task in cut for fragment in task)
    rows = sum(
        b.num_rows for task in cut for fragment in pickle.loads(pickle.dumps(task)) for b in fragment.to_batches()
    )
    assert rows == 60
    assert TASK_BYTES >= 64 << 20


def test_findings_list_some_damaged_ranges_and_count_the_rest() -> None:
    findings = Findings("skip")
    for offset in range(MAX_LISTED + 5):
        findings.add_damage(Damage("f", offset, 1, "kind", "detail"))
    assert len(findings.damages) == MAX_LISTED
    assert findings.kinds["kind"] == MAX_LISTED + 5
    assert findings.account.damage == MAX_LISTED + 5


def test_import_is_light() -> None:
    heavy = "{'numba', 'pyspark', 'pandas', 'fsspec', 'pyarrow.compute', 'pyarrow.dataset', 'rich', 'typer'}"
    script = f"import sys, sawlog; sawlog.open; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    script = "import sys; before = set(sys.modules); import sawlog; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {"numpy", "pyarrow", "dataclasses", "inspect"} & {name.partition(".")[0] for name in loaded}
    assert [name for name in loaded if name.startswith("sawlog")] == ["sawlog"], "nothing is read that is not used"


def test_names_that_are_imported_late_are_all_there() -> None:
    assert set(sawlog.__all__) <= set(dir(sawlog))
    for name in sawlog.__all__:
        assert getattr(sawlog, name).__module__.startswith("sawlog.")
    code = """
import sawlog, sawlog.format.damage
assert sawlog.format.damage.Report is sawlog.Report
assert not hasattr(sawlog, "_nothing")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_packages_of_formats_need_no_import_of_their_own() -> None:
    code = """
import sys, sawlog
assert "sawlog.deephaven.log" not in sys.modules
assert sawlog.deephaven.log.Logger.__name__ == "Logger"
assert "Logger" in dir(sawlog.deephaven.log)
assert sawlog.filodb.RecordBuilder and sawlog.leveldb and sawlog.deephaven.table and sawlog.milvus
assert not hasattr(sawlog, "nothing")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("files", "tasks"), [(50, 1), (1000, 4), (4000, 16), (16_000, 32), (100_000, 98)])
def test_tasks_of_small_files_grow_before_they_are_many(files: int, tasks: int) -> None:
    fragments = [SimpleNamespace(size=100) for _ in range(files)]
    packed = pack(iter(fragments), TASK_BYTES)  # type: ignore[arg-type]
    assert [fragment for task in packed for fragment in task] == fragments
    assert len(packed) == tasks


@pytest.mark.parametrize("format", sorted(sawlog.formats()))
def test_names_with_a_nul_are_refused(tmp_path: Path, format: str) -> None:
    """Arrow's C stream would cut them off, so that other names, or one name twice, were written."""
    for table in (pa.table({"a\0x": [1]}), pa.table({"a": [{"b\0": 1}]})):
        with pytest.raises(sawlog.SchemaError, match="NUL in its name"):
            sawlog.write(table, tmp_path / "x", format=format)
    assert not (tmp_path / "x").exists()
