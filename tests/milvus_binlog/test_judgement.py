"""Every verb judges the same bytes the same way: counts, both policies, checks, repairs, and what is inferred."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog
from sawlog.errors import DamageError, OptionError
from sawlog.milvus import layout
from sawlog.milvus.columns import decode
from sawlog.milvus.deletes import index
from sawlog.milvus.deletes.index import DeltaLogs
from sawlog.milvus.encode import LogPlace, NewEvent, encode_log
from sawlog.milvus.layout import BinlogDamageKind, DataType, EventType
from sawlog.milvus.payloads import parquet
from sawlog.milvus.payloads.payload import Extent, Payload, UnreadableError
from sawlog.milvus.types import TIMESTAMP
from sawlog.storage import File, Storage
from tests.bytes import encode_varint

from .support import NOW, delete, open_as_it_lies, write_collection

pytestmark = [
    pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning"),
    pytest.mark.filterwarnings("ignore::sawlog.format.damage.DamageWarning"),
]

DAMAGED = Path(__file__).parent / "damaged"
"""Files that verbs once disagreed about, or that ended the process."""


def agreed(path: Path, rows: int, kinds: list[str], place: Path) -> None:
    """Every verb has the same rows and the same damage; what is repaired is whole, and is repaired to itself."""
    settings: dict[str, Any] = {"format": "milvus_binlog"}
    report = sawlog.verify(path, **settings)
    damages = [(d.offset, d.length, d.kind) for file in report.files for d in file.damages]
    assert [kind for _, _, kind in damages] == kinds
    assert report.rows == rows
    assert all(file.account.total == file.size for file in report.files)
    listed = sawlog.read(path, view="damage", **settings).to_pylist()
    assert [(row["offset"], row["length"], row["kind"]) for row in listed] == damages
    skipped = sawlog.read(path, on_damage="skip", **settings)
    assert skipped.num_rows == rows
    assert sawlog.open(path, on_damage="skip", **settings).count_rows() == rows
    if kinds:
        for verb in (sawlog.open(path, **settings).to_table, sawlog.open(path, **settings).count_rows):
            with pytest.raises(DamageError) as caught:
                verb()
            assert (caught.value.damage.offset, caught.value.damage.length) == damages[0][:2]
    else:
        assert sawlog.read(path, **settings).equals(skipped)
    assert sawlog.repair(path, place, **settings).rows == rows
    assert not sawlog.verify(place, **settings).damaged
    assert sawlog.read(place, **settings).equals(skipped)
    again = place.with_name("again")
    sawlog.repair(place, again, **settings)
    assert again.read_bytes() == place.read_bytes()


@pytest.mark.parametrize(
    ("name", "rows", "kinds"),
    [
        ("abort", 3, [BinlogDamageKind.BAD_PAYLOAD.label]),
        ("count_of_damaged_page", 0, [BinlogDamageKind.BAD_PAYLOAD.label]),
        ("endless_count", 0, [BinlogDamageKind.BAD_PAYLOAD.label]),
        ("event_timestamp", 100, []),
        ("repair_extra", 100, [BinlogDamageKind.BAD_EXTRA.label]),
    ],
)
def test_files_that_verbs_once_disagreed_about(name: str, rows: int, kinds: list[str], tmp_path: Path) -> None:
    agreed(DAMAGED / name, rows, kinds, tmp_path / "repaired")


def test_times_beyond_those_of_rows_are_shown_as_those_of_rows_would_be() -> None:
    events = sawlog.read(DAMAGED / "event_timestamp", view="frames").to_pylist()
    assert events[0]["timestamp"] < 0 < events[1]["timestamp"]
    assert "created" in sawlog.open(DAMAGED / "event_timestamp").info()


def paged(values: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([values], schema=pa.schema([pa.field("val", values.type, nullable=False)]))
    pq.write_table(table, sink, **{"compression": "zstd", "store_schema": False, "use_dictionary": False} | options)
    return bytes(sink.getvalue().to_pybytes())


def encode_binlog(payloads: list[bytes], type: DataType = DataType.Int64) -> bytes:
    events = [NewEvent(EventType.INSERT, NOW, NOW, payload) for payload in payloads]
    return encode_log(LogPlace(1, 2, 3), 100, type, events, {layout.ORIGINAL_SIZE: "1"}, "test")


def test_of_a_damaged_event_the_rows_before_the_damage_are_kept(tmp_path: Path) -> None:
    """Those, and the other events, whatever the order of the pages that hold them."""
    rows = 1 << 19
    damaged = bytearray(paged(pa.array(np.arange(rows)), data_page_size=1 << 16))
    frame = damaged.index(b"\x28\xb5\x2f\xfd", len(damaged) * 2 // 3)
    damaged[frame : frame + 4] = bytes(4)
    path = tmp_path / "log"
    path.write_bytes(encode_binlog([paged(pa.array([1, 2, 3])), bytes(damaged), paged(pa.array([7]))]))
    row_count = sawlog.read(path, format="milvus_binlog", on_damage="skip").num_rows
    assert 4 < row_count < rows
    agreed(path, row_count, [BinlogDamageKind.BAD_PAYLOAD.label], tmp_path / "repaired")


def test_intact_events_before_a_broken_one_are_delivered_by_both_policies(tmp_path: Path) -> None:
    whole_log = encode_binlog([paged(pa.array([1, 2, 3])), paged(pa.array([4]))])
    path = tmp_path / "log"
    path.write_bytes(whole_log[:-20])
    batches = sawlog.open(path, format="milvus_binlog").to_batches()
    assert next(batches).to_pydict() == {"100": [1, 2, 3]}
    with pytest.raises(DamageError, match="truncated"):
        next(batches)
    agreed(path, 3, [BinlogDamageKind.TRUNCATED.label], tmp_path / "repaired")


@pytest.mark.nightly
def test_every_bit_of_headers_and_footers(tmp_path: Path) -> None:
    """No bit that decides how many rows there are can be changed without the same rows, or a word about it."""
    whole_log = encode_binlog([paged(pa.array([5, 6, 7], pa.int64()), use_dictionary=True)])
    path = tmp_path / "log"
    values = len(whole_log) - len(paged(pa.array([5, 6, 7], pa.int64()), use_dictionary=True))
    for offset in (*range(values), *range(len(whole_log) - 230, len(whole_log))):
        for bit in range(8) if offset >= len(whole_log) - 8 else (offset % 8, (offset + 5) % 8):
            data = bytearray(whole_log)
            data[offset] ^= 1 << bit
            path.write_bytes(data)
            try:
                rows = sawlog.read(path, format="milvus_binlog").num_rows
            except sawlog.SawlogError:
                continue
            assert rows == 3, (offset, bit)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two segments with deletes."""
    root = tmp_path / "tree"
    for first in (100, 900):
        table = pa.table({"pk": range(first, first + 30), "s": [f"row {i}" for i in range(30)]})
        write_collection(root, table, first_id=first)
        delete(root, [first], [NOW + 1], first)
    return root


