"""Chromium's IndexedDB. See `content/browser/indexed_db/docs/leveldb_coding_scheme.md` in Chromium's source."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_fixed_array, view_binary
from sawlog.guard import Undecodable
from sawlog.leveldb.applications import indexed_db_kernels as k
from sawlog.leveldb.applications import indexed_db_layout as layout
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.script_kernels import ROOM
from sawlog.leveldb.applications.script_values import (
    MAX_DEPTH,
    decode_script_value,
    encode_base64,
    read_json,
    render_date,
    render_number,
    to_json,
)
from sawlog.leveldb.codecs import expand
from sawlog.leveldb.columns import convert_codes
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.records.kernels import Strings

_SNAPPY_RATIO = 22
"""Snappy cannot expand a byte to more: three say where 64 are copied from."""
_MAX_BYTES = 16 << 20
"""Keys and values that add up to more are left to Python: the room for their text is several times that."""
_WRAPPINGS = 3
"""A value can be compressed, and that in a blob: what is wrapped more often is not decoded."""

BLOB, FILE, HANDLE = 0, 1, 2
"""Types of external objects."""


@dataclass
class Names:
    """Names and external objects that the metadata of all databases list.

    Attributes:
        home: Where blobs are.
        databases: Origin and name, by ID.
        stores: Names of object stores, by the IDs of database and store.
        indexes: Names of indexes, by the three IDs.
        external: Lists of external objects with their sequence numbers, by the place and the bytes of the record's key.
    """

    home: view.Home
    databases: dict[int, tuple[str, str]] = field(default_factory=dict)
    stores: dict[tuple[int, int], str] = field(default_factory=dict)
    indexes: dict[layout.KeyPrefix, str] = field(default_factory=dict)
    external: dict[tuple[int, int, bytes], list[tuple[int, bytes]]] = field(default_factory=dict)


def _read_string(cursor: view.Cursor) -> str:
    """Return all bytes that are left, in UTF-16."""
    if cursor.remaining & 1:
        raise view.UnknownBytesError(f"a text of UTF-16 with {cursor.remaining} bytes")
    return cursor.take_remainder().decode("utf-16-be", "surrogatepass")


def _read_sized_string(cursor: view.Cursor) -> str:
    """Return a text after the number of its units of 16 bits."""
    return cursor.take(2 * cursor.take_varint(), "text").decode("utf-16-be", "surrogatepass")


def _read_key_path(cursor: view.Cursor) -> Any:
    """Return no path, one, or several."""
    if cursor.data[:2] != b"\0\0" or len(cursor.data) < 3:
        return _read_string(cursor)
    kind = cursor.take(3)[2]
    if kind == 2:
        return [_read_sized_string(cursor) for _ in range(_read_count(cursor))]
    if kind > 2:
        raise view.UnknownBytesError(f"type {kind} of a key path")
    return _read_sized_string(cursor) if kind else None


def _read_journal(cursor: view.Cursor) -> Any:
    """Return databases and numbers of blobs."""
    blobs = []
    while cursor.remaining:
        blobs.append([cursor.take_varint(), cursor.take_varint()])
    return blobs


def _read_flag(cursor: view.Cursor) -> Any:
    return bool(cursor.take_byte())


def _skip_value(cursor: view.Cursor) -> Any:
    cursor.take_remainder()


def _read_bytes(cursor: view.Cursor) -> Any:
    return {"$bytes": encode_base64(cursor.take_remainder())}


Read = Callable[[view.Cursor], Any]
_GLOBAL: Mapping[int, tuple[str, Read]] = {
    0: ("schema_version", view.Cursor.take_last_integer),
    1: ("max_database_id", view.Cursor.take_last_integer),
    2: ("data_version", view.Cursor.take_last_integer),
    3: ("recovery_blob_journal", _read_journal),
    4: ("active_blob_journal", _read_journal),
    5: ("earliest_sweep", view.Cursor.take_last_integer),
    6: ("earliest_compaction", view.Cursor.take_last_integer),
    50: ("scopes", _read_bytes),
    100: ("database_free_list", _skip_value),
    201: ("database_id", view.Cursor.take_last_integer),
}
"""Metadata of all databases: the byte after the prefix, what it means, and how the value is read."""
DATABASE: Mapping[int, tuple[str, Read]] = {
    0: ("origin", _read_string),
    1: ("name", _read_string),
    2: ("string_version", _read_string),
    3: ("max_object_store_id", view.Cursor.take_last_integer),
    4: ("version", lambda cursor: cursor.take_varint()),
    5: ("blob_number", lambda cursor: cursor.take_varint()),
    150: ("object_store_free_list", _skip_value),
    151: ("index_free_list", _skip_value),
    200: ("object_store_id", view.Cursor.take_last_integer),
    201: ("index_id", view.Cursor.take_last_integer),
}
_STORE: Mapping[int, tuple[str, Read]] = {
    0: ("name", _read_string),
    1: ("key_path", _read_key_path),
    2: ("auto_increment", _read_flag),
    3: ("evictable", _read_flag),
    4: ("last_version", view.Cursor.take_last_integer),
    5: ("max_index_id", view.Cursor.take_last_integer),
    6: ("has_key_path", _read_flag),
    7: ("key_generator", view.Cursor.take_last_integer),
}
INDEX: Mapping[int, tuple[str, Read]] = {
    0: ("name", _read_string),
    1: ("unique", _read_flag),
    2: ("key_path", _read_key_path),
    3: ("multi_entry", _read_flag),
}
_STORE_METADATA, _INDEX_METADATA, _DATABASE_NAME = 50, 100, 201
"""Bytes after the prefix of a database: metadata of an object store, of an index; and after that of no database."""


class IndexedDB(view.ApplicationView):
    """View of IndexedDB: a row per record, entry of an index, and piece of metadata."""

    title = "Chromium's IndexedDB: kind, database, object_store, index, key, value (JSON)"
    columns: ClassVar = view.make_columns(
        "kind origin database object_store index key value version:int database_id:int object_store_id:int index_id:int"
    )
    names: ClassVar = (b"", None)

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Return whether a database looks like the application's: by the order of its keys."""
        del path, keys
        return comparator == layout.COMPARATOR

    def make_context(self, entries: view.Entries, home: view.Home) -> Names:
        """Return the names of databases, object stores and indexes, newest first, and lists of external objects."""
        names = Names(home)
        for entry in entries:
            if entry.value is not None:
                try:
                    _note(names, view.Cursor(entry.key), entry.value, entry.sequence)
                except view.UnknownBytesError:
                    continue  # which its own row says
        return names

    def are_names(self, keys: pa.Array) -> NDArray[np.bool_]:
        """Return a mask of the entries that are metadata or lists of external objects."""
        marks = np.empty(len(keys), np.uint8)
        k.mark_names(Strings(*view_binary(keys)), marks)
        return marks.view(np.bool_)

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Names) -> view.PlainRows | None:
        """Return records, entries of indexes and what exists, if their values are such as JSON has."""
        rows = len(keys)
        entries, contents = Strings(*view_binary(keys)), Strings(*view_binary(values))
        sizes = [int(strings.offsets[-1] - strings.offsets[0]) for strings in (entries, contents)]
        if sum(sizes) > _MAX_BYTES:
            return None
        # The second key of an entry of an index is written to where values are, too.
        key_texts, value_texts = (
            view.TextColumn(rows, ROOM * size + k.ROW_ROOM * (rows + 1)) for size in (sizes[0], sum(sizes))
        )
        kinds, numbers = np.empty(rows, np.uint8), np.zeros((4, rows), np.int64)
        rendered = k.Rendered(kinds, numbers, k.Texts(*key_texts.buffers), k.Texts(*value_texts.buffers))
        k.render_entries(entries, contents, rendered, k.make_scratch())
        is_index = kinds == k.KINDS.index("index_entry")
        columns = _look_up_names(numbers[: k.VERSION], context) | {
            "kind": convert_codes(kinds, k.KINDS),
            "key": key_texts.take(pa.string()),
            "value": value_texts.take(pa.string(), kinds != k.KINDS.index("exists")),
            "version": make_fixed_array(pa.int64(), numbers[k.VERSION]),
            "database_id": make_fixed_array(pa.int64(), numbers[k.DATABASE]),
            "object_store_id": make_fixed_array(pa.int64(), numbers[k.STORE]),
            "index_id": make_array(numbers[k.INDEX], pa.int64(), ~is_index),
        }
        return view.PlainRows(kinds > 0, columns)

    def decode(self, entry: view.Entry, context: Names) -> Mapping[str, Any]:
        """Return the key by its prefix, which says what the value is."""
        cursor = view.Cursor(entry.key)
        place = layout.read_place(cursor)
        row: dict[str, Any] = {"origin": None, "database": None}
        if place.database:
            row["origin"], row["database"] = context.databases.get(place.database, (None, None))
            row["database_id"] = place.database
        if not place.store:
            return row | _read_metadata(place, cursor, entry.value, context)
        row |= _of_store(place.database, place.store, context)
        stored = entry.key[cursor.position :]
        read: Callable[[bytes], dict[str, Any]]
        if place.index_id == layout.RECORD:
            row["kind"], row["key"] = "record", to_json(_read_key(cursor))
            read = partial(_read_record, place=place, key=stored, sequence=entry.sequence, context=context)
        elif place.index_id == layout.EXISTS:
            row["kind"], row["key"] = "exists", to_json(_read_key(cursor))
            read = _read_version
        elif place.index_id == layout.EXTERNAL_OBJECTS:
            row["kind"], row["key"] = "external_objects", to_json(_read_key(cursor))
            read = _read_externals
        elif place.index_id >= layout.FIRST_INDEX:
            row |= {"kind": "index_entry", "index": context.indexes.get(place), "index_id": place.index_id}
            row["key"] = to_json(_read_key(cursor))
            if cursor.remaining:
                cursor.take_varint()  # obsolete: a sequence number
            if cursor.remaining:
                row["value"] = to_json(_read_key(cursor))
            read = _read_index_entry
        else:
            raise view.UnknownBytesError(f"index ID {place.index_id}")
        cursor.check_end()
        return row | view.read_columns(entry.value, read)


