"""What Spark's own file sources do with files: options, columns of directories, `_metadata`."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from pyspark.sql.utils import AnalysisException

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.spark.files import METADATA_TYPE
from sawlog.spark.reader import make_reader, read_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")  # which reads DDL

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
METADATA = f"_metadata {METADATA_TYPE.simpleString()}"


def write_log(path: Path | str, *records: bytes) -> None:
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"record": pa.array(records, pa.binary())})
    sawlog.write(table, path, format="leveldb_log")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Logs in directories as `partitionBy` names them, and in others."""
    root = tmp_path / "tree"
    write_log(root / "1.log", b"top")
    write_log(root / "day=2026-01-02" / "hour=7" / "2.log", b"two", b"II")
    write_log(root / "day=2026-01-03" / "hour=__HIVE_DEFAULT_PARTITION__" / "3.log", b"three")
    write_log(root / "other" / "4.log", b"four")
    return root


def read_on_spark(path: Path | str, ddl: str | None = None, **options: str) -> pa.Table:
    """What the source without the jar delivers; with it the functions are the same."""
    read_options = {"path": str(path), **options}
    schema = StructType.fromDDL(ddl) if ddl else read_schema(read_options, None)
    reader = make_reader(read_options, None, schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, batches[0].schema if batches else None) if batches else pa.table({})


def read_records(path: Path | str, **options: str) -> list[bytes]:
    table = read_on_spark(path, "record binary", **options)
    return table["record"].to_pylist() if table.num_columns else []


def test_directories_make_columns(tree: Path) -> None:
    table = read_on_spark(tree)
    assert table.schema.names == ["record", "day", "hour"]
    assert table.schema.types == [pa.binary(), pa.date32(), pa.int32()]
    second, third = dt.date(2026, 1, 2), dt.date(2026, 1, 3)
    assert table["record"].to_pylist() == [b"top", b"two", b"II", b"three", b"four"]
    assert table["day"].to_pylist() == [None, second, second, third, None]
    assert table["hour"].to_pylist() == [None, 7, 7, None, None]
    assert read_on_spark(tree, "hour string, record binary")["hour"].to_pylist() == [None, "7", "7", None, None]
    assert read_on_spark(tree, "hour bigint").to_pydict() == {"hour": [None, 7, 7, None, None]}
    with pytest.raises(SchemaError, match="directory day='2026-01-02': expected int32"):
        read_on_spark(tree, "day int")
    with pytest.raises(SchemaError, match=r"no column 'week'.*_metadata"):
        read_on_spark(tree, "week int")


def test_where_directories_begin_to_make_columns(tree: Path) -> None:
    day = tree / "day=2026-01-02"
    assert read_on_spark(day).schema.names == ["record", "hour"]
    assert read_on_spark(day / "hour=7").schema.names == ["record"]
    assert read_on_spark(day / "hour=7" / "2.log").schema.names == ["record"]
    assert read_on_spark(day / "hour=7" / "2.log", basepath=str(tree)).schema.names == ["record", "day", "hour"]
    assert read_on_spark(f"{tree}/day=*").schema.names == ["record", "hour"]
    assert read_on_spark(f"{tree}/day=*", basepath=str(tree)).schema.names == ["record", "day", "hour"]
    assert read_on_spark(tree, recursivefilelookup="true").schema.names == ["record"]
    assert read_on_spark(tree, columns="record").schema.names == ["record"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-7"], pa.int32()),
        (["1", "3000000000"], pa.int64()),
        (["1", "0.5"], pa.float64()),
        (["nan", "1"], pa.string()),
        (["a%2Fb", "1"], pa.string()),
        (["2026-01-02", "__HIVE_DEFAULT_PARTITION__"], pa.date32()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
    ],
)
def test_types_of_directories(tmp_path: Path, values: list[str], kind: pa.DataType) -> None:
    for number, value in enumerate(values):
        write_log(tmp_path / f"v={value}" / f"{number}.log", b"x")
    table = read_on_spark(tmp_path)
    assert table.schema.field("v").type == kind
    assert table["v"].null_count == sum(value.startswith("__") for value in values)
    assert ("a/b" in table["v"].to_pylist()) == ("a%2Fb" in values)


def test_the_data_s_own_columns_win(tmp_path: Path) -> None:
    write_log(tmp_path / "record=x" / "_metadata=y" / "1.log", b"own")
    write_log(tmp_path / "record=x" / "k=1" / "2.log", b"two")
    table = read_on_spark(tmp_path)
    assert table.to_pydict() == {"record": [b"two"], "k": [1]}


