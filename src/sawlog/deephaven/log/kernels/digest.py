"""Digests of entries, looked up in running sums where the same bytes would be summed over and over."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawlog.kernels.adler32 import LONGEST, adler32, finish, sums
from sawlog.kernels.jit import inlined
from sawlog.kernels.numbers import _ONE, _ZERO

STEP = 64
"""The running sums are noted every so many bytes."""
SUMMED_BYTES = LONGEST
"""Bytes that the running sums can cover."""
SUMMED = np.uint64(1024)
"""Longer stretches are looked up in the running sums, once a file has shown damage."""

_STEP = np.uint64(STEP)


@inlined
def _sum_up_to(window: Any, offset: Any, state: Any, rules: Any) -> Any:
    """Return the two sums over everything from `origin` up to `origin + offset`."""
    row = offset // _STEP
    start = np.uint64(state.origin) + row * _STEP - window.base
    return sums(window.data, start, offset - row * _STEP, rules.totals[row], rules.weights[row])


@inlined
def compute_digest(window: Any, pos: Any, length: Any, state: Any, rules: Any) -> Any:
    """Return the Adler-32 of so many bytes at `pos`.

    Once a file has shown damage, long stretches are looked up in running sums: claims of size that overlap, as hostile
    files make them, would otherwise have the same bytes summed over and over.
    """
    capacity = np.uint64(len(rules.totals) - 1) * _STEP
    if length <= SUMMED or length > capacity:
        return adler32(window.data, pos, length)
    position = window.base + pos
    origin = np.uint64(max(state.origin, 0))
    stale = state.origin < 0 or position < origin
    first = _ZERO if stale else position - origin
    if not stale:
        oldest = origin + min(first // _STEP * _STEP, np.uint64(state.ready))
        stale = first + length > capacity or oldest < window.base
    if stale:
        state.origin = position
        state.ready = 0
        rules.totals[0] = _ZERO
        rules.weights[0] = _ZERO
        origin = position
        first = _ZERO
    ready = np.uint64(state.ready)
    while ready + _STEP <= first + length:
        row = ready // _STEP
        start = origin + ready - window.base
        total, weighted = sums(window.data, start, _STEP, rules.totals[row], rules.weights[row])
        ready += _STEP
        rules.totals[row + _ONE] = total
        rules.weights[row + _ONE] = weighted
    state.ready = ready
    total, weighted = _sum_up_to(window, first + length, state, rules)
    before, weighted_before = _sum_up_to(window, first, state, rules)
    return finish(total - before, weighted - weighted_before - length * before, length)
