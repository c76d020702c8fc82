"""Databases keep the laws."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from sawlog.testing import Exemption, Laws, Sample, Span, check
from tests.bytes import mask_crc

from .mutators import MUTATORS, VALUE_FOOTER
from .support import (
    blob_files,
    family_files,
    make_small_database,
    make_unordered_database,
    rocksdb_files,
    sample,
)

SECOND_BLOCK = 24
"""Where the index of a blob file of Pebble's has the beginning of its second block, in two bytes."""
PEBBLE = Path(__file__).parents[1] / "golden" / "leveldb_table" / "pebble"


@cache
def pebble_files(version: str = "24-plain") -> dict[str, bytes]:
    """A database that Pebble has written, with parts of tables, and values in blob files."""
    names = ("MANIFEST", "marker", ".log", ".sst", ".blob")
    contents = {path.name: path.read_bytes() for path in (PEBBLE / version).iterdir()}
    return {name: data for name, data in contents.items() if any(part in name for part in names)}


LAST_LOG = (
    "A log that is empty, or ends between two records, looks like one that was written no further: nothing says how"
    " long the last log was."
)
OTHER_STATE = (
    "A log with the same number from another state of the database looks like the right one, and so does a blob file in"
    " which values of the same sizes are in the same places: the MANIFEST says nothing of them."
)
SHARED_TABLE = (
    "Of a table that several tasks or threads share, each sees sequence numbers that the MANIFEST rules out, once for"
    " each block: that its lowest or highest number is in no entry, only a read of the whole table sees, as `verify`"
    " does."
)

OTHER_ORDERS = "bytes, reverse, CockroachDB's, IndexedDB's; others are refused"

UNSEEN = (
    r"expected .*Place\(file='([^']*)', offset=0, length=0, kind='mismatched_file'\)"
    r"(?!.*found.*file='\1', offset=0, length=0, kind='mismatched_file')"
)
"""What parts of a table do not say of a file, and all of it does."""

ADVISORY = ["bad_blob_part", "*.blob: unsupported"]
"""Of a blob file `verify` says what it is as a whole, too; a read says so of each value that is asked for."""


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/leveldb-database.md"
    mutators = MUTATORS
    exemptions = (
        Exemption(
            "removal",
            LAST_LOG,
            ["live", "all", "local_storage", "history", "another order", "pebble"],
            told=r"^(nothing|the first \d+ bytes) of \d+\.log: \d+ of \d+ rows are missing",
        ),
        Exemption(
            "removal",
            OTHER_STATE,
            ["live", "all", "local_storage", "blobs"],
            told=r"^that of earlier state 0 instead of \d+\.(log|blob): \d+ of \d+ rows are missing",
        ),
        Exemption("any_fragments", SHARED_TABLE, told=UNSEEN, fuzzed=True),
        Exemption("repair", OTHER_ORDERS, ["another order"], told="which only the database knows"),
        Exemption("repair", OTHER_ORDERS, told="which only the database knows", fuzzed=True),
    )
    test_follow = test_follow_damaged = None  # the logs of a database are followed as logs
    test_every_header_bit = None  # headers are those of its parts
    test_write_and_read_back = None  # it is read only

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        (log,) = (name for name in make_small_database() if name.endswith(".log"))
        body = Span(0, 0, log)
        local = make_small_database(b"_http://a\0\1", b"\1")
        of_default = [min(name for name in family_files() if name.endswith(kind)) for kind in (".sst", ".blob")]
        of_default.append(of_default[0].removesuffix(".sst"))  # so it is called where it is missing
        families = {"advisory": ADVISORY, "effort": 0.2, "earlier": [family_files(30)], "beside": of_default}
        pebble = {"advisory": ADVISORY, "effort": 0.1, "earlier": [pebble_files("22-plain")]}
        of_rocksdb = [
            sample(f"rocksdb {view}", rocksdb_files(), view, effort=0.5, earlier=[rocksdb_files(b"longer")])
            for view in ("live", "all")
        ]
        return [
            sample("live", make_small_database(), "live", body=body, earlier=[make_small_database(b"", b"longer")]),
            sample(
                "all",
                make_small_database(),
                "all",
                body=body,
                effort=0.5,
                earlier=[make_small_database(b"", b"longer")],
            ),
            *of_rocksdb,
            sample("blobs", blob_files(), "rows", advisory=ADVISORY, effort=0.5, earlier=[blob_files(30)]),
            sample("families", family_files(), "rows", options={"table": "others"}, **families),
            sample(
                "local_storage",
                local,
                "local_storage",
                effort=0.5,
                earlier=[make_small_database(b"_http://b\0\1", b"\1")],
            ),
            sample(
                "history",
                make_small_database(b"map-0-", b"\0"),
                "session_storage",
                options={"history": True},
                effort=0.2,
            ),
            sample("another order", make_unordered_database(), "local_storage", effort=0.2),
            sample("pebble", pebble_files(), "rows", **pebble),
        ]


def test_a_value_that_no_entry_leads_to_any_more_is_checked_too() -> None:
    """It costs no row; the bytes are reported, and the record after them is found."""
    intact = sample("blobs", blob_files(), "rows", advisory=ADVISORY)
    name = min(file for file in blob_files() if file.endswith(".blob"))
    data = bytearray(blob_files()[name])
    offset = data.index(b"eee")
    data[offset + 4] ^= 1
    outcome = check(intact, {**blob_files(), name: bytes(data)})
    assert (outcome.rows, outcome.damages) == (
        check(intact, blob_files()).rows,
        [(name, offset - 32, 41, "bad_blob_part")],
    )


@pytest.mark.parametrize("part", ["index", "first block"])
def test_a_block_without_content_in_a_blob_file_of_pebble_is_damage(part: str) -> None:
    """Its checksums are right: the footer says that the index is empty, or the index that a block is."""
    intact = sample("pebble", pebble_files(), "rows", advisory=ADVISORY)
    name = max(file for file in intact.content if file.endswith(".blob"))
    data = intact.content[name]
    footer = bytearray(data[-VALUE_FOOTER:])
    start, size = struct.unpack_from("<QQ", footer, 4)
    index = bytearray(data[start : start + size + 1])
    if part == "index":
        struct.pack_into("<Q", footer, 12, 0)
        footer[:4] = mask_crc(bytes(footer[4:])).to_bytes(4, "little")
    else:
        index[SECOND_BLOCK : SECOND_BLOCK + 2] = bytes(2)
    index += mask_crc(bytes(index)).to_bytes(4, "little")
    outcome = check(intact, {**intact.content, name: data[:start] + bytes(index) + bytes(footer)}, laws=())
    assert len(outcome.rows) < len(check(intact, laws=()).rows)
    assert {damage.file for damage in outcome.damages} == {name}


def test_a_blob_file_that_the_manifest_does_not_name_is_left_out() -> None:
    intact = sample("blobs", blob_files(), "rows", advisory=ADVISORY)
    name = min(file for file in blob_files() if file.endswith(".blob"))
    outcome = check(intact, {**blob_files(), "999999.blob": blob_files()[name][:-1]})
    assert (len(outcome.rows), outcome.damages) == (5, [])
