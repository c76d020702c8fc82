"""What RocksDB can do that its bindings do not offer, drawn from seeds; a program against its headers asks it itself.

The library is that in the jar for Java, the headers are those in the crate for Rust, of the same release.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

import sawlog
from sawlog.errors import IncompleteError, UnsupportedError
from sawlog.format.damage import Verdict
from tests.leveldb_database.support import read_live_state

pytestmark = pytest.mark.interop

RELEASE = "11.8.1"
CRATE = "0.19.0+11.8.1"
MANIFEST = f"""
[package]
name = "headers"
version = "0.0.0"
edition = "2021"
[dependencies]
librocksdb-sys = {{ version = "={CRATE}", default-features = false }}
"""
PROGRAMS = Path(__file__).parent / "rocksdb"
SEEDS = range(12)


def headers(place: Path) -> Path:
    """The sources of RocksDB, headers included."""
    place.joinpath("src").mkdir(parents=True)
    place.joinpath("src", "lib.rs").touch()
    place.joinpath("Cargo.toml").write_text(MANIFEST)
    command = ["cargo", "metadata", "--format-version", "1"]
    done = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, timeout=600)
    (crate,) = (package for package in json.loads(done.stdout)["packages"] if package["name"] == "librocksdb-sys")
    return Path(crate["manifest_path"]).parent / "rocksdb"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are, compiled."""
    place = tmp_path_factory.mktemp("rocksdb")
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact=org.rocksdb:rocksdbjni:{RELEASE}"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    with ZipFile(next(place.glob("*.jar"))) as jar:
        library = jar.extract("librocksdbjni-linux64.so", place)
    source = headers(place / "headers")
    for name in ("drawn", "stamped"):
        command = ["g++", "-std=c++20", "-fno-rtti", "-o", str(place / name), str(PROGRAMS / f"{name}.cc"), library]
        command += [f"-Wl,-rpath,{place}", f"-I{source / 'include'}", f"-I{source}"]
        subprocess.run(command, check=True, timeout=600)
    return place


@pytest.fixture(scope="module")
def program(programs: Path) -> Path:
    """The program that draws what other databases do not have."""
    return programs / "drawn"


def draw_state(program: Path, directory: Path, case: str, seed: int) -> list[dict[bytes, bytes]]:
    """Write a database; what each of its families holds."""
    directory.mkdir(exist_ok=True)
    command = [str(program), str(directory), case, str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    states: list[dict[bytes, bytes]] = [{}, {}]
    for number, key, value in (line.split("\t") for line in done.stdout.splitlines()):
        states[int(number)][bytes.fromhex(key)] = bytes.fromhex(value)
    return states


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", ["cuckoo", "stacked", "ingested", "paths", "reverse", "tracked"])
def test_what_rocksdb_holds(program: Path, case: str, seed: int, tmp_path: Path) -> None:
    states = draw_state(program, tmp_path / "first", case, seed)
    tmp_path.joinpath("first").rename(tmp_path / "copies")
    copy = tmp_path / "copies" / "db"
    paths = {"paths": sorted(path for path in copy.parent.iterdir() if path != copy and path.is_dir())}
    settings = paths if case == "paths" else {}
    tables = ("default",) if case == "stacked" else ("default", "zweite")
    for number, table in enumerate(tables):
        assert read_live_state(copy, table, **settings) == states[number]
        report = sawlog.verify(copy, format="leveldb_database", table=table, **settings)
        assert not report.damaged
        assert not report.incomplete
        assert not any(file.account.unsupported for file in report.files)


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_elsewhere_are_asked_for(program: Path, seed: int, tmp_path: Path) -> None:
    """Without the directories the database is incomplete, if it has tables at all."""
    draw_state(program, tmp_path / "first", "paths", seed)
    if not list(tmp_path.glob("first/*/*.sst")):
        pytest.skip("nothing was flushed")
    assert sawlog.verify(tmp_path / "first" / "db", format="leveldb_database").incomplete


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_encrypted_is_unsupported(program: Path, seed: int, tmp_path: Path) -> None:
    draw_state(program, tmp_path / "first", "encrypted", seed)
    with pytest.raises(UnsupportedError, match="encrypt"):
        sawlog.read(tmp_path / "first" / "db", format="leveldb_database")


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_tracked_log_that_is_gone_is_missed(program: Path, seed: int, tmp_path: Path) -> None:
    """RocksDB refuses to open such a database, as one that misses a log."""
    draw_state(program, tmp_path / "first", "tracked", seed)
    logs = sorted(tmp_path.glob("first/db/*.log"))
    if len(logs) < 2:
        pytest.skip("one log is alive, which the MANIFEST does not name yet")
    logs[0].unlink()
    with pytest.raises(IncompleteError, match=logs[0].name):
        sawlog.read(tmp_path / "first" / "db", format="leveldb_database")


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("case", ["persisted", "stripped", "enabled", "disabled"])
def test_what_rocksdb_holds_at_the_newest_time(programs: Path, case: str, seed: int, tmp_path: Path) -> None:
    """Keys end in their timestamps, where their family has any."""
    states = draw_state(programs / "stamped", tmp_path / "first", case, seed)
    copy = tmp_path / "first" / "db"
    for number, table in enumerate(("default", "zweite")):
        assert read_live_state(copy, table) == states[number]
        report = sawlog.verify(copy, format="leveldb_database", table=table)
        assert report.verdict is Verdict.CLEAN
    schemas = [sawlog.open(copy, format="leveldb_database", table=table).schema for table in ("default", "zweite")]
    copied = tmp_path / "second"
    sawlog.repair(copy, copied / "db", format="leveldb_database")
    stamped = sum("timestamp" in schema.names for schema in schemas)
    assert draw_state(programs / "stamped", copied, "held", stamped) == states, (
        "a repaired one has all timestamps in tables"
    )
