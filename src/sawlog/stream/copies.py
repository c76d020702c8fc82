"""Copies of files that are still there: held back, for one of the two is about to go, or to be emptied.

A log that is copied and emptied (`copytruncate` of logrotate), or copied and deleted, exists twice for a while. A file
that arrives is a copy if all its bytes are those of another file and its name says so: it is the other's name with a
suffix, or the same place among a writer's files, or, of a file that the stream has begun to read, the very same name.
Two files that both have the name of a third with a suffix are copies of each other: the third may be empty by now.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import posixpath
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sawlog.format.contract import WriterPosition
from sawlog.storage import is_remote
from sawlog.stream.files import Files
from sawlog.stream.listing import FileSnapshot
from sawlog.stream.offset import PROVEN_BYTES, FinishedFile, Link, ReadPosition, hash_name, prove, shorten_proof

logger = logging.getLogger("sawlog")

_BLOCK_BYTES = 4 << 20
"""Bytes of two files that are compared at a time."""
MAX_CANDIDATES = 100
"""Files that one that arrives is compared with, at most, of those that begin as it does."""
_REPORT_SECONDS = 60.0
"""Seconds for which a copy must not have changed before it is reported as not read."""

Known = tuple[str, ReadPosition | FinishedFile | None]
"""A file that is there, and how far it was read; `None` for one that was not begun."""


class Copies:
    """The copies that a stream knows at an offset.

    Attributes:
        links: By the keys of their names.
    """

    def __init__(self, follower: Files, links: Mapping[bytes, Link], before: Copies | None) -> None:
        self._follower = follower
        self.links: dict[bytes, Link] = dict(links if before is None else before.links)
        self._reported: set[bytes] = before._reported if before is not None else set()
        self._names: dict[bytes, str] = before._names if before is not None else {}
        self._compared: dict[bytes, Link] = before._compared if before is not None else {}
        self._stamps: dict[bytes, tuple[Any, ...]] = before._stamps if before is not None else {}

    def __contains__(self, name: str) -> bool:
        return bool(self.links) and hash_name(name) in self.links

    def keep(self, arrived: Mapping[str, FileSnapshot]) -> None:
        """Forget copies that are no more."""
        if self.links:
            arrived_keys = set(map(hash_name, arrived))
            self.links = {key: link for key, link in self.links.items() if key in arrived_keys}
            self._compared = {key: link for key, link in self._compared.items() if key in arrived_keys}
            self._stamps = {key: stamp for key, stamp in self._stamps.items() if key in arrived_keys}

    def find_name(self, origin: bytes) -> str:
        """Return the name, now or before, of a file that there are copies of."""
        return self._names.get(origin, "another file")

    def find_origins(self, entries: Mapping[str, FileSnapshot]) -> dict[bytes, str]:
        """Return names of the files that there are copies of, as far as those files are there."""
        origin_keys = {link.origin for link in self.links.values()}
        if origin_keys - self._names.keys():
            self._names |= {key: name for name in entries if (key := hash_name(name)) in origin_keys}
        return {key: name for key in origin_keys if (name := self._names.get(key)) is not None and name in entries}

    def is_unchanged(self, name: str, entry: FileSnapshot) -> bool:
        """Return whether a copy is as it was when it was compared; else it is none for now.

        Reports what has long been one.
        """
        key = hash_name(name)
        if self.links[key].size != entry.file.size:
            self._compared[key] = self.links.pop(key)
            return False
        if key not in self._reported and time.time() - entry.changed > _REPORT_SECONDS:
            self._reported.add(key)
            logger.warning(
                "%s: all of its %d bytes are those of %s: it is taken for a copy, and left out unless it goes on"
                " otherwise, or the other one is emptied or removed",
                entry.file.path,
                entry.file.size,
                self.find_name(self.links[key].origin),
            )
        return True

    def find_emptied(self, arrived: Mapping[str, FileSnapshot], unbegun: Mapping[bytes, FileSnapshot]) -> set[bytes]:
        """Return keys of files that nothing was read of, and that do not begin with what their copies hold any more."""
        emptied_keys = set()
        for name, entry in arrived.items() if unbegun else ():
            link = self.links.get(key := hash_name(name))
            if link is None or link.origin not in unbegun:
                continue
            origin = unbegun[link.origin]
            if self._stamps.get(key) == origin.stamp:
                continue
            size, storage = min(link.size, entry.file.size), self._follower.storage
            if origin.file.size < size or prove(entry.file, size, storage) != prove(origin.file, size, storage):
                emptied_keys.add(link.origin)
            self._stamps[key] = origin.stamp
        return emptied_keys

    def succeed(self, first: str, copies: Iterable[str], arrived: Mapping[str, FileSnapshot]) -> Iterator[str]:
        """Have one copy take the place of the original of some; return those that are not known to be copies of it."""
        key = hash_name(first)
        longest = self.links[key].size
        self._names[key] = first
        for name in copies:
            link = self.links.pop(hash_name(name))
            if name != first and link.size == arrived[name].file.size <= longest:
                self.links[hash_name(name)] = Link(key, link.size)
            else:
                yield name

    def link(self, name: str, entry: FileSnapshot, origin_name: str, origin: FileSnapshot) -> bool:
        """Take one file for a copy of another if all of its bytes are those of the other."""
        key, size = hash_name(name), entry.file.size
        link = self._compared.pop(key, None)
        compared = link.size if link is not None and link.origin == hash_name(origin_name) and link.size < size else 0
        storage = self._follower.storage
        blocks = ((begin, min(begin + _BLOCK_BYTES, size)) for begin in range(compared, size, _BLOCK_BYTES))
        for begin, end in itertools.chain([(max(compared, size - PROVEN_BYTES), size)], blocks):
            data, origin_data = (storage.read(path, begin, end - begin) for path in (entry.file.path, origin.file.path))
            emptied = begin + len(origin_data) < min(end, origin.file.size)  # since the look: the next one finds that
            if data != origin_data and not (emptied and data.startswith(origin_data)):
                return False
        self.links[key] = Link(hash_name(origin_name), size)
        self._stamps[key] = origin.stamp
        self._names[hash_name(origin_name)] = origin_name
        return True


class ActiveFiles:
    """Files that are there: those that were begun by how they begin, the others by their names."""

    def __init__(self, follower: Files, records: Iterable[Known], entries: Mapping[str, FileSnapshot]) -> None:
        self._follower = follower
        self._entries = entries
        self._records_by_length: dict[int, dict[bytes, list[Known]]] = defaultdict(lambda: defaultdict(list))
        self._unbegun: dict[Hashable, list[str]] = defaultdict(list)
        self._bases: set[str] = set()
        self._names = set(map(posixpath.basename, entries))
        self._named = sorted(set(map(len, self._names)), reverse=True)
        self._siblings: dict[str, list[str]] | None = None
        self._places: set[WriterPosition | None] = set()
        for name, record in records:
            base, place = posixpath.basename(name), follower.writer_position(entries[name])
            if record is None:
                self._unbegun[base].append(name)
                if place is not None:
                    self._unbegun[place].append(name)
                continue
            first = shorten_proof(record.proof) if isinstance(record, ReadPosition) else record.head
            self._records_by_length[min(record.position, PROVEN_BYTES)][first].append((name, record))
            self._bases.add(base)
            self._places.add(place)
        self._places.discard(None)
        bases = [*self._bases, *(key for key in self._unbegun if isinstance(key, str))]
        self._lengths = sorted(set(map(len, bases)))

    def find_like(self, name: str, entry: FileSnapshot) -> Iterator[Known]:
        """Yield files that one may be a copy of: those that begin as it does, and are named alike."""
        base, place = posixpath.basename(name), self._follower.writer_position(entry)
        begins = [base[:length] for length in self._lengths if length <= len(base)]
        rotated = self._find_rotated(base)
        if rotated or place in self._places or any(begin in self._bases for begin in begins):
            yield from itertools.islice(self._find_like(name, entry), MAX_CANDIDATES)
        if not self._unbegun:
            return
        for begin in begins:
            if begin != base:
                yield from (
                    (candidate, None) for candidate in itertools.islice(self._unbegun.get(begin, ()), MAX_CANDIDATES)
                )
        rank = self._rank(name)
        alike = [*itertools.islice(self._unbegun.get(place, ()), MAX_CANDIDATES), *self._list_rotated(rotated)]
        yield from ((candidate, None) for candidate in alike if self._rank(candidate) < rank)

    def _find_rotated(self, base: str) -> str:
        """Return the longest name of a present file to which `base` adds a suffix, such as that of a rotation."""
        begins = (base[:length] for length in self._named if length < len(base) and not base[length].isalnum())
        return next((begin for begin in begins if begin in self._names), "")

    def _list_rotated(self, rotated: str) -> Sequence[str]:
        """Return files that were not begun and have a name with a suffix."""
        if rotated and self._siblings is None:
            self._siblings = defaultdict(list)
            for base, names in self._unbegun.items():
                if isinstance(base, str):
                    self._siblings[self._find_rotated(base)] += names
        return self._siblings.get(rotated, ())[:MAX_CANDIDATES] if rotated and self._siblings else ()

    def _rank(self, name: str) -> tuple[Any, ...]:
        """Return a rank among files of one name: the original is likely to be the longest, eldest, nearest."""
        entry = self._entries[name]
        return -entry.file.size, entry.changed, len(name), name

    def _find_like(self, name: str, entry: FileSnapshot) -> Iterator[Known]:
        storage = self._follower.storage
        first = storage.read(entry.file.path, 0, min(entry.file.size, PROVEN_BYTES))
        for length, records_by_head in self._records_by_length.items():
            if length <= len(first):
                mine = shorten_proof(hashlib.blake2b(first[:length], digest_size=8).hexdigest())
                yield from (
                    record for record in records_by_head.get(mine, ()) if self._is_plausible(name, entry, record[0])
                )
            elif not is_remote(entry.file.path):  # what is written there is seen when all of it is
                longer = (
                    record
                    for records in records_by_head.values()
                    for record in records
                    if self._is_plausible(name, entry, record[0])
                )
                for record in itertools.islice(longer, MAX_CANDIDATES):
                    if storage.read(self._entries[record[0]].file.path, 0, len(first)) == first:
                        yield record

    def _is_plausible(self, name: str, entry: FileSnapshot, other_name: str) -> bool:
        """Return whether a file is named like the other with a suffix, or has the same place among a writer's."""
        if name == other_name:
            return False
        base, base_of_other = posixpath.basename(name), posixpath.basename(other_name)
        position, other_position = (
            self._follower.writer_position(entry),
            self._follower.writer_position(self._entries[other_name]),
        )
        if base.startswith(base_of_other) or (position is not None and position == other_position):
            return True
        rotated = self._find_rotated(base)
        return rotated != "" and rotated == self._find_rotated(base_of_other)
