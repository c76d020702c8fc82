"""Loads metadata from wherever it is."""

from __future__ import annotations

import posixpath

from sawlog.milvus import layout
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.backup import parse_backup
from sawlog.milvus.metadata.etcd import Etcd
from sawlog.milvus.metadata.model import Timeline
from sawlog.storage import Storage


def load(path: str, storage: Storage) -> Timeline:
    """Metadata from the file of an etcd dump or of a backup, or from a backup's `meta` directory.

    Raises:
        FormatError: When it is none of these.
    """
    if storage.is_directory(path):
        path = f"{path.rstrip('/')}/{layout.BACKUP_META}"
    return parse(storage.read(path), path)


def backup_root(meta: str) -> str:
    """Return the root of a backup's logs, by the path of its metadata."""
    return posixpath.join(posixpath.dirname(posixpath.dirname(meta)), layout.BACKUP_LOGS)


def parse(text: bytes, location: str) -> Timeline:
    """Metadata from the bytes of an etcd dump, or of a backup's `full_meta.json`.

    An etcd dump is a JSON object of base64 values by key, or what `etcdctl get --prefix -w json` and etcd's gateway
    answer, with keys and values in base64.

    Raises:
        FormatError: When it is none of these.
    """
    data = shape.parsed(text, f"{location}: expected the JSON of an etcd dump or of a milvus-backup")
    if isinstance(data, dict) and "collection_backups" in data:
        return parse_backup(data, location)
    return Etcd(data, location)
