"""Binlog batch of a segment: its files, joined by row position, deletes applied. Sections 4 and 5."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.arrow import combine_column, make_array, make_constant, make_fixed_array, view_values
from sawlog.errors import SchemaError
from sawlog.format.contract import PROVENANCE, Fragment, assemble
from sawlog.format.damage import Damage, Findings
from sawlog.milvus import layout
from sawlog.milvus.collection.dynamic import DynamicField, expand
from sawlog.milvus.collection.model import Batch, Missing, find_missing_fields
from sawlog.milvus.columns import decode, find_damage_kind
from sawlog.milvus.deletes.index import NEVER, DeltaLogs
from sawlog.milvus.fragments import FileFragment
from sawlog.milvus.layout import BinlogDamageKind
from sawlog.milvus.log import Log, open_log
from sawlog.milvus.metadata.schema import make_default
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.payloads.payload import (
    BATCH_ROWS,
    SMALL_FILE_BYTES,
    ColumnStream,
    Payload,
    UnreadableError,
    compute_batch_rows,
    make_mask,
)
from sawlog.milvus.payloads.stored import check_stored, find_field_id, make_bare_field
from sawlog.milvus.types import DELETED, INSERTED, PLACE, ROW_ID, TIMESTAMP, Field
from sawlog.storage import File

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Shared:
    """Facts that all batches of a dataset have in common.

    Attributes:
        fields: The fields of the collection, those of the system included, by column name.
        primary: The primary key; `None` where it is unknown which field it is.
        dynamic: Keys of the dynamic field that are delivered as columns.
        raw: Whether rows are delivered as they lie: no deletes, no default values, no end of life.
        history: Whether rows that are deleted are delivered, too, with the time when they were.
        until: Rows and deletes with a later TSO have not happened.
        since: Rows with an earlier TSO have outlived the collection's time to live.
        opened: Identifies the dataset; no two that were opened share it.
    """

    fields: Mapping[str, Field]
    primary: Field | None
    dynamic: tuple[DynamicField, ...] = ()
    raw: bool = False
    history: bool = False
    until: int | None = None
    since: int | None = None
    opened: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class BatchFragment(Fragment):
    """Fragment of one binlog batch.

    Attributes:
        shared: What all batches have in common.
        batch: Its files.
        place: Ids of collection, partition and segment.
        missing: Files that the metadata names and that are not there; no row of it can be delivered then.
        deltas: The delta logs of its segment.
        across: The delta logs of L0 segments whose deletes concern it.
        reported: Those of them whose damage it reports; other batches report the rest.
        commit: Takes the place of the rows' timestamps, unless 0.
        first: Whether it is the first of its segment that is read: it reports what the segment is missing.
        ended: When its partition was dropped; `None` for one that is there.
        gaps: Missing files and metadata that cost no row of it, and that it reports.
        counts: How many deletes delta logs have by the metadata, by path.
        replaced: Packed bits, 1 for the rows of the batch that a newer one with the same key replaces.
    """

    shared: Shared
    batch: Batch
    place: tuple[int, int, int]
    missing: tuple[Missing, ...] = ()
    deltas: tuple[File, ...] = ()
    across: tuple[File, ...] = ()
    reported: tuple[File, ...] = ()
    commit: int = 0
    first: bool = True
    ended: int | None = None
    gaps: tuple[Missing, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    replaced: bytes | None = None

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        """The files of its fields, and the first where those do not say how they are stored; of column groups all."""
        if self.missing:
            return
        batch = self.batch
        fields_to_read = self._join().fields_to_read.values()
        if batch.groups or not (
            batch.files.keys() >= layout.SYSTEM_FIELDS and any(field.id in batch.files for field in fields_to_read)
        ):
            for log in [*batch.files.values()][: None if batch.groups else 1]:
                yield log.file, 0, log.file.size if log.file.size <= SMALL_FILE_BYTES else 0
        for user_field in fields_to_read:
            id = batch.groups.get(user_field.id, user_field.id)
            if id in batch.files:
                file = batch.files[id].file
                is_own = id == user_field.id and id not in batch.slices
                yield file, 0, file.size if is_own or file.size <= SMALL_FILE_BYTES else 0
        for file in (*(self.deltas if self.first else ()), *self.reported):
            yield file, 0, file.size

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode the batch. One that lacks a file, or whose files disagree, is damaged as a whole."""
        yield from self.decode_traced(schema, findings, [])

    def decode_traced(
        self, schema: pa.Schema, findings: Findings, masks: list[NDArray[np.uint8]]
    ) -> Iterator[pa.RecordBatch]:
        """Decode the batch as `decode` does, and note which of its rows are delivered.

        Args:
            schema: Columns to deliver.
            findings: Receives damage.
            masks: Gets, for the rows of the batch in order, 1 for each that is delivered, 0 for the others.
        """
        for gap in self.gaps:
            findings.add_damage(gap.damage)
        with closing(BatchColumns(self, findings)) as columns:
            join = _Join(self, columns, schema, findings, masks)
            try:
                unread = self._find_unread_fields(join, findings)
                missing = self.missing or unread or columns.find_missing_files(join.fields_to_read.values())
                reported = self.first or not (self.missing or unread) or findings.on_damage == "fail"
                for missing_log in missing if reported else ():
                    findings.add_damage(missing_log.damage)
                if missing:
                    self._report(join, columns, findings)
                    return
                try:
                    yield from join.read_batches()
                except UnreadableError:
                    loss = join.resolve()
                    if loss is None:
                        raise
                    row, damage = loss
                    if findings.on_damage == "fail":
                        yield from join.read_batches(row)
                    self._report(join, columns, findings, damage)
                    yield from join.read_batches()
            except UnreadableError as error:
                self._report(join, columns, findings, error.damage)

    def _find_unread_fields(self, join: _Join, findings: Findings) -> list[Missing]:
        """Return why wanted fields cannot be read. Report, once, those that no schema names, which nobody wants."""
        gaps = {
            _describe_absent_field(self, field): None
            for field in join.fields_to_read.values()
            if field.id in self.batch.unread
        }
        known_ids = {field.id for field in self.shared.fields.values()}
        if self.first and not gaps:
            for detail in {detail: None for id, detail in self.batch.unread.items() if id not in known_ids}:
                findings.add_damage(Missing(self.path, detail, BinlogDamageKind.UNSUPPORTED.label).damage)
        return list(gaps)

    def as_stored(self) -> BatchFragment:
        """Return the same rows, before deletes and times take any away, with the fields that are read for them."""
        read_schema = pa.schema([user_field.to_arrow() for user_field in self._join().fields_to_read.values()])
        projection = replace(self.projection, decoded=read_schema)
        shared = replace(self.shared, raw=True, history=False, until=None, since=None)
        return replace(
            self, projection=projection, shared=shared, deltas=(), across=(), reported=(), gaps=(), replaced=None
        )

    def _join(self) -> _Join:
        """Return rows of the columns that the projection decodes, before anything is read."""
        findings = Findings("skip")
        return _Join(self, BatchColumns(self, findings), pa.schema([]), findings, [])

    def _report(self, join: _Join, columns: BatchColumns, findings: Findings, damage: Damage | None = None) -> None:
        """Report all that is wrong with a batch of which rows are lost."""
        lenient = findings.on_damage != "fail"
        read = join.fields_to_read.values() if lenient else ()
        elsewhere = {log.file.path for id, log in self.batch.files.items() if not self._is_reporting(id, join)}
        for blamed in self._blame_file(damage, read, columns):
            # A damage of the rows of this batch.
            is_own = blamed == damage and blamed.kind == BinlogDamageKind.ROW_COUNT_MISMATCH.label
            if is_own or not (blamed.path in elsewhere and lenient):
                columns.report(blamed)
        join.report_deletes()

    def _is_reporting(self, id: int, join: _Join) -> bool:
        """Return whether this batch reports what is wrong with a file, as the first of its readers that loses rows."""
        return join.loses_first(id) if id in self.batch.slices else id not in self.batch.again

    def _blame_file(self, damage: Damage | None, read: Iterable[Field], columns: BatchColumns) -> list[Damage]:
        """Return all that is wrong with the file in which damage was found, as its own check says, and with others."""
        files = self.batch.files
        other_ids = {id for name in read for id in self.find_file_ids(name)}
        place = damage.path if damage is not None else None
        checked = [log for id, log in files.items() if id in other_ids or log.file.path == place]
        named = {field.id: field for field in self.shared.fields.values()}
        damages: list[Damage] = []
        # Which files belong together is not known where some are missing.
        odd_file = columns.find_odd_file() if not self.missing else None
        for log in sorted(checked, key=lambda log: log.file.path != place):
            common = (self.scan, self.projection, log.file.path, log.file.size, log.file, log)
            damages += FileFragment(*common, None, named).inspect(every=True).damages
            if odd_file is not None and odd_file.path == log.file.path:
                damages.append(odd_file)
        return damages if damage is None or any(listed.path == place for listed in damages) else [damage, *damages]

    def find_file_ids(self, field: Field) -> Collection[int]:
        """Return the ids of the files of the batch that may hold a field."""
        if field.id in self.batch.groups:
            return [self.batch.groups[field.id]]
        return [field.id] if field.id in self.batch.files else self.batch.files.keys()