def test_rows_of_a_check_are_those_that_are_read(tree: Path) -> None:
    assert open_as_it_lies(tree).count_rows() == sawlog.verify(tree).rows == 58
    victim = next(tree.glob("insert_log/1/2/900/101/*"))
    victim.write_bytes(victim.read_bytes()[:-1])
    assert sawlog.verify(tree).rows == open_as_it_lies(tree, on_damage="skip").count_rows() == 29
    with pytest.raises(DamageError):
        open_as_it_lies(tree).count_rows()
    write_collection(tree, pa.table({"pk": [1, 2]}), collection_id=8, first_id=5000)
    assert sawlog.verify(tree).rows == 29 + 2


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["0", "1", "100", "101"])
def test_no_flipped_bit_makes_a_column_vanish(tree: Path, name: str) -> None:
    """Without metadata, only the files say which columns there are."""
    result_table = open_as_it_lies(tree).to_table()
    (victim,) = tree.glob(f"insert_log/1/2/100/{name}/*")
    file_data = victim.read_bytes()
    for offset in (*range(0, 140, 3), *range(len(file_data) - 40, len(file_data), 3)):
        data = bytearray(file_data)
        data[offset] ^= 1 << offset % 8
        victim.write_bytes(data)
        try:
            table = open_as_it_lies(tree).to_table()
        except sawlog.SawlogError:
            continue
        assert table.schema.names == result_table.schema.names
        assert table.num_rows == result_table.num_rows


