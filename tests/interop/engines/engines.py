"""Releases of engines: how each is fetched and driven, and whether sawlog answers as it does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random

import sawlog
from tests.interop.engines import profiles
from tests.interop.engines.workload import Profile, Step, workload

FOLDER = Path(__file__).parent
ENDINGS = ("closed", "killed", "copied")
"""How a database is left: closed cleanly, killed by SIGKILL, or copied while it is open."""
PATIENCE = 60
"""Seconds until a driver is killed that does not come to an end."""


@dataclass(frozen=True)
class Engine:
    """A release of an engine.

    Attributes:
        name: Its name and release.
        profile: What is drawn for it.
        build: Fetches it into a directory, and returns the command that drives it.
        joint: What is between operands that its merge operator joins.
        revives: Whether its compactions join operands with values that a range deletion has removed, see `_revived`.
    """

    name: str
    profile: Callable[[Random], Profile]
    build: Callable[[Path], Sequence[str]]
    joint: bytes = b""
    revives: bool = False

    def ready(self, cache: Path) -> Sequence[str]:
        """The command that drives it, built where it is not yet."""
        directory = (cache / self.name).absolute()
        done = directory / "command.json"
        sources = [path for path in FOLDER.rglob("*") if path.is_file() and not path.suffix.startswith(".py")]
        if not done.exists() or done.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            directory.mkdir(parents=True, exist_ok=True)
            done.write_text(json.dumps(self.build(directory)))
        command: list[str] = json.loads(done.read_text())
        return command


def run(command: Sequence[str], directory: Path) -> None:
    """Run a command that fetches or builds something."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=1800)
    assert not done.returncode, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"


def pebble(release: str, also: Sequence[str] = ()) -> Callable[[Path], Sequence[str]]:
    """Pebble, from the Go module proxy; `latest` is the newest. Its first major version has another import path."""
    module = "github.com/cockroachdb/pebble" + ("" if release.startswith("1.") else "/v2")

    def build(directory: Path) -> Sequence[str]:
        source = (FOLDER / "pebble" / "main.go").read_text()
        (directory / "main.go").write_text(source.replace("github.com/cockroachdb/pebble/v2", module))
        return _go(directory, f"{module}@{release if release == LATEST else f'v{release}'}", *also)

    return build


def _go(directory: Path, *modules: str) -> Sequence[str]:
    (directory / "go.mod").unlink(missing_ok=True)
    run(["go", "mod", "init", "driver"], directory)
    run(["go", "get", *modules], directory)
    run(["go", "build", "-o", "driver", "."], directory)
    return [str(directory / "driver")]


LATEST = "latest"
"""What Go and npm call the newest release of a package."""


def goleveldb(directory: Path) -> Sequence[str]:
    """goleveldb, from the Go module proxy."""
    shutil.copy(FOLDER / "goleveldb" / "main.go", directory)
    return _go(directory, "github.com/syndtr/goleveldb/leveldb@v1.0.0")


def python(package: str, driver: str) -> Callable[[Path], Sequence[str]]:
    """A binding of Python's."""

    def build(directory: Path) -> Sequence[str]:
        run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory), package], directory)
        return ["env", f"PYTHONPATH={directory}", sys.executable, str(FOLDER / driver / "driver.py")]

    return build


def classic_level(release: str) -> Callable[[Path], Sequence[str]]:
    """LevelDB for Node.js."""

    def build(directory: Path) -> Sequence[str]:
        shutil.copy(FOLDER / "classic_level" / "driver.js", directory)
        run(["npm", "install", "--silent", "--prefix", str(directory), f"classic-level@{release}"], directory)
        return ["node", str(directory / "driver.js")]

    return build


def rocksdbjni(release: str) -> Callable[[Path], Sequence[str]]:
    """RocksDB's Java binding, from Maven."""

    def build(directory: Path) -> Sequence[str]:
        for artifact in (f"org.rocksdb:rocksdbjni:{release}", "org.json:json:20240303"):
            command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}"]
            run([*command, f"-DoutputDirectory={directory}"], directory)
        path = f"{directory}:{directory}/*"
        run(["javac", "-d", str(directory), "-cp", path, str(FOLDER / "rocksdbjni" / "Driver.java")], directory)
        return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", path, "Driver"]

    return build


