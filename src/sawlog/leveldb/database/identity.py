"""Whether a table is the table that the MANIFEST means: its bounds, its numbers, and the session that wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sawlog.format.damage import MISMATCHED_FILE, Damage
from sawlog.leveldb.columns import KEY, SEQUENCE
from sawlog.leveldb.table.layout import EXTERNAL_VERSION, RANGE_KEYS_NAME, SESSION, SESSION_DIGITS, SESSION_LOW_DIGITS

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.leveldb.table.meta import TableMap

_SESSION_BYTES = 8
"""Bytes of a unique id that come from the session; the others are a hash."""
_MAX_SHOWN_BYTES = 24
"""Bytes of a key that messages show."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of a table, as the MANIFEST knows it.

    Attributes:
        first: The key of its first entry, and its sequence number; `None` where timestamps are a part of keys.
        last: The same of its last entry.
        session: The bytes of its unique id that say which session wrote it; empty where there are none.
        sequences: The lowest and the highest sequence number of its entries; `None` where the engine records none.
    """

    first: tuple[bytes, int] | None
    last: tuple[bytes, int] | None
    session: bytes
    sequences: tuple[int, int] | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any], *, stamped: bool) -> Identity:
        """Return what an edit says of a new file."""
        session = (row.get("unique_id") or b"")[:_SESSION_BYTES]
        lowest, highest = row.get("smallest_sequence"), row.get("largest_sequence")
        sequences = None if lowest is None or highest is None else (lowest, highest)
        if stamped:
            return cls(None, None, session, sequences)
        first, last = ((row[f"{end}_key"], row[f"{end}_key_sequence"]) for end in ("smallest", "largest"))
        return cls(first, last, session, sequences)

    def check_session(self, table: TableMap, path: str) -> Iterator[Damage]:
        """Yield what is said of a table that another session has written."""
        text = table.properties.get(SESSION, b"")
        session = _parse_session(text)
        if self.session and session and session != self.session:
            detail = f"the MANIFEST names a table of another session than {text.decode(errors='replace')}, its own"
            yield _make_mismatch(path, detail)

    def check_first(self, table: TableMap, batch: pa.RecordBatch, path: str) -> Iterator[Damage]:
        """Yield what is said of a table whose first entries are these."""
        if self.first is not None and not _has_ranges(table):
            yield from _compare_ends("first", self.first, _read_entry(batch, 0, table, self.first), path)

    def check_last(self, table: TableMap, batch: pa.RecordBatch, path: str) -> Iterator[Damage]:
        """Yield what is said of a table whose last entries are these."""
        if self.last is not None and not _has_ranges(table):
            yield from _compare_ends("last", self.last, _read_entry(batch, batch.num_rows - 1, table, self.last), path)

    def check_sequences(
        self, table: TableMap, actual: tuple[int, int] | None, outside: Mapping[int, int], path: str
    ) -> Iterator[Damage]:
        """Yield what is said of the sequence numbers of a table.

        Args:
            table: The table.
            actual: The lowest and the highest of all entries; `None` where some were not read.
            outside: Numbers that the MANIFEST rules out, by the offsets of their blocks.
            path: The table's file.
        """
        if self.sequences is None or _has_ranges(table) or EXTERNAL_VERSION in table.properties:
            return
        lowest, highest = self.sequences
        expected_text = f"the MANIFEST says that its entries have sequence numbers from {lowest} to {highest}"
        for offset, number in sorted(outside.items()):
            yield _make_mismatch(path, f"{expected_text}, and there is {number}", offset)
        if not outside and actual is not None and actual != self.sequences:
            yield _make_mismatch(path, f"{expected_text}, and there are {actual[0]} to {actual[1]}")


def _has_ranges(table: TableMap) -> bool:
    """Return whether bounds may be those of ranges, which are no entries, or entries are in no order."""
    range_keys = any(name == RANGE_KEYS_NAME.decode() for name, _ in table.other_blocks)
    return table.range_deletes is not None or range_keys or table.footer.cuckoo


def _read_entry(batch: pa.RecordBatch, row: int, table: TableMap, recorded: tuple[bytes, int]) -> tuple[bytes, int]:
    key, sequence = batch.column(KEY)[row].as_py(), batch.column(SEQUENCE)[row].as_py()
    if not sequence and EXTERNAL_VERSION in table.properties:
        sequence = recorded[1]  # only the MANIFEST has the number of a table that was taken in
    return key, sequence


def _compare_ends(end_name: str, expected: tuple[bytes, int], actual: tuple[bytes, int], path: str) -> Iterator[Damage]:
    if actual != expected:
        expected_text, actual_text = (
            f"{key[:_MAX_SHOWN_BYTES]!r} with sequence number {sequence}" for key, sequence in (expected, actual)
        )
        yield _make_mismatch(
            path, f"the MANIFEST says that its {end_name} entry is {expected_text}, and it is {actual_text}"
        )


def _make_mismatch(path: str, detail: str, offset: int = 0) -> Damage:
    consequence = (
        "it is of another state of the database: entries may be missing, or be others: copy all files again, of one"
    )
    return Damage(path, offset, 0, MISMATCHED_FILE, f"{detail}: {consequence} state")


def _parse_session(text: bytes) -> bytes:
    """Return what a unique id begins with for a session: the low 64 of its bits; nothing for other texts."""
    if len(text) not in SESSION_DIGITS or not text.isalnum():
        return b""
    high, low = (int(part, 36) for part in (text[:-SESSION_LOW_DIGITS], text[-SESSION_LOW_DIGITS:]))
    return ((low & (1 << 62) - 1) | (high & 3) << 62).to_bytes(_SESSION_BYTES, "little")
