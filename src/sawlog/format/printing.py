r"""Arrow values as text: for people, for CSV and for JSON.

One rendering everywhere. Binary is the UTF-8 text it holds; a backslash is doubled, and every byte that is not part of
a printable character is `\xNN`. That loses nothing: `unescape` gives the bytes back.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sawlog.arrow import call_function, cast, is_binary, is_text, make_array
from sawlog.guard import Undecodable, call_decoder

BinaryText: TypeAlias = Literal["escape", "hex", "base64"]
"""How binary values become text."""

Encode: TypeAlias = Callable[[bytes], str]

_ESCAPE = re.compile(r"\\(\\|x([0-9a-fA-F]{2}))?")
_TABLE_SIZE = 8192
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Escapes(dict[int, int | str]):
    """A table for `str.translate`, filled as characters are seen."""

    def __missing__(self, code: int) -> int | str:
        text: int | str = code
        if 0xDC80 <= code <= 0xDCFF:  # what `surrogateescape` makes of a byte that is not UTF-8
            text = f"\\x{code - 0xDC00:02x}"
        elif not chr(code).isprintable():
            text = "".join(f"\\x{byte:02x}" for byte in chr(code).encode("utf-8", "surrogatepass"))
        if len(self) < _TABLE_SIZE:
            self[code] = text
        return text


_UNPRINTABLE = _Escapes()
_LINES = _Escapes({ord(control): control for control in "\n\t"})
_BINARY = _Escapes({ord("\\"): "\\\\"})


def escape(value: bytes) -> str:
    """Return bytes as readable text; see the module."""
    text = value.decode("utf-8", "surrogateescape")
    return text if text.isprintable() and "\\" not in text else text.translate(_BINARY)


def escape_unprintable(text: str) -> str:
    r"""Return a text with the bytes of unprintable characters as `\xNN`, so that it can do no harm to a terminal."""
    return text if text.isprintable() else text.translate(_UNPRINTABLE)


def escape_lines(text: str) -> str:
    """Return the same, with line ends and tabs as they are."""
    return text.translate(_LINES)


def encode_ascii_json(document: Any, **style: Any) -> str:
    """Return JSON for terminals of any encoding, and for names of files that are not text."""
    return json.dumps(document, default=str, **style).replace("\x7f", r"\u007f")


def unescape(text: str) -> bytes:
    r"""Return the bytes that `escape` made text of.

    Raises:
        ValueError: For a backslash that begins neither `\\` nor `\xNN`.
    """
    if "\\" not in text:
        return text.encode()
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        if match[1] is None:
            raise ValueError(f"expected \\\\ or \\xNN, found {text[match.start() : match.start() + 4]!r}")
        parts += (text[end : match.start()].encode(), bytes.fromhex(match[2]) if match[2] else b"\\")
        end = match.end()
    return b"".join((*parts, text[end:].encode()))


def _from_base64(text: str) -> bytes:
    decoded = call_decoder(base64.b64decode, text, validate=True)
    if isinstance(decoded, Undecodable):
        raise ValueError(f"expected base64: {decoded.detail}")  # noqa: TRY004 - of the text
    return decoded


ENCODE: dict[BinaryText, Encode] = {
    "escape": escape,
    "hex": bytes.hex,
    "base64": lambda value: base64.b64encode(value).decode(),
}
DECODE: dict[BinaryText, Callable[[str], bytes]] = {"escape": unescape, "hex": bytes.fromhex, "base64": _from_base64}


def encode_values(array: pa.Array, encode: Encode = escape) -> list[Any]:
    """Return the values of an array as JSON knows them.

    Timestamps, dates and times are ISO 8601 (UTC where there is a time zone), durations ISO 8601 in seconds, decimals
    text; NaN and the infinities are `"NaN"`, `"Infinity"` and `"-Infinity"`. A map with text keys is an object,
    another one a list of pairs.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return encode_values(array.storage, encode)
    if pa.types.is_dictionary(kind):
        return encode_values(call_function("take", array.dictionary, array.indices), encode)
    if is_binary(kind):
        return [None if value is None else encode(value) for value in array.to_pylist()]
    if is_text(kind):
        return _encode_strings(array)
    if pa.types.is_nested(kind):
        return _encode_nested(array, encode)
    if pa.types.is_floating(kind):
        return _encode_floats(array)
    if pa.types.is_timestamp(kind):
        return _encode_timestamps(array)
    if pa.types.is_duration(kind):
        digits = _DIGITS[kind.unit]
        return [None if n is None else _encode_duration(n, digits) for n in array.view(pa.int64()).to_pylist()]
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return list(cast(array, pa.string()).to_pylist())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return list(array.to_pylist())
    return [None if value is None else str(value) for value in array.to_pylist()]


