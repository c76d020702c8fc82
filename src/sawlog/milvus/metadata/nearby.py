"""Finds metadata that is next to the logs, and says which was nearest."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sawlog.errors import FormatError
from sawlog.milvus import layout
from sawlog.milvus.etcd.layout import DATABASE, MEMBER_DIRECTORY, SNAPSHOT_DIRECTORY
from sawlog.milvus.etcd.member import find_database
from sawlog.milvus.metadata.load import Metadata, load
from sawlog.milvus.metadata.model import CollectionMeta
from sawlog.storage import File, Storage, is_remote, map_files
from sawlog.storage.directories import find_directories

_NO_METADATA = "none"
"""Metadata that says that there is none to be used."""
_MAX_LEVELS_ABOVE = 3
"""How many directories above the root of the logs are looked into: `volumes` is that far above a bucket's files."""
_MAX_DIRECTORIES = 64
"""How many directories in one are looked into."""


@dataclass(frozen=True, slots=True)
class MetadataSelection:
    """Metadata that is used.

    Attributes:
        metadata: The metadata; `None` where there is none.
        remarks: Remarks that concern the rows: on metadata that is cut, or says something else.
        unused: Metadata that was found besides and concerns other collections, or is none.
    """

    metadata: Metadata | None = None
    remarks: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def choose_metadata(
    named: str | None, roots: Iterable[str], ids: AbstractSet[int], time: int | None, storage: Storage
) -> MetadataSelection:
    """Return the metadata that is named, or otherwise the nearest that knows one of the collections.

    Args:
        named: Its path, or `none`.
        roots: The directories above those of insert and delta logs.
        ids: The collections that have logs.
        time: The time that is asked for, as a TSO; `None` for now.
        storage: Where all of it is.

    Raises:
        FormatError: When what is named is no metadata.
    """
    if named is not None:
        return MetadataSelection(None if named == _NO_METADATA else load(named, storage))
    nearest: Metadata | None = None
    remarks: list[str] = []
    unused: list[str] = []
    for path in dict.fromkeys(_list_candidates(sorted(set(roots)), storage)):
        try:
            metadata = load(path, storage)
        except FormatError as error:
            unused.append(f"not used: {error}")
            continue
        if nearest is None and metadata.timeline is None:
            nearest = metadata
        elif metadata.timeline is None:
            remarks.append(_describe_unused(metadata))
        elif not ids & metadata.timeline.list_collection_ids():
            unused.append(_describe_unused(metadata))
        elif nearest is None or nearest.timeline is None:
            remarks += [_describe_unused(nearest)] if nearest is not None else []
            nearest = metadata
            remarks += _describe_unknown(metadata, ids)
        elif difference := _compare_metadata(nearest, metadata, ids, time):
            remarks.append(f"{nearest.path} was taken as metadata, and {path} contradicts it: {difference}; {_ADVICE}")
    places = (posixpath.join(root, layout.SNAPSHOTS) for root in sorted(set(roots))) if nearest is None else ()
    remarks += [
        f"{place} has snapshots: metadata={place} reads them"
        for place in places
        if storage.is_directory(place, fresh=False)
    ]
    return MetadataSelection(nearest, tuple(remarks), tuple(unused))


_ADVICE = "metadata= names another, metadata=none takes none"


def _describe_unused(metadata: Metadata) -> str:
    broken = metadata.broken
    reason = "it names none of these collections" if broken is None else f"byte {broken.offset}: {broken.detail}"
    return f"{metadata.path} ({metadata.title}) is not used: {reason}"


