"""Whether the files of a location have headers: judged by all of them, by the files next to them, by their sizes.

Eight bytes of numbers can look like a header without metadata, so no file is judged by itself. Section 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sawlog.deephaven.types import FIXED, ColumnType
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.header import FileHeader

if TYPE_CHECKING:
    from sawlog.deephaven_table.location import ColumnFiles
    from sawlog.storage import File, Storage

_USUAL_STARTS = (layout.MAX_DATA_START, layout.COMPACT_DATA_START)
_CHUNK = 4 << 10


@dataclass(frozen=True, slots=True)
class Primary:
    """A `.dat` or a `.sym`, and how it begins.

    Attributes:
        column: The column it belongs to.
        suffix: Which of its files.
        header: The header that its first bytes can be; None when they can be none.
    """

    column: ColumnFiles
    suffix: str
    header: FileHeader | None

    @property
    def file(self) -> File:
        """The file."""
        return self.column.files[self.suffix]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The generation of a location.

    Attributes:
        version: Column version.
        certain: Whether something proves it.
    """

    version: int
    certain: bool = True


def judge(primaries: list[Primary], widths: Mapping[str, int], count: int | None, storage: Storage) -> Verdict:
    """Weigh what there is: metadata, overflow files, sizes, unused space.

    Args:
        primaries: Every `.dat` and `.sym` of the location.
        widths: Bytes per row of the columns whose type is given, by name.
        count: Committed rows, where `table.size` gives them.
        storage: Where the files are.
    """
    headers = [one.header for one in primaries]
    if any(header is not None and header.certain for header in headers):
        return Verdict(1)
    if any(layout.OVERFLOW in one.column.files or layout.SYMBOL_OVERFLOW in one.column.files for one in primaries):
        return Verdict(1)
    if not primaries or any(header is None for header in headers):
        return Verdict(2)
    with_header, without = (_exact(primaries, widths, count, version) for version in (1, 2))
    if with_header != without:
        return Verdict(1 if with_header else 2)
    if not all(_unused_is_zero(one, storage) for one in primaries):
        return Verdict(2)
    starts = Counter(header.data_start for header in headers if header is not None)
    alike = len(starts) == 1 and (len(primaries) > 1 or next(iter(starts)) in _USUAL_STARTS)
    return Verdict(1, certain=alike)


def _exact(primaries: list[Primary], widths: Mapping[str, int], count: int | None, version: int) -> bool:
    """Whether the data files are exactly as long as the committed rows make them in a column version."""
    data = [one for one in primaries if one.suffix == layout.DATA]
    if not count or not data:
        return False
    for one in data:
        start = one.header.data_start if version == 1 and one.header is not None else 0
        if one.file.size - start not in {count * width for width in _widths(one.column, widths)}:
            return False
    return True


def _widths(column: ColumnFiles, known: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes that a row of a column can have."""
    if column.name in known:
        return (known[column.name],)
    if layout.SYMBOL_OFFSETS in column.files:
        return layout.SYMBOL_SIZE, FIXED[ColumnType.STRING_SET].width
    return (layout.OFFSET_SIZE,) if layout.BINARY in column.files else layout.WIDTHS


def _unused_is_zero(one: Primary, storage: Storage) -> bool:
    """Whether nothing is in the space between the metadata and the data."""
    assert one.header is not None
    begin, end = layout.HEADER_SIZE + one.header.prefix_size, one.header.data_start
    for at in range(begin, end, _CHUNK):
        if storage.read(one.file.path, at, min(_CHUNK, end - at)).strip(b"\0"):
            return False
    return True
