"""Answers to requests that are on their way, and whether somebody holds them."""

from __future__ import annotations

import time
import weakref
from typing import Any

import pytest

from sawlog.storage.flight import Flight


class Answers:
    """The answers to all requests that are begun, as long as somebody holds them, and the files that they are of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.urls: set[str] = set()
        self._requests: list[tuple[int, weakref.ref[Any]]] = []
        begin = Flight.begin

        def record(flight: Flight, remote: Any, start: int, end: int) -> Any:
            if start < end:
                self.urls.add(remote.url)  # whether its bytes are asked for now, or are on their way since planning
            pieces = begin(flight, remote, start, end)
            self._requests += [(piece.end - piece.start, weakref.ref(piece.answer)) for piece in pieces]
            return pieces

        monkeypatch.setattr(Flight, "begin", record)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each answer that somebody holds."""
        return [length for length, answer in self._requests if answer() is not None]

    def are_let_go(self) -> bool:
        """Whether nobody holds any, once the threads that fetched them are done."""
        for _ in range(500):
            if not self.sizes:
                return True
            time.sleep(0.01)
        return False
