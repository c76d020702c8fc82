"""Map payloads: entries of key and value, with predefined keys. Section 2 of the format.

"Encoded" maps are only the entries, without the length before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sawlog.errors import FormatError, SchemaError
from sawlog.filodb import layout
from sawlog.filodb.hashing import make_java_key

Buffer = bytes | bytearray | memoryview


def encode_entry(key: bytes, value: bytes, predefined: Sequence[bytes]) -> bytes:
    """Return an entry of a map as bytes.

    Raises:
        SchemaError: For a key of 192 bytes or more, or a value of 64 KiB or more.
    """
    if len(key) > layout.MAX_KEY:
        raise SchemaError(f"map key {key[:20]!r}…: {len(key)} bytes; a key has at most {layout.MAX_KEY}")
    if len(value) > layout.MAX_PAYLOAD:
        raise SchemaError(f"map value of key {key!r}: {len(value)} bytes; a value has at most {layout.MAX_PAYLOAD}")
    code, key_bytes = (layout.PREDEFINED_FLAG | predefined.index(key), b"") if key in predefined else (len(key), key)
    return bytes((code,)) + key_bytes + layout.PAYLOAD.encode(value)


def encode_entries(
    labels: Mapping[str, str], predefined: Sequence[bytes], order: Callable[[str], bytes]
) -> list[bytes]:
    """Return the entries of a map, in an order of keys."""
    return [encode_entry(key.encode(), labels[key].encode(), predefined) for key in sorted(labels, key=order)]


def iterate(entries: Buffer, predefined: Sequence[bytes]) -> Iterator[tuple[bytes, memoryview]]:
    """Yield keys and values of an encoded map, in the order they are in.

    Raises:
        FormatError: When the entries do not end where the map does, or a predefined key is not in the list.
    """
    view = memoryview(entries)
    pos, end = 0, len(view)
    while pos < end:
        start = pos
        code = view[pos]
        pos += 1
        if code >= layout.PREDEFINED_FLAG:
            index = code - layout.PREDEFINED_FLAG
            if index >= len(predefined):
                raise FormatError(f"map: predefined key number {index}; the schema's list has {len(predefined)}")
            key = predefined[index]
        else:
            key = bytes(view[pos : pos + code])
            pos += code
        begin, pos = layout.PAYLOAD.find_ends(view, pos) if end - pos >= layout.PAYLOAD_LENGTH_SIZE else (pos, end + 1)
        if pos > end:
            raise FormatError(f"map: the entry at byte {start} runs over the end at byte {end}")
        yield key, view[begin:pos]


class MapEncoder:
    """Encodes maps once, to be added to any number of records.

    Args:
        predefined_keys: The schema's list of predefined keys.
    """

    def __init__(self, predefined_keys: Sequence[str] = ()) -> None:
        self._predefined = tuple(key.encode() for key in predefined_keys)

    def encode(self, labels: Mapping[str, str], order: Callable[[str], bytes] = make_java_key) -> bytes:
        """Return the entries of a map, keys in the order of Java's strings as FiloDB's `MapEncoder` has them.

        Raises:
            SchemaError: When a key, a value or the whole is too long.
        """
        entries = b"".join(encode_entries(labels, self._predefined, order))
        if len(entries) > layout.MAX_PAYLOAD:
            raise SchemaError(f"map: {len(entries)} bytes of entries; a map has at most {layout.MAX_PAYLOAD}")
        return entries

    def decode(self, encoded: Buffer) -> dict[str, str]:
        """Return the map; of repeated keys the last one counts."""
        return {key.decode(): str(value, "utf-8") for key, value in iterate(encoded, self._predefined)}
