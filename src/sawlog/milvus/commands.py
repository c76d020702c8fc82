"""`sawlog compact`: a Milvus collection rewritten."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit
from sawlog.cli.output import Outcome, render_count, show

_MIB = 1 << 20


def compact(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Root of the collection.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A root that does not hold it yet.")],
    segment_mib: Annotated[int, typer.Option("--segment-mib", min=1, help="Approximate size of segments.")] = 512,
    binlog_mib: Annotated[int, typer.Option("--binlog-mib", min=1, help="Approximate size of binlog batches.")] = 64,
    backup: Annotated[bool, typer.Option("--backup", help="Write the layout of milvus-backup, with names.")] = False,
    option: arguments.ReadOptions = None,
    storage: arguments.StorageOptions = None,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Rewrite a Milvus collection without deletes.

    Deletes are applied, segments are few and large, and the rows are checked to be the same.
    """
    options = arguments.parse_format_options(option)
    storage_options = arguments.parse_storage_options(storage)
    tree: Literal["plain", "backup"] = "backup" if backup else "plain"
    from sawlog.spark.sessions import QUIET_SETTINGS, hold_session

    def check_paths() -> None:
        from sawlog.milvus.spark import open_source_and_place

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are shown when it is opened to be read
            open_source_and_place(source, target, tree, storage_options, options)

    with hold_session(
        "sawlog compact", {**QUIET_SETTINGS, **arguments.parse_key_values(conf, "--conf")}, check_paths
    ) as spark:
        from sawlog.milvus.spark import compact as run

        sizes = {"segment_bytes": segment_mib * _MIB, "binlog_bytes": binlog_mib * _MIB}
        compaction = run(spark, source, target, **sizes, tree=tree, storage_options=storage_options, **options)
    facts = (
        ("checksum", f"{compaction.checksum:016x}"),
        ("segments", f"{compaction.segments_before:,} before, {compaction.segments_after:,} after"),
        ("files", f"{compaction.files_before:,} before, {compaction.files_after:,} after"),
    )
    document = {"target": target, **asdict(compaction)}
    show(Outcome(document, render_count(compaction.rows, "row"), f"compacted and checked: {target}", facts), json=json)
    return Exit.OK
