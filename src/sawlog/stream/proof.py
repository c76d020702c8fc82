"""Proof that a file is still the one that was read before: digests of its head, and of what precedes the position."""

from __future__ import annotations

import hashlib

from sawlog.errors import SawlogError
from sawlog.storage import File, Storage

PROVEN_BYTES = 1024
"""Bytes at either place that are remembered by their digest."""


def prove(file: File, at: int, storage: Storage) -> str:
    """The proof for a file that was read up to byte `at`."""
    return " ".join(_digest(storage.read(file.path, start, length)) for start, length in _spans(at))


def head(file: File, size: int, storage: Storage) -> str:
    """What the proof of a file that was read up to byte `size` begins with."""
    return _digest(storage.read(file.path, 0, min(size, PROVEN_BYTES)))


def check_proof(file: File, at: int, proof: str, storage: Storage) -> None:
    """Make sure that a file still begins with the bytes that were read of it.

    Raises:
        SawlogError: When it is shorter, or others stand there; names the file and both facts.
    """
    if file.size < at:
        raise SawlogError(f"{file.path}: the file shrank to {file.size} bytes; {at} bytes of it were read{_ADVICE}")
    if not at:
        return
    for (start, length), expected in zip(_spans(at), proof.split(), strict=True):
        found = _digest(storage.read(file.path, start, length))
        if found != expected:
            raise SawlogError(
                f"{file.path}: the file was replaced or rewritten: bytes {start} to {start + length} had the digest"
                f" {expected} when they were read, and have {found} now{_ADVICE}"
            )


_ADVICE = (
    "; logs may grow, and give way to others of another name. Start again with a new checkpoint, or without positions,"
    " to read it from its beginning"
)


def _spans(at: int) -> list[tuple[int, int]]:
    length = min(at, PROVEN_BYTES)
    return [(0, length), (at - length, length)]


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
