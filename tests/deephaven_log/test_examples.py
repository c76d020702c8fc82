"""The worked examples of the format, byte for byte."""

from __future__ import annotations

import hashlib
import zlib

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import DELETE_PARTITION, Logger
from sawlog.deephaven.log.header import parse_header
from sawlog.errors import DamageError
from tests.deephaven_log.reference import DELETE, entry

HEADER = bytes.fromhex(
    "db1aa1db 00000003 0000007a 00000047 00000001 00000003 00000003 53796d 0000000a 00000009 00000005 5554462d38"
    "00000002 5078 00000008 00000000 00000003 537263 0000000a 0000000e 0000000a 49534f2d383835392d31"
    "00000013 00000002 00000001 00000003 537263 00000004 4e595345 00000004 00000003 00000002 b4870ce2"
)
ROWS = bytes.fromhex("00000014 03 03 00000002 4142 3ff8000000000000 0f7701d7 0000000e 03 02 bfd0000000000000 0c8001a3")
SET = bytes.fromhex(
    "00000013010300000001413ff00000000000000c570189"
    "0000001300030000000142400000000000000005c9009a"
    "00000013020300000001434008000000000000062800a5"
)
DELETION = bytes.fromhex("00000011 04 00004e20 00000001 00002710 05c200bc")


@pytest.fixture
def make_log(tmp_path):
    def make(*parts: bytes) -> str:
        path = tmp_path / "example.bin"
        path.write_bytes(b"".join(parts))
        return str(path)

    return make


def test_the_example_file_is_the_published_one():
    data = HEADER + ROWS
    assert len(data) == 176
    assert hashlib.sha256(data).hexdigest() == "698e2baba4164b120189036e48c72323c1e914d050f937a133d960648b5c0d79"


def test_read_the_example(make_log):
    table = sawlog.read(make_log(HEADER, ROWS), provenance=True)
    assert table.drop_columns(["_file"]).to_pydict() == {
        "Sym": ["AB", None],
        "Px": [1.5, -0.25],
        "Src": ["NYSE", "NYSE"],
        "_offset": [0x86, 0x9E],
    }
    assert table.schema.metadata == {b"sawlog.application_version": b"2"}
    metadata = table.schema.field("Src").metadata
    assert metadata[b"sawlog.type"] == b"EnhancedString"
    assert metadata[b"sawlog.charset"] == b"ISO-8859-1"
    assert metadata[b"sawlog.constant"] == b"000000044e595345"


def test_write_the_example(make_log, tmp_path):
    table = sawlog.read(make_log(HEADER, ROWS))
    sawlog.write(table, tmp_path / "again.bin", format="deephaven_log")
    assert (tmp_path / "again.bin").read_bytes() == HEADER + ROWS


def test_log_the_example(tmp_path):
    schema = pa.schema(
        [
            pa.field("Sym", pa.string()),
            pa.field("Px", pa.float64()),
            pa.field("Src", pa.string(), metadata={"sawlog.charset": "ISO-8859-1"}),
        ]
    )
    path = tmp_path / "logged.bin"
    with Logger(path, schema, constants={"Src": "NYSE"}, application_version=2) as log:
        log.write(pa.table({"Sym": ["AB", None], "Px": [1.5, -0.25]}))
        log.transaction(pa.table({"Sym": ["A", "B", "C"], "Px": [1.0, 2.0, 3.0]}))
        log.command(DELETE_PARTITION)
    assert path.read_bytes() == HEADER + ROWS + SET + DELETION


def test_the_set_and_the_command(make_log):
    assert sawlog.read(make_log(HEADER, ROWS, SET)).column("Sym").to_pylist() == ["AB", None, "A", "B", "C"]
    assert sawlog.read(make_log(HEADER, ROWS, SET, DELETION)).num_rows == 0
    assert sawlog.read(make_log(HEADER, ROWS, SET, DELETION), deletes="ignore").num_rows == 5
    commands = sawlog.read(make_log(HEADER, ROWS, SET, DELETION), view="commands").to_pylist()
    assert commands == [
        {"offset": 245, "record_type": 20000, "record_version": 1, "command_id": 10000, "data": b""},
    ]
    assert entry(4, DELETE) == DELETION


def test_every_entry_is_listed(make_log):
    table = sawlog.read(make_log(HEADER, ROWS, SET, DELETION), view="frames")
    assert table.to_pydict() == {
        "offset": [134, 158, 176, 199, 222, 245],
        "size": [24, 18, 23, 23, 23, 21],
        "flags": [3, 3, 1, 0, 2, 4],
        "kind": ["single", "single", "first", "row", "last", "record"],
        "checksum": ["ok"] * 6,
    }


def test_every_byte_is_accounted_for(make_log):
    (report,) = sawlog.verify(make_log(HEADER, ROWS, SET, DELETION)).files
    assert (report.account.header, report.account.record, report.account.total) == (134, 132, 266)
    assert report.notes == {"deleted_rows": 5}
    assert report.tail.status == "clean"


@pytest.mark.parametrize(("covered", "start", "digest"), [("size", 8, 0x798A0A6E), ("records", 12, 0x40D009F4)])
def test_other_digests_of_the_header_are_understood(make_log, covered, start, digest):
    assert zlib.adler32(HEADER[start:-4]) == digest
    header = HEADER[:-4] + digest.to_bytes(4, "big")
    assert parse_header("", header, strict=True).digest == covered
    assert sawlog.read(make_log(header, ROWS)).num_rows == 2


def test_a_digest_after_the_size_is_damage(make_log):
    """The published size counts everything after it, the digest too."""
    entries = b""
    for body in (ROWS[4:20], ROWS[28:38]):
        head = len(body).to_bytes(4, "big") + body
        entries += head + zlib.adler32(head).to_bytes(4, "big")
    with pytest.raises(DamageError, match="checksum_mismatch"):
        sawlog.read(make_log(HEADER, entries))


def test_a_command_without_digest(make_log):
    bare = (13).to_bytes(4, "big") + b"\x04" + DELETE
    path = make_log(HEADER, ROWS, bare, SET)
    assert sawlog.read(path).num_rows == 3
    assert sawlog.verify(path).files[0].notes == {"deleted_rows": 2, "commands_without_digest": 1}


def test_the_metadata_of_an_enum_is_the_published_one():
    from sawlog.deephaven.log.header import LogColumn, encode_metadata
    from sawlog.deephaven.types import LogType

    column = LogColumn("Side", LogType.ENUM, "UTF-8", ("Buy", "Sell", "Short"))
    expected = "00000003 00000005 5554462d38 00000003 427579 00000004 53656c6c 00000005 53686f7274"
    assert encode_metadata(column) == bytes.fromhex(expected)
