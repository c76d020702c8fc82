"""Places where a log may be cut, and rows that a DELETE_PARTITION has deleted: found by walking the entries.

A fragment may begin at any entry that begins a set, for what a reader makes of such an entry and of all that follow
does not depend on what came before. There are two ways to find one near a given byte. A planned scan walks the chain
from the start of the file: it reads every byte, sees every DELETE_PARTITION, and is exact always. Resynchronisation
looks at the neighbourhood of the byte only. It searches for entries that agree: each ends where the next begins, and
all digests are right. They must agree over more bytes than an entry may have, so that even a whole log inside a value
of another log cannot be mistaken for the log itself.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from sawlog.chain.walk import Span
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.header import Header
from sawlog.deephaven.log.kernels.scan import MARK_BYTES, may_delete
from sawlog.deephaven.log.walk import CutWalk
from sawlog.format.contract import PROBE_BYTES, Scan
from sawlog.storage import File, Source
from sawlog.storage.index import SEARCHES, STABLE_SECONDS, find_remote_state, pack_numbers, unpack_numbers
from sawlog.storage.names import is_remote
from sawlog.storage.sources import RemoteSource
from sawlog.storage.workers import map_all

PROOF_BYTES = layout.VENDOR_MAX_ENTRY
"""Entries must agree over more than this before resynchronisation believes them, or up to the end of the file."""
SEARCHED_BYTES = 1 << 20
"""Bytes that are searched at a time: few enough to stay in the cache from their reading on."""
_MAX_FALSE_STARTS = 16
"""False starts after which resynchronisation gives a cut up; the range before it grows longer."""


@dataclass(frozen=True, slots=True)
class CutLayout:
    """Cuts and deletions that a scan found in a range of a log.

    Attributes:
        cuts: Starts of entries that begin a set, ascending, perhaps found as they are asked for.
        live_from: End of the last DELETE_PARTITION; -1 when there is none.
    """

    cuts: Iterable[int] = ()
    live_from: int = -1


NO_CUTS = CutLayout()
"""Of most logs: they are small."""


def scan(
    file: File,
    header: Header,
    scan: Scan,
    *,
    start: int,
    task_bytes: int | None,
    threads: int = 1,
    is_read_again: bool = False,
) -> CutLayout:
    """Walk the chain from `start` to the end of the file, over damage as the readers that follow pass over it.

    Where damage raises, digests of rows are not verified at first, only if a size or a command is damaged. Without
    cuts, it is only walked if there may be a DELETE_PARTITION in it. What was found is remembered for as long as the
    log stays as it is.

    Args:
        file: The log.
        header: Its header.
        scan: As for reading.
        start: The end of the header, or the start of an entry that begins a set.
        task_bytes: Distance of cuts; None for none.
        threads: How many walk it, where there are cuts.
        is_read_again: Whether the same storage reads it next: what is fetched of a remote log stays on disk until then.
    """
    question = _make_question(file, scan, start, task_bytes)
    remembered_layout = _recall(question, task_bytes)
    if remembered_layout is not None:
        return remembered_layout
    layout = _search(file, header, scan, start, task_bytes, threads, is_read_again=is_read_again)
    if question is not None and question == _make_question(file, scan, start, task_bytes):
        for distance, cuts in {None: (), task_bytes: layout.cuts}.items():
            answer = pack_numbers([layout.live_from, *cuts])
            SEARCHES.keep((*question, distance), answer, is_shared=file.size > SEARCHED_BYTES)
    return layout


def recall(file: File, scan: Scan, start: int, task_bytes: int | None) -> CutLayout | None:
    """Return what `scan` has found in a log that has not changed since; None where that is not known."""
    return _recall(_make_question(file, scan, start, task_bytes), task_bytes)


def _recall(question: tuple[Any, ...] | None, task_bytes: int | None) -> CutLayout | None:
    answer = SEARCHES.recall((*question, task_bytes)) if question is not None else None
    if not answer:
        return None
    live_from, *cuts = unpack_numbers(answer)
    return CutLayout(cuts, live_from)


def _make_question(file: File, scan: Scan, start: int, task_bytes: int | None) -> tuple[Any, ...] | None:
    """Return what answers depend on; None where a log may change unnoticed, or is searched sooner than remembered.

    A log may change unnoticed just after a change, in the same clock tick; where it ends in zeros, which a process that
    mapped the space may fill unseen; and where a store does not distinguish its states. Small local logs that are not
    cut are searched sooner than remembered: to ask for their state takes as long as to read them.
    """
    is_near = not is_remote(file.path)
    if file.path in scan.storage.inputs.resources or file.size <= start:
        return None
    if is_near and task_bytes is None and file.size <= PROBE_BYTES:
        return None
    settings = start, scan.on_damage, repr(scan.options)
    if not is_near:
        state = find_remote_state(file)
        return (*state, repr(scan.storage.options), *settings) if state is not None else None
    try:
        status = os.stat(file.path)
        if not stat.S_ISREG(status.st_mode) or time.time() - status.st_ctime < STABLE_SECONDS:
            return None
        with open(file.path, "rb") as log:
            if os.pread(log.fileno(), 1, file.size - 1) in (b"", b"\0"):
                return None
    except OSError:
        return None  # its reader says what is wrong
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return file.path, file.size, *state, *settings


def _search(
    file: File, header: Header, scan: Scan, start: int, task_bytes: int | None, threads: int, *, is_read_again: bool
) -> CutLayout:
    from sawlog.deephaven.log.walk import CutWalk, Entries

    layout = None
    if task_bytes is not None and threads > 1:
        layout = search_stretches(file, header, scan, start, task_bytes, threads)
        if layout is not None:
            return layout
    with closing(scan.storage.open(file.path)) as source:
        if isinstance(source, RemoteSource):
            source.is_read_again = is_read_again
        if task_bytes is None and not may_hold_delete(source, start, file.size):
            return NO_CUTS
        entries = Entries(Span(file, start, file.size), source, header, scan.options)
        if scan.on_damage == "fail":
            layout = _collect_layout(CutWalk(entries, verify=False, stops=True), task_bytes)
        if layout is None:
            verify = scan.options.verify_checksums
            layout = _collect_layout(CutWalk(entries, verify=verify, stops=False), task_bytes)
    return layout or NO_CUTS


def search_stretches(
    file: File, header: Header, scan: Scan, start: int, distance: int, threads: int
) -> CutLayout | None:
    """Return the layout by threads, a stretch each; None if there is damage, or a stretch misses the next.

    Where a stretch begins is guessed by resynchronisation; that the one before ends there, entry by entry, proves it.
    """
    length = (file.size - start) // threads
    targets = range(start + length, start + threads * length, length) if length > PROOF_BYTES else ()

    def find_layout(stretch: tuple[int, int]) -> CutLayout | None:
        stretch_layout = walk_stretch(file, header, scan, *stretch, distance)
        return stretch_layout[0] if stretch_layout is not None and stretch_layout[1] == stretch[1] else None

    guesses = map_all(targets, lambda target: find_cut(file, header, scan, target), threads)
    begins = [start, *sorted({cut for cut in guesses if cut is not None})]
    layouts = map_all(pairwise([*begins, file.size]), find_layout, threads)
    complete_layouts = [layout for layout in layouts if layout is not None]
    if len(complete_layouts) < len(layouts):
        return None
    cuts = chain.from_iterable(layout.cuts for layout in complete_layouts)
    return CutLayout(tuple(cuts)[1:], max(layout.live_from for layout in complete_layouts))


def walk_stretch(
    file: File, header: Header, scan: Scan, begin: int, target: int, distance: int
) -> tuple[CutLayout, int] | None:
    """Return the layout from a cut, itself among the cuts, to the first at or past `target`, and where that is.

    Returns:
        `None` if there is damage.
    """
    from sawlog.deephaven.log.walk import CutWalk, Entries

    verify = scan.options.verify_checksums and scan.on_damage != "fail"
    cuts = [begin]
    with closing(scan.storage.open(file.path, target)) as source:
        entries = Entries(Span(file, begin, file.size), source, header, scan.options)
        walk = CutWalk(entries, verify=verify, stops=True)
        while (cut := walk.go_on(min(cuts[-1] + distance, target))) is not None and cut < target:
            cuts.append(cut)
    if cut is None and walk.stopped:
        return None
    return CutLayout(cuts, int(walk.state.last_delete)), file.size if cut is None else cut


def may_hold_delete(source: Source, start: int, end: int) -> bool:
    """Return whether a range may hold a DELETE_PARTITION: whether it has the bytes that mark one, a fast search."""
    searched_to = start
    while searched_to < end:
        begin = max(start, searched_to - MARK_BYTES + 1)
        data = source.read_window(begin, min(SEARCHED_BYTES, end - begin))
        if may_delete(data):
            return True
        if begin + len(data) <= searched_to:
            return False  # the file has become shorter, as its reader will say
        searched_to = begin + len(data)
    return False


def find_cuts(file: File, header: Header, scan: Scan, *, task_bytes: int) -> Iterator[int]:
    """Yield the cuts of a whole log, each found when it is asked for; where damage raises, none after the first one."""
    from sawlog.deephaven.log.walk import CutWalk, Entries

    fails = scan.on_damage == "fail"
    verify = scan.options.verify_checksums and not fails
    with closing(scan.storage.open(file.path)) as source:
        entries = Entries(Span(file, header.size, file.size), source, header, scan.options)
        yield from _cuts(CutWalk(entries, verify=verify, stops=fails), task_bytes)


def _collect_layout(walk: CutWalk, task_bytes: int | None) -> CutLayout | None:
    """Return what a walk finds; None if it stops at damage."""
    cuts = tuple(_cuts(walk, task_bytes or walk.span.file.size))
    return None if walk.stopped else CutLayout(cuts, int(walk.state.last_delete))


def _cuts(walk: CutWalk, distance: int) -> Iterator[int]:
    cut = walk.go_on(walk.span.start + distance)
    while cut is not None:
        yield cut
        cut = walk.go_on(cut + distance)


def find_cut(file: File, header: Header, scan: Scan, target: int) -> int | None:
    """Return the first entry from byte `target` on that begins a set, found without the bytes before; None for none."""
    from sawlog.deephaven.log.walk import CutWalk, Entries

    with closing(scan.storage.open(file.path, target + 2 * PROOF_BYTES)) as source:
        position = target
        for _ in range(_MAX_FALSE_STARTS):
            entries = Entries(Span(file, position, file.size), source, header, scan.options)
            walk = CutWalk(entries, verify=True, stops=True)
            walk.search()
            walk.go_on(file.size)
            candidate = int(walk.state.position)
            if not walk.stopped or candidate >= file.size:
                return None
            cut = walk.go_on(candidate)
            if cut is None and not walk.stopped:
                return None
            if cut is not None and cut < candidate + PROOF_BYTES:
                walk.go_on(candidate + PROOF_BYTES)
            # A log inside a value is followed by the rest of that value, which may look like an unfinished entry.
            if not walk.stopped and walk.state.tail < 0:
                return cut
            position = candidate + 1
    return None
