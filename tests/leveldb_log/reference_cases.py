"""Cases of LevelDB's own tests of logs, and what its reader makes of them."""

from __future__ import annotations

from tests.bytes import mask_crc

from .fragments import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE, fragment, write

B, H = BLOCK, HEADER


def big(text: str, size: int) -> bytes:
    return (text.encode() * (size // len(text) + 1))[:size]


def num(i: int) -> bytes:
    return b"%d." % i


def bump(log: bytes, position: int, by: int) -> bytes:
    return log[:position] + bytes([(log[position] + by) & 0xFF]) + log[position + 1 :]


def retype(log: bytes, kind: int, length: int = 3) -> bytes:
    """The first fragment with another type and the right checksum for it."""
    checked = bytes([kind]) + log[7 : 7 + length]
    return mask_crc(checked).to_bytes(4, "little") + log[4:6] + checked + log[7 + length :]


def skewed_records() -> list[bytes]:
    """LevelDB's RandomRead: lengths from its own generator."""
    state = 301

    def uniform(n: int) -> int:
        nonlocal state
        state = state * 16807 % 0x7FFFFFFF
        return state % n

    return [big(num(i).decode(), uniform(1 << uniform(18))) for i in range(500)]


FOO, BAR = b"foo", b"bar"
CLEAN: list[tuple[str, list[bytes], list[int] | None]] = [
    ("Empty", [], []),
    ("ReadWrite", [FOO, BAR, b"", b"xxxx"], [0, 10, 20, 27]),
    ("ManyBlocks", [num(i) for i in range(100_000)], None),
    ("Fragmentation", [b"small", big("medium", 50_000), big("large", 100_000)], [0, 12, 50_026]),
    ("MarginalTrailer", [big("foo", B - 2 * H), b"", BAR], [0, 32761, 32768]),
    ("MarginalTrailer2", [big("foo", B - 2 * H), BAR], [0, 32761]),
    ("ShortTrailer", [big("foo", B - 2 * H + 4), b"", BAR], [0, 32768, 32775]),
    ("AlignedEof", [big("foo", B - 2 * H + 4)], [0]),
    ("RandomRead", skewed_records(), None),
]
UNKNOWN = "unknown record type"
MISSING = "missing start of fragmented record"
PARTIAL = "partial record without end"
MIDST = "error in middle of record"
CHECKSUM = "checksum mismatch"
LENGTH = "bad record length"
first, two, three = write(b"one"), write(b"two"), write(b"three")
bar = write(BAR)
full_first_block = write(b"x" * (B - 2 * H))
joined = write(big("foo", B), big("bar", B), b"correct")
FIVE_LEFT = write(b"x" * (B - H - 5))
bad_then_next_block = (
    fragment(FULL, b"first")
    + bump(fragment(FULL, b"second"), 0, 1)
    + fragment(FULL, b"third")
    + write(b"x" * (B - 12 - 13 - 12 - 7))
)
# Name, log, records, drops.
CASES: list[tuple[str, bytes, list[bytes], list[tuple[int, str]]]] = [
    ("BadRecordType", retype(bump(write(FOO), 6, 100), 101), [], [(3, UNKNOWN)]),
    ("TruncatedTrailingRecordIsIgnored", write(FOO)[:-4], [], []),
    ("BadLength", bump(write(big("bar", B - H), FOO), 4, 1), [FOO], [(32768, LENGTH)]),
    ("BadLengthAtEndIsIgnored", write(FOO)[:-1], [], []),
    ("ChecksumMismatch", bump(write(FOO), 0, 10), [], [(10, CHECKSUM)]),
    ("UnexpectedMiddleType", retype(write(FOO), MIDDLE), [], [(3, MISSING)]),
    ("UnexpectedLastType", retype(write(FOO), LAST), [], [(3, MISSING)]),
    ("UnexpectedFullType", retype(write(FOO, BAR), FIRST), [BAR], [(3, PARTIAL)]),
    (
        "UnexpectedFirstType",
        retype(write(FOO, big("bar", 100_000)), FIRST),
        [big("bar", 100_000)],
        [(3, PARTIAL)],
    ),
    ("MissingLastIsIgnored", write(big("bar", B))[:-14], [], []),
    ("PartialLastIsIgnored", write(big("bar", B))[:-1], [], []),
    (
        "ErrorJoinsRecords",
        joined[:B] + b"x" * B + joined[2 * B :],
        [b"correct"],
        [(32768, CHECKSUM), (32761, MIDST), (21, MISSING)],
    ),
    ("type 0 with payload", fragment(0, FOO) + bar, [BAR], [(3, UNKNOWN)]),
    *(
        (f"type {kind}", fragment(kind, FOO) + bar, [BAR], [(3, UNKNOWN)])
        for kind in (5, 6, 7, 8, 9, 10, 127, 128, 130, 255)
    ),
    (
        "unknown type inside a record",
        fragment(FIRST, b"aaa") + fragment(9, b"zzz") + fragment(LAST, b"bbb") + bar,
        [BAR],
        [(6, UNKNOWN), (3, MISSING)],
    ),
    ("zero header hides the block", first + bytes(7) + write(b"lost"), [b"one"], []),
    ("zero header with a checksum", first + fragment(0, b"") + write(b"lost"), [b"one"], []),
    (
        "zero type with a length",
        first + b"\0\0\0\0\3\0\0abc" + write(b"lost"),
        [b"one"],
        [(21, CHECKSUM)],
    ),
    ("zeros to the block end", first + bytes(B - 10) + two, [b"one", b"two"], []),
    ("zeros to the file end", first + bytes(128 << 10), [b"one"], []),
    (
        "zeros inside a record",
        fragment(FIRST, b"aaa") + bytes(B - 10) + fragment(LAST, b"bbb") + bar,
        [BAR],
        [(3, MIDST), (3, MISSING)],
    ),
    ("empty FIRST of an old writer", full_first_block + fragment(FIRST, b"") + bar, [b"x" * (B - 2 * H), BAR], []),
    (
        "empty FIRST of an old writer, then a record in pieces",
        full_first_block + fragment(FIRST, b"") + fragment(FIRST, b"ba") + fragment(LAST, b"r"),
        [b"x" * (B - 2 * H), BAR],
        [],
    ),
    ("trailer of other bytes", FIVE_LEFT + b"\1\2\3\4\5" + bar, [b"x" * (B - H - 5), BAR], []),
    (
        "the rest of a damaged block is lost",
        bad_then_next_block + write(b"next"),
        [b"first", b"next"],
        [(B - 12, CHECKSUM)],
    ),
    (
        "too long a length at the end hides what follows",
        first + bump(bump(two, 4, 0x85), 5, 0x13) + three,
        [b"one"],
        [],
    ),
    (
        "too long a length in a full block",
        write(b"x" * (B - 17)) + bump(fragment(FULL, FOO), 4, 1),
        [b"x" * (B - 17)],
        [(10, LENGTH)],
    ),
    ("a full block that ends in FIRST", write(b"x" * (B - 17)) + fragment(FIRST, FOO), [b"x" * (B - 17)], []),
    (
        "FULL inside a record",
        b"".join(fragment(*f) for f in [(2, b"aa"), (3, b"bb"), (1, b"cc"), (4, b"dd"), (1, b"ee")]),
        [b"cc", b"ee"],
        [(4, PARTIAL), (2, MISSING)],
    ),
    (
        "orphans",
        b"".join(fragment(*f) for f in [(3, b"a"), (3, b"b"), (4, b"c"), (1, b"ok")]),
        [b"ok"],
        [(1, MISSING)] * 3,
    ),
]