def test_a_field_whose_only_file_is_damaged_is_there(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2], "v": [0.5, 1.5]}))
    (victim,) = tmp_path.glob("insert_log/1/2/100/101/*")
    victim.write_bytes(b"")
    assert open_as_it_lies(tmp_path).schema.names == ["100", "101"]
    with pytest.raises(DamageError, match="the file is empty"):
        open_as_it_lies(tmp_path).to_table()
    assert open_as_it_lies(tmp_path, columns=["100"]).to_table().num_rows == 2


def test_an_empty_file_of_keys_is_told(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2], "n": [3, 4]}))
    (victim,) = tmp_path.glob("insert_log/1/2/100/100/*")
    victim.write_bytes(b"")
    with pytest.raises(DamageError, match="the file is empty"):
        open_as_it_lies(tmp_path).to_table()
    assert sawlog.verify(tmp_path).damaged


def test_no_byte_of_a_file_without_events_is_damaged_twice(tree: Path) -> None:
    (victim,) = tree.glob("insert_log/1/2/100/1/*")
    descriptor = victim.read_bytes().split(b'"}')[0] + b'"}'
    victim.write_bytes(descriptor.replace(b"original", b"origin\x7f\x00"))
    (report,) = [file for file in sawlog.verify(tree).files if file.path == str(victim)]
    assert [damage.kind for damage in report.damages] == [
        BinlogDamageKind.BAD_EXTRA.label,
        BinlogDamageKind.TRUNCATED.label,
    ]
    assert report.account.total == report.size == len(descriptor)


def test_a_batch_whose_files_disagree_and_are_damaged_is_told_of_in_one_order(tree: Path) -> None:
    keys, values = (next(tree.glob(f"insert_log/1/2/100/{name}/*")) for name in (100, 101))
    data = bytearray(keys.read_bytes())
    offset = data.index(b"PAR1") + 4
    data[offset : offset + 2] = b"\xff\xff"
    keys.write_bytes(data)
    values.write_bytes(encode_binlog([paged(pa.array(["a"]))], DataType.VarChar))
    damages_listed: list[Any] = []
    with pytest.raises(DamageError) as caught:
        open_as_it_lies(tree).to_table()
    for fragment in open_as_it_lies(tree, on_damage="skip").fragments():
        damages_listed += fragment.inspect(every=True).damages
    assert [(damage.path, damage.kind) for damage in damages_listed] == [
        (str(values), BinlogDamageKind.ROW_COUNT_MISMATCH.label),
        (str(keys), BinlogDamageKind.BAD_PAYLOAD.label),
    ]
    assert caught.value.damage == damages_listed[0]


def test_a_type_that_the_values_are_not_of_is_damage(tmp_path: Path) -> None:
    """One bit of a descriptor makes an int64 a string, which every number could be cast to."""
    path = tmp_path / "log"
    path.write_bytes(encode_binlog([paged(pa.array([1, 2]))], DataType.VarChar))
    agreed(path, 0, [BinlogDamageKind.TYPE_MISMATCH.label], tmp_path / "repaired")


