"""Changes to containers below their lengths, which are made good again."""

from __future__ import annotations

import struct
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file

HEADER = 16


def _containers(data: bytes) -> list[tuple[bytes, list[bytes], bytes]]:
    """Of each container what is between its length and its records, the records, and what is left of it."""
    containers, offset = [], 0
    while offset + HEADER <= len(data):
        (length,) = struct.unpack_from("<I", data, offset)
        end = min(offset + 4 + length, len(data))
        records, place = [], offset + HEADER
        while place + 4 <= end:
            (size,) = struct.unpack_from("<I", data, place)
            if size < 4 or place + 4 + size > end:
                break
            records.append(data[place + 4 : place + 4 + size])
            place += 4 + size
        containers.append((data[offset + 4 : offset + HEADER], records, data[place:end]))
        offset = max(end, offset + HEADER)
    return containers


def records(sample: Sample, dice: Random) -> Mutation:
    """One record changed, dropped, doubled or moved; its length and its container's are right."""
    (name,) = sample.content
    containers = _containers(sample.content[name]) or [(bytes(12), [], b"")]
    number = dice.randrange(len(containers))
    head, record_list, tail = containers[number]
    record_list = record_list or [b"\0" * 8]
    index = dice.randrange(len(record_list))
    change = dice.choice(("bytes", "bytes", "bytes", "schema", "drop", "double", "move"))
    match change:
        case "bytes":
            record_list[index] = bend_bytes(record_list[index], dice)
        case "schema":
            record_list[index] = dice.randbytes(2) + record_list[index][2:]
        case "drop":
            del record_list[index]
        case "double":
            record_list.insert(dice.randrange(len(record_list) + 1), record_list[index])
        case "move":
            record_list.insert(dice.randrange(len(record_list)), record_list.pop(index))
    containers[number] = (head, record_list, tail)
    out = b""
    for head, record_list, tail in containers:
        body = head + b"".join(struct.pack("<I", len(record)) + record for record in record_list) + tail
        out += struct.pack("<I", len(body)) + body
    return change_file(sample, name, out, f"{change} of record {index} in container {number} below its lengths")


MUTATORS = (records,)
