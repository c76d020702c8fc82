"""Drives of MinIO, made without it, to the letter of its source; servers' own are in golden and interop."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from sawlog.kernels.highwayhash import HighwayHash256
from sawlog.storage.minio.layout import BITROT_KEY

MODIFIED = 1_700_000_000_000_000_000
DIRECTORY = uuid.UUID("0d0c0b0a-0000-4000-8000-000000000001")
NO_ID = bytes(16)


def pack(value: Any) -> bytes:
    """A value in MessagePack; bytes are bytes, and texts texts."""
    match value:
        case None | bool():
            return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
        case int():
            return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
        case str():
            text = value.encode()
            return b"\xda" + struct.pack(">H", len(text)) + text
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case list():
            return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))
        case dict():
            return b"\xde" + struct.pack(">H", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise TypeError(value)


def highway(data: bytes) -> bytes:
    hasher = HighwayHash256(BITROT_KEY)
    hasher.update(np.frombuffer(data, np.uint8))
    return hasher.digest()


def cut(data: bytes, shards: int, block: int) -> list[list[bytes]]:
    """The blocks of each shard of data."""
    columns: list[list[bytes]] = [[] for _ in range(shards)]
    for start in range(0, len(data), block):
        piece = data[start : start + block]
        each = -(-len(piece) // shards)
        for column in range(shards):
            columns[column].append(piece[column * each : (column + 1) * each].ljust(each, b"\0"))
    return columns


def streamed(blocks: Sequence[bytes]) -> bytes:
    """A shard as it is stored: each block after its hash."""
    return b"".join(highway(block) + block for block in blocks)


@dataclass
class StoredVersion:
    """Version of an object.

    Attributes:
        parts: The bytes of its parts.
        data: Shards of data; those of parity hold nothing that can be used.
        parity: Shards of parity.
        block: Bytes of a block.
        inline: Whether it is in the metadata.
        system: Metadata of the server.
        modified: When it was written.
        identity: Its version.
        deleted: Whether it is a delete marker.
    """

    parts: Sequence[bytes] = ()
    data: int = 1
    parity: int = 0
    block: int = 1 << 20
    inline: bool = True
    system: Mapping[str, bytes] = field(default_factory=dict)
    modified: int = MODIFIED
    identity: bytes = NO_ID
    deleted: bool = False

    @property
    def key(self) -> str:
        return str(uuid.UUID(bytes=self.identity)) if any(self.identity) else "null"

    def shard(self, part: bytes, number: int) -> bytes:
        columns = cut(part, self.data, self.block)
        return streamed(columns[number - 1] if number <= self.data else [bytes(len(column)) for column in columns[0]])

    def header(self) -> list[Any]:
        kind = 2 if self.deleted else 1
        return [self.identity, self.modified, b"sign", kind, 0 if self.deleted else 2, self.parity, self.data]

    def body(self, number: int) -> dict[str, Any]:
        if self.deleted:
            return {"Type": 2, "DelObj": {"ID": self.identity, "MTime": self.modified}, "v": 0}
        sizes = [len(part) for part in self.parts]
        return {
            "Type": 1,
            "V2Obj": {
                "ID": self.identity,
                "DDir": DIRECTORY.bytes,
                "EcAlgo": 1,
                "EcM": self.data,
                "EcN": self.parity,
                "EcBSize": self.block,
                "EcIndex": number,
                "EcDist": bytes(range(1, self.data + self.parity + 1)),
                "CSumAlgo": 1,
                "PartNums": list(range(1, len(sizes) + 1)),
                "PartETags": None,
                "PartSizes": sizes,
                "PartASizes": sizes,
                "Size": sum(sizes),
                "MTime": self.modified,
                "MetaSys": dict(self.system) | ({"x-minio-internal-inline-data": b"true"} if self.inline else {}),
                "MetaUsr": {"content-type": "application/octet-stream"},
            },
            "v": 1700000000,
        }


def xl_meta(versions: Sequence[StoredVersion], number: int = 1, *, minor: int = 3) -> bytes:
    """The metadata of an object on the drive that has one of the shards."""
    if minor == 3:
        listed = b"".join(pack(pack(version.header())) + pack(pack(version.body(number))) for version in versions)
        body = pack(3) + pack(3) + pack(len(versions)) + listed
    else:
        body = pack({"Versions": [version.body(number) for version in versions]})
    if not minor:
        return b"XL2 1   " + body
    data = {
        version.key: version.shard(version.parts[0], number) for version in versions if version.inline and version.parts
    }
    checksum = b"\xce" + struct.pack(">I", xxhash.xxh64_intdigest(body) & 0xFFFFFFFF) if minor >= 2 else b""
    inline = b"\x01" + pack(data) if data else b""
    return b"XL2 " + struct.pack("<HH", 1, minor) + pack(body) + checksum + inline


def put(drive: Path, key: str, *versions: StoredVersion, number: int = 1, minor: int = 3) -> Path:
    """Put an object on a drive; where its metadata is."""
    folder = drive / key
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        if not version.inline:
            parts = folder / str(DIRECTORY)
            parts.mkdir(exist_ok=True)
            for place, part in enumerate(version.parts, 1):
                (parts / f"part.{place}").write_bytes(version.shard(part, number))
    (folder / "xl.meta").write_bytes(xl_meta(versions, number, minor=minor))
    return folder / "xl.meta"


def put_old(drive: Path, key: str, parts: Sequence[bytes], algorithm: str = "highwayhash256S", **numbers: int) -> Path:
    """Put an object on a drive as a server of before 2020 did; where its metadata is."""
    import hashlib

    data, parity, number = numbers.get("data", 1), numbers.get("parity", 0), numbers.get("number", 1)
    block = 10 << 20
    folder = drive / key
    folder.mkdir(parents=True, exist_ok=True)
    sums = []
    for place, part in enumerate(parts, 1):
        blocks = cut(part, data, block)[min(number, data) - 1]
        content = b"".join(blocks)
        name = f"part.{place}"
        (folder / name).write_bytes(streamed(blocks) if algorithm.endswith("S") else content)
        digest = {
            "highwayhash256S": "",
            "highwayhash256": highway(content).hex(),
            "sha256": hashlib.sha256(content).hexdigest(),
            "blake2b": hashlib.blake2b(content).hexdigest(),
        }[algorithm]
        sums.append({"name": name, "algorithm": algorithm, "hash": digest})
    sizes = [
        {"number": n, "name": f"part.{n}", "etag": "", "size": len(p), "actualSize": len(p)}
        for n, p in enumerate(parts, 1)
    ]
    document = {
        "version": "1.0.1",
        "format": "xl",
        "stat": {"size": sum(map(len, parts)), "modTime": "2019-05-01T12:00:00.123456789Z"},
        "erasure": {
            "algorithm": "klauspost/reedsolomon/vandermonde",
            "data": data,
            "parity": parity,
            "blockSize": block,
            "index": number,
            "distribution": list(range(1, data + parity + 1)),
            "checksum": sums,
        },
        "minio": {"release": "RELEASE.2019-04-23T23-50-36Z"},
        "meta": {"content-type": "application/octet-stream"},
        "parts": sizes,
    }
    (folder / "xl.json").write_text(json.dumps(document))
    return folder / "xl.json"


def format_drives(drives: Sequence[Path], deployment: str = "d1") -> None:
    """Make drives of one erasure set of directories."""
    identities = [str(uuid.UUID(int=place + 1)) for place in range(len(drives))]
    for drive, identity in zip(drives, identities, strict=True):
        (drive / ".minio.sys").mkdir(parents=True, exist_ok=True)
        kind = "xl" if len(drives) > 1 else "xl-single"
        xl = {"version": "3", "this": identity, "sets": [identities], "distributionAlgo": "SIPMOD+PARITY"}
        document = {"version": "1", "format": kind, "id": deployment, "xl": xl}
        (drive / ".minio.sys" / "format.json").write_text(json.dumps(document))


def put_on_all(drives: Sequence[Path], key: str, *versions: StoredVersion) -> None:
    """Put an object on all drives of an erasure set, the shards in the order of the drives."""
    for number, drive in enumerate(drives, 1):
        put(drive, key, *versions, number=number)
