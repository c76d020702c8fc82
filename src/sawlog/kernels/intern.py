"""Interning: one open-addressing table for all who ask whether something was seen before, and which number it got.

A slot holds the high half of a hash and, below it, a number plus one; 0 is free. There are a power of two of them, and
twice as many as numbers at least. Hashes are made with a secret seed: the author of the bytes cannot make them collide.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import CHECKED, always_inlined, inlined, intrinsic, ir, kernel, types, walker
from sawlog.kernels.memory import are_bytes_equal, copy_bytes, load_u32, load_u64, prefetch
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _SIXTEEN, _ZERO
from sawlog.kernels.signature import WRITABLE, Bytes, Int64, Int64s, OutInt32s, OutInt64s, OutUInt64s, UInt64, UInt64s

CHUNK = 64 << 10
"""Strings that are looked up at a time: there is room for as many new ones."""
AHEAD = 16
"""Strings whose slots are asked for in advance."""

_LOW = np.uint64(0xFFFFFFFF)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_EVERY: NDArray[np.uint8] = np.zeros(0, np.uint8)


class Strings(NamedTuple):
    """Byte strings: string i is `data[ends[i] : ends[i + 1]]`, which has been checked."""

    ends: Int64s
    data: Bytes


class Interned(NamedTuple):
    """Strings that have numbers.

    Attributes:
        slots: uint64, as described above.
        strings: By number.
    """

    slots: OutUInt64s
    strings: Annotated[Strings, WRITABLE]


@intrinsic
def _fold(typing_context: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return builder.xor(builder.trunc(product, word), high)

    return types.uint64(types.uint64, types.uint64), generate


def _fold_checked(a: Any, b: Any) -> Any:
    low = (a & _LOW) * (b & _LOW)
    middle = (a >> _HALF) * (b & _LOW) + (low >> _HALF)
    two = (a & _LOW) * (b >> _HALF) + (middle & _LOW)
    return (two << _HALF | low & _LOW) ^ (a >> _HALF) * (b >> _HALF) + (middle >> _HALF) + (two >> _HALF)


_folded: Any = inlined(_fold_checked) if CHECKED else _fold
"""`_folded(a, b) -> uint64`: the two halves of a product of 128 bits, combined."""


@inlined
def mix_bits(word: Any) -> Any:
    """Return the finalizer of SplitMix64: every bit of the word changes every other one."""
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return word ^ word >> np.uint64(31)


@inlined
def hash_string(data: Any, start: Any, length: Any, seed: Any) -> Any:
    """Return a hash of `data[start : start + length]` that depends on the seed; all of them uint64."""
    value = key = _folded(seed ^ length, _ODD)
    end = start + length
    first, last = _ZERO, _ZERO
    if length > _SIXTEEN:
        # No product waits for another one: each has a key of its own, which keeps the order of the blocks.
        while end - start > _SIXTEEN:
            value ^= _folded(load_u64(data, start) ^ key, load_u64(data, start + _EIGHT) ^ seed)
            key *= _ODD
            start += _SIXTEEN
        first, last = load_u64(data, end - _SIXTEEN), load_u64(data, end - _EIGHT)
    elif length >= _EIGHT:
        first, last = load_u64(data, start), load_u64(data, end - _EIGHT)
    elif length >= _FOUR:
        first, last = load_u32(data, start), load_u32(data, end - _FOUR)
    elif length > _ZERO:
        first = np.uint64(data[start]) << _EIGHT | np.uint64(data[start + (length >> _ONE)])
        last = np.uint64(data[end - _ONE])
    return _folded(_folded(first ^ seed, last ^ value) ^ seed, _ODD)


@always_inlined
def find_place(slots: Any, hashed: Any) -> Any:
    """Return the first slot that a hash leads to."""
    return hashed >> _HALF & np.uint64(len(slots) - 1)


@always_inlined
def enter(slots: Any, place: Any, hashed: Any, number: Any) -> None:
    """Put a number into the slot that `find` came to, if it is free."""
    if slots[place] == _ZERO:
        slots[place] = hashed >> _HALF << _HALF | np.uint64(number + 1)


@walker
def find(is_same: Any, strings: Any, sought: Any, slots: Any, hashed: Any, max_probes: Any) -> Any:
    """Return the number of what is sought, or -1; and the slot where the search ended.

    Args:
        is_same: `is_same(known, sought, number)`: whether that is what is sought; a format's own, jitted.
        strings: What has numbers.
        sought: As `is_same` takes it.
        slots: uint64, some of them free.
        hashed: uint64, its hash.
        max_probes: Slots that are looked at, for those who can do without an answer: hashes of theirs may be the same.
    """
    mask = np.uint64(len(slots) - 1)
    place = hashed >> _HALF & mask
    number = np.int64(-1)
    slot = np.uint64(slots[place])
    remaining = max_probes
    while slot != _ZERO and remaining != 0:
        if slot >> _HALF == hashed >> _HALF and is_same(strings, sought, np.int64(slot & _LOW) - 1):
            number = np.int64(slot & _LOW) - 1
            break
        remaining -= 1
        place = (place + _ONE) & mask
        slot = np.uint64(slots[place])
    return number, place


@always_inlined
def is_same_string(strings: Any, sought: Any, number: Any) -> Any:
    """Return whether a number of `Strings` is that of `data[start : start + length]`, for `find`."""
    data, start, length = sought
    begin = np.uint64(strings.ends[number])
    return np.uint64(strings.ends[number + 1]) - begin == length and are_bytes_equal(
        strings.data, begin, data, start, length
    )


@kernel
def hash_strings(strings: Strings, seed: UInt64, hashes: OutUInt64s) -> None:
    """Compute the hash of each string."""
    for i in range(len(hashes)):
        start = np.uint64(strings.ends[i])
        hashes[i] = hash_string(strings.data, start, np.uint64(strings.ends[i + 1]) - start, seed)


@kernel
def intern(
    strings: Strings,
    validity: Bytes,
    hashes: UInt64s,
    interned: Interned,
    count: Int64,
    numbers: OutInt32s,
    rows: OutInt64s,
) -> Int64:
    """Look strings up, and give numbers to those that are new; return how many there are then.

    Args:
        strings: `Strings`.
        validity: uint8: 0 for null; empty: none is.
        hashes: uint64, of each.
        interned: `Interned`, with room for all of them.
        count: int64: how many it has.
        numbers: int32, to write into: the number of each string; those of nulls stay.
        rows: int64, to write into: which of the strings the new ones were.
    """
    slots, interned_strings = interned.slots, interned.strings
    first = count
    for i in range(len(numbers)):
        if i + AHEAD < len(numbers):
            prefetch(slots, find_place(slots, hashes[i + AHEAD]))
        if len(validity) and not validity[i]:
            continue
        start = np.uint64(strings.ends[i])
        length = np.uint64(strings.ends[i + 1]) - start
        number, place = find(
            is_same_string, interned_strings, (strings.data, start, length), slots, hashes[i], len(slots)
        )
        if number < 0:
            number = count
            enter(slots, place, hashes[i], number)
            begin = np.uint64(interned_strings.ends[number])
            copy_bytes(interned_strings.data, begin, strings.data, start, length)
            interned_strings.ends[number + 1] = np.int64(begin + length)
            rows[number - first] = i
            count += 1
        numbers[i] = number
    return count


@kernel
def _spread(old: UInt64s, slots: OutUInt64s) -> None:
    """Put all numbers of a table into a larger one.

    Args:
        old: uint64, its slots.
        slots: uint64 zeros.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(old)):
        if old[i] != _ZERO:
            place = old[i] >> _HALF & mask
            while slots[place] != _ZERO:
                place = (place + _ONE) & mask
            slots[place] = old[i]


