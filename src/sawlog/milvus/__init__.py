"""Milvus binlogs, all generations: single files, and the collections they make up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawlog.format.lazy import lazy_module_getattr

if TYPE_CHECKING:
    from sawlog.milvus.payloads.interface import PayloadReader, PayloadWriter

__all__ = ["PayloadReader", "PayloadWriter"]

if not TYPE_CHECKING:
    __getattr__ = lazy_module_getattr(__name__, {"payloads.interface": ("PayloadReader", "PayloadWriter")})
