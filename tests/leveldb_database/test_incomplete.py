"""A copy of a database of which something is missing is never clean, and is read as far as it can be."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from rocksdict import BlockBasedOptions, Options, Rdict, SstFileWriter

import sawlog
from sawlog.errors import DamageError, IncompleteError
from sawlog.format.contract import Fragment
from sawlog.format.damage import DamageWarning, FileReport, Findings, Report
from sawlog.leveldb.records.layout import Tag
from sawlog.testing.counting import count_work
from sawlog.testing.laws import check
from sawlog.testing.reading import check_fragments
from tests.bytes import encode_varint
from tests.leveldb_database.support import family_files, read_pebble_answers, sample
from tests.leveldb_log.fragments import write
from tests.leveldb_log.support import length_prefixed

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

PEBBLE = Path(__file__).parents[1] / "golden" / "leveldb_database" / "pebble-2.1.7-minlz"
State = dict[bytes, bytes]


ONLY_THE_MANIFEST_SAYS = {b"large", b"key04"}
"""Keys of Pebble's whose value is in a blob file, or whose table was ingested: which, and when, no table says."""


def leveldb(path: Path, order: bytes = b"") -> State:
    """Tables of several generations, and a log with entries of its own."""
    compare = (b"test.reversed", lambda a, b: (a < b) - (a > b)) if order else (None, None)
    settings = {"comparator": compare[1], "comparator_name": compare[0]} if order else {}
    state: State = {}
    for part in range(3):
        with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=70_000, **settings) as database:
            for number in range(60):
                key = b"%d-%03d" % (part, number)
                database.put(key, key * 9)
            database.put(b"shared", b"%d" % part)
            database.delete(b"%d-000" % part)
            state = dict(database.iterator())
    return state


def rocksdb(path: Path) -> State:
    """Tables, and nothing in the log."""
    database = Rdict(str(path), Options(raw_mode=True))
    for part in range(3):
        for number in range(30):
            database[b"%d-%03d" % (part, number)] = b"v%d" % number * (part + 1)
        database[b"shared"] = b"%d" % part
        database.flush()
    state = dict(database.items())
    database.close()
    return state


def pebble(path: Path) -> State:
    """A database of Pebble's that was killed."""
    shutil.copytree(PEBBLE / "db", path)
    return read_pebble_answers(PEBBLE / "answers.jsonl")


ENGINES = pytest.mark.parametrize("make", [leveldb, rocksdb, pebble])


def read_live(path: Path, **options: object) -> State:
    table = sawlog.read(path, format="leveldb_database", view="live", **options)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def skipped(path: Path) -> State:
    """What `skip` delivers of an incomplete database, after `fail` was refused and every byte was counted."""
    with pytest.raises(IncompleteError):
        read_live(path)
    report = sawlog.verify(path)
    assert report.incomplete
    assert all(file.account.total == file.size for file in report.files)
    for name in list_data_names(path):
        assert str(path / name) in {file.path for file in (*report.files, *report.skipped)}
    with pytest.warns(sawlog.DamageWarning, match="what is there is read from"):
        return read_live(path, on_damage="skip")


def believed(state: State) -> State:
    return {key: value for key, value in state.items() if key not in ONLY_THE_MANIFEST_SAYS}


def list_data_names(path: Path) -> list[str]:
    ignored_names = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "marker.format")
    return sorted(file.name for file in path.iterdir() if file.is_file() and not file.name.startswith(ignored_names))


def manifest(path: Path) -> Path:
    return Path(sawlog.open(path, format="leveldb_database").contents.metadata.manifest.file.path)


@ENGINES
def test_a_whole_database_is_clean(make: Callable[[Path], State], tmp_path: Path) -> None:
    state = make(tmp_path / "db")
    assert read_live(tmp_path / "db") == state
    report = sawlog.verify(tmp_path / "db")
    assert report.verdict == "clean"


