"""What the pages of the documentation suppose to be there: files, names, and a bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.filodb import RecordBuilder, Schemas
from tests.documents import ROOT, blocks, toml
from tests.milvus_binlog.support import unpack_etcd
from tests.storage.minio.maker import StoredVersion, format_drives, put

GOLDEN = ROOT / "tests" / "golden"
SCHEMA = """<Table name="Trades" namespace="Market" storageType="NestedPartitionedOnDisk">
  <Partitions keyFormula="${autobalance_single}" />
  <Column name="Date" dataType="String" columnType="Partitioning" />
  <Column name="Timestamp" dataType="DateTime" />
  <Column name="Sym" dataType="String" columnType="Grouping" />
  <Column name="Price" dataType="double" />
  <Column name="Size" dataType="int" />
</Table>
"""
VENDOR_LOG = "Ns.Trades.System.host.2024-05-06.bin.2024-05-06.093000.000-0400"


@dataclass
class World:
    """Names that blocks use without making them, and what stands for places that they name."""

    names: dict[str, object] = field(default_factory=lambda: {"sawlog": sawlog, "pa": pa})
    places: dict[str, str] = field(default_factory=dict)


def trades() -> pa.Table:
    return pa.table(
        {
            "Timestamp": pa.array(np.arange(1_714_987_800_000, 1_714_987_800_100)).cast(pa.timestamp("ms", "UTC")),
            "Sym": ["AAPL", "MSFT"] * 50,
            "Price": np.arange(100) * 0.5,
            "Size": pa.array(np.arange(100), pa.int32()),
        }
    )


def shop(to: str = "db") -> None:
    """A database, as the pages about LevelDB have it: a log, MANIFEST and CURRENT."""
    shutil.copytree(ROOT / "examples/data/shop", to)


def damaged_log() -> None:
    data = bytearray((ROOT / "examples/data/shop/000003.log").read_bytes())
    data[50_000] ^= 0x20
    Path("damaged.log").write_bytes(data)


def cli(world: World) -> None:
    del world
    shop("shop")
    shutil.copy("shop/000003.log", "000003.log")
    data = bytearray(Path("shop/000003.log").read_bytes()[:-3])
    data[50000:50001] = b"X"
    Path("000007.log").write_bytes(data)
    pq.write_table(pa.table({"Date": ["2024-03-01", "2024-03-02"], "Price": [1.5, 2.5]}), "trades.parquet")
    pq.write_table(pa.table({"key": [b"user:000001"], "name": ["one"]}), "users.parquet")


def damage(world: World) -> None:
    damaged_log()
    shop()
    rows = pa.table({"key": [b"a"], "value": [b"x"]})
    for number in (5, 8):
        sawlog.write(rows, f"db/00000{number}.ldb", format="leveldb_table")
    world.places["s3a://bucket/"] = ""


def deephaven_log(world: World) -> None:
    Path("binlogs").mkdir()
    table = pa.table({"Timestamp": np.arange(1_714_987_800_000, 1_714_987_800_100), "Px": np.arange(100) * 0.5})
    sawlog.write(table, f"binlogs/{VENDOR_LOG}", format="deephaven_log")
    Path("Trades.schema").write_text(SCHEMA)
    table = table.append_column("Host", pa.array(["vm1"] * 100))
    (batch,) = table.select(["Timestamp", "Px"]).to_batches()
    world.names |= {"table": table, "schema": table.schema, "batch": batch}
    world.places["/var/log/deephaven/binlogs"] = "binlogs"


def deephaven_table(world: World) -> None:
    for place in (
        "tree/Systems/Market/Partitions/0/2024-05-06/Trades",
        "tree/Systems/Market/Partitions/0/2024-03-01/Trades",
        "tree/Intraday/Market/Trades/host_1/2024-05-06/Trades",
    ):
        table = trades().sort_by("Sym")
        sawlog.write(table, place, format="deephaven_table", group=["Sym"])
    Path("Market.Trades.schema").write_text(SCHEMA)
    (limits,) = blocks("docs/formats/deephaven-table.md", toml)
    Path("trades.toml").write_text(limits.parsed.replace("Px", "Price"))
    world.names |= {"table": table, "schema": table.schema, "batches": table.to_batches(), "position": b"{}"}
    world.names["directory"] = "written"
    world.places["/db/"] = "tree/"


def filodb_record(world: World) -> None:
    shutil.copy(GOLDEN / "filodb/gauge_100.container", "gauges.container")
    shutil.copy(GOLDEN / "filodb/otel_exp_delta_histogram_10.container", "latencies.container")
    world.names["table"] = sawlog.read("gauges.container")


def topic(world: World) -> None:
    """A topic of Kafka as a directory of its messages, of which one went bad."""
    gauge = Schemas.built_in()["gauge"]
    for message in range(12):
        builder = RecordBuilder()
        for n in range(50):
            builder.start_new_record(gauge)
            builder.add_long(1_700_000_000_000 + 1_000_000 * message + 10_000 * n)
            builder.add_double(0.5 * n)
            builder.add_string("heap_usage")
            builder.add_map({"_ws_": "demo", "_ns_": "App-0", "host": f"host-{message % 3}"})
            builder.end_record()
        (container,) = map(bytes, builder.optimal_container_bytes(reset=True))
        if message == 7:
            container = container[:300] + b"\xff\xff\xff\x7f" + container[304:]
        place = Path(f"timeseries-dev/{message % 2}/{1740 + message // 2}.container")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(container)
    world.places["kafka://broker:9092/"] = ""


def leveldb_database(world: World) -> None:
    del world
    shop()


def leveldb_applications(world: World) -> None:
    shutil.copytree(Path(__file__).parent / "golden" / "leveldb_database" / "chromium-156", "Default")
    world.places["https_example.com_0"] = "http_127.0.0.1_8123"


def forensics(world: World) -> None:
    """The user data of a browser with two profiles; a log of one of them has a bad byte."""
    del world
    golden = GOLDEN / "leveldb_database"
    shutil.copytree(golden / "chromium-156", "laptop/Default", ignore=shutil.ignore_patterns("truth.json"))
    for place in list(Path("laptop/Default/IndexedDB").iterdir()):
        place.rename(place.with_name(f"https_example.com_0.indexeddb{place.suffix}"))
    shutil.copytree("laptop/Default", "laptop/Profile 2")
    name = "Site Characteristics Database"
    shutil.copytree(golden / "chromium-156-services" / name, f"laptop/Default/{name}")
    Path("laptop/Default/History").write_bytes(b"SQLite format 3\0".ljust(4096, b"\0"))
    (log,) = Path("laptop/Profile 2").glob("IndexedDB/*.leveldb/000003.log")
    data = bytearray(log.read_bytes())
    data[40_000] ^= 0x20
    log.write_bytes(data)


def milvus(world: World) -> None:
    """Volumes of Milvus' docker-compose, a dump of its etcd, and its bucket in a store if there is one."""
    golden = GOLDEN / "milvus/2.3.5"
    logs = {str(file.relative_to(golden)): file.read_bytes() for file in golden.glob("*_log/**/*") if file.is_file()}
    drive = Path("volumes/minio")
    format_drives([drive])
    for name, data in logs.items():
        put(drive, f"a-bucket/files/{name}", StoredVersion([data], inline=False))
    unpack_etcd(Path("volumes/etcd"), "etcd-3.5")
    shutil.copy(golden / "etcd.json", "etcd.json")
    shutil.copytree("volumes/minio", "disk/minio")  # of a machine whose etcd is lost
    world.places["products"] = "alltypes"
    upload("a-bucket", {f"files/{name}": data for name, data in logs.items()})


