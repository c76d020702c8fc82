"""Shapes of JSON that sawlog itself wrote, read back: values of annotated types, or refused."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sawlog.errors import FormatError
from sawlog.guard import Undecodable


def parse_json_as(value: Any, hint: Any, context: str) -> Any:
    """Return a value of JSON as one of a type. Members of an object that its dataclass does not have are left out.

    Args:
        value: What `sawlog.guard.decode_json` made of a text.
        hint: `Any`, `None`, `bool`, `int`, `str`, a `Literal`, a dataclass, a list, a tuple, a sequence or a mapping
            from strings of these, or a union.
        context: What it is, to begin error messages with.

    Raises:
        FormatError: When it is of another shape, or no JSON at all; says where.
    """
    if isinstance(value, Undecodable):
        raise FormatError(f"{context}: {value.detail}")
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        (only,) = (argument for argument in arguments if argument is not types.NoneType)
        return parse_json_as(value, only, context)
    if origin is Literal and value in arguments:
        return value
    if is_dataclass(hint) and isinstance(value, Mapping):
        return _make_dataclass(value, hint, context)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {key: parse_json_as(argument, arguments[1], f"{context}, {key}") for key, argument in value.items()}
    if origin in (list, tuple, Sequence) and isinstance(value, list):
        kinds = arguments if origin is tuple and arguments[-1] is not ... else (arguments[0],) * len(value)
        if len(kinds) == len(value):
            items = [
                parse_json_as(argument, kind, f"{context}, {index}")
                for index, (argument, kind) in enumerate(zip(value, kinds, strict=True))
            ]
            return items if origin is list else tuple(items)
    if hint in (bool, int, str) and type(value) is hint:
        return value
    raise FormatError(f"{context}: expected {getattr(hint, '__name__', hint)}, found {str(value)[:60]!r}")


def _make_dataclass(value: Mapping[str, Any], cls: Any, context: str) -> Any:
    """Return an instance of a dataclass."""
    hints = _read_hints(cls)
    for member in fields(cls):
        if member.name not in value and member.default is MISSING and member.default_factory is MISSING:
            raise FormatError(f"{context}: {member.name} is missing")
    return cls(
        **{
            name: parse_json_as(value[name], hint, f"{context}, {name}")
            for name, hint in hints.items()
            if name in value
        }
    )


@functools.cache
def _read_hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)
