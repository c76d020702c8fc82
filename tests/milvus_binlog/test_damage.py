"""Hostile and damaged files: clear errors, bounded memory, and everything intact is delivered."""

from __future__ import annotations

import base64
import io
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, FormatError, IncompleteError, UnsupportedError
from sawlog.format.damage import DamageWarning
from sawlog.milvus import layout
from sawlog.milvus.encode import LogPlace, NewEvent, encode_log
from sawlog.milvus.layout import DataType, EventType
from sawlog.milvus.payloads.payload import DICTIONARY_BUDGET
from sawlog.testing import Sample, changes, check, reading

from . import thrift
from .packing import group, packed_file, write_manifest, write_segment
from .support import GOLDEN, NOW, SYNTHETIC, delete, open_as_it_lies, write_collection

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")

BAD = SYNTHETIC / "bad"
GOOD = (SYNTHETIC / "multi_event_insert").read_bytes()


def read_binlog(path: Path, **options: object) -> pa.Table:
    return sawlog.read(path, format="milvus_binlog", **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("magic", "found 32 66 32 66"),
        ("event_length_negative", "length, -1, does not fit"),
        ("event_length_too_big", "length, 2147483647, does not fit"),
        ("truncated_header", "does not fit into the file"),
        ("zero_length", "the file is empty"),
        ("s3_chunk_signature_prefix", "is at byte 87"),
    ],
)
def test_unreadable_files_say_why(name: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        read_binlog(BAD / name)
    assert name in str(error.value)
    report = sawlog.verify(BAD / name, format="milvus_binlog") if name == "none" else None
    assert report is None


@pytest.mark.parametrize("name", ["truncated_payload", "extra_not_json"])
def test_damage_inside_a_file_costs_its_rows(name: str) -> None:
    with pytest.raises(DamageError):
        read_binlog(BAD / name)
    with pytest.warns(DamageWarning):
        table = read_binlog(BAD / name, on_damage="skip")
    assert table.column(0).to_pylist() == ([1, 2, 3, 4, 5, 6] if name == "truncated_payload" else list(range(1, 13)))
    (report,) = sawlog.verify(BAD / name, format="milvus_binlog").files
    assert report.damaged
    assert report.account.total == report.size == (BAD / name).stat().st_size


def test_repair_takes_the_chunk_signature_off(tmp_path: Path) -> None:
    sawlog.repair(BAD / "s3_chunk_signature_prefix", tmp_path / "whole", format="milvus_binlog")
    assert (tmp_path / "whole").read_bytes() == GOOD
    sawlog.repair(BAD / "truncated_payload", tmp_path / "half", format="milvus_binlog")
    assert read_binlog(tmp_path / "half").column(0).to_pylist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(FormatError, match="nothing can be taken"):
        sawlog.repair(BAD / "magic", tmp_path / "none", format="milvus_binlog")
    assert not (tmp_path / "none").exists()


def patched(tmp_path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(GOOD)
    change(data)
    path = tmp_path / "log"
    path.write_bytes(data)
    return path


def event_offset() -> int:
    return len(layout.MAGIC) + struct.unpack_from("<I", GOOD, 13)[0]


@pytest.mark.parametrize("length", [0, 16, 32, 1 << 31, (1 << 32) - 1])
def test_event_lengths_that_lie_are_damage(tmp_path: Path, length: int) -> None:
    path = patched(tmp_path, lambda data: struct.pack_into("<I", data, event_offset() + 9, length))
    with pytest.raises((DamageError, FormatError), match="length"):
        read_binlog(path)


def test_next_position_is_never_followed(tmp_path: Path) -> None:
    for value in (0, 0xFFFFFFFF, 0x7FFFFFFF, 4):

        def lie(data: bytearray, value: int = value) -> None:
            struct.pack_into("<I", data, event_offset() + 13, value)

        assert read_binlog(patched(tmp_path, lie)).column(0).to_pylist() == list(range(1, 13))


def test_both_policies_call_a_lost_page_of_a_field_whose_type_is_lost_the_same(tmp_path: Path) -> None:
    content = bytearray((SYNTHETIC / "stream_writer" / "103_uncompressed_bool" / "4").read_bytes())
    content[72:76] = b"\xff" * 4  # the type of the field: no value can be cast to it, not even of no rows
    content[content.index(b"PAR1") + 4] = 0xFF  # the header of the first page
    path = tmp_path / "4"
    path.write_bytes(content)
    with pytest.raises(DamageError, match=r"bad_payload.*a broken page header") as raised:
        read_binlog(path)
    (report,) = sawlog.verify(path, format="milvus_binlog").files
    assert report.damages == [raised.value.damage]


def test_trailing_bytes_cost_no_row(tmp_path: Path) -> None:
    path = patched(tmp_path, lambda data: data.extend(bytes(7)))
    with pytest.raises(DamageError, match="trailing_bytes"):
        read_binlog(path)
    with pytest.warns(DamageWarning):
        assert read_binlog(path, on_damage="skip").num_rows == 12


def test_an_unknown_event_is_named(tmp_path: Path) -> None:
    path = patched(tmp_path, lambda data: struct.pack_into("<b", data, event_offset() + 8, 8))
    with pytest.raises((DamageError, FormatError), match="type code 8"):
        read_binlog(path)


def test_encrypted_files_are_recognised(tmp_path: Path) -> None:
    extra = {"original_size": "3", "edek": "a2V5", "encryption_zone": 468599886057571311}
    event = NewEvent(EventType.INSERT, NOW, NOW, b"\x13\x37" * 40)
    data = encode_log(LogPlace(1, 2, 3), 100, DataType.Int64, [event], extra, "test")
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(UnsupportedError, match="468599886057571311"):
        sawlog.read(tmp_path / "log")
    dataset = sawlog.open(tmp_path / "log")
    assert dataset.info()["encrypted"] == "zone 468599886057571311"
    (report,) = sawlog.verify(tmp_path / "log").files
    assert list(report.kinds) == ["unsupported"]
    assert not report.damaged
    assert report.account.total == len(data)


def bare(codec: int | None = None, encoding: int | None = None) -> bytes:
    """Parquet of two columns, the second of a codec or an encoding that nobody has."""
    sink = io.BytesIO()
    table = pa.table({"100": range(100), "101": range(100, 200)})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False)
    data = sink.getvalue()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = thrift.read(data, end)

    def field(struct: thrift.Struct, number: int) -> list[Any]:
        return next(field for field in struct.fields if field[0] == number)

    chunk = field(field(footer, 4)[2][1][0], 1)[2][1][1]
    metadata = field(chunk, 3)[2]
    if codec is not None:
        field(metadata, 4)[2] = codec
    start = field(metadata, 9)[2]
    header, body = thrift.read(data, start)
    if encoding is not None:
        field(field(header, 5)[2], 2)[2] = encoding
    stored = thrift.write(header)
    assert len(stored) == body - start
    written = thrift.write(footer)
    return data[:start] + stored + data[body:end] + written + struct.pack("<I", len(written)) + b"PAR1"


@pytest.mark.parametrize(
    ("sizes", "named"), [({"codec": 3}, "LZO"), ({"codec": 42}, "codec 42"), ({"encoding": 11}, "encoding 11")]
)
def test_codecs_and_encodings_that_pyarrow_lacks_are_unsupported(
    tmp_path: Path, sizes: dict[str, int], named: str
) -> None:
    """The column is named, and costs nothing of the others."""
    path = tmp_path / "file"
    path.write_bytes(bare(**sizes))
    with pytest.raises(UnsupportedError, match=named):
        read_binlog(path)
    assert read_binlog(path, columns=["100"])["100"].to_pylist() == list(range(100))
    report = sawlog.verify(path, format="milvus_binlog")
    assert report.unsupported
    assert not report.damaged
    path.write_bytes(bare())
    assert read_binlog(path).num_rows == 100


class PlainKeys(encryption.KmsClient):
    """Keys that are not wrapped at all."""

    def wrap_key(self, key: bytes, _master: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _master: str) -> bytes:
        return base64.b64decode(key)


@pytest.mark.parametrize("plain", [True, False])
def test_encrypted_parquet_is_unsupported(tmp_path: Path, plain: bool) -> None:
    """A column of a file whose footer is plain, or all of a file."""
    table = pa.table({"100": range(100), "101": range(100, 200)})
    settings = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["101"]}, plaintext_footer=plain, double_wrapping=False
    )
    keys = encryption.CryptoFactory(lambda _: PlainKeys())
    properties = keys.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    directory = write_segment(tmp_path, 900, {100: pa.array(range(100)), 101: pa.array(range(100))}, {(0, 1): [100]})
    (directory / "_data/1_0.parquet").write_bytes(sink.getvalue())
    files = [packed_file("1_0.parquet", 0, 100)]
    write_manifest(directory, [group([0, 1], [packed_file("0_0.parquet", 0, 100)]), group([100, 101], files)])
    schema = {"name": "c", "fields": [{"name": "pk", "type": 5, "is_primary": True}, {"name": "v", "type": 5}]}
    with pytest.raises(UnsupportedError, match="encrypted"):
        open_as_it_lies(tmp_path, schema=schema).to_table()
    report = sawlog.verify(tmp_path, schema=schema)
    assert report.unsupported
    assert not report.damaged
    if plain:
        assert open_as_it_lies(tmp_path, schema=schema, columns=["pk"]).to_table().num_rows == 100


