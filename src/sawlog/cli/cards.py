"""Options of formats, as they are shown: from their dataclasses and docstrings."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sawlog.format.options import as_text


@dataclass(frozen=True, slots=True)
class OptionCard:
    """Description of an option: what it takes, its default, what it does."""

    name: str
    takes: str
    default: str | None
    doc: str


def make_option_cards(options: type) -> list[OptionCard]:
    """Return fields of an options dataclass, with what the `Attributes:` section of its docstring says about them."""
    hints, docs = get_type_hints(options), parse_attribute_docs(options)
    return [
        OptionCard(option.name, describe(hints[option.name]), _describe_default(option), docs.get(option.name, ""))
        for option in fields(options)
    ]


def parse_attribute_docs(cls: type) -> dict[str, str]:
    """Return the entries of the `Attributes:` section of a Google style docstring."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", section)[0]
    entries = re.findall(r"^ {4}(\w+):\s*(.*(?:\n {5,}.*|\n\s*$)*)", section, re.MULTILINE)
    return {name: " ".join(doc.split()) for name, doc in entries}


def describe(hint: Any) -> str:
    """Return what an option of a type takes, as one writes it on the command line."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(dict.fromkeys(map(str, args)))
    if origin in (Union, types.UnionType):
        return "|".join(dict.fromkeys(describe(kind) for kind in args if kind is not types.NoneType))
    if origin is tuple:
        return f"{describe(args[0])},..."
    if origin is dict and args[1] is not Any:
        return "name=value,..."
    if hasattr(hint, "from_text"):
        return "text"
    names = {bool: "true|false", int: "integer", float: "number", str: "text"}
    return names.get(hint, getattr(hint, "__name__", "text"))


def _describe_default(option: Field[Any]) -> str | None:
    """Return the default as one would write it; `None` for a required option or one that is unset."""
    value = option.default_factory() if option.default_factory is not MISSING else option.default
    if value is MISSING or value is None:
        return None
    return as_text(value)
