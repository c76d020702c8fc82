"""A page that cannot be decoded costs its rows and no others, whatever the codec, and however the file is cut."""

from __future__ import annotations

import io
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.format.damage import Findings
from sawlog.milvus.layout import DataType
from sawlog.milvus.payloads.parquet import Page, read_pages
from tests.unit_of_loss import assert_lost_by_unit

from .packing import write_segment
from .support import PAGE, ROWS, collection, encode_binlog, payload, write_collection

FORMAT = "milvus_binlog"
CODECS = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_window(self, offset: int, length: int) -> Any:
        return np.frombuffer(self.data[offset : offset + length], np.uint8)


def pages_of(data: bytes, group: int = 0, column: int = 0) -> list[Page]:
    """The pages of a column of a payload."""
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(group).column(column)
    start = chunk.dictionary_page_offset if chunk.dictionary_page_offset is not None else chunk.data_page_offset
    return list(read_pages(_Bytes(data), start, chunk.total_compressed_size))  # type: ignore[arg-type]


def without(data: bytes, page: Page) -> bytes:
    """The payload with the data of a page overwritten."""
    return data[: page.start] + b"\xff" * page.compressed + data[page.start + page.compressed :]


def texts(count: int = ROWS) -> pa.Array:
    """Texts and nulls of which none is longer than 20 bytes, and every one occurs again."""
    return pa.array([None if row % 7 == 0 else f"{row % 90:04} of {row * row % 90:08}" for row in range(count)])


@pytest.mark.spread(8)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_page_that_a_codec_refuses_costs_its_rows_only(
    codec: str, dictionary: bool, version: str, tmp_path: Path
) -> None:
    values = texts()
    data = payload(
        values, compression=codec, use_dictionary=dictionary, data_page_version=version, row_group_size=600,
    )  # fmt: skip
    pages = [page for group in (0, 1) for page in pages_of(data, group) if not page.is_dictionary]
    assert [page.values for page in pages] == [PAGE] * 10
    assert {page.has_indices for page in pages} == {dictionary}
    rows = [{"101": value} for value in values.to_pylist()]
    units = {index: rows[index * PAGE : (index + 1) * PAGE] for index in range(10)}
    units[10] = units[0] * 10
    other_pages = payload(values.slice(0, PAGE).take(pa.array(list(range(PAGE)) * 10)))
    broken = {page: encode_binlog([without(data, pages[page]), other_pages]) for page in (0, 4, 5, 9)}
    assert_lost_by_unit(tmp_path / "log", FORMAT, broken, units)


@pytest.mark.spread(6)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("values", "type"),
    [
        (pa.array(range(ROWS), pa.int64()), DataType.Int64),
        (pa.array([row % 100 for row in range(ROWS)], pa.int8()), DataType.Int8),
        (pa.array([row % 3 == 0 for row in range(ROWS)]), DataType.Bool),
        (pa.array([row / 3 for row in range(ROWS)], pa.float32()), DataType.Float),
        (pa.array([None if row % 9 == 0 else row / 3 for row in range(ROWS)], pa.float64()), DataType.Double),
        (pa.array([row.to_bytes(16, "little") for row in range(ROWS)], pa.binary(16)), DataType.FloatVector),
    ],
    ids=lambda argument: str(argument.type) if isinstance(argument, pa.Array) else argument.name,
)
def test_of_every_type_if_pages_have_checksums(codec: str, values: pa.Array, type: DataType, tmp_path: Path) -> None:
    data = payload(values, compression=codec, use_dictionary=False, write_page_checksum=True)
    (tmp_path / "log").write_bytes(encode_binlog([data], type))
    rows = sawlog.read(tmp_path / "log", format=FORMAT).to_pylist()
    pages = pages_of(data)
    damaged = {page: data[: pages[page].start + 5] + b"\x7f\x7e" + data[pages[page].start + 7 :] for page in (0, 6)}
    broken = {page: encode_binlog([content], type) for page, content in damaged.items()}
    units = {index: rows[index * PAGE : (index + 1) * PAGE] for index in range(10)}
    assert_lost_by_unit(tmp_path / "log", FORMAT, broken, units)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_broken_dictionary_costs_the_pages_that_refer_to_it(codec: str, tmp_path: Path) -> None:
    values = pa.array([f"{row:040}" for row in range(ROWS)])
    data = payload(values, compression=codec, dictionary_pagesize_limit=10_000, data_page_size=1)
    dictionary, *pages = pages_of(data)
    count = sum(page.values for page in pages if page.has_indices)
    assert dictionary.is_dictionary
    assert 0 < count < ROWS
    rows = [{"101": value} for value in values.to_pylist()]
    assert_lost_by_unit(
        tmp_path / "log", FORMAT, {0: encode_binlog([without(data, dictionary)])}, {0: rows[:count], 1: rows[count:]}
    )


