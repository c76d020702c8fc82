"""The golden data: bytes that FiloDB's own code made, and what went into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sawlog.filodb import PartitionSchema, RecordSchema, Schema
from sawlog.filodb.schemas.record import parse_columns

PLACE = Path(__file__).parent.parent / "golden" / "filodb"
TIMESTAMP = 1_700_000_000_000
"""Timestamp of every golden container."""


def facts(name: str) -> Any:
    return json.loads((PLACE / f"{name}.json").read_text("utf-8"))


def data(name: str) -> bytes:
    return (PLACE / f"{name}.container").read_bytes()


def path(name: str) -> str:
    return str(PLACE / f"{name}.container")


def number(value: Any) -> float:
    """A number of the JSON files, which write some as strings."""
    return float(str(value).replace("Inf", "inf"))


def numbers(values: list[Any]) -> list[float]:
    return [number(value) for value in values]


def record_schema(description: dict[str, Any]) -> RecordSchema:
    """The record schema that a golden file describes."""
    notation = [
        f"{f['name']}:{f['type']}" + (":counter=false" if f["type"] == "hist" else "") for f in description["fields"]
    ]
    return RecordSchema(notation, description["partition_field_start"], description["predefined_keys"])


STR_LONG = Schema(
    "str-long",
    parse_columns(("timestamp:ts", "s:string", "h:hist:counter=false", "n:long")),
    PartitionSchema(parse_columns(("ps:string", "pl:long")), ("job", "instance")),
)
RESULT = Schema("result", parse_columns(("timestamp:ts", "value:double", "s:string", "n:int")), None)
