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

from sawlog.filodb import layout
from sawlog.filodb.judge import LOOK, PLAIN_WORD, UNSEEN, is_header, is_whole
from sawlog.filodb.kernels import state as s
from sawlog.filodb.kernels.chain import find_header
from sawlog.filodb.layout import ALIGNMENT, CONTAINER_HEADER_SIZE, LENGTH_SIZE, ContainerDamageKind

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
        kind: INTACT, UNUSED, or the `ContainerDamageKind` of its header, or of all of it, explained by two numbers.
        start: Its header.
        first: Its first record.
        end: Where its records end.
        next: Where the next one begins.
        ending: How the file ends, if it ends here: one of the endings of `state`, or 0.
    """

    kind: int
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
        is_step_known: Whether the user has said so.
        resumed: Where this pass goes on after another one, which has seen no more of the file; -1 if not.
        doubts: How many doubts the bytes before this pass raise.

    Attributes:
        guesses: How many containers nothing proves to be whole.
        looked: At how many places a header was searched for.
        questions: How many doubts there were. By `layout.DOUBTS`, that is capped: each takes long in Python.
    """

    def __init__(
        self,
        peek: Callable[[int, int], Any],
        size: int,
        *,
        flagged: int,
        step: int,
        is_step_known: bool,
        resumed: int,
        doubts: int,
    ) -> None:
        self._peek, self._size, self._flagged = peek, size, flagged
        self._is_step_known, self._resumed = is_step_known, resumed
        self.step = step
        self.guesses = 0
        self.looked = 0
        self.questions = 0
        self._clear = (-1, -1, False)
        self._outer = self._lookups = 0
        self._before = doubts
        self._doubts = array("q")

    def count_doubts(self, offset: int) -> int:
        """Return how many doubts the bytes of the file before a place raise."""
        return self._before + bisect_left(self._doubts, offset)

    def read_header(self, offset: int) -> Header:
        """Return the fields at a place; the header must be there."""
        data = bytes(self._peek(offset, LOOK))
        record = _WORD.unpack_from(data, CONTAINER_HEADER_SIZE)[0] if len(data) >= LOOK else UNSEEN
        length, word, time = _FIELDS.unpack_from(data)
        return Header(length, word, time, record)

    def begins(self, offset: int, *, searched: bool) -> bool:
        """Return whether a container begins at a place; one that is searched for must show a record that fits."""
        if self._size - offset < CONTAINER_HEADER_SIZE:
            return False
        header = self.read_header(offset)
        return is_header(header.length, header.word, header.time, header.record if searched else UNSEEN, self._flagged)

    def judge(self, offset: int) -> Container:
        """Return the container at a place, where there is room for a header."""
        head = self.read_header(offset)
        self._outer, self._lookups = offset, 0
        return self._judge_sound(offset, head) or self._judge_doubtful(offset, head)

    def _judge_sound(self, offset: int, head: Header) -> Container | None:
        """Return the container, where nothing is doubtful: as the kernel judges it, wherever a window ends."""
        end = offset + LENGTH_SIZE + head.length
        if end > self._size or not is_header(head.length, head.word, head.time, UNSEEN, self._flagged):
            return None
        if end == self._size or self.begins(end, searched=False):
            return self._make_intact(offset, head, end)
        following = offset + self.step
        if following < end:
            return None
        proven = following == self._size or (
            self.begins(following, searched=False) and (self._is_step_known or self._proves(offset, head, following))
        )
        return self._make_intact(offset, head, following) if proven else None

    def _judge_doubtful(self, offset: int, head: Header) -> Container:
        """Return the container, where it takes more than its header and the next one."""
        if self._before + len(self._doubts) >= layout.DOUBTS + offset // layout.DOUBT_BYTES:
            next_header, _ = self._search(min(offset + layout.DOUBT_BYTES, self._size))
            kind = int(ContainerDamageKind.DOUBTFUL)
            return Container(kind, offset, next_header, next_header, next_header, head, one=layout.DOUBTS)
        self._doubts.append(offset)
        self.questions += 1
        size, total = self._size, head.length + LENGTH_SIZE
        end, first = offset + total, offset + CONTAINER_HEADER_SIZE
        aligned_length = head.length - head.length % ALIGNMENT
        is_known = head.version == layout.VERSION
        sound = is_header(aligned_length, head.word if is_known else PLAIN_WORD, head.time, UNSEEN, self._flagged)
        if not sound or (end > size and not is_known):
            return self._judge_broken(offset, head)
        if end > size:
            next_header, _ = self._search(first)
            if next_header < size:
                return self._cut_short(offset, head, next_header)
            return Container(s.INTACT, offset, first, size, size, head, s.TORN_CONTAINER)
        if head.length != aligned_length:
            return self._resync(offset, head, filled=False)
        if not is_known:
            following = self._find_other_end(offset)
            if following is None:
                return self._judge_broken(offset, head)
            kind = int(ContainerDamageKind.UNKNOWN_VERSION)
            return Container(kind, offset, following, following, following, head, one=head.length, two=head.version)
        if self.step and offset + self.step >= end and offset + self.step > size:
            # The file was cut off in the unused rest of a whole container.
            return self._make_intact(offset, head, end, s.TORN_REST)
        return self._judge_padding(offset, head)

    def _judge_padding(self, offset: int, head: Header) -> Container:
        """Return the container at whose end is no header: whole, with an unused rest, or broken."""
        end, size = offset + LENGTH_SIZE + head.length, self._size
        if self._find_other_end(end) is not None:
            return self._make_intact(offset, head, end)
        next_header, dirty = self._search(end + 1)
        if next_header < size and self._proves(offset, head, next_header):
            if next_header - offset != self.step:
                # A container of a new size: does it hold others, at whole units?
                for place in range(offset + layout.MIN_CONTAINER_SIZE, end, layout.WHOLE_UNIT):
                    if self.begins(place, searched=True):
                        return self._cut_short(offset, head, place)
                self.step = next_header - offset
            return self._make_intact(offset, head, next_header)
        if (other_start := self._find_other_start(offset, end, next_header)) is not None:
            return self._make_intact(offset, head, other_start)
        if next_header == size and is_whole(size - offset, 0, layout.EMPTY_CONTAINER, 0, self.step):
            self.guesses += 1
            return self._make_intact(offset, head, next_header)
        if size - end < CONTAINER_HEADER_SIZE:
            return self._make_intact(offset, head, end, s.TORN_REST)
        return self._resync(offset, head, filled=dirty)

    def _is_other_version(self, offset: int) -> bool:
        """Return whether a container header of another version begins at `offset`, with a plausible first record."""
        if self._size - offset < CONTAINER_HEADER_SIZE:
            return False
        header = self.read_header(offset)
        bare = header.word == header.version << layout.VERSION_SHIFT and header.version not in (0, layout.VERSION)
        return bare and is_header(header.length, PLAIN_WORD, header.time, header.record, self._flagged)

    def _find_other_end(self, offset: int) -> int | None:
        """Return the end of a container of another version, or of the file; `None` where there is none."""
        if not self._is_other_version(offset):
            return None
        size, end = self._size, offset + LENGTH_SIZE + self.read_header(offset).length
        if end >= size:
            return size if end == size else None
        if self.begins(end, searched=False) or self._is_other_version(end):
            return end
        whole_end = offset + self.step
        if whole_end >= end and (whole_end == size or self._is_other_version(whole_end)):
            return whole_end
        next_header, _ = self._search(end)
        if next_header < size:
            return next_header if self._proves(offset, self.read_header(offset), next_header) else None
        return size if is_whole(size - offset, 0, layout.EMPTY_CONTAINER, 0, self.step) else None

    def _find_other_start(self, offset: int, end: int, limit: int) -> int | None:
        """Return where a container of another version begins, and ends, after the unused rest of a whole one."""
        units = range(offset + layout.MIN_CONTAINER_SIZE, limit, layout.WHOLE_UNIT)
        for place in (*units, *([offset + self.step] if self.step else ())):
            self.looked += 1
            if place > end and self._is_other_version(place) and self._proves(offset, self.read_header(offset), place):
                return place if self._find_other_end(place) is not None else None
        return None

    def _resync(self, offset: int, head: Header, *, filled: bool) -> Container:
        """Return a container that is not whole, and decide whether its length is wrong."""
        end = offset + LENGTH_SIZE + head.length
        next_header, _ = self._search(offset + CONTAINER_HEADER_SIZE)
        if next_header < end:
            return self._cut_short(offset, head, next_header)
        torn = next_header == self._size and head.length % ALIGNMENT == 0 and filled
        return self._make_intact(offset, head, end, s.TORN_REST if torn else 0)

    def _judge_broken(self, offset: int, head: Header) -> Container:
        """Return what takes the place of a container, where a header is expected and there is none."""
        next_header, dirty = self._search(offset + 1, memo=False)
        dirty = dirty or bool(self._peek(offset, 1)[0])
        gap = next_header - offset
        if next_header == self._size and not dirty:
            return Container(s.UNUSED, offset, next_header, next_header, next_header, head)
        if offset == self._resumed and self._size - next_header < LOOK:
            return Container(s.UNUSED, offset, offset, offset, offset, head, s.TORN_REST)
        if offset == self._resumed and gap < self.read_header(next_header).record + LENGTH_SIZE:
            return Container(s.UNUSED, offset, next_header, next_header, next_header, head)
        kind = int(ContainerDamageKind.BAD_HEADER)
        return Container(kind, offset, next_header, next_header, next_header, head, one=head.length, two=head.word)

    def _make_intact(self, offset: int, head: Header, following: int, ending: int = 0) -> Container:
        first, end = offset + CONTAINER_HEADER_SIZE, offset + LENGTH_SIZE + head.length
        return Container(s.INTACT, offset, first, end, following, head, ending)

    def _cut_short(self, offset: int, head: Header, next_header: int) -> Container:
        """Return a container whose length is wrong: another one begins at `next_header`."""
        first = offset + CONTAINER_HEADER_SIZE
        return Container(
            int(ContainerDamageKind.BAD_CONTAINER_LENGTH),
            offset,
            first,
            next_header,
            next_header,
            head,
            one=head.length,
            two=next_header,
        )

    def _proves(self, offset: int, head: Header, next_header: int) -> bool:
        """Return whether the header at `next_header` shows that the container in front of it is whole."""
        if self._size - next_header < LOOK:
            return False
        size, next_fields = next_header - offset, self.read_header(next_header)
        return is_whole(size, size - LENGTH_SIZE - head.length, next_fields.length, next_fields.record, self.step)

    def _search(self, start: int, *, memo: bool = True) -> tuple[int, bool]:
        """Return where the next header, or the file's end, is; and whether other bytes than zeros precede it.

        What was searched before is not searched again.
        """
        offset, dirty = start, False
        low, high, was = self._clear
        length = FIRST_LOOK
        while offset < self._size:
            if memo and low <= offset <= high:
                offset, dirty = high, dirty or was
                break
            limit = min(self._size, offset + length, low if memo and offset < low else self._size)
            data = self._peek(offset, limit - offset + LOOK)
            distance = find_header(data, limit - offset, self._flagged)
            dirty = dirty or bool(data[:distance].any())
            self.looked += distance
            offset += distance
            if offset < limit:
                break
            length = min(2 * length, LARGEST_LOOK)
        if memo and offset >= high:
            self._clear = (start, offset, dirty)
        return offset, dirty

    # Containers that another one hides: its length is wrong, and ends where a later one begins.

    def find_hidden(self, container: Container, broken: int, bound: int, *, ends_here: bool) -> int | None:
        """Return where a container begins that another one hides, whose records ended, or broke, at `broken`.

        It begins there, or where a whole container can end after that, and must be one that a builder would have gone
        on in. Containers that are not hidden themselves are looked through a number of times that follows their bytes.
        """
        limit = bound or container.next
        if self._fits(container, broken, broken, limit):
            return broken
        reach = broken + 1 if ends_here else (bound or container.end)
        place = self._find_next_end(container, broken)
        if place >= reach or self._lookups > (broken - self._outer) // layout.DOUBT_BYTES:
            return None
        self._lookups += 1
        self.questions += 1
        while place < reach and not self._fits(container, place, broken, limit):
            self.looked += 1
            place = self._find_next_end(container, place)
        return place if place < reach else None

    def _find_next_end(self, container: Container, place: int) -> int:
        """Return the next place after another one at which a whole container can end."""
        size = place - container.start
        following = size - size % layout.WHOLE_UNIT + layout.WHOLE_UNIT
        return container.start + (self.step if size < self.step < following else following)

    def _fits(self, container: Container, place: int, broken: int, limit: int) -> bool:
        if not self.begins(place, searched=True):
            return False
        head = self.read_header(place)
        if head.length + LENGTH_SIZE > limit - place:
            return False
        if place == broken:
            return True
        return head.record != UNSEEN and is_whole(
            place - container.start, place - broken, head.length, head.record, self.step
        )
