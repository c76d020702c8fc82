"""Metadata of an object on one drive: `xl.meta` of all versions, and `xl.json`. No length is believed."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

from sawlog.guard import Undecodable, call_decoder, count_microseconds, decode_json
from sawlog.storage.minio import layout
from sawlog.storage.minio.message_pack import PackError, Unpacker
from sawlog.storage.sources import Source


class MetadataError(Exception):
    """Metadata that cannot be read.

    Attributes:
        unsupported: Whether it is of a version that this code does not know, rather than damaged.
    """

    def __init__(self, detail: str, *, unsupported: bool = False) -> None:
        super().__init__(detail)
        self.unsupported = unsupported


class Stamp(NamedTuple):
    """Identity of a version, the same on all drives that hold it, the time first.

    Attributes:
        modified: When it was written, in nanoseconds since the epoch.
        is_deleted: Whether the object was deleted then.
        version: Its id; zeros where the bucket keeps no versions.
    """

    modified: int
    is_deleted: bool
    version: bytes


class ShardChecksum(NamedTuple):
    """Checksum of a whole shard of a part: its algorithm, and the hash."""

    algorithm: str
    digest: bytes


class PartSize(NamedTuple):
    """Number of a part, and its bytes before they were cut into shards."""

    number: int
    size: int


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """A version of an object, as the metadata on one drive says it.

    Attributes:
        size: Bytes of the object.
        data_shards: Shards into which each block is cut.
        parity_shards: Shards that can take the place of lost ones.
        block_size: Bytes of a block before it is cut.
        shard: Number of the shard that this drive has, from 1; those of data come first.
        parts: Its parts, in order.
        directory: Where the files of parts are, below the object's directory; empty where they are in it.
        inline: Where the shard begins in the metadata, and its bytes; `None` where it is in files.
        checksums: Checksums of parts that are not `layout.STREAMING`, by number.
        refusal: Why the bytes are not those of the object; empty where they are.
    """

    size: int
    data_shards: int
    parity_shards: int
    block_size: int
    shard: int
    parts: tuple[PartSize, ...]
    directory: str
    inline: tuple[int, int] | None
    checksums: Mapping[int, ShardChecksum]
    refusal: str

    @property
    def shard_block(self) -> int:
        """Bytes of a whole block in a shard, without its hash."""
        return -(-self.block_size // self.data_shards)

    def compute_shard_bytes(self, size: int) -> int:
        """Return the size of a shard of so many bytes of a part, without hashes."""
        blocks, remainder = divmod(size, self.block_size)
        return blocks * self.shard_block + -(-remainder // self.data_shards)


class ObjectMetadata:
    """Metadata of an object on one drive.

    Attributes:
        stamps: The versions, the newest first.

    Args:
        source: The file; it stays open while versions are asked for.

    Raises:
        MetadataError: When it cannot be read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._inline: int | None = None
        self._bodies: dict[Stamp, Any] = {}
        try:
            head = bytes(source.read_window(0, layout.HEAD.size))
            if head[: len(layout.MAGIC)] == layout.MAGIC and len(head) == layout.HEAD.size:
                self._read_binary(head)
            else:
                self._read_text()
        except PackError as error:
            raise MetadataError(str(error)) from error
        self.stamps: Sequence[Stamp] = sorted(self._bodies, reverse=True)

    def read_version(self, stamp: Stamp) -> ObjectVersion:
        """Return all that is said of a version that is no deletion.

        Raises:
            MetadataError: When it cannot be read.
        """
        body = self._bodies[stamp]
        try:
            if isinstance(body, bytes):
                body = Unpacker(body).take_value()
            if not isinstance(body, dict):
                raise MetadataError(f"a version is {type(body).__name__}, expected a map")
            if b"V2Obj" in body:
                return self._read_object(_Fields(body[b"V2Obj"], "V2Obj"), stamp)
            return _read_old_object(_Fields(body[b"V1Obj"], "V1Obj")) if b"V1Obj" in body else _read_text_object(body)
        except PackError as error:
            raise MetadataError(str(error)) from error

    # Version 2.

    def _read_binary(self, head: bytes) -> None:
        _, major, minor = layout.HEAD.unpack(head)
        if head[4:] == layout.TEXT_VERSION:
            major, minor = layout.MAJOR, 0
        if major != layout.MAJOR or minor > layout.MINOR_INDEXED:
            versions = f"{layout.MAJOR}.0 to {layout.MAJOR}.{layout.MINOR_INDEXED}"
            raise MetadataError(f"version {major}.{minor} of xl.meta; known are {versions}", unsupported=True)
        file = _Slices(self._source)
        if minor < layout.MINOR_SIZED:
            self._take_versions(file[layout.HEAD.size : self._source.size])
            return
        outer = Unpacker(file, layout.HEAD.size)
        length = outer.take_bytes_header()
        start, outer.position = outer.position, outer.position + length
        body = file[start : start + length]
        if len(body) < length:
            raise MetadataError(f"{length} bytes of versions expected at byte {start}, {len(body)} are there")
        if minor >= layout.MINOR_CHECKED:
            expected = outer.take_value()
            actual = xxhash.xxh64_intdigest(body) & 0xFFFFFFFF
            if expected != actual:
                raise MetadataError(f"checksum of the versions at byte {start}: {expected} stored, {actual} computed")
        self._inline = outer.position if outer.position < self._source.size else None
        if minor < layout.MINOR_INDEXED:
            self._take_versions(body)
        else:
            self._take_indexed(body)

    def _take_versions(self, body: bytes) -> None:
        """Read versions without headers."""
        document = Unpacker(body).take_value()
        versions = document.get(b"Versions") if isinstance(document, dict) else None
        if not isinstance(versions, list):
            raise MetadataError("no list of versions")
        for version in versions:
            fields = _Fields(version, "version")
            kind = fields.read_integer("Type")
            if kind == layout.DELETE_TYPE:
                inner = _Fields(version.get(b"DelObj"), "DelObj")
            elif kind == layout.OBJECT_TYPE:
                inner = _Fields(version.get(b"V2Obj"), "V2Obj")
            else:
                inner = _Fields({b"MTime": 0, b"ID": bytes(16)}, "V1Obj")
            stamp = Stamp(inner.read_integer("MTime"), kind == layout.DELETE_TYPE, inner.read_identity("ID"))
            self._bodies[stamp] = version

    def _take_indexed(self, body: bytes) -> None:
        """Read the headers of versions; the versions themselves are read when they are asked for."""
        unpacker = Unpacker(body)
        header_version, meta_version = unpacker.take_value(), unpacker.take_value()
        if header_version not in layout.HEADER_VERSIONS or not 0 < _check_integer(meta_version) <= layout.META_VERSION:
            detail = f"version {header_version} of headers, {meta_version} of versions"
            raise MetadataError(f"{detail}; known are up to {layout.META_VERSION}", unsupported=True)
        count = _check_integer(unpacker.take_value())
        for _ in range(count):
            header, version = Unpacker(unpacker.take_bytes()).take_value(), unpacker.take_bytes()
            if not isinstance(header, list) or len(header) != layout.HEAD_FIELDS[header_version]:
                raise MetadataError("the header of a version is not the list that was expected")
            kind, flags = map(_check_integer, header[2 + (header_version > 1) :][:2])
            if not isinstance(header[0], bytes):
                raise MetadataError("the header of a version has no id")
            if not flags & layout.FREE_VERSION:
                stamp = Stamp(_check_integer(header[1]), kind == layout.DELETE_TYPE, header[0])
                self._bodies[stamp] = version

    def _read_object(self, fields: _Fields, stamp: Stamp) -> ObjectVersion:
        for name, only in (("EcAlgo", layout.REED_SOLOMON), ("CSumAlgo", layout.HIGHWAY_HASH)):
            if (number := fields.read_integer(name)) != only:
                raise MetadataError(f"{name} {number}; known is {only}", unsupported=True)
        numbers, sizes = fields.read_integers("PartNums"), fields.read_integers("PartSizes")
        if len(numbers) != len(sizes):
            raise MetadataError(f"{len(numbers)} parts with {len(sizes)} sizes")
        size, identity = fields.read_integer("Size"), fields.read_identity("DDir")
        return _check_version(
            ObjectVersion(
                size,
                fields.read_integer("EcM"),
                fields.read_integer("EcN"),
                fields.read_integer("EcBSize"),
                fields.read_integer("EcIndex"),
                tuple(map(PartSize, numbers, sizes)),
                str(uuid.UUID(bytes=identity)),
                self._find_inline_range(stamp) if size else None,
                {},
                _find_refusal(fields.read_texts("MetaSys")),
            )
        )

    def _find_inline_range(self, stamp: Stamp) -> tuple[int, int] | None:
        """Return the place of a version's data, of a length that the file may not have; `None` where it is in files.

        A mark of inline data says nothing: servers have left it at objects whose data they moved to files.
        """
        key = str(uuid.UUID(bytes=stamp.version)) if any(stamp.version) else "null"
        if self._inline is None:
            return None
        file = _Slices(self._source)
        number = file[self._inline : self._inline + 1]
        if number != bytes([layout.INLINE_VERSION]):
            detail = f"version {number[0]} of inline data; known is {layout.INLINE_VERSION}"
            raise MetadataError(detail, unsupported=True)
        unpacker = Unpacker(file, self._inline + 1)
        for _ in range(unpacker.take_map_header()):
            name = unpacker.take_bytes()
            length = unpacker.take_bytes_header()
            if name == key.encode():
                return unpacker.position, length
            unpacker.position += length
        return None

    # Version 1.

    def _read_text(self) -> None:
        document = decode_json(bytes(self._source.read_window(0, self._source.size)))
        if isinstance(document, Undecodable) or not isinstance(document, dict):
            raise MetadataError("neither an xl.meta, which begins with 'XL2 ', nor JSON")
        stat = document.get("stat")
        modified = stat.get("modTime") if isinstance(stat, dict) else None
        self._bodies[Stamp(_parse_time(modified), False, bytes(16))] = document


