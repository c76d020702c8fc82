"""Spark sessions: one of our own, `spark-submit`'s, or a server's; with the jar where that is ours to say."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sawlog.errors import OptionError, SawlogError
from sawlog.guard import install
from sawlog.spark.errors import explain, list_spark_errors
from sawlog.spark.jar import locate_jar
from sawlog.spark.jvm import CLASS_PATH, launch_settings

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

logger = logging.getLogger("sawlog")

QUIET_SETTINGS = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
"""Settings for commands that say themselves how far they are."""

_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Spark 4.1 and later: saves every task the delays of a TCP connection."""
_DAEMON = "spark.python.daemon.module"
"""What Spark's Python workers are forked from; `sawlog.spark.daemon` starts faster than Spark's own."""
_JARS = "spark.jars"
_ARROW = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}
"""Spare the JVM checks of every single access to Arrow's vectors, whose bounds and nulls Spark looks at itself."""

_CANCEL_SECONDS = 10.0
"""Seconds that Spark may take to take back what a cancelled job has begun."""
LOOK_SECONDS = 0.2


def start_session(name: str = "sawlog", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session in which sawlog is as fast as it can be: the active session, or a new one.

    Without a master it is what Spark's own configuration says, or `local[*]`. Under `spark-submit` it is the job's, and
    with `spark.remote`, or `SPARK_REMOTE` in the environment, that of a Spark Connect server; to these two the jar has
    to be given when they are started: `--jars $(sawlog spark-jar)`.

    Args:
        name: What Spark calls the application.
        settings: Spark's settings.

    Raises:
        OptionError: When PySpark is missing.
        SawlogError: When Spark does not start, or cannot be reached.
    """
    SparkSession = _import_pyspark(name)  # noqa: N806
    spark_settings: dict[str, Any] = dict(settings or {})
    starts = _starts_jvm(spark_settings)
    jar = _find_jar() if starts else None
    if jar is not None:
        spark_settings[_JARS] = ",".join(filter(None, [spark_settings.get(_JARS), jar]))
    variables: dict[str, str] = {}
    if starts and spark_settings.get("spark.master", "local").startswith("local"):  # executors are here, too
        # Spark would take the python3 that is first on PATH, which need not have sawlog.
        os.environ.setdefault("PYSPARK_PYTHON", spark_settings.get("spark.pyspark.python", sys.executable))
        for variable, value in _ARROW.items():
            os.environ.setdefault(variable, value)
        spark_settings.setdefault("spark.ui.showConsoleProgress", "false")
        spark_settings.setdefault(_UNIX_SOCKETS, str(os.name == "posix").lower())
        spark_settings.setdefault(_DAEMON, "sawlog.spark.daemon")
        if jar is not None:
            variables, first = launch_settings(jar)
            if first:  # else it is what Spark's own settings say
                spark_settings[CLASS_PATH] = os.pathsep.join(filter(None, [spark_settings.get(CLASS_PATH), first]))
    # Both say again, in JSON or of pandas, which nothing here uses, what nobody can act on.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # tracebacks when the JVM is gone, which the error says
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    try:
        builder = SparkSession.builder.appName(name).config(map=spark_settings)
        with _set_environment(variables):
            spark = builder.getOrCreate()
        _ = spark.version  # reaches the server, where there is one
    except Exception as error:
        raise SawlogError(f"Spark does not start: {explain(error)}; Java 17 or newer is needed") from error
    if jar is not None:
        java: Any = spark._jvm
        with contextlib.suppress(TypeError, *list_spark_errors()):  # a JVM that was there before may lack the jar
            java.org.apache.spark.sql.execution.python.sawlog.Conversation.prepare()
    return spark


def _import_pyspark(name: str) -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OptionError(f"{name} runs on PySpark, which is missing: {install('spark')} ({error})") from None
    return SparkSession


@contextlib.contextmanager
def hold_session(
    name: str, settings: Mapping[str, str], check: Callable[[], object] = lambda: None
) -> Iterator[SparkSession]:
    """Provide a session as `start_session` makes it, which is stopped with the block unless it was there before.

    SIGINT and SIGTERM have Spark take back what it has begun, before they end the block as they would have.

    Args:
        name: What Spark calls the application.
        settings: Spark's settings.
        check: Called before Spark is started: what is wrong with a source needs no Spark to be seen.
    """
    _import_pyspark(name)
    check()
    active_session = _find_active()
    interrupt = signal.getsignal(signal.SIGINT)
    spark = start_session(name, settings)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler talks to the JVM in the middle of whatever else is said to it.
        signal.signal(signal.SIGINT, interrupt)
    if active_session is not None:
        yield spark
        return
    try:
        with cancel_on_signal(spark):
            yield spark
    finally:
        with contextlib.suppress(*list_spark_errors()):  # SIGTERM may have reached Spark itself as well
            spark.stop()


@contextlib.contextmanager
def cancel_on_signal(spark: SparkSession) -> Iterator[None]:
    """Have the first signal cancel Spark's jobs, and come again when what they had begun is taken back."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        previous_handlers = {
            signal_number: signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)
        }
        before = {number: handler for number, handler in previous_handlers.items() if callable(handler)}
    received: list[int] = []
    patience = 0.0
    raised, over = threading.Event(), threading.Event()

    def cancel(number: int) -> None:
        main = threading.main_thread().ident or 0
        while not over.is_set():
            with contextlib.suppress(Exception):  # the JVM may be gone; a Connect server has no context
                java: Any = spark.sparkContext._jvm
                java.java.lang.System.err.close()  # else it reports every task, and of every worker that it kills
                spark.sparkContext.cancelAllJobs()
            over.wait(LOOK_SECONDS)
            waits = time.monotonic() < patience and _waits_for_spark(sys._current_frames().get(main))
            if not (waits or raised.is_set() or over.is_set()):
                signal.pthread_kill(main, number)

    def handle_signal(number: int, frame: FrameType | None) -> None:
        nonlocal patience
        if not received:
            received.append(number)
            patience = time.monotonic() + _CANCEL_SECONDS
            threading.Thread(target=cancel, args=(number,), daemon=True).start()
        elif time.monotonic() > patience or sys.exc_info()[1] is None:  # else an error is on its way out
            raised.set()
            before[number](number, frame)

    for number in before:
        signal.signal(number, handle_signal)
    try:
        yield
    except Exception:
        if received:  # the error is that of a job that was cancelled
            raised.set()
            before[received[0]](received[0], None)
        raise
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _waits_for_spark(frame: FrameType | None) -> bool:
    """Return whether a thread waits for the JVM, or for tasks."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(("py4j.", "sawlog.spark.tasks")):
            return True
        frame = frame.f_back
    return False


def _find_active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # `start_session` says so
    return SparkSession.getActiveSession()


def _find_jar() -> str | None:
    """Return the path of the jar. Without it everything works, slower."""
    try:
        return locate_jar()
    except SawlogError as error:
        logger.warning("Spark reads rows instead of columns, which is slower: %s", error)
        return None


@contextlib.contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that only what is started in the block sees."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _starts_jvm(settings: Mapping[str, str]) -> bool:
    """Return whether Spark's driver is started here, and by this session."""
    elsewhere = "spark.remote" in settings or any(
        name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
    )
    return not elsewhere and _find_active() is None