@ENGINES
def test_what_names_the_manifest_is_missing_or_names_another(make: Callable[[Path], State], tmp_path: Path) -> None:
    state = make(tmp_path / "db")
    pointers = [path for path in (tmp_path / "db").iterdir() if path.name.startswith(("CURRENT", "marker.manifest"))]
    for pointer in pointers:
        pointer.unlink()
    assert skipped(tmp_path / "db") == state
    for text in (b"", b"MANIFEST-000099\n", b"<<<<<<< HEAD\nMANIFEST-000002\n=======\n", b"\0" * 16, b"MANIFEST-"):
        (tmp_path / "db" / "CURRENT").write_bytes(text)
        assert skipped(tmp_path / "db") == state, text
    (tmp_path / "db" / "CURRENT").write_text(manifest(tmp_path / "db").name)
    assert skipped(tmp_path / "db") == state, "without its line feed"


def test_a_marker_that_leads_nowhere_is_not_replaced_by_another_manifest(tmp_path: Path) -> None:
    state = pebble(tmp_path / "db")
    (tmp_path / "db" / "marker.manifest.999999.MANIFEST-999999").touch()
    assert skipped(tmp_path / "db") == state


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@ENGINES
def test_a_manifest_cut_anywhere(make: Callable[[Path], State], tmp_path: Path) -> None:
    state = make(tmp_path / "db")
    file = manifest(tmp_path / "db")
    data = file.read_bytes()
    step = max(1, len(data) // 15)
    for length in [*range(0, len(data), step), len(data) - 1]:
        file.write_bytes(data[:length])
        report = sawlog.verify(tmp_path / "db")
        live_state = read_live(tmp_path / "db", on_damage="skip")
        assert believed(live_state).items() >= believed(state).items() if report.incomplete else live_state == state, (
            length
        )
        assert report.incomplete or report.verdict == "clean"


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@ENGINES
def test_a_manifest_that_is_damaged_or_gone(make: Callable[[Path], State], tmp_path: Path) -> None:
    state = make(tmp_path / "db")
    file = manifest(tmp_path / "db")
    data = file.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 10)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        report = sawlog.verify(tmp_path / "db")
        assert report.incomplete, place
        assert all(file.account.total == file.size for file in report.files)
        live_state = read_live(tmp_path / "db", on_damage="skip")
        assert believed(live_state).items() >= believed(state).items(), place
    file.unlink()
    assert believed(skipped(tmp_path / "db")).items() >= believed(state).items()
    for path in (tmp_path / "db").glob("CURRENT"):
        path.unlink()
    for path in (tmp_path / "db").glob("marker.manifest*"):
        path.unlink()
    if list((tmp_path / "db").glob("*.log")):
        assert believed(skipped(tmp_path / "db")).items() >= believed(state).items()


@ENGINES
def test_without_any_file(make: Callable[[Path], State], tmp_path: Path) -> None:
    state = make(tmp_path / "db")
    for name in list_data_names(tmp_path / "db"):
        shutil.copytree(tmp_path / "db", tmp_path / "less")
        (tmp_path / "less" / name).unlink()
        report = sawlog.verify(tmp_path / "less", format="leveldb_database")
        assert report.incomplete or (report.verdict == "clean" and read_live(tmp_path / "less") == state), name
        shutil.rmtree(tmp_path / "less")


def test_a_torn_end_of_a_manifest_is_a_tail(tmp_path: Path) -> None:
    leveldb(tmp_path / "db")
    file = manifest(tmp_path / "db")
    file.write_bytes(file.read_bytes()[:-3])
    (file_report,) = (file_info for file_info in sawlog.verify(tmp_path / "db").files if file_info.path == str(file))
    assert (file_report.tail.status, file_report.account.tail) == ("torn", file_report.tail.length)
    assert file_report.account.header == file_report.size - file_report.tail.length > 0


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
def test_an_edit_that_is_torn_after_all_that_an_engine_needs(tmp_path: Path) -> None:
    """LevelDB takes it: the edit was never finished. What the tables say that it was about is there, all the same."""
    state = leveldb(tmp_path / "db")
    file = manifest(tmp_path / "db")
    data = file.read_bytes()
    file.write_bytes(data + write(b"\1\x1aleveldb.BytewiseComparator")[:-3])
    with pytest.raises(IncompleteError, match="cut in its last edit"):
        read_live(tmp_path / "db")
    assert read_live(tmp_path / "db", on_damage="skip") == state


