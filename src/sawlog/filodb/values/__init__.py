"""Containers and records as values of a binary column: decoded to rows, made of rows; and the hashes of series."""

from __future__ import annotations

from sawlog.filodb.values.decode import ValueDecoder
from sawlog.filodb.values.encode import ValueEncoder
from sawlog.filodb.values.series import find_shards, hash_series

__all__ = ["ValueDecoder", "ValueEncoder", "find_shards", "hash_series"]
