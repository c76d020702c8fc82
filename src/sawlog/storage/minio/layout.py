"""Numbers and names of MinIO's layout on drives: `xl.meta` (version 2), `xl.json` (version 1), and parts."""

from __future__ import annotations

import re
import struct

META = "xl.meta"
"""Name of the file that says what an object is, in the object's directory."""
META_V1 = "xl.json"
"""Its name where a server of before 2020 wrote it."""
SYSTEM = ".minio.sys"
"""Directory of a drive that is the server's own."""
DRIVE = f"{SYSTEM}/format.json"
"""File of a drive that says which deployment it belongs to."""
LEGACY = "legacy"
"""Directory of the parts of an object that a server of before 2020 wrote, once its metadata is of version 2."""
DIRECTORY_MARK = "__XLDIR__"
"""End of the name of an object whose own name ends in a slash: a directory, of no bytes."""
PART = re.compile(r"part\.(\d{1,5})$")
"""Name of a file with a part, by number."""
DATA_DIRECTORY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""Name of a directory of parts."""

HEAD = struct.Struct("<4sHH")
"""Magic bytes, major and minor version."""
MAGIC = b"XL2 "
TEXT_VERSION = b"1   "
"""Both versions of the first servers: 1.0."""
MAJOR = 1
MINOR_SIZED = 1
"""From this minor version on, the versions are one value of bytes, and data may follow."""
MINOR_CHECKED = 2
"""From this one on, the lower half of their XXH64 comes after them."""
MINOR_INDEXED = 3
"""From this one on, each has a header of its own."""
HEADER_VERSIONS = range(1, 4)
"""Versions of those headers."""
META_VERSION = 3
"""Latest version of what follows a header."""
LEAST_BLOCK = 1 << 16
"""Bytes of a block at least; servers have always made blocks of 1 or 10 MiB."""
INLINE_VERSION = 1
"""Version of the map of data."""

HEAD_FIELDS = {1: 4, 2: 5, 3: 7}
"""Fields in a header, by version: id, time, signature (not in 1), type, flags, and numbers of shards in 3."""
FREE_VERSION = 1
"""Flag of a version that is none any more, but waits for the deletion of its bytes elsewhere."""

OBJECT_TYPE = 1
DELETE_TYPE = 2

REED_SOLOMON = 1
HIGHWAY_HASH = 1
"""Numbers of the only erasure code and the only checksum of version 2."""

MAX_SHARDS = 256
"""Shards of an object at most: elements of the field of 8 bits."""
MAX_PARTS = 10_000

V1_VERSIONS = ("1.0.0", "1.0.1")
V1_FORMAT = "xl"

COMPRESSION = "x-minio-internal-compression"
ENCRYPTION = "x-minio-internal-server-side-encryption-"
"""Keys of metadata, in lower case: compression, and the beginning of those of encryption."""
TIER_STATUS = "x-minio-internal-transition-status"
TIER_NAME = "x-minio-internal-transition-tier"
TIERED = "complete"
"""Keys and value of metadata of an object whose bytes are in another store."""

BITROT_KEY = bytes.fromhex("4be734fa8e238acd263e83e6bb968552040f935da39f441497e09d1322de36a0")
"""Key of HighwayHash: its hash of the first hundred decimals of pi, with a key of zeros."""
HASH_BYTES = 32
"""A hash is in front of each block of a shard."""
STREAMING = "highwayhash256S"
"""Checksum whose hashes are in front of the blocks; those of all others are of whole shards, in the metadata."""
V1_ALGORITHMS = {1: "sha256", 2: "highwayhash256", 3: STREAMING, 4: "blake2b"}
"""Checksums by the numbers that version 2 has for version 1's."""

READ_ERROR = "read_error"
MISSING_FILE = "missing_file"
UNSUPPORTED = "unsupported"
"""Kinds of findings, as formats call them."""
