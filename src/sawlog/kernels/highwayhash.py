"""HighwayHash with results of 256 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import load_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _SIXTEEN, _THREE, _TWO, _U32, _ZERO
from sawlog.kernels.signature import Bytes, OutUInt64s, UInt64, UInt64s

STATE = 16
"""Words of the state of a hash."""

_MUL_0 = np.array([0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3], np.uint64)
_MUL_1 = np.array([0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377], np.uint64)

_BYTES_3 = np.uint64(24)
_BYTES_6 = np.uint64(48)
_BYTES_7 = np.uint64(56)
_TOP_1 = np.uint64(63)
_TOP_2 = np.uint64(62)
_PACKET = np.uint64(32)
_LOW_62 = np.uint64(0x3FFFFFFFFFFFFFFF)
_BYTE = tuple(np.uint64(0xFF << 8 * i) for i in range(8))
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7 = _BYTE
_ROUNDS = 10


@inlined
def _swap_halves(value: Any) -> Any:
    """Return the two halves of a number, in the other order."""
    return value << _HALF | value >> _HALF


@inlined
def _mix_low(high: Any, low: Any) -> Any:
    """Return the lower of two words whose bytes are mixed."""
    return (
        (low & _B3 | high & _B4) >> _BYTES_3
        | (low & _B5 | high & _B6) >> _SIXTEEN
        | low & _B2
        | (low & _B1) << _HALF
        | (high & _B7) >> _EIGHT
        | low << _BYTES_7
    )


@inlined
def _mix_high(high: Any, low: Any) -> Any:
    """Return the upper of two words whose bytes are mixed."""
    return (
        (high & _B3 | low & _B4) >> _BYTES_3
        | high & _B2
        | (high & _B5) >> _SIXTEEN
        | (high & _B1) << _BYTES_3
        | (low & _B6) >> _EIGHT
        | (high & _B0) << _BYTES_6
        | low & _B7
    )


@inlined
def _update_lane(v0: Any, v1: Any, m0: Any, m1: Any, word: Any) -> Any:
    v1 += m0 + word
    m0 ^= (v1 & _U32) * (v0 >> _HALF)
    v0 += m1
    m1 ^= (v0 & _U32) * (v1 >> _HALF)
    return v0, v1, m0, m1


@inlined
def _update_state(v0: Any, v1: Any, m0: Any, m1: Any, words: Any) -> Any:
    """Take four words into the state, four tuples of four words each."""
    a0, a1, a2, a3 = _update_lane(v0[0], v1[0], m0[0], m1[0], words[0])
    b0, b1, b2, b3 = _update_lane(v0[1], v1[1], m0[1], m1[1], words[1])
    c0, c1, c2, c3 = _update_lane(v0[2], v1[2], m0[2], m1[2], words[2])
    d0, d1, d2, d3 = _update_lane(v0[3], v1[3], m0[3], m1[3], words[3])
    a0, b0 = a0 + _mix_low(b1, a1), b0 + _mix_high(b1, a1)
    c0, d0 = c0 + _mix_low(d1, c1), d0 + _mix_high(d1, c1)
    a1, b1 = a1 + _mix_low(b0, a0), b1 + _mix_high(b0, a0)
    c1, d1 = c1 + _mix_low(d0, c0), d1 + _mix_high(d0, c0)
    return (a0, b0, c0, d0), (a1, b1, c1, d1), (a2, b2, c2, d2), (a3, b3, c3, d3)


@inlined
def _load_words(data: Any, pos: Any) -> Any:
    return (
        load_u64(data, pos),
        load_u64(data, pos + _EIGHT),
        load_u64(data, pos + _SIXTEEN),
        load_u64(data, pos + _BYTES_3),
    )


@inlined
def _set_byte(words: Any, place: Any, byte: Any) -> Any:
    """Return four words in which a byte that was zero is set."""
    value = np.uint64(byte) << (place & np.uint64(7)) * _EIGHT
    word = place >> _THREE
    return (
        words[0] | (value if word == _ZERO else _ZERO),
        words[1] | (value if word == _ONE else _ZERO),
        words[2] | (value if word == _TWO else _ZERO),
        words[3] | (value if word == _THREE else _ZERO),
    )


@inlined
def _load_last_words(data: Any, start: Any, length: Any) -> Any:
    """Return the last words: of fewer than 32 bytes, and at least one."""
    words = (_ZERO, _ZERO, _ZERO, _ZERO)
    odd = length & _THREE
    multiple = length - odd
    for i in range(multiple):
        words = _set_byte(words, np.uint64(i), data[start + np.uint64(i)])
    if length & _SIXTEEN:
        for i in range(_FOUR):
            words = _set_byte(words, np.uint64(28) + np.uint64(i), data[start + length - _FOUR + np.uint64(i)])
    elif odd:
        words = _set_byte(words, _SIXTEEN, data[start + multiple])
        words = _set_byte(words, _SIXTEEN + _ONE, data[start + multiple + (odd >> _ONE)])
        words = _set_byte(words, _SIXTEEN + _TWO, data[start + length - _ONE])
    return words


@inlined
def _rotate_halves(value: Any, bits: Any) -> Any:
    """Return a number, each of whose halves is rotated by 1 to 31 bits."""
    low = value & _U32
    high = value >> _HALF
    low = (low << bits | low >> _HALF - bits) & _U32
    high = (high << bits | high >> _HALF - bits) & _U32
    return high << _HALF | low


@inlined
def _reduce_bits(a3: Any, a2: Any, a1: Any, a0: Any) -> Any:
    """Reduce 256 bits to 128."""
    a3 &= _LOW_62
    upper = a1 ^ (a3 << _ONE | a2 >> _TOP_1) ^ (a3 << _TWO | a2 >> _TOP_2)
    return a0 ^ a2 << _ONE ^ a2 << _TWO, upper


@inlined
def _load_state(state: Any) -> Any:
    return (
        (state[0], state[1], state[2], state[3]),
        (state[4], state[5], state[6], state[7]),
        (state[8], state[9], state[10], state[11]),
        (state[12], state[13], state[14], state[15]),
    )


@kernel
def absorb(data: Bytes, start: UInt64, length: UInt64, state: OutUInt64s) -> None:
    """Take bytes into the state of a hash, 32 at a time; only the last call may bring another number.

    Args:
        data: uint8.
        start: Where the bytes begin.
        length: How many there are; they have been checked to be in `data`.
        state: uint64, of `STATE` words.
    """
    v0, v1, m0, m1 = _load_state(state)
    pos = start
    end = start + length
    while end - pos >= _PACKET:
        v0, v1, m0, m1 = _update_state(v0, v1, m0, m1, _load_words(data, pos))
        pos += _PACKET
    tail = end - pos
    if tail:
        more = (tail << _HALF) + tail
        v0 = (v0[0] + more, v0[1] + more, v0[2] + more, v0[3] + more)
        v1 = (
            _rotate_halves(v1[0], tail),
            _rotate_halves(v1[1], tail),
            _rotate_halves(v1[2], tail),
            _rotate_halves(v1[3], tail),
        )
        v0, v1, m0, m1 = _update_state(v0, v1, m0, m1, _load_last_words(data, pos, tail))
    state[0], state[1], state[2], state[3] = v0
    state[4], state[5], state[6], state[7] = v1
    state[8], state[9], state[10], state[11] = m0
    state[12], state[13], state[14], state[15] = m1


@kernel
def finish(state: UInt64s, out: OutUInt64s) -> None:
    """Make a hash of 4 words of a state, which stays what it is."""
    v0, v1, m0, m1 = _load_state(state)
    for _ in range(_ROUNDS):
        words = (_swap_halves(v0[2]), _swap_halves(v0[3]), _swap_halves(v0[0]), _swap_halves(v0[1]))
        v0, v1, m0, m1 = _update_state(v0, v1, m0, m1, words)
    out[0], out[1] = _reduce_bits(v1[1] + m1[1], v1[0] + m1[0], v0[1] + m0[1], v0[0] + m0[0])
    out[2], out[3] = _reduce_bits(v1[3] + m1[3], v1[2] + m1[2], v0[3] + m0[3], v0[2] + m0[2])


class HighwayHash256:
    """A hash that takes bytes as they come, like those of `hashlib`.

    Args:
        key: 32 bytes.
    """

    digest_size = 32

    def __init__(self, key: bytes) -> None:
        words = np.frombuffer(key, np.uint64)
        halves = words << _HALF | words >> _HALF
        self._state = np.concatenate([_MUL_0 ^ words, _MUL_1 ^ halves, _MUL_0, _MUL_1])

    def update(self, data: NDArray[np.uint8]) -> None:
        """Take more bytes: a multiple of 32, but for the last ones."""
        absorb(data, _ZERO, np.uint64(len(data)), self._state)

    def digest(self) -> bytes:
        """Return the hash of all bytes so far."""
        out = np.empty(4, np.uint64)
        finish(self._state, out)
        return out.tobytes()
