"""The shared walker and its driver, by a small format that uses all they offer, against a model that uses none."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sawlog.errors import DiskError
from sawlog.format.damage import DamageError, Findings, TailStatus

from . import toy
from .toy import ToyWalk, box, model, note

DATA = box(b"one", b"", b"three") + box() + box(b"x" * 40, b"two words") + box(b"end")


class Bytes:
    """A file in memory, whose windows are worthless once the next one is asked for."""

    def __init__(self, data: bytes, *, broken_from: int | None = None) -> None:
        self.size = len(data)
        self._data = data
        self._broken_from = broken_from
        self._last = np.zeros(0, np.uint8)
        self.looked_at = 0

    def read_window(self, offset: int, length: int) -> Any:
        self._last.fill(0xEE)
        if self._broken_from is not None and offset + length > self._broken_from:
            raise DiskError("broken disk")
        self._last = np.frombuffer(self._data[offset : offset + length], np.uint8).copy()
        self.looked_at += len(self._last)
        return self._last

    def close(self) -> None:
        pass


def walk(source: Bytes, on_damage: str = "skip", **arguments: int) -> tuple[list[tuple[int, bytes]], Findings]:
    findings = Findings(on_damage)  # type: ignore[arg-type]
    rows: list[tuple[int, bytes]] = []
    try:
        for batch in ToyWalk(source, findings, **arguments).read_batches():  # type: ignore[arg-type]
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except DamageError as error:
        findings.damages.append(error.damage)
    return rows, findings


def assert_agreement(data: bytes, **arguments: int) -> None:
    """Rows, damage, tail, account and `fail` are the model's."""
    rows, damages, (status, place) = model(data)
    source = Bytes(data)
    texts, findings = walk(source, **arguments)
    assert texts == rows
    assert findings.rows == len(rows)
    assert [(damage.offset, damage.length, damage.kind) for damage in findings.damages] == damages
    assert findings.tail is not None
    tail = findings.tail
    assert (tail.status, tail.offset) == (TailStatus(status), place)
    assert findings.account.total == len(data)
    before, failed = walk(Bytes(data), "fail", **arguments)
    if damages:
        (first, *_) = sorted(damages)
        assert (failed.damages[0].offset, failed.damages[0].kind) == (first[0], first[2])
        assert before == [row for row in rows if row[0] < first[0]]
    else:
        assert before == rows


@pytest.fixture(params=[16, 50, 8 << 20], autouse=True)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Windows of any size give the same."""
    monkeypatch.setattr("sawlog.chain.walk.WINDOW_BYTES", request.param)
    monkeypatch.setattr("sawlog.chain.walk.REST_BYTES", 8)
    return int(request.param)


@pytest.mark.spread(3)
@pytest.mark.parametrize("rows", [1, 100])
def test_every_cut_and_every_changed_byte(rows: int) -> None:
    for offset in range(len(DATA)):
        assert_agreement(DATA[:offset], rows=rows)
        assert_agreement(DATA[:offset] + bytes([DATA[offset] ^ 0x41]) + DATA[offset + 1 :], rows=rows)


@pytest.mark.spread(3)
def test_changed_chains_are_read_alike_by_loop_and_model() -> None:
    rng = random.Random(3)
    for _ in range(100):
        data = bytearray(b"".join(box(*(b"-" + rng.randbytes(rng.randrange(30)) for _ in range(4))) for _ in range(4)))
        for _ in range(rng.randrange(6)):
            offset = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[offset] = rng.randrange(256)
                case 1:
                    data[offset:offset] = rng.randbytes(rng.randrange(9))
                case 2:
                    del data[offset : offset + rng.randrange(30)]
                case 3:
                    data[offset:offset] = note(b"stray")
        assert_agreement(bytes(data))


def test_a_long_search_looks_at_each_byte_about_once(window: int) -> None:
    data = box(b"first") + bytes(20_000) + box(b"last")
    source = Bytes(data)
    texts, findings = walk(source)
    assert [text for _, text in texts] == [b"first", b"last"]
    assert findings.kinds == {"bad_box": 1}
    assert source.looked_at < 2 * len(data)


def test_damage_beyond_the_listing_limit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.format.damage.MAX_LISTED", 5)
    bad = note(b"abc")[:2] + b"\x00" + note(b"abc")[3:]
    data = toy.TOTAL.encode(8 + 40 * len(bad)) + b"\xb0\0\0\0" + bad * 40
    _, findings = walk(Bytes(data))
    assert len(findings.damages) == 5
    assert findings.kinds == {"bad_sum": 40}
    assert findings.account.total == len(data)


def test_rows_that_cannot_be_delivered_take_their_place_among_the_damage() -> None:
    broken = bytearray(box(b"good", b"!bad", b"fine", b"!worse", b"last"))
    broken[8 + 2 * 8 + 3] ^= 1
    texts, findings = walk(Bytes(bytes(broken)), rows=100)
    assert [text for _, text in texts] == [b"good", b"last"]
    assert [damage.kind for damage in findings.damages] == ["bad_text", "bad_sum", "bad_text"]
    assert [damage.offset for damage in findings.damages] == [16, 24, 32]
    assert findings.account.total == len(broken)
    texts, findings = walk(Bytes(bytes(broken)), "fail", rows=100)
    assert [text for _, text in texts] == [b"good"]
    assert [damage.offset for damage in findings.damages] == [16]


def test_what_cannot_be_read_is_damage_up_to_the_end(window: int) -> None:
    data = box(b"a" * 30, b"b" * 30, b"c" * 30)
    texts, findings = walk(Bytes(data, broken_from=60))
    expected = [text for offset, text in model(data)[0] if window < len(data) and offset + 33 <= 60]
    assert [text for _, text in texts] == expected[: len(texts)]
    assert findings.kinds == {"read_error": 1}
    assert findings.account.total == len(data)
    assert findings.tail is None


def test_a_walk_ends_where_its_range_ends() -> None:
    first = box(b"one") + box(b"two")
    texts, findings = walk(Bytes(first + box(b"three")), end=len(first))
    assert [text for _, text in texts] == [b"one", b"two"]
    assert findings.tail is None
    assert findings.account.total == len(first)