def payload_of(data: bytes, place: Path, limit: int | None = None) -> Payload:
    place.write_bytes(data)
    return Payload(Storage().open(place), str(place), Extent(0, len(data)), limit)


def test_a_page_may_have_what_its_bytes_justify(tmp_path: Path) -> None:
    """33 KB of ZSTD that make a gigabyte are refused before anything is decompressed."""
    size = 16 << 20
    data = paged(pa.array([bytes(size)] * 2, pa.binary(size)), data_page_size=size, write_batch_size=1)
    assert len(data) < 64 << 10
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(UnreadableError, match="max_item_bytes") as caught:
        list(payload_of(data, tmp_path / "file").read_column_batches(0, 10))
    assert caught.value.damage.kind == BinlogDamageKind.PAYLOAD_TOO_LARGE.label
    assert pa.default_memory_pool().bytes_allocated() - before < parquet.FREE_PAGE
    allowed = payload_of(data, tmp_path / "file", 2 * size)
    assert sum(map(len, allowed.read_column_batches(0, 1))) == 2


def test_a_footer_that_claims_much_never_reaches_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the smallest elements takes hundreds of bytes there: 11 MB took 2.6 GiB."""

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("pyarrow was given the footer")

    monkeypatch.setattr(pq, "ParquetFile", never)
    elements = 11 << 20
    large = b"\x29\xfc" + encode_varint(elements) + bytes(elements) + b"\x00"
    few = b"\x29\xfc" + encode_varint(1 << 28) + bytes(30_000) + b"\x00"  # claims more than there is
    nested = b"\x1c" * 100_000 + bytes(100_000)
    for metadata, message in ((large, "a footer of"), (few, "a list of"), (nested, "nested too deeply")):
        data = b"PAR1" + metadata + struct.pack("<I", len(metadata)) + b"PAR1"
        with pytest.raises(UnreadableError, match=message):
            payload_of(data, tmp_path / "file")


def test_rows_that_no_bytes_justify_are_not_delivered(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 21, np.int32)), pa.array([7]))
    data = paged(column.cast(pa.int64()), use_dictionary=True)
    assert len(data) < 16 << 10
    assert payload_of(data, tmp_path / "file").rows == 1 << 21
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "MAX_CLAIMED_ROWS", 1 << 20)
        patch.setattr(parquet, "ROWS_PER_BYTE", 1)
        with pytest.raises(UnreadableError, match="2097152 rows in"):
            payload_of(data, tmp_path / "file")


def deltas(rows: int, keys: int, place: Path) -> File:
    """A delta log of many deletes of few keys."""
    cells = pa.array([json.dumps({"pk": key, "ts": NOW + 1, "pkType": 5}) for key in range(keys)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows, dtype=np.int32) % keys), cells)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"val": column}), sink, compression="zstd", store_schema=False)
    event = NewEvent(EventType.DELETE, NOW, NOW, bytes(sink.getvalue().to_pybytes()))
    place.write_bytes(encode_log(LogPlace(1, 2, 3), -1, DataType.String, [event], {layout.ORIGINAL_SIZE: "1"}, ""))
    return File(str(place), place.stat().st_size)


def looked_up(file: File, limit: int | None = None) -> index.DeleteIndex:
    place = (None, None, limit, Storage(), {})
    logs = DeltaLogs((file,), pa.int64(), str(limit) + file.path, *place)
    return logs.read_newest(strict=False)


@pytest.mark.nightly
def test_delete_logs_take_the_memory_of_their_keys(tmp_path: Path) -> None:
    """Only the newest delete of each key is kept while they are read."""
    few = looked_up(deltas(100_000, 10, tmp_path / "few"))
    assert few.nbytes < 1 << 20
    assert few.mark_survivors(pa.array([3, 11]), np.array([NOW, NOW])).tolist() == [0, 1]
    with pytest.raises(OptionError, match="max_delete_bytes"):
        looked_up(deltas(100_000, 100_000, tmp_path / "many"), 1 << 20)
    assert looked_up(deltas(100_000, 100_000, tmp_path / "many"), 64 << 20).nbytes > 1 << 20


def test_tables_that_grow_keep_what_they_hold() -> None:
    from sawlog.milvus.deletes.log import Deletes

    def make_deletes(texts: bool) -> Iterator[Deletes]:
        for start in range(0, 5000, 700):
            numbers = range(start, start + 700)
            keys = pa.array([f"key {n}" for n in numbers]) if texts else pa.array(numbers, pa.int64())
            yield Deletes(keys, pa.array([n % 50 + 1 for n in numbers], pa.int64()), 0)

    for texts in (False, True):
        delete_index = index.DeleteIndex(make_deletes(texts), None)
        numbers = range(-10, 5600)
        keys = pa.array([f"key {n}" for n in numbers]) if texts else pa.array(numbers, pa.int64())
        keep = delete_index.mark_survivors(keys, np.array([25] * len(numbers)))
        assert keep is not None
        assert keep.tolist() == [int(not (0 <= n < 5600 and n % 50 + 1 > 25)) for n in numbers]


@pytest.mark.spread(8)
@pytest.mark.parametrize("first", range(8))
def test_times_that_a_footer_is_wrong_about_hide_no_rows(first: int, tmp_path: Path) -> None:
    """Footers have no checksums, and `as_of` and filters leave batches unread by the limits that are there, twice."""
    times = [NOW, NOW + 100]
    write_collection(tmp_path, pa.table({"pk": [1, 2], "Timestamp": times}))
    (log,) = (path for path in tmp_path.rglob("insert_log/*/*/*/1/*") if path.is_file())
    intact = log.read_bytes()
    limits = [time.to_bytes(8, "little") for time in times]
    behind = intact.index(b"PAR1")
    places = [offset for offset in range(behind, len(intact) - 8) if intact[offset : offset + 8] in limits]
    tried = 0
    for place in places[-4:]:
        for bit in range(first, 64, 8):
            data = bytearray(intact)
            data[place + bit // 8] ^= 1 << bit % 8
            log.write_bytes(data)
            tried += 1
            then = open_as_it_lies(tmp_path, as_of=NOW).to_table()
            assert then["100"].to_pylist() == [1]
            for time, key in zip(times, (1, 2), strict=True):
                table = open_as_it_lies(tmp_path, view="inserts", filters=[("Timestamp", "=", time)]).to_table()
                assert table["100"].to_pylist() == [key]
    assert tried == 32


def test_a_writer_whose_name_is_no_text_is_told_as_that(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"val": [True, False]}), sink)
    data = sink.getvalue().to_pybytes()
    assert data.count(b"parquet-cpp") == 1
    event = NewEvent(EventType.INSERT, NOW, NOW, data.replace(b"parquet-cpp", b"parqu\xca\xff-cpp"))
    path = tmp_path / "log"
    path.write_bytes(encode_log(LogPlace(1, 2, 3), 101, DataType.Bool, [event], {"original_size": "2"}, "it"))
    dataset = sawlog.open(path, format="milvus_binlog")
    assert "not text: 'utf-8'" in dataset.info()["payload written by"]
    assert dataset.count_rows() == dataset.to_table().num_rows == 2


def test_the_view_of_inserts_is_none_of_delta_logs(tmp_path: Path) -> None:
    delete(tmp_path, [7, -8], [NOW, NOW], 100)
    (log,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert sawlog.open(log, format="milvus_binlog").count_rows() == 2
    with pytest.raises(OptionError, match="view inserts is for insert logs; this is delta"):
        sawlog.open(log, format="milvus_binlog", view="inserts")


@pytest.mark.parametrize("tree", ["plain", "backup"])
@pytest.mark.parametrize("broken", ["payload", "magic"])
def test_a_repaired_collection_opens_in_every_view(tmp_path: Path, tree: str, broken: str) -> None:
    """The batch that lost a column is there without rows, as are its other columns: deletes and metadata still fit."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    segments = pa.array([1] * 20 + [2] * 10, pa.int64())
    table = pa.table({"id": list(range(30)), "x": [f"{n}" for n in range(30)], "_segment": segments})
    write_collection(root, table, tree=tree)
    delete(root, [25], [NOW + 1], 2, tree=tree, first_id=9000)
    delete(root, [5], [NOW + 1], 1, tree=tree, first_id=9001)
    (log,) = (path for path in root.rglob("insert_log/1/2/1/101/*"))
    data = bytearray(log.read_bytes())
    offset = data.index(b"PAR1") + 4 if broken == "payload" else 0
    data[offset : offset + 8] = b"\xff" * 8
    log.write_bytes(data)
    before = sawlog.read(root, on_damage="skip")
    assert before.num_rows == 9
    copy.mkdir()
    report = sawlog.repair(root, copy)
    assert report.rows == 9
    assert not sawlog.verify(copy).damaged
    assert sawlog.read(copy).equals(before)
    for view, rows in {"inserts": 10, "history": 10, "deletes": 2, "segments": 2}.items():
        assert sawlog.read(copy, view=view).num_rows == rows