def upload(to: str, objects: dict[str, bytes]) -> None:
    """Make a bucket of the store."""
    server = os.environ["AWS_ENDPOINT_URL"]
    for name, data in {"": b"", **{f"/{name}": data for name, data in objects.items()}}.items():
        kind = {"Content-Type": "application/octet-stream"}  # or moto waits for a form
        request = urllib.request.Request(f"{server}/{to}{name}", data, kind, method="PUT")
        urllib.request.urlopen(request).close()


def rocksdb(world: World) -> None:
    """Checkpoints of two days, and the logs, in a bucket; Spark reads copies on the disk."""
    from rocksdict import Checkpoint, Options, Rdict

    options = Options(raw_mode=True)
    options.set_wal_ttl_seconds(86_400)
    backups = Path("backups")
    (backups / "orders").mkdir(parents=True)
    (backups / "wal").mkdir()
    db = Rdict("live", options)
    for day in (1, 2):
        for n in range(1000 * (day - 1), 1000 * day):
            db[b"order:%05d" % n] = b'{"id":%d,"amount":%d}' % (n, n % 90)
        db[b"order:00007"] = b'{"id":7,"amount":%d}' % (700 + day)
        del db[b"order:%05d" % day]
        place = backups / f"orders/2026-11-0{day}"
        Checkpoint(db).create_checkpoint(str(place))
        (place / "rocksdict-config.json").unlink()
    db[b"order:02000"] = b'{"id":2000,"amount":20}'
    db.flush_wal(sync=True)
    for log in Path("live").rglob("*.log"):
        shutil.copy(log, backups / "wal")
    db.close()
    files = {str(file.relative_to(backups)): file.read_bytes() for file in backups.rglob("*") if file.is_file()}
    upload("backups", files)
    world.places["s3a://backups/"] = "backups/"


