"""Keys of entities, as rows of two tables: one of keys, one of the steps of their paths."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.json_text import is_utf8, put_integer
from sawlog.kernels.memory import copy_bytes
from sawlog.kernels.protobuf import delimited, varint
from sawlog.leveldb_log.datastore.layout import GROUP_END, wire_tag

# Columns of the table of keys, an int64 array: per record, starts and lengths in `data`.
PROJECT = 0
DATABASE = 2
NAMESPACE = 4
FIRST_STEP = 6
"""Where the steps of the path begin in the table of steps."""
STEPS = 7
KEY_FIELDS = 8

# Columns of the table of steps.
KIND = 0
NAME = 2
ID = 4
HAS_ID = 5
STEP_FIELDS = 6

_APP = np.uint64(wire_tag("Reference", "app"))
_NAME_SPACE = np.uint64(wire_tag("Reference", "name_space"))
_DATABASE_ID = np.uint64(wire_tag("Reference", "database_id"))
_PATH = np.uint64(wire_tag("Reference", "path"))
_ELEMENT = np.uint64(wire_tag("Path", "element"))
_ELEMENT_END = np.uint64(_ELEMENT + GROUP_END)
_TYPE = np.uint64(wire_tag("Element", "type"))
_STEP_ID = np.uint64(wire_tag("Element", "id"))
_STEP_NAME = np.uint64(wire_tag("Element", "name"))

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SEVEN = np.uint64(7)

STEP_ROOM = 2 + 20
"""Two slashes and the longest id."""


@inlined
def _read_path(data: Any, pos: Any, end: Any, steps: Any, count: Any) -> Any:
    """The steps of a path, appended to the table: how many it has then; -1 for what is out of the ordinary."""
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag != _ELEMENT or count >= len(steps):
            return -1
        for field in range(STEP_FIELDS):
            steps[count, field] = 0
        typed = False
        while True:
            tag, pos = varint(data, pos, end)
            if pos == _ZERO:
                return -1
            if tag == _ELEMENT_END:
                break
            if tag == _STEP_ID:
                value, pos = varint(data, pos, end)
                steps[count, ID] = np.int64(value)
                steps[count, HAS_ID] = 1
            elif tag in (_TYPE, _STEP_NAME):
                start, pos = delimited(data, pos, end)
                if pos == _ZERO or not is_utf8(data, start, pos):
                    return -1
                place = KIND if tag == _TYPE else NAME
                steps[count, place] = start
                steps[count, place + 1] = pos - start
                typed = typed or tag == _TYPE
            else:
                return -1
            if pos == _ZERO:
                return -1
        if not typed:
            return -1
        count += 1
    return count


@inlined
def read_key(data: Any, pos: Any, end: Any, keys: Any, row: Any, steps: Any, count: Any) -> Any:
    """A key, into its row of the table: how many steps there are then; -1 for what is out of the ordinary."""
    for field in range(KEY_FIELDS):
        keys[row, field] = 0
    keys[row, FIRST_STEP] = count
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag not in (_APP, _NAME_SPACE, _DATABASE_ID, _PATH):
            return -1
        start, pos = delimited(data, pos, end)
        if pos == _ZERO:
            return -1
        if tag == _PATH:
            if keys[row, STEPS] > 0:
                return -1
            count = _read_path(data, start, pos, steps, count)
            if count < 0:
                return -1
            keys[row, STEPS] = count - keys[row, FIRST_STEP]
            continue
        if not is_utf8(data, start, pos):
            return -1
        place = NAMESPACE if tag == _NAME_SPACE else (DATABASE if tag == _DATABASE_ID else PROJECT)
        if tag == _APP:
            # A project is named with the partition it lives in: `s~project`.
            for i in range(start, pos):
                if data[i] == 126:
                    start = np.uint64(i) + _ONE
        keys[row, place] = start
        keys[row, place + 1] = pos - start
    return count


@inlined
def has_steps(data: Any, pos: Any, end: Any) -> Any:
    """Whether the key of a nested entity has a path, or is out of the ordinary."""
    while pos < end:
        tag, pos = varint(data, pos, end)
        if pos == _ZERO or tag & _SEVEN != 2:
            return True
        start, pos = delimited(data, pos, end)
        if pos == _ZERO or (tag == _PATH and pos > start):
            return True
    return False


@kernel
def join_paths(data: Any, keys: Any, steps: Any, out: Any, ends: Any) -> None:
    """Kinds and names or ids of each key, joined by slashes.

    Args:
        data: uint8, the entities.
        keys: int64[:, KEY_FIELDS].
        steps: int64[:, STEP_FIELDS].
        out: uint8, with room for all kinds and names, and `STEP_ROOM` more per step.
        ends: int32, as in Arrow.
    """
    pos = _ZERO
    for row in range(len(keys)):
        for i in range(keys[row, STEPS]):
            step = keys[row, FIRST_STEP] + i
            if i > 0:
                out[pos] = 47
                pos += _ONE
            length = np.uint64(steps[step, KIND + 1])
            copy_bytes(out, pos, data, np.uint64(steps[step, KIND]), length)
            pos += length
            out[pos] = 47
            pos += _ONE
            length = np.uint64(steps[step, NAME + 1])
            if length > 0:
                copy_bytes(out, pos, data, np.uint64(steps[step, NAME]), length)
                pos += length
            else:
                pos = put_integer(out, pos, np.uint64(steps[step, ID]))
        ends[row + 1] = pos
