"""Milvus binlogs as a format of sawlog."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sawlog.errors import OptionError
from sawlog.format.contract import (
    Contents,
    DirectoryLayout,
    Format,
    Match,
    Scan,
    StreamRules,
    Writer,
    probe,
    repair_each,
)
from sawlog.format.damage import Skipped
from sawlog.format.lazy import make_lazy_attribute
from sawlog.guard import decode_json
from sawlog.milvus import layout, paths
from sawlog.milvus.etcd.layout import LOG_DIRECTORY, MEMBER_DIRECTORY, SNAPSHOT_DIRECTORY
from sawlog.milvus.layout import FOLLOWED
from sawlog.milvus.paths import make_segment_key

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.milvus.options import ReadOptions, WriteOptions
    from sawlog.storage import File, Storage

_READ = (*layout.DIRECTORIES, layout.MANIFEST_DIRECTORY)


class _Roots(DirectoryLayout):
    """Trees of logs below a root."""

    def dataset_directory(self, file: File) -> str:
        """Return the directory that holds those of insert and delta logs."""
        log = paths.parse(file)
        if _is_backup_meta(file):
            return posixpath.dirname(file.directory)
        if log is None:
            return super().dataset_directory(file)
        above, _, last = log.root.rpartition("/")
        return above if last == layout.BACKUP_LOGS else log.root

    def table_options(self, file: File) -> dict[str, str]:
        """Return the id of the collection, in whose directory its own files are."""
        log = paths.parse(file)
        return {"table": str(log.collection)} if log is not None and log.collection else {}

    def unread(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Return what a standalone server keeps for itself, and metadata: they hold no rows of collections."""
        reason = "the server's own: its queue or its metadata"
        return [Skipped(file.path, reason, file.size) for file in files if _is_servers(file)]

    def judged_together(self, file: File) -> str | None:
        """Return the segment of a file: its batches are spread over them."""
        log = paths.parse(file)
        return make_segment_key(log) if log is not None and log.kind == layout.INSERT_LOG else None


class _Logs(StreamRules):
    """Logs that appear whole."""

    def is_followed(self, file: File, view: str) -> bool:
        """Return whether a view reads a log: inserts are read from insert logs only, deletes from delta logs."""
        log = paths.parse(file)
        return log is not None and FOLLOWED.get(view) in (None, log.kind)

    def is_complete(self, view: str) -> bool:
        """Return `True`: files of Milvus never grow."""
        del view
        return True


