"""Plain entities as columns, without an object for each: drives the kernels, and leaves the others to the library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, compute_offsets, make_bitmap, make_fixed_array
from sawlog.kernels.columns import gather_bytes
from sawlog.kernels.json_text import fill_numbers
from sawlog.leveldb.datastore import kernels as k
from sawlog.leveldb.datastore import keys
from sawlog.leveldb.records.kernels import Strings

MAX_BYTES = 16 << 20
"""Entities that add up to more are left to the library: the room for their text is several times that."""

_ROOM = 6
"""Bytes of text that a byte of an entity makes at the most."""
_SLACK = 4096
_DOUBLE_BYTES = 9
"""A double with its tag."""
_STEP_BYTES = 4
"""The least that a step of a path takes: two tags, a kind's tag and its length."""


class PlainEntities:
    """The plain entities among some, and their columns.

    Args:
        data: uint8, the entities.
        offsets: int32, entity i is `data[offsets[i] : offsets[i + 1]]`.

    Attributes:
        plain: uint8, 1 for each entity that is one of them.
        signatures: uint64; plain entities that agree in it have the same properties of the same types.
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
        rows = len(offsets) - 1
        size = int(offsets[-1] - offsets[0])
        self._data = data
        self._text = np.empty(_ROOM * size + _SLACK, np.uint8)
        self._ends = np.zeros(rows + 1, np.int64)
        slots = np.empty(size // _DOUBLE_BYTES + 2, np.int64)
        doubles = np.empty(len(slots), np.uint64)
        self._keys = np.empty(rows, keys.KEY)
        self._steps = np.empty(size // _STEP_BYTES + 1, keys.STEP)
        self.plain = np.zeros(rows, np.uint8)
        self.signatures = np.zeros(rows, np.uint64)
        used, steps = k.render_entities(
            Strings(data, offsets),
            k.Rendered(self._text, self._ends, slots, doubles, self.plain, self.signatures),
            keys.Keys(self._keys, self._steps),
            k.make_scratch(),
        )
        self._slots = slots[:used]
        self._doubles = doubles[:used].view(np.float64)
        self._steps = self._steps[:steps]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return the indexes of the plain entities."""
        return np.flatnonzero(self.plain)

    @cached_property
    def _key_fields(self) -> NDArray[np.void]:
        return _take(self._keys, self.rows)

    def make_column(self, name: str) -> pa.Array:
        """Return a column of `ENTITIES_SCHEMA`, of the plain entities only."""
        return self._columns[name](self)

    def select_samples(self, known_signatures: set[int]) -> NDArray[np.int64]:
        """Return the indexes of entities that together have the properties of all.

        Those that are not plain, and the first of each signature that is not in `known_signatures`, to
        which it is then added.
        """
        signatures, first = np.unique(self.signatures[self.rows], return_index=True)
        fresh = [
            place
            for place, signature in zip(first.tolist(), signatures.tolist(), strict=True)
            if signature not in known_signatures
        ]
        known_signatures.update(signatures.tolist())
        return np.sort(np.concatenate([np.flatnonzero(self.plain == 0), self.rows[fresh]]))

    def _make_properties(self) -> pa.Array:
        import orjson

        numbers = orjson.dumps(self._doubles, option=orjson.OPT_SERIALIZE_NUMPY)
        out, ends = fill_numbers(self._text, self._ends, self._slots, numbers)
        # Entities that are not plain have empty texts.
        ends = np.append(ends[:1], ends[1:][self.rows])
        return pa.Array.from_buffers(pa.string(), len(self.rows), [None, pa.py_buffer(ends), out.take(int(ends[-1]))])

    def _make_slices(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], valid: NDArray[np.bool_] | None
    ) -> pa.Array:
        starts, lengths = np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
        return pa.Array.from_buffers(
            pa.string(), len(starts), [make_bitmap(valid), *gather_bytes(self._data, starts, lengths)]
        )

    def _make_part(self, name: str) -> pa.Array:
        return self._make_slices(self._key_fields[name], self._key_fields[f"{name}_length"], None)

    @cached_property
    def _last_steps(self) -> NDArray[np.void]:
        return _take(self._steps, self._key_fields["first_step"] + self._key_fields["steps"] - 1)

    def _make_kinds(self, steps: NDArray[np.void]) -> pa.Array:
        return self._make_slices(steps["kind"], steps["kind_length"], None)

    def _make_names(self, steps: NDArray[np.void]) -> pa.Array:
        return self._make_slices(steps["name"], steps["name_length"], steps["name_length"] > 0)

    def _make_ids(self, steps: NDArray[np.void], valid: NDArray[np.bool_]) -> pa.Array:
        ids = make_fixed_array(pa.int64(), np.ascontiguousarray(steps["id"]))
        return pa.Array.from_buffers(pa.int64(), len(steps), [make_bitmap(valid), ids.buffers()[1]])

    def _make_paths(self) -> pa.Array:
        counts = self._key_fields["steps"]
        ends = compute_offsets(counts, np.int32)
        # Steps of entities that are not plain were taken back, so those that are left lie one behind the other.
        steps = self._steps
        children = [self._make_kinds(steps), self._make_ids(steps, steps["has_id"] > 0), self._make_names(steps)]
        elements = pa.StructArray.from_arrays(children, fields=list(PATH_TYPE.value_type))
        return pa.Array.from_buffers(PATH_TYPE, len(counts), [None, pa.py_buffer(ends)], children=[elements])

    def _join_paths(self) -> pa.Array:
        steps = self._steps
        size = int(steps["kind_length"].sum() + steps["name_length"].sum()) + keys.STEP_ROOM * len(steps)
        out, ends = Column(np.uint8, size), np.zeros(len(self.rows) + 1, np.int32)
        keys.join_paths(self._data, self._key_fields, steps, out.values, ends)
        return pa.Array.from_buffers(pa.string(), len(self.rows), [None, pa.py_buffer(ends), out.take(int(ends[-1]))])

    _columns: ClassVar[dict[str, Callable[[PlainEntities], pa.Array]]] = {
        "project": lambda self: self._make_part("project"),
        "database": lambda self: self._make_part("database"),
        "namespace": lambda self: self._make_part("namespace"),
        "kind": lambda self: self._make_kinds(self._last_steps),
        "id": lambda self: self._make_ids(
            self._last_steps, (self._last_steps["has_id"] > 0) & (self._last_steps["name_length"] == 0)
        ),
        "name": lambda self: self._make_names(self._last_steps),
        "key": _join_paths,
        "path": _make_paths,
        "properties": _make_properties,
    }


def _take(table: NDArray[np.void], rows: NDArray[np.int64]) -> NDArray[np.void]:
    """Return rows of a table of records, as numbers: NumPy takes records one by one."""
    records: NDArray[np.void] = (
        table.view(np.int64).reshape(-1, table.dtype.itemsize // 8)[rows].view(table.dtype)[:, 0]
    )
    return records


PATH_TYPE = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [pa.field("kind", pa.string(), nullable=False), pa.field("id", pa.int64()), pa.field("name", pa.string())]
        ),
        nullable=False,
    )
)
"""The path of a key: its steps, ancestors first."""