SWISS = "github.com/cockroachdb/swiss@v0.0.0-20260820225851-333444432258"
"""A newer one than Pebble 2.0 asks for, which newer compilers do not take."""

ENGINES = (
    Engine("pebble-1.0.0", profiles.pebble("1.0"), pebble("1.0.0")),
    Engine("pebble-1.1.5", profiles.pebble("1.1"), pebble("1.1.5")),
    Engine("pebble-2.0.7", profiles.pebble("2.0"), pebble("2.0.7", [SWISS])),
    Engine("pebble-2.1.7", profiles.pebble("2.1"), pebble("2.1.7", [SWISS])),
    Engine("goleveldb-1.0.0", profiles.leveldb("goleveldb"), goleveldb),
    *(
        Engine(f"plyvel-{release}", profiles.leveldb("plyvel"), python(f"plyvel=={release}", "plyvel"))
        for release in ("1.5.0", "1.5.1")
    ),
    *(
        Engine(f"classic-level-{release}", profiles.leveldb("classic-level"), classic_level(release))
        for release in ("1.0.0", "1.4.1", "3.0.0")
    ),
    *(
        Engine(f"rocksdict-{release}", profiles.rocksdict(formats), python(f"rocksdict=={release}", "rocksdict"))
        for release, formats in (("0.3.2", range(6)), ("0.3.16", range(6)), ("0.3.29", range(7)))
    ),
    *(
        Engine(
            f"rocksdbjni-{release}",
            profiles.rocksdb(int(release.split(".")[0]), formats),
            rocksdbjni(release),
            joint=b",",
            revives=release == "5.18.4",
        )
        for release, formats in (
            ("5.18.4", range(5)),
            ("7.10.2", range(6)),
            ("8.11.4", range(7)),
            ("11.8.1", range(2, 8)),
        )
    ),
)

NEWEST = (
    Engine("pebble-newest", profiles.pebble("newest"), pebble(LATEST, [SWISS])),
    Engine("plyvel-newest", profiles.leveldb("plyvel"), python("plyvel", "plyvel")),
    Engine("classic-level-newest", profiles.leveldb("classic-level"), classic_level(LATEST)),
    Engine("rocksdict-newest", profiles.rocksdict(range(7)), python("rocksdict", "rocksdict")),
    Engine("rocksdbjni-newest", profiles.rocksdb(11, [None]), rocksdbjni(LATEST.upper()), joint=b","),
)
"""The newest release of each engine, with the formats that it writes by default; the nightly run builds them again."""


Rows = dict[str, dict[bytes, bytes]]
"""Keys and values of each column family."""


@dataclass
class Answer:
    """What an engine has answered, and the database that it has left."""

    path: Path
    steps: list[Step]
    rows: Rows


def ask(engine: Engine, command: Sequence[str], seed: int, directory: Path) -> Answer:
    """Have an engine replay the workload of a seed; of three seeds each leaves its database in another way."""
    path, steps = directory / "db", workload(engine.profile, seed)
    with _replayed(command, path, steps, directory / "workload.jsonl") as (driver, rows):
        ending = ENDINGS[seed % 3]
        if ending == "killed":
            driver.send_signal(signal.SIGKILL)
        elif ending == "copied":
            path = _copy(path, directory / "copy")
    return Answer(path, steps, rows)


