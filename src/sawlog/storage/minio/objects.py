"""Objects by their paths: which files of drives make up each."""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from sawlog.errors import BitrotError, Damage, IncompleteError, UnsupportedError
from sawlog.guard import count_microseconds, parse_time
from sawlog.storage.directories import File
from sawlog.storage.minio import layout
from sawlog.storage.minio.drives import Drives, RawFiles, is_below
from sawlog.storage.minio.metadata import MetadataError, ObjectMetadata, Stamp
from sawlog.storage.minio.shards import ObjectSource, Shard, StoredObject, make_stored_object
from sawlog.storage.names import is_remote
from sawlog.storage.workers import map_ordered, wrap_single_step

_METAS = (layout.META, layout.META_V1)
_MAX_REQUESTS = 32
"""Remote objects whose metadata is read at a time."""
_ERRORS = {layout.READ_ERROR: BitrotError, layout.MISSING_FILE: IncompleteError, layout.UNSUPPORTED: UnsupportedError}


AS_OF = "minio_as_of"
"""The option of a storage that says as of which time objects are read."""


def parse_as_of(moment: object) -> int:
    """Return a time of the option in nanoseconds since the epoch, as versions have it; UTC if it has no zone.

    Raises:
        OptionError: When it is no time.
    """
    return count_microseconds(parse_time(AS_OF, moment)) * 1000 + 999


class DriveObjects:
    """Objects that were found, by their paths: those of their directories on the first drive.

    Attributes:
        named: All paths that the user has named.
        until: Versions that were written later do not count, in nanoseconds since the epoch; `None` where all do.

    Args:
        places: Drives that belong together, by the first of them, from another process.
        until: As the attribute.
    """

    def __init__(self, places: dict[str, tuple[str, ...]] | None = None, until: int | None = None) -> None:
        self._drives = Drives(places)
        self.until = until
        self.named: set[str] = set()
        self._objects: dict[str, StoredObject] = {}

    def __reduce__(self) -> tuple[type[DriveObjects], tuple[dict[str, tuple[str, ...]], int | None]]:
        return (DriveObjects, (self._drives.places, self.until))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found that is an object."""
        return not (self._objects or self._drives.places)

    def forget(self) -> None:
        """Forget what was found; not which drives belong together."""
        self._objects.clear()

    def unwrap(self, root: str, files: Sequence[File], raw: RawFiles) -> list[File]:
        """Put objects in the place of the files that make them up.

        Returns:
            The objects that were not deleted, and the files that belong to none.
        """
        if not any(file.name in _METAS for file in files):
            return list(files)
        metas, folders = self._gather(root, files, raw)
        objects: list[File] = []

        def resolve(path: str) -> StoredObject | None:
            return self._resolve(path, metas[path], raw)

        paths = [path for path in metas if not path.endswith(layout.DIRECTORY_MARK)]
        for path, stored in map_ordered(paths, wrap_single_step(resolve), _MAX_REQUESTS if is_remote(root) else 1):
            if stored is not None:
                changed = max((meta.changed or 0.0 for meta in metas[path].values()), default=0.0)
                seconds = stored.stamp.modified / 1e9
                tag = f"{stored.stamp.modified}-{stored.stamp.version.hex()}"
                objects.append(File(path, stored.size, path == root, tag, seconds, changed or None))
        return [*(file for file in files if not _is_stored(file, folders)), *objects]

    def get(self, path: str, raw: RawFiles) -> StoredObject | None:
        """Return the object at a path; `None` where there is none, or where it was deleted."""
        if path in self._objects:
            return self._objects[path]
        folders = self._list_folders(path, raw)
        metas: dict[str, File] = {}
        for folder in folders:
            for name in _METAS:
                size = raw.find_raw_size(meta := posixpath.join(folder, name))
                if size is not None:
                    metas[folder] = File(meta, size)
                    break
        return self._resolve(path, metas, raw) if metas else None

    def open(self, stored: StoredObject, raw: RawFiles) -> ObjectSource:
        """Open an object.

        Raises:
            BitrotError: When its metadata is damaged.
            IncompleteError: When files are missing.
            UnsupportedError: When its bytes are not stored as they are.
        """
        if stored.fault is not None:
            raise _ERRORS[stored.fault.kind](stored.fault)
        return ObjectSource(stored, raw)

    def _list_folders(self, path: str, raw: RawFiles) -> list[str]:
        """Return the directories of an object on all drives."""
        for first, roots in self._drives.places.items():
            if is_below(path, first):
                return [root + path[len(first) :] for root in roots]
        if "://" in path or all(raw.find_raw_size(posixpath.join(path, name)) is None for name in _METAS):
            return []
        drive = self._drives.find_drive(path, raw)
        if drive is None:
            return [path]
        first = self._drives.choose_first(drive, [path], raw)
        return [root + path[len(first) :] for root in self._drives.places[first]]

    def _gather(self, root: str, files: Sequence[File], raw: RawFiles) -> tuple[dict[str, dict[str, File]], set[str]]:
        """Return, by each object's path, its metadata by directories on drives; and all of these directories."""
        metas: dict[str, dict[str, File]] = defaultdict(dict)
        firsts: set[str] = set()

        def take(file: File) -> None:
            folder = file.directory or "."
            drive = self._drives.find_drive(folder, raw)
            path = folder
            if drive is not None:
                first = self._drives.choose_first(drive, [*self.named, root], raw)
                firsts.add(first)
                path = first + folder[len(drive.root) :]
            if file.name == layout.META or folder not in metas[path]:
                metas[path][folder] = file

        listed = [file for file in files if file.name in _METAS]
        for file in listed:
            self._drives.find_drive(file.directory or ".", raw)  # all are known before any is the first
        for file in listed:
            take(file)
        for first in list(firsts):
            roots = self._drives.places[first]
            inside = next((drive for drive in roots if is_below(root, drive)), None)
            scope = root[len(inside) :] if inside is not None else ""
            for drive_root in roots:
                if not is_below(drive_root, root) and drive_root != inside:
                    for file in raw.list_files_below(drive_root + scope):
                        if file.name in _METAS:
                            take(file)
        return metas, {folder for drive_metas in metas.values() for folder in drive_metas}

    def _resolve(self, path: str, metas: Mapping[str, File], raw: RawFiles) -> StoredObject | None:
        """Return the newest version of an object that enough drives have; `None` if it was deleted or is incomplete."""
        with ExitStack() as stack:
            faults: list[tuple[str, MetadataError]] = []
            opened: list[tuple[str, str, ObjectMetadata]] = []
            for folder, file in metas.items():
                try:
                    source = raw.open_raw(file.path)
                except FileNotFoundError:  # deleted since it was listed
                    continue
                stack.callback(source.close)
                try:
                    opened.append((folder, file.path, ObjectMetadata(source)))
                except MetadataError as error:
                    faults.append((file.path, error))
            stamps = (stamp for _, _, metadata in opened for stamp in metadata.stamps)
            counts = Counter(stamp for stamp in stamps if self.until is None or stamp.modified <= self.until)
            best: StoredObject | None = None
            for stamp in sorted(counts, reverse=True):
                is_common = 2 * counts[stamp] >= len(metas)  # others were being written when the server stopped
                if stamp.is_deleted:
                    if is_common:
                        return None
                    continue
                shards, broken = _collect_shards(opened, stamp)
                faults += broken
                if shards:
                    best = make_stored_object(path, stamp, shards, raw) if is_common or best is None else best
                if is_common:
                    break
            if best is None and not faults:
                return None
            stored = best or _make_unreadable(path, faults, max(file.size for file in metas.values()))
            self._objects[path] = stored
            return stored