def test_the_log_that_comes_next_is_missing(tmp_path: Path) -> None:
    state = leveldb(tmp_path / "db")
    (log,) = (tmp_path / "db").glob("*.log")
    log.unlink()
    with pytest.raises(IncompleteError, match=rf"{log.name}: missing_file.*writes after sequence number \d+ may be"):
        read_live(tmp_path / "db")
    assert skipped(tmp_path / "db").keys() < state.keys()
    assert log.name in str(sawlog.open(tmp_path / "db").info()["incomplete"])


def test_a_log_that_rocksdb_keeps_track_of_is_missing(tmp_path: Path) -> None:
    """`track_and_verify_wals_in_manifest`: the MANIFEST names log 4, of which 80 bytes were synced."""
    (tmp_path / "CURRENT").write_text("MANIFEST-000005\n")
    (tmp_path / "OPTIONS-000007").write_text("rocksdb_version=11.8.1\n")
    (tmp_path / "000006.log").touch()
    edit = b"\1" + length_prefixed(b"leveldb.BytewiseComparator") + b"\2\4\3\x09\4\5"
    tracked = encode_varint(Tag.WAL_ADDITION) + length_prefixed(b"\4\2\x50\1")
    (tmp_path / "MANIFEST-000005").write_bytes(write(edit, tracked))
    with pytest.raises(IncompleteError, match=r"000004\.log: missing_file: the MANIFEST names this log.*number 5 may"):
        read_live(tmp_path)
    (tmp_path / "000004.log").write_bytes(b"")
    with pytest.raises(IncompleteError, match=r"mismatched_file: expected at least 80 bytes.*found 0"):
        read_live(tmp_path)
    (tmp_path / "000004.log").unlink()
    deleted = encode_varint(Tag.WAL_DELETION) + length_prefixed(b"\5")
    (tmp_path / "MANIFEST-000005").write_bytes(write(edit, tracked, deleted))
    assert sawlog.verify(tmp_path).verdict == "clean"


def test_a_compaction_that_was_killed_has_left_nothing_that_others_do_not_have(tmp_path: Path) -> None:
    """Its entries may have no sequence numbers, as those of a table that is to be taken in, which says what it is."""
    options = Options(raw_mode=True)
    database = Rdict(str(tmp_path / "db"), options)
    for number in [*range(100), *range(100)]:
        database[b"%03d" % number] = b"value"
        if number == 99:
            database.flush()
    database.compact_range(None, None)
    database.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    assert set(sawlog.read(table)["sequence"].to_pylist()) == {0}
    later = tmp_path / "db" / "000999.sst"
    shutil.copy(table, later)
    assert sawlog.verify(tmp_path / "db").verdict == "clean"
    later.unlink()
    writer = SstFileWriter(options)
    writer.open(str(later))
    writer[b"new"] = b"value"
    writer.finish()
    assert sawlog.verify(tmp_path / "db").incomplete


def test_a_table_that_was_written_after_the_last_edit(tmp_path: Path) -> None:
    leveldb(tmp_path / "db")
    leveldb(tmp_path / "other")
    (table, *_) = (tmp_path / "other").glob("*.ldb")
    state = read_live(tmp_path / "db")
    later = tmp_path / "db" / "000999.ldb"
    shutil.copy(table, later)
    assert read_live(tmp_path / "db") == state
    (skipped_file,) = (file for file in sawlog.open(tmp_path / "db").skipped if file.path == str(later))
    assert (skipped_file.missed, "after the MANIFEST's last edit" in skipped_file.reason) == (False, True)
    entries = sawlog.read(table).to_pylist()
    for entry in entries:
        entry["sequence"] += 10_000
    later.unlink()
    sawlog.write(sawlog.read(table).from_pylist(entries), later, format="leveldb_table")
    (skipped_file,) = (file for file in sawlog.open(tmp_path / "db").skipped if file.path == str(later))
    assert skipped_file.missed
    with pytest.warns(sawlog.DamageWarning, match=r"000999\.ldb was not read"):
        assert read_live(tmp_path / "db") == state
    assert sawlog.verify(tmp_path / "db").incomplete
    assert sawlog.repair(tmp_path / "db", tmp_path / "repaired").incomplete
    later.write_bytes(b"")  # as an engine that was killed before it wrote
    assert sawlog.verify(tmp_path / "db").verdict == "clean"


