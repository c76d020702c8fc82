"""What formats can prune by, taken out of Arrow's expressions: conditions that every row meets which is kept.

Arrow has no way to look into an expression from Python; Substrait, as which it writes expressions, has. What cannot be
written so, or is no comparison of a column with a value, prunes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

# Fields of Substrait's messages: ExtendedExpression, its extensions and references, Expression, its literals.
_EXTENSIONS, _REFERRED = 2, 3
_FUNCTION, _ANCHOR, _NAME = 3, 2, 3
_EXPRESSION = 1
_LITERAL, _SELECTION, _CALL = 1, 2, 3
_REFERENCE, _ARGUMENTS, _VALUE = 1, 4, 3
_DIRECT, _STRUCT_FIELD, _FIELD = 1, 2, 1
_BOOLEAN, _INTEGERS, _FLOAT, _DOUBLE, _STRING, _BINARY = 1, (2, 3, 5, 7), 10, 11, 12, 13

_OPERATORS = {"equal": "=", "not_equal": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Message = dict[int, list[Any]]


def conditions(expression: Any, schema: pa.Schema) -> list[tuple[str, str, Any]]:
    """The comparisons of columns with values that must hold wherever an expression does.

    Args:
        expression: A `pyarrow.compute.Expression`.
        schema: The columns that it may name.
    """
    from pyarrow import substrait

    try:
        written = bytes(memoryview(substrait.serialize_expressions([expression], ["filter"], schema)))
        message = _parse(written)
        names = {}
        for extension in map(_parse, message.get(_EXTENSIONS, [])):
            function = _parse(extension[_FUNCTION][0])
            names[function.get(_ANCHOR, [0])[0]] = function[_NAME][0].decode().partition(":")[0]
        (referred,) = message[_REFERRED]
        return list(_required(_parse(_parse(referred)[_EXPRESSION][0]), names, schema))
    except (pa.ArrowException, KeyError, IndexError, ValueError, struct.error):
        return []


def _required(expression: Message, names: dict[int, str], schema: pa.Schema) -> Iterator[tuple[str, str, Any]]:
    if _CALL not in expression:
        return
    call = _parse(expression[_CALL][0])
    name = names[call.get(_REFERENCE, [0])[0]]
    arguments = [_parse(_parse(one)[_VALUE][0]) for one in call[_ARGUMENTS]]
    if name == "and":
        for one in arguments:
            yield from _required(one, names, schema)
    elif name in _OPERATORS and len(arguments) == 2:
        op = _OPERATORS[name]
        if _LITERAL in arguments[0]:
            arguments.reverse()
            op = _MIRRORED[op]
        column, literal = arguments
        if _SELECTION in column and _LITERAL in literal:
            index = _index(_parse(column[_SELECTION][0]))
            found = _value(_parse(literal[_LITERAL][0]), schema.field(index).type)
            if found is not None:
                yield schema.field(index).name, op, found


def _index(selection: Message) -> int:
    """Which column is selected; 0 is not written."""
    field = _parse(_parse(selection[_DIRECT][0])[_STRUCT_FIELD][0])
    if set(field) - {_FIELD}:
        raise ValueError("a part of a column")
    return int(field.get(_FIELD, [0])[0])


def _value(literal: Message, kind: pa.DataType) -> Any:
    """The value of a literal that has the type of its column; None for one of another type."""
    if pa.types.is_integer(kind) and any(one in literal for one in _INTEGERS):
        value = next(literal[one][0] for one in _INTEGERS if one in literal)
        return value - (1 << 64) if value >> 63 else value
    if pa.types.is_string(kind) and _STRING in literal:
        return literal[_STRING][0].decode()
    if pa.types.is_binary(kind) and _BINARY in literal:
        return literal[_BINARY][0]
    if pa.types.is_boolean(kind) and _BOOLEAN in literal:
        return bool(literal[_BOOLEAN][0])
    if pa.types.is_float64(kind) and _DOUBLE in literal:
        return struct.unpack("<d", literal[_DOUBLE][0])[0]
    return None


def _parse(data: bytes) -> Message:
    """The fields of a Protocol Buffers message by number: integers, or bytes."""
    found: Message = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        else:
            length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at : at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
