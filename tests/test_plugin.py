"""A package that sawlog knows nothing of adds a format through its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "plugin"

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
    found = json.loads(done.stdout)
    assert "lines" in found["formats"]
    assert "leveldb_log" in found["formats"]
    assert found["format"] == "lines"
    assert found["rows"] == 4
    assert found["total"] == path.stat().st_size
    assert [(d["offset"], d["length"], d["kind"]) for d in found["damage"]] == [(13, 2, "shout")]


def test_third_party_verb_and_spark_helper_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.lines"
    path.write_bytes(b"a\n!\nb\n!\n")
    done = run("-m", "sawlog", "shout", str(path))
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "shout" in run("-m", "sawlog", "--help").stdout
    asked = "import sawlog.spark; print(sawlog.spark.whisper('HUSH'), 'whisper' in dir(sawlog.spark))"
    assert run("-c", asked).stdout == "hush True\n"
    assert "AttributeError" in run("-c", "import sawlog.spark; sawlog.spark.nonsense").stderr


def test_third_party_view_of_a_database_is_found(tmp_path: Path) -> None:
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as database:
        for key, value in {b"counter/a": b"\1", b"counter/b": b"\2", b"unit/a": b"m", b"x": b""}.items():
            database.put(key, value)
        database.delete(b"counter/b")
    asked = ("cat", str(tmp_path / "db"), "--view", "counters", "-o", "history=true", "--json")
    done = run("-m", "sawlog", *asked, "--columns", "name,unit,count,reason,operation")
    assert done.returncode == 0, done.stderr
    assert [tuple(json.loads(line).values()) for line in done.stdout.splitlines()] == [
        ("a", "m", 1, None, "put"),
        ("b", None, None, None, "delete"),
        ("b", None, 2, None, "put"),
        (None, None, None, "not a counter", "put"),
        (None, None, None, "not a counter", "put"),
    ]
    assert "decoded by --view counters" in run("-m", "sawlog", "info", str(tmp_path / "db")).stdout
