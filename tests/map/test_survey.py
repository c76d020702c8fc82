"""A map has the numbers of `verify`, whatever the format, in memory and on a page that do not grow with the file."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import sawlog
import sawlog.map
from sawlog.cli import main
from sawlog.dataset.dataset import Dataset
from sawlog.format.contract import BoundScan, Contents, Fragment, View
from sawlog.format.damage import Damage, Findings, Tail, TailStatus
from sawlog.format.recognition import get_format
from sawlog.format.scan import Scan
from sawlog.map import render, strip, survey
from sawlog.map.kernels import USES
from sawlog.map.levels import MAX_BINS, Levels, Ranges
from sawlog.map.model import FileMap, Map
from sawlog.map.rows import MAX_KEPT_ROWS
from sawlog.storage import File
from tests.leveldb_table.support import append_block, rocksdb_tables
from tests.samples import FORMATS, law_samples, samples
from tests.support import write_records

__all__ = ["samples"]

TABLE_GOLDEN = Path(__file__).parents[1] / "golden"


def mapped(path: object, **options: Any) -> Map:
    return survey(sawlog.open(path, on_damage="skip", **options))


def bytes_by_use(file: FileMap) -> dict[str, int]:
    return {use: sum(file.bins[f"{use}_bytes"]) for use in USES}


def assert_equal_to_verify(file_map: Map, report: sawlog.Report) -> None:
    assert file_map.account == report.account
    reports = {file.path: file for file in report.files}
    assert reports.keys() <= {file.path for file in file_map.files}
    for file in file_map.files:
        if file.path not in reports:
            assert file.account.total == 0  # the view does not read it
            continue
        verified = reports[file.path]
        assert (file.size, file.account, file.kinds, file.tail) == (
            verified.size, verified.account, verified.kinds, verified.tail,
        )  # fmt: skip
        places = [
            [(damage.offset, damage.length, damage.kind, damage.detail) for damage in two.damages]
            for two in (file, verified)
        ]
        assert sorted(places[0]) == sorted(places[1])
        assert all(count >= 0 for use in USES for count in file.bins[f"{use}_bytes"])
        assert bytes_by_use(file) == {use: getattr(verified.account, use) for use in USES}


@pytest.mark.spread(3)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_verify(samples: dict[str, Path], name: str) -> None:
    file_map = mapped(samples[name], format=name)
    dataset = sawlog.open(samples[name], format=name)
    assert_equal_to_verify(file_map, sawlog.verify(samples[name], format=name))
    assert file_map.rows == dataset.count_rows()
    assert [column.name for column in file_map.columns] == dataset.schema.names
    head = dataset.head(len(file_map.head))
    assert len(file_map.head) == min(20, file_map.rows)
    assert all(len(row) == len(head.schema) for row in file_map.head)
    assert len(render(file_map).encode()) < 2_000_000


def flipped(path: Path, target: Path, *places: int) -> Path:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 0x10
    target.write_bytes(data[:-7])
    return target


@pytest.mark.parametrize("name", ["leveldb_log", "deephaven_log", "filodb_record"])
@pytest.mark.nightly
def test_damage_and_tails_stand_where_verify_finds_them(samples: dict[str, Path], tmp_path: Path, name: str) -> None:
    path = flipped(samples[name], tmp_path / "damaged", 500_000, 1_300_000, 1_300_500)
    file_map = mapped(path, format=name)
    assert_equal_to_verify(file_map, sawlog.verify(path, format=name))
    assert file_map.damaged
    (file,) = file_map.files
    for damage in file.damages:
        first, last = damage.offset // file.bin_bytes, (damage.offset + damage.length - 1) // file.bin_bytes
        covered = sum(file.bins["damage_bytes"][first : last + 1])
        assert covered >= damage.length
        assert any(excerpt.offset <= damage.offset < excerpt.offset + len(excerpt.data) for excerpt in file.excerpts)


@pytest.mark.parametrize("part", ["block", "file"])
def test_what_is_unsupported_has_a_use_of_its_own_and_is_not_damage(tmp_path: Path, part: str) -> None:
    rows = {b"key%d" % number: b"value" for number in range(6)}
    (path,) = rocksdb_tables(tmp_path / "tables", rows, table={"set_block_size": 1})
    data = path.read_bytes()
    version = struct.pack("<I", 1 << 20)
    path.write_bytes(append_block(data, 2, None, 0x80) if part == "block" else data[:-12] + version + data[-8:])
    file_map = mapped(path)
    assert_equal_to_verify(file_map, sawlog.verify(path))
    (file,) = file_map.files
    assert bytes_by_use(file)["unsupported"] == file.account.unsupported > 0
    assert (file_map.damaged, file_map.unsupported, bytes_by_use(file)["damage"]) == (False, True, 0)
    document = file_map.to_dict()["files"][0]
    assert (document["damage_count"], document["damage_kinds"], document["damages"]) == (0, {}, [])
    assert (document["unsupported_count"], [damage["kind"] for damage in document["unsupported"]]) == (
        1,
        ["unsupported"],
    )
    assert main(["map", str(path), "--output", str(tmp_path / "map.html")]) == 4
    (strip_of,) = strip.make_strips(sawlog.open(path))
    assert set(strip.choose_cells(strip_of, 40)) >= {"unsupported"}
    assert " 0 damaged ranges" in strip.as_html([strip_of])
    assert strip.COLOURS["unsupported"] in strip.as_html([strip_of])


def test_every_use_has_a_colour_and_a_sign() -> None:
    """In terminals, notebooks, and the page's legend, in both schemes."""
    page = Path(sawlog.map.__file__).parent / "page"
    (uses,) = re.findall(r"const USES = (\[.*\]);", (page / "model.js").read_text())
    assert (
        set(json.loads(uses)) == set(USES) == {field.name for field in dataclasses.fields(sawlog.format.damage.Account)}
    )
    for use in USES:
        assert use in strip.COLOURS
        assert strip.SIGNS[use].strip()
        assert (page / "page.css").read_text().count(f"--{use}: #") == 2


