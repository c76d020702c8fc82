"""Messages of etcd that Milvus' metadata can be in, declared by the numbers of etcd's own definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sawlog.milvus.metadata.messages import (
    Field,
    M,
    Message,
    Value,
    decode_boolean,
    decode_bytes,
    decode_integer,
    decode_messages,
)


def _decode_optional(kind: type[M]) -> Callable[[Sequence[Value]], M | None]:
    """Return a message that may be absent, which says something else than one without fields."""
    return lambda values: kind(decode_bytes(values)) if values else None


class KeyValue(Message):
    """A change of a key, as the database has it. One that deletes has the key only."""

    key = Field(1, decode_bytes)
    create_revision = Field(2, decode_integer)
    mod_revision = Field(3, decode_integer)
    version = Field(4, decode_integer)
    value = Field(5, decode_bytes)
    lease = Field(6, decode_integer)


class Record(Message):
    """A record of the write-ahead log."""

    type = Field(1, decode_integer)
    crc = Field(2, decode_integer)
    data = Field(3, decode_bytes)


class HardState(Message):
    """The end of what is agreed on in the log."""

    commit = Field(3, decode_integer)


class LogEntry(Message):
    """An entry of the log."""

    type = Field(1, decode_integer)
    index = Field(3, decode_integer)
    data = Field(4, decode_bytes)


class RangeRequest(Message):
    """A read; it changes nothing, but a transaction with one of a revision that is gone is refused."""

    revision = Field(4, decode_integer)


class PutRequest(Message):
    """A new value of a key."""

    key = Field(1, decode_bytes)
    value = Field(2, decode_bytes)
    lease = Field(3, decode_integer)
    ignore_value = Field(5, decode_boolean)
    ignore_lease = Field(6, decode_boolean)


class DeleteRangeRequest(Message):
    """The end of a key, or of a range of them."""

    key = Field(1, decode_bytes)
    range_end = Field(2, decode_bytes)


class Compare(Message):
    """A condition of a transaction."""

    result = Field(1, decode_integer)
    target = Field(2, decode_integer)
    key = Field(3, decode_bytes)
    version = Field(4, decode_integer)
    create_revision = Field(5, decode_integer)
    mod_revision = Field(6, decode_integer)
    value = Field(7, decode_bytes)
    lease = Field(8, decode_integer)
    range_end = Field(64, decode_bytes)


class CompactionRequest(Message):
    """Until which revision old values are given up."""

    revision = Field(1, decode_integer)


class LeaseRequest(Message):
    """The grant of a lease, whose id is its second field."""

    id = Field(2, decode_integer)


class RevokeRequest(Message):
    """The end of a lease, and of its keys."""

    id = Field(1, decode_integer)


class AlarmRequest(Message):
    """The begin or the end of an alarm."""

    action = Field(1, decode_integer)
    member = Field(2, decode_integer)
    alarm = Field(3, decode_integer)


class AlarmMember(Message):
    """An alarm, as the database has it."""

    member = Field(1, decode_integer)
    alarm = Field(2, decode_integer)


class RequestOp(Message):
    """An operation of a transaction, which has exactly one of these fields. A transaction within stays bytes."""

    range = Field(1, _decode_optional(RangeRequest))
    put = Field(2, _decode_optional(PutRequest))
    delete_range = Field(3, _decode_optional(DeleteRangeRequest))
    txn = Field(4, lambda values: decode_bytes(values) if values else None)


class TxnRequest(Message):
    """A transaction."""

    compare = Field(1, decode_messages(Compare))
    success = Field(2, decode_messages(RequestOp))
    failure = Field(3, decode_messages(RequestOp))


class Request(Message):
    """Request in an entry of the log, of which it has one. Fields that are not here change no keys."""

    method = Field(2, decode_bytes)  # of requests to etcd's older store, which are no messages of this kind
    put = Field(4, _decode_optional(PutRequest))
    delete_range = Field(5, _decode_optional(DeleteRangeRequest))
    txn = Field(6, _decode_optional(TxnRequest))
    compaction = Field(7, _decode_optional(CompactionRequest))
    lease_grant = Field(8, _decode_optional(LeaseRequest))
    lease_revoke = Field(9, _decode_optional(RevokeRequest))
    alarm = Field(10, _decode_optional(AlarmRequest))
