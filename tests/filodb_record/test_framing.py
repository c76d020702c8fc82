"""Where containers begin: by FiloDB's rule of rolling over, whatever single bits say."""

from __future__ import annotations

import itertools
import struct
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.filodb import layout
from sawlog.filodb.judge import read_header_length
from sawlog.filodb.walk import ContainersWalk
from sawlog.format.damage import DamageWarning, Findings, Verdict
from sawlog.storage import Storage
from tests.bytes import flip_bit

from .support import HEADER, containers


def look(path: Path, data: bytes, **options: Any) -> tuple[int, Any]:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        rows = sawlog.read(path, on_damage="skip", format="filodb_record", table="gauge", **options).num_rows
        (report,) = sawlog.verify(path, format="filodb_record", table="gauge", **options).files
    assert report.rows == rows
    assert report.account.total == len(data)
    return rows, report


@pytest.mark.nightly
def test_no_bit_of_a_header_hides_containers(tmp_path: Path) -> None:
    parts = containers(4)
    data = b"".join(parts)
    path = tmp_path / "a.container"
    whole_rows, report = look(path, data)
    assert not report.damaged
    assert not report.notes
    start = 0
    for part in parts:
        for bit in range(8 * start, 8 * (start + HEADER)):
            rows, report = look(path, flip_bit(data, bit))
            is_told = report.verdict is not Verdict.CLEAN or report.notes or report.tail.unfinished
            assert rows == whole_rows or is_told, (start, bit)
            assert report.account.unsupported in (0, len(part)), (start, bit)
            assert rows >= whole_rows / 2
        start += len(part)


@pytest.mark.parametrize("trimmed", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_a_changed_version_costs_its_container_and_is_told(tmp_path: Path, number: int, trimmed: bool) -> None:
    parts = containers(4)
    if trimmed:
        parts = [part[: 4 + int.from_bytes(part[:4], "little")] for part in parts]
    start, length = sum(map(len, parts[:number])), len(parts[number])
    path = tmp_path / "a.container"
    part_rows = [look(path, part)[0] for part in parts[:number] + parts[number + 1 :]]
    for bit in range(1, 8):
        rows, report = look(path, flip_bit(b"".join(parts), 8 * (start + 7) + bit))
        assert rows == sum(part_rows)
        assert report.verdict is Verdict.UNSUPPORTED
        assert [(damage.offset, damage.length) for damage in report.damages] == [(start, length)]
        assert f"a container of version {1 ^ 1 << bit};" in report.damages[0].detail
    with pytest.raises(sawlog.UnsupportedError, match=rf"unsupported at byte {start} \({length} bytes\)"):
        sawlog.read(path, format="filodb_record", table="gauge")
    with pytest.warns(DamageWarning, match=f"skipped {length} bytes in 1 ranges"):
        sawlog.read(path, format="filodb_record", table="gauge", on_damage="skip")


@pytest.mark.nightly
def test_a_flip_in_the_second_of_eight_large_containers_costs_no_other(tmp_path: Path) -> None:
    parts = containers(8, 256 << 10)
    data = b"".join(parts)
    whole_rows, _ = look(tmp_path / "a.container", data)
    rows, report = look(tmp_path / "a.container", flip_bit(data, 8 * (len(parts[0]) + 7)))
    assert report.damaged
    assert rows >= whole_rows * 6 // 7 - 2


@pytest.mark.parametrize("flags", [1, 0x00FF00, 0x800000])
@pytest.mark.parametrize("trimmed", [True, False])
def test_flags_in_version_words_cost_nothing(tmp_path: Path, flags: int, trimmed: bool) -> None:
    parts = [bytearray(part) for part in containers(50)]
    for part in parts:
        struct.pack_into("<I", part, 4, 1 << 24 | flags)
    if trimmed:
        parts = [part[: 4 + int.from_bytes(part[:4], "little")] for part in parts]
    path = tmp_path / "a.container"
    plain, _ = look(path, b"".join(containers(50)))
    rows, report = look(path, b"".join(parts))
    assert rows == plain
    assert not report.damaged
    assert sawlog.open(path).format.name == "filodb_record"


def test_a_header_among_others_with_flags_of_its_own_is_told(tmp_path: Path) -> None:
    parts = [bytearray(part) for part in containers(5)]
    struct.pack_into("<I", parts[2], 4, 1 << 24 | 64)
    rows, report = look(tmp_path / "a.container", b"".join(parts))
    assert report.damaged
    assert rows > 40


def looked_at(path: Path, data: bytes) -> int:
    """At how many places headers are searched for in a walk over the containers of some bytes."""
    path.write_bytes(data)
    (fragment,) = sawlog.open(path, format="filodb_record", table="gauge").fragments(None)
    with closing(Storage().open(str(path))) as source:
        walk = fragment.walk_containers(source)
        assert list(walk.iterate_containers()) is not None
    return int(walk.framing.looked)


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    "piece",
    [
        struct.pack("<IIqI", 16, 1 << 24, 1 << 60, 4),  # timestamps beyond belief
        struct.pack("<IIqI", 20, 1 << 24, 1, 4),  # too long by four
        struct.pack("<IIqI", 400, 1 << 24, 1, 4),  # reaching into others
        struct.pack("<IIqI", 500_000, 1 << 24, 1, 4),
        struct.pack("<IIqI", 12, 1 << 24, 1, 4),
        struct.pack("<IIqI", 16, 1 << 24 | 7, 1, 99),
        struct.pack("<IIqI", 16, 2 << 24, 1, 4),
    ],
)
def test_searching_takes_a_number_of_looks_that_follows_the_bytes(tmp_path: Path, piece: bytes) -> None:
    count = 5000
    for first in (b"", struct.pack("<IIqI", 16, 1 << 24, 1, 4)):
        data = first + piece * count
        assert looked_at(tmp_path / "a.container", data) <= 4 * len(data)


