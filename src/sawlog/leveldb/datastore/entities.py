"""The view `entities`: Datastore and Firestore exports, one row per entity."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, make_fixed_array, view_binary, view_values
from sawlog.errors import SchemaError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, BoundScan, Format, Scan, View, assemble
from sawlog.format.damage import Damage, Findings
from sawlog.format.planning import bind_scan, plan
from sawlog.leveldb.datastore import layout
from sawlog.leveldb.datastore.exports import describe, find_outputs, is_metadata
from sawlog.leveldb.datastore.plain import MAX_BYTES, PATH_TYPE, PlainEntities
from sawlog.leveldb.datastore.typed import (
    KEY_TYPE,
    NULL,
    Shape,
    check_fields,
    count_fields,
    find_shape,
    make_converter,
    make_field,
    read_typed,
    unite,
)
from sawlog.leveldb.datastore.values import (
    KEY_PROPERTY,
    EntityDecoder,
    EntityError,
    Key,
    decode_path,
    make_json_encoder,
)
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.layout import RECORD_COLUMN
from sawlog.leveldb.log.walk import END_COLUMN, RECORDS_SCHEMA, LogRange
from sawlog.leveldb.records.writes import report_record
from sawlog.storage import File

CHUNK = 2048
"""Entities that the library parses at a time."""
CELLS = 4 << 20
"""Values per batch of typed columns, null or not: an entity takes room in each column."""

ENTITIES_SCHEMA = pa.schema(
    [
        *KEY_TYPE,
        pa.field("path", PATH_TYPE, nullable=False),
        pa.field("properties", pa.string(), nullable=False, metadata={b"sawlog.type": b"json"}),
    ]
)
"""One row per entity: its key, and its properties as a JSON object.

