"""Changes to samples: flipped bits, cuts, splices, numbers that lie."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator

from sawlog.testing.sample import Mutation, Sample, Span

EFFORT = float(os.environ.get("SAWLOG_LAWS_EFFORT", "1"))
"""How many times more changes are tried than by default, where they are chosen; every bit of headers always is."""

_WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1)
"""Numbers that break lengths and counts."""


def effort(count: int) -> int:
    """How many changes are chosen where `count` are by default."""
    return max(1, round(count * EFFORT))


def seeded(sample: Sample, what: str) -> random.Random:
    """Random numbers that are the same on every run."""
    return random.Random(f"{sample.format} {sample.name} {what}")  # noqa: S311 - nothing is kept secret by it


def changed(sample: Sample, name: str, data: bytes, label: str, *spans: Span) -> Mutation:
    """A mutation of one file."""
    return Mutation(f"{label} of {name}", {**sample.content, name: data}, spans)


def flip(sample: Sample, name: str, bit: int) -> Mutation:
    """One bit of one file changed; bits are counted from the lowest of the first byte."""
    data = bytearray(sample.content[name])
    data[bit >> 3] ^= 1 << (bit & 7)
    return changed(sample, name, bytes(data), f"bit {bit & 7} of byte {bit >> 3}", Span(bit >> 3, 1, name))


def header_bits(sample: Sample) -> Iterator[Mutation]:
    """Every bit of every header and length."""
    for span in sample.headers:
        for bit in range(span.offset * 8, (span.offset + span.length) * 8):
            yield flip(sample, sample.place(span), bit)


def bits(sample: Sample, count: int) -> Iterator[Mutation]:
    """Some bits, anywhere."""
    dice = seeded(sample, "bits")
    names = [name for name, data in sample.content.items() if data]
    sizes = [len(sample.content[name]) for name in names]
    for _ in range(effort(count)):
        (name,) = dice.choices(names, sizes)
        yield flip(sample, name, dice.randrange(len(sample.content[name]) * 8))


def cuts(sample: Sample, count: int) -> Iterator[Mutation]:
    """Each file cut off: at every length if they are no more than `count` in all, else at that many."""
    every = [(name, length) for name, data in sample.content.items() for length in range(len(data))]
    if len(every) > effort(count):
        every = sorted(seeded(sample, "cuts").sample(every, effort(count)))
    for name, length in every:
        data = sample.content[name]
        yield changed(sample, name, data[:length], f"the first {length} bytes", Span(length, len(data) - length, name))


def words(sample: Sample, count: int) -> Iterator[Mutation]:
    """Numbers that lie, in headers and elsewhere, in either byte order."""
    dice = seeded(sample, "words")
    places = [
        (sample.place(span), at) for span in sample.headers for at in range(span.offset, span.offset + span.length)
    ]
    places += [(name, at) for name, data in sample.content.items() for at in range(0, len(data), 4)]
    for _ in range(effort(count) if places else 0):
        name, at = dice.choice(places)
        size, value, order = dice.choice((1, 2, 4, 4, 8)), dice.choice(_WORDS), dice.choice(("little", "big"))
        data = bytearray(sample.content[name])
        word = (value & ((1 << 8 * size) - 1)).to_bytes(size, order)  # type: ignore[arg-type]
        data[at : at + size] = word[: len(data) - at]
        yield changed(sample, name, bytes(data), f"{word.hex()} at byte {at}", Span(at, size, name))


def splices(sample: Sample, count: int) -> Iterator[Mutation]:
    """Ranges taken out, doubled, moved, zeroed, or replaced by anything."""
    dice = seeded(sample, "splices")
    names = [name for name, data in sample.content.items() if data]
    for _ in range(effort(count) if names else 0):
        name = dice.choice(names)
        data = bytearray(sample.content[name])
        at = dice.randrange(len(data))
        length = min(dice.choice((1, 4, 7, 16, 64, 300, 5000)), len(data) - at)
        piece = bytes(data[at : at + length])
        to = dice.randrange(len(data) + 1)
        match dice.choice(("out", "twice", "moved", "zeroed", "junk", "inserted")):
            case "out":
                del data[at : at + length]
                label = f"without {length} bytes from byte {at}"
            case "twice":
                data[to:to] = piece
                label = f"{length} bytes from byte {at} once more at byte {to}"
            case "moved":
                data[to : to + length] = piece
                label = f"{length} bytes from byte {at} over those at byte {to}"
            case "zeroed":
                data[at : at + length] = bytes(length)
                label = f"{length} zeros at byte {at}"
            case "junk":
                data[at : at + length] = dice.randbytes(length)
                label = f"{length} random bytes at byte {at}"
            case _:
                data[at:at] = dice.randbytes(length)
                label = f"{length} random bytes put in at byte {at}"
        yield changed(sample, name, bytes(data), label, Span(min(at, to), len(data), name))


def junk(sample: Sample, count: int) -> Iterator[Mutation]:
    """Files of random bytes, behind nothing or behind the beginning of the sample."""
    dice = seeded(sample, "junk")
    for number in range(effort(count)):
        name = dice.choice(list(sample.content))
        kept = sample.content[name][: dice.choice((0, 4, 8, 16, 64))]
        data = kept + dice.randbytes(dice.choice((0, 1, 7, 40, 300)))
        yield changed(sample, name, data, f"{len(data)} bytes, random behind the first {len(kept)}, number {number},")


def chosen(sample: Sample, count: int) -> Iterator[Mutation]:
    """A few changes of every kind: `count` in all, about."""
    part = -(-count // 4)
    for kind in (bits, words, splices, cuts):
        yield from kind(sample, part)


def beyond(spans: Iterable[Span], others: Iterable[Span], sample: Sample) -> bool:
    """Whether some span lies in none of the others."""
    return any(
        not any(
            sample.place(one) == sample.place(other)
            and other.offset <= one.offset
            and one.offset + one.length <= other.offset + other.length
            for other in others
        )
        for one in spans
    )
