"""`sawlog init`: begin a pipeline."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.rendering import rendering
from sawlog.errors import OptionError


@dataclass(slots=True)
class Created:
    """The outcome of `sawlog init`: the file that was written."""

    path: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def init(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="New file.")] = "pipeline.toml",
    json: arguments.Json = False,
) -> int:
    """Write a commented example of a pipeline, ready to be edited and run."""
    text = files("sawlog.pipeline").joinpath("example.toml").read_text()
    try:
        with open(path, "x") as file:
            file.write(text)
    except FileExistsError:
        raise OptionError(f"{path}: is there already; name another file") from None
    rendering(json).created(Created(path))
    return Exit.OK
