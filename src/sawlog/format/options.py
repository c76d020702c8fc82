"""Options of formats: frozen dataclasses, filled from Python values or from the strings of Spark and the CLI."""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sawlog.errors import OptionError, suggest_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


MAX_RECORD_BYTES = (1 << 31) - 1
"""The longest record that an array of Arrow's type binary holds."""
NAMES_TIME = {"names_time": True}
"""Metadata of an option that names a time: what it reads is as it was then."""


def make_rescue_metadata(value: Any) -> dict[str, Any]:
    """Return the metadata of an option by whose value damaged files give more rows, each proven by a checksum."""
    return {"rescues": value}


def check_record_bytes(max_item_bytes: int) -> None:
    """Refuse a limit that is longer than the longest record.

    Raises:
        OptionError: Also for a negative one.
    """
    if not 0 <= max_item_bytes <= MAX_RECORD_BYTES:
        raise OptionError(f"max_item_bytes={max_item_bytes}: expected 0 to {MAX_RECORD_BYTES}")


def find_time_option(cls: type) -> str | None:
    """Return the name of the option that names a time; `None` where there are no earlier times."""
    return next((option.name for option in fields(cls) if "names_time" in option.metadata), None)


def find_rescue_options(cls: type) -> dict[str, Any]:
    """Return the options under which damaged files give more rows, by name."""
    return {option.name: option.metadata["rescues"] for option in fields(cls) if "rescues" in option.metadata}


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Nothing to choose."""


_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def as_text(value: Any) -> str:
    """Return a value of an option as people type it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def list_option_names(cls: Any) -> list[str]:
    """Return the names of options."""
    return [option.name for option in fields(cls)]


def parse_options(
    cls: type[Options], values: Mapping[str, Any], *, context: str, general: Iterable[str] = ()
) -> Options:
    """Build the options dataclass `cls` from names and values.

    Args:
        cls: A frozen dataclass; its annotations (bool, int, float, str, Literal, lists and optionals of them) say what
            each option takes.
        values: Names and values. Strings are converted, so `"true"` is as good as `True`.
        context: What the options are for, to begin error messages with.
        general: Names that are taken besides options, which one may have meant.

    Raises:
        OptionError: For an unknown name, a missing required option or a value of the wrong type.
    """
    hints, required = _resolve_hints(cls)
    if unknown := sorted(values.keys() - hints.keys()):
        known_names = ", ".join(sorted(hints)) or "none"
        near = suggest_name(unknown[0], [*hints, *general])
        raise OptionError(f"{context}: unknown option {unknown[0]!r}{near}; known options: {known_names}")
    for name in required:
        if name not in values:
            raise OptionError(f"{context}: option {name!r} is required")
    return cls(**{name: convert(value, hints[name], f"{context}: option {name}") for name, value in values.items()})


@functools.cache
def _resolve_hints(cls: type) -> tuple[dict[str, Any], list[str]]:
    """Return the types of options by name, and the names of those that are required."""
    hints = get_type_hints(cls)
    required = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    return {f.name: hints[f.name] for f in fields(cls)}, required


def convert(value: Any, hint: Any, context: str) -> Any:
    """Convert one value to the type `hint`.

    Raises:
        OptionError: When it does not fit.
    """
    if hint is Any:
        return value
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise OptionError(f"{context}={value!r}: expected one of {', '.join(map(str, get_args(hint)))}")
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        *first, last = [arg for arg in get_args(hint) if arg is not types.NoneType]
        for inner in first:
            with contextlib.suppress(OptionError):
                return convert(value, inner, context)
        return convert(value, last, context)
    if origin is dict:
        pairs = (
            [item.partition("=")[::2] for item in value.split(",") if item.strip()] if isinstance(value, str) else value
        )
        if not isinstance(pairs, Mapping) and not isinstance(value, str):
            raise OptionError(f"{context}={value!r}: expected name=value pairs")
        kind = get_args(hint)[1]
        return {str(name).strip(): convert(item, kind, f"{context}, {name}") for name, item in dict(pairs).items()}
    if isinstance(value, os.PathLike):
        value = (os.fspath(value),) if origin is tuple else os.fspath(value)
    if origin is tuple:
        items = [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value
        if not isinstance(items, Iterable) or isinstance(items, Mapping):
            raise OptionError(f"{context}={value!r}: expected a list")
        return tuple(convert(item, get_args(hint)[0], context) for item in items)
    if isinstance(value, str) and hasattr(hint, "from_text"):
        return hint.from_text(value)
    if hint is bool and isinstance(value, str):
        value = _TRUTH.get(value.lower(), value)
    elif hint in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = hint(value)
    if hint is float and type(value) is int:
        return float(value)
    hint = origin or hint
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise OptionError(f"{context}={value!r}: expected {getattr(hint, '__name__', hint)}")
