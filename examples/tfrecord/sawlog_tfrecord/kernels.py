"""What a record is, in one place: reading, counting, cutting, verifying, repairing and recognising all ask `judge`."""

from typing import Any

import numpy as np

from sawlog.chain import kernels as chain
from sawlog.chain.record_walk import Out, Rules, State, take_record
from sawlog.kernels.language import Bool, Bytes, Int32s, Int64, OutBytes, always_inlined, copy_bytes, crc32c, kernel
from sawlog.kernels.layout import make_load, make_store
from sawlog_tfrecord import layout
from sawlog_tfrecord.layout import RecordDamageKind

_load_length, _load_length_checksum = make_load(layout.LENGTH), make_load(layout.LENGTH_CHECKSUM)
_store_length, _store_length_checksum = make_store(layout.LENGTH), make_store(layout.LENGTH_CHECKSUM)
_load_checksum, _store_checksum = make_load(layout.CHECKSUM), make_store(layout.CHECKSUM)
_LENGTH = np.uint64(layout.LENGTH.size)
_HEADER, _FRAME = np.uint64(layout.HEADER_SIZE), np.uint64(layout.HEADER_SIZE + layout.CHECKSUM.size)
_RIGHT, _LEFT, _DELTA = np.uint64(layout.MASK_SHIFT), np.uint64(32 - layout.MASK_SHIFT), np.uint64(layout.MASK_DELTA)
_MASK, _ZERO = np.uint64(0xFFFFFFFF), np.uint64(0)
_BAD_LENGTH, _BAD_CHECKSUM = int(RecordDamageKind.BAD_LENGTH), int(RecordDamageKind.BAD_CHECKSUM)
_TOO_LARGE = int(RecordDamageKind.RECORD_TOO_LARGE)


@always_inlined
def masked(data: Any, start: Any, length: Any) -> Any:
    crc = crc32c(data, start, length)
    return (crc >> _RIGHT | crc << _LEFT) + _DELTA & _MASK


@always_inlined
def sound(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    return masked(window.data, pos, _LENGTH) == _load_length_checksum(window.data, pos)


@always_inlined
def judge(window: Any, pos: Any, state: Any, rules: Any) -> Any:
    sight, remaining = chain.count_visible_bytes(window, pos)
    if state.lost >= 0:
        if remaining < _HEADER:
            return chain.FOUND, remaining
        return chain.search_chain(sound, window.size - _HEADER + np.uint64(1), _HEADER, window, pos, state, rules)
    if window.base + pos >= window.end:
        return chain.ENDED, _ZERO
    if remaining < _HEADER:
        return chain.TORN, remaining
    if sight < _HEADER:
        return chain.SHORT, _HEADER
    length = _load_length(window.data, pos)
    if not sound(window, pos, state, rules):
        expected, checksum = masked(window.data, pos, _LENGTH), _load_length_checksum(window.data, pos)
        chain.blame(state, _BAD_LENGTH, expected, checksum)
        return chain.LOST, np.uint64(1)
    if remaining < _FRAME or length > remaining - _FRAME:
        return chain.TORN, remaining
    if length > rules.longest:
        chain.blame(state, _TOO_LARGE, length, rules.longest)
        return chain.DAMAGED, length + _FRAME
    if not (rules.verify or rules.gather):
        return chain.GOOD, length + _FRAME
    if sight < length + _FRAME:
        return chain.SHORT, length + _FRAME
    expected, checksum = masked(window.data, pos + _HEADER, length), _load_checksum(window.data, pos + _HEADER + length)
    if rules.verify and expected != checksum:
        chain.blame(state, _BAD_CHECKSUM, expected, checksum)
        return chain.DAMAGED, length + _FRAME
    return chain.GOOD, length + _FRAME


@always_inlined
def gather(window: Any, pos: Any, size: Any, state: Any, out: Any, rules: Any) -> Any:
    return take_record(window, pos, size, _HEADER, size - _FRAME, state, out)


@kernel
def read(window: chain.Window, state: State, out: Out, rules: Rules) -> Int64:
    return chain.walk_chain(chain.run_nothing, judge, gather, chain.note_damage, window, state, out, rules)


@kernel
def begins(window: chain.Window) -> Bool:
    return sound(window, _ZERO, None, None)


@kernel
def write(data: Bytes, offsets: Int32s, out: OutBytes) -> None:
    used = _ZERO
    for row in range(len(offsets) - 1):
        start, length = np.uint64(offsets[row]), np.uint64(offsets[row + 1] - offsets[row])
        _store_length(out, used, length)
        _store_length_checksum(out, used, masked(out, used, _LENGTH))
        copy_bytes(out, used + _HEADER, data, start, length)
        _store_checksum(out, used + _HEADER + length, masked(data, start, length))
        used += length + _FRAME
