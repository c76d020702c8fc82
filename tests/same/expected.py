"""Differences from the release that are meant, each with its reason; CHANGELOG.md says the same to users."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MISSING = "not there"
"""A value that the tree's answer has not."""
Observation = dict[str, Any]
"""What one installation saw of one input."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two answers differ.

    Attributes:
        input: Format, sample and mutation.
        place: Keys and numbers from the answer on, as in `/verify/found/rows`.
        old: What the release has there.
        new: What the tree has there.
        release: The whole answer of the release.
        tree: And of the tree.
    """

    input: str
    place: str
    old: Any
    new: Any
    release: Observation
    tree: Observation


@dataclass(frozen=True, slots=True)
class ExpectedDifference:
    """Differences that are meant. Patterns are found anywhere, an empty one everywhere.

    Attributes:
        why: What has changed.
        input: Pattern of format, sample and mutation.
        place: Pattern of the place.
        old: Pattern of the release's value as JSON.
        new: Pattern of the tree's.
        holds: What must be true besides.
    """

    why: str
    input: str = ""
    place: str = ""
    old: str = ""
    new: str = ""
    holds: Callable[[Difference], bool] = lambda _: True

    def covers(self, difference: Difference) -> bool:
        """Whether a difference is of this kind."""
        return (
            re.search(self.input, difference.input) is not None
            and re.search(self.place, difference.place) is not None
            and re.search(self.old, json.dumps(difference.old)) is not None
            and re.search(self.new, json.dumps(difference.new)) is not None
            and self.holds(difference)
        )


def as_verified(difference: Difference) -> bool:
    """Whether the tree's repair reports what its `verify` reports, and as many rows as its view `rows` has."""
    if difference.place.endswith("rows"):
        return bool(difference.tree["repair"]["found"]["report"]["rows"] == difference.tree["rows count"]["found"])
    value: Any = difference.tree["verify"]["found"]
    for key in difference.place.partition("/report/")[2].split("/"):
        value = value[int(key)] if isinstance(value, list) else value.get(key, MISSING)
    return bool(value == difference.new)


def stops_at_damage(difference: Difference) -> bool:
    """Whether both end with the same error, and the tree returns no more rows than it does where damage is skipped."""
    view = difference.place.split("/")[1]
    old, new = difference.release[view]["found"], difference.tree[view]["found"]
    if old["ended"] is None or new["ended"] is None or old["ended"]["raises"] != new["ended"]["raises"]:
        return False
    return bool(new["count"] <= difference.tree[view.replace(" fail ", " skip ")]["found"]["count"])


def unsupported(difference: Difference) -> bool:
    """Whether the tree finds something that it does not support, where the release found damage."""
    verified = json.dumps(difference.tree["verify"])
    return '"unsupported": true' in verified or "UnsupportedError" in verified


def incomplete(difference: Difference) -> bool:
    """Whether the tree finds that the dataset is not what its metadata says."""
    return re.search('"(missing_file|cut_metadata|mismatched_file)"', json.dumps(difference.tree["verify"])) is not None


def had_empty_damage(difference: Difference) -> bool:
    """Whether the release finds damage of no bytes."""
    files = difference.release["verify"]["found"].get("files", [])
    return any(damage["length"] == 0 for file in files for damage in file["damages"])


def _counts(observation: Observation, verb: str) -> tuple[int, int]:
    report = observation[verb]["found"]
    report = report.get("report", report)
    return (report["rows"], -report["bytes"]["damage"]) if "rows" in report else (-1, 0)


def reads_more(difference: Difference) -> bool:
    """Whether the tree reads more rows with no more damage, or finds less damage in no fewer rows.

    A database's rows are those of the view `all`: an entry that is read in addition may delete another one's row.
    """
    new, old = _counts(difference.tree, "verify"), _counts(difference.release, "verify")
    rows = [
        count if isinstance(count := observation.get("all count", {}).get("found", verified), int) else -1
        for observation, (verified, _) in ((difference.tree, new), (difference.release, old))
    ]
    return new != old and rows[0] >= rows[1] and new[1] >= old[1]


