"""The data events of a V1 file: the shared walk over what follows its descriptor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawlog.chain.kernels import Window, state_type
from sawlog.chain.walk import ChainWalk, Span
from sawlog.chain.walk import Event as Wrong
from sawlog.damage import Findings
from sawlog.milvus_binlog import judge, layout
from sawlog.milvus_binlog.envelope import HEAD, Descriptor, Event, signed
from sawlog.milvus_binlog.layout import EventKind, EventType
from sawlog.storage import File, Source

_STATE = state_type()
_ROWS = 128
"""Events that are looked for at a time."""


def events(source: Source, path: str, descriptor: Descriptor, findings: Findings) -> Iterator[Event]:
    """The data events of a V1 file, one by one, walked by their length only.

    Damage is reported when the walk finds it, after the events before it. The reader of an event accounts for it.
    """
    for some in _EventWalk(source, path, descriptor, findings).batches():
        yield from some


class _State(dict[str, int]):
    """A walk's state for plain Python, which takes ten times as long for fields of a record."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class _EventWalk(ChainWalk):
    """One pass over the events; its batches are lists of them."""

    kinds = EventKind
    unsupported = frozenset({EventKind.ENCRYPTED, EventKind.UNSUPPORTED})
    window_passes = True

    def __init__(self, source: Source, path: str, descriptor: Descriptor, findings: Findings) -> None:
        span = Span(File(path, source.size), descriptor.end, source.size)
        super().__init__(span, source, findings, _STATE, max_rows=_ROWS, event_room=1)
        self.state = _State(zip(_STATE.names or (), self.state.item(), strict=True))
        self._rules = judge.Rules(descriptor.end, descriptor.legacy, descriptor.encrypted)
        self._descriptor = descriptor
        self._out = judge.Out(np.zeros(_ROWS, judge.EVENT), self.events)
        self.starts = self._out.found["start"]

    def read(self, window: Window) -> int:
        """See `ChainWalk.read`."""
        return judge.read(window, self.state, self._out, self._rules)

    def deliver(self, rows: int) -> Iterator[tuple[int, list[Event]]]:
        """See `ChainWalk.deliver`; they are no rows."""
        yield 0, [Event(EventType(code), *rest) for code, *rest in self._out.found[:rows].tolist()]

    def reset(self) -> None:
        """See `ChainWalk.reset`: what was delivered is written over."""

    def window_length(self, position: int) -> int:
        """See `ChainWalk.window_length`: what is far away is not looked at."""
        del position
        return HEAD

    def describe(self, event: Wrong) -> str:
        """See `ChainWalk.describe`; the header is quoted."""
        header = judge.header_size(self._rules)
        least = header + layout.EVENT_DATA.size
        if event.kind == EventKind.ENCRYPTED:
            zone = self._descriptor.extra.get("encryption_zone")
            return f"the events are encrypted (zone {zone}); reading them needs the cluster's key"
        quoted = bytes(self.source.window(event.offset, header))
        if event.length < least:
            expected = f"an event, of at least {least} bytes, was expected"
            return f"{event.length} bytes where {expected}: {quoted[:16].hex(' ')}"
        if event.kind in (EventKind.UNKNOWN_EVENT, EventKind.UNSUPPORTED):
            return f"unknown type code {signed(event.one, 8)} in an event header: {quoted.hex(' ')}"
        possible = f"at least {least} and at most {event.length} bytes are possible"
        return f"the event's length is {signed(event.one)}; {possible}"

    def _account(self) -> None:
        """See `ChainWalk`: the reader of an event accounts for it."""

    def _read_error(self, error: OSError) -> None:
        raise error