def test_rows_are_known_one_by_one(tmp_path: Path) -> None:
    records = [b"a" * size for size in (10, 0, 40_000, 5)]
    path = tmp_path / "000001.log"
    write_records(path, records)
    offsets = sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()
    (file,) = mapped(path).files
    assert [start for start, _ in file.spans] == offsets
    assert file.complete
    assert [start + size for start, size in file.spans] == [*offsets[1:], path.stat().st_size]
    assert sum(file.bins["rows"]) == file.rows == len(records)
    assert max(file.bins["longest"]) == offsets[3] - offsets[2]


def test_rows_at_one_place_share_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    writes = pa.table({"sequence": [7, 8, 9], "operation": ["put"] * 3, "key": [b"a", b"b", b"c"], "value": [b"x"] * 3})
    sawlog.write(writes, path, format="leveldb_log", view="writes", operations_per_batch=3)
    file_map = mapped(path, view="writes")
    (file,) = file_map.files
    assert file.spans == [(0, path.stat().st_size)]
    assert sum(file.bins["row_bytes"]) == path.stat().st_size
    assert (file.rows, file_map.order) == (3, ("sequence", "number"))


def test_the_last_row_ends_before_what_follows_the_rows() -> None:
    """A table's index and properties belong to no row."""
    (file,) = mapped(TABLE_GOLDEN / "leveldb_table" / "rocksdb" / "11-zstd.sst").files
    assert file.account.header > 1000
    assert file.complete
    assert sum(size for _, size in file.spans) == file.account.record


def test_rows_that_pieces_of_a_file_cut_are_shown_whole(tmp_path: Path) -> None:
    records = [b"x" * size for size in (10, 200_000, 5, 60_000, 300_000)] * 3
    path = tmp_path / "000001.log"
    write_records(path, records)
    (file,) = mapped(path).files
    assert len(list(sawlog.open(path).fragments(64 << 10))) > 10
    assert [start for start, _ in file.spans] == sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()
    assert all(size >= len(record) for (_, size), record in zip(file.spans, records, strict=True))
    assert sum(size for _, size in file.spans) == path.stat().st_size
    assert sum(file.bins["row_bytes"]) == path.stat().st_size


def test_what_is_unused_at_the_end_is_no_part_of_the_last_row(tmp_path: Path) -> None:
    container = (TABLE_GOLDEN / "filodb" / "gauge_100.container").read_bytes()
    path = tmp_path / "a.container"
    path.write_bytes(container + bytes(5000))
    (file,) = mapped(path).files
    assert file.account.padding == 5000
    assert sum(file.spans[-1]) == len(container)


