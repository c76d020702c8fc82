"""Messages of etcd that Milvus' metadata can be in, declared by the numbers of etcd's own definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sawlog.milvus.metadata.messages import Field, M, Message, Value, boolean, integer, raw, repeated


def optional(kind: type[M]) -> Callable[[Sequence[Value]], M | None]:
    """A message that may be absent, which says something else than one without fields."""
    return lambda values: kind(raw(values)) if values else None


class KeyValue(Message):
    """A change of a key, as the database has it. One that deletes has the key only."""

    key = Field(1, raw)
    create_revision = Field(2, integer)
    mod_revision = Field(3, integer)
    version = Field(4, integer)
    value = Field(5, raw)
    lease = Field(6, integer)


class Record(Message):
    """A record of the write-ahead log."""

    type = Field(1, integer)
    crc = Field(2, integer)
    data = Field(3, raw)


class HardState(Message):
    """The end of what is agreed on in the log."""

    commit = Field(3, integer)


class LogEntry(Message):
    """An entry of the log."""

    type = Field(1, integer)
    index = Field(3, integer)
    data = Field(4, raw)


class RangeRequest(Message):
    """A read; it changes nothing, but a transaction with one of a revision that is gone is refused."""

    revision = Field(4, integer)


class PutRequest(Message):
    """A new value of a key."""

    key = Field(1, raw)
    value = Field(2, raw)
    lease = Field(3, integer)
    ignore_value = Field(5, boolean)
    ignore_lease = Field(6, boolean)


class DeleteRangeRequest(Message):
    """The end of a key, or of a range of them."""

    key = Field(1, raw)
    range_end = Field(2, raw)


class Compare(Message):
    """A condition of a transaction."""

    result = Field(1, integer)
    target = Field(2, integer)
    key = Field(3, raw)
    version = Field(4, integer)
    create_revision = Field(5, integer)
    mod_revision = Field(6, integer)
    value = Field(7, raw)
    lease = Field(8, integer)
    range_end = Field(64, raw)


class CompactionRequest(Message):
    """Until which revision old values are given up."""

    revision = Field(1, integer)


class LeaseRequest(Message):
    """The grant of a lease, whose id is its second field."""

    id = Field(2, integer)


class RevokeRequest(Message):
    """The end of a lease, and of its keys."""

    id = Field(1, integer)


class AlarmRequest(Message):
    """The begin or the end of an alarm."""

    action = Field(1, integer)
    member = Field(2, integer)
    alarm = Field(3, integer)


class AlarmMember(Message):
    """An alarm, as the database has it."""

    member = Field(1, integer)
    alarm = Field(2, integer)


class RequestOp(Message):
    """An operation of a transaction: the one of these that is there. A transaction within stays bytes."""

    range = Field(1, optional(RangeRequest))
    put = Field(2, optional(PutRequest))
    delete_range = Field(3, optional(DeleteRangeRequest))
    txn = Field(4, lambda values: raw(values) if values else None)


class TxnRequest(Message):
    """A transaction."""

    compare = Field(1, repeated(Compare))
    success = Field(2, repeated(RequestOp))
    failure = Field(3, repeated(RequestOp))


class Request(Message):
    """Request in an entry of the log, of which it has one. Fields that are not here change no keys."""

    method = Field(2, raw)  # of requests to etcd's older store, which are no messages of this kind
    put = Field(4, optional(PutRequest))
    delete_range = Field(5, optional(DeleteRangeRequest))
    txn = Field(6, optional(TxnRequest))
    compaction = Field(7, optional(CompactionRequest))
    lease_grant = Field(8, optional(LeaseRequest))
    lease_revoke = Field(9, optional(RevokeRequest))
    alarm = Field(10, optional(AlarmRequest))