def test_keys_in_an_order_that_nothing_says(tmp_path: Path) -> None:
    state = leveldb(tmp_path / "db", b"reversed")
    manifest(tmp_path / "db").unlink()
    assert skipped(tmp_path / "db").items() >= state.items()
    assert sawlog.open(tmp_path / "db").info()["comparator"] == "unknown"


def test_a_damaged_table_next_to_no_manifest_is_seen(tmp_path: Path) -> None:
    leveldb(tmp_path / "db")
    for name in ("CURRENT", manifest(tmp_path / "db").name):
        (tmp_path / "db" / name).unlink()
    (table, *_) = (tmp_path / "db").glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[20] ^= 1
    table.write_bytes(data)
    report = sawlog.verify(tmp_path / "db")
    assert (report.damaged, report.incomplete) == (True, True)
    assert [file.path for file in report.files if file.damaged] == [str(table)]


def test_logs_alone_and_tables_alone_are_what_they_are(tmp_path: Path) -> None:
    leveldb(tmp_path / "db")
    for kind, suffix in (("leveldb_log", "log"), ("leveldb_table", "ldb")):
        (tmp_path / kind).mkdir()
        for file in (tmp_path / "db").glob(f"*.{suffix}"):
            shutil.copy(file, tmp_path / kind)
        assert sawlog.open(tmp_path / kind).format.name == kind
        assert sawlog.verify(tmp_path / kind).verdict == "clean"
    for name in ("CURRENT", manifest(tmp_path / "db").name):
        (tmp_path / "db" / name).unlink()
    assert sawlog.open(tmp_path / "db").format.name == "leveldb_database"
    assert sawlog.open(tmp_path / "db", format="leveldb_log").schema.names == ["record"]
    assert sawlog.open(tmp_path / "db", view="writes").format.name == "leveldb_log"
    assert sawlog.open(str(tmp_path / "db" / "*.ldb")).format.name == "leveldb_table"


def clean(path: Path, state: State) -> None:
    report: Report = sawlog.verify(path)
    assert report.verdict == "clean"
    assert read_live(path) == state


def test_checkpoints_and_copies_without_a_log_are_whole(tmp_path: Path) -> None:
    """The number of a log is only a bound in RocksDB: checkpoints have none."""
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    for number in range(50):
        database[b"%03d" % number] = b"v"
    rocksdict.Checkpoint(database).create_checkpoint(str(tmp_path / "checkpoint"))
    state = dict(database.items())
    clean(tmp_path / "checkpoint", state)
    database.flush()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    database.close()
    clean(tmp_path / "copy", state)
    clean(tmp_path / "db", state)
    reader = Rdict(str(tmp_path / "db"), Options(raw_mode=True), access_type=rocksdict.AccessType.read_only())
    assert dict(reader.items()) == state
    reader.close()
    clean(tmp_path / "db", state)
    for log in (tmp_path / "db").glob("*.log"):
        log.unlink()
    with pytest.raises(IncompleteError, match="a log with this number or a higher one, and there is none"):
        read_live(tmp_path / "db")


def test_new_empty_and_repaired_databases_are_whole(tmp_path: Path) -> None:
    plyvel.DB(str(tmp_path / "new"), create_if_missing=True).close()
    clean(tmp_path / "new", {})
    state = leveldb(tmp_path / "db")
    plyvel.repair_db(str(tmp_path / "db"))
    shutil.rmtree(tmp_path / "db" / "lost")
    clean(tmp_path / "db", state)
    Rdict(str(tmp_path / "rocks"), Options(raw_mode=True)).close()
    clean(tmp_path / "rocks", {})
    state = rocksdb(tmp_path / "other")
    Rdict.repair(str(tmp_path / "other"), Options(raw_mode=True))
    shutil.rmtree(tmp_path / "other" / "lost", ignore_errors=True)
    clean(tmp_path / "other", state)


