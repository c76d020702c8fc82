"""Stats logs: least and greatest primary key of a binlog batch, and a Bloom filter; BM25 statistics. Section 3.7."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_batch_from_rows, make_fixed_array, view_values
from sawlog.errors import FormatError
from sawlog.format.damage import Damage, Findings
from sawlog.milvus import kernels, layout
from sawlog.milvus.columns import split_binary
from sawlog.milvus.layout import BinlogDamageKind, DataType
from sawlog.milvus.metadata import shape

STATS_SCHEMA = pa.schema(
    [
        pa.field("field", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("min", pa.string()),
        pa.field("max", pa.string()),
        pa.field("bits", pa.int64()),
        pa.field("hashes", pa.int64()),
        pa.field("bits_set", pa.int64()),
    ]
)

_FALSE_POSITIVES = 0.05
"""Share of absent keys that Milvus lets a filter answer for."""
_WORD = 64


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter of bits-and-blooms.

    Attributes:
        bits: How many bits.
        hashes: How many of them each key sets.
        words: The bits, uint64.
    """

    bits: int
    hashes: int
    words: Any

    @classmethod
    def from_keys(cls, keys: pa.Array, false_positives: float = _FALSE_POSITIVES) -> BloomFilter:
        """Return a filter over primary keys, sized as Milvus does."""
        count = max(1, len(keys))
        bits = math.ceil(-count * math.log(false_positives) / math.log(2) ** 2)
        hashes = math.ceil(math.log(2) * bits / count)
        bloom = cls(bits, hashes, np.zeros(-(-bits // _WORD), np.uint64))
        bloom._run(keys, add=True)
        return bloom

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> BloomFilter:
        """Return a filter as stats logs hold it.

        Raises:
            FormatError: When it is none.
        """
        bits, hashes = (shape.require_integer(shape.require(entry, key), f"the filter's {key!r}") for key in ("m", "k"))
        text = shape.require_text(entry["b"], "the filter's 'b'")
        raw = shape.from_base64(text.replace("-", "+").replace("_", "/"), "the filter's 'b'")
        stored = int.from_bytes(raw[:8], "big")
        if not 0 < bits == stored or len(raw) != 8 + -(-bits // _WORD) * 8 or not 0 < hashes < 256:
            raise FormatError(f"a filter of {bits} bits whose data is for {stored} bits, in {len(raw)} bytes")
        return cls(bits, hashes, np.frombuffer(raw, ">u8", offset=8).astype(np.uint64))

    def to_json(self) -> dict[str, Any]:
        """Return the filter as stats logs hold it."""
        raw = self.bits.to_bytes(8, "big") + self.words.astype(">u8").tobytes()
        return {"m": self.bits, "k": self.hashes, "b": base64.urlsafe_b64encode(raw).decode()}

    def count_hits(self, keys: pa.Array) -> int:
        """Return how many of some keys the filter may hold; those that it was made over always count."""
        return self._run(keys, add=False)

    def _run(self, keys: pa.Array, *, add: bool) -> int:
        if pa.types.is_int64(keys.type):
            data = view_values(keys, np.int64).view(np.uint8)
            offsets = np.arange(0, 8 * len(keys) + 1, 8, dtype=np.int64)
        else:
            offsets, data = split_binary(keys.cast(pa.string()))
        bits, hashes = np.uint64(self.bits), np.uint64(self.hashes)
        return int(kernels.apply_bloom(data, offsets, len(keys), bits, hashes, self.words, add))


def make_stats_log(field: int, keys: pa.Array) -> dict[str, Any]:
    """Return the entry of a stats log over the primary keys of a binlog batch."""
    import pyarrow.compute as pc

    limits = pc.min_max(keys)
    kind = DataType.Int64 if pa.types.is_int64(keys.type) else DataType.VarChar
    return {
        "fieldID": field,
        "max": 0,
        "min": 0,
        "bf": BloomFilter.from_keys(keys).to_json(),
        "pkType": int(kind),
        "maxPk": limits["max"].as_py(),
        "minPk": limits["min"].as_py(),
    }


def encode_stats(entries: Sequence[dict[str, Any]], *, compound: bool) -> bytes:
    """Return the text of a stats log: one entry, or, in a compound one, a list of them."""
    data = list(entries) if compound else entries[0]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def parse_stats(text: bytes) -> list[dict[str, Any]]:
    """Return the entries of a stats log.

    Raises:
        FormatError: When it is none.
    """
    data = shape.parse_json(text, "its text")
    entries = data if isinstance(data, list) else [data]
    for entry in entries:
        is_known = isinstance(entry, dict) and isinstance(entry.get("fieldID"), int)
        if not is_known:
            raise FormatError(f"expected an object with a fieldID, found {str(entry)[:60]}")
        shape.read_number(entry, "fieldID")
        make_filter(entry)
    return entries


def make_filter(entry: Mapping[str, Any]) -> BloomFilter | None:
    """Return the filter of an entry of a stats log; `None` where it has none of a known kind.

    Raises:
        FormatError: When it is none.
    """
    entry_filter = shape.require_mapping(entry.get("bf") or {}, "'bf'")
    return BloomFilter.of_json(entry_filter) if entry.get("bfType", 0) in (0, 1) and "b" in entry_filter else None


def check_stats(text: bytes, path: str, findings: Findings) -> list[dict[str, Any]]:
    """Return the entries of a stats log; what is wrong with it is reported as findings."""
    try:
        entries = parse_stats(text)
    except FormatError as error:
        findings.add_damage(Damage(path, 0, len(text), BinlogDamageKind.BAD_STATS.label, f"not a stats log: {error}"))
        return []
    findings.account.record += len(text)
    findings.rows += len(entries)
    return entries


def make_stats_batch(entries: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return entries as rows of `STATS_SCHEMA`."""
    rows = []
    for entry in entries:
        bloom = make_filter(entry)
        kind = entry.get("pkType", int(DataType.Int64))
        is_known = kind in DataType.__members__.values()
        rows.append(
            {
                "field": int(entry["fieldID"]),
                "type": DataType(kind).name if is_known else _convert_text(kind),
                "min": _convert_text(entry.get("minPk", entry.get("min"))),
                "max": _convert_text(entry.get("maxPk", entry.get("max"))),
                "bits": bloom.bits if bloom is not None else None,
                "hashes": bloom.hashes if bloom is not None else None,
                "bits_set": int(np.bitwise_count(bloom.words).sum()) if bloom is not None else None,
            }
        )
    return make_batch_from_rows(rows, STATS_SCHEMA)


BM25_SCHEMA = pa.schema([pa.field("token", pa.uint32(), nullable=False), pa.field("rows", pa.int32(), nullable=False)])
"""BM25 statistics: in how many rows of a binlog batch each token, by its hash, occurs."""


def decode_bm25_batch(data: bytes, path: str, findings: Findings) -> pa.RecordBatch:
    """Return the entries of BM25 statistics, rows of `BM25_SCHEMA`; what is wrong with them is reported as findings."""
    header, entry = layout.BM25_HEADER.size, layout.BM25_ENTRY.size
    count, remainder = divmod(len(data) - header, entry)
    if count < 0 or remainder:
        detail = f"not BM25 statistics: {len(data)} bytes where {header} and a multiple of {entry} were expected"
        findings.add_damage(Damage(path, 0, len(data), BinlogDamageKind.BAD_STATS.label, detail))
        return make_batch_from_rows([], BM25_SCHEMA)
    findings.account.header += header
    findings.account.record += len(data) - header
    findings.rows += count
    pairs = np.frombuffer(data, np.dtype([("token", "<u4"), ("rows", "<i4")]), count, header)
    columns = [np.ascontiguousarray(pairs[field.name]) for field in BM25_SCHEMA]
    return pa.RecordBatch.from_arrays(
        [make_fixed_array(field.type, column) for field, column in zip(BM25_SCHEMA, columns, strict=True)],
        schema=BM25_SCHEMA,
    )


def _convert_text(value: Any) -> str | None:
    """Return a value as text; JSON may have halves of characters, which Arrow has not."""
    return None if value is None else str(value).encode(errors="replace").decode()