class MilvusBinlog(Format):
    """Binlogs of Milvus: collections below a root, and single files of every kind."""

    name = "milvus_binlog"
    title = "Milvus binlog"
    suffix = ""
    views: ClassVar = {
        "rows": "live rows, with deletes applied; of a single file, what it holds",
        "inserts": "one row per stored row, deleted or not, with RowID, Timestamp and where it is stored",
        "history": "one row per version of a row, with the times (TSOs) at which it began and ended",
        "deletes": "one row per delete: pk, timestamp, where it is stored, and whether in an L0 segment",
        "frames": "one row per event of every file, descriptors included",
        "collections": "one row per collection: names, aliases, partitions, fields, checkpoints, size",
        "segments": "one row per segment: state, files, bytes, rows before deletes, deletes, timestamps",
        "damage": "one row per damaged range or missing file",
    }
    aliases: ClassVar = {"events": "frames"}
    directory_layout = _Roots()
    stream_rules = _Logs()
    read_options = make_lazy_attribute("sawlog.milvus.options", "ReadOptions")
    write_options = make_lazy_attribute("sawlog.milvus.options", "WriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by the magic number, be it displaced; Parquet by its place, or by what Milvus leaves in it."""
        shape = layout.sniff(head)
        if shape in ("v1", "stats"):
            return Match.CONTENT
        if head[: layout.MAGIC_SEARCH].find(layout.MAGIC) > 0:  # four bytes that any other format's values may hold
            return Match.NAME
        if shape == "parquet":
            return Match.CONTENT if paths.parse(file) is not None or layout.V2_MARK in head else Match.NO
        log = paths.parse(file)
        placed = log is not None and log.kind in file.path.removeprefix(log.root).split("/")
        return Match.NAME if placed else Match.NO  # numbers in a path may be anybody's

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return logs by their place below a root, with a backup's metadata; files that are named by themselves."""
        explicit = [file for file in files if file.explicit]
        if explicit and len(explicit) == len(files):
            return list(files)
        return [file for file in files if paths.parse_kind(file) in _READ or _is_backup_meta(file)]

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        """Return a collection, where the files lie as those of one; otherwise files by themselves."""
        from sawlog.milvus.collection.dataset import CollectionContents
        from sawlog.milvus.dataset import LooseContents

        if len(files) == 1 and files[0].explicit:
            return LooseContents(self, files, scan)
        is_directory = not all(file.explicit for file in files)
        kinds = (layout.INSERT_LOG, layout.MANIFEST_DIRECTORY, *([layout.DELTA_LOG] if is_directory else []))
        is_collection = not _is_field_directory(files, scan) and any(paths.parse_kind(file) in kinds for file in files)
        is_backup = any(map(_is_backup_meta, files)) and not any(map(paths.parse, files))
        if scan.schema is not None or is_collection or is_backup:
            return CollectionContents(self, files, scan)
        return LooseContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> Writer:
        """Begin writing below `path`, the root of the logs."""
        from sawlog.milvus.writer import make_writer

        return make_writer(path, schema, options, storage)

    def open_partitioned_writer(
        self, path: str, column: str, schema: pa.Schema, options: WriteOptions, storage: Storage
    ) -> Writer:
        """Begin writing rows that the writer spreads by the ids in the column `_partition`, by no other.

        Raises:
            OptionError: For another column, which would be lost.
        """
        import pyarrow as pa

        from sawlog.format.partitions import check_partition_column

        if column != layout.PARTITION_COLUMN:
            raise OptionError(f"partition_by={column!r}: Milvus numbers partitions, in {layout.PARTITION_COLUMN!r}")
        check_partition_column(schema, column, pa.int64())
        return self.writer(path, schema, options, storage)

    def open_task_writer(
        self, directory: str, job: str, task: int, schema: pa.Schema, options: Any, storage: Storage
    ) -> Writer:
        """Begin the share of one task: all write below one root, each with ids of its own.

        Raises:
            OptionError: For a backup's tree, whose metadata is one file.
        """
        from sawlog.milvus.writer import make_task_options, make_writer

        if options.tree == "backup":
            raise OptionError("writing milvus_binlog: tree='backup' is written by one process; compact makes one, too")
        return make_writer(directory, schema, make_task_options(options, job, task), storage, marker=job)

    def repair(self, file: File, target: str, options: ReadOptions, storage: Storage) -> None:
        from sawlog.milvus.repair import repair

        repair(file, target, options, storage)

    def repair_files(self, contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
        """Repair files together. The files of a collection keep the same rows of each binlog batch."""
        from sawlog.milvus.collection.dataset import CollectionContents
        from sawlog.milvus.collection.repair import repair_collections

        if isinstance(contents, CollectionContents):
            repair_collections(contents, places, storage)
        else:
            repair_each(self, contents.scan.options, places, storage, contents.scan.threads)

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """Recognize by the tree: a server has its queue, which LevelDB's log would claim, next to collections' logs."""
        # A backup's metadata says nothing that the logs next to it do not say.
        logs = [file for file in files if file.name != layout.BACKUP_META]
        if not logs:
            metas = (decode_json(probe(storage, file, file.size)) for file in files if _is_backup_meta(file))
            has_backup = any(isinstance(meta, dict) and "collection_backups" in meta for meta in metas)
            return Match.TREE if has_backup else Match.NO
        match = super().recognize(logs, storage)
        return Match.TREE if match is Match.CONTENT and any(map(_is_in_tree, logs)) else match


def _is_backup_meta(file: File) -> bool:
    """Return whether a file was found, not named, and is where a backup has its metadata."""
    return not file.explicit and file.path.endswith(f"/{layout.BACKUP_META_DIRECTORY}/{layout.BACKUP_META}")


def _is_servers(file: File) -> bool:
    """Return whether a file is of a server's queue or of its etcd, or a dump of that."""
    parts = file.path.split("/")
    of_etcd = parts[-3:-1] in ([MEMBER_DIRECTORY, SNAPSHOT_DIRECTORY], [MEMBER_DIRECTORY, LOG_DIRECTORY])
    return of_etcd or file.name == layout.ETCD_DUMP or not layout.SERVER_DIRECTORIES.isdisjoint(parts)


def _is_field_directory(files: Sequence[File], scan: Scan) -> bool:
    """Return whether the directory of a field's insert logs was named, not one above it."""
    parent = files[0].path.rsplit("/", 1)[0] if files else ""
    named = parent in (root.rstrip("/") for root in scan.roots)
    logs = [paths.parse(file) for file in files] if named else []
    return named and all(log is not None and log.kind == layout.INSERT_LOG for log in logs)


def _is_in_tree(file: File) -> bool:
    """Return whether a file was found, not named, and is where insert and delta logs of a collection are."""
    log = None if file.explicit else paths.parse(file)
    return log is not None and f"/{log.kind}/{log.collection}/" in f"/{file.path}"
