"""Checks of text, against Python's decoder."""

from __future__ import annotations

import random

import numpy as np

from sawlog.kernels.jit import kernel
from sawlog.kernels.signature import Bool, Bytes, UInt64
from sawlog.kernels.text import exceeds_ascii, find_utf8_end


@kernel
def _utf8_end(data: Bytes, start: UInt64, end: UInt64) -> UInt64:
    return find_utf8_end(data, start, end)


@kernel
def _beyond_ascii(data: Bytes, start: UInt64, end: UInt64) -> Bool:
    return exceeds_ascii(data, start, end)


def test_text_is_what_python_decodes() -> None:
    rng = random.Random(30)
    pieces = [
        b"plain",
        "\u00e9\u20ac\U0001f600".encode(),
        b"\x80",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
    ]
    for _ in range(300):
        text_bytes = b"".join(rng.choices(pieces, k=rng.randrange(6)))
        data = np.frombuffer(b"\xff" + text_bytes + b"\xff", np.uint8)
        start, end = np.uint64(1), np.uint64(1 + len(text_bytes))
        try:
            text_bytes.decode()
            wrong = len(text_bytes)
        except UnicodeDecodeError as error:
            wrong = error.start
        assert int(_utf8_end(data, start, end)) == 1 + wrong
        assert bool(_beyond_ascii(data, start, end)) == (not text_bytes.isascii())
