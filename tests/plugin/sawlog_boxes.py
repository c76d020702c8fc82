"""A format of a third-party package that has every type Arrow has: Arrow's own files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.format.contract import BoundScan, Contents, Format, Fragment, Match, Scan, View, Writer
from sawlog.format.damage import Findings
from sawlog.storage import File, Storage


@dataclass(frozen=True, slots=True)
class Options:
    pass


@dataclass(frozen=True)
class BoxesFragment(Fragment):
    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        for batch in pa.ipc.open_file(self.path).read_all().to_batches():
            findings.rows += batch.num_rows
            yield batch.select(schema.names)


class BoxesContents(Contents):
    def _schema(self) -> pa.Schema:
        return pa.ipc.open_file(self.files[0].path).schema

    def _fragments(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        for file in self.files:
            yield BoxesFragment(*request, file.path, file.size)

    views: ClassVar = {"rows": View(_schema, _fragments)}


class Boxes(Format):
    name = "boxes"
    title = "Arrow files"
    suffix = ".arrow"
    views: ClassVar = {"rows": "one row per row", "damage": "one row per damaged range"}
    read_options = Options
    write_options = Options

    def match(self, file: File, head: bytes) -> Match:
        return Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        return list(files)

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return BoxesContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        raise AssertionError("not part of the proof")

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        raise AssertionError("not part of the proof")
