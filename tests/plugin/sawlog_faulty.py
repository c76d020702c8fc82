"""A store of a third-party package, which fails: local files at `faulty://`, seen by the processes of Spark, too."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FaultyFileSystem(LocalFileSystem):
    """Local files, one request for which is not answered. `EINVAL` spares waiting: nobody asks a second time.

    Args:
        control: A directory with a file `asked`, to which each request adds a line, `task` or `plan`, and with a file
            `fails`, the number of the request that fails; none does without it.
    """

    protocol = "faulty"
    cachable = False
    local_file = False

    def __init__(self, control: str, **options: Any) -> None:
        super().__init__(**options)
        self.control = control

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("faulty://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"faulty://{self._strip_protocol(name)}"

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._count_request()
        return bytes(super().cat_file(path, start=start, end=end, **options))

    def info(self, path: Any, **options: Any) -> Any:
        self._count_request()
        return super().info(path, **options)

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        self._count_request()
        return super().find(path, *args, **options)

    def _count_request(self) -> None:
        from pyspark import TaskContext

        with open(os.path.join(self.control, "asked"), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = len(file.readlines()) + 1
            file.write("plan\n" if TaskContext.get() is None else "task\n")
        try:
            with open(os.path.join(self.control, "fails")) as fails:
                wrong = json.load(fails) == number
        except FileNotFoundError:
            wrong = False
        if wrong:
            raise OSError(errno.EINVAL, "the store does not answer")
