"""A stand-in of S3 on loopback: moto's server, but for conditional puts, which are atomic, as those of S3 are.

`python -m tests.object_store PORT`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main


def one_at_a_time(respond: Callable[..., Any]) -> Callable[..., Any]:
    """Have no two threads in what looks whether there is an object, and then makes it."""
    lock = threading.Lock()

    @functools.wraps(respond)
    def locked(*arguments: Any, **settings: Any) -> Any:
        with lock:
            return respond(*arguments, **settings)

    return locked


if __name__ == "__main__":
    S3Response.put_object = one_at_a_time(S3Response.put_object)
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
