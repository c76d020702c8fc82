"""LevelDB logs: reading into Arrow, decoding write batches, writing, Spark, and memory."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import sawlog
from benchmarks import data
from benchmarks.harness import Case, Probe, Settings, Side
from benchmarks.spark import noop, session

LENGTHS = {"small": (100, "100-byte"), "large": (100 << 10, "100 KiB")}
SLOW = 10
"""Slow peers get a log this many times smaller."""
WINDOW = 4 << 20


def cases(settings: Settings) -> Iterator[Case | Probe]:
    for name, (length, spoken) in LENGTHS.items():
        yield from read_cases(settings, name, length, spoken)
    for name, (length, spoken) in LENGTHS.items():
        yield from writes_cases(settings, name, length, spoken)
    for name, (length, spoken) in LENGTHS.items():
        yield from write_cases(settings, name, length, spoken)
    for name, (length, spoken) in LENGTHS.items():
        yield from spark_cases(settings, name, length, spoken)
    if settings.wanted("memory"):
        yield Probe("memory", "peak memory of a fresh process that reads one log", partial(memory, settings))


def read_cases(settings: Settings, name: str, length: int, spoken: str) -> Iterator[Case]:
    """Framing and checksums only: one binary column."""
    if not settings.wanted(f"read_{name}"):
        return
    count, few = (data.count_for(size, length) for size in (settings.size, settings.size // SLOW))
    log = data.write_log(settings.place / "000001.log", data.records(count, length))
    slice = data.write_log(settings.place / "000002.log", data.records(few, length))
    size = log.stat().st_size
    target = np.zeros(size, np.uint8)
    source = np.frombuffer(log.read_bytes(), np.uint8)
    yield Case(
        f"read_{name}",
        f"{spoken} records into Arrow, one core",
        (
            Side("sawlog", partial(read, log, count), size, count, "checksums verified"),
            Side("sawlog, verify_checksums=False", partial(read, log, count, verify_checksums=False), size, count),
            Side("sawlog, count only", partial(count_rows, log, count), size, count, "verified, nothing gathered"),
            Side("memcpy", partial(np.copyto, target, source), size, note="from and to memory in use: the limit"),
            Side("copy of the mapped file", partial(copy_mapped, log, target), size, note="to one buffer, in use"),
            Side(
                "copy of the mapped file, 4 MiB at a time",
                partial(copy_windows, log, np.zeros(WINDOW, np.uint8)),
                size,
                note="to one buffer that stays in cache",
            ),
            Side(
                "dfindexeddb, fragments",
                partial(dfindexeddb_fragments, slice),
                slice.stat().st_size,
                few,
                "fragments as Python objects; neither verifies nor joins them",
                needs="dfindexeddb",
            ),
        ),
    )
    log.unlink()
    slice.unlink()


def writes_cases(settings: Settings, name: str, length: int, spoken: str) -> Iterator[Case]:
    """Down to keys and values. Every peer does that, so this is where they are compared as a whole."""
    if not settings.wanted(f"writes_{name}"):
        return
    count, few = (data.count_for(size, length) for size in (settings.size, settings.size // SLOW))
    whole_database, small, opened = (make_database(settings.place / name) for name in ("whole", "small", "opened"))
    log = data.write_log(whole_database / "000003.log", data.write_batches(count, length))
    slice = data.write_log(small / "000003.log", data.write_batches(few, length))
    size, less = log.stat().st_size, slice.stat().st_size
    yield Case(
        f"writes_{name}",
        f"{spoken} write batches to sequence, key and value, one core",
        (
            Side("sawlog", partial(read, log, count, view="writes"), size, count, "into Arrow, checksums verified"),
            Side("sawlog, count only", partial(count_rows, log, count), size, count, "read and verified: its limit"),
            Side("bytes read", partial(read_bytes, log, np.zeros(WINDOW, np.uint8)), size, note="4 MiB at a time"),
            Side(
                "rleveldb",
                partial(rleveldb_records, whole_database, count),
                size,
                count,
                "one list of objects; verifies",
                needs="rleveldb",
            ),
            Side(
                "dfindexeddb",
                partial(dfindexeddb_keys, slice, few),
                less,
                few,
                "objects; does not verify",
                needs="dfindexeddb",
            ),
            Side(
                "LevelDB (plyvel), opening",
                partial(plyvel_open, opened),
                less,
                few,
                "what LevelDB itself does with a log: replays it into its sorted memtable; changes the database",
                prepare=partial(fresh_copy, small, opened),
            ),
        ),
        headline=name == "small",
    )
    for directory in (whole_database, small, opened):
        shutil.rmtree(directory)


def write_cases(settings: Settings, name: str, length: int, spoken: str) -> Iterator[Case]:
    """From an Arrow table to a log."""
    if not settings.wanted(f"write_{name}"):
        return
    count = data.count_for(settings.size, length)
    table = pa.Table.from_batches(data.records(count, length))
    log = settings.memory / "000001.log"
    sawlog.write(table, log, format="leveldb_log")
    source = np.frombuffer(log.read_bytes(), np.uint8)
    plain, database = settings.memory / "plain", settings.memory / "database"
    few = data.count_for(settings.size // SLOW, length)
    keys = [b"%016d" % number for number in range(few)]
    values = table.column("record").slice(0, few).to_pylist()
    yield Case(
        f"write_{name}",
        f"{spoken} records from Arrow to a log in memory, one core",
        (
            Side("sawlog", partial(sawlog.write, table, log, format="leveldb_log"), len(source), count),
            Side(
                "plain write of the same bytes",
                partial(write_plain, plain, source),
                len(source),
                note="no framing, no checksums",
            ),
            Side("memcpy", partial(np.copyto, np.zeros_like(source), source), len(source), note="the limit"),
            Side(
                "LevelDB (plyvel), put",
                partial(plyvel_put, database, keys, values),
                sum(map(len, values)),
                few,
                "one put per record, into its memtable too; not synced",
                prepare=partial(shutil.rmtree, database, ignore_errors=True),
            ),
        ),
        headline=False,
    )
    for path in (log, plain):
        path.unlink()
    shutil.rmtree(database)


def spark_cases(settings: Settings, name: str, length: int, spoken: str) -> Iterator[Case]:
    """Against Spark's own readers, on the same records."""
    if not (settings.wanted(f"spark_count_{name}") or settings.wanted(f"spark_noop_{name}")):
        return
    count = data.count_for(settings.size, length)
    log = data.write_log(settings.place / "000001.log", data.records(count, length))
    parquet, text = settings.place / "records.parquet", settings.place / "records.txt"
    spark = session(settings.program)
    frame = spark.read.format("sawlog").load(str(log))
    frame.write.mode("overwrite").parquet(str(parquet))
    frame.selectExpr("cast(record as string) as value").write.mode("overwrite").text(str(text))
    readers: dict[str, tuple[Callable[[], object], int]] = {
        "sawlog": (lambda: spark.read.format("sawlog").load(str(log)), log.stat().st_size),
        "Spark's Parquet": (lambda: spark.read.parquet(str(parquet)), tree_size(parquet)),
        "Spark's text": (lambda: spark.read.text(str(text)), tree_size(text)),
    }
    actions = {"count": ("counted", lambda load: load().count()), "noop": ("read", lambda load: noop(load()))}
    for action, (verb, act) in actions.items():
        if settings.wanted(f"spark_{action}_{name}"):
            sides = tuple(Side(who, partial(act, load), size, count) for who, (load, size) in readers.items())
            description = f"{spoken} records {verb} by Spark, local[2]"
            yield Case(f"spark_{action}_{name}", description, sides, per="rows", cores=0, headline=action == "noop")
    log.unlink()
    shutil.rmtree(parquet)
    shutil.rmtree(text)


