"""The files of a binlog batch, opened as they are asked for, and what they say together. Section 4 of the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sawlog.damage import Damage, Findings
from sawlog.milvus_binlog.collection.model import Missing, missing_fields
from sawlog.milvus_binlog.layout import Kind
from sawlog.milvus_binlog.opener import Log, opened
from sawlog.milvus_binlog.payloads.payload import Payload, UnreadableError
from sawlog.milvus_binlog.payloads.stored import bare_field, check_stored, field_id
from sawlog.milvus_binlog.types import Field
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.milvus_binlog.collection.fragments import BatchFragment


class Columns:
    """The files of a batch, opened as they are asked for."""

    def __init__(self, fragment: BatchFragment, findings: Findings, stack: ExitStack) -> None:
        self._fragment = fragment
        self._findings = findings
        self._reported: set[Damage] = set()
        self._stack = stack
        self._files: dict[str, Stored] = {}
        self._logs: dict[str, Log] = {}

    def stored(self, field: Field) -> Stored | None:
        """The file that holds a field; `None` where none does.

        Raises:
            UnreadableError: When the file cannot be read, or cannot hold the values of the field.
        """
        found = self._find(field)
        for payload in found.payloads if found is not None else ():
            check_stored(field, payload, found.index if found is not None else 0)
        return found

    def _find(self, field: Field) -> Stored | None:
        batch = self._fragment.batch
        if field.id in batch.files and not batch.groups:
            found = self.open(field.id)
            if not found.grouped:
                return found
        for id in [batch.groups[field.id]] if field.id in batch.groups else batch.files:
            found = self.open(id)
            if found.grouped:
                ids = [bare_field(stored, at).id for at, stored in enumerate(found.payloads[0].schema)]
                if field.id in ids:
                    return replace(found, index=ids.index(field.id))
        return None

    def missing(self) -> Sequence[Missing]:
        """Files that the batch lacks. Where directories are column groups, their names do not show that.

        Raises:
            UnreadableError: When no file can be read.
        """
        files = (log.file for log in self._fragment.batch.files.values())
        if not any(self._log(file).shape == "v1" for file in files) and self.any().grouped:
            return []
        return missing_fields(self._fragment.path, self._fragment.batch, self._fragment.shared.fields.values())

    def absent(self) -> list[Missing]:
        """Fields that no row lacks and that none of the column groups holds.

        Raises:
            UnreadableError: When a file cannot be read.
        """
        if not self.any().grouped:
            return []
        fields = [one for one in self._fragment.shared.fields.values() if not one.optional and self._find(one) is None]
        return [in_no_file(self._fragment, one) for one in fields if one.id not in self._fragment.batch.unread]

    def counts(self) -> dict[int, int]:
        """Rows of every file that can be read, by field or column group."""
        found = {}
        before = self._findings, self._reported
        self._findings, self._reported = Findings("skip"), set()  # counting reads no rows
        for id in self._fragment.batch.files:
            with suppress(UnreadableError):
                found[id] = self.open(id).rows
        self._findings, self._reported = before
        return found

    def report(self, damage: Damage) -> None:
        """Report damage of the batch, once.

        Raises:
            DamageError: When the policy is `fail`.
        """
        if damage not in self._reported:
            self._reported.add(damage)
            self._findings.damage(damage)

    def odd(self) -> Damage | None:
        """The first file that has another number of rows than most of the files; `None` where all have the same."""
        counts = self.counts()
        if len(set(counts.values())) < 2:
            return None
        usual, _ = Counter(counts.values()).most_common(1)[0]
        id = next(id for id, count in sorted(counts.items()) if count != usual)
        said = ", ".join(f"field {id}: {count}" for id, count in sorted(counts.items()))
        batch = self._fragment.batch
        detail = f"the files of binlog batch {batch.index} have different numbers of rows ({said})"
        return Damage(batch.files[id].file.path, 0, 0, Kind.ROW_COUNT_MISMATCH, detail)

    def any(self) -> Stored:
        """One file that can be read, whichever; its rows are as many as those of the others.

        Raises:
            UnreadableError: When there is none.
        """
        errors = []
        for id in self._fragment.batch.files:
            try:
                return self.open(id)
            except UnreadableError as error:
                errors.append(error)
        raise errors[0]

    def open(self, id: int) -> Stored:
        """The file of a field, or of a column group, of which no row may be missing.

        Raises:
            UnreadableError: When it cannot be read, or lacks rows that a manifest says it has.
        """
        batch = self._fragment.batch
        found = self._whole(batch.files[id].file, counted=id not in batch.again)
        if id not in batch.slices:
            return found
        first, last = batch.slices[id]
        if last > found.rows:
            detail = f"rows {first} to {last} by the manifest, where the file has {found.rows}"
            raise UnreadableError(Damage(found.path, 0, 0, Kind.ROW_COUNT_MISMATCH, detail))
        return replace(found, first=first, last=last)

    def _whole(self, file: File, *, counted: bool) -> Stored:
        """All rows of a file.

        Args:
            file: The file.
            counted: Whether its bytes count here: other batches may read it, too.

        Raises:
            UnreadableError: When it cannot be read.
        """
        if file.path not in self._files:
            log = self._log(file)
            parts = log.whole(self.report)
            self._findings.account.record += sum(part.length for part, _ in parts) if counted else 0
            payloads = [payload for _, payload in parts]
            self._files[file.path] = Stored(file.path, payloads, [part.offset for part, _ in parts], log.bare)
        return self._files[file.path]

    def _log(self, file: File) -> Log:
        if file.path not in self._logs:
            scan = self._fragment.scan
            self._logs[file.path] = self._stack.enter_context(opened(file, scan.storage, scan.options.max_page_bytes))
        return self._logs[file.path]


@dataclass(frozen=True, slots=True)
class Stored:
    """A column of a file: its payloads, its place among their columns, and where their events begin.

    Attributes:
        path: The file.
        payloads: One per event.
        offsets: Where each event begins.
        bare: Whether the file has no envelope.
        index: Which column of the payloads it is.
        first: The first of its rows that is read.
        last: The one after the last that is read; `None` for all.
    """

    path: str
    payloads: list[Payload]
    offsets: list[int]
    bare: bool
    index: int = 0
    first: int = 0
    last: int | None = None

    @property
    def rows(self) -> int:
        """How many values are read of it."""
        return (sum(payload.rows for payload in self.payloads) if self.last is None else self.last) - self.first

    @property
    def grouped(self) -> bool:
        """Whether the file is a column group: bare Parquet that names its fields."""
        return self.bare and any(field_id(stored) is not None for stored in self.payloads[0].schema)


def in_no_file(fragment: BatchFragment, field: Field) -> Missing:
    """What to say of a field that none of the files of a batch holds, or one that is not read."""
    if field.id in fragment.batch.unread:
        return Missing(fragment.path, fragment.batch.unread[field.id], Kind.UNSUPPORTED)
    return Missing(fragment.path, f"field {field.id} ({field.name}) is in none of the batch's files")
