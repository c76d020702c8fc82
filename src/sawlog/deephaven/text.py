"""Text as Deephaven stores it: six charsets, UTF-16 code units; and Arrow arrays of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import compute_offsets, make_array
from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, call_decoder

DEFAULT_CHARSET = "ISO-8859-1"
CHARSETS = {
    "US-ASCII": "ascii",
    "ISO-8859-1": "latin-1",
    "UTF-8": "utf-8",
    "UTF-16": "utf-16",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
}
"""Charset names as stored, and Python's for them. Names of the vendor's enum have underscores instead."""
_MARK = b"\xfe\xff"
"""Byte order mark of UTF-16, big endian."""
WHOLE_CHARSETS = ("ISO-8859-1",)
"""Charsets in which every sequence of bytes is a text."""
_ASCII_BELOW = ("UTF-8", "ISO-8859-1", "US-ASCII")
"""Charsets in which bytes below 128 are ASCII."""


def find_charset(name: str) -> str | None:
    """Return the stored spelling of a charset, from any spelling; None if it is not one of the six."""
    spelled = name.strip().upper().replace("_", "-")
    spelled = {"ASCII": "US-ASCII", "LATIN-1": "ISO-8859-1", "UTF8": "UTF-8"}.get(spelled, spelled)
    return spelled if spelled in CHARSETS else None


def decode_string(data: bytes, charset: str, errors: str = "strict") -> str:
    """Return a string as Java reads it: UTF-16 is big endian unless a byte order mark says otherwise.

    Raises:
        UnicodeDecodeError: For malformed bytes, if errors are `strict`.
    """
    unmarked = charset == "UTF-16" and data[: len(_MARK)] not in (_MARK, _MARK[::-1])
    return data.decode(CHARSETS["UTF-16BE" if unmarked else charset], errors)


def encode_string(text: str, charset: str) -> bytes:
    """Return the bytes of a string as Java writes it: UTF-16 is big endian after a byte order mark.

    Raises:
        UnicodeEncodeError: When the charset lacks a character.
    """
    if charset == "UTF-16":
        return _MARK + text.encode(CHARSETS["UTF-16BE"])
    return text.encode(CHARSETS[charset])


def make_string_array(values: Iterable[str]) -> pa.Array:
    """Return strings as an Arrow array; what cannot be encoded is a question mark."""
    return make_utf8_array([value.encode("utf-8", "replace") for value in values])


def make_utf8_array(values: Sequence[bytes | None]) -> pa.Array:
    """Return UTF-8 strings as an Arrow array; None is null."""
    return make_array(values, pa.binary()).view(pa.string())


def decode_character(unit: int) -> str:
    """Return a UTF-16 code unit as a string; half of a pair is no character."""
    return "\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)


def decode_characters(values: NDArray[np.uint16], bitmap: pa.Buffer | None) -> pa.Array:
    """Return UTF-16 code units as strings of one character each."""
    distinct, places = np.unique(values, return_inverse=True)
    table = make_string_array([decode_character(int(unit)) for unit in distinct])
    buffers = [bitmap, pa.py_buffer(places.astype(np.int32))]
    indices = pa.Array.from_buffers(pa.int32(), len(values), buffers)
    return table.take(indices)


def encode_code_units(array: pa.Array, error: Callable[[int, str], SchemaError]) -> NDArray[np.uint16]:
    """Return strings of one UTF-16 code unit each, as numbers; 0 for null.

    Args:
        array: The strings.
        error: Makes what is raised of the place of a value, and what is wrong with it.

    Raises:
        SchemaError: For a string that is none or more.
    """
    units = np.zeros(len(array), np.uint16)
    for place, value in enumerate(array.to_pylist()):
        if value is None:
            continue
        if len(value) != 1 or ord(value) > 0xFFFF:
            raise error(place, f"{value!r} is not one UTF-16 unit")
        units[place] = ord(value)
    return units


def decode_text(array: pa.Array, charset: str, *, ascii: bool) -> tuple[pa.Array, list[int]]:
    """Return bytes in a charset as strings.

    Args:
        array: Binary; its buffers are used as they are where they are UTF-8 already.
        charset: Stored name.
        ascii: Whether all bytes are known to be below 128.

    Returns:
        Strings, and the rows in which something was replaced because it is malformed.
    """
    buffers = array.buffers()
    text = pa.Array.from_buffers(pa.string(), len(array), buffers, array.null_count)
    if charset in _ASCII_BELOW and ascii:
        return text, []
    ends = np.frombuffer(buffers[1], np.int32, len(array) + 1)
    data = np.frombuffer(buffers[2], np.uint8, int(ends[-1])) if buffers[2] is not None else np.zeros(0, np.uint8)
    if charset == "UTF-8":
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            return _decode_each(array, charset)
        return text, []
    if charset == "ISO-8859-1":
        moved = compute_offsets(data >> 7)
        # Every byte above 127 becomes two.
        if len(data) + int(moved[-1]) < 1 << 31:
            wide = pa.py_buffer((ends + moved[ends]).astype(np.int32))
            encoded = pa.py_buffer(data.tobytes().decode("latin-1").encode())
            return pa.Array.from_buffers(pa.string(), len(array), [buffers[0], wide, encoded], array.null_count), []
    return _decode_each(array, charset)


def _decode_each(array: pa.Array, charset: str) -> tuple[pa.Array, list[int]]:
    decoded: list[bytes | None] = []
    replaced = []
    for row, scalar in enumerate(array):
        value = scalar.as_py()
        if value is None:
            decoded.append(None)
            continue
        text = call_decoder(decode_string, value, charset)
        if isinstance(text, Undecodable):
            replaced.append(row)
            text = decode_string(value, charset, "replace")
        decoded.append(text.encode())
    return make_utf8_array(decoded), replaced
