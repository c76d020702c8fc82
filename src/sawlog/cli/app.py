"""The application: its verbs, and what it says when none is given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from sawlog import __version__, notice
from sawlog.cli import cat, convert, formats, info, init, repair, spark_jar, sql, verify, warm_up
from sawlog.cli import run as running
from sawlog.cli.errors import USAGE_ERROR, Exit, complain, guarded

COMMANDS_GROUP = "sawlog.commands"
"""Entry points of verbs that belong to one format: a name, and a function as Typer takes it."""

_HELP = {"help_option_names": ["-h", "--help"]}
_EXAMPLES = """\b
Examples:
  sawlog info db/                        what is there
  sawlog cat db/000005.log --limit 5     look at rows
  sawlog cat db/ --json | jq .           the same for programs
  sawlog verify db/*.log                 check every byte
  sawlog repair db/000005.log new.log    keep everything intact
  sawlog convert db/ rows.parquet        also Arrow, CSV, JSONL
  sawlog run pipeline.toml               sources, SQL and sinks on Spark
"""


class Verbs(TyperGroup):
    """The verbs, and those of formats, which are loaded when they are asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._elsewhere = {one.name: one for one in entry_points(group=COMMANDS_GROUP) if one.name not in self.commands}
        unloaded: dict[str, Any] = dict.fromkeys(sorted(self._elsewhere))
        self.commands.update(unloaded)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None for an unknown one."""
        if cmd_name in self._elsewhere:
            self.commands[cmd_name] = _command(cmd_name, self._elsewhere.pop(cmd_name).load())
        return super().get_command(ctx, cmd_name)


def _command(name: str, verb: Callable[..., int]) -> Any:
    """A verb of a format as a command of its own."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_HELP)
    single.command(name)(guarded(verb))
    return typer.main.get_command(single)


app = typer.Typer(
    name="sawlog",
    cls=Verbs,
    help="Saws binary logs into tables: look into, check, repair and convert them.",
    epilog=_EXAMPLES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)

for _name, _verb in (
    ("info", info.info),
    ("cat", cat.cat),
    ("verify", verify.verify),
    ("repair", repair.repair),
    ("convert", convert.convert),
    ("init", init.init),
    ("run", running.run),
    ("sql", sql.sql),
    ("formats", formats.formats),
    ("warm-up", warm_up.warm_up),
    ("spark-jar", spark_jar.spark_jar),
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
    if sys.stderr.isatty():
        notice.compiling = _tell_compiling
    try:
        code = app(None if args is None else list(args), prog_name="sawlog", standalone_mode=False)
    except USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        message = getattr(error, "format_message", error.__str__)()
        complain(f"{message.rstrip('.')}; see {context.command_path if context else 'sawlog'} --help")
        return Exit.UNUSABLE
    return code if isinstance(code, int) else Exit.OK


def _tell_compiling() -> None:
    complain("compiling kernels, once after installation; sawlog warm-up does it ahead of time")
