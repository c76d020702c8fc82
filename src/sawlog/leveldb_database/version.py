"""Which files a database is made of: what CURRENT and the MANIFEST that it names say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sawlog.damage import Damage, Findings
from sawlog.errors import DamageError, OptionError, SawlogError
from sawlog.leveldb_database.layout import BYTEWISE, CURRENT_NAME, LOG_NAME, MANIFEST_NAME, TABLE_NAME
from sawlog.leveldb_log.options import ReadOptions as LogOptions
from sawlog.leveldb_log.payloads.edits import EDITS_SCHEMA, EditRange, Version
from sawlog.scan import Projection, Scan
from sawlog.storage import File, Storage


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table that the MANIFEST says is alive.

    Attributes:
        file: The table.
        level: Its level; tables of level 0 may overlap, those of others do not.
        smallest: Its first user key.
        largest: Its last one.
    """

    file: File
    level: int
    smallest: bytes
    largest: bytes


@dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """The files of one column family, as the last version edit leaves them.

    Attributes:
        manifest: The MANIFEST.
        comparator: The name of the order of keys.
        family: The number of the column family.
        tables: Its live tables, by level and number.
        logs: The logs behind them, by number.
        missing: Live tables that are not there.
        dead: Tables and logs that are there and not alive.
        blobs: Whether values have ever been in blob files.
    """

    manifest: File
    comparator: str
    family: int
    tables: tuple[LiveTable, ...]
    logs: tuple[File, ...]
    missing: tuple[str, ...]
    dead: tuple[File, ...]
    blobs: bool

    @property
    def bytewise(self) -> bool:
        """Whether keys are ordered by their bytes."""
        return self.comparator in BYTEWISE


def read_version(files: Sequence[File], column_family: str, storage: Storage) -> DatabaseVersion:
    """Read the MANIFEST that CURRENT names, or the one with the highest number.

    Raises:
        SawlogError: When there is none, or it is damaged.
        OptionError: When there is no such column family.
    """
    manifest = _manifest(files, storage)
    scan = Scan(view="edits", options=LogOptions(), storage=storage)
    projection = Projection.of(EDITS_SCHEMA, scan)
    whole = EditRange(
        scan, projection, manifest.path, manifest.size, manifest, 0, manifest.size, synced=True, dialect="auto"
    )
    version = Version()
    comparator = ""
    logs: dict[int, int] = {}
    previous = 0
    blobs = False
    for offset, edit in _edits(whole):
        version.apply(offset, edit)
        family = edit["column_family"]
        comparator = (edit.get("comparator") if family == 0 else None) or comparator
        if "log_number" in edit:
            logs[family] = edit["log_number"]
        previous = edit.get("previous_log_number", previous)
        blobs = blobs or bool(edit.get("new_blob_files"))
    family = _family(version, column_family, manifest)
    return _version(files, manifest, comparator, version, family, logs.get(family, 0), previous, blobs=blobs)


def _edits(whole: EditRange) -> Iterator[tuple[int, dict[str, Any]]]:
    """The edits of a MANIFEST: all of them, or it is refused."""
    try:
        for edits, failed in whole.edits(Findings("fail")):
            yield from edits
            if failed is not None:
                raise _refused(failed)
    except DamageError as error:
        raise _refused(error.damage) from error


def _refused(damage: Damage) -> SawlogError:
    return SawlogError(f"{damage}; a database is read by an intact MANIFEST only: read its tables and logs one by one")


def _manifest(files: Sequence[File], storage: Storage) -> File:
    manifests = {file.name: file for file in files if MANIFEST_NAME.match(file.name)}
    if not manifests:
        raise SawlogError(f"{files[0].path}: no MANIFEST beside it, which says what a database is made of")
    current = next((file for file in files if file.name == CURRENT_NAME), None)
    name = storage.read(current.path).decode("utf-8", "replace").strip() if current is not None else ""
    return manifests.get(name) or max(manifests.values(), key=lambda file: _number(MANIFEST_NAME.match(file.name)))


def _family(version: Version, name: str, manifest: File) -> int:
    for number, known in version.families.items():
        if known == name:
            return number
    known = ", ".join(version.families.values())
    raise OptionError(f"{manifest.path}: no column family {name!r}; there are: {known}")


def _version(
    files: Sequence[File],
    manifest: File,
    comparator: str,
    version: Version,
    family: int,
    log_number: int,
    previous: int,
    *,
    blobs: bool,
) -> DatabaseVersion:
    present = {int(match[1]): file for file in files if (match := TABLE_NAME.match(file.name))}
    tables, missing = [], []
    directory = posixpath.dirname(manifest.path)
    for row in version.rows():
        if row["column_family"] != family:
            continue
        file = present.get(row["file"])
        if file is None:
            missing.append(posixpath.join(directory, f"{row['file']:06d}"))
        else:
            tables.append(LiveTable(file, row["level"], row["smallest_key"], row["largest_key"]))
    every = {int(match[1]): file for file in files if (match := LOG_NAME.match(file.name))}
    live = {number: file for number, file in every.items() if number >= log_number or (previous and number == previous)}
    alive = {row["file"] for row in version.rows()}
    dead = [file for number, file in present.items() if number not in alive]
    dead += [file for number, file in every.items() if number not in live]
    ordered = tuple(file for _, file in sorted(live.items()))
    return DatabaseVersion(manifest, comparator, family, tuple(tables), ordered, tuple(missing), tuple(dead), blobs)


def _number(match: Any) -> int:
    return int(match[1]) if match else -1
