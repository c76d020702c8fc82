"""Keys of several parts and values in protobuf as columns, many entries at a time: drives `protobuf_kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import Column, call_function, compute_offsets, make_array, make_bitmap, view_binary
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import are_bytes_equal
from sawlog.kernels.numbers import _ONE, _ZERO
from sawlog.kernels.signature import Array, Bytes, Int64, Int64s, OutBytes, OutInt32s, OutInt64s
from sawlog.kernels.vector import SLACK, copy_short
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications.protobuf import Messages
from sawlog.leveldb.applications.script_values import to_json
from sawlog.leveldb.applications.view import EPOCH, TextRoom, make_text_array
from sawlog.leveldb.columns import convert_codes

MAX_BYTES = 16 << 20
"""Values that add up to more are left to Python: the room for their text is several times that."""
INTEGER = "integer"
"""The name by which a value is noted down that is an integer in digits."""
_KINDS = tuple(k.KINDS)
_END = (1 << 64) - 1, 0, 0, 0, 0, 0, 0
"""Comes after the fields of a message."""
_SHIFTS = compute_offsets(k.QUICK_BITS)[:-1].tolist()
_QUICK_KINDS = ("int", "uint", "bool", "enum", "text")
"""Of fields that are found by their tags, and the kinds that they have."""


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
        buffers = [make_bitmap(self.are_there(name)), pa.py_buffer(self.select_numbers(name))]
        return pa.Array.from_buffers(pa.int64(), self.captures.words.shape[1], buffers)

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

    def make_text_columns(self, *names: str) -> dict[str, pa.Array]:
        """Return `make_texts` of several names: what is next to each other in values is copied one after the other."""
        measured = [_measure_texts(self.find_texts(name)) for name in names]
        rows, bounds = self.captures.lengths.shape[1], compute_offsets([size + SLACK for _, size in measured])
        out, pos = Column(np.uint8, int(bounds[-1])), bounds[:-1].copy()
        ends = np.empty((len(names), rows + 1), np.int32)
        validity = np.zeros((len(names), (rows + 7) // 8), np.uint8)
        places = np.array([self._places[name] for name in names])
        _copy_columns(self._data, self.captures, places, pos, out.values, ends, validity)
        buffer = out.take(int(bounds[-1]))
        columns = {}
        for i, (name, (count, size)) in enumerate(zip(names, measured, strict=True)):
            text_buffers = [pa.py_buffer(ends[i]), buffer.slice(int(bounds[i]), size)]
            bitmap = pa.py_buffer(validity[i]) if count < rows else None
            columns[name] = pa.Array.from_buffers(pa.string(), rows, [bitmap, *text_buffers], rows - count)
        return columns


def find_texts(column: pa.Array, are_there: NDArray[np.bool_] | None = None) -> k.Texts:
    """Return where the texts of a column are that has no nulls; or some of them."""
    data, offsets = view_binary(column)
    lengths = np.diff(offsets).astype(np.int64)
    return k.Texts(
        data, offsets[:-1].astype(np.int64), lengths if are_there is None else np.where(are_there, lengths, -1)
    )


@inlined
def _append_text(texts: Any, row: Any, out: Any, pos: Any) -> Any:
    """Copy a text; return the position after it."""
    length = np.uint64(texts.lengths[row])
    copy_short(out, pos, texts.data, np.uint64(texts.starts[row]), length)
    return pos + length


@kernel
def _measure_texts(texts: k.Texts) -> tuple[Int64, Int64]:
    """Return how many texts are there, and how many bytes they have.

    Args:
        texts: `Texts`.
    """
    count, size = np.int64(0), np.int64(0)
    for row in range(len(texts.lengths)):
        length = texts.lengths[row]
        count += np.int64(length >= 0)
        size += max(length, np.int64(0))
    return count, size


@kernel
def _combine_texts(
    first: k.Texts, second: k.Texts, separator: Int64, out: OutBytes, ends: OutInt32s, validity: OutBytes
) -> Int64:
    """Copy the first of two texts that is there, or both with a byte between them.

    Args:
        first: `Texts`.
        second: `Texts`, as many or none at all.
        separator: The byte, or -1 for the first one.
        out: uint8, with room for all.
        ends: int32, `ends[i + 1]` becomes the end of text i, and `ends[0]` 0.
        validity: uint8, a bit for each text: whether it is there.

    Returns:
        How many are not there.
    """
    pos = _ZERO
    missing, bits = np.int64(0), np.uint8(0)
    rows = len(first.lengths)
    ends[0] = 0
    for row in range(rows):
        has_first = first.lengths[row] >= 0
        has_second = row < len(second.lengths) and second.lengths[row] >= 0
        is_there = (has_first and has_second) if separator >= 0 else (has_first or has_second)
        if is_there and has_first:
            pos = _append_text(first, row, out, pos)
        if is_there and separator >= 0:
            out[pos] = separator
            pos += _ONE
        if is_there and (separator >= 0 or not has_first):
            pos = _append_text(second, row, out, pos)
        ends[row + 1] = pos
        missing += np.int64(not is_there)
        bits |= np.uint8(is_there) << np.uint8(row & 7)
        if row & 7 == 7 or row == rows - 1:
            validity[row >> 3] = bits
            bits = np.uint8(0)
    return missing


_COPIED_ROWS = 64
"""Rows of a column that are copied before those of the next one."""


@kernel
def _copy_columns(
    data: Bytes,
    captures: k.Captures,
    places: Int64s,
    pos: OutInt64s,
    out: OutBytes,
    ends: Annotated[Any, Array(np.int32, 2, writable=True)],
    validity: Annotated[Any, Array(np.uint8, 2, writable=True)],
) -> None:
    """Copy texts of several columns, some rows of each at a time, whose bytes are near.

    Args:
        data: uint8.
        captures: `Captures`.
        places: int64, by column: its place among them.
        pos: int64, by column: where in `out` its texts begin; then where they end. `SLACK` bytes come after them.
        out: uint8, with room for all.
        ends: int32, by column and row, `ends[i, row + 1]` becomes the end of a text after the first one's beginning.
        validity: uint8, by column: a bit for each text that is there, others are 0.
    """
    count = len(places)
    for i in range(count):
        ends[i, 0] = 0
    rows = captures.lengths.shape[1]
    for first in range(0, rows, _COPIED_ROWS):
        last = min(first + _COPIED_ROWS, rows)
        for i in range(count):
            place, position, end = places[i], pos[i], ends[i, first]
            for row in range(first, last):
                length = captures.lengths[place, row]
                if length >= 0:
                    start = np.uint64(captures.words[place, row])
                    copy_short(out, np.uint64(position), data, start, np.uint64(length))
                    position += length
                    end += length
                    validity[i, row >> 3] |= np.uint8(1 << (row & 7))
                ends[i, row + 1] = end
            pos[i] = position


@kernel
def _match_texts(texts: k.Texts, text: Bytes, are_equal: OutBytes) -> None:
    """Find texts that consist of some bytes.

    Args:
        texts: `Texts`.
        text: uint8, the bytes.
        are_equal: uint8, by row: whether its text is such.
    """
    length = np.uint64(len(text))
    for row in range(len(are_equal)):
        are_equal[row] = np.uint64(texts.lengths[row]) == length and are_bytes_equal(
            texts.data, np.uint64(texts.starts[row]), text, _ZERO, length
        )


_NO_TEXTS = k.Texts(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


def take_texts(*sources: k.Texts, separator: int = -1) -> pa.Array:
    """Return texts as a column, null where there is none.

    Args:
        sources: Of each row, the text of the first source that has it.
        separator: A byte between the texts of two sources that both have one.
    """
    rows = len(sources[0].lengths)
    sizes = [_measure_texts(texts) for texts in sources]
    present = [texts for texts, (count, _) in zip(sources, sizes, strict=True) if count]
    if len(present) < (1 if separator < 0 else 2):
        return pa.nulls(rows, pa.string())
    if len(present) > 2:
        return call_function("coalesce", take_texts(*present[:2]), take_texts(*present[2:]))
    room = sum(size for _, size in sizes) + (rows if separator >= 0 else 0)
    out, ends, validity = Column(np.uint8, room), Column(np.int32, rows + 1), np.empty((rows + 7) // 8, np.uint8)
    missing = _combine_texts(present[0], (*present, _NO_TEXTS)[1], separator, out.values, ends.values, validity)
    buffers = [pa.py_buffer(validity) if missing else None, ends.take(rows + 1), out.take(int(ends.values[-1]))]
    return pa.Array.from_buffers(pa.string(), rows, buffers, missing)


def match_texts(texts: k.Texts, text: bytes) -> NDArray[np.bool_]:
    """Return which texts consist of some bytes."""
    are_equal = np.empty(len(texts.lengths), np.bool_)
    _match_texts(texts, np.frombuffer(text, np.uint8), are_equal.view(np.uint8))
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
        are_of = np.zeros(len(self.patterns), np.bool_)
        for pattern, name in enumerate(self._keys.kinds):
            if name == kind:
                are_of |= self.patterns == pattern
        return are_of


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
        self.is_plain, ends = np.zeros(len(roots), np.bool_), np.zeros(len(roots) + 1, np.int32)
        is_plain = self.is_plain.view(np.uint8)
        rendered, declared = k.Rendered(is_plain, is_plain, ends, self.captures), messages.declared
        scratch = k.make_scratch()
        texts = messages.texts.write(
            size,
            ends,
            lambda out, row: k.render_values(spans, roots, row, declared, rendered._replace(out=out), scratch),
        )
        self._texts = make_text_array(pa.string(), texts, ends)

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
        texts: Room for the texts of values.

    Args:
        messages: Their declarations.
        captures: By the name of a message that is a whole value: names, and the fields that lead to what is noted down
            by them. All messages that are whole values are listed.
        aliases: Names of messages, by those that whole values have in `captures` and `nodes` instead.
        has_integers: Whether values are integers in digits, too, which are noted down as `INTEGER`.
    """

    def __init__(
        self,
        messages: Messages,
        captures: Mapping[str, Mapping[str, tuple[str, ...]]],
        aliases: Mapping[str, str] | None = None,
        *,
        has_integers: bool = False,
    ) -> None:
        self._messages = messages
        self.texts = TextRoom(k.MAX_ROOM, k.MAX_ROW_ROOM)
        names = dict.fromkeys(name for paths in captures.values() for name in paths)
        self.names = [INTEGER, *names] if has_integers or not names else list(names)
        self._numbers: dict[tuple[str, tuple[tuple[tuple[str, ...], int], ...]], int] = {}
        self._fields: list[list[tuple[int, ...]]] = []
        self._captures: list[int] = []
        self._contents: dict[bytes, int] = {}
        self._text = bytearray()
        self._values: list[str] = []
        self._last_values: dict[int, int] = {}
        self.nodes = {
            root: self._add_node(
                (aliases or {}).get(root, root), tuple((path, self.names.index(name)) for name, path in paths.items())
            )
            for root, paths in captures.items()
        }

    @cached_property
    def declared(self) -> k.Declared:
        """Tables that the kernel goes by."""
        rows = [[*fields, _END] for fields in self._fields]
        firsts = compute_offsets(list(map(len, rows)))
        quick = np.zeros((len(rows), k.QUICK_TAGS * k.QUICK_VALUES), np.uint64)
        for node, fields in enumerate(rows):
            for place, field in enumerate(fields, int(firsts[node])):
                if field[0] < k.QUICK_TAGS and not field[2] and _KINDS[field[1]] in _QUICK_KINDS:
                    start = field[0] * k.QUICK_VALUES
                    quick[node, start : start + k.QUICK_VALUES] = self._pack_field(field, place)
        last_values = np.array([self._last_values.get(value, 0) for value in range(len(self._values) + 1)], np.uint64)
        texts = [to_json(value).encode() if value else b"" for value in self._values]
        return k.Declared(
            np.array(list(zip(firsts[:-1], self._captures, strict=True)), k.NODE),
            np.array([field for fields in rows for field in fields], k.FIELD),
            np.frombuffer(bytes(self._text) + bytes(k.SLACK), np.uint8),
            compute_offsets([len(text) for text in texts]).astype(np.uint64),
            last_values,
            np.frombuffer(b"".join(texts), np.uint8),
            quick,
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

    def _pack_field(self, field: tuple[int, ...], place: int) -> list[int]:
        """Return how a field is found, by its value; see `Declared.quick`."""
        _, kind, _, target, name, name_end, capture = field
        texts = [str(value) for value in range(k.QUICK_VALUES - 1)]
        if _KINDS[kind] == "text":
            texts = ['""']
        elif _KINDS[kind] == "bool":
            texts = ["false", *["true"] * (len(texts) - 1)]
        elif _KINDS[kind] == "enum":
            names = self._values[target : self._last_values[target]][: len(texts)]
            texts[: len(names)] = [to_json(value) if value else text for value, text in zip(names, texts, strict=False)]
        packed = []
        for text in [*texts, *[""] * (k.QUICK_VALUES - len(texts))]:
            parts = name, name_end - name, capture, kind, place
            content = bytes(self._text[name:name_end]) + text.encode()
            if text and len(content) < 1 << k.QUICK_BITS[1]:
                parts = self._contents.setdefault(content, len(self._text)), len(content), capture, k.WHOLE, place
                if parts[0] == len(self._text):
                    self._text += content
            packed.append(sum(part << shift for part, shift in zip(parts, _SHIFTS, strict=True)))
        return packed

    def render(self, values: pa.Array | k.Spans, roots: NDArray[np.int64]) -> ValueRows:
        """Render many values.

        Args:
            values: The values.
            roots: By row, the number of a message, or one of `NOTHING` to `UNREAD`.
        """
        spans = values if isinstance(values, k.Spans) else make_spans(values)
        size = int(spans.ends.sum() - spans.starts.sum())
        if size > MAX_BYTES:
            roots, size = np.full(len(roots), k.UNREAD), 0
        return ValueRows(self, spans, np.ascontiguousarray(roots), size)


def make_spans(values: pa.Array) -> k.Spans:
    """Return where the bytes of values are."""
    data, offsets = view_binary(values)
    bounds = offsets.astype(np.int64)
    return k.Spans(data, bounds[:-1], bounds[1:])


_LATEST = (1 << 63) - 1
_DENSE = 32
"""Integers for each number up to which all of them are looked up beforehand."""


@kernel
def _convert_numbers(
    numbers: Int64s, are_there: Bytes, units: Int64s, epochs: Int64s, times: OutInt64s, validity: OutBytes
) -> Int64:
    """Convert numbers to microseconds since 1970.

    Args:
        numbers: int64, by row: the time as it is stored; those that are not positive are none.
        are_there: uint8, by row: whether there is a number.
        units: int64, by row or one of all: its microseconds.
        epochs: int64, likewise: microseconds from when it counts to 1970.
        times: int64, by row.
        validity: uint8, a bit for each row: whether there is a time.

    Returns:
        How many have none.
    """
    missing, bits = np.int64(0), np.uint8(0)
    rows = len(times)
    for row in range(rows):
        number = numbers[row]
        unit, epoch = units[min(row, len(units) - 1)], epochs[min(row, len(epochs) - 1)]
        latest = np.uint64(_LATEST) + np.uint64(epoch)
        if unit != 1:
            latest = latest // np.uint64(unit)
        is_time = are_there[row] != 0 and number > 0 and np.uint64(number) <= latest
        times[row] = number * unit - epoch if is_time else 0
        missing += np.int64(not is_time)
        bits |= np.uint8(is_time) << np.uint8(row & 7)
        if row & 7 == 7 or row == rows - 1:
            validity[row >> 3] = bits
            bits = np.uint8(0)
    return missing


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
    rows = len(numbers)
    units, epochs = (np.ascontiguousarray(bounds, np.int64).reshape(-1) for bounds in (unit, epoch))
    times, validity = Column(np.int64, rows), np.empty((rows + 7) // 8, np.uint8)
    missing = _convert_numbers(numbers, are_there.view(np.uint8), units, epochs, times.values, validity)
    buffers = [pa.py_buffer(validity) if missing else None, times.take(rows)]
    return pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, buffers, missing)


@kernel
def _find_places(numbers: Int64s, keys: Int64s, places: Int64s, table: Int64s, found_places: OutInt64s) -> None:
    """Find the places of numbers.

    Args:
        numbers: int64, by row.
        keys: int64, ascending.
        places: int64, of each key.
        table: int64, the place of each number from the first key to the last, -1 of those that are no keys; or nothing.
        found_places: int64, by row: the place of the key that a number is; -1 where it is none.
    """
    last = len(keys) - 1
    for row in range(len(numbers)):
        number, place = numbers[row], np.int64(-1)
        if last >= 0 and keys[0] <= number <= keys[last]:
            if len(table) > 0:
                place = table[number - keys[0]]
            else:
                low, high = 0, last
                while low < high:
                    middle = (low + high) >> 1
                    if keys[middle] < number:
                        low = middle + 1
                    else:
                        high = middle
                place = places[low] if keys[low] == number else place
        found_places[row] = place


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
        places = self._find(numbers)
        return self._values.take(make_array(places, pa.int64(), places < 0))

    @cached_property
    def _texts(self) -> k.Texts:
        """Return the places of the values, if these are texts."""
        return find_texts(self._values if len(self._values) else make_array([""], self._values.type))

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """Return the places of all integers from the first number to the last, if there are not many of them."""
        span = int(self._numbers[-1]) - int(self._numbers[0]) + 1 if len(self._numbers) else 0
        if span > _DENSE * len(self._numbers):
            return np.empty(0, np.int64)
        table = np.full(span, -1)
        table[self._numbers - self._numbers[:1]] = self._places
        return table

    def _find(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the values that numbers have; -1 where they have none."""
        places = np.empty(len(numbers), np.int64)
        _find_places(numbers, self._numbers, self._places, self._table, places)
        return places

    def find_texts(self, numbers: NDArray[np.int64]) -> k.Texts:
        """Return where the texts are that numbers have."""
        places, texts = self._find(numbers), self._texts
        return k.Texts(texts.data, texts.starts[places], np.where(places >= 0, texts.lengths[places], -1))

    def find(self, number: int) -> Any:
        """Return the value of a number; `None` where it has none."""
        return self.take(np.array([number], np.int64))[0].as_py()