def _collect_shards(
    opened: Sequence[tuple[str, str, ObjectMetadata]], stamp: Stamp
) -> tuple[dict[int, Shard], list[tuple[str, MetadataError]]]:
    """Return the shards of a version, by number, and what is wrong with metadata of it."""
    shards: dict[int, Shard] = {}
    broken: list[tuple[str, MetadataError]] = []
    for folder, meta, metadata in opened:
        if stamp not in metadata.stamps:
            continue
        try:
            version = metadata.read_version(stamp)
        except MetadataError as error:
            broken.append((meta, error))
            continue
        shards.setdefault(version.shard, Shard(folder, meta, version))
    first = next(iter(shards.values()), None)
    return {number: shard for number, shard in shards.items() if first is not None and first.agrees(shard)}, broken


def _make_unreadable(path: str, faults: Sequence[tuple[str, MetadataError]], size: int) -> StoredObject:
    """Return the object of which no drive has metadata that can be read."""
    detail = "; ".join(f"{meta}: {error}" for meta, error in faults[:3])
    kind = layout.UNSUPPORTED if all(error.unsupported for _, error in faults) else layout.READ_ERROR
    return StoredObject(path, Stamp(0, False, b""), {}, size, Damage(path, 0, size, kind, detail))


def _is_stored(file: File, folders: set[str]) -> bool:
    """Return whether a file makes up an object."""
    folder = file.directory or "."
    if file.name in _METAS:
        return folder in folders
    above, name = posixpath.dirname(folder) or ".", posixpath.basename(folder)
    return layout.PART.match(file.name) is not None and (
        folder in folders or (above in folders and (name == layout.LEGACY or bool(layout.DATA_DIRECTORY.match(name))))
    )
