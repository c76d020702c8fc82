"""Containers hidden by another one: its length is wrong, and ends where a later one begins."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.filodb import RecordBuilder, Schemas
from sawlog.filodb.walk import ContainersWalk
from sawlog.format.damage import DamageWarning, Findings
from sawlog.storage import Storage
from sawlog.testing import Sample, check
from tests.bytes import flip_bit

from . import golden

HEADER = 16
GAUGE = Schemas.built_in()["gauge"]
SCHEMA = """
[schemas.result]
columns = ["timestamp:ts", "value:double", "s:string", "n:int"]
partitioned = false
"""
WORD = 1 << 24
FLAGGED = WORD | 0x40
Record = Callable[[int, int], bytes]


def gauge(number: int, size: int) -> bytes:
    """A record of the built-in schema, of so many bytes."""
    name = "h" * (size - 53)
    builder = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    builder.add_from_reader((number, float(number), name, {"some": "value"}), GAUGE)
    (data,) = builder.optimal_container_bytes()
    assert len(data) == HEADER + size
    return data[HEADER:]


def encode_plain_record(number: int, size: int) -> bytes:
    """A record without schema ID, of so many bytes."""
    text = b"s" * (size - 30)
    return struct.pack("<IqdIiH", size - 4, number, float(number), 28, number, len(text)) + text


def container(records: Sequence[bytes], size: int = 0, word: int = WORD) -> bytes:
    body = b"".join(records)
    return (struct.pack("<IIq", HEADER - 4 + len(body), word, golden.TIMESTAMP) + body).ljust(size, b"\0")


def equal(record: Record, size: int, word: int = WORD) -> list[bytes]:
    """Trimmed containers, each as long as the others."""
    return [container([record(n, size - HEADER)], word=word) for n in range(9)]


def full(record: Record) -> list[bytes]:
    """Containers that their records fill to the last byte, and one that they do not."""
    containers = [container([record(n, size) for size in [252] * 7 + [268]]) for n in range(7)]
    return [*containers, container([record(7, 252)] * 7, 2048), container([record(8, 272)])]


def loose(record: Record) -> list[bytes]:
    """Whole containers with unused rests."""
    return [container([record(n, 204 + n % 5 * 4)] * 9, 2048) for n in range(8)]


ID = {"table": "gauge"}
RAW = {"table": "gauge", "salvage": "unknown_schemas", "extras": "record"}
BARE = {"schema": SCHEMA}
FILES: dict[str, tuple[list[bytes], dict[str, Any]]] = {
    "trimmed": (equal(gauge, 128), ID),
    "trimmed-raw": (equal(gauge, 128), RAW),
    "trimmed-plain": (equal(encode_plain_record, 128), BARE),
    "trimmed-flagged": (equal(gauge, 256, FLAGGED), ID),
    "full": (full(gauge), ID),
    "full-plain": (full(encode_plain_record), BARE),
    "loose": (loose(gauge), ID),
    "loose-plain": (loose(encode_plain_record), BARE),
}


def look(path: Path, data: bytes, options: dict[str, Any]) -> tuple[set[int], Any]:
    """Where the rows are, and what is reported of the others."""
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        dataset = sawlog.open(path, on_damage="skip", format="filodb_record", provenance=True, **options)
        values = dataset.to_table()["_offset"].to_pylist()
        (report,) = sawlog.verify(path, format="filodb_record", **options).files
    assert report.rows == len(values) == len(set(values))
    assert report.account.total == len(data)
    return set(values), report


@pytest.mark.spread(16)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("first", range(8))
def test_a_bit_of_a_header_costs_the_rows_of_its_container_at_most(tmp_path: Path, name: str, first: int) -> None:
    parts, options = FILES[name]
    data = b"".join(parts)
    path = tmp_path / "a.container"
    all_offsets, report = look(path, data, options)
    assert not report.damaged
    start = 0
    for part in parts:
        other_offsets = {offset for offset in all_offsets if not start <= offset < start + len(part)}
        for bit in range(8 * start + first, 8 * (start + (HEADER if name in ("trimmed", "loose") else 4)), 8):
            rows, report = look(path, flip_bit(data, bit), options)
            assert other_offsets <= rows <= all_offsets, (start, bit)
            assert rows == all_offsets or report.kinds or report.notes or report.tail.unfinished, (start, bit)
        start += len(part)


def hiding(parts: Sequence[bytes], first: int, last: int) -> bytes:
    """The length of one container made to end where another one does."""
    changed = list(parts)
    length = sum(map(len, parts[first : last + 1])) - 4
    changed[first] = length.to_bytes(4, "little") + parts[first][4:]
    return b"".join(changed)


@pytest.mark.spread(4)
@pytest.mark.parametrize("view", ["rows", "frames", "partkeys"])
@pytest.mark.parametrize(("name", "first", "last"), [(name, 1, 4) for name in FILES] + [("trimmed", 0, 8)])
def test_every_verb_meets_hidden_containers(name: str, first: int, last: int, view: str) -> None:
    parts, options = FILES[name]
    if view == "partkeys" and "plain" in name:
        return
    options = options if view == "rows" else {key: options[key] for key in options if key != "extras"}
    repaired = "rows" if view == "rows" and name != "trimmed-raw" else "no"
    sample = Sample(
        "hidden", "filodb_record", b"".join(parts), "a.container", view=view, options=options, repaired=repaired
    )
    intact = check(sample)
    outcome = check(sample, hiding(parts, first, last))
    assert outcome.origins is not None
    assert intact.origins is not None
    assert [offset for _, offset in outcome.origins] == [offset for _, offset in intact.origins]
    hidden = sum(map(len, parts[: first + 1]))
    (damage,) = outcome.report.damages
    assert (damage.kind, damage.offset, damage.length) == ("hidden_container", hidden, HEADER)
    assert f"the one at byte {hidden - len(parts[first])}, whose" in damage.detail


def test_hidden_containers_that_are_broken_as_well_are_told() -> None:
    parts = list(FILES["trimmed"][0])
    sample = Sample("hidden", "filodb_record", b"".join(parts), "a.container", options=ID, repaired="rows")
    parts[3] = parts[3][:4] + b"\1" + parts[3][5:]
    outcome = check(sample, hiding(parts, 1, 5))
    assert outcome.table.num_rows == 6
    assert set(outcome.report.kinds) == {"hidden_container", "bad_header"}
    parts[3] = parts[3][:HEADER] + b"\xff" * 4 + parts[3][HEADER + 4 :]
    check(sample, hiding(parts, 1, 5))


@pytest.mark.parametrize("size", [0, 1024, 2048])
@pytest.mark.parametrize("record", [4, 8, 4096])
def test_looking_for_hidden_containers_takes_time_that_follows_the_bytes(
    tmp_path: Path, size: int, record: int
) -> None:
    """Each container claims all that follows, and its first record is broken."""
    count = 400
    container_size = 24 + size
    total = container_size * count
    heads = [struct.pack("<IIqII", total - n * container_size - 4, WORD, 1, record, 0xFFFF) for n in range(count)]
    data = b"".join(head.ljust(container_size, b"\0") for head in heads)
    path = tmp_path / "a.container"
    path.write_bytes(data)
    (fragment,) = sawlog.open(path, format="filodb_record", view="frames").fragments(None)
    with closing(Storage().open(str(path))) as source:
        pass_ = ContainersWalk(fragment, source, pa.schema([]), Findings("skip"), records=True)
        assert list(pass_.iterate_containers()) is not None
    assert pass_.framing.looked <= 4 * len(data)
