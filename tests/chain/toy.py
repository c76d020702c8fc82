"""A format that exists for tests: notes in boxes. All numbers little endian.

A box: total length (u32, of the whole box), 0xB0, and notes, each at a multiple of 4 bytes from the start of the box. A
note: length of the text (u16), sum of its bytes (u8), text. Where a box's header makes no sense, the next one is
searched; where a note's sum is wrong, the note is lost; where its length is, the rest of the box.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.chain import kernels as c
from sawlog.chain.walk import ChainWalk, Span
from sawlog.format.damage import DamageKind, Findings
from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.layout import Number, make_load
from sawlog.kernels.signature import Array, Bool, Int64, OutBytes, OutInt32s, OutInt64s, Record
from sawlog.storage import File

TOTAL = Number(0, 4)
MAGIC = Number(4, 1)
BOX_HEADER = MAGIC.end
BOX = 0xB0
LENGTH = Number(0, 2)
SUM = Number(2, 1)
NOTE_HEADER = SUM.end
ALIGNMENT = 4


class ToyDamageKind(DamageKind):
    """Kinds of damage."""

    BAD_BOX = 1, "a box of {0} bytes"
    BAD_NOTE = 2, "a note of {0} bytes; {1} are left in the box"
    BAD_SUM = 3, "expected the sum {0}, found {1}"
    READ_ERROR = 4
    BAD_TEXT = 5


def note(text: bytes) -> bytes:
    data = LENGTH.encode(len(text)) + SUM.encode(sum(text) & 255) + text
    return data + bytes(-len(data) % ALIGNMENT)


def box(*texts: bytes) -> bytes:
    # The first note is at a multiple of the alignment, too.
    inside = b"".join(map(note, texts))
    start = bytes(-BOX_HEADER % ALIGNMENT)
    return TOTAL.encode(BOX_HEADER + len(start) + len(inside)) + MAGIC.encode(BOX) + start + inside


def model(data: bytes) -> tuple[list[tuple[int, bytes]], list[tuple[int, int, str]], tuple[str, int]]:
    """What must be read: notes with their offsets, damage, and the tail. The definition above, once more, by struct."""
    rows, damages = [], []
    offset = 0
    damage_start = -1
    while offset < len(data):
        remaining = len(data) - offset
        sound = remaining < 5 or (data[offset + 4] == 0xB0 and struct.unpack_from("<I", data, offset)[0] >= 8)
        if not sound:
            damage_start = offset if damage_start < 0 else damage_start
            offset += 1
            continue
        if damage_start >= 0:
            damages.append((damage_start, offset - damage_start, "bad_box"))
            damage_start = -1
        if remaining < 5:
            return rows, damages, ("torn", offset)
        (total,) = struct.unpack_from("<I", data, offset)
        end, pos = offset + total, offset + 8
        while pos < end:
            if len(data) < end and len(data) - pos < 3:
                return rows, damages, ("torn", min(pos, len(data)))
            if end - pos < 3:
                pos = end
                continue
            length, checksum = struct.unpack_from("<HB", data, pos)
            step = min((3 + length + 3) // 4 * 4, end - pos)
            if 3 + length > end - pos:
                lost_bytes = min(end, len(data)) - pos
                damages.append((pos, lost_bytes, "bad_note"))
                pos = end
                continue
            if pos + 3 + length > len(data):
                return rows, damages, ("torn", pos)
            text = data[pos + 3 : pos + 3 + length]
            step = min(step, len(data) - pos)
            if sum(text) & 255 != checksum:
                damages.append((pos, step, "bad_sum"))
            else:
                rows.append((pos, text))
            pos += step
        offset = end
    if damage_start >= 0:
        damages.append((damage_start, offset - damage_start, "bad_box"))
    if offset > len(data):
        return rows, damages, ("torn", len(data))
    return rows, damages, ("clean", len(data))


STATE = c.make_state_type("stop", "used")  # stop: where the open box ends


class Out(NamedTuple):
    data: OutBytes
    ends: OutInt32s
    starts: OutInt64s
    events: Annotated[Any, Array(c.EVENT, writable=True)]


class Rules(NamedTuple):
    verify: Bool


_load_total, _load_magic = make_load(TOTAL), make_load(MAGIC)
_load_length, _load_sum = make_load(LENGTH), make_load(SUM)
_BOX_HEADER = np.uint64(-(-BOX_HEADER // ALIGNMENT) * ALIGNMENT)
_LOOK = np.uint64(BOX_HEADER)
_NOTE = np.uint64(NOTE_HEADER)
_ROUND = np.uint64(ALIGNMENT - 1)
_ZERO = np.uint64(0)
_BAD_BOX, _BAD_NOTE, _BAD_SUM = int(ToyDamageKind.BAD_BOX), int(ToyDamageKind.BAD_NOTE), int(ToyDamageKind.BAD_SUM)


@inlined
def _begins(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Whether a box begins there, or nothing can be said so near the end."""
    if window.size - window.base - pos < _LOOK:
        return True
    return _load_magic(window.data, pos) == BOX and _load_total(window.data, pos) >= _BOX_HEADER


