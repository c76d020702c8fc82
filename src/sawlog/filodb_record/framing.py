"""Framing: where each container of a file begins, where its records end, and where the next one begins. Section 4.

Headers carry no magic number and whole containers no size, so what is doubtful is resolved by looking for the next
header. Kernels walk from container to container while nothing is doubtful; all else is judged here, in plain Python
that sees the whole file. The answer depends only on the bytes, never on where a window begins.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sawlog.filodb_record import layout
from sawlog.filodb_record.judge import LOOK, PLAIN_WORD, UNSEEN, is_header, is_whole
from sawlog.filodb_record.kernels import state as s
from sawlog.filodb_record.kernels.chain import find_header
from sawlog.filodb_record.layout import ALIGNMENT, CONTAINER_HEADER_SIZE, LENGTH_SIZE, Kind

FIRST_LOOK, LARGEST_LOOK = 4 << 10, 1 << 20
"""Bytes that a search looks at, at first and at a time."""
_FIELDS = struct.Struct("<IIq")
_WORD = struct.Struct("<I")


class Header(NamedTuple):
    """The fields of a container's header, and the length of its first record, UNSEEN where the file ends before it."""

    length: int
    word: int
    time: int
    record: int

    @property
    def version(self) -> int:
        """The version of the container."""
        return self.word >> layout.VERSION_SHIFT


@dataclass(frozen=True, slots=True)
class Container:
    """A container as it was judged.

    Attributes:
        what: INTACT, UNUSED, or the `Kind` of damage that its header, or all of it, is, explained by two numbers.
        start: Its header.
        first: Its first record.
        end: Where its records end.
        next: Where the next one begins.
        ending: How the file ends, if it ends here: one of the endings of `state`, or 0.
    """

    what: int
    start: int
    first: int
    end: int
    next: int
    header: Header
    ending: int = 0
    one: int = 0
    two: int = 0


