"""The application: its commands, and what it says when none is given."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Annotated, Any, get_type_hints

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from sawlog import __version__
from sawlog.cli.errors import USAGE_ERROR, Exit, complain, with_exit_codes
from sawlog.format.lazy import find_entry_points

_COMMANDS_GROUP = "sawlog.commands"
"""Entry points of commands that belong to one format: a name, and a function as Typer takes it."""

_VERB_GROUPS = {
    "Look": ("ls", "info", "cat", "map", "sql", "formats"),
    "Check and repair": ("verify", "report", "diff", "repair", "vacuum"),
    "Convert": ("convert", "index"),
    "Follow and run": ("init", "run", "warm-up", "spark-jar"),
}
"""Commands of all formats by the heading of the help that they are below; each is a function in a module of its own."""
VERBS = tuple(itertools.chain.from_iterable(_VERB_GROUPS.values()))
_OF_SYSTEMS = "For one system"
"""Heading of the commands that entry points bring."""

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_EXAMPLES = """\b
Examples:
  sawlog ls folder/                      the datasets of a folder
  sawlog cat db/000005.log --limit 5     rows
  sawlog cat db/ --json | jq .           rows for programs
  sawlog verify db/*.log                 damage, byte by byte
  sawlog repair db/000005.log new.log    a copy of everything intact
  sawlog convert db/ rows.parquet        also Arrow, CSV, JSONL
  sawlog COMMAND --help                  the options of a command
"""


class _WithoutPydantic:
    """A command that reads texts, numbers and defaults itself: even for them Typer would import Pydantic, in 0.1 s."""

    callback: Any

    def get_params(self, ctx: Any) -> Any:
        """Return all parameters."""
        parameters = super().get_params(ctx)  # type: ignore[misc] # of Typer's class
        hints = get_type_hints(self.callback)
        for parameter in parameters:
            read = functools.partial(_convert_parameter, parameter, parameter.process_value, hints.get(parameter.name))
            vars(parameter).setdefault("process_value", read)
        return parameters

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return names of commands and options for a shell, with what they are."""
        items = super().shell_complete(ctx, incomplete)  # type: ignore[misc] # of Typer's class
        for item in items:
            item.value, item.help = describe_completion(item.value, item.help or "")
        return items


def describe_completion(name: str, text: str) -> tuple[str, str]:
    """Return a word that a shell may complete, and what it is, for Typer.

    Typographic apostrophes, as zsh takes others for the end of what Typer quotes. For fish, both as one word, as Typer
    would write them: by themselves Typer would import Rich for the text, which takes as long as the rest.
    """
    text = text.replace("'", "\u2019")
    return (
        (f"{name}\t{' '.join(text.split())}", "")
        if os.environ.get("_SAWLOG_COMPLETE") == "complete_fish"
        else (name, text)
    )


def _convert_parameter(
    parameter: Any, convert: Callable[[Any, Any], Any], hint: Any, context: Any, raw_value: Any
) -> Any:
    """Return the value of a parameter. What may be wrong is left to Typer, which says so."""
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
    """Command whose help has the options that commands share below headings of their own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, heading by heading."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                heading = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(heading, []).append(record)
        _write_sections(formatter, sections)


class Verbs(_WithoutPydantic, TyperGroup):
    """The commands, those of formats too; one is loaded when it is run, and lists say what its source says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        built_in = [
            EntryPoint(name, f"sawlog.cli.{_make_identifier(name)}:{_make_identifier(name)}", "") for name in VERBS
        ]
        self._unloaded = {**find_entry_points(_COMMANDS_GROUP), **{point.name: point for point in built_in}}
        unnamed: dict[str, Any] = dict.fromkeys([*VERBS, *self._unloaded])
        self.commands = unnamed

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, which may not be loaded yet; None for an unknown one."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = TyperCommand(cmd_name, help=_read_description(self._unloaded[cmd_name]))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, heading by heading."""
        headings = {verb: heading for heading, verbs in _VERB_GROUPS.items() for verb in verbs}
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _VERB_GROUPS}
        for name in self.list_commands(ctx):
            summary = (self.get_command(ctx, name).help or "").partition("\n")[0].rstrip(".")
            sections.setdefault(headings.get(name, _OF_SYSTEMS), []).append((name, summary))
        width = max(map(len, self.commands))
        aligned = {heading: [(name.ljust(width), text) for name, text in rows] for heading, rows in sections.items()}
        _write_sections(formatter, aligned)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names, loaded, and the other arguments."""
        if args[0] in self._unloaded:
            single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_HELP)
            single.command(args[0], cls=Verb)(with_exit_codes(_with_options(self._unloaded.pop(args[0]).load())))
            self.commands[args[0]] = typer.main.get_command(single)
        return super().resolve_command(ctx, args)


def _write_sections(formatter: Any, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write names and their descriptions below headings."""
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)


def _make_identifier(name: str) -> str:
    return name.replace("-", "_")


def _read_description(point: EntryPoint) -> str | None:
    """Return a verb's docstring from its source: to import it, and what it imports, takes ten times as long."""
    spec = find_spec(point.module)
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(point.module)
    for node in ast.parse(source or "").body:
        if isinstance(node, ast.FunctionDef) and node.name == point.attr:
            return ast.get_docstring(node)
    docstring: str | None = point.load().__doc__
    return docstring


def _with_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Return a function whose options are those of the dataclasses, besides others, that a command takes."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        parameters += [
            parameter.replace(name=option.name, default=option.default, annotation=types[option.name])
            for option in fields(groups[name])
        ]

    @functools.wraps(verb)
    def run(**values: Any) -> int:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in fields(group)})
        return verb(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


app = typer.Typer(
    name="sawlog",
    cls=Verbs,
    help="Read, check, repair and convert binary logs of storage systems.",
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
    """Read, check, repair and convert binary logs of storage systems."""
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
