"""The metadata tree of Datastore and Firestore exports: which data files there are, and what Google says of them."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sawlog.errors import FormatError
from sawlog.guard import EPOCH, Undecodable, call_decoder
from sawlog.leveldb.datastore import layout
from sawlog.leveldb.datastore.values import find_message_class
from sawlog.leveldb.log.layout import RECORD_COLUMN
from sawlog.leveldb.log.walk import make_log_range
from sawlog.leveldb.options import LogReadOptions
from sawlog.storage import File, Storage


@dataclass(frozen=True, slots=True)
class KindExport:
    """Content of an `.export_metadata` file."""

    name: str
    start: datetime
    end: datetime
    outputs: tuple[str, ...]


def is_metadata(file: File) -> bool:
    """Return whether a file is of the metadata tree, by its name."""
    return any(name.match(file.name) for name in (layout.OVERALL_NAME, layout.METADATA_NAME))


def _read_kind_export(file: File, storage: Storage) -> KindExport:
    """Read an `.export_metadata` file, which is a bare protobuf message.

    Raises:
        FormatError: When it is none.
    """
    message = _parse("ExportMetadata", storage.read(file.path), file.path)
    outputs = tuple(_resolve_sibling(file, name) for output in message.outputs for name in output.file)
    export = message.export
    start, end = (EPOCH + timedelta(microseconds=micros) for micros in (export.start, export.end))
    return KindExport(export.name, start, end, outputs)


def _read_overall(file: File, options: LogReadOptions, storage: Storage) -> list[Any]:
    """Read an `.overall_export_metadata` file: per kind directory the `path` of its metadata, `entities` and `bytes`.

    Raises:
        FormatError: When it is none, or of an unknown version.
    """
    records = [
        record
        for batch in make_log_range(file, options, storage).to_batches()
        for record in batch.column(RECORD_COLUMN).to_pylist()
    ]
    if len(records) != 2 or records[0] != layout.VERSION_RECORD:
        version = records[0].hex() if records else "no record"
        raise FormatError(
            f"{file.path}: expected the metadata of an export, version {layout.VERSION_RECORD.hex()}; found {version}"
        )
    return list(_parse("OverallExportMetadata", records[1], file.path).pointer)


def describe(file: File, options: LogReadOptions, storage: Storage) -> dict[str, Any]:
    """Return the content of a file of the metadata tree, for people to read."""
    if layout.OVERALL_NAME.match(file.name):
        pointers = _read_overall(file, options, storage)
        return {
            "entities": sum(pointer.entities for pointer in pointers),
            "output bytes": sum(pointer.bytes for pointer in pointers),
        }
    kind = _read_kind_export(file, storage)
    return {"export": kind.name, "started": kind.start.isoformat(), "completed": kind.end.isoformat()}


def find_outputs(files: Sequence[File], options: LogReadOptions, storage: Storage) -> list[File]:
    """Return the data files of `files`, and those that the metadata among them lists, each once.

    Raises:
        FormatError: When the metadata lists a file that is not there.
    """
    outputs = {file.path: file for file in files if not is_metadata(file)}
    kinds = {file.path: file for file in files if layout.METADATA_NAME.match(file.name)}
    for overall in files:
        if not layout.OVERALL_NAME.match(overall.name):
            continue
        for pointer in _read_overall(overall, options, storage):
            path = _resolve_sibling(overall, pointer.path)
            if path not in kinds:
                kinds[path] = _find_file(path, overall, storage)
    for kind in kinds.values():
        for path in _read_kind_export(kind, storage).outputs:
            if path not in outputs:
                outputs[path] = _find_file(path, kind, storage)
    return list(outputs.values())


def _resolve_sibling(file: File, name: str) -> str:
    """Return the path of a file that metadata names, relative to its own. Emulators on Windows write backslashes."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or not parts[0] or parts[0].endswith(":"):
        raise FormatError(f"{file.path}: expected the name of a file of the export, found {name!r}")
    return posixpath.join(file.directory, *parts)


def _find_file(path: str, source: File, storage: Storage) -> File:
    try:
        files = storage.find(path)
    except FileNotFoundError:
        files = []
    if len(files) != 1:
        raise FormatError(f"{source.path}: the export has a file {path}, which is missing")
    return files[0]


def _parse(name: str, data: bytes, path: str) -> Any:
    message = call_decoder(find_message_class(name).FromString, data)
    if isinstance(message, Undecodable):
        raise FormatError(f"{path}: expected the metadata of an export: {message.detail}")
    return message
