"""Names and numbers of IndexedDB's keys and values, for decoders in Python, the order of keys and the kernels."""

from __future__ import annotations

from typing import NamedTuple

from sawlog.leveldb.applications.view import Cursor, UnknownBytesError

COMPARATOR = "idb_cmp1"
DATABASE_SUFFIX, BLOB_SUFFIX = ".leveldb", ".blob"
"""How the names of the directory and of the directory of its blobs, next to it, end."""
DIRECTORY_SUFFIX = f".indexeddb{DATABASE_SUFFIX}"
"""How it ends after the origin whose databases are in it."""

RECORD, EXISTS, EXTERNAL_OBJECTS, FIRST_INDEX = 1, 2, 3, 30
"""What the index ID of a key stands for; from `FIRST_INDEX` on, it is that of an index."""

NO_KEY, STRING, DATE, NUMBER, ARRAY, SMALLEST, BINARY = range(7)
"""Types of keys as scripts know them: none, text, Date, number, list of keys, the one before all others, and bytes."""

VERSION_TAG = 0xFF
TRAILER_TAG = 0xFE
TRAILER_SIZE = 12
"""Offset and size of what follows the value, as 8 and 4 bytes."""
SEPARATE_ENVELOPE = 16
"""From this version on, Blink's version is followed by V8's."""
UNKNOWN_SINCE = 17
"""V8's first version that is not known here."""
TAGGED_HOLES, TAGGED_STRINGS, TAGGED_HOSTS, VIEW_FLAGS = 11, 12, 13, 14
"""V8's first versions that distinguish holes from undefined, have tags before all strings, and before host objects, and
flags of views."""
LATIN_1_TAG, UTF_16_TAG, UTF_8_TAG = map(ord, '"cS')
INT_TAG, UNSIGNED_TAG, DOUBLE_TAG, DATE_TAG = map(ord, "IUND")
TRUE_TAG, FALSE_TAG, NULL_TAG, UNDEFINED_TAG = map(ord, "TF0_")
OBJECT_TAG, DENSE_LIST_TAG, SPARSE_LIST_TAG = map(ord, "oAa")
OBJECT_END_TAG, DENSE_LIST_END_TAG, SPARSE_LIST_END_TAG = map(ord, "{$@")
"""What values of V8 begin with, and what ends those that have others in them."""
WRAPPED = 17
"""In place of Blink's version: the value is not here as it is."""
IN_BLOB, IN_SNAPPY = 1, 2
"""What follows: size and number of the blob that has the value, or the compressed value."""


class KeyPrefix(NamedTuple):
    """Prefix of a key: IDs of database, object store and index.

    Attributes:
        database: ID of the database; 0 for what belongs to none.
        store: ID of the object store; 0 for metadata.
        index_id: ID of the index, or what is below `FIRST_INDEX`.
    """

    database: int
    store: int
    index_id: int


def read_place(cursor: Cursor) -> KeyPrefix:
    """Return the prefix: a byte with the lengths of three numbers, and these."""
    lengths = cursor.take_byte()
    place = KeyPrefix(
        cursor.take_unsigned((lengths >> 5) + 1),
        cursor.take_unsigned((lengths >> 2 & 7) + 1),
        cursor.take_unsigned((lengths & 3) + 1),
    )
    if place.database >> 63 or place.store >> 63:
        raise UnknownBytesError(f"an ID of 64 bits in the prefix {cursor.data[: cursor.position].hex()}")
    return place
