"""An etcd's data directory as metadata. The golden one was made by an etcd 3.7.3 that was killed."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import sawlog
from sawlog.errors import FormatError, IncompleteError
from sawlog.kernels.varints import encode_varint
from sawlog.milvus.etcd import member
from sawlog.milvus.etcd.bolt import BrokenError, Database, fnv1a
from sawlog.milvus.etcd.layout import BRANCH_ELEMENT, META, META_CHECKED, PAGE_HEADER
from sawlog.milvus.etcd.log import list_log_files, read_log
from sawlog.milvus.etcd.member import find_database, read_member
from sawlog.milvus.etcd.messages import Request
from sawlog.milvus.etcd.store import KeyStore
from sawlog.milvus.layout import LOGICAL_BITS
from sawlog.milvus.metadata.etcd import WATCHED, Etcd
from sawlog.storage import Storage
from sawlog.storage.sources import MemorySource
from tests.milvus_binlog.dumps import message
from tests.milvus_binlog.support import GOLDEN, NOW, unpack_etcd

DUMP = GOLDEN / "2.3.5" / "etcd.json"
PAGE = 4096


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The golden data directory, too far from the logs to be found."""
    return unpack_etcd(tmp_path / "away" / "server" / "data")


@pytest.fixture
def golden_files(tmp_path: Path) -> Path:
    """The golden logs, without a dump next to them."""
    for name in ("insert_log", "delta_log", "stats_log"):
        shutil.copytree(GOLDEN / "2.3.5" / name, tmp_path / "files" / name)
    return tmp_path / "files"


def read_keys(directory: Path) -> dict[str, str]:
    """Values in base64 by key."""
    member = read_member(str(directory / "member" / "snap" / "db"), Storage())
    assert member.broken is None
    return {key.decode(): base64.b64encode(value.data).decode() for key, value in member.store.values.items()}


def change_log_file(directory: Path, change: Callable[[bytes], bytes], name: str = "*-0000000000000000.wal") -> Path:
    """Change a file of the log."""
    (path,) = (directory / "member" / "wal").glob(name)
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["etcd", "etcd-3.5"])
def test_keys_are_those_that_the_server_had(name: str, tmp_path: Path) -> None:
    assert read_keys(unpack_etcd(tmp_path, name)) == json.loads(DUMP.read_text())


@pytest.mark.parametrize("place", ["", "member", "member/snap", "member/snap/db"])
def test_rows_are_those_with_a_dump(data: Path, golden_files: Path, place: str) -> None:
    for options in ({"table": "alltypes"}, {"table": "alltypes", "as_of": NOW}, {"view": "collections"}):
        expected = sawlog.read(golden_files, metadata=str(DUMP), **options)
        assert sawlog.read(golden_files, metadata=str(data / place), **options).equals(expected)


def test_a_database_by_itself_is_what_was_committed(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "member" / "snap" / "db", tmp_path / "copy.db")
    member = read_member(str(tmp_path / "copy.db"), Storage())
    values, whole_values = member.store.values, json.loads(DUMP.read_text())
    assert 0 < len(values) - 1 < len(whole_values)  # with the collection that is deleted later
    assert b"by-dev/meta/root-coord/collection/77" in values
    assert read_member(str(data / "member" / "snap" / "db"), Storage()).requests > 50


@pytest.mark.parametrize("size", [0, 10, 5000, 9 * PAGE, -1])
def test_a_cut_database_is_incomplete_metadata(data: Path, golden_files: Path, size: int) -> None:
    database = data / "member" / "snap" / "db"
    database.write_bytes(used(data)[:size])
    options = {"table": "470611412203077890", "metadata": str(data)}
    with pytest.raises(IncompleteError, match=r"snap/db: cut_metadata") as raised:
        sawlog.read(golden_files, **options)
    assert raised.value.damage.path == str(database)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert sawlog.read(golden_files, on_damage="skip", **options).num_rows
    assert any("cut_metadata" in str(warning.message) for warning in caught)
    report = sawlog.verify(golden_files, metadata=str(data))
    assert report.incomplete
    assert not report.damaged


def used(data: Path) -> bytearray:
    """The pages of the database, without the zeros that the file is filled with."""
    with (data / "member" / "snap" / "db").open("rb") as file:
        metas = file.read(2 * PAGE)
        return bytearray(metas + file.read((META.unpack_from(metas, newer(metas))[7] - 2) * PAGE))


