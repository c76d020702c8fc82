"""Writing logs of operations."""

from __future__ import annotations

import pyarrow as pa

from sawlog.errors import OptionError
from sawlog.leveldb.log.columns import ROWS_SCHEMA
from sawlog.leveldb.log.options import WriteOptions
from sawlog.leveldb.log.writer import LogWriter
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.batches import BatchBuilder
from sawlog.storage import Staged, Storage


class WritesWriter(LogWriter):
    """Writes one log of write batches; see `BatchBuilder` for the columns it takes.

    Raises:
        SchemaError: For columns that are missing, unknown or of the wrong type.
        OptionError: For numbers out of range.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> None:
        if not 0 <= options.first_sequence <= layout.MAX_SEQUENCE:
            raise OptionError(f"first_sequence={options.first_sequence}: expected 0 to {layout.MAX_SEQUENCE}")
        if options.operations_per_batch < 1:
            raise OptionError(f"operations_per_batch={options.operations_per_batch}: expected 1 or more")
        self._builder = BatchBuilder(schema, options.first_sequence, options.operations_per_batch)
        super().__init__(path, ROWS_SCHEMA, options, storage)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer.write`."""
        for records in self._builder.build(batch):
            super().write(records)

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        for records in self._builder.finish():
            super().write(records)
        return super().finish()
