"""Milvus binlogs keep the laws."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sawlog.milvus import layout
from sawlog.testing import Exemption, Laws, Sample, Span, check, reading

from .dumps import dump
from .mutators import MUTATORS
from .packing import write_segment
from .support import NOW, SYNTHETIC, delete, encode_binlog, payload, write_collection
from .support import collection as small_collection

EVENT_HEADER = 17
NEXT_POSITION = 13
"""In the header of an event."""
DESCRIPTOR_END = 107
"""In logs of samples."""


def insert_log(name: str) -> Sample:
    """One insert log by itself."""
    data = (SYNTHETIC / name).read_bytes()
    first = len(layout.MAGIC) + struct.unpack_from("<I", data, len(layout.MAGIC) + 9)[0]
    return Sample(
        name,
        "milvus_binlog",
        data,
        name,
        headers=[Span(0, len(layout.MAGIC) + EVENT_HEADER + 60), Span(first, EVENT_HEADER + 16)],
        body=first,
    )


def file(path: str, view: str = "rows") -> Sample:
    """A file that was made by others, of whichever kind."""
    name, data = path.rsplit("/", 1)[-1], (SYNTHETIC / path).read_bytes()
    return Sample(
        f"{path} {view}",
        "milvus_binlog",
        data,
        name,
        view=view,
        blocks=path.startswith("delta/"),
        pages=path.startswith("stream_writer/"),
        effort=0.5,
    )


def paged(codec: str, **options: Any) -> Sample:
    """An insert log of two events of small pages."""
    values = pa.array([None if row == 5 else f"text {row % 4}" for row in range(30)])
    data = encode_binlog([payload(values, compression=codec, max_rows_per_page=8, **options)] * 2)
    return Sample(f"pages {codec}", "milvus_binlog", data, pages=True, effort=0.3)


def paged_collection() -> Sample:
    """A collection of small pages of lists, dictionaries, and plain values, with checksums."""
    with TemporaryDirectory() as place:
        root = Path(place) / "root"
        small_collection(root, 40, 7)
        files = content(Path(place))
    unread = ["root/meta", "root/binlogs/stats_log", "root/binlogs/insert_log/1/2/100/0"]
    return Sample(
        "paged", "milvus_binlog", files, root="root", ordered=False, beside=unread, repaired="rows", effort=0.3
    )


def column_group() -> Sample:
    """A bare Parquet file of Storage V2."""
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(id)})
        for id, (name, kind) in enumerate([("n", pa.int64()), ("s", pa.string())], 100)
    ]
    sink = pa.BufferOutputStream()
    schema = pa.schema(fields, metadata={"group_field_id_list": "100,101"})
    pq.write_table(
        pa.table([[1, 2, 3], ["a", "bb", None]], schema=schema), sink, compression="zstd", store_schema=False
    )
    return Sample("column group", "milvus_binlog", bytes(sink.getvalue().to_pybytes()), blocks=True)


def collection() -> Sample:
    """A collection that sawlog has written."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "x": pa.array([0.5, 1.5, 2.5], pa.float32())})
    with TemporaryDirectory() as place:
        write_collection(Path(place) / "root", table, primary_key="id")
        files = content(Path(place))
    segment = "root/insert_log/1/2/100"
    unread = ["root/stats_log", f"{segment}/0", f"{segment}/1"]  # row ids, and the times where there are no deletes
    return Sample("collection", "milvus_binlog", files, root="root", ordered=False, beside=unread)


@cache
def backed_up(texts: tuple[str | None, ...], deleted: tuple[int, ...]) -> tuple[pa.Table, dict[str, bytes]]:
    """A collection with metadata, a field that rows may lack, and deletes, some of them in an L0 segment."""
    late = pa.field("late", pa.string(), metadata={"sawlog.milvus.nullable": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), late])
    table = pa.table([pa.array(range(1, len(texts) + 1)), pa.array(texts)], schema=schema)
    with TemporaryDirectory() as place:
        root = Path(place) / "root"
        write_collection(root, table, tree="backup", stats=False, binlog_bytes=30)
        delete(root, list(deleted), [NOW + 1] * len(deleted), 100, tree="backup")
        delete(root, [3], [NOW + 1], 900, -1, tree="backup")
        return table, content(Path(place))


