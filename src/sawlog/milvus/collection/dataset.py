"""Reading collections: a root's files to segments, segments to fragments."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.dataset.scanning import verify_fragments
from sawlog.errors import IncompleteError, OptionError, SchemaError, warn
from sawlog.format.capabilities import Verification, make_follow_error
from sawlog.format.charts import Picture
from sawlog.format.contract import (
    CUT_BYTES,
    PROVENANCE,
    TASK_BYTES,
    BoundScan,
    Contents,
    Format,
    Fragment,
    Projection,
    Range,
    Scan,
    View,
)
from sawlog.format.damage import DAMAGE_SCHEMA, FileReport, Findings, Skipped
from sawlog.format.fields import FieldParser
from sawlog.format.planning import bind_scan, plan_for_threads, plan_fragments
from sawlog.format.scan import NamedTable
from sawlog.milvus import layout, paths
from sawlog.milvus.collection.catalog import (
    COLLECTIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    CollectionFragment,
    MissingFragment,
    SegmentFragment,
)
from sawlog.milvus.collection.checks import describe_metadata_gap, find_left_out, list_remarks, note_rows
from sawlog.milvus.collection.dynamic import EVERY, DynamicField, infer, parse_dynamic
from sawlog.milvus.collection.fragments import BatchFragment, Shared, keep_newest
from sawlog.milvus.collection.infer import infer_fields
from sawlog.milvus.collection.model import Batch, Collection, Missing, Segment, choose_collection, gather
from sawlog.milvus.collection.packed import cut, unpack
from sawlog.milvus.collection.pictures import make_delete_pictures, make_segment_pictures
from sawlog.milvus.collection.selection import (
    Selection,
    find_key_stats,
    find_time_bounds,
    is_outside_times,
    is_selected,
    rule_out_segments,
    select_followed,
    with_deltas,
)
from sawlog.milvus.fields import parse_parts
from sawlog.milvus.fragments import DELETES_SCHEMA, EVENTS_SCHEMA, DeltaFragment, EventsFragment, FileFragment
from sawlog.milvus.layout import BinlogDamageKind, DataType
from sawlog.milvus.metadata.load import Metadata, find_backup_root
from sawlog.milvus.metadata.model import CollectionMeta
from sawlog.milvus.metadata.nearby import MetadataSelection, choose_metadata
from sawlog.milvus.metadata.schema import parse_user_schema
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.paths import LogFile
from sawlog.milvus.types import DELETED, DYNAMIC_KEY, ID_KEY, INSERTED, NULLABLE_KEY, PLACE, SYSTEM, Field
from sawlog.storage import File, Source, confirm_files, read_indexed

_ROW_VIEWS = ("rows", "inserts", "history")
"""The views of the rows of a collection."""
_ROW_EXTRA = (*(field.to_arrow() for field in SYSTEM), *PLACE, *PROVENANCE)
"""Row ids, timestamps, and ids of collection, partition and segment, besides where rows come from."""


_PARQUET_END = b"PAR1"


class SegmentsWarning(UserWarning):
    """Warns that it is unknown which segments are alive, or what is left of a collection's past."""


