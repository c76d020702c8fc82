"""Making an index of a directory, and bringing it up to date by what has changed."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sawlog.errors import ChangedError, FormatError, OptionError, warn
from sawlog.format import PROBE_BYTES, Format
from sawlog.names import PathLike, is_remote, normalize
from sawlog.recognition import get_format, recognize
from sawlog.storage import File, Storage
from sawlog.storage.index import INDEX_NAME, SETTLED, Index

Found = tuple[File, bytes]
Run = Callable[[Callable[[Sequence[File]], list[Found]], Sequence[File]], list[Found]]
"""Has a function of files done to all of some files, in parts; what it finds."""


class IndexWarning(UserWarning):
    """An index was not used: it is missing or damaged. Answers are the same without it."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """What became of an index.

    Attributes:
        path: The index.
        format: Name of the format of the files.
        files: Files that it knows.
        read: Those of them that were looked into, because the index did not know them, or not as they are now.
        dropped: Files that it knew and that are gone, or no longer the same.
    """

    path: str
    format: str
    files: int
    read: int
    dropped: int


def index(
    path: PathLike,
    *,
    to: PathLike | None = None,
    format: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    run: Run | None = None,
) -> Indexed:
    """Make an index of the files below a path, or bring one up to date: only what has changed is looked into.

    It is used by `sawlog.open(path, index=True)`, which then reads no headers of the files that it knows.

    Args:
        path: The directory; a glob or a file needs `to`.
        to: Where the index is; `_sawlog_index` in the directory if not given, where no reader takes it for data.
        format: Name of the format; recognised if not given.
        storage_options: What fsspec needs to reach the paths.
        run: What looks into the files; threads of this process if not given. See `sawlog.spark.index`.

    Raises:
        OptionError: When the format plans without looking into its files: then there is nothing to keep.
        FormatError: When the path is not recognised or holds no such files.
        FileNotFoundError: When there is nothing at the path.
    """
    storage = Storage(dict(storage_options or {}))
    where, begun = normalize(path), time.time()
    place = index_path(to if to is not None else True, [where])
    listed = storage.find(where)
    chosen = get_format(format) if format is not None else recognize(listed, storage, where)
    if type(chosen).head_bytes is Format.head_bytes:
        raise OptionError(f"{where}: no index is needed: {chosen.name} keeps no headers that planning could read there")
    files = chosen.select(listed, "rows")
    if not files:
        raise FormatError(f"{where}: none of the {len(listed)} files there is a {chosen.title}")
    before = load_index(storage, place, missing=True)
    known = before.known(files) if before is not None else {}
    unknown = [file for file in files if file not in known]
    look = partial(heads, chosen, storage)
    found = dict(look(unknown) if run is None else run(look, unknown))
    storage.confirm()
    kept = {file: head for file in files if (head := known.get(file) or found.get(file))}
    kept = {file: head for file, head in kept.items() if file in known or _settled(storage, file, begun)}
    dropped = (before.rows.num_rows if before is not None else 0) - len(known)
    if found or dropped or before is None:
        staged = storage.stage(place)
        try:
            staged.write(Index.of(kept).to_bytes())
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise
    return Indexed(place, chosen.name, len(kept), len(unknown), dropped)


def heads(format: Format, storage: Storage, files: Sequence[File]) -> list[Found]:
    """How files begin, as far as planning looks at it; those that have changed since they were listed are left out."""

    def head(file: File) -> Found | None:
        try:
            found = storage.head(file, PROBE_BYTES)
        except (ChangedError, FileNotFoundError):
            return None
        return file, found[: format.head_bytes(found)]

    return [one for one in storage.each(head, files) if one is not None]


def index_path(given: PathLike | bool, paths: Sequence[str]) -> str:
    """Where the index of some paths is.

    Args:
        given: The path of the index; `True`, or the text `true`: in the directory.
        paths: What it is of.

    Raises:
        OptionError: When there is not one directory.
    """
    if not isinstance(given, bool) and given != "true":
        return normalize(given)
    if len(paths) != 1 or glob.has_magic(paths[0]):
        raise OptionError(f"index={given}: {', '.join(paths)} is not one directory; give the path of the index")
    return f"{normalize(paths[0]).rstrip('/')}/{INDEX_NAME}"


def load_index(storage: Storage, place: str, *, missing: bool = False) -> Index | None:
    """An index; `None`, with a warning that says why, where it cannot be used.

    Args:
        storage: How it is reached.
        place: Where it is.
        missing: Whether it may be missing without a warning.
    """
    try:
        return Index.from_bytes(storage.anew().read(place))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not missing:
            warn(f"{place}: there is no index; `sawlog index` makes it ({type(error).__name__})", IndexWarning)
    except FormatError as error:
        warn(f"{place}: the index is not used: {error}; `sawlog index` makes another one", IndexWarning)
    return None


def with_index(storage: Storage, given: PathLike | bool, paths: Sequence[str]) -> Storage:
    """The storage that answers from an index where it can."""
    if not given or given == "false":
        return storage
    return replace(storage, index=load_index(storage, index_path(given, paths)))


def _settled(storage: Storage, file: File, begun: float) -> bool:
    """Whether another version of a file would be recognised as one."""
    if is_remote(file.path) and storage.tagged(file.path):
        return True
    return file.modified is not None and file.modified < begun - SETTLED