def test_order_steps_back_and_gaps(tmp_path: Path) -> None:
    times = [*range(0, 1000, 10), *range(500, 900, 10), 90_000]
    table = pa.table({"t": pa.array(times).cast(pa.timestamp("ms", "UTC")), "x": list(range(len(times)))})
    path = tmp_path / "t.bin"
    sawlog.write(table, path, format="deephaven_log")
    file_map = mapped(path, timestamp_columns={"t": "ms"})
    (file,) = file_map.files
    assert file_map.order == ("t", "time")
    assert file.order is not None
    offsets = sawlog.read(path, columns=["_offset"])["_offset"].to_pylist()
    assert file.order == {"low": 0.0, "high": 90_000.0, "resets": 1, "step": 90_000.0 - 890, "step_at": offsets[-1]}


def test_rows_by_key_are_in_no_order_of_their_sequences(tmp_path: Path) -> None:
    count = 5000
    dice = np.random.default_rng(3)
    rows = {
        "sequence": dice.permutation(count),
        "operation": ["put" if number % 9 else "delete" for number in range(count)],
        "key": [b"%05d" % number for number in range(count)],
        "value": [dice.bytes(40) if number % 9 else b"" for number in range(count)],
    }
    path = tmp_path / "000005.ldb"
    sawlog.write(pa.table(rows), path, format="leveldb_table")
    file_map = mapped(path)
    (file,) = file_map.files
    assert (file_map.rows, file.order, sum(file.bins["resets"])) == (count, None, 0)
    assert [key.column for key in file_map.keys] == [
        "operation"
    ]  # no value comes twice, but for those that are not there