class CollectionContents(Contents):
    """Contents of a collection below a root."""

    _last: tuple[Projection, frozenset[int]] | None = None
    _is_silent = False

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._options: ReadOptions = scan.options
        self._logs = [log for log in map(paths.parse, files) if log is not None]
        if scan.schema is not None:
            self._logs = select_followed(self._logs, scan)
            files = [log.file for log in self._logs]
        self._files = list(files)
        self._scan = scan
        self._until = self._options.until
        super().__init__(format, files, scan)

    @cached_property
    def collections(self) -> dict[int, Collection]:
        """All collections below the root, by id."""
        return gather(with_deltas(self._logs, self._scan), self._metas, self._backup_root)

    @cached_property
    def collection(self) -> Collection:
        """The collection that is read.

        Raises:
            OptionError: When it is not clear which one that is.
            IncompleteError: When metadata that is cut would say it, and damage is an error.
        """
        location = self._logs[0].root if self._logs else self._backup_root or "milvus_binlog"
        table = self._options.table
        try:
            return self._unpack(
                choose_collection(self._present_collections if table is None else self.collections, table, location)
            )
        except OptionError:
            if self._broken_metadata is not None and self._scan.on_damage == "fail":
                raise IncompleteError(self._broken_metadata.damage) from None
            raise

    @property
    def _selection(self) -> Selection:
        return Selection(self.collection, self._options)

    @cached_property
    def _shown_collection(self) -> list[Collection]:
        """The chosen collection; all of them where none was chosen."""
        return list(map(self._unpack, self._present_collections.values())) if self._is_ambiguous else [self.collection]

    @property
    def _shown_or_known(self) -> list[Collection]:
        """The collection that was named; otherwise all that there are, in the metadata or on disk."""
        if self._options.table is not None:
            return [self.collection]
        return [
            collection
            for id, collection in sorted(self.collections.items())
            if collection.meta is not None or id in self._present_collections
        ]

    def _unpack(self, collection: Collection) -> Collection:
        """Return the collection, the manifests of its segments read."""
        unpack(collection, self._scan.storage)
        return collection

    @cached_property
    def _present_collections(self) -> dict[int, Collection]:
        """The collections that have files, less those that the metadata says are gone."""
        metas = self._metas
        return {
            id: collection
            for id, collection in self.collections.items()
            if collection.has_files and (not metas or id in metas)
        }

    @property
    def _is_ambiguous(self) -> bool:
        """Whether there are several collections and none was named: what concerns all of them still works."""
        return self._options.table is None and len(self._present_collections) > 1

    @cached_property
    def _metadata_selection(self) -> MetadataSelection:
        """The metadata that is named, that of the backup that the files are in, or the nearest that knows them."""
        ids = {log.collection for log in self._logs} - {0}
        roots = {log.root for log in self._logs}
        place = self._options.metadata or self._own_metadata
        return choose_metadata(place, roots, ids, self._until, self._scan.storage)

    def _with_scan(self, scan: Scan) -> CollectionContents:
        """Return contents of the same files and metadata, read otherwise."""
        contents = type(self)(self.format, self._files, scan)
        contents._metadata_selection = self._metadata_selection
        return contents

    @property
    def _metadata(self) -> Metadata | None:
        return self._metadata_selection.metadata

    @cached_property
    def _metas(self) -> Mapping[int, CollectionMeta]:
        """Metadata of collections by id, at the time that is asked for."""
        timeline = self._metadata.timeline if self._metadata is not None else None
        metas = timeline.find_collections(self._until) if timeline is not None else {}
        if self._scan.schema is None:
            return metas
        # What metadata once said of segments says nothing of those that come later.
        return {id: replace(meta, segments=None) for id, meta in metas.items()}

    @cached_property
    def _own_metadata(self) -> str | None:
        """The metadata of the backup that the files are in; `None` where they are in none."""
        return next((file.path for file in self._files if file.name == layout.BACKUP_META), None)

    @property
    def _backup_root(self) -> str | None:
        """Root of a backup's files, if its own metadata is read: all of the collections' files are there."""
        if self._own_metadata is None or self._options.metadata is not None or self._scan.schema is not None:
            return None
        return find_backup_root(self._own_metadata)

    @cached_property
    def _broken_metadata(self) -> Missing | None:
        """Gap of the metadata, where it is cut, or gone from a backup."""
        roots = {log.root for log in self._logs}
        return describe_metadata_gap(self._metadata, roots, self._scan.storage)

    def _report_metadata_gap(self, request: BoundScan) -> Iterator[MissingFragment]:
        """Yield a fragment that reports broken metadata, in front of all that is read without it."""
        if self._broken_metadata is not None:
            yield MissingFragment(
                *request, posixpath.dirname(self._broken_metadata.directory), 0, self._broken_metadata
            )

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The user's fields: of the schema given, of the metadata, or as the files show them."""
        if self._options.schema is not None:
            return self._complete_fields(parse_user_schema(self._options.schema, self._scan.storage)[1])
        meta = self.collection.meta
        if meta is not None and meta.fields:
            return meta.fields
        return self._infer_schema()

    def _infer_schema(self) -> tuple[Field, ...]:
        return infer_fields(self.collection, self._scan.storage, self._options.max_item_bytes)

    def _complete_fields(self, fields: tuple[Field, ...]) -> tuple[Field, ...]:
        """Return fields of a schema that leaves dimensions or element types to the files."""
        if all(field.dim or not field.has_dimension for field in fields):
            return fields
        inferred = {field.id: field for field in self._infer_schema()}
        return tuple(
            replace(field, dim=field.dim or inferred[field.id].dim, element=field.element or inferred[field.id].element)
            if field.has_dimension and field.id in inferred
            else field
            for field in fields
        )

    @cached_property
    def dynamic_fields(self) -> tuple[DynamicField, ...]:
        """Keys of the dynamic field that are delivered as columns."""
        requested = self._options.dynamic_fields
        if not requested:
            return ()
        source = next((field for field in self.fields if field.dynamic), None)
        if source is None:
            raise OptionError("dynamic_fields: the collection has no dynamic field")
        dynamic_fields = {field.name: field for field in parse_dynamic(name for name in requested if name != EVERY)}
        if EVERY in requested:
            dynamic_fields = {**self._infer_dynamic_fields(source), **dynamic_fields}
        taken_names = {field.name for field in self.fields}
        return tuple(field for field in dynamic_fields.values() if field.name not in taken_names)

    def _infer_dynamic_fields(self, source: Field) -> dict[str, DynamicField]:
        types_by_name: dict[str, str] = {}
        options = replace(self._options, dynamic_fields=())
        scan = replace(self._scan, view="rows", columns=(source.name,), filters=(), options=options)
        contents = self._with_scan(scan)
        contents._is_silent = True
        for fragment in plan_for_threads(contents, bind_scan(contents, scan)):
            for batch in fragment.to_batches():
                infer(batch.column(0).to_pylist(), types_by_name)
        return {name: DynamicField(name, kind) for name, kind in sorted(types_by_name.items())}

    @property
    def _key_type(self) -> pa.DataType | None:
        """Type of the keys; `None` where it is unknown, or which field they are."""
        return self.primary.key_type if self.primary is not None else None

    @property
    def primary(self) -> Field | None:
        """The primary key."""
        return next((field for field in self.fields if field.primary), None)

    def check_scan(self, scan: Scan) -> None:
        """Raise a `SchemaError` where rows are read and deletes cannot be applied."""
        if scan.view in ("rows", "history", "damage") and not self._is_ambiguous:
            self._check_key()

    def find_view(self, name: str) -> View[Any]:
        """Return a view; one of no columns, where it is not known which collection is read."""
        view = super().find_view(name)
        if self._scan.schema is not None:
            return replace(view, schema=pa.schema([*self._scan.schema, *self._find_new_fields()]))
        needs_none = self._scan.view in ("frames", "collections", "segments") or bool(
            self._scan.columns or self._scan.filters
        )
        return replace(view, schema=pa.schema([])) if self._is_ambiguous and not needs_none else view

    def _find_new_fields(self) -> Iterator[pa.Field]:
        """Yield fields that a stream did not begin with, by their ids: it leaves them out, whatever their types."""
        columns = self._scan.schema or ()
        ids = {int(column.metadata[ID_KEY]) for column in columns if ID_KEY in (column.metadata or {})}
        if ids:
            added = {log.field for log in self._logs if log.kind == layout.INSERT_LOG} - ids
            yield from (pa.field(str(id), pa.null()) for id in sorted(added) if id >= layout.FIRST_USER_FIELD)

    def _make_user_fields(self) -> list[pa.Field]:
        return [field.to_arrow() for field in self.fields]

    def _make_deletes_schema(self) -> pa.Schema:
        return pa.schema([pa.field("pk", self._key_type or pa.string(), nullable=False), *DELETES_SCHEMA])

    def list_batches(self) -> list[BatchFragment]:
        """Return the binlog batches that the rows are read from."""
        return list(self._plan_batches(bind_scan(self, self.scan)))

    def _plan_rows(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield a fragment per binlog batch; several of a large one in bare Parquet."""
        yield from self._report_metadata_gap(request)
        yield from self._iterate_batches(request, task_bytes)

    def _plan_collections(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        del task_bytes
        yield from self._report_metadata_gap(request)
        for collection in self._shown_or_known:
            yield CollectionFragment(*request, collection.name, 0, collection)

    def _plan_segments(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        del task_bytes
        yield from self._report_metadata_gap(request)
        for collection in self._shown_collection:
            for segment in Selection(collection, self._options).all_segments:
                yield replace(self._make_segment_fragment(request, segment, collection), standalone=True)

    def _plan_deletes(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield a fragment per delta log."""
        del task_bytes
        yield from self._report_metadata_gap(request)
        for segment in self._selection.all_segments:
            counts = segment.count_deletes()
            for log in segment.deltas:
                place = (log.collection, log.partition, log.segment)
                common = (*request, log.file.path, log.file.size, log.file)
                count = counts.get(log.file.path, 0)
                yield DeltaFragment(*common, place, segment.is_l0, self._key_type, count)
            for gap in segment.find_missing_deltas():
                yield MissingFragment(*request, gap.directory, 0, gap)

    def _plan_events(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield a fragment per file."""
        del task_bytes
        yield from self._report_metadata_gap(request)
        for log in self._list_own_logs():
            yield EventsFragment(*request, log.file.path, log.file.size, log.file, log)
        for segment in (
            stored_segment for collection in self._shown_collection for stored_segment in collection.segments.values()
        ):
            gaps = [gap for gap in segment.find_missing_logs() if gap.kind == BinlogDamageKind.MISSING_FILE.label]
            for gap in (*gaps, *segment.find_missing_deltas()):
                yield MissingFragment(*request, gap.directory, 0, gap)

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Return the end of what is committed, as `Followable.find_committed_end` says."""
        del request
        return _find_committed_end(self, file, position)

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Return fragments of new ranges, as `Followable.list_fragments` says."""
        return list(_plan_new_files(self, request, ranges))

    def _list_own_logs(self) -> list[LogFile]:
        """Return all files of the collection, and those of indexes, which do not say whose they are."""
        collection_id = None if self._is_ambiguous else self.collection.id
        return [log for log in self._logs if collection_id is None or log.collection in (collection_id, 0)]

    def _plan_checks(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield every file, and the segments that lack some."""
        del task_bytes
        yield from self._report_metadata_gap(request)
        named = {} if self._is_ambiguous else {field.id: field for field in (*SYSTEM, *self.fields)}
        counts = {path: count for owner in self._shown_collection for path, count in owner.count_deletes().items()}
        for log in self._list_own_logs():
            count = counts.get(log.file.path, 0)
            yield FileFragment(*request, log.file.path, log.file.size, log.file, log, None, named, count)
        for collection in self._shown_collection:
            for segment in collection.segments.values():
                if segment.inserts or segment.meta is not None or segment.is_v3:
                    yield self._make_segment_fragment(request, segment, collection)
                for log in segment.files if segment.manifests else ():
                    common = (*request, log.file.path, log.file.size, log.file, log)
                    yield FileFragment(*common, None, named)

    views: ClassVar = {
        "rows": View(
            lambda self: pa.schema([*self._make_user_fields(), *(field.to_arrow() for field in self.dynamic_fields)]),
            _plan_rows,
            _ROW_EXTRA,
        ),
        "inserts": View(
            lambda self: pa.schema([*self._make_user_fields(), *(field.to_arrow() for field in SYSTEM), *PLACE]),
            _plan_rows,
            _ROW_EXTRA,
        ),
        "history": View(lambda self: pa.schema([*self._make_user_fields(), INSERTED, DELETED]), _plan_rows, _ROW_EXTRA),
        "deletes": View(_make_deletes_schema, _plan_deletes),
        "frames": View(EVENTS_SCHEMA, _plan_events),
        "segments": View(SEGMENTS_SCHEMA, _plan_segments),
        "collections": View(COLLECTIONS_SCHEMA, _plan_collections),
        "damage": View(DAMAGE_SCHEMA, _plan_checks),
    }

    def _make_segment_fragment(self, request: BoundScan, segment: Segment, collection: Collection) -> SegmentFragment:
        fields = () if self._is_ambiguous else (*SYSTEM, *self.fields)
        return SegmentFragment(
            *request,
            segment.directory,
            segment.size,
            segment,
            tuple(segment.list_batches()),
            fields,
            collection.find_partition_name(segment.partition),
        )

    def report_files(self, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
        """Yield every file of every collection, or of the chosen one; then the segments that lack files.

        The rows of a report are those that are read, deletes applied: they count with the first file of their batch.
        In the views `deletes` and `frames`, what those read is checked.
        """
        if self.scan.view in ("deletes", "frames"):
            yield from verify_fragments(self, request, verification)
            return
        sizes = {file.path: file.size for file in self.files}
        packed = [
            segment.files
            for collection in self._shown_collection
            for segment in collection.segments.values()
            if segment.manifests
        ]
        sizes |= {log.file.path: log.file.size for logs in packed for log in logs}
        reports: dict[str, FileReport] = {}
        for fragment in self._plan_checks(request, verification.task_bytes):
            inspected = fragment.inspect(every=verification.lists_all)
            if verification.advance is not None:
                verification.advance(fragment.size if fragment.path in sizes else 0)
            inspected.rows = 0
            if fragment.path in sizes or inspected.kinds:
                reports[fragment.path] = FileReport.of(fragment.path, sizes.get(fragment.path, 0), [inspected])
        note_rows(self.split_collections(), reports)
        confirm_files(self.scan.storage)
        yield from reports.values()

    def split_collections(self) -> Iterator[CollectionContents]:
        """Yield a dataset of each collection.

        Among several, not of those whose rows cannot be read for want of a key.
        """
        if not self._is_ambiguous:
            yield self
            return
        for id in self._present_collections:
            options = replace(self._options, table=str(id))
            scan = replace(self._scan, options=options, view="rows", columns=None, filters=())
            with suppress(SchemaError):
                yield self._with_scan(scan)

    def list_countable_batches(self) -> list[BatchFragment]:
        """Return the batches whose rows are read."""
        return list(self._iterate_batches(bind_scan(self, self.scan), silent=True))

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return a parser of descriptor and events."""
        del file
        return lambda offset: parse_parts(source, offset)

    def find_tables(self) -> list[NamedTable]:
        """Return collections by the names and aliases that they have now, or at the time that is asked for."""
        tables = []
        for id, collection in self._present_collections.items():
            meta = collection.meta
            names = [meta.name, *meta.aliases] if meta is not None else [str(id)]
            database = meta.database if meta is not None else layout.DEFAULT_DATABASE
            tables += [NamedTable(database, name, {"table": str(id)}) for name in names]
        return tables

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Yield segments, rows and deletes; of all collections where none was chosen."""
        del request
        segments = pa.Table.from_batches(self._read_view("segments", None), SEGMENTS_SCHEMA)
        files = {
            segment.id: log.file.path
            for collection in self._shown_collection
            for segment in collection.segments.values()
            for log in (*segment.files, *segment.deltas)[:1]
        }
        read = None if self._is_ambiguous else frozenset(collection.id for collection in self._read)
        yield from make_segment_pictures(segments, files, read, self._until)
        if not self._is_ambiguous:
            yield from make_delete_pictures(self._read_view("deletes", ("timestamp",)), self._until)

    def _read_view(self, view: str, columns: tuple[str, ...] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of another view; what is damaged is for others to report."""
        scan = replace(self.scan, view=view, columns=columns, filters=(), expression=None, on_damage="skip")
        contents = self._with_scan(scan)
        for fragment in plan_fragments(contents, bind_scan(contents, scan), None):
            yield from fragment.to_batches(Findings("skip"))

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return collections, and of the chosen one its schema, segments and rows."""
        del request
        facts: dict[str, Any] = {}
        if self._metadata is not None:
            facts["metadata"] = f"{self._metadata.path} ({self._metadata.title})"
        if besides := (*self._metadata_selection.remarks, *self._metadata_selection.unused):
            facts["other metadata"] = "; ".join(besides)
        if len(self._present_collections) > 1:
            named = (
                f"{collection.name} ({collection.id})" if collection.meta else str(collection.id)
                for collection in self._present_collections.values()
            )
            facts["collections"] = ", ".join(named)
        if self._is_ambiguous:
            return facts
        collection = self.collection
        facts["collection"] = f"{collection.name} ({collection.id})" if collection.meta else str(collection.id)
        segments = [stored_segment for stored_segment in collection.segments.values() if stored_segment.inserts]
        alive = self._selection.alive
        facts["partitions"] = ", ".join(
            collection.find_partition_name(id) for id in sorted({segment.partition for segment in segments})
        )
        facts["segments"] = (
            f"{len(segments)}, {len(alive)} of them read" if len(alive) < len(segments) else len(segments)
        )
        facts["primary key"] = self.primary.name if self.primary is not None else "unknown"
        facts["L0 segments"] = len(collection.list_l0_segments())
        if collection.checkpoint is not None:
            facts["checkpoint"] = f"{layout.decode_tso(collection.checkpoint)}: later writes may be only in the queue"
        guessed = [
            field.name for field in self.fields if field.type is DataType.Array and field.element is DataType.Int32
        ]
        if guessed and self._options.schema is None and collection.meta is None:
            facts["array elements"] = f"int32 in {', '.join(guessed)}: without a schema, int8 and int16 look the same"
        return facts

    def prefetch_headers(self, request: BoundScan) -> None:
        """Read the times of batches that only their files hold, and the statistics of keys."""
        storage = self.scan.storage
        time_range = find_time_bounds(request.projection.query, layout.MAX_TSO - 1)
        for segment in self._selection.all_segments:
            for batch in segment.list_batches():
                is_outside_times(segment, batch, time_range, storage, self._options.max_item_bytes)
            cut(segment.list_batches(), CUT_BYTES, storage, self._options.max_item_bytes)
            if self._options.use_statistics and self.primary is not None:
                for log in find_key_stats(segment, self.primary):
                    read_indexed(storage, log.file, 0, log.file.size)

    def _iterate_batches(
        self, request: BoundScan, task_bytes: int | None = None, *, silent: bool = False
    ) -> Iterator[BatchFragment]:
        fragments: Iterable[BatchFragment] = self._plan_batches(request, task_bytes, silent=silent)
        if self._options.dedupe and self._scan.view == "rows":
            fragments = list(fragments)
            assert self.primary is not None
            fragments = keep_newest(fragments, self.primary)
        yield from fragments

    def _plan_batches(
        self, request: BoundScan, task_bytes: int | None = None, *, silent: bool = False
    ) -> Iterator[BatchFragment]:
        if not (silent or self._is_silent):  # a filter of warnings would be that of all threads
            for remark in self._metadata_selection.remarks:
                warn(remark, SegmentsWarning)
            for remark in list_remarks(self._selection, self._scan.view):
                warn(f"collection {self.collection.name}: {remark}", SegmentsWarning)
        shared = self._make_shared(self._scan.view)
        reported: set[str] = set()
        gaps: list[Missing] = []
        deletes = "ignore" if shared.raw else self._options.deletes
        across = self.collection.group_l0_deltas() if deletes == "apply" else {}
        counts = self.collection.count_deletes()
        field_ids = {field.id for field in self.fields if field.name in request.projection.decoded.names}
        query = request.projection.query
        without = self._rule_out_segments(request)
        bounds = find_time_bounds(query, None if shared.raw else self._until)
        for segment in self._selection.origins if shared.history else self._read:
            if not is_selected(segment, query) or segment.id in without:
                continue
            descendants = self.collection.find_compacted_to(segment) if shared.history else []
            later = [log for descendant in descendants for log in descendant.deltas]
            delete_files = () if deletes == "ignore" else tuple(log.file for log in (*segment.deltas, *later))
            level_zero = across.get(segment.partition, ())
            first = True
            if deletes != "ignore":
                sources = [segment, *(self.collection.find_compacted_to(segment) if shared.history else ())]
                gaps += [gap for source in sources for gap in source.find_missing_deltas()]
            if deletes == "apply":
                gaps += self.collection.find_missing_l0_deltas(segment.partition)
            gaps += segment.find_other_sizes()
            for batch in self._cut_batches(segment, bounds, task_bytes):
                fresh = tuple(file for file in (*delete_files, *level_zero) if file.path not in reported)
                reported |= {file.path for file in fresh}
                sizes = [batch.count_bytes(id) for id in batch.files if id in field_ids | layout.SYSTEM_FIELDS]
                yield BatchFragment(
                    *request,
                    segment.directory,
                    sum(sizes) if field_ids & set(batch.files) else batch.size,
                    shared,
                    batch,
                    (segment.collection, segment.partition, segment.id),
                    tuple(segment.find_missing_logs()),
                    delete_files,
                    level_zero,
                    fresh,
                    segment.meta.commit_timestamp if segment.meta is not None else 0,
                    first,
                    self.collection.find_drop_time(segment.partition),
                    tuple(gap for gap in gaps if gap.directory not in reported),
                    {} if deletes == "ignore" else counts,
                )
                first = False
                reported |= {gap.directory for gap in gaps}
                gaps = []

    def _cut_batches(self, segment: Segment, bounds: tuple[int, int], task_bytes: int | None) -> list[Batch]:
        """Return the batches of a segment that may hold rows within time bounds, large ones cut."""
        place = (self.scan.storage, self._options.max_item_bytes)
        inside = [batch for batch in segment.list_batches() if not is_outside_times(segment, batch, bounds, *place)]
        return inside if task_bytes is None else cut(inside, task_bytes, *place)

    @property
    def _read(self) -> list[Segment]:
        """The segments whose rows are read: those that are alive, or all where that is unknown or not asked for."""
        is_known = self._options.segments or self.collection.has_states
        return self._selection.alive if self._scan.view == "rows" or is_known else self._selection.all_segments

    def _make_shared(self, view: str) -> Shared:
        fields = {field.name: field for field in (*SYSTEM, *self.fields)}
        ttl = self.collection.meta.ttl if self.collection.meta is not None else 0
        moment = self._options.expiry
        since = moment - (ttl * 1000 << layout.LOGICAL_BITS) if view == "rows" and ttl and moment is not None else None
        raw, history = view == "inserts", view == "history"
        return Shared(fields, self.primary, self.dynamic_fields, raw, history, self._until, since)

    def _rule_out_segments(self, request: BoundScan) -> frozenset[int]:
        """Return segments that the statistics of their keys rule out; read once, as long as the request is the same."""
        if self._last is None or self._last[0] is not request.projection:
            used = self._options.use_statistics and self._scan.view in _ROW_VIEWS and not self._is_ambiguous
            ruled_out = frozenset[int]()
            if used and self.primary is not None:
                segments = [segment for segment in self._selection.all_segments if segment.inserts]
                ruled_out = rule_out_segments(segments, self.primary, request.projection.query, self.scan.storage)
            self._last = request.projection, ruled_out
        return self._last[1]

    def _check_key(self) -> None:
        """Check that what needs the primary key can be done.

        Raises:
            OptionError: For `dedupe` where the key is unknown.
            SchemaError: When deletes cannot be applied, because what they delete is unknown.
        """
        if self.primary is not None:
            return
        if self._options.dedupe and self._scan.view == "rows":
            raise OptionError("dedupe: the primary key is unknown; give a schema or metadata")
        if any(segment.deltas for segment in self.collection.segments.values()):
            raise SchemaError(
                f"collection {self.collection.name}: the primary key is unknown, so that deletes cannot be applied:"
                " give schema= or metadata=, or read the view inserts, which has the deleted rows, too"
            )

    def skipped_files(self, request: BoundScan) -> list[Skipped]:
        """Yield what the metadata says is gone or does not name, and what statistics rule out."""
        history = request.scan.view == "history"
        skipped = [*find_left_out(self.collections, self._metas, self._options, history=history)]
        if without := self._rule_out_segments(request):
            segments = [self.collection.segments[id] for id in sorted(without)]
            skipped += [
                Skipped(stored_segment.directory, "the statistics of its keys rule it out", stored_segment.size)
                for stored_segment in segments
            ]
        return skipped


def _check_view(dataset: CollectionContents) -> None:
    """Refuse views that are no streams.

    Raises:
        OptionError: Says which ones are.
    """
    if dataset.scan.view not in layout.FOLLOWED:
        raise make_follow_error(
            dataset, ": what is deleted later cannot be taken back; follow the views 'inserts' and 'deletes'"
        )


def _find_committed_end(dataset: CollectionContents, file: File, position: int) -> int:
    """Return the end of what is committed: files count when they are whole, inserts when all of their batch are."""
    _check_view(dataset)
    if dataset.scan.view == "deletes":
        return file.size if _is_finished(dataset, file) else position
    for segment in dataset.collection.segments.values():
        for logs in segment.inserts.values():
            if any(log.file.path == file.path for log in logs):
                return file.size if _is_complete(dataset, segment, file) else position
    return position


def _plan_new_files(dataset: CollectionContents, request: BoundScan, ranges: Sequence[Range]) -> Iterator[Fragment]:
    """Return fragments of new files. A batch is read with the file of its first field, and once only."""
    _check_view(dataset)
    requested_paths = {row_range.file.path for row_range in ranges}
    shared = dataset._make_shared(request.scan.view) if request.scan.view == "inserts" else None
    for segment in dataset.collection.segments.values():
        place = (segment.collection, segment.partition, segment.id)
        if shared is None:
            for log in segment.deltas:
                if log.file.path in requested_paths:
                    common = (*request, log.file.path, log.file.size, log.file)
                    yield DeltaFragment(*common, place, segment.is_l0)
            continue
        whole_batches = [
            batch
            for batch in segment.list_batches()
            if batch.files and batch.files[min(batch.files)].file.path in requested_paths
        ]
        if whole_batches:
            _check_even(dataset, segment)
        for batch in cut(whole_batches, TASK_BYTES, dataset.scan.storage, dataset._options.max_item_bytes):
            yield BatchFragment(*request, segment.directory, batch.size, shared, batch, place)


def _is_complete(dataset: CollectionContents, segment: Segment, file: File) -> bool:
    """Return whether all files of the batch that a file belongs to are there.

    While one is missing, none can be paired.
    """
    if not _is_even(dataset, segment):
        return False
    batches = (batch.files.values() for batch in segment.list_batches())
    logs = next(logs for logs in batches if any(log.file.path == file.path for log in logs))
    return all(_is_finished(dataset, log.file) for log in logs)


def _is_even(dataset: CollectionContents, segment: Segment) -> bool:
    """Return whether every field that no row lacks has as many files as the others."""
    required, optional = _find_expected(dataset)
    counts = {len(logs) for id, logs in segment.inserts.items() if id not in optional}
    path = next(iter(segment.inserts.values()))[0].file.path
    separate = dataset.scan.storage.read(path, 0, len(layout.MAGIC)) == layout.MAGIC
    return len(counts) == 1 and (not separate or required <= set(segment.inserts))


def _find_expected(dataset: CollectionContents) -> tuple[set[int], set[int]]:
    """Return ids of the fields that a stream began with: those that have a file in every batch, and the others."""
    required = set(layout.SYSTEM_FIELDS)
    optional: set[int] = set()
    for column in dataset.scan.schema or ():
        metadata = column.metadata or {}
        if ID_KEY in metadata:
            absent = NULLABLE_KEY in metadata or DYNAMIC_KEY in metadata
            (optional if absent else required).add(int(metadata[ID_KEY]))
    return required, optional


def _check_even(dataset: CollectionContents, segment: Segment) -> None:
    """Check that files can be paired from the last one on: not if fields lack files while a batch is being written.

    Raises:
        OptionError: When that is so.
    """
    counts = {len(logs) for logs in segment.inserts.values()}
    if len(counts) > 1 and not _is_even(dataset, segment):
        raise OptionError(
            f"{segment.directory}: a binlog batch is being written; start the stream again to repeat this one"
        )


def _is_finished(dataset: CollectionContents, file: File) -> bool:
    """Return whether a file has its end: all that is followed ends with Parquet's mark."""
    length = len(_PARQUET_END)
    return file.size > length and dataset.scan.storage.read(file.path, file.size - length, length) == _PARQUET_END
