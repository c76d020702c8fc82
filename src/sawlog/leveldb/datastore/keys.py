"""Keys of entities, as rows of two tables: one of keys, one of the steps of their paths."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import put_integer
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.numbers import _ONE, _SEVEN, _ZERO
from sawlog.kernels.protobuf import read_field
from sawlog.kernels.signature import Array, Bytes, OutBytes, OutInt32s
from sawlog.kernels.text import find_utf8_end
from sawlog.leveldb.datastore.layout import GROUP_END, find_wire_tag

KEY = make_record_type(
    "project",  # starts and lengths in `data`
    "project_length",
    "database",
    "database_length",
    "namespace",
    "namespace_length",
    "first_step",  # where the steps of the path begin in the table of steps
    "steps",
)
"""A row of the table of keys: one per record."""
STEP = make_record_type("kind", "kind_length", "name", "name_length", "id", "has_id")
"""A row of the table of steps."""


class Keys(NamedTuple):
    """The two tables.

    Attributes:
        keys: `KEY`, a row per record.
        steps: `STEP`, those of all paths.
    """

    keys: Annotated[Any, Array(KEY, writable=True)]
    steps: Annotated[Any, Array(STEP, writable=True)]


_APP = np.uint64(find_wire_tag("Reference", "app"))
_NAME_SPACE = np.uint64(find_wire_tag("Reference", "name_space"))
_DATABASE_ID = np.uint64(find_wire_tag("Reference", "database_id"))
_PATH = np.uint64(find_wire_tag("Reference", "path"))
_ELEMENT = np.uint64(find_wire_tag("Path", "element"))
_ELEMENT_END = np.uint64(_ELEMENT + GROUP_END)
_TYPE = np.uint64(find_wire_tag("Element", "type"))
_STEP_ID = np.uint64(find_wire_tag("Element", "id"))
_STEP_NAME = np.uint64(find_wire_tag("Element", "name"))


STEP_ROOM = 2 + 20
"""Bytes of two slashes and the longest id."""


@inlined
def _read_path(data: Any, pos: Any, end: Any, steps: Any, count: Any) -> Any:
    """Return the steps of a path, appended to the table: how many it has then; -1 for what is out of the ordinary."""
    while pos < end:
        tag, start, pos = read_field(data, pos, end)
        if tag != _ELEMENT or count >= len(steps):
            return -1
        step = steps[count]
        step.kind = step.kind_length = step.name = step.name_length = step.id = step.has_id = 0
        typed = False
        while True:
            tag, start, pos = read_field(data, pos, end)
            if tag == _ELEMENT_END:
                break
            if pos == _ZERO:
                return -1
            if tag == _STEP_ID:
                step.id = np.int64(start)
                step.has_id = 1
            elif tag not in (_TYPE, _STEP_NAME) or find_utf8_end(data, start, pos) != pos:
                return -1
            elif tag == _TYPE:
                step.kind = start
                step.kind_length = pos - start
                typed = True
            else:
                step.name = start
                step.name_length = pos - start
        if not typed:
            return -1
        count += 1
    return count


@inlined
def read_key(data: Any, pos: Any, end: Any, tables: Any, row: Any, count: Any) -> Any:
    """Return a key, into its row of the table: how many steps there are then; -1 for what is out of the ordinary."""
    key = tables.keys[row]
    key.project = key.project_length = key.database = key.database_length = 0
    key.namespace = key.namespace_length = key.steps = 0
    key.first_step = count
    while pos < end:
        tag, start, pos = read_field(data, pos, end)
        if pos == _ZERO:
            return -1
        if tag == _PATH:
            if key.steps > 0:
                return -1
            count = _read_path(data, start, pos, tables.steps, count)
            if count < 0:
                return -1
            key.steps = count - key.first_step
        elif tag not in (_APP, _NAME_SPACE, _DATABASE_ID) or find_utf8_end(data, start, pos) != pos:
            return -1
        elif tag == _NAME_SPACE:
            key.namespace = start
            key.namespace_length = pos - start
        elif tag == _DATABASE_ID:
            key.database = start
            key.database_length = pos - start
        else:
            # A project is named with the partition it lives in: `s~project`.
            for i in range(start, pos):
                if data[i] == 126:
                    start = np.uint64(i) + _ONE
            key.project = start
            key.project_length = pos - start
    return count


@inlined
def has_steps(data: Any, pos: Any, end: Any) -> Any:
    """Return whether the key of a nested entity has a path, or is out of the ordinary."""
    while pos < end:
        tag, start, pos = read_field(data, pos, end)
        if pos == _ZERO or tag & _SEVEN != 2 or (tag == _PATH and pos > start):
            return True
    return False


@kernel
def join_paths(
    data: Bytes, keys: Annotated[Any, Array(KEY)], steps: Annotated[Any, Array(STEP)], out: OutBytes, ends: OutInt32s
) -> None:
    """Join the kinds and the names or ids of each key by slashes.

    Args:
        data: uint8, the entities.
        keys: `KEY`.
        steps: `STEP`.
        out: uint8, with room for all kinds and names, and `STEP_ROOM` more per step.
        ends: int32, as in Arrow.
    """
    pos = _ZERO
    for row in range(len(keys)):
        for i in range(keys[row].steps):
            step = keys[row].first_step + i
            if i > 0:
                out[pos] = 47
                pos += _ONE
            length = np.uint64(steps[step].kind_length)
            copy_bytes(out, pos, data, np.uint64(steps[step].kind), length)
            pos += length
            out[pos] = 47
            pos += _ONE
            length = np.uint64(steps[step].name_length)
            if length > 0:
                copy_bytes(out, pos, data, np.uint64(steps[step].name), length)
                pos += length
            else:
                pos = put_integer(out, pos, np.uint64(steps[step].id))
        ends[row + 1] = pos
