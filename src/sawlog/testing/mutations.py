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


def make_random(*words: object) -> Random:
    """Return a source of random numbers that are the same on every run."""
    return Random(" ".join(map(str, words)))  # noqa: S311 - nothing is kept secret by it


def count_changes(sample: Sample, count: int) -> int:
    """Return the number of changes of a sample that are chosen where `count` are by default."""
    return max(1, round(count * sample.effort * EFFORT))


def choose_mutations(sample: Sample, count: int, *kinds: Mutator) -> Iterator[Mutation]:
    """Yield about `count` mutations of some kinds, the same on every run."""
    for kind in kinds:
        dice = make_random(sample.format, sample.name, kind.__name__)
        for _ in range(count_changes(sample, -(-count // len(kinds)))):
            yield kind(sample, dice)


def change_file(sample: Sample, name: str, data: bytes, label: str, *spans: Span) -> Mutation:
    """Return a mutation of one file."""
    return Mutation(f"{label} of {name}", {**sample.content, name: data}, spans)


def flip(sample: Sample, name: str, bit: int) -> Mutation:
    """Return a change of one bit of one file; bits are counted from the lowest of the first byte."""
    data = bytearray(sample.content[name])
    data[bit >> 3] ^= 1 << (bit & 7)
    return change_file(sample, name, bytes(data), f"bit {bit & 7} of byte {bit >> 3}", Span(bit >> 3, 1, name))


def cut(sample: Sample, name: str, length: int) -> Mutation:
    """Return a file cut off."""
    data = sample.content[name]
    label = f"the first {length} bytes"
    return change_file(sample, name, data[:length], label, Span(length, len(data) - length, name))


def flip_header_bits(sample: Sample) -> Iterator[Mutation]:
    """Yield every bit of every header and length; see `EFFORT`."""
    step = max(1, round(1 / EFFORT)) | 1  # odd, so that it takes all bits of bytes in turn
    bits = [(span, bit) for span in sample.headers for bit in range(span.offset * 8, (span.offset + span.length) * 8)]
    for span, bit in bits[::step]:
        yield flip(sample, sample.find_file(span), bit)


def cuts(sample: Sample, count: int) -> Iterator[Mutation]:
    """Yield each file cut off: at every length if they are no more than `count` in all, else at that many."""
    places = [(name, length) for name, data in sample.content.items() for length in range(len(data))]
    max_cuts = count_changes(sample, count)
    if len(places) > max_cuts:
        places = sorted(make_random(sample.format, sample.name, "cuts").sample(places, max_cuts))
    for name, length in places:
        yield cut(sample, name, length)


def any_bit(sample: Sample, dice: Random) -> Mutation:
    """Return a change of one bit, anywhere."""
    name = _choose_file(sample, dice)
    return flip(sample, name, dice.randrange(len(sample.content[name]) * 8))


def _any_cut(sample: Sample, dice: Random) -> Mutation:
    """Return a file cut off, anywhere."""
    name = _choose_file(sample, dice)
    return cut(sample, name, dice.randrange(len(sample.content[name])))


def any_word(sample: Sample, dice: Random) -> Mutation:
    """Return a wrong number, in a header or elsewhere, in either byte order."""
    name = _choose_file(sample, dice)
    position = dice.randrange(0, len(sample.content[name]), 4)
    if sample.headers and dice.random() < 0.5:
        span = dice.choice(sample.headers)
        name, position = sample.find_file(span), span.offset + dice.randrange(span.length)
    size, value = dice.choice((1, 2, 4, 4, 8)), dice.choice(_WORDS)
    word = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little" if dice.random() < 0.5 else "big")
    data = bytearray(sample.content[name])
    data[position : position + size] = word[: max(0, len(data) - position)]
    return change_file(sample, name, bytes(data), f"{word.hex()} at byte {position}", Span(position, size, name))


def any_splice(sample: Sample, dice: Random) -> Mutation:
    """Return a range taken out, doubled, moved, zeroed, or replaced by anything."""
    name = _choose_file(sample, dice)
    data = bytearray(sample.content[name])
    position = dice.randrange(len(data))
    length = min(dice.choice((1, 4, 7, 16, 64, 300, 5000)), len(data) - position)
    piece = bytes(data[position : position + length])
    to = dice.randrange(len(data) + 1)
    match dice.randrange(6):
        case 0:
            del data[position : position + length]
            label = f"without {length} bytes from byte {position}"
        case 1:
            data[to:to] = piece
            label = f"{length} bytes from byte {position} once more at byte {to}"
        case 2:
            data[to : to + length] = piece
            label = f"{length} bytes from byte {position} over those at byte {to}"
        case 3:
            data[position : position + length] = bytes(length)
            label = f"{length} zeros at byte {position}"
        case 4:
            data[position : position + length] = dice.randbytes(length)
            label = f"{length} random bytes at byte {position}"
        case _:
            data[position:position] = dice.randbytes(length)
            label = f"{length} random bytes put in at byte {position}"
    return change_file(sample, name, bytes(data), label, Span(min(position, to), len(data), name))


def any_bytes(sample: Sample, dice: Random) -> Mutation:
    """Return a file of random bytes, from the start or after the beginning of the sample."""
    name = _choose_file(sample, dice)
    prefix = sample.content[name][: dice.choice((0, 4, 8, 16, 64))]
    data = prefix + dice.randbytes(dice.choice((0, 1, 7, 40, 300)))
    return change_file(sample, name, data, f"{len(data)} bytes, random after the first {len(prefix)},")


def bend_bytes(data: bytes, dice: Random) -> bytes:
    """Return bytes with something changed: a bit, a number, a range lost, doubled or put in.

    For mutators of formats.
    """
    out = bytearray(data or b"\0")
    position = dice.randrange(len(out))
    length = dice.choice((1, 1, 2, 4, 8, 30))
    match dice.randrange(5):
        case 0:
            out[position] ^= 1 << dice.randrange(8)
        case 1:
            size, value = dice.choice((1, 2, 4, 8)), dice.choice(_WORDS)
            word = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little" if dice.random() < 0.5 else "big")
            out[position : position + size] = word[: len(out) - position]
        case 2:
            del out[position : position + length]
        case 3:
            out[position:position] = out[position : position + length] * dice.choice((1, 1, 2, 50))
        case _:
            out[position:position] = dice.randbytes(length)
    return bytes(out)


ANY: tuple[Mutator, ...] = (any_bit, any_word, any_splice, _any_cut)
"""What can be done to any file."""


def _choose_file(sample: Sample, dice: Random) -> str:
    """Return a file that is not empty; larger ones more often."""
    names = [name for name, data in sample.content.items() if data]
    return dice.choices(names, [len(sample.content[name]) for name in names])[0]


def has_span_outside(spans: Iterable[Span], containers: Iterable[Span], sample: Sample) -> bool:
    """Return whether some span is in none of the others."""
    return any(
        not any(
            sample.find_file(span) == sample.find_file(container)
            and container.offset <= span.offset
            and span.offset + span.length <= container.offset + container.length
            for container in containers
        )
        for span in spans
    )