def quant(world: World) -> None:
    """A day of logs of two tables."""
    del world
    dice, count = np.random.default_rng(1), 20_000
    times = pa.array(1_714_987_800_000 + np.sort(dice.integers(0, 23_400_000, count))).cast(pa.timestamp("ms", "UTC"))
    columns = {"Timestamp": times, "Sym": pa.array(dice.choice(["AAPL", "MSFT", "NVDA"], count))}
    price = np.round(100 + np.cumsum(dice.normal(0, 0.01, count)), 2)
    tables = {
        "Trades": pa.table({**columns, "Price": price, "Size": pa.array(dice.integers(1, 500, count), pa.int32())}),
        "Quotes": pa.table({**columns, "Bid": price - 0.01, "Ask": price + 0.01}),
    }
    for name, table in tables.items():
        options = {"internal_partition": "host", "column_partition": "2024-05-06", "roll_bytes": 1 << 18}
        with Logger("binlogs", table.schema, namespace="Market", table=name, **options) as log:
            for batch in table.to_batches(max_chunksize=2000):
                log.write(batch)
    Path("Market.Trades.schema").write_text(SCHEMA)


def leveldb_log(world: World) -> None:
    shop()
    shutil.copy("db/000003.log", "000003.log")
    world.names |= {"table": pa.table({"record": [b"one"]}), "more": pa.table({"record": [b"two"]})}


def leveldb_payloads(world: World) -> None:
    shop()
    world.places["db/000003.log"] = "new.log"
    world.places["MANIFEST-000004"] = "MANIFEST-000002"


def leveldb_table(world: World) -> None:
    shop()
    rows = pa.table({"key": [b"user/%03d" % n for n in range(500)], "value": [b"x" * 50] * 500})
    for name in ("db/000005.ldb", "db/000006.sst"):
        sawlog.write(rows, name, format="leveldb_table")
    world.names["table"] = rows


