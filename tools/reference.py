"""Parts of the documentation that come from the program: docs/api.md, and tables of views and options in pages.

    .venv/bin/python tools/reference.py

docs/api.md has the signatures for code hosts, which show the directives of mkdocstrings as they are; it is written from
docstrings and the directives of pages. A table is written between two marks of a page:

    <!-- options: leveldb_log -->
    <!-- end -->

Besides `options` for reading there are `write options` and `views`; names after the format's choose some of them. The
page of the command line has `commands`, `shared options` and `own options`, that on adding a format `capabilities`.
Tests compare the pages with what is written now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import EnumType
from pathlib import Path
from typing import Any, get_type_hints

import griffe
import typer
import typer.main

import sawlog
from sawlog.cli.app import app
from sawlog.cli.cards import OptionCard, make_option_cards
from sawlog.format import capabilities
from sawlog.format.contract import Format

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
PAGES = ("python.md", "reference.md", "testing.md")
DIRECTIVE = re.compile(r"^::: (?P<name>\S+)(?P<options>(?:\n {4}.*)*)", re.MULTILINE)
MEMBERS = re.compile(r"members: \[(.*)\]")
BLOCK = re.compile(
    r"^(?P<mark><!-- (?P<kind>commands|capabilities|(?:shared|own) options) -->)\n.*?^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
EXIT_CODES = re.compile(r"Exit code (.*?)\.$")
EXPLAINED = {
    **dict.fromkeys(("import", "import-status", "merge"), "import-and-merge.md"),
    **dict.fromkeys(("init", "run"), "pipelines.md"),
    "map": "map.md",
    "spark-jar": "spark.md#the-jar",
}
"""Pages that explain a verb, other than that of the command line."""
WIDTH = 100
"""Of a signature on one line."""
TITLES = {
    "parameters": "Arguments",
    "attributes": "Attributes",
    "returns": "Returns",
    "yields": "Yields",
    "raises": "Raises",
}
INTRODUCTION = """# Functions and classes

