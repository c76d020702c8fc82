"""`repair` of whole databases: an engine opens what is written, with every row that `skip` delivers."""

from __future__ import annotations

import random
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.cli import main
from sawlog.errors import OptionError, SawlogError
from sawlog.format.damage import DamageWarning, Verdict
from sawlog.leveldb.applications.idb_order import order_of
from sawlog.leveldb.applications.view import UnknownBytesError
from tests.support import write_records

from .support import family_files

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

INDEXED_DB = Path(__file__).parents[1] / "golden/leveldb_database/chromium-156/IndexedDB"
Row = tuple[bytes, bytes]


def read_pairs(path: Path, **options: str | bool) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        table = sawlog.read(path, on_damage="skip", **options)
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def leveldb(path: Path) -> None:
    dice = random.Random(1)
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=100_000) as db:
        for _ in range(6000):
            db.put(b"k%06d" % dice.randrange(4000), dice.randbytes(40))
        for number in range(0, 4000, 7):
            db.delete(b"k%06d" % number)


def read_state(path: Path) -> list[Row]:
    with plyvel.DB(str(path)) as db:
        return list(db)


def untouched(path: Path) -> None:
    del path


def table_damaged(path: Path) -> None:
    table = min(path.glob("*.ldb"))
    data = bytearray(table.read_bytes())
    data[3000] ^= 255
    table.write_bytes(data)


def manifest_gone(path: Path) -> None:
    for file in path.glob("MANIFEST-*"):
        file.unlink()


def manifest_cut(path: Path) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-30])


def current_gone(path: Path) -> None:
    (path / "CURRENT").unlink()


def log_cut(path: Path) -> None:
    log = max(path.glob("*.log"))
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


CHANGES = (table_damaged, manifest_gone, manifest_cut, current_gone, log_cut)


@pytest.mark.parametrize("change", [untouched, *CHANGES])
def test_leveldb_opens_what_is_repaired(change: Callable[[Path], None], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    leveldb(source)
    change(source)
    report = sawlog.repair(source, target)
    assert read_state(target) == read_pairs(source)
    assert report.rows == len(read_state(target))
    if change is not log_cut:  # the cut may be at the end of a write
        assert (report.verdict is Verdict.CLEAN) == (change is untouched)


@pytest.mark.parametrize("change", CHANGES)
def test_repairdb_has_no_more_keys(change: Callable[[Path], None], tmp_path: Path) -> None:
    """As long as it verifies checksums, which LevelDB's does only when it is told to."""
    source, target = tmp_path / "source", tmp_path / "target"
    leveldb(source)
    change(source)
    sawlog.repair(source, target)
    plyvel.repair_db(str(source), paranoid_checks=True)
    assert {key for key, _ in read_state(source)} <= {key for key, _ in read_state(target)}


def test_a_repaired_database_is_repaired_into_itself(tmp_path: Path) -> None:
    leveldb(tmp_path / "source")
    sawlog.repair(tmp_path / "source", tmp_path / "once")
    sawlog.repair(tmp_path / "once", tmp_path / "twice")
    once, twice = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("once", "twice"))
    assert once == twice


def test_nothing_is_replaced(tmp_path: Path) -> None:
    leveldb(tmp_path / "source")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine").touch()
    with pytest.raises(OptionError, match="exists"):
        sawlog.repair(tmp_path / "source", tmp_path / "target")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["mine"]


