"""MinLZ's blocks, as its own library (github.com/minio/minlz 1.0.1) writes them, are expanded; others are refused."""

from __future__ import annotations

import numpy as np
import pytest

from sawlog.kernels.minlz import expand_minlz
from sawlog.kernels.snappy import SLACK

START = bytes(range(48))
_START = "e813" + START.hex()
_COPIES = START + b"q" * 90 + START[:8] + b"pr" + START[3:14] + b"s" + START[9:20]
WRITTEN = {
    "a repeat": ("e8070000f4c903", bytes(1000)),
    "a copy of one byte": ("c002386162636465666768f901f40801", b"abcdefgh" * 40),
    "a copy of two bytes": ("8004e8e2" + bytes(range(256)).hex() + "fd3fee", bytes(range(256)) * 2),
    "a copy of three bytes": (f"d0a304{_START}00fc52110167058d00", START + bytes(70_000) + START),
    "literals with copies": (
        f"ab01{_START}71ec3b5122eb510070725873090a0b0c0d0e0f10111213",
        _COPIES,
    ),
    "smaller literals with copies": (f"ab01{_START}71ec3b5122eb51007072e3570073", _COPIES),
}
"""Size and elements, and what they are."""
REFUSED = {
    "a copy from before the block": "0841610000",
    "a repeat at the beginning": "0804",
    "literals that do not end": "083861",
    "a length that does not end": "08e8",
    "a copy that does not end": "080061f4",
    "more than the size": "0418616263646566",
    "less than the size": "08106162",
    "no more literals than three where four belong": "4bd8" + bytes(27).hex() + "fb0000616263",
}


def expand_block(stored: bytes, size: int) -> bytes | None:
    """What the kernel makes of the elements of a block; None where it refuses."""
    out = np.full(size + SLACK, 7, np.uint8)
    data = np.frombuffer(stored, np.uint8)
    end = expand_minlz(data, np.uint64(0), np.uint64(len(data)), out, np.uint64(size))
    return out[:size].tobytes() if end else None


@pytest.mark.parametrize("name", WRITTEN)
def test_what_minlz_has_written(name: str) -> None:
    stored, content = WRITTEN[name]
    data = bytes.fromhex(stored)
    width = next(index for index, byte in enumerate(data) if byte < 128) + 1
    assert expand_block(data[width:], len(content)) == content
    for size in (len(content) - 1, len(content) + 1):
        assert expand_block(data[width:], size) is None
    for end in range(width, len(data)):
        assert expand_block(data[width:end], len(content)) is None


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    stored = bytes.fromhex(REFUSED[name])
    assert expand_block(stored[1:], stored[0]) is None