def backup(view: str = "rows", **options: Any) -> Sample:
    """Such a collection, and a state of it with other rows and deletes."""
    table, files = backed_up(("a", None, "ccc", "d"), (2,))
    _, earlier = backed_up(("a", "bb", "c"), (2, 1))
    row_ids = [name for name in files if name.startswith("root/binlogs/insert_log/1/2/100/0/")]
    unread = ["root/meta", *(["root/binlogs/delta_log"] if view == "inserts" else row_ids)]
    return Sample(
        f"backup {view}", "milvus_binlog", files, root="root", view=view, ordered=False, beside=unread,
        repaired="rows" if view in ("rows", "inserts", "history", "deletes") else "no", options=options, effort=0.2,
        written=table if view == "rows" else None, write_options={"timestamp": NOW, "tree": "backup"},
        earlier=[earlier],
    )  # fmt: skip


def dumped(keys: list[int], deleted: list[int]) -> dict[str, bytes]:
    """A collection of one segment, and a dump of etcd that names its logs."""
    table = pa.table({"id": pa.array(keys, pa.int64()), "x": pa.array(keys, pa.float32())})
    with TemporaryDirectory() as place:
        root = Path(place) / "root"
        write_collection(root, table, primary_key="id", stats=False)
        delete(root, deleted, [NOW + 1] * len(deleted), 100)
        etcd = dump(root, 1, [(100, "id", 5), (101, "x", 10)], deletes=len(deleted), rows=len(keys))
        return {**content(Path(place)), "etcd.json": etcd}


def etcd() -> Sample:
    """A copy of a server's files with a dump of its metadata."""
    files, segment = dumped([1, 2, 3], [2]), "root/insert_log/1/2/100"
    earlier = [dumped([1, 2], [1, 2]), dumped([3, 4, 5], [3])]
    options = {"metadata": "{root}/etcd.json"}
    unread = [f"{segment}/0"]
    return Sample(
        "etcd",
        "milvus_binlog",
        files,
        root="root",
        ordered=False,
        beside=unread,
        repaired="no",
        options=options,
        effort=0.3,
        earlier=earlier,
    )


def column_groups() -> Sample:
    """A segment of Storage V2: its files have row groups that end at different rows."""
    numbers = pa.array(range(10), pa.int64())
    groups = {
        "0": ({0: numbers}, 10),
        "1": ({1: pa.array([NOW] * 10), 100: numbers}, 4),
        "2": ({101: pa.array([None if row == 6 else f"text {row % 4}" for row in range(10)])}, 3),
    }
    files = {}
    for directory, (columns, rows) in groups.items():
        fields = [
            pa.field(f"f{id}", column.type, metadata={"PARQUET:field_id": str(id)}) for id, column in columns.items()
        ]
        sink = pa.BufferOutputStream()
        table = pa.table(list(columns.values()), schema=pa.schema(fields))
        pq.write_table(table, sink, row_group_size=rows, compression="zstd", store_schema=False)
        files[f"root/insert_log/1/2/3/{directory}/77"] = sink.getvalue().to_pybytes()
    with TemporaryDirectory() as place:
        delete(Path(place) / "root", [4, 8], [NOW + 1, NOW + 1], 3, first_id=78)
        files |= content(Path(place))
    fields = [{"name": "id", "type": 5, "is_primary": True}, {"name": "s", "type": 21, "nullable": True}]
    options = {"schema": {"name": "c", "fields": fields}}
    return Sample(
        "column groups",
        "milvus_binlog",
        files,
        root="root",
        ordered=False,
        beside=["root/insert_log/1/2/3/0"],
        repaired="rows",
        options=options,
        effort=0.4,
    )


def packed_files(keys: list[int], texts: list[str | None], last: int, deleted: list[int]) -> dict[str, bytes]:
    """A segment of Storage V3 whose column groups are cut at different rows, and deletes that its manifest names.

    Args:
        keys: The primary keys.
        texts: The other column.
        last: Rows of the last files of the groups that have two.
        deleted: Keys that are deleted.
    """
    columns = {100: pa.array(keys, pa.int64()), 101: pa.array(texts)}
    deltas = ["../../../../../delta_log/1/2/900/9001"]
    with TemporaryDirectory() as place:
        root = Path(place) / "root"
        cuts = {(0,): [len(keys)], (1, 100): [len(keys) - last, last], (101,): [2, len(keys) - 2]}
        write_segment(root, 900, columns, cuts, {"row_group_size": 2}, deltas=deltas)
        delete(root, deleted, [NOW + 9] * len(deleted), 900, first_id=9001)
        return content(Path(place))


