"""Where bytes come from: files that change under the reader, pipes, standard input, bytes in memory, open files."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.errors import DiskError
from sawlog.storage import Storage, sources
from sawlog.storage.inputs import Inputs
from tests.cli.conftest import Run, run
from tests.samples import ALL, FORMATS, ROWS, samples
from tests.support import write_records

__all__ = ["run", "samples"]


def list_data_files(path: Path) -> list[Path]:
    """The files that hold the rows of a sample."""
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


@pytest.fixture(scope="session")
def databases(samples: dict[str, Path]) -> dict[str, Path]:
    """The samples, and a database that holds as many rows."""
    path = samples["leveldb_log"].with_name("leveldb_database")
    if not path.exists():
        options = Options(raw_mode=True)
        options.set_write_buffer_size(2 << 20)
        database = Rdict(str(path), options)
        for number in range(ROWS):
            database[b"%090d" % number] = b"%090d" % -number
        database.close()
    return {**samples, "leveldb_database": path}


SCRIPT = """
import os, sys, sawlog, sawlog.dataset.dataset
from pathlib import Path
sys.stderr = sys.stdout
sawlog.format.planning.PIECE_BYTES = 1 << 20
name, *runs = sys.argv[1:]
for run in runs:
    path, policy, threads = run.split(":")
    root = Path(path)
    files = [one for one in root.rglob("*") if one.is_file()] if root.is_dir() else [root]
    dataset = sawlog.open(path, format=name, on_damage=policy, use_threads=int(threads))
    batches = dataset.to_batches()
    kept = [next(batches)]
    for file in files:
        os.truncate(file, file.stat().st_size // 3)
    try:
        kept.extend(batches)
    except sawlog.SawlogError as error:
        print("error", error)
    for batch in kept:
        batch.validate(full=True)
        for column in batch.columns:
            for buffer in column.buffers():
                buffer is None or buffer.to_pybytes()
    print("rows", sum(batch.num_rows for batch in kept), flush=True)
"""


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", [*FORMATS, "leveldb_database"])
def test_a_file_truncated_between_batches_is_told_and_kills_nobody(
    databases: dict[str, Path], name: str, tmp_path: Path
) -> None:
    runs = [(policy, threads) for policy in ("fail", "skip") for threads in (1, 3)]
    paths = [tmp_path / f"{policy}{threads}" / name for policy, threads in runs]
    for path in paths:
        path.parent.mkdir()
        (shutil.copytree if databases[name].is_dir() else shutil.copy)(databases[name], path)
    each = [f"{path}:{policy}:{threads}" for path, (policy, threads) in zip(paths, runs, strict=True)]
    command = [sys.executable, "-W", "always", "-c", SCRIPT, name, *each]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-500:])
    *outputs, remaining_text = re.split(r"^rows (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert (len(outputs), remaining_text) == (2 * len(runs), "")
    for (policy, threads), output, count in zip(runs, outputs[::2], outputs[1::2], strict=True):
        rows = int(count)
        if threads == 1 or rows < ALL.get(name, ROWS):  # several may have read all of it ahead
            assert rows < ALL.get(name, ROWS), (policy, threads)
            assert "shorter" in output or "shrank" in output or "damaged bytes" in output, (policy, threads, output)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_replaced_while_it_is_read_is_told(samples: dict[str, Path], name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (shutil.copytree if samples[name].is_dir() else shutil.copy)(samples[name], path)
    dataset = sawlog.open(path, format=name)
    for file in list_data_files(path):
        shutil.copy(file, f"{file}.new")
        os.replace(f"{file}.new", file)
    warnings.simplefilter("ignore")  # Milvus' segments
    with pytest.raises(sawlog.ChangedError, match="was replaced while it was read"):
        list(dataset.to_batches())
    again = sawlog.open(path, format=name)
    assert again.count_rows() == again.to_table().num_rows == ALL.get(name, ROWS)


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", FORMATS)
def test_remote_files_replaced_between_two_reads_are_read_as_they_are(samples: dict[str, Path], name: str) -> None:
    """No cache by path or size gives the second dataset what the first one had found."""
    memory = fsspec.filesystem("memory")
    warnings.simplefilter("ignore")  # Milvus' segments
    root = f"/replaced/{name}/files"
    try:
        for _ in range(2):
            for file in list_data_files(samples[name]):
                memory.put_file(str(file), f"{root}/{file.relative_to(samples[name].parent)}")
            dataset = sawlog.open(f"memory:/{root}/{samples[name].name}", format=name)
            assert dataset.to_table().num_rows == ALL.get(name, ROWS)
    finally:
        memory.rm("/replaced", recursive=True)


def test_memory_of_windows_is_used_again_but_never_while_somebody_looks(tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 3_000_000, np.uint8)
    path = tmp_path / "file"
    path.write_bytes(data.tobytes())
    source = Storage().open(path)
    allocated: list[int] = []
    piece = sources.SourceBuffer
    try:
        sources.SourceBuffer = lambda size: allocated.append(size) or piece(size)  # type: ignore[assignment, misc, func-returns-value]
        for start in range(0, len(data) - 200_000, 100_000):  # overlapping, as walkers ask when a record is cut
            window = source.read_window(start, 150_000)
            assert (window == data[start : start + 150_000]).all()
        assert len(allocated) <= 2
        windows = [source.read_window(start, 100_000)[10:20] for start in range(0, 1_000_000, 100_000)]
        buffers = [pa.py_buffer(window) for window in windows]
        del windows
        gc.collect()
        for start, buffer in zip(range(0, 1_000_000, 100_000), buffers, strict=True):
            assert buffer.to_pybytes() == data[start + 10 : start + 20].tobytes()
    finally:
        sources.SourceBuffer = piece  # type: ignore[misc]
    assert not window.flags.writeable
    source.close()


def test_a_small_file_is_read_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    data = bytes(range(256)) * 8
    path.write_bytes(data)
    calls: list[int] = []
    preadv = os.preadv
    broken_from = len(data)

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        if offset + len(buffers[0]) > broken_from:
            raise OSError(errno.EIO, "Input/output error")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    for places in ([(2000, 48), (1000, 1000), (0, 2048)], [(0, 16), (2000, 99)]):
        source = Storage().open(path)
        for offset, length in places:
            assert source.read_window(offset, length).tobytes() == data[offset : offset + length]
        source.close()
    assert calls == [0, 0]
    broken_from = 1000  # what is before the bytes that the disk cannot read is read all the same
    source = Storage().open(path)
    assert source.read_window(10, 500).tobytes() == data[10:510]
    with pytest.raises(DiskError):
        source.read_window(900, 200)
    source.close()


def test_the_end_of_a_file_is_read_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer leads to an index before it, and that to the rest: of a table, these are two calls."""
    path = tmp_path / "file"
    data = bytes(range(256)) * 1000
    path.write_bytes(data)
    calls: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *arguments: calls.append(arguments[2]) or preadv(*arguments))
    source = Storage().open(path)
    for offset, length in ((len(data) - 48, 48), (len(data) - 9000, 8000), (0, 240_000)):
        assert source.read_window(offset, length).tobytes() == data[offset : offset + length]
    source.close()
    assert calls == [len(data) - sources.LEAST_BYTES, 0]


