"""Numbers and text as Java has them."""

from __future__ import annotations

import math
from decimal import Decimal


def signed(value: int) -> int:
    """The low 32 bits of a number, as a signed one."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java."""
    units = text.encode("utf-16-le")
    total = 0
    for at in range(0, len(units), 2):
        total = 31 * total + int.from_bytes(units[at : at + 2], "little")
    return signed(total)


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be")


def java_double(value: float) -> str:
    """A double as Java prints it: plain from 0.001 up to 10 million, else with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{exact:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, _ = exact.normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exact.adjusted()}"
