"""Many small files: processor time of one thread that opens and reads files of 100 rows, beside pyarrow and Parquet."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import sawlog
from benchmarks.harness import Case, Settings, Side
from benchmarks.kernel_calls import samples

ROWS = 100
"""Of each file."""
MANY = 2000
INPUT_BYTES = 250_000
"""Bytes of the size asked for, for each small file, of which there are `MANY` at most."""
NAMES = {
    "leveldb_log": "{:06}.log",
    "leveldb_table": "{:06}.ldb",
    "deephaven_log": "N.T.bin.{:06}",
    "filodb_record": "{:06}.container",
}
"""Of files; what is a directory has a number."""


def cases(settings: Settings) -> Iterator[Case]:
    """Each format twice, where it can be: a folder as one dataset, and files opened one by one."""
    warnings.simplefilter("ignore")
    files = min(MANY, max(2, settings.size // INPUT_BYTES))
    key = pa.array([b"%03d" % number for number in range(ROWS)], pa.binary())
    tables = {name: table for name, (table, _) in samples(ROWS).items()}
    tables["leveldb_database"] = pa.table({"key": key, "value": key})
    for name, table in tables.items():
        if not any(settings.wanted(f"small_files_{way}_{name}") for way in ("folder", "each")):
            continue
        folder, parquet = settings.place / name, settings.place / f"{name}.parquet"
        write_copies(folder / NAMES.get(name, "{:06}"), files, partial(write_sample, name, table))
        write_copies(parquet / "{:06}.parquet", files, partial(pq.write_table, table))
        size, rows = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), files * ROWS
        inner = sum(file.is_file() for file in next(folder.iterdir()).rglob("*"))
        spoken = f"{name}, files of {ROWS} rows" if name in NAMES else f"{name}, each of {ROWS} rows in {inner} files"
        ways: dict[str, tuple[str, Callable[[], int], Callable[[], int]]] = {
            "folder": ("a folder", partial(read, [folder], name), partial(read_parquet, parquet)),
            "each": (
                "opened one by one",
                partial(read, sorted(folder.iterdir()), name),
                partial(read_each_parquet, sorted(parquet.iterdir())),
            ),
        }
        if name == "leveldb_database":
            del ways["folder"]  # databases are opened one by one
        for way, (method, ours, peer) in ways.items():
            sides = [Side("sawlog", ours, size, rows), Side("pyarrow, Parquet", peer, size, rows, "the same rows")]
            if name == "milvus_binlog":
                remark = "the bare Parquet payloads of the same files: each column is a file"
                sides.append(Side("pyarrow, payloads", partial(read_payloads, folder), size, rows, remark))
            case = Case(
                f"small_files_{way}_{name}",
                f"{spoken}: {method}",
                tuple(sides),
                "rows",
                processor_time=True,
                files=files,
            )
            if settings.wanted(case.name):
                yield case
        shutil.rmtree(folder)
        shutil.rmtree(parquet)


def write_sample(name: str, table: pa.Table, path: Path) -> None:
    """Write one file, or one directory of files, of a format."""
    if name == "leveldb_database":
        import plyvel

        with plyvel.DB(str(path), create_if_missing=True) as database:
            for row in table.to_pylist():
                database.put(row["key"], row["value"])
        return
    sawlog.write(table, path, format=name, **samples(ROWS)[name][1])


def write_copies(pattern: Path, files: int, write: Callable[[Path], object]) -> None:
    """Write a file or a directory of files once, and copy it."""
    pattern.parent.mkdir()
    first = pattern.with_name(pattern.name.format(0))
    write(first)
    for number in range(1, files):
        (shutil.copytree if first.is_dir() else shutil.copy)(first, pattern.with_name(pattern.name.format(number)))


def read(paths: list[Path], name: str) -> int:
    datasets = (sawlog.open(path, format=name, use_threads=False) for path in paths)
    return sum(batch.num_rows for dataset in datasets for batch in dataset.to_batches())


def read_parquet(folder: Path) -> int:
    return int(ds.dataset(folder).to_table(use_threads=False).num_rows)


def read_each_parquet(paths: list[Path]) -> int:
    return sum(pq.read_table(path, use_threads=False).num_rows for path in paths)


def read_payloads(folder: Path) -> int:
    """Read the Parquet file in each insert log of Milvus as `pyarrow` reads a file; how many rows there are."""
    columns = [
        [pq.read_table(pa.py_buffer(data[data.index(b"PAR1") :]), use_threads=False).num_rows for data in logs]
        for logs in (
            [path.read_bytes() for path in segment.rglob("*") if path.is_file()]
            for segment in sorted(folder.glob("*/insert_log/*/*/*"))
        )
    ]
    return sum(max(rows) for rows in columns)
