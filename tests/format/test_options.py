from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from sawlog.errors import OptionError
from sawlog.format.options import parse_options


@dataclass(frozen=True, slots=True)
class Example:
    name_of_table: str
    flag: bool = False
    count: int = 1
    ratio: float = 0.5
    mode: Literal["a", "b"] = "a"
    maybe: int | None = None
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        ({"flag": "TRUE"}, "flag", True),
        ({"flag": False}, "flag", False),
        ({"count": "42"}, "count", 42),
        ({"ratio": "2"}, "ratio", 2.0),
        ({"mode": "b"}, "mode", "b"),
        ({"maybe": "7"}, "maybe", 7),
        ({"maybe": None}, "maybe", None),
        ({"names": "x, y,"}, "names", ("x", "y")),
        ({"names": ["x", "y"]}, "names", ("x", "y")),
    ],
)
def test_strings_are_as_good_as_values(arguments: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(parse_options(Example, {"name_of_table": "n", **arguments}, context="test"), name) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "option 'name_of_table' is required"),
        ({"name_of_table": "n", "colour": 1}, "unknown option 'colour'; known options: count, flag, maybe, mode"),
        ({"name_of_table": "n", "flag": "perhaps"}, "option flag='perhaps': expected bool"),
        ({"name_of_table": "n", "count": "1.5"}, "option count='1.5': expected int"),
        ({"name_of_table": "n", "count": True}, "option count=True: expected int"),
        ({"name_of_table": "n", "mode": "c"}, "option mode='c': expected one of a, b"),
        ({"name_of_table": 3}, "option name_of_table=3: expected str"),
        ({"name_of_table": "n", "names": True}, "option names=True: expected a list"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(Example, arguments, context="test")
