"""Changes to logs below their lengths and digests, which are made good again."""

from __future__ import annotations

import struct
import zlib
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file

from .reference import entry


def _split(data: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The header, and flags and body of every entry, as far as they can be recognised."""
    length = struct.unpack_from(">i", data, 8)[0] if len(data) >= 12 else 0
    at = 12 + max(0, length)
    head, found = data[:at], []
    while at + 9 <= len(data):
        size = struct.unpack_from(">i", data, at)[0]
        if size < 5:
            break
        found.append((data[at + 4], data[at + 5 : at + size]))
        at += 4 + size
    return head, found


def entries(sample: Sample, dice: Random) -> Mutation:
    """One entry with another body or other flags, dropped, doubled or moved; all with right sizes and digests."""
    (name,) = sample.content
    head, found = _split(sample.content[name])
    found = found or [(3, b"")]
    at = dice.randrange(len(found))
    flags, body = found[at]
    what = dice.choice(("body", "body", "body", "flags", "drop", "double", "move"))
    match what:
        case "body":
            found[at] = (flags, bend_bytes(body, dice))
        case "flags":
            found[at] = (dice.choice((0, 1, 2, 3, 4, 5, 7, 0xF3, dice.randrange(256))), body)
        case "drop":
            del found[at]
        case "double":
            found.insert(dice.randrange(len(found) + 1), found[at])
        case "move":
            found.insert(dice.randrange(len(found)), found.pop(at))
    data = head + b"".join(entry(flags, body) for flags, body in found)
    return change_file(sample, name, data, f"{what} of entry {at} below its digest")


def header(sample: Sample, dice: Random) -> Mutation:
    """One record of the header changed; its length, the header's and the digest are right."""
    (name,) = sample.content
    data = sample.content[name]
    head, _ = _split(data)
    rest, records, at = data[len(head) :], [], 12
    while at + 8 <= len(head) - 4:
        length, kind = struct.unpack_from(">ii", head, at)
        if length < 0:
            break
        records.append((kind, head[at + 8 : at + 8 + length]))
        at += 8 + length
    records = records or [(1, b"")]
    at = dice.randrange(len(records))
    kind, body = records[at]
    match dice.randrange(6):
        case 0:
            records[at] = (dice.choice((0, 1, 2, 3, 4, 99)), body)
        case 1:
            records.append((kind, body))
        case _:
            records[at] = (kind, bend_bytes(body, dice))
    packed = b"".join(struct.pack(">ii", len(body), kind) + body for kind, body in records)
    new = (head[:8] or b"\xdb\x1a\xa1\xdb\0\0\0\3") + struct.pack(">i", len(packed) + 4) + packed
    new += struct.pack(">I", zlib.adler32(new))
    return change_file(sample, name, new + rest, f"record {at} of the header below its digest")


MUTATORS = (entries, header)
