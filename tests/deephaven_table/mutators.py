"""Changes to column files below their lengths: metadata, ends that stay in order, symbols, schemas, counts of rows."""

from __future__ import annotations

import copy
import struct
import xml.etree.ElementTree as ET
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file


def metadata(sample: Sample, dice: Random) -> Mutation:
    """The Java stream in a header changed; its length and where the data begins are right."""
    names = [name for name, data in sample.content.items() if name.endswith((".dat", ".sym")) and len(data) > 8]
    if not names:
        return Mutation("nothing", sample.content)
    name = dice.choice(names)
    data = sample.content[name]
    first, start = struct.unpack_from(">II", data)
    length, order = first & 0x7FFFFFFF, first & 0x80000000
    stream = bend_bytes(data[8 : 8 + min(length, 1 << 20)], dice)
    room = max(start - 8, len(stream)) if start < 1 << 20 else len(stream)
    head = struct.pack(">II", len(stream) | order, 8 + room) + stream + bytes(room - len(stream))
    return change_file(sample, name, head + data[start:], "metadata changed below its length")


def change_offset(sample: Sample, dice: Random) -> Mutation:
    """One of the numbers in the data of a column made something else that may be in order."""
    names = [name for name, data in sample.content.items() if name.endswith((".dat", ".sym")) and len(data) > 72]
    if not names:
        return Mutation("nothing", sample.content)
    name = dice.choice(names)
    data = bytearray(sample.content[name])
    start = min(struct.unpack_from(">I", data, 4)[0], len(data) - 8)
    offset = start + 8 * dice.randrange(max(1, (len(data) - start) // 8))
    if offset + 8 > len(data):
        return Mutation("nothing", sample.content)
    (value,) = struct.unpack_from("<q", data, offset)
    new = dice.choice((value + 1, value - 1, value + 7, 0, -1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)))
    struct.pack_into("<q", data, offset, max(-(1 << 63), min(new, (1 << 63) - 1)))
    return change_file(sample, name, bytes(data), f"{new} at byte {offset}")


def change_row_count(sample: Sample, dice: Random) -> Mutation:
    """Another count of rows."""
    names = [name for name in sample.content if name.endswith("table.size")]
    if not names:
        return Mutation("nothing", sample.content)
    count = dice.choice((0, 1, 2, 4, 6, 1000, -1, (1 << 31) - 1, -(1 << 31)))
    return change_file(sample, names[0], struct.pack(dice.choice("<>") + "i", count), f"{count} rows")


def markup(sample: Sample, dice: Random) -> Mutation:
    """A schema file that is still XML, with an element or attribute changed, dropped or doubled."""
    names = [name for name in sample.content if name.endswith((".schema", ".xml"))]
    if not names:
        return metadata(sample, dice)
    try:
        root = ET.fromstring(sample.content[names[0]])  # our own sample
    except ET.ParseError:
        return Mutation("nothing", sample.content)
    element = dice.choice(list(root.iter()))
    match dice.randrange(4):
        case 0 if element.attrib:
            key = dice.choice(list(element.attrib))
            value = element.attrib[key]
            element.attrib[key] = dice.choice(("", "int", "String", "Partitioning", value * 1000, value[1:], "\u2603"))
        case 1 if element.attrib:
            del element.attrib[dice.choice(list(element.attrib))]
        case 2 if len(element):
            element.remove(dice.choice(list(element)))
        case _:
            element.append(copy.deepcopy(dice.choice(list(root.iter()))) if not len(element) else element[0])
    return change_file(sample, names[0], ET.tostring(root), "markup changed")


MUTATORS = (metadata, change_offset, change_row_count, markup)
