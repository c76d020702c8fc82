"""In an object store: a log and many small files in a server that speaks S3, 30 ms away, next to plain downloads."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem
from typer.testing import CliRunner

import sawlog
from benchmarks import data
from benchmarks.harness import Case, Settings, Side
from benchmarks.kernel_calls import samples
from benchmarks.small_files import NAMES, ROWS, write_copies, write_sample
from sawlog.cli.app import app

LENGTH = 1000
"""Bytes of a record."""
FILES = 2000
"""Small files of each format, where the size asked for has room for them."""
DATABASES = 128
DATABASE = Path(__file__).parents[1] / "tests/golden/leveldb_database/chromium-156/Local Storage/leveldb"
DELAY = 0.015
"""Seconds for which each byte is held back, in each direction."""
KEY, SECRET = "sawlog", "sawlog-secret"
SERVER = "SAWLOG_VERSITYGW"
"""Names the program of versitygw; without it, and none on the path, the slow stand-in of the tests is measured."""
RANGE = 8 << 20
AWAY = 0, 30
"""Milliseconds to the server and back."""


def cases(settings: Settings) -> Iterator[Case]:
    place = settings.place / "served"
    (place / "bucket").mkdir(parents=True)
    log = place / "bucket" / "000003.log"
    data.write_log(log, data.records(data.count_for(settings.size, LENGTH), LENGTH))
    files = min(FILES, max(4, settings.size // 4000))
    write_many(place / "bucket", files, settings)
    (place / "bucket" / "databases").mkdir()
    if is_any_wanted(settings, "ls_databases", "verify_databases"):
        for number in range(min(DATABASES, files)):
            shutil.copytree(DATABASE, place / "bucket" / "databases" / f"{number:03}")
    with served(place, settings.place) as near, delayed(near) as far:
        for away, address in zip(AWAY, (near, far), strict=True):
            yield from cases_at_distance(address, away, log, files, settings)


def cases_at_distance(address: str, away: int, log: Path, files: int, settings: Settings) -> Iterator[Case]:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": address, "region": "us-east-1"}
    store = S3Store("bucket", config=options_of(address), client_options={"allow_http": True})
    arrow = S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=address, region="us-east-1", scheme="http"
    )
    count, size = data.count_for(settings.size, LENGTH), log.stat().st_size

    def measure(folder: str) -> int:
        return sum(file.stat().st_size for file in (log.parent / folder).rglob("*") if file.is_file())

    def downloaded(folder: str) -> Side:
        note = "32 files at a time, not decoded"
        return Side("obstore", partial(download_all, store, f"{folder}/"), measure(folder), 0, note)

    many, databases = measure("deephaven_log"), len(list((log.parent / "databases").iterdir()))

    def read(path: str) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = sawlog.open(path, storage_options=options)
            return sum(batch.num_rows for batch in dataset.to_batches())

    def run(verb: str, path: str) -> None:
        storage = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]
        done = CliRunner().invoke(app, [verb, path, *storage])
        assert done.exit_code == 0, done.output

    description = f"in S3 ({'versitygw' if program() else 'moto'}), {away} ms away"
    cases = [
        Case(
            f"stores_log_{away}",
            f"a log {description}",
            (
                Side("sawlog", lambda: read("s3://bucket/000003.log"), size, count),
                Side(
                    "obstore", lambda: download(store, "000003.log", size), size, 0, "8 ranges at a time, not decoded"
                ),
                Side("pyarrow", lambda: download_by_arrow(arrow), size, 0, "8 MiB after 8 MiB, not decoded"),
            ),
            cores=0,
        ),
        *(
            Case(
                f"stores_{name}_files_{away}",
                f"{name}, {files:,} of {ROWS} rows each {description}",
                (
                    Side("sawlog", partial(read, f"s3://bucket/{name}"), measure(name), files * ROWS),
                    downloaded(name),
                    *(
                        [Side("pyarrow, Parquet", lambda: read_parquet(arrow), many, files * ROWS, "the same rows")]
                        if name == "deephaven_log"
                        else []
                    ),
                ),
                cores=0,
            )
            for name in samples(ROWS)
        ),
        Case(
            f"stores_info_{away}",
            f"what is in {files:,} logs {description}",
            (Side("sawlog", lambda: sawlog.open("s3://bucket/deephaven_log", storage_options=options).info(), many),),
            cores=0,
        ),
        Case(
            f"stores_ls_{away}",
            f"`ls` of {files:,} logs {description}",
            (Side("sawlog", lambda: run("ls", "s3://bucket/deephaven_log"), many, files * ROWS),),
            cores=0,
        ),
        *(
            Case(
                f"stores_{verb}_databases_{away}",
                f"`{verb}` of {databases:,} databases {description}",
                (
                    Side("sawlog", partial(run, verb, "s3://bucket/databases"), measure("databases")),
                    downloaded("databases"),
                ),
                cores=0,
            )
            for verb in ("ls", "verify")
        ),
    ]
    return (case for case in cases if settings.wanted(case.name))


def options_of(address: str) -> Any:
    return {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": address, "region": "us-east-1"}


def download(store: S3Store, key: str, size: int) -> int:
    ranges = range(0, size, RANGE)
    with ThreadPoolExecutor(8) as pool:
        get = pool.map(lambda start: obstore.get_range(store, key, start=start, end=min(size, start + RANGE)), ranges)
        return sum(map(len, get))


def download_all(store: S3Store, folder: str) -> int:
    keys = [meta["path"] for metas in obstore.list(store, folder) for meta in metas]
    with ThreadPoolExecutor(32) as pool:
        return sum(pool.map(lambda key: len(obstore.get(store, key).bytes()), keys))


def download_by_arrow(store: S3FileSystem) -> None:
    with store.open_input_file("bucket/000003.log") as file:
        while file.read_buffer(RANGE).size:
            pass


def read_parquet(store: S3FileSystem) -> int:
    return int(ds.dataset("bucket/deephaven_log.parquet", filesystem=store).to_table().num_rows)


def is_any_wanted(settings: Settings, *names: str) -> bool:
    """Whether one of some cases is measured, at whatever distance."""
    return any(settings.wanted(f"stores_{name}_{away}") for name in names for away in AWAY)


def write_many(bucket: Path, files: int, settings: Settings) -> None:
    """Write a small file of each format that is measured many times, and as Parquet the rows of Deephaven's logs."""
    for name, (table, _) in samples(ROWS).items():
        if not is_any_wanted(settings, f"{name}_files", *(["info", "ls"] if name == "deephaven_log" else [])):
            continue
        write_copies(bucket / name / NAMES.get(name, "{:06}"), files, partial(write_sample, name, table))
        if name == "deephaven_log":
            write_copies(bucket / f"{name}.parquet" / "{:06}.parquet", files, partial(pq.write_table, table))


