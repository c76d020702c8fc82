"""One line on stderr and an exit code, whatever goes wrong; and what is loaded before there is anything to do."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sawlog
from sawlog.cli import main, signals
from sawlog.cli.errors import Exit, complain, with_exit_codes
from sawlog.cli.signals import raise_on_signals
from sawlog.spark import sessions
from sawlog.storage import Storage
from tests.cli.conftest import Run, write_log

HEAVY = ["numba", "pyspark", "pandas", "pyarrow.compute", "pyarrow.parquet", "pyarrow.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "{tmp}/nothing.log"], "no such file"),
        (["info", "{tmp}/empty"], "holds no files"),
        (["info", "{tmp}/zero.unknown"], "the file is empty"),
        (["cat", "{tmp}/junk.unknown"], "not recognised"),
        (["cat", "{log}", "--format", "nope"], "unknown format 'nope'"),
        (["cat", "{log}", "--view", "nope"], "no view 'nope'"),
        (["cat", "{log}", "--columns", "nope"], "no column 'nope'"),
        (["cat", "{log}", "--filter", "nope"], "expected COLUMN OP VALUE"),
        (["cat", "{log}", "--filter", "nope = 1"], "no column 'nope'"),
        (["cat", "{log}", "--filter", "_offset = x"], "is int64"),
        (["cat", "{log}", "--filter", "record = \\q"], "is binary"),
        (["cat", "{log}", "-o", "nope"], "expected KEY=VALUE"),
        (["cat", "{log}", "-o", "nope=1"], "unknown option 'nope'"),
        (["cat", "{log}", "-o", "view=damage"], "not an option of a format"),
        (["cat", "{log}", "-o", "verify_checksums=maybe"], "expected bool"),
        (["cat", "{log}", "--output", "xml"], "see sawlog cat --help"),
        (["cat", "{log}", "--limit", "-1"], "see sawlog cat --help"),
        (["cat", "{log}", "--nope"], "see sawlog cat --help"),
        (["cat"], "see sawlog cat --help"),
        (["nope"], "see sawlog --help"),
        (["repair", "{tmp}/nothing.log", "{tmp}/new.log"], "no such file"),
    ],
)
def test_one_line_and_exit_code_2(run: Run, arguments: list[str], message: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "zero.unknown").touch()
    (tmp_path / "junk.unknown").write_bytes(b"junk" * 10)
    result = run(*(text.format(log=log, tmp=tmp_path) for text in arguments))
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("sawlog: ")
    assert message in result.err


def test_a_file_that_may_not_be_read_is_one_line(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(log))

    monkeypatch.setattr(Storage, "read", refuse)
    result = run("cat", log)
    assert (result.code, result.err) == (2, f"sawlog: {log}: Permission denied\n")


def test_verbs_bear_logs_that_are_cut_anywhere(run: Run, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "000009.log"
    for size in (1, 6, 7, 16, 17, 32767, 32768, 40000):
        path.write_bytes(log.read_bytes()[:size])
        for verb in ("info", "cat", "verify"):
            result = run(verb, path)
            assert result.code == 0
            assert len(result.err.splitlines()) <= 1


def test_an_interrupt_ends_a_verb_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> int:
        raise KeyboardInterrupt

    assert with_exit_codes(verb)() == Exit.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("verb", "number", "code", "message"),
    [
        *((verb, signal.SIGINT, 130, "interrupted") for verb in ("info", "cat", "verify", "convert", "sql", "follow")),
        ("convert", signal.SIGTERM, 143, "terminated"),
    ],
)
def test_a_verb_that_is_ended_says_so_in_a_line(
    verb: str, number: signal.Signals, code: int, message: str, tmp_path: Path, log: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = {
        "convert": ["convert", pipe, tmp_path / "out" / "rows.parquet", "--from", "leveldb_log"],
        "sql": ["sql", f"SELECT * FROM '{pipe}'"],
        "follow": ["cat", "-f", log],
    }.get(verb, [verb, pipe, "--format", "leveldb_log"])
    command = [sys.executable, "-m", "sawlog", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if verb == "follow":
            for _ in range(3):
                process.stdout.readline()
        else:
            writer = pipe.open("wb")  # waits until the verb has come to read
        process.send_signal(number)
        output = process.stderr.read()
    if verb != "follow":
        writer.close()
    assert (process.returncode, output) == (code, f"sawlog: {message}\n")
    assert sorted(path.name for path in tmp_path.rglob("*")) in ([log.name, "pipe"], [log.name, "out", "pipe"])


@pytest.fixture
def no_other_handler() -> Iterator[None]:
    """Ctrl-C as Python has it: who has started Spark in this process has left a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("no_other_handler")