@contextlib.contextmanager
def _replayed(
    command: Sequence[str], path: Path, steps: Sequence[Step], script: Path
) -> Iterator[tuple[subprocess.Popen[str], Rows]]:
    """A driver that has replayed steps and has the database open, and what it has answered."""
    script.write_text("".join(json.dumps(step) + "\n" for step in steps))
    errors = script.with_suffix(".txt")
    with (
        errors.open("w") as log,
        subprocess.Popen(
            [*command, str(path), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as driver,
    ):
        assert driver.stdin
        assert driver.stdout
        watch = threading.Timer(PATIENCE, driver.kill)
        watch.start()
        rows: Rows = {"default": {}}
        for line in driver.stdout:
            if line == "open\n":
                break
            family, key, value = json.loads(line)
            rows.setdefault(family, {})[bytes.fromhex(key)] = bytes.fromhex(value)
        else:
            watch.cancel()
            raise AssertionError(f"{' '.join(command)}, {script}: {errors.read_text()[-3000:]}")
        yield driver, rows
        driver.stdin.close()
        driver.wait()
        watch.cancel()


def _copy(path: Path, to: Path) -> Path:
    """A copy of a database that does not change meanwhile."""
    while True:
        shutil.rmtree(to, ignore_errors=True)
        # A file that vanishes meanwhile is an error of its own.
        with contextlib.suppress(shutil.Error, FileNotFoundError):
            before = _listing(path)
            shutil.copytree(path, to)
            if _listing(path) == before:
                return to


def _listing(path: Path) -> dict[str, int]:
    with os.scandir(path) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def live(path: Path, family: str, joint: bytes = b"") -> dict[bytes, bytes]:
    """What sawlog says that the database holds; operands are joined, the newest last."""
    state: dict[bytes, bytes] = {}
    rows = sawlog.read(path, format="leveldb_database", view="live", table=family)
    for row in rows.to_pylist():
        older, newer = row["value"], state.get(row["key"])
        state[row["key"]] = older if newer is None else older + joint + newer
    return state


def difference(engine: Engine, command: Sequence[str], seed: int, directory: Path) -> str:
    """What sawlog answers otherwise than an engine for the workload of a seed; empty where nothing is."""
    try:
        answer = ask(engine, command, seed, directory)
        for family, expected in answer.rows.items():
            state = live(answer.path, family, engine.joint)
            wrong = sorted(key for key in {*state, *expected} if state.get(key) != expected.get(key))
            if wrong and not (engine.revives and _revived(command, answer, family, wrong, state, directory)):
                value, expected_value = state.get(wrong[0]), expected.get(wrong[0])
                first = f"{wrong[0]!r} is {value!r:.60}, not {expected_value!r:.60}"
                return f"{family}: {len(wrong)} of {len(expected)} keys differ: {first}"
    except Exception as error:  # noqa: BLE001 whatever it is, it is counted
        return f"{type(error).__name__}: {error}"
    return ""


def _revived(
    command: Sequence[str],
    answer: Answer,
    family: str,
    keys: Sequence[bytes],
    state: dict[bytes, bytes],
    directory: Path,
) -> bool:
    """Whether RocksDB itself has changed what the database holds, between its answer and its end.

    Before 6.3.0 its compactions joined operands with values that a range deletion had removed ("allowed `Put`s covered
    by range tombstones to reappear", says its history). They run in the background. So for keys with both operands and
    range deletions, what counts is what the engine answers for the very files that sawlog has read.
    """
    merged: set[bytes] = set()
    ranges: list[tuple[bytes, bytes]] = []
    for step in answer.steps:
        if step.get("family") == family:
            for name, *texts in chain(step.get("of", []), *(table["of"] for table in step.get("tables", []))):
                operands = [bytes.fromhex(text) for text in texts]
                if name == "merge":
                    merged.add(operands[0])
                elif name == "delete_range":
                    ranges.append((operands[0], operands[1]))
    if not all(key in merged and any(low <= key < high for low, high in ranges) for key in keys):
        return False
    opening = answer.steps[0]
    still = opening["options"]["family"] | {"disable_auto_compactions": "true"}
    again = {**opening, "options": {**opening["options"], "family": still}}
    copy = _copy(answer.path, directory / "again")
    with _replayed(command, copy, [again], directory / "again.jsonl") as (_, rows):
        return rows.get(family, {}) == state