TOO_LONG = struct.pack("<IIqI", 20, 1 << 24, 1, 4)
TRAILED = struct.pack("<IIqII", 20, 1 << 24, 1, 4, 0) + b"x"
BROKEN = struct.pack("<IIqII", 20, 1 << 24, 1, 400, 0)
NESTED = struct.pack("<IIqII", 1 << 20, 1 << 24, 1, 400, 0) + bytes(1000)


@pytest.mark.parametrize("piece", [TOO_LONG, TRAILED, BROKEN, NESTED], ids=["too long", "trailed", "broken", "nested"])
def test_doubt_is_capped_and_the_same_for_all_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(layout, "DOUBTS", 100)
    data = piece * (48_000 // len(piece))
    path = tmp_path / "a.container"
    path.write_bytes(data)
    dataset = sawlog.open(path, format="filodb_record", table="gauge", on_damage="skip", view="frames")
    (whole_fragment,) = dataset.fragments(None)
    with closing(Storage().open(str(path))) as source:
        walk = ContainersWalk(whole_fragment, source, pa.schema([]), Findings("skip"))
        assert len(list(walk.iterate_containers())) >= 45
    limit = layout.DOUBTS + len(data) // layout.DOUBT_BYTES
    assert walk.framing.questions <= limit + len(data) // layout.WHOLE_UNIT
    if piece in (TOO_LONG, TRAILED):
        assert walk.framing.questions > layout.DOUBTS
    rows, kinds = [], []
    for fragments in ([whole_fragment], list(dataset.fragments(4000))):
        findings = [Findings("skip") for _ in fragments]
        batches = [
            list(fragment.decode(dataset.schema, its)) for fragment, its in zip(fragments, findings, strict=True)
        ]
        rows.append(pa.Table.from_batches(itertools.chain.from_iterable(batches), dataset.schema))
        kinds.append(sum((Counter(its.kinds) for its in findings), Counter()))
        assert sum(its.account.total for its in findings) == len(data)
    assert len(fragments) > 5
    assert rows[0] == rows[1]
    assert kinds[0] == kinds[1]
    assert bool(kinds[0]["doubtful"]) == (piece in (TOO_LONG, TRAILED))


def test_recognition_and_framing_have_one_judge() -> None:
    (part,) = containers(1)
    length = len(part) - 4
    assert read_header_length(part) == length
    assert read_header_length(part, len(part)) == length
    assert read_header_length(part, len(part) - 1) is None
    assert read_header_length(part[:15]) is None
    for offset, new in ((7, b"\2"), (0, b"\1"), (0, b"\0\0\0\0"), (15, b"\x80"), (16, b"\0\0\0\0"), (16, b"\xff" * 4)):
        assert read_header_length(part[:offset] + new + part[offset + len(new) :]) is None


def test_a_whole_container_alone_is_a_guess_and_told(tmp_path: Path) -> None:
    first = containers(2)[0]
    assert len(first) == 2048
    _, report = look(tmp_path / "a.container", first)
    assert sum(report.notes.values()) == 1
    _, report = look(tmp_path / "a.container", first, container_size=2048)
    assert not report.notes
