"""An index next to the data: how files begin, so that planning asks a store for a listing and for what has changed.

The file is `MAGIC`, the SHA-256 digest of what follows, and a table in Arrow's IPC format without compression, a row
for each file. A row counts only for a file of the same size and version (of a local file: size and time of change), so
an index that is older than the data costs requests, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, decode_by
from sawlog.names import is_remote

if TYPE_CHECKING:
    from numpy.typing import NDArray

INDEX_NAME = "_sawlog_index"
"""Of the index of a directory, in the directory."""
MAGIC = b"sawlog index 1\n"
SETTLED = 2.0
"""Seconds without a change after which a time of change tells versions apart."""

_DIGEST_BYTES = hashlib.sha256().digest_size
_SCHEMA = pa.schema(
    [
        pa.field("path", pa.large_binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("modified", pa.float64()),
        pa.field("head", pa.int32(), nullable=False),
    ]
)
_HEADS = b"heads"
"""Key of the schema's metadata: the distinct heads, as a list of Arrow's, in IPC format."""
_HEADS_SCHEMA = pa.schema([pa.field("head", pa.binary(), nullable=False)])


class Listed(Protocol):
    """A file as a listing shows it; see `sawlog.storage.File`."""

    @property
    def path(self) -> str:
        """Path or URL."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def version(self) -> str:
        """What a remote storage says of its state."""
        ...

    @property
    def modified(self) -> float | None:
        """When it was last written to."""
        ...


AnyFile = TypeVar("AnyFile", bound=Listed)


@dataclass(frozen=True, eq=False)
class Index:
    """How files begin, by path. Many files begin alike: each different head is held once.

    Attributes:
        rows: A row for each file; `head` is the number of one of the heads.
        heads: The different heads.
    """

    rows: pa.Table
    heads: tuple[bytes, ...]

    @classmethod
    def of(cls, found: Mapping[AnyFile, bytes]) -> Self:
        """The index of some files."""
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(head, len(numbers)) for head in found.values()]
        columns = [
            [_key(file.path) for file in found],
            [file.size for file in found],
            [file.version for file in found],
            [file.modified for file in found],
            codes,
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return cls(pa.Table.from_arrays(arrays, schema=_SCHEMA), tuple(numbers))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The index that a file holds.

        Raises:
            FormatError: When it is not an index, cut off or damaged; says what.
        """
        if not data.startswith(MAGIC):
            raise FormatError(f"expected {MAGIC!r} at byte 0, found {data[: len(MAGIC)]!r}")
        start = len(MAGIC) + _DIGEST_BYTES
        body = memoryview(data)[start:]
        if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
            raise FormatError(f"byte {len(MAGIC)}: the digest does not match the {len(body)} bytes that follow")
        rows = decode_by(_table, body)
        if isinstance(rows, Undecodable) or not rows.schema.equals(_SCHEMA):
            raise FormatError(f"byte {start}: not a table of files")
        heads = decode_by(_table, (rows.schema.metadata or {}).get(_HEADS, b""))
        if isinstance(heads, Undecodable) or not heads.schema.equals(_HEADS_SCHEMA):
            raise FormatError(f"byte {start}: not a table of heads")
        codes = rows["head"].to_numpy()
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(heads):
            raise FormatError(f"byte {start}: expected numbers of {len(heads)} heads, found {codes.max()}")
        return cls(rows, tuple(heads["head"].to_pylist()))

    def to_bytes(self) -> bytes:
        """The file that holds it."""
        heads = pa.Table.from_arrays([pa.array(self.heads, pa.binary())], schema=_HEADS_SCHEMA)
        body = _stream(self.rows.replace_schema_metadata({_HEADS: _stream(heads)}))
        return MAGIC + hashlib.sha256(body).digest() + body

    def get(self, file: Listed) -> bytes | None:
        """How a file begins; `None` where that is not known of this state of it."""
        row = self._places.get(_key(file.path))
        if row is None or self._sizes[row] != file.size or self._versions[row].as_py() != file.version:
            return None
        if not file.version and (file.modified is None or self._modified[row] != file.modified):
            return None
        return self.heads[int(self._codes[row])]

    def known(self, files: Iterable[AnyFile]) -> dict[AnyFile, bytes]:
        """How those files begin of which that is known."""
        return {file: head for file in files if (head := self.get(file)) is not None}

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {path: row for row, path in enumerate(self.rows["path"].to_pylist())}

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.asarray(self.rows["size"], np.int64)

    @cached_property
    def _modified(self) -> NDArray[np.float64]:
        return np.asarray(self.rows["modified"], np.float64)

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        return np.asarray(self.rows["head"], np.int32)

    @cached_property
    def _versions(self) -> pa.Array:
        return self.rows["version"].combine_chunks()


def _key(path: str) -> bytes:
    """What a path is called in an index, wherever a process is."""
    return os.fsencode(path if is_remote(path) else os.path.abspath(path))


def _table(data: bytes | memoryview) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all().combine_chunks()
    table.validate(full=True)
    if any(column.null_count for column in table.columns if column.type != pa.float64()):
        raise ValueError("nulls where there are none")
    return table


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