def test_v3_manifest_and_encrypted_parquet_are_named(tmp_path: Path) -> None:
    for head, message in (
        (b"Obj\x01avro.schema", "Storage V3"),
        (b"PARE" + bytes(40), "needs its keys"),
        (b"\x1f\x8b\x08", "gzip"),
    ):
        (tmp_path / "file").write_bytes(head)
        with pytest.raises(FormatError, match=message):
            read_binlog(tmp_path / "file")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three segments of several batches each, with deletes."""
    root = tmp_path / "tree"
    table = pa.table({"pk": pa.array(range(300)), "s": [f"row {i}" for i in range(300)]})
    for segment in range(3):
        write_collection(
            root,
            table.slice(segment * 100, 100),
            binlog_bytes=1 << 10,
            segment_bytes=1 << 20,
            first_id=1000 * (segment + 1),
        )
        delete(root, [segment * 100], [NOW + 1], 1000 * (segment + 1))
    return root


def read_keys(root: Path, **options: object) -> list[int]:
    return sorted(open_as_it_lies(root, **options).to_table()["100"].to_pylist())


EXPECTED = [i for i in range(300) if i % 100]


@pytest.mark.parametrize("field", ["0", "1", "100", "101"])
def test_missing_field_files_are_told(tree: Path, field: str) -> None:
    shutil.rmtree(next(tree.glob(f"insert_log/1/2/2000/{field}")))
    with pytest.raises(IncompleteError, match=rf"missing_file.*field {field} "):
        read_keys(tree)
    with pytest.warns(DamageWarning):
        assert read_keys(tree, on_damage="skip") == [i for i in EXPECTED if not 100 <= i < 200]
    damages = open_as_it_lies(tree, view="damage").to_table().to_pylist()
    assert {row["kind"] for row in damages} == {"missing_file"}
    report = sawlog.verify(tree)
    assert [file.path.endswith("insert_log/1/2/2000") for file in report.files if file.incomplete] == [True]
    assert report.verdict == "incomplete"
    assert not report.damaged


@pytest.mark.spread(2)
@pytest.mark.parametrize("field", [0, 1, 100, 101])
def test_a_batch_that_lacks_a_file_is_left_out_of_the_repaired_collection(tree: Path, field: int) -> None:
    min(tree.glob(f"insert_log/1/2/2000/{field}/*"), key=lambda file: int(file.name)).unlink()
    with pytest.warns(DamageWarning, match="missing_file"):
        remaining_keys = read_keys(tree, on_damage="skip")
    assert set(range(101, 200)) & set(remaining_keys)
    sawlog.repair(tree, tree.parent / "repaired")
    assert read_keys(tree.parent / "repaired") == remaining_keys


def test_one_damaged_batch_costs_only_its_rows(tree: Path) -> None:
    victim = sorted(tree.glob("insert_log/1/2/2000/101/*"), key=lambda path: int(path.name))[1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    victim.write_bytes(data)
    batches = len(list(tree.glob("insert_log/1/2/2000/101/*")))
    assert batches > 2
    with pytest.raises(DamageError, match=victim.name):
        read_keys(tree)
    with pytest.warns(DamageWarning):
        remaining_keys = read_keys(tree, on_damage="skip")
    lost_keys = [i for i in EXPECTED if i not in remaining_keys]
    assert lost_keys
    assert len(lost_keys) < 100
    assert lost_keys == list(range(lost_keys[0], lost_keys[-1] + 1))
    (report,) = [file for file in sawlog.verify(tree).files if file.damaged]
    assert report.path == str(victim)


def test_damage_that_costs_no_row_is_reported_once_next_to_damage_that_does(tree: Path) -> None:
    first = min(int(file.name) for file in tree.glob("insert_log/1/2/2000/100/*"))
    field, other_field = (tree / f"insert_log/1/2/2000/{id}/{name}" for id, name in ((100, first), (101, first + 1)))
    data = bytearray(field.read_bytes())
    data[data.index(b'{"original_size')] = ord("?")
    field.write_bytes(data + bytes(7))
    data = bytearray(other_field.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    other_field.write_bytes(data)
    counts = r"\(1 bad_extra, 1 bad_payload, 1 trailing_bytes\)"
    with pytest.warns(DamageWarning, match=counts):
        read_keys(tree, on_damage="skip")


def test_files_that_disagree_about_rows_are_damage(tree: Path) -> None:
    files = sorted(tree.glob("insert_log/1/2/2000/*/*"))
    path = next(path for path in files if path.parent.name == "101")
    short = tree.parent / "short"
    write_collection(short, pa.table({"pk": [1], "s": ["x"]}), first_id=7)
    shutil.copy(next(short.glob("insert_log/1/2/7/101/*")), path)
    with pytest.raises(DamageError, match="row_count_mismatch"):
        read_keys(tree, columns=["100", "101"])
    with pytest.warns(DamageWarning):
        assert set(read_keys(tree, on_damage="skip")) < set(EXPECTED)


def test_damaged_delta_log(tree: Path) -> None:
    victim = next(tree.glob("delta_log/1/2/2000/*"))
    victim.write_bytes(victim.read_bytes()[:-30])
    with pytest.raises(DamageError, match="delta_log"):
        read_keys(tree)
    with pytest.warns(DamageWarning):
        assert read_keys(tree, on_damage="skip") == sorted([*EXPECTED, 100])


def test_metadata_that_names_what_is_not_there(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(GOLDEN / "2.3.5", root)
    removed_path = next(root.glob("insert_log/470611412203077890/*/470611412203277898/108/*"))
    removed_path.unlink()
    options = {"table": "alltypes", "metadata": str(root / "etcd.json")}
    with pytest.raises(IncompleteError, match=f"names log {removed_path.name} of field 108"):
        sawlog.read(root, **options)
    with pytest.warns(DamageWarning):
        assert sawlog.read(root, on_damage="skip", **options).num_rows == 996 - 440


def test_paths_out_of_metadata_stay_below_the_root(tmp_path: Path) -> None:
    import json

    root = tmp_path / "tree"
    write_collection(root, pa.table({"pk": [1]}))
    for path in (
        "../../../etc/passwd",
        "files/insert_log/1/2/../../../../etc/1",
        "x\0y/1",
        "insert_log/1/2/3/100/passwd",
    ):
        meta = {
            "collection_backups": [
                {
                    "collection_id": 1,
                    "collection_name": "c",
                    "schema": {"fields": [{"fieldID": 100, "name": "pk", "data_type": 5, "is_primary_key": True}]},
                    "partition_backups": [
                        {
                            "partition_id": 2,
                            "segment_backups": [
                                {"segment_id": 100, "binlogs": [{"fieldID": 100, "binlogs": [{"log_path": path}]}]}
                            ],
                        }
                    ],
                }
            ]
        }
        (tmp_path / "full_meta.json").write_text(json.dumps(meta))
        with pytest.raises(FormatError, match="expected"):
            sawlog.read(root, metadata=str(tmp_path / "full_meta.json"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": 5}',
        b'{"a": "!"}',
        b"[" * 100_000,
        b'{"kvs": [{}]}',
        b'{"a/root-coord/collection/1": "/////w=="}',
    ],
)
def test_metadata_that_is_none(tmp_path: Path, text: bytes) -> None:
    write_collection(tmp_path / "tree", pa.table({"pk": [1]}))
    (tmp_path / "meta.json").write_bytes(text)
    with pytest.raises((FormatError, IncompleteError)):
        sawlog.read(tmp_path / "tree", metadata=str(tmp_path / "meta.json"))


def payload_log(payload: bytes) -> bytes:
    event = NewEvent(EventType.INSERT, NOW, NOW, payload)
    return encode_log(LogPlace(1, 2, 3), 100, DataType.VarChar, [event], {"original_size": "1"}, "test")


BOMB = """
import resource, sys
import sawlog
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = size = 0
try:
    for batch in sawlog.open(sys.argv[1]).to_batches():
        rows += batch.num_rows
        size = max(size, batch.nbytes)
        if rows > 2000:
            break