def test_a_signal_that_another_thread_receives_ends_what_the_main_thread_waits_for() -> None:
    """Which thread receives a signal of the process is the kernel's choice; Python answers it in the main thread."""
    readable, writable = os.pipe()
    given_up = threading.Event()

    def receive() -> None:
        time.sleep(0.1)  # by then the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def give_up() -> None:
        given_up.set()
        os.close(writable)

    def wait() -> None:
        receiver.start()
        os.read(readable, 1)

    receiver, late = threading.Thread(target=receive), threading.Timer(30, give_up)
    late.start()
    with pytest.raises(KeyboardInterrupt), raise_on_signals():
        wait()
    late.cancel()
    receiver.join()
    assert not given_up.is_set()
    os.close(writable)
    os.close(readable)


@pytest.mark.usefixtures("no_other_handler")
def test_what_a_library_makes_of_the_end_of_a_process_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    def raise_error(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ConnectionRefusedError("the JVM is gone")

    monkeypatch.setattr("sawlog.open", raise_error)
    assert main(["cat", str(log)]) == 130
    assert capsys.readouterr().err == "sawlog: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_bugs_are_not_hidden() -> None:
    def verb() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with_exit_codes(verb)()


def test_warnings_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> int:
        warnings.warn("something is missing", sawlog.DamageWarning, stacklevel=1)
        return 0

    assert with_exit_codes(verb)() == 0
    assert capsys.readouterr().err == "sawlog: warning: something is missing\n"


def test_messages_cannot_harm_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    complain("a\nb \x1b[31mred")
    assert capsys.readouterr().err == "sawlog: a b \\x1b[31mred\n"


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    log = write_log(tmp_path / "000001.log", [b"row"] * 200_000)
    for rendering in ("table", "jsonl", "csv"):
        command = [sys.executable, "-m", "sawlog", "cat", str(log), "--output", rendering]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def loaded_after(code: str) -> list[str]:
    check = f"import json, sys; {code}; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    output = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    document: list[Any] = json.loads(output.splitlines()[-1])
    return document


@pytest.mark.parametrize(
    "code", ["import sawlog", *(f"from sawlog.cli import main; main({a})" for a in ([], ["--help"]))]
)
def test_starting_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) == []


@pytest.mark.parametrize("arguments", [["--version"], ["--no-such"], ["no-such-verb"]])
def test_what_needs_no_verb_loads_none(arguments: list[str]) -> None:
    code = f"from sawlog.cli import main; main({arguments})"
    check = f"import sys; {code}; print([m for m in ('pyarrow', 'numpy', 'sawlog.api') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "[]"


def test_a_verb_loads_no_other() -> None:
    check = "import sys; from sawlog.cli import main; main(['verify', '--help']); print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    loaded = output.splitlines()[-1].split()
    assert "sawlog.cli.verify" in loaded
    assert not {"sawlog.cli.run", "sawlog.cli.convert", "sawlog.pipeline"} & set(loaded)


def test_alone_it_says_what_it_can_do(run: Run) -> None:
    result = run()
    assert (result.code, result.err) == (0, "")
    for verb in ("info", "cat", "verify", "repair", "convert", "formats", "warm-up", "Examples:"):
        assert verb in result.out
    assert run("--version").out == f"sawlog {sawlog.__version__}\n"


def test_the_installed_command_ends_with_the_exit_code(damaged: Path) -> None:
    command = Path(sys.executable).with_name("sawlog")
    assert subprocess.run([command, "verify", damaged], check=False, capture_output=True).returncode == 1


@pytest.mark.usefixtures("no_other_handler")
def test_a_signal_is_repeated_where_it_was_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 0.05)
    undone = []

    def interrupted() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:  # what is taken back is not disturbed
            time.sleep(0.3)
            undone.append(True)

    with raise_on_signals():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    time.sleep(0.1)
    assert undone


class Cluster:
    """A session whose only query ends when its jobs are cancelled, and takes back what it has begun."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.taken_back = False
        self.sparkContext = self
        self.stderr = io.StringIO()
        system = SimpleNamespace(err=self.stderr)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))

    def cancelAllJobs(self) -> None:
        self.cancelled.set()

    def query(self) -> None:
        """As the JVM answers."""
        waiting = {"__name__": "py4j.waiting", "cluster": self, "sleep": time.sleep}
        exec("cancelled = cluster.cancelled.wait(60); sleep(0.3)", waiting)
        self.taken_back = waiting["cancelled"]  # type: ignore[assignment]


@pytest.mark.usefixtures("no_other_handler")
@pytest.mark.parametrize("fails", [True, False])
def test_a_signal_waits_for_what_spark_takes_back(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setattr(sessions, "LOOK_SECONDS", 0.05)
    cluster: Any = Cluster()

    def command() -> None:
        with sessions.cancel_on_signal(cluster):
            signal.raise_signal(signal.SIGINT)
            cluster.query()
            if fails:
                raise OSError("the job was cancelled")
            time.sleep(60)

    with raise_on_signals():
        with pytest.raises(KeyboardInterrupt) as error:
            command()
        assert signals.find_exit_code(error.value) == 130
        assert cluster.taken_back
        assert cluster.stderr.closed
        handler: Any = signal.getsignal(signal.SIGINT)
        assert handler.__module__ == signals.__name__
