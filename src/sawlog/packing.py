"""How much one task reads."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TypeVar

Part = TypeVar("Part")

SMALLEST = 64
"""What opening a file costs at least, as a share of a task: thousands of small ones make more than one task."""

TASK_BYTES = 64 << 20
"""Input bytes per task that planning aims at."""


def pack(
    parts: Iterable[Part], task_bytes: int, size: Callable[[Part], int] = operator.attrgetter("size")
) -> list[list[Part]]:
    """Pack fragments, or what has a size, in order, into tasks of about `task_bytes` and at most `SMALLEST` parts."""
    tasks: list[list[Part]] = []
    least = task_bytes // SMALLEST
    room = 0
    for part in parts:
        cost = max(size(part), least)
        if not tasks or cost > room:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(part)
        room -= cost
    return tasks
