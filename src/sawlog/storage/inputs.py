"""Inputs that are no files at paths: pipes, standard input, bytes in memory, open files."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Any, TypeAlias

from sawlog.errors import FormatError, SawlogError
from sawlog.storage.sources import LocalSource, MemorySource, Source

_STDIN = "-"
"""What standard input is called."""

_COPY_BYTES = 1 << 20

Input: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Any"
"""A path, bytes (anything with the buffer protocol), or an open binary file."""


class Inputs:
    """The bytes of inputs that are no files, by the names that messages have for them.

    Pipes and streams are copied to a file without a name, which is gone with the process: formats look at bytes again.

    Attributes:
        resources: Bytes, or the descriptor of a file that is closed at the end, by name.

    Args:
        data_by_name: Bytes by name, from another process.
    """

    def __init__(self, data_by_name: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.resources: dict[str, memoryview | int] = {name: memoryview(data) for name, data in data_by_name.items()}

    def __del__(self) -> None:
        for resource in self.resources.values():
            if isinstance(resource, int):
                os.close(resource)

    def name_input(self, source: Input) -> str:
        """Return the name of an input; paths are their own.

        Raises:
            FormatError: For what is neither a path nor bytes nor a binary file.
        """
        if isinstance(source, str | os.PathLike):
            return os.fspath(source)
        if hasattr(source, "read"):
            return self._keep(_open_descriptor(source), str(getattr(source, "name", "<stream>")))
        try:
            return self._keep(memoryview(source).cast("B"), "<bytes>")
        except TypeError:
            kind = type(source).__name__
            raise FormatError(f"cannot read {kind}: expected a path, bytes, a buffer or a binary file") from None

    def take(self, path: str) -> int | None:
        """Take a path in if it is standard input, a pipe or a socket; return its size, `None` for all others.

        Raises:
            FormatError: For a device, and for standard input that somebody would have to type.
        """
        if path in self.resources:
            return self.open(path).size
        if path != _STDIN:
            try:
                mode = os.stat(path).st_mode
            except OSError:
                return None
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.path.samefile(path, "/dev/null")):
                raise FormatError(f"{path}: a device; sawlog reads files and pipes")
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                return None
            with open(path, "rb") as stream:
                self.resources[path] = _spool_stream(stream)
        elif sys.stdin.isatty():
            raise FormatError("-: standard input is a terminal; expected a pipe or a file")
        else:
            self.resources[path] = _open_descriptor(sys.stdin.buffer)
        return self.open(path).size

    def hold(self, name: str, stream: Any) -> int:
        """Take a stream in under a name; return its size."""
        self.resources[name] = _spool_stream(stream)
        return self.open(name).size

    def open(self, name: str) -> Source:
        """Return the bytes of an input that was taken in; each source moves by itself."""
        resource = self.resources[name]
        return MemorySource(resource) if isinstance(resource, memoryview) else LocalSource(os.dup(resource), name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickles: bytes travel to other processes, what was streamed does not.

        Raises:
            SawlogError: When there is a stream among the inputs.
        """
        data: dict[str, bytes] = {}
        for name, resource in self.resources.items():
            if isinstance(resource, int):
                raise SawlogError(f"{name}: a stream cannot be read by other processes; write it to a file first")
            data[name] = bytes(resource)
        return (Inputs, (data,))

    def _keep(self, resource: memoryview | int, name: str) -> str:
        numbered = (f"{name} {n}" for n in itertools.count(2))
        free = next(candidate for candidate in itertools.chain([name], numbered) if candidate not in self.resources)
        self.resources[free] = resource
        return free


def _open_descriptor(stream: Any) -> int:
    """Return a new descriptor of an open binary file: its own, or that of a copy of what follows its position."""
    try:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and not stream.tell() and type(stream) in _RAW:
            return os.dup(stream.fileno())
    except (AttributeError, OSError):
        pass
    return _spool_stream(stream)


_RAW = (io.BufferedReader, io.BufferedRandom, io.FileIO)
"""Files whose bytes are those of their descriptor."""


def _spool_stream(stream: Any) -> int:
    """Return a descriptor of a temporary file with the bytes of a stream."""
    with tempfile.TemporaryFile(prefix="sawlog-") as copy:
        try:
            shutil.copyfileobj(stream, copy, _COPY_BYTES)
        except TypeError:
            raise FormatError("cannot read a stream of text: open the file in binary mode") from None
        copy.flush()
        return os.dup(copy.fileno())
