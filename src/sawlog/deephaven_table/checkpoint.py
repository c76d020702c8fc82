"""How many rows of a location are committed: `table.size`, and what the files can hold. Section 6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sawlog.deephaven_table import layout

if TYPE_CHECKING:
    from sawlog.deephaven_table.location import Location
    from sawlog.storage import Storage


@dataclass(frozen=True, slots=True)
class DataFile:
    """What a data file can hold.

    Attributes:
        size: Bytes of its data region.
        width: Bytes per row; None for files without a fixed width per row.
    """

    size: int
    width: int | None


def read_checkpoint(location: Location, storage: Storage) -> bytes | None:
    """The bytes of `table.size`; None when there is none, or it is unreasonably large."""
    path = f"{location.directory.rstrip('/')}/{layout.TABLE_SIZE}"
    if location.other(layout.TABLE_SIZE) is None:
        return None
    data = storage.read(path, 0, layout.MAX_CHECKPOINT_SIZE + 1)
    return data if len(data) <= layout.MAX_CHECKPOINT_SIZE else None


def plain_count(checkpoint: bytes | None) -> int | None:
    """The row count of a record of version 0; None for other versions and for the count that means unknown."""
    if checkpoint is None or len(checkpoint) != layout.ROW_COUNT_SIZE:
        return None
    count = int.from_bytes(checkpoint, "big", signed=True)
    return count if count >= 0 else None


def heuristic_count(checkpoint: bytes, files: Mapping[str, DataFile]) -> int | None:
    """The row count of a record of a later version, whose layout is not public; None unless everything agrees.

    For every data file that the record names, the size behind the name has to lie within the file; those of a fixed
    width per row have to agree on the number of rows, and the record has to contain that number.

    Args:
        checkpoint: The record.
        files: What the data files can hold, by their names.
    """
    orders: tuple[Literal["big", "little"], ...] = ("big", "little")
    for order in orders:
        counts = set()
        for name, facts in files.items():
            encoded = name.encode("utf-8", "surrogateescape")
            needle = len(encoded).to_bytes(layout.NAME_LENGTH_SIZE, "big") + encoded
            at = checkpoint.find(needle)
            if at < 0:
                continue
            stored = checkpoint[at + len(needle) : at + len(needle) + layout.FILE_SIZE_SIZE]
            size = int.from_bytes(stored, order, signed=True)
            if len(stored) < layout.FILE_SIZE_SIZE or not 0 <= size <= facts.size:
                counts.add(-1)
                break
            if facts.width is not None:
                counts.add(size // facts.width if size % facts.width == 0 else -1)
        if len(counts) == 1 and -1 not in counts:
            count = counts.pop()
            if count.to_bytes(layout.FILE_SIZE_SIZE, order, signed=True) in checkpoint:
                return count
    return None
