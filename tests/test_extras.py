"""The wheel with one extra in a clean environment: all that the documentation promises for it works."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawlog.guard import install
from tests import documents_world as worlds
from tests.documents import ROOT, blocks, pages

PLAIN = """
import json, pyarrow as pa, sawlog, subprocess, sys
table = pa.table({"record": pa.array([b"one", b"two"], pa.binary())})
sawlog.write(table, "a.log", format="leveldb_log")
assert sawlog.read("a.log").cast(table.schema).equals(table)
def verb(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "sawlog", *arguments], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr
for arguments in (["info"], ["cat", "--json"], ["verify"]):
    verb(arguments[0], "a.log", *arguments[1:])
verb("repair", "a.log", "b.log")
verb("convert", "a.log", "rows.parquet")
verb("formats", "--json")
verb("init")
"""
WITHOUT_SPARK = """
needing = ["run pipeline.toml", "import . db", "merge db N T d", "compact a b", "spark-jar"]
for arguments in map(str.split, needing):
    assert "pip install" in verb(*arguments, code=2), arguments
"""
SQL = """
assert json.loads(verb("sql", "SELECT count(*) AS n FROM 'a.log'", "--json")) == {"n": 2}
"""
SPARK = """
import datetime as dt, os, warnings
from sawlog.deephaven.log import Logger
import sawlog.spark
conf = ["--conf", "spark.master=local[1]"]
schema = pa.schema([("n", pa.int64())])
with Logger("logs", schema, namespace="N", table="T", internal_partition="w") as logger:
    logger.write(pa.record_batch([pa.array(range(10))], schema=schema))
day = next(name for name in os.listdir("logs")).split(".bin.")[0].rsplit(".", 1)[1]
verb("import", "logs", "db", *conf)
verb("merge", "db", "N", "T", day, *conf)
spark = sawlog.spark.session("extras", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
assert spark.read.format("sawlog").load("a.log").count() == 2
frame = spark.read.format("sawlog").option("format", "deephaven_table").load("db/Systems/N")
assert frame.count() == 10
spark.createDataFrame([(None,)], "value binary").select(sawlog.spark.from_filodb_record("value", "gauge")).collect()
rows = spark.createDataFrame([("m", {"_ws_": "a", "_ns_": "b"})], "metric string, tags map<string, string>")
shard = sawlog.spark.filodb_shard("metric", "tags", 8)
rows.select(shard, sawlog.spark.filodb_partition_hash("metric", "tags")).collect()
spark.stop()
"""
NOTEBOOK = """
import duckdb, polars
dataset = sawlog.open("a.log")
assert list(dataset.to_pandas()["record"]) == [b"one", b"two"]
assert sawlog.polars.scan("a.log").collect().height == 2
assert duckdb.sql("SELECT count(*) FROM dataset").fetchall() == [(2,)]
verb("convert", "a.log", "rows.duckdb")
"""
PROMISED = {
    "": PLAIN + WITHOUT_SPARK,
    "aws": PLAIN + "import boto3\n" + WITHOUT_SPARK,
    "datastore": PLAIN + "import google.protobuf, orjson\n" + WITHOUT_SPARK,
    "filodb": PLAIN + "import pyhocon\n" + WITHOUT_SPARK,
    "kafka": PLAIN + "import fsspec, sawlog.storage.kafka\n" + WITHOUT_SPARK,
    "metrics": PLAIN + "import prometheus_client\n" + WITHOUT_SPARK,
    "milvus": PLAIN + "import fastavro\n" + WITHOUT_SPARK,
    "notebook": PLAIN + SQL + NOTEBOOK + WITHOUT_SPARK,
    "remote": PLAIN
    + "sawlog.write(table, 'memory://a/b.log', format='leveldb_log')\nimport sawlog.storage.objects\n"
    + WITHOUT_SPARK,
    "rocksdb": PLAIN + "import zstandard\n" + WITHOUT_SPARK,
    "spark": PLAIN + SPARK,
    "sql": PLAIN + SQL + WITHOUT_SPARK,
    "all": PLAIN + SQL + NOTEBOOK + SPARK,
}


CONSTRAINTS = ["-c", str(ROOT / "constraints" / "dev.txt")]
TYPIST = ["griffe", "pytest", "rocksdict", "sybil"]
"""What types pages: nothing that a page needs."""
TYPED = """
import sys
from tests import documents_world as worlds
from tests.documents import read_page
from tests.test_documents import SPARK
page, extras = sys.argv[1], sys.argv[2].split(",")
names, skip = {}, SPARK
if "spark" in extras or "all" in extras:
    import sawlog.spark
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if page == "docs/spark.md":
        builder = builder.config("spark.jars", sawlog.spark.spark_jar())
    names, skip = {"spark": builder.getOrCreate()}, None
world = worlds.make_world(page)
read_page(page, world.names | names, world.places, skip)
"""


def named(page: Path) -> tuple[str, ...]:
    """The extras that a page has its readers install."""
    lines = re.findall(r"(?:\.|\.whl|\.whl\))\[([a-z,]+)\]", page.read_text("utf-8"))
    return tuple(sorted({word for line in lines for word in line.split(",")}))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(place), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel_path,) = place.glob("*.whl")
    return wheel_path


def environment(place: Path, *requirements: str) -> dict[str, str]:
    """The variables of a new virtual environment with some packages, activated."""
    venv.create(place, with_pip=True)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", *requirements]
    subprocess.run(command, check=True)
    prefixes = ("PYTHON", "PYSPARK", "SPARK")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return variables | {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def clean(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """An environment with the wheel and some extras."""
    place = tmp_path_factory.mktemp("environment")
    requirement = f"{wheel}[{','.join(request.param)}]" if request.param else str(wheel)
    yield environment(place, *CONSTRAINTS, requirement, *TYPIST)
    shutil.rmtree(place)


def run_in(clean: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(["python", *arguments], capture_output=True, text=True, env=clean, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("clean", "extra"), [((extra,) if extra else (), extra) for extra in PROMISED], indirect=["clean"], ids=PROMISED
)
def test_an_extra_works_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: dict[str, str], extra: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run_in(clean, "-W", "error::ImportWarning", "-c", PROMISED[extra])


@pytest.mark.heavy
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest NumPy has wheels for older Pythons only")
def test_the_oldest_versions_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    allowed = [*project["dependencies"], *project["optional-dependencies"]["notebook"]]
    clean = environment(
        tmp_path / "venv", *(f"{requirement.replace('>=', '==')}.*" for requirement in allowed), str(wheel)
    )
    monkeypatch.chdir(tmp_path)
    run_in(clean, "-c", PLAIN + SQL + NOTEBOOK)


COMPARED = "docs/adding-a-format.md"
"""Its blocks are the modules of a package, which tests/tfrecord_example compares and runs."""
ENVIRONMENTS: dict[tuple[str, ...], list[str]] = {}
for _page in pages():
    if blocks(_page) and _page != COMPARED:
        ENVIRONMENTS.setdefault(named(ROOT / _page), []).append(_page)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "clean", ENVIRONMENTS, indirect=True, ids=[",".join(environment) or "none" for environment in ENVIRONMENTS]
)
def test_pages_with_their_extras_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: dict[str, str], request: pytest.FixtureRequest
) -> None:
    extras = request.node.callspec.params["clean"]
    for page in ENVIRONMENTS[extras]:
        place = tmp_path / page.replace("/", "-")
        place.mkdir()
        (place / "examples").symlink_to(ROOT / "examples")
        monkeypatch.chdir(place)
        with worlds.bucket() if page in worlds.ON_A_BUCKET else contextlib.nullcontext({}) as address:
            variables = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **address}
            run_in(clean | variables, "-c", TYPED, page, ",".join(extras))


def test_no_line_installs_a_name_that_is_not_ours() -> None:
    """The name may be somebody else's one day: installation is from a checkout or a wheel."""
    wrong = re.compile(r"install\s+(?:-\S+\s+)*['\"]?sawlog(?![-/\w])")
    places = [*ROOT.glob("*.md"), *ROOT.glob("Dockerfile"), *ROOT.glob("Makefile")]
    for folder in ("docs", "src", "examples"):
        places += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".toml", ".sh", ".ipynb")
        ]
    assert len(places) > 100
    assert not [(str(place), match[0]) for place in places for match in wrong.finditer(place.read_text("utf-8"))]


