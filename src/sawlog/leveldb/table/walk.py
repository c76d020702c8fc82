"""What every reading of a table does with the spans that hold no rows, and with damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.damage import UNSUPPORTED, Damage, Findings
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import block_damage
from sawlog.leveldb.table.layout import Kind
from sawlog.leveldb.table.meta import Role

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.leveldb.table.meta import TableMap
    from sawlog.ranges import FileRange
    from sawlog.storage import Source

RUN_BYTES = 4 << 20
"""Stored bytes of blocks that are judged and expanded at a time, unless one is larger."""


class SpanWalk:
    """One pass over the spans of a range.

    Attributes:
        spans: They, in the order of the file.
    """

    def __init__(self, fragment: FileRange, table: TableMap, source: Source, findings: Findings) -> None:
        self.fragment = fragment
        self.table = table
        self.source = source
        self.findings = findings
        spans = table.spans
        first, last = spans["offset"].searchsorted((fragment.start, fragment.end))
        self.spans: NDArray[np.void] = spans[first:last]
        self._damaged = {damage.offset: damage for damage in table.damages}

    def damage(self, kind: Kind, offset: int, length: int, detail: str) -> None:
        """Enter a damage into the ledger."""
        self.findings.damage(Damage(self.fragment.path, offset, length, kind.label, detail))

    def enter(self, span: np.void) -> None:
        """Enter what holds no rows into the ledger."""
        offset, length, role = int(span["offset"]), int(span["length"]), span["role"]
        if role == Role.HEADER and offset in self._damaged:
            damage = self._damaged.pop(offset)
            self.findings.damage(Damage(damage.path, offset, length, damage.kind, damage.detail))
        elif role == Role.HEADER:
            self.findings.account.header += length
        elif role == Role.VALUES:
            self._judge(offset, length)
        elif role == Role.OVERLAP:
            self.damage(
                Kind.BAD_HANDLE, offset, length, "the index names a block there that overlaps others or is past the end"
            )
        elif self._only_zeros(offset, length):
            self.findings.account.padding += length
        elif (lost := self.table.lost) is not None:
            detail = f"{lost.detail}; what could be proven was read"
            self.findings.damage(Damage(self.fragment.path, offset, length, lost.kind, detail))
        elif any(one.kind == UNSUPPORTED for one in self.table.damages):
            detail = "bytes that only blocks lead to that this version of sawlog does not know"
            self.findings.damage(Damage(self.fragment.path, offset, length, UNSUPPORTED, detail))
        else:
            self.damage(Kind.UNREFERENCED, offset, length, "bytes that belong to no block that anything leads to")

    def _judge(self, offset: int, length: int) -> None:
        """A block of values: the entries that lead to it are reported where they are."""
        content, _ = self.table.rules.read(self.source, offset, length - layout.TRAILER_SIZE)
        if isinstance(content, tuple):
            self.findings.damage(block_damage(self.fragment.path, offset, length, content))
        else:
            self.findings.account.record += length

    def _only_zeros(self, offset: int, length: int) -> bool:
        for start in range(offset, offset + length, RUN_BYTES):
            if self.source.window(start, min(RUN_BYTES, offset + length - start)).any():
                return False
        return True