@inlined
def _sum(data: Any, start: Any, length: Any) -> Any:
    total = 0
    for i in range(length):
        total += np.int64(data[start + np.uint64(i)])
    return total & 255


@always_inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    offset = window.base + pos
    sight = np.uint64(len(window.data)) - min(pos, np.uint64(len(window.data)))
    if offset >= np.uint64(state.stop):
        return _judge_box(window, pos, sight, state, rules)
    if offset >= window.size:
        return c.TORN, _ZERO
    remaining = np.uint64(state.stop) - offset
    have = window.size - offset
    if remaining > have and have < _NOTE:
        return c.TORN, have
    if remaining < _NOTE:
        return c.PADDING, remaining
    if sight < _NOTE:
        return c.SHORT, _NOTE
    length = _load_length(window.data, pos)
    if _NOTE + length > remaining:
        c.blame(state, _BAD_NOTE, length, remaining)
        return c.DAMAGED, min(remaining, have)
    if _NOTE + length > have:
        return c.TORN, have
    if sight < _NOTE + length:
        return c.SHORT, _NOTE + length
    step = min(_NOTE + length + _ROUND & ~_ROUND, remaining, have)
    checksum = _load_sum(window.data, pos)
    expected = _sum(window.data, pos + _NOTE, length)
    if rules.verify and expected != checksum:
        c.blame(state, _BAD_SUM, expected, checksum)
        return c.DAMAGED, step
    return c.GOOD, step


@always_inlined
def _judge_box(window: Any, pos: Any, sight: Any, state: Any, rules: Any) -> Any:
    offset = window.base + pos
    if state.lost >= 0:
        return c.search_chain(_begins, window.size, _LOOK, window, pos, state, rules)
    if offset >= window.end or offset >= window.size:
        return c.ENDED, _ZERO
    if window.size - offset < _LOOK:
        return c.TORN, window.size - offset
    if sight < _LOOK:
        return c.SHORT, _LOOK
    total = _load_total(window.data, pos)
    if not _begins(window, pos, state, rules):
        c.blame(state, _BAD_BOX, total, 0)
        return c.LOST, np.uint64(1)
    state.stop = offset + total
    return c.HEADER, min(_BOX_HEADER, window.size - offset)


@always_inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    length = _load_length(window.data, pos)
    if np.uint64(len(out.data) - state.used) < length:
        return c.NO_ROOM
    for i in range(length):
        out.data[state.used + i] = window.data[pos + _NOTE + np.uint64(i)]
    state.used += np.int64(length)
    out.ends[state.rows + 1] = state.used
    return c.take_row(window, pos, size, state, out, rules)


@kernel
def read(window: c.Window, state: Annotated[Any, Record(STATE)], out: Out, rules: Rules) -> Int64:
    return c.walk_chain(c.run_nothing, judge, gather, c.note_damage, window, state, out, rules)


class ToyWalk(ChainWalk):
    """Texts with their offsets; texts that begin with an exclamation mark cannot be delivered."""

    kinds = ToyDamageKind

    def __init__(
        self, source: Any, findings: Findings, *, rows: int = 3, room: int = 8, end: int | None = None
    ) -> None:
        size = source.size
        span = Span(File("toy", size), 0, size if end is None else end)
        super().__init__(span, source, findings, STATE, max_rows=rows, event_room=2)
        self._room = room
        self.starts = np.zeros(rows, np.int64)
        self._ends = np.zeros(rows + 1, np.int32)
        self._data = np.zeros(room, np.uint8)

    def read(self, window: c.Window) -> int:
        return int(read(window, self.state, Out(self._data, self._ends, self.starts, self.events), Rules(True)))

    def grow(self) -> None:
        self._room *= 2
        self.reset()

    def reset(self) -> None:
        self._data = np.zeros(self._room, np.uint8)
        self.state.used = 0

    def deliver(self, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        texts = [bytes(self._data[a:b]) for a, b in zip(self._ends[:rows], self._ends[1 : rows + 1], strict=True)]
        bad = [row for row, text in enumerate(texts) if text.startswith(b"!")]
        for row in bad:
            self.complain(ToyDamageKind.BAD_TEXT, int(self.starts[row]), 3 + len(texts[row]), "an exclamation mark")
        sound_rows = [row for row in range(rows) if row not in bad and not (self.fails and bad and row > bad[0])]
        arrays = [
            pa.array([int(self.starts[row]) for row in sound_rows], pa.int64()),
            pa.array([texts[row] for row in sound_rows]),
        ]
        yield len(sound_rows), pa.RecordBatch.from_arrays(arrays, ["offset", "text"])