def test_what_follows_a_broken_page_header_cannot_be_found_in_its_chunk(tmp_path: Path) -> None:
    values = texts()
    data = payload(values, row_group_size=500)
    page = pages_of(data)[3]
    data = data[: page.offset] + b"\xff" * 4 + data[page.offset + 4 :]
    rows = [{"101": value} for value in values.to_pylist()]
    place = page.has_indices and 2  # the dictionary is the first page
    units = {0: rows[: place * PAGE], 1: rows[place * PAGE : 500], 2: rows[500:]}
    assert_lost_by_unit(tmp_path / "log", FORMAT, {1: encode_binlog([data])}, units)


def test_a_value_that_is_none_costs_its_row(tmp_path: Path) -> None:
    values = pa.array([b"\xff\xfe" if row == 321 else b"text" for row in range(ROWS)])
    data = payload(values.view(pa.string()))
    units = {0: [{"101": "text"}] * 321, 1: [{"101": None}], 2: [{"101": "text"}] * (ROWS - 322)}
    assert_lost_by_unit(tmp_path / "log", FORMAT, {1: encode_binlog([data])}, units)


def test_pages_of_lists_cost_the_rest_of_their_row_group(tmp_path: Path) -> None:
    """Whose rows may go on in the next page."""
    vectors = pa.array([[float(row), 1.0] for row in range(ROWS)], pa.list_(pa.float32()))
    field = pa.field("v", vectors.type, metadata={"PARQUET:field_id": "101"})
    sink = pa.BufferOutputStream()
    options = {"max_rows_per_page": PAGE, "row_group_size": 500, "compression": "zstd", "use_dictionary": False}
    pq.write_table(pa.table([vectors], schema=pa.schema([field])), sink, store_schema=False, **options)
    data = bytes(sink.getvalue().to_pybytes())
    path = tmp_path / "log"
    path.write_bytes(data)
    rows = sawlog.read(path, format=FORMAT).to_pylist()
    broken = without(data, pages_of(data)[2])
    (first_lost,) = [first for first in range(190, 205) if _read_rows(path, broken) == [*rows[:first], *rows[500:]]]
    units = {0: rows[:first_lost], 1: rows[first_lost:500], 2: rows[500:]}
    assert_lost_by_unit(path, FORMAT, {1: broken}, units)


def _read_rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    path.write_bytes(content)
    with pytest.warns(sawlog.DamageWarning):
        return sawlog.read(path, format=FORMAT, on_damage="skip").to_pylist()


def break_page(path: Path, page: int) -> None:
    data = path.read_bytes()
    head, content = data[: data.index(b"PAR1")], data[data.index(b"PAR1") :]
    path.write_bytes(head + without(content, pages_of(content)[page]))


FIELDS = {"id": "100", "name": "101", "v": "102"}


