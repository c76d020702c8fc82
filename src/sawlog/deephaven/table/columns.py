"""Columns of a location as Arrow arrays, one range of rows after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, view_offsets
from sawlog.deephaven.table import layout
from sawlog.deephaven.table.checkpoint import LocationVerdict, compute_row_width
from sawlog.deephaven.table.codecs import decode_arrays, decode_objects, decode_slots
from sawlog.deephaven.table.layout import ColumnDamageKind
from sawlog.deephaven.table.location import HEAD_SIZE
from sawlog.deephaven.table.symbols import UNUSABLE, SymbolTable, decode_symbol_sets, load_symbols
from sawlog.deephaven.table.values import MAX_VALUE, check_ends, decode_words, gather, make_plain_array, make_text_array
from sawlog.deephaven.types import ARRAYS, ColumnType
from sawlog.errors import SchemaError
from sawlog.format.damage import Damage, Findings
from sawlog.format.scan import Scan
from sawlog.storage import Bytes, Source, is_remote
from sawlog.storage.sources import WINDOW_BYTES
from sawlog.storage.workers import ReadOnce

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.deephaven.table.options import ReadOptions

BATCH_BYTES = 16 << 20
"""Bytes of variable width per batch and column, unless a single value has more."""
EXPANDED_BYTES = 128 << 20
"""Bytes that symbols, which a row only refers to, may at most make in a batch where they are written out."""
SAMPLED_ONE_BY_ONE = 256
"""More rows than these are picked out of all rows."""
_MAX_OVERLAP = 2
"""Values whose offsets overlap are damaged, but not all of them: how often, on average, a byte may be delivered."""


class ColumnReader:
    """Reads one column of a location.

    Args:
        name: The column.
        verdict: What the location is.
        scan: The options.
        findings: Takes the damage.
        symbols: Its symbol table, where other readers in this process take it, too.
        end: The row after the last one that is read; `None` where that is not known.

    Attributes:
        type: The Arrow type that is delivered.
        width: Bytes per row in the primary file.

    Raises:
        SchemaError: When the files are those of another kind of column.
        DamageError: As `findings` sees fit.
    """

    def __init__(
        self,
        name: str,
        verdict: LocationVerdict,
        scan: Scan,
        findings: Findings,
        symbols: ReadOnce[SymbolTable] | None = None,
        end: int | None = None,
    ) -> None:
        options: ReadOptions = scan.options
        self._end = verdict.rows.count if end is None else end
        self._column = verdict.location.columns[name]
        self._spec = verdict.specs[name].adapt_to_files(self._column.files)
        self.type = verdict.specs[name].choose_arrow_type(options.char, options.decimal)
        self._rows = verdict.rows.count
        self._headers = verdict.headers
        self._storage = scan.storage
        self._findings = findings
        self._sentinels = options.sentinels_as_null
        self._slots = bool(self._spec.slot_width)
        self.width = compute_row_width(self._spec, self._column) or self._spec.width
        self._capacity = 0
        self._source: Source | None = None
        self._binary: Source | None = None
        self._symbols: SymbolTable | None = None
        self._shared_symbols = symbols or ReadOnce[SymbolTable]()
        self._ahead: tuple[int, NDArray[np.int64], NDArray[np.bool_]] | None = None
        self._budget = 0
        self._open()
        self._max_rows = self._limit_rows()

    def count_batch_rows(self, first: int, count: int) -> int:
        """Return how many of the next rows make a batch of a reasonable size; at least one."""
        count = min(count, self._max_rows)
        if self._binary is None or first >= self._capacity:
            return count
        stored_rows = min(count, self._capacity - first)
        ends, bad = self._read_offsets(first, stored_rows)
        if int(ends[-1]) - int(ends[0]) <= min(BATCH_BYTES, self._budget) and not bad.any():
            return count
        lengths = np.where(bad, 0, np.diff(ends))
        # Values that overlap would make much of little.
        bad |= (lengths > MAX_VALUE) | (np.cumsum(lengths) > self._budget)
        filled = np.cumsum(np.where(bad, 0, lengths))
        fitting = max(1, int(np.searchsorted(filled, BATCH_BYTES, side="right")))
        return count if fitting == stored_rows else fitting

    def read(self, first: int, count: int) -> pa.Array:
        """Return rows `first` to `first + count`."""
        stored_rows = min(count, max(0, self._capacity - first))
        if not stored_rows:
            return pa.nulls(count, self.type)
        array = self._fit_type(self._decode(first, stored_rows))
        return array if stored_rows == count else pa.concat_arrays([array, pa.nulls(count - stored_rows, self.type)])

    def sample(self, rows: NDArray[np.int64]) -> pa.Array:
        """Return single rows, in order: those that groups begin with. Rows that the files do not hold are null."""
        assert self._column.data is not None
        if len(rows) and rows[-1] >= self._capacity:
            return pa.nulls(len(rows), self.type)
        if self._binary is not None or self._slots:
            return pa.concat_arrays([self.read(row, 1) for row in rows.tolist()])
        if len(rows) <= SAMPLED_ONE_BY_ONE:
            read, path, places = self._storage.read, self._column.data.path, self._start + rows * self.width
            picked = b"".join(read(path, offset, self.width) for offset in places.tolist())
            data = np.frombuffer(picked, np.uint8)
        else:
            windows = np.split(rows, np.flatnonzero(np.diff(rows // (WINDOW_BYTES // self.width))) + 1)
            data = np.concatenate([self._read_rows(window) for window in windows])
        return self._fit_type(self._decode_words(data, 0))

    def close(self) -> None:
        """Give the files back."""
        for source in (self._source, self._binary):
            if source is not None:
                source.close()

    def _fit_type(self, array: pa.Array) -> pa.Array:
        """Return the values as the Arrow type that is asked for."""
        if array.type == self.type:
            return array
        return array.dictionary_encode() if pa.types.is_dictionary(self.type) else array.cast(self.type)

    def _open(self) -> None:
        data = self._column.data
        if data is None:
            return
        spec, files = self._spec, self._column.files
        foreign_file = spec.find_foreign_file(files)
        if foreign_file is not None:
            raise SchemaError(
                f"{data.path}: column {self._column.name!r} is {spec.type.value}, yet it has a {foreign_file} file:"
                " its type is another one here, or the wrong one was given"
            )
        # A local file's header is read by itself: most have 128 KiB of nothing between it and the values.
        end = layout.MAX_DATA_START + self._end * self.width if is_remote(data.path) else HEAD_SIZE
        self._source = self._storage.open(data.path, end)
        header = self._headers.of(self._column, layout.DATA, self._source)
        if header is None:
            head = bytes(self._source.read_window(0, layout.HEADER_SIZE)).hex(" ") or "nothing"
            detail = f"expected sizes of metadata and header within the file, found {head}"
            self._report_damage(ColumnDamageKind.BAD_HEADER, 0, data.size, detail)
            return
        self._start = header.data_start
        self._little = self._headers.is_little(header)
        self._capacity = min(self._rows, max(0, self._source.size - self._start) // self.width)
        if self._capacity < self._rows:
            end = self._start + self._capacity * self.width
            detail = f"expected {self._rows} rows of {self.width} bytes, found {self._capacity}"
            self._report_damage(ColumnDamageKind.SHORT_FILE, end, max(0, self._source.size - end), detail)
        if spec.has_symbols:
            self._open_symbols()
        elif self.width == layout.OFFSET_SIZE and (spec.variable or layout.BINARY in files):
            self._open_binary()

    def _limit_rows(self) -> int:
        """Return the number of rows of a batch, by the bytes that they may become at most."""
        table = self._symbols
        if self._slots and self._binary is None:
            return max(1, BATCH_BYTES // self.width)
        if table is None or pa.types.is_dictionary(self.type) or not len(table.strings):
            return MAX_VALUE
        if self._spec.type is ColumnType.STRING_SET:
            return max(1, EXPANDED_BYTES // (int(table.strings.nbytes) + layout.MAX_SYMBOLS_IN_SET))
        longest = int(np.diff(view_offsets(table.strings)).max())
        return max(1, EXPANDED_BYTES // max(1, longest))

    def _open_symbols(self) -> None:
        for suffix in (layout.SYMBOL_OFFSETS, layout.SYMBOL_BINARY):
            file = self._column.files.get(suffix)
            if file is None and self._capacity:
                self._report_missing(suffix)
            elif (
                file is not None and suffix == layout.SYMBOL_OFFSETS and self._headers.of(self._column, suffix) is None
            ):
                detail = "expected sizes of metadata and header within the file"
                self._report_damage(ColumnDamageKind.BAD_HEADER, 0, file.size, detail, file.path)
        self._symbols = self._shared_symbols.get(
            lambda: load_symbols(self._column, self._headers, self._spec.charset, self._storage)
        )

    def _open_binary(self) -> None:
        file = self._column.files.get(layout.BINARY)
        if file is None:
            if self._capacity:
                self._report_missing(layout.BINARY)
            self._capacity = 0
            return
        self._binary = self._storage.open(file.path, file.size * self._end // max(1, self._rows))
        self._budget = _MAX_OVERLAP * self._binary.size

    def _report_missing(self, suffix: str) -> None:
        assert self._column.data is not None
        path = self._column.data.path.removesuffix(layout.DATA) + suffix
        self._report_damage(
            ColumnDamageKind.MISSING_FILE, 0, 0, "expected a file next to the column's .dat, found none", path
        )

    def _decode(self, first: int, count: int) -> pa.Array:
        if self._binary is not None:
            return self._decode_variable(first, count)
        return self._decode_words(self._read_window(first, count), first)

    def _decode_words(self, data: Bytes, first: int) -> pa.Array:
        """Return values of a fixed width, of which the first is that of a row."""
        spec = self._spec
        if self._slots:
            array, bad = decode_slots(spec, data, self.type)
            self._report(ColumnDamageKind.BAD_VALUE, first, bad, f"no {spec.type.value} of its codec")
            return array
        values = decode_words(data, self.width, little=self._little)
        if self._symbols is not None and spec.type is ColumnType.STRING:
            indices, unknown = self._symbols.convert_ids(values)
            if unknown is not None:
                detail = f"expected an id of {self._symbols.count} readable symbols"
                self._report(ColumnDamageKind.BAD_SYMBOL, first, unknown, detail)
            return pa.DictionaryArray.from_arrays(indices, self._symbols.strings, safe=False)
        if self._symbols is not None:
            places = self._symbols.places
            unusable = None if places is None else places == UNUSABLE
            array, bad = decode_symbol_sets(values, self._take_symbols(self._symbols), unusable, self.type)
            detail = f"a set with members beyond its {self._symbols.count} symbols, or that cannot be read"
            self._report(ColumnDamageKind.BAD_SYMBOL, first, bad, detail)
            return array
        return make_plain_array(spec.type, values, self.type, sentinels=self._sentinels)

    def _decode_variable(self, first: int, count: int) -> pa.Array:
        assert self._binary is not None
        ends, bad = self._read_offsets(first, count)
        base, end = int(ends[0]), int(ends[-1])
        if bad.any():
            good = np.flatnonzero(~bad)
            base, end = (int(ends[good].min()), int(ends[good + 1].max())) if len(good) else (0, 0)
        slices = gather(ends, bad, self._binary.read_window(base, end - base), base)
        self._budget -= int(slices.ends[-1])
        detail = f"expected ends in order and within {self._binary.size} bytes"
        self._report(ColumnDamageKind.BAD_OFFSET, first, bad, detail)
        spec = self._spec
        if spec.type is ColumnType.STRING:
            array, replaced = make_text_array(slices, spec.charset)
            malformed = np.zeros(count, np.bool_)
            malformed[replaced] = True
            detail = f"not {spec.charset}: what is malformed was replaced"
            self._report(ColumnDamageKind.BAD_VALUE, first, malformed, detail)
            return array
        if spec.type in ARRAYS:
            array, unfit = decode_arrays(spec.type, slices, self.type, sentinels=self._sentinels)
        else:
            array, unfit = decode_objects(spec, slices, self.type)
        self._report(ColumnDamageKind.BAD_VALUE, first, unfit & ~bad, f"no {spec.type.value} as it is serialized")
        return array

    def _read_rows(self, rows: NDArray[np.int64]) -> Bytes:
        """Return the bytes of some rows, by one read from the first to the last."""
        first = int(rows[0])
        return self._read_window(first, int(rows[-1]) + 1 - first).reshape(-1, self.width)[rows - first].ravel()

    def _read_window(self, first: int, count: int) -> Bytes:
        assert self._source is not None
        return self._source.read_window(self._start + first * self.width, count * self.width)

    def _read_offsets(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the end before the first row and the ends of the rows, and which of these cannot be."""
        if self._ahead is not None and self._ahead[0] == first and len(self._ahead[2]) >= count:
            return self._ahead[1][: count + 1], self._ahead[2][:count]
        assert self._binary is not None
        ends = np.zeros(count + 1, np.int64)
        before = min(first, 1)
        data = self._read_window(first - before, count + before)
        ends[1 - before :] = decode_words(data, layout.OFFSET_SIZE, little=self._little).view(np.int64)
        bad = check_ends(ends, self._binary.size)
        self._ahead = (first, ends, bad)
        return ends, bad

    @staticmethod
    def _take_symbols(table: SymbolTable) -> pa.Array:
        if table.places is None:
            return table.strings
        missing = table.places < 0
        return table.strings.take(make_array(np.where(missing, 0, table.places), pa.int64(), missing))

    def _report(self, kind: ColumnDamageKind, first: int, bad: NDArray[np.bool_], detail: str) -> None:
        """Report bad rows, neighbours together."""
        if not bad.any():
            return
        edges = np.flatnonzero(np.diff(np.concatenate([[False], bad, [False]]).astype(np.int8)))
        for begin, end in edges.reshape(-1, 2).tolist():
            if not self._findings.listing:
                remaining_edges = edges[edges >= begin].reshape(-1, 2)
                self._findings.tally(kind.label, len(remaining_edges), int(np.diff(remaining_edges).sum()) * self.width)
                return
            rows = f"row {first + begin}" if end == begin + 1 else f"rows {first + begin} to {first + end - 1}"
            offset = self._start + (first + begin) * self.width
            self._report_damage(
                kind, offset, (end - begin) * self.width, f"column {self._column.name!r}, {rows}: {detail}"
            )

    def _report_damage(
        self, kind: ColumnDamageKind, offset: int, length: int, detail: str, path: str | None = None
    ) -> None:
        assert self._column.data is not None
        damaged_path = self._column.data.path if path is None else path
        self._findings.add_damage(Damage(damaged_path, offset, length, kind.label, detail))
