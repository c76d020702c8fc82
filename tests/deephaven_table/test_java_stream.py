"""Java's own serialization, of the JDK that is at hand, against ours: both ways, in one start of the JVM."""

from __future__ import annotations

import contextlib
import random
import shutil
import string
import struct
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sawlog.deephaven.table.groups.grouping import KEY_TYPES, Group, Grouping, encode_grouping, read_grouping
from sawlog.deephaven.table.groups.java_stream import MAX_BYTES, MAX_ELEMENTS, read_stream
from sawlog.deephaven.table.groups.java_values import MAX_DEPTH, JavaArray, JavaMap, JavaObject
from sawlog.deephaven.table.layout import ARRAY_UIDS, JAVA_NULL, make_array_prefix
from sawlog.deephaven.types import ColumnType
from sawlog.errors import FormatError, SchemaError

TEXTS = ["AAPL", "", "a\0b", "ÿ日本", "\U0001f600", "x" * 70_000]
NUMBERS: dict[ColumnType, str] = {
    ColumnType.BYTE: "b",
    ColumnType.SHORT: "h",
    ColumnType.INT: "i",
    ColumnType.LONG: "q",
    ColumnType.CHAR: "H",
}


def make_keys(kind: ColumnType, count: int, random: random.Random) -> list[Any]:
    if kind is ColumnType.STRING:
        letters = string.ascii_letters + "\0éÿ日\U0001f600"
        key_set: set[Any] = {"".join(random.choices(letters, k=random.randrange(9))) for _ in range(count)}
    elif kind is ColumnType.BOOLEAN:
        key_set = {True, False}
    elif kind in NUMBERS:
        size = struct.calcsize(NUMBERS[kind])
        key_set = {struct.unpack(NUMBERS[kind], random.randbytes(size))[0] for _ in range(count)}
    else:
        code = "f" if kind is ColumnType.FLOAT else "d"
        key_set = {struct.unpack(code, struct.pack(code, random.uniform(-1e9, 1e9)))[0] for _ in range(count)}
    return [*key_set, None] if random.random() < 0.5 else list(key_set)


def groups_of(values: list[Any], random: random.Random) -> list[Group]:
    position, groups = 0, []
    for value in values:
        end = position + random.randrange(1, 1000)
        groups.append(Group(value, position, end))
        position = end
    return groups


def cases() -> dict[str, tuple[ColumnType, list[Group]]]:
    case_groups: dict[str, tuple[ColumnType, list[Group]]] = {
        "empty": (ColumnType.STRING, []),
        "texts": (ColumnType.STRING, groups_of(TEXTS, random.Random(1))),
        "many": (ColumnType.STRING, groups_of([f"S{i}" for i in range(20_000)], random.Random(2))),
    }
    generator = random.Random(3)
    for kind in KEY_TYPES:
        for number in range(6):
            values = make_keys(kind, generator.choice([1, 2, 12, 13, 30]), generator)
            case_groups[f"{kind.value}{number}"] = (kind, groups_of(values, generator))
    return case_groups


CASES = cases()
ARRAYS: dict[str, tuple[str, list[Any]]] = {
    "I": ("int", [1, -2, -(1 << 31)]),
    "J": ("long", [1, -2, -(1 << 63)]),
    "S": ("short", [1, -2]),
    "B": ("byte", [1, -2]),
}


