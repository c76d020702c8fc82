"""Keys of several parts and values in protobuf as columns, many entries at a time: drives `protobuf_kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, call_function, compute_offsets, make_array, make_bitmap, view_binary
from sawlog.kernels.columns import gather_bytes
from sawlog.kernels.json_text import fill_numbers
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications.protobuf import Messages
from sawlog.leveldb.applications.script_values import to_json
from sawlog.leveldb.applications.view import EPOCH, make_text_array
from sawlog.leveldb.columns import convert_codes

MAX_BYTES = 16 << 20
"""Values that add up to more are left to Python: the room for their text is several times that."""
INTEGER = "integer"
"""The name by which a value is noted down that is an integer in digits."""
_KINDS = tuple(k.KINDS)
_END = (1 << 64) - 1, 0, 0, 0, 0, 0, 0
"""Comes after the fields of a message."""
_SLOT_BYTES = 4
"""The least that a double takes: a float32."""
_ROW_BYTES = 16
_MARGIN = 9 / 8
"""How much more room there is for text than the last values took, by their bytes and `_ROW_BYTES` for each."""


class Captured:
    """Numbers and texts that kernels have noted down of many keys or values, by name.

    Attributes:
        captures: Where kernels write to.

    Args:
        names: The names.
        data: The bytes of keys or values.
        rows: How many there are.
    """

    def __init__(self, names: Sequence[str], data: NDArray[np.uint8], rows: int) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._data = data
        shape = len(names), rows
        self.captures = k.Captures(*(Column(np.int64, len(names) * rows).values.reshape(shape) for _ in range(2)))

    def select_numbers(self, name: str) -> NDArray[np.int64]:
        """Return the numbers of a name; see `are_there`."""
        numbers: NDArray[np.int64] = self.captures.words[self._places[name]]
        return numbers

    def are_there(self, name: str) -> NDArray[np.bool_]:
        """Return which rows have something by a name."""
        are_there: NDArray[np.bool_] = self.captures.lengths[self._places[name]] >= 0
        return are_there

    def make_integers(self, name: str) -> pa.Array:
        """Return the numbers of a name as a column, null where there is none."""
        return make_array(self.select_numbers(name), pa.int64(), ~self.are_there(name))

    def select_lengths(self, name: str) -> NDArray[np.int64]:
        """Return how many bytes texts have; -1 where there is none."""
        lengths: NDArray[np.int64] = self.captures.lengths[self._places[name]]
        return lengths

    def find_spans(self, name: str) -> k.Spans:
        """Return where texts are; empty ones for those that are not there."""
        starts = self.select_numbers(name)
        return k.Spans(self._data, starts, starts + np.maximum(self.select_lengths(name), 0))

    def find_texts(self, name: str) -> k.Texts:
        """Return where texts are."""
        return k.Texts(self._data, self.select_numbers(name), self.select_lengths(name))

    def make_texts(self, name: str) -> pa.Array:
        """Return texts as a column, null where there is none."""
        return take_texts(self.find_texts(name))


def find_texts(column: pa.Array, are_there: NDArray[np.bool_] | None = None) -> k.Texts:
    """Return where the texts of a column are that has no nulls; or some of them."""
    data, offsets = view_binary(column)
    lengths = np.diff(offsets).astype(np.int64)
    return k.Texts(
        data, offsets[:-1].astype(np.int64), lengths if are_there is None else np.where(are_there, lengths, -1)
    )


def take_texts(*sources: k.Texts, separator: int = -1) -> pa.Array:
    """Return texts as a column, null where there is none.

    Args:
        sources: Of each row, the text of the first source that has it.
        separator: A byte between the texts of two sources that both have one.
    """
    present = [texts for texts in sources if (texts.lengths >= 0).any()]
    rows = len(sources[0].lengths)
    if len(present) < (1 if separator < 0 else 2):
        return pa.nulls(rows, pa.string())
    if len(present) > 2:
        return call_function("coalesce", take_texts(*present[:2]), take_texts(*present[2:]))
    are_there = [texts.lengths >= 0 for texts in present]
    if len(present) == 1:
        ends, data = gather_bytes(present[0].data, present[0].starts, np.maximum(present[0].lengths, 0))
        return pa.Array.from_buffers(pa.string(), rows, [make_bitmap(are_there[0]), ends, data])
    size = sum(int(texts.lengths.sum(where=have)) for texts, have in zip(present, are_there, strict=True))
    out, ends = Column(np.uint8, size + rows), np.zeros(rows + 1, np.int32)
    k.combine_texts(*present, separator, out.values, ends)
    return make_text_array(
        pa.string(), out, ends, np.logical_or(*are_there) if separator < 0 else np.logical_and(*are_there)
    )


def match_texts(texts: k.Texts, text: bytes) -> NDArray[np.bool_]:
    """Return which texts consist of some bytes."""
    are_equal: NDArray[np.bool_] = texts.lengths == len(text)
    rows = np.flatnonzero(are_equal)
    data = texts.data[texts.starts[rows, np.newaxis] + np.arange(len(text))]
    are_equal[rows] = (data == np.frombuffer(text, np.uint8)).all(axis=1)
    return are_equal


class KeyPart(NamedTuple):
    """Part of a key.

    Attributes:
        name: What it is noted down as.
        kind: Which bytes it may have: see `protobuf_kernels.PART_KINDS`.
        separator: The byte that ends it; empty for the last one.
    """

    name: str
    kind: str = "text"
    separator: bytes = b""


class KeyPattern(NamedTuple):
    """Keys that begin alike.

    Attributes:
        prefix: With which bytes.
        kind: What the view calls their entries.
        parts: What follows; a key without parts is nothing but the prefix.
        root: The message that values are, or one of `NOTHING` to `UNREAD`.
        group: Which rows it is for; see `KeyPatterns.read`.
    """

    prefix: bytes
    kind: str
    parts: tuple[KeyPart, ...] = ()
    root: str | int = k.UNREAD
    group: int = 0


class KeyRows(Captured):
    """Keys that were read.

    Attributes:
        patterns: uint8, the number of each key's pattern plus one; 0 for keys that are left to Python.
    """

    def __init__(self, keys: KeyPatterns, spans: k.Spans, groups: NDArray[np.uint8]) -> None:
        super().__init__(keys.names, spans.data, len(spans.starts))
        self._keys = keys
        self.patterns = np.empty(len(spans.starts), np.uint8)
        k.read_keys(spans, groups, keys.tables, self.patterns, self.captures)

    @property
    def roots(self) -> NDArray[np.int64]:
        """Numbers of the messages that values are; see `MessageRows.render`."""
        return self._keys.roots[self.patterns]

    @property
    def kinds(self) -> pa.Array:
        """The column of kinds."""
        return convert_codes(self.patterns, self._keys.kinds)

    def are_of(self, kind: str) -> NDArray[np.bool_]:
        """Return which keys are of a kind."""
        return np.array([name == kind for name in self._keys.kinds])[self.patterns]


class KeyPatterns:
    """Patterns of the keys of an application, or of values that are not messages.

    A key is read by the first pattern that it begins with, or a later one with the same prefix that fits.

    Attributes:
        names: Names of parts.
        kinds: Names of kinds, after one for keys that are left to Python.
        tables: What the kernel goes by.

    Args:
        patterns: The patterns.
        messages: What values are made of, if any are messages.
    """

    def __init__(self, patterns: Sequence[KeyPattern], messages: MessageRows) -> None:
        groups = [pattern.group for pattern in patterns]
        self.names = list(dict.fromkeys(part.name for pattern in patterns for part in pattern.parts)) or [INTEGER]
        self.kinds = ("", *(pattern.kind for pattern in patterns))
        self._messages = messages
        self._roots = [pattern.root for pattern in patterns]
        prefixes = compute_offsets([len(pattern.prefix) for pattern in patterns])
        parts = compute_offsets([len(pattern.parts) for pattern in patterns])
        words = [int.from_bytes(pattern.prefix[:8], "little") for pattern in patterns]
        masks = [(1 << 8 * min(len(pattern.prefix), 8)) - 1 for pattern in patterns]
        rows = list(zip(prefixes[:-1], prefixes[1:], words, masks, parts[:-1], parts[1:], groups, strict=True))
        part_rows = [
            (k.PART_KINDS.index(part.kind), part.separator[0] if part.separator else -1, self.names.index(part.name))
            for pattern in patterns
            for part in pattern.parts
        ]
        data = np.frombuffer(b"".join(pattern.prefix for pattern in patterns), np.uint8)
        self.tables = k.Patterns(np.array(rows, k.PATTERN), np.array(part_rows, k.PART), data)

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """By pattern plus one: the node of the message that values are, or what they are instead."""
        nodes = [self._messages.nodes[root] if isinstance(root, str) else root for root in self._roots]
        return np.array([k.UNREAD, *nodes], np.int64)

    def read(self, keys: pa.Array | k.Spans, groups: NDArray[np.uint8] | None = None) -> KeyRows:
        """Read many keys.

        Args:
            keys: The keys.
            groups: By row, the group of patterns that count; `None`: group 0 for all.
        """
        spans = keys if isinstance(keys, k.Spans) else make_spans(keys)
        return KeyRows(self, spans, np.zeros(len(spans.starts), np.uint8) if groups is None else groups)


class ValueRows(Captured):
    """Values that were rendered.

    Attributes:
        is_plain: Which are; the others are left to Python.
    """

    def __init__(self, messages: MessageRows, spans: k.Spans, roots: NDArray[np.int64], size: int) -> None:
        super().__init__(messages.names, spans.data, len(roots))
        rows, basis = len(roots), size + _ROW_BYTES * len(roots)
        is_plain, ends = np.zeros(rows, np.uint8), np.zeros(rows + 1, np.int64)
        slots, doubles = np.empty(size // _SLOT_BYTES + 1, np.int64), np.empty(size // _SLOT_BYTES + 1, np.uint64)
        scratch, row = k.make_scratch(), 0
        limit = k.MAX_ROOM * size + k.MAX_ROW_ROOM * (rows + 1)
        out = Column(np.uint8, min(int(messages.growth * basis) + k.MAX_ROW_ROOM, limit))
        while True:
            rendered = k.Rendered(is_plain, out.values, ends, slots, doubles, self.captures)
            row = k.render_values(spans, roots, row, messages.declared, rendered, scratch)
            if row == rows:
                break
            used, room = int(ends[row]), len(out.values)
            if room == limit:
                roots[row] = k.UNREAD
            else:
                full, out = out, Column(np.uint8, min(max(2 * room, int(_MARGIN * used * rows / max(row, 1))), limit))
                out.values[:used] = full.values[:used]
        messages.growth = _MARGIN * max(ends[-1] / max(basis, 1), 1)
        self.is_plain = is_plain != 0
        if count := int(scratch.state[0]["slots"]):
            numbers = to_json(doubles[:count].view(np.float64).tolist()).encode()
            self._texts = make_text_array(pa.string(), *fill_numbers(out.values, ends, slots[:count], numbers))
        else:
            self._texts = make_text_array(pa.string(), out, ends.astype(np.int32))

    def make_values(self, are_shown: NDArray[np.bool_] | None = None) -> pa.Array:
        """Return the texts as a column: null where nothing is shown, and empty where a value is left to Python."""
        return pa.Array.from_buffers(
            pa.string(), len(self._texts), [make_bitmap(are_shown), *self._texts.buffers()[1:]]
        )

    def find_values(self, are_shown: NDArray[np.bool_]) -> k.Texts:
        """Return where the texts are that are shown."""
        return find_texts(self._texts, are_shown)


class MessageRows:
    """Messages of protobuf, and what is noted down of them besides their text.

    Attributes:
        names: What numbers and texts are noted down as.
        nodes: By the name of a message that is a whole value: its number for the kernel.
        declared: What the kernel goes by.
        growth: Bytes of text that there is room for at first, by those of values: more than the last ones took.

    Args:
        messages: Their declarations.
        captures: By the name of a message that is a whole value: names, and the fields that lead to what is noted down
            by them. All messages that are whole values are listed.
        aliases: Names of messages, by those that whole values have in `captures` and `nodes` instead.
    """

    def __init__(
        self,
        messages: Messages,
        captures: Mapping[str, Mapping[str, tuple[str, ...]]],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._messages = messages
        self.growth = 2.0
        self.names = list(dict.fromkeys([INTEGER, *(name for paths in captures.values() for name in paths)]))
        self._numbers: dict[tuple[str, tuple[tuple[tuple[str, ...], int], ...]], int] = {}
        self._fields: list[list[tuple[int, ...]]] = []
        self._captures: list[int] = []
        self._text = bytearray()
        self._values: list[str] = []
        self._last_values: dict[int, int] = {}
        self.nodes = {
            root: self._add_node(
                (aliases or {}).get(root, root), tuple((path, self.names.index(name)) for name, path in paths.items())
            )
            for root, paths in captures.items()
        }
        rows = [[*fields, _END] for fields in self._fields]
        firsts = compute_offsets(list(map(len, rows)))
        quick = np.zeros((len(rows), k.QUICK_TAGS), np.uint16)
        for node, fields in enumerate(rows):
            for place, (tag, kind, is_repeated, *_) in enumerate(fields, 1):
                if tag < k.QUICK_TAGS and not is_repeated and _KINDS[kind] in k.QUICK_KINDS:
                    quick[node, tag] = firsts[node] + place
        last_values = np.array([self._last_values.get(value, 0) for value in range(len(self._values) + 1)], np.uint64)
        texts = [to_json(value).encode() if value else b"" for value in self._values]
        self.declared = k.Declared(
            np.array(list(zip(firsts[:-1], self._captures, strict=True)), k.NODE),
            np.array([field for fields in rows for field in fields], k.FIELD),
            np.frombuffer(bytes(self._text) + bytes(k.SLACK), np.uint8),
            compute_offsets([len(text) for text in texts]).astype(np.uint64),
            last_values,
            np.frombuffer(b"".join(texts), np.uint8),
            quick.ravel(),
        )

    def _add_node(self, message: str, paths: tuple[tuple[tuple[str, ...], int], ...]) -> int:
        """Return the number of a message of which some fields are noted down, by the fields that lead to them."""
        node = self._numbers.setdefault((message, paths), len(self._fields))
        if node < len(self._fields):
            return node
        rows: list[tuple[int, ...]] = []
        self._fields.append(rows)
        self._captures.append(sum(1 << slot for _, slot in paths))
        declared = self._messages.fields.get(message, {})
        fields = sorted(declared.items())
        names = [field.name for _, field in fields]
        for index, (number, field) in enumerate(fields):
            below = tuple((path[1:], slot) for path, slot in paths if path[0] == field.name)
            kind, target = field.kind, 0
            if field.kind in self._messages.fields:
                kind, target = "message", self._add_node(field.kind, tuple(deeper for deeper in below if deeper[0]))
            elif field.kind == "enum":
                target = len(self._values)
                self._values += field.values
                self._last_values[target] = len(self._values)
            if kind not in k.KINDS or field.name in names[index + 1 :]:  # of fields of one name, the last is usual
                kind = "other"
            start = len(self._text)
            self._text += f',"{field.name}":'.encode()
            capture = next((slot + 1 for path, slot in below if not path and kind in ("int", "uint", "text")), 0)
            tag = number << 3 | k.KINDS[kind]
            bounds = start, len(self._text)
            rows.append((tag, _KINDS.index(kind), field.is_repeated, target, *bounds, capture))
        return node

    def render(self, values: pa.Array | k.Spans, roots: NDArray[np.int64]) -> ValueRows:
        """Render many values.

        Args:
            values: The values.
            roots: By row, the number of a message, or one of `NOTHING` to `UNREAD`.
        """
        spans = values if isinstance(values, k.Spans) else make_spans(values)
        size = int((spans.ends - spans.starts).sum())
        if size > MAX_BYTES:
            roots, size = np.full(len(roots), k.UNREAD), 0
        return ValueRows(self, spans, np.array(roots), size)


def make_spans(values: pa.Array) -> k.Spans:
    """Return where the bytes of values are."""
    data, offsets = view_binary(values)
    bounds = offsets.astype(np.int64)
    return k.Spans(data, bounds[:-1], bounds[1:])


_LATEST = (1 << 63) - 1
_DENSE = 32
"""Integers for each number up to which all of them are looked up beforehand."""


def convert_times(
    numbers: NDArray[np.int64], are_there: NDArray[np.bool_], unit: Any = 1, epoch: Any = EPOCH
) -> pa.Array:
    """Return `microseconds` of many numbers.

    Args:
        numbers: The times as they are stored.
        are_there: Which of them are.
        unit: Their microseconds, of all or by row.
        epoch: Microseconds from their beginning to 1970, likewise.
    """
    latest = np.minimum((_LATEST + np.asarray(epoch).astype(np.uint64)) // np.asarray(unit).astype(np.uint64), _LATEST)
    are_set = are_there & (numbers > 0) & (numbers <= latest.astype(np.int64))
    return make_array(numbers * unit - epoch, pa.int64(), ~are_set).view(pa.timestamp("us", "UTC"))


class Lookup:
    """Values of numbers.

    Args:
        numbers: The numbers; of those that come twice, the first counts.
        values: A value for each.
    """

    def __init__(self, numbers: NDArray[np.int64], values: pa.Array) -> None:
        self._numbers, self._places = np.unique(numbers, return_index=True)
        self._values = values

    def take(self, numbers: NDArray[np.int64]) -> pa.Array:
        """Return the values that numbers have, as a column; null where they have none."""
        places, have_values = self._find(numbers)
        return self._values.take(make_array(places, pa.int64(), ~have_values))

    @cached_property
    def _texts(self) -> k.Texts:
        """Return the places of the values, if these are texts."""
        return find_texts(self._values if len(self._values) else make_array([""], self._values.type))

    @cached_property
    def _ranks(self) -> NDArray[np.int64] | None:
        """Return the places of all integers from the first number to the last among the numbers, if these are dense."""
        first, last = int(self._numbers[0]), int(self._numbers[-1])
        return (
            np.searchsorted(self._numbers, np.arange(first, last + 1))
            if last - first < _DENSE * len(self._numbers)
            else None
        )

    def _find(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return which values numbers have, and whether they have any."""
        if not len(self._numbers):
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)
        clipped = np.clip(numbers, self._numbers[0], self._numbers[-1])
        ranks = (
            np.searchsorted(self._numbers, clipped) if self._ranks is None else self._ranks[clipped - self._numbers[0]]
        )
        return self._places[ranks], self._numbers[ranks] == numbers

    def find_texts(self, numbers: NDArray[np.int64]) -> k.Texts:
        """Return where the texts are that numbers have."""
        places, have_values = self._find(numbers)
        texts = self._texts
        return k.Texts(texts.data, texts.starts[places], np.where(have_values, texts.lengths[places], -1))

    def find(self, number: int) -> Any:
        """Return the value of a number; `None` where it has none."""
        return self.take(np.array([number], np.int64))[0].as_py()
