"""Selection of the schemas that are read of some data, and the layouts of their records."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawlog.errors import OptionError
from sawlog.filodb import layout
from sawlog.filodb.judge import LOOK, PLAIN_WORD, read_header_length
from sawlog.filodb.kernels import state as s
from sawlog.filodb.kernels.records import find_record
from sawlog.filodb.options import ReadOptions
from sawlog.filodb.schemas import RecordSchema, Schema, Schemas

_WORD = layout.VERSION_WORD.offset
"""Where a container's header has its version word, the same in all of a file."""
_LARGEST_UNKNOWN = 16 << 20
"""Bytes that a record of an unknown schema can have."""


class Pool:
    """Things that take long to make, and that one user after the other has to itself, in any thread.

    Args:
        limit: So many things are kept, those that were given last; all of them by default.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._idle: deque[tuple[Any, Any]] = deque(maxlen=limit)  # each method of which is one step for threads

    def take(self, key: Any) -> Any:
        """Return a thing that nobody uses; None if there is none."""
        with contextlib.suppress(IndexError):  # which others have taken
            for _ in range(len(self._idle)):
                entry = self._idle.popleft()
                if entry[0] == key:
                    return entry[1]
                self._idle.append(entry)
        return None

    def give(self, key: Any, thing: Any) -> None:
        """Leave a thing to the next user."""
        self._idle.append((key, thing))

    def __reduce__(self) -> tuple[type[Pool], tuple[int | None]]:
        """Return an empty pool: things stay in their process."""
        return (Pool, (self._idle.maxlen,))


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
        definitions: Definitions of the schemas to deliver, as `Schemas.parse` takes them.
    """

    layouts: tuple[RecordLayout, ...] = field(hash=False)
    is_explicit: bool
    known_ids: frozenset[int]
    raw: bool
    definitions: str

    @cached_property
    def plain(self) -> bool:
        """Whether records have no schema ID."""
        return any(layout.schema_id is None for layout in self.layouts)

    @property
    def part_keys(self) -> bool:
        """Whether records are part keys, not samples."""
        return not self.plain and self.layouts[0].record.partition_field_start == 0

    @cached_property
    def tables(self) -> Tables:
        """The tables for all records."""
        layouts = self.layouts
        records: list[RecordSchema | None] = [record_layout.record for record_layout in layouts]
        schema_index = np.full(layout.MAX_SCHEMA_ID + 1, len(layouts) if self.raw else s.UNKNOWN, np.int16)
        schema_index[list(self.known_ids)] = s.NOT_WANTED if self.is_explicit else s.UNEXPECTED
        for number, record_layout in enumerate(layouts):
            schema_index[record_layout.schema_id or 0] = number
        return Tables([*records, None] if self.raw else records, schema_index, plain=self.plain)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "tables"}


class HeadRecord(NamedTuple):
    """Record at the start of some data, and what it shows.

    Attributes:
        data: The record.
        schema: The schema of its ID.
        is_whole: Whether its payloads lie in it, as those of a sample or of a part key.
        is_filled: Whether they fill it, too: no other record of the schema shows more.
        is_part_key: Whether they fill it as those of a part key, and not of a sample.
    """

    data: bytes
    schema: Schema
    is_whole: bool
    is_filled: bool
    is_part_key: bool


def select(options: ReadOptions, heads: Iterable[Sequence[HeadRecord]] = ()) -> Selection:
    """Resolve which schemas are read, and whether records are samples or part keys, by the first schemas of each file.

    Raises:
        SchemaError: For a schema that is not known.
        OptionError: For a schema without partition columns together with others, or where none of several is named.
    """
    schemas = options.known_schemas
    records: list[HeadRecord] = []
    if not options.table or options.records == "auto":
        records = _choose_records(itertools.chain.from_iterable(heads))
    selected: Sequence[Schema] = schemas.select(options.table)
    if not selected:  # those of whole records, if there are any, for others may have lost theirs
        sound_records = [record for record in records if record.is_whole] or records
        selected = list({record.schema.name: record.schema for record in sound_records}.values())
    selected = selected or schemas.select(("all",))
    if not selected:
        # None has partition columns, so that records do not say their schema.
        selected = list(schemas.values())
        if len(selected) != 1:
            raise OptionError(
                f"records have no schema ID: name their schema with table=; schemas: {', '.join(schemas)}"
            )
    if len(selected) > 1 and any(schema.partition is None for schema in selected):
        raise OptionError(
            f"table={','.join(options.table)}: records without partition columns have no schema ID;"
            " such a schema is read on its own"
        )
    part_keys = options.records == "partkeys" or (options.records == "auto" and _are_part_keys(records, selected))
    raw = "unknown_schemas" in options.salvage
    names = tuple(schema.name for schema in selected)
    return _make_selection(schemas, names, part_keys=part_keys, is_explicit=bool(options.table), raw=raw)