def milvus_binlog(world: World) -> None:
    shutil.copytree(GOLDEN / "milvus/2.3.5", "files")
    shutil.copy("files/etcd.json", "etcd.json")
    vectors = np.zeros((10, 128), np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 128)
    world.names |= {
        "table": pa.table({"pk": range(10), "vector": column}),
        "deletes": pa.table({"pk": [1, 2], "timestamp": [1 << 40, 2 << 40]}),
        "vectors": vectors,
    }
    world.places["s3://bucket/files"] = world.places["s3a://bucket/files"] = "files"
    world.places |= {"s3a://bucket/compacted": "compacted", '"products"': '"alltypes"'}


WORLDS: dict[str, Callable[[World], None]] = {
    "docs/cli.md": cli,
    "docs/cookbooks/filodb.md": topic,
    "docs/cookbooks/forensics.md": forensics,
    "docs/cookbooks/milvus.md": milvus,
    "docs/cookbooks/quant.md": quant,
    "docs/cookbooks/rocksdb.md": rocksdb,
    "docs/damage.md": damage,
    "docs/formats/deephaven-log.md": deephaven_log,
    "docs/formats/deephaven-table.md": deephaven_table,
    "docs/formats/filodb-record.md": filodb_record,
    "docs/formats/leveldb-applications.md": leveldb_applications,
    "docs/formats/leveldb-database.md": leveldb_database,
    "docs/formats/leveldb-log.md": leveldb_log,
    "docs/formats/leveldb-payloads.md": leveldb_payloads,
    "docs/formats/leveldb-table.md": leveldb_table,
    "docs/formats/milvus-binlog.md": milvus_binlog,
}


def spark_world(world: World) -> None:
    """Databases and logs where the page about Spark has them."""
    Path("data").mkdir()
    shop("data/db")
    for name in ("a.log", "b/1.log"):
        sawlog.write(pa.table({"record": [b"x"]}), f"data/{name}", format="leveldb_log")
    shutil.copy("data/db/000003.log", "data/db/000042.log")
    world.places |= {"/data/": "data/", "s3a://bucket/db/": "data/db", "s3a://bucket/out": "data/remote"}


def streams(world: World) -> None:
    Path("binlogs").mkdir()
    with Logger("binlogs", trades().schema, namespace="Market", table="Trades") as log:
        log.write(trades().to_batches()[0])
    world.places |= {"/var/log/deephaven/binlogs": "binlogs", "/data/": "data/"}


def import_and_merge(world: World) -> None:
    with Logger("binlogs", trades().schema, namespace="Market", table="Trades", column_partition="2024-03-01") as log:
        log.write(trades().to_batches()[0])
    Path("Trades.schema").write_text(SCHEMA)
    world.places |= {"/var/log/deephaven/binlogs": "binlogs", '"/db"': '"database"', " /db ": " tree "}


WORLDS |= {"docs/spark.md": spark_world, "docs/streams.md": streams, "docs/import-and-merge.md": import_and_merge}


ON_A_BUCKET = ("docs/cookbooks/milvus.md", "docs/cookbooks/rocksdb.md")


def make_world(page: str) -> World:
    """The world of a page, made in the current directory."""
    world = World()
    WORLDS.get(page, lambda _: None)(world)
    return world


@contextlib.contextmanager
def of(page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same, with a bucket where the page wants one."""
    with bucket() if page in ON_A_BUCKET else contextlib.nullcontext({}) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield make_world(page)


@contextlib.contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """A server that speaks S3; gives the variables that say its address and how to sign in."""
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    before = {*s3_backends.bucket_accounts}
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        signed = {"AWS_ACCESS_KEY_ID": "minio", "AWS_SECRET_ACCESS_KEY": "miniosecret"}
        yield {"AWS_ENDPOINT_URL": f"http://{host}:{port}", **signed}
    finally:
        server.stop()
        for name in {*s3_backends.bucket_accounts} - before:  # all servers of a process share them
            _, account = s3_backends.bucket_accounts.pop(name)
            s3_backends[account]["aws"].buckets.pop(name, None)
