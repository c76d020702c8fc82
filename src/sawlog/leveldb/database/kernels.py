"""Merging sorted runs of entries, and which of them a database would answer with."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import are_bytes_equal, compare_bytes, copy_bytes, load_big_u64
from sawlog.kernels.numbers import _EIGHT, _SIXTEEN, _ZERO
from sawlog.kernels.signature import WRITABLE, Bool, Bytes, Int32s, Int64, Int64s, OutBytes, OutInt64s, UInt64s
from sawlog.kernels.vector import copy_16, copy_short

# What becomes of an entry.
HIDDEN = 0
"""A newer one of the same key, or a deletion, precedes it."""
SHOWN = 1
GONE = 2
"""It is a deletion itself."""

# What an operation does to its key.
PUTS = 0
DELETES = 1
MERGES = 2


class Entries(NamedTuple):
    """Entries of one database, run after run; each run is in key order, and newest first where keys are equal.

    Attributes:
        keys: uint8; key i is `keys[edges[i] : edges[i + 1]]`.
        edges: int64.
        ranks: int64, higher the newer an entry is of those of its key.
        sequences: int64: range deletions with higher ones delete the entry.
        effects: uint8, what the operation of each does to its key: PUTS, DELETES or MERGES.
    """

    keys: Bytes
    edges: Int64s
    ranks: Int64s
    sequences: Int64s
    effects: Bytes


class Order(NamedTuple):
    """Entries in some order.

    Attributes:
        numbers: int64, of the entries.
        words: uint64, of the key of each, see `append_batch`.
    """

    numbers: Int64s
    words: UInt64s


class Covers(NamedTuple):
    """Disjoint ranges of keys, in order, with the newest range deletion of each.

    Attributes:
        keys: uint8.
        starts: int64: cover i begins with the key `keys[starts[i] : starts[i + 1]]` and ends where the next one begins.
        sequences: int64, of the deletion; -1 for none.
    """

    keys: Bytes
    starts: Int64s
    sequences: Int64s


PLACE_GROWTH = 2
"""So many bytes may each byte of a key take in its place."""
PLACE_ROOM = 4
"""Bytes that the place of a key takes besides."""
PLACE_SLACK = 8
"""Bytes after the last place, which comparisons load."""
_LENGTH_BYTE = 1
_SYNTHETIC = 13
"""Bytes of a version with a mark at its end, which does not count."""
_COUNTED = 12
_TIMED = 8
"""Bytes of a version that is a time; the longer one ends in a count, which does not count where it is zero."""


@kernel
def write_places(
    data: Bytes, starts: Int64s, ends: Int64s, versioned: Bool, out: OutBytes, out_ends: OutInt64s
) -> None:
    """Write byte strings that compare as keys do in an order that is not that of their bytes.

    Ascending parts are written with two zeros after them, and zeros in them as 0 and 255: shorter ones come first.
    Of descending parts the complement is written in the same way: shorter ones come last.

    Args:
        data: uint8; key i is `data[starts[i] : ends[i]]`.
        starts: int64.
        ends: int64.
        versioned: Whether keys end in a version, in which they descend, and its length; otherwise they descend.
        out: uint8, with `PLACE_GROWTH` bytes for each of a key, and `PLACE_ROOM` for each key.
        out_ends: int64, one more than keys; string i is `out[out_ends[i] : out_ends[i + 1]]`.
    """
    used = 0
    out_ends[0] = 0
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        split, limit = start, end
        if versioned:
            split = end
            if end > start and np.int64(data[end - 1]) < end - start:
                split = end - np.int64(data[end - 1])
            if split < end:
                limit = end - _LENGTH_BYTE
                if limit - split == _SYNTHETIC:
                    limit -= 1
                if limit - split == _COUNTED:
                    counts = False
                    for place in range(split + _TIMED, limit):
                        counts = counts or data[place] != 0
                    if not counts:
                        limit = split + _TIMED
            for place in range(start, split):
                out[used] = data[place]
                used += 1
                if data[place] == 0:
                    out[used] = 255
                    used += 1
            out[used] = 0
            out[used + 1] = 0
            used += 2
        if split < end or not versioned:
            for place in range(split, limit):
                out[used] = 255 - data[place]
                used += 1
                if data[place] == 0:
                    out[used] = 0
                    used += 1
            out[used] = 255
            out[used + 1] = 255
            used += 2
        out_ends[row + 1] = used


_SHORT = np.uint64(128)


@inlined
def _compare(entries: Any, one: Any, two: Any) -> Any:
    keys, edges = entries.keys, entries.edges
    return compare_bytes(keys, edges[one], edges[one + 1], keys, edges[two], edges[two + 1])


@inlined
def _is_before(entries: Any, one: Any, two: Any) -> Any:
    """Return whether the first of two entries comes first, or may as well as the other."""
    compared = _compare(entries, one, two)
    return compared < 0 or (compared == 0 and entries.ranks[one] >= entries.ranks[two])


@kernel
def merge_runs(
    entries: Entries, order: Order, first: Int64, middle: Int64, last: Int64, merged: Annotated[Order, WRITABLE]
) -> None:
    """Merge two neighbouring runs, the places `first` to `middle` and `middle` to `last` of an order.

    Args:
        entries: See `Entries`.
        order: See `Order`.
        first: int64.
        middle: int64.
        last: int64.
        merged: The same places are set.
    """
    left = first
    right = middle
    for pos in range(first, last):
        takes_left = right == last
        if left < middle and right < last:
            word, other = order.words[left], order.words[right]
            takes_left = word < other
            if word == other:
                takes_left = _is_before(entries, order.numbers[left], order.numbers[right])
        taken = left if takes_left else right
        merged.numbers[pos] = order.numbers[taken]
        merged.words[pos] = order.words[taken]
        left += np.int64(takes_left)
        right += np.int64(not takes_left)


@kernel
def ascend(keys: Bytes, offsets: Int32s, strictly: Bool) -> Bool:
    """Return whether no key, `keys[offsets[i] : offsets[i + 1]]`, is below the previous one; strictly, nor equal."""
    for i in range(1, len(offsets) - 1):
        compared = compare_bytes(keys, offsets[i - 1], offsets[i], keys, offsets[i], offsets[i + 1])
        if compared > 0 or (strictly and compared == 0):
            return False
    return True


@kernel
def find_places(keys: Bytes, offsets: Int64s, first: Int64, places: OutInt64s) -> Int64:
    """Find the entries of a file that are in their place: not before one that is.

    Args:
        keys: uint8; key i is `keys[offsets[i] : offsets[i + 1]]`.
        offsets: int64.
        first: int64, the first entry that is.
        places: int64; from there on set to the entry itself, or to the last one in its place where it is before that.

    Returns:
        The last entry that is in its place.
    """
    last = first
    for at in range(first, len(offsets) - 1):
        start, end = offsets[at], offsets[at + 1]
        if compare_bytes(keys, offsets[last], offsets[last + 1], keys, start, end) <= 0:
            last = at
        places[at] = last
    return last


@kernel
def is_sorted(entries: Entries, first: Int64, last: Int64) -> Bool:
    """Return whether the entries `first` to `last` are a run."""
    for number in range(first + 1, last):
        if not _is_before(entries, number - 1, number):
            return False
    return True


@kernel
def resolve(entries: Entries, order: Order, covers: Covers, fates: OutBytes) -> Bool:
    """Find the entries a database would answer with.

    Of each key that is the newest entry, unless it deletes, or a range deletion is newer. An entry that merges shows
    those before it, too, up to one that puts or deletes.

    Args:
        entries: See `Entries`.
        order: All entries in key order, newest first where keys are equal.
        covers: See `Covers`.
        fates: uint8 per place in `order`: HIDDEN, SHOWN or GONE; set.

    Returns:
        Whether the order is as it should be; otherwise nothing is reported.
    """
    keys, edges = entries.keys, entries.edges
    cover = -1
    open_key = False
    for place in range(len(order.numbers)):
        entry = order.numbers[place]
        compared = -1
        if place > 0:
            word, word_before = order.words[place], order.words[place - 1]
            compared = 1 if word_before > word else -1
            if word_before == word:
                compared = _compare(entries, order.numbers[place - 1], entry)
                if compared == 0 and entries.ranks[order.numbers[place - 1]] < entries.ranks[entry]:
                    return False
            if compared > 0:
                return False
        if compared != 0:
            open_key = True
            while cover + 1 < len(covers.sequences):
                start, end = covers.starts[cover + 1], covers.starts[cover + 2]
                if compare_bytes(covers.keys, start, end, keys, edges[entry], edges[entry + 1]) > 0:
                    break
                cover += 1
        fates[place] = HIDDEN
        if open_key:
            effect = entries.effects[entry]
            if cover >= 0 and covers.sequences[cover] > entries.sequences[entry]:
                open_key = False
            elif effect == DELETES:
                fates[place] = GONE
                open_key = False
            else:
                fates[place] = SHOWN
                open_key = effect == MERGES
    return True


class Batch(NamedTuple):
    """A batch of entries.

    Attributes:
        keys: uint8; key i is `keys[key_offsets[i] : key_offsets[i + 1]]`.
        key_offsets: int32.
        value_offsets: int32, between the values in their own bytes.
        value_sizes: int32, bytes of values with others between them; empty where there are none.
        sequences: int64.
        codes: uint8, the operations.
    """

    keys: Bytes
    key_offsets: Int32s
    value_offsets: Int32s
    value_sizes: Int32s
    sequences: Int64s
    codes: Bytes


class Columns(NamedTuple):
    """The entries of all batches, one after the other.

    Attributes:
        keys: uint8; key i is `keys[edges[i] : edges[i + 1]]`.
        edges: int64.
        value_sizes: int32, bytes.
        sequences: int64.
        codes: uint8, the operations.
        effects: uint8, of the operations: PUTS, DELETES or MERGES.
        batches: int64, the number of the batch of each.
        value_starts: int32, where each value begins in the bytes of its batch.
        numbers: int64, of the entries.
        words: uint64, which compare as keys do, as far as they differ.
    """

    keys: Bytes
    edges: Int64s
    value_sizes: Int32s
    sequences: Int64s
    codes: Bytes
    effects: Bytes
    batches: Int64s
    value_starts: Int32s
    numbers: Int64s
    words: UInt64s


@kernel
def append_batch(
    batch: Batch, number: Int64, first: Int64, shared: Int64, effects: Bytes, columns: Annotated[Columns, WRITABLE]
) -> Bool:
    """Copy a batch to the columns of all, and write words: the eight bytes of each key after those that all share.

    Args:
        batch: The batch.
        number: Its number.
        first: int64, how many entries are before it.
        shared: int64, how many bytes all keys are said to begin with.
        effects: uint8, by operation.
        columns: Room for it; the key before it ends at `edges[first]`.

    Returns:
        Whether its keys do begin as that of the first entry; otherwise the words say nothing.
    """
    keys, rows, length = columns.keys, len(batch.codes), np.uint64(shared)
    start, used = batch.key_offsets[0], columns.edges[first]
    shift = used - start
    copy_bytes(keys, np.uint64(used), batch.keys, np.uint64(start), np.uint64(batch.key_offsets[rows] - start))
    for row in range(rows):
        columns.edges[first + row + 1] = batch.key_offsets[row + 1] + shift
        columns.value_starts[first + row] = batch.value_offsets[row]
        columns.sequences[first + row] = batch.sequences[row]
        columns.codes[first + row] = batch.codes[row]
        columns.effects[first + row] = effects[batch.codes[row]]
        columns.batches[first + row] = number
        columns.numbers[first + row] = first + row
        size = batch.value_offsets[row + 1] - batch.value_offsets[row]
        columns.value_sizes[first + row] = batch.value_sizes[row] if len(batch.value_sizes) else size
    is_shared = True
    pos = np.uint64(used)
    for row in range(first, first + rows):
        end = np.uint64(columns.edges[row + 1])
        if end - pos < length or not are_bytes_equal(keys, pos, keys, _ZERO, length):
            is_shared = False
        columns.words[row] = _make_word(keys, min(pos + length, end), end)
        pos = end
    return is_shared


@inlined
def _make_word(keys: Any, pos: Any, end: Any) -> Any:
    """Return the first eight bytes of a string, zeros where it has none, as a number."""
    if end - pos >= _EIGHT:
        return load_big_u64(keys, pos)
    if pos < end and end >= _EIGHT:  # what is loaded with it of what comes before is shifted out
        return load_big_u64(keys, end - _EIGHT) << (_EIGHT - (end - pos)) * _EIGHT
    word = _ZERO
    for place in range(_EIGHT):
        word = word << _EIGHT | (np.uint64(keys[pos + place]) if pos + place < end else _ZERO)
    return word


@kernel
def measure_entries(columns: Columns, numbers: Int64s, limit: Int64, sizes: OutInt64s) -> Int64:
    """Measure the entries of a batch: at least one, and no more bytes than are allowed.

    Args:
        columns: Of all entries.
        numbers: int64, of those that may be in the batch.
        limit: int64, so many bytes of keys and values are allowed.
        sizes: int64, set to the bytes of keys and of values.

    Returns:
        How many entries there are.
    """
    place, keys, values = 0, 0, 0
    while place < len(numbers):
        number = numbers[place]
        key, value = columns.edges[number + 1] - columns.edges[number], columns.value_sizes[number]
        if place and keys + values + key + value > limit:
            break
        keys += key
        values += value
        place += 1
    sizes[0], sizes[1] = keys, values
    return place


class Picked(NamedTuple):
    """Columns of some entries; those without room are not wanted.

    Attributes:
        keys: uint8.
        key_ends: int32, one more than there are entries, like those of values.
        value_ends: int32.
        sequences: int64.
        codes: uint8, the operations.
    """

    keys: Bytes
    key_ends: Int32s
    value_ends: Int32s
    sequences: Int64s
    codes: Bytes


@kernel
def pick_entries(columns: Columns, numbers: Int64s, picked: Annotated[Picked, WRITABLE]) -> None:
    """Copy all of some entries but their values, which have to be looked up.

    Args:
        columns: Of all entries.
        numbers: int64, of those that are copied.
        picked: Room for them.
    """
    if len(picked.key_ends):
        used = _ZERO
        picked.key_ends[0] = 0
        for place in range(len(numbers)):
            number = numbers[place]
            start = np.uint64(columns.edges[number])
            length = np.uint64(columns.edges[number + 1]) - start
            copy_short(picked.keys, used, columns.keys, start, length)
            used += length
            picked.key_ends[place + 1] = used
    if len(picked.value_ends):
        end = np.int32(0)
        picked.value_ends[0] = 0
        for place in range(len(numbers)):
            end += columns.value_sizes[numbers[place]]
            picked.value_ends[place + 1] = end
    if len(picked.sequences):
        for place in range(len(numbers)):
            picked.sequences[place] = columns.sequences[numbers[place]]
    if len(picked.codes):
        for place in range(len(numbers)):
            picked.codes[place] = columns.codes[numbers[place]]


_TOGETHER = 8
"""The values of so many batches are together in `Values`."""


@kernel
def sort_by_batch(
    numbers: Int64s, batches: Int64s, sorted_numbers: OutInt64s, places: OutInt64s, ends: OutInt64s
) -> None:
    """Sort entries that are delivered by the `Values` that their batches are in.

    Args:
        numbers: int64, of the entries.
        batches: int64, of each entry of all its batch.
        sorted_numbers: int64, set to the entries of the first `Values`, then to those of the next.
        places: int64, set to where each of these is delivered.
        ends: int64, where the entries of each `Values` end in these; set, and begins with zeros.
    """
    for place in range(len(numbers)):
        ends[batches[numbers[place]] // _TOGETHER] += 1
    used = 0
    for group in range(len(ends)):
        count = ends[group]
        ends[group] = used
        used += count
    for place in range(len(numbers)):
        number = numbers[place]
        group = batches[number] // _TOGETHER
        sorted_numbers[ends[group]] = number
        places[ends[group]] = place
        ends[group] += 1


class Values(NamedTuple):
    """The bytes of the values of some batches, which one call copies."""

    first: Bytes
    second: Bytes
    third: Bytes
    fourth: Bytes
    fifth: Bytes
    sixth: Bytes
    seventh: Bytes
    eighth: Bytes


@always_inlined
def _copy_exactly(target: Any, pos: Any, source: Any, start: Any, length: Any) -> None:
    """Copy a string that is mostly short, and leave what is after it as it is."""
    if length < _SIXTEEN or length > _SHORT:
        copy_bytes(target, pos, source, start, length)
        return
    done = _ZERO
    while done + _SIXTEEN < length:
        copy_16(target, pos + done, source, start + done)
        done += _SIXTEEN
    copy_16(target, pos + length - _SIXTEEN, source, start + length - _SIXTEEN)


@kernel
def put_values(values: Values, columns: Columns, numbers: Int64s, places: Int64s, ends: Int32s, out: OutBytes) -> None:
    """Copy the values of some batches to their places.

    Args:
        values: Of these batches.
        columns: Of all entries.
        numbers: int64, of the entries.
        places: int64, where each is delivered; empty: one after the other.
        ends: int32: what is delivered at place i ends at `ends[i + 1]`.
        out: uint8, room for all.
    """
    for i in range(len(numbers)):
        number = numbers[i]
        place = places[i] if len(places) else i
        start, length = np.uint64(columns.value_starts[number]), np.uint64(columns.value_sizes[number])
        _copy_exactly(out, np.uint64(ends[place]), values[columns.batches[number] % _TOGETHER], start, length)
