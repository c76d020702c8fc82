"""Imports on demand: the exports of packages, attributes of classes, and entry points."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


OWN_ENTRY_POINTS: Mapping[str, Mapping[str, str]] = {
    "sawlog.formats": {
        "deephaven_log": "sawlog.deephaven.log.format:DeephavenLog",
        "deephaven_table": "sawlog.deephaven.table.format:DeephavenTable",
        "filodb_record": "sawlog.filodb.format:FiloDBRecord",
        "leveldb_database": "sawlog.leveldb.database.format:LevelDBDatabase",
        "leveldb_log": "sawlog.leveldb.log.format:LevelDBLog",
        "leveldb_table": "sawlog.leveldb.table.format:LevelDBTable",
        "milvus_binlog": "sawlog.milvus.format:MilvusBinlog",
    },
    "sawlog.leveldb_views": {
        "bedrock": "sawlog.leveldb.applications.bedrock:Bedrock",
        "bitcoin_blocks": "sawlog.leveldb.applications.bitcoin:BlockIndex",
        "bitcoin_chainstate": "sawlog.leveldb.applications.bitcoin:Chainstate",
        "chrome_storage": "sawlog.leveldb.applications.chromium:ChromeStorage",
        "cometbft_blocks": "sawlog.leveldb.applications.cometbft:CometBFT",
        "ethereum": "sawlog.leveldb.applications.ethereum:Ethereum",
        "file_system": "sawlog.leveldb.applications.file_system:FileSystem",
        "gcm_store": "sawlog.leveldb.applications.chromium_services:GcmStore",
        "indexed_db": "sawlog.leveldb.applications.indexed_db:IndexedDB",
        "local_storage": "sawlog.leveldb.applications.chromium:LocalStorage",
        "notifications": "sawlog.leveldb.applications.chromium_workers:Notifications",
        "service_worker": "sawlog.leveldb.applications.chromium_workers:ServiceWorker",
        "session_storage": "sawlog.leveldb.applications.chromium:SessionStorage",
        "shared_proto": "sawlog.leveldb.applications.chromium_services:SharedProto",
        "site_characteristics": "sawlog.leveldb.applications.chromium_services:SiteCharacteristics",
        "sync_data": "sawlog.leveldb.applications.sync_data:SyncData",
    },
    "sawlog.commands": {
        "compact": "sawlog.milvus.commands:compact",
        "import": "sawlog.deephaven.ingest.commands:load",
        "import-status": "sawlog.deephaven.ingest.commands:status",
        "merge": "sawlog.deephaven.ingest.commands:merge",
        "validate": "sawlog.deephaven.table.commands:validate",
    },
    "sawlog.spark": {
        "compact": "sawlog.milvus.spark:compact",
        "filodb_partition_hash": "sawlog.filodb.spark:filodb_partition_hash",
        "filodb_records": "sawlog.filodb.spark:filodb_records",
        "filodb_shard": "sawlog.filodb.spark:filodb_shard",
        "from_filodb_record": "sawlog.filodb.spark:from_filodb_record",
        "histogram_add": "sawlog.filodb.spark:histogram_add",
        "histogram_fraction": "sawlog.filodb.spark:histogram_fraction",
        "histogram_merge": "sawlog.filodb.spark:histogram_merge",
        "histogram_quantile": "sawlog.filodb.spark:histogram_quantile",
        "follow_logs": "sawlog.deephaven.ingest.spark:follow_logs",
        "import_logs": "sawlog.deephaven.ingest.spark:import_logs",
        "merge": "sawlog.deephaven.ingest.spark:merge",
        "nightly": "sawlog.deephaven.ingest.spark:nightly",
        "read_collection": "sawlog.milvus.spark:read_collection",
        "to_filodb_record": "sawlog.filodb.spark:to_filodb_record",
    },
}
"""Those of sawlog by group, as `pyproject.toml` has them: where it is not installed, nothing else names them."""


def lazy_module_getattr(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Its name.
        places: Its modules, and the names that come from each; "" for the names of modules.
    """
    homes = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(f"{package}.{homes[name] or name}")
        return getattr(home, name) if homes[name] else home

    return find


class _Imported:
    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: object, owner: type) -> Any:
        loaded = getattr(importlib.import_module(self._module), self._name)
        setattr(owner, self._attribute, loaded)
        return loaded


def make_lazy_attribute(module: str, name: str) -> Any:
    """Return an attribute of a class that is what a module defines under a name, imported when it is asked for."""
    return _Imported(module, name)


@functools.cache
def find_entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group, of sawlog and all installed packages, by name, in the order of the names."""
    from importlib.metadata import EntryPoint

    own_entry_points = {name: EntryPoint(name, value, group) for name, value in OWN_ENTRY_POINTS.get(group, {}).items()}
    return dict(
        sorted({**own_entry_points, **{point.name: point for point in list_entry_points().select(group=group)}}.items())
    )


@functools.cache
def list_entry_points() -> Any:
    """Return all entry points: to look for one group takes as long, for the files of all packages are read."""
    from importlib.metadata import entry_points

    return entry_points()
