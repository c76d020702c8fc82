"""The deletes of some delta logs, read once for all batches that they concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.milvus_binlog.deletes.history import DeleteHistory
from sawlog.milvus_binlog.deletes.index import DeleteIndex
from sawlog.milvus_binlog.deletes.log import Deletes, read_deletes
from sawlog.milvus_binlog.log import open_log, opened
from sawlog.storage import File, Storage

FREE_BYTES = 64 << 20
"""Memory that the deleted keys may always take."""
EXPANSION = 32
"""They may take so many times the bytes of their delta logs, unless an option says otherwise."""
_KEY_BYTES = 16
"""Bytes that a delete takes in a log, about: so many keys are reckoned with."""


@dataclass(frozen=True, slots=True)
class DeltaLogs:
    """Some delta logs whose deletes are looked up together.

    Attributes:
        files: The delta logs.
        key: Type of the primary key.
        opened: Identifies the dataset that they were found by. What another one reads is read again.
        until: Later deletes have not happened.
        max_page_bytes: See the read options.
        max_delete_bytes: See the read options.
        storage: Where they are.
    """

    files: tuple[File, ...]
    key: pa.DataType
    opened: str
    until: int | None = field(compare=False)
    max_page_bytes: int | None = field(compare=False)
    max_delete_bytes: int | None = field(compare=False)
    storage: Storage = field(compare=False)

    def newest(self, *, strict: bool) -> DeleteIndex:
        """The newest delete of every key, which the batches of a segment, or of a partition, share.

        Args:
            strict: Whether damage of any of them is an error.

        Raises:
            OptionError: When the keys take more memory than they may.
        """
        return _newest(self, strict=strict)

    def every(self, *, strict: bool) -> DeleteHistory:
        """All deletes of every key, shared as those of `newest`."""
        return _every(self, strict=strict)

    def report(self, files: Iterable[File], findings: Findings) -> None:
        """Tell what is wrong with those of them that the caller answers for; others did or will answer for the rest."""
        for file in self.files:
            if file in files:
                quiet = Findings("skip", drained=True)
                for _ in self._read(file, quiet):
                    pass
                for damage in quiet.damages:
                    findings.damage(damage)

    @property
    def most(self) -> int:
        """Bytes that the deleted keys may take."""
        if self.max_delete_bytes is not None:
            return self.max_delete_bytes
        return max(FREE_BYTES, EXPANSION * sum(file.size for file in self.files))

    def _read(self, file: File, findings: Findings) -> Iterator[Deletes]:
        with opened(file, self.storage, self.max_page_bytes) as log:
            yield from read_deletes(log, findings, self.key)

    def deletes(self, *, strict: bool) -> Iterator[Deletes]:
        """The deletes of all of them."""
        findings = Findings("fail" if strict else "skip")
        for log in self.storage.each(lambda file: open_log(file, self.storage, self.max_page_bytes), self.files):
            with closing(log.source):
                yield from read_deletes(log, findings, self.key)


@lru_cache(maxsize=2)
def _newest(logs: DeltaLogs, *, strict: bool) -> DeleteIndex:
    room = sum(file.size for file in logs.files) // _KEY_BYTES
    return DeleteIndex(logs.deletes(strict=strict), logs.until, logs.most, room)


@lru_cache(maxsize=2)
def _every(logs: DeltaLogs, *, strict: bool) -> DeleteHistory:
    return DeleteHistory(logs.deletes(strict=strict), logs.until, logs.most)
