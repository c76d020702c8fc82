"""The one walker of all chains, and what its judges have in common. See the package for how a format uses it."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import inlined, walker
from sawlog.kernels.numbers import _ZERO
from sawlog.kernels.signature import Bytes, UInt64

# Verdicts: what `judge` says of a position; each with a number of bytes.
GOOD = 0
"""A whole thing of so many bytes."""
HEADER = 1
"""A header of so many bytes, which things follow."""
PADDING = 2
"""So many bytes of unused space."""
SKIPPED = 3
"""So many bytes that others account for, or that a search has passed over."""
DAMAGED = 4
"""So many bytes are lost; `state.kind`, `state.one` and `state.two` say why."""
LOST = 5
"""At least so many bytes are lost, and where the next thing begins is to be searched. `state.lost` is set then."""
FOUND = 6
"""A search has ended so many bytes further on; everything since `state.lost` is damage."""
SHORT = 7
"""The window must hold so many bytes from here on."""
TORN = 8
"""The file ends inside the thing that begins here; `state.tail` is set."""
ENDED = 9
"""The end of the file, or of what this walk owns."""
AWAY = 10
"""Undecided: `judge` must be asked again at `state.position`, which it has set."""

# Outcomes: what `gather` and `on_damage` say.
TAKEN = 0
"""Go on after it."""
NO_ROOM = 1
"""Hand over first, then come again."""
BACK = 2
"""Go on from `state.position`."""
DONE = 3
"""This walk ends here."""

# Statuses: what a walk over a window ended with.
MORE = 0
"""The window is used up: the next one begins at `state.position`, with `state.need` bytes at least."""
FULL = 1
"""No room for more rows, bytes or events."""
END = 2
"""The end of the file, or of what this walk owns."""


class Window(NamedTuple):
    """The bytes in sight.

    Attributes:
        data: uint8, part of the file.
        base: uint64, the file offset of its first byte.
        end: uint64, the file offset where what this walk owns ends; what that means is the format's to say.
        size: uint64, bytes in the file.
    """

    data: Bytes
    base: UInt64
    end: UInt64
    size: UInt64


def make_head_window(head: bytes, size: int) -> Window:
    """Return the first bytes of a file of so many, for who recognises it."""
    return Window(np.frombuffer(head, np.uint8), *map(np.uint64, (0, len(head), size)))


_STATE = (
    "position",  # file offset of the next thing
    "rows",
    "max_rows",
    "events",
    "max_events",  # a walk hands over when it has found as many; one step may add some more
    "need",  # bytes that the next window must have at least
    "record_bytes",
    "header_bytes",
    "padding_bytes",
    "zeros",  # start of the padding that reaches up to the position; -1 for none
    "lost",  # start of what is lost while the next good thing is searched; -1 for none
    "tail",  # start of a thing that the end of the file cuts off; -1 for none
    "kind",  # of the damage that `judge` found last
    "one",
    "two",
)


_NATIVE = {np.dtype(np.int64): ctypes.c_int64, np.dtype(np.uint64): ctypes.c_uint64, np.dtype(np.uint8): ctypes.c_uint8}


def make_record_type(*fields: str | tuple[str, Any]) -> np.dtype[np.void]:
    """Return the type of records with these fields, int64 or as they say: by name in kernels, and in Python too.

    NumPy's own records look for each name by Python code, which takes eight times as long.

    Raises:
        ValueError: For names that records have attributes by.
    """
    pairs = [(field, np.int64) if isinstance(field, str) else field for field in fields]
    if clashing := [name for name, _ in pairs if hasattr(np.void, name)]:
        raise ValueError(f"in plain Python, records have attributes of their own by these names: {clashing}")
    members = {name: property(operator.itemgetter(name), _make_setter(name)) for name, _ in pairs}
    native = [(name, _NATIVE[np.dtype(number)]) for name, number in pairs]
    structure = type("Structure", (ctypes.Structure,), {"_pack_": 1, "_fields_": native})
    record = type("Record", (np.void,), {"__slots__": (), "_structure": structure, **members})
    kind: np.dtype[Any] = np.dtype((record, pairs))
    return kind


def make_record(kind: np.dtype[np.void]) -> tuple[Any, Any]:
    """Return a record of zeros for kernels, and its fields for Python, which gets and sets them in a tenth the time."""
    fields = kind.type._structure()  # type: ignore[attr-defined]
    return np.frombuffer(fields, kind)[0], fields


def _make_setter(name: str) -> Callable[[Any, Any], None]:
    """Return a function that sets a field of a record."""

    def put(record: Any, value: Any) -> None:
        record[name] = value

    return put


EVENT = make_record_type("kind", "offset", "length", "dropped", "one", "two")
"""Damage that a walk found, or, with a negative kind, something else. `dropped` is that of `Damage`; -1 for none."""


def make_state_type(*names: str) -> np.dtype[np.void]:
    """Return the type of a walk's state: what all walks have, and the names of a format's own."""
    return make_record_type(*_STATE, *names)


def make_state(kind: np.dtype[np.void], **values: int) -> Any:
    """Return a state at the beginning of a walk: a record; fields are 0, or as given; places are -1."""
    first_numbers, places = _make_first_numbers(kind)
    numbers = first_numbers.copy()
    for name, value in values.items():
        numbers[places[name]] = value
    return numbers.view(kind)[0]


@cache  # fields of a record are set in ten times the time of the numbers of an array
def _make_first_numbers(kind: np.dtype[np.void]) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the numbers that a state begins with, and the place of each field among them."""
    places = {name: place for place, name in enumerate(kind.names or ())}
    return np.array([-1 if name in ("zeros", "lost", "tail") else 0 for name in places], np.int64), places


