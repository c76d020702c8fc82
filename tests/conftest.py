"""Settings that all tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

SPARK = ("tests/spark/", "tests/exactly_once/", "tests/test_benchmarks.py")
"""Where the tests are that run Spark."""
ALONE = (
    "tests/exactly_once/",
    "tests/spark/test_jar.py",
    "tests/spark/test_pipeline.py::test_spark_submit",
)
"""Those that start a Spark of their own, and need none of the sessions that the others share."""
SECOND_SESSION = "tests/spark/test_l"
"""From here on, by name, tests share a second session: one for all of them takes longer than all other tests."""
LAWS = 36
"""Of the samples of each law, one in so many is in a run without `--all`."""
MANY = 2
"""Of so many parameter sets of a test, or more, every other one is in such a run, unless it is marked otherwise."""
VERY_MANY = 10
"""Of so many, or more, it is one in four."""
EFFORT = "0.1"
"""Of the changes of a sample, the share that is tried then."""

# Machines differ, so no deadline, and the same examples on every run.
settings.register_profile(
    "all", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("some", settings.get_profile("all"), max_examples=8)

# What tests do with Spark is over before the second compiler of the JVM has earned its keep: half of Java's time. To
# verify Spark's byte code takes two seconds of the twelve that each of a dozen starts needs. Nobody asks for counters,
# which a thread of each JVM writes into a file twenty times a second.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

MEMORY = "/dev/shm"
"""Where files of tests are, if it has room: many writes end in `fsync`, for which a disk takes its time."""
ROOM = 8 << 30
"""More than three times the bytes that a run leaves there."""
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
    os.environ["TMPDIR"] = MEMORY
    tempfile.tempdir = None  # which was asked for before

# A job in a shell's background ignores Ctrl-C, and under nohup that its terminal is closed. So would all programs that
# tests start to end them by these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


FILES = pytest.StashKey[set[str]]()
"""The files that are in the repository when a session begins; in the end, those that it leaves there."""
COMPILED = {"__pycache__", "_native", "_objects"}
"""Directories of what is compiled once, and kept."""


def list_files(root: Path) -> set[str]:
    """The files below a directory, but counts of coverage, and what is in hidden directories or compiled."""
    files: set[str] = set()
    for directory, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in COMPILED and not name.startswith(".")]
        files.update(os.path.relpath(f"{directory}/{name}", root) for name in names if not name.startswith(".coverage"))
    return files


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of several processes, the one that starts the others looks."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[FILES] = list_files(session.config.rootpath)


@pytest.hookimpl(trylast=True)  # when other processes have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests leave no file where they run: a session that does fails."""
    if FILES in session.config.stash:
        session.config.stash[FILES] = list_files(session.config.rootpath) - session.config.stash[FILES]
        if session.config.stash[FILES]:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the files."""
    if config.stash.get(FILES, None):
        terminalreporter.section("files that were not there before, which fails", red=True)
        for path in sorted(config.stash[FILES]):
            terminalreporter.write_line(path)


def scope(nodeid: str) -> str:
    """What one process runs: the tests that share a session of Spark, one that needs its own, or those of a package."""
    alone = next((prefix for prefix in ALONE if nodeid.startswith(prefix)), None)
    if alone is None and nodeid.startswith("tests/spark/") and nodeid >= SECOND_SESSION:
        return SECOND_SESSION
    return alone or "/".join(nodeid.partition("::")[0].split("/")[:2])


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test-all` runs beyond `make test`."""
    parser.addoption(
        "--all", action="store_true", help="all samples of the laws, all their changes, all parameter sets"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before the laws are imported. What is imported, and collected, stays: no garbage is looked for meanwhile."""
    gc.disable()
    settings.load_profile("all" if config.getoption("--all") else "some")
    if not config.getoption("--all"):
        os.environ.setdefault("SAWLOG_LAWS_EFFORT", EFFORT)


def stride(item: pytest.Item, sets: int) -> int:
    """Of how many parameter sets of a test, which has so many, one is taken; 0 if none is."""
    from sawlog.testing import Laws

    if item.get_closest_marker("nightly") is not None:
        return 0
    of_law = isinstance(item, pytest.Function) and item.cls is not None and issubclass(item.cls, Laws)
    marker = item.get_closest_marker("spread")
    if marker is not None:
        return int(marker.args[0])
    return LAWS if of_law else 1 if sets < MANY else 2 if sets < VERY_MANY else 4


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of each test's parameter sets the share that its marker asks for: the same in every run, at least one.

    First those that fewest tests of the same class or module have taken, so that some law is tried with each sample;
    of these one of every n in a row, of the next n the one after it, so that every value of every parameter is in it.
    """
    many = Counter(item.nodeid.partition("[")[0] for item in items)
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        tests.setdefault((name, stride(item, many[name])), []).append(item)
    often: Counter[str] = Counter()
    selection = []
    for (name, step), group in tests.items():
        if step < 2:
            selection += group * step
            continue
        sets = [name.rpartition("::")[0] + item.nodeid.removeprefix(name) for item in group]
        order = sorted(range(len(group)), key=lambda index: (often[sets[index]], (index + index // step) % step, index))
        picks = sorted(order[: -(-len(group) // step)])
        often.update(sets[index] for index in picks)
        selection += [group[index] for index in picks]
    return selection


@pytest.hookimpl(trylast=True)  # of what `-m` leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What runs Spark takes longest, and comes first, then packages of many tests; what is small fills the gaps."""
    if not config.getoption("--all") and not any("::" in arg for arg in config.args):
        selection = spread(items)
        selected_ids = {id(item) for item in selection}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in selected_ids])
        items[:] = selection
    sizes = Counter(scope(item.nodeid) for item in items)

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        scope_name = scope(item.nodeid)
        return not item.nodeid.startswith(SPARK), -sizes[scope_name], scope_name

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Nor is it in what is there now: to look through all modules and tests takes half a second each time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several processes, one runs the tests that share a session of Spark.

    Others keep the tests of a package together: then no two compile the same kernels at the same time.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ScopeScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return ScopeScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The installed Spark without its archive of PySpark, so that all processes import the package that is installed.

    The archive holds no byte code: each of some 200 processes would compile PySpark again, which takes half a second.
    """
    package = find_spec("pyspark")
    if package is None or package.origin is None or "SPARK_HOME" in os.environ:
        return
    home = tmp_path_factory.mktemp("spark")
    for path in Path(package.origin).parent.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    os.environ["SPARK_HOME"] = str(home)


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """A server of the S3 protocol on loopback; the storage options to reach it."""
    with s3_server() as options:
        yield options


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, Any]]:
    """A server of the S3 protocol, with a bucket `logs`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.object_store", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"}}
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        fsspec.filesystem("s3", **options).mkdir("logs")
        yield options
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def sleep_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[float], None]], None]:
    """Replace `time.sleep` for the test's own thread; the threads of libraries go on sleeping."""
    sleep, tester = time.sleep, threading.get_ident()

    def replace(instead: Callable[[float], None]) -> None:
        def sleep_by_thread(seconds: float) -> None:
            (instead if threading.get_ident() == tester else sleep)(seconds)

        monkeypatch.setattr(time, "sleep", sleep_by_thread)

    return replace


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every window into a file."""
    from sawlog.storage import Storage

    sizes: list[int] = []
    plain = Storage.open

    class CountingSource:
        def __init__(self, source: Any) -> None:
            self._source = source
            self.size = source.size

        def read_window(self, offset: int, length: int) -> Any:
            window = self._source.read_window(offset, length)
            sizes.append(len(window))
            return window

        def close(self) -> None:
            self._source.close()

    monkeypatch.setattr(
        Storage, "open", lambda self, path, *args, **options: CountingSource(plain(self, path, *args, **options))
    )
    return sizes


@pytest.fixture
def root() -> Iterator[str]:
    """A directory in memory, as fsspec has it; emptied after the test."""
    root = f"memory://{uuid.uuid4().hex}"
    yield root
    for path in [path for path in MemoryFileSystem.store if path.startswith(root.removeprefix("memory:/"))]:
        del MemoryFileSystem.store[path]
