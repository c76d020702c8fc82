"""The stream sink: each micro-batch becomes a directory of files once, however often Spark has to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from sawlog.errors import OptionError, SawlogError
from sawlog.guard import decode_json
from sawlog.spark.errors import as_sentence
from sawlog.spark.schema import find_spark_version
from sawlog.spark.tasks import require_task
from sawlog.spark.writer import SawlogWriter, abort, make_writer
from sawlog.storage import Staged
from sawlog.storage.commit import Job, MicroBatch
from sawlog.storage.typed_json import parse_json_as

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType
else:  # before Spark 4.2 streams write rows, one by one
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

_LEDGER = "_sawlog_stream"
"""Where earlier versions kept the last micro-batch of each query; what it left there still counts."""

_BATCH_DIRECTORY = re.compile(r"batch-\d{8,}-[0-9a-z]{1,8}")

_SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options of a query that Spark shows to the sink."""
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass
class StagedTask(WriterCommitMessage):
    """Files that a task has staged of a micro-batch.

    Attributes:
        staged: Its files.
        query: The query, the same as long as its checkpoint is.
        run: The run of the query, another one after every start.
        owner: That of the job that it has staged them for; "": this process would name the same.
    """

    staged: list[Staged]
    query: str
    run: str
    owner: str = ""


@as_sentence()
def make_stream_writer(
    options: Mapping[str, str], format: str | None, schema: StructType, *, overwrite: bool
) -> SawlogStreamWriter:
    """Return the sink that the options of a stream describe.

    Raises:
        OptionError: When PySpark is too old; and what `make_writer` raises.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise OptionError(
            f"streams into sawlog need PySpark 4.2 or later; found {find_spark_version()}: write each micro-batch by"
            ' foreachBatch, with .write.format("sawlog")'
        )
    options = {name: value for name, value in options.items() if name not in _SPARKS_OWN}
    return SawlogStreamWriter(make_writer(options, format, schema, overwrite=overwrite))


class SawlogStreamWriter(DataSourceStreamArrowWriter):
    """Writes one directory per micro-batch, `batch-NUMBER-QUERY`, with files of one format.

    It is published as the files of a batch job are. The log of the sink remembers the last micro-batch of each query,
    which is never published again.
    """

    def __init__(self, sink: SawlogWriter) -> None:
        self.sink = sink

    @as_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of one task."""
        context = require_task()
        query, run, batch = (context.getLocalProperty(key) for key in (_QUERY, _RUN, _BATCH))
        if query is None or run is None or batch is None:
            raise SawlogError(
                "Spark does not inform tasks which micro-batch they write: streams need PySpark 4.2 or later"
            )
        job = self.make_job(query, run, int(batch))
        return StagedTask(self.sink.stage(job, iterator), query, run, job.owner)

    def make_job(self, query: str, run: str, batch: int, owner: str = "") -> Job:
        """Return the job that publishes a micro-batch.

        Args:
            query: The query.
            run: Its run.
            batch: The micro-batch.
            owner: Whose job it is, if that is known: Spark commits in a process of its own, which may have lost the
                one that started it, and cannot say.
        """
        job = replace(self.sink.job, owner=owner) if owner else self.sink.job
        return job.make_inner_job(_make_name(query, batch), f"{_shorten_id(query)}-{batch:08d}", _shorten_id(run))

    @as_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publish the files of a micro-batch, unless that was done before.

        Raises:
            SawlogError: As `Job.publish` does.
        """
        tasks = [task for task in messages if isinstance(task, StagedTask)]
        if not tasks:
            return
        query, run = tasks[0].query, tasks[0].run
        job = self.make_job(query, run, batch, tasks[0].owner)
        last = self._find_last(query)
        if last is None or batch > last.batch:
            staged = [staged_file for task in tasks for staged_file in task.staged]
            list_other_files = (lambda: self._list_all_but(_make_name(query, batch))) if self.sink.overwrite else None
            job.publish(staged, list_other_files, MicroBatch(query, batch, run))
        job.sweep("" if last is not None and last.run == run else _shorten_id(query))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Delete what the query has staged, by the tasks that failed too. What was published stays."""
        for task in messages:
            if isinstance(task, StagedTask):
                abort(self.make_job(task.query, task.run, batch, task.owner))
                return

    def _find_last(self, query: str) -> MicroBatch | None:
        """Return the last micro-batch of a query that is there."""
        record = self.sink.job.log.read_last()
        if record is not None and query in record.batches:
            return MicroBatch(query, record.batches[query], record.runs[query])
        storage, path = self.sink.storage, f"{self.sink.job.root}/{_LEDGER}/{query}.json"
        if not storage.exists(path):
            return None
        ledger = parse_json_as(decode_json(storage.read(path)), dict[str, Any], f"{path}: not the ledger of a stream")
        if not ledger["complete"]:
            for staged_file in ledger["files"]:
                storage.directories.remove(staged_file["final"])
        return MicroBatch(query, ledger["batch"] - (not ledger["complete"]), ledger["run"])

    def _list_all_but(self, newest: str) -> list[str]:
        """Return the paths of the sink that are not of the newest micro-batch."""
        root = self.sink.job.root
        batches = [
            name for name in self.sink.storage.directories.list_directories(root) if _BATCH_DIRECTORY.fullmatch(name)
        ]
        inside = tuple(f"{root}/{name}/" for name in batches)
        other_paths = [path for path in self.sink.list_existing() if not path.startswith(inside)]
        return [f"{root}/{name}/" for name in batches if name != newest] + other_paths


def _make_name(query: str, batch: int) -> str:
    """Return the directory name of a micro-batch."""
    return f"batch-{batch:08d}-{_shorten_id(query)}"


def _shorten_id(id: str) -> str:
    """Return the part of a UUID that names of files have."""
    return id.replace("-", "")[:8]
