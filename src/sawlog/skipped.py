"""What a path holds and a read leaves out, for callers that must know whether an answer is complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a part of one, that a dataset's path holds and the dataset does not read.

    Attributes:
        path: The file.
        reason: Why it is left out, as a phrase.
        bytes: How many of its bytes are left out.
        missed: Whether rows that belong into the view stand there: the answer is incomplete without them.
    """

    path: str
    reason: str
    bytes: int
    missed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def by_reason(skipped: Iterable[Skipped]) -> dict[str, list[Skipped]]:
    """What was left out, gathered by reason."""
    found: dict[str, list[Skipped]] = {}
    for one in skipped:
        found.setdefault(one.reason, []).append(one)
    return found


def remarks(skipped: Iterable[Skipped]) -> list[str]:
    """One sentence for every reason why an answer is incomplete."""
    found = []
    for reason, group in by_reason(one for one in skipped if one.missed).items():
        files = "was" if len(group) == 1 else f"and {len(group) - 1} more were"
        found.append(
            f"{group[0].path} {files} not read ({sum(one.bytes for one in group)} bytes): {reason};"
            " sawlog info lists what is left out"
        )
    return found
