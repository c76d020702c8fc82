"""A store that fails: files in memory at `hostile://`, whose k-th answer is none, or wrong, or of another object."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from sawlog.storage import flight, remote

_SCHEME = "hostile"

_RAISED: dict[str, type[Exception]] = {"fails": OSError, "is late": TimeoutError, "hangs up": ConnectionResetError}
_SENT: dict[str, Callable[[bytes, bytes], bytes]] = {
    "sends less": lambda part, content: part[: len(part) // 2],
    "sends nothing": lambda part, content: b"",
    "sends more": lambda part, content: part + b"\0",
    "ignores ranges": lambda part, content: content,
}
_RANGE_BYTES = 128
FAULTS = (*_RAISED, *_SENT)
"""What a store does at a request; besides, it `changes`: other objects are in the places of those that there were."""


@dataclass
class StoreFault:
    """The fault of a store.

    Attributes:
        fault: One of `FAULTS`, or `changes`; none if it is empty.
        first: The request at which it does, counted from 1.
        lasting: Whether it does at all requests from then on.
        request_count: How many requests there were.
    """

    fault: str = ""
    first: int = 1
    lasting: bool = False
    request_count: int = 0

    def count_request(self) -> bool:
        """Count a request; return whether it goes wrong."""
        self.request_count += 1
        return bool(self.fault) and (
            self.request_count == self.first or (self.lasting and self.request_count > self.first)
        )


class HostileFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory, with tags, that are read through `trouble`."""

    protocol = _SCHEME
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    trouble: ClassVar[StoreFault] = StoreFault()
    other_files: ClassVar[Mapping[str, bytes]] = {}
    _lock: ClassVar[Any] = Lock()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace(f"{_SCHEME}://", "memory://") if isinstance(path, str) else path)

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        return f"{_SCHEME}://{self._strip_protocol(name).lstrip('/')}"

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a range of a file."""
        fault = self._answer_request()
        part = bytes(super().cat_file(path, start=start, end=end, **options))
        return _SENT[fault](part, bytes(super().cat_file(path))) if fault in _SENT else part

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the entry of a path."""
        self._answer_request()
        return self._add_tag(super().info(path, **options))

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        """Return all files below a path."""
        self._answer_request()
        listing = super().find(path, *args, **options)
        return {name: self._add_tag(info) for name, info in listing.items()} if isinstance(listing, dict) else listing

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Return the entries of a directory."""
        self._answer_request()
        return [self._add_tag(entry) if detail else entry for entry in super().ls(path, detail=detail, **options)]

    def _answer_request(self) -> str:
        """Count a request, and do what goes wrong with it; return what is wrong with its answer."""
        with self._lock:
            fault = self.trouble.fault if self.trouble.count_request() else ""
        if fault in _RAISED:
            raise _RAISED[fault]("the store does not answer")
        if fault == "changes":
            for name, data in self.other_files.items():
                self.pipe_file(name, data)
        return fault

    def _add_tag(self, info: dict[str, Any]) -> dict[str, Any]:
        if info["type"] != "file":
            return info
        return {**info, "ETag": hashlib.sha256(self.store[info["name"]].getvalue()).hexdigest()}


fsspec.register_implementation(_SCHEME, HostileFileSystem, clobber=True)


@contextmanager
def store_files(files: Mapping[str, bytes], replacements: Mapping[str, bytes], *, is_whole: bool) -> Iterator[str]:
    """Hold files in the store in the block, whole by a request as small ones are, or not; yield their URL."""
    sizes = flight.WHOLE_BYTES, flight.REMOTE_RANGE
    if not is_whole:
        flight.WHOLE_BYTES, flight.REMOTE_RANGE = 0, _RANGE_BYTES
    root = f"/{time.monotonic_ns()}"
    fs = HostileFileSystem()
    for name, data in files.items():
        fs.pipe_file(f"{root}/{name}", data)
    HostileFileSystem.other_files = {f"{root}/{name}": data for name, data in replacements.items()}
    try:
        yield f"{_SCHEME}:/{root}"
    finally:
        flight.WHOLE_BYTES, flight.REMOTE_RANGE = sizes
        HostileFileSystem.other_files = {}
        for name in [name for name in fs.store if name.startswith(f"{root}/")]:
            del fs.store[name]


@contextmanager
def cause_trouble(fault: str = "", first: int = 1, *, lasting: bool = False) -> Iterator[StoreFault]:
    """Have something go wrong while the context lasts; nobody waits before a request is made again."""
    waits, remote.RETRY_SECONDS = remote.RETRY_SECONDS, tuple(0.0 for _ in remote.RETRY_SECONDS)
    HostileFileSystem.trouble = StoreFault(fault, first, lasting)
    try:
        yield HostileFileSystem.trouble
    finally:
        HostileFileSystem.trouble = StoreFault()
        remote.RETRY_SECONDS = waits
