"""A package that sawlog knows nothing of adds a format through its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sawlog.format import lazy
from tests.support import write_records

PLUGIN = Path(__file__).parents[1] / "plugin"

SCRIPT = """
import json, sys, warnings
import pyarrow as pa
import sawlog
warnings.simplefilter("error")
path = sys.argv[1]
sawlog.write(pa.table({"line": ["a", "b", "c"]}), path, format="lines")
with open(path, "ab") as file:
    file.write(b"!\\nd\\n")
report = sawlog.verify(path)
print(json.dumps({
    "formats": sorted(sawlog.formats()),
    "format": sawlog.open(path).format.name,
    "damage": sawlog.read(path, view="damage").to_pylist(),
    "rows": report.rows,
    "total": report.account.total,
}))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_third_party_format_goes_through_every_verb(tmp_path: Path) -> None:
    path = tmp_path / "a.lines"
    done = run("-c", SCRIPT, str(path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "lines" in document["formats"]
    assert "leveldb_log" in document["formats"]
    assert document["format"] == "lines"
    assert document["rows"] == 4
    assert document["total"] == path.stat().st_size
    assert [(d["offset"], d["length"], d["kind"]) for d in document["damage"]] == [(13, 2, "shout")]


def test_third_party_verb_and_spark_helper_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.lines"
    path.write_bytes(b"a\n!\nb\n!\n")
    done = run("-m", "sawlog", "shout", str(path))
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "shout" in run("-m", "sawlog", "--help").stdout
    script = "import sawlog.spark; print(sawlog.spark.whisper('HUSH'), 'whisper' in dir(sawlog.spark))"
    assert run("-c", script).stdout == "hush True\n"
    assert "AttributeError" in run("-c", "import sawlog.spark; sawlog.spark.nonsense").stderr


def test_third_party_view_of_a_database_is_found(tmp_path: Path) -> None:
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as database:
        for key, value in {b"counter/a": b"\1", b"counter/b": b"\2", b"unit/a": b"m", b"x": b""}.items():
            database.put(key, value)
        database.delete(b"counter/b")
    arguments = ("cat", str(tmp_path / "db"), "--view", "counters", "-o", "history=true", "--json")
    done = run("-m", "sawlog", *arguments, "--columns", "name,unit,count,reason,operation")
    assert done.returncode == 0, done.stderr
    assert [tuple(json.loads(line).values()) for line in done.stdout.splitlines()] == [
        ("a", "m", 1, None, "put"),
        ("b", None, None, None, "delete"),
        ("b", None, 2, None, "put"),
        (None, None, None, "not a counter", "put"),
        (None, None, None, "not a counter", "put"),
    ]
    assert "decoded by --view counters" in run("-m", "sawlog", "info", str(tmp_path / "db")).stdout


def test_own_entry_points_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    groups = {group: points for group, points in project["entry-points"].items() if group.startswith("sawlog.")}
    assert groups == lazy.OWN_ENTRY_POINTS


WITHOUT_METADATA = """
import importlib.metadata, sys
importlib.metadata.MetadataPathFinder.find_distributions = classmethod(lambda *_: [])
import sawlog
print(len(sawlog.formats()), sawlog.open(sys.argv[1]).format.name, sawlog.read(sys.argv[1]).num_rows)
"""


def test_sawlog_on_the_path_without_being_installed(tmp_path: Path) -> None:
    """As a copy of the package, or `--py-files`, puts it there: no metadata names its formats."""
    path = tmp_path / "000003.log"
    write_records(path, [b"x"])
    command = [sys.executable, "-c", WITHOUT_METADATA, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["7", "leveldb_log", "1"], done.stderr[-2000:]
