"""Milvus binlogs, all generations: single files, and the collections they make up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.format.lazy import exported

if TYPE_CHECKING:
    from sawlog.milvus.payloads.interface import PayloadReader, PayloadWriter

__all__ = ["PayloadReader", "PayloadWriter"]

if not TYPE_CHECKING:
    __getattr__ = exported(__name__, {"payloads.interface": ("PayloadReader", "PayloadWriter")})
