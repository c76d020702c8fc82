"""Laying records out as fragments."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from sawlog.chain.kernels import record_type
from sawlog.chain.layout import storer
from sawlog.kernels.crc32c import crc32c, crc32c_extend
from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import copy_bytes, prefetch
from sawlog.kernels.signature import Bytes, Int32s, Int64, OutBytes, Record, UInt64
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.judge import masked
from sawlog.leveldb.log.kernels import AHEAD, LINE
from sawlog.leveldb.log.layout import Type

STATE = record_type(
    "record",  # the one being laid out
    "done",  # bytes of it that are laid out; -1 before its first fragment
    "in_block",  # bytes used of the current block
    "used",  # bytes in `out`
)
"""The state of the encoder."""

# What a call ended with.
END = 0
"""All records are laid out."""
NO_ROOM = 1
"""The output is to be emptied first."""
INVALID = 2
"""The offsets are none of a valid Arrow array."""

_BLOCK = np.uint64(layout.BLOCK_SIZE)
_HEADER = np.uint64(layout.HEADER_SIZE)
_TYPE = np.uint64(layout.TYPE.offset)
_FULL = np.uint64(Type.FULL)
_FIRST = np.uint64(Type.FIRST)
_MIDDLE = np.uint64(Type.MIDDLE)
_LAST = np.uint64(Type.LAST)
_RECYCLABLE_TYPES = np.uint64(Type.RECYCLABLE_FULL - Type.FULL)
_ZERO = np.uint64(0)
_store_checksum = storer(layout.CHECKSUM)
_store_length = storer(layout.LENGTH)
_store_log_number = storer(layout.LOG_NUMBER)


@kernel
def write_fragments(
    data: Bytes, offsets: Int32s, header: UInt64, log: UInt64, state: Annotated[Any, Record(STATE)], out: OutBytes
) -> Int64:
    """Lay records out as fragments, until all are done or `out` has no room for another block.

    Args:
        data: uint8, payloads.
        offsets: int32, record i is `data[offsets[i] : offsets[i + 1]]`.
        header: uint64, header size: of legacy fragments, or of RocksDB's recyclable ones.
        log: uint64, log number for recyclable headers.
        state: A record of `STATE`, updated.
        out: uint8, at least two blocks.

    Returns:
        END, NO_ROOM or INVALID.
    """
    recyclable = header > _HEADER
    records = len(offsets) - 1
    room = np.uint64(len(out))
    used = np.uint64(state.used)
    in_block = np.uint64(state.in_block)
    record = state.record
    done = state.done
    while record < records and room - used >= _BLOCK + _BLOCK:
        left = _BLOCK - in_block
        if left < header:
            for i in range(left):
                out[used + np.uint64(i)] = 0
            used += left
            in_block = _ZERO
            left = _BLOCK
        if not 0 <= offsets[record] <= offsets[record + 1] <= len(data):
            return INVALID
        first = done < 0
        start = np.uint64(offsets[record]) + (_ZERO if first else np.uint64(done))
        prefetch(data, start + AHEAD)
        prefetch(data, start + AHEAD + LINE)
        remaining = np.uint64(offsets[record + 1]) - start
        length = min(remaining, left - header)
        last = length == remaining
        code = _MIDDLE
        if first:
            code = _FULL if last else _FIRST
        elif last:
            code = _LAST
        if recyclable:
            code += _RECYCLABLE_TYPES
            _store_log_number(out, used, log)
        _store_length(out, used, length)
        out[used + _TYPE] = code
        copy_bytes(out, used + header, data, start, length)
        # Reading the payload where it came from does not wait for the copy.
        crc = crc32c_extend(crc32c(out, used + _TYPE, header - _TYPE), data, start, length)
        _store_checksum(out, used, masked(crc))
        used += header + length
        in_block += header + length
        if last:
            record += 1
            done = -1
        else:
            done = np.int64(length) + (0 if first else done)
    state.record = record
    state.done = done
    state.in_block = in_block
    state.used = used
    return END if record == records else NO_ROOM
