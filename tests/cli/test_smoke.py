"""Every verb once, in a process of its own, as an installation runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog

LOG = "examples/data/shop/000003.log"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with something for every verb."""
    directory = tmp_path_factory.mktemp("smoke")
    sawlog.write(ROWS, directory / "milvus", format="milvus_binlog", primary_key="id", tree="backup")
    sawlog.write(ROWS, directory / "columns", format="deephaven_table", types={"name": "String"})
    (directory / "logs").mkdir()
    sawlog.write(
        ROWS, directory / "logs/Ns.T.System.host.2024-05-06.bin.2024-05-06.000000.000-0000", format="deephaven_log"
    )
    return directory


SMOKE: dict[str, tuple[Sequence[str], str]] = {
    "ls": ([LOG], "LevelDB / RocksDB log"),
    "info": ([LOG], "leveldb_log"),
    "cat": ([LOG, "--limit", "1", "--json"], "record"),
    "verify": ([LOG], "1 file: 1 clean"),
    "report": ([LOG, "--output", "{place}/report.html"], "report.html"),
    "map": ([LOG, "--output", "{place}/map.html"], "map.html"),
    "repair": ([LOG, "{place}/000003.log"], "row"),
    "convert": ([LOG, "{place}/rows.parquet"], "row"),
    "diff": ([LOG, LOG], "equal"),
    "init": (["{place}/pipeline.toml"], "pipeline.toml"),
    "run": (["--help"], "pipeline"),
    "sql": (["select count(*) as n from '%s'" % LOG, "--json"], "n"),  # noqa: UP031
    "formats": ([], "filodb_record"),
    "warm-up": (["leveldb_log"], "kernels"),
    "spark-jar": (["--help"], "jar"),
    "compact": (["--help"], "collection"),
    "import": (["--help"], "log"),
    "import-status": (["--help"], "log"),
    "merge": (["--help"], "date"),
    "validate": (["{place}/columns"], "columns"),
    "index": (["{place}/logs", "--output", "{place}/an.index"], "of deephaven_log in the index"),
    "vacuum": (["{place}", "--dry-run"], "0 leftovers"),
}


MAX_SUMMARY = 45
"""Characters of the sentence on a verb, which a list of verbs shows whole."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sawlog", *words], capture_output=True, text=True, check=False)


def test_every_verb_is_here() -> None:
    listed = json.loads(run("formats", "--json").stdout)
    assert listed
    assert {name for name, _ in helped()} == set(SMOKE)


def helped() -> list[tuple[str, str]]:
    """Verbs and what the help says of them."""
    lines = run("--help").stdout.partition("\nLook:")[2].partition("Examples:")[0].splitlines()
    rows = [line.split(None, 1) for line in lines if line.startswith("  ") and line[2:3].strip()]
    return [(name, text.strip()) for name, text in rows]


def test_the_help_says_of_each_verb_all_that_it_does() -> None:
    for name, text in helped():
        assert len(text) <= MAX_SUMMARY, name
        assert text[0].isupper(), name
        assert text[-1].isalnum(), name


@pytest.mark.spread(4)
@pytest.mark.parametrize("verb", SMOKE)
def test_options_that_verbs_share_have_a_heading_of_their_own(verb: str) -> None:
    text = run(verb, "--help").stdout
    shared_options = text.partition("\nOptions:")[2].partition("\nOptions of")[0]
    assert not re.search(
        r"^  .*(--format|--view|--columns|--option|--storage|--threads) ", shared_options, re.MULTILINE
    ) or ("--from, --format" in shared_options)


@pytest.mark.spread(2)
@pytest.mark.parametrize("verb", SMOKE)
def test_a_verb_works_in_a_fresh_process(verb: str, place: Path) -> None:
    words, expected = SMOKE[verb]
    done = run(verb, *(word.replace("{place}", str(place)) for word in words))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert expected in done.stdout + done.stderr


@pytest.mark.heavy
@pytest.mark.spark
def test_verbs_on_spark(place: Path) -> None:
    """Those of which the smoke tests see only the help: each starts a Spark of its own."""
    logs, tree, pipeline, milvus = (str(place / name) for name in ("logs", "tree", "ready.toml", "milvus"))
    settings = f"""
[sources.rows]
path = {logs!r}
format = "deephaven_log"

[sinks.table]
from = "rows"
format = "parquet"
mode = "overwrite"
path = {str(place / "table")!r}
"""
    Path(pipeline).write_text(settings)
    for words in (
        ("import", logs, tree),
        ("import-status", logs, tree),
        ("merge", tree, "Ns", "T", "2024-05-06"),
        ("compact", milvus, str(place / "compacted")),
    ):
        done = run(*words)
        assert done.returncode == 0, done.stderr
    assert sawlog.read(place / "tree/Systems").num_rows == len(ROWS)
    assert run("run", pipeline).returncode == 0
    assert pq.read_table(place / "table").num_rows == len(ROWS)
