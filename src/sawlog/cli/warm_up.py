"""`sawlog warm-up`: nothing to do, for kernels are compiled before they are installed."""

from __future__ import annotations

from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Outcome, show
from sawlog.recognition import get_format


def warm_up(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these formats.")] = None,
    json: arguments.Json = False,
) -> int:
    """Do nothing: kernels come compiled. Recipes from before they did go on working."""
    from sawlog.kernels.jit import MODE

    for name in names or ():
        get_format(name)
    said = "there is nothing to do" if MODE == "library" else "each process has them compiled when it needs them"
    show(Outcome({"kernels": MODE}, "kernels", f"{MODE}: {said}"), json=json)
    return Exit.OK
