"""Changes to containers below their lengths, which are made good again."""

from __future__ import annotations

import struct
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file

HEADER = 16


def _containers(data: bytes) -> list[tuple[bytes, list[bytes], bytes]]:
    """Of each container what is between its length and its records, the records, and what is left of it."""
    found, at = [], 0
    while at + HEADER <= len(data):
        (length,) = struct.unpack_from("<I", data, at)
        end = min(at + 4 + length, len(data))
        records, place = [], at + HEADER
        while place + 4 <= end:
            (size,) = struct.unpack_from("<I", data, place)
            if size < 4 or place + 4 + size > end:
                break
            records.append(data[place + 4 : place + 4 + size])
            place += 4 + size
        found.append((data[at + 4 : at + HEADER], records, data[place:end]))
        at = max(end, at + HEADER)
    return found


def records(sample: Sample, dice: Random) -> Mutation:
    """One record changed, dropped, doubled or moved; its length and its container's are right."""
    (name,) = sample.content
    containers = _containers(sample.content[name]) or [(bytes(12), [], b"")]
    number = dice.randrange(len(containers))
    head, found, rest = containers[number]
    found = found or [b"\0" * 8]
    at = dice.randrange(len(found))
    what = dice.choice(("bytes", "bytes", "bytes", "schema", "drop", "double", "move"))
    match what:
        case "bytes":
            found[at] = bend_bytes(found[at], dice)
        case "schema":
            found[at] = dice.randbytes(2) + found[at][2:]
        case "drop":
            del found[at]
        case "double":
            found.insert(dice.randrange(len(found) + 1), found[at])
        case "move":
            found.insert(dice.randrange(len(found)), found.pop(at))
    containers[number] = (head, found, rest)
    out = b""
    for head, found, rest in containers:
        body = head + b"".join(struct.pack("<I", len(one)) + one for one in found) + rest
        out += struct.pack("<I", len(body)) + body
    return change_file(sample, name, out, f"{what} of record {at} in container {number} below its lengths")


MUTATORS = (records,)
