"""Changes to the files of databases below their checksums, which are made good again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

from sawlog.leveldb_log.payloads.edit import EditError, parse_edit
from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import changed
from tests.leveldb_log.fragments import reference, write
from tests.leveldb_log.mutators import MUTATORS as OF_LOGS
from tests.leveldb_table.mutators import MUTATORS as OF_TABLES

TRAILER = 8
SIDES = ("smallest_key", "largest_key")


def edited(manifest: bytes) -> list[tuple[bytes, list[dict[str, object]]]]:
    """The records of a MANIFEST, each with the tables that it adds."""
    found = []
    for record in reference(manifest).records:
        tables: list[dict[str, object]] = []
        with suppress(EditError):
            tables = parse_edit(record)["new_files"]
        found.append((record, tables))
    return found


def with_ranges(manifest: bytes, ranges: dict[int, tuple[bytes, bytes]]) -> bytes:
    """A MANIFEST that gives tables other ranges of keys, by their numbers; keys are shorter than 120 bytes."""
    records = []
    for record, tables in edited(manifest):
        changed = record
        for table in tables:
            wanted = ranges.get(int(str(table["file"])))
            if wanted is None:
                continue
            # Both keys stand one behind the other, each behind its length, with sequence number and type at the end.
            old = [bytes([len(key) + TRAILER]) + key for key in (bytes(table[side]) for side in SIDES)]  # type: ignore[call-overload]
            new = [bytes([len(key) + TRAILER]) + key for key in wanted]
            first = changed.index(old[0])
            second = changed.index(old[1], first + len(old[0]) + TRAILER)
            trailer = changed[first + len(old[0]) : second]
            changed = changed[:first] + new[0] + trailer + new[1] + changed[second + len(old[1]) :]
        records.append(changed)
    return write(*records)


def table_range(sample: Sample, dice: Random) -> Mutation:
    """A table to whose range of keys the MANIFEST gives another beginning or end, or that of another table."""
    (name,) = (one for one in sample.content if one.startswith("MANIFEST")) if sample.content else ("",)
    tables = [table for _, added in edited(sample.content.get(name, b"")) for table in added]
    keys = sorted({bytes(table[side]) for table in tables for side in SIDES})  # type: ignore[call-overload]
    if not keys:
        return Mutation("no table", sample.content)
    keys += [b"", b"\xff", *(key + b"\0" for key in keys), *(key[:-1] for key in keys), dice.randbytes(2)]
    table = dice.choice(tables)
    sides = [bytes(table[side]) for side in SIDES]  # type: ignore[call-overload]
    for at in dice.choice(((0,), (1,), (0, 1))):
        sides[at] = dice.choice(keys)
    number = int(str(table["file"]))
    data = with_ranges(sample.content[name], {number: (sides[0], sides[1])})
    return changed(sample, name, data, f"table {number} from {sides[0]!r} to {sides[1]!r}")


def one_file(sample: Sample, dice: Random) -> Mutation:
    """A log, a MANIFEST or a table changed as one alone would be."""
    names = [name for name, data in sorted(sample.content.items()) if data and name != "CURRENT"]
    if not names:
        return Mutation("nothing left", sample.content)
    name = dice.choice(names)
    kind = dice.choice(OF_TABLES if name.endswith((".ldb", ".sst")) else OF_LOGS)
    mutated = kind(replace(sample, files=sample.content[name], file_name=name), dice)
    return changed(sample, name, dict(mutated.files)[name], mutated.label)


MUTATORS = (one_file, table_range)
