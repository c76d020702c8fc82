"""What the walk over containers and records goes by, and what it keeps."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import record_type, state_type
from sawlog.kernels.signature import Array, Bool, Int16s, Int64, Int64s, UInt64

STATE = state_type(
    # The container that is being settled, or read.
    "container",  # its header, as file offset
    "length",
    "word",
    "time",
    "phase",
    "first",  # its first record
    "end",  # where its records end
    "next",  # where the next container begins
    "what",  # INTACT, UNUSED, or the `Kind` of damage that its header, or all of it, is
    "ending",  # how the file ends, once that is known: one of `ENDINGS`, or 0
    "step",  # bytes that whole containers take; 0 while unknown
    "counted",  # records of the container so far
    # The search for the next header.
    "mode",  # what it is for
    "begun",  # where it began
    "search",  # where it goes on
    "filled",  # 1 when the search behind the container met a byte other than zero
    "dirty",  # 1 when it met a byte other than zero
    "clear_from",  # from here to `clear_to` no header begins: searched before
    "clear_to",
    "clear_dirty",  # 1 when other bytes than zeros stand there
    "following",  # where a whole container is to end, while it is looked through for others
    "looked",  # places at which a header was searched for
    # Containers that another one hides.
    "bound",  # where that one ends; 0 when none is known to be hidden
    "broken",  # where the records of a container ended, or were broken, last
    "reach",  # where the search for others ends
    "hider",  # the container whose length is wrong, until that is told; -1 for none
    "claimed",  # its length
    # The pass.
    "guesses",  # containers that nothing proves to be whole
    "value",  # number of the value being read, of a column of them
    "payload_bytes",  # of the rows in hand
    "buckets",  # of histograms, of the rows in hand
)

# Phases.
AT_HEADER = 0
AT_END = 1
AT_STEP = 2
SEARCHING = 3
PROBING = 4
"""The container seems to be whole, of another size than those before: does it hold others?"""
SETTLED = 5
"""All is known of it; but the position may not be at its header yet."""
READING = 6
"""The position is at its records."""
HUNTING = 7
"""Its records have ended, or are broken: does it hide another container?"""

# What a container turns out to be, besides a `Kind` of damage.
INTACT = 0
UNUSED = -1
"""None: what stands there is what is left of a container."""

# Endings.
TORN_HEADER = 1
TORN_CONTAINER = 2
"""The file ends before the records of the last container do."""
TORN_REST = 3
"""The last container is whole, and what follows its records may be its unused rest, or not be complete."""

SCHEMA = record_type("smallest", "largest")
"""How many bytes the records of a schema have."""

# What a schema ID means, besides the number of a schema to deliver.
UNKNOWN = -1
UNEXPECTED = -2
NOT_WANTED = -3
DOUBTED = -7
"""`DOUBTED - meaning` stands for a meaning where a record begins as headers of containers do: which one is it?"""


class Rules(NamedTuple):
    """How containers and records are read.

    Attributes:
        plain: Whether records have no schema ID; then all are of schema 0.
        meanings: int16[65536], per schema ID: the number of its schema, or UNKNOWN, UNEXPECTED or NOT_WANTED;
            or one that is `DOUBTED`.
        schemas: `SCHEMA` records.
        given: Whether the user has said how many bytes whole containers take.
        flagged: int64, the version word of the file's first container.
        resumed: int64, where this pass goes on behind another one, which has seen no more of the file; -1 if not.
        near: uint64, how far the window is extended; what stands further off is visited.
        bounds: int64, where each value begins, and the last one ends, of a column of values; of files none.
        records: Whether records are read; else the walk is over containers alone.
        max_bytes: int64, payload bytes behind which no more rows are taken.
        max_buckets: int64, buckets of histograms behind which no more rows are taken.
    """

    plain: Bool
    meanings: Int16s
    schemas: Annotated[Any, Array(SCHEMA)]
    given: Bool
    flagged: Int64
    resumed: Int64
    near: UInt64
    bounds: Int64s
    records: Bool
    max_bytes: Int64
    max_buckets: Int64


def schema_table(sizes: list[tuple[int, int]]) -> Any:
    """`SCHEMA` records of such sizes."""
    table = np.zeros(len(sizes), SCHEMA)
    for at, (smallest, largest) in enumerate(sizes):
        table[at].smallest, table[at].largest = smallest, largest
    return table