Signatures, arguments, results and errors of everything public, in the order of the pages that explain it.
`tools/reference.py` writes this page from the docstrings.
"""

TABLE = re.compile(
    r"^(?P<mark><!-- (?P<kind>[a-z ]+): (?P<format>\w+)(?P<names>(?: \w+)*) -->)\n.*?^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
KINDS = {"boolean", "integer", "number", "text", "datetime", "dict", "pairs"}
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


def with_tables(text: str) -> str:
    """A page whose tables of views and options are those of the program."""
    return TABLE.sub(lambda table: f"{table['mark']}\n\n{''.join(table_lines(table))}\n<!-- end -->", text)


def table_lines(table: re.Match[str]) -> Iterator[str]:
    """The lines of the table that a mark asks for."""
    title, header, rows = TABLES[table["kind"]]
    all_rows = dict(rows(sawlog.formats()[table["format"]]))
    yield f"| {title} | {header} |\n|---{'|---' * (header.count('|') + 1)}|\n"
    for name in table["names"].split() or all_rows:
        yield f"| `{name}` | {all_rows[name]} |\n"


def view_rows(format: Format) -> Iterator[tuple[str, str]]:
    """Each view of a format, and the other cells of its row."""
    other_names = {view: alias for alias, view in format.aliases.items()}
    for name, title in format.views.items():
        alias = f"; also called `{other_names[name]}`" if name in other_names else ""
        yield name, f"{escaped(title)}{alias}"


def option_rows(options: type) -> Iterator[tuple[str, str]]:
    """Each option of a class, and the other cells of its row."""
    for card in make_option_cards(options):
        yield card.name, " | ".join([values_of(card.takes), default_of(card), escaped(card.doc)]).replace("|  |", "| |")


def values_of(takes: str) -> str:
    """The values that an option takes, as a page says it."""
    takes = takes.replace("true|false", "boolean").replace("name=value,...", "pairs")
    before = "list of " if takes.endswith(",...") else ""
    alternatives = takes.removesuffix(",...").split("|")
    if not KINDS.issuperset(alternatives):
        alternatives = [f"`{each}`" for each in alternatives]
    return before + ", ".join(alternatives)


def default_of(card: OptionCard) -> str:
    """The default of an option, as a page says it; nothing where it is unset."""
    if not card.default or card.default == "{}":
        return ""
    if card.takes == "integer" and "bytes" in card.name:
        for unit, size in UNITS.items():
            if int(card.default) % size == 0:
                return f"{int(card.default) // size} {unit}"
    return card.default if card.takes in ("integer", "true|false") else f"`{card.default}`"


def escaped(text: str) -> str:
    """A text for a cell of a table."""
    return text.replace("|", "\\|")


TABLES: dict[str, tuple[str, str, Callable[[Format], Iterator[tuple[str, str]]]]] = {
    "views": ("view", "rows", view_rows),
    "options": ("option", "type | default | meaning", lambda format_: option_rows(format_.read_options)),
    "write options": ("option", "type | default | meaning", lambda format_: option_rows(format_.write_options)),
}


def with_blocks(text: str) -> str:
    """A page whose tables of verbs, of their options and of capabilities are those of the program."""

    def written(block: re.Match[str]) -> str:
        tables = capability_table() if block["kind"] == "capabilities" else verb_tables()[block["kind"]]
        return f"{block['mark']}\n\n{tables}\n<!-- end -->"

    return BLOCK.sub(written, text)


def capability_table() -> str:
    """The protocols that only some formats have, with their methods."""
    rows: list[tuple[str, ...]] = [("protocol", "for", "methods")]
    for name, protocol in vars(capabilities).items():
        if getattr(protocol, "_is_runtime_protocol", False):
            members = {**vars(protocol), **protocol.__annotations__}
            methods = ", ".join(f"`{member}`" for member in members if member[0] != "_")
            rows.append((f"`{name}`", protocol.__doc__.partition(".")[0], methods))
    return table(rows)


def verb_tables() -> dict[str, str]:
    """The tables of the page of the command line: verbs with exit codes, options that verbs share, and their own."""
    group = typer.main.get_command(app)
    verbs: list[tuple[str, ...]] = [("command", "what it does", "exit codes")]
    shared: dict[tuple[str, str], list[str]] = {}
    own_options: list[tuple[str, ...]] = [("command", "option", "meaning")]
    for name in list(group.commands):
        _, command, _ = group.resolve_command(None, [name])
        sentence, _, details = command.help.partition("\n")
        codes = EXIT_CODES.search(" ".join(details.split()))
        kinds = get_type_hints(command.callback)
        arguments = [argument.metavar for argument in command.params if argument.param_type_name == "argument"]
        link = f"[`{' '.join([name, *arguments])}`]({EXPLAINED.get(name, f'#{name}')})"
        verbs.append((link, sentence.rstrip("."), codes[1] if codes else ""))
        for option in command.params:
            if option.param_type_name == "option" and option.name != "json":
                row = (f"`{spelled(option, kinds[option.name])}`", option_help(option))
                if option.rich_help_panel:
                    shared.setdefault(row, []).append(name)
                else:
                    own_options.append((f"`{name}`", *row))
    common = [("option", "meaning", "commands"), *((*row, ", ".join(names)) for row, names in shared.items())]
    return {"commands": table(verbs), "shared options": table(common), "own options": table(own_options)}


def spelled(option: Any, kind: Any) -> str:
    """The flags of an option of a type, with a word for its value."""
    choices = "|".join(kind) if isinstance(kind, EnumType) else "VALUE"
    value = "" if option.is_flag else option.metavar or choices
    return f"{', '.join([*option.opts, *option.secondary_opts])} {value}".rstrip()


def option_help(option: Any) -> str:
    """The help of an option, with its default if it has one."""
    default = getattr(option.default, "value", option.default)
    return f"{option.help} Default: `{default}`." if default else option.help


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows as Markdown, the first of them as headings."""
    lines = [[f" {escaped(text)} " if text else " " for text in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def reference() -> str:
    """The page docs/api.md."""
    package = griffe.load("sawlog", search_paths=[ROOT / "src"], docstring_parser="google")
    parts = [INTRODUCTION]
    for page in PAGES:
        source = (ROOT / "docs" / page).read_text("utf-8")
        title = source.partition("\n")[0].removeprefix("# ")
        entries = {}
        for directive in DIRECTIVE.finditer(source):
            member = package[directive["name"].removeprefix("sawlog.")]
            short = package.members.get(member.name)
            is_same = short is not None and short.canonical_path == member.canonical_path
            name = f"sawlog.{member.name}" if is_same else directive["name"]
            members = MEMBERS.search(directive["options"])
            entries[name] = list(described(member, name, members[1].split(", ") if members else None))
        index = " · ".join(f"[`{name}`](#{name.replace('.', '').lower()})" for name in entries)
        parts += [f"## {title}\n", f"Explained in [{title}]({page}).\n", index + "\n"]
        parts += [paragraph for entry in entries.values() for paragraph in entry]
    return "\n".join(parts)


def described(member: Any, name: str, members: list[str] | None, level: int = 3) -> Iterator[str]:
    """An object and its members, paragraph by paragraph. Without names, those of a class that are documented."""
    target = member.final_target if member.is_alias else member
    yield f"{'#' * level} `{name}`\n"
    if not target.is_module:
        yield f"```python\n{signature(target)}\n```\n"
    for section in target.docstring.parsed if target.docstring else ():
        title = TITLES.get(section.kind.value)
        yield listed(title, section.value) if title else f"{section.value}\n"
    if members is None and target.is_class:
        members = [each for each, member in target.members.items() if each[0] != "_" and member.has_docstring]
    for each in members or ():
        yield from described(target[each], f"{target.name}.{each}", None, level + 1)


def signature(member: Any) -> str:
    """How it is called, or what it is."""
    if member.is_attribute:
        value = f" = {member.value}" if member.value is not None and "property" not in member.labels else ""
        return f"{member.name}{f': {member.annotation}' if member.annotation is not None else ''}{value}"
    before = f"class {member.name}" if member.is_class else f"def {member.name}"
    after = "" if member.is_class or member.returns is None else f" -> {member.returns}"
    written: list[str] = []
    kind = griffe.ParameterKind
    keywords = False
    for each in member.parameters:
        if each.name not in ("self", "cls") and not each.name.startswith("_"):
            if each.kind is kind.keyword_only and not keywords:
                written.append("*")
            keywords |= each.kind in (kind.keyword_only, kind.var_positional)
            star = {kind.var_positional: "*", kind.var_keyword: "**"}.get(each.kind, "")
            default = f" = {each.default}" if each.default is not None and not star else ""
            written.append(f"{star}{each.name}: {each.annotation}{default}")
    text = f"{before}({', '.join(written)}){after}"
    return text if len(text) <= WIDTH else "\n".join([f"{before}(", *(f"    {each}," for each in written), f"){after}"])


def listed(title: str, values: Any) -> str:
    """A list of what a section of a docstring names; results and errors are named by their types."""
    lines = [
        f"- `{getattr(value, 'name', None) or value.annotation}`: {' '.join(value.description.split())}\n"
        for value in values
    ]
    return f"**{title}**\n\n{''.join(lines)}"


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        path.write_text(with_blocks(with_tables(path.read_text("utf-8"))), "utf-8")
