"""Deephaven's intraday binary logs as a format of sawlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sawlog.deephaven.log import layout
from sawlog.deephaven.log.names import is_log_name, order_key, parse_name
from sawlog.format.contract import Contents, DirectoryLayout, Format, Match, Scan, StreamRules, Writer, WriterPosition
from sawlog.format.lazy import make_lazy_attribute
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.deephaven.log.options import ReadOptions, WriteOptions


class _Tables(DirectoryLayout):
    """Directories of several tables, which the names of logs say."""

    def table_name(self, file: File) -> str | None:
        name = parse_name(file.name)
        return f"{name.namespace}.{name.table}" if name.namespace and name.table else None

    def table_options(self, file: File) -> dict[str, str]:
        name = parse_name(file.name)
        return {"namespace": name.namespace, "table": name.table} if name.namespace and name.table else {}


class _Partitions(StreamRules):
    """A partition has one writer, which begins one log after the other."""

    def writer_position(self, file: File) -> WriterPosition | None:
        name = parse_name(file.name)
        time = name.start_time
        return WriterPosition(name.partition, time) if time is not None and all(name.partition) else None


class DeephavenLog(Format):
    """Intraday binary logs of Deephaven (formerly Illumon Iris), which its import server and tailer feed on."""

    name = "deephaven_log"
    title = "Deephaven binary log"
    suffix = ".bin"
    views: ClassVar = {
        "rows": "one row per committed row: the columns of the header, and the partitioning column",
        "frames": "one row per entry: offset, size, flags, kind, checksum",
        "commands": "one row per record that is not a row: type, version, command id, data",
        "damage": "one row per damaged range",
    }
    aliases: ClassVar = {"entries": "frames"}
    directory_layout = _Tables()
    stream_rules = _Partitions()
    read_options = make_lazy_attribute("sawlog.deephaven.log.options", "ReadOptions")
    write_options = make_lazy_attribute("sawlog.deephaven.log.options", "WriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by the magic number; a file that has none yet, or a damaged one, by its name.

        A name without a namespace, such as `x.bin`, is not enough where most of the magic number is something else.
        """
        magic = layout.MAGIC.to_bytes(4, "big")
        start = head[: layout.VERSION_OFFSET]
        if start == magic:
            return Match.CONTENT
        foreign = sum(byte not in (0, expected) for byte, expected in zip(start, magic, strict=False)) > 2
        if not is_log_name(file.name) or (foreign and not file.explicit and parse_name(file.name).namespace is None):
            return Match.NO
        return Match.NAME

    def choose_file_options(self, options: ReadOptions) -> ReadOptions:
        """Return options for all rows, those that a DELETE_PARTITION has deleted, too."""
        return replace(options, deletes="ignore", split="scan")

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return logs by partition, those of a partition in the order in which they were begun."""
        logs = [file for file in files if file.explicit or is_log_name(file.name)]
        return sorted(logs, key=lambda file: order_key(parse_name(file.name), file.path))

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        from sawlog.deephaven.log.dataset import DeephavenLogContents

        return DeephavenLogContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> Writer:
        from sawlog.deephaven.log.writer import LogWriter

        return LogWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: ReadOptions, storage: Storage) -> None:
        """Repair as `Format.repair` says. Header, commands and intact entries are carried over byte for byte."""
        from sawlog.deephaven.log.repair import repair

        repair(file, target, options, storage)
