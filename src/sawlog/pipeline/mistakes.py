"""Mistakes in a pipeline's file, in the words of the file: the line, the key, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sawlog.errors import OptionError, suggest_name
from sawlog.pipeline.document import Document, Path

_NAMES = {
    dict: "a table",
    list: "a list of strings",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
"""Names of TOML's types; all other types are dates and times."""


class MistakeError(ValueError):
    """A rule of the file that is broken, for validators of models.

    Args:
        message: What is wrong.
        key: Where, from the model's own table on; the table itself, if there is none.
    """

    def __init__(self, message: str, *key: str) -> None:
        super().__init__(message)
        self.key = key


def explain_first_mistake(document: Document, model: type[BaseModel], error: ValidationError) -> OptionError:
    """Return the first mistake of a file; keys that are unknown before those that may be missing because of them."""
    problem = min(error.errors(include_url=False), key=lambda candidate: candidate["type"] != "extra_forbidden")
    path = tuple(part for part in problem["loc"] if isinstance(part, str))
    kind, value = problem["type"], problem["input"]
    table, field = _find_field(model, path)
    if kind == "value_error":
        mistake = problem["ctx"]["error"]
        return document.make_error(path + getattr(mistake, "key", ()), str(mistake))
    if kind == "extra_forbidden":
        valid_keys = [model_field.alias or name for name, model_field in table.model_fields.items()]
        hint = suggest_name(path[-1], valid_keys) or f"; known keys: {', '.join(valid_keys)}"
        return document.make_error(path, f"unknown key{hint}")
    expected = _describe_expected(field)
    if kind == "missing":
        return document.make_error(path[:-1], f"key {path[-1]!r} is missing; expected {expected}")
    if kind == "string_too_short" and len(path) == len(problem["loc"]):
        return document.make_error(path, f"expected {expected} that is not empty")
    right = kind == "literal_error" or (isinstance(value, int) and not isinstance(value, bool) and "than" in kind)
    shown_value = document.secrets.redact(repr(value)) if right else describe_kind(value)
    return document.make_error(path, f"expected {expected}; found {shown_value}")


def describe_kind(value: object) -> str:
    """Return the kind of a value found where another was expected."""
    return {bool: "a truth value", list: "a list"}.get(type(value)) or _NAMES.get(type(value), "a date or time")


def _find_field(model: type[BaseModel], path: Path) -> tuple[type[BaseModel], FieldInfo | None]:
    """Return the model of the table that contains a key, and what the model says of the key."""
    field: FieldInfo | None = None
    keys = iter(path)
    for key in keys:
        table = model
        field = {model_field.alias or name: model_field for name, model_field in model.model_fields.items()}.get(key)
        kinds = list(_iterate_kinds(field.annotation)) if field is not None else []
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not inner:
            return table, field
        model = inner[0]
        if dict in kinds and next(keys, None) is not None:
            field = None  # a table that has its name from the user
    return model, field


def _iterate_kinds(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin in (None, Literal):
        yield annotation
        return
    if isinstance(origin, type) and origin not in (UnionType, Annotated):
        yield origin
    for argument in get_args(annotation)[:1] if origin is Annotated else get_args(annotation):
        yield from _iterate_kinds(argument)


def _describe_expected(field: FieldInfo | None) -> str:
    if field is None:
        return "a table"
    if field.description:
        return field.description
    kind = next(candidate for candidate in _iterate_kinds(field.annotation) if candidate is not NoneType)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return _NAMES.get(kind, "a table")
