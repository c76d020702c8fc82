"""Who is told that work takes longer than usual for once."""

from __future__ import annotations

from collections.abc import Callable

compiling: Callable[[], None] | None = None
"""Called before kernels are compiled, the first time in a process; to be set before any kernel is imported."""
