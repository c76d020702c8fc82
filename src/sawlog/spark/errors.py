"""What Spark raises, in words that a user can act on."""

from __future__ import annotations

import re

_OWN_ERROR = re.compile(r"sawlog\.errors\.(\w+): (.*)")
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit)): (.*)$", re.MULTILINE)
_DAMAGE = "DamageError"
_LONGEST = 1000
_TRANSIENT = re.compile(
    r"Python worker exited unexpectedly|ExecutorLost|executor .*lost|Connection (?:reset|refused|closed|timed out)"
    r"|Broken pipe|SocketException|SocketTimeout|[Tt]imed? ?out|No space left on device|Too many open files|SlowDown"
    r"|ServiceUnavailable|InternalError|EndpointConnectionError|ConnectionError|50[0234]\b",
)
"""What passes: workers and executors that die, networks and object stores that stumble, a disk that is full."""


def explain(error: BaseException) -> str:
    """What went wrong, without tracebacks and plans: sawlog's own error where there is one, or Spark's first line."""
    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        return str(own[-1][1]).strip()
    if "Traceback (most recent call last)" in text:
        raised = _RAISED.findall(text.partition("\n\nJVM stacktrace")[0])
        if raised:
            return f"{raised[-1][0]}: {raised[-1][1]}"
    first = re.split(r";?\n(?:['+]|\t?at |\n|JVM stacktrace|=== )", text, maxsplit=1)[0]
    return " ".join(first.split())[:_LONGEST] or type(error).__name__


def spark_errors() -> tuple[type[Exception], ...]:
    """What is raised when Spark refuses, and when it is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, OSError)


def is_damage(error: BaseException) -> bool:
    """Whether damage in a source is what stopped Spark."""
    own = _OWN_ERROR.findall(str(error))
    return bool(own) and own[-1][0] == _DAMAGE


def is_transient(error: BaseException) -> bool:
    """Whether what stopped Spark may be gone when it is tried again; never what sawlog itself has refused."""
    from py4j.protocol import Py4JNetworkError

    text = str(error)
    return not isinstance(error, Py4JNetworkError) and not _OWN_ERROR.search(text) and bool(_TRANSIENT.search(text))