def _look_up_names(places: NDArray[np.int64], context: Names) -> dict[str, pa.Array]:
    """Return columns of names by the IDs of database, object store and index; entries next to each other share them."""
    is_other = np.any(np.diff(places, axis=1, prepend=-1) != 0, axis=0)
    runs = make_fixed_array(pa.int64(), np.cumsum(is_other) - 1)
    different = [layout.KeyPrefix(*ids) for ids in places[:, is_other].T.tolist()]
    databases = [context.databases.get(place.database, (None, None)) for place in different]
    names = {
        "origin": [origin for origin, _ in databases],
        "database": [database for _, database in databases],
        "object_store": [context.stores.get((place.database, place.store)) for place in different],
        "index": [context.indexes.get(place) for place in different],
    }
    return {name: make_array(values, pa.string()).take(runs) for name, values in names.items()}


def _of_store(database: int, store: int, context: Names) -> dict[str, Any]:
    return {"object_store": context.stores.get((database, store)), "object_store_id": store}


def _read_count(cursor: view.Cursor) -> int:
    """Return the number of things that follow, each of which has a byte at least."""
    count = cursor.take_varint()
    if count > cursor.remaining:
        raise view.UnknownBytesError(f"{count} values in {cursor.remaining} bytes, at byte {cursor.position}")
    return count


