"""Values of JSON and Avro that others wrote, judged before they are used; what is of another shape is named."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, SupportsIndex

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.milvus import layout


def parse_json(text: bytes | str, description: str) -> Any:
    """Return the value of a text in JSON.

    Raises:
        FormatError: When it is not JSON, or nested too deeply.
    """
    value = decode_json(text)
    if isinstance(value, Undecodable):
        raise FormatError(f"{description}: {value.detail}")
    return value


def require_mapping(value: Any, description: str) -> Mapping[str, Any]:
    """Return an object.

    Raises:
        FormatError: For anything else.
    """
    if not isinstance(value, Mapping):
        raise _make_error(value, description, "an object")
    return value


def require_list(value: Any, description: str) -> list[Any]:
    """Return a list; none where there is nothing, as Go writes a list without elements.

    Raises:
        FormatError: For anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise _make_error(value, description, "a list")
    return list(value)


def require_mappings(value: Any, description: str) -> list[Mapping[str, Any]]:
    """Return a list of objects.

    Raises:
        FormatError: For anything else.
    """
    return [
        require_mapping(element, f"{description}, number {index}")
        for index, element in enumerate(require_list(value, description))
    ]


def require(entry: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key.

    Raises:
        FormatError: When there is none.
    """
    if key not in entry:
        raise FormatError(f"{key!r} is missing")
    return entry[key]


def require_text(value: Any, description: str) -> str:
    """Return a text.

    Raises:
        FormatError: For anything else.
    """
    if not isinstance(value, str):
        raise _make_error(value, description, "a text")
    return value


def require_integer(value: Any, description: str) -> int:
    """Return an int64, or its decimal text; a uint64 as the int64 of the same bits, as in protobuf.

    Raises:
        FormatError: For anything else.
    """
    if isinstance(value, str) and layout.INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, SupportsIndex) or not -(1 << 63) <= value.__index__() < 1 << 64:
        raise _make_error(value, description, "an integer of 64 bits")
    converted = value.__index__()
    return converted - (1 << 64) if converted >= 1 << 63 else converted


def read_number(entry: Mapping[str, Any], key: str) -> int:
    """Return the integer of a key, as of `require_integer`; 0 where it is left out.

    Raises:
        FormatError: For anything else.
    """
    return require_integer(entry.get(key, 0), repr(key))


def from_base64(value: Any, description: str) -> bytes:
    """Return the bytes of a text in base64.

    Raises:
        FormatError: For anything else.
    """
    data = call_decoder(base64.b64decode, require_text(value, description), validate=True)
    if isinstance(data, Undecodable):
        raise FormatError(f"{description}: expected base64: {data.detail}")
    return data


def _make_error(value: Any, description: str, expected: str) -> FormatError:
    return FormatError(f"{description}: expected {expected}, found {str(value)[:60]!r}")