def read(log: Path, expected: int, **options: object) -> None:
    """Every batch is made, and let go."""
    rows = sum(batch.num_rows for batch in sawlog.open(log, format="leveldb_log", **options).to_batches())
    check(rows, expected)


def copy_mapped(log: Path, target: np.ndarray) -> None:
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        np.copyto(target, np.frombuffer(mapped, np.uint8))


def read_bytes(log: Path, window: np.ndarray) -> None:
    with log.open("rb", buffering=0) as file:
        while file.readinto(window):
            pass


def copy_windows(log: Path, window: np.ndarray) -> None:
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        source = np.frombuffer(mapped, np.uint8)
        for start in range(0, len(source), len(window)):
            part = source[start : start + len(window)]
            np.copyto(window[: len(part)], part)
        del source, part


def dfindexeddb_fragments(log: Path) -> None:
    from dfindexeddb.leveldb.log import FileReader

    for _ in FileReader(str(log)).GetPhysicalRecords():
        pass


def dfindexeddb_keys(log: Path, expected: int) -> None:
    from dfindexeddb.leveldb.log import FileReader

    check(sum(1 for _ in FileReader(str(log)).GetParsedInternalKeys()), expected)


def rleveldb_records(database: Path, expected: int) -> None:
    import rleveldb

    with rleveldb.RawLevelDb(str(database)) as opened:
        check(len(opened.iterate_records_raw()), expected)