def _read_key(cursor: view.Cursor, depth: int = 0) -> Any:
    """Return a key as scripts know it."""
    if depth > MAX_DEPTH:
        raise view.UnknownBytesError(f"keys in keys, deeper than {MAX_DEPTH}")
    kind = cursor.take_byte()
    if kind == layout.NO_KEY:
        return None
    if kind == layout.STRING:
        return _read_sized_string(cursor)
    if kind == layout.DATE:
        return render_date(cursor.take_double())
    if kind == layout.NUMBER:
        return render_number(cursor.take_double())
    if kind == layout.ARRAY:
        return [_read_key(cursor, depth + 1) for _ in range(_read_count(cursor))]
    if kind == layout.BINARY:
        return {"$bytes": encode_base64(cursor.take(cursor.take_varint(), "key"))}
    raise view.UnknownBytesError(f"type {kind} of a key, at byte {cursor.position - 1}")


def _read_metadata(place: layout.KeyPrefix, cursor: view.Cursor, value: bytes | None, context: Names) -> dict[str, Any]:
    """Return the metadata of a database, of one of its parts, or of all databases."""
    if place.index_id:
        raise view.UnknownBytesError(f"index ID {place.index_id} without an object store")
    row: dict[str, Any] = {}
    tag = cursor.take_byte()
    level, table = ("database", DATABASE) if place.database else ("global", _GLOBAL)
    if place.database and tag in (_STORE_METADATA, _INDEX_METADATA):
        store = _read_id(cursor)
        row |= _of_store(place.database, store, context)
        level, table = "object_store", _STORE
        if tag == _INDEX_METADATA:
            level, table = "index", INDEX
            index = layout.KeyPrefix(place.database, store, _read_id(cursor))
            row |= {"index": context.indexes.get(index), "index_id": index.index_id}
        tag = cursor.take_byte()
    if tag not in table:
        raise view.UnknownBytesError(f"metadata {tag} of level {level}")
    name, read = table[tag]
    if not place.database and tag == _DATABASE_NAME:
        (origin, wrong), (database, wrong_too) = (
            _replace_surrogates(_read_sized_string(cursor)),
            _replace_surrogates(_read_sized_string(cursor)),
        )
        row |= {"origin": origin, "database": database, "reason": wrong or wrong_too}
    return row | {"kind": f"{level}.{name}"} | view.read_columns(value, partial(read_json, read))


