"""Values of scripts as Blink and V8 store them (`SerializedScriptValue`, `ValueSerializer`), as JSON.

What JSON has is written as JSON has it. Everything else is an object whose first name begins with `$`; see `docs`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sawlog.leveldb.applications import indexed_db_layout as layout
from sawlog.leveldb.applications.indexed_db_layout import (
    SEPARATE_ENVELOPE,
    TAGGED_HOLES,
    TAGGED_HOSTS,
    TAGGED_STRINGS,
    TRAILER_SIZE,
    TRAILER_TAG,
    UNKNOWN_SINCE,
    VERSION_TAG,
    VIEW_FLAGS,
)
from sawlog.leveldb.applications.view import Cursor, UnknownBytesError

MAX_DEPTH = 150
"""Deeper values are not decoded."""
_MAX_SAFE = 1 << 53
_DECIMAL_BITS = 1 << 12
"""Longer integers are written as hexadecimal digits."""

_TYPED_ARRAYS = {
    b"b": ("Int8Array", "b"),
    b"B": ("Uint8Array", "B"),
    b"C": ("Uint8ClampedArray", "B"),
    b"w": ("Int16Array", "h"),
    b"W": ("Uint16Array", "H"),
    b"d": ("Int32Array", "i"),
    b"D": ("Uint32Array", "I"),
    b"h": ("Float16Array", "e"),
    b"f": ("Float32Array", "f"),
    b"F": ("Float64Array", "d"),
    b"q": ("BigInt64Array", "q"),
    b"Q": ("BigUint64Array", "Q"),
    b"?": ("DataView", "B"),
}
"""Tags of views of buffers: their names, and their elements as `struct` has them."""
_ERRORS = {b"E": "EvalError", b"R": "RangeError", b"F": "ReferenceError", b"S": "SyntaxError", b"T": "TypeError"}
_ERRORS[b"U"] = "URIError"
_REGEXP_FLAGS = "gimyusldv"
"""By bit; the flag `l` is V8's own."""
DOUBLES = {
    b"Q": ("DOMPoint", 4),
    b"W": ("DOMPointReadOnly", 4),
    b"E": ("DOMRect", 4),
    b"R": ("DOMRectReadOnly", 4),
    b"T": ("DOMQuad", 16),
    b"Y": ("DOMMatrix", 16),
    b"U": ("DOMMatrixReadOnly", 16),
    b"I": ("DOMMatrix", 6),
    b"O": ("DOMMatrixReadOnly", 6),
}
"""Host objects that are numbers only."""
_KEY_NUMBERS = {1: 2, 2: 2, 5: 3, 6: 1, 7: 2}
"""Kinds of CryptoKey (AES, HMAC, EC, without parameters, Ed25519), and how many numbers describe each."""
_RSA_KEY = 4
_IMAGE_SETTINGS = 18
"""Blink's first version that lists settings before the size of an image; 0 ends the list."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_JS_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScriptObject:
    """An object that references can lead to.

    Attributes:
        number: Its number among the objects of a value.
        plain: What JSON shows of it: the properties of an `$object`, the items of an `$array`, or names and values.
        kind: `$object` or `$array`, or nothing.
        data: The bytes of a buffer; `None` for anything else.
        buffer: The buffer that is shown by this view of all of it only.
    """

    __slots__ = ("buffer", "data", "kind", "number", "plain")

    def __init__(self, number: int, plain: Any, kind: str, data: bytes | None) -> None:
        self.number = number
        self.plain = plain
        self.kind = kind
        self.data = data
        self.buffer = -1


_UNDEFINED = {"$undefined": True}
_HOLE = {"$hole": True}


def render_number(value: float) -> Any:
    """Return a number of JavaScript's."""
    if isinstance(value, int):
        return value
    if math.isfinite(value):
        exact = value.is_integer() and abs(value) < _MAX_SAFE and (value or math.copysign(1, value) > 0)
        return int(value) if exact else value
    return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def render_date(milliseconds: float) -> dict[str, Any]:
    """Return a Date: ISO 8601 as `toISOString`, null if it is invalid, or milliseconds if a year has other digits."""
    if math.isnan(milliseconds):
        return {"$date": None}
    try:
        moment = _JS_EPOCH + timedelta(milliseconds=int(milliseconds))
    except OverflowError:
        return {"$date": render_number(milliseconds)}
    return {"$date": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def encode_base64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode("ascii")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def to_json(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return the text of a value. Halves of surrogate pairs, which UTF-8 does not have, are escaped."""
    encoder = (
        _ENCODER if default is None else json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=default)
    )
    document = encoder.encode(value)
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def read_json(read: Callable[[Cursor], Any], data: bytes) -> dict[str, Any]:
    """Return a value that a function reads as the column `value`, and why it is not all."""
    cursor = Cursor(data)
    return cursor.explain({"value": to_json(read(cursor))})


def decode_script_value(data: bytes) -> tuple[str, str | None]:
    """Return the JSON of a value, and why parts of it are shown as bytes, if any are.

    Raises:
        UnknownBytesError: When nothing of it is understood.
    """
    return ScriptValue(data).read()


class ScriptValue:
    """Reader of one serialized value of V8 or Blink."""

    def __init__(self, data: bytes) -> None:
        self._in = Cursor(data)
        self._things: list[ScriptObject] = []
        self._referenced: set[int] = set()
        self._depth = 0
        self._version = self._blink = 0
        self._is_stopped = False

    def read(self) -> tuple[str, str | None]:
        """Return the JSON of the value, and why parts of it are shown as bytes, if any are.

        Raises:
            UnknownBytesError: When nothing of it is understood.
        """
        self._read_envelope()
        value = self._read_value()
        while self._in.peek() == 0:
            self._in.take_byte()
        row = self._in.explain({"value": to_json(value, self._show)})
        return row["value"], row.get("reason")

    def _read_envelope(self) -> None:
        """Read versions of Blink and V8, and leave out what follows the value, which is nothing in a database."""
        if self._in.peek() == VERSION_TAG:
            self._in.take_byte()
            self._version = self._blink = self._in.take_varint(32)
        if self._blink >= SEPARATE_ENVELOPE:
            if self._in.peek() == TRAILER_TAG:
                self._in.take_byte()
                if offset := int.from_bytes(self._in.take(TRAILER_SIZE, "place of a trailer")[:8], "big"):
                    if offset < self._in.position:
                        raise UnknownBytesError(f"a trailer at byte {offset}, before the value")
                    self._in = Cursor(self._in.data[:offset], self._in.position)
            if self._in.peek() != VERSION_TAG:
                raise UnknownBytesError(f"Blink's version {self._blink} without a version of V8 after it")
            self._in.take_byte()
            self._version = self._in.take_varint(32)
        if not 0 < self._version < UNKNOWN_SINCE:
            raise UnknownBytesError(f"version {self._version} of V8's values, expected 1 to {UNKNOWN_SINCE - 1}")

    def _show(self, thing: ScriptObject) -> Any:
        """Return an object as JSON shows it; with its number where another place refers to it."""
        marked: dict[str, Any] = {"$id": thing.number} if thing.number in self._referenced else {}
        if thing.buffer in self._referenced:
            marked["buffer"] = {"$id": thing.buffer}
        if not thing.kind:
            return {**marked, **thing.plain}
        escaped = thing.kind == "$object" and any(name.startswith("$") for name in thing.plain)
        return {**marked, thing.kind: thing.plain} if marked or escaped else thing.plain

    def _add_thing(self, plain: Any = None, kind: str = "", data: bytes | None = None) -> ScriptObject:
        """Return the next object, which what follows may refer to."""
        thing = ScriptObject(len(self._things), plain, kind, data)
        self._things.append(thing)
        return thing

    def _read_part(self) -> Any:
        """Return a value in another one.

        Nothing says where a value ends that is not understood: what follows is shown as bytes together with it.
        """
        start, depth = self._in.position, self._depth
        try:
            return self._read_value()
        except UnknownBytesError as unknown:
            if not self._is_stopped:
                self._in.reasons.append(str(unknown))
            self._is_stopped, self._depth, self._in.position = True, depth, start
            return {"$bytes": encode_base64(self._in.take_remainder())}

    def _read_value(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnknownBytesError(f"values in values, deeper than {MAX_DEPTH}")
        tag = self._read_tag()
        if tag in _READERS:
            value = _READERS[tag](self)
        elif self._version < TAGGED_HOSTS:
            self._in.position -= 1
            value = self._read_host()
        else:
            raise UnknownBytesError(f"tag {bytes([tag])!r} at byte {self._in.position - 1}")
        if tag in _BUFFERS:
            buffer = self._things[value["$ref"]] if isinstance(value, dict) else value
            if buffer.data is not None and self._peek() == ord("V"):
                value = self._read_view(buffer, fresh=buffer is value)
        self._depth -= 1
        return value

    def _peek(self) -> int:
        """Return the next tag, which stays."""
        while self._in.peek() == 0:
            self._in.take_byte()
        return self._in.peek()

    def _read_tag(self) -> int:
        """Return the next tag; zeros before it are padding."""
        self._peek()
        return self._in.take_byte()

    def _read_int32(self) -> int:
        value = self._in.take_varint(32)
        return value >> 1 ^ -(value & 1)

    def _read_bigint(self) -> str:
        """Return a BigInt: sign and size in bytes are stored, then the digits."""
        bits = self._in.take_varint(32)
        value = self._in.take_unsigned(bits >> 1)
        value = -value if bits & 1 else value
        return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)

    def _read_text(self) -> Any:
        """Return a string, or its bytes where it is not UTF-8."""
        data = self._in.take(self._in.take_varint(32), "string")
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._in.reasons.append(f"a string that is not UTF-8, before byte {self._in.position}: shown as bytes")
            return {"$bytes": encode_base64(data)}

    def _read_utf8(self) -> str:
        """Return a string that is a part of something else.

        Raises:
            UnknownBytesError: When it is not UTF-8.
        """
        string = self._read_text()
        if not isinstance(string, str):
            raise UnknownBytesError(self._in.reasons.pop())
        return string

    def _read_utf16(self) -> str:
        size = self._in.take_varint(32)
        if size & 1:
            raise UnknownBytesError(f"a string of UTF-16 of {size} bytes before byte {self._in.position}")
        return self._in.take(size, "string").decode("utf-16-le", "surrogatepass")

    def _read_string(self) -> str:
        """Return a string where nothing else may be."""
        string = self._read_utf8() if self._version < TAGGED_STRINGS else self._read_value()
        if not isinstance(string, str):
            raise UnknownBytesError(f"another value than a string, before byte {self._in.position}")
        return string

    def _read_count(self) -> int:
        """Return the number of values that follow, each of which has a byte at least."""
        count = self._in.take_varint(32)
        if count > self._in.remaining:
            raise UnknownBytesError(f"{count} values in {self._in.remaining} bytes, at byte {self._in.position}")
        return count

    def _read_reference(self) -> Any:
        number = self._in.take_varint(32)
        if number >= len(self._things):
            raise UnknownBytesError(
                f"a reference to object {number} before byte {self._in.position}, where there is none"
            )
        self._referenced.add(number)
        return {"$ref": number}

    def _read_properties(self, end: int) -> dict[str, Any]:
        """Return names and values up to a tag, then their count."""
        properties: dict[str, Any] = {}
        while not self._is_stopped and self._peek() != end:
            name = self._read_part()
            if self._is_stopped:
                properties["$bytes"] = name["$bytes"]
                break
            if isinstance(name, bool) or not isinstance(name, str | int | float):
                raise UnknownBytesError(f"another name than a string or number, before byte {self._in.position}")
            name = name if isinstance(name, str) else render_property_name(name)
            if name in properties:
                raise UnknownBytesError(f"a second property {name[:40]!r} before byte {self._in.position}")
            properties[name] = self._read_part()
        if self._is_stopped:
            return properties
        self._in.take_byte()
        if (count := self._in.take_varint(32)) != len(properties):
            raise UnknownBytesError(
                f"{len(properties)} properties, where {count} are counted, before byte {self._in.position}"
            )
        return properties

    def _read_object(self) -> ScriptObject:
        thing = self._add_thing({}, "$object")
        thing.plain = self._read_properties(layout.OBJECT_END_TAG)
        return thing

    def _read_sparse_array(self) -> ScriptObject:
        length = self._in.take_varint(32)
        thing = self._add_thing({})
        elements = self._read_properties(layout.SPARSE_LIST_END_TAG)
        self._check_length(length)
        thing.plain = {"$sparse": elements, "length": length}
        indexes = [str(index) for index in range(len(elements))]
        if len(elements) == length and list(elements) == indexes:  # it only had room for holes
            thing.plain, thing.kind = list(elements.values()), "$array"
        return thing

    def _read_dense_array(self) -> ScriptObject:
        length = self._read_count()
        thing = self._add_thing([], "$array")
        items = []
        for _ in range(length):
            if self._is_stopped:
                break
            if self._peek() == ord("-"):
                self._in.take_byte()
                items.append(_HOLE)
            else:
                item = self._read_part()
                items.append(_HOLE if item is _UNDEFINED and self._version < TAGGED_HOLES else item)
        properties = self._read_properties(layout.DENSE_LIST_END_TAG)
        self._check_length(length)
        thing.plain = items
        if properties:
            thing.plain, thing.kind = {"$array": items, "properties": properties}, ""
        return thing

    def _check_length(self, length: int) -> None:
        """Make sure that an array ends with its length again.

        Raises:
            UnknownBytesError: When it does not.
        """
        if not self._is_stopped and (again := self._in.take_varint(32)) != length:
            raise UnknownBytesError(
                f"an array of length {length} that ends with length {again}, at byte {self._in.position}"
            )

    def _read_wrapped(self, name: str, read: Callable[[], Any]) -> ScriptObject:
        thing = self._add_thing({})
        thing.plain = {name: read()}
        return thing

    def _read_regexp(self) -> ScriptObject:
        thing = self._add_thing({})
        pattern, flags = self._read_string(), self._in.take_varint(32)
        names = "".join(sorted(name for bit, name in enumerate(_REGEXP_FLAGS) if flags >> bit & 1))
        if flags >> len(_REGEXP_FLAGS):
            raise UnknownBytesError(f"flags {flags:#x} of a regular expression, before byte {self._in.position}")
        thing.plain = {"$regexp": pattern, "flags": names}
        return thing

    def _read_items(self, end: str) -> list[Any]:
        """Return values up to a tag, then their count."""
        items = []
        while not self._is_stopped and self._peek() != ord(end):
            items.append(self._read_part())
        if self._is_stopped:
            return items
        self._in.take_byte()
        if (count := self._in.take_varint(32)) != len(items):
            raise UnknownBytesError(f"{len(items)} values, where {count} are counted, before byte {self._in.position}")
        return items

    def _read_map(self) -> ScriptObject:
        thing = self._add_thing({})
        items = self._read_items(":")
        if len(items) % 2 and self._is_stopped:
            items.append(None)
        if len(items) % 2:
            raise UnknownBytesError(f"a map with a key that has no value, before byte {self._in.position}")
        thing.plain = {"$map": [list(pair) for pair in zip(items[::2], items[1::2], strict=True)]}
        return thing

    def _read_set(self) -> ScriptObject:
        thing = self._add_thing({})
        thing.plain = {"$set": self._read_items(",")}
        return thing

    def _read_buffer(self) -> ScriptObject:
        data = self._in.take(self._in.take_varint(32), "buffer")
        return self._add_thing({"$buffer": encode_base64(data)}, data=data)

    def _read_resizable_buffer(self) -> ScriptObject:
        size, max_length = self._in.take_varint(32), self._in.take_varint(32)
        data = self._in.take(size, "buffer")
        return self._add_thing({"$buffer": encode_base64(data), "max_length": max_length}, data=data)

    def _read_view(self, buffer: ScriptObject, *, fresh: bool) -> ScriptObject:
        """Return a view of a buffer, with the bytes where the buffer is written, otherwise with a reference to it."""
        self._read_tag()
        tag, offset, length = self._in.take(1, "tag"), self._in.take_varint(32), self._in.take_varint(32)
        flags = self._in.take_varint(32) if self._version >= VIEW_FLAGS else 0
        data = buffer.data or b""
        name, letter = _TYPED_ARRAYS.get(tag, ("", "B"))
        size = struct.calcsize(f"<{letter}")
        if not name or offset > len(data) or length > len(data) - offset or offset % size or length % size:
            raise UnknownBytesError(f"view {tag!r} of bytes {offset} to {offset + length} of {len(data)}")
        header: dict[str, Any] = {"$view": name, **({"flags": flags} if flags else {})}
        if not fresh or length < len(data) or flags:
            content: Any = buffer if fresh else {"$ref": buffer.number}
            return self._add_thing({**header, "offset": offset, "length": length // size, "buffer": content})
        if size == 1:
            thing = self._add_thing({**header, "bytes": encode_base64(data)})
        else:
            values = struct.unpack(f"<{length // size}{letter}", data)
            thing = self._add_thing(
                {**header, "values": [str(element) if letter in "qQ" else render_number(element) for element in values]}
            )
        thing.buffer = buffer.number
        return thing

    def _read_error(self) -> ScriptObject:
        thing = self._add_thing({})
        error: dict[str, Any] = {"$error": "Error"}
        while (tag := self._in.take(1, "tag of an error")) != b".":
            if tag in _ERRORS:
                error["$error"] = _ERRORS[tag]
            elif tag == b"c":
                error["cause"] = self._read_part()
                if self._is_stopped:
                    break
            elif tag in b"ms":
                error["message" if tag == b"m" else "stack"] = self._read_string()
            else:
                raise UnknownBytesError(f"tag {tag!r} of an error, before byte {self._in.position}")
        thing.plain = error
        return thing

    def _read_host(self) -> ScriptObject:
        """Return an object of the browser's."""
        thing = self._add_thing({})
        tag = self._in.take(1, "tag of a host object")
        if tag in DOUBLES:
            name, count = DOUBLES[tag]
            thing.plain = {"$host": name, "values": [render_number(self._in.take_double()) for _ in range(count)]}
        elif tag in HOSTS:
            thing.plain = HOSTS[tag](self)
        else:
            raise UnknownBytesError(f"host object {tag!r} at byte {self._in.position - 1}")
        return thing

    def _read_image(self, name: str, bits: int) -> dict[str, Any]:
        """Return an image: its pixels come after settings, which are pairs of a tag and a number."""
        settings = []
        if self._blink >= _IMAGE_SETTINGS:
            while setting := self._in.take_varint(32):
                settings.append([setting, self._in.take_varint(32)])
        elif name == "ImageBitmap":
            settings = [[self._in.take_varint(32), self._in.take_varint(32)]]
        width, height = self._in.take_varint(32), self._in.take_varint(32)
        pixels = self._in.take(self._in.take_varint(bits), "pixels")
        return {"$host": name, "settings": settings, "width": width, "height": height, "bytes": encode_base64(pixels)}

    def _read_crypto_key(self) -> dict[str, Any]:
        """Return a key: numbers of its kind, what it may be used for, and what it is."""
        kind = self._in.take_byte()
        if kind == _RSA_KEY:
            numbers = [self._in.take_varint(32) for _ in range(3)]
            exponent = self._in.take(self._in.take_varint(32), "exponent")
            numbers += [int.from_bytes(exponent, "big"), self._in.take_varint(32)]
        elif kind in _KEY_NUMBERS:
            numbers = [self._in.take_varint(32) for _ in range(_KEY_NUMBERS[kind])]
        else:
            raise UnknownBytesError(f"kind {kind} of a CryptoKey, before byte {self._in.position}")
        usages = self._in.take_varint(32)
        key = self._in.take(self._in.take_varint(32), "key")
        return {"$host": "CryptoKey", "kind": kind, "numbers": numbers, "usages": usages, "bytes": encode_base64(key)}


def render_property_name(value: float) -> str:
    """Return a number as JavaScript's text of it."""
    digits_text = repr(value)
    if "e" not in digits_text:
        return digits_text
    digits, _, exponent = digits_text.partition("e")
    power = int(exponent)
    if -7 < power <= 20:
        return f"{value:.0f}" if power > 0 else f"{value:.{len(digits.replace('.', '').lstrip('-')) - 1 - power}f}"
    return f"{digits}e{power:+d}"


_BUFFERS = frozenset(b"B~^")
"""Tags after which there may be a view: of buffers, and of what may refer to one."""
_READERS: dict[int, Callable[[ScriptValue], Any]] = {
    layout.UNDEFINED_TAG: lambda value: _UNDEFINED,
    layout.NULL_TAG: lambda value: None,
    layout.TRUE_TAG: lambda value: True,
    layout.FALSE_TAG: lambda value: False,
    layout.INT_TAG: ScriptValue._read_int32,
    layout.UNSIGNED_TAG: lambda value: value._in.take_varint(32),
    layout.DOUBLE_TAG: lambda value: render_number(value._in.take_double()),
    ord("Z"): lambda value: {"$bigint": value._read_bigint()},
    layout.UTF_8_TAG: ScriptValue._read_text,
    layout.LATIN_1_TAG: lambda value: value._in.take(value._in.take_varint(32), "string").decode("latin-1"),
    layout.UTF_16_TAG: ScriptValue._read_utf16,
    ord("^"): ScriptValue._read_reference,
    layout.OBJECT_TAG: ScriptValue._read_object,
    layout.SPARSE_LIST_TAG: ScriptValue._read_sparse_array,
    layout.DENSE_LIST_TAG: ScriptValue._read_dense_array,
    layout.DATE_TAG: lambda value: value._add_thing(render_date(value._in.take_double())),
    ord("y"): lambda value: value._add_thing({"$boolean": True}),
    ord("x"): lambda value: value._add_thing({"$boolean": False}),
    ord("n"): lambda value: value._read_wrapped("$number_object", lambda: render_number(value._in.take_double())),
    ord("z"): lambda value: value._read_wrapped("$bigint_object", value._read_bigint),
    ord("s"): lambda value: value._read_wrapped("$string_object", value._read_string),
    ord("R"): ScriptValue._read_regexp,
    ord(";"): ScriptValue._read_map,
    ord("'"): ScriptValue._read_set,
    ord("B"): ScriptValue._read_buffer,
    ord("~"): ScriptValue._read_resizable_buffer,
    ord("r"): ScriptValue._read_error,
    ord("\\"): ScriptValue._read_host,
}
"""How a value is read, by its tag."""
HOSTS: dict[bytes, Callable[[ScriptValue], Any]] = {
    b"i": lambda value: {"$blob": value._in.take_varint(32)},
    b"e": lambda value: {"$file": value._in.take_varint(32)},
    b"L": lambda value: {"$files": [value._in.take_varint(32) for _ in range(value._read_count())]},
    b"b": lambda value: {
        "$host": "Blob",
        "uuid": value._read_utf8(),
        "type": value._read_utf8(),
        "size": value._in.take_varint(),
    },
    b"n": lambda value: {
        "$host": "FileSystemFileHandle",
        "name": value._read_utf8(),
        "index": value._in.take_varint(32),
    },
    b"N": lambda value: {
        "$host": "FileSystemDirectoryHandle",
        "name": value._read_utf8(),
        "index": value._in.take_varint(32),
    },
    b"d": lambda value: {
        "$host": "DOMFileSystem",
        "type": value._in.take_varint(32),
        "name": value._read_utf8(),
        "root": value._read_utf8(),
    },
    b"k": lambda value: {
        "$host": "RTCCertificate",
        "private_key": value._read_utf8(),
        "certificate": value._read_utf8(),
    },
    b"x": lambda value: {
        "$host": "DOMException",
        "name": value._read_utf8(),
        "message": value._read_utf8(),
        "stack": value._read_utf8(),
    },
    b"#": lambda value: value._read_image("ImageData", 64),
    b"g": lambda value: value._read_image("ImageBitmap", 32),
    b"K": ScriptValue._read_crypto_key,
}
"""How an object of the browser is read, by the tag after that of host objects."""
