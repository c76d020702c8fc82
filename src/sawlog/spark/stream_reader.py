"""The stream source: files that grow, micro-batch by micro-batch."""

from __future__ import annotations

import base64
import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sawlog.errors import OptionError, SawlogError
from sawlog.format import Dataset, Fragment, pack
from sawlog.spark.options import Request, read_request
from sawlog.spark.reader import Reading, projected, read_share
from sawlog.stream.follower import Follower
from sawlog.stream.listing import find_all
from sawlog.stream.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sawlog.format import Scan
    from sawlog.storage import File
    from sawlog.stream.listing import Seen

logger = logging.getLogger("sawlog")

WORTH_A_TASK = 4 << 20
"""Bytes that a task of a micro-batch reads at least, where there are so many; Spark reckons likewise for its files."""


def make_stream_reader(options: Mapping[str, str], format: str | None, schema: StructType) -> SawlogStreamReader:
    """The stream reader for these options."""
    request = read_request(options, format)
    if request.files.modifiedbefore is not None or request.files.modifiedafter is not None:
        raise OptionError("options modifiedBefore and modifiedAfter: files of a stream are written to meanwhile")
    return SawlogStreamReader(request, schema)


class SawlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the columns of `schema`. What it knows of the files stays in the process that plans."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._follower: Follower | None = None
        self._reading: Reading | None = None
        self._reached: Offset | None = None
        self._last: tuple[dict[str, Any], Offset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Executors need no more than what to read with."""
        return {**self.__dict__, "_follower": None, "_reading": None, "_reached": None, "_last": None}

    def initialOffset(self) -> dict[str, Any]:
        """Nothing is read yet."""
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The narrowest of the limits that the options set; `latestOffset` keeps to all of them."""
        options = self._request.stream
        if options.maxrowspertrigger is not None:
            return ReadMaxRows(options.maxrowspertrigger)
        if options.maxbytespertrigger is not None:
            return ReadMaxBytes(int(options.maxbytespertrigger))
        return ReadMaxFiles(options.maxfilespertrigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch."""
        begin = self._offset(start)
        follower = self._follow(begin)
        if follower is None:
            return start
        end = follower.latest(begin, limited=not isinstance(limit, ReadAllAvailable))
        self._reached = end
        if end is begin:
            return start
        self._last = end.to_json(), end
        return self._last[0]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was not read yet when the files were last looked at, for the progress of the query: its lag."""
        if self._follower is None or self._reached is None:
            return None
        files, size = self._follower.behind(self._reached)
        return {"behind": {"bytes": size, "files": files}}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and nothing that comes later."""
        follower = self._follow(Offset())
        if follower is not None:
            follower.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition per task: small files share one, but no core is left without work that is worth a task."""
        begin, reached = self._offset(start), self._offset(end)
        follower = self._follow(begin) if start != end else None
        if follower is None:
            return []
        assert self._reading is not None
        fragments = follower.between(begin, reached)
        files = {one.file.path: one.file for one in follower.listing.files.values()}
        tasks = _tasks(fragments, self._request.own.task_bytes)
        return [InputPartition(self._reading.share(task, files)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        return read_share(partition.value, self._schema)

    def _offset(self, data: dict[str, Any]) -> Offset:
        """An offset, which is the one that was handed out last, as a rule."""
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        return Offset.from_json(data)

    def _follow(self, start: Offset) -> Follower | None:
        """What follows the files, with the columns that the stream began with; `None` while there are no files."""
        if self._follower is None:
            request = self._request
            # What appears while the dataset is opened belongs to no one yet; so it is only told which of these do not.
            found = find_all(request.storage, request.paths)
            if not found:
                return None
            storage = request.storage.anew()  # files may be replaced, which is for the follower to judge
            dataset = open_followed(request, found, start.table)
            if dataset is None:
                return None
            ours = {file.path for file in dataset.files}
            schema = start.schema or dump_schema(dataset.view_schema())
            self._reading = projected(request, dataset, self._schema)
            scan = self._reading.scan
            if scan.view != "damage":
                scan = replace(scan, schema=load_schema(schema))
            scan = replace(scan, storage=storage)
            opener = _Opener(dataset, scan)
            if dataset.format.whole(scan.view):
                dataset = dataset.format.open(dataset.files, scan)
            self._follower = Follower(
                request.paths,
                storage,
                dataset.format,
                scan.view,
                request.stream,
                opener,
                [file.path for file in found if file.path not in ours],
                schema,
            )
        return self._follower


def open_followed(request: Request, found: Sequence[File], table: str | None) -> Dataset | None:
    """The dataset that a stream begins with, of those files that belong to it; `None` if there are none yet.

    Args:
        request: Options of the stream.
        found: What there is.
        table: The table that the stream is of, once that is known; files of others are left out.

    Raises:
        SawlogError: As `sawlog.open` does.
    """
    try:
        dataset = request.open()
    except SawlogError:
        if len(found) == 1:
            raise
    else:
        if table is None or {dataset.format.table(file) for file in dataset.files} <= {table, None}:
            return dataset
    usable: list[Dataset] = []
    for file in found:
        try:
            one = replace(request, paths=(file.path,)).open()
        except SawlogError as error:
            logger.warning("%s: left out of the stream: %s", file.path, error)
            continue
        if table is None or one.format.table(file) in (table, None):
            usable.append(one)
    if not usable:
        return None
    chosen = usable[0].format
    files = [replace(file, explicit=False) for one in usable if one.format.name == chosen.name for file in one.files]
    return chosen.open(files, usable[0].scan)


def dump_schema(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(zlib.compress(schema.serialize().to_pybytes())).decode()


def load_schema(text: str) -> pa.Schema:
    """What `dump_schema` made."""
    return pa.ipc.read_schema(pa.py_buffer(zlib.decompress(base64.b64decode(text))))


class _Opener:
    """Opens some files with the columns of a stream."""

    def __init__(self, dataset: Dataset, scan: Scan) -> None:
        self._format = dataset.format
        self._scan = scan

    def __call__(self, some: Sequence[Seen]) -> Dataset:
        return self._format.open([one.file for one in some], self._scan)


def _tasks(fragments: list[Fragment], task_bytes: int) -> list[list[Fragment]]:
    """Fragments in order, one task per core if there is enough to read, and more where there is too much for that."""
    total = sum(one.size for one in fragments)
    count = max(1, min(os.cpu_count() or 1, total // WORTH_A_TASK))
    if total > count * task_bytes:
        return pack(fragments, task_bytes)
    tasks: list[list[Fragment]] = [[] for _ in range(count)]
    place = 0
    for one in fragments:
        tasks[min((2 * place + one.size) * count // (2 * total or 1), count - 1)].append(one)
        place += one.size
    return [task for task in tasks if task]
