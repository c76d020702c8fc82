"""What an import publishes, location by location, and what it reports about that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from sawlog.deephaven_import.tree import IntradayTable, Location, remove_location
from sawlog.deephaven_import.unstorable import UNSTORABLE_NAME
from sawlog.errors import SawlogError
from sawlog.storage import Storage

if TYPE_CHECKING:
    from sawlog.deephaven_import.plan import PartitionPlan, Share
    from sawlog.deephaven_import.shares import Filled


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

    Args:
        tree: The table.
        plans: What is to be done for its partitions.
        locations: Those that it has.
        done: Receives what was published.
        errors: Receives what went wrong.

    Attributes:
        items: Shares, and where their locations go.
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
        self.items: list[tuple[Share, str]] = []
        for number, plan in enumerate(plans):
            first = len(self.items)
            self.items += [(share, tree.path(plan.partition, share.record.sequence)) for share in plan.shares]
            if plan.shares:
                self._open[number] = plan, list(range(first, len(self.items)))

    def arrived(self, index: int, outcome: Filled | SawlogError) -> None:
        """Take what became of a share, and publish what can be."""
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

    def _publish(self, plan: PartitionPlan, share: Share, one: Filled) -> None:
        done = self._made
        if share.record.truncates:
            # Removed first, so that no reader finds deleted rows next to new ones. The newest goes last: whatever is
            # left when this is killed says no more than was imported, and the logs say again what is deleted.
            for location in self._tree.of(plan.partition, list(self._locations)):
                remove_location(location.path)
                done.removed.append(location.path)
        Storage().publish(one.staged)
        done.rows += one.rows
        done.bytes += sum(fragment.size for fragment in share.fragments)
        done.locations += [staged.final for staged in one.staged]
        done.skipped += one.skipped
        done.unstorable += one.unstorable
        if one.unstorable:
            path = os.path.join(one.staged[0].final, UNSTORABLE_NAME)
            done.remarks.append(f"{path}: {one.unstorable} values that column files cannot hold")