@pytest.mark.parametrize("make", [leveldb, rocksdb])
def test_a_table_of_another_state_under_the_same_name(make: Callable[[Path], State], tmp_path: Path) -> None:
    """The MANIFEST says which size it has; what is there is read, and never clean."""
    make(tmp_path / "db")
    tables = {table.file for table in sawlog.open(tmp_path / "db").contents.version.tables}
    small, large = (Path(pick(tables, key=lambda table_file: table_file.size).path) for pick in (min, max))
    size = small.stat().st_size
    shutil.copyfile(large, small)
    with pytest.raises(IncompleteError, match=rf"expected a table of {size:,} bytes, as the MANIFEST says"):
        read_live(tmp_path / "db")
    report = sawlog.verify(tmp_path / "db")
    assert report.incomplete
    (wrong,) = (file for file in report.files if file.path == str(small))
    assert (wrong.kinds["mismatched_file"], wrong.account.total) == (1, large.stat().st_size)
    listed = sawlog.read(tmp_path / "db", format="leveldb_database", view="damage")
    assert "mismatched_file" in listed["kind"].to_pylist()


@pytest.mark.parametrize("view", ["edits", "files"])
def test_views_of_manifests_say_that_the_named_one_is_not_there(view: str, tmp_path: Path) -> None:
    """They read the newest one instead, and took it for the live one in silence."""
    path = tmp_path / "db"
    database = plyvel.DB(str(path), create_if_missing=True)
    database.put(b"a", b"b")
    database.close()
    assert sawlog.verify(path, format="leveldb_log", view=view).verdict == "clean"
    (path / "CURRENT").write_text("MANIFEST-000099\n")
    report = sawlog.verify(path, format="leveldb_log", view=view)
    assert report.verdict == "incomplete"
    assert [Path(file.path).name for file in report.skipped if file.missed] == ["MANIFEST-000099"]
    with pytest.warns(sawlog.DamageWarning, match="MANIFEST-000099"):
        sawlog.read(path, format="leveldb_log", view=view)


def leveldb_table(path: Path, keys: bytes) -> None:
    """One table of LevelDB's with keys of a letter each, written in that order."""
    with plyvel.DB(str(path), create_if_missing=True, compression=None) as database:
        for key in keys:
            database.put(bytes([key]), b"value")
        database.compact_range()


def rocksdb_table(path: Path, keys: bytes) -> None:
    """The same of RocksDB's."""
    database = Rdict(str(path), Options(raw_mode=True))
    for key in keys:
        database[bytes([key])] = b"value"
    database.flush()
    database.close()


@pytest.mark.parametrize("make", [leveldb_table, rocksdb_table])
@pytest.mark.parametrize("keys", [b"abd", b"bcd", b"cba"])
def test_a_table_of_another_state_of_the_same_size(
    make: Callable[[Path, bytes], None], keys: bytes, tmp_path: Path
) -> None:
    """Its first or last key is another, or was written at another time."""
    make(tmp_path / "db", b"abc")
    make(tmp_path / "earlier", keys)
    assert sawlog.verify(tmp_path / "db").verdict == "clean"
    (table,) = (path for path in (tmp_path / "db").iterdir() if path.suffix in (".ldb", ".sst"))
    (other_table,) = (path for path in (tmp_path / "earlier").iterdir() if path.suffix in (".ldb", ".sst"))
    assert table.stat().st_size == other_table.stat().st_size
    table.write_bytes(other_table.read_bytes())
    report = sawlog.verify(tmp_path / "db")
    assert report.incomplete
    assert [file.path for file in report.files if file.kinds["mismatched_file"]] == [str(table)]
    # A key outside of the MANIFEST's bounds is read before the end of the table is.
    with pytest.raises((IncompleteError, DamageError), match=r"of another state of the database|misplaced_key"):
        read_live(tmp_path / "db", on_damage="fail")


