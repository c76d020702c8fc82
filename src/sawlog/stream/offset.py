"""Offsets: one record per file, of which those of finished files are short. Plain JSON, with a version."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from sawlog.errors import FormatError, SawlogError
from sawlog.guard import Undecodable, call_decoder
from sawlog.storage import File, Storage, find_answer, note_answer
from sawlog.storage.typed_json import parse_json_as

VERSION = 2
MAX_WAITING_FILES = 10_000
"""Files that were seen and not begun that an offset remembers, at most."""

PROVEN_BYTES = 1024
"""Bytes at either place that are remembered by their digest."""


_EXPECTED = "expected an offset of sawlog's"
_BUCKETS = 256
_FINISHED = struct.Struct(">6s5s4s3s3s")  # what of the name the bucket does not say, position, head, tail, version
_WAITING = struct.Struct(">7s5s")
_COPY = struct.Struct(">7s7s5s")
_NAME_BYTES = 7
_HEAD_BYTES = 4
_TAIL_BYTES = 3
_VERSION_BYTES = 3
_ADVICE = (
    "; logs may grow, and give way to others of another name. Start again with a new checkpoint, or without positions,"
    " to read it from its beginning"
)


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Position up to which a file was read.

    Attributes:
        position: Committed bytes.
        proof: What shows that the file is still the same one; see `prove`.
        begin: Where the micro-batch that leads here begins to read the file.
    """

    position: int
    proof: str = ""
    begin: int = 0


class FinishedFile(NamedTuple):
    """Record of a file that was read to its end.

    Attributes:
        position: Its size then.
        head: Digest of its first bytes, by which it is known again under another name; zeros if that is not known.
        tail: Digest of its last bytes.
        version: Digest of what its storage says of it, which shows when to look again.
    """

    position: int
    head: bytes
    tail: bytes
    version: bytes

    @classmethod
    def of(cls, place: ReadPosition, version: str) -> FinishedFile:
        """Return the record of a file that was read up to a place."""
        tail = bytes.fromhex(place.proof.rpartition(" ")[2])[:_TAIL_BYTES].ljust(_TAIL_BYTES, b"\0")
        return cls(place.position, shorten_proof(place.proof), tail, hash_version(version))


NO_HEAD = bytes(_HEAD_BYTES)


def shorten_proof(proof: str) -> bytes:
    """Return the short form of the first digest of a proof."""
    return bytes.fromhex(proof.partition(" ")[0])[:_HEAD_BYTES].ljust(_HEAD_BYTES, b"\0")


def hash_version(version: str) -> bytes:
    """Return the short form of what a storage says of a file."""
    return hashlib.blake2b(version.encode(errors="surrogateescape"), digest_size=_VERSION_BYTES).digest()


def hash_name(name: str) -> bytes:
    """Return the key that stands for a name."""
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=_NAME_BYTES).digest()


def dump_schema(schema: pa.Schema) -> str:
    """Return a schema as text."""
    return base64.b64encode(zlib.compress(schema.serialize().to_pybytes())).decode()


def load_schema(text: str) -> pa.Schema:
    """Return the schema that `dump_schema` made text of."""
    stored = call_decoder(zlib.decompress, _decode_base64(text))
    schema = stored if isinstance(stored, Undecodable) else call_decoder(pa.ipc.read_schema, pa.py_buffer(stored))
    if isinstance(schema, Undecodable):
        raise FormatError(f"{_EXPECTED}, found a schema that cannot be read: {schema.detail}")
    return schema


def _decode_base64(text: str) -> bytes:
    decoded = call_decoder(base64.b64decode, text, validate=True)
    if isinstance(decoded, Undecodable):
        raise FormatError(f"{_EXPECTED}, found no base64: {text[:60]!r}")
    return decoded


def _decode_entries(text: str, entry: struct.Struct) -> Iterator[tuple[bytes, ...]]:
    """Return entries of one size, back to back in base64."""
    data = _decode_base64(text)
    if len(data) % entry.size:
        raise FormatError(f"{_EXPECTED}, found {len(data)} bytes where each entry takes {entry.size}")
    return entry.iter_unpack(data)


class Link(NamedTuple):
    """Record of a file that is the copy of another.

    Attributes:
        origin: Key of the name of the other.
        size: How many bytes were compared, and are the same.
    """

    origin: bytes
    size: int


class _Bucket(dict[bytes, FinishedFile]):
    """Share of the finished files; never changed once an offset has it, so that its text is made once."""

    _text: str | None = None

    @property
    def text(self) -> str:
        if self._text is None:
            packed = [
                _FINISHED.pack(key[1:], ended.position.to_bytes(5, "big"), ended.head, ended.tail, ended.version)
                for key, ended in sorted(self.items())
            ]
            self._text = base64.b64encode(b"".join(packed)).decode()
        return self._text


