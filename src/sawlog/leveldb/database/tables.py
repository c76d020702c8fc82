"""Tables of a database, held to what its MANIFEST says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.damage import Damage, Findings
from sawlog.leveldb.columns import ENTRY_SCHEMA, KEY, OPERATION
from sawlog.leveldb.database.version import LiveTable
from sawlog.leveldb.table.meta import BoundsReader, Role
from sawlog.leveldb.table.rows import RowReader, TableRange

if TYPE_CHECKING:
    from sawlog.leveldb.table.meta import BoundsReader, TableMap
    from sawlog.storage import Source

_JUDGED = pa.schema([ENTRY_SCHEMA.field(OPERATION), ENTRY_SCHEMA.field(KEY)])
"""What is read of entries where no column is wanted."""


@dataclass(frozen=True)
class JudgedTable(TableRange):
    """A table whose range deletions are read before its other entries, and whose entries are judged by their places.

    Attributes:
        live: What the MANIFEST says of it, once for each part of it; nothing where no order of keys is known.
        begins: From which key on its entries are wanted.
        ends: The key after the last; `None`: all that follow.
        told: From which key on, and before which, damage of the blocks with such separators is to be reported.
        sequence: See `LiveTable.sequence`.
    """

    live: tuple[LiveTable, ...] = ()
    begins: bytes = b""
    ends: bytes | None = None
    told: tuple[bytes, bytes | None] = (b"", None)
    sequence: int | None = None

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `TableRange.read`. Batches are those of `columns.Stream`."""
        from sawlog.leveldb.database.merge import Judge

        table.sequence = self.sequence
        ledger = findings
        if isinstance(findings, Forwarded):
            ledger = findings.every
            index = None if table.bounds is None else BoundsReader(table.bounds)
            findings.owns = partial(self._owns, table, index)
        judges = [Judge(live, self.begins, self.ends) for live in self.live]
        reader = RowReader(self, table, source, schema if KEY in schema.names else _JUDGED, findings)
        spans = reader.spans
        deletions = spans["role"] == Role.RANGE_DELETES
        for chosen, of_deletions in ((deletions, True), (~deletions, False)):
            if not chosen.any():
                continue
            reader.spans = spans[chosen]
            offset = int(reader.spans["offset"][0])
            for batch in reader.batches():
                for judge in judges:
                    judge.tell(ledger)
                    judged = judge.deletions(batch, offset) if of_deletions else judge.entries(batch, offset)
                    for one in judged:
                        if KEY in schema.names:
                            yield one
                if not judges and KEY in schema.names:
                    yield batch
        for judge in judges:
            judge.tell(ledger)

    def _owns(self, table: TableMap, index: BoundsReader | None, offset: int) -> bool | None:
        """Whether the damage of a data block is this range's to tell: the one with the block's separator.

        No other range need read the block. `None` for what is no data block.
        """
        found = np.flatnonzero(table.handles["offset"] == offset)
        if index is None or not len(found):
            return None
        separator = index.separator(int(found[0]))
        first, behind = self.told
        return separator >= first and (behind is None or separator < behind)


class Forwarded(Findings):
    """A ledger for one file, that hands damage on, or keeps it to itself.

    Args:
        findings: That of the range of keys.
        owned: Whether what is found in the file belongs there.

    Attributes:
        every: That of the range of keys.
        owns: Whether damage at an offset is handed on; `None` where that is as for the file.
    """

    __slots__ = ("_into", "every", "owns")

    def __init__(self, findings: Findings, *, owned: bool) -> None:
        super().__init__(findings.on_damage)
        self.every = findings
        self._into = findings if owned or findings.on_damage == "fail" else Findings("skip")
        self.owns: Callable[[int], bool | None] = lambda offset: None

    def damage(self, damage: Damage) -> None:
        """See `Findings.damage`."""
        owned = self.owns(damage.offset)
        into = self._into if owned is None or self.on_damage == "fail" else self.every if owned else Findings("skip")
        into.damage(damage)

    def tally(self, kind: str, count: int, length: int) -> None:
        """See `Findings.tally`."""
        self._into.tally(kind, count, length)

    @property
    def listing(self) -> bool:
        """See `Findings.listing`."""
        return self._into.listing