@pytest.mark.spread(4)
@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
@pytest.mark.parametrize("damaged", [{"name": 2}, {"v": 0, "name": 9}, {"id": 3, "v": 3}, {"id": 7, "name": 4, "v": 5}])
def test_of_a_collection_the_rows_of_the_page_are_lost_by_reads_that_want_its_column(
    damaged: dict[str, int], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    rows = collection(root)
    assert sawlog.read(root, format=FORMAT).to_pylist() == rows
    for name, page in damaged.items():
        (path,) = root.glob(f"**/insert_log/*/*/*/{FIELDS[name]}/*")
        break_page(path, page)
    options = {"format": FORMAT, "on_damage": "skip"}
    for names in itertools.chain.from_iterable(itertools.combinations(FIELDS, count) for count in (1, 2, 3)):
        lost_rows = {
            row
            for name, page in damaged.items()
            if name in {*names, "id"}
            for row in range(page * 100, page * 100 + 100)
        }
        expected = [{name: row[name] for name in names} for row in rows if row["id"] not in lost_rows]
        for threads in (False, True):
            dataset = sawlog.open(root, columns=list(names), use_threads=threads, **options)
            assert dataset.to_table().to_pylist() == expected, names
            assert dataset.count_rows() == len(expected)
        strict = sawlog.open(root, format=FORMAT, columns=list(names))
        delivered = []
        if not lost_rows:
            assert strict.to_table().to_pylist() == expected
            continue
        batches = strict.to_batches()
        with pytest.raises(sawlog.DamageError):
            delivered.extend(row for batch in batches for row in batch.to_pylist())
        assert delivered == [{name: row[name] for name in names} for row in rows if row["id"] < min(lost_rows)]
    report = sawlog.verify(root, format=FORMAT)
    assert len([file for file in report.files if file.damaged]) == len(damaged)
    page_rows = {row for page in damaged.values() for row in range(page * 100, page * 100 + 100)}
    result_rows = [row for row in rows if row["id"] not in page_rows]
    assert report.rows == len(result_rows)
    sawlog.repair(root, tmp_path / "repaired", format=FORMAT)
    assert sawlog.read(tmp_path / "repaired", format=FORMAT).to_pylist() == result_rows


@pytest.mark.parametrize(("field", "lost_rows"), [("0", range(0)), ("1", range(200, 300)), ("101", range(200, 300))])
def test_the_newest_rows_are_read_where_a_page_is_lost(field: str, lost_rows: range, tmp_path: Path) -> None:
    """Row ids only decide which of two rows is newer."""
    root = tmp_path / "root"
    rows = collection(root)
    (path,) = root.glob(f"**/insert_log/*/*/*/{field}/*")
    break_page(path, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sawlog.DamageWarning)
        values = sawlog.read(root, format=FORMAT, dedupe=True, on_damage="skip").to_pylist()
    assert values == [row for row in rows if row["id"] not in lost_rows]


@pytest.mark.filterwarnings("ignore::sawlog.DamageWarning")
def test_a_batch_without_row_ids_does_not_keep_the_newest_of_others_from_being_read(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    write_collection(tmp_path / "root", table, primary_key="id", tree="backup", binlog_bytes=3000)
    paths = sorted(tmp_path.glob("root/**/insert_log/*/*/*/0/*"))
    assert len(paths) > 2
    data = paths[0].read_bytes()
    start = data.index(b"PAR1") + 4
    paths[0].write_bytes(data[:start] + b"\xff" * 30 + data[start + 30 :])
    result_table = sawlog.read(tmp_path / "root", format=FORMAT, dedupe=True, on_damage="skip")
    assert result_table.to_pylist() == table.to_pylist()


@pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
@pytest.mark.parametrize("page", [0, 4, 5, 7, 9])
def test_a_page_of_a_file_that_several_batches_share_is_told_once(page: int, tmp_path: Path) -> None:
    count, size = 200_000, 20_000
    columns = {100: pa.array(range(count), pa.int64()), 101: pa.array(range(count), pa.int64())}
    small = {"max_rows_per_page": size, "use_dictionary": False, "compression": "zstd"}
    cuts = {(0, 1, 100): [count], (101,): [count // 2, 60_000, 40_000]}
    path = write_segment(tmp_path, 900, columns, cuts, small) / "_data" / "0_0.parquet"
    data = path.read_bytes()
    path.write_bytes(without(data, pages_of(data, column=2)[page]))
    expected = [row for row in range(count) if row // size != page]
    ledgers = []
    damages = []
    for fragment in sawlog.open(tmp_path, format=FORMAT, on_damage="skip").fragments():
        ledgers.append(Findings("skip", drained=True))
        damages += [row for batch in fragment.to_batches(ledgers[-1]) for row in batch.column("100").to_pylist()]
    assert len(ledgers) == 3
    assert damages == expected
    assert [damage.path for ledger in ledgers for damage in ledger.damages] == [str(path)]
    report = sawlog.verify(tmp_path, format=FORMAT)
    assert report.rows == len(expected)
    assert [file.path for file in report.files if file.damaged] == [str(path)]
