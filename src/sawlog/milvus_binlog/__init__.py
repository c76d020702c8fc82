"""Milvus binlogs, all generations: single files, and the collections they make up."""

from __future__ import annotations

from sawlog.milvus_binlog.payloads.interface import PayloadReader, PayloadWriter

__all__ = ["PayloadReader", "PayloadWriter"]
