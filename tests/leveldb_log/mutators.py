"""Changes to logs below their lengths and checksums, which are made good again."""

from __future__ import annotations

import struct
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file

from .fragments import BLOCK, HEADER, fragment, reference, write

KINDS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 77, 127, 128, 129, 130, 131, 255]
RECYCLABLE = (*range(5, 9), 11, 131)


def _fragments(data: bytes) -> list[tuple[int, bytes]]:
    """Types and payloads, recyclable ones with their log numbers, as far as they can be recognised."""
    found, at = [], 0
    while len(data) - at >= HEADER:
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        found.append((kind, data[at + HEADER : at + HEADER + length]))
        at += HEADER + length
    return found


def fragments(sample: Sample, dice: Random) -> Mutation:
    """One fragment with another payload or type, dropped, doubled or moved; all with right lengths and checksums."""
    (name,) = sample.content
    pieces = _fragments(sample.content[name]) or [(1, b"")]
    at = dice.randrange(len(pieces))
    kind, payload = pieces[at]
    what = dice.choice(("payload", "payload", "payload", "type", "drop", "double", "move"))
    match what:
        case "payload":
            pieces[at] = (kind, bend_bytes(payload, dice))
        case "type":
            pieces[at] = (dice.choice(KINDS), payload)
        case "drop":
            del pieces[at]
        case "double":
            pieces.insert(dice.randrange(len(pieces) + 1), pieces[at])
        case "move":
            pieces.insert(dice.randrange(len(pieces)), pieces.pop(at))
    out = bytearray()
    for kind, payload in pieces:
        left = BLOCK - len(out) % BLOCK
        if left < HEADER:
            out += bytes(left)
        out += fragment(kind, payload[:0xFFFF])
    return change_file(sample, name, bytes(out), f"{what} of fragment {at} below its checksum")


def records(sample: Sample, dice: Random) -> Mutation:
    """One record changed, and the log written again around it."""
    (name,) = sample.content
    found = reference(sample.content[name]).records or [b""]
    at = dice.randrange(len(found))
    found[at] = bend_bytes(found[at], dice)
    return change_file(sample, name, write(*found), f"record {at} changed below its checksums")


MUTATORS = (fragments, records)
