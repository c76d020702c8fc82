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
    pieces, offset = [], 0
    while len(data) - offset >= HEADER:
        room = BLOCK - offset % BLOCK
        if room < HEADER:
            offset += room
            continue
        length, kind = struct.unpack_from("<HB", data, offset + 4)
        pieces.append((kind, data[offset + HEADER : offset + HEADER + length]))
        offset += HEADER + length
    return pieces


def fragments(sample: Sample, dice: Random) -> Mutation:
    """One fragment with another payload or type, dropped, doubled or moved; all with right lengths and checksums."""
    (name,) = sample.content
    pieces = _fragments(sample.content[name]) or [(1, b"")]
    index = dice.randrange(len(pieces))
    kind, payload = pieces[index]
    change = dice.choice(("payload", "payload", "payload", "type", "drop", "double", "move"))
    match change:
        case "payload":
            pieces[index] = (kind, bend_bytes(payload, dice))
        case "type":
            pieces[index] = (dice.choice(KINDS), payload)
        case "drop":
            del pieces[index]
        case "double":
            pieces.insert(dice.randrange(len(pieces) + 1), pieces[index])
        case "move":
            pieces.insert(dice.randrange(len(pieces)), pieces.pop(index))
    out = bytearray()
    for kind, payload in pieces:
        room = BLOCK - len(out) % BLOCK
        if room < HEADER:
            out += bytes(room)
        out += fragment(kind, payload[:0xFFFF])
    return change_file(sample, name, bytes(out), f"{change} of fragment {index} below its checksum")


def records(sample: Sample, dice: Random) -> Mutation:
    """One record changed, and the log written again around it."""
    (name,) = sample.content
    record_list = reference(sample.content[name]).records or [b""]
    index = dice.randrange(len(record_list))
    record_list[index] = bend_bytes(record_list[index], dice)
    return change_file(sample, name, write(*record_list), f"record {index} changed below its checksums")


MUTATORS = (fragments, records)
