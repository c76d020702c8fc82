"""RocksDB's recovery modes: the real RocksDB opens databases with damaged logs, and keeps what we say it does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import DBRecoveryMode, Options, Rdict

import sawlog
from sawlog.errors import DamageError, OptionError, UnsupportedError

from .fragments import batch, write

MODES: dict[str, Callable[[], DBRecoveryMode]] = {
    "absolute_consistency": DBRecoveryMode.absolute_consistency,
    "point_in_time_recovery": DBRecoveryMode.point_in_time,
    "tolerate_corrupted_tail_records": DBRecoveryMode.tolerate_corrupted_tail_records,
    "skip_any_corrupted_records": DBRecoveryMode.skip_any_corrupted_record,
}
REFUSED = "refused"
FIRST_LOG = 20
BATCHES = 12


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose logs are gone."""
    home = tmp_path_factory.mktemp("empty")
    db = Rdict(str(home / "db"), Options(raw_mode=True))
    shutil.copytree(home / "db", home / "copy")
    db.close()
    (home / "copy/LOCK").unlink()
    for log in (home / "copy").glob("*.log"):
        log.unlink()
    return home / "copy"


def numbers(log_index: int) -> range:
    return range(1 + log_index * BATCHES, 1 + (log_index + 1) * BATCHES)


def encode_log(log_index: int, *, recyclable: bool) -> bytes:
    batches = [batch(n, (b"k%d" % n, b"v" * (40_000 if n % 5 == 2 else 3000))) for n in numbers(log_index)]
    return write(*batches, log=FIRST_LOG + log_index if recyclable else None)


def damaged(log_index: int, *, recyclable: bool) -> Iterator[bytes]:
    data = encode_log(log_index, recyclable=recyclable)
    number = FIRST_LOG + log_index if recyclable else None
    following = numbers(log_index).stop
    yield data
    for place in (100, 70_001):
        yield data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
    for size in (5, 100, 32768, 50_000, 65_539, len(data) - 1):
        yield data[:size]
    yield data + bytes(5000)
    for place, length in ((65_536, 32_768), (47_000, 4096)):
        yield data[:place] + bytes(length) + data[place + length :]
    yield data + write(b"short", log=number, start=len(data))
    broken = batch(following, (b"broken", b"value"))
    for record in (broken + b"\x7funknown", broken[:-1], broken[:8] + b"\x02" + broken[9:]):
        yield data + write(record, batch(following + 1, (b"behind", b"")), log=number, start=len(data))
    if recyclable:
        old = write(*[b"old" * 1000] * 100, log=3)
        for end in (3041, 50_000, len(data)):
            yield data[:end] + old[end:]
            yield data[:end] + bytes(200) + old[end + 200 :]


def kept_by_rocksdb(path: Path, mode: str) -> dict[bytes, bytes] | str:
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_recovery_mode(MODES[mode]())
    try:
        db = Rdict(str(path), options)
    except Exception as error:  # noqa: BLE001 - rocksdict has no other
        return REFUSED if "Corruption" in str(error) else str(error)
    try:
        return dict(db.items())
    finally:
        db.close()


def read_kept_state(path: Path, mode: str, **arguments: object) -> dict[bytes, bytes] | str:
    try:
        table = sawlog.read(path, recovery=mode, columns=["key", "value"], **arguments)
    except (DamageError, UnsupportedError):
        return REFUSED
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("recyclable", [False, True], ids=["plain", "recyclable"])
@pytest.mark.parametrize("log_index", [0, 2], ids=["first", "last"])
@pytest.mark.nightly
def test_what_rocksdb_keeps(empty: Path, log_index: int, recyclable: bool, tmp_path: Path) -> None:
    answers = set()
    for number, data in enumerate(damaged(log_index, recyclable=recyclable)):
        for mode in MODES:
            home = tmp_path / f"{number}-{mode}"
            shutil.copytree(empty, home)
            for place in range(3):
                whole_log = encode_log(place, recyclable=recyclable)
                (home / f"{FIRST_LOG + place:06d}.log").write_bytes(data if place == log_index else whole_log)
            logs = read_kept_state(home, mode, format="leveldb_log", view="writes", latest=True)
            live = read_kept_state(home, mode, format="leveldb_database", view="live")
            expected = kept_by_rocksdb(home, mode)
            assert logs == expected, (number, mode)
            assert live == expected, (number, mode)
            answers.add((mode, len(expected)))
    assert len(answers) > 10


def test_without_latest_the_operations_follow_each_other(tmp_path: Path) -> None:
    for place in range(2):
        (tmp_path / f"{FIRST_LOG + place:06d}.log").write_bytes(
            encode_log(place, recyclable=False)[: -1 if place == 0 else None]
        )
    options = {"format": "leveldb_log", "view": "writes"}
    tolerated = sawlog.read(tmp_path, recovery="tolerate_corrupted_tail_records", columns=["sequence"], **options)
    assert tolerated["sequence"].to_pylist() == [*numbers(0)[:-1], *numbers(1)]
    assert sawlog.open(tmp_path, recovery="point_in_time_recovery", **options).count_rows() == BATCHES - 1
    with pytest.raises(DamageError, match="open_tail"):
        sawlog.read(tmp_path, recovery="absolute_consistency", **options)
    report = sawlog.verify(tmp_path, recovery="absolute_consistency", **options)
    assert (report.rows, report.damaged) == (2 * BATCHES - 1, False)


def test_point_in_time_goes_on_where_nothing_is_missing(tmp_path: Path) -> None:
    """RocksDB went on after the damage that it had given up, in a log of its own."""
    first = write(*[batch(n, (b"a%d" % n, b"")) for n in (1, 2, 3)])
    second = write(*[batch(n, (b"b%d" % n, b"")) for n in (3, 4)])
    (tmp_path / "000020.log").write_bytes(first[:-1])
    (tmp_path / "000021.log").write_bytes(second)
    table = sawlog.read(tmp_path, format="leveldb_log", view="writes", recovery="point_in_time_recovery")
    assert table["key"].to_pylist() == [b"a1", b"a2", b"b3", b"b4"]


@pytest.mark.parametrize("options", [{"view": "rows"}, {"salvage": "damaged"}, {"salvage": "stale"}], ids=str)
def test_what_rocksdb_cannot_be_asked(options: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "000020.log"
    path.write_bytes(encode_log(0, recyclable=False))
    with pytest.raises(OptionError, match="recovery"):
        sawlog.open(path, **{"view": "writes", "recovery": "absolute_consistency", **options})


def test_what_rocksdb_refuses_is_not_skipped_and_not_said_to_be(tmp_path: Path) -> None:
    data = encode_log(0, recyclable=False)
    (tmp_path / "000020.log").write_bytes(data[:100] + bytes([data[100] ^ 0x55]) + data[101:])
    options = {"format": "leveldb_log", "view": "writes", "recovery": "tolerate_corrupted_tail_records"}
    for policy in ("fail", "skip"):
        with pytest.raises(DamageError, match=r"in this recovery mode: take another, or leave it out$"):
            sawlog.read(tmp_path, on_damage=policy, **options)
