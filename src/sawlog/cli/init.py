"""`sawlog init`: begin a pipeline."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Outcome, show
from sawlog.errors import OptionError


def init(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="New file.")] = "pipeline.toml",
    json: arguments.Json = False,
) -> int:
    """Write a commented example of a pipeline."""
    text = files("sawlog.pipeline").joinpath("example.toml").read_text()
    try:
        with open(path, "x") as file:
            file.write(text)
    except FileExistsError:
        raise OptionError(f"{path}: is there already; name another file") from None
    show(Outcome({"path": path}, path, "written; edit it, then", hint=f"sawlog run {path} --dry-run"), json=json)
    return Exit.OK