class _Slices:
    """Slices of a source, as bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, place: slice) -> bytes:
        start, length = place.start, max(0, place.stop - place.start)
        return b"" if start >= self._source.size else self._source.read_window(start, length).tobytes()


class _Fields:
    """A map with keys in bytes or text, whose values are checked when they are taken.

    Args:
        values: What should be one.
        name: Its name, for messages.

    Raises:
        MetadataError: When it is none.
    """

    def __init__(self, values: Any, name: str) -> None:
        if not isinstance(values, dict):
            raise MetadataError(f"{name} is {type(values).__name__}, expected a map")
        self._values = {_decode_text(key): value for key, value in values.items()}
        self._name = name

    def read_integer(self, name: str) -> int:
        """Return a number that is not negative."""
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MetadataError(f"{self._name}.{name} is {value!r:.40}, expected a number")
        return value

    def read_integers(self, name: str) -> list[int]:
        """Return a list of numbers; empty where there is none."""
        values = self._values.get(name)
        numbers = values if isinstance(values, list) else []
        if not all(isinstance(value, int) and value >= 0 for value in numbers):
            raise MetadataError(f"{self._name}.{name} has other values than numbers")
        return numbers

    def read_identity(self, name: str) -> bytes:
        """Return an identity: sixteen bytes."""
        value = self._values.get(name)
        if not isinstance(value, bytes) or len(value) != 16:
            raise MetadataError(f"{self._name}.{name} is {value!r:.40}, expected 16 bytes")
        return value

    def read_texts(self, name: str) -> dict[str, str]:
        """Return a map of texts, the keys in lower case; empty where there is none."""
        values = self._values.get(name)
        return (
            {_decode_text(key).lower(): _decode_text(text) for key, text in values.items()}
            if isinstance(values, dict)
            else {}
        )

    def read_text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        return _decode_text(self._values.get(name, ""))

    def read_bytes(self, name: str) -> bytes:
        """Return bytes; none where there are none."""
        value = self._values.get(name)
        return value if isinstance(value, bytes) else b""

    def read_map(self, name: str) -> _Fields:
        """Return a map in it."""
        return _Fields(self._values.get(name), f"{self._name}.{name}")

    def iterate_maps(self, name: str) -> Iterator[_Fields]:
        """Yield a list of maps in it; empty where there is none."""
        values = self._values.get(name)
        for value in values if isinstance(values, list) else []:
            yield _Fields(value, f"{self._name}.{name}")


def _read_old_object(fields: _Fields) -> ObjectVersion:
    """Return the version of a server of before 2020 in metadata of version 2."""
    erasure = fields.read_map("Erasure")
    parts = tuple(PartSize(part.read_integer("n"), part.read_integer("s")) for part in fields.iterate_maps("Parts"))
    checksums: dict[int, ShardChecksum] = {}
    for sum in erasure.iterate_maps("Checksums"):
        number = sum.read_integer("Algorithm")
        algorithm = layout.V1_ALGORITHMS.get(number, f"number {number}")
        checksums[sum.read_integer("PartNumber")] = ShardChecksum(algorithm, sum.read_bytes("Hash"))
    return _check_version(
        ObjectVersion(
            fields.read_map("Stat").read_integer("Size"),
            erasure.read_integer("DataBlocks"),
            erasure.read_integer("ParityBlocks"),
            erasure.read_integer("BlockSize"),
            erasure.read_integer("Index"),
            parts,
            fields.read_text("DataDir"),
            None,
            _index_checksums(checksums),
            _find_refusal(fields.read_texts("Meta")),
        )
    )


def _read_text_object(document: dict[str, Any]) -> ObjectVersion:
    """Return the version of an `xl.json`."""
    fields = _Fields(document, "xl.json")
    version, format = fields.read_text("version"), fields.read_text("format")
    if version not in layout.V1_VERSIONS or format != layout.V1_FORMAT:
        raise MetadataError(f"version {version!r:.40} of format {format!r:.40} in JSON", unsupported=True)
    erasure = fields.read_map("erasure")
    parts = tuple(
        PartSize(part.read_integer("number"), part.read_integer("size")) for part in fields.iterate_maps("parts")
    )
    checksums: dict[int, ShardChecksum] = {}
    for sum in erasure.iterate_maps("checksum"):
        name, digest = layout.PART.match(sum.read_text("name")), call_decoder(bytes.fromhex, sum.read_text("hash"))
        if isinstance(digest, Undecodable):
            raise MetadataError(f"a checksum: {digest.detail}")
        checksums[int(name[1]) if name else 0] = ShardChecksum(sum.read_text("algorithm"), digest)
    return _check_version(
        ObjectVersion(
            fields.read_map("stat").read_integer("size"),
            erasure.read_integer("data"),
            erasure.read_integer("parity"),
            erasure.read_integer("blockSize"),
            erasure.read_integer("index"),
            parts,
            "",
            None,
            _index_checksums(checksums),
            _find_refusal(fields.read_texts("meta")),
        )
    )


def _index_checksums(checksums: Mapping[int, ShardChecksum]) -> dict[int, ShardChecksum]:
    return {number: sum for number, sum in checksums.items() if sum.algorithm != layout.STREAMING}


def _check_version(version: ObjectVersion) -> ObjectVersion:
    """Return the same version, whose numbers go together.

    Raises:
        MetadataError: When they do not.
    """
    shards = version.data_shards + version.parity_shards
    if not version.data_shards > 0 or version.data_shards < version.parity_shards or shards > layout.MAX_SHARDS:
        raise MetadataError(f"{version.data_shards} shards of data and {version.parity_shards} of parity")
    if not 0 < version.shard <= shards:
        raise MetadataError(f"shard {version.shard} of {shards}")
    if version.block_size < layout.LEAST_BLOCK:
        raise MetadataError(f"blocks of {version.block_size} bytes; at least {layout.LEAST_BLOCK} were expected")
    if len(version.parts) > layout.MAX_PARTS:
        raise MetadataError(f"{len(version.parts)} parts; {layout.MAX_PARTS} are possible")
    if (total := sum(part.size for part in version.parts)) != version.size:
        raise MetadataError(f"{version.size} bytes in parts of {total}")
    if version.directory not in ("", layout.LEGACY) and not layout.DATA_DIRECTORY.match(version.directory):
        raise MetadataError(f"parts in a directory {version.directory!r:.60}")
    return version


def _find_refusal(metadata: Mapping[str, str]) -> str:
    """Return why the stored bytes are not those of the object; empty where they are."""
    if any(key.startswith(layout.ENCRYPTION) for key in metadata):
        return "the object is encrypted by MinIO; reading it needs the key of its server or its client"
    if scheme := metadata.get(layout.COMPRESSION):
        return f"the object is compressed by MinIO ({scheme})"
    if metadata.get(layout.TIER_STATUS) == layout.TIERED:
        return f"the object was moved to another store, MinIO's tier {metadata.get(layout.TIER_NAME, '')!r:.60}"
    return ""


def _check_integer(value: Any) -> int:
    if not isinstance(value, int):
        raise MetadataError(f"{value!r:.40} where a number was expected")
    return value


def _decode_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _parse_time(text: Any) -> int:
    """Return a time of RFC 3339 since the epoch; 0 for what is none."""
    try:
        return count_microseconds(dt.datetime.fromisoformat(str(text))) * 1000
    except ValueError:
        return 0
