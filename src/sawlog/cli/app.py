"""The application: its verbs, and what it says when none is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from sawlog import __version__
from sawlog.cli import cat, compact, convert, formats, info, init, load, merge, repair, verify, warm_up
from sawlog.cli import run as running
from sawlog.cli.errors import USAGE_ERROR, Exit, complain, guarded

_EXAMPLES = """\b
Examples:
  sawlog info db/                        what is there
  sawlog cat db/000005.log --limit 5     look at rows
  sawlog cat db/ --json | jq .           the same for programs
  sawlog verify db/*.log                 check every byte
  sawlog repair db/000005.log new.log    keep everything intact
  sawlog convert db/ rows.parquet        also Arrow, CSV, JSONL
  sawlog run pipeline.toml               sources, SQL and sinks on Spark
  sawlog import binlogs/ db/             Deephaven's logs to an intraday tree
"""

app = typer.Typer(
    name="sawlog",
    help="Saws binary logs into tables: look into, check, repair and convert them.",
    epilog=_EXAMPLES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, _verb in (
    ("info", info.info),
    ("cat", cat.cat),
    ("verify", verify.verify),
    ("repair", repair.repair),
    ("convert", convert.convert),
    ("init", init.init),
    ("run", running.run),
    ("import", load.load),
    ("merge", merge.merge),
    ("compact", compact.compact),
    ("formats", formats.formats),
    ("warm-up", warm_up.warm_up),
):
    app.command(_name)(guarded(_verb))


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> int:
    """Saws binary logs into tables: look into, check, repair and convert them."""
    if version:
        typer.echo(f"sawlog {__version__}")
        raise typer.Exit(Exit.OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return Exit.OK


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a wrong one is told in one line."""
    try:
        code = app(None if args is None else list(args), prog_name="sawlog", standalone_mode=False)
    except USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        message = getattr(error, "format_message", error.__str__)()
        complain(f"{message.rstrip('.')}; see {context.command_path if context else 'sawlog'} --help")
        return Exit.UNUSABLE
    return code if isinstance(code, int) else Exit.OK
