"""Writing rows to the partition that the value of a column names."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sawlog.arrow import fill_null, find_index, make_scalar
from sawlog.errors import SchemaError, suggest_name
from sawlog.format.contract import Writer
from sawlog.storage import Staged, Storage

_UNFIT = r"^$|^[._]|[/\\\x00-\x1f\x7f]"
"""What cannot be the name of a directory that is found again."""


def check_partition_column(schema: pa.Schema, name: str, kind: pa.DataType) -> None:
    """Check that a schema has the column that rows are partitioned by.

    Raises:
        SchemaError: When it is missing, or of another type.
    """
    if name not in schema.names:
        near = suggest_name(name, schema.names)
        raise SchemaError(f"partition_by: no column {name!r}{near}; columns: {', '.join(schema.names)}")
    column_type = schema.field(name).type
    if column_type != kind:
        raise SchemaError(f"partition_by: column {name!r} is {column_type}, names of partitions are {kind}; cast it")


class SpreadingWriter(Writer):
    """Spreads rows over writers, one for each of some names. All of them publish, or none."""

    def __init__(self, storage: Storage, begin: Callable[[str], Writer]) -> None:
        self.storage = storage
        self._begin = begin
        self._writers: dict[str, Writer] = {}

    def open_writer(self, name: str) -> Writer:
        """Return the writer of a name, begun with its first rows."""
        if name not in self._writers:
            self._writers[name] = self._begin(name)
        return self._writers[name]

    def finish(self) -> list[Staged]:
        return [file for writer in self._writers.values() for file in writer.finish()]

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()


class PartitionedWriter(SpreadingWriter):
    """Spreads rows over writers, one for each value of a column of strings."""

    def __init__(self, column: str, storage: Storage, begin: Callable[[str], Writer]) -> None:
        super().__init__(storage, begin)
        self._column = column
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, as `Writer.write` says. Rows keep their order within a partition.

        Raises:
            SchemaError: Also for a value that cannot name a directory.
        """
        import pyarrow.compute as pc

        names = batch.column(self._column)
        unfit = find_index(fill_null(pc.match_substring_regex(names, _UNFIT), True), True)
        if unfit >= 0:
            raise SchemaError(
                f"column {self._column!r}, row {self._rows + unfit}: {names[unfit].as_py()!r} cannot name a partition"
            )
        for value in names.unique().to_pylist():
            self.open_writer(value).write(batch.filter(pc.equal(names, make_scalar(value, names.type))))
        self._rows += batch.num_rows
