"""The stream sink: each micro-batch becomes a directory of files once, however often Spark has to repeat it."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sawlog.errors import SawlogError
from sawlog.spark.tasks import LINGER, running_task
from sawlog.spark.writer import SawlogWriter, make_writer
from sawlog.staging import STAGED_SUFFIX
from sawlog.storage import Staged, Storage, is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LEDGER = "_sawlog_stream"
"""Directory in a sink's, with one file per query: the last micro-batch, and whether it is complete."""

_BATCH_DIRECTORY = re.compile(r"batch-\d{8,}-[0-9a-z]{1,8}")

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
    """Writes one directory per micro-batch, `batch-NUMBER-QUERY`, with files of one format.

    Where directories can be renamed, tasks fill a hidden one, and one rename makes the micro-batch visible: its name
    says that it is there, whole. Elsewhere its files appear one after the other: the ledger says before which they are,
    and what a driver that was killed in between has published is taken back when Spark repeats the micro-batch. The
    ledger also remembers the last complete micro-batch, which is never published again.
    """

    def __init__(self, sink: SawlogWriter) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchShare:
        """Stage the rows of one task."""
        context = running_task()
        query, run, batch = (context.getLocalProperty(key) for key in (_QUERY, _RUN, _BATCH))
        if query is None or run is None or batch is None:
            raise SawlogError(
                "Spark does not tell tasks which micro-batch they write: streams need PySpark 4.2 or later"
            )
        return BatchShare(self.part_of(query, run, int(batch)).write(iterator).staged, query, run)

    def part_of(self, query: str, run: str, batch: int) -> SawlogWriter:
        """The writer of a micro-batch: into the hidden directory that is to be renamed, if it can be."""
        name = _name(query, batch)
        if not self._remote:
            name = f".{name}.{_stem(run)}{STAGED_SUFFIX}"
        return self._sink.named(f"{_stem(query)}-{batch:08d}", f"{self._root}/{name}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publish the files of a micro-batch, unless that was done before.

        Raises:
            SawlogError: When there is a file already where one belongs.
        """
        shares = [share for share in messages if isinstance(share, BatchShare)]
        if not shares:
            return
        query, run = shares[0].query, shares[0].run
        ledger = Ledger(self._sink.storage, f"{self._root}/{LEDGER}/{query}.json")
        last = ledger.read()
        entry = Entry(batch, run, [one for share in shares for one in share.staged])
        hidden, final = self.part_of(query, run, batch).directory, f"{self._root}/{_name(query, batch)}"
        if batch < last.batch or (batch == last.batch and last.complete):
            self._discard(entry, hidden)
        else:
            if not last.complete:
                ledger.take_back(last.files)
            if self._remote:
                self._publish_each(ledger, entry)
            else:
                entry = self._publish_at_once(entry, hidden, final)
            if self._sink.overwrite:
                self._replace_all_but(_name(query, batch))
            ledger.write(replace(entry, complete=True))
        if run != last.run:
            self._sink.named(_stem(query)).sweep()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Delete whatever the query has staged, by the tasks that failed too. What was published stays."""
        del batch
        shares = [share for share in messages if isinstance(share, BatchShare)]
        self._sink.storage.discard(one for share in shares for one in share.staged)
        if shares:
            sink = self._sink.named(_stem(shares[0].query))
            with contextlib.suppress(OSError):  # tasks that still run put more into directories that are deleted
                sink.sweep()
            time.sleep(LINGER)
            sink.sweep()

    @property
    def _root(self) -> str:
        return self._sink.directory.rstrip("/")

    @property
    def _remote(self) -> bool:
        return is_remote(self._root)

    def _publish_at_once(self, entry: Entry, hidden: str, final: str) -> Entry:
        """One rename; where the directory is there already, a driver was killed right behind it."""
        storage = self._sink.storage
        if storage.exists(final):
            self._discard(entry, hidden)
        elif entry.files:
            whole = storage.join(entry.files, hidden, final)
            storage.publish([whole])
            return replace(entry, files=[whole])
        return replace(entry, files=[])

    def _discard(self, entry: Entry, hidden: str) -> None:
        self._sink.storage.discard(entry.files)
        if not self._remote:
            self._sink.storage.remove(hidden)

    def _publish_each(self, ledger: Ledger, entry: Entry) -> None:
        storage = self._sink.storage
        for one in entry.files:
            if storage.exists(one.final):
                raise SawlogError(f"{one.final}: exists already, and micro-batch {entry.batch} has not written it")
        ledger.write(entry)
        storage.publish(entry.files)

    def _replace_all_but(self, newest: str) -> None:
        """Delete whatever the sink held before this micro-batch."""
        sink = self._sink
        if not self._remote:
            for name in sink.storage.directories_in(self._root):
                if _BATCH_DIRECTORY.fullmatch(name) and name != newest:
                    sink.storage.remove_directory(f"{self._root}/{name}")
        sink.delete([file for file in sink.existing() if f"/{newest}/" not in file.path])


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


def _name(query: str, batch: int) -> str:
    """What the directory of a micro-batch is called."""
    return f"batch-{batch:08d}-{_stem(query)}"


def _stem(id: str) -> str:
    """What of a UUID stands in names of files."""
    return id.replace("-", "")[:8]
