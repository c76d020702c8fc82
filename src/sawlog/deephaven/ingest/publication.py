"""The locations that an import publishes; and the progress of each log, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sawlog.deephaven.ingest.plan import FilledPartition, PartitionPlan, Split
from sawlog.deephaven.ingest.records import Partition
from sawlog.deephaven.ingest.tree import IntradayTable, TreeLocation, remove_location, resolve_root
from sawlog.deephaven.ingest.unstorable import UNSTORABLE_NAME
from sawlog.deephaven.log.names import parse_name
from sawlog.errors import FormatError, SawlogError
from sawlog.format.recognition import get_format
from sawlog.storage import PathLike, Storage


@dataclass(slots=True)
class Import:
    """The outcome of `import_logs`.

    Attributes:
        rows: Rows that were imported.
        partitions: Partitions that got new locations.
        locations: The new locations, in order.
        removed: Locations that a DELETE_PARTITION emptied.
        remarks: What was left for later, a sentence each.
        skipped: What was left out because it is damaged, a sentence each.
        unstorable: Values that column files cannot hold; they are kept next to those that are stored instead.
        bytes: Bytes of logs that were imported.
        lag: Bytes of logs that were there and not imported, by partition.
        limited: Whether some of them were left for the next time because of `max_bytes`.
    """

    rows: int = 0
    partitions: int = 0
    locations: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unstorable: int = 0
    bytes: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    limited: bool = False

    def add(self, addend: Import) -> None:
        """Take in what was done for another table."""
        for name in (total.name for total in fields(self)):
            mine, addends = getattr(self, name), getattr(addend, name)
            setattr(self, name, mine | addends if isinstance(mine, dict | bool) else mine + addends)


class Publication:
    """Publishes the locations of each partition in order, as they are done, up to the first that failed.

    Attributes:
        items: Splits, and where their locations go.
    """

    def __init__(
        self,
        tree: IntradayTable,
        plans: Sequence[PartitionPlan],
        locations: Sequence[TreeLocation],
        done: Import,
        errors: list[SawlogError],
    ) -> None:
        self._tree = tree
        self._import = done
        self._errors = errors
        self._locations = locations
        self._done: dict[int, FilledPartition | SawlogError] = {}
        self._open: dict[int, tuple[PartitionPlan, list[int]]] = {}
        self.items: list[tuple[Split, str]] = []
        for number, plan in enumerate(plans):
            first = len(self.items)
            self.items += [(split, tree.build_path(plan.partition, split.record.sequence)) for split in plan.splits]
            if plan.splits:
                self._open[number] = plan, list(range(first, len(self.items)))

    def take_outcome(self, index: int, outcome: FilledPartition | SawlogError) -> None:
        """Take what became of a split, and publish what can be."""
        self._done[index] = outcome
        for number, (plan, remaining) in list(self._open.items()):
            while remaining and remaining[0] in self._done:
                place = remaining.pop(0)
                filled = self._done.pop(place)
                if isinstance(filled, SawlogError):
                    self._errors.append(filled)
                    del self._open[number]
                    break
                self._publish(plan, self.items[place][0], filled)
            else:
                if not remaining:
                    self._import.partitions += 1
                    del self._open[number]

    def _publish(self, plan: PartitionPlan, split: Split, filled: FilledPartition) -> None:
        done = self._import
        if split.record.truncates:
            # Removed first, so that no reader finds deleted rows next to new ones. The newest goes last: whatever is
            # left when this is killed says no more than was imported, and the logs say again what is deleted.
            for location in self._tree.of(plan.partition, list(self._locations)):
                remove_location(location.path)
                done.removed.append(location.path)
        Storage().publish(filled.staged)
        done.rows += filled.rows
        done.bytes += sum(fragment.size for fragment in split.fragments)
        done.locations += [staged.final for staged in filled.staged]
        done.skipped += filled.skipped
        done.unstorable += filled.unstorable
        if filled.unstorable:
            path = os.path.join(filled.staged[0].final, UNSTORABLE_NAME)
            done.remarks.append(f"{path}: {filled.unstorable} values that column files cannot hold")


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The progress of a log.

    Attributes:
        partition: What its rows belong to.
        log: Its path.
        size: Its bytes.
        taken: The byte after the last that was taken; 0 when nothing was.
        rows: Rows of the partition that are in the intraday tree now.
    """

    partition: Partition
    log: str
    size: int
    taken: int
    rows: int

    @property
    def lag(self) -> int:
        """Bytes that were not taken."""
        return max(0, self.size - self.taken)


def import_status(
    source: PathLike | Sequence[PathLike], root: PathLike, *, storage_options: dict[str, Any] | None = None
) -> list[LogStatus]:
    """Return the progress of each log that is imported into a tree, by partition.

    Args:
        source: Logs, directories of logs, globs or fsspec URLs.
        root: The root of the tree.
        storage_options: What fsspec needs to reach the logs.

    Raises:
        FormatError: When a position record is not readable, or there is no log.
    """
    storage = Storage(storage_options or {})
    place = resolve_root(root)
    statuses = []
    trees: dict[tuple[str, str], Any] = {}
    for file in get_format("deephaven_log").select(storage.find(source), "rows"):
        name = parse_name(file.name)
        if not all(name.partition):
            continue
        partition = Partition(*name.partition)
        key = partition.namespace, partition.table
        if key not in trees:
            tree = IntradayTable(place, *key)
            trees[key] = tree, tree.list_locations()
        tree, locations = trees[key]
        progress = tree.find_progress(partition, locations).logs.get(file.name)
        records = [location.record for location in tree.of(partition, locations)]
        rows = sum(record.rows for record in records if record is not None)
        statuses.append(LogStatus(partition, file.path, file.size, 0 if progress is None else progress.end, rows))
    if not statuses:
        raise FormatError(f"{source}: there is no binary log whose name gives its table and partitions")
    return sorted(statuses, key=lambda status: (str(status.partition), status.log))