@lru_cache(maxsize=8)  # files that are opened one by one mostly have the same schemas
def _make_selection(
    schemas: Schemas, names: tuple[str, ...], *, part_keys: bool, is_explicit: bool, raw: bool
) -> Selection:
    """Return the selection of schemas by their names."""
    selected, definitions = [schemas[name] for name in names], schemas.to_json(names)
    if selected[0].partition is None:
        return Selection((RecordLayout(names[0], None, selected[0].ingestion),), True, frozenset(), False, definitions)
    layouts = tuple(
        RecordLayout(schema.name, schema.schema_id, schema.part_key if part_keys else schema.ingestion)
        for schema in selected
    )
    ids = frozenset(schema.schema_id for schema in schemas.select(("all",)))
    return Selection(layouts, is_explicit, ids, raw, definitions)


def find_schema_records(head: bytes, schemas: Schemas, complete: NDArray[np.uint8] | None = None) -> list[HeadRecord]:
    """Return the records at the start of a file that show its schemas.

    Args:
        head: The bytes there.
        schemas: The known schemas.
        complete: Per schema ID, whether records that others have shown are enough; grows. By default none are.
    """
    if complete is None:
        complete = np.zeros(layout.MAX_SCHEMA_ID + 1, np.uint8)
    return _choose_records(_judge_records(head, schemas, complete))


def split(data: bytes, schemas: Schemas) -> list[HeadRecord]:
    """Return the records that `join_records` has put together."""
    records, pos = [], 0
    while pos < len(data):
        start, pos = layout.RECORD.find_ends(data, pos)
        if (schema := schemas.by_id(_read_schema_id(data[start:pos]))) is not None:
            records.append(_judge(data[start:pos], schema))
    return records


def _judge(data: bytes, schema: Schema) -> HeadRecord:
    """Return a record with what it shows."""
    sample, part_key = schema.ingestion, schema.part_key
    is_sample = sample.is_filled(data)
    is_part_key = not is_sample and part_key.is_filled(data)
    is_filled = is_sample or is_part_key
    return HeadRecord(
        data, schema, is_filled or sample.is_whole(data) or part_key.is_whole(data), is_filled, is_part_key
    )


def _judge_records(head: bytes, schemas: Schemas, complete: NDArray[np.uint8]) -> Iterator[HeadRecord]:
    """Yield the records of known schemas; see `find_schema_records`."""
    for id, data in _iterate_records(head, complete):
        if (schema := schemas.by_id(id)) is None:
            complete[id] = True
        else:
            record = _judge(data, schema)
            complete[id] = record.is_filled
            yield record


def _choose_records(candidates: Iterable[HeadRecord]) -> list[HeadRecord]:
    """Return the first record of each schema, its first whole one, and its first one that is filled."""
    grades: dict[str, int] = {}
    records: list[HeadRecord] = []
    for record in candidates:
        grade = 1 + record.is_whole + record.is_filled
        if grade > grades.get(record.schema.name, 0):
            grades[record.schema.name] = grade
            records.append(record)
    return records


def join_records(records: Iterable[HeadRecord]) -> bytes:
    """Return records as an index holds them: each after its length."""
    return b"".join(layout.RECORD.encode(record.data) for record in records)


def _iterate_records(head: bytes, complete: NDArray[np.uint8]) -> Iterator[tuple[int, bytes]]:
    """Yield records at the start of some data, container after container, but for IDs in `complete`, which may grow.

    Yields:
        The schema ID of each record, and the record.
    """
    data = np.frombuffer(head, np.uint8)
    start, length = 0, read_header_length(head, damaged=True)
    if length is None:
        yield from _iterate_adjacent(data, 0, len(head), complete)
    word = head[_WORD : _WORD + layout.VERSION_WORD.size]
    while length is not None:
        end = start + length + layout.LENGTH_SIZE
        yield from _iterate_adjacent(data, start + layout.CONTAINER_HEADER_SIZE, min(end, len(head)), complete)
        start = head.find(word, end + _WORD) - _WORD
        length = read_header_length(head[start : start + LOOK]) if start >= end else None


def _iterate_adjacent(
    data: NDArray[np.uint8], start: int, end: int, complete: NDArray[np.uint8]
) -> Iterator[tuple[int, bytes]]:
    """Yield adjacent records; see `_iterate_records`."""
    while (start := find_record(data, start, end, complete)) >= 0:
        size = layout.LENGTH.of(data, start) + layout.LENGTH_SIZE
        record = data[start : start + size].tobytes()
        yield _read_schema_id(record), record
        start += layout.align(size)


def _read_schema_id(record: bytes) -> int:
    return int.from_bytes(record[layout.SCHEMA_ID_OFFSET :][: layout.SCHEMA_ID_SIZE], "little")


def _are_part_keys(records: Iterable[HeadRecord], schemas: Sequence[Schema]) -> bool:
    """Return whether the first record of these schemas that is laid out as either is a part key and not a sample."""
    names = {schema.name for schema in schemas}
    return next((record.is_part_key for record in records if record.is_filled and record.schema.name in names), False)