def test_filters_leave_out_files(tree: Path) -> None:
    (tree / "day=2026-01-03" / "hour=__HIVE_DEFAULT_PARTITION__" / "3.log").write_bytes(b"\1" * 100)
    assert read_records(tree, filters='[["day", "=", "2026-01-02"]]') == [b"two", b"II"], "the damaged file is not read"
    assert read_records(tree, filters='[["hour", ">", 7]]') == []
    assert read_records(tree, filters='[["hour", ">", 6], ["day", "<", "2026-01-03"]]') == [b"two", b"II"]


def test_options_of_spark_choose_files(tree: Path) -> None:
    assert read_records(tree, recursivefilelookup="false") == [b"top", b"two", b"II", b"three"]
    assert read_records(tree, pathglobfilter="[12].log") == [b"top", b"two", b"II"]
    assert read_records(tree, pathglobfilter="{1,{3,4}}.*") == [b"top", b"three", b"four"]
    assert read_records(tree / "1.log", pathglobfilter="1*") == [b"top"]
    with pytest.raises(sawlog.FormatError, match="holds no files"):
        read_records(tree, pathglobfilter="*.bin")


def test_when_files_were_written(tree: Path) -> None:
    for number, path in enumerate(sorted(tree.rglob("*.log"), key=lambda file: file.name)):
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    times = [dt.datetime.fromtimestamp(1_000_000 + n, dt.UTC) for n in range(4)]
    assert read_records(tree, modifiedafter=times[2].isoformat()) == [b"four"]
    assert read_records(tree, modifiedbefore=times[1].isoformat().replace("+00:00", "Z")) == [b"top"]
    local = times[0].astimezone().replace(tzinfo=None).isoformat()
    assert read_records(tree, modifiedafter=local, modifiedbefore=times[2].isoformat()) == [b"two", b"II"]
    with pytest.raises(OptionError, match="option modifiedafter='soon': expected a time"):
        read_records(tree, modifiedafter="soon")


def test_files_of_remote_storage() -> None:
    fs = fsspec.filesystem("memory")
    root = "memory://files"
    write_log(f"{root}/day=3/1.log", b"one")
    write_log(f"{root}/2.tmp", b"two")
    try:
        table = read_on_spark(
            root, f"record binary, day int, {METADATA}", pathglobfilter="*.log", modifiedafter="2000-01-01"
        )
        (row,) = table.to_pylist()
        assert (row["record"], row["day"]) == (b"one", 3)
        assert row["_metadata"]["file_path"] == "memory:///files/day=3/1.log"
        assert row["_metadata"]["file_modification_time"] is not None
    finally:
        fs.rm("/files", recursive=True)


def test_metadata_of_files(tree: Path) -> None:
    path = tree / "day=2026-01-02" / "hour=7" / "2.log"
    table = read_on_spark(path.parent, f"record binary, {METADATA}")
    expected = {
        "file_path": f"file://{path}",
        "file_name": "2.log",
        "file_size": path.stat().st_size,
        "file_block_start": 0,
        "file_block_length": path.stat().st_size,
        "file_modification_time": EPOCH + dt.timedelta(seconds=path.stat().st_mtime),
    }
    assert table.to_pylist() == [{"record": record, "_metadata": expected} for record in (b"two", b"II")]
    assert (
        read_on_spark(path, "_metadata struct<file_size bigint>")["_metadata"].to_pylist()
        == [{"file_size": path.stat().st_size}] * 2
    )
    with pytest.raises(SchemaError, match="column _metadata: expected fields of struct<file_path:string"):
        read_on_spark(path, "_metadata struct<file_size int>")
    with pytest.raises(SchemaError, match="column _metadata: expected fields of struct<file_path:string"):
        read_on_spark(path, "_metadata string")


def test_blocks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    write_log(path, *(b"%0100d" % n for n in range(2000)))
    table = read_on_spark(path, f"{METADATA}, _offset bigint", task_bytes="50000")
    blocks = {(row["file_block_start"], row["file_block_length"]) for row in table["_metadata"].to_pylist()}
    assert len(blocks) > 3
    assert sum(length for _, length in blocks) == path.stat().st_size
    for row in table.to_pylist():
        block = row["_metadata"]
        assert block["file_block_start"] <= row["_offset"] < block["file_block_start"] + block["file_block_length"]