except sawlog.SawlogError as error:
    print(error)
print("rows", rows, "batch", size >> 20, "grown", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""


def bomb(path: Path) -> tuple[str, int]:
    """What reading prints, and by how many MB the process grew."""
    done = subprocess.run([sys.executable, "-c", BOMB, str(path)], capture_output=True, text=True, check=True)
    return done.stdout, int(done.stdout.split("grown")[1])


def test_a_dictionary_that_bursts_needs_little_memory(tmp_path: Path) -> None:
    """100 000 times the same megabyte: 100 GB in a few KB."""
    indices = pa.array(np.zeros(100_000, np.int32))
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * (1 << 20)]))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"val": column}), sink, compression="zstd", store_schema=False)
    (tmp_path / "log").write_bytes(payload_log(sink.getvalue().to_pybytes()))
    assert (tmp_path / "log").stat().st_size < 100_000
    message, grown = bomb(tmp_path / "log")
    rows, batch = map(int, re.findall(r"(?:rows|batch) (\d+)", message))
    assert rows > 2000
    assert batch <= DICTIONARY_BUDGET >> 20
    assert grown < 1500


@pytest.mark.nightly
def test_a_page_that_bursts_is_refused(tmp_path: Path) -> None:
    """A gigabyte of zeros in one page of a few KB."""
    column = pa.array([bytes(1 << 20)] * 600, pa.binary())
    sink = pa.BufferOutputStream()
    settings = {"compression": "zstd", "use_dictionary": False, "data_page_size": 1 << 30, "write_batch_size": 1 << 20}
    pq.write_table(pa.table({"val": column}), sink, **settings)
    (tmp_path / "log").write_bytes(payload_log(sink.getvalue().to_pybytes()))
    message, grown = bomb(tmp_path / "log")
    assert "max_item_bytes" in message
    assert grown < 300