def test_an_order_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    order = {"comparator": lambda a, b: (a > b) - (a < b), "comparator_name": b"own"}
    with plyvel.DB(str(source), create_if_missing=True, **order) as db:
        db.put(b"a", b"1")
    with pytest.raises(SawlogError, match="only the database knows"):
        sawlog.repair(source, tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_keys_in_reverse_are_repaired(tmp_path: Path) -> None:
    order = {"comparator": lambda a, b: (b > a) - (b < a), "comparator_name": b"rocksdb.ReverseBytewiseComparator"}
    source, target = tmp_path / "source", tmp_path / "target"
    with plyvel.DB(str(source), create_if_missing=True, **order) as db:
        for number in range(3000):
            db.put(b"k%06d" % (number * 7 % 3000), bytes(number % 90))
    sawlog.repair(source, target)
    with plyvel.DB(str(target), **order) as db:
        assert list(db) == read_pairs(source)  # in the order of the database
        assert db.get(b"k000123") == dict(read_pairs(source))[b"k000123"]


@pytest.mark.parametrize("are_values_apart", [False, True])
def test_rocksdb_opens_what_is_repaired(are_values_apart: bool, tmp_path: Path) -> None:
    def options() -> Options:
        rocksdb_options = Options(raw_mode=True)
        rocksdb_options.create_if_missing(True)
        rocksdb_options.set_enable_blob_files(are_values_apart)
        rocksdb_options.set_min_blob_size(30)
        return rocksdb_options

    source, target = tmp_path / "source", tmp_path / "target"
    dice = random.Random(2)
    db = Rdict(str(source), options=options())
    second_family = db.create_column_family("more", options())
    for number in range(2000):
        db[b"k%06d" % dice.randrange(1500)] = dice.randbytes(dice.choice([10, 50]))
        second_family[b"m%05d" % number] = dice.randbytes(20)
    db.flush()
    db.delete_range(b"k000100", b"k000200")
    second_family.close()
    db.close()
    assert sawlog.repair(source, target).rows == len(read_pairs(source)) + len(read_pairs(source, table="more"))
    db = Rdict(str(target), options=options(), column_families={"more": options()})
    second_family = db.get_column_family("more")
    assert list(db.items()) == read_pairs(source)
    assert list(second_family.items()) == read_pairs(source, table="more")
    second_family.close()
    db.close()


def test_keys_of_indexed_db() -> None:
    """Numbers, dates, texts, binaries and arrays, in this order; of the same kind by their values."""
    record = bytes.fromhex("00010101")
    keys = ["03" + "00" * 6 + "f0bf", "03" + "00" * 8, "03" + "00" * 6 + "f03f", "02" + "00" * 8]
    keys += ["0100", "01010061", "0102006100" + "61", "0600", "0400", "0401" + "0100"]
    places = [order_of(record + bytes.fromhex(key)) for key in keys]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    with pytest.raises(UnknownBytesError):
        order_of(b"\x00\x01\x01\x01\x09")


def test_indexed_db_keeps_its_order_and_name(tmp_path: Path) -> None:
    (source,) = sorted(INDEXED_DB.glob("*.leveldb"))[:1]
    sawlog.repair(source, tmp_path / "target")
    assert sawlog.read(tmp_path / "target").equals(sawlog.read(source))
    assert sawlog.open(tmp_path / "target").info()["comparator"] == "idb_cmp1"
    (table,) = (tmp_path / "target").glob("*.ldb")
    places = [order_of(key) for key in sawlog.read(table)["key"].to_pylist()]
    assert places == sorted(places)


def test_range_keys_are_not_lost_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(SawlogError, match="range keys are not written"):
        sawlog.repair(INDEXED_DB.parents[1] / "pebble-1.1.5-ranges-alone/db", tmp_path / "target")
    assert not list(tmp_path.iterdir())


def test_logs_in_another_directory_are_repaired_along(tmp_path: Path) -> None:
    source = INDEXED_DB.parents[1] / "rocksdb-11.8.1-wal-dir/db"
    assert sawlog.repair(source, tmp_path / "target").rows == len(read_pairs(source)) > 0
    assert read_pairs(tmp_path / "target") == read_pairs(source)


@pytest.mark.parametrize(
    ("name", "is_flushed"),
    [("http_a_80.indexeddb.leveldb", True), ("a", False), ("b", True)],
)
def test_indexed_db_without_a_manifest(name: str, is_flushed: bool, tmp_path: Path) -> None:
    """The name of its directory says the order of its keys, or else they do themselves."""
    (intact,) = INDEXED_DB.glob("*.leveldb")
    source = tmp_path / name
    if is_flushed:
        sawlog.repair(intact, source)
    else:
        shutil.copytree(intact, source)
    manifest_gone(source)
    assert read_pairs(source) == read_pairs(intact)
    assert len(read_pairs(source)) == 269
    assert sawlog.open(source, on_damage="skip").info()["comparator"] == "idb_cmp1"
    sawlog.repair(source, tmp_path / "target")
    assert read_pairs(tmp_path / "target") == read_pairs(intact)
    assert sawlog.open(tmp_path / "target").info()["comparator"] == "idb_cmp1"
    (table,) = (tmp_path / "target").glob("*.ldb")
    places = [order_of(key) for key in sawlog.read(table)["key"].to_pylist()]
    assert places == sorted(places)


@pytest.mark.parametrize("keys", [[bytes(7) + bytes([index]) for index in range(9)], [b"\0\0\0\0\0", b"k"], []])
def test_other_keys_are_not_taken_for_those_of_indexed_db(keys: list[bytes], tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as db:
        for key in keys:
            db.put(key, b"")
    manifest_gone(tmp_path / "db")
    assert sawlog.open(tmp_path / "db", on_damage="skip").info()["comparator"] == "leveldb.BytewiseComparator"


GOLDEN = INDEXED_DB.parents[1]
WITHOUT = "of transactions that are prepared and not committed: a repaired database is without them"


@pytest.mark.parametrize(
    ("name", "count"),
    [("writeprepared-open", 10), ("writeunprepared-open", 3), ("writeprepared-log", 0)],
)
def test_what_is_prepared_is_said_to_be_left_out(name: str, count: int, tmp_path: Path) -> None:
    """Nothing is wrong with the source; and yet not everything is in the copy."""
    source = GOLDEN / f"rocksdb-11.8.1-{name}/db"
    report = sawlog.repair(source, tmp_path / "target")
    assert [file.reason for file in report.skipped if file.missed] == ([f"{count} entries {WITHOUT}"] if count else [])
    assert report.verdict is (Verdict.INCOMPLETE if count else Verdict.CLEAN)
    assert sawlog.verify(source).verdict is Verdict.CLEAN
    assert sawlog.verify(tmp_path / "target").verdict is Verdict.CLEAN


def test_what_a_log_holds_until_the_commit_is_said_to_be_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    db = Rdict(str(source), options=Options(raw_mode=True))
    db[b"a"] = b"1"
    db.close()
    for path in source.glob("OPTIONS-*"):  # that say that there are no transactions
        path.unlink()
    records = [
        struct.pack("<QI", 100, 1) + b"\x09" + b"\x01\x01b\x012" + b"\x0a\x02t1",
        struct.pack("<QI", 101, 1) + b"\x09" + b"\x01\x01c\x013" + b"\x0a\x02t2",
        struct.pack("<QI", 102, 0) + b"\x0b\x02t2",
    ]
    log = max(source.glob("*.log"))
    write_records(log, records)
    values = sawlog.read(source, format="leveldb_database", view="all").to_pylist()
    row_values = [(row["key"], row["live"], row["sequence"], row["transaction"], row["file"]) for row in values]
    assert (b"b", False, -1, "prepared", log.name) in row_values
    assert (b"c", True, 102, None, log.name) in row_values
    report = sawlog.repair(source, tmp_path / "target")
    assert [(file.path, file.reason) for file in report.skipped if file.missed] == [(str(log), f"1 entry {WITHOUT}")]
    assert read_pairs(tmp_path / "target") == [(b"a", b"1"), (b"c", b"3")]


def every_byte_the_same(path: Path) -> None:
    for file in path.iterdir():
        if file.suffix in (".ldb", ".log") or file.name.startswith("MANIFEST"):
            file.write_bytes(b"\xff" * file.stat().st_size)


@pytest.mark.parametrize(
    ("change", "code", "outcome"),
    [
        (untouched, 0, "everything kept"),
        (table_damaged, 3, "something lost"),
        (manifest_gone, 3, "something lost"),
        (every_byte_the_same, 1, "nothing recovered"),
    ],
)
def test_exit_codes(
    change: Callable[[Path], None], code: int, outcome: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    leveldb(source)
    change(source)
    assert main(["repair", str(source), str(target)]) == code
    assert f"{outcome}; written to {target}" in capsys.readouterr().out
    assert read_state(target) == read_pairs(source)
    assert (len(read_state(target)) > 0) == (code != 1)


def test_exit_code_with_open_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = GOLDEN / "rocksdb-11.8.1-writeprepared-open/db"
    assert main(["repair", str(source), str(tmp_path / "target")]) == 3
    out = capsys.readouterr().out
    assert "something lost" in out
    assert f"10 entries {WITHOUT}" in out


def end_lost(path: Path) -> None:
    table = min(path.glob("*.ldb"))
    table.write_bytes(table.read_bytes()[:-8] + bytes(8))


def all_ends_lost(path: Path) -> None:
    for table in path.glob("*.ldb"):
        table.write_bytes(table.read_bytes()[:-20])


@pytest.mark.parametrize("change", [end_lost, all_ends_lost])
def test_a_table_without_its_end_does_not_say_whose_database_it_is(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    """What is written were RocksDB's files otherwise, which LevelDB refuses."""
    source, target = tmp_path / "source", tmp_path / "target"
    leveldb(source)
    change(source)
    sawlog.repair(source, target)
    assert read_state(target) == read_pairs(source)
    assert len(read_state(target)) > 1000


def test_blocks_with_other_checksums_are_read_without_them_and_without_a_manifest(tmp_path: Path) -> None:
    """Their keys are in the range of the table, although a verified read of it would end before them."""
    source = tmp_path / "source"
    with plyvel.DB(str(source), create_if_missing=True, compression=None) as db:
        for number in range(2000):
            db.put(b"k%06d" % number, b"v" * 50)
        db.compact_range()
    (table,) = source.glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[data.rindex(b"v" * 50)] ^= 1
    table.write_bytes(data)
    manifest_gone(source)
    assert len(read_pairs(source)) < 2000
    assert len(read_pairs(source, verify_checksums=False)) == 2000
    sawlog.repair(source, tmp_path / "target", verify_checksums=False)
    assert len(read_state(tmp_path / "target")) == 2000


@pytest.mark.parametrize(("suffix", "place"), [("", 0), (".sst", 20), (".sst", -60), (".blob", 57), (".blob", -60)])
@pytest.mark.parametrize("later", [False, True])
def test_every_byte_of_all_families_is_accounted_for_once(suffix: str, place: int, later: bool, tmp_path: Path) -> None:
    """Whichever family is damaged: the report has the rows of all, and of each file what `verify` finds in it."""
    source = tmp_path / "source"
    source.mkdir()
    for name, data in family_files().items():
        (source / name).write_bytes(data)
    if suffix:
        path = sorted(source.glob(f"*{suffix}"))[later]
        data = bytearray(path.read_bytes())
        data[place] ^= 255
        path.write_bytes(data)
    report = sawlog.repair(source, tmp_path / "target")
    each = [sawlog.verify(source, table=table) for table in ("default", "others")]
    assert report.rows == sum(part.rows for part in each)
    for part in each:
        assert {file.path: file.account for file in report.files} == {file.path: file.account for file in part.files}
        assert {file.path: file.kinds for file in report.files} == {file.path: file.kinds for file in part.files}
    assert {Path(file.path).name: file.account.total for file in report.files} == {
        path.name: path.stat().st_size for path in source.iterdir() if path.name not in ("IDENTITY", "CURRENT")
    }
