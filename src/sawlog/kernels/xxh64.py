"""XXH64 and the 64-bit XXH3, both with seed 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.jit import inlined
from sawlog.kernels.memory import high_product, load_u32, load_u64, rotate_u64
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _ONE, _SIXTEEN, _U32, _ZERO

_P32_1 = np.uint64(0x9E3779B1)
_P32_2 = np.uint64(0x85EBCA77)
_P32_3 = np.uint64(0xC2B2AE3D)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANE_1 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % (1 << 64))
_LANE_4 = np.uint64((1 << 64) - 0x9E3779B185EBCA87)
_MIX_1 = np.uint64(0x165667919E3779F9)
_MIX_2 = np.uint64(0x9FB21C651E98DF25)

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
        "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
        "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
        "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
_WORDS = np.array([int.from_bytes(_SECRET[i : i + 8].tobytes(), "little") for i in range(185)], np.uint64)
"""The secret as XXH3 reads it: eight bytes from each place."""

_SCRAMBLE = 128
_LAST_STRIPE = 121
_MERGE = 11
_MIDDLE = 3
_MIDDLE_LAST = 119
_STRIPES = 16
"""Stripes of 64 bytes between two scrambles."""

_STRIPE = np.uint64(64)


@inlined
def _swap(value: Any) -> Any:
    """Return the bytes of a number, in the other order."""
    value = (value & np.uint64(0x00FF00FF00FF00FF)) << _EIGHT | value >> _EIGHT & np.uint64(0x00FF00FF00FF00FF)
    value = (value & np.uint64(0x0000FFFF0000FFFF)) << _SIXTEEN | value >> _SIXTEEN & np.uint64(0x0000FFFF0000FFFF)
    return value << _HALF | value >> _HALF


@inlined
def _fold(a: Any, b: Any) -> Any:
    """Return the two halves of a product of 128 bits, combined."""
    return a * b ^ high_product(a, b)


@inlined
def _avalanche_64(value: Any) -> Any:
    value = (value ^ value >> np.uint64(33)) * _P2
    value = (value ^ value >> np.uint64(29)) * _P3
    return value ^ value >> _HALF


@inlined
def _avalanche(value: Any) -> Any:
    value = (value ^ value >> np.uint64(37)) * _MIX_1
    return value ^ value >> _HALF


@inlined
def _mix_word(lane: Any, word: Any) -> Any:
    return rotate_u64(lane + word * _P2, 31) * _P1


@inlined
def xxh64(buffer: Any, start: Any, length: Any) -> Any:
    """Return the XXH64 of `buffer[start : start + length]`, as uint64. `start` and `length` are uint64."""
    position = start
    end = start + length
    value = _P5
    if length >= _HALF:
        a, b, c, d = _LANE_1, _P2, _ZERO, _LANE_4
        while end - position >= _HALF:
            a = _mix_word(a, load_u64(buffer, position))
            b = _mix_word(b, load_u64(buffer, position + _EIGHT))
            c = _mix_word(c, load_u64(buffer, position + _SIXTEEN))
            d = _mix_word(d, load_u64(buffer, position + np.uint64(24)))
            position += _HALF
        value = rotate_u64(a, 1) + rotate_u64(b, 7) + rotate_u64(c, 12) + rotate_u64(d, 18)
        for lane in (a, b, c, d):
            value = (value ^ _mix_word(_ZERO, lane)) * _P1 + _P4
    value += length
    while end - position >= _EIGHT:
        value = rotate_u64(value ^ _mix_word(_ZERO, load_u64(buffer, position)), 27) * _P1 + _P4
        position += _EIGHT
    if end - position >= _FOUR:
        value = rotate_u64(value ^ load_u32(buffer, position) * _P1, 23) * _P2 + _P3
        position += _FOUR
    while position < end:
        value = rotate_u64(value ^ np.uint64(buffer[position]) * _P5, 11) * _P1
        position += _ONE
    return _avalanche_64(value)


@inlined
def _mix(buffer: Any, pos: Any, secret: Any) -> Any:
    """Return a word mixed of sixteen bytes of input and sixteen of the secret."""
    return _fold(load_u64(buffer, pos) ^ _WORDS[secret], load_u64(buffer, pos + _EIGHT) ^ _WORDS[secret + 8])


@inlined
def _hash_short(buffer: Any, start: Any, length: Any) -> Any:
    """Return the hash of up to 16 bytes."""
    if length > _EIGHT:
        low = load_u64(buffer, start) ^ _WORDS[24] ^ _WORDS[32]
        high = load_u64(buffer, start + length - _EIGHT) ^ _WORDS[40] ^ _WORDS[48]
        return _avalanche(length + _swap(low) + high + _fold(low, high))
    if length >= _FOUR:
        word = load_u32(buffer, start + length - _FOUR) + (load_u32(buffer, start) << _HALF)
        value = word ^ _WORDS[8] ^ _WORDS[16]
        value = (value ^ rotate_u64(value, 49) ^ rotate_u64(value, 24)) * _MIX_2
        value = (value ^ (value >> np.uint64(35)) + length) * _MIX_2
        return value ^ value >> np.uint64(28)
    if length > _ZERO:
        first = np.uint64(buffer[start])
        middle = np.uint64(buffer[start + (length >> _ONE)])
        last = np.uint64(buffer[start + length - _ONE])
        word = first << _SIXTEEN | middle << np.uint64(24) | last | length << _EIGHT
        return _avalanche_64(word ^ (_WORDS[0] ^ _WORDS[4]) & _U32)
    return _avalanche_64(_WORDS[56] ^ _WORDS[64])


@inlined
def _hash_medium(buffer: Any, start: Any, length: Any) -> Any:
    """Return the hash of 17 to 240 bytes."""
    value = length * _P1
    last = start + length - _SIXTEEN
    if length <= np.uint64(128):
        for i in range(np.int64((length - _ONE) >> np.uint64(5)) + 1):
            step = np.uint64(i) * _SIXTEEN
            value += _mix(buffer, start + step, 32 * i) + _mix(buffer, last - step, 32 * i + 16)
        return _avalanche(value)
    for i in range(8):
        value += _mix(buffer, start + np.uint64(i) * _SIXTEEN, 16 * i)
    value = _avalanche(value)
    for i in range(8, np.int64(length >> _FOUR)):
        value += _mix(buffer, start + np.uint64(i) * _SIXTEEN, 16 * (i - 8) + _MIDDLE)
    return _avalanche(value + _mix(buffer, last, _MIDDLE_LAST))


@inlined
def _mix_lanes(buffer: Any, pos: Any, secret: Any, lane_sum: Any, other_sum: Any) -> Any:
    """Return two neighbouring lanes with sixteen bytes mixed in: each takes its own product and the other's word."""
    word = load_u64(buffer, pos)
    next_word = load_u64(buffer, pos + _EIGHT)
    key = word ^ _WORDS[secret]
    next_key = next_word ^ _WORDS[secret + 8]
    lane_sum += next_word + (key & _U32) * (key >> _HALF)
    other_sum += word + (next_key & _U32) * (next_key >> _HALF)
    return lane_sum, other_sum