class _Join:
    """Pass over a batch: the same rows of every wanted column, survivors only."""

    def __init__(
        self,
        fragment: BatchFragment,
        columns: BatchColumns,
        schema: pa.Schema,
        findings: Findings,
        masks: list[NDArray[np.uint8]],
    ) -> None:
        self._fragment = fragment
        self._shared = fragment.shared
        self._options: ReadOptions = fragment.scan.options
        self._schema = schema
        self._findings = findings
        self._columns = columns
        self._position = 0
        self._masks = masks
        self.opened: dict[int, Stored] = {}
        self._losing: set[str] = set()
        self._lives: dict[str, pa.Array] = {}
        self._reported = False

    def read_batches(self, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left, some at a time, from where the last call of this came.

        Args:
            end: The row to stop before; `None`: none.

        Raises:
            UnreadableError: When a page cannot be decoded, or the files do not go together.
        """
        fields = self.fields_to_read
        opened = {
            field.id: stored for field in fields.values() if (stored := self._columns.find_file(field)) is not None
        }
        sample = opened or {layout.ROW_ID_FIELD: self._columns.pick_file()}
        if not opened:  # nothing else proves how many rows there are
            for payload in sample[layout.ROW_ID_FIELD].payloads:
                payload.compute_row_limit(0)
        rows = self._count_rows(sample)
        self._compare(rows)
        for user_field in fields.values():
            if user_field.id not in opened and not user_field.is_optional:
                raise UnreadableError(_describe_absent_field(self._fragment, user_field).damage)
        self._set_offsets(sample[min(sample)])
        self.opened = opened
        step = compute_batch_rows((payload, stored.index) for stored in opened.values() for payload in stored.payloads)
        streams = {id: ColumnStream(stored.payloads, stored.index, step) for id, stored in opened.items()}
        for id, stored in opened.items():
            streams[id].skip(stored.first - stored.base + self._position)
        end = rows if end is None else min(end, rows)
        while self._position < end:
            yield from self._read_step(min(step, end - self._position), fields, streams)

    def resolve(self) -> tuple[int, Damage] | None:
        """Find the rows of which a value is lost, which `read_batches` leaves out from here on.

        Returns:
            The first such row, and its damage; `None` where no value is known to be lost.
        """
        damage_by_row: list[tuple[int, Damage]] = []
        for user_field, stored, payload, start in self._iterate_payloads(self.fields_to_read):
            losses = payload.resolve(stored.index, user_field)
            if losses:
                row = start + min(losses[0].first, payload.rows - 1)
                damage_by_row.append((row - stored.first, payload.make_loss_error(losses).damage))
            first, last = stored.first - start, stored.first - start + stored.rows
            if any(loss.first == loss.end or (loss.first < last and first < loss.end) for loss in losses):
                self._losing.add(stored.path)
        if not damage_by_row:  # whatever is wrong, it is found here
            self._losing.update(stored.path for stored in self.opened.values())
        return min(damage_by_row, key=itemgetter(0), default=None)

    def loses_first(self, id: int) -> bool:
        """Return whether rows of a file are lost here, and none in front; unread files are the first batch's."""
        batch, path = self._fragment.batch, self._fragment.batch.files[id].file.path
        first, last, _ = batch.slices[id]
        try:
            columns = [
                (stored.index, field)
                for field in self.fields_to_read.values()
                if id in self._fragment.find_file_ids(field)
                and (stored := self._columns.find_file(field)) is not None
                and stored.path == path
            ]
        except UnreadableError:
            return id not in batch.again

        def loses(start: int, end: int) -> bool:
            return any(self._columns.loses(id, index, field, (start, end)) for index, field in columns)

        return (path in self._losing if self.opened else loses(first, last)) and not (first and loses(0, first))

    def _mark_sound_rows(self, names: Iterable[str], count: int) -> NDArray[np.uint8]:
        """Return 1 for each of the next `count` rows without known losses in some columns, 0 for others."""
        import numpy as np

        sound = np.ones(count, np.uint8)
        for _, stored, payload, start in self._iterate_payloads(names) if self._losing else ():
            before = stored.first + self._position - start
            for loss in payload.find_losses(stored.index):
                sound[max(0, loss.first - before) : max(0, loss.end - before)] = 0
        return sound

    def _iterate_payloads(self, names: Iterable[str]) -> Iterator[tuple[Field, Stored, Payload, int]]:
        """Yield the payloads of some columns, each with the row of its file that it begins with."""
        for user_field in map(self.fields_to_read.__getitem__, names):
            stored = self.opened.get(user_field.id)
            if stored is not None:
                starts = accumulate((payload.rows for payload in stored.payloads), initial=stored.base)
                for payload, start in zip(stored.payloads, starts, strict=False):
                    yield user_field, stored, payload, start

    @cached_property
    def fields_to_read(self) -> dict[str, Field]:
        """The fields to read: those of the schema, and those that decide which rows survive.

        Reads what is delivered otherwise for counts and checks, too, so that all of them find the same damage.
        """
        shared = self._shared
        names = self._schema.names or self._fragment.projection.decoded.names
        needed_fields = {name: field for name, field in shared.fields.items() if name in names}
        if any(field.name in names for field in shared.dynamic):
            needed_fields |= {name: field for name, field in shared.fields.items() if field.dynamic}
        if shared.raw:
            return needed_fields
        if self._has_deletes or shared.history or shared.until is not None or shared.since is not None:
            needed_fields[TIMESTAMP.name] = TIMESTAMP
        if self._has_deletes and shared.primary is not None:
            needed_fields[shared.primary.name] = shared.primary
        return needed_fields

    def _count_rows(self, stored_columns: Mapping[int, Stored]) -> int:
        """Return how many rows the batch has, by all files that are read.

        Raises:
            UnreadableError: When they disagree.
        """
        counts = {stored.rows for stored in stored_columns.values()}
        odd_file = self._columns.find_odd_file() if len(counts) > 1 else None
        if odd_file is not None:
            raise UnreadableError(odd_file)
        return counts.pop()

    def _compare(self, rows: int) -> None:
        """Report, once, that the files have another number of rows than the metadata says.

        Raises:
            UnreadableError: When files that are not read have other numbers, too.
        """
        batch = self._fragment.batch
        slices = [row_slice.of for row_slice in batch.slices.values()]
        mismatch = batch.describe_other_rows(slices[0] if slices else rows)
        if mismatch is not None:
            odd_file = self._columns.find_odd_file()
            if odd_file is not None:
                raise UnreadableError(odd_file)
            self._columns.report(mismatch)

    def _set_offsets(self, stored: Stored) -> None:
        """Return the places that rows come from: the events of the file with the lowest field id."""
        import numpy as np

        self._events: NDArray[np.int64] = np.array(stored.offsets, np.int64)
        self._ends = stored.base + np.array([*accumulate(payload.rows for payload in stored.payloads)], np.int64)
        self._file = stored.path
        self._first = stored.first

    def _read_step(
        self, count: int, fields: Mapping[str, Field], streams: Mapping[int, ColumnStream]
    ) -> Iterator[pa.RecordBatch]:
        deciding = self._deciding_columns & fields.keys()
        sound = self._mark_sound_rows(deciding, count)
        sound_rows = sound.tobytes().count(1)
        stored = {name: self._take_stored(fields[name], sound_rows, streams, sound) for name in deciding}
        keep = sound.copy()
        keep[sound == 1] = self._find_survivors(stored, sound_rows)
        keep = self._drop_older_rows(keep)
        keep &= self._mark_sound_rows(fields.keys() - deciding, count)
        rows_left = keep.tobytes().count(1)
        if rows_left < sound_rows:
            mask = make_mask(keep[sound == 1])
            stored = {name: column.filter(mask) for name, column in stored.items() if name in self._schema.names}
            self._lives = {name: column.filter(mask) for name, column in self._lives.items()}
        for name, user_field in fields.items():
            if name not in deciding:
                stored[name] = self._take_stored(user_field, rows_left, streams, keep)
        extra = self._expand_dynamic(stored)
        if not self._schema:
            for name in stored:
                self._decode(self._shared.fields.get(name, TIMESTAMP), stored[name])
        columns = extra | {
            field.name: self._make_column(field, stored, rows_left)
            for field in self._schema
            if field.name not in extra
            and (field not in PROVENANCE or field.name in stored or field.name in self._lives)
        }
        batch = assemble(self._schema, rows_left, columns, self._file, lambda: self._make_row_offsets(keep))
        self._position += count
        self._masks.append(keep)
        self._findings.rows += rows_left
        yield batch

    def _take_stored(
        self, field: Field, count: int, streams: Mapping[int, ColumnStream], keep: NDArray[np.uint8]
    ) -> pa.Array:
        """Return the next values of a field as they are stored, `count` of which are kept; nulls where it has no file.

        Raises:
            UnreadableError: When there are fewer.
        """
        stream = streams.get(field.id)
        if stream is None:
            return pa.nulls(count, field.storage or field.choose_arrow_type())
        column = stream.take_selected(keep, count)
        if column is None:
            raise self._make_error(
                field, f"field {field.id}: fewer values than expected", BinlogDamageKind.BAD_PAYLOAD.label
            )
        return column

    def _expand_dynamic(self, stored: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the wanted keys of the dynamic field, as columns."""
        fields = [field for field in self._shared.dynamic if field.name in self._schema.names]
        if not fields:
            return {}
        return expand(fields, next(stored[name] for name, field in self._shared.fields.items() if field.dynamic))

    @property
    def _deciding_columns(self) -> set[str]:
        """Columns that decide which rows survive, and are read before the others."""
        primary = self._shared.primary
        return {TIMESTAMP.name} if primary is None else {TIMESTAMP.name, primary.name}

    def _find_survivors(self, stored: Mapping[str, pa.Array], count: int) -> NDArray[np.uint8]:
        """Return which rows are in the collection."""
        import numpy as np

        shared = self._shared
        if shared.raw or TIMESTAMP.name not in stored:
            return np.ones(count, np.uint8)
        times = view_values(self._decode(TIMESTAMP, stored[TIMESTAMP.name]), np.int64)
        if self._fragment.commit:
            times = np.full(count, self._fragment.commit, np.int64)
        validities: list[NDArray[np.uint8] | None] = []
        ends = np.full(count, self._fragment.ended or NEVER, np.int64) if shared.history else None
        if self._has_deletes and shared.primary is not None:
            keys = self._decode(shared.primary, stored[shared.primary.name])
            self.report_deletes()
            strict = self._findings.on_damage == "fail"
            for logs in self._delta_logs:
                if ends is None:
                    validities.append(logs.read_newest(strict=strict).mark_survivors(keys, times))
                else:
                    ends = np.minimum(ends, logs.read_history(strict=strict).find_ends(keys, times))
        if shared.until is not None:
            validities.append((times <= shared.until).view(np.uint8))
        if shared.since is not None:
            validities.append((times >= shared.since).view(np.uint8))
        if ends is not None:
            self._lives = {
                INSERTED.name: make_fixed_array(INSERTED.type, times),
                DELETED.name: make_array(ends, DELETED.type, ends == NEVER),
            }
        masks = [mask for mask in validities if mask is not None]
        return reduce(np.bitwise_and, masks) if masks else np.ones(count, np.uint8)

    def report_deletes(self) -> None:
        """Report, once, what is wrong with the delta logs that the batch answers for, even if no row of it is read."""
        shared = self._shared
        if self._reported or self._findings.on_damage == "fail" or shared.raw or shared.primary is None:
            return
        self._reported = True
        for logs in self._delta_logs:
            logs.report(self._fragment.reported, self._findings)

    def _drop_older_rows(self, keep: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Take out what newer rows with the same key replace."""
        import numpy as np

        if self._fragment.replaced is None:
            return keep
        end = self._position + len(keep)
        bits = np.frombuffer(self._fragment.replaced, np.uint8)
        replaced = np.unpackbits(bits, count=end, bitorder="little")[self._position :]
        return keep & (1 - replaced)

    @property
    def _has_deletes(self) -> bool:
        """Whether there are any delta logs to heed."""
        return bool(self._fragment.deltas or self._fragment.across)

    @cached_property
    def _delta_logs(self) -> list[DeltaLogs]:
        """The segment's own delta logs, and those that reach across segments."""
        fragment, shared = self._fragment, self._shared
        key = shared.primary.key_type if shared.primary is not None else None
        limits = (self._options.max_item_bytes, self._options.max_delete_bytes)
        place = (key, shared.opened, shared.until, *limits, fragment.scan.storage, fragment.counts)
        return [DeltaLogs(files, *place) for files in (fragment.deltas, fragment.across) if files]

    def _decode(self, field: Field, array: pa.Array) -> pa.Array:
        try:
            return decode(field, array)
        except SchemaError as error:
            raise self._make_error(field, f"from row {self._position} on: {error}", find_damage_kind(error)) from None

    def _make_error(self, field: Field, detail: str, kind: str) -> UnreadableError:
        """Return the error to raise for values of a field, about the event that the current rows begin in."""
        stored = self.opened[field.id]
        ends = list(accumulate(payload.rows for payload in stored.payloads))
        place = min(bisect_right(ends, stored.first + self._position), len(ends) - 1)
        return stored.payloads[place].make_error(f"binlog batch {self._fragment.batch.index}: {detail}", kind)

    def _make_column(self, field: pa.Field, stored: Mapping[str, pa.Array], rows_left: int) -> pa.Array:
        """Return one delivered column of the rows that are left."""
        shared = self._shared
        if field.name in stored:
            source = shared.fields[field.name]
            decoded = self._decode(source, stored[field.name])
            if shared.raw or source.default is None or not decoded.null_count:
                return decoded
            return decoded.fill_null(make_default(source))  # as which 2.5 and later store a missing value
        if field.name in self._lives:
            return self._lives[field.name]
        ids = dict(zip((field.name for field in PLACE), self._fragment.place, strict=True))
        if field.name in ids:
            return make_constant(ids[field.name], pa.int64(), rows_left)
        return pa.nulls(rows_left, field.type)  # a stream has a field that no file of these has

    def _make_row_offsets(self, keep: NDArray[np.uint8]) -> pa.Array:
        import numpy as np

        rows = self._first + self._position + np.flatnonzero(keep)
        return make_fixed_array(pa.int64(), self._events[np.searchsorted(self._ends, rows, side="right")])


class BatchColumns:
    """The files of a batch, opened as they are asked for.

    Args:
        fragment: The batch.
        findings: Takes the damage.
        planning: Whether no rows are wanted, only what the files say of them.
    """

    def __init__(self, fragment: BatchFragment, findings: Findings, *, planning: bool = False) -> None:
        self._fragment = fragment
        self._findings = findings
        self._planning = planning
        self._reported: set[Damage] = set()
        self._files: dict[str, Stored] = {}
        self._logs: dict[str, Log] = {}

    def find_file(self, field: Field) -> Stored | None:
        """Return the file that holds a field; `None` where none does.

        Raises:
            UnreadableError: When the file cannot be read, or cannot hold the values of the field.
        """
        stored = self._find(field)
        for payload in stored.payloads if stored is not None else ():
            check_stored(field, payload, stored.index if stored is not None else 0)
        return stored

    def _find(self, field: Field) -> Stored | None:
        batch = self._fragment.batch
        if field.id in batch.files and not batch.groups:
            stored = self.open(field.id)
            if not stored.is_group:
                return stored
        for id in [batch.groups[field.id]] if field.id in batch.groups else batch.files:
            stored = self.open(id)
            if stored.is_group:
                ids = [make_bare_field(stored, index).id for index, stored in enumerate(stored.payloads[0].schema)]
                if field.id in ids:
                    return replace(stored, index=ids.index(field.id))
        return None

    def find_missing_files(self, fields_to_read: Iterable[Field] = ()) -> Sequence[Missing]:
        """Return files that the batch lacks. Where directories are column groups, their names do not say that.

        Raises:
            UnreadableError: When no file can be read.
        """
        files = self._fragment.batch.files
        ids = dict.fromkeys([*(field.id for field in fields_to_read if field.id in files), *files])
        if not any(self._open_log(files[id].file).shape == "v1" for id in ids) and self.pick_file().is_group:
            return []
        return find_missing_fields(self._fragment.path, self._fragment.batch, self._fragment.shared.fields.values())

    def find_absent_fields(self) -> list[Missing]:
        """Return fields that no row lacks and that none of the column groups holds.

        Raises:
            UnreadableError: When a file cannot be read.
        """
        if not self.pick_file().is_group:
            return []
        fields = [
            field
            for field in self._fragment.shared.fields.values()
            if not field.is_optional and self._find(field) is None
        ]
        return [
            _describe_absent_field(self._fragment, field)
            for field in fields
            if field.id not in self._fragment.batch.unread
        ]

    def count_rows(self) -> dict[int, int]:
        """Return rows of every file that can be read, by field or column group."""
        columns = {}
        before = self._findings, self._reported
        self._findings, self._reported = Findings("skip"), set()  # counting reads no rows
        for id in self._fragment.batch.files:
            with suppress(UnreadableError):
                columns[id] = self.open(id).rows
        self._findings, self._reported = before
        return columns

    def report(self, damage: Damage) -> None:
        """Report damage of the batch, once.

        Raises:
            DamageError: When the policy is `fail`.
        """
        if damage not in self._reported:
            self._reported.add(damage)
            self._findings.add_damage(damage)

    def find_odd_file(self) -> Damage | None:
        """Return the first file that has another number of rows than most files; `None` where all have the same."""
        counts = self.count_rows()
        if len(set(counts.values())) < 2:
            return None
        usual, _ = Counter(counts.values()).most_common(1)[0]
        id = next(id for id, count in sorted(counts.items()) if count != usual)
        counts_text = ", ".join(f"field {id}: {count}" for id, count in sorted(counts.items()))
        batch = self._fragment.batch
        detail = f"the files of binlog batch {batch.index} have different numbers of rows ({counts_text})"
        return Damage(batch.files[id].file.path, 0, 0, BinlogDamageKind.ROW_COUNT_MISMATCH.label, detail)

    def pick_file(self) -> Stored:
        """Return a file that can be read, whichever; its rows are as many as those of the others.

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
        """Return the file of a field, or of a column group, of which no row may be missing.

        Raises:
            UnreadableError: When it cannot be read, or lacks rows that a manifest says it has.
        """
        batch = self._fragment.batch
        file = batch.files[id].file
        span = batch.slices[id][:2] if id in batch.slices else None
        if file.path not in self._files:
            log = self._open_log(file)
            parts = log.require_parts(self.report, span)
            if id not in batch.again:  # another batch counts its bytes
                self._findings.account.record += sum(part.length for part, _ in parts)
            payloads = [payload for _, payload in parts]
            offsets = [part.offset for part, _ in parts]
            self._files[file.path] = Stored(file.path, payloads, offsets, log.is_bare_parquet, 0, *(span or (0, None)))
        payload = self._files[file.path]
        rows = payload.payloads[0].file_rows
        if span is not None and span[1] > rows:
            detail = f"rows {span[0]} to {span[1]} by the manifest, where the file has {rows}"
            raise UnreadableError(Damage(payload.path, 0, 0, BinlogDamageKind.ROW_COUNT_MISMATCH.label, detail))
        return payload

    def loses(self, id: int, index: int, field: Field, span: tuple[int, int]) -> bool:
        """Return whether values of a column are lost, or damage is, in the rows of a file from the first to the end."""
        ((_, payload),) = self._open_log(self._fragment.batch.files[id].file).require_parts(span=span)
        with suppress(UnreadableError):
            deque(payload.read_column_batches(index, BATCH_ROWS), 0)
        first, end = (row - payload.first_row for row in span)
        losses = payload.resolve(index, field)
        return any(loss.first == loss.end or (loss.first < end and first < loss.end) for loss in losses)

    def _open_log(self, file: File) -> Log:
        if file.path not in self._logs:
            scan, planning = self._fragment.scan, self._planning
            self._logs[file.path] = open_log(file, scan.storage, scan.options.max_item_bytes, planning=planning)
        return self._logs[file.path]

    def close(self) -> None:
        """Give the files back."""
        for log in self._logs.values():
            log.close()


@dataclass(frozen=True, slots=True)
class Stored:
    """A column of a file: its payloads, its place among their columns, and where their events begin.

    Attributes:
        path: The file.
        payloads: One per event.
        offsets: Where each event begins.
        is_bare: Whether the file has no envelope.
        index: Which column of the payloads it is.
        first: The first of its rows that is read.
        last: That after the last that is read; `None` for all.
    """

    path: str
    payloads: list[Payload]
    offsets: list[int]
    is_bare: bool
    index: int = 0
    first: int = 0
    last: int | None = None

    @property
    def base(self) -> int:
        """The row that the payloads begin with."""
        return self.payloads[0].first_row

    @property
    def rows(self) -> int:
        """Number of values that are read of it."""
        return (sum(payload.rows for payload in self.payloads) if self.last is None else self.last) - self.first

    @property
    def is_group(self) -> bool:
        """Whether the file is a column group: bare Parquet that names its fields."""
        return self.is_bare and any(find_field_id(stored) is not None for stored in self.payloads[0].schema)


def _describe_absent_field(fragment: BatchFragment, field: Field) -> Missing:
    """Return the message on a field that none of the files of a batch holds, or one that is not read."""
    if field.id in fragment.batch.unread:
        return Missing(fragment.path, fragment.batch.unread[field.id], BinlogDamageKind.UNSUPPORTED.label)
    return Missing(fragment.path, f"field {field.id} ({field.name}) is in none of the batch's files")


def keep_newest(fragments: Sequence[BatchFragment], primary: Field) -> list[BatchFragment]:
    """Return fragments that leave out rows with a newer one of the same key: by timestamp, then by row id.

    Reads keys, timestamps and row ids of all of them. Rows of which one of these is lost neither
    replace others nor are replaced.
    """
    import numpy as np

    schema = pa.schema([primary.to_arrow(), ROW_ID.to_arrow(), TIMESTAMP.to_arrow()])
    parts: list[pa.Table] = []
    masks: list[NDArray[np.uint8]] = []
    for fragment in fragments:
        fragment_masks = [np.empty(0, np.uint8)]
        batches = list(fragment.decode_traced(schema, Findings("skip"), fragment_masks))
        parts.append(pa.Table.from_batches(batches, schema))
        masks.append(np.concatenate(fragment_masks))
    table = pa.concat_tables(parts) if parts else pa.table({})
    if not table.num_rows:
        return list(fragments)
    values, ids, times = (combine_column(column) for column in table.columns)
    keys = view_values(values.dictionary_encode().indices, np.int32)
    order = np.lexsort((view_values(ids, np.int64), view_values(times, np.int64), keys))
    last = np.ones(len(order), bool)
    last[:-1] = keys[order][1:] != keys[order][:-1]
    keep = np.zeros(len(order), np.uint8)
    keep[order[last]] = 1
    selections = []
    row = 0
    for fragment, part, rows in zip(fragments, parts, masks, strict=True):
        replaced = np.zeros(len(rows), np.uint8)
        replaced[rows == 1] = 1 - keep[row : row + part.num_rows]
        selections.append(replace(fragment, replaced=np.packbits(replaced, bitorder="little").tobytes()))
        row += part.num_rows
    return selections
