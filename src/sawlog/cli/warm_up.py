"""`sawlog warm-up`: fill the kernel cache."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import sawlog
from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.rendering import rendering
from sawlog.format import get_format


@dataclass(slots=True)
class Warmed:
    """The outcome of `sawlog warm-up`: seconds per format, and where Numba keeps machine code."""

    seconds: dict[str, float]
    cache: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"seconds": {name: round(taken, 3) for name, taken in self.seconds.items()}, "cache": self.cache}


def warm_up(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these formats.")] = None,
    json: arguments.Json = False,
) -> int:
    """Compile all kernels now, so that no job has to wait for them."""
    seconds = {}
    for format in [get_format(name) for name in names or sawlog.formats()]:
        begun = time.perf_counter()
        format.warm_up()
        seconds[format.name] = time.perf_counter() - begun
    rendering(json).warmed(Warmed(seconds, os.environ.get("NUMBA_CACHE_DIR") or "__pycache__ beside each module"))
    return Exit.OK