@inlined
def note(events: Any, state: Any, kind: Any, offset: Any, length: Any, first_number: Any, second_number: Any) -> None:
    """Write an event down."""
    row = state.events
    events[row].kind = kind
    events[row].offset = offset
    events[row].length = length
    events[row].dropped = -1
    events[row].one = first_number
    events[row].two = second_number
    state.events = row + 1


@inlined
def blame(state: Any, kind: Any, first_number: Any, second_number: Any) -> None:
    """Say what is wrong, for the event that will report it."""
    state.kind = kind
    state.one = first_number
    state.two = second_number


@inlined
def count_visible_bytes(window: Any, pos: Any) -> Any:
    """Return two numbers of bytes from a position on: those in sight, and those that the file has."""
    limit = np.uint64(len(window.data))
    return limit - min(pos, limit), window.size - min(window.base + pos, window.size)


@inlined
def run_nothing(window: Any, pos: Any, state: Any, out: Any, rules: Any) -> Any:
    """Take nothing: the `run` of formats whose things are few."""
    return pos


@inlined
def take_row(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    """Write down where a thing begins: the `gather` of formats that look into things later."""
    out.starts[state.rows] = window.base + pos
    state.rows += 1
    state.record_bytes += np.int64(size)
    return TAKEN


@inlined
def note_damage(window: Any, start: Any, length: Any, state: Any, out: Any, rules: Any) -> Any:
    """Write damage down, and do nothing else: the `on_damage` of most formats."""
    state.zeros = -1
    note(out.events, state, state.kind, np.int64(start), np.int64(length), state.one, state.two)
    return TAKEN


@walker
def search_chain(agrees: Any, stop: Any, reach: Any, window: Any, pos: Any, state: Any, rules: Any) -> Any:
    """Return the answer of a `judge` while something is lost: the next place where a thing begins.

    Args:
        agrees: `agrees(window, pos, state, rules)`: whether a thing begins there; a format's own, jitted.
        stop: uint64, the file offset where the search ends if nothing is found.
        reach: uint64, bytes in sight that `agrees` wants, as far as the file has them.
        window: As for `judge`.
        pos: As for `judge`.
        state: As for `judge`.
        rules: As for `judge`.

    Returns:
        FOUND, SKIPPED (more of the file has to be seen) or SHORT, and the bytes passed over, or needed.
    """
    limit = np.uint64(len(window.data))
    last = min(stop, window.size) - min(window.base, stop)
    verdict = FOUND
    candidate = pos
    while candidate < last:
        if limit - min(candidate, limit) < min(reach, window.size - window.base - candidate):
            verdict = SKIPPED
            break
        if agrees(window, candidate, state, rules):
            break
        candidate += np.uint64(1)
    size = candidate - pos
    if verdict == SKIPPED and size == _ZERO:
        verdict = SHORT
        size = min(reach, window.size - window.base - candidate)
    return verdict, size


@walker
def walk_chain(run: Any, judge: Any, gather: Any, on_damage: Any, window: Any, state: Any, out: Any, rules: Any) -> Any:
    """Walk the chain through a window, from `state.position` on.

    Args:
        run: `run(window, pos, state, out, rules) -> pos`: takes what is plain, in a tight loop; may do nothing.
        judge: `judge(window, pos, state, rules) -> verdict, size`.
        gather: `gather(window, pos, size, state, out, rules) -> outcome`, for what is GOOD.
        on_damage: `on_damage(window, start, length, state, out, rules) -> outcome`, for damage at file offset `start`.
        window: `Window`; `state.position` is in it, or at its end.
        state: Of a `make_state_type`, updated.
        out: Where `run` and `gather` put things.
        rules: What they and `judge` go by.

    Returns:
        MORE, FULL or END.
    """
    pos = np.uint64(state.position) - window.base
    limit = np.uint64(len(window.data))
    status = FULL
    while status == FULL and state.rows < state.max_rows and state.events < state.max_events:
        first_pos = pos
        pos = run(window, pos, state, out, rules)
        if pos != first_pos:
            state.zeros = -1
            continue
        verdict, size = judge(window, pos, state, rules)
        outcome = TAKEN
        if verdict == GOOD:
            outcome = gather(window, pos, size, state, out, rules)
            if outcome == TAKEN:
                state.zeros = -1
        elif verdict == DAMAGED:
            outcome = on_damage(window, window.base + pos, size, state, out, rules)
        elif verdict == PADDING:
            state.padding_bytes += np.int64(size)
            if state.zeros < 0:
                state.zeros = window.base + pos
        elif verdict == HEADER:
            state.header_bytes += np.int64(size)
            state.zeros = -1
        elif verdict == LOST:
            state.lost = window.base + pos
        elif verdict == FOUND:
            start = np.uint64(state.lost)
            state.lost = -1
            outcome = on_damage(window, start, window.base + pos + size - start, state, out, rules)
        elif verdict == SHORT:
            state.need = size
            status = MORE
        elif verdict == TORN:
            state.tail = window.base + pos
            status = END
        elif verdict == ENDED:
            status = END
        elif verdict == AWAY:
            outcome = BACK
        if outcome == NO_ROOM:
            break
        if status != FULL:
            continue
        if outcome == BACK:
            place = np.uint64(state.position)
            if place < window.base or place - window.base > limit:
                return MORE
            pos = place - window.base
        elif outcome == DONE:
            status = END
        else:
            pos += size
            # What is past the window cannot be seen, and need not be.
            if pos > limit:
                status = MORE
    state.position = window.base + pos
    return status
