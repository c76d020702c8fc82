"""Charts of a database: where its bytes are by level, between which keys, and which of them it would answer with."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import fill_null, group_rows, make_fixed_array, unpack_booleans, view_values
from sawlog.format.charts import BarChart, KeySpan, LaneBox, Picture, draw_key_ranges, render_key, render_last_key
from sawlog.leveldb.columns import LEVEL, LIVE, OPERATION_NAMES
from sawlog.leveldb.database.fragments import LOG_LEVEL
from sawlog.leveldb.database.layout import BLOB_NAME, TABLE_NAME
from sawlog.leveldb.database.version import DatabaseVersion

if TYPE_CHECKING:
    from sawlog.leveldb.database.merge import MergedEntries

_FATES = ("live", "older versions", "deletions")
_DELETES = np.array(["delete" in name for name in OPERATION_NAMES])
COUNTED = ("key", "value", "operation", LIVE, "file", LEVEL)


@dataclass(slots=True)
class _Fate:
    """The fate of the entries of a file: bytes of keys and values, and their number, by `_FATES`."""

    sizes: dict[str, int]
    rows: dict[str, int]

    def add(self, sizes: Iterable[int], rows: Iterable[int]) -> None:
        """Count further ones."""
        for name, size, count in zip(_FATES, sizes, rows, strict=True):
            self.sizes[name] += size
            self.rows[name] += count

    @property
    def text(self) -> str:
        """The share that is live, and the number of entries."""
        entries, size = sum(self.rows.values()), sum(self.sizes.values())
        return f"{entries:,} entries, {self.sizes['live'] / max(1, size):.1%} of their bytes live"


class Charts:
    """The charts, and what they count: see `sawlog.format.capabilities.Counting`."""

    columns = ()

    def __init__(self, version: DatabaseVersion) -> None:
        self._version = version
        self._fates: dict[tuple[str, int], _Fate] = {}

    def add(self, entries: MergedEntries) -> None:
        """Count all entries of a part."""
        fates = np.where(entries.live, 0, np.where(_DELETES[entries.codes], 2, 1))
        for run, sizes, rows in zip(entries.runs, *entries.measure_runs(fates, len(_FATES)), strict=True):
            self._find_fate(posixpath.basename(run.path), run.level).add(sizes.tolist(), rows.tolist())

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count entries in columns `COUNTED`."""
        files_and_levels = batch.select(["file", LEVEL])
        firsts, group_numbers = group_rows(files_and_levels)
        deletes = unpack_booleans(pc.match_substring(batch.column("operation"), "delete"))
        fates = np.where(unpack_booleans(batch.column(LIVE)), 0, np.where(deletes, 2, 1))
        lengths = (fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value"))
        size = sum(view_values(lengths_of_column.cast(pa.int64()), np.int64) for lengths_of_column in lengths)
        cells, shape = group_numbers * len(_FATES) + fates, (len(firsts), len(_FATES))
        sizes, rows = (
            np.bincount(cells, weights, math.prod(shape)).astype(np.int64).reshape(shape) for weights in (size, None)
        )
        groups = files_and_levels.take(make_fixed_array(pa.int64(), firsts)).to_pydict()
        for file, level, *of_fates in zip(*groups.values(), sizes.tolist(), rows.tolist(), strict=True):
            self._find_fate(file, level).add(*of_fates)

    def _find_fate(self, file: str, level: int) -> _Fate:
        return self._fates.setdefault((file, level), _Fate(dict.fromkeys(_FATES, 0), dict.fromkeys(_FATES, 0)))

    def draw_pictures(self) -> Iterator[Picture]:
        """Yield levels, key ranges, live and dead bytes, and what compaction has left."""
        version, fates = (
            self._version,
            {file_and_level: fate for file_and_level, fate in self._fates.items() if any(fate.rows.values())},
        )
        spans = [
            KeySpan(
                _describe_level(table.level),
                table.smallest,
                table.end,
                table.file.size,
                LaneBox(
                    0,
                    0,
                    _summarize(table.file.name, table.file.size, fates.get((table.file.name, table.level))),
                    path=table.file.path,
                ),
            )
            for table in version.tables
        ]
        if version.bytewise and spans:
            spans = [
                span._replace(
                    box=span.box._replace(
                        text=f"{span.box.text}; {render_key(span.smallest)} to {render_last_key(span.end)}"
                    )
                )
                for span in spans
            ]
            note = "A range between two bounds of tables is as wide as its bytes. Rows of a level overlap."
            yield draw_key_ranges("Tables by level and key", spans, note)
        sizes = BarChart("bytes")
        for file in version.logs:
            sizes.add("logs", "live", file.size, file.path)
        for table in sorted(version.tables, key=lambda live_table: live_table.level):
            sizes.add(_describe_level(table.level), "live", table.file.size, table.file.path)
        for blobs in version.blobs.values():
            sizes.add("blob files", "live", blobs.file.size, blobs.file.path)
        for file in version.dead:
            kind = "tables" if TABLE_NAME.match(file.name) else "blob files" if BLOB_NAME.match(file.name) else "logs"
            sizes.add(f"{kind} left by compaction", "not named by the MANIFEST", file.size)
        yield sizes.draw_picture("Bytes of files by level")
        alive = BarChart("bytes")
        for (_, level), fate in sorted(fates.items(), key=lambda item: item[0][1]):
            for name in _FATES:
                if fate.sizes[name]:
                    alive.add(_describe_level(level), name, fate.sizes[name])
        if fates:
            note = "Of keys and values, before compression. Older versions and deletions wait for compaction."
            yield alive.draw_picture("Live and dead bytes by level", note, _FATES)


def _describe_level(level: int) -> str:
    return "logs" if level == LOG_LEVEL else f"level {level}"


def _summarize(name: str, size: int, fate: _Fate | None) -> str:
    return f"{name}: {size:,} bytes" + (f", {fate.text}" if fate is not None else "")
