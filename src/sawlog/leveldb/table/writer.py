"""Writing tables, LevelDB's and RocksDB's block-based ones, which it can ingest; and what is left of damaged ones."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import find_index, is_binary, is_text, make_array, view_binary, view_values
from sawlog.errors import SchemaError
from sawlog.format.contract import FileWriter
from sawlog.format.damage import DamageWarning, Findings
from sawlog.format.scan import Projection, Scan
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb import codecs
from sawlog.leveldb.columns import KEY, OPERATION, SCHEMAS, SEQUENCE, VALUE, append_times
from sawlog.leveldb.log.kernels import compute_masked_checksum
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.options import TableReadOptions, TableWriteOptions
from sawlog.leveldb.records.layout import MAX_SEQUENCE
from sawlog.leveldb.table import entries as e
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import BlockBuilder
from sawlog.leveldb.table.meta import TableMap
from sawlog.leveldb.table.rows import TableRange, read_table_map
from sawlog.storage import File, Storage

_FORMAT_VERSION = 5
"""Of RocksDB's tables that are written: the last one that needs no checksum of the footer."""
_MAX_BLOCK_BYTES = 1 << 31
"""A block with one entry may grow to this."""
_MIN_GAIN = 8
"""A block is stored compressed where that takes an eighth less."""

_TYPES = {name: code for code, name in layout.OPERATIONS.items()}


