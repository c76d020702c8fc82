"""Changes to samples: flipped bits, cuts, splices, numbers that lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TypeAlias

from sawlog.testing.sample import Mutation, Sample, Span

Mutator: TypeAlias = Callable[[Sample, Random], Mutation]
"""Changes a sample in some way, chosen by the random numbers that it is given; one that knows the format makes lengths
and checksums good again, and so reaches what is below them."""

EFFORT = float(os.environ.get("SAWLOG_LAWS_EFFORT", "1"))
"""How many times more changes are tried than by default, where they are chosen. Every bit of headers is, unless it is
less than 1: then as large a share of them, spread evenly."""

_WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1)
"""Numbers that break lengths and counts."""


def seeded(*what: object) -> Random:
    """Random numbers that are the same on every run."""
    return Random(" ".join(map(str, what)))  # noqa: S311 - nothing is kept secret by it


def effort(sample: Sample, count: int) -> int:
    """How many changes of a sample are chosen where `count` are by default."""
    return max(1, round(count * sample.effort * EFFORT))


def some(sample: Sample, count: int, *kinds: Mutator) -> Iterator[Mutation]:
    """About `count` mutations of some kinds, the same on every run."""
    for kind in kinds:
        dice = seeded(sample.format, sample.name, kind.__name__)
        for _ in range(effort(sample, -(-count // len(kinds)))):
            yield kind(sample, dice)


def changed(sample: Sample, name: str, data: bytes, label: str, *spans: Span) -> Mutation:
    """A mutation of one file."""
    return Mutation(f"{label} of {name}", {**sample.content, name: data}, spans)


def flip(sample: Sample, name: str, bit: int) -> Mutation:
    """One bit of one file changed; bits are counted from the lowest of the first byte."""
    data = bytearray(sample.content[name])
    data[bit >> 3] ^= 1 << (bit & 7)
    return changed(sample, name, bytes(data), f"bit {bit & 7} of byte {bit >> 3}", Span(bit >> 3, 1, name))


def cut(sample: Sample, name: str, length: int) -> Mutation:
    """One file cut off."""
    data = sample.content[name]
    label = f"the first {length} bytes"
    return changed(sample, name, data[:length], label, Span(length, len(data) - length, name))


def header_bits(sample: Sample) -> Iterator[Mutation]:
    """Every bit of every header and length; see `EFFORT`."""
    step = max(1, round(1 / EFFORT)) | 1  # odd, so that it takes all bits of bytes in turn
    bits = [(span, bit) for span in sample.headers for bit in range(span.offset * 8, (span.offset + span.length) * 8)]
    for span, bit in bits[::step]:
        yield flip(sample, sample.place(span), bit)


def cuts(sample: Sample, count: int) -> Iterator[Mutation]:
    """Each file cut off: at every length if they are no more than `count` in all, else at that many."""
    every = [(name, length) for name, data in sample.content.items() for length in range(len(data))]
    chosen = effort(sample, count)
    if len(every) > chosen:
        every = sorted(seeded(sample.format, sample.name, "cuts").sample(every, chosen))
    for name, length in every:
        yield cut(sample, name, length)


def any_bit(sample: Sample, dice: Random) -> Mutation:
    """One bit, anywhere."""
    name = _file(sample, dice)
    return flip(sample, name, dice.randrange(len(sample.content[name]) * 8))


def _any_cut(sample: Sample, dice: Random) -> Mutation:
    """One file cut off, anywhere."""
    name = _file(sample, dice)
    return cut(sample, name, dice.randrange(len(sample.content[name])))


def any_word(sample: Sample, dice: Random) -> Mutation:
    """A wrong number, in a header or elsewhere, in either byte order."""
    name = _file(sample, dice)
    at = dice.randrange(0, len(sample.content[name]), 4)
    if sample.headers and dice.random() < 0.5:
        span = dice.choice(sample.headers)
        name, at = sample.place(span), span.offset + dice.randrange(span.length)
    size, value = dice.choice((1, 2, 4, 4, 8)), dice.choice(_WORDS)
    word = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little" if dice.random() < 0.5 else "big")
    data = bytearray(sample.content[name])
    data[at : at + size] = word[: max(0, len(data) - at)]
    return changed(sample, name, bytes(data), f"{word.hex()} at byte {at}", Span(at, size, name))


def any_splice(sample: Sample, dice: Random) -> Mutation:
    """A range taken out, doubled, moved, zeroed, or replaced by anything."""
    name = _file(sample, dice)
    data = bytearray(sample.content[name])
    at = dice.randrange(len(data))
    length = min(dice.choice((1, 4, 7, 16, 64, 300, 5000)), len(data) - at)
    piece = bytes(data[at : at + length])
    to = dice.randrange(len(data) + 1)
    match dice.randrange(6):
        case 0:
            del data[at : at + length]
            label = f"without {length} bytes from byte {at}"
        case 1:
            data[to:to] = piece
            label = f"{length} bytes from byte {at} once more at byte {to}"
        case 2:
            data[to : to + length] = piece
            label = f"{length} bytes from byte {at} over those at byte {to}"
        case 3:
            data[at : at + length] = bytes(length)
            label = f"{length} zeros at byte {at}"
        case 4:
            data[at : at + length] = dice.randbytes(length)
            label = f"{length} random bytes at byte {at}"
        case _:
            data[at:at] = dice.randbytes(length)
            label = f"{length} random bytes put in at byte {at}"
    return changed(sample, name, bytes(data), label, Span(min(at, to), len(data), name))


def any_bytes(sample: Sample, dice: Random) -> Mutation:
    """A file of random bytes, from the start or after the beginning of the sample."""
    name = _file(sample, dice)
    kept = sample.content[name][: dice.choice((0, 4, 8, 16, 64))]
    data = kept + dice.randbytes(dice.choice((0, 1, 7, 40, 300)))
    return changed(sample, name, data, f"{len(data)} bytes, random after the first {len(kept)},")


def bent(data: bytes, dice: Random) -> bytes:
    """Bytes with something changed: a bit, a number, a range lost, doubled or put in. For mutators of formats."""
    out = bytearray(data or b"\0")
    at = dice.randrange(len(out))
    length = dice.choice((1, 1, 2, 4, 8, 30))
    match dice.randrange(5):
        case 0:
            out[at] ^= 1 << dice.randrange(8)
        case 1:
            size, value = dice.choice((1, 2, 4, 8)), dice.choice(_WORDS)
            word = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little" if dice.random() < 0.5 else "big")
            out[at : at + size] = word[: len(out) - at]
        case 2:
            del out[at : at + length]
        case 3:
            out[at:at] = out[at : at + length] * dice.choice((1, 1, 2, 50))
        case _:
            out[at:at] = dice.randbytes(length)
    return bytes(out)


ANY: tuple[Mutator, ...] = (any_bit, any_word, any_splice, _any_cut)
"""What can be done to any file."""


def _file(sample: Sample, dice: Random) -> str:
    """A file that is not empty; larger ones more often."""
    names = [name for name, data in sample.content.items() if data]
    return dice.choices(names, [len(sample.content[name]) for name in names])[0]


def beyond(spans: Iterable[Span], others: Iterable[Span], sample: Sample) -> bool:
    """Whether some span is in none of the others."""
    return any(
        not any(
            sample.place(one) == sample.place(other)
            and other.offset <= one.offset
            and one.offset + one.length <= other.offset + other.length
            for other in others
        )
        for one in spans
    )
