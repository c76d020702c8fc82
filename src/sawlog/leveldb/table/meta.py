"""The map of a table: footer, metaindex, properties, and the index, which leads to data blocks and bounds keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.errors import DamageError, UnsupportedError
from sawlog.format.damage import Damage
from sawlog.format.query import find_interval
from sawlog.format.scan import Projection
from sawlog.kernels.layout import Number
from sawlog.kernels.varints import decode_varints
from sawlog.leveldb.columns import KEY
from sawlog.leveldb.options import TableReadOptions
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.addresses import EmbeddedLayer
from sawlog.leveldb.table.blocks import BlockRules, Flaw, decode_flaw, iterate_entries, make_block_damage
from sawlog.leveldb.table.cuckoo import BucketLayer, read_buckets
from sawlog.leveldb.table.layout import Checksum, Dialect, IndexType, Role, TableDamageKind
from sawlog.leveldb.table.pebble import BlockColumns, BlockLayer, MalformedError
from sawlog.leveldb.table.pebble import read_pairs as columnar_pairs
from sawlog.storage import File, Source


@dataclass(frozen=True)
class Bounds:
    """The separators of an index, as user keys: keys of block i are above separator i - 1, and at most separator i.

    The last one bounds nothing: no other block could hold what comes after it. They stay as they are stored, and are
    expanded where they are wanted: an index of long keys that share much is many times longer than it is in the file.

    Attributes:
        data: uint8, the blocks of the index.
        separators: Of type `kernels.SEPARATOR`.
        trailer: Bytes at the end of each that are no part of the user key.
        stamp: Bytes at the end of a user key that do not count.
    """

    data: NDArray[np.uint8]
    separators: NDArray[np.void]
    trailer: int
    stamp: int

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Number of bytes of the separators up to each, with trailers and timestamps."""
        return self.separators["length"].astype(np.int64).cumsum()

    @cached_property
    def restarts(self) -> NDArray[np.int64]:
        """Numbers of the separators that share nothing with the previous separator."""
        return np.flatnonzero(self.separators["shared"] == 0)

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest of them."""
        return int(self.separators["length"].max(initial=0))

    @property
    def room(self) -> NDArray[np.uint8]:
        """Room for the longest of them."""
        return np.zeros(self._longest, np.uint8)

    def ascend(self) -> bool:
        """Return whether no separator is below the previous one."""
        return bool(k.ascend(self.index, self.room))

    @property
    def index(self) -> k.Index:
        """The same for kernels."""
        return k.Index(self.data, self.separators, np.uint64(self.trailer), np.uint64(self.stamp))


class BoundsReader:
    """Expands the separators of an index, best in their order: it goes on where it has been."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._index = bounds.index
        self._next = 0

    @cached_property
    def _keys(self) -> NDArray[np.uint8]:
        return self._bounds.room

    def take(self, first: int, last: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the separators of some blocks: key i is `keys[ends[i] : ends[i + 1]]`."""
        place = first
        if first != self._next:
            restarts = self._bounds.restarts
            restart = int(restarts[restarts.searchsorted(first, "right") - 1])
            place = max(restart, self._next) if self._next < first else restart
        keys = np.zeros(int(self._index.separators["length"][first:last].sum()), np.uint8)
        ends = np.zeros(last - first + 1, np.int64)
        k.expand_separators(self._index, place, first, self._keys, keys, ends)
        self._next = last
        return keys, ends

    def read_separator(self, number: int) -> bytes:
        """Return the separator of a block."""
        place, shared, length = self._index.separators[number].tolist()
        if not shared:  # all of it is there
            length -= self._bounds.trailer if length >= self._bounds.trailer else 0
            return bytes(self._index.data[place : place + length - min(length, self._bounds.stamp)])
        keys, ends = self.take(number, number + 1)
        return keys[: ends[1]].tobytes()


SPARED = "skipped by filters"
"""The fact about a dataset that reports it."""


EVERY_KEY = None, None
"""The interval of all keys."""


def find_key_interval(projection: Projection) -> tuple[bytes | None, bytes | None]:
    """Return the least key that filters leave, and the first one after them; `None` where there is no such bound."""
    first, end = (key.encode() if isinstance(key, str) else key for key in find_interval(projection.query, KEY))
    return first, end


def find_block_range(table: TableMap, interval: tuple[bytes | None, bytes | None]) -> tuple[int, int]:
    """Return the numbers of the first data block that may hold keys of an interval, and of the first one after.

    Separators prove something only where blocks are held to them, and where timestamps are no part of the keys.
    """
    count = len(table.handles)
    bounds = table.bounds
    if interval == EVERY_KEY or bounds is None or (table.has_stamps and not table.has_stamp_column):
        return 0, count
    low, end = interval
    index = BoundsReader(bounds)
    # What comes after the last separator is in the last block, if anywhere.
    first = min(_find_data_block(index, count, low), count - 1) if low is not None and count else 0
    # A key that equals a separator may go on in the next block.
    after = min(_find_data_block(index, count, end) + 1, count) if end is not None else count
    return first, after


def describe_spared_blocks(tables: Iterable[TableMap | None], interval: tuple[bytes | None, bytes | None]) -> str:
    """Return a sentence on the blocks that filters on the key spare of some tables."""
    blocks = read = 0
    for table in filter(None, tables):
        first, after = find_block_range(table, interval)
        blocks += len(table.handles)
        read += max(after - first, 0)
    return f"{blocks - read} of {blocks} data blocks"


def _find_data_block(index: BoundsReader, count: int, key: bytes) -> int:
    """Return the number of the first data block whose separator is not below a key; `count` where there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if index.read_separator(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


_IndexBlock: TypeAlias = "tuple[NDArray[np.void], NDArray[np.void], NDArray[np.uint8]]"
"""The entries of a block of an index, as HANDLE and SEPARATOR, and its content."""
_EMPTY_INDEX: _IndexBlock = np.zeros(0, k.HANDLE), np.zeros(0, k.SEPARATOR), np.zeros(0, np.uint8)
_LAST_INDEX_TYPE = max(IndexType)


class Handle(NamedTuple):
    """The place of a block: file offset, and bytes without the trailer."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a table.

    Attributes:
        dialect: Whose magic number it has.
        version: RocksDB's format version; 0 for LevelDB.
        checksum: Type of all checksums.
        context: What makes checksums depend on their place, or 0.
        size: Its own bytes.
        metaindex: The metaindex; `None` where the footer is lost.
        index: The index; `None` where the metaindex names it, too.
        cuckoo: Whether it is that of a cuckoo table, which has no index and no trailers after its blocks.
    """

    dialect: Dialect
    version: int
    checksum: Checksum
    context: int
    size: int
    metaindex: Handle | None
    index: Handle | None
    cuckoo: bool = False

    def is_pebble(self, since: int) -> bool:
        """Return whether the table is Pebble's, of a version or a later one."""
        return self.dialect == "pebble" and self.version >= since


@dataclass
class TableMap:
    """The map of a table: the offsets of all its blocks.

    Attributes:
        footer: Its footer.
        rules: How its blocks are judged.
        handles: Its data blocks, of type `kernels.HANDLE`, in file order.
        index: uint8, the blocks of the index, expanded, back to back.
        separators: Its keys, of type `kernels.SEPARATOR`: no key of block i is after the i-th.
        properties: What its properties block holds.
        other_blocks: Blocks that hold no data, with their names, and the name of the block that lead to them.
        range_deletes: The block of range deletions.
        damages: What parts of the map are damaged.
        values: Blocks of values, of type `kernels.HANDLE`, by their numbers.
        has_stamp_column: Whether timestamps are delivered apart from keys; where keys have none, these are 0.
        raw: Whether what ends keys is delivered as a part of them.
        default_comparator: The name of the order of keys that counts where the table does not say one; empty for none.
        bounds: Between which keys its data blocks lie, where the index can be relied on.
        lost_end: Why its end is not known; `None` where it is.
        sequence: The sequence number that the database has given to all of its entries, if any.
    """

    footer: Footer
    rules: BlockRules
    has_stamp_column: bool = False
    raw: bool = False
    default_comparator: str = ""
    handles: NDArray[np.void] = field(default_factory=lambda: _EMPTY_INDEX[0])
    index: NDArray[np.uint8] = field(default_factory=lambda: _EMPTY_INDEX[2])
    separators: NDArray[np.void] = field(default_factory=lambda: _EMPTY_INDEX[1])
    properties: dict[bytes, bytes] = field(default_factory=dict)
    other_blocks: list[tuple[str, Handle]] = field(default_factory=list)
    range_deletes: Handle | None = None
    damages: list[Damage] = field(default_factory=list)
    values: NDArray[np.void] = field(default_factory=lambda: _EMPTY_INDEX[0])
    bounds: Bounds | None = None
    lost_end: Damage | None = None
    sequence: int | None = None

    @cached_property
    def spans(self) -> NDArray[np.void]:
        """The purpose of every byte of the table, once all of the map is read."""
        return _make_spans(self)

    @property
    def comparator(self) -> str | None:
        """The name of the order of keys; `None` where nothing says it."""
        name = self.properties.get(layout.COMPARATOR)
        return self.default_comparator or None if name is None else name.decode(errors="replace")

    @property
    def global_sequence(self) -> int | None:
        """The sequence number that all keys of an ingested table have; `None` for tables of a database."""
        if self.sequence is not None:
            return self.sequence
        if _read_fixed(self.properties.get(layout.EXTERNAL_VERSION)) < layout.LAST_EXTERNAL:
            return None
        return _read_fixed(self.properties.get(layout.GLOBAL_SEQUENCE)) or None

    @property
    def has_stamps(self) -> bool:
        """Whether user keys end in timestamps."""
        return not self.has_stripped_keys and (self.comparator or "").endswith(layout.STAMP_SUFFIX)

    @property
    def has_stripped_keys(self) -> bool:
        """Whether user keys are known to have no timestamps, even if those of its database do."""
        if self.properties.get(layout.STAMPS_KEPT, b"\1") == b"\0":
            return True
        name = self.properties.get(layout.COMPARATOR, b"").decode(errors="replace")
        return bool(name) and (
            name in (*layout.BYTEWISE, layout.REVERSE_NAME) or name + layout.STAMP_SUFFIX == self.default_comparator
        )

    @property
    def ordered(self) -> bool:
        """Whether user keys, without their timestamps, are ordered by their bytes."""
        name = self.comparator
        return name is not None and name.removesuffix(layout.STAMP_SUFFIX) in layout.BYTEWISE and not self.raw

    @property
    def internal_index(self) -> bool:
        """Whether the keys of the index are internal ones."""
        return not _decode_bool(self.properties.get(layout.USER_KEYS)) and not self.footer.is_pebble(layout.COLUMNAR)

    def make_layer(self, source: Source) -> BlockLayer | EmbeddedLayer | BucketLayer | None:
        """Return the layer that lays out blocks of entries as other tables have them; `None` where they already are."""
        if not self.rules.is_layered:
            return None
        if self.rules.buckets is not None:
            return BucketLayer(self.rules.buckets, source)
        if self.rules.has_embedded_values:
            return EmbeddedLayer(self.rules, source)
        return BlockLayer(self.footer.version, self.properties, self.rules, self.values, source)


def make_separators(table: TableMap, *, stamped: bool) -> Bounds:
    """Return the separators of an index as user keys, without timestamps if they are `stamped`."""
    trailer = layout.KEY_TRAILER if table.internal_index else 0
    return Bounds(table.index, table.separators, trailer, layout.STAMP_WIDTH if stamped else 0)


def _find_bounds(table: TableMap) -> Bounds | None:
    """Return bounds of the blocks of a table; `None` where it does not say that its keys are ordered by their bytes."""
    if not table.ordered or table.damages or len(table.separators) != len(table.handles):
        return None
    return make_separators(table, stamped=table.has_stamps)


def _make_spans(table: TableMap) -> NDArray[np.void]:
    """Return all of a table as spans, in order and without overlap: their lengths add up to the file's size."""
    limit, handles = table.rules.limit, table.handles
    blocks = np.zeros(len(table.other_blocks), k.SPAN)
    for place, (name, handle) in enumerate(table.other_blocks):
        role = Role.VALUES if name == layout.VALUE_BLOCK else Role.HEADER
        role = Role.RANGE_DELETES if handle == table.range_deletes else role
        blocks[place] = min(handle.offset, limit), min(handle.size, limit) + layout.TRAILER_SIZE, role, -1
    data_offsets = np.minimum(handles["offset"], np.uint64(limit)).view(np.int64)
    order = np.concatenate([blocks["offset"], data_offsets]).argsort(kind="stable")
    spans = np.empty(2 * len(order) + 2, k.SPAN)
    used = k.lay_spans(blocks, handles, order, limit, table.footer.size, spans)
    return spans[:used].copy()


def _read_fixed(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little")


def _decode_bool(value: bytes | None) -> bool:
    return value is not None and value not in (b"", b"\0")


def read_footer(tail: bytes, size: int, path: str) -> Footer:
    """Read the footer of a table of `size` bytes from its last `LARGEST_FOOTER`, or all of them.

    Raises:
        DamageError: When it is damaged, or none of a known kind.
        UnsupportedError: When it is of an unknown version.
    """
    magic = int.from_bytes(tail[-layout.MAGIC_SIZE :], "little")
    if magic in layout.OTHER_MAGICS:
        raise _make_unsupported_error(path, size, layout.OTHER_MAGICS[magic])
    if magic == layout.CUCKOO_MAGIC:
        return _parse_cuckoo_footer(tail[-layout.ROCKSDB_FOOTER :], size, path)
    dialect = layout.MAGICS.get(magic)
    if dialect is None or len(tail) < layout.LEVELDB_FOOTER:
        found_magic = tail[-layout.MAGIC_SIZE :].hex(" ") or "nothing, the file is empty"
        raise _make_footer_error(
            path, size, size, f"its last 8 bytes are {found_magic}, no magic number of a sorted table"
        )
    version, checksum, fields = 0, Checksum.CRC32C, layout.list_footer_fields(dialect, 0)
    if "format version" in fields:
        version = fields["format version"].of(tail[-layout.ROCKSDB_FOOTER :])
        fields = layout.list_footer_fields(dialect, version)
    length = fields["magic"].end
    footer = tail[-length:]
    if version > layout.LAST_VERSION[dialect] or (dialect == "pebble" and not version):
        limits = f"known up to {layout.LAST_VERSION[dialect]}"
        raise _make_unsupported_error(path, size, f"format version {version} of {dialect}'s tables; {limits}")
    if "checksum type" in fields:
        if len(footer) < length:
            raise _make_footer_error(path, size, len(footer), f"format version {version}")
        if footer[0] not in set(Checksum):
            raise _make_unsupported_error(path, size, f"checksum type {footer[0]}; known up to {max(Checksum)}")
        checksum = Checksum(footer[0])
    context = fields["base context"].of(footer) if "base context" in fields else 0
    if "checksum" in fields:
        _check_footer(footer, fields, checksum, context, size, path)
    if handles := fields.get("handles"):
        metaindex, index = _parse_handles(footer[handles.offset : handles.end], size, length, path)
        return Footer(dialect, version, checksum, context, length, metaindex, index)
    before = size - length - layout.TRAILER_SIZE
    inside = fields["metaindex size"].of(footer)
    if inside > before:
        raise _make_footer_error(path, size, length, f"a metaindex of {inside} bytes before byte {size - length}")
    return Footer(dialect, version, checksum, context, length, Handle(before - inside, inside), None)


def _parse_cuckoo_footer(footer: bytes, size: int, path: str) -> Footer:
    """Return the footer of a cuckoo table, whose handles are those of the metaindex and of nothing."""
    fields = layout.list_footer_fields("rocksdb", layout.CUCKOO_VERSION)
    if len(footer) < layout.ROCKSDB_FOOTER:
        raise _make_footer_error(path, size, size, f"a cuckoo table of {size} bytes")
    version = fields["format version"].of(footer)
    if version != layout.CUCKOO_VERSION:
        limits = f"known up to {layout.CUCKOO_VERSION}"
        raise _make_unsupported_error(path, size, f"format version {version} of RocksDB's cuckoo tables; {limits}")
    place = fields["handles"]
    numbers = list(decode_varints(footer[place.offset : place.end]))[:2]
    if len(numbers) < 2 or sum(numbers) > size - len(footer) or numbers[1] < layout.TRAILER_SIZE:
        raise _make_footer_error(path, size, len(footer), f"a metaindex at {numbers}, which is not before the footer")
    return Footer("rocksdb", version, Checksum.NONE, 0, len(footer), Handle(*numbers), None, cuckoo=True)


def _check_footer(
    footer: bytes, fields: Mapping[str, Number], checksum: Checksum, context: int, size: int, path: str
) -> None:
    """Raise unless a footer has the checksum that it states: RocksDB's with zeros in its place, Pebble's without it."""
    place = fields["checksum"]
    sound, zeros = True, b""
    if "zeros" in fields:
        sound = fields["extended magic"].of(footer) == layout.EXTENDED_MAGIC and not fields["zeros"].of(footer)
        zeros = bytes(place.size)
    else:
        checksum = Checksum.CRC32C
    blank = np.frombuffer(footer[: place.offset] + zeros + footer[place.end :], np.uint8)
    stored = place.of(footer)
    expected = k.compute_footer_checksum(blank, np.int64(checksum), np.uint64(context), np.uint64(size - len(footer)))
    if not sound or stored != expected:
        raise _make_footer_error(
            path, size, len(footer), f"a footer with checksum {stored:#010x}; expected {int(expected):#010x}"
        )


def _parse_handles(data: bytes, size: int, footer: int, path: str) -> tuple[Handle, Handle]:
    numbers = list(islice(decode_varints(data), 4))
    limit = size - footer - layout.TRAILER_SIZE
    handles = [Handle(*numbers[:2]), Handle(*numbers[2:])] if len(numbers) == 4 else []
    if not handles or any(handle.offset + handle.size > limit for handle in handles):
        raise _make_footer_error(
            path, size, footer, f"handles {numbers} that are not within the {max(size - footer, 0)} bytes of blocks"
        )
    return handles[0], handles[1]


def _make_footer_error(path: str, size: int, footer: int, detail: str) -> DamageError:
    return DamageError(Damage(path, size - footer, footer, TableDamageKind.BAD_FOOTER.label, detail))


def _make_unsupported_error(path: str, size: int, detail: str) -> UnsupportedError:
    return UnsupportedError(Damage(path, 0, size, TableDamageKind.UNKNOWN_VERSION.label, detail))


class MapReader:
    """Reads the map of a table: damaged parts of it are reported, and the rest is used."""

    def __init__(self, file: File, source: Source, options: TableReadOptions) -> None:
        self._file = file
        self._source = source
        self._options = options
        length = min(layout.LARGEST_FOOTER, file.size)
        tail = bytes(source.read_window(file.size - length, length))
        try:
            footer = read_footer(tail, file.size, file.path)
            loss = None
        except (DamageError, UnsupportedError) as error:
            footer, loss = self._assume_footer(error), error.damage
        key_form = options.keys
        self.map = TableMap(
            footer,
            self._make_rules(footer),
            key_form == "stamped",
            key_form == "raw",
            options.comparator,
            lost_end=loss,
        )

    def _make_rules(self, footer: Footer) -> BlockRules:
        limit = self._file.size - footer.size
        options = self._options
        return BlockRules(
            footer.dialect,
            footer.version,
            footer.checksum,
            footer.context,
            limit,
            options.verify_checksums,
            options.max_item_bytes,
        )

    def _assume_footer(self, error: DamageError | UnsupportedError) -> Footer:
        """Return a footer assumed of a table whose end is lost or unknown, if it begins with a block."""
        footer = Footer("rocksdb", layout.SIZED_VERSION, Checksum.CRC32C, 0, 0, None, None)
        if self._file.name.endswith(".ldb"):  # only LevelDB calls tables so
            footer = replace(footer, dialect="leveldb", version=0)
        if self._find_block_end(0, self._file.size, self._make_rules(footer)) is None:
            raise error
        return footer

    def read(self) -> TableMap:
        """Return all of the map."""
        table = self.map
        if table.footer.cuckoo:
            self._read_buckets()
            return table
        named: dict[bytes, Handle] = {}
        if table.footer.metaindex is not None:
            table.other_blocks.append(("metaindex", table.footer.metaindex))
        for key, value in self._read_pairs(table.footer.metaindex, layout.COLUMNAR_METAINDEX):
            numbers = list(islice(decode_varints(value), 3))
            if len(numbers) >= 2:
                named[key] = Handle(*numbers[:2])
            if key == layout.VALUE_INDEX_NAME:
                self._read_value_index(named.get(key, table.footer.metaindex), value[-3:] * (len(numbers) > 1))
        if table.footer.dialect == "leveldb" and not named.keys().isdisjoint(layout.PROPERTIES_NAMES):
            table.rules = replace(table.rules, dialect="rocksdb")
        index = table.footer.index or named.pop(layout.INDEX_NAME, None)
        for name in layout.PROPERTIES_NAMES:
            if name in named:
                table.properties.update(self._read_pairs(named[name], layout.COLUMNAR_PROPERTIES))
                external = _read_fixed(table.properties.get(layout.EXTERNAL_VERSION))
                if external > layout.LAST_EXTERNAL:
                    self._add_damage(named[name], (TableDamageKind.UNKNOWN_EXTERNAL, external, 0))
        if table.footer.dialect == "rocksdb" and table.footer.version >= layout.MANAGED_VERSION:
            manager = table.properties.get(layout.COMPRESSION, b"").partition(b";")[0]
            embedded = not table.properties or layout.EMBEDDED_VALUES in table.properties
            table.rules = replace(
                table.rules, has_foreign_codecs=manager not in layout.BUILTIN_MANAGERS, has_embedded_values=embedded
            )
        for name, handle in named.items():
            if name in layout.RANGE_DELETES_NAMES and handle == table.range_deletes:
                # Up to its second version, Pebble gives the one block both names.
                continue
            table.other_blocks.append((name.decode(errors="replace"), handle))
            if name in layout.RANGE_DELETES_NAMES:
                table.range_deletes = handle
            elif name.startswith(layout.PARTITIONED_FILTER):
                partitions = self._read_index_block(handle)[0]
                places = zip(partitions["offset"].tolist(), partitions["stored"].tolist(), strict=True)
                table.other_blocks += [("filter partition", Handle(*place)) for place in places]
            elif name == layout.DICTIONARY_NAME and (content := self.read_block(handle)) is not None:
                table.rules = replace(table.rules, dictionary=content.to_pybytes())
        if index is not None:
            self._read_index(index)
            if table.rules.has_embedded_values:
                self._find_embedded()
            table.bounds, offsets = _find_bounds(table), table.handles["offset"]
            if table.bounds is not None and not (table.bounds.ascend() and (offsets[1:] > offsets[:-1]).all()):
                table.bounds = None
                self._add_damage(index, (TableDamageKind.BAD_INDEX, len(table.handles), 0))
        if (index is None or table.damages) and not table.rules.is_layered:
            self._salvage()
        return table

    def _read_buckets(self) -> None:
        """Find the buckets of a cuckoo table: all before its properties, which say how they are laid out."""
        table, metaindex = self.map, self.map.footer.metaindex
        assert metaindex is not None
        named = {key: list(decode_varints(value))[:2] for key, value in iterate_entries(self._read_bare(metaindex))}
        properties = next(
            (Handle(*named[name]) for name in layout.PROPERTIES_NAMES if len(named.get(name, ())) == 2), None
        )
        if properties is not None and layout.TRAILER_SIZE <= properties.size <= metaindex.offset - properties.offset:
            table.properties.update(iterate_entries(self._read_bare(properties)))
        end = 0 if properties is None else properties.offset
        blocks = [("metaindex", metaindex), *([("properties", properties)] if properties is not None else [])]
        table.other_blocks = [(name, Handle(offset, size - layout.TRAILER_SIZE)) for name, (offset, size) in blocks]
        try:
            buckets = read_buckets(table.properties, end)
        except MalformedError as error:
            self._add_damage(table.other_blocks[-1][1], error.make_flaw(end))
            return
        table.rules = replace(table.rules, buckets=buckets)
        if end:
            table.handles = np.array([(0, end - layout.TRAILER_SIZE)], k.HANDLE)

    def _read_bare(self, handle: Handle) -> pa.Buffer:
        return pa.py_buffer(bytes(self._source.read_window(*handle)))

    def _read_pairs(self, handle: Handle | None, columnar: int) -> Iterator[tuple[bytes, bytes]]:
        """Return keys and values of a small block, which is columnar in Pebble's tables from a version on."""
        content = None if handle is None else self.read_block(handle)
        if handle is None or content is None:
            return iter(())
        if not self.map.footer.is_pebble(columnar):
            return iterate_entries(content)
        try:
            return iter(columnar_pairs(content))
        except MalformedError as error:
            self._add_damage(handle, error.make_flaw(content.size))
            return iter(())

    def _read_value_index(self, handle: Handle | None, widths: bytes) -> None:
        """Find the blocks of values; without widths, the block is damaged."""
        table = self.map
        if handle is None or (content := self.read_block(handle)) is None:
            return
        rows = np.frombuffer(content, np.uint8)
        width = sum(widths)
        if not width or len(rows) % width or max(widths) > 8:
            self._add_damage(handle, (TableDamageKind.BAD_BLOCK, len(rows), 0))
            return
        fields = np.zeros((len(rows) // width, 3, 8), np.uint8)
        column = 0
        for number, size in enumerate(widths):
            fields[:, number, :size] = rows.reshape(-1, width)[:, column : column + size]
            column += size
        _, offsets, sizes = fields.view("<u8")[:, :, 0].T
        table.values = np.zeros(len(fields), k.HANDLE)
        table.values["offset"], table.values["stored"] = offsets, sizes
        table.other_blocks += [(layout.VALUE_BLOCK, Handle(*place)) for place in table.values.tolist()]

    def _find_embedded(self) -> None:
        """Find the values between the blocks of entries: only these lead to them, so that all are read."""
        table = self.map
        layer = EmbeddedLayer(table.rules, self._source)
        blocks = zip(table.handles["offset"].tolist(), table.handles["stored"].tolist(), strict=True)
        value_handles = {Handle(*place) for block in blocks for place in layer.iterate_handles(*block)}
        table.other_blocks += [(layout.VALUE_BLOCK, handle) for handle in sorted(value_handles)]

    def _salvage(self) -> None:
        """Add the blocks of rows that nothing leads to any more; they are proven by their checksums."""
        table = self.map
        spans = _make_spans(table)
        handles: list[Handle] = []
        for gap in spans[spans["role"] == Role.GAP]:
            position, end = int(gap["offset"]), int(gap["offset"] + gap["length"])
            while (stop := self._find_block_end(position, end, table.rules)) is not None:
                handle = Handle(position, stop - position)
                if self._holds_rows(handle):
                    handles.append(handle)
                position = stop + layout.TRAILER_SIZE
        if handles:
            added = np.array([tuple(handle) for handle in handles], k.HANDLE)
            table.handles = np.concatenate([table.handles, added])

    def _find_block_end(self, start: int, end: int, rules: BlockRules) -> int | None:
        """Return the offset of the trailer of the block that begins at `start`, by CRC-32C.

        `None` if there is none near.
        """
        if rules.checksum is not Checksum.CRC32C or rules.context:
            return None
        window = self._source.read_window(start, min(end - start, layout.SALVAGED_BYTES))
        stop = int(k.find_block_end(window, np.uint64(len(window))))
        return start + stop if stop < len(window) else None

    def _holds_rows(self, handle: Handle) -> bool:
        """Return whether a block holds rows: its keys end in known operations, its values are no chain of blocks."""
        quiet = len(self.map.damages)
        content = self.read_block(handle)
        del self.map.damages[quiet:]
        places = []
        torn = self.map.footer.metaindex is None and self.map.footer.dialect != "leveldb"
        if content is None or (torn and _may_have_prefixes(content)):
            return False
        for number, (key, value) in enumerate(iterate_entries(content)):
            is_known = len(key) >= layout.KEY_TRAILER and key[-layout.KEY_TRAILER] in layout.OPERATIONS
            if not number and not is_known and self._options.keys != "raw":
                return False
            numbers = list(islice(decode_varints(value), 3))
            if len(numbers) != 2 or sum(numbers) > handle.offset:
                return True
            places.append(Handle(*numbers))
        chained = all(first.offset + first.size + layout.TRAILER_SIZE == two.offset for first, two in pairwise(places))
        single = len(places) == 1 and not (places[0].offset == 0 or self._is_whole(places[0]))
        return bool(places) and (single or not chained)

    def _read_index(self, index: Handle) -> None:
        table = self.map
        table.other_blocks.append(("index", index))
        kind = _read_fixed(table.properties.get(layout.INDEX_TYPE))
        if kind > _LAST_INDEX_TYPE:
            self._add_damage(index, (TableDamageKind.UNKNOWN_INDEX, kind, 0))
            return
        top_level = self._read_index_block(index)
        says_type = layout.INDEX_TYPE in table.properties or table.footer.dialect == "leveldb"
        if not says_type and not self._leads_to_rows(top_level[0]):
            kind = IndexType.TWO_LEVEL
        if kind == IndexType.TWO_LEVEL:
            parts = []
            for place in zip(top_level[0]["offset"].tolist(), top_level[0]["stored"].tolist(), strict=True):
                table.other_blocks.append(("index partition", Handle(*place)))
                parts.append(self._read_index_block(Handle(*place)))
            start = 0
            for _, separators, data in parts:
                separators["place"] += np.uint64(start)
                start += len(data)
            top_level = tuple(np.concatenate(columns) for columns in zip(_EMPTY_INDEX, *parts, strict=True))  # type: ignore[assignment]
        table.handles, table.separators, table.index = top_level

    def _leads_to_rows(self, handles: NDArray[np.void]) -> bool:
        """Return whether an index leads to rows, by the first whole block: no property says if it has two levels."""
        for place in zip(handles["offset"].tolist(), handles["stored"].tolist(), strict=True):
            if self._is_whole(Handle(*place)):
                return self._holds_rows(Handle(*place))
        return True

    def _is_whole(self, handle: Handle) -> bool:
        return not isinstance(self.map.rules.read(self._source, *handle)[0], tuple)

    def _read_index_block(self, handle: Handle) -> _IndexBlock:
        """Return the entries of one block of the index; none where it is damaged."""
        content = self.read_block(handle)
        if content is None:
            return _EMPTY_INDEX
        data = np.frombuffer(content, np.uint8)
        if self.map.footer.is_pebble(layout.COLUMNAR):
            try:
                return _parse_columnar_index(content)
            except MalformedError as error:
                self._add_damage(handle, error.make_flaw(len(data)))
                return _EMPTY_INDEX
        room = len(data) // layout.SMALLEST_ENTRY + 1
        handles, separators = np.empty(room, k.HANDLE), np.empty(room, k.SEPARATOR)
        first_key = _read_fixed(self.map.properties.get(layout.INDEX_TYPE)) == IndexType.FIRST_KEY
        for delta in self._choose_deltas():
            count = k.read_index(data, delta, first_key, handles, separators)
            if count >= 0:
                return handles[:count].copy(), separators[:count].copy(), data
        self._add_damage(handle, decode_flaw(data))
        return _EMPTY_INDEX

    def _choose_deltas(self) -> tuple[bool, ...]:
        """Return whether values of the index are differences; what to try, if the properties that say it are lost."""
        footer, properties = self.map.footer, self.map.properties
        is_lost = not properties and footer.dialect == "rocksdb" and footer.version >= layout.DELTA_VERSION
        return (True, False) if is_lost else (_decode_bool(properties.get(layout.DELTA_ENCODED)),)

    def read_block(self, handle: Handle) -> pa.Buffer | None:
        """Return a block that holds no data, expanded; `None` where it is damaged."""
        content = self.map.rules.read(self._source, *handle)[0]
        if isinstance(content, tuple):
            self._add_damage(handle, content)
            return None
        return content

    def _add_damage(self, handle: Handle, flaw: Flaw) -> None:
        limit = self.map.rules.limit
        offset = min(handle.offset, limit)
        length = min(handle.size + layout.TRAILER_SIZE, limit - offset)
        self.map.damages.append(make_block_damage(self._file.path, offset, length, flaw))


def _may_have_prefixes(content: pa.Buffer) -> bool:
    """Return whether the values of a block may be those of Pebble's later tables, which begin with where they are."""
    values = [value[:1] for key, value in iterate_entries(content) if key[-layout.KEY_TRAILER :][:1] == b"\x01"]
    return bool(values) and all(value and not value[0] & layout.NEVER_PREFIXED for value in values)


def _parse_columnar_index(content: pa.Buffer) -> _IndexBlock:
    """Return offsets and lengths of blocks, and separators, of a columnar block of an index."""
    columns = BlockColumns(content)
    rows = columns.rows
    if rows > len(columns.data):
        raise MalformedError(f"an index of {rows} rows")
    handles = np.zeros(rows, k.HANDLE)
    handles["offset"], handles["stored"] = columns.read_integers(1, rows), columns.read_integers(2, rows)
    separators = np.zeros(rows, k.SEPARATOR)
    separators["place"], separators["length"] = columns.read_strings(0, rows)
    return handles, separators, columns.data