def described(kind: ColumnType, groups: list[Group]) -> str:
    """What the oracle says of a grouping."""

    def key(value: Any) -> str:
        if value is None:
            return "null"
        name = KEY_TYPES[kind] + ":"
        if kind is ColumnType.STRING:
            return name + value.encode("utf-16-be").hex()
        if kind is ColumnType.DOUBLE:
            return name + str(struct.unpack(">Q", struct.pack(">d", value))[0])
        if kind is ColumnType.FLOAT:
            return name + str(struct.unpack(">I", struct.pack(">f", value))[0])
        return name + str(value).lower() if kind is ColumnType.BOOLEAN else name + str(value)

    parts = [f"{key(group.value)}=int[{group.first}, {group.end}]" for group in groups]
    return f"java.util.HashMap[{', '.join(sorted(parts, key=lambda part: part.encode('utf-16-be')))}]"


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the oracle has seen: our streams, what it says of them, and streams of its own."""
    root = tmp_path_factory.mktemp("java")
    for name, (kind, groups) in CASES.items():
        (root / f"{name}.ser").write_bytes(encode_grouping(kind, groups, "C"))
    (root / "null.ser").write_bytes(JAVA_NULL)
    for letter, (_, values) in ARRAYS.items():
        code = {"I": "i", "J": "q", "S": "h", "B": "b"}[letter]
        data = struct.pack(f">i{len(values)}{code}", len(values), *values)
        (root / f"array_{letter}.ser").write_bytes(make_array_prefix(letter) + data)
    java = shutil.which("java")
    assert java, "these tests need a JDK"
    program = Path(__file__).with_name("Oracle.java")
    done = subprocess.run([java, str(program), str(root)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return root


def read_java_file(java: Path, name: str) -> bytes:
    return (java / f"{name}.made").read_bytes()


def grouping(java: Path, name: str) -> Grouping:
    group_index = read_grouping(read_java_file(java, name), name)
    assert group_index is not None
    return group_index


def pairs(group_index: Grouping) -> dict[Any, tuple[int, int]]:
    return {group.value: (group.first, group.end) for group in group_index.groups}


def test_java_reads_what_we_write(java: Path) -> None:
    lines = (java / "described.txt").read_text().splitlines()
    answers = dict(line.split("\t", 1) for line in lines)
    assert len(answers) == len(CASES) + 1 + len(ARRAYS)
    for name, (kind, groups) in CASES.items():
        assert answers[f"{name}.ser"] == described(kind, groups), name
    assert answers["null.ser"] == "null"
    for letter, (name, values) in ARRAYS.items():
        assert answers[f"array_{letter}.ser"] == f"{name}{values}"


def test_we_read_what_we_write() -> None:
    for name, (kind, groups) in CASES.items():
        group_index = read_grouping(encode_grouping(kind, groups, "C"), name)
        assert group_index is not None
        assert list(group_index.groups) == groups
        assert group_index.key_type in (KEY_TYPES[kind], "")
        group_index.check(groups[-1].end if groups else 0, name)


def test_sizes_are_those_of_the_product() -> None:
    assert len(encode_grouping(ColumnType.STRING, [], "C")) == 82
    data = encode_grouping(ColumnType.STRING, [Group("AAPL", 0, 3)], "C")
    assert data == bytes.fromhex(
        "aced0005 7372 0011 6a6176612e7574696c2e486173684d6170 0507dac1c31660d1 03 0002"
        "46 000a 6c6f6164466163746f72  49 0009 7468726573686f6c64  78 70 3f400000 0000000c 77 08 00000010 00000001"
        "74 0004 4141504c 75 72 0002 5b49 4dba602676eab2a5 02 0000 78 70 00000002 00000000 00000003 78"
    )
    two = encode_grouping(ColumnType.STRING, [Group("MSFT", 3, 5), Group("AAPL", 0, 3)], "C")
    assert len(two) == 145
    assert two.endswith(bytes.fromhex("74 0004 4141504c 75 71 007e0003 00000002 00000000 00000003 78"))


@pytest.mark.parametrize(
    ("name", "values", "key_type"),
    [
        ("strings", ["AAPL", None, "", "a\0b", "日本\U0001f600", "x" * 70_000], "java.lang.String"),
        ("linked", ["b", "a", None], "java.lang.String"),
        ("tree", ["b", "a"], "java.lang.String"),
        ("table", ["b", "a"], "java.lang.String"),
        ("concurrent", ["b", "a"], "java.lang.String"),
        ("reset", ["R"], "java.lang.String"),
        ("integers", [5, -1, None, -(1 << 31)], "java.lang.Integer"),
        ("longs", [5, -1, (1 << 63) - 1], "java.lang.Long"),
        ("shorts", [5, -1], "java.lang.Short"),
        ("bytes", [5, -1], "java.lang.Byte"),
        ("booleans", [True, False, None], "java.lang.Boolean"),
        ("characters", [97, 0xFFFD], "java.lang.Character"),
        ("floats", [1.5, -2.25], "java.lang.Float"),
        ("instants", [5_000_000_007, -4_999_999_993], "java.time.Ser"),
        ("times", [5, -6], "Oracle$DBDateTime"),
        ("fields", [12345], "Oracle$DateTime"),
        ("legacy", ["A", "B"], "java.lang.String"),
        ("enums", ["BUY"], "java.lang.String"),
    ],
)
def test_we_read_what_java_writes(java: Path, name: str, values: list[Any], key_type: str) -> None:
    group_index = grouping(java, name)
    assert pairs(group_index) == {value: (2 * i, 2 * i + 2) for i, value in enumerate(values)}
    assert group_index.key_type == key_type
    group_index.check(2 * len(values), name)


def test_large_maps_and_ranges(java: Path) -> None:
    assert pairs(grouping(java, "many")) == {f"S{i}": (3 * i, 3 * i + 3) for i in range(20_000)}
    assert pairs(grouping(java, "wide")) == {"A": (0, 1 << 33)}


def test_zeros_are_told_apart_and_found_alike(java: Path) -> None:
    group_index = grouping(java, "doubles")
    assert [(group.first, group.end) for group in group_index.find(0.0)] == [(0, 2), (2, 4)]
    assert [group.first for group in group_index.find(float("inf"))] == [6]
    assert group_index.find(7.0) == []


def test_a_null_or_nothing_is_no_grouping(java: Path) -> None:
    assert read_grouping(read_java_file(java, "null"), "x") is None
    assert read_grouping(read_java_file(java, "legacy_ungrouped"), "x") is None
    assert read_grouping(b"", "x") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown", "unknown class Oracle.SymbolDiskMappedColumn"),
        ("mixed", "values of java.lang"),
        ("triple", "a range of 3 numbers"),
        ("nomap", "expected a map of int"),
        ("protocol1", "protocol 1"),
        ("array_I", "found JavaArray"),
    ],
)
def test_what_is_no_grouping_says_so(java: Path, name: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_grouping(read_java_file(java, name), "Sym.dat")


def test_arrays_of_java(java: Path) -> None:
    for letter, (_, values) in ARRAYS.items():
        root = read_stream(read_java_file(java, f"array_{letter}"), "x").root
        assert isinstance(root, JavaArray)
        assert root.tolist() == values
        assert len(root) == len(values)
    expected: dict[str, list[Any]] = {"F": [1.5], "C": [97, 0xD800], "Z": [True, False]}
    for letter, values in expected.items():
        assert read_stream(read_java_file(java, f"array_{letter}"), "x").root.tolist() == values
    for letter in ARRAY_UIDS:
        assert read_java_file(java, f"array_{letter}").startswith(make_array_prefix(letter))
    assert read_stream(read_java_file(java, "array_empty"), "x").root.tolist() == []
    deep = read_stream(read_java_file(java, "array_deep"), "x").root
    assert [None if array is None else array.tolist() for array in deep] == [[1], [2, 3], None]


def test_objects_are_data(java: Path) -> None:
    root = read_stream(read_java_file(java, "legacy"), "x").root
    assert isinstance(root, JavaObject)
    assert root.type.name == "Oracle$SymbolDiskMappedColumn"
    assert root.type.parent is not None
    assert [part.name for part in root.type.list_lineage()] == [
        "Oracle$AbstractDataColumn",
        "Oracle$SymbolDiskMappedColumn",
    ]
    assert (root.values["version"], root.values["name"]) == (7, "Sym")
    assert isinstance(root.values["partitionKeysToRange"], JavaMap)
    assert root.values["side"] == "SELL"
    assert root.values["objects"][0] == "x"
    assert root.values["type"].name == "java.lang.String"
    assert sum(len(part) for part in root.written if isinstance(part, bytes)) == 3004
    assert root.written[-1] == "behind"
    cycle = read_stream(read_java_file(java, "cycle"), "x").root
    assert cycle[0] is cycle
    top, depth = read_stream(read_java_file(java, "deep"), "x").root, 0
    while top is not None:
        top, depth = top.values["inner"], depth + 1
    assert depth == 41


def test_every_truncation_is_an_error(java: Path) -> None:
    for name in ("legacy", "integers", "linked", "instants"):
        data = read_java_file(java, name)
        for length in range(len(data)):
            # What is missing at the very end is the end mark of an outer part.
            with pytest.raises(FormatError):
                read_stream(data[:length], name)


def test_mutations_never_do_worse_than_an_error(java: Path) -> None:
    generator = random.Random(5)
    for name in ("legacy", "integers", "linked", "instants", "array_deep", "deep"):
        data = read_java_file(java, name)
        for _ in range(1500):
            changed = bytearray(data)
            for _ in range(generator.randrange(1, 4)):
                changed[generator.randrange(len(changed))] = generator.randrange(256)
            with contextlib.suppress(FormatError):
                read_grouping(bytes(changed), name)


def nested(depth: int) -> bytes:
    """Arrays of objects in one another."""
    name = b"[Ljava.lang.Object;"
    first = b"\x75\x72" + len(name).to_bytes(2, "big") + name + bytes(8) + b"\x02\0\0\x78\x70\0\0\0\1"
    return b"\xac\xed\0\5" + first + b"\x75\x71\0\x7e\0\0\0\0\0\1" * depth + b"\x70"


@pytest.mark.nightly
def test_streams_that_claim_too_much_are_refused() -> None:
    assert isinstance(read_stream(nested(MAX_DEPTH - 2), "x").root, list)
    for depth in (MAX_DEPTH, 10_000, 1_000_000):
        with pytest.raises(FormatError, match="deeper than"):
            read_stream(nested(depth), "x")
    with pytest.raises(FormatError, match="expected 1 bytes"):
        read_stream(b"\xac\xed\0\5" + b"\x79" * 100_000, "x")
    for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
        with pytest.raises(FormatError, match="elements in the"):
            read_stream(make_array_prefix("J") + count + bytes(100), "x")
    with pytest.raises(FormatError, match="at most"):
        read_stream(bytes(MAX_BYTES + 1), "x")
    with pytest.raises(FormatError, match="expected 9223372036854775807 bytes"):
        read_stream(b"\xac\xed\0\5\x7c\x7f" + b"\xff" * 7 + b"abc", "x")
    many = (
        b"\xac\xed\0\5\x75\x72\0\x02[L"
        + bytes(8)
        + b"\x02\0\0\x78\x70"
        + (5 << 20).to_bytes(4, "big")
        + b"\x70" * (5 << 20)
    )
    with pytest.raises(FormatError, match=f"more than {MAX_ELEMENTS} elements"):
        read_stream(many, "x")
    for junk in (b"hello", b"\xac\xed\0\4p", b"\xac\xed"):
        with pytest.raises(FormatError, match="x: expected a Java stream"):
            read_grouping(junk, "x")


def test_the_products_own_stream_is_read() -> None:
    assert read_grouping(bytes.fromhex("7701f1"), "x") is None
    body = bytes.fromhex("ef00000001fd00044141504cf5000000020000000000000003")
    for cut in range(1, len(body)):
        data = b"\x77" + bytes([cut]) + body[:cut] + b"\x7a" + (len(body) - cut).to_bytes(4, "big") + body[cut:]
        group_index = read_grouping(data, "x")
        assert group_index is not None
        assert group_index.groups == (Group("AAPL", 0, 3),)
    linked = bytes.fromhex(
        "ed00000002 fc00000007 f3000000020000000000000000 00000000 00000003 f1 f500000002 00000003 00000005"
    )
    group_index = read_grouping(b"\x77" + bytes([len(linked)]) + linked, "x")
    assert group_index is not None
    assert group_index.groups == (Group(7, 0, 3), Group(None, 3, 5))
    java = encode_grouping(ColumnType.STRING, [Group("A", 0, 1)], "C")
    group_index = read_grouping(b"\x77\x01\xfe" + java[4:], "x")
    assert group_index is not None
    assert group_index.groups == (Group("A", 0, 1),)
    for data in (
        b"\x77\x05\xef\x7f\xff\xff\xff",
        b"\x77\x05\xf5\x7f\xff\xff\xff",
        b"\x77\x03\xff\0\0",
        b"\x77\x00" * 1000,
    ):
        with pytest.raises(FormatError):
            read_grouping(data, "x")
    with pytest.raises(FormatError, match="deeper"):
        read_grouping(b"\x7a\x00\x00\x30\x00" + bytes.fromhex("ef00000001") * 2457 + bytes(3), "x")


def test_boxes_hold_numbers() -> None:
    data = encode_grouping(ColumnType.INT, [Group(7, 0, 1)], "C")
    # The field of java.lang.Integer as an array that is null.
    forged = data.replace(b"I\0\x05value", b"[\0\x05value\x70").replace(b"\x78\x70\0\0\0\7", b"\x78\x70\x70")
    with pytest.raises(FormatError, match=r"unknown class java\.lang\.Integer"):
        read_grouping(forged, "x")


def test_groups_must_hold_every_row_once() -> None:
    grouping = Grouping.of("java.lang.String", (Group("A", 0, 3), Group("B", 3, 5)))
    grouping.check(5, "x")
    for rows in (4, 6):
        with pytest.raises(FormatError, match="x: grouping"):
            grouping.check(rows, "x")
    for groups in ([Group("A", 0, 3), Group("B", 2, 5)], [Group("A", 0, 2), Group("B", 3, 5)], [Group("A", 1, 5)]):
        with pytest.raises(FormatError, match="expected them to begin at"):
            Grouping.of("", tuple(groups)).check(5, "x")
    backwards = encode_grouping(ColumnType.STRING, [Group("A", 3, 2)], "C")
    with pytest.raises(FormatError, match="are 3 to 2"):
        read_grouping(backwards, "x")


def test_types_that_cannot_be_grouped() -> None:
    for kind in (ColumnType.DATE_TIME, ColumnType.BIG_DECIMAL, ColumnType.BLOB):
        with pytest.raises(SchemaError, match=f"column 'C' is {kind}, which cannot be grouped"):
            encode_grouping(kind, [], "C")


@pytest.mark.parametrize("kind", [ColumnType.INT, ColumnType.STRING])
@pytest.mark.nightly
def test_memory_follows_the_bytes(kind: ColumnType) -> None:
    """Groups are kept as columns: 18 MB of them once took 484 MiB."""
    groups = [Group(n if kind is ColumnType.INT else f"{n:04x}", n, n + 1) for n in range(20_000)]
    data = encode_grouping(kind, groups, "C")
    tracemalloc.start()
    try:
        group_index = read_grouping(data, "x")
        assert group_index is not None
        group_index.check(len(groups), "x")
        assert [group.first for group in group_index.find(groups[7].value)] == [7]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert group_index.groups == tuple(groups)
    assert peak < 6 * len(data)


def test_objects_that_are_no_groups_are_bounded() -> None:
    """A million small objects in a map that is none of ranges: refused, not kept."""
    data = encode_grouping(ColumnType.INT, [Group(n, n, n + 1) for n in range(50_000)], "C")
    last = data.rindex(b"\0\0\0\2\0\0\xc3\x4f\0\0\xc3\x50")
    forged = data[:last] + b"\0\0\0\1\0\0\xc3\x4f" + data[last + 12 :]
    with pytest.raises(FormatError, match="more than 131072 elements"):
        read_grouping(forged, "x")


def test_values_that_are_referred_to_are_read_again() -> None:
    """A string and an array that occur twice, as references: the handles of small values are where they begin."""
    data = bytes.fromhex("aced0005 7572 0013") + b"[Ljava.lang.Object;" + bytes.fromhex("90ce589f1073296c 02 0000 7870")
    data += bytes.fromhex("00000004 740001 41 71007e0002")
    data += bytes.fromhex("7572 0002 5b49 4dba602676eab2a5 02 0000 7870 00000001 00000007 71007e0004")
    root = read_stream(data, "x").root
    assert [item if isinstance(item, str) else item.tolist() for item in root] == ["A", "A", [7], [7]]
