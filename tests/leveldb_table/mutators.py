"""Changes to sorted tables below the checksums of their blocks, which are made good again."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import sawlog
from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import bend_bytes, change_file
from tests.bytes import mask_crc

TRAILER = 5


@cache
def places(data: bytes) -> list[tuple[int, int]]:
    """Where the blocks of a table begin, and how long their contents are; none where nobody can know."""
    with TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(directory, "a.ldb")
        path.write_bytes(data)
        try:
            rows = sawlog.read(path, format="leveldb_table", view="frames", on_damage="skip").to_pylist()
        except sawlog.SawlogError:
            return []
    return [(row["offset"], row["length"] - TRAILER) for row in rows if row["length"] > TRAILER]


def block(sample: Sample, dice: Random) -> Mutation:
    """One block changed, be it data, index or properties, or its compression; of the same length, with a checksum."""
    (name,) = sample.content
    data = sample.content[name]
    places_of_blocks = places(data) or [(0, max(0, len(data) - TRAILER))]
    offset, length = dice.choice(places_of_blocks)
    kind = data[offset + length : offset + length + 1]
    if dice.random() < 0.9:
        content = bend_bytes(data[offset : offset + length], dice)[:length].ljust(length, b"\0")
    else:
        content, kind = data[offset : offset + length], bytes([dice.choice((0, 1, 2, 4, 7, 9))])
    whole_block = content + kind + mask_crc(content + kind).to_bytes(4, "little")
    return change_file(
        sample,
        name,
        data[:offset] + whole_block + data[offset + len(whole_block) :],
        f"block at {offset} below its checksum",
    )


MUTATORS = (block,)
