"""Containers and records as values of a binary column: decoded to rows, made of rows; and the hashes of series."""

from __future__ import annotations

from sawlog.filodb_record.values.decode import ValueDecoder
from sawlog.filodb_record.values.encode import ValueEncoder
from sawlog.filodb_record.values.series import partition_hashes, shards

__all__ = ["ValueDecoder", "ValueEncoder", "partition_hashes", "shards"]