def read_changed(change: Callable[[bytearray], None], data: Path) -> dict[bytes, bytes]:
    """The keys of the database with some bytes changed."""
    content = used(data)
    change(content)
    entries: dict[bytes, bytes] = {}
    database = Database(MemorySource(content), "db")
    for bucket in (b"key", b"meta", b"members"):
        entries |= {entry.key: entry.value for entry in database.iterate_bucket(bucket)}
    return entries


def of_kind(content: bytes, kind: int) -> list[int]:
    """Where the pages of a kind begin."""
    starts = range(2 * PAGE, len(content), PAGE)
    return [start for start in starts if PAGE_HEADER.unpack_from(content, start)[1] == kind]


def newer(content: bytes | bytearray) -> int:
    """Where the newer meta begins."""
    return max((PAGE_HEADER.size, PAGE + PAGE_HEADER.size), key=lambda start: META.unpack_from(content, start)[8])


def set_meta(content: bytearray, **numbers: int) -> None:
    """Change numbers of the newer meta, whose checksum stays right."""
    names = ("magic", "version", "page_size", "flags", "root", "sequence", "free", "pages", "transaction", "checksum")
    start = newer(content)
    all_numbers = dict(zip(names, META.unpack_from(content, start), strict=True)) | numbers
    META.pack_into(content, start, *all_numbers.values())
    struct.pack_into("<Q", content, start + META_CHECKED, fnv1a(bytes(content[start : start + META_CHECKED])))


def test_the_newer_of_two_sound_metas_counts(data: Path) -> None:
    def break_newer(content: bytearray) -> None:
        content[newer(content) + 40] ^= 1

    def break_both(content: bytearray) -> None:
        break_newer(content)
        start = PAGE_HEADER.size + PAGE - (newer(content) - PAGE_HEADER.size)
        content[start + META_CHECKED] ^= 1

    assert read_changed(break_newer, data) != read_changed(lambda _: None, data)
    with pytest.raises(BrokenError, match="no valid meta page"):
        read_changed(break_both, data)
    database = data / "member" / "snap" / "db"
    content = bytearray(database.read_bytes())
    break_newer(content)
    database.write_bytes(content)
    assert read_keys(data) == json.loads(DUMP.read_text())  # the log has what the older one lacks


