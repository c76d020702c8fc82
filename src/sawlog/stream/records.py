"""Tracks identity, read position and moves of each file.

A file is seen, begun, quiet or finished, and may grow again at any time; it may be gone, or have moved: then another
file begins with the bytes that were read of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sawlog.errors import SawlogError
from sawlog.stream.copies import ActiveFiles, Copies
from sawlog.stream.files import Files
from sawlog.stream.listing import FileSnapshot
from sawlog.stream.offset import (
    NO_HEAD,
    PROVEN_BYTES,
    Finished,
    FinishedFile,
    Offset,
    ReadPosition,
    check_proof,
    compute_head,
    hash_name,
    hash_version,
    prove,
    shorten_proof,
)

logger = logging.getLogger("sawlog")

_Lost = tuple[str | bytes, ReadPosition | FinishedFile]
"""A record, by the name or the key of the file that it was of."""

MAX_CANDIDATES = 100
"""Records that a new file is compared with, at most, of those that begin as it does."""
MAX_REMEMBERED_FILES = 10_000
"""Finished files that have gone, and would be known again, at most."""


class Records:
    """The files of a stream at an offset, brought up to date with what is there.

    Attributes:
        start: The offset.
        files: Files that are being read, by the names they have now.
        ended: Finished files that are as they were when they were read, by name, with their stamps.
        copies: Files that are not read, for they hold what others do.
    """

    def __init__(self, follower: Files, start: Offset, before: Records | None = None) -> None:
        self._follower = follower
        self.start = start
        self.files: dict[str, ReadPosition] = dict(start.files)
        self.ended: dict[str, tuple[Any, ...]] = before.ended if before is not None else {}
        self.copies: Copies = Copies(follower, start.copies, before.copies if before is not None else None)
        self._finished = start.finished
        self._added: dict[bytes, FinishedFile] = {}
        self._removed: set[bytes] = set()
        self._inodes: dict[str, Any] = before._inodes if before is not None else {}
        self._unbegun: dict[str, FileSnapshot] = before._unbegun if before is not None else {}
        self._restarted = before is None
        self._copied: set[str] = set()
        self._copied_bytes: dict[str, int] = {}

    def refresh(self, entries: Mapping[str, FileSnapshot]) -> None:
        """Bring the records up to date.

        Raises:
            SawlogError: When a file was replaced, rewritten or cut, or removed before it was read.
        """
        self._copied = set(self.copies.find_origins(entries).values())
        new: dict[str, FileSnapshot] = {}
        changed: dict[str, ReadPosition | FinishedFile] = {}
        for name, entry in entries.items():
            if self.ended.get(name) == entry.stamp:
                continue
            self.ended.pop(name, None)
            place = self.files.get(name)
            if place is not None:
                if self._is_replaced(name, entry, place):
                    changed[name] = place
            elif (ended := self._find_ended(name)) is not None:
                self._look_again(name, entry, ended, changed)
            elif self._follower.is_member(name, entry) and entry.file.size:
                new[name] = entry
        waited = self.start.waiting if self._restarted else {}
        arrived = {n: entry for n, entry in new.items() if n not in self._unbegun and hash_name(n) not in waited}
        self.copies.keep(arrived)
        arrived = self._release(arrived, changed, entries)
        moved = self._resolve_moves(arrived, changed, entries)
        self._hold({name: entry for name, entry in arrived.items() if name not in moved}, new, moved, changed, entries)
        for name, record in changed.items():
            self._refuse(name, entries[name], record)
        self._resolve_losses(entries, [arrived[name] for name in arrived if name not in moved])
        self._unbegun = {n: entry for n, entry in new.items() if n not in moved and n not in self.copies}
        self._restarted = False

    def finish(self, ended: Mapping[str, FinishedFile], entries: Mapping[str, FileSnapshot]) -> Finished:
        """Return the finished files of the next offset: those there were, and some more."""
        added = {**self._added, **{hash_name(name): record for name, record in ended.items()}}
        finished = self._finished.with_changes(added, self._removed) if added or self._removed else self._finished
        self.ended |= {name: entries[name].stamp for name in ended if name in entries}
        surplus = len(finished) - len(entries) - MAX_REMEMBERED_FILES
        if surplus > 0:
            listed_keys = {hash_name(name) for name in entries}
            removed_keys = [key for key in finished if key not in listed_keys]
            finished = finished.with_changes({}, set(removed_keys[: max(0, len(removed_keys) - MAX_REMEMBERED_FILES)]))
        return finished

    def find_moved(self, place: ReadPosition, entries: Mapping[str, FileSnapshot]) -> FileSnapshot | None:
        """Return the file that begins with what was read at a place, of those that were not begun."""
        for name, entry in entries.items():
            if name in self.files or self._find_ended(name) is not None or entry.file.size < place.position:
                continue
            if self._proves(entry, place):
                return entry
        return None

    def _find_ended(self, name: str) -> FinishedFile | None:
        return self._find_ended_by_key(hash_name(name))

    def _find_ended_by_key(self, key: bytes) -> FinishedFile | None:
        return self._added.get(key) or (None if key in self._removed else self._finished.get(key))

    def _is_replaced(self, name: str, entry: FileSnapshot, place: ReadPosition) -> bool:
        """Return whether another file has a name now: it is shorter, or begins otherwise and may be another inode."""
        if entry.file.size < place.position:
            return True
        if not place.position:
            return False
        if name in self._copied and self._follower.find_committed_end(name, entry) is None:
            return not self._proves(entry, place)
        if name in self._inodes and self._inodes[name] == entry.inode:
            return False
        if not place.proof:  # of positions that were saved without one
            self.files[name] = replace(place, proof=prove(entry.file, place.position, self._follower.storage))
        elif compute_head(entry.file, place.position, self._follower.storage) != place.proof.partition(" ")[0]:
            return True
        self._inodes[name] = entry.inode
        return False

    def _look_again(
        self, name: str, entry: FileSnapshot, ended: FinishedFile, changed: dict[str, ReadPosition | FinishedFile]
    ) -> None:
        """Look at a finished file not looked at before, or changed: it sleeps on, wakes, or is another one."""
        if entry.file.size == ended.position and hash_version(entry.version) == ended.version:
            self.ended[name] = entry.stamp
            return
        if entry.file.size < ended.position:
            changed[name] = ended
            return
        proof = prove(entry.file, ended.position, self._follower.storage) if ended.position else ""
        if not _is_unchanged(ended, proof):
            changed[name] = ended
        elif entry.file.size == ended.position:
            self.ended[name] = entry.stamp
        else:
            self._wake_file(name, ended, proof)

    def _wake_file(self, name: str, ended: FinishedFile, proof: str) -> None:
        self.files[name] = ReadPosition(ended.position, proof, ended.position)
        self._removed.add(hash_name(name))
        self._added.pop(hash_name(name), None)

    def _find_lost(self, entries: Mapping[str, FileSnapshot]) -> Iterator[_Lost]:
        for name, place in self.files.items():
            if name not in entries and place.position:
                yield name, place
        listed_keys = {hash_name(name) for name in entries}
        for key in self._finished:
            if key not in listed_keys and key not in self._removed:
                record = self._finished.get(key)
                if record is not None and record.head != NO_HEAD:
                    yield key, record

    def _release(
        self,
        arrived: Mapping[str, FileSnapshot],
        changed: dict[str, ReadPosition | FinishedFile],
        entries: Mapping[str, FileSnapshot],
    ) -> dict[str, FileSnapshot]:
        """Let copies go whose originals are gone, or were emptied; return those that arrived, but for the other copies.

        Of several copies of one file the longest takes its place, and the others are copies of that one.
        """
        links = self.copies.links
        self._copied_bytes = {}
        if not links:
            return dict(arrived)
        names = self.copies.find_origins(entries)
        lost_origins = {link.origin for link in links.values()} - {
            key for key, name in names.items() if name not in changed
        }
        unbegun = {
            key: entries[name]
            for key, name in names.items()
            if key not in lost_origins and self._find_record(key) is None
        }
        lost_origins |= self.copies.find_emptied(arrived, unbegun)
        released: dict[bytes, list[str]] = {}
        free: dict[str, FileSnapshot] = {}
        for name, entry in arrived.items():
            link = links.get(hash_name(name))
            if link is not None and link.origin in lost_origins:
                released.setdefault(link.origin, []).append(name)
            elif link is None or not self.copies.is_unchanged(name, entry):
                free[name] = entry
        for origin, copies in released.items():
            copies.sort(key=lambda name: links[hash_name(name)].size, reverse=True)
            record, first = self._find_record(origin), copies[0]
            if record is not None and record.position > arrived[first].file.size:
                self._end_copies(copies, arrived)
                if origin in names:
                    changed.pop(names[origin], None)
                    self._begin_again(names[origin])
                continue
            self._copied_bytes[self.copies.find_name(origin)] = arrived[first].file.size
            free |= {name: arrived[name] for name in self.copies.succeed(first, copies, arrived)}
        return free

    def _end_copies(self, copies: Iterable[str], arrived: Mapping[str, FileSnapshot]) -> None:
        """Record copies as finished: all of their bytes were read in their originals."""
        for name in copies:
            entry = arrived[name]
            del self.copies.links[hash_name(name)]
            place = ReadPosition(entry.file.size, prove(entry.file, entry.file.size, self._follower.storage))
            self._added[hash_name(name)] = FinishedFile.of(place, entry.version)
            self.ended[name] = entry.stamp

    def _find_record(self, key: bytes) -> ReadPosition | FinishedFile | None:
        """Return the record of a file by the key of its name."""
        places = (place for name, place in self.files.items() if hash_name(name) == key)
        return next(places, None) or self._find_ended_by_key(key)

    def _begin_again(self, name: str) -> None:
        """Forget what was read of a file that was emptied, of which more was read than its copy has."""
        place = self.files.pop(name, None)
        self.ended.pop(name, None)
        self._removed.add(hash_name(name))
        self._added.pop(hash_name(name), None)
        self._check_emptied(name, place.position if place is not None else 0)

    def _check_emptied(self, name: str, copied_bytes: int) -> None:
        """Notice what was written to a file between its being copied and its being emptied, and was not read."""
        reachable = self._follower.forget_committed_end(name) or 0
        if reachable > copied_bytes:
            self._report_loss(
                f"{self._follower.root}{name}: the file was copied and emptied; {copied_bytes} bytes of it were read or"
                f" are in the copy, {reachable} could have been read"
            )

    def _hold(
        self,
        arrived: Mapping[str, FileSnapshot],
        new: Mapping[str, FileSnapshot],
        moved: set[str],
        changed: Mapping[str, ReadPosition | FinishedFile],
        entries: Mapping[str, FileSnapshot],
    ) -> None:
        """Hold files back that are copies of others that are there; `moved` gets those whose original was emptied."""
        if not arrived or self._follower.format.stream_rules.is_complete(self._follower.view):
            return
        candidates: list[tuple[str, ReadPosition | FinishedFile | None]] = []
        for name in entries:
            record = self.files.get(name) or self._find_ended(name)
            if (
                record is not None
                and record.position
                and name not in changed
                and getattr(record, "head", None) != NO_HEAD
            ):
                candidates.append((name, record))
        candidates += [(name, None) for name in new if name not in moved]
        living = ActiveFiles(self._follower, candidates, entries)
        moved_names: set[str] = set()
        for name, entry in sorted(arrived.items(), key=lambda item: (len(item[0]), item[0])):
            for original, record in living.find_like(name, entry):
                if original in moved_names or original in self.copies:
                    continue
                if self.copies.link(name, entry, original, entries[original]):
                    break
                if record is None:
                    continue
                if (
                    record.position <= entry.file.size
                    and self._proves(entry, record)
                    and not self._proves(entries[original], record)
                ):
                    self._move(original, record, name, entry)
                    moved.add(name)
                    moved_names.add(original)
                    break

    def _proves(self, entry: FileSnapshot, record: ReadPosition | FinishedFile) -> bool:
        proof = prove(entry.file, record.position, self._follower.storage)
        return proof == record.proof if isinstance(record, ReadPosition) else _is_unchanged(record, proof)

    def _resolve_moves(
        self,
        arrived: dict[str, FileSnapshot],
        changed: dict[str, ReadPosition | FinishedFile],
        entries: Mapping[str, FileSnapshot],
    ) -> set[str]:
        """Find the new names of files that are gone, or in whose place there is another, which arrives by that."""
        if not arrived:
            return set()
        lost_records = [*self._find_lost(entries), *changed.items()]
        if not lost_records:
            return set()
        lengths = sorted({min(record.position, PROVEN_BYTES) for _, record in lost_records}, reverse=True)
        moved = set()
        waiting = [*arrived]
        for name in waiting:
            entry = arrived[name]
            heads = {
                length: compute_head(entry.file, length, self._follower.storage)
                for length in lengths
                if length <= entry.file.size
            }
            match = self._match(entry, lost_records, heads)
            if match is not None:
                first = self._follower.storage.read(entry.file.path, 0, PROVEN_BYTES)
                written_over = set(map(hash_name, self._follower.format.stream_rules.overwritten_names(name, first)))
                match = self._match(
                    entry,
                    [candidate for candidate in lost_records if _make_key(candidate[0]) not in written_over],
                    heads,
                )
            if match is not None:
                lost_records.remove(match)
                self._move(*match, name, entry)
                moved.add(name)
                if (
                    isinstance(match[0], str)
                    and changed.pop(match[0], None) is not None
                    and entries[match[0]].file.size
                ):
                    arrived[match[0]] = entries[match[0]]
                    waiting.append(match[0])
        return moved

    def _match(self, entry: FileSnapshot, lost_records: list[_Lost], heads: Mapping[int, str]) -> _Lost | None:
        """Return the record of a file that begins with all that was read of it.

        Those of its size first, then the longest.
        """
        likely = []
        for candidate in lost_records:
            record = candidate[1]
            first = heads.get(min(record.position, PROVEN_BYTES))
            if first is None or record.position > entry.file.size:
                continue
            expected = shorten_proof(record.proof) if isinstance(record, ReadPosition) else record.head
            if expected == shorten_proof(first):
                likely.append(candidate)
        likely.sort(key=lambda candidate: -candidate[1].position)
        for candidate in likely[:MAX_CANDIDATES]:
            if self._proves(entry, candidate[1]):
                return candidate
        return None

    def _move(self, old: str | bytes, record: ReadPosition | FinishedFile, name: str, entry: FileSnapshot) -> None:
        logger.info("%s: was read before, under another name", entry.file.path)
        if isinstance(record, ReadPosition):
            assert isinstance(old, str)
            del self.files[old]
            self.files[name] = ReadPosition(record.position, record.proof, record.position)
            self._check_emptied(old, entry.file.size)
            return
        key = _make_key(old)
        if isinstance(old, str):
            self.ended.pop(old, None)
        self._removed.add(key)
        self._added.pop(key, None)
        if entry.file.size > record.position:
            self._wake_file(name, record, prove(entry.file, record.position, self._follower.storage))
        else:
            self._added[hash_name(name)] = record._replace(version=hash_version(entry.version))
            self.ended[name] = entry.stamp

    def _refuse(self, name: str, entry: FileSnapshot, record: ReadPosition | FinishedFile) -> None:
        """Refuse a file that is not what it was, when what was read of it is nowhere."""
        if isinstance(record, ReadPosition):
            check_proof(entry.file, record.position, record.proof, self._follower.storage)
            return
        if entry.file.size < record.position:
            check_proof(entry.file, record.position, "", self._follower.storage)
        raise SawlogError(
            f"{entry.file.path}: the file was replaced or rewritten after all of its {record.position} bytes were read."
            " Start again with a new checkpoint, or without positions, to read it from its beginning"
        )

    def _resolve_losses(self, entries: Mapping[str, FileSnapshot], arrived: list[FileSnapshot]) -> None:
        """Notice files that were removed before all of them was read."""
        inodes = {entry.inode for entry in arrived} - {None}
        sizes = {entry.file.size for entry in arrived}
        for name, place in self.files.items():
            if name not in entries:
                reachable = self._follower.forget_committed_end(name)
                if reachable is not None and reachable > place.position:
                    self._report_loss(
                        f"{self._follower.root}{name}: the file was removed; {place.position} bytes of it were read,"
                        f" {reachable} could have been"
                    )
        before, self._unbegun = self._unbegun, {}
        waited = self.start.waiting if self._restarted else {}
        for name, copied_bytes in self._copied_bytes.items():
            size = before[name].file.size if name in before else waited.get(hash_name(name), 0)
            if size > copied_bytes:
                self._report_loss(
                    f"{self._follower.root}{name}: the file was copied, and emptied or removed before it was read;"
                    f" {copied_bytes} of its {size} bytes are in the copy"
                )
        for name, entry in before.items():
            is_begun = name in self.start.files or self._find_ended(name) is not None
            if name not in entries and not is_begun and name not in self._copied_bytes and entry.inode not in inodes:
                self._report_loss(
                    f"{entry.file.path}: the file was removed before it was read; it had {entry.file.size} bytes"
                )
        if self._restarted and self.start.waiting:
            listed_keys = {hash_name(name) for name in entries}
            missing = [size for key, size in self.start.waiting.items() if key not in listed_keys and size not in sizes]
            if missing:
                self._report_loss(
                    f"{', '.join(self._follower.paths)}: {len(missing)} files of {sum(missing)} bytes were removed"
                    " before they were read, while the stream stood still"
                )

    def _report_loss(self, message: str) -> None:
        self._restarted = False
        if self._follower.options.failondataloss:
            raise SawlogError(f"{message}; failOnDataLoss=false, or in Python the next look, reads on without them")
        logger.warning(message)


def _make_key(name_or_key: str | bytes) -> bytes:
    return hash_name(name_or_key) if isinstance(name_or_key, str) else name_or_key


def _is_unchanged(ended: FinishedFile, proof: str) -> bool:
    """Return whether a finished file is still what it was, as far as is remembered."""
    return ended.head == NO_HEAD or ended[1:3] == FinishedFile.of(ReadPosition(ended.position, proof), "")[1:3]
