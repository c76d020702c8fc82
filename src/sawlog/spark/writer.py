"""The batch sink: every task stages one file, the driver publishes all of them or none."""

from __future__ import annotations

import copy
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sawlog.errors import OptionError, SawlogError
from sawlog.spark.cast import cast_batch
from sawlog.spark.options import write_request
from sawlog.spark.schema import original_schema
from sawlog.spark.tasks import LINGER, running_task
from sawlog.storage import File, Staged, Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sawlog.format import Format, Writer


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
        self._schema = schema
        self._job = uuid.uuid4().hex
        self.storage = storage
        self.directory = directory
        self.overwrite = overwrite

    def named(self, job: str, directory: str | None = None) -> SawlogWriter:
        """The same writer for a job of that name, and for another directory where one is given."""
        other = copy.copy(self)
        other._job = job
        other.directory = directory or self.directory
        return other

    def check(self) -> None:
        """Refuse, before any task runs, columns that the format cannot represent.

        Raises:
            SchemaError: As the format's writer does.
        """
        with tempfile.TemporaryDirectory() as scratch:
            self._open(scratch, 0, Storage()).abort()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task."""
        task = running_task().partitionId()
        writer: Writer | None = None
        try:
            for batch in iterator:
                if batch.num_rows:
                    writer = writer or self._open(self.directory, task, self.storage)
                    writer.write(cast_batch(batch, self._schema))
            return Written(writer.finish() if writer else [])
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all files; then, when overwriting, delete those of the format that were there before.

        Raises:
            SawlogError: When an old file cannot be deleted; the new ones are in place.
        """
        old = self.existing()
        staged = [one for message in messages if isinstance(message, Written) for one in message.staged]
        if not staged and (self.overwrite or not old):
            # Without rows, one empty file keeps the directory readable.
            staged = self._open(self.directory, 0, self.storage).finish()
        self.storage.publish(staged)
        self.sweep()
        if self.overwrite:
            self.delete(old)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete whatever the job has staged, by the tasks that failed too. What the directory held stays."""
        self.storage.discard(one for message in messages if isinstance(message, Written) for one in message.staged)
        self.sweep()
        time.sleep(LINGER)
        self.sweep()

    def _open(self, directory: str, task: int, storage: Storage) -> Writer:
        return self._format.task_writer(directory, self._job, task, self._schema, self._options, storage)

    def existing(self) -> list[File]:
        """Files of the format that the directory holds."""
        if not self.storage.exists(self.directory):
            return []
        return self._format.select(self.storage.find(self.directory), "rows")

    def sweep(self) -> None:
        """Delete what tasks of the job have staged and nobody has published."""
        for path in self.storage.staged(self.directory, self._job):
            self.storage.remove(path)

    def delete(self, files: Sequence[File]) -> None:
        """Delete files that new ones replace.

        Raises:
            SawlogError: When one of them cannot be deleted.
        """
        for path in self._format.replaced(files, self.directory):
            try:
                if self.storage.is_directory(path):
                    self.storage.remove_directory(path)
                else:
                    self.storage.remove(path)
            except OSError as error:
                raise SawlogError(
                    f"{self.directory}: the new files are in place, but {path}, which they replace,"
                    f" cannot be deleted: {error}"
                ) from error
