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
    header_end = 12 + max(0, length)
    head, parts = data[:header_end], []
    while header_end + 9 <= len(data):
        size = struct.unpack_from(">i", data, header_end)[0]
        if size < 5:
            break
        parts.append((data[header_end + 4], data[header_end + 5 : header_end + size]))
        header_end += 4 + size
    return head, parts


def entries(sample: Sample, dice: Random) -> Mutation:
    """One entry with another body or other flags, dropped, doubled or moved; all with right sizes and digests."""
    (name,) = sample.content
    head, parts = _split(sample.content[name])
    parts = parts or [(3, b"")]
    index = dice.randrange(len(parts))
    flags, body = parts[index]
    change = dice.choice(("body", "body", "body", "flags", "drop", "double", "move"))
    match change:
        case "body":
            parts[index] = (flags, bend_bytes(body, dice))
        case "flags":
            parts[index] = (dice.choice((0, 1, 2, 3, 4, 5, 7, 0xF3, dice.randrange(256))), body)
        case "drop":
            del parts[index]
        case "double":
            parts.insert(dice.randrange(len(parts) + 1), parts[index])
        case "move":
            parts.insert(dice.randrange(len(parts)), parts.pop(index))
    data = head + b"".join(entry(flags, body) for flags, body in parts)
    return change_file(sample, name, data, f"{change} of entry {index} below its digest")


def header(sample: Sample, dice: Random) -> Mutation:
    """One record of the header changed; its length, the header's and the digest are right."""
    (name,) = sample.content
    data = sample.content[name]
    head, _ = _split(data)
    records_bytes, records, index = data[len(head) :], [], 12
    while index + 8 <= len(head) - 4:
        length, kind = struct.unpack_from(">ii", head, index)
        if length < 0:
            break
        records.append((kind, head[index + 8 : index + 8 + length]))
        index += 8 + length
    records = records or [(1, b"")]
    index = dice.randrange(len(records))
    kind, body = records[index]
    match dice.randrange(6):
        case 0:
            records[index] = (dice.choice((0, 1, 2, 3, 4, 99)), body)
        case 1:
            records.append((kind, body))
        case _:
            records[index] = (kind, bend_bytes(body, dice))
    packed = b"".join(struct.pack(">ii", len(body), kind) + body for kind, body in records)
    new = (head[:8] or b"\xdb\x1a\xa1\xdb\0\0\0\3") + struct.pack(">i", len(packed) + 4) + packed
    new += struct.pack(">I", zlib.adler32(new))
    return change_file(sample, name, new + records_bytes, f"record {index} of the header below its digest")


MUTATORS = (entries, header)