def program() -> str | None:
    """The program of versitygw, where it is."""
    return os.environ.get(SERVER) or shutil.which("versitygw")


@contextlib.contextmanager
def served(place: Path, scratch: Path) -> Iterator[str]:
    """The address of a server that has what is below a directory."""
    port = free()
    versitygw = program()
    command = [sys.executable, "-m", "tests.object_store", str(port)]
    if versitygw:
        for name in ("side", "objects"):
            (scratch / name).mkdir()
        command = [versitygw, "--port", f"127.0.0.1:{port}", "posix", "--sidecar"]
        command += [str(scratch / name) for name in ("side", "objects")]
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    address = f"http://127.0.0.1:{port}"
    try:
        wait(port)
        fill(address, place)  # by requests, without which versitygw knows no ETags
        yield address
    finally:
        server.terminate()
        server.wait(30)


def fill(address: str, place: Path) -> None:
    """Put files into a bucket."""
    import boto3

    names = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=address, **names)
    client.create_bucket(Bucket="bucket")
    files = [file for file in (place / "bucket").rglob("*") if file.is_file()]
    with ThreadPoolExecutor(8) as pool:
        put = pool.map(
            lambda file: client.upload_file(str(file), "bucket", file.relative_to(place / "bucket").as_posix()), files
        )
        list(put)


@contextlib.contextmanager
def delayed(address: str) -> Iterator[str]:
    """The same address, farther away."""
    port = free()
    proxy = multiprocessing.get_context("spawn").Process(
        target=hold_back, args=(port, int(address.rpartition(":")[2])), daemon=True
    )
    proxy.start()
    try:
        wait(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        proxy.terminate()
        proxy.join()


def hold_back(port: int, target: int) -> None:
    """Hand bytes on, each `DELAY` later."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while (chunk := await chunks.get())[1]:
                await asyncio.sleep(chunk[0] - time.monotonic())
                writer.write(chunk[1])
                await writer.drain()
            writer.close()

        sending = asyncio.create_task(send())
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(256 << 10):
                chunks.put_nowait((time.monotonic() + DELAY, piece))
        chunks.put_nowait((0.0, b""))
        with contextlib.suppress(ConnectionError):
            await sending

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer))

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", port, limit=1 << 20)
        await server.serve_forever()

    asyncio.run(serve())


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(port: int) -> None:
    """Until somebody listens."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {port}")
