"""Judgement of a container's header. Plain Python over plain numbers, which kernels compile: the only judge.

Section 4 of the format. Recognition, framing, planning, counting, repair, streams and binary columns all ask here.
"""

from __future__ import annotations

import struct

from sawlog.filodb.layout import (
    ALIGNMENT,
    CONTAINER_HEADER_SIZE,
    EMPTY_CONTAINER,
    LENGTH_SIZE,
    MAX_CONTAINER_SIZE,
    MAX_TIMESTAMP,
    MIN_CONTAINER_SIZE,
    SMALLEST_LENGTH,
    VERSION,
    VERSION_SHIFT,
    WHOLE_UNIT,
)

PLAIN_WORD = VERSION << VERSION_SHIFT
"""The version word without flags."""
_HEADER = struct.Struct("<IIq")
_LENGTH = struct.Struct("<I")
LOOK = CONTAINER_HEADER_SIZE + LENGTH_SIZE
"""Bytes from its start by which a header is judged: the header, and the length of the first record."""
UNSEEN = -1
"""In place of the length of a container's first record, when it is not to be judged."""


def is_header(length: int, word: int, time: int, record: int, flagged: int) -> bool:
    """Return whether these are the fields of a container's header, and the length of the first record fits.

    Args:
        length: The container's length field.
        word: Its version word.
        time: Its timestamp.
        record: Length of its first record, or UNSEEN.
        flagged: Another version word that is taken: that of the file's first container, which may have flags.
    """
    if word >> VERSION_SHIFT != VERSION or (word != PLAIN_WORD and word != flagged):  # noqa: PLR1714 - for Numba
        return False
    if not EMPTY_CONTAINER <= length <= MAX_CONTAINER_SIZE or length % ALIGNMENT != 0:
        return False
    if not 0 <= time <= MAX_TIMESTAMP:
        return False
    if record == UNSEEN or length == EMPTY_CONTAINER:
        return True
    return SMALLEST_LENGTH <= record <= length - CONTAINER_HEADER_SIZE


def is_whole(size: int, unused: int, length: int, record: int, step: int) -> bool:
    """Return whether a container is whole, of `size` bytes up to the next header, by FiloDB's rule of rolling over.

    A builder goes on in a new container when a record does not fit: the unused rest is shorter than the next
    container's first record. That cannot hold where a container in between was missed, for a record is shorter than
    a container.

    Args:
        size: Bytes from its header to the next one.
        unused: Those of them after its records.
        length: The next container's length field.
        record: Length of the next container's first record.
        step: Bytes of whole containers, as far as known; 0 if not.
    """
    if size != step and (size < MIN_CONTAINER_SIZE or size % WHOLE_UNIT != 0):
        return False
    return length == EMPTY_CONTAINER or unused < record + LENGTH_SIZE


def read_header_length(head: bytes | memoryview, size: int | None = None, *, damaged: bool = False) -> int | None:
    """Return the length field of the container that begins some bytes; `None` if none does.

    Args:
        head: The bytes, or the first of them.
        size: How many there are in all, which the container must not go beyond; `None` where that is no matter.
        damaged: Whether the length may be wrong in its last bits, as the reader of the container takes it.
    """
    if len(head) < CONTAINER_HEADER_SIZE:
        return None
    length, word, time = _HEADER.unpack_from(head)
    record = UNSEEN
    if len(head) >= LOOK:
        (record,) = _LENGTH.unpack_from(head, CONTAINER_HEADER_SIZE)
    judged, first = (length - length % ALIGNMENT, UNSEEN) if damaged else (length, record)
    if not is_header(judged, word, time, first, word) or (size is not None and length + LENGTH_SIZE > size):
        return None
    return int(length)
