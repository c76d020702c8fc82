"""Errors of Spark, in words that a user can act on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sawlog.errors import DamageError, IncompleteError, InternalError, SawlogError, StorageError

_OWN_ERROR = re.compile(r"sawlog\.errors\.(\w+): (.*)")
_FROM_PYTHON = re.compile(r"Traceback \(most recent call last\)|Python (?:streaming )?data source ")
_RAISED = re.compile(r"(?:^|data source [ \w]+: )(?:\w+\.)*(\w*(?:Error|Exception|Exit)): (.*)$", re.MULTILINE)
_DAMAGE = {DamageError.__name__, IncompleteError.__name__}
_PYTHONS, _SPARKS, _PIPELINES = 'on_damage="skip"', '.option("mode", "DROPMALFORMED")', 'on_damage = "skip"'
"""How to go on past damage: in Python, in Spark, and in the file of a pipeline."""
_OPTION = re.compile(r"(?<![\w.(\[])([a-z_]+)=(?:(True|False)\b|(?=[\s.;,]|$))")
"""Advice as it is given in Python: an option that is switched on or off, or one that needs a value."""
_WORKERS, _HIDDEN_FRAMES = "PYTHON_WORKER_FACTORY_", "SPARK_HIDE_TRACEBACK"
"""Variables of the processes that Spark starts, and the variable by which PySpark leaves out an error's frames."""
_LONGEST = 1000
_TRANSIENT = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect)|CANNOT_OPEN_SOCKET|ExecutorLost|executor .*lost"
    r"|Connection (?:reset|refused|closed|timed out)|ConnectionError|[Tt]imed? ?out"
    r"|Broken pipe|SocketException|SocketTimeout|No space left on device|Too many open files|SlowDown"
    r"|ServiceUnavailable|InternalError|50[0234]\b",
)
"""What passes: workers and executors that die or are late, networks and object stores that stumble, a full disk."""
_FRAME = re.compile(r"^\s+(?:at |\.\.\. \d+ more).*\n?", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_NO_CAUSE = "(no cause message)"


@contextmanager
def translate_errors() -> Iterator[None]:
    """Have errors say how Spark's users read on: options are strings, and damage has modes."""
    try:
        yield
    except InternalError:
        raise
    except SawlogError as error:
        message = str(error).replace(_PYTHONS, _SPARKS)
        error.args = (_OPTION.sub(_render_option, message), *error.args[1:])
        raise


def is_sentence(error: BaseException) -> bool:
    """Return whether the message of an error says all that a user needs: only faults of sawlog need the frames."""
    return isinstance(error, SawlogError | OSError) and not isinstance(error, InternalError)


@contextmanager
def as_sentence() -> Iterator[None]:
    """Have errors arrive in Spark as their sentence, without the frames of this process.

    For what a process of Spark's is asked for: PySpark reports an error of it, and ends the process.
    """
    try:
        with translate_errors():
            yield
    except BaseException as error:
        if is_sentence(error) and any(name.startswith(_WORKERS) for name in os.environ):
            os.environ[_HIDDEN_FRAMES] = "1"
        raise


def _render_option(advice: re.Match[str]) -> str:
    """Return the call of Spark that sets an option of Python's."""
    name, value = advice.groups()
    return f'.option("{name}", "{value.lower()}")' if value else f'.option("{name}", ...)'


def _render_error(error: BaseException) -> str:
    """Return the messages of an error and of its causes in the JVM, without stack frames."""
    causes = getattr(getattr(error, "_cause", None), "_stackTrace", "")
    return _FRAME.sub("", f"{error}\n{causes}")


def explain(error: BaseException) -> str:
    """Return an error message without tracebacks and plans: sawlog's own error, else Spark's first line.

    Where Spark knows no more than that something did, it is the first cause.
    """
    text = str(error)
    matches = _OWN_ERROR.findall(text)
    if matches:
        return str(matches[-1][1]).strip().replace(_SPARKS, _PIPELINES)
    raised = _RAISED.findall(text.partition("\n\nJVM stacktrace")[0])
    if raised and _FROM_PYTHON.search(text):
        return f"{raised[-1][0]}: {raised[-1][1]}"
    first = re.split(r";?\n(?:['+]|\t?at |\n|JVM stacktrace|=== )", text, maxsplit=1)[0]
    sentence = " ".join(first.split()) or type(error).__name__
    causes = _CAUSE.findall(_render_error(error))
    return (sentence.replace(_NO_CAUSE, causes[-1]) if causes else sentence)[:_LONGEST]


def list_spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Spark raises when it refuses a query or is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, OSError)


def is_damage(error: BaseException) -> bool:
    """Return whether damage in a source, or an incomplete one, is what stopped Spark."""
    matches = _OWN_ERROR.findall(str(error))
    return bool(matches) and matches[-1][0] in _DAMAGE


def is_transient(error: BaseException) -> bool:
    """Return whether what stopped Spark may be gone when it is tried again.

    Of sawlog's own errors, faults of a store are.
    """
    from py4j.protocol import Py4JNetworkError

    text = _render_error(error)
    class_names = (
        [type(error).__name__] if isinstance(error, SawlogError) else [name for name, _ in _OWN_ERROR.findall(text)]
    )
    if class_names:
        return class_names[-1] == StorageError.__name__
    return not isinstance(error, Py4JNetworkError) and bool(_TRANSIENT.search(text))