def test_repair_refuses_where_a_file_that_no_row_needs_cannot_be_had(tmp_path: Path) -> None:
    """Without the row ids the collection would not be whole; nothing is published, and both counts are said."""
    write_collection(tmp_path / "root", pa.table({"id": [1, 2, 3]}))
    (log,) = (tmp_path / "root").rglob("insert_log/1/2/100/0/*")
    log.write_bytes(log.read_bytes()[:-10])
    (tmp_path / "copy").mkdir()
    with pytest.raises(sawlog.SawlogError, match="the repaired copy was not published"):
        sawlog.repair(tmp_path / "root", tmp_path / "copy")
    assert [path for path in (tmp_path / "copy").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("tree", ["plain", "backup"])
def test_a_collection_without_rows_has_its_columns(tmp_path: Path, tree: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("v", pa.list_(pa.float32(), 4))])
    sawlog.write(schema.empty_table(), tmp_path, format="milvus_binlog", tree=tree)
    dataset = sawlog.open(tmp_path)
    assert dataset.schema.types == schema.types
    assert dataset.to_table().num_rows == dataset.count_rows() == 0
    report = sawlog.verify(tmp_path)
    assert not report.damaged
    assert report.rows == 0


@pytest.mark.parametrize("content", ["deletes", "ddl"])
def test_no_deletes_are_no_delta_log(tmp_path: Path, content: str) -> None:
    names = ("pk", "timestamp") if content == "deletes" else ("type", "timestamp", "request")
    kinds = {"pk": pa.int64(), "timestamp": pa.int64(), "type": pa.string(), "request": pa.binary()}
    empty_table = pa.schema([(name, kinds[name]) for name in names]).empty_table()
    with pytest.raises(sawlog.SchemaError, match="there are no"):
        sawlog.write(empty_table, tmp_path / "root", format="milvus_binlog", content=content)
    assert not (tmp_path / "root").exists()


def test_a_null_is_no_primary_key(tmp_path: Path) -> None:
    key = pa.field("id", pa.string(), metadata={"sawlog.milvus.nullable": "true"})
    with pytest.raises(sawlog.SchemaError, match="column 'id', row 1: null"):
        write_collection(tmp_path / "root", pa.table([pa.array(["a", None])], schema=pa.schema([key])))


def test_a_null_is_no_timestamp() -> None:
    """A broken page may hold one; it costs its row, and verify says so, too."""
    with pytest.raises(sawlog.SchemaError, match="row 1: a timestamp is null"):
        decode(TIMESTAMP, pa.array([1, None]))
