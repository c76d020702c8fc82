"""The historical tree, and the journal by which an interrupted merge is taken back or brought to its end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sawlog.deephaven_import.records import RECORD_NAME, Partition, PositionRecord, Progress
from sawlog.deephaven_import.tree import (
    IntradayTable,
    Location,
    check_part,
    directories,
    read_small,
    remove_location,
    sweep,
)
from sawlog.deephaven_table.options import ReadOptions, WriteOptions
from sawlog.deephaven_table.writer import LocationWriter
from sawlog.errors import FormatError, SawlogError
from sawlog.format import Scan, get_format
from sawlog.storage import Storage

NamespaceSet = Literal["System", "User"]

_TREES = {"System": "Systems", "User": "Users"}
_PARTITIONS = "Partitions"
_JOURNAL_NAME = ".sawlog-merge.json"
_VERSION = 1


class HistoricalTable:
    """One table of a historical tree: `ROOT/Systems/NAMESPACE/Partitions/INTERNAL/COLUMN/TABLE`."""

    def __init__(self, root: str, namespace_set: NamespaceSet, namespace: str, table: str) -> None:
        self.namespace_set = namespace_set
        self.namespace = check_part(namespace, "namespace")
        self.table = check_part(table, "table")
        self.directory = os.path.join(root, _TREES[namespace_set], namespace, _PARTITIONS)

    def path(self, internal: str, column: str) -> str:
        """Where a location goes."""
        parts = check_part(internal, "internal partition"), check_part(column, "column partition")
        return os.path.join(self.directory, *parts, self.table)

    def locations(self, column: str) -> list[Location]:
        """Locations of one column partition."""
        found = [Partition(self.namespace, self.table, internal, column) for internal in directories(self.directory)]
        paths = [(self.path(one.internal_partition, column), one) for one in found]
        return [Location(path, partition) for path, partition in paths if os.path.isdir(path)]

    def tidy(self, column: str) -> None:
        """Delete what a killed merge of a column partition has staged."""
        for internal in directories(self.directory):
            parent = os.path.join(self.directory, internal, column)
            if os.path.isdir(parent):
                sweep(parent, f".{self.table}.")


@dataclass(frozen=True, slots=True)
class MergeRecord:
    """What a merged location says of itself, in the file that imported ones have their position record in.

    Attributes:
        job: The merge that made it.
        rows: Its rows.
    """

    job: str
    rows: int

    def to_json(self) -> bytes:
        """The record as it is stored."""
        return (json.dumps({"version": _VERSION, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode()


def merged_by(path: str) -> str | None:
    """The merge that made a location; None when none did."""
    where = os.path.join(path, RECORD_NAME)
    document = _document(where)
    return None if document is None else str(document.get("job"))


@dataclass(frozen=True, slots=True)
class Journal:
    """What a merge is about to do. It is written before that is begun, and deleted when all of it is done.

    Attributes:
        job: Name of the merge.
        state: `publishing`: what it published is to be taken back, for it was not proven. `deleting`: it was proven,
            and the intraday locations are to be deleted.
        namespace_set: Which historical tree.
        column: The column partition.
        published: Internal partitions of the historical tree.
        merged: Internal partitions of the intraday tree, as their directories are called.
    """

    job: str
    state: Literal["publishing", "deleting"]
    namespace_set: NamespaceSet
    column: str
    published: tuple[str, ...]
    merged: tuple[str, ...]

    def write(self, tree: IntradayTable) -> None:
        """Have it safe on disk."""
        storage = Storage()
        file = storage.stage(os.path.join(tree.directory, _JOURNAL_NAME))
        file.write((json.dumps({"version": _VERSION, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode())
        storage.publish([file.finish()])

    @staticmethod
    def delete(tree: IntradayTable) -> None:
        """All is done."""
        Storage().remove(os.path.join(tree.directory, _JOURNAL_NAME))

    @classmethod
    def read(cls, tree: IntradayTable) -> Journal | None:
        """The journal that a killed merge has left.

        Raises:
            FormatError: When it is none.
        """
        where = os.path.join(tree.directory, _JOURNAL_NAME)
        document = _document(where)
        if document is None:
            return None
        try:
            published, merged = (tuple(map(str, document.pop(name))) for name in ("published", "merged"))
            journal = cls(published=published, merged=merged, **document)
        except (TypeError, KeyError) as error:
            raise FormatError(f"{where}: not the journal of a merge: {error}") from error
        texts = (journal.job, journal.column)
        if journal.namespace_set not in _TREES or journal.state not in ("publishing", "deleting"):
            raise FormatError(f"{where}: not the journal of a merge")
        if any(type(text) is not str for text in texts):
            raise FormatError(f"{where}: not the journal of a merge")
        return journal


def _document(where: str) -> dict[str, Any] | None:
    data = read_small(where)
    if data is None:
        return None
    try:
        document: dict[str, Any] = json.loads(data)
        version = document.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise FormatError(f"{where}: not a record of sawlog: {error}") from error
    if version != _VERSION:
        raise FormatError(f"{where}: a record of version {version}; known is {_VERSION}")
    return document


def recover(tree: IntradayTable) -> list[Location]:
    """Bring the table to where it was before, or after, whatever was killed in it.

    Returns:
        The intraday locations that count.
    """
    journal = Journal.read(tree)
    if journal is None:
        return tree.tidy()
    if journal.state == "publishing":
        take_back(HistoricalTable(tree.root, journal.namespace_set, tree.namespace, tree.table), journal)
    else:
        delete_merged(tree, journal)
    Journal.delete(tree)
    return tree.tidy()


def take_back(history: HistoricalTable, journal: Journal) -> None:
    """Delete what a merge has published."""
    for internal in journal.published:
        path = history.path(internal, journal.column)
        if os.path.isdir(path) and merged_by(path) == journal.job:
            remove_location(path)


def delete_merged(tree: IntradayTable, journal: Journal) -> None:
    """Delete intraday locations that were merged. What their logs were taken to stays known.

    Partitions that were imported get an empty location that knows all positions and makes the others void; what no
    import made is deleted as it is.
    """
    locations = [one for one in tree.tidy() if one.partition.column_partition == journal.column]
    chosen = [one for one in locations if one.partition.internal_partition in journal.merged]
    imported = {one.record.partition: None for one in chosen if one.record is not None}
    for partition in imported:
        of_partition = tree.of(partition, locations)
        left = [one.path for one in of_partition if one not in chosen and one.record is not None and one.record.rows]
        if left:
            raise SawlogError(f"{left[0]}: was imported while its partition was merged; nothing of it is deleted")
        _empty(tree, partition, of_partition)
    for one in chosen:
        if one.record is None:
            remove_location(one.path)
    tree.tidy()


def _empty(tree: IntradayTable, partition: Partition, locations: Sequence[Location]) -> None:
    """Publish an empty location that stands for all that a partition has had."""
    records = [one.record for one in locations if one.record is not None]
    progress = Progress.of(records)
    path = tree.path(partition, progress.sequence)
    record = PositionRecord(partition, progress.sequence, 0, True, progress.truncated_in, progress.logs)
    format = get_format("deephaven_table")
    storage = Storage()
    columns = format.open(format.select(storage.find(locations[-1].path), "rows"), Scan(options=ReadOptions())).schema
    with LocationWriter(path, columns, WriteOptions(), storage) as writer:
        writer.add_file(RECORD_NAME, record.to_json())