@pytest.mark.parametrize("name", ["leveldb_log", "filodb_record", "deephaven_log"])
def test_batches_stay_what_they_were_when_reading_goes_on(samples: dict[str, Path], name: str) -> None:
    dataset = sawlog.open(samples[name], format=name)
    batches = list(dataset.to_batches())
    again = [batch.serialize().to_pybytes() for batch in dataset.to_batches()]
    assert [batch.serialize().to_pybytes() for batch in batches] == again


RECORDS = [b"one", b"two" * 20_000, b"three"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "000001.log"
    write_records(path, RECORDS)
    return path


@pytest.fixture
def damaged(log: Path) -> bytes:
    data = bytearray(log.read_bytes())
    data[9] ^= 1
    return bytes(data)


def fed(path: Path, data: bytes) -> threading.Thread:
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: path.write_bytes(data), daemon=True)
    thread.start()
    return thread


def read_records(source: object, **options: object) -> list[bytes]:
    return sawlog.read(source, format="leveldb_log", **options).column("record").to_pylist()


def inputs(log: Path) -> Iterator[tuple[str, object]]:
    data = log.read_bytes()
    yield "bytes", data
    yield "bytearray", bytearray(data)
    yield "memoryview", memoryview(data)
    yield "pyarrow.Buffer", pa.py_buffer(data)
    yield "numpy", np.frombuffer(data, np.uint8)
    yield "BytesIO", io.BytesIO(data)
    yield "gzip", gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(data)))
    stream = io.BytesIO(b"before" + data)
    stream.read(6)
    yield "stream that was read from", stream


