"""The batch sink: every task stages one file, the driver publishes all of them or none."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sawlog.errors import OptionError, SawlogError
from sawlog.spark.cast import cast_batch
from sawlog.spark.options import write_request
from sawlog.spark.schema import original_schema
from sawlog.storage import File, Staged, Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sawlog.format import Format, Writer

LINGER = 3.0
"""Seconds after which no task of a failed job is alive: Spark kills workers after `spark.python.task.killTimeout`,
two seconds, while it has the job aborted at once."""


@dataclass
class Written(WriterCommitMessage):
    """What a task has staged: one file, or nothing if it had no rows."""

    staged: list[Staged]


def make_writer(options: Mapping[str, str], format: str | None, schema: StructType, *, overwrite: bool) -> SawlogWriter:
    """The sink that the options of a write describe.

    Raises:
        OptionError: For options that are unknown or missing, or a path that is a file.
        SchemaError: When the format cannot represent the columns.
    """
    request, chosen, parsed = write_request(options, format)
    (directory,) = request.paths
    if request.storage.exists(directory) and not request.storage.is_directory(directory):
        raise OptionError(f"{directory}: is a file; a Spark job writes a directory of files, one per task")
    writer = SawlogWriter(chosen, parsed, request.storage, directory, original_schema(schema), overwrite=overwrite)
    writer.check()
    return writer


class SawlogWriter(DataSourceArrowWriter):
    """Writes a directory of files of one format. Picklable; the same job name on driver and executors.

    Files are `part-TASK-JOB` and the suffix of the format. They are staged under hidden names that begin with the same
    words, by which `commit` and `abort` find what killed or doubled tasks have left.
    """

    def __init__(
        self, format: Format, options: Any, storage: Storage, directory: str, schema: pa.Schema, *, overwrite: bool
    ) -> None:
        self._format = format
        self._options = options
        self._storage = storage
        self._directory = directory
        self._schema = schema
        self._overwrite = overwrite
        self._job = uuid.uuid4().hex

    def check(self) -> None:
        """Refuse, before any task runs, columns that the format cannot represent.

        Raises:
            SchemaError: As the format's writer does.
        """
        with tempfile.TemporaryDirectory() as scratch:
            self._open(scratch, 0, Storage()).abort()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task."""
        task = TaskContext.get().partitionId()
        writer: Writer | None = None
        try:
            for batch in iterator:
                if batch.num_rows:
                    writer = writer or self._open(self._directory, task, self._storage)
                    writer.write(cast_batch(batch, self._schema))
            return Written(writer.finish() if writer else [])
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def commit(self, messages: Sequence[Written | None]) -> None:
        """Publish all files; then, when overwriting, delete those of the format that were there before.

        Raises:
            SawlogError: When an old file cannot be deleted; the new ones are in place.
        """
        old = self._existing()
        staged = [one for message in messages if message is not None for one in message.staged]
        if not staged and (self._overwrite or not old):
            # Without rows, one empty file keeps the directory readable.
            staged = self._open(self._directory, 0, self._storage).finish()
        self._storage.publish(staged)
        self._sweep()
        if self._overwrite:
            self._delete(old)

    def abort(self, messages: Sequence[Written | None]) -> None:
        """Delete whatever the job has staged, by the tasks that failed too. What the directory held stays."""
        self._storage.discard(one for message in messages if message is not None for one in message.staged)
        self._sweep()
        time.sleep(LINGER)
        self._sweep()

    def _open(self, directory: str, task: int, storage: Storage) -> Writer:
        return self._format.task_writer(directory, self._job, task, self._schema, self._options, storage)

    def _existing(self) -> list[File]:
        """Files of the format that the directory holds."""
        if not self._storage.exists(self._directory):
            return []
        return self._format.select(self._storage.find(self._directory), "rows")

    def _sweep(self) -> None:
        for path in self._storage.staged(self._directory, self._job):
            self._storage.remove(path)

    def _delete(self, files: Sequence[File]) -> None:
        for file in files:
            try:
                self._storage.remove(file.path)
            except OSError as error:
                raise SawlogError(
                    f"{self._directory}: the new files are in place, but {file.path}, which they replace,"
                    f" cannot be deleted: {error}"
                ) from error
