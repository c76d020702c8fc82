"""How far an import is: per log, what was taken and what is not, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sawlog.deephaven_import.records import Partition
from sawlog.deephaven_import.tree import IntradayTable, local_root
from sawlog.deephaven_log.names import parse_name
from sawlog.errors import FormatError
from sawlog.recognition import get_format
from sawlog.storage import Storage

if TYPE_CHECKING:
    from sawlog.storage import PathLike


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
