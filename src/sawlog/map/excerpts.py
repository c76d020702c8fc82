"""Bytes worth showing: the head of a file, the surroundings of damage, and rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sawlog.errors import SawlogError
from sawlog.format.capabilities import find_field_parser
from sawlog.format.fields import FieldParser, Part
from sawlog.map.model import Excerpt
from sawlog.storage import File, Source

if TYPE_CHECKING:
    import sawlog

Result = TypeVar("Result")

_HEAD_BYTES = 256
ROW_BYTES = 192
_BEFORE_DAMAGE = 32
_DAMAGE_BYTES = 160
MAX_PARTS = 16
"""Parts that are named of one excerpt; of the head, `HEAD_PARTS`."""
HEAD_PARTS = 60
ALL_EXCERPTS = 1400
"""Of all files together."""
MAX_LED_PLACES = 400
"""Of the places that charts lead to, besides."""
RANGES_SHOWN = 600


def make_excerpts(
    dataset: sawlog.Dataset, file: File, rows: Iterable[tuple[int, int]], damages: Iterable[tuple[int, int]]
) -> list[Excerpt]:
    """Return bytes of a file around some places."""
    wanted_bytes = {0: _HEAD_BYTES}
    for start, size in rows:
        wanted_bytes[start] = max(wanted_bytes.get(start, 0), min(size, ROW_BYTES))
    places = {start: (start, length) for start, length in wanted_bytes.items()}
    for start, size in damages:
        begin = max(0, start - _BEFORE_DAMAGE)
        places[start] = (begin, start - begin + max(16, min(size, _DAMAGE_BYTES)))
    try:
        source = dataset.scan.storage.open(file.path)
    except (OSError, SawlogError):
        return []
    try:
        dissect = _call_safely(lambda: find_field_parser(dataset.contents, file, source))
        return [_excerpt(file, source, dissect, offset, *places[offset]) for offset in sorted(places)]
    except (OSError, SawlogError):  # it has changed since, or cannot be read: a picture has no need to fail for that
        return []
    finally:
        source.close()


def _excerpt(file: File, source: Source, dissect: FieldParser | None, offset: int, begin: int, length: int) -> Excerpt:
    data = source.read_window(begin, max(0, min(length, file.size - begin))).tobytes()
    pieces = _call_safely(lambda: dissect(offset)) if dissect is not None else None
    parts_of_excerpt: list[Part] = []
    room = MAX_PARTS if offset else HEAD_PARTS
    while pieces is not None and room > 0:
        part = _call_safely(functools.partial(next, pieces, None))
        if part is None or part.offset >= begin + len(data) or part.length < 0:
            break
        parts_of_excerpt.append(replace(part, inside=part.inside[: room - 1]))
        room -= 1 + len(part.inside)
    return Excerpt(begin, data, parts_of_excerpt)


def _call_safely(work: Callable[[], Result]) -> Result | None:
    """Return a format's answer on its bytes; none where they are damaged and it has no answer."""
    try:
        return work()
    except Exception:  # noqa: BLE001, see above
        return None