def packed() -> Sample:
    """Such a segment, and two states of it: one with fewer rows and more deletes, one of as many of other content."""
    files = packed_files([1, 2, 3, 4], ["a", "bb", None, "d"], 1, [2])
    earlier = [packed_files([1, 2, 3], ["a", "bb", None], 1, [2, 3]), packed_files([5, 6, 7, 8], ["x"] * 4, 1, [6])]
    fields = [{"name": "id", "type": 5, "is_primary": True}, {"name": "s", "type": 21, "nullable": True}]
    options = {"schema": {"name": "c", "fields": fields}}
    unread = ["root/insert_log/1/2/900/_data/0_0.parquet"]
    return Sample(
        "packed",
        "milvus_binlog",
        files,
        root="root",
        ordered=False,
        beside=unread,
        repaired="no",
        options=options,
        effort=0.4,
        earlier=earlier,
    )


def content(root: Path) -> dict[str, bytes]:
    contents = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    meta = "root/meta/full_meta.json"
    if meta in contents:
        contents[meta] = json.dumps(json.loads(contents[meta])).encode()
    return contents


WRITTEN = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "", "ccc"]})


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/milvus-binlog.md"
    mutators = MUTATORS
    test_follow = test_follow_damaged = None  # files appear whole
    exemptions = (
        Exemption(
            "same_columns",
            "Each column is a separate file, or a separate part of the file of its column group, so damage to it does"
            " not matter if you read without its field.",
            samples=("column group",),
            told=r"columns=.*: \d+ of \d+ rows",
            fuzzed=True,
        ),
        Exemption(
            "projection",
            "Each column is a separate file, or a separate part of the file of its column group, so damage to it does"
            " not matter if you read without its field.",
            samples=("column group",),
            told=r"finds \[\], with all columns",
            fuzzed=True,
        ),
        Exemption(
            "projection",
            "To count by keys and timestamps only, ask for no columns (`columns=[]`).",
            told=r"columns=\[\]: (finds \[\]|\d+ of \d+ rows)",
            fuzzed=True,
        ),
        Exemption(
            "removal",
            "Without metadata nothing says which fields a collection has: if all files of a field are gone, so is its"
            " column.",
            samples=("collection", "column groups"),
            told=r"^without .*/insert_log/",
        ),
        Exemption(
            "removal",
            "Nor does anything say then which delta logs there were: rows that only a log deletes that is gone are"
            " read.",
            samples=("column groups",),
            told=r"^without .*/delta_log/",
        ),
        Exemption(
            "removal",
            "A segment of Storage V3 whose manifest is gone is seen only if metadata names it: all of its other files"
            " are in directories that are not listed.",
            samples=("packed", "packed segments"),
            told=r"^without .*/_metadata/",
        ),
        Exemption(
            "removal",
            "A log that was replaced by another one of the same field that agrees with all of that is read as if it"
            " were the right one.",
            samples=(
                *("backup inserts", "backup history", "backup collections", "etcd"),
                *("packed", "packed segments", "packed events"),
            ),
            told=r"^that of earlier state \d instead of .*/(insert|delta)_log/.*rows are missing",
        ),
        Exemption(
            "agreed",
            "Of a segment whose manifest is damaged, or names files that are not there, nothing is read, but"
            " `sawlog verify` checks its delta logs, too.",
            samples=("packed",),
            told=r"skip finds \[\([^()]*(bad_manifest|missing_file)[^()]*\)\], verify \[\('[^']*/root/delta_log",
            fuzzed=True,
        ),
        Exemption(
            "repair",
            "If metadata names the files of such a batch, or a file has another number of deletes than metadata says,"
            " repair refuses.",
            told="repair gives up.*is not clean: .*(missing_file.*metadata names (log|this delta log)|cut_metadata"
            r"|mismatched_file.*expected \d+ deletes)",
            fuzzed=True,
        ),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        deltas = ("json_stream", "comma_legacy", "multi_field_int64", "multi_field_varchar", "v2_bare_parquet")
        columns = ("101_nullable_varchar/2", "103_uncompressed_bool/4", "106_sparse_vector/7", "109_array_of_vector/10")
        events = replace(insert_log("multi_event_insert"), name="events", view="frames", body=None, repaired="no")
        return [
            insert_log("multi_event_insert"),
            replace(
                collection(),
                written=WRITTEN,
                write_options={"primary_key": "id", "timestamp": 1 << 18, "tree": "backup"},
            ),
            *(file(f"delta/{name}") for name in deltas),
            *(file(f"stream_writer/{name}") for name in columns),
            file("pre_ga/seed_style_21_byte_header"),
            column_group(),
            paged("zstd"),
            paged("snappy", use_dictionary=False, data_page_version="2.0"),
            paged("none", use_dictionary=False, write_page_checksum=True),
            paged_collection(),
            column_groups(),
            packed(),
            backup(),
            backup("inserts"),
            backup("deletes"),
            backup("history"),
            etcd(),
            replace(events, headers=(), effort=0.3),
            replace(backup("collections"), beside=["root"], folded=True),
            replace(
                packed(),
                name="packed segments",
                view="segments",
                beside=["root/insert_log/1/2/900/_data", "root/delta_log"],
                folded=True,
            ),
            replace(packed(), name="packed events", view="frames", beside=[]),
        ]


@pytest.mark.parametrize(
    ("name", "offset", "bits"),
    [
        pytest.param("v2_bare_parquet", 148, 0xF0, id="a negative timestamp"),
        pytest.param("multi_field_varchar", 191, 0x90, id="a key that is no text"),
    ],
)
def test_deletes_beside_a_damaged_one_are_delivered_by_both_policies(name: str, offset: int, bits: int) -> None:
    """The place of a delete is that of its event: `fail` delivers what can be read of it, then raises."""
    sample = file(f"delta/{name}")
    data = bytearray(sample.content[name])
    data[offset] ^= bits
    outcome = check(sample, bytes(data))
    assert len(outcome.rows) == 1
    assert [damage.kind for damage in outcome.damages] == ["bad_delete"]


@pytest.mark.parametrize("named", [True, False])
def test_what_is_wrong_with_a_batch_is_told_also_where_a_file_is_missing(named: bool) -> None:
    """No row can be read, and `verify` is not the only verb to say what else is damaged."""
    files = dict(backup().content)
    batch = "root/binlogs/insert_log/1/2/100"
    removed, damaged = f"{batch}/1/110", f"{batch}/101/112"
    if named:
        del files[removed]
    else:
        meta = "root/meta/full_meta.json"
        files[meta] = files[meta].replace(b'{"fieldID": 1, "binlogs"', b'{"fieldID": 1, "binlogx"')
    files[damaged] = files[damaged][:158] + bytes(7) + files[damaged][158:]
    kinds = {damage.kind for damage in check(backup(), files).damages}
    assert kinds == {"missing_file", "bad_payload", "trailing_bytes"}


@pytest.mark.parametrize("group", [0, 1, 2])
def test_files_of_a_segment_that_lacks_some_are_not_compared(group: int) -> None:
    """Column groups are cut at different rows, so other numbers of rows are no damage."""
    files = dict(packed().content)
    manifest = "root/insert_log/1/2/900/_metadata/manifest-1.avro"
    head, *groups = files[manifest].split(b"\x0eparquet")
    files[manifest] = head + b"".join(
        (b"\x0eunknown" if i == group else b"\x0eparquet") + g for i, g in enumerate(groups)
    )
    # The first group has columns of the system, which rows do without: verify names it, a read has no need to.
    sample = packed() if group else replace(packed(), beside=("root/insert_log/1/2/900",))
    assert {damage.kind for damage in check(sample, files).damages} == {"unsupported"}


def test_what_the_metadata_does_not_name_is_checked_by_verify_alone() -> None:
    """It is listed as left out."""
    files = dict(backup().content)
    meta, damaged = "root/meta/full_meta.json", "root/binlogs/insert_log/1/2/100/101/112"
    files[meta] = files[meta].replace(b'{"fieldID": 101, "binlogs"', b'{"fieldID": 101, "binlogx"')
    files[damaged] = files[damaged][:158] + bytes(7) + files[damaged][158:]
    outcome = check(backup(), files)
    assert len(outcome.rows) == 2
    assert {damage.kind for damage in outcome.damages} == {"bad_payload", "trailing_bytes"}


def test_rows_of_a_file_that_has_too_many_are_left_out_whatever_is_read() -> None:
    """A read of all columns leaves such a batch out; one of only that column said that metadata differs."""
    files = dict(backup("inserts").content)
    name = "root/binlogs/insert_log/1/2/100/0/105"
    head, event = files[name][:DESCRIPTOR_END], files[name][DESCRIPTOR_END:]
    again = event[:NEXT_POSITION] + struct.pack("<I", len(head) + 2 * len(event)) + event[NEXT_POSITION + 4 :]
    outcome = check(backup("inserts"), {**files, name: head + event + again}, laws=(reading.check_columns,))
    assert {damage.kind for damage in outcome.damages} == {"row_count_mismatch"}
    assert len(outcome.rows) == 3


UNKNOWN = 10
"""A type of events that Milvus does not have yet."""


@pytest.mark.spread(8)
@pytest.mark.parametrize("path", ["101/116", "0/113", "1/114"])
@pytest.mark.parametrize("kind", [*sorted(set(layout.EventType) - {layout.EventType.INSERT}), UNKNOWN])
def test_an_event_of_another_type_is_the_same_to_all_verbs(kind: int, path: str) -> None:
    files = dict(backup("inserts").content)
    name = f"root/binlogs/insert_log/1/2/100/{path}"
    data = bytearray(files[name])
    (first,) = struct.unpack_from("<I", data, len(layout.MAGIC) + 9)
    data[len(layout.MAGIC) + first + 8] = kind
    files[name] = bytes(data)
    kinds_of_damage = {damage.kind for damage in check(backup("inserts"), files).damages}
    if kind == UNKNOWN:
        assert kinds_of_damage == {"unsupported"}
        return
    foreign = kind == layout.EventType.INDEX_FILE or (kind == layout.EventType.DELETE and path.startswith("0/"))
    assert kinds_of_damage == ({"unknown_event"} if foreign or kind == layout.EventType.DESCRIPTOR else set())


@pytest.mark.parametrize(
    ("view", "options", "why"),
    [
        ("rows", {}, "the primary key is unknown, so that deletes cannot be applied"),
        ("history", {}, "the primary key is unknown, so that deletes cannot be applied"),
        ("rows", {"dedupe": True}, "dedupe: the primary key is unknown"),
        ("inserts", {}, None),
    ],
)
def test_without_a_primary_key_all_verbs_refuse_what_needs_it(
    view: str, options: dict[str, Any], why: str | None
) -> None:
    sample = backup(view)
    files = dict(sample.content)
    meta = "root/meta/full_meta.json"
    files[meta] = files[meta].replace(b'"is_primary_key": true', b'"is_primary_key": null')
    outcome = check(sample, files, laws=[reading.check_fragments], **options)
    if why is None:
        assert (outcome.refused, len(outcome.rows)) == (None, 4)
    else:
        assert why in str(outcome.refused)


def test_damaged_deletes_are_told_also_by_a_batch_that_cannot_be_read() -> None:
    """The first batch of a segment answers for its delta logs."""
    sample = packed()
    files = dict(sample.content)
    column, deletes = "root/insert_log/1/2/900/_data/2_0.parquet", "root/delta_log/1/2/900/9001"
    files[column], files[deletes] = files[column][:155], files[deletes][:-40]
    damaged = {Path(report.path).name for report in check(sample, files).reports if report.damaged}
    assert damaged == {"2_0.parquet", "9001"}


@pytest.mark.parametrize("view", ["rows", "history", "deletes"])
def test_deletes_of_keys_whose_type_is_lost_are_not_damaged(view: str) -> None:
    """Metadata and the only file of the primary key are damaged: no row has a key, and deletes say what they said."""
    files = dict(paged_collection().content)
    files["root/meta/full_meta.json"] = b"{"
    files["root/binlogs/insert_log/1/2/100/100/103"] = files["root/binlogs/insert_log/1/2/100/100/103"][:-1]
    outcome = check(replace(paged_collection(), view=view, repaired="no"), files)
    assert outcome.refused is None
    assert not any("delta_log" in damage.file for damage in outcome.damages)
    assert len(outcome.rows) == (3 if view == "deletes" else 0)
