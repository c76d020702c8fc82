"""A member of an etcd that does not run: its database, and what its write-ahead log has besides."""

from __future__ import annotations

import posixpath
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256

from sawlog.errors import FormatError
from sawlog.milvus.etcd import layout
from sawlog.milvus.etcd.bolt import BrokenError, Database, LeafElement
from sawlog.milvus.etcd.layout import NORMAL_ENTRY
from sawlog.milvus.etcd.log import list_log_files, read_log
from sawlog.milvus.etcd.messages import AlarmMember, KeyValue, LogEntry, Request
from sawlog.milvus.etcd.store import KeyStore, Value
from sawlog.storage import Source, Storage, is_remote
from sawlog.storage.sources import WINDOW_BYTES, MemorySource

_PLACES = (
    (layout.MEMBER_DIRECTORY, layout.SNAPSHOT_DIRECTORY, layout.DATABASE),
    (layout.SNAPSHOT_DIRECTORY, layout.DATABASE),
    (layout.DATABASE,),
)
"""Where the database is below a data directory, a member's directory, and the directory of a member's snapshots."""


@dataclass(slots=True)
class Member:
    """Keys and values of a member.

    Attributes:
        store: They.
        requests: How many requests of the log came after what the database has.
        broken: Why what comes after those cannot be read; `None` where that is all.
    """

    store: KeyStore
    requests: int = 0
    broken: BrokenError | None = None


def find_database(directory: str, storage: Storage) -> str | None:
    """Return the database of an etcd's data directory, or of a directory within; `None` where there is none."""
    places = (posixpath.join(directory.rstrip("/"), *parts) for parts in _PLACES)
    return next((place for place in places if storage.exists(place) and not storage.is_directory(place)), None)


def read_member(database: str, storage: Storage, watched: tuple[bytes, ...] = ()) -> Member:
    """Return the keys of a database, with what the write-ahead log next to it has besides.

    Args:
        database: Its file. The log is used where the file is at its place in a data directory.
        storage: Where they are.
        watched: Parts of the keys whose earlier values are kept, as far as the server has not given them up.

    Raises:
        BrokenError: When the database is cut or damaged.
        FormatError: When it is no etcd's.
    """
    # Pages are in any order: of a remote file, all are fetched at once.
    with closing(MemorySource(storage.read(database)) if is_remote(database) else storage.open(database)) as source:
        _check_hash(source, database)
        member, index, members = read_database(Database(source, database), database, watched)
    above = posixpath.dirname(database)
    logs = posixpath.join(posixpath.dirname(above), layout.LOG_DIRECTORY)
    in_place = posixpath.basename(above) == layout.SNAPSHOT_DIRECTORY
    if not in_place or not storage.is_directory(logs):
        return member
    log = read_log(list_log_files(storage.list_files(logs), index), index, storage)
    member.broken = log.broken
    # A single member has agreed on all of it; of several, the others may know better than what is not agreed on.
    entries = [entry for entry in log.entries if members <= 1 or entry.index <= log.committed]
    for entry in entries:
        try:
            _apply(entry, member)
        except FormatError as error:
            member.broken = BrokenError(logs, 0, f"entry {entry.index}: {error}")
            break
    return member


def _apply(entry: LogEntry, member: Member) -> None:
    data = entry.data
    if entry.type != NORMAL_ENTRY or not data:
        return
    request = Request(data)
    if request.method not in layout.OLD_METHODS:
        member.store.apply(request)
        member.requests += 1


def read_database(database: Database, path: str, watched: tuple[bytes, ...]) -> tuple[Member, int, int]:
    """Read a database: its keys, the index of the last entry of the log that it has, and the number of members."""
    store, is_any = KeyStore(watched=watched), False
    for entry in database.iterate_bucket(layout.KEY_BUCKET):
        is_any = True
        _take_change(store, entry, path)
    numbers = {entry.key: entry for entry in database.iterate_bucket(layout.META_BUCKET)}
    if not is_any and not numbers:
        raise FormatError(f"{path}: a bbolt database without the buckets 'key' and 'meta' of an etcd")
    store.compacted = _read_number(numbers.get(layout.FINISHED_COMPACTION), path)
    scheduled = _read_number(numbers.get(layout.SCHEDULED_COMPACTION), path)
    # What was given up may have had the last revision.
    store.revision = max(store.revision, store.compacted, scheduled)
    store.leases = {_parse_id(entry, path) for entry in database.iterate_bucket(layout.LEASE_BUCKET)}
    for entry in database.iterate_bucket(layout.ALARM_BUCKET):
        alarm = AlarmMember(entry.key)
        store.alarms.add((alarm.member, alarm.alarm))
    index = _read_number(numbers.get(layout.CONSISTENT_INDEX), path)
    return Member(store), index, sum(1 for _ in database.iterate_bucket(layout.MEMBERS_BUCKET))


def _check_hash(source: Source, path: str) -> None:
    """Check the hash at the end of what `etcdctl snapshot save` has written."""
    end = source.size - layout.SNAPSHOT_HASH
    if source.size % layout.SECTOR != layout.SNAPSHOT_HASH:
        return
    digest = sha256()
    for start in range(0, end, WINDOW_BYTES):
        digest.update(source.read_window(start, min(WINDOW_BYTES, end - start)).tobytes())
    if digest.digest() != source.read_window(end, layout.SNAPSHOT_HASH).tobytes():
        raise BrokenError(path, end, "the SHA-256 at its end is not that of the database: it is cut or damaged")


def _take_change(store: KeyStore, entry: LeafElement, path: str) -> None:
    """Take over a change of a key. Those of a database are in the order of their revisions."""
    key = entry.key
    is_tombstone = key[layout.REVISION.size :] == layout.TOMBSTONE_MARK
    if len(key) - is_tombstone != layout.REVISION.size:
        raise BrokenError(path, entry.offset, f"the key of a change has {len(key)} bytes: {key[:40].hex(' ')}")
    revision, mark, _ = layout.REVISION.unpack_from(key)
    if mark != layout.REVISION_MARK or revision >> 63:
        raise BrokenError(path, entry.offset, f"{key.hex(' ')} is no revision")
    try:
        change = KeyValue(entry.value, f"the change of revision {revision}")
        name, value = (
            change.key,
            Value(change.value, change.create_revision, change.mod_revision, change.version, change.lease),
        )
    except FormatError as error:
        raise BrokenError(path, entry.offset, str(error)) from None
    if not name or (not is_tombstone and value.modified != revision):
        change_name = f"the key {name[:40]!r} of revision {value.modified}"
        raise BrokenError(path, entry.offset, f"{change_name} in the place of one of revision {revision}")
    store.note(name, revision, None if is_tombstone else value.data)
    if is_tombstone:
        store.values.pop(name, None)
    else:
        store.values[name] = value
    store.revision = max(store.revision, revision)


def _read_number(entry: LeafElement | None, path: str) -> int:
    """Return a number of the bucket `meta`, or the main one of a revision there; 0 where it is not there."""
    if entry is None:
        return 0
    if len(entry.value) not in (layout.NUMBER.size, layout.REVISION.size):
        raise BrokenError(path, entry.offset, f"{entry.key!r} has {len(entry.value)} bytes; expected 8 or 17")
    return int(layout.NUMBER.unpack_from(entry.value)[0])


def _parse_id(entry: LeafElement, path: str) -> int:
    """Return the id of a lease, which is its key."""
    if len(entry.key) != layout.NUMBER.size:
        raise BrokenError(path, entry.offset, f"the id of a lease has {len(entry.key)} bytes; expected 8")
    (id,) = layout.NUMBER.unpack(entry.key)
    return int(id)
