"""Where a log may be cut, and which of its rows a DELETE_PARTITION has deleted: found by walking the chain of entries.

A fragment may begin at any entry that begins a set, for what a reader makes of such an entry and of all that follow
does not depend on what came before. There are two ways to find one near a given byte. A planned scan walks the chain
from the start of the file: it reads every byte, sees every DELETE_PARTITION, and is exact always. Resynchronisation
looks at the neighbourhood of the byte only: it searches for entries that agree, each ending where the next begins and
all with the right digest, over more bytes than an entry may have; so even a whole log inside a value of another log
cannot be mistaken for the log itself.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sawlog.damage import Findings
from sawlog.deephaven_log import layout
from sawlog.deephaven_log.walk import Walk

if TYPE_CHECKING:
    from sawlog.deephaven_log.header import Header
    from sawlog.format import Scan
    from sawlog.storage import File, Source, Storage

PROOF_BYTES = layout.VENDOR_MAX_ENTRY
"""Entries must agree over more than this before resynchronisation believes them, or up to the end of the file."""
_ATTEMPTS = 16
"""False starts after which resynchronisation gives a cut up; the range before it grows longer."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scan found in a range of a log.

    Attributes:
        cuts: Starts of entries that begin a set, ascending.
        live_from: End of the last DELETE_PARTITION; -1 when there is none.
    """

    cuts: tuple[int, ...] = ()
    live_from: int = -1


def scan(file: File, header: Header, wanted: Scan, *, start: int, task_bytes: int | None) -> Layout:
    """Walk the chain from `start` to the end of the file, over damage if the readers that follow will pass over it.

    Where damage raises, digests are not verified: a plan that leads up to the damage, or behind it, will do.

    Args:
        file: The log.
        header: Its header.
        wanted: As for reading.
        start: The end of the header, or the start of an entry that begins a set.
        task_bytes: Distance of cuts; None for none.
    """
    from sawlog.deephaven_log.kernels.scan import scan_chain

    cuts = []
    options = wanted.options
    skip = wanted.on_damage == "skip"
    verify = skip and options.verify_checksums
    with closing(wanted.storage.open(file.path)) as source:
        walk = _walk(
            file, source, header, start, verify=verify, strict=options.strict, max_entry=options.max_entry_bytes
        )
        chain = walk.chain
        target = start + task_bytes if task_bytes else file.size
        walk.state[chain.TARGET] = target
        while True:
            status = scan_chain(walk.window(), walk.state, walk.totals, walk.weights)
            if status == chain.CUT:
                cuts.append(int(walk.state[chain.POSITION]))
                walk.state[chain.TARGET] = min(cuts[-1] + (task_bytes or file.size), file.size)
            elif status == chain.TABLE:
                walk.suspect()
            elif status == chain.FINISHED or (status == chain.DAMAGE and not skip):
                return Layout(tuple(cuts), int(walk.state[chain.LAST_DELETE]))


def find_cut(file: File, header: Header, storage: Storage, target: int, *, strict: bool, max_entry: int) -> int | None:
    """The first entry at or behind byte `target` that begins a set, found without the bytes before; None for none."""
    with closing(storage.open(file.path)) as source:
        position = target
        for _ in range(_ATTEMPTS):
            walk = _walk(file, source, header, position, verify=True, strict=strict, max_entry=max_entry)
            chain = walk.chain
            walk.suspect()
            walk.state[chain.BAD_AT] = position
            walk.state[chain.SEARCH] = position
            if _go_on(walk, file.size) != chain.DAMAGE or walk.state[chain.POSITION] >= file.size:
                return None
            found = int(walk.state[chain.POSITION])
            status = _go_on(walk, found)
            cut = int(walk.state[chain.POSITION])
            if status == chain.CUT and cut < found + PROOF_BYTES:
                status = _go_on(walk, found + PROOF_BYTES)
            elif status == chain.FINISHED:
                return None
            # Behind a log inside a value there is the rest of that value, which may look like an unfinished entry.
            if status != chain.DAMAGE and walk.state[chain.TAIL] < 0:
                return cut
            position = found + 1
    return None


def _go_on(walk: Walk, target: int) -> int:
    """Walk on, up to an entry at or behind `target` that begins a set, damage, or the end of the file."""
    from sawlog.deephaven_log.kernels.scan import scan_chain

    chain = walk.chain
    walk.state[chain.TARGET] = min(target, walk.file.size)
    status = chain.MORE
    while status == chain.MORE:
        status = scan_chain(walk.window(), walk.state, walk.totals, walk.weights)
    return int(status)


def _walk(
    file: File, source: Source, header: Header, start: int, *, verify: bool, strict: bool, max_entry: int
) -> Walk:
    findings = Findings("skip")
    return Walk(
        file, source, header, start, file.size, verify=verify, strict=strict, max_entry=max_entry, findings=findings
    )
