"""Options of formats, as they are shown: from their dataclasses and what the docstrings say."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class OptionCard:
    """One option: what it takes, what it is when not given, what it does."""

    name: str
    takes: str
    default: str | None
    doc: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "takes": self.takes, "default": self.default, "doc": self.doc}


def option_cards(options: type) -> list[OptionCard]:
    """The fields of an options dataclass, with what the `Attributes:` section of its docstring says on them."""
    hints = get_type_hints(options)
    docs = attribute_docs(options)
    return [
        OptionCard(one.name, describe(hints[one.name]), _default(one), docs.get(one.name, ""))
        for one in fields(options)
    ]


def attribute_docs(cls: type) -> dict[str, str]:
    """The entries of the `Attributes:` section of a Google style docstring."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    docs: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        head = re.match(r" {4}(\w+):\s*(.*)", line)
        if head:
            name = head[1]
            docs[name] = head[2]
        elif name:
            docs[name] = f"{docs[name]} {line.strip()}".strip()
    return docs


def describe(hint: Any) -> str:
    """What an option of that type takes, as one writes it on the command line."""
    origin = get_origin(hint)
    if origin is Literal:
        return "|".join(str(value) for value in get_args(hint))
    if origin in (Union, types.UnionType):
        return "|".join(describe(one) for one in get_args(hint) if one is not types.NoneType)
    if origin is tuple:
        return f"{describe(get_args(hint)[0])},..."
    return {bool: "true|false", int: "integer", float: "number", str: "text"}.get(
        hint, getattr(hint, "__name__", "text")
    )


def _default(option: Field[Any]) -> str | None:
    """The default as one would write it; `None` for a required option or one that is unset."""
    value = option.default_factory() if option.default_factory is not MISSING else option.default
    if value is MISSING or value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)