def test_a_table_that_another_session_wrote(tmp_path: Path) -> None:
    """RocksDB's MANIFEST names the session, even if nothing but values differs."""
    for name, value in (("db", b"new"), ("earlier", b"old")):
        database = Rdict(str(tmp_path / name), Options(raw_mode=True))
        database[b"key"] = value
        database.flush()
        database.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    (other_table,) = (tmp_path / "earlier").glob("*.sst")
    table.write_bytes(other_table.read_bytes())
    with pytest.raises(IncompleteError, match="another session"):
        read_live(tmp_path / "db")
    with pytest.warns(sawlog.DamageWarning, match="another session"):
        assert read_live(tmp_path / "db", on_damage="skip") == {b"key": b"old"}


def say_otherwise(path: Path, table: int, subject: str) -> None:
    """Have the MANIFEST say something else of a table, as one of another state does."""
    place = manifest(path)
    files = sawlog.read(place, format="leveldb_log", view="files").to_pylist()
    (row,) = [row for row in files if row["file"] == table]

    def stored(end: str, key: bytes, sequence: int, kind: int) -> bytes:
        internal_key = key + (sequence << 8 | kind).to_bytes(8, "little")
        return encode_varint(len(internal_key)) + internal_key

    def edit(row: dict[str, Any], kinds: tuple[int, int]) -> bytes:
        keys = (
            stored(end, row[f"{end}_key"], row[f"{end}_key_sequence"], kind)
            for end, kind in zip(ENDS, kinds, strict=True)
        )
        numbers = encode_varint(row["smallest_sequence"]) + encode_varint(row["largest_sequence"])
        return (
            encode_varint(row["level"]) + encode_varint(table) + encode_varint(row["size"]) + b"".join(keys) + numbers
        )

    changed = (
        row
        | {
            "size": {"size": row["size"] + 1},
            "first key": {"smallest_key": row["smallest_key"][:-1] + b"\0"},
            "number of the last key": {"largest_key_sequence": row["largest_key_sequence"] ^ 1},
            "lowest number": {"smallest_sequence": row["smallest_sequence"] - 1},
            "highest number": {"largest_sequence": row["largest_sequence"] - 1},
            "highest numbers": {"largest_sequence": row["smallest_sequence"]},
        }[subject]
    )
    records = sawlog.read(place, format="leveldb_log", view="rows")["record"].to_pylist()
    possible = [(first, last) for first in range(32) for last in range(32)]
    pairs = [(edit(row, kinds), edit(changed, kinds)) for kinds in possible]
    (before, after), index = next(
        (pair, index) for pair in pairs for index, record in enumerate(records) if pair[0] in record
    )
    records[index] = records[index].replace(before, after)
    place.write_bytes(write(*records))