def _describe_unknown(metadata: Metadata, ids: AbstractSet[int]) -> Iterator[str]:
    """Yield a remark if metadata that nobody has named does not know all collections, which are read as dropped."""
    assert metadata.timeline is not None
    unknown = sorted(set(ids) - metadata.timeline.list_collection_ids())
    if unknown:
        listed = ", ".join(map(str, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
        yield f"{metadata.path} was taken as metadata; it does not name the collections {listed}: {_ADVICE}"


def _compare_metadata(nearest: Metadata, second: Metadata, ids: AbstractSet[int], time: int | None) -> str:
    """Return how metadata differs from other metadata of the same collections; nothing where it does not."""
    assert nearest.timeline is not None
    assert second.timeline is not None
    metas, second_metas = nearest.timeline.find_collections(time), second.timeline.find_collections(time)
    for id in sorted(ids):
        if (difference := _describe_difference(metas.get(id), second_metas.get(id))) is not None:
            return f"collection {id} {difference}"
    return ""


def _describe_difference(first: CollectionMeta | None, second: CollectionMeta | None) -> str | None:
    if first is None or second is None:
        return None if first is second else f"is only in {'the other' if first is None else 'that'}"
    if first.name != second.name:
        return f"is called {first.name!r} and {second.name!r}"
    if first.fields != second.fields:
        return "has other fields"
    if first.partitions != second.partitions:
        return "has other partitions"
    pairs = _find_live_logs(first), _find_live_logs(second)
    return (
        None
        if pairs[0] == pairs[1]
        else f"has the live segments {_list_segments(pairs[0])} and {_list_segments(pairs[1])}"
    )


def _find_live_logs(meta: CollectionMeta) -> Mapping[int, object]:
    """Return the logs of the live segments of a collection, by segment."""
    segments = meta.segments or {}
    return {id: (segment.inserts, segment.deltas) for id, segment in segments.items() if segment.is_live}


def _list_segments(segments: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(segments)[:5])) + (" ..." if len(segments) > 5 else "") if segments else "(none)"


def _list_candidates(roots: Iterable[str], storage: Storage) -> Iterator[str]:
    """Yield paths that metadata may have near the roots of logs, the nearest of each root first.

    In each directory, from a root upwards, it is looked for as a backup's, as an etcd's data directory, which has
    `etcd` in its name, and as a dump of an etcd. In a store, where directories may be long to list, that directory is
    called `etcd`. Roots that lie next to each other have most directories in common: each is looked into once.
    """
    directories = dict.fromkeys(directory for root in roots for directory in _walk_upwards(root))
    for are_remote, group in itertools.groupby(directories, is_remote):
        yield from (_list_in_stores if are_remote else _list_on_disks)(group, storage)


def _list_in_stores(directories: Iterable[str], storage: Storage) -> Iterator[str]:
    places = [File(posixpath.join(directory, *parts), 0) for directory in directories for parts in _IN_STORES]
    are_there = map_files(lambda place: _is_there(place.path, storage), places)
    yield from (place.path for place, is_there in zip(places, are_there, strict=True) if is_there)


def _list_on_disks(directories: Iterable[str], storage: Storage) -> Iterator[str]:
    for directory in directories:
        backup = posixpath.join(directory, layout.BACKUP_META_DIRECTORY, layout.BACKUP_META)
        if storage.exists(backup):
            yield backup
        yield from _list_databases(directory, storage)
        dump = posixpath.join(directory, layout.ETCD_DUMP)
        if storage.exists(dump):
            yield dump


_IN_STORES = (
    (layout.BACKUP_META_DIRECTORY, layout.BACKUP_META),
    (layout.ETCD_NAME, MEMBER_DIRECTORY, SNAPSHOT_DIRECTORY, DATABASE),
    (layout.ETCD_DUMP,),
)
"""Where metadata is in a directory of a store."""


def _is_there(path: str, storage: Storage) -> bool:
    """Return whether there is a file; not where nobody may look, which nobody has named."""
    try:
        return storage.exists(path, fresh=False)
    except PermissionError:
        return False


def _list_databases(directory: str, storage: Storage) -> Iterator[str]:
    """Yield the databases of the data directories in a directory, or one further down."""
    for name in find_directories(directory, layout.ETCD_NAME)[:_MAX_DIRECTORIES]:
        place = posixpath.join(directory, name)
        inner = [
            posixpath.join(place, below) for below in storage.directories.list_directories(place)[:_MAX_DIRECTORIES]
        ]
        databases = (find_database(data, storage) for data in (place, *inner))
        database = next((database for database in databases if database is not None), None)
        if database is not None:
            yield database


def _walk_upwards(root: str) -> Iterator[str]:
    """Yield a directory and those above it, as far as metadata is looked for."""
    place = root or "."
    for _ in range(1 + _MAX_LEVELS_ABOVE):
        yield place
        if is_remote(place):
            above = posixpath.dirname(place.rstrip("/"))
            if above.endswith(("/", ":", "::")):
                return
        else:
            above = posixpath.normpath(posixpath.join(place, ".."))
        if above == place:
            return
        place = above
