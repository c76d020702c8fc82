"""The application: its verbs, and what it says when none is given."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Annotated, Any, get_type_hints

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from sawlog import __version__
from sawlog.cli.errors import USAGE_ERROR, Exit, complain, with_exit_codes
from sawlog.format.lazy import entry_points

_COMMANDS_GROUP = "sawlog.commands"
"""Entry points of verbs that belong to one format: a name, and a function as Typer takes it."""

VERBS = (
    *("ls", "info", "cat", "verify", "map", "repair", "convert", "diff", "init", "run"),
    *("sql", "formats", "index", "vacuum", "warm-up", "spark-jar"),
)
"""Verbs of all formats, each a function in a module of its own."""

_HELP = {"help_option_names": ["-h", "--help"]}
_EXAMPLES = """\b
Examples:
  sawlog ls folder/                      what is there, part by part
  sawlog info db/                        one of them, more closely
  sawlog cat db/000005.log --limit 5     look at rows
  sawlog cat db/ --json | jq .           the same for programs
  sawlog verify db/*.log                 check every byte
  sawlog map db/ --output map.html       the same, and more, as a picture
  sawlog repair db/000005.log new.log    keep everything intact
  sawlog convert db/ rows.parquet        also Arrow, CSV, JSONL
  sawlog diff db/000005.log new.log      which rows differ
  sawlog run pipeline.toml               sources, SQL and sinks on Spark
"""


class _WithoutPydantic:
    """A command that reads texts, numbers and defaults itself: even for them Typer would import Pydantic, in 0.1 s."""

    callback: Any

    def get_params(self, ctx: Any) -> Any:
        """All parameters."""
        parameters = super().get_params(ctx)  # type: ignore[misc] # of Typer's class
        hints = get_type_hints(self.callback)
        for parameter in parameters:
            read = functools.partial(_value, parameter, parameter.process_value, hints.get(parameter.name))
            vars(parameter).setdefault("process_value", read)
        return parameters

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names of verbs and options for a shell, with what they are."""
        items = super().shell_complete(ctx, incomplete)  # type: ignore[misc] # of Typer's class
        for item in items:
            item.value, item.help = described(item.value, item.help or "")
        return items


def described(name: str, text: str) -> tuple[str, str]:
    """A word that a shell may complete, and what it is, for Typer.

    Typographic apostrophes, as zsh takes others for the end of what Typer quotes. For fish, both as one word, as Typer
    would write them: by themselves Typer would import Rich for the text, which takes as long as the rest.
    """
    text = text.replace("'", "\u2019")
    return (
        (f"{name}\t{' '.join(text.split())}", "")
        if os.environ.get("_SAWLOG_COMPLETE") == "complete_fish"
        else (name, text)
    )


def _value(parameter: Any, convert: Callable[[Any, Any], Any], hint: Any, context: Any, raw_value: Any) -> Any:
    """The value of a parameter. What may be wrong is left to Typer, which says so."""
    if hint in (int, int | None) and isinstance(raw_value, str) and raw_value.isdecimal():
        value: Any = int(raw_value)
        free = getattr(parameter, "min", 2) in (None, 0, 1) and getattr(parameter, "max", 2) is None
        plain = free and value > 0
    else:
        texts = hint in (str, str | None, list[str], list[str] | None)
        missing = raw_value is parameter.default and (context.resilient_parsing or not parameter.required)
        plain = (texts and raw_value) or missing
        value = raw_value
    if not plain:
        return convert(context, raw_value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


class Verb(_WithoutPydantic, TyperCommand):
    """Command of one verb."""


class Verbs(_WithoutPydantic, TyperGroup):
    """The verbs, those of formats too; one is loaded when it is run, and lists say what its source says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        built_in = [EntryPoint(name, f"sawlog.cli.{_identifier(name)}:{_identifier(name)}", "") for name in VERBS]
        self._unloaded = {**entry_points(_COMMANDS_GROUP), **{point.name: point for point in built_in}}
        unnamed: dict[str, Any] = dict.fromkeys([*VERBS, *self._unloaded])
        self.commands = unnamed

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, which may not be loaded yet; None for an unknown one."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = TyperCommand(cmd_name, help=_description(self._unloaded[cmd_name]))
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names, loaded, and the other arguments."""
        if args[0] in self._unloaded:
            self.commands[args[0]] = _command(args[0], self._unloaded.pop(args[0]).load())
        return super().resolve_command(ctx, args)


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _description(point: EntryPoint) -> str | None:
    """Return a verb's docstring from its source: to import it, and what it imports, takes ten times as long."""
    spec = find_spec(point.module)
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(point.module)
    for node in ast.parse(source or "").body:
        if isinstance(node, ast.FunctionDef) and node.name == point.attr:
            return ast.get_docstring(node)
    docstring: str | None = point.load().__doc__
    return docstring


def _command(name: str, verb: Callable[..., int]) -> Any:
    """A verb as a command of its own."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_HELP)
    single.command(name, cls=Verb)(with_exit_codes(verb))
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
    """Run one command line and return its exit code; a wrong one is reported in one line."""
    try:
        code = app(None if args is None else list(args), prog_name="sawlog", standalone_mode=False)
    except USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        message = getattr(error, "format_message", error.__str__)()
        complain(f"{message.rstrip('.')}; see {context.command_path if context else 'sawlog'} --help")
        return Exit.UNUSABLE
    return code if isinstance(code, int) else Exit.OK
