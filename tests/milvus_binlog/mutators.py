"""Changes to binlogs below their lengths: events, descriptors, and the Parquet inside, footers and page headers."""

from __future__ import annotations

import struct
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file

from . import thrift

MAGIC = bytes.fromhex("bcfaff00")
HEADER = 17
TYPE, LENGTH, NEXT = 8, 9, 13


def _events(data: bytes) -> list[bytes]:
    """The events of a binlog, the descriptor first, as far as they can be recognised."""
    events_list, offset = [], len(MAGIC)
    while offset + HEADER <= len(data):
        (length,) = struct.unpack_from("<i", data, offset + LENGTH)
        if length < HEADER:
            break
        events_list.append(data[offset : offset + length])
        offset += length
    return events_list


def _joined(events: list[bytes]) -> bytes:
    """A binlog of events, with right lengths and next positions."""
    out = bytearray(MAGIC)
    for event in events:
        end = len(out) + len(event)
        out += event[:LENGTH] + struct.pack("<ii", len(event), end) + event[HEADER:]
    return bytes(out)


def _binlog(sample: Sample, dice: Random) -> str | None:
    names = [name for name, data in sample.content.items() if data[:4] == MAGIC and len(_events(data)) > 0]
    return dice.choice(names) if names else None


def events(sample: Sample, dice: Random) -> Mutation:
    """One event changed, dropped, doubled or moved; all lengths and positions are right."""
    name = _binlog(sample, dice)
    if name is None:
        return Mutation("nothing", sample.content)
    event_list = _events(sample.content[name])
    index = dice.randrange(len(event_list))
    event = event_list[index]
    change = dice.choice(("data", "data", "data", "type", "time", "drop", "double", "move"))
    match change:
        case "data":
            place = dice.choice((HEADER, HEADER, HEADER + 16))
            event_list[index] = event[:place] + bend_bytes(event[place:], dice)
        case "type":
            event_list[index] = event[:TYPE] + bytes([dice.choice((*range(12), 255))]) + event[LENGTH:]
        case "time":
            event_list[index] = struct.pack("<Q", dice.choice((0, 1, 1 << 63, (1 << 64) - 1))) + event[8:]
        case "drop":
            del event_list[index]
        case "double":
            event_list.insert(dice.randrange(len(event_list) + 1), event)
        case "move":
            event_list.insert(dice.randrange(len(event_list)), event_list.pop(index))
    return change_file(sample, name, _joined(event_list), f"{change} of event {index} below its length")


def _parquet(event: bytes, dice: Random) -> tuple[bytes, str] | None:
    """An event whose Parquet file has one lie in its footer or in a page header."""
    begin = event.find(b"PAR1")
    if begin < 0 or event[-4:] != b"PAR1":
        return None
    head, file = event[:begin], event[begin:]
    (size,) = struct.unpack_from("<I", file, len(file) - 8)
    start = len(file) - 8 - size
    if start < 4:
        return None
    try:
        if dice.random() < 0.5:
            footer, _ = thrift.read(file, start)
            path = thrift.bend(footer, dice)
            packed = thrift.write(footer)
            return head + file[:start] + packed + struct.pack("<I", len(packed)) + b"PAR1", f"footer{path}"
        page, end = thrift.read(file, 4)
        path = thrift.bend(page, dice)
        packed = thrift.write(page)
    except (ValueError, IndexError):
        return None
    # Of one page the header may only keep its size: what the footer says of places stays true.
    if len(packed) != end - 4:
        packed = packed[: end - 4].ljust(end - 4, b"\0")
    return head + file[:4] + packed + file[end:], f"page header{path}"


def parquet(sample: Sample, dice: Random) -> Mutation:
    """A lie in the footer or the first page header of a Parquet payload."""
    name = _binlog(sample, dice)
    if name is None:
        return Mutation("nothing", sample.content)
    event_list = _events(sample.content[name])
    index = dice.randrange(len(event_list))
    bent_event = _parquet(event_list[index], dice)
    if bent_event is None:
        return events(sample, dice)
    event_list[index], label = bent_event
    return change_file(sample, name, _joined(event_list), f"{label} of event {index} changed")


MUTATORS = (events, parquet, parquet)
