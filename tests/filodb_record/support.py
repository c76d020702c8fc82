"""Helpers that tests of filodb_record share."""

from __future__ import annotations

CONTAINER_HEADER = 16


def trim_container(container: bytes, records: int) -> bytes:
    """A container of the first records of another."""
    end = CONTAINER_HEADER
    for _ in range(records):
        end += (int.from_bytes(container[end : end + 4], "little") + 7) // 4 * 4
    return (end - 4).to_bytes(4, "little") + container[4:end]
