"""Digest of rows, by which two sets of rows are compared."""

from __future__ import annotations

from dataclasses import dataclass

MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of a set of rows: the same for the same rows, in whatever order they are.

    Attributes:
        rows: How many rows there are.
        checksum: Sum of the 64-bit hashes of all rows over all columns, modulo 2**64.
    """

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of the rows of both."""
        return Digest(self.rows + other.rows, (self.checksum + other.checksum) % MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum:016x}"
