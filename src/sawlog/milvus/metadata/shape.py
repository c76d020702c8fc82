"""Values of JSON and Avro that others wrote, judged before they are used; what is of another shape is named."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, SupportsIndex

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.milvus import layout


def parse_json(text: bytes | str, description: str) -> Any:
    """The value of a text in JSON.

    Raises:
        FormatError: When it is not JSON, or nested too deeply.
    """
    value = decode_json(text)
    if isinstance(value, Undecodable):
        raise FormatError(f"{description}: {value.detail}")
    return value


def mapping(value: Any, description: str) -> Mapping[str, Any]:
    """An object.

    Raises:
        FormatError: For anything else.
    """
    if not isinstance(value, Mapping):
        raise _other(value, description, "an object")
    return value


def listing(value: Any, description: str) -> list[Any]:
    """A list; none where there is nothing, as Go writes a list without elements.

    Raises:
        FormatError: For anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise _other(value, description, "a list")
    return list(value)


def mappings(value: Any, description: str) -> list[Mapping[str, Any]]:
    """A list of objects.

    Raises:
        FormatError: For anything else.
    """
    return [
        mapping(element, f"{description}, number {index}") for index, element in enumerate(listing(value, description))
    ]


def require(entry: Mapping[str, Any], key: str) -> Any:
    """The value of a key.

    Raises:
        FormatError: When there is none.
    """
    if key not in entry:
        raise FormatError(f"{key!r} is missing")
    return entry[key]


def text(value: Any, description: str) -> str:
    """A text.

    Raises:
        FormatError: For anything else.
    """
    if not isinstance(value, str):
        raise _other(value, description, "a text")
    return value


def integer(value: Any, description: str) -> int:
    """An int64, or its decimal text; a uint64 as the int64 of the same bits, as in protobuf.

    Raises:
        FormatError: For anything else.
    """
    if isinstance(value, str) and layout.INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, SupportsIndex) or not -(1 << 63) <= value.__index__() < 1 << 64:
        raise _other(value, description, "an integer of 64 bits")
    converted = value.__index__()
    return converted - (1 << 64) if converted >= 1 << 63 else converted


def number(entry: Mapping[str, Any], key: str) -> int:
    """The integer of a key, as of `integer`; 0 where it is left out.

    Raises:
        FormatError: For anything else.
    """
    return integer(entry.get(key, 0), repr(key))


def from_base64(value: Any, description: str) -> bytes:
    """The bytes of a text in base64.

    Raises:
        FormatError: For anything else.
    """
    data = call_decoder(base64.b64decode, text(value, description), validate=True)
    if isinstance(data, Undecodable):
        raise FormatError(f"{description}: expected base64: {data.detail}")
    return data


def _other(value: Any, description: str, expected: str) -> FormatError:
    return FormatError(f"{description}: expected {expected}, found {str(value)[:60]!r}")