class Framing:
    """Judges containers of one file, in ascending order.

    Args:
        peek: `peek(at, length)`: bytes of the file, fewer only at its end.
        size: Where the file ends.
        flagged: The version word of its first container.
        step: Bytes that whole containers take; 0 while unknown.
        given: Whether the user has said so.
        resumed: Where this pass goes on after another one, which has seen no more of the file; -1 if not.
        doubts: How many doubts the bytes before this pass raise.

    Attributes:
        guesses: How many containers nothing proves to be whole.
        looked: At how many places a header was searched for.
        asked: How many doubts there were. By `layout.DOUBTS`, that is capped: each takes long in Python.
    """

    def __init__(
        self,
        peek: Callable[[int, int], Any],
        size: int,
        *,
        flagged: int,
        step: int,
        given: bool,
        resumed: int,
        doubts: int,
    ) -> None:
        self._peek, self._size, self._flagged = peek, size, flagged
        self._given, self._resumed = given, resumed
        self.step = step
        self.guesses = 0
        self.looked = 0
        self.asked = 0
        self._clear = (-1, -1, False)
        self._outer = self._lookups = 0
        self._before = doubts
        self._doubts = array("q")

    def doubts(self, at: int) -> int:
        """How many doubts the bytes of the file before a place raise."""
        return self._before + bisect_left(self._doubts, at)

    def header(self, at: int) -> Header:
        """The fields at a place; the header must be there."""
        data = bytes(self._peek(at, LOOK))
        record = _WORD.unpack_from(data, CONTAINER_HEADER_SIZE)[0] if len(data) >= LOOK else UNSEEN
        length, word, time = _FIELDS.unpack_from(data)
        return Header(length, word, time, record)

    def begins(self, at: int, *, searched: bool) -> bool:
        """Whether a container begins at a place; one that is searched for must show a record that fits."""
        if self._size - at < CONTAINER_HEADER_SIZE:
            return False
        one = self.header(at)
        return is_header(one.length, one.word, one.time, one.record if searched else UNSEEN, self._flagged)

    def judge(self, at: int) -> Container:
        """The container at a place, where there is room for a header."""
        head = self.header(at)
        self._outer, self._lookups = at, 0
        return self._sound(at, head) or self._doubtful(at, head)

    def _sound(self, at: int, head: Header) -> Container | None:
        """The container, where nothing is doubtful: as the kernel judges it, wherever a window ends."""
        end = at + LENGTH_SIZE + head.length
        if end > self._size or not is_header(head.length, head.word, head.time, UNSEEN, self._flagged):
            return None
        if end == self._size or self.begins(end, searched=False):
            return self._intact(at, head, end)
        following = at + self.step
        if following < end:
            return None
        proven = following == self._size or (
            self.begins(following, searched=False) and (self._given or self._proves(at, head, following))
        )
        return self._intact(at, head, following) if proven else None

    def _doubtful(self, at: int, head: Header) -> Container:
        """The container, where it takes more than its header and the next one."""
        if self._before + len(self._doubts) >= layout.DOUBTS + at // layout.DOUBT_BYTES:
            found, _ = self._search(min(at + layout.DOUBT_BYTES, self._size))
            return Container(int(Kind.DOUBTFUL), at, found, found, found, head, one=layout.DOUBTS)
        self._doubts.append(at)
        self.asked += 1
        size, total = self._size, head.length + LENGTH_SIZE
        end, first = at + total, at + CONTAINER_HEADER_SIZE
        whole = head.length - head.length % ALIGNMENT
        known = head.version == layout.VERSION
        sound = is_header(whole, head.word if known else PLAIN_WORD, head.time, UNSEEN, self._flagged)
        if not sound or (end > size and not known):
            return self._broken(at, head)
        if end > size:
            found, _ = self._search(first)
            if found < size:
                return self._cut_short(at, head, found)
            return Container(s.INTACT, at, first, size, size, head, s.TORN_CONTAINER)
        if head.length != whole:
            return self._resync(at, head, filled=False)
        if not known:
            following = self._other_end(at)
            if following is None:
                return self._broken(at, head)
            kind = int(Kind.UNKNOWN_VERSION)
            return Container(kind, at, following, following, following, head, one=head.length, two=head.version)
        if self.step and at + self.step >= end and at + self.step > size:
            # The file was cut off in the unused rest of a whole container.
            return self._intact(at, head, end, s.TORN_REST)
        return self._padded(at, head)

    def _padded(self, at: int, head: Header) -> Container:
        """No header is at its end: is it whole, with an unused rest?"""
        end, size = at + LENGTH_SIZE + head.length, self._size
        if self._other_end(end) is not None:
            return self._intact(at, head, end)
        found, dirty = self._search(end + 1)
        if found < size and self._proves(at, head, found):
            if found - at != self.step:
                # A container of a new size: does it hold others, at whole units?
                for place in range(at + layout.MIN_CONTAINER_SIZE, end, layout.WHOLE_UNIT):
                    if self.begins(place, searched=True):
                        return self._cut_short(at, head, place)
                self.step = found - at
            return self._intact(at, head, found)
        if (other := self._other_after(at, end, found)) is not None:
            return self._intact(at, head, other)
        if found == size and is_whole(size - at, 0, layout.EMPTY_CONTAINER, 0, self.step):
            self.guesses += 1
            return self._intact(at, head, found)
        if size - end < CONTAINER_HEADER_SIZE:
            return self._intact(at, head, end, s.TORN_REST)
        return self._resync(at, head, filled=dirty)

    def _is_other(self, at: int) -> bool:
        """Whether a header of another version is at a place, and a record that fits after it."""
        if self._size - at < CONTAINER_HEADER_SIZE:
            return False
        one = self.header(at)
        bare = one.word == one.version << layout.VERSION_SHIFT and one.version not in (0, layout.VERSION)
        return bare and is_header(one.length, PLAIN_WORD, one.time, one.record, self._flagged)

    def _other_end(self, at: int) -> int | None:
        """Where what follows a container of another version begins, or the file ends; `None` where there is none."""
        if not self._is_other(at):
            return None
        size, end = self._size, at + LENGTH_SIZE + self.header(at).length
        if end >= size:
            return size if end == size else None
        if self.begins(end, searched=False) or self._is_other(end):
            return end
        whole = at + self.step
        if whole >= end and (whole == size or self._is_other(whole)):
            return whole
        found, _ = self._search(end)
        if found < size:
            return found if self._proves(at, self.header(at), found) else None
        return size if is_whole(size - at, 0, layout.EMPTY_CONTAINER, 0, self.step) else None

    def _other_after(self, at: int, end: int, limit: int) -> int | None:
        """Where a container of another version begins, and ends, after the unused rest of one that is whole."""
        units = range(at + layout.MIN_CONTAINER_SIZE, limit, layout.WHOLE_UNIT)
        for place in (*units, *([at + self.step] if self.step else ())):
            self.looked += 1
            if place > end and self._is_other(place) and self._proves(at, self.header(at), place):
                return place if self._other_end(place) is not None else None
        return None

    def _resync(self, at: int, head: Header, *, filled: bool) -> Container:
        """It is not whole: is its length wrong?"""
        end = at + LENGTH_SIZE + head.length
        found, _ = self._search(at + CONTAINER_HEADER_SIZE)
        if found < end:
            return self._cut_short(at, head, found)
        torn = found == self._size and head.length % ALIGNMENT == 0 and filled
        return self._intact(at, head, end, s.TORN_REST if torn else 0)

    def _broken(self, at: int, head: Header) -> Container:
        """There is no header where one is expected."""
        found, dirty = self._search(at + 1, memo=False)
        dirty = dirty or bool(self._peek(at, 1)[0])
        rest = found - at
        if found == self._size and not dirty:
            return Container(s.UNUSED, at, found, found, found, head)
        if at == self._resumed and self._size - found < LOOK:
            return Container(s.UNUSED, at, at, at, at, head, s.TORN_REST)
        if at == self._resumed and rest < self.header(found).record + LENGTH_SIZE:
            return Container(s.UNUSED, at, found, found, found, head)
        return Container(int(Kind.BAD_HEADER), at, found, found, found, head, one=head.length, two=head.word)

    def _intact(self, at: int, head: Header, following: int, ending: int = 0) -> Container:
        first, end = at + CONTAINER_HEADER_SIZE, at + LENGTH_SIZE + head.length
        return Container(s.INTACT, at, first, end, following, head, ending)

    def _cut_short(self, at: int, head: Header, found: int) -> Container:
        """Its length is wrong: another one begins at `found`."""
        first = at + CONTAINER_HEADER_SIZE
        return Container(int(Kind.BAD_CONTAINER_LENGTH), at, first, found, found, head, one=head.length, two=found)

    def _proves(self, at: int, head: Header, found: int) -> bool:
        """Whether the header at `found` shows that the container in front of it is whole."""
        if self._size - found < LOOK:
            return False
        size, other = found - at, self.header(found)
        return is_whole(size, size - LENGTH_SIZE - head.length, other.length, other.record, self.step)

    def _search(self, start: int, *, memo: bool = True) -> tuple[int, bool]:
        """Where the next header from `start` on is, or the file ends; and whether other bytes than zeros precede it.

        What was searched before is not searched again.
        """
        at, dirty = start, False
        low, high, was = self._clear
        length = FIRST_LOOK
        while at < self._size:
            if memo and low <= at <= high:
                at, dirty = high, dirty or was
                break
            limit = min(self._size, at + length, low if memo and at < low else self._size)
            data = self._peek(at, limit - at + LOOK)
            found = find_header(data, limit - at, self._flagged)
            dirty = dirty or bool(data[:found].any())
            self.looked += found
            at += found
            if at < limit:
                break
            length = min(2 * length, LARGEST_LOOK)
        if memo and at >= high:
            self._clear = (start, at, dirty)
        return at, dirty

    # Containers that another one hides: its length is wrong, and ends where a later one begins.

    def hidden(self, one: Container, broken: int, bound: int, *, here: bool) -> int | None:
        """Where a container begins that another one hides, whose records ended, or broke, at `broken`.

        It begins there, or where a whole container can end after that, and must be one that a builder would have gone
        on in. Containers that are not hidden themselves are looked through a number of times that follows their bytes.
        """
        limit = bound or one.next
        if self._fits(one, broken, broken, limit):
            return broken
        reach = broken + 1 if here else (bound or one.end)
        place = self._unit(one, broken)
        if place >= reach or self._lookups > (broken - self._outer) // layout.DOUBT_BYTES:
            return None
        self._lookups += 1
        self.asked += 1
        while place < reach and not self._fits(one, place, broken, limit):
            self.looked += 1
            place = self._unit(one, place)
        return place if place < reach else None

    def _unit(self, one: Container, place: int) -> int:
        """The next place after another one at which a whole container can end."""
        size = place - one.start
        following = size - size % layout.WHOLE_UNIT + layout.WHOLE_UNIT
        return one.start + (self.step if size < self.step < following else following)

    def _fits(self, one: Container, place: int, broken: int, limit: int) -> bool:
        if not self.begins(place, searched=True):
            return False
        head = self.header(place)
        if head.length + LENGTH_SIZE > limit - place:
            return False
        if place == broken:
            return True
        return head.record != UNSEEN and is_whole(
            place - one.start, place - broken, head.length, head.record, self.step
        )
