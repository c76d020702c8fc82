"""What an import publishes, location by location; and how far it is, per log, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sawlog.deephaven_import.plan import Filled, PartitionPlan, Split
from sawlog.deephaven_import.records import Partition
from sawlog.deephaven_import.tree import IntradayTable, Location, local_root, remove_location
from sawlog.deephaven_import.unstorable import UNSTORABLE_NAME
from sawlog.deephaven_log.names import parse_name
from sawlog.errors import FormatError, SawlogError
from sawlog.recognition import get_format
from sawlog.storage import PathLike, Storage


@dataclass(slots=True)
class Import:
    """What `import_logs` did.

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

    def add(self, other: Import) -> None:
        """Take in what was done for another table."""
        for one in fields(self):
            mine, others = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine | others if isinstance(mine, dict | bool) else mine + others)


class Publication:
    """Publishes the locations of each partition in order, as they are done, up to the first that failed.

    Attributes:
        items: Splits, and where their locations go.
    """

    def __init__(
        self,
        tree: IntradayTable,
        plans: Sequence[PartitionPlan],
        locations: Sequence[Location],
        done: Import,
        errors: list[SawlogError],
    ) -> None:
        self._tree = tree
        self._made = done
        self._errors = errors
        self._locations = locations
        self._done: dict[int, Filled | SawlogError] = {}
        self._open: dict[int, tuple[PartitionPlan, list[int]]] = {}
        self.items: list[tuple[Split, str]] = []
        for number, plan in enumerate(plans):
            first = len(self.items)
            self.items += [(split, tree.path(plan.partition, split.record.sequence)) for split in plan.splits]
            if plan.splits:
                self._open[number] = plan, list(range(first, len(self.items)))

    def arrived(self, index: int, outcome: Filled | SawlogError) -> None:
        """Take what became of a split, and publish what can be."""
        self._done[index] = outcome
        for number, (plan, left) in list(self._open.items()):
            while left and left[0] in self._done:
                place = left.pop(0)
                one = self._done.pop(place)
                if isinstance(one, SawlogError):
                    self._errors.append(one)
                    del self._open[number]
                    break
                self._publish(plan, self.items[place][0], one)
            else:
                if not left:
                    self._made.partitions += 1
                    del self._open[number]

    def _publish(self, plan: PartitionPlan, split: Split, one: Filled) -> None:
        done = self._made
        if split.record.truncates:
            # Removed first, so that no reader finds deleted rows next to new ones. The newest goes last: whatever is
            # left when this is killed says no more than was imported, and the logs say again what is deleted.
            for location in self._tree.of(plan.partition, list(self._locations)):
                remove_location(location.path)
                done.removed.append(location.path)
        Storage().publish(one.staged)
        done.rows += one.rows
        done.bytes += sum(fragment.size for fragment in split.fragments)
        done.locations += [staged.final for staged in one.staged]
        done.skipped += one.skipped
        done.unstorable += one.unstorable
        if one.unstorable:
            path = os.path.join(one.staged[0].final, UNSTORABLE_NAME)
            done.remarks.append(f"{path}: {one.unstorable} values that column files cannot hold")


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How far a log was taken.

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
    """How far each log was imported into a tree, by partition.

    Args:
        source: Logs, directories of logs, globs or fsspec URLs.
        root: The root of the tree.
        storage_options: What fsspec needs to reach the logs.

    Raises:
        FormatError: When a position record is not readable, or there is no log.
    """
    storage = Storage(storage_options or {})
    place = local_root(root)
    found = []
    trees: dict[tuple[str, str], Any] = {}
    for file in get_format("deephaven_log").select(storage.find(source), "rows"):
        name = parse_name(file.name)
        if not all(name.partition):
            continue
        partition = Partition(*name.partition)
        key = partition.namespace, partition.table
        if key not in trees:
            tree = IntradayTable(place, *key)
            trees[key] = tree, tree.locations()
        tree, locations = trees[key]
        taken = tree.progress(partition, locations).logs.get(file.name)
        records = [one.record for one in tree.of(partition, locations)]
        rows = sum(record.rows for record in records if record is not None)
        found.append(LogStatus(partition, file.path, file.size, 0 if taken is None else taken.end, rows))
    if not found:
        raise FormatError(f"{source}: there is no binary log whose name gives its table and partitions")
    return sorted(found, key=lambda one: (str(one.partition), one.log))