def encode_texts(array: pa.Array, encode: Encode = escape, *, nulls: bool = True) -> list[str | None]:
    """Return values of an array as text; nested ones are JSON, in which objects may do without their null members."""
    if pa.types.is_boolean(array.type):
        return [None if value is None else str(value).lower() for value in array.to_pylist()]
    cells = encode_values(array, encode)
    if not nulls:
        cells = [_without_nulls(value) for value in cells]
    return [value if value is None or isinstance(value, str) else _COMPACT.encode(value) for value in cells]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(element) for element in value]
    return value


def make_text_array(array: pa.Array, encode: Encode) -> pa.Array:
    """Return an array as CSV can hold it: numbers and booleans as they are, everything else as strings."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind):
        return array
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return array
    return make_array(encode_texts(array, encode), pa.large_string())


def encode_json_lines(batch: pa.RecordBatch, encode: Encode = escape) -> Iterator[str]:
    """Yield a JSON object per row, without line ends. Lines hold no character that is not printable."""
    names = batch.schema.names
    if not names:
        yield from ["{}"] * batch.num_rows
        return
    for row in zip(*(encode_values(column, encode) for column in batch.columns), strict=True):
        record = dict(zip(names, row, strict=True))
        line = _COMPACT.encode(record)
        yield line if line.isprintable() else encode_ascii_json(record, separators=(",", ":"), allow_nan=False)


def _encode_strings(array: pa.Array) -> list[str | None]:
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        raw = cast(array, pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw]


def _encode_floats(array: pa.Array) -> list[Any]:
    numbers: Iterable[float | None] = array.to_pylist()
    if pa.types.is_float32(array.type):
        # The shortest text that means this float32, not the double next to it.
        numbers = [None if text is None else float(text) for text in cast(array, pa.string()).to_pylist()]
    return [number if number is None or math.isfinite(number) else _NOT_FINITE[str(number)] for number in numbers]


def _encode_timestamps(array: pa.Array) -> list[str | None]:
    kind = array.type
    plain = cast(array.view(pa.timestamp(kind.unit)), pa.string())
    zone = "Z" if kind.tz else ""
    # Arrow says "<value out of range: ...>" of years that it cannot count.
    return [text if text is None or text[0] == "<" else text.replace(" ", "T", 1) + zone for text in plain.to_pylist()]


def _encode_duration(count: int, digits: int) -> str:
    seconds, fraction = divmod(abs(count), 10**digits)
    sign = "-" if count < 0 else ""
    return f"{sign}PT{seconds}" + (f".{fraction:0{digits}d}".rstrip("0").rstrip(".") if fraction else "") + "S"


def _encode_nested(array: pa.Array, encode: Encode) -> list[Any]:
    kind = array.type
    valid = call_function("is_valid", array).to_pylist()
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        columns = [encode_values(child, encode) for child in array.flatten()]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
        return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]
    if pa.types.is_map(kind):
        pairs = [
            list(zip(keys, items, strict=True))
            for keys, items in zip(
                _encode_slices(array.offsets, array.keys, encode),
                _encode_slices(array.offsets, array.items, encode),
                strict=True,
            )
        ]
        objects = is_text(kind.key_type) and all(len(dict(entries)) == len(entries) for entries in pairs)
        shape: Callable[[Any], Any] = dict if objects else lambda entries: [list(pair) for pair in entries]
        return [shape(entries) if ok else None for ok, entries in zip(valid, pairs, strict=True)]
    if pa.types.is_union(kind):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        array = cast(array, pa.large_list(kind.value_field))
    lists = _encode_slices(array.offsets, array.values, encode)
    return [items if ok else None for ok, items in zip(valid, lists, strict=True)]


def _encode_slices(offsets: pa.Array, child: pa.Array, encode: Encode) -> list[list[Any]]:
    """Return, per list, the values of a child array between its offsets; render nothing outside of them."""
    ends = offsets.to_pylist()
    items = encode_values(child.slice(ends[0], ends[-1] - ends[0]), encode)
    return [items[start - ends[0] : end - ends[0]] for start, end in itertools.pairwise(ends)]


def decode_metadata(column: pa.Field) -> dict[str, str]:
    """Return the metadata of a column as text."""
    return {
        key.decode("utf-8", "backslashreplace"): value.decode("utf-8", "backslashreplace")
        for key, value in (column.metadata or {}).items()
    }
