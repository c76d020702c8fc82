"""The check of one file: every byte of it accounted for, and the damage in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict, compute_row_width
from sawlog.deephaven.table.columns import ColumnReader
from sawlog.deephaven.table.fragments import BATCH_ROWS, make_metadata_damage
from sawlog.deephaven.table.groups.grouping import GroupComparison, is_comparable
from sawlog.deephaven.table.layout import ColumnDamageKind
from sawlog.deephaven.table.location import ColumnFiles
from sawlog.deephaven.table.values import check_ends, decode_words
from sawlog.deephaven.table.views import read_column_grouping
from sawlog.errors import FormatError
from sawlog.format.contract import Fragment
from sawlog.format.damage import Damage, Findings, Tail, TailStatus, take_listed_damage
from sawlog.storage import File

_CHUNK = 8 << 20


@dataclass(frozen=True)
class FileCheck(Fragment):
    """Checks one file of a location.

    Attributes:
        verdict: What the location is.
        file: The file.
        counts: Whether the rows of the location are counted with this file.
        first: Whether it is the first of its location, which says what the location lacks.
        escapes: Where the file really is, if that is outside of what was named; then it is not read.
    """

    verdict: LocationVerdict
    file: File
    counts: bool
    first: bool
    escapes: str = ""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Report the damage of the file; yield empty batches between the steps of the check."""
        del schema
        if self.counts:
            findings.rows += self.verdict.rows.count
        listed_paths = {file.path for file in self.verdict.location.files}
        for gap in (damage_gap.damage for damage_gap in self.verdict.gaps):
            if gap.path == self.path or (self.first and gap.path not in listed_paths):
                findings.add_damage(gap)
        parts = layout.split_name(self.file.name)
        header = used = unreadable = 0
        if self.escapes:
            detail = f"a link to {self.escapes}, outside of what was named: not read"
            self._report_damage(findings, ColumnDamageKind.UNSAFE_PATH, detail)
        elif parts is None:
            header = self._check_other_file(findings)
        elif parts[0] not in self.verdict.specs:
            used = self.file.size
        else:
            column = self.verdict.location.columns[parts[0]]
            header, used = self._measure_file(column, parts[1])
            column_paths = {file.path for file in column.files.values()}
            for damages in self._check_values(column, parts[1]):
                for damage in damages:
                    if damage.path == self.path or (parts[1] == layout.DATA and damage.path not in column_paths):
                        unreadable += damage.length if damage.offset < header else 0
                        findings.add_damage(damage)
                yield pa.RecordBatch.from_arrays([], schema=pa.schema([]))
        self._resolve(findings, header, used, unreadable)

    def _check_other_file(self, findings: Findings) -> int:
        """Return the size of a file that is no column's, or 0 for a table.size that is at odds with the columns."""
        rows = self.verdict.rows
        if self.file.name == layout.TABLE_SIZE and rows.stated is not None:
            detail = f"expected columns of {rows.stated} rows, found {rows.count} in the longest"
            self._report_damage(findings, ColumnDamageKind.SHORT_FILE, detail)
            return 0
        return self.file.size

    def _measure_file(self, column: ColumnFiles, suffix: str) -> tuple[int, int]:
        """Return the sizes of the file's header, and of its data as far as they belong to committed rows."""
        if suffix in (layout.OVERFLOW, layout.SYMBOL_OVERFLOW):
            return self.file.size, 0
        if suffix in (layout.BINARY, layout.SYMBOL_BINARY):
            offsets = layout.DATA if suffix == layout.BINARY else layout.SYMBOL_OFFSETS
            return 0, min(self.file.size, self._find_last_end(column, offsets))
        header = self.verdict.headers.of(column, suffix)
        if header is None:
            return 0, 0
        if suffix == layout.SYMBOL_OFFSETS:
            return header.data_start, (self.file.size - header.data_start) // layout.OFFSET_SIZE * layout.OFFSET_SIZE
        width = compute_row_width(self.verdict.specs[column.name], column) or 1
        return header.data_start, min(self.verdict.rows.count * width, self.file.size - header.data_start)

    def _check_values(self, column: ColumnFiles, suffix: str) -> Iterator[list[Damage]]:
        """Yield the damage of a column that is found by opening it and, for its primary file, by decoding all rows."""
        if column.data is None or suffix not in (layout.DATA, layout.SYMBOL_OFFSETS):
            return
        value_findings = Findings("skip", drained=True)
        headers, count = self.verdict.headers, self.verdict.rows.count
        reader = ColumnReader(column.name, self.verdict, self.scan, value_findings)
        kind, groups = self.verdict.specs[column.name].type, None
        try:
            grouping = read_column_grouping(column, self.verdict, self.scan.storage) if suffix == layout.DATA else None
            if grouping is not None and is_comparable(grouping, kind):
                groups = GroupComparison(grouping, kind, reader.type)
        except FormatError as error:
            value_findings.add_damage(make_metadata_damage(column, headers, str(error)))
        row = 0
        while row < count and suffix == layout.DATA:
            array = reader.read(row, reader.count_batch_rows(row, min(BATCH_ROWS, count - row)))
            wrong = groups.find_differing(row, array) if groups is not None else None
            if wrong is not None:
                groups = None
                detail = f"grouping: row {wrong} is {array[wrong - row]}, and in the group of another value"
                value_findings.add_damage(make_metadata_damage(column, headers, detail))
            row += len(array)
            yield take_listed_damage(value_findings)
        reader.close()
        yield take_listed_damage(value_findings)

    def _find_last_end(self, column: ColumnFiles, suffix: str) -> int:
        """Return how far the binary data is referred to."""
        headers, offsets = self.verdict.headers, column.files.get(suffix)
        header = headers.of(column, suffix) if offsets is not None else None
        if offsets is None or header is None:
            return 0
        count = (offsets.size - header.data_start) // layout.OFFSET_SIZE
        if suffix == layout.DATA:
            count = min(count, self.verdict.rows.count)
        source = self.scan.storage.open(offsets.path)
        last = 0
        for first_byte in range(0, count * layout.OFFSET_SIZE, _CHUNK):
            data = source.read_window(
                header.data_start + first_byte, min(_CHUNK, count * layout.OFFSET_SIZE - first_byte)
            )
            ends = decode_words(data, layout.OFFSET_SIZE, little=headers.is_little(header)).view(np.int64)
            inside = ends[~check_ends(np.concatenate([ends[:1], ends]), self.file.size)]
            last = max(last, int(inside.max(initial=0)))
        source.close()
        return last

    def _resolve(self, findings: Findings, header: int, used: int, unreadable: int) -> None:
        """Bring the account to the size of the file: what is neither header nor rows nor damage is its end."""
        account = findings.account
        account.header += header - unreadable
        surplus = self.file.size - header - used
        damaged = min(account.damage - unreadable, self.file.size - header)
        tail = max(0, min(surplus, self.file.size - header - damaged))
        account.record += self.file.size - header - damaged - tail
        start = self.file.size - tail
        status = TailStatus.CLEAN
        if tail:
            zeros = not self.scan.storage.read(self.path, start, min(tail, _CHUNK)).strip(b"\0")
            status = TailStatus.PADDING if zeros else TailStatus.OPEN
        if status is TailStatus.PADDING:
            account.padding += tail
        else:
            account.tail += tail
        detail = "bytes after the committed rows" if tail else ""
        findings.tail = Tail(status, start, tail, detail)

    def _report_damage(
        self, findings: Findings, kind: ColumnDamageKind, detail: str, offset: int = 0, length: int | None = None
    ) -> None:
        size = self.file.size if length is None else length
        findings.add_damage(Damage(self.path, offset, size, kind.label, detail))