def test_the_content_of_columns_is_summed_up(tmp_path: Path) -> None:
    count = 60_000
    number = np.arange(count)
    table = pa.table(
        {
            "n": pa.array(number, pa.int64(), mask=number % 4 == 0),
            "x": pa.array(number / 7),
            "key": pa.array(np.where(number % 10 == 0, "rare", "often")),
            "text": pa.array([f"text {i}" for i in number]),
        }
    )
    path = tmp_path / "a.bin"
    sawlog.write(table, path, format="deephaven_log")
    file_map = mapped(path)
    columns = {column.name: column for column in file_map.columns}
    assert (columns["n"].nulls, columns["n"].low, columns["n"].high) == (count // 4, "1", str(count - 1))
    assert columns["key"].distinct == 2
    for name, distinct in (("n", 0.75 * count), ("x", count), ("text", count)):
        assert columns[name].distinct == pytest.approx(distinct, rel=0.15)
    (keys,) = file_map.keys  # hardly any text comes twice
    rare, often = (next(value for value in keys.top if value[0] == name) for name in ("rare", "often"))
    assert (keys.column, keys.least) == ("key", False)
    assert (rare[1], often[1]) == (count // 10, count - count // 10)
    assert rare[2] + often[2] == file_map.account.record


@dataclass(frozen=True)
class ClaimedFragment(Fragment):
    """A piece of a file that nobody reads: rows of a hundred bytes, and some damage."""

    start: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.start, self.size

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        starts = np.arange(self.start, self.start + self.size - 4096, self.size // 1000)
        values = {"_offset": pa.array(starts), "key": pa.array(np.char.add("key ", (starts % 97).astype(str)))}
        findings.rows += len(starts)
        yield pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)
        for index in range(8):
            place = self.start + self.size - 4096 + index * 512
            findings.add_damage(Damage(self.path, place, 512, "made_up", f"a damage at byte {place} " + "y" * 100))
        findings.account.record += self.size - 4096
        size = os.path.getsize(self.path)
        if self.start + self.size == size:
            findings.tail = Tail(TailStatus.CLEAN, size, 0)


class ClaimedContents(Contents):
    def _fragments(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        for file in self.files:
            step = task_bytes or file.size
            for start in range(0, file.size, step):
                yield ClaimedFragment(*request, file.path, min(step, file.size - start), start)

    views: ClassVar = {"rows": View(pa.schema([pa.field("key", pa.string())]), _fragments)}


class ClaimedFormat(type(get_format("leveldb_log"))):  # type: ignore[misc]
    def open(self, files: list[File], scan: Scan) -> Contents:
        return ClaimedContents(self, files, replace(scan, view="rows"))


def sparse(path: Path, size: int) -> Map:
    with path.open("wb") as file:
        file.truncate(size)
    format = ClaimedFormat()
    scan = Scan(on_damage="skip", roots=(str(path),))
    return survey(Dataset(format.open([File(str(path), size)], scan), scan))


@pytest.mark.parametrize("size", [1 << 30, pytest.param(10 << 30, marks=pytest.mark.nightly)])
@pytest.mark.nightly
def test_a_page_does_not_grow_with_the_file(tmp_path: Path, size: int) -> None:
    file_map = sparse(tmp_path / "large", size)
    (file,) = file_map.files
    assert file_map.rows > 500_000
    assert sum(bytes_by_use(file).values()) == size == file.account.total
    assert sum(file.bins["rows"]) == file_map.rows
    assert sum(file.kinds.values()) > 4000
    assert len(file.bins["rows"]) <= MAX_BINS
    assert len(file.spans) <= MAX_KEPT_ROWS + 300 * 40
    assert not file.complete
    assert len(render(file_map).encode()) < 2_000_000


def test_bins_are_filled_to_the_byte() -> None:
    levels = Levels(1000, 10)
    account = sawlog.format.damage.Account(header=30, record=800, padding=50, tail=70, damage=50)
    damage = Ranges(np.array([95, 300]), np.array([115, 330]), "damage")
    levels.add_piece(0, 1000, account, [damage, Ranges(np.array([930]), np.array([1000]), "tail")])
    assert levels.bins["damage_bytes"].tolist() == [5, 15, 0, 30, 0, 0, 0, 0, 0, 0]
    assert levels.bins["tail_bytes"].tolist() == [0] * 9 + [70]
    assert {use: int(levels.bins[f"{use}_bytes"].sum()) for use in USES} == {use: getattr(account, use) for use in USES}
    assert all(sum(int(bin_[f"{use}_bytes"]) for use in USES) == pytest.approx(100, abs=2) for bin_ in levels.bins)


def test_hostile_names_and_values_stay_text(tmp_path: Path) -> None:
    evil = '</script><script>alert(1)</script><!-- \u2028 " & \x1b[31m'
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    table = pa.table({"key": [evil] * 3, "n": [1, 2, 3]})
    path = folder / "a.bin"
    sawlog.write(table, path, format="deephaven_log")
    page = render(mapped(path))
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    assert "<img" not in page
    start = page.index('id="data">') + len('id="data">')
    data = page[start : page.index("</script>", start)]
    assert not set("<>&\u2028\x1b") & set(data)
    assert json.loads(data)["head"][0][0] == evil.replace("\u2028", "\\xe2\\x80\\xa8").replace("\x1b", "\\x1b")


def test_files_of_a_directory_and_what_was_skipped(tmp_path: Path) -> None:
    for number in (3, 5):
        table = pa.table({"record": pa.array([b"x" * number] * number, pa.binary())})
        sawlog.write(table, tmp_path / f"00000{number}.log", format="leveldb_log")
    (tmp_path / "000004.ldb").write_bytes(b"a table")
    file_map = mapped(tmp_path, format="leveldb_log")
    assert [(os.path.basename(file.path), file.rows) for file in file_map.files] == [
        ("000003.log", 3),
        ("000005.log", 5),
    ]
    assert [os.path.basename(file.path) for file in file_map.skipped] == ["000004.ldb"]


def test_a_file_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "000003.log").write_bytes(b"")
    file_map = mapped(tmp_path / "000003.log", format="leveldb_log")
    assert (file_map.rows, file_map.files[0].size) == (0, 0)
    assert "no damage" not in json.dumps(file_map.to_dict())
    assert render(file_map)


@pytest.mark.spread(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("sample", law_samples())
def test_every_view_of_every_format_has_a_map(tmp_path: Path, sample: Any) -> None:
    for name, data in sample.content.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    path = tmp_path / sample.opened if sample.opened else tmp_path
    options = {
        name: value.format(root=tmp_path) if isinstance(value, str) and "{root}" in value else value
        for name, value in sample.options.items()
    }
    file_map = mapped(path, format=sample.format, view=sample.view, **options)
    assert_equal_to_verify(file_map, sawlog.verify(path, format=sample.format, view=sample.view, **options))
    assert render(file_map)
