"""Limits of one micro-batch: options in Spark's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from sawlog.errors import OptionError

_MAX_FILES = 1000
"""Files per micro-batch, unless an option says otherwise: so many places at most does an offset gain at a time."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
SECONDS = {
    "": 1,
    "s": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}


class Bytes(int):
    """A number of bytes; as text, with a unit as in `64m`."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `1048576`, `1024k`, `64MB`.

        Raises:
            OptionError: For anything else.
        """
        return cls(_measure(text, _UNITS, "a number of bytes such as 64m"))


class Duration(float):
    """A length of time in seconds; as text, with a unit as in `10 minutes`."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `600`, `10 minutes`, `1h`.

        Raises:
            OptionError: For anything else.
        """
        return cls(_measure(text, SECONDS, "a length of time such as 10 minutes"))


QUIET = Duration(600)
"""How long files are quiet before they count as finished, unless an option says otherwise."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a stream source, besides those of a batch.

    Attributes:
        maxfilespertrigger: Files that a micro-batch reads from, at most.
        maxbytespertrigger: Bytes that it reads, about: never more, unless a single record or transaction is larger.
        maxrowspertrigger: Rows that it reads (before filters), likewise.
        failondataloss: Whether a file that is removed before all of it was read ends the stream, or is logged.
        finishedafter: How long a file that was read to its end must have been quiet to be finished, where nothing else
            shows that it is. Finished files must not grow any more.
    """

    maxfilespertrigger: int = _MAX_FILES
    maxbytespertrigger: Bytes | None = None
    maxrowspertrigger: int | None = None
    failondataloss: bool = True
    finishedafter: Duration = QUIET

    def __post_init__(self) -> None:
        for name in ("maxfilespertrigger", "maxbytespertrigger", "maxrowspertrigger"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise OptionError(f"option {name}={value}: expected a positive number")


def _measure(text: str, units: dict[str, int], expected: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    unit = match[2].lower() if match is not None else None
    if unit is not None and unit not in units and unit.endswith("s"):
        unit = unit[:-1]
    if match is None or unit not in units:
        raise OptionError(f"{text!r}: expected {expected}")
    return int(match[1]) * units[unit]