def test_files_that_are_gone(tree: Path) -> None:
    for ignored in ("true", "false"):
        options = {"path": str(tree), "ignoremissingfiles": ignored, "task_bytes": "1"}
        reader = make_reader(options, None, StructType.fromDDL("record binary"))
        partitions = reader.partitions()
        (tree / "1.log").rename(tree / "hidden")
        if ignored == "true":
            values = [
                value for partition in partitions for batch in reader.read(partition) for value in batch[0].to_pylist()
            ]
            assert sorted(values) == [b"II", b"four", b"three", b"two"]
        else:
            with pytest.raises(FileNotFoundError):
                [list(reader.read(partition)) for partition in partitions]
        (tree / "hidden").rename(tree / "1.log")


def test_files_that_are_gone_before_their_headers_are_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawlog.storage import Storage

    find_files = Storage.find

    def find(self: Storage, paths: Any) -> Any:
        found_files = find_files(self, paths)
        (tree / "1.log").unlink(missing_ok=True)
        return found_files

    monkeypatch.setattr(Storage, "find", find)
    data = (tree / "1.log").read_bytes()
    assert read_records(tree, ignoremissingfiles="true")[0] == b"two"
    (tree / "1.log").write_bytes(data)
    with pytest.raises(FileNotFoundError):
        read_records(tree)


def test_partitions_in_paths_are_columns_of_spark(spark: SparkSession, tree: Path, with_jar: bool) -> None:
    reading = spark.read.format("sawlog")
    frame = reading.load(str(tree))
    assert frame.schema.simpleString() == "struct<record:binary,day:date,hour:int>"
    counts = frame.where("day >= '2026-01-01'").groupBy("day").count().orderBy("day").collect()
    assert counts == [(dt.date(2026, 1, 2), 2), (dt.date(2026, 1, 3), 1)]
    assert frame.count() == 5
    named = reading.schema(f"record binary, {METADATA}").option("recursiveFileLookup", "true").load(str(tree))
    assert named.where("_metadata.file_name = '2.log'").count() == 2
    if not with_jar:
        with pytest.raises(AnalysisException, match="_metadata"):
            spark.read.format("sawlog").load(str(tree)).select("_metadata")


NAMES = [
    *("1", "007", "+5", "#5", "-5", "2147483648", "12345678901234567890", "9" * 38, "9" * 39, "0x10", "1_000", " 1"),
    *("1.5", "1e5", "1.5e3", ".5", "5.", "1d", "1.5f", "NaN", "Infinity", "inf", "true", "null"),
    *("2024-01-02", "2024-1-2", "2024-01", "2024-13-01", "2024-02-30", "2024-01-02 03:04:05", "2024-01-02 03:04:05.6"),
    *("2024-01-02T03:04:05", "2024-01-02 03:04", "2024-01-02 25:04:05", "a", "1,2"),
]
TOGETHER = [
    *(("1", "1.5"), ("1", "2147483648"), ("2147483648", "1.5"), ("1", "12345678901234567890"), ("1", "a")),
    *(("12345678901234567890", "1.5"), ("2024-01-02", "2024-01-02 03:04:05"), ("1", "2024-01-02"), ("1", "NaN")),
    ("1", "__HIVE_DEFAULT_PARTITION__"),
]


def test_types_of_directories_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own file source says what they are, and what the values are; our times have no zone of their own."""
    columns = [*((name, name) for name in NAMES), *TOGETHER]
    for line in zip(*columns, strict=True):
        inner = "/".join(f"k{number}={quote(name, safe='+,')}" for number, name in enumerate(line))
        write_log(tmp_path / "ours" / inner / "1.log", b"x")
        (tmp_path / "theirs" / inner).mkdir(parents=True)
        (tmp_path / "theirs" / inner / "1.txt").write_text("x\n")
    ours = spark.read.format("sawlog").load(str(tmp_path / "ours")).drop("record")
    theirs = spark.read.text(str(tmp_path / "theirs")).drop("value")
    assert {"timestamp_ntz", "decimal(38,0)", "date"} < {field.dataType.simpleString() for field in ours.schema}
    for field in ours.schema:
        if field.dataType.simpleString() == "timestamp_ntz":
            ours = ours.withColumn(field.name, ours[field.name].cast("timestamp"))
    types = [[field.dataType.simpleString() for field in frame.schema] for frame in (ours, theirs)]
    type_here = {
        name: (type_, type_there)
        for name, type_, type_there in zip(columns, *types, strict=True)
        if type_ != type_there
    }
    assert not type_here
    values = [list(zip(*sorted(frame.collect(), key=repr), strict=True)) for frame in (ours, theirs)]
    wrong = {name: pair for name, *pair in zip(columns, *values, strict=True) if repr(pair[0]) != repr(pair[1])}
    assert not wrong
