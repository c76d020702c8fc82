"""Selection of the schemas that are read of some data, and the layouts of their records."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sawlog.errors import OptionError
from sawlog.filodb import layout
from sawlog.filodb.judge import PLAIN_WORD, read_header_length
from sawlog.filodb.kernels import state as s
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.schemas import RecordSchema, Schema, Schemas

_WORD = layout.VERSION_WORD.offset
"""Where a container's header has its version word, the same in all of a file."""
_LARGEST_UNKNOWN = 16 << 20
"""Bytes that a record of an unknown schema can have."""
_HEAD = struct.Struct("<IH")
"""What a record begins with: its length and its schema ID."""


class Pool:
    """Things that take long to make, and that one user after the other has to itself, in any thread."""

    def __init__(self) -> None:
        self._idle: dict[Any, list[Any]] = {}

    def take(self, key: Any) -> Any:
        """Return a thing that nobody uses; None if there is none."""
        try:
            return self._idle[key].pop()
        except LookupError:
            return None

    def give(self, key: Any, thing: Any) -> None:
        """Leave a thing to the next user."""
        self._idle.setdefault(key, []).append(thing)


def _make_schema_table(layouts: Sequence[RecordSchema | None], *, plain: bool) -> Any:
    """Return the `SCHEMA` records: how many bytes the records of each layout have.

    Those of unknown schemas are as long as a window can be.
    """
    min_length = layout.LENGTH_SIZE + (0 if plain else layout.SCHEMA_ID_SIZE)
    table = np.zeros(len(layouts), s.SCHEMA)
    for index, record_layout in enumerate(layouts):
        table[index] = (
            (min_length, _LARGEST_UNKNOWN)
            if record_layout is None
            else (record_layout.variable_area_start, record_layout.max_record_size)
        )
    return table


class Tables:
    """Tables by which kernels know records, the same for all files of a selection.

    Args:
        layouts: The layouts that records can have; None for those of unknown schemas, which are only bytes.
        meanings: What each schema ID means to the kernel.
        plain: Whether records have no schema ID.
    """

    def __init__(self, layouts: Sequence[RecordSchema | None], meanings: Any, *, plain: bool) -> None:
        self.layouts = layouts
        self.meanings = meanings
        self.schemas = _make_schema_table(layouts, plain=plain)
        self.smallest = int(self.schemas["smallest"].min())
        self._plain_meanings = self._mark_doubtful({PLAIN_WORD})

    def find_meanings(self, flagged: int) -> Any:
        """Return what each schema ID means in a file whose first container has this version word."""
        return self._plain_meanings if flagged == PLAIN_WORD else self._mark_doubtful({PLAIN_WORD, flagged})

    def _mark_doubtful(self, words: set[int]) -> Any:
        """Return what schema IDs mean, marked as doubtful where a record of the ID begins as a container does."""
        schema_index = self.meanings.copy()
        doubted = [word & layout.MAX_SCHEMA_ID for word in words]
        schema_index[doubted] = s.DOUBTED - schema_index[doubted]
        return schema_index


@dataclass(frozen=True)
class RecordLayout:
    """Layout of the records of one schema.

    Attributes:
        name: Name of the schema.
        schema_id: The ID in the records; None for records without.
        record: The columns.
    """

    name: str
    schema_id: int | None
    record: RecordSchema


@dataclass(frozen=True)
class Selection:
    """Schemas whose records are read of some data.

    Attributes:
        layouts: The layouts of the schemas to deliver.
        is_explicit: Whether the user named them; other known schemas are then skipped, else they are damage.
        known_ids: IDs of all known schemas.
        raw: Whether records of unknown schemas are delivered as bytes.
    """

    layouts: tuple[RecordLayout, ...]
    is_explicit: bool
    known_ids: frozenset[int]
    raw: bool

    @cached_property
    def plain(self) -> bool:
        """Whether records have no schema ID."""
        return any(layout.schema_id is None for layout in self.layouts)

    @cached_property
    def tables(self) -> Tables:
        """The tables for all records."""
        return _make_tables(self.layouts, self.known_ids, self.is_explicit, self.raw)

    @cached_property
    def pool(self) -> Pool:
        """Memory and tables that walks over files leave to those over others."""
        return Pool()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("pool", "tables")}


@lru_cache(maxsize=8)  # files that are opened one by one mostly have the same schemas
def _make_tables(layouts: tuple[RecordLayout, ...], known_ids: frozenset[int], is_explicit: bool, raw: bool) -> Tables:
    """Return the tables of a `Selection`."""
    records: list[RecordSchema | None] = [record_layout.record for record_layout in layouts]
    schema_index = np.full(1 << 16, len(layouts) if raw else s.UNKNOWN, np.int16)
    schema_index[list(known_ids)] = s.NOT_WANTED if is_explicit else s.UNEXPECTED
    for number, record_layout in enumerate(layouts):
        schema_index[record_layout.schema_id or 0] = number
    plain = any(record_layout.schema_id is None for record_layout in layouts)
    return Tables([*records, None] if raw else records, schema_index, plain=plain)


