"""The account of finished files in offsets of the first version, which are only read: runs in the order of names."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sawlog.errors import FormatError, SawlogError
from sawlog.storage.names import natural_order

RUN_FILES = 1000
"""Finished files that one entry of the offset stands for."""

_DIGEST_BYTES = 8
_RUN = re.compile(r"(\d{1,18}) ([0-9a-f]{1,16})")
_MODULUS = 1 << (8 * _DIGEST_BYTES)


@dataclass(slots=True)
class Run:
    """Finished files whose names follow each other.

    Attributes:
        through: The last name; the first is the one after the previous run.
        count: How many files.
        digest: Sum of the digests of their names and sizes.
    """

    through: str
    count: int
    digest: int


@dataclass(slots=True)
class Finished:
    """The files that are read to their end and will not grow, as runs in natural order of their names."""

    runs: list[Run] = field(default_factory=list)

    @property
    def through(self) -> list[Any] | None:
        """Sort key of the last name that a run covers."""
        return natural_order(self.runs[-1].through) if self.runs else None

    def add(self, name: str, size: int) -> None:
        """Take a file in. Beyond the last run, every name up to this one becomes covered."""
        place = bisect.bisect_left(self.runs, natural_order(name), key=lambda run: natural_order(run.through))
        if place == len(self.runs):
            if not self.runs or self.runs[-1].count >= RUN_FILES:
                self.runs.append(Run(name, 0, 0))
            place = len(self.runs) - 1
            self.runs[place].through = name
        run = self.runs[place]
        run.count += 1
        run.digest = (run.digest + _digest(name, size)) % _MODULUS

    def resolve(self, sizes: Mapping[str, int], paths: str) -> Finished:
        """The same, by the files that are there now. Files may have been removed, never added or changed.

        Args:
            sizes: Names and sizes of the covered files that are there.
            paths: The stream's path, for messages.

        Raises:
            SawlogError: When a finished file has changed its size, or one was added among them.
        """
        now = Finished([Run(run.through, 0, 0) for run in self.runs])
        for name, size in sizes.items():
            now.add(name, size)
        for before, after in zip(self.runs, now.runs, strict=True):
            if after.count > before.count or (after.count == before.count and after.digest != before.digest):
                raise SawlogError(
                    f"{paths}: up to {before.through}, {before.count} files were read to their end, with digest"
                    f" {before.digest:016x} of their names and sizes; now there are {after.count}, with digest"
                    f" {after.digest:016x}: one of them has grown or was put among them while the stream stood still."
                    " Take it away, or start the stream with a new checkpoint"
                )
        return now

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> Finished:
        """Runs as `{last name: "count digest"}`."""
        runs = []
        for through, text in data.items():
            match = _RUN.fullmatch(text)
            if match is None:
                raise FormatError(f"expected a count and a digest, found {text[:60]!r}")
            runs.append(Run(through, int(match[1]), int(match[2], 16)))
        return cls(sorted(runs, key=lambda run: natural_order(run.through)))


def covered(names: Iterable[str], finished: Finished, files: Collection[str]) -> list[str]:
    """Return names of finished files: up to the last of them, and not among those that may grow."""
    through = finished.through
    if through is None:
        return []
    return [name for name in names if name not in files and natural_order(name) <= through]


def _digest(name: str, size: int) -> int:
    text = f"{name}\0{size}".encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big")
