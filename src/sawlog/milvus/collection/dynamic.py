"""Keys of the dynamic field as columns of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.errors import OptionError
from sawlog.guard import decode_json

TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "json": pa.string(),
}
EVERY = "*"
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class DynamicField:
    """Key of the dynamic field: its name, and one of `TYPES`."""

    name: str
    type: str

    def to_arrow(self) -> pa.Field:
        """Return the column that it becomes."""
        return pa.field(self.name, TYPES[self.type])


def parse_dynamic(names: Iterable[str]) -> tuple[DynamicField, ...]:
    """Return keys from texts like `name` or `name:type`.

    Raises:
        OptionError: For an unknown type.
    """
    fields = []
    for text in names:
        name, colon, kind = text.rpartition(":")
        if not colon:
            name, kind = text, "json"
        if kind not in TYPES:
            raise OptionError(f"dynamic_fields: {text!r}: expected name:type with one of {', '.join(TYPES)}")
        fields.append(DynamicField(name, kind))
    return tuple(fields)


def infer(cells: Iterable[str | bytes | None], types_by_name: dict[str, str]) -> None:
    """Note the keys in some cells of the dynamic field, and the type that holds all values of each."""
    for cell in cells:
        for name, value in _parse_object(cell).items():
            if value is None:
                continue
            kind = _infer_type(value)
            before = types_by_name.setdefault(name, kind)
            if before != kind:
                types_by_name[name] = "double" if {before, kind} == {"int64", "double"} else "json"


def expand(fields: Iterable[DynamicField], column: pa.Array) -> dict[str, pa.Array]:
    """Return the values of some keys, by name; null where a key is absent, or of another type than asked for."""
    cells = [_parse_object(cell) for cell in column.to_pylist()]
    return {
        field.name: make_array([_convert(cell.get(field.name), field.type) for cell in cells], TYPES[field.type])
        for field in fields
    }


def _parse_object(cell: str | bytes | None) -> dict[str, Any]:
    parsed = decode_json(cell) if cell else {}
    return parsed if isinstance(parsed, dict) else {}


def _infer_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and value in _INT64:
        return "int64"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"


def _convert(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if kind == "double" and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if value in _INT64 else None
    return value if _infer_type(value) == kind else None
