"""Survey of a dataset in one pass: where its bytes went, how its rows lie, and what they hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sawlog.arrow import combine_table, make_array, view_values
from sawlog.dataset.scanning import verify_contents
from sawlog.errors import SawlogError
from sawlog.format.capabilities import Counting, CountsCharts, HasCharts, ReportsFiles, Verification, VerifiesOtherwise
from sawlog.format.charts import Picture
from sawlog.format.contract import Fragment
from sawlog.format.damage import UNSUPPORTED, Damage, FileReport, Findings, Tail, TailStatus, take_damage_batch
from sawlog.format.planning import bind_scan, describe_files, plan_for_threads, plan_fragments
from sawlog.format.scan import OFFSET_COLUMN
from sawlog.guard import wrap_errors
from sawlog.map.content import ColumnStatistics, KeyStatistics, is_key
from sawlog.map.excerpts import ALL_EXCERPTS, MAX_LED_PLACES, RANGES_SHOWN, ROW_BYTES, make_excerpts
from sawlog.map.highlights import Highlights
from sawlog.map.levels import Levels, Ranges, choose_bin_count
from sawlog.map.model import ColumnMap, FileMap, KeysMap, Map
from sawlog.map.order import NOTHING, RowOrder
from sawlog.map.rows import PlacedRows, SampledRows
from sawlog.storage import File

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import sawlog

_SMALLEST_PIECE = 64 << 10
_PIECE_COUNT = 512
"""A file is read in about as many pieces, none of which is smaller."""
SHOWN_ROWS = 20
_MAX_HEAD_CELLS = 4000
"""Values of the first rows, of which tables of many columns have fewer."""
_MAX_TEXT = 120
"""Characters of a value that are shown."""
_MAX_ALL_RANGES = 2000
"""Damaged ranges that are listed, over all files."""
_KEY_COLUMNS = 3
_MIN_ROWS_PER_RESET = 8
"""Where one of so many rows steps back, rows are in another order, such as that of keys."""

Advance = Callable[[int], None]


class _FileSurvey:
    """Survey of one file so far."""

    def __init__(self, file: File, files: int) -> None:
        self.file = file
        self.file_map = FileMap(file.path, file.size)
        self.levels = Levels(file.size, choose_bin_count(files))
        self.sampled_rows = SampledRows(files)
        self.room = _MAX_ALL_RANGES // files + 1

    def take_damaged(self, batch: pa.RecordBatch) -> list[Ranges]:
        """Note damaged and unsupported ranges, of which the first are listed; return where they are."""
        listed = batch.slice(0, max(0, self.room - len(self.file_map.damages)))
        self.file_map.damages += [Damage(*row.values()) for row in listed.to_pylist()]
        offsets, lengths = (view_values(batch.column(name), np.int64) for name in ("offset", "length"))
        return _find_lost_ranges(offsets, lengths, np.array(batch.column("kind").to_pylist(), object))

    def take_piece(self, findings: Findings, damages: list[Ranges], first: int | None) -> None:
        """Enter a piece whose rows have been read."""
        file_map, account = self.file_map, findings.account
        # Accounts add up to the file: where the bytes of the pieces before end, those of this one begin. That need not
        # be where the piece begins, for a row may reach into the next one.
        start = file_map.account.total
        file_map.account.add(account)
        end = file_map.account.total
        file_map.kinds += findings.kinds
        file_map.tail = findings.tail or file_map.tail or Tail(TailStatus.CLEAN, self.file.size, 0)
        exact = [*damages]
        if account.header and first is not None and start < first:
            exact.append(_make_range(start, min(first, start + account.header), "header"))
        tail = findings.tail
        if tail is not None and tail.length:
            use = "padding" if tail.status is TailStatus.PADDING else "tail"
            exact.append(_make_range(tail.offset, tail.offset + tail.length, use))
        self.levels.add_piece(start, end, account, exact)

    def take_report(self, report: FileReport) -> None:
        """Enter a file whose rows do not say where they are."""
        file_map = self.file_map
        file_map.account, file_map.tail, file_map.kinds = report.account, report.tail, report.kinds
        file_map.damages = report.damages[: self.room]
        exact = [_make_range(0, report.account.header, "header"), *_convert_damage(report.damages)]
        if report.account.tail:
            exact.append(_make_range(report.tail.offset, report.tail.offset + report.tail.length, "tail"))
        self.levels.add_piece(0, self.file.size, report.account, exact)

    def finish(
        self, dataset: sawlog.Dataset, order: RowOrder | None, room: int, places: Sequence[tuple[int, int]] = ()
    ) -> FileMap:
        """Return everything that is known of the file, with at most `room` excerpts besides rows at `places`."""
        file_map, levels = self.file_map, self.levels
        bins = levels.bins
        if levels.order.resets * _MIN_ROWS_PER_RESET > (file_map.rows or 0):
            order, bins["resets"] = None, 0
        file_map.bin_bytes = levels.width
        file_map.bins = {name: bins[name].tolist() for name in bins.dtype.names if name not in ("low", "high")}
        file_map.spans = self.sampled_rows.list_spans()
        file_map.complete = file_map.rows is not None and self.sampled_rows.complete
        filled = bins["low"] <= bins["high"]
        if order is not None and filled.any():
            show = order.convert_value
            for name in ("low", "high"):
                file_map.bins[name] = [show(v) if k else None for v, k in zip(bins[name].tolist(), filled, strict=True)]
            file_map.order = {
                "low": show(bins["low"][filled].min()),
                "high": show(bins["high"][filled].max()),
                "resets": int(levels.order.resets),
                "step": show(levels.order.step),
                "step_at": int(levels.order.step_at),
            }
        samples = zip(bins["sample"].tolist(), bins["sample_bytes"].tolist(), strict=True)
        rows = file_map.spans if len(file_map.spans) <= room // 2 else _sample_evenly(file_map.spans, room // 4)
        rows = [*rows, *_sample_evenly([span for span in samples if span[1]], room // 4), *places]
        file_map.damages.sort(key=lambda damage: damage.offset)
        damages = [(span.offset, span.length) for span in file_map.damages[: min(RANGES_SHOWN, room)]]
        file_map.excerpts = make_excerpts(dataset, self.file, rows, damages)
        return file_map


class _Content:
    """Statistics, keys and first rows of the columns of a file, from its batches.

    Args:
        schema: The columns.
        counting: Counter of the format's own charts, if it has any.
    """

    def __init__(self, schema: pa.Schema, counting: Counting | None) -> None:
        self.schema = schema
        self._counting = counting
        self.rows = 0
        self.columns = [ColumnStatistics(field) for field in schema]
        self._head_rows = min(SHOWN_ROWS, _MAX_HEAD_CELLS // max(1, len(schema)))
        self._keys = [KeyStatistics(field.name) for field in schema if is_key(field)][:_KEY_COLUMNS]
        self._head: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, sizes: NDArray[np.int64]) -> None:
        """Take in a batch, and the bytes of its rows."""
        if self.rows < self._head_rows:
            self._head.append(batch.select(self.schema.names).slice(0, self._head_rows - self.rows))
        self.rows += batch.num_rows
        if self._counting is not None:
            self._counting.add(batch)
        encoded = {keys.name: keys.add(batch.column(keys.name), sizes) for keys in self._keys}
        for column in self.columns:
            name = column.field.name
            column.add(encoded[name] if name in encoded else batch.column(name))

    def fill(self, document: Map) -> None:
        """Enter what was found."""
        document.rows = self.rows
        for column in self.columns:
            low, high = (
                None if value is None else _render_texts(make_array([value], value.type))[0] for value in column.bounds
            )
            kind = str(column.field.type)
            document.columns.append(ColumnMap(column.field.name, kind, column.nulls, low, high, column.distinct))
        rows = pa.Table.from_batches(self._head, self.schema)
        document.head = [
            list(row) for row in zip(*(_render_texts(column) for column in combine_table(rows).columns), strict=True)
        ]
        for keys in self._keys:
            top = keys.top
            often = sum(count for key, count, _ in top if key is not None) > 2 * len(top)
            if keys.repeats and top and top[0][1] < self.rows and often:
                kind = self.schema.field(keys.name).type
                kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                texts = _render_texts(make_array([key for key, _, _ in top], kind))
                named = [(text, rows, size) for text, (_, rows, size) in zip(texts, top, strict=True)]
                document.keys.append(KeysMap(keys.name, named, keys.dropped))


def survey(dataset: sawlog.Dataset, advance: Advance | None = None) -> Map:
    """Look at every byte of a dataset once.

    Files whose pieces do not account for themselves (columns, say, that are read side by side) are verified besides.

    Args:
        dataset: What to look at; damage is noted, whatever its policy is.
        advance: Called with the bytes that have been looked at.
    """
    offset_column = "" if dataset.scan.view == "damage" else OFFSET_COLUMN
    contents = dataset.contents
    counting = contents.make_counting(dataset.request) if isinstance(contents, CountsCharts) else None
    names = [
        *dataset.schema.names,
        *([offset_column] if offset_column else []),
        *(counting.columns if counting is not None else ()),
    ]
    read = dataset.with_projection(list(dict.fromkeys(names)))
    schema, format = dataset.schema, dataset.format
    document = Map([*dataset.scan.roots], format.name, format.title, dataset.scan.view, dataset.info())
    document.skipped = dataset.skipped
    order = RowOrder.of(schema)
    surveys = {file.path: _FileSurvey(file, len(dataset.files)) for file in dataset.files}
    content = _Content(schema, counting if counting is not None and counting.columns else None)
    highlights = Highlights(order)
    accounted = bool(offset_column) and _is_accounted_by_pieces(dataset)
    placed = False
    found_of: list[Findings] = []
    largest = max((file.size for file in read.files), default=0)
    size = max(_SMALLEST_PIECE, largest // _PIECE_COUNT) if accounted else None
    # What reads its files whole says so to their reports, which need not read them again.
    planned = plan_fragments if isinstance(read.contents, ReportsFiles) else plan_for_threads
    for fragment in planned(read.contents, read.request, size):
        survey = surveys.get(fragment.path) if offset_column else None
        if survey is not None and sum(fragment.extent) > survey.file.size:
            survey = None  # it stands for several files
        placed |= survey is not None
        findings = Findings("skip", drained=survey is not None, columns=None if survey is None else [])
        findings.intact = {} if survey is None else None
        findings.observe = counting.add if counting is not None and not counting.columns else None
        if survey is None:
            for batch in fragment.to_batches(findings):
                content.add(batch, np.zeros(batch.num_rows, np.int64))
        else:
            _read_piece(fragment, survey, content, order, highlights, findings, accounted=accounted)
        if not accounted:
            found_of.append(findings)
        if advance is not None:
            advance(fragment.size)
    if not accounted:
        verification = Verification(findings=found_of)
        _take_reports(surveys, verify_contents(dataset.contents, dataset.request, verification))
    content.fill(document)
    document.pictures = [*_draw_pictures(dataset, counting), *highlights.draw_pictures(content.columns)]
    document.order = (order.column, order.kind) if order is not None and placed else None
    room = max(8, ALL_EXCERPTS // max(1, len(surveys)))
    with_excerpts = itertools.islice(surveys.values(), ALL_EXCERPTS // 8)
    rooms = dict.fromkeys((survey.file.path for survey in with_excerpts), room)
    led = _find_box_places(document.pictures)
    document.files = [
        survey.finish(dataset, order, rooms.get(path, 0), [*led.get(path, ()), *highlights.list_places(path)])
        for path, survey in surveys.items()
    ]
    return document


def _draw_pictures(dataset: sawlog.Dataset, counting: Counting | None) -> list[Picture]:
    """Return the charts of the format; one that cannot be drawn says why, and is the last."""
    contents, pictures = dataset.contents, list[Picture]()
    try:
        with wrap_errors(f"{describe_files(contents)}: charts failed"):
            if counting is not None:
                pictures.extend(counting.draw_pictures())
            elif isinstance(contents, HasCharts):
                pictures.extend(contents.draw_pictures(bind_scan(contents, dataset.scan)))
    except (OSError, SawlogError) as error:
        title, note = f"Charts of {dataset.format.title}", f"This could not be drawn: {error}"
        pictures.append(Picture(title, "number", {}, note=note))
    return pictures


def _find_box_places(pictures: Sequence[Picture]) -> dict[str, list[tuple[int, int]]]:
    """Return where in each file the boxes of charts lead to: offset, and bytes to be shown."""
    places: dict[str, set[int]] = {}
    for box in (box for picture in pictures for boxes in picture.lanes.values() for box in boxes):
        if box.path:
            places.setdefault(box.path, set()).add(box.offset)
    room = MAX_LED_PLACES // max(1, len(places))
    return {
        path: [(offset, ROW_BYTES) for offset in _sample_evenly(sorted(offsets), room)]
        for path, offsets in places.items()
    }


def _take_reports(surveys: dict[str, _FileSurvey], reports: Iterable[FileReport]) -> None:
    """Enter what `verify` finds, of files too that only others name."""
    for report in reports:
        if report.path not in surveys:
            surveys[report.path] = _FileSurvey(File(report.path, report.size), len(surveys))
        surveys[report.path].take_report(report)


def _read_piece(
    fragment: Fragment,
    survey: _FileSurvey,
    content: _Content,
    order: RowOrder | None,
    highlights: Highlights,
    findings: Findings,
    *,
    accounted: bool,
) -> None:
    """Take in the rows of a piece, each batch when it is known where the next one begins."""
    start, length = fragment.extent
    damages: list[Ranges] = []
    lost_starts: list[NDArray[np.int64]] = []
    first: int | None = None
    survey.file_map.rows = survey.file_map.rows or 0

    def drain() -> None:
        if (damage_batch := take_damage_batch(findings)) is not None:
            ranges = survey.take_damaged(damage_batch)
            damages.extend(ranges)
            lost_starts.append(np.sort(np.concatenate([group.starts for group in ranges])))

    def drain_batches() -> Iterator[pa.RecordBatch]:
        for batch in fragment.to_batches(findings):
            drain()
            yield batch
        drain()

    def find_end(first: int) -> int:
        """Return the end of the last row, before the tail and before what follows the rows, such as an index."""
        if not accounted:
            return start + length
        account, earlier_bytes, tail = findings.account, survey.file_map.account.total, findings.tail
        after = max(account.tail, tail.length if tail is not None else 0)
        return earlier_bytes + account.total - after - max(0, account.header - max(0, first - earlier_bytes))

    for placed in PlacedRows(drain_batches(), OFFSET_COLUMN, find_end, lost_starts):
        first = int(placed.starts[0]) if first is None else first
        values = order.extract_values(placed.batch) if order is not None else NOTHING
        survey.levels.add_rows(placed.starts, placed.sizes, values)
        highlights.add(fragment.path, (placed.places, placed.lengths), placed.starts, placed.sizes, values)
        survey.sampled_rows.add(placed.places, placed.lengths, lost_starts[-1] if lost_starts else NOTHING)
        survey.file_map.rows += placed.batch.num_rows
        content.add(placed.batch, placed.sizes)
    if lost_starts:
        survey.sampled_rows.keep_around(lost_starts[-1])
    if accounted:
        survey.take_piece(findings, damages, first)


def _convert_damage(damages: Sequence[Damage]) -> list[Ranges]:
    places = np.array([(damage.offset, damage.length) for damage in damages], np.int64).reshape(-1, 2)
    return _find_lost_ranges(places[:, 0], places[:, 1], np.array([damage.kind for damage in damages], object))


def _find_lost_ranges(offsets: NDArray[np.int64], lengths: NDArray[np.int64], kinds: NDArray[Any]) -> list[Ranges]:
    """Return the ranges of a file that are damaged, and those that are unsupported."""
    order = np.argsort(offsets, kind="stable")
    starts, ends, unsupported = offsets[order], (offsets + lengths)[order], (kinds == UNSUPPORTED)[order]
    return [
        Ranges(starts[~unsupported], ends[~unsupported], "damage"),
        Ranges(starts[unsupported], ends[unsupported], UNSUPPORTED),
    ]


def _make_range(start: int, end: int, use: str) -> Ranges:
    return Ranges(np.array([start], np.int64), np.array([max(start, end)], np.int64), use)


def _sample_evenly(items: list[Any], max_count: int) -> list[Any]:
    """Return at most `max_count` of the items, evenly spaced."""
    if len(items) <= max_count or not max_count:
        return items[:max_count]
    return [items[i * len(items) // max_count] for i in range(max_count)]


def _render_texts(values: pa.Array) -> list[str | None]:
    """Return values as text that harms nobody, cut where it is long."""
    from sawlog.format.printing import encode_texts, escape_unprintable

    cut = [None if text is None else escape_unprintable(text) for text in encode_texts(values)]
    return [text if text is None or len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…" for text in cut]


def _is_accounted_by_pieces(dataset: sawlog.Dataset) -> bool:
    """Return whether `verify` says what the pieces find, each of which is a part of one of the files."""
    first = next(iter(plan_for_threads(dataset.contents, dataset.request)), None)
    is_of_file = first is None or first.path in {file.path for file in dataset.files}
    return is_of_file and not isinstance(dataset.contents, ReportsFiles | VerifiesOtherwise)


def inspect_files(dataset: sawlog.Dataset) -> list[FileMap]:
    """Return bins and accounts of files only, without their rows: what a strip shows."""
    surveys = {file.path: _FileSurvey(file, len(dataset.files)) for file in dataset.files}
    if _is_accounted_by_pieces(dataset):
        largest = max((file.size for file in dataset.files), default=0)
        for fragment in plan_for_threads(
            dataset.contents, dataset.request, max(_SMALLEST_PIECE, largest // _PIECE_COUNT)
        ):
            findings = fragment.inspect(every=True)
            survey = surveys[fragment.path]
            survey.file_map.rows = (survey.file_map.rows or 0) + findings.rows
            survey.take_piece(findings, _convert_damage(findings.damages), None)
    else:
        _take_reports(surveys, dataset.verify())
    return [survey.finish(dataset, None, 0) for survey in surveys.values()]