def test_bytes_and_streams_are_read_like_files(log: Path) -> None:
    for kind, source_input in inputs(log):
        assert read_records(source_input) == RECORDS, kind
    with log.open("rb") as file:
        assert read_records(file) == RECORDS
        assert sawlog.verify(file).rows == 3
    prefixed = log.with_name("prefixed")
    prefixed.write_bytes(b"before" + log.read_bytes())
    with prefixed.open("rb") as file:
        file.seek(6)
        assert read_records(file) == RECORDS
    table = sawlog.read([log.read_bytes(), log.read_bytes()], columns=["_file"])
    assert set(table.column("_file").to_pylist()) == {"<bytes>", "<bytes> 2"}
    with pytest.raises(sawlog.FormatError, match="cannot read int"):
        sawlog.open(7)
    with pytest.raises(sawlog.FormatError, match="stream of text"), log.open(errors="replace") as text:
        sawlog.open(text)


def test_bytes_travel_to_other_processes_and_streams_do_not(log: Path) -> None:
    (fragment,) = sawlog.open(log.read_bytes()).fragments()
    assert sum(b.num_rows for b in pickle.loads(pickle.dumps(fragment)).to_batches()) == 3
    (fragment,) = sawlog.open(io.BytesIO(log.read_bytes())).fragments()
    with pytest.raises(sawlog.SawlogError, match="cannot be read by other processes"):
        pickle.dumps(fragment)


def test_every_format_reads_bytes(samples: dict[str, Path]) -> None:
    for name in ("leveldb_log", "deephaven_log", "filodb_record"):
        assert sawlog.open(samples[name].read_bytes(), format=name).count_rows() == ALL.get(name, ROWS)


def test_a_pipe_is_read_to_its_end(run: Run, log: Path, damaged: bytes, tmp_path: Path) -> None:
    for verb, code in (("verify", 1), ("cat", 1), ("info", 0)):
        pipe = tmp_path / f"{verb}.pipe"
        writer = fed(pipe, damaged)
        result = run(verb, pipe)
        writer.join(10)
        assert result.code == code, (verb, result)
        assert f"{len(damaged):,} bytes" in result.out or "damaged bytes" in result.err
    pipe = tmp_path / "convert.pipe"
    writer = fed(pipe, log.read_bytes())
    assert run("convert", pipe, tmp_path / "rows.parquet").code == 0
    writer.join(10)
    assert pa.parquet.read_table(tmp_path / "rows.parquet").num_rows == 3


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read(name: str, log: Path, damaged: bytes) -> None:
    command = [sys.executable, "-m", "sawlog"]
    done = subprocess.run([*command, "verify", name], input=damaged, capture_output=True, check=False)
    assert done.returncode == 1
    with log.open("rb") as file:
        done = subprocess.run([*command, "cat", name, "--json"], stdin=file, capture_output=True, check=False)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 3)


def test_devices_are_refused(run: Run) -> None:
    result = run("cat", "/dev/zero", "--format", "leveldb_log")
    assert (result.code, result.err) == (2, "sawlog: /dev/zero: a device; sawlog reads files and pipes\n")


def test_memory_map_decides(log: Path) -> None:
    opened = {flag: type(sawlog.open(log, memory_map=flag).scan.storage.open(log)) for flag in (True, False)}
    assert opened == {True: sources.MappedSource, False: sources.LocalSource}
    assert type(Storage().open(log)) is sources.LocalSource
    assert read_records(log, memory_map=True) == read_records(log, memory_map=False) == RECORDS


def test_names_of_inputs_are_made_as_they_are_needed() -> None:
    inputs = Inputs()
    tracemalloc.start()
    try:
        names = [inputs.name_input(b"x") for _ in range(3)]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert len(set(names)) == 3
