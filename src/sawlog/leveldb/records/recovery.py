"""What RocksDB keeps of damaged logs when it opens their database: its recovery modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.chain.kernels import Window
from sawlog.damage import Damage, DamageWarning, Findings, Tail, TailStatus
from sawlog.errors import DamageError, warn
from sawlog.format import Fragment
from sawlog.leveldb.log import kernels as k
from sawlog.leveldb.log import layout as log_layout
from sawlog.leveldb.log.judge import rules_of
from sawlog.leveldb.log.layout import Kind
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import BatchKind
from sawlog.leveldb.records.writes import WRITES_SCHEMA, WriteRange

if TYPE_CHECKING:
    from sawlog.leveldb.log.options import RecoveryMode

_NEEDED = tuple(WRITES_SCHEMA.field(name) for name in ("sequence", "operation"))
_STRICT = ("absolute_consistency", "tolerate_corrupted_tail_records")
"""In these modes RocksDB refuses to open a database with damaged logs."""
_TAILS_COUNT = ("absolute_consistency", "point_in_time_recovery")
"""In these modes an unfinished record at the end of a log is damage."""
_REFUSED = frozenset(
    kind.name.lower()
    for kind in (
        Kind.READ_ERROR,
        Kind.RECORD_TOO_LARGE,
        BatchKind.UNKNOWN_OPERATION,
        BatchKind.BROKEN_OPERATION,
        BatchKind.WRONG_COUNT,
    )
)
"""Broken batches within intact records no mode lets pass; of the first two, RocksDB's answer cannot be known."""
_QUIET = frozenset(kind.name.lower() for kind in (Kind.CHECKSUM_MISMATCH, Kind.BAD_LENGTH, Kind.FOREIGN_FRAGMENT))
"""What may stand where a recycled log ends."""


class Replay:
    """Logs of one database, one after the other, as RocksDB replays them.

    Args:
        mode: RocksDB's `WALRecoveryMode`.
        findings: Where rows are counted, and damage that is passed over.
    """

    def __init__(self, mode: RecoveryMode, findings: Findings) -> None:
        self._mode = mode
        self._findings = findings
        self._stopped = False
        self._next = -1

    def batches(self, log: WriteRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The operations of the next log that RocksDB would keep.

        Raises:
            DamageError: Where RocksDB would refuse to open the database.
        """
        needed = pa.schema([*schema, *(f for f in _NEEDED if f.name not in schema.names)])
        ledger = _Skipping("skip") if self._mode == "skip_any_corrupted_records" else Findings("fail")
        try:
            for batch in log.decode(needed, ledger):
                if not self._goes_on(batch):
                    return
                self._findings.rows += batch.num_rows
                yield batch.select(schema.names)
        except DamageError as error:
            self._stop(log.head.recycled, error.damage)
        else:
            self._judge_tail(log, ledger)
        for kind, count in ledger.kinds.items():
            self._findings.kinds[kind] += count
        self._findings.account.damage += ledger.account.damage

    def _goes_on(self, batch: pa.RecordBatch) -> bool:
        """Whether a log after a damaged one goes on where that one ended: then nothing is missing between them."""
        if not batch.num_rows:
            return True
        sequences = batch.column("sequence")
        if self._stopped and sequences[0].as_py() != self._next:
            return False
        self._stopped = False
        last = layout.OPERATIONS[layout.NAMES.index(batch.column("operation")[-1].as_py())]
        self._next = sequences[-1].as_py() + bool(last.shape & layout.Field.COUNTED)
        return True

    def _stop(self, recycled: bool, damage: Damage) -> None:
        tolerated = recycled and self._mode == "tolerate_corrupted_tail_records" and damage.kind in _QUIET
        if damage.kind in _REFUSED or (self._mode in _STRICT and not tolerated):
            raise DamageError(damage)
        self._stopped = self._mode == "point_in_time_recovery"
        self._findings.tally(damage.kind, 1, damage.length)
        detail = f"{damage}; RocksDB keeps nothing that follows in this log"
        warn(detail, DamageWarning)

    def _judge_tail(self, log: WriteRange, ledger: Findings) -> None:
        """An end that is not clean is damage in some modes."""
        tail = ledger.tail
        if self._mode not in _TAILS_COUNT or tail is None:
            return
        unfinished = tail.status in (TailStatus.TORN, TailStatus.OPEN)
        if tail.status is TailStatus.STALE:
            kind = _kind_at(log, tail)
            # A fragment of another log is the end of this one, in good order.
            unfinished = kind != Kind.FOREIGN_FRAGMENT
        if unfinished and self._mode in _STRICT:
            raise DamageError(Damage(log.path, tail.offset, tail.length, f"{tail.status}_tail", tail.detail))
        stale = tail.status is TailStatus.STALE
        self._stopped = self._mode == "point_in_time_recovery" and (unfinished or stale)


def _kind_at(log: WriteRange, tail: Tail) -> int:
    """What is wrong where a recycled log ends; 0 for nothing, where a record begins that has no end."""
    head = log.head
    with closing(log.scan.storage.open(log.path, log.file.size)) as source:
        data = np.array(source.window(tail.offset, min(log_layout.BLOCK_SIZE, log.file.size - tail.offset)))
    size = np.uint64(log.file.size)
    window = Window(data, np.uint64(tail.offset), size, size)
    state = k.first_state(tail.offset)
    rules = rules_of(head.dialect, log=head.log_number, recycled=True, gather=False, longest=0)
    return 0 if k.judge_fragment(window, state, rules) else int(state.kind)


class _Skipping(Findings):
    """A ledger for the mode that passes over damage, but for what no mode does."""

    __slots__ = ()

    def damage(self, damage: Damage) -> None:
        if damage.kind in _REFUSED:
            raise DamageError(damage)
        self.tally(damage.kind, 1, damage.length)

    @property
    def listing(self) -> bool:
        return True


@dataclass(frozen=True)
class ReplayedWrites(Fragment):
    """The logs of one database, replayed. They cannot be split.

    Attributes:
        ranges: They, in order.
    """

    ranges: tuple[WriteRange, ...]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        replay = Replay(self.scan.options.recovery, findings)
        for log in self.ranges:
            yield from replay.batches(log, schema)