def make_seed() -> np.uint64:
    """Return a seed that nobody knows."""
    return np.uint64(int.from_bytes(os.urandom(8), "little"))


class Interner:
    """Numbers byte strings in the order in which they first appear.

    Attributes:
        seed: Of their hashes.
        count: How many there are.
        interned: Their table.
    """

    def __init__(self) -> None:
        self.seed = make_seed()
        self.count = 0
        self.interned = Interned(np.zeros(1, np.uint64), Strings(np.zeros(1, np.int64), np.zeros(0, np.uint8)))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        slots, strings = self.interned
        return int(slots.nbytes + strings.ends.nbytes + strings.data.nbytes)

    def compute_hashes(self, strings: Strings) -> NDArray[np.uint64]:
        """Return the hashes of strings."""
        hashes = np.empty(len(strings.ends) - 1, np.uint64)
        hash_strings(strings, self.seed, hashes)
        return hashes

    def assign_numbers(
        self, strings: Strings, validity: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the number of each string, and which strings were new.

        Args:
            strings: The strings.
            validity: 0 for null, which gets any number. None: none is.
        """
        total = len(strings.ends) - 1
        numbers, rows, before = np.empty(total, np.int32), np.empty(total, np.int64), self.count
        for start in range(0, total, CHUNK):
            part = Strings(strings.ends[start : start + CHUNK + 1], strings.data)
            chunk_validity = _EVERY if validity is None else validity[start : start + CHUNK]
            self._make_room(len(part.ends) - 1, int(part.ends[-1] - part.ends[0]))
            chunk_numbers, fresh = numbers[start : start + CHUNK], rows[self.count - before :]
            count = int(
                intern(part, chunk_validity, self.compute_hashes(part), self.interned, self.count, chunk_numbers, fresh)
            )
            fresh[: count - self.count] += start
            self.count = count
        return numbers, rows[: self.count - before]

    def _make_room(self, strings: int, characters: int) -> None:
        """Make room for as many new strings of as many bytes."""
        slots, (ends, data) = self.interned
        count = self.count + strings
        used = int(ends[self.count])
        if count >= len(ends):
            ends = _enlarge(ends, 2 * count + 1)
        if used + characters > len(data):
            data = _enlarge(data, 2 * (used + characters))
        if 2 * count > len(slots):
            old, slots = slots, np.zeros(2 << count.bit_length(), np.uint64)
            _spread(old, slots)
        self.interned = Interned(slots, Strings(ends, data))


def _enlarge(values: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.empty(length, values.dtype)
    longer[: len(values)] = values
    return longer