class Finished:
    """Files that were read to their end, by the keys of their names. Copies share what neither changes."""

    def __init__(self, buckets: list[_Bucket] | None = None) -> None:
        self._buckets = buckets or [_Bucket() for _ in range(_BUCKETS)]

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[bytes]:
        for bucket in self._buckets:
            yield from bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finished) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    def get(self, key: bytes) -> FinishedFile | None:
        """Return what is known of a file; `None` for one that is not finished."""
        return self._buckets[key[0]].get(key)

    def with_changes(self, added: Mapping[bytes, FinishedFile], removed: set[bytes]) -> Finished:
        """Return the same but for some files."""
        buckets = list(self._buckets)
        for index in {key[0] for key in (*added, *removed)}:
            bucket = _Bucket(buckets[index])
            for key in removed:
                bucket.pop(key, None)
            bucket |= {key: ended for key, ended in added.items() if key[0] == index}
            buckets[index] = bucket
        return Finished(buckets)

    def to_json(self) -> dict[str, str]:
        """Return the texts of the buckets, by bucket."""
        return {f"{index:02x}": bucket.text for index, bucket in enumerate(self._buckets) if bucket}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> Finished:
        """Return the files that `to_json` made data of."""
        buckets = [_Bucket() for _ in range(_BUCKETS)]
        for first, text in data.items():
            prefix = call_decoder(bytes.fromhex, first)
            if isinstance(prefix, Undecodable) or len(prefix) != 1:
                raise FormatError(f"{_EXPECTED}, found files by {first[:60]!r}")
            for key_rest, position, *digests in _decode_entries(text, _FINISHED):
                buckets[prefix[0]][prefix + key_rest] = FinishedFile(int.from_bytes(position, "big"), *digests)
        return cls(buckets)


@dataclass(frozen=True, slots=True)
class _OffsetDocument:
    """An offset as JSON; see `Offset.to_json`."""

    files: dict[str, tuple[int, str, int]]
    finished: dict[str, str]
    waiting: str = ""
    copies: str = ""
    table: str | None = None
    schema: str | None = None


@dataclass(slots=True)
class Offset:
    """A place in a stream.

    Attributes:
        files: Files that are being read, by name.
        finished: Those that were read to their end.
        waiting: Sizes of files that were seen and not begun, by the keys of their names.
        table: Which table the stream is of, where the format has such a thing.
        schema: The columns of the view when the stream began, as Arrow's IPC schema in base64.
        copies: Files that hold nothing but what others do, by the keys of their names.
    """

    files: dict[str, ReadPosition] = field(default_factory=dict)
    finished: Finished = field(default_factory=Finished)
    waiting: dict[bytes, int] = field(default_factory=dict)
    table: str | None = None
    schema: str | None = None
    copies: dict[bytes, Link] = field(default_factory=dict)

    def knows(self, name: str) -> bool:
        """Return whether the stream has begun to read a file of that name."""
        return name in self.files or self.finished.get(hash_name(name)) is not None

    @classmethod
    def from_json(cls, data: Any) -> Offset:
        """Return the offset that `to_json` made data of.

        Raises:
            SawlogError: When it is something else.
        """
        version = parse_json_as(data, dict[str, Any], _EXPECTED).get("version")
        if version != VERSION:
            raise SawlogError(f"found an offset of version {version}; this sawlog knows version {VERSION}")
        stored: _OffsetDocument = parse_json_as(data, _OffsetDocument, _EXPECTED)
        return cls(
            {name: ReadPosition(*fields) for name, fields in stored.files.items()},
            Finished.from_json(stored.finished),
            {key: int.from_bytes(size, "big") for key, size in _decode_entries(stored.waiting, _WAITING)},
            stored.table,
            stored.schema,
            {
                key: Link(origin, int.from_bytes(size, "big"))
                for key, origin, size in _decode_entries(stored.copies, _COPY)
            },
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data with sorted keys: Spark compares offsets as text."""
        packed = [_WAITING.pack(key, size.to_bytes(5, "big")) for key, size in sorted(self.waiting.items())]
        copies = [
            _COPY.pack(key, link.origin, link.size.to_bytes(5, "big")) for key, link in sorted(self.copies.items())
        ]
        data = {
            "copies": base64.b64encode(b"".join(copies)).decode(),
            "files": {name: [place.position, place.proof, place.begin] for name, place in sorted(self.files.items())},
            "finished": self.finished.to_json(),
            "schema": self.schema,
            "table": self.table,
            "version": VERSION,
            "waiting": base64.b64encode(b"".join(packed)).decode(),
        }
        return {key: value for key, value in data.items() if value not in (None, "")}


def prove(file: File, position: int, storage: Storage) -> str:
    """Return digests of the first and last bytes of a file before `position`, by the index where it knows them."""
    question = f"proof {position}"
    digests = find_answer(storage, file, question)
    if digests is None:
        digests = " ".join(
            _compute_digest(storage.read(file.path, start, length)) for start, length in _choose_spans(position)
        ).encode()
        note_answer(storage, file, question, digests)
    return digests.decode()


def compute_head(file: File, size: int, storage: Storage) -> str:
    """Return the beginning of the proof of a file that was read up to byte `size`."""
    return _compute_digest(storage.read(file.path, 0, min(size, PROVEN_BYTES)))


def check_proof(file: File, position: int, proof: str, storage: Storage) -> None:
    """Make sure that a file still begins with the bytes that were read of it.

    Raises:
        SawlogError: When it is shorter, or others are there; names the file and both facts.
    """
    if file.size < position:
        raise SawlogError(
            f"{file.path}: the file shrank to {file.size} bytes; {position} bytes of it were read{_ADVICE}"
        )
    if not position:
        return
    for (start, length), expected in zip(_choose_spans(position), proof.split(), strict=True):
        actual = _compute_digest(storage.read(file.path, start, length))
        if actual != expected:
            raise SawlogError(
                f"{file.path}: the file was replaced or rewritten: bytes {start} to {start + length} had the digest"
                f" {expected} when they were read, and have {actual} now{_ADVICE}"
            )


def _choose_spans(position: int) -> list[tuple[int, int]]:
    length = min(position, PROVEN_BYTES)
    return [(0, length), (position - length, length)]


def _compute_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