def _read_id(cursor: view.Cursor) -> int:
    return cursor.take_varint(63)


def _replace_surrogates(name: str) -> tuple[str, str | None]:
    """Return a name as text that UTF-8 has."""
    return view.decode_text(name.encode("utf-16-le", "surrogatepass"), "utf-16-le")


def _note(names: Names, cursor: view.Cursor, value: bytes, sequence: int) -> None:
    """Take down what an entry says of others; the newest of equal keys comes first."""
    place = layout.read_place(cursor)
    if place.store:
        if place.index_id == layout.EXTERNAL_OBJECTS:
            names.external.setdefault((place.database, place.store, cursor.take_remainder()), []).append(
                (sequence, value)
            )
        return
    if place.index_id or not cursor.remaining:
        return
    tag = cursor.take_byte()
    if not place.database and tag == _DATABASE_NAME:
        origin, name = (
            _replace_surrogates(_read_sized_string(cursor))[0],
            _replace_surrogates(_read_sized_string(cursor))[0],
        )
        names.databases.setdefault(view.Cursor(value).take_last_integer(), (origin, name))
    elif place.database and tag == _STORE_METADATA:
        store = cursor.take_varint()
        if cursor.take_remainder() == b"\0":
            names.stores.setdefault((place.database, store), _replace_surrogates(_read_string(view.Cursor(value)))[0])
    elif place.database and tag == _INDEX_METADATA:
        store, index = cursor.take_varint(), cursor.take_varint()
        if cursor.take_remainder() == b"\0":
            index_place = layout.KeyPrefix(place.database, store, index)
            names.indexes.setdefault(index_place, _replace_surrogates(_read_string(view.Cursor(value)))[0])


def _read_version(value: bytes) -> dict[str, Any]:
    """Return the version as Chromium's `EncodeInt` writes it: little endian; records and index entries have varints."""
    version = view.Cursor(value).take_last_integer()
    if version >> 63:
        raise view.UnknownBytesError(f"version {version} of a record")
    return {"version": version}


def _read_index_entry(value: bytes) -> dict[str, Any]:
    """Return the version, and the key of the record."""
    cursor = view.Cursor(value)
    row: dict[str, Any] = {"version": _read_id(cursor)}
    try:
        row["value"] = to_json(_read_key(cursor))
    except view.UnknownBytesError as unknown:
        return row | {"reason": str(unknown)}
    return cursor.explain(row)


