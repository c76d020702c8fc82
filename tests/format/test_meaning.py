"""Rows whose framing is sound and whose meaning is not known: verdicts and copies say so."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import sawlog
from tests.cli.conftest import Run, run
from tests.support import write_records

__all__ = ["run"]

plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_database"
VIEWS = {
    "bedrock": {b"~local_player": b"\x0a\0\0\0", b"portals": b"\xff\xff garbage", b"nonsense_key": b"zz"},
    "bitcoin_chainstate": {
        b"\x0e\0obfuscate_key": b"\x08" + bytes(8),
        b"C" + b"\2" * 32 + b"\0": b"\xff" * 12,
        b"Zunknown": b"q",
    },
    "local_storage": {b"VERSION": b"1", b"_https://a.b\0\x01bad": b"\x07zz", b"odd": b"odd"},
    "chrome_storage": {b"k": b'{"a":1}', b"bad": b"{{{", b"worse": b"\xff"},
    "session_storage": {b"version": b"1", b"namespace-": b"1", b"odd": b"odd"},
    "indexed_db": {b"\0\0\0\0\0": b"\x05", b"odd": b"odd", b"\xff\xff": b"x"},
}


@pytest.mark.parametrize("view", VIEWS)
def test_verify_with_a_view_counts_rows_that_it_cannot_decode(tmp_path: Path, run: Run, view: str) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as database:
        for key, value in VIEWS[view].items():
            database.put(key, value)
    count = sum(row["reason"] is not None for row in sawlog.read(tmp_path / "db", view=view).to_pylist())
    assert count >= 1
    for path in (tmp_path / "db", tmp_path / "copy"):
        if path.name == "copy":
            repaired = run("repair", tmp_path / "db", path)
            assert (repaired.code, "everything kept; written" in repaired.out) == (0, True)
        report = sawlog.verify(path, view=view)
        assert sum(file.notes["undecoded_rows"] for file in report.files) == count
        assert report.verdict is sawlog.Verdict.CLEAN
        assert f"notes: undecoded rows {count}\n" in run("verify", path, "--view", view).out
        assert "undecoded" not in run("verify", path).out
    assert run("convert", tmp_path / "db", tmp_path / "rows.jsonl", "--view", view).code == 0
    converted = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sum(row["reason"] is not None for row in converted) == count
    assert len(converted) == len(VIEWS[view])


def write_batch(key: bytes, value: bytes) -> bytes:
    return struct.pack("<QI", 1, 1) + b"\x01" + bytes([len(key)]) + key + bytes([len(value)]) + value


def manifest_records() -> list[bytes]:
    manifest = next(GOLDEN.glob("*/db/MANIFEST-*"))
    values: list[bytes] = sawlog.read(manifest, format="leveldb_log", view="rows")["record"].to_pylist()
    return values


@pytest.mark.parametrize(
    ("name", "view", "records", "problem"),
    [
        ("000007.log", "writes", [write_batch(b"a", b"b"), write_batch(b"c", b"d")[:-1], b"xx"], "2 records are"),
        ("MANIFEST-000005", "edits", [*manifest_records(), b"\xff\xff\xff"], "1 record is"),
    ],
)
def test_repair_says_that_the_meaning_is_damaged(
    tmp_path: Path, run: Run, name: str, view: str, records: list[bytes], problem: str
) -> None:
    """The framing is sound, and kept; the view finds the same damage in the copy."""
    path, copy = tmp_path / name, tmp_path / "new" / name
    write_records(path, records)
    done = run("repair", path, copy)
    assert done.code == 0
    assert f"meaning   {path}: {problem} no valid " in done.out
    assert "everything kept, what is damaged in meaning included; written to" in done.out
    assert "not read" not in done.out
    document = json.loads(run("repair", path, copy, "--json").out)
    assert [remark["path"] for remark in document["remarks"]] == [str(path)]
    assert sawlog.verify(copy, format="leveldb_log", view=view).damaged
    write_records(path, records[:1])
    assert "everything kept; written to" in run("repair", path, copy).out


def test_records_that_never_were_batches_are_no_damage(tmp_path: Path, run: Run) -> None:
    """A log holds whatever its writer puts into it."""
    path = tmp_path / "000007.log"
    write_records(path, [b"hello", b"world"])
    assert "everything kept; written to" in run("repair", path, tmp_path / "copy.log").out


def test_unsupported_records_are_in_the_copy(tmp_path: Path, run: Run) -> None:
    """One of 100 records is of a schema that nobody has defined: FiloDB's copies have it unchanged."""
    data = bytearray((GOLDEN.parent / "filodb" / "gauge_100.container").read_bytes())
    data[20:22] = b"\x67\x12"
    source, copy = tmp_path / "a.container", tmp_path / "b.container"
    source.write_bytes(data)
    done = run("repair", source, copy)
    assert copy.read_bytes() == source.read_bytes()
    assert done.code == 0
    assert "unchanged 144 bytes that this version does not support" in done.out
    assert "everything kept, what this version does not support included; written to" in done.out
    document = json.loads(run("repair", source, copy, "--json").out)
    assert (document["outcome"], document["unsupported"]) == (done.out.splitlines()[-1].split(";")[0], True)
