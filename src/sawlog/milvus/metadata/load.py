"""Loads metadata from wherever it is."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from sawlog.errors import FormatError
from sawlog.guard import Undecodable, decode_json
from sawlog.milvus import layout
from sawlog.milvus.etcd.bolt import BrokenError, is_bolt
from sawlog.milvus.etcd.layout import DATABASE, META, PAGE_HEADER
from sawlog.milvus.etcd.member import find_database, read_member
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.backup import parse_backup
from sawlog.milvus.metadata.etcd import WATCHED, Etcd, decode_dump
from sawlog.milvus.metadata.model import Timeline
from sawlog.milvus.metadata.snapshot import Snapshot, Snapshots
from sawlog.storage import Storage


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata that was loaded.

    Attributes:
        path: Its file.
        title: What it is, for people.
        timeline: What it says; `None` where so much of it is cut or damaged that it says nothing.
        broken: What of it is cut or damaged, if anything is.
    """

    path: str
    title: str
    timeline: Timeline | None = None
    broken: BrokenError | None = None


def _find_metadata_file(path: str, storage: Storage) -> str:
    """Return the file that a path of metadata means: a database in etcd's data directory, or that in a backup's `meta`.

    Snapshots are several files: they are what their directory is.

    Raises:
        FormatError: For a directory without either.
    """
    if not storage.is_directory(path) or posixpath.basename(path.rstrip("/")) == layout.SNAPSHOTS:
        return path
    database = find_database(path, storage)
    backup = f"{path.rstrip('/')}/{layout.BACKUP_META}"
    if database is None and not storage.exists(backup):
        expected = f"expected {layout.BACKUP_META} of a milvus-backup, or member/snap/db of an etcd"
        raise FormatError(f"{path}: no metadata in this directory: {expected}")
    return database or backup


def load(path: str, storage: Storage) -> Metadata:
    """Return metadata from an etcd's data directory, database or dump, or from a backup's file or directory.

    Raises:
        FormatError: When it is none of these.
    """
    file = _find_metadata_file(path, storage)
    if storage.is_directory(file):
        return _load_snapshots(file, storage)
    if posixpath.basename(file) == DATABASE or is_bolt(storage.read(file, 0, PAGE_HEADER.size + META.size)):
        return _load_member(file, storage)
    document = decode_json(storage.read(file))
    if isinstance(document, Undecodable):
        return Metadata(file, "JSON", broken=BrokenError(file, 0, f"no whole JSON: {document.detail}"))
    if isinstance(document, dict) and "snapshot_info" in document:
        return Metadata(file, "snapshot of Milvus", Snapshots((Snapshot.of(document, file),), storage))
    return parse(document, file)


def _load_snapshots(directory: str, storage: Storage) -> Metadata:
    snapshots = []
    for file in storage.find(directory):
        if posixpath.basename(file.directory) == layout.SNAPSHOT_DOCUMENTS:
            document = decode_json(storage.read(file))
            if isinstance(document, Undecodable):
                return Metadata(directory, "snapshots of Milvus", broken=BrokenError(file.path, 0, document.detail))
            snapshots.append(Snapshot.of(shape.require_mapping(document, file.path), file.path))
    if not snapshots:
        raise FormatError(f"{directory}: no snapshot in this directory: expected <collection>/metadata/<snapshot>.json")
    return Metadata(directory, f"{len(snapshots)} snapshots of Milvus", Snapshots(tuple(snapshots), storage))


def find_backup_root(meta: str) -> str:
    """Return the root of a backup's logs, by the path of its metadata."""
    return posixpath.join(posixpath.dirname(posixpath.dirname(meta)), layout.BACKUP_LOGS)


def parse(document: object, location: str) -> Metadata:
    """Return the metadata in the document of an etcd dump, or of a backup's `full_meta.json`.

    An etcd dump is a JSON object of base64 values by key, or what `etcdctl get --prefix -w json` and etcd's gateway
    answer, with keys and values in base64.

    Raises:
        FormatError: When it is none of these.
    """
    if isinstance(document, dict) and "collection_backups" in document:
        return Metadata(location, "metadata of a milvus-backup", parse_backup(document, location))
    return Metadata(location, "dump of an etcd", Etcd(decode_dump(document, location), location))


def _load_member(file: str, storage: Storage) -> Metadata:
    """Return the metadata in the database of an etcd, and the log next to it."""
    try:
        member = read_member(file, storage, WATCHED)
    except BrokenError as error:
        return Metadata(file, "database of an etcd", broken=error)
    keys = {key.decode("utf-8", "replace"): value.data for key, value in member.store.values.items()}
    title = f"database of an etcd at revision {member.store.revision}"
    title += f", {member.requests} requests of its log included" if member.requests else ""
    past = {key.decode("utf-8", "replace"): changes for key, changes in member.store.changes.items()}
    return Metadata(file, title, Etcd(keys, file, past), member.broken)