@given(position=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255), cut=st.integers(0, len(GOOD)))
def test_no_change_of_a_byte_crashes(position: int, value: int, cut: int) -> None:
    data = bytearray(GOOD)
    data[position] = value
    for broken in (bytes(data), GOOD[:cut]):
        check(Sample("log", "milvus_binlog", GOOD, "log"), broken, laws=(reading.check_fragments,))


@pytest.mark.parametrize(("agrees", "kinds"), [(True, {"unsupported": 1}), (False, {"unknown_event": 1})])
def test_an_event_of_a_newer_type_costs_itself_alone(tmp_path: Path, agrees: bool, kinds: dict[str, int]) -> None:
    """Where its length and its next position agree; a code that a changed bit makes may do so, too."""
    data = (SYNTHETIC / "multi_event_insert").read_bytes()
    whole_tree = tmp_path / "whole"
    whole_tree.write_bytes(data)
    events = sawlog.read(whole_tree, format="milvus_binlog", view="frames").to_pylist()
    changed = bytearray(data)
    offset = events[1]["offset"]
    changed[offset + 8] = 99
    if not agrees:
        changed[offset + 13] ^= 1
    path = tmp_path / "log"
    path.write_bytes(changed)
    (report,) = sawlog.verify(path, format="milvus_binlog").files
    assert report.kinds == kinds
    assert report.account.total == len(data)
    assert report.rows == (sum(event["rows"] for event in events[2:]) if agrees else 0)


def test_a_column_s_name_that_is_no_text_costs_nothing(tmp_path: Path) -> None:
    """Of the Parquet in an event, which values do not need."""
    table = sawlog.read(SYNTHETIC / "multi_event_insert")
    places = [match.start() for match in re.finditer(b"\x03val", GOOD)]
    for places_changed in (places[:1], places[1:2], places):
        data = bytearray(GOOD)
        for place in places_changed:
            data[place + 1] = 0xFF
        path = tmp_path / "log"
        path.write_bytes(data)
        assert sawlog.read(path, format="milvus_binlog").equals(table)
        check(
            Sample("log", "milvus_binlog", GOOD, "log"),
            bytes(data),
            laws=(reading.check_fragments, changes.check_frugality),
        )
