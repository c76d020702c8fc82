"""A call of every kernel: what it is given while samples are written, read and mapped, or else in its tests."""

from __future__ import annotations

import importlib
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sawlog
from benchmarks import deephaven_import, filodb_record, leveldb_payloads, milvus_binlog
from sawlog.deephaven.ingest.digest import hash_batch
from sawlog.filodb.schemas import make_default_partition
from sawlog.filodb.values import find_shards
from sawlog.format.recognition import load_formats
from sawlog.kernels import build, native
from sawlog.kernels.jit import Kernel, make_caller
from sawlog.leveldb.database import kernels as of_databases
from sawlog.map import survey

CALLS = 40
"""Of each kernel, the first so many calls of each piece of work are looked at; the longest is kept."""
LARGEST = 64 << 20
"""Bytes of arguments that are kept, at most."""
ROOT = Path(__file__).parents[1]
SHOP = ROOT / "examples" / "data" / "shop"
TESTS = [
    "deephaven_table/test_kernels.py",
    "filodb_record/test_kernels.py",
    "filodb_record/test_histogram.py",
    "filodb_record/test_values.py",
    "kernels/test_expanding.py",
    "kernels/test_highwayhash.py",
    "kernels/test_intern.py",
    "kernels/test_minlz.py",
    "leveldb_database/test_stray_keys.py::test_live_is_what_leveldb_finds",
    "leveldb_log/test_kernels.py",
    "leveldb_log/test_payload_kernels.py",
    "leveldb_table/test_codecs.py",
    "leveldb_table/test_kernels.py",
    "leveldb_table/test_versions.py",
    "milvus_binlog/test_etcd.py::test_a_database_by_itself_is_what_was_committed",
    "milvus_binlog/test_kernels.py",
]
"""Tests that call kernels, for those that no samples reach."""


class Call:
    """The arguments of a call of a kernel, as they were before it, and how long it took, in nanoseconds."""

    def __init__(self, arguments: tuple[Any, ...], nanoseconds: int) -> None:
        self.arguments = arguments
        self.nanoseconds = nanoseconds


def kernels() -> dict[str, Kernel]:
    """All kernels, by their names."""
    modules = [importlib.import_module(name) for name in build.Sources(native.SAWLOG).with_kernels(native.SAWLOG)]
    kernel_list = [member for module in modules for member in vars(module).values() if isinstance(member, Kernel)]
    return {kernel.signature.name: kernel for kernel in kernel_list}


def recorded(place: Path, rows: int, names: Collection[str] | None = None) -> dict[str, Call]:
    """A call of each kernel, or of those that are wanted, by its name; machine code comes from the library.

    Raises:
        LookupError: When there are kernels that nothing here calls.
    """
    library = native.load_library()
    missing = kernels()
    for kernel in missing.values():
        kernel.entry = make_caller(kernel.signature, library.reader, library.find_entry(kernel.signature.name))
    calls: dict[str, Call] = {}
    for number, work in enumerate([*pieces_of_work(rows), tests]):
        if names is not None and missing.keys().isdisjoint(names):
            break
        path = place / str(number)
        path.mkdir()
        with recording(calls, missing), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work(path)
        shutil.rmtree(path)
    for kernel in kernels().values():
        del kernel.entry
    never = sorted(missing if names is None else missing.keys() & names)
    if never:
        raise LookupError(f"nothing calls {', '.join(never)}")
    return calls


@contextmanager
def recording(calls: dict[str, Call], missing: dict[str, Kernel]) -> Iterator[None]:
    """Add the longest call of each kernel that is missing yet."""
    counts = dict.fromkeys(missing, 0)
    call_kernel = Kernel.__call__

    def record(kernel: Kernel, *arguments: Any) -> Any:
        name = kernel.signature.name
        if counts.get(name, CALLS) == CALLS or size(arguments) > LARGEST:
            return call_kernel(kernel, *arguments)
        counts[name] += 1
        copies = tuple(copied(argument) for argument in arguments)
        begin = time.thread_time_ns()
        result = call_kernel(kernel, *arguments)
        nanoseconds = time.thread_time_ns() - begin
        if name not in calls or nanoseconds > calls[name].nanoseconds:
            calls[name] = Call(copies, nanoseconds)
        return result

    Kernel.__call__ = record
    try:
        yield
    finally:
        Kernel.__call__ = call_kernel
        for name in calls:
            missing.pop(name, None)


def copied(value: Any) -> Any:
    """An argument as it is before the call."""
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.copy() if isinstance(value, np.ndarray | np.void) else value


def size(value: Any) -> int:
    """Bytes of arrays and records in arguments."""
    if isinstance(value, tuple):
        return sum(map(size, value))
    return value.nbytes if isinstance(value, np.ndarray | np.void) else 0


