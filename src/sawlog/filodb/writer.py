"""Writing FiloDB's containers: byte for byte what FiloDB's own builder makes of the same rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.errors import OptionError
from sawlog.filodb import layout
from sawlog.filodb.builder.container import check_container_size
from sawlog.filodb.options import WriteOptions
from sawlog.filodb.target import Target
from sawlog.format.contract import FileWriter
from sawlog.storage import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT_BYTES = 2 << 20
"""Bytes laid out before they are written, besides two containers."""


class ContainerWriter(FileWriter):
    """Writes one file of containers.

    Raises:
        SchemaError: When the columns are not those of a schema.
        OptionError: For a container size that cannot be.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> None:
        from sawlog.filodb.layer import Layer

        check_container_size(options.container_size)
        self.storage = storage
        self._options = options
        self._layer = Layer(Target.of(schema, options), options, OUT_BYTES, self._write)
        self._file = storage.stage(path)

    def write(self, batch: pa.RecordBatch) -> None:
        self._layer.add(batch, choose_container_time(self._options))

    def _flush(self) -> None:
        self._layer.finish()

    def _write(self, data: NDArray[Any]) -> None:
        self._file.write(data)


def choose_container_time(options: WriteOptions) -> int:
    """Return the timestamp of a container that begins now.

    Raises:
        OptionError: For one that no reader takes for a time.
    """
    timestamp = options.container_timestamp
    if timestamp is not None and not 0 <= timestamp <= layout.MAX_TIMESTAMP:
        raise OptionError(f"container_timestamp={timestamp}: expected 0 to {layout.MAX_TIMESTAMP}")
    return time.time_ns() // 1_000_000 if timestamp is None else timestamp
