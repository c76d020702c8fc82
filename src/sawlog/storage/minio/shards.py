"""Bytes of an object: from the shards of its blocks, each of which is checked before anybody sees it."""

from __future__ import annotations

import hashlib
import posixpath
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sawlog.errors import BitrotError, Damage, UnsupportedError
from sawlog.kernels.highwayhash import HighwayHash256
from sawlog.storage.minio import layout
from sawlog.storage.minio.drives import RawFiles
from sawlog.storage.minio.metadata import ObjectVersion, PartSize, ShardChecksum, Stamp
from sawlog.storage.minio.reed_solomon import restore_data_shards
from sawlog.storage.sources import WINDOW_BYTES, Bytes, Source, SourceRange

_CACHED_BYTES = 16 << 20
"""Bytes of blocks that are kept, since windows come back to them."""
_MAX_OPEN_FILES = 16
"""Files that are open at a time."""
_MAX_NAMED_FILES = 3
"""Missing files that are named."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard of an object on one drive.

    Attributes:
        folder: The directory of the object there.
        meta: Its metadata.
        version: What that says.
    """

    folder: str
    meta: str
    version: ObjectVersion

    def agrees(self, shard: Shard) -> bool:
        """Return whether another shard may be of the same object."""
        mine, its = self.version, shard.version
        return (mine.size, mine.parts, mine.data_shards, mine.parity_shards, mine.block_size) == (
            its.size,
            its.parts,
            its.data_shards,
            its.parity_shards,
            its.block_size,
        )

    def name_file(self, part: PartSize) -> str:
        """Return the file of a part."""
        if self.version.inline is not None:
            return self.meta
        return posixpath.join(self.folder, self.version.directory, f"part.{part.number}")

    def count_stored_bytes(self, part: PartSize, raw: RawFiles) -> int | None:
        """Return the size of what is there of a part's shard, hashes included; `None` where its file is missing."""
        size = raw.find_raw_size(self.name_file(part))
        if self.version.inline is None or size is None:
            return size
        start, length = self.version.inline
        return max(0, min(length, size - start))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Object on drives.

    Attributes:
        path: Its path.
        stamp: The version.
        shards: Its shards, by number.
        size: Its bytes: no more than the drives have, and one that cannot be read where they have too few.
        fault: Why it cannot be read.
    """

    path: str
    stamp: Stamp
    shards: Mapping[int, Shard]
    size: int
    fault: Damage | None

    @property
    def version(self) -> ObjectVersion:
        """The version, as any of its shards has it."""
        return next(iter(self.shards.values())).version


def make_stored_object(path: str, stamp: Stamp, shards: Mapping[int, Shard], raw: RawFiles) -> StoredObject:
    """Return a version of an object, as far as its shards are there."""
    version = next(iter(shards.values())).version
    missing: list[str] = []
    size = 0
    cut = False
    for part in version.parts:
        lengths: list[int] = []
        absent: list[str] = []
        for number in range(1, version.data_shards + version.parity_shards + 1):
            shard = shards.get(number)
            stored = None if shard is None else shard.count_stored_bytes(part, raw)
            if stored is None:
                absent.append(f"shard {number}, on no drive" if shard is None else shard.name_file(part))
            else:
                lengths.append(stored)
        if part.size and len(lengths) < version.data_shards:
            missing += absent
        lengths = sorted(lengths, reverse=True)[: version.data_shards]
        enough = len(lengths) == version.data_shards
        have = min(part.size, *(_compute_part_bytes(version, part, length) for length in lengths)) if enough else 0
        size += 0 if cut else have
        cut = cut or have < part.size
    size = min(version.size, size + cut)
    fault: Damage | None = None
    if version.refusal:
        fault = Damage(path, 0, size, layout.UNSUPPORTED, version.refusal)
    elif missing:
        named = list(dict.fromkeys(missing))
        listed = ", ".join(named[:_MAX_NAMED_FILES]) + (
            f" and {len(named) - _MAX_NAMED_FILES} more" if len(named) > _MAX_NAMED_FILES else ""
        )
        quorum = f"; {version.data_shards} shards are needed" if version.data_shards > 1 else ""
        fault = Damage(path, 0, 0, layout.MISSING_FILE, f"missing of the object in MinIO: {listed}{quorum}")
    return StoredObject(path, stamp, shards, size, fault)


def _compute_part_bytes(version: ObjectVersion, part: PartSize, stored: int) -> int:
    """Return the size of the part that a shard of so many stored bytes has its share of."""
    if part.number in version.checksums:
        return stored * version.data_shards
    blocks, remainder = divmod(stored, layout.HASH_BYTES + version.shard_block)
    return blocks * version.block_size + max(0, remainder - layout.HASH_BYTES) * version.data_shards


class ObjectSource:
    """Bytes of an object.

    Attributes:
        size: How many there are.

    Args:
        stored: The object.
        raw: Where its files are.
    """

    def __init__(self, stored: StoredObject, raw: RawFiles) -> None:
        self.size = stored.size
        self._stored = stored
        self._raw = raw
        self._blocks: OrderedDict[tuple[int, int], Bytes] = OrderedDict()
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._proven: set[str] = set()
        self._absent: set[str] = set()

    def read_window(self, offset: int, length: int) -> Bytes:
        """Read a window, as `Source.read_window` says.

        Raises:
            BitrotError: When a block that it touches is not what was stored.
        """
        length = max(0, min(length, self.size - offset))
        if not length:
            return np.empty(0, np.uint8)
        pieces: list[Bytes] = []
        position = 0
        for index, part in enumerate(self._stored.version.parts if self._stored.shards else ()):
            if position + part.size > offset and position < offset + length:
                first = max(offset - position, 0)
                pieces += self._read_pieces(index, position, first, min(offset + length - position, part.size))
            position += part.size
        if len(pieces) == 1:
            return pieces[0]
        window = np.concatenate(pieces)
        window.flags.writeable = False
        return window

    def close(self) -> None:
        """Close the files, as `Source.close` says."""
        while self._sources:
            self._sources.popitem()[1].close()

    __del__ = close

    def _read_pieces(self, index: int, start: int, first: int, end: int) -> list[Bytes]:
        """Return a range of a part, cut where blocks end."""
        size = self._stored.version.block_size
        pieces = []
        for number in range(first // size, -(-end // size)):
            block = self._read_block(index, start, number)
            pieces.append(block[max(0, first - number * size) : end - number * size])
        return pieces

    def _read_block(self, index: int, start: int, number: int) -> Bytes:
        key = (index, number)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = self._join(self._stored.version.parts[index], start, number)
            while len(self._blocks) > 1 and sum(map(len, self._blocks.values())) > _CACHED_BYTES:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return block

    def _join(self, part: PartSize, start: int, number: int) -> Bytes:
        """Return a block from its shards: those of data that are sound, and those of parity in the place of others."""
        version = self._stored.version
        length = min(version.block_size, part.size - number * version.block_size)
        extent = (start + number * version.block_size, length)
        shard_size = -(-length // version.data_shards)
        pieces: dict[int, Bytes] = {}
        errors: list[BitrotError] = []
        for shard_number, shard in sorted(self._stored.shards.items()):
            if len(pieces) == version.data_shards:
                break
            if (path := shard.name_file(part)) not in self._absent:
                try:
                    pieces[shard_number - 1] = self._read(shard, part, number, shard_size, extent)
                except BitrotError as error:
                    errors.append(error)
                except FileNotFoundError:
                    self._absent.add(path)
        if len(pieces) < version.data_shards:
            raise errors[0] if errors else self._make_bitrot_error(f"{path}: it was there, and is gone", extent)
        shards = restore_data_shards(version.data_shards, version.data_shards + version.parity_shards, pieces)
        if len(shards) == 1:
            return shards[0]
        block = np.concatenate(shards)[:length]
        block.flags.writeable = False
        return block

    def _read(self, shard: Shard, part: PartSize, number: int, length: int, extent: tuple[int, int]) -> Bytes:
        """Return the checked bytes of one block of a shard."""
        path = shard.name_file(part)
        source = self._open_source(shard, part)
        base = shard.version.inline[0] if shard.version.inline is not None else 0
        checksum = shard.version.checksums.get(part.number)
        if checksum is not None:
            self._prove(path, source, shard.version.compute_shard_bytes(part.size), checksum, extent)
            return self._take_bytes(path, source, number * shard.version.shard_block, length, extent)
        place = number * (layout.HASH_BYTES + shard.version.shard_block)
        stored = self._take_bytes(path, source, place, layout.HASH_BYTES + length, extent, base)
        expected, data = stored[: layout.HASH_BYTES].tobytes(), stored[layout.HASH_BYTES :]
        hasher = HighwayHash256(layout.BITROT_KEY)
        hasher.update(data)
        if (actual := hasher.digest()) != expected:
            place += base
            detail = f"{path}: HighwayHash of {length} bytes at byte {place + layout.HASH_BYTES} is {actual.hex()}"
            raise self._make_bitrot_error(f"{detail}, and {expected.hex()} at byte {place}", extent)
        return data

    def _take_bytes(
        self, path: str, source: Source, place: int, length: int, extent: tuple[int, int], base: int = 0
    ) -> Bytes:
        """Return bytes of a file, all of them."""
        data = source.read_window(place, length) if place < source.size else np.empty(0, np.uint8)
        if len(data) < length:
            detail = f"{path}: {length} bytes of a block expected at byte {base + place}, {len(data)} are there"
            raise self._make_bitrot_error(detail, extent)
        return data

    def _prove(self, path: str, source: Source, length: int, checksum: ShardChecksum, extent: tuple[int, int]) -> None:
        """Check a whole shard, once.

        Raises:
            BitrotError: When it is not what was stored.
            UnsupportedError: When its checksum is not known.
        """
        if path in self._proven:
            return
        hasher = _make_hasher(checksum.algorithm)
        if hasher is None:
            detail = f"{path}: checksum {checksum.algorithm!r:.40}"
            raise UnsupportedError(Damage(self._stored.path, *extent, layout.UNSUPPORTED, detail))
        for position in range(0, length, WINDOW_BYTES):
            hasher.update(self._take_bytes(path, source, position, min(WINDOW_BYTES, length - position), extent))
        if (actual := hasher.digest()) != checksum.digest:
            detail = f"{path}: {checksum.algorithm} of {length} bytes is {actual.hex()}"
            raise self._make_bitrot_error(f"{detail}, and {checksum.digest.hex()} in {layout.META_V1}", extent)
        self._proven.add(path)

    def _open_source(self, shard: Shard, part: PartSize) -> Source:
        path = shard.name_file(part)
        source = self._sources.get(path)
        if source is None:
            source = self._raw.open_raw(path)
            if shard.version.inline is not None:
                start, length = shard.version.inline
                source = SourceRange(source, start, max(0, min(length, source.size - start)))
            self._sources[path] = source
            while len(self._sources) > _MAX_OPEN_FILES:
                self._sources.popitem(last=False)[1].close()
        self._sources.move_to_end(path)
        return source

    def _make_bitrot_error(self, detail: str, extent: tuple[int, int]) -> BitrotError:
        return BitrotError(Damage(self._stored.path, *extent, layout.READ_ERROR, detail))


def _make_hasher(algorithm: str) -> Any:
    """Return a hasher; `None` for an algorithm that is not known."""
    if algorithm == "highwayhash256":
        return HighwayHash256(layout.BITROT_KEY)
    return hashlib.new(algorithm) if algorithm in ("sha256", "blake2b") else None