def test_every_extra_is_promised_and_in_all() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for_work = {"dev", "interop", "jit"}
    assert set(PROMISED) - {""} == set(extras) - for_work
    assert set(re.findall(r"\w+", extras["all"][0])) - {"sawlog"} == set(extras) - for_work - {"all"}


NEEDING = {
    r"^import duckdb": {"sql", "notebook"},
    r"^sawlog sql ": {"sql", "notebook"},
    r"^import polars|^frame = sawlog\.polars": {"notebook"},
    r"\.to_pandas\(\)$": {"notebook"},
    r"filesystem\(\"s3\"|^sawlog .*s3://": {"remote"},
    r"^\w* ?=? ?spark\.(?:read|sql|createDataFrame)": {"spark"},
}
"""What is typed in examples, and the extras that bring what it needs."""


@pytest.mark.parametrize("page", pages())
def test_a_page_says_its_extra(page: str) -> None:
    text, has = (ROOT / page).read_text("utf-8"), named(ROOT / page)
    for sign, extras in NEEDING.items():
        for match in re.finditer(sign, text, re.MULTILINE):
            assert extras & {*has}, f"{page}: {match[0]} needs pip install '.[{min(extras)}]'"


def test_errors_name_where_it_was_installed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class InstalledPackage:
        def __init__(self, url: str) -> None:
            self.read_text = lambda _: json.dumps({"url": url}) if url else None

    def read_message(url: str) -> str:
        monkeypatch.setattr("importlib.metadata.distribution", lambda _: InstalledPackage(url))
        return install("sql")

    wheel = tmp_path / "a b.whl"
    wheel.touch()
    assert read_message(wheel.as_uri()) == f"pip install '{wheel}[sql]'"
    for url in (f"{wheel.as_uri()}.old", "https://user:secret@host/x.whl", ""):
        assert read_message(url) == "pip install '.[sql]' in a checkout of sawlog"


def test_no_module_of_tests_needs_what_only_some_pythons_have() -> None:
    tests = Path(__file__).parent
    drivers = tests / "interop" / "engines"  # run by environments of their own
    paths = [path for path in tests.rglob("*.py") if drivers not in path.parents]
    needing = [path for path in paths if "\nimport plyvel" in path.read_text("utf-8")]
    assert not needing, "plyvel has no wheels for Python 3.13: pytest.importorskip"
