"""The keys and values of an etcd, as its database has them and then the requests of its log change them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sawlog.errors import FormatError
from sawlog.milvus.etcd import layout
from sawlog.milvus.etcd.layout import Alarm, Comparison, Target
from sawlog.milvus.etcd.messages import Compare, DeleteRangeRequest, PutRequest, Request, RequestOp, TxnRequest

_MAX_DEPTH = 32
"""Transactions within transactions: more than a client nests, and few enough to follow."""


@dataclass(frozen=True, slots=True)
class _KeyEnd:
    """The end of a key with its lease."""

    key: bytes
    range_end: bytes = b""


Change: TypeAlias = PutRequest | DeleteRangeRequest | _KeyEnd


@dataclass(frozen=True, slots=True)
class Value:
    """Value of a key, with all that transactions compare.

    Attributes:
        data: The value.
        created: The revision that made the key.
        modified: The revision that gave it this value.
        version: How many values it has had since it was made.
        lease: The lease that ends it; 0 for none.
    """

    data: bytes = b""
    created: int = 0
    modified: int = 0
    version: int = 0
    lease: int = 0


_ABSENT = Value()


class _RefusedError(Exception):
    """Raised for a request that the server has refused, too."""


@dataclass(slots=True)
class KeyStore:
    """Keys and values at a revision.

    Attributes:
        values: The values by key.
        revision: The last revision.
        compacted: The revision before which old values were given up.
        leases: The leases that there are.
        alarms: The alarms that are on: the members that gave them, and their numbers.
        watched: Parts of the keys whose earlier values are kept.
        changes: Of those keys, the revisions that changed them, and the values, which are `None` where they end.
    """

    values: dict[bytes, Value] = field(default_factory=dict)
    revision: int = 1
    compacted: int = 0
    leases: set[int] = field(default_factory=set)
    alarms: set[tuple[int, int]] = field(default_factory=set)
    watched: tuple[bytes, ...] = ()
    changes: dict[bytes, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    _sorted: list[bytes] | None = None

    def note(self, key: bytes, revision: int, value: bytes | None) -> None:
        """Note a change of a key, where its earlier values are kept."""
        if any(part in key for part in self.watched):
            self.changes.setdefault(key, []).append((revision, value))

    def apply(self, request: Request) -> None:
        """Do what a request asks for, as the server does; what that has refused changes nothing.

        Raises:
            FormatError: When it is no request.
        """
        alarm = request.alarm
        if alarm is not None:
            if alarm.action == layout.ACTIVATE:
                self.alarms.add((alarm.member, alarm.alarm))
            elif alarm.action == layout.DEACTIVATE:
                self.alarms.discard((alarm.member, alarm.alarm))
            return
        alarms = {number for _, number in self.alarms}
        if Alarm.CORRUPT in alarms:
            return
        try:
            self._apply(request, has_space=Alarm.NO_SPACE not in alarms)
        except _RefusedError:
            return

    def _apply(self, request: Request, *, has_space: bool) -> None:
        changes: list[Change] = []
        if (put := request.put) is not None:
            self._check_put(put)
            changes.append(put)
        elif (delete_range := request.delete_range) is not None:
            changes.append(delete_range)
        elif (txn := request.txn) is not None:
            changes += self._choose_branch(txn)
        elif (compaction := request.compaction) is not None:
            if self.compacted < compaction.revision <= self.revision:
                self.compacted = compaction.revision
        elif (grant := request.lease_grant) is not None and has_space:
            self.leases.add(grant.id)
        elif (revoke := request.lease_revoke) is not None and revoke.id in self.leases:
            self.leases.discard(revoke.id)
            changes += [_KeyEnd(key) for key, value in self.values.items() if value.lease == revoke.id]
        if has_space or not any(isinstance(change, PutRequest) for change in changes):
            self._change(changes)

    def _check_put(self, put: PutRequest) -> None:
        """Refuse a value for a lease that is not there, or one that keeps what a key does not have."""
        if put.lease and put.lease not in self.leases:
            raise _RefusedError
        if (put.ignore_value or put.ignore_lease) and put.key not in self.values:
            raise _RefusedError

    def _choose_branch(self, txn: TxnRequest, depth: int = 0) -> list[Change]:
        """Return the changes of the branch that a transaction takes, judged by what there is before it."""
        if depth == _MAX_DEPTH:
            raise FormatError(f"a request of more than {_MAX_DEPTH} transactions within each other")
        changes: list[Change] = []
        for operation in txn.success if all(map(self._compare, txn.compare)) else txn.failure:
            changes += self._list_changes(operation, depth)
        return changes

    def _list_changes(self, operation: RequestOp, depth: int) -> Sequence[Change]:
        read, put, delete_range, txn = operation.range, operation.put, operation.delete_range, operation.txn
        if read is not None and read.revision and not self.compacted <= read.revision <= self.revision:
            raise _RefusedError
        if put is not None:
            self._check_put(put)
            return [put]
        if delete_range is not None:
            return [delete_range]
        return self._choose_branch(TxnRequest(txn), depth + 1) if txn is not None else []

    def _compare(self, condition: Compare) -> bool:
        """Return whether a condition of a transaction holds for all keys of its range."""
        keys = self._find_keys(condition.key, condition.range_end)
        if not keys:
            return condition.target != Target.VALUE and _holds(condition, _ABSENT)
        return all(_holds(condition, self.values[key]) for key in keys)

    def _change(self, changes: Sequence[Change]) -> None:
        """Make changes, all of them in one new revision; without any, there is none."""
        revision, is_changed = self.revision + 1, False
        for change in changes:
            if isinstance(change, PutRequest):
                self._put(change, revision)
                is_changed = True
                continue
            for key in self._find_keys(change.key, change.range_end):
                del self.values[key]
                if self._sorted is not None:
                    del self._sorted[bisect_left(self._sorted, key)]
                self.note(key, revision, None)
                is_changed = True
        if is_changed:
            self.revision = revision

    def _put(self, put: PutRequest, revision: int) -> None:
        key = put.key
        before = self.values.get(key)
        if before is None and self._sorted is not None:
            insort(self._sorted, key)
        self.values[key] = Value(
            before.data if put.ignore_value and before is not None else put.value,
            before.created if before is not None else revision,
            revision,
            before.version + 1 if before is not None else 1,
            before.lease if put.ignore_lease and before is not None else put.lease,
        )
        self.note(key, revision, self.values[key].data)

    def _find_keys(self, key: bytes, end: bytes) -> list[bytes]:
        """Return the keys of a range that are there: one key where it has no end."""
        if not end:
            return [key] if key in self.values else []
        if self._sorted is None:
            self._sorted = sorted(self.values)
        first = bisect_left(self._sorted, key)
        last = len(self._sorted) if end == layout.FROM_KEY else bisect_left(self._sorted, end)
        return self._sorted[first:last]


def _holds(condition: Compare, value: Value) -> bool:
    """Return whether a condition holds for the value of a key."""
    order = _order(condition, value)
    match condition.result:
        case Comparison.EQUAL:
            return order == 0
        case Comparison.NOT_EQUAL:
            return order != 0
        case Comparison.GREATER:
            return order > 0
        case Comparison.LESS:
            return order < 0
    return True


def _order(condition: Compare, value: Value) -> int:
    """Return how what a key has compares with what a condition names: -1, 0 or 1."""
    if condition.target == Target.VALUE:
        return (value.data > condition.value) - (value.data < condition.value)
    pairs: dict[int, tuple[int, int]] = {
        Target.VERSION: (value.version, condition.version),
        Target.CREATE: (value.created, condition.create_revision),
        Target.MOD: (value.modified, condition.mod_revision),
        Target.LEASE: (value.lease, condition.lease),
    }
    actual, named = pairs.get(condition.target, (0, 0))
    return (actual > named) - (actual < named)