def plyvel_open(database: Path) -> None:
    import plyvel

    plyvel.DB(str(database), write_buffer_size=1 << 30).close()


def plyvel_put(database: Path, keys: list[bytes], values: list[bytes]) -> None:
    import plyvel

    with plyvel.DB(str(database), create_if_missing=True, write_buffer_size=1 << 30) as opened:
        for key, value in zip(keys, values, strict=True):
            opened.put(key, value)


def make_database(directory: Path) -> Path:
    """What LevelDB wants to see beside a log `000003.log`: an empty database's MANIFEST, and CURRENT."""
    directory.mkdir()
    comparator = b"leveldb.BytewiseComparator"
    edit = bytes([1, len(comparator), *comparator, 2, 0, 9, 0, 3, 2, 4, 0])
    data.write_log(directory / "MANIFEST-000001", iter([pa.record_batch({"record": [edit]})]))
    (directory / "CURRENT").write_text("MANIFEST-000001\n")
    return directory


def count_rows(log: Path, rows: int) -> None:
    """Walk and verify a log without making columns."""
    assert sawlog.open(log, format="leveldb_log").count_rows() == rows


def fresh_copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def write_plain(path: Path, source: np.ndarray) -> None:
    with path.open("wb", buffering=0) as file:
        remaining = memoryview(source)
        while remaining:
            remaining = remaining[file.write(remaining) :]
        os.fsync(file.fileno())


def memory(settings: Settings) -> dict[str, float]:
    """Pages of the mapped file count as resident until they are given back; anonymous memory is the process's own."""
    rates: dict[str, float] = {}
    for size in (settings.size // 100, settings.big):
        log = data.write_log(settings.place / "000001.log", data.records(data.count_for(size, 100), 100))
        label = f"a log of {log.stat().st_size / 1e6:,.0f} MB:"
        output = subprocess.run([sys.executable, "-c", _READER, log], check=True, capture_output=True, text=True)
        resident, anonymous = map(int, output.stdout.split())
        rates[label] = resident / 1e6
        rates[f"{label} without pages of the file"] = anonymous / 1e6
        log.unlink()
    return rates


_READER = """
import sys, sawlog

def field(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

anonymous = 0
for number, batch in enumerate(sawlog.open(sys.argv[1]).to_batches()):
    if number % 16 == 0:
        anonymous = max(anonymous, field("RssAnon:"))
print(field("VmHWM:"), max(anonymous, field("RssAnon:")))
"""


def tree_size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def check(row_count: int, expected: int) -> None:
    if row_count != expected:
        raise AssertionError(f"expected {expected} rows, found {row_count}")
