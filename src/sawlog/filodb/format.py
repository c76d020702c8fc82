"""FiloDB's containers as a format of sawlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sawlog.filodb.judge import read_header_length
from sawlog.format.contract import Contents, Format, Match, Scan, Writer, repair_each
from sawlog.format.lazy import make_lazy_attribute
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.filodb.options import ReadOptions, WriteOptions

_SUFFIXES = (".container", ".filodb")


class FiloDBRecord(Format):
    """FiloDB's BinaryRecord v2 in RecordContainers: one or many containers per file, trimmed or whole."""

    name = "filodb_record"
    title = "FiloDB record container"
    suffix = ".container"
    views: ClassVar = {
        "rows": "one row per record: the columns of its schema, the labels as a map",
        "partkeys": "one row per distinct series: schema, schema_id, partition_hash and the partition columns",
        "frames": "one row per container: timestamp, num_bytes, num_records, unused_bytes",
        "damage": "one row per damaged range",
    }
    aliases: ClassVar = {"containers": "frames"}
    read_options = make_lazy_attribute("sawlog.filodb.options", "ReadOptions")
    write_options = make_lazy_attribute("sawlog.filodb.options", "WriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by a container header whose first record fits; a damaged file by its name."""
        if read_header_length(head, file.size) is not None:
            return Match.CONTENT
        return Match.NAME if file.name.endswith(_SUFFIXES) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return files named by the user, and those with the suffix, in natural order."""
        return [file for file in files if file.explicit or file.name.endswith(_SUFFIXES)]

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        from sawlog.filodb.dataset import ContainerContents

        return ContainerContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> Writer:
        from sawlog.filodb.writer import ContainerWriter

        return ContainerWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: Sequence[ReadOptions], storage: Storage) -> None:
        from sawlog.filodb.repair import repair

        repair(file, target, options, storage)

    def repair_files(self, contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
        """Repair files: keep the records of the schemas that are read, and of unknown ones."""
        from sawlog.filodb.dataset import ContainerContents
        from sawlog.filodb.repair import make_readings

        assert isinstance(contents, ContainerContents)
        repair_each(self, make_readings(contents), places, storage, contents.scan.threads)
