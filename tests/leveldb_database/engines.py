"""Databases that real engines have left, as samples of the laws: the fuzzer's, and of tests of agreement."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import sawlog
from sawlog.leveldb.database.dataset import DatabaseContents
from sawlog.leveldb.database.version import DatabaseVersion
from sawlog.testing import Exemption, Laws, Sample
from tests.leveldb_log.test_laws import BROKEN

from .mutators import MUTATORS
from .support import sample
from .test_laws import ADVISORY

GOLDEN = Path(__file__).parents[1] / "golden" / "leveldb_database"
APART = ("chromium", "bitcoin", "pebble-2.1.7-remote")
"""What the names of folders begin with that hold several databases, or part of one."""
NAMES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and not path.name.startswith(APART))
OF_BACKUPS = ["bad_copy", "backup/*: missing_file"]
"""What `verify` says of the files of a backup, and of other backups."""
OF_FAMILIES = ["0*: missing_file", "MANIFEST-*: unsupported"]
"""What it says of other column families."""


def make_samples(name: str) -> Iterator[Sample]:
    """The views of each column family of a database; files that only others have are `beside`."""
    root = GOLDEN / name / "db" if (GOLDEN / name / "db").is_dir() else GOLDEN / name
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contents = sawlog.open(root, format="leveldb_database", on_damage="skip").contents
    assert isinstance(contents, DatabaseContents)
    paths = {family: list_paths(version) for family, version in contents.versions.items()}
    for family, family_paths in paths.items():
        beside = [os.path.relpath(path, root) for path in sorted(set().union(*paths.values()) - family_paths)]
        settings = {"options": {} if family == "default" else {"table": family}, "beside": beside}
        for view in ("rows", "all"):
            advisory = OF_BACKUPS if "backup" in name else OF_FAMILIES if len(paths) > 1 else []
            yield sample(f"{name} {family} {view}", files, view, advisory=[*ADVISORY, *advisory], **settings)


def list_paths(version: DatabaseVersion) -> set[str]:
    """The files of a column family."""
    files = [table.file for table in version.tables] + [blobs.file for blobs in version.blobs.values()]
    return {file.path for file in (*files, *version.logs, *version.prior)}


class Engines(Laws):
    """For `python -m sawlog.testing.fuzz tests.leveldb_database.engines:Engines`."""

    mutators = MUTATORS
    exemptions = (
        Exemption("agreed", BROKEN, told="skip first .*broken_record"),
        Exemption("repair", "Some databases are refused: their pages say which.", told="repair gives up"),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [sample for name in NAMES for sample in make_samples(name)]
