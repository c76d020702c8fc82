"""Rules and state of the walk over containers and records."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from sawlog.chain.kernels import make_record_type, make_state_type
from sawlog.kernels.signature import Array, Bool, Int16s, Int64, Int64s

STATE = make_state_type(
    # The container that is read.
    "container",  # its header, as file offset
    "first",  # its first record
    "end",  # where its records end
    "next",  # where the next container begins
    "time",
    "inside",  # 1 while its records are walked
    "bound",  # where the container ends that hides it; 0 when none is known to
    "expected",  # where a hidden container is known to begin; -1 for nowhere
    "broken",  # where its records ended, or were broken, last: what may be hidden there was looked for
    "ending",  # how the file ends, once that is known: one of `ENDINGS`, or 0
    "step",  # bytes that whole containers take; 0 while unknown
    "counted",  # records so far
    # The pass.
    "value",  # number of the value being read, of a column of them
    "payload_bytes",  # of the rows in hand
    "buckets",  # of histograms, of the rows in hand
)

# What a container turns out to be, besides a `ContainerDamageKind` of damage.
INTACT = 0
UNUSED = -1
"""None: what is there is the unused rest of a container."""

# Endings.
TORN_HEADER = 1
TORN_CONTAINER = 2
"""The file ends before the records of the last container do."""
TORN_REST = 3
"""The last container is whole, and what follows its records may be its unused rest, or not be complete."""

SCHEMA = make_record_type("smallest", "largest")
"""How many bytes the records of a schema have."""

# What a schema ID means, besides the number of a schema to deliver.
UNKNOWN = -1
UNEXPECTED = -2
NOT_WANTED = -3
DOUBTED = -7
"""`DOUBTED - meaning` stands for a meaning where a record begins as headers of containers do: which one is it?"""


class Rules(NamedTuple):
    """Rules by which containers and records are read.

    Attributes:
        plain: Whether records have no schema ID; then all are of schema 0.
        schema_index: int16[65536], per schema ID: the number of its schema, or UNKNOWN, UNEXPECTED or NOT_WANTED;
            or one that is `DOUBTED`.
        schemas: `SCHEMA` records.
        given: Whether the user has said how many bytes whole containers take.
        flagged: int64, the version word of the file's first container.
        bounds: int64, where each value begins, and the last one ends, of a column of values; of files none.
        max_bytes: int64, payload bytes after which no more rows are taken.
        max_buckets: int64, buckets of histograms after which no more rows are taken.
    """

    plain: Bool
    schema_index: Int16s
    schemas: Annotated[Any, Array(SCHEMA)]
    given: Bool
    flagged: Int64
    bounds: Int64s
    max_bytes: Int64
    max_buckets: Int64
