"""Spark finds the data source `sawlog` by this module's name: `spark.read.format("sawlog")` needs no registration.

Every planning process of Spark imports this module, so it imports nothing of sawlog before a method is called, and
never fails: one such module that cannot be imported would hide all others from Spark.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import IO, TYPE_CHECKING, ClassVar

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    DataSource = object  # type: ignore[assignment,misc] # without PySpark, or with one before 4.0

if TYPE_CHECKING:
    from io import BufferedReader

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source `sawlog`, and by inheritance every format's own."""

    format_name: ClassVar[str | None] = None
    """The format whose short name this is; `None` for `sawlog`, which recognises formats or takes option `format`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._loaded = os.urandom(8).hex()  # Spark pickles this object, and has every reader of a DataFrame made by it

    @classmethod
    def name(cls) -> str:
        """The name in `spark.read.format(...)` and `USING ...`."""
        return cls.format_name or "sawlog"

    def schema(self) -> StructType:
        """Schema of what the options ask for; no more than headers are read."""
        from sawlog.spark.reader import read_schema

        return read_schema(self.options, self.format_name)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of these columns."""
        from sawlog.spark.reader import make_reader

        return make_reader(self.options, self.format_name, schema, self._loaded)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch sink."""
        from sawlog.spark.writer import make_writer

        writer = make_writer(self.options, self.format_name, schema, overwrite=overwrite)
        writer.recover()
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream source of these columns."""
        from sawlog.spark.stream_reader import STREAMS, NoStreams, make_stream_reader

        if not STREAMS:
            return NoStreams()
        return make_stream_reader(self.options, self.format_name, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The stream sink."""
        from sawlog.spark.stream_writer import make_stream_writer

        return make_stream_writer(self.options, self.format_name, schema, overwrite=overwrite)


def main(infile: BufferedReader, outfile: IO[bytes]) -> None:
    """Read a partition as Spark's own workers do, or answer questions of the jar; both are forked from one process."""
    module = "sawlog.spark.planner" if infile.peek(1)[:1] == b"\x80" else "pyspark.worker"
    import_module(module).main(infile, outfile)