def _read_externals(value: bytes) -> dict[str, Any]:
    """Return blobs, files and handles; from one that is not understood on, the bytes."""
    cursor = view.Cursor(value)
    objects: list[dict[str, Any]] = []
    end = 0
    try:
        for external in _iterate_externals(cursor):
            objects.append(external)
            end = cursor.position
    except view.UnknownBytesError as unknown:
        objects.append({"$bytes": encode_base64(value[end:])})
        return {"value": to_json(objects), "reason": str(unknown)}
    return {"value": to_json(objects)}


def _iterate_externals(cursor: view.Cursor) -> Iterator[dict[str, Any]]:
    """Yield blobs, files and handles that belong to a record."""
    while cursor.remaining:
        kind = cursor.take_byte()
        if kind == HANDLE:
            yield {"type": "handle", "token": encode_base64(cursor.take(cursor.take_varint(), "token"))}
            continue
        if kind not in (BLOB, FILE):
            raise view.UnknownBytesError(f"type {kind} of an external object, at byte {cursor.position - 1}")
        external: dict[str, Any] = {"type": "blob", "number": cursor.take_varint()}
        external |= {"media_type": _read_sized_string(cursor), "size": cursor.take_varint()}
        if kind == FILE:
            external |= {"type": "file", "name": _read_sized_string(cursor), "modified": cursor.take_varint()}
        yield external


def _read_record(value: bytes, place: layout.KeyPrefix, key: bytes, sequence: int, context: Names) -> dict[str, Any]:
    """Return the version, and the value, be it compressed or in a blob."""
    cursor = view.Cursor(value)
    version = _read_id(cursor)

    data = cursor.take_remainder()
    try:
        for _ in range(_WRAPPINGS):
            if data[:2] != bytes([layout.VERSION_TAG, layout.WRAPPED]) or data[2:3] == bytes([layout.VERSION_TAG]):
                break
            data = _unwrap(view.Cursor(data, 2), place, key, sequence, context)
        text, reason = decode_script_value(data)
    except view.UnknownBytesError as unknown:
        return {"version": version, "reason": str(unknown)}
    return {"version": version, "value": text, "reason": reason}


def _unwrap(cursor: view.Cursor, place: layout.KeyPrefix, key: bytes, sequence: int, context: Names) -> bytes:
    """Return the bytes that a compressed value expands to, or the content of its blob."""
    kind = cursor.take_byte()
    if kind == layout.IN_BLOB:
        size, position = cursor.take_varint(), cursor.take_varint()
        newer = [
            version for version in context.external.get((place.database, place.store, key), ()) if version[0] > sequence
        ]
        objects = list(_iterate_externals(view.Cursor(min(newer)[1]))) if newer else []
        blob = objects[position] if position < len(objects) else {}
        if blob.get("size") != size:
            raise view.UnknownBytesError(f"the value is in a blob of {size} bytes, and no entry says in which")
        return context.home.read(_build_blob_path(context.home.path, place.database, blob["number"]))
    if kind != layout.IN_SNAPPY:
        raise view.UnknownBytesError(
            f"wrapping {kind}, expected {layout.IN_BLOB} (blob) or {layout.IN_SNAPPY} (Snappy)"
        )
    data = cursor.take_remainder()
    size = view.Cursor(data).take_varint(32)
    if size > _SNAPPY_RATIO * len(data) or size > context.home.longest:
        raise view.UnknownBytesError(f"Snappy: {len(data)} bytes that claim to expand to {size}")
    expanded = expand("leveldb", Compression.SNAPPY, pa.py_buffer(data), size, context.home.longest)
    if isinstance(expanded, Undecodable):
        raise view.UnknownBytesError(f"Snappy: {expanded.detail}")
    return bytes(expanded)


def _build_blob_path(directory: str, database: int, blob: int) -> str:
    """Return the path of a blob, relative to the parent of the database's directory."""
    name = posixpath.basename(directory).removesuffix(layout.DATABASE_SUFFIX) + layout.BLOB_SUFFIX
    return f"{name}/{database:x}/{blob >> 8 & 255:02x}/{blob:x}"
