"""The journal by which an interrupted merge is taken back or brought to its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from sawlog.deephaven.ingest.history import HistoricalTable, MergeRecord, NamespaceSet, read_document, write_document
from sawlog.deephaven.ingest.records import RECORD_NAME, Partition, PositionRecord, Progress
from sawlog.deephaven.ingest.tree import IntradayTable, TreeLocation, remove_empty, remove_location
from sawlog.deephaven.table.options import ReadOptions, WriteOptions
from sawlog.deephaven.table.writer import LocationWriter
from sawlog.errors import SawlogError
from sawlog.format.contract import Scan
from sawlog.format.planning import find_view_schema
from sawlog.format.recognition import get_format
from sawlog.storage import Storage
from sawlog.storage.staging import make_staged_name, sync_directory
from sawlog.storage.typed_json import parse_json_as

_JOURNAL_NAME = ".sawlog-merge.json"
_ASIDE = "old."


@dataclass(frozen=True, slots=True)
class Journal:
    """The plan of a merge. It is written before anything is done, and deleted when all of it is done.

    Attributes:
        job: Name of the merge.
        state: `publishing`: what it published is to be taken back, and what it replaced is to come back, for it was
            not proven. `deleting`: it was proven, and what it replaced and the intraday locations are to be deleted.
        namespace_set: Which historical tree.
        column: The column partition.
        published: Internal partitions of the historical tree.
        merged: Internal partitions of the intraday tree, as their directories are called.
        replaced: Internal partitions of the historical tree that step aside.
    """

    job: str
    state: Literal["publishing", "deleting"]
    namespace_set: NamespaceSet
    column: str
    published: tuple[str, ...]
    merged: tuple[str, ...]
    replaced: tuple[str, ...] = ()

    def write(self, tree: IntradayTable) -> None:
        """Have it safe on disk."""
        storage = Storage()
        file = storage.stage(os.path.join(tree.directory, _JOURNAL_NAME))
        file.write(write_document(asdict(self)))
        storage.publish([file.finish()])

    @staticmethod
    def delete(tree: IntradayTable) -> None:
        """Delete the journal of a table: all that it recorded is done."""
        Storage().directories.remove(os.path.join(tree.directory, _JOURNAL_NAME))

    @classmethod
    def read(cls, tree: IntradayTable) -> Journal | None:
        """Return the journal that a killed merge has left.

        Raises:
            FormatError: When it is none.
        """
        path = os.path.join(tree.directory, _JOURNAL_NAME)
        document = read_document(path)
        if document is None:
            return None
        journal: Journal = parse_json_as(document, cls, f"{path}: not the journal of a merge")
        return journal


def recover(tree: IntradayTable) -> list[TreeLocation]:
    """Bring the table to where it was before, or after, whatever was killed in it.

    Returns:
        The intraday locations that count.
    """
    journal = Journal.read(tree)
    if journal is None:
        return tree.tidy()
    history = HistoricalTable(tree.root, journal.namespace_set, tree.namespace, tree.table)
    if journal.state == "publishing":
        take_back(history, journal)
    else:
        delete_merged(tree, journal)
        forget(history, journal)
    Journal.delete(tree)
    return tree.tidy()


def hide_locations(history: HistoricalTable, journal: Journal) -> None:
    """Hide the locations that a merge replaces."""
    for internal in journal.replaced:
        path = history.build_path(internal, journal.column)
        os.rename(path, make_staged_name(path, _make_marker(journal)))
        sync_directory(os.path.dirname(path))


def forget(history: HistoricalTable, journal: Journal) -> None:
    """Delete what a merge has replaced."""
    for internal in journal.replaced:
        column = os.path.dirname(history.build_path(internal, journal.column))
        for aside in Storage().directories.find_staged_paths(column, _make_marker(journal)):
            Storage().directories.remove(aside)
        remove_empty(column)


def take_back(history: HistoricalTable, journal: Journal) -> None:
    """Delete what a merge has published, and bring back what it replaced."""
    for internal in journal.published:
        path = history.build_path(internal, journal.column)
        record = MergeRecord.read(path) if os.path.isdir(path) else None
        if record is not None and record.job == journal.job:
            remove_location(path)
    for internal in journal.replaced:
        path = history.build_path(internal, journal.column)
        for aside in Storage().directories.find_staged_paths(os.path.dirname(path), _make_marker(journal)):
            os.rename(aside, path)
            sync_directory(os.path.dirname(path))


def delete_merged(tree: IntradayTable, journal: Journal) -> None:
    """Delete intraday locations that were merged. What their logs were taken to stays known.

    Partitions that were imported get an empty location that knows all positions and makes the others void; what no
    import made is deleted as it is.
    """
    locations = [location for location in tree.tidy() if location.partition.column_partition == journal.column]
    merged = [location for location in locations if location.partition.internal_partition in journal.merged]
    imported = {location.record.partition: None for location in merged if location.record is not None}
    for partition in imported:
        of_partition = tree.of(partition, locations)
        remaining = [
            location.path
            for location in of_partition
            if location not in merged and location.record is not None and location.record.rows
        ]
        if remaining:
            raise SawlogError(f"{remaining[0]}: was imported while its partition was merged; nothing of it is deleted")
        _publish_empty(tree, partition, of_partition)
    for location in merged:
        if location.record is None:
            remove_location(location.path)
    tree.tidy()


def _publish_empty(tree: IntradayTable, partition: Partition, locations: Sequence[TreeLocation]) -> None:
    """Publish an empty location that stands for all that a partition has had."""
    records = [location.record for location in locations if location.record is not None]
    progress = Progress.of(records)
    path = tree.build_path(partition, progress.sequence)
    record = PositionRecord(
        partition, progress.sequence, 0, True, progress.truncated_in, progress.logs, progress.deletions
    )
    format = get_format("deephaven_table")
    storage = Storage()
    files = format.select(storage.find(locations[-1].path), "rows")
    columns = find_view_schema(format.open(files, Scan(options=ReadOptions())))
    with LocationWriter(path, columns, WriteOptions(), storage) as writer:
        writer.add_file(RECORD_NAME, record.to_json())


def _make_marker(journal: Journal) -> str:
    return f"{journal.job}.{_ASIDE}"
