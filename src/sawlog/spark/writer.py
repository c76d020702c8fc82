"""The batch sink: tasks fill a hidden directory, the driver publishes all of it or nothing."""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sawlog.arrow import validate_batches
from sawlog.errors import OptionError
from sawlog.format.capabilities import WritesTasks
from sawlog.spark.cast import cast_batch
from sawlog.spark.directories import DirectoriesWriter, check_partitions
from sawlog.spark.errors import as_sentence
from sawlog.spark.options import WriteOptions, make_write_request
from sawlog.spark.schema import check_times, restore_schema
from sawlog.spark.tasks import LINGER_SECONDS, require_task
from sawlog.storage import Staged, Storage
from sawlog.storage.commit import Job, recover

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sawlog.format.contract import Format, Writer


@dataclass
class TaskCommit(WriterCommitMessage):
    """Commit message of a task: its staged file, or none if it had no rows."""

    staged: list[Staged]


@as_sentence()
def make_writer(options: Mapping[str, str], format: str | None, schema: StructType, *, overwrite: bool) -> SawlogWriter:
    """Return the sink that the options of a write describe.

    Raises:
        OptionError: For options that are unknown or missing, or a path that is a file.
        SchemaError: When the format cannot represent the columns.
    """
    request, target_format, parsed = make_write_request(options, format)
    (directory,) = request.paths
    if request.storage.exists(directory) and not request.storage.is_directory(directory):
        raise OptionError(f"{directory}: is a file; a Spark job writes a directory of files, one per task")
    write_options: WriteOptions = request.source_options
    if write_options.savemode is not None and overwrite:
        raise OptionError(f"option saveMode={write_options.savemode!r} goes with mode 'append', not with 'overwrite'")
    check_times(schema, target_format)
    columns = restore_schema(schema)
    if write_options.partitionby:
        check_partitions(write_options.partitionby, columns, target_format)
    writer = SawlogWriter(
        target_format, parsed, request.storage, directory, columns, overwrite=overwrite, write_options=write_options
    )
    writer.check()
    return writer


class SawlogWriter(DataSourceArrowWriter):
    """Writes a directory of files of one format, `part-TASK-JOB` and its suffix. Picklable; all tasks have one job."""

    def __init__(
        self,
        format: Format,
        options: Any,
        storage: Storage,
        directory: str,
        schema: pa.Schema,
        *,
        overwrite: bool,
        write_options: WriteOptions = WriteOptions(),  # noqa: B008, it is frozen
    ) -> None:
        self._format = format
        self._options = options
        self._schema = schema
        self._write_options = write_options
        self._idle = False
        self.job = Job.begin(storage, directory, uuid.uuid4().hex)
        self.storage = storage
        self.overwrite = overwrite

    def check(self) -> None:
        """Refuse, before any task runs, columns that the format cannot represent.

        Raises:
            SchemaError: As the format's writer does.
            OptionError: When there are files already, and none are to be added.
        """
        if self._write_options.savemode == "errorifexists" and self.list_existing():
            raise self._make_taken_error()
        self._idle = self._write_options.savemode == "ignore" and bool(self.list_existing())
        with tempfile.TemporaryDirectory() as scratch:
            self.begin(replace(self.job, storage=Storage(), staging=scratch), 0).abort()

    @as_sentence()
    def recover(self) -> None:
        """Finish, or take back, what a dead job has left half done, before tasks see it. Raises as `recover` does."""
        recover(self.job.log)

    @as_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Stage the rows of one task."""
        if self._idle:
            return TaskCommit([])
        return TaskCommit(self.stage(self.job, iterator))

    def stage(self, job: Job, iterator: Iterator[pa.RecordBatch]) -> list[Staged]:
        """Stage the rows of the running task for a job."""
        task = require_task().partitionId()
        writer: Writer | None = None
        try:
            for batch in validate_batches(iterator):
                if batch.num_rows:
                    writer = writer or self.begin(job, task)
                    writer.write(cast_batch(batch, self._schema))
            return writer.finish() if writer else []
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    @as_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all files, in the place of those of the format that were there before when overwriting.

        Raises:
            SawlogError: As `Job.publish` does.
        """
        staged = [
            staged_file for message in messages if isinstance(message, TaskCommit) for staged_file in message.staged
        ]
        if self._write_options.savemode is not None and self.list_existing():
            if self._write_options.savemode == "errorifexists":
                raise self._make_taken_error()
            self.job.sweep()
            return
        if not staged and (self.overwrite or not self.list_existing()):
            # Without rows, one empty file keeps the directory readable.
            staged = self._open(self.job, self.job.staging, 0).finish()
        self.job.publish(staged, partial(self._list_replaced, staged) if self.overwrite else None)
        self.job.sweep()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the job has staged, by the tasks that failed too. What the directory held stays."""
        del messages
        abort(self.job)

    def begin(self, job: Job, task: int) -> Writer:
        """Return the writer of a task, into the hidden directory of a job."""
        if not self._write_options.partitionby:
            return self._open(job, job.staging, task)
        return DirectoriesWriter(
            self._write_options.partitionby, job.storage, lambda inner: self._open(job, f"{job.staging}/{inner}", task)
        )

    def _open(self, job: Job, directory: str, task: int) -> Writer:
        stored = pa.schema([field for field in self._schema if field.name not in self._write_options.partitionby])
        if isinstance(self._format, WritesTasks):
            return self._format.open_task_writer(directory, job.name, task, stored, self._options, job.storage)
        path = f"{directory.rstrip('/')}/part-{task:05d}-{job.name}{self._format.suffix}"
        return self._format.writer(path, stored, self._options, job.storage)

    def list_existing(self) -> list[str]:
        """Return the files of the format, or the directories that they make up, that the directory holds."""
        if not self.storage.exists(self.job.root):
            return []
        files = self._format.select(self.storage.find(self.job.root), "rows")
        return self._format.directory_layout.replaced_paths(files, self.job.root)

    def _list_replaced(self, staged: Sequence[Staged]) -> list[str]:
        """Return the paths that the job replaces with the staged files."""
        old = self.list_existing()
        if self._write_options.partitionoverwritemode == "static":
            return old
        written = {posixpath.dirname(staged_file.final[len(self.job.staging) + 1 :]) for staged_file in staged}
        return [path for path in old if posixpath.dirname(path[len(self.job.root) + 1 :]) in written]

    def _make_taken_error(self) -> OptionError:
        return OptionError(f"{self.job.root}: there are files already, and option saveMode is 'errorifexists'")


def abort(job: Job) -> None:
    """Delete what a job has staged, by tasks that are still dying too."""
    with contextlib.suppress(OSError):  # tasks that still run put more into directories that are deleted
        job.abort()
    time.sleep(LINGER_SECONDS)
    job.abort()