def cycle(content: bytearray) -> None:
    """Let a branch be its own child."""
    start = of_kind(content, 1)[-1] + PAGE_HEADER.size
    position, size, _ = BRANCH_ELEMENT.unpack_from(content, start)
    BRANCH_ELEMENT.pack_into(content, start, position, size, start // PAGE)


def twice(content: bytearray) -> None:
    """Let two elements of a branch have one child."""
    for start in of_kind(content, 1):
        child = BRANCH_ELEMENT.unpack_from(content, start + PAGE_HEADER.size)[2]
        struct.pack_into("<Q", content, start + PAGE_HEADER.size + BRANCH_ELEMENT.size + 8, child)


def at_pages(kind: int, form: str, offset: int, *values: int) -> Callable[[bytearray], None]:
    """Put numbers into every page of a kind."""

    def change(content: bytearray) -> None:
        for start in of_kind(content, kind):
            struct.pack_into(form, content, start + offset, *values)

    return change


HOSTILE = {
    "cycle": (cycle, "in the tree twice"),
    "shared": (twice, "in the tree twice"),
    "child beyond the end": (at_pages(1, "<Q", 24, 1 << 60), "is none of the pages 2 to \\d+"),
    "child that is a meta": (at_pages(1, "<Q", 24, 1), "is none of the pages"),
    "root beyond the end": (lambda content: set_meta(content, root=99), "page 99 is none of the pages"),
    "other id": (at_pages(2, "<Q", 0, 3), "says that it is page 3"),
    "overflow": (at_pages(2, "<I", 12, 0xFFFFFFFF), "takes 4294967295 more pages"),
    "overflow over others": (at_pages(2, "<I", 12, 1), "in the tree twice|no valid|more pages"),
    "count": (at_pages(2, "<H", 10, 0xFFFF), "65535 elements do not fit"),
    "no children": (at_pages(1, "<H", 10, 0), "a branch without elements"),
    "flags": (at_pages(2, "<H", 8, 16), "flags 0x10"),
    "position": (at_pages(2, "<I", 20, 0xFFFFFFF0), "an element from byte"),
    "position in the elements": (at_pages(2, "<I", 20, 0), "an element from byte"),
    "key size": (at_pages(2, "<I", 24, 0xFFFFFFFF), "an element from byte"),
    "value size": (at_pages(2, "<I", 28, 0x7FFFFFFF), "an element from byte"),
    "pages": (lambda content: set_meta(content, pages=1 << 50), "cut: \\d+ bytes of"),
    "page size": (lambda content: set_meta(content, page_size=1 << 30), None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_are_told_by_file_and_offset(data: Path, name: str) -> None:
    change, message = HOSTILE[name]
    if message is None:  # the older meta is taken
        assert read_changed(change, data)
        return
    with pytest.raises(BrokenError, match=f"^db: byte \\d+: .*({message})"):
        read_changed(change, data)


def test_no_change_of_bytes_is_anything_else_than_damage(data: Path) -> None:
    chance = random.Random(3)

    def change(content: bytearray) -> None:
        for _ in range(chance.randrange(1, 4)):
            start = chance.randrange(len(content) // PAGE) * PAGE
            place = start + chance.randrange(chance.choice([16, 100, PAGE]))
            content[place] = chance.choice([0, 1, 255, content[place] ^ 1 << chance.randrange(8)])

    offsets = []
    for _ in range(80):
        try:
            assert len(read_changed(change, data)) < 1000
        except BrokenError as error:
            offsets.append(error.offset)
    assert len(offsets) > 10
    assert 0 <= min(offsets) <= max(offsets) <= len(used(data))


def test_a_damaged_page_is_told_and_rows_are_read_as_they_lie(data: Path, golden_files: Path) -> None:
    database = data / "member" / "snap" / "db"
    content = bytearray(database.read_bytes())
    at_pages(2, "<H", 10, 0xFFFF)(content)
    database.write_bytes(content)
    with pytest.raises(IncompleteError, match=r"snap/db: cut_metadata at byte \d+: 65535 elements"):
        sawlog.read(golden_files, table="alltypes", metadata=str(data))


def frame_places(content: bytes) -> list[tuple[int, int]]:
    """Where the records of a file of the log begin and end."""
    places, offset = [], 0
    while field := struct.unpack_from("<Q", content, offset)[0]:
        end = offset + 8 + (field & (1 << 56) - 1) + (field >> 56 & 7 if field >> 63 else 0)
        places.append((offset, end))
        offset = end
        if offset + 8 > len(content):
            break
    return places


def test_a_damaged_log_is_incomplete_metadata_and_what_is_before_it_is_used(data: Path, golden_files: Path) -> None:
    path = change_log_file(data, lambda content: content)
    offset, end = frame_places(path.read_bytes())[-20]
    change_log_file(data, lambda content: content[: end - 9] + bytes([content[end - 9] ^ 1]) + content[end - 8 :])
    member = read_member(str(data / "member" / "snap" / "db"), Storage())
    assert member.broken is not None
    assert (member.broken.path, member.broken.offset) == (str(path), offset)
    assert member.requests > 50
    with pytest.raises(IncompleteError, match=rf"\.wal: cut_metadata at byte {offset}: checksum"):
        sawlog.read(golden_files, table="alltypes", metadata=str(data))
    with pytest.warns(UserWarning, match="what was written later is not known"):
        names = sawlog.read(golden_files, view="collections", metadata=str(data), on_damage="skip")["name"].to_pylist()
    assert "alltypes" in names


def last_log(data: Path) -> Path:
    """The last file of the log."""
    return max((data / "member" / "wal").glob("*.wal"))


def test_a_record_that_was_being_written_is_none(data: Path) -> None:
    path = last_log(data)
    content = path.read_bytes()
    end = frame_places(content)[-1][1]
    torn = struct.pack("<Q", 3000) + bytes(3000)
    path.write_bytes(content[:end] + torn + content[end + len(torn) :])
    assert read_keys(data) == json.loads(DUMP.read_text())


def test_a_log_that_is_cut_is_told(data: Path) -> None:
    path = last_log(data)
    offset, end = frame_places(path.read_bytes())[-1]
    path.write_bytes(path.read_bytes()[: end - 3])
    broken = read_member(str(data / "member" / "snap" / "db"), Storage()).broken
    assert broken is not None
    assert (broken.path, broken.offset) == (str(path), offset)


def test_a_file_of_the_log_that_is_gone_is_told(data: Path) -> None:
    change_log_file(data, lambda content: b"").unlink()
    broken = read_member(str(data / "member" / "snap" / "db"), Storage()).broken
    assert broken is not None
    assert "before it are missing" in broken.detail


def test_no_changed_byte_of_the_log_is_passed_over(data: Path) -> None:
    path = change_log_file(data, lambda content: content)
    content, chance = path.read_bytes(), random.Random(5)
    used = frame_places(content)[-1][1]
    whole_keys = read_keys(data)
    for _ in range(60):
        place = chance.randrange(used)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :])
        member = read_member(str(data / "member" / "snap" / "db"), Storage())
        values = {key.decode(): base64.b64encode(value.data).decode() for key, value in member.store.values.items()}
        assert member.broken is not None or values == whole_keys


def log_of(entries: Sequence[bytes]) -> bytes:
    """A file of the log, in which two entries are agreed on."""
    content, crc = b"", 0
    for kind, data in [(4, b""), *((2, entry) for entry in entries), (3, message({3: 2}))]:
        crc = crc if kind == 4 else crc32c(data, crc)
        record = message({1: kind, 2: crc, 3: data})
        padding = -len(record) % 8
        field = len(record) | ((0x80 | padding) << 56 if padding else 0)
        content += struct.pack("<Q", field) + record + bytes(padding)
    return content + bytes(64)


def test_entries_that_were_not_agreed_on_are_replaced(tmp_path: Path) -> None:
    entries = [message({3: index, 4: message({4: message({1: b"k", 2: value})})}) for index, value in WRITTEN]
    (tmp_path / "0000000000000000-0000000000000000.wal").write_bytes(log_of(entries))
    log = read_log(list_log_files(Storage().list_files(tmp_path), 0), 0, Storage())
    assert log.broken is None
    assert log.committed == 2
    puts = [Request(entry.data).put for entry in log.entries]
    assert [put.value for put in puts if put is not None] == [b"one", b"other"]


WRITTEN = [(1, b"one"), (2, b"two"), (3, b"three"), (2, b"other")]


def crc32c(data: bytes, crc: int) -> int:
    """CRC-32C, bit by bit."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_transactions_within_transactions_are_not_followed_endlessly() -> None:
    txn = b""
    for _ in range(5000):
        operation = encode_varint(4 << 3 | 2) + encode_varint(len(txn)) + txn
        txn = encode_varint(2 << 3 | 2) + encode_varint(len(operation)) + operation
    with pytest.raises(FormatError, match="within each other"):
        KeyStore().apply(Request(encode_varint(6 << 3 | 2) + encode_varint(len(txn)) + txn))


def test_of_several_members_only_what_is_agreed_on_counts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = str(data / "member" / "snap" / "db")
    read, single = member.read_database, read_member(database, Storage())
    monkeypatch.setattr(member, "read_database", lambda *arguments: (*read(*arguments)[:2], 3))
    assert read_member(database, Storage()).requests == single.requests - 1  # the last one was not agreed on yet


def make_put(key: bytes, value: bytes) -> Request:
    return Request(message({4: message({1: key, 2: value})}))


def test_requests_that_were_refused_change_nothing() -> None:
    store = KeyStore()
    store.apply(make_put(b"k", b"1"))
    store.apply(Request(message({4: message({1: b"k", 2: b"2", 3: 77})})))  # a lease that nobody granted
    store.apply(Request(message({4: message({1: b"new", 5: 1})})))  # keeps a value that there is not
    store.apply(Request(message({10: message({1: 1, 2: 5, 3: 1})})))  # no space is left
    store.apply(make_put(b"k", b"3"))
    assert (store.values.keys(), store.values[b"k"].data, store.revision) == ({b"k"}, b"1", 2)
    store.apply(Request(message({10: message({1: 2, 2: 5, 3: 1})})))
    store.apply(make_put(b"k", b"4"))
    assert (store.values[b"k"].data, store.values[b"k"].version, store.revision) == (b"4", 2, 3)


def test_the_hash_of_a_saved_snapshot_is_checked(data: Path, tmp_path: Path) -> None:
    content = bytes(used(data))
    saved = tmp_path / "saved.db"
    saved.write_bytes(content + hashlib.sha256(content).digest())
    assert read_member(str(saved), Storage()).store.values
    value = content.rfind(b"alltypes")  # no page shows that a value has changed
    saved.write_bytes(content[:value] + b"A" + content[value + 1 :] + hashlib.sha256(content).digest())
    with pytest.raises(BrokenError, match=f"byte {len(content)}: the SHA-256 at its end is not that of the database"):
        read_member(str(saved), Storage())


def test_requests_to_the_older_store_are_passed_over(data: Path) -> None:
    """Members up to 3.5 put them into the log as they are; the text in them is no request."""
    for path in (data / "member" / "wal").glob("*"):
        path.unlink()
    database = data / "member" / "snap" / "db"
    meta = {entry.key: entry.value for entry in Database(MemorySource(used(data)), "db").iterate_bucket(b"meta")}
    index = int.from_bytes(meta[b"consistent_index"], "big")
    old = message({1: 7, 2: b"PUT", 3: b"/0/members/1/attributes", 4: b'{"name":"default"}', 5: 0})
    new = message({4: message({1: b"k", 2: b"v"})})
    entries = [message({3: index + 1, 4: old}), message({3: index + 2, 4: new})]
    (data / "member" / "wal" / "0000000000000000-0000000000000000.wal").write_bytes(log_of(entries))
    member = read_member(str(database), Storage())
    assert member.broken is None
    assert (member.requests, member.store.values[b"k"].data) == (1, b"v")


def saved_time(milliseconds: int) -> Request:
    return make_put(b"by-dev/kv/gid/timestamp", (milliseconds * 1_000_000).to_bytes(8, "big"))


def names_as_of(store: KeyStore, *moments: int | None) -> list[list[str]]:
    """Names of the collections at times in milliseconds."""
    keys = {key.decode(): value.data for key, value in store.values.items()}
    past = {key.decode(): changes for key, changes in store.changes.items()}
    metadata = Etcd(keys, "etcd", past)
    times = [None if moment is None else moment << LOGICAL_BITS for moment in moments]
    return [sorted(meta.name for meta in metadata.find_collections(time).values()) for time in times]


def collection(name: bytes, id: int = 7) -> bytes:
    return message({1: id, 2: message({1: name})})


def test_what_etcd_still_knows_of_earlier_times_is_used() -> None:
    store = KeyStore(watched=WATCHED)
    key, other_key = b"by-dev/meta/root-coord/collection/7", b"by-dev/meta/root-coord/collection/8"
    store.apply(make_put(key, collection(b"a")))
    store.apply(make_put(other_key, collection(b"stays", 8)))
    store.apply(saved_time(1000))
    store.apply(make_put(key, collection(b"b")))
    assert names_as_of(store, 0, 999, 5000, None) == [["b", "stays"]] * 4  # one time is no clock
    store.apply(saved_time(4000))
    store.apply(Request(message({5: message({1: key})})))
    store.apply(saved_time(7000))
    store.apply(make_put(key, collection(b"c")))
    assert names_as_of(store, 0, 999, 1000, 3999, 4000, 6999, 7000, None) == [
        ["a", "stays"],
        ["a", "stays"],
        ["b", "stays"],
        ["b", "stays"],
        ["stays"],
        ["stays"],
        ["c", "stays"],
        ["c", "stays"],
    ]


def test_snapshots_that_milvus_has_given_up_are_used_as_long_as_etcd_has_them() -> None:
    store = KeyStore(watched=WATCHED)
    key = b"root-coord/collection/7"
    first, second = (b"by-dev/meta/snapshots/%s_ts%d" % (key, time << LOGICAL_BITS) for time in (1000, 2000))
    store.apply(make_put(first, collection(b"a")))
    store.apply(make_put(second, collection(b"b")))
    store.apply(make_put(b"by-dev/meta/" + key, collection(b"b")))
    store.apply(make_put(b"by-dev/meta/root-coord/collection/8", collection(b"stays", 8)))
    for time in (3000, 6000):
        store.apply(saved_time(time))
    for name in (first, second, b"by-dev/meta/" + key):
        store.apply(Request(message({5: message({1: name})})))
    assert names_as_of(store, 999, 1000, 2000, 5999, 6000, None) == [
        ["stays"],
        ["a", "stays"],
        ["b", "stays"],
        ["b", "stays"],
        ["stays"],
        ["stays"],
    ]


def test_a_bbolt_file_of_another_system_is_no_metadata(data: Path, golden_files: Path, tmp_path: Path) -> None:
    content = (data / "member" / "snap" / "db").read_bytes()
    (tmp_path / "other.db").write_bytes(content.replace(b"key", b"kez").replace(b"meta", b"metb"))
    with pytest.raises(FormatError, match="without the buckets 'key' and 'meta'"):
        sawlog.read(golden_files, table="alltypes", metadata=str(tmp_path / "other.db"))


def test_a_directory_without_metadata_says_what_is_expected(golden_files: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert find_database(str(tmp_path / "empty"), Storage()) is None
    with pytest.raises(FormatError, match=r"expected full_meta\.json of a milvus-backup, or member/snap/db of an etcd"):
        sawlog.read(golden_files, table="alltypes", metadata=str(tmp_path / "empty"))