def saves_more(difference: Difference) -> bool:
    """Whether the tree's repair keeps at least as many rows as the release's."""
    return _counts(difference.tree, "repair")[0] >= _counts(difference.release, "repair")[0]


def loses_its_metaindex(difference: Difference) -> bool:
    """Whether the tree reads a table's rows by its index only."""
    new, old = (
        observation["rows info"]["found"].get("data blocks", 0) for observation in (difference.tree, difference.release)
    )
    return bool(new < old)


def is_rocksdb(difference: Difference) -> bool:
    """Whether only the tree takes a log for RocksDB's."""
    dialects = [
        observation["rows info"]["found"].get("dialect") for observation in (difference.release, difference.tree)
    ]
    return dialects == ["leveldb", "rocksdb"]


def checks_pages(difference: Difference) -> bool:
    """Whether the tree finds that a page is not what its checksum says."""
    return "CRC checksum verification failed" in json.dumps(difference.tree["verify"])


def cannot_open(difference: Difference) -> bool:
    """Whether opening fails with the error that the release has when it recognizes a path."""
    outcome_found = difference.tree[difference.place.split("/")[1]]["found"]
    return bool(outcome_found == difference.release["recognized"]["found"])


def several_damaged(difference: Difference) -> bool:
    """Whether there are several damaged ranges, so that another one may be the first that stops a read."""
    listed = [observation["verify"]["found"].get("files", []) for observation in (difference.release, difference.tree)]
    return all(sum(len(file["damages"]) for file in files) > 1 for files in listed)


READ_SINCE = "version 7|embedded|minlz|two names"
"""Samples of tables that the release cannot read."""

