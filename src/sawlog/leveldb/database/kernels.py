"""Merging sorted runs of entries, and which of them a database would answer with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import compare_bytes
from sawlog.kernels.signature import Bool, Bytes, Int64, Int64s, OutBytes, OutInt64s

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
        keys: uint8; key i is `keys[starts[i] : ends[i]]`, with eight bytes after the last one.
        starts: int64.
        ends: int64.
        ranks: int64, higher the newer an entry is of those of its key.
        sequences: int64: range deletions with higher ones delete the entry.
        effects: uint8, what the operation of each does to its key: PUTS, DELETES or MERGES.
    """

    keys: Bytes
    starts: Int64s
    ends: Int64s
    ranks: Int64s
    sequences: Int64s
    effects: Bytes


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
def place_keys(data: Bytes, starts: Int64s, ends: Int64s, versioned: Bool, out: OutBytes, out_ends: OutInt64s) -> None:
    """Write byte strings that compare as keys do in an order that is not that of their bytes.

    What ascends is written with two zeros after it, and zeros as zero and 255, so that what is shorter comes first;
    what descends is written as its complement in the same way, so that what is shorter comes last.

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


@inlined
def _compare(entries: Any, one: Any, two: Any) -> Any:
    return compare_bytes(
        entries.keys, entries.starts[one], entries.ends[one], entries.keys, entries.starts[two], entries.ends[two]
    )


@kernel
def merge_runs(entries: Entries, order: Int64s, first: Int64, middle: Int64, last: Int64, merged: OutInt64s) -> None:
    """Merge two neighbouring runs, `order[first:middle]` and `order[middle:last]`, into `merged[first:last]`.

    Args:
        entries: See `Entries`.
        order: int64, numbers of entries.
        first: int64.
        middle: int64.
        last: int64.
        merged: int64, set.
    """
    left = first
    right = middle
    for at in range(first, last):
        take_left = right == last
        if left < middle and right < last:
            one, two = order[left], order[right]
            compared = _compare(entries, one, two)
            newer = entries.ranks[one] >= entries.ranks[two]
            take_left = compared < 0 or (compared == 0 and newer)
        if take_left:
            merged[at] = order[left]
            left += 1
        else:
            merged[at] = order[right]
            right += 1


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
def sorted_so(entries: Entries, first: Int64, last: Int64) -> Bool:
    """Whether the entries `first` to `last` are a run."""
    for at in range(first + 1, last):
        compared = _compare(entries, at - 1, at)
        if compared > 0 or (compared == 0 and entries.ranks[at - 1] < entries.ranks[at]):
            return False
    return True


@kernel
def resolve(entries: Entries, order: Int64s, covers: Covers, fates: OutBytes) -> Bool:
    """Find the entries a database would answer with.

    Of each key that is the newest entry, unless it deletes, or a range deletion is newer. An entry that merges shows
    those before it, too, up to one that puts or deletes.

    Args:
        entries: See `Entries`.
        order: int64, all entries in key order, newest first where keys are equal.
        covers: See `Covers`.
        fates: uint8 per place in `order`: HIDDEN, SHOWN or GONE; set.

    Returns:
        Whether the order is as it should be; otherwise nothing is reported.
    """
    cover = -1
    open_key = False
    for at in range(len(order)):
        entry = order[at]
        compared = _compare(entries, order[at - 1], entry) if at > 0 else -1
        if compared > 0 or (compared == 0 and entries.ranks[order[at - 1]] < entries.ranks[entry]):
            return False
        if compared != 0:
            open_key = True
            while cover + 1 < len(covers.sequences):
                start, end = covers.starts[cover + 1], covers.starts[cover + 2]
                if compare_bytes(covers.keys, start, end, entries.keys, entries.starts[entry], entries.ends[entry]) > 0:
                    break
                cover += 1
        fates[at] = HIDDEN
        if open_key:
            effect = entries.effects[entry]
            if cover >= 0 and covers.sequences[cover] > entries.sequences[entry]:
                open_key = False
            elif effect == DELETES:
                fates[at] = GONE
                open_key = False
            else:
                fates[at] = SHOWN
                open_key = effect == MERGES
    return True