def select(options: ReadOptions, heads: Iterable[Sequence[bytes]] = ()) -> Selection:
    """Resolve which schemas are read, and whether records are samples or part keys, by the first schemas of each file.

    Raises:
        SchemaError: For a schema that is not known.
        OptionError: For a schema without partition columns together with others, or where none of several is named.
    """
    schemas = options.known_schemas
    records: list[memoryview] = []
    if not options.table or options.records == "auto":
        complete: set[int] = set()
        starts = (memoryview(record) for head in heads for record in head)
        pairs = ((id, record) for record in starts if (id := _read_schema_id(record)) not in complete)
        records = [memoryview(record) for record in _choose_records(pairs, complete, schemas)]
    selected: Sequence[Schema] = schemas.select(options.table)
    if not selected:
        selected = _find_schemas(records, schemas) or schemas.select(("all",))
    if not selected:
        # None has partition columns, so that records do not say their schema.
        selected = list(schemas.values())
        if len(selected) != 1:
            raise OptionError(
                f"records have no schema ID: name their schema with table=; schemas: {', '.join(schemas)}"
            )
    if any(schema.partition is None for schema in selected):
        if len(selected) > 1:
            raise OptionError(
                f"table={','.join(options.table)}: records without partition columns have no schema ID;"
                " such a schema is read on its own"
            )
        return Selection((RecordLayout(selected[0].name, None, selected[0].ingestion),), True, frozenset(), False)
    part_keys = options.records == "partkeys" or (options.records == "auto" and _are_part_keys(records, selected))
    layouts = tuple(
        RecordLayout(schema.name, schema.schema_id, schema.part_key if part_keys else schema.ingestion)
        for schema in selected
    )
    ids = frozenset(schema.schema_id for schema in schemas.select(("all",)))
    return Selection(layouts, bool(options.table), ids, "unknown_schemas" in options.salvage)


def find_schema_records(head: bytes, schemas: Schemas, complete: set[int]) -> list[bytes]:
    """Return the records at the start of a file that show its schemas, but for those in `complete`, which may grow.

    They are the first record of each schema, and its first sound one.
    """
    return _choose_records(_iterate_records(head, complete), complete, schemas)


def _choose_records(candidates: Iterable[tuple[int, memoryview]], complete: set[int], schemas: Schemas) -> list[bytes]:
    """Return the first record of each ID, and its first sound one.

    IDs of which no other record shows anything more go to `complete`.
    """
    records: dict[tuple[int, int], bytes] = {}
    tests = list(enumerate((lambda *_: True, RecordSchema.is_whole, RecordSchema.is_filled)))
    for id, record in candidates:
        schema = schemas.by_id(id)
        missing = [(number, shows) for number, shows in tests if schema is not None and (id, number) not in records]
        features = [
            number
            for number, shows in missing
            if schema is not None and any(shows(layout, record) for layout in (schema.ingestion, schema.part_key))
        ]
        records |= {(id, number): bytes(record) for number in features}
        if len(features) == len(missing):
            complete.add(id)
    return list(dict.fromkeys(records.values()))


def join_records(records: Iterable[bytes]) -> bytes:
    """Return records as an index holds them: each after its length."""
    return b"".join(layout.RECORD.encode(record) for record in records)


def split(data: bytes) -> list[bytes]:
    """Return the records that `joined` has put together."""
    records, pos = [], 0
    while pos < len(data):
        start, pos = layout.RECORD.find_ends(data, pos)
        records.append(data[start:pos])
    return records


def _iterate_records(head: bytes, complete: Collection[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield records at the start of some data, container after container, but for IDs in `complete`, which may grow.

    Yields:
        The schema ID of each record, and the record.
    """
    view = memoryview(head)
    pos, length = 0, read_header_length(head, damaged=True)
    if length is None:
        yield from _iterate_adjacent(view, complete)
    word = head[_WORD : _WORD + layout.VERSION_WORD.size]
    while length is not None:
        end = pos + length + layout.LENGTH_SIZE
        yield from _iterate_adjacent(view[pos + layout.CONTAINER_HEADER_SIZE : end], complete)
        pos = head.find(word, end + _WORD) - _WORD
        length = read_header_length(view[pos:]) if pos >= end else None


def _iterate_adjacent(view: memoryview, complete: Collection[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield adjacent records; see `_iterate_records`."""
    pos, limit = 0, len(view)
    while limit - pos > _HEAD.size:
        length, id = _HEAD.unpack_from(view, pos)
        size = length + layout.LENGTH_SIZE
        if size > limit - pos:
            break
        if size < _HEAD.size:  # the record ends inside its ID
            id = _read_schema_id(view[pos : pos + size])
        if id not in complete:
            yield id, view[pos : pos + size]
        pos += size + -size % layout.ALIGNMENT


def _find_schemas(records: Iterable[memoryview], schemas: Schemas) -> Sequence[Schema]:
    """Return the known schemas of records: of readable records, if there are any, for others may have lost theirs."""
    candidates: dict[int, Schema] = {}
    whole_schemas: dict[int, Schema] = {}
    for record in records:
        id = _read_schema_id(record)
        if id not in whole_schemas and (schema := schemas.by_id(id)) is not None:
            candidates[id] = schema
            if any(record_schema.is_whole(record) for record_schema in (schema.ingestion, schema.part_key)):
                whole_schemas[id] = schema
    return list(whole_schemas.values() or candidates.values())


def _read_schema_id(record: memoryview) -> int:
    return int.from_bytes(record[layout.SCHEMA_ID_OFFSET :][: layout.SCHEMA_ID_SIZE], "little")


def _are_part_keys(records: Iterable[memoryview], schemas: Sequence[Schema]) -> bool:
    """Return whether the first record of these schemas that is laid out as either is a part key and not a sample."""
    by_id = {schema.schema_id: schema for schema in schemas}
    for record in records:
        schema = by_id.get(_read_schema_id(record))
        if schema is not None and schema.ingestion.is_filled(record):
            return False
        if schema is not None and schema.part_key.is_filled(record):
            return True
    return False