`kind`, `id` and `name` are those of the last step of the path, `key` is the path as text: kinds and ids or names,
joined by slashes, as Firestore writes document paths. A database or namespace that is the default one is empty.
"""


_KEY_FIELD = pa.field(KEY_PROPERTY, pa.struct([*KEY_TYPE, pa.field("path", PATH_TYPE, nullable=False)]), nullable=False)
"""The key in typed columns: what it is made of may be called as properties are."""


@dataclass(slots=True)
class Entity:
    """Decoded entity, and the offset of its record."""

    offset: int
    key: Key
    path: list[dict[str, Any]]
    properties: dict[str, Any]


@dataclass(frozen=True)
class EntityRange(LogRange):
    """The entities of those records that belong to the range."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the entities of a range. A record that is no entity is damage."""
        typed = self.scan.options.properties == "infer"
        columns = {field.name: _make_builder(field, typed=typed) for field in schema}
        decoder = EntityDecoder()
        max_rows = max(1, CELLS // max(1, sum(_count_columns(field.type) for field in schema)))
        batches = LogRange.decode(self, RECORDS_SCHEMA, findings)
        for records in (
            batch.slice(row, max_rows) for batch in batches for row in range(0, max(1, batch.num_rows), max_rows)
        ):
            findings.rows -= records.num_rows
            plain = PlainColumns.of(records, schema, typed=typed)
            if plain is not None:
                yield from self._render(decoder, records, plain, columns, schema, findings)
                continue
            for entities, failed in self._split_entities(decoder, records):
                findings.rows += len(entities)
                yield _make_batch(schema, entities, columns, self.path)
                if failed is not None:
                    report_record(findings, failed)

    def select_samples(self, findings: Findings, signatures: set[int]) -> Iterator[Entity]:
        """Yield entities that together have the properties of all. Adds to the `signatures` of those before."""
        decoder = EntityDecoder()
        for records in LogRange.decode(self, RECORDS_SCHEMA, findings):
            small = _measure_payload(records) <= MAX_BYTES
            sample = (
                records.take(make_array(_render_plain(records).select_samples(signatures), pa.int64()))
                if small
                else records
            )
            for entities, _ in self._split_entities(decoder, sample):
                yield from entities

    def _split_entities(
        self, decoder: EntityDecoder, records: pa.RecordBatch
    ) -> Iterator[tuple[list[Entity], Damage | None]]:
        """Yield entities as the library decodes them, up to and with the next damage inside a record."""
        for start in range(0, records.num_rows, CHUNK):
            yield from self._decode(decoder, records.slice(start, CHUNK))

    def _decode(self, decoder: EntityDecoder, records: pa.RecordBatch) -> Iterator[tuple[list[Entity], Damage | None]]:
        data, bounds = view_binary(records.column(RECORD_COLUMN))
        payload, ends = data.data, bounds.tolist()
        messages = decoder.parse([bytes(payload[a:b]) for a, b in itertools.pairwise(ends)])
        offsets = view_values(records.column(OFFSET_COLUMN), np.int64).tolist()
        kind = self.scan.options.table
        entities: list[Entity] = []
        for index, (offset, message) in enumerate(zip(offsets, messages, strict=True)):
            try:
                if isinstance(message, EntityError):
                    raise message
                key = decoder.decode_key(message)
                if kind is None or key["kind"] == kind:
                    entities.append(Entity(offset, key, decode_path(message), decoder.decode_properties(message)))
            except EntityError as error:
                length = records.column(END_COLUMN)[index].as_py() - offset
                yield entities, Damage(self.path, offset, length, layout.ENTITY_DAMAGE, str(error))
                entities = []
        yield entities, None

    def _render(
        self,
        decoder: EntityDecoder,
        records: pa.RecordBatch,
        plain: PlainColumns,
        columns: Mapping[str, Callable[[list[Entity]], pa.Array]],
        schema: pa.Schema,
        findings: Findings,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a batch of records: plain entities by the kernels, others by the library."""
        library_rows = np.flatnonzero(plain.entities.plain == 0)
        decoded: list[Entity] = []
        damages: list[Damage] = []
        for entities, failed in self._split_entities(
            decoder,
            records.take(make_fixed_array(pa.int64(), library_rows)) if len(library_rows) else records.slice(0, 0),
        ):
            decoded += entities
            damages += [failed] if failed is not None else []
        starts = view_values(records.column(OFFSET_COLUMN), np.int64)
        offsets = np.append(starts[plain.entities.rows], np.array([entity.offset for entity in decoded], np.int64))
        mask = np.ones(len(offsets), bool)
        if (table := self.scan.options.table) is not None:  # the library has left out other kinds
            kinds = plain.entities.make_column("kind").to_pylist()
            mask[: len(kinds)] = [kind == table for kind in kinds]
        if damages and findings.on_damage == "fail":
            mask &= offsets < damages[0].offset
        order = np.argsort(offsets, kind="stable")
        selection = make_fixed_array(pa.int64(), order[mask[order]])

        def make_column(name: str) -> pa.Array:
            values = plain.make_column(name)
            if decoded:
                values = pa.concat_arrays([values, columns[name](decoded)])
            return values if len(selection) == records.num_rows and not decoded else values.take(selection)

        findings.rows += len(selection)

        def take_offsets() -> pa.Array:
            return make_fixed_array(pa.int64(), offsets).take(selection)

        yield assemble(schema, len(selection), make_column, self.path, take_offsets)
        for damage in damages:
            report_record(findings, damage)


class PlainColumns:
    """Columns of the plain entities among some records, by name."""

    def __init__(self, entities: PlainEntities, typed: Mapping[str, pa.Array] | None) -> None:
        self.entities = entities
        self._typed = typed

    @classmethod
    def of(cls, records: pa.RecordBatch, schema: pa.Schema, *, typed: bool) -> PlainColumns | None:
        """Return the columns for some records; `None` where the library has to decode all of them."""
        if _measure_payload(records) > MAX_BYTES:
            return None
        entities = _render_plain(records)
        if not typed:
            return cls(entities, None)
        fields = [field for field in schema if field.name not in (KEY_PROPERTY, FILE_COLUMN, OFFSET_COLUMN)]
        columns = read_typed(entities.make_column("properties"), fields)
        if columns is None:
            return None
        return cls(entities, dict(zip((field.name for field in fields), columns, strict=True)))

    def make_column(self, name: str) -> pa.Array:
        """Return a column of the view's schema."""
        if self._typed is None:
            return self.entities.make_column(name)
        if name == KEY_PROPERTY:
            parts = [self.entities.make_column(field.name) for field in _KEY_FIELD.type]
            return pa.StructArray.from_arrays(parts, fields=list(_KEY_FIELD.type))
        return self._typed[name]


def _render_plain(records: pa.RecordBatch) -> PlainEntities:
    return PlainEntities(*view_binary(records.column(RECORD_COLUMN)))


def _measure_payload(records: pa.RecordBatch) -> int:
    _, offsets = view_binary(records.column(RECORD_COLUMN))
    return int(offsets[-1] - offsets[0])


def _make_batch(
    schema: pa.Schema, entities: list[Entity], columns: Mapping[str, Callable[[list[Entity]], pa.Array]], path: str
) -> pa.RecordBatch:
    return assemble(
        schema,
        len(entities),
        lambda name: columns[name](entities),
        path,
        lambda: make_array([entity.offset for entity in entities], pa.int64()),
    )


def _make_builder(field: pa.Field, *, typed: bool) -> Callable[[list[Entity]], pa.Array]:
    name, kind = field.name, field.type
    if typed:
        return _make_typed_builder(field)
    if name == "path":
        return lambda entities: make_array([entity.path for entity in entities], kind)
    if name == "properties":
        encode = make_json_encoder()
        return lambda entities: make_array([encode(entity.properties) for entity in entities], pa.binary()).view(
            pa.string()
        )
    return lambda entities: make_array([entity.key[name] for entity in entities], kind)


def _make_typed_builder(field: pa.Field) -> Callable[[list[Entity]], pa.Array]:
    """Return a function that makes the column of one property, or of the keys."""
    name, kind = field.name, field.type
    if name == KEY_PROPERTY:
        return lambda entities: make_array([{**entity.key, "path": entity.path} for entity in entities], kind)
    convert = make_converter(field)

    def build_array(entities: list[Entity]) -> pa.Array:
        values = [entity.properties.get(name) for entity in entities]
        try:
            return make_array(values if convert is None else list(map(convert, values)), kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError) as error:
            first = entities[0].key["key"]
            raise SchemaError(f"property {name!r}, in entities from {first!r} on: expected {kind}: {error}") from error

    return build_array


def _count_columns(kind: pa.DataType) -> int:
    """Return the number of columns of values that a type takes."""
    if pa.types.is_list(kind):
        return _count_columns(kind.value_type)
    return sum(_count_columns(field.type) for field in kind) if pa.types.is_struct(kind) else 1


class EntitiesContents(LogContents):
    """The entities of an export: of its data files, or of those that the given metadata lists.

    Raises:
        FormatError: When the metadata lists a file that is not there.
    """

    range_type: ClassVar[type[LogRange]] = EntityRange

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        outputs = find_outputs(files, scan.options, scan.storage)
        super().__init__(format, [file for file in outputs if _may_hold(file, scan.options.table)], scan)
        self._metadata = [file for file in files if is_metadata(file)]

    def _make_schema(self) -> pa.Schema:
        """Return the schema; with `properties="infer"`, the key and one column per property."""
        return ENTITIES_SCHEMA if self.scan.options.properties == "json" else self._inferred_schema

    views: ClassVar = {"entities": View(_make_schema, LogContents._plan_ranges)}

    @cached_property
    def _inferred_schema(self) -> pa.Schema:
        """Typed columns that hold all entities of all files. Reads them all."""
        shapes: dict[str, Shape] = {}
        signatures: set[int] = set()
        options = replace(self.scan.options, properties="json")
        full_contents = EntitiesContents(
            self.format, self.files, Scan("entities", options=options, storage=self.scan.storage)
        )
        for fragment in plan(full_contents, bind_scan(full_contents, full_contents.scan), None):
            assert isinstance(fragment, EntityRange)
            for entity in fragment.select_samples(Findings("skip"), signatures):
                for name, value in entity.properties.items():
                    shapes[name] = unite(shapes.get(name, NULL), find_shape(value))
                check_fields(len(shapes))
        shapes.pop(KEY_PROPERTY, None)
        check_fields(count_fields(("map", shapes)))
        return pa.schema([_KEY_FIELD, *(make_field(*item) for item in shapes.items())])

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the facts that the metadata states, where it is there."""
        facts = super().facts(request)
        for file in self._metadata:
            facts.update(describe(file, self.scan.options, self.scan.storage))
        return facts


def _may_hold(file: File, kind: str | None) -> bool:
    """Return whether a data file may hold entities of a kind; in an export of some kinds the directory says so."""
    directory = posixpath.basename(file.directory)
    if kind is None or not directory.startswith(layout.KIND_DIRECTORY):
        return True
    # How names that are no plain words are spelled there is not documented.
    plain = re.fullmatch(r"\w+", kind, re.ASCII) is not None
    return not plain or directory == layout.KIND_DIRECTORY + kind
