"""The stream sink: each micro-batch becomes files once, however often Spark has to repeat it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sawlog.errors import SawlogError
from sawlog.spark.writer import LINGER, SawlogWriter, make_writer
from sawlog.storage import Staged, Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LEDGER = "_sawlog_stream"
"""Directory in a sink's, with one file per query: the last micro-batch, and whether it is complete."""

_SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options of a query that Spark shows to the sink."""
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass
class BatchShare(WriterCommitMessage):
    """What a task has staged of a micro-batch.

    Attributes:
        staged: Its files.
        query: The query, the same as long as its checkpoint is.
        run: The run of the query, another one after every start.
    """

    staged: list[Staged]
    query: str
    run: str


def make_stream_writer(
    options: Mapping[str, str], format: str | None, schema: StructType, *, overwrite: bool
) -> SawlogStreamWriter:
    """The sink that the options of a stream describe. Raises what `make_writer` does."""
    options = {name: value for name, value in options.items() if name not in _SPARKS_OWN}
    return SawlogStreamWriter(make_writer(options, format, schema, overwrite=overwrite))


class SawlogStreamWriter(DataSourceStreamArrowWriter):
    """Writes a directory of files of one format.

    Before the files of a micro-batch are published, the ledger says which they are; when all are there, it says that,
    and the micro-batch is never published again. What a driver that was killed in between has published is taken back
    when Spark repeats the micro-batch.
    """

    def __init__(self, sink: SawlogWriter) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchShare:
        """Stage the rows of one task."""
        context = TaskContext.get()
        query, run, batch = (context.getLocalProperty(key) for key in (_QUERY, _RUN, _BATCH))
        if query is None or run is None or batch is None:
            raise SawlogError(
                "Spark does not tell tasks which micro-batch they write: streams need PySpark 4.2 or later"
            )
        job = f"{_stem(query)}{_stem(run)}-{int(batch):08d}"
        return BatchShare(self._sink.named(job).write(iterator).staged, query, run)

    def commit(self, messages: Sequence[BatchShare | None], batch: int) -> None:
        """Publish the files of a micro-batch, unless that was done before.

        Raises:
            SawlogError: When there is a file already where one belongs.
        """
        shares = [share for share in messages if share is not None]
        if not shares:
            return
        query, run = shares[0].query, shares[0].run
        staged = [one for share in shares for one in share.staged]
        sink = self._sink.named(_stem(query))
        ledger = Ledger(sink.storage, f"{sink.directory}/{LEDGER}/{query}.json")
        last = ledger.read()
        if batch < last.batch or (batch == last.batch and last.complete):
            sink.storage.discard(staged)
        else:
            if not last.complete:
                ledger.take_back(last.files)
            self._publish(sink, ledger, Entry(batch, run, staged))
        if run != last.run:
            sink.sweep()

    def abort(self, messages: Sequence[BatchShare | None], batch: int) -> None:
        """Delete whatever the query has staged, by the tasks that failed too. What was published stays."""
        del batch
        shares = [share for share in messages if share is not None]
        self._sink.storage.discard(one for share in shares for one in share.staged)
        if shares:
            sink = self._sink.named(_stem(shares[0].query))
            sink.sweep()
            time.sleep(LINGER)
            sink.sweep()

    @staticmethod
    def _publish(sink: SawlogWriter, ledger: Ledger, entry: Entry) -> None:
        old = sink.existing() if sink.overwrite else []
        for one in entry.files:
            if sink.storage.exists(one.final):
                raise SawlogError(f"{one.final}: exists already, and micro-batch {entry.batch} has not written it")
        ledger.write(entry)
        sink.storage.publish(entry.files)
        sink.delete(old)
        ledger.write(replace(entry, complete=True))


@dataclass(frozen=True)
class Entry:
    """What a query has written last.

    Attributes:
        batch: Number of the micro-batch; -1 before the first.
        run: The run of the query.
        files: All that is published for it.
        complete: Whether all of them are there.
    """

    batch: int
    run: str
    files: Sequence[Staged]
    complete: bool = False


@dataclass(frozen=True)
class Ledger:
    """The entry of a query, in a file that is replaced as a whole."""

    storage: Storage
    path: str

    def read(self) -> Entry:
        """The last entry."""
        if not self.storage.exists(self.path):
            return Entry(-1, "", (), complete=True)
        kept = json.loads(self.storage.read(self.path))
        return Entry(kept["batch"], kept["run"], [Staged(**one) for one in kept["files"]], kept["complete"])

    def write(self, entry: Entry) -> None:
        """Replace it."""
        staged = self.storage.stage(self.path)
        staged.write(json.dumps(asdict(entry)).encode())
        self.storage.publish([staged.finish()])

    def take_back(self, files: Sequence[Staged]) -> None:
        """Delete those files that a driver had published before it was killed."""
        for one in files:
            if self.storage.exists(one.final):
                self.storage.take_back(one)


def _stem(id: str) -> str:
    """What of a UUID stands in names of files."""
    return id.replace("-", "")[:8]