def pieces_of_work(rows: int) -> Iterator[Callable[[Path], object]]:
    """Functions that take a directory. Those that call a kernel with much data come first."""
    for name, (table, options) in samples(rows).items():
        yield partial(written_and_read, name=name, table=table, options=options)
    yield partial(log_of_writes, rows=rows)
    yield partial(entities, rows=rows // 10)
    yield partial(tree_of_tables, rows=rows)
    yield partial(integers, rows=rows)
    yield partial(series, rows=rows)
    yield partial(deletes, rows=rows // 10)
    yield partial(lists, rows=rows)
    yield databases


def samples(rows: int) -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    numbers = pa.array(np.arange(rows))
    texts = pc.utf8_lpad(numbers.cast(pa.string()), 20, "0")
    data = texts.cast(pa.binary())
    labels = pa.array([[("_ws_", "demo"), ("_ns_", "app")]], pa.map_(pa.string(), pa.string()))
    gauges = {
        "timestamp": numbers.cast(pa.timestamp("ms", "UTC")),
        "value": np.arange(rows) * 0.5,
        "_metric_": pa.repeat(pa.scalar("heap"), rows),
        "tags": labels.take(pa.array(np.zeros(rows, np.int64))),
    }
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 8, dtype=np.float32)), 8)
    columns = pa.table({"i": numbers, "s": texts, "x": np.arange(rows) * 0.5})
    return {
        "leveldb_log": (pa.table({"record": data}), {}),
        "leveldb_table": (pa.table({"key": data, "value": data}), {}),
        "deephaven_log": (columns, {}),
        "deephaven_table": (columns, {}),
        "filodb_record": (pa.table(gauges), {"table": "gauge", "container_timestamp": 0}),
        "milvus_binlog": (pa.table({"pk": numbers, "vec": vectors}), {"timestamp": 1 << 40}),
    }


def written_and_read(place: Path, name: str, table: pa.Table, options: dict[str, Any]) -> None:
    path = place / "a"
    sawlog.write(table, path, format=name, **options)
    read_everything(path, name)


def read_everything(path: Path, name: str) -> None:
    sawlog.verify(path, format=name)
    for view in load_formats()[name].views if name != "leveldb_log" else ["rows"]:  # others take records for damage
        sawlog.read(path, format=name, view=view, on_damage="skip")
    survey(sawlog.open(path, format=name, on_damage="skip"))


def log_of_writes(place: Path, rows: int) -> None:
    count = rows // 10
    keys = pa.array([b"%012d" % (number * 7919 % count) for number in range(rows)], pa.binary())
    table = pa.table({"operation": pa.repeat("put", rows), "key": keys, "value": keys})
    sawlog.write(table, place / "000003.log", format="leveldb_log", view="writes")
    sawlog.read(place / "000003.log", view="writes", latest=True)


def entities(place: Path, rows: int) -> None:
    table = pa.table({"record": pa.array([leveldb_payloads.entity(i) for i in range(rows)], pa.binary())})
    sawlog.write(table, place / "output-0", format="leveldb_log")
    for properties in ("json", "infer"):
        sawlog.read(place / "output-0", view="entities", properties=properties)


def tree_of_tables(place: Path, rows: int) -> None:
    (place / "Trades.schema").write_text(deephaven_import.XML)
    deephaven_import.write(place / "logs", place / "csv", rows)
    trees = deephaven_import.Trees(None, place / "logs", place / "csv", place / "Trades.schema", place)
    trees.load_here()
    trees.merge_here()
    read_everything(place / "db", "deephaven_table")


def integers(place: Path, rows: int) -> None:
    numbers = np.arange(rows) % 100
    table = pa.table({f"i{bits}": numbers.astype(f"int{bits}") for bits in (8, 16, 32, 64)})
    written_and_read(place, "deephaven_table", table, {})


def series(place: Path, rows: int) -> None:
    table = filodb_record.gauges(rows)
    path = place / "a.container"
    sawlog.write(table, path, format="filodb_record", table="gauge", container_timestamp=0)
    read_everything(path, "filodb_record")
    sawlog.read(path, filters=[("tags['host']", "==", "H3")])
    path.write_bytes(path.read_bytes().replace(b"H3", b"H\xff"))  # which is not UTF-8
    read_everything(path, "filodb_record")
    find_shards(table["_metric_"].combine_chunks(), table["tags"].combine_chunks(), 16, 2, make_default_partition())


def deletes(place: Path, rows: int) -> None:
    table = milvus_binlog.collection(rows)
    for primary in ("pk", "name"):
        root = place / primary
        sawlog.write(table, root, format="milvus_binlog", timestamp=1 << 40, primary_key=primary)
        (segment,) = [int(path.name) for path in root.glob("insert_log/*/*/*")]
        constant = {"timestamp": (1 << 40) + 1, "partition": 2, "segment": segment}
        columns = {"pk": table[primary][::10], **{name: np.full(rows // 10, n) for name, n in constant.items()}}
        sawlog.write(pa.table(columns), root, format="milvus_binlog", content="deletes")
        read_everything(root, "milvus_binlog")


def lists(place: Path, rows: int) -> None:
    numbers = pa.array(np.arange(3 * rows))
    ends = pa.array(np.arange(0, 3 * rows + 1, 3, dtype=np.int32))
    each = [pa.ListArray.from_arrays(ends, values) for values in (numbers, numbers.cast(pa.string()))]
    table = pa.table([numbers[:rows], *each], ["pk", "numbers", "texts"])
    written_and_read(place, "milvus_binlog", table, {"timestamp": 1 << 40, "primary_key": "pk"})
    hash_batch(table.to_batches()[0])


def databases(place: Path) -> None:
    """Those that other systems wrote, read once more as if their keys were out of order."""
    golden = sorted(path.parent for path in (ROOT / "tests" / "golden" / "leveldb_database").glob("**/CURRENT"))
    for path in (SHOP, *golden):
        read_everything(path, "leveldb_database")
    resolve = of_databases.resolve
    of_databases.resolve = lambda *arguments: resolve(*arguments) and False
    sawlog.read(SHOP, format="leveldb_database")
    of_databases.resolve = resolve


def tests(place: Path) -> None:
    options = ["-q", "--all", "-p", "no:cacheprovider", "-W", "ignore", f"--basetemp={place / 'tests'}"]
    status = pytest.main([*options, *(str(ROOT / "tests" / name) for name in TESTS)])
    if status:
        raise RuntimeError("the tests of kernels failed")