class TableWriter(FileWriter):
    """Writes one table.

    Rows come in the order of keys and, for equal keys, the last sequence number first. `sequence` is 0 and `operation`
    is `put` where the data has no such column. Range deletions make a block of their own, in RocksDB's dialect.

    Raises:
        SchemaError: For other columns than `key`, `value`, `sequence` and `operation`.
    """

    format_version: ClassVar = _FORMAT_VERSION
    """Of RocksDB's tables."""
    ordered: ClassVar[bool] = True
    """Whether keys must be in the order of their bytes; otherwise they are taken in the order in which they come."""
    stored: ClassVar[bool] = False
    """Whether timed puts come with the times after their values."""

    def __init__(self, path: str, schema: pa.Schema, options: TableWriteOptions, storage: Storage) -> None:
        _check_schema(schema)
        self.storage = storage
        self._options = options
        self._file = storage.stage(path)
        self._offset = 0
        self._rows = 0
        self._counts = {"entries": 0, "deletes": 0, "keys": 0, "values": 0, "blocks": 0}
        self._index = BlockBuilder()
        self._ranges = BlockBuilder()
        self._state = np.zeros(1, e.BUILDER)
        self._data = np.zeros(2 * options.block_bytes + (1 << 16), np.uint8)
        self._last = np.zeros(1 << 10, np.uint8)
        self._restarts = np.zeros(options.block_bytes // 3 + 2, np.uint32)
        self._last_key_length = 0

    def write(self, batch: pa.RecordBatch) -> None:
        count = batch.num_rows
        types = self._read_types(batch)
        timed = types == _TYPES["timed_put"]
        if not self.stored and timed.any() and VALUE in batch.schema.names:
            place = batch.schema.get_field_index(VALUE)
            self._refuse_nulls(batch.column(place), VALUE)
            batch = batch.set_column(place, VALUE, append_times(batch.column(place).cast(pa.binary()), timed))
        keys, key_ends = self._read_binary(batch, KEY)
        values, value_ends = self._read_binary(batch, VALUE)
        sequences = self._read_sequences(batch)
        if _TYPES["delete_range"] in types:
            ranges = types == _TYPES["delete_range"]
            self._add_ranges(batch.filter(make_array(ranges, pa.bool_())), sequences[ranges])
            batch = batch.filter(make_array(~ranges, pa.bool_()))
            keys, key_ends = self._read_binary(batch, KEY)
            values, value_ends = self._read_binary(batch, VALUE)
            sequences, types = sequences[~ranges], types[~ranges]
        longest = int(np.diff(key_ends).max(initial=0)) + layout.KEY_TRAILER
        if longest > len(self._last):
            larger = np.zeros(2 * longest, np.uint8)
            larger[: len(self._last)] = self._last
            self._last = larger
        self._state["row"] = 0
        self._encode(e.EntryInput(keys, key_ends, values, value_ends, sequences, types))
        self._counts["entries"] += len(sequences)
        self._counts["deletes"] += int(np.isin(types, [_TYPES["delete"], _TYPES["single_delete"]]).sum())
        self._counts["keys"] += int(key_ends[-1] - key_ends[0]) + layout.KEY_TRAILER * len(sequences)
        self._counts["values"] += int(value_ends[-1] - value_ends[0])
        self._rows += count

    def _flush(self) -> None:
        if self._state["entries"][0]:
            self._close_block()
        meta = []
        if self._ranges.entries:
            meta.append((layout.RANGE_DELETES_NAMES[0], self._put(self._ranges.take(), compressed=False)))
        if self._options.dialect == "rocksdb":
            meta.append((layout.PROPERTIES_NAMES[0], self._put(self._encode_properties(), compressed=False)))
        metaindex = BlockBuilder()
        for name, handle in sorted(meta):
            metaindex.add(name, handle)
        metaindex_handle = self._put(metaindex.take(), compressed=False)
        index_handle = self._put(self._index.take(), compressed=False)
        self._file.write(self._encode_footer(metaindex_handle, index_handle))

    def _encode(self, kernel_input: Any) -> None:
        while (status := e.encode_entries(kernel_input, self._make_output(), self._state[0])) != e.ENCODED:
            if status == e.UNORDERED and not self.ordered:
                self._last_key_length = int(self._state["last"][0])
                self._state["last"] = 0  # the next key shares nothing with it, and is not compared
            elif status == e.UNORDERED:
                row = self._rows + int(self._state["row"][0])
                raise SchemaError(
                    f"column {KEY!r}, row {row}: keys are not in ascending order; a table holds keys in order,"
                    " and of one key the last sequence number first"
                )
            elif status == e.COMPLETE or (status == e.NO_ROOM and self._state["entries"][0]):
                self._close_block()
            elif 2 * len(self._data) > _MAX_BLOCK_BYTES:
                row = self._rows + int(self._state["row"][0])
                raise SchemaError(f"column {VALUE!r}, row {row}: an entry of more than {_MAX_BLOCK_BYTES // 2} bytes")
            else:
                self._data = np.zeros(2 * len(self._data), np.uint8)

    def _make_output(self) -> Any:
        size = np.uint64(self._options.block_bytes)
        return e.Block(self._data, self._last, self._restarts, size, np.int64(self._options.restart_interval))

    def _close_block(self) -> None:
        state = self._state
        size = int(e.close_block(self._make_output(), state[0]))
        if not size:
            larger = np.zeros(len(self._data) + 8 * len(self._restarts), np.uint8)
            larger[: len(self._data)] = self._data
            self._data = larger
            size = int(e.close_block(self._make_output(), state[0]))
        handle = self._put(self._data[:size].tobytes(), compressed=True)
        self._index.add(self._last[: int(state["last"][0]) or self._last_key_length].tobytes(), handle)
        self._counts["blocks"] += 1
        for name in ("used", "restarts", "since", "entries"):
            state[name] = 0

    def _put(self, content: bytes, *, compressed: bool) -> bytes:
        """Write a block with its trailer; return its handle."""
        code, stored = self._compress(content) if compressed else (Compression.NONE, content)
        typed = stored + bytes([code])
        self._file.write(typed + compute_masked_checksum(typed).to_bytes(4, "little"))
        handle = encode_varint(self._offset) + encode_varint(len(stored))
        self._offset += len(stored) + layout.TRAILER_SIZE
        return handle

    def _compress(self, content: bytes) -> tuple[int, bytes]:
        dialect, kind = self._options.dialect, Compression[self._options.compression.upper()]
        if kind is not Compression.NONE:
            stored = codecs.compress(kind, content, sized=dialect == "rocksdb")
            if len(stored) <= len(content) - len(content) // _MIN_GAIN:
                return codecs.find_code(dialect, kind), stored
        return Compression.NONE, content

    def _encode_footer(self, metaindex: bytes, index: bytes) -> bytes:
        dialect, version = self._options.dialect, 0 if self._options.dialect == "leveldb" else self.format_version
        values = {
            "checksum type": layout.Checksum.CRC32C,
            "format version": version,
            "magic": {dialect: magic for magic, dialect in layout.MAGICS.items()}[dialect],
        }
        handles = metaindex + index
        return b"".join(
            handles.ljust(place.size, b"\0") if name == "handles" else place.encode(values[name])
            for name, place in layout.list_footer_fields(dialect, version).items()
        )

    def _encode_properties(self) -> bytes:
        """Return the properties that RocksDB asks of a table that it ingests."""
        counts = self._counts
        values = {
            layout.INDEX_TYPE: bytes(4),
            **self._make_origin(),
            b"rocksdb.num.entries": encode_varint(counts["entries"] + self._ranges.entries),
            b"rocksdb.deleted.keys": encode_varint(counts["deletes"] + self._ranges.entries),
            b"rocksdb.num.range-deletions": encode_varint(self._ranges.entries),
            b"rocksdb.num.data.blocks": encode_varint(counts["blocks"]),
            b"rocksdb.raw.key.size": encode_varint(counts["keys"]),
            b"rocksdb.raw.value.size": encode_varint(counts["values"]),
            b"rocksdb.data.size": encode_varint(self._offset),
            b"rocksdb.format.version": encode_varint(0),
            b"rocksdb.fixed.key.length": encode_varint(0),
            b"rocksdb.merge.operands": encode_varint(0),
        }
        block = BlockBuilder()
        for name, value in sorted(values.items()):
            block.add(name, value)
        return block.take()

    def _make_origin(self) -> dict[bytes, bytes]:
        """Return properties that say where the table belongs: anywhere, where it is to be ingested."""
        return {
            layout.COMPARATOR: layout.BYTEWISE_NAME.encode(),
            layout.EXTERNAL_VERSION: layout.LAST_EXTERNAL.to_bytes(4, "little"),
            layout.GLOBAL_SEQUENCE: bytes(layout.GLOBAL_SEQUENCE_SIZE),
            layout.COLUMN_FAMILY: b"",
        }

    @property
    def size(self) -> int:
        """Bytes of the blocks so far."""
        return self._offset

    def _add_ranges(self, batch: pa.RecordBatch, sequences: NDArray[np.uint64]) -> None:
        if self._options.dialect == "leveldb":
            raise SchemaError(f'column {OPERATION!r}: LevelDB has no delete_range; give dialect="rocksdb"')
        for key, end, sequence in zip(
            batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), sequences.tolist(), strict=True
        ):
            trailer = sequence << layout.SEQUENCE_SHIFT | layout.DELETE_RANGE
            self._ranges.add(key + trailer.to_bytes(layout.KEY_TRAILER, "little"), end)

    def _read_binary(self, batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        if name not in batch.schema.names:
            return np.zeros(0, np.uint8), np.zeros(batch.num_rows + 1, np.int64)
        column = batch.column(name).cast(pa.large_binary())
        self._refuse_nulls(column, name)
        return view_binary(column)

    def _read_sequences(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        if SEQUENCE not in batch.schema.names:
            return np.zeros(batch.num_rows, np.uint64)
        column = batch.column(SEQUENCE)
        self._refuse_nulls(column, SEQUENCE)
        numbers: NDArray[Any] = view_values(column.cast(pa.int64()), np.int64)
        wrong = np.flatnonzero((numbers < 0) | (numbers > MAX_SEQUENCE))
        if len(wrong):
            row = int(wrong[0])
            raise SchemaError(
                f"column {SEQUENCE!r}, row {self._rows + row}: {numbers[row]}; expected 0 to {MAX_SEQUENCE}"
            )
        return numbers.astype(np.uint64)

    def _read_types(self, batch: pa.RecordBatch) -> NDArray[np.uint8]:
        if OPERATION not in batch.schema.names:
            return np.full(batch.num_rows, _TYPES["put"], np.uint8)
        column = batch.column(OPERATION).cast(pa.string())
        self._refuse_nulls(column, OPERATION)
        # LevelDB's range deletions are refused where they are added, with what to do.
        known_names = ["delete", "put", "delete_range"] if self._options.dialect == "leveldb" else list(_TYPES)
        places = pc.index_in(column, value_set=make_array(known_names, pa.string()))
        if places.null_count:
            row = find_index(places.is_null(), True)
            raise SchemaError(
                f"column {OPERATION!r}, row {self._rows + row}: {column[row].as_py()!r};"
                f" {self._options.dialect}'s tables have {', '.join(known_names)}"
            )
        codes = np.array([_TYPES[name] for name in known_names], np.uint8)
        types: NDArray[np.uint8] = codes[view_values(places, np.int32)]
        return types

    def _refuse_nulls(self, column: pa.Array, name: str) -> None:
        if column.null_count:
            row = self._rows + find_index(column.is_null(), True)
            raise SchemaError(f"column {name!r}, row {row}: a table cannot hold null")


def _check_schema(schema: pa.Schema) -> None:
    unknown = [name for name in schema.names if name not in (KEY, VALUE, SEQUENCE, OPERATION)]
    if unknown or KEY not in schema.names or len(set(schema.names)) < len(schema.names):
        column_names = ", ".join(schema.names) or "none"
        raise SchemaError(f"a leveldb_table holds {KEY}, {VALUE}, {SEQUENCE} and {OPERATION}; found: {column_names}")
    for name in (KEY, VALUE):
        kind = schema.field(name).type if name in schema.names else pa.binary()
        if not (is_text(kind) or is_binary(kind)):
            raise SchemaError(f"column {name!r} is {kind}; a table holds binary")
    if SEQUENCE in schema.names and not pa.types.is_integer(schema.field(SEQUENCE).type):
        raise SchemaError(f"column {SEQUENCE!r} is {schema.field(SEQUENCE).type}; expected an integer")


class _RepairedTable(TableWriter):
    """Takes entries as they are stored in the table that is repaired, in its order of keys."""

    stored: ClassVar[bool] = True

    def __init__(
        self, path: str, schema: pa.Schema, options: TableWriteOptions, storage: Storage, table: TableMap | None
    ) -> None:
        super().__init__(path, schema, options, storage)
        self._stamped = table is not None and table.has_stamp_column
        properties = {} if table is None else table.properties
        self._order = {name: properties[name] for name in (layout.COMPARATOR, layout.STAMPS_KEPT) if name in properties}
        order = properties.get(layout.COMPARATOR, b"").decode(errors="replace").removesuffix(layout.STAMP_SUFFIX)
        is_known = layout.COMPARATOR in self._order or options.dialect == "leveldb"
        has_stamps = table is not None and table.has_stamps
        self.ordered = is_known and order in layout.BYTEWISE and not has_stamps  # type: ignore[misc]

    def _make_origin(self) -> dict[bytes, bytes]:
        """Return properties that state no order of keys where the table's is lost, and is not that of their bytes."""
        properties = super()._make_origin() | self._order
        if layout.COMPARATOR not in self._order and (self._stamped or self._last_key_length):
            del properties[layout.COMPARATOR]
        return properties


def repair(file: File, target: str, options: TableReadOptions, storage: Storage) -> None:
    """Write what can be read of a table to a new one, in the same dialect. See `Format.repair`."""
    table = read_table_map(file, Scan(options=options, on_damage="skip", storage=storage))
    options = replace(options, keys="internal") if options.keys == "stamped" else options
    schema = SCHEMAS[options.keys]
    scan = Scan(options=options, on_damage="skip", storage=storage)
    fragment = TableRange.cover_file(file, scan, Projection.of(schema, scan), stored=True)
    rocksdb = not file.name.endswith(".ldb") if table is None else table.footer.dialect != "leveldb"
    findings = Findings("skip")
    written = TableWriteOptions(dialect="rocksdb" if rocksdb else "leveldb")
    with warnings.catch_warnings(), _RepairedTable(target, schema, written, storage, table) as writer:
        warnings.simplefilter("ignore", DamageWarning)
        for batch in fragment.decode(schema, findings):
            writer.write(batch)