@inlined
def _scramble(lane: Any, secret: Any) -> Any:
    return (lane ^ lane >> np.uint64(47) ^ _WORDS[_SCRAMBLE + secret]) * _P32_1


@inlined
def _hash_long(buffer: Any, start: Any, length: Any) -> Any:
    """Return the hash of more than 240 bytes: eight lanes, 64 bytes at a time."""
    a, b, c, d, e, f, g, h = _P32_3, _P1, _P2, _P3, _P4, _P32_2, _P5, _P32_1
    pos = start
    stripes = (length - _ONE) // _STRIPE
    step = 0
    for i in range(stripes + _ONE):
        secret = 8 * step
        if i == stripes:
            pos = start + length - _STRIPE
            secret = _LAST_STRIPE
        a, b = _mix_lanes(buffer, pos, secret, a, b)
        c, d = _mix_lanes(buffer, pos + _SIXTEEN, secret + 16, c, d)
        e, f = _mix_lanes(buffer, pos + _HALF, secret + 32, e, f)
        g, h = _mix_lanes(buffer, pos + np.uint64(48), secret + 48, g, h)
        pos += _STRIPE
        step += 1
        if step == _STRIPES and i < stripes:
            step = 0
            a, b, c, d = _scramble(a, 0), _scramble(b, 8), _scramble(c, 16), _scramble(d, 24)
            e, f, g, h = _scramble(e, 32), _scramble(f, 40), _scramble(g, 48), _scramble(h, 56)
    value = length * _P1
    value += _fold(a ^ _WORDS[_MERGE], b ^ _WORDS[_MERGE + 8])
    value += _fold(c ^ _WORDS[_MERGE + 16], d ^ _WORDS[_MERGE + 24])
    value += _fold(e ^ _WORDS[_MERGE + 32], f ^ _WORDS[_MERGE + 40])
    value += _fold(g ^ _WORDS[_MERGE + 48], h ^ _WORDS[_MERGE + 56])
    return _avalanche(value)


@inlined
def xxh3(buffer: Any, start: Any, length: Any) -> Any:
    """Return the 64-bit XXH3 of `buffer[start : start + length]`, as uint64. `start` and `length` are uint64."""
    if length <= _SIXTEEN:
        return _hash_short(buffer, start, length)
    if length <= np.uint64(240):
        return _hash_medium(buffer, start, length)
    return _hash_long(buffer, start, length)