EXPECTED = (
    ExpectedDifference("The layer below the rows is called frames", place="^/sawlog info/stdout/view$", new='"frames"'),
    ExpectedDifference("What another writer may have meant is unsupported, not damage", holds=unsupported),
    ExpectedDifference(
        "What metadata names and is not there, or is another, makes a dataset incomplete", holds=incomplete
    ),
    ExpectedDifference("A repair reports what verify reports", place="^/repair/found/report/", holds=as_verified),
    # LevelDB, RocksDB and Pebble
    ExpectedDifference(
        "Repair refuses options of other views, as reads do", "^leveldb_log (latest|entities_infer)", "^/repair/found/"
    ),
    ExpectedDifference(
        "Repair publishes only a copy with the rows of the source", "^leveldb_log stale", "^/repair/found/"
    ),
    ExpectedDifference(
        "Repair takes intact fragments after damage in the same block", "^leveldb_log", "^/repair/", holds=saves_more
    ),
    ExpectedDifference(
        "A log with another number than its file's name is read",
        "^leveldb_(log|database)",
        new="it is read as log|rocksdb",
    ),
    ExpectedDifference(
        "A directory with a MANIFEST is a database",
        "^leveldb_database",
        "^/recognized/found",
        "leveldb_log|name the format|FormatError",
    ),
    ExpectedDifference(
        "A database names what keeps it from being repaired",
        "^leveldb_database",
        "^/repair/found/(raises|message)",
        new="SawlogError|MANIFEST",
    ),
    ExpectedDifference("Tables of these kinds are read", f"^leveldb_table ({READ_SINCE})"),
    ExpectedDifference("The release has no views of applications", "^leveldb_database (local_storage|history):"),
    ExpectedDifference(
        "A table with damaged properties is read if its index is intact", "^leveldb_(table|database)", holds=reads_more
    ),
    ExpectedDifference(
        "Where the metaindex of a table is lost, its range deletions are damaged; they were taken for data",
        "^leveldb_table .*block at 1128 below its checksum",
        holds=loses_its_metaindex,
    ),
    ExpectedDifference(
        "A log is RocksDB's though its first fragment is broken", "^leveldb_log stale", holds=is_rocksdb
    ),
    ExpectedDifference(
        "Warnings of a merge of files name their directory, not the MANIFEST or the first log",
        "^leveldb_(log|database)",
        "/warnings/\\d+$",
        "DamageWarning: /(MANIFEST-)?\\d+(\\.log)?: ",
        "DamageWarning: : ",
    ),
    ExpectedDifference(
        "Tags of write batches and version edits that nobody knows are unsupported, not damage",
        "^leveldb_(log|database)",
        new="does not support|does not know|UnsupportedError",
    ),
    ExpectedDifference(
        "Edits have columns for where files are and for timestamps, and those before a tag that nobody knows",
        "^leveldb_log",
        "^/(edits|files) (fail|skip) rows/found/(schema|rows)$|^/sawlog info/stdout/schema$",
    ),
    ExpectedDifference(
        "Databases are repaired as a whole", "^leveldb_database", "^/repair/found/", "repair its logs|OptionError"
    ),
    ExpectedDifference(
        "Views of applications keep what they decode of an entry that has bytes left over, and say so",
        "^leveldb_database",
        "^/bitcoin_blocks (fail|skip) rows/found/rows$",
    ),
    ExpectedDifference(
        "Verify reads the tables and blob files of all column families, whichever is the view's",
        "^leveldb_database families",
        "^/(sawlog )?verify/|^/damage |^/\\w+ (count|skip rows)/warnings|/message$",
    ),
    ExpectedDifference(
        "A repaired table has the order and the timestamps of its keys",
        "^leveldb_table (stamped|pebble)",
        "^/repair/found/files/",
    ),
    # Milvus
    ExpectedDifference("Damage has the bytes that it is of", "^milvus_binlog", holds=had_empty_damage),
    ExpectedDifference("The view inserts of a delta log is refused", "^milvus_binlog delta/", "^/inserts "),
    ExpectedDifference(
        "Backups are repaired, too",
        "^milvus_binlog (backup|paged)",
        "^/repair/found/",
        "nothing can be taken|FormatError",
    ),
    ExpectedDifference(
        "A repaired backup's metadata has the numbers and sizes of its logs: it had those from before",
        "^milvus_binlog (backup|paged)",
        "^/repair/found/files/.*full_meta\\.json",
        '^"[0-9a-f]+"$',
        '^"[0-9a-f]+"$',
    ),
    ExpectedDifference(
        "A repair that keeps nothing is refused",
        "^milvus_binlog",
        "^/repair/found/",
        new="nothing can be taken|not there|FormatError",
    ),
    ExpectedDifference(
        "Statistics of Parquet that are changed hide no rows", "^milvus_binlog paged: footer", holds=reads_more
    ),
    ExpectedDifference(
        "Of large column groups, row groups that are intact are read",
        "^milvus_binlog (column groups|packed segments)",
        holds=reads_more,
    ),
    ExpectedDifference(
        "The name of a column of Parquet need not be text", "^milvus_binlog packed events: footer", holds=reads_more
    ),
    ExpectedDifference("A time that is not there is unknown", "^milvus_binlog", "/created$", new="unknown"),
    ExpectedDifference(
        "Metadata that cannot be read is an error of opening, not of the first row",
        "^milvus_binlog",
        " rows/found/",
        new=MISSING,
        holds=cannot_open,
    ),
    ExpectedDifference("Checksums of Parquet pages are verified", "^milvus_binlog", holds=checks_pages),
    ExpectedDifference(
        "Deletes without a known primary key are refused when opened",
        "^milvus_binlog",
        "^/recognized/",
        new="primary key",
    ),
    ExpectedDifference("A broken page costs its rows, and not the type of the key", "^milvus_binlog delta/", "schema"),
    ExpectedDifference(
        "Repair leaves out rows that lack a column", "^milvus_binlog collection", "^/repair/found/files/"
    ),
    ExpectedDifference(
        "Repair refuses Storage V3 before it looks at files",
        "^milvus_binlog",
        "^/repair/found/message",
        new="Storage V3",
    ),
    ExpectedDifference(
        "Deletes are read before rows", "^milvus_binlog", " fail rows/found/ended/message$", holds=several_damaged
    ),
    ExpectedDifference(
        "`fail` returns exactly the rows before the first damage",
        "^(deephaven_table|leveldb_database|milvus_binlog)",
        " fail rows/found/(count|rows)$",
        holds=stops_at_damage,
    ),
    ExpectedDifference(
        "Tables whose order of keys is lost with the properties are repaired, in the order that they have",
        "^leveldb_table",
        "^/repair/found/raises$",
        old="SchemaError",
        new=MISSING,
    ),
)
