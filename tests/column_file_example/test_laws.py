"""The format of examples/column_file keeps the laws."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.format.damage import DamageWarning
from sawlog.testing import Laws, Mutation, Sample, Span, check
from sawlog.testing.mutations import bend_bytes, change_file

Row = tuple[int, float]
SINGLE_GROUP = [[(1, 0.5), (2, -1.0), (7, float("nan"))]]
SEVERAL = [[(1, 0.5), (2, 1.5)], [], [(3, 2.5), (3, 0.0), (4, -0.0)], [(5, 1e300)]]


def encode(groups: Sequence[bytes]) -> bytes:
    """A file, by nothing of the package."""
    directory = b"".join(
        struct.pack("<II", len(group) // 16, zlib.crc32(group)) + struct.pack("<qq", *limits(group)) for group in groups
    )
    count = struct.pack("<I", len(groups))
    checksum = struct.pack("<I", zlib.crc32(directory + count))
    return b"SCF1" + b"".join(groups) + directory + count + checksum + b"SCF1"


def limits(group: bytes) -> tuple[int, int]:
    """The least and the greatest time."""
    times = struct.unpack_from(f"<{len(group) // 16}q", group) or (0,)
    return min(times), max(times)


def group_bytes(rows: Sequence[Row]) -> bytes:
    times, values = zip(*rows, strict=True) if rows else ((), ())
    return struct.pack(f"<{len(rows)}q{len(rows)}d", *times, *values)


def make_table(groups: Sequence[Sequence[Row]]) -> pa.Table:
    rows = [row for group in groups for row in group]
    times, values = pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.float64())
    fields = [pa.field("time", pa.int64(), nullable=False), pa.field("value", pa.float64(), nullable=False)]
    return pa.table([times, values], pa.schema(fields))


def sample(name: str, groups: Sequence[Sequence[Row]]) -> Sample:
    data = encode([group_bytes(group) for group in groups])
    body = 16 * sum(map(len, groups))
    return Sample(
        name,
        "column_file",
        data,
        "a.scf",
        headers=[Span(0, 4), Span(4 + body, len(data) - 4 - body)],
        checked=True,
        rows=make_table(groups),
        repaired="bytes" if len(groups) == 1 else "rows",
        written=make_table(groups),
    )


def change_group(sample: Sample, dice: Random) -> Mutation:
    """A group changed, and written again with right checksums."""
    groups = [group_bytes(group) for group in (SINGLE_GROUP if sample.name == "one" else SEVERAL)]
    index = dice.randrange(len(groups))
    groups[index] = bend_bytes(groups[index], dice)
    return change_file(sample, sample.file_name, encode(groups), f"group {index} below its checksums")


class TestLaws(Laws):
    mutators = (change_group,)
    test_removal = None  # every file is a sample of its own
    test_linear_work = None  # a repeated group is in no directory
    test_follow = test_follow_damaged = None  # files appear whole

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [sample("one", SINGLE_GROUP), sample("several", SEVERAL)]


def test_it_is_recognised_and_read_in_ranges(tmp_path: Path) -> None:
    path = tmp_path / "a.scf"
    path.write_bytes(encode([group_bytes(group) for group in SEVERAL]))
    dataset = sawlog.open(path)
    assert dataset.format.name == "column_file"
    assert dataset.info() == {"groups": 4}
    assert [fragment.extent for fragment in dataset.fragments(30)] == [(0, 36), (36, 48), (84, 16 + 96 + 12)]
    assert dataset.to_table().equals(make_table(SEVERAL))
    assert sawlog.read(path, columns=["_offset"]).column(0).to_pylist() == [4, 12, 36, 44, 52, 84]


@pytest.mark.parametrize(
    ("condition", "extents", "times"),
    [
        (("time", ">=", 3), [(0, 4), (36, 172)], [3, 3, 4, 5]),
        (("time", ">", 5), [(0, 4), (100, 108)], []),
        (("time", "<", 3), [(0, 36), (100, 108)], [1, 2]),
        (("time", "=", 4), [(0, 4), (36, 48), (100, 108)], [4]),
        (("value", "<", 0.1), [(0, 208)], [3, 4]),
    ],
)
def test_groups_without_wanted_times_are_not_read(
    tmp_path: Path, condition: tuple[str, str, float], extents: list[tuple[int, int]], times: list[int]
) -> None:
    path = tmp_path / "a.scf"
    path.write_bytes(encode([group_bytes(group) for group in SEVERAL]))
    dataset = sawlog.open(path, filters=[condition])
    assert [fragment.extent for fragment in dataset.fragments()] == extents
    assert dataset.to_table()["time"].to_pylist() == times


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    intact = sample("several", SEVERAL)
    assert isinstance(intact.files, bytes)
    groups = [group_bytes(group) for group in SEVERAL]
    data = bytearray(intact.files)
    data[4] ^= 1
    check(intact, bytes(data))
    path = tmp_path / "a.scf"
    path.write_bytes(data)
    (damage,) = sawlog.read(path, view="damage").drop_columns(["file", "detail"]).to_pylist()
    assert damage == {"offset": 4, "length": 32, "kind": "bad_checksum", "dropped": 2}
    path.write_bytes(encode([*groups, bytes(16 * 65_537)]))
    with pytest.warns(DamageWarning, match="group_too_large"):
        assert sawlog.read(path, on_damage="skip").num_rows == 6


def test_it_is_written_in_groups_and_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.scf"
    rows = pa.table({"time": range(200_000), "value": [0.5] * 200_000}, make_table([]).schema)
    sawlog.write(rows, path, format="column_file")
    assert sawlog.read(path).equals(rows)
    assert sawlog.open(path).info() == {"groups": 4}
    with pytest.raises(OptionError, match="cannot be followed"):
        sawlog.open(path).watch()
    for wrong in (
        pa.table({"time": [1]}),
        pa.table({"time": [1], "value": [None]}, make_table([]).schema.remove_metadata()),
    ):
        with pytest.raises(SchemaError):
            sawlog.write(wrong, tmp_path / "b.scf", format="column_file")