ENDS = ("smallest", "largest")
NAMED = {
    "pebble-1.0.0-formats-of-others": 5,
    "pebble-master-25-excise": 11,
    "rocksdb-11.8.1-timed-put": 9,
    "rocksdb-11.8.1-family-udt": 9,
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("subject", ["size", "first key", "number of the last key", "lowest number", "highest number"])
def test_a_table_of_which_the_manifest_says_something_else(name: str, subject: str, tmp_path: Path) -> None:
    """Pebble names no session; its bounds are all that there is, by key and by sequence number, as RocksDB's are."""
    shutil.copytree(PEBBLE.parent / name / "db", tmp_path / "db")
    before = sawlog.verify(tmp_path / "db")
    assert not any(file.kinds["mismatched_file"] for file in before.files)
    say_otherwise(tmp_path / "db", NAMED[name], subject)
    report = sawlog.verify(tmp_path / "db")
    if "udt" in name and "key" in subject:
        return  # timestamps are a part of keys, which are not compared then
    assert report.incomplete
    assert [Path(file.path).name for file in report.files if file.kinds["mismatched_file"]] == [f"{NAMED[name]:06}.sst"]
    with pytest.raises((IncompleteError, DamageError), match=r"mismatched_file|misplaced_key"):
        sawlog.read(tmp_path / "db")
    if "number" in subject and "key" not in subject:
        (damage,) = [damage for file in report.files for damage in file.damages if damage.kind == "mismatched_file"]
        assert "the MANIFEST says that its entries have sequence numbers from " in damage.detail


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut MANIFEST", "no MANIFEST"])
@pytest.mark.parametrize("part", [b"column.family", b"rocksdb.properties", b""], ids=["properties", "metaindex", "end"])
@pytest.mark.parametrize("index", [0, 1], ids=["default", "others"])
def test_every_family_reports_a_table_that_cannot_say_whose_it_is(index: int, part: bytes, is_cut: bool) -> None:
    """Only its properties say it where no MANIFEST does; the default family has the entries that can be read."""
    files = family_files()
    manifest = next(name for name in files if name.startswith("MANIFEST"))
    name = sorted(name for name in files if name.endswith(".sst"))[index]
    families = ["default", "others"]
    if is_cut:
        files = {**files, manifest: files[manifest][:-100] + bytes(100)}
    else:
        families = families[: 1 + (index == 0)]  # no other file names the second one
        files = {path: data for path, data in files.items() if path != manifest}
    table = bytearray(files[name])
    if part:
        table[table.rindex(part) + len(part) - 1] ^= 1
    files = {**files, name: bytes(table if part else table[:-100])}
    rows = {"default": [(0, 3), (3, 4)][index][part == b"column.family"], "others": (3, 0)[index]}
    for family in families:
        subject = sample("families", family_files(), "rows", options={"table": family}, advisory=["bad_blob_part"])
        outcome = check(subject, files, laws=(check_fragments,))
        assert name in {file for file, _, _, _ in outcome.damages}
        assert len(outcome.rows) == rows[family]


def test_families_without_a_manifest_read_each_table_as_often_as_one_does(tmp_path: Path) -> None:
    byte_counts = []
    for count in (3, 12):
        path = tmp_path / str(count)
        database = Rdict(str(path), Options(raw_mode=True))
        for index in range(count):
            family = database.create_column_family(f"family{index}", Options(raw_mode=True))
            family[b"key"] = bytes(1000)
            family.flush()
            family.close()
        database.close()
        next(path.glob("MANIFEST-*")).unlink()
        for log in path.glob("*.log"):
            log.unlink()
        dataset, work = count_work(sawlog.open(path, table="family0", on_damage="skip"))
        with pytest.warns(DamageWarning, match="missing_file"):
            assert len(dataset.to_table()) == 1
        byte_counts.append(work.bytes)
    assert byte_counts[1] < 5 * byte_counts[0]


def list_mismatches(findings: Iterable[Findings | FileReport]) -> list[tuple[str, int, str]]:
    damages = [damage for part in findings for damage in part.damages if damage.kind == "mismatched_file"]
    return sorted((Path(damage.path).name, damage.offset, damage.detail) for damage in damages)


@pytest.mark.parametrize("statement", ["highest numbers", "lowest number"])
def test_ranges_of_one_table_say_once_what_the_manifest_says_otherwise(statement: str, tmp_path: Path) -> None:
    """Numbers beyond its bounds are in some blocks; that its lowest number is missing, only all blocks show."""
    options = Options(raw_mode=True)
    blocks = BlockBasedOptions()
    blocks.set_block_size(1)
    options.set_block_based_table_factory(blocks)
    database = Rdict(str(tmp_path / "db"), options)
    for number in range(300):
        database[b"%03d" % number] = b"v%d" % number
    database.flush()
    database.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    say_otherwise(tmp_path / "db", int(table.stem), statement)
    dataset = sawlog.open(tmp_path / "db", on_damage="skip")

    def read(fragments: Iterable[Fragment]) -> list[tuple[str, int, str]]:
        with ThreadPoolExecutor(2) as pool:
            return list_mismatches(pool.map(lambda part: part.scan_into(Findings("skip", drained=True)), fragments))

    expected = read(dataset.fragments(None))
    assert {name for name, _, _ in expected} == {table.name}
    assert list_mismatches(dataset.verify(every=True)) == expected
    fragments = dataset.fragments(1)
    assert len(fragments) > 3
    if statement == "highest numbers":
        assert len(expected) == 299
        assert read(fragments) == expected
    else:
        assert len(expected) == 1
        assert read(fragments) == []
