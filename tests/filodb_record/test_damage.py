"""Bad input: whatever the bytes are, what is intact comes out, and every byte that does not is described."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError
from sawlog.filodb import Buckets, Histogram, RecordBuilder, Schemas, assemble, walk
from sawlog.format.damage import DamageWarning, Findings, TailStatus
from sawlog.testing import Sample, check
from tests.unit_of_loss import assert_lost_by_unit

from . import golden
from .support import DATA, FIRST, GAUGE, HISTOGRAM, OPTIONS, SECOND, THIRD, checked, container, in_every_view

FINDINGS = Path(__file__).parent / "findings"


FOUR_CONTAINERS = b"".join(golden.data(f"gauge_100_small_{i:02}") for i in range(4))


def test_intact_containers_have_no_damage() -> None:
    rows, report = checked(DATA)
    assert [row["timestamp"] for row in rows] == list(range(15))
    assert not report.damaged
    rows, report = checked(FOUR_CONTAINERS)
    assert len(rows) == 52
    assert not report.damaged


def is_prefix(part: list[dict], all_rows: list[dict]) -> bool:
    return repr(part) == repr(all_rows[: len(part)])


@pytest.mark.nightly
def test_truncation_at_every_byte_leaves_a_prefix() -> None:
    first, second = container(3), container(3, 3)
    data = first + second
    rows, _ = checked(data)
    ends = [row["_offset"] for row in rows]
    for size in range(len(data)):
        result_rows, report = checked(data[:size], laws=())
        assert is_prefix(result_rows, rows)
        assert len(result_rows) >= sum(end < size for end in ends) - 1
        assert not report.damaged
        complete = size in (0, len(first))
        assert report.tail.status is (TailStatus.CLEAN if complete else TailStatus.TORN)


def test_truncation_of_whole_containers() -> None:
    rows, _ = checked(FOUR_CONTAINERS)
    edges = (0, 2047, 2048, 2049, 2063, 2064, 2065, 4095, 4096, 4097, 8191)
    for size in (*edges, *range(1, 64, 7), *range(1900, 2200, 11), *range(4000, 4200, 13)):
        result_rows, _ = checked(FOUR_CONTAINERS[:size], laws=())
        assert is_prefix(result_rows, rows)


bytes_of = st.binary(max_size=24)
positions = st.integers(0, len(DATA) - 1)
words = st.sampled_from([0, 1, 12, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01000000, len(DATA)])
mutation = st.one_of(
    st.tuples(st.just("flip"), positions, st.integers(1, 255)),
    st.tuples(st.just("word"), positions, words),
    st.tuples(st.just("overwrite"), positions, bytes_of),
    st.tuples(st.just("insert"), positions, bytes_of),
    st.tuples(st.just("delete"), positions, st.integers(1, 400)),
    st.tuples(st.just("cut"), positions, st.just(0)),
)


def mutate(data: bytes, changes: list) -> bytes:
    for kind, place, argument in changes:
        offset = min(place, len(data)) & (~1 if kind == "word" else ~0)
        if kind == "flip" and offset < len(data):
            data = data[:offset] + bytes((data[offset] ^ argument,)) + data[offset + 1 :]
        elif kind == "word":
            data = data[:offset] + struct.pack("<I", argument) + data[offset + 4 :]
        elif kind == "overwrite":
            data = data[:offset] + argument + data[offset + len(argument) :]
        elif kind == "insert":
            data = data[:offset] + argument + data[offset:]
        elif kind == "delete":
            data = data[:offset] + data[offset + argument :]
        elif kind == "cut":
            data = data[:offset]
    return data


@given(st.lists(mutation, min_size=1, max_size=4))
@settings(max_examples=20)
@pytest.mark.nightly
def test_changed_containers_are_read_or_reported(changes: list) -> None:
    in_every_view(mutate(DATA, changes))


@given(st.lists(mutation, min_size=1, max_size=3))
@settings(max_examples=10)
def test_mutations_of_whole_containers(changes: list) -> None:
    in_every_view(mutate(FOUR_CONTAINERS, changes))


@given(st.binary(max_size=300))
@settings(max_examples=10)
def test_any_bytes_are_read_or_reported(data: bytes) -> None:
    in_every_view(data)
    in_every_view(struct.pack("<IIq", 12 + len(data), 1 << 24, 1) + data)


SCHEMAS: dict[str, Any] = {
    "gauge": lambda n: (n, float(n), f"metric{n:03}", {"k": "v"}),
    "prom-counter": lambda n: (n, float(n), f"metric{n:03}", {"k": "v"}),
    "prom-histogram": lambda n: (
        n, 1.0, 2.0, Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(n, n + 8))), f"metric{n:03}", {"k": "v"},
    ),
}  # fmt: skip
"""Of each schema the values of a record."""


def record_offsets() -> list[int]:
    return [row["_offset"] for row in checked(DATA)[0]]


@pytest.mark.parametrize(
    ("offset", "new", "kind", "loss", "detail"),
    [
        (0, b"\xff\xff\xff\x7f", "bad_container_length", 0, "another container begins at byte"),
        (7, b"\x02", "unsupported", 5, "a container of version 2"),
        (0, b"\x00\x00", "bad_header", 5, "expected a container header"),
        (16, b"\xff\xff\xff\x7f", "bad_record_length", 5, "length 2147483647; the rest of the container"),
        (16, b"\xff\xff\xff\xff", "bad_record_length", 5, "length -1"),
        (16, b"\x04\x00", "bad_record_length", 5, "length 4"),
        (20, b"\x67\x12", "unsupported", 1, "schema ID 4711"),
        (16 + 22, b"\x00", "bad_pointer", 1, "column _metric_: pointer or length 0 leads"),
        (16 + 22, b"\xff\xff\xff\xff", "bad_pointer", 1, "column _metric_: pointer or length 4294967295"),
        (16 + 34, b"\xff\xff", "bad_pointer", 1, "column _metric_: pointer or length 65535"),
        (16 + 36, b"\xff", "invalid_utf8", 1, "column _metric_: not UTF-8"),
        (16 + 42, b"\xff", "unknown_predefined_key", 1, "column tags: predefined key number 63"),
        (16 + 43, b"\x50", "bad_map", 1, "column tags: the map's entries do not end where the map does"),
    ],
)
def test_every_kind_of_damage_costs_its_rows(offset: int, new: bytes, kind: str, loss: int, detail: str) -> None:
    data = DATA[:offset] + new + DATA[offset + len(new) :]
    rows, report = checked(data)
    assert len(rows) == 15 - loss
    assert [damage.kind for damage in report.damages] == [kind]
    assert detail in report.damages[0].detail


@pytest.mark.parametrize("schema", list(SCHEMAS))
def test_a_record_that_a_codec_refuses_costs_itself_only(schema: str, tmp_path: Path) -> None:
    """Whichever of its columns cannot be decoded, its neighbours are what they were."""
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(200):
        target.add_from_reader(SCHEMAS[schema](n), Schemas.built_in()[schema])
    data = b"".join(target.optimal_container_bytes())
    path = tmp_path / "a.container"
    path.write_bytes(data)
    options: dict[str, Any] = {"format": "filodb_record", "table": schema}
    rows = sawlog.read(path, **options).to_pylist()
    assert len(rows) == 200
    broken = {}
    for n in (0, 100, 199):
        offset = data.index(b"metric%03d" % n)
        broken[n] = data[:offset] + b"\xff" + data[offset + 1 :]
        if "histogram" in schema:
            blob = Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(n, n + 8))).encode()
            offset = data.index(blob)
            broken[n] = data[:offset] + b"\x63" + data[offset + 1 :]
    units = {n: [row] for n, row in enumerate(rows)}
    assert_lost_by_unit(path, broken=broken, units=units, unsupported="histogram" in schema, **options)


@pytest.mark.parametrize("schema", ["gauge", "prom-histogram"])
@pytest.mark.parametrize("length", [0, 1])
def test_a_record_too_short_for_its_schema_id_costs_itself(schema: str, length: int) -> None:
    rows, report = checked(DATA[:16] + bytes((length, 0, 0, 0)) + DATA[20:], table=schema)
    intact_rows, _ = checked(DATA, table=schema)
    assert rows == [row for row in intact_rows if row["_offset"] > len(FIRST)]
    assert [(damage.kind, damage.offset) for damage in report.damages] == [("bad_record_length", 16)]


def test_a_broken_histogram_costs_one_row() -> None:
    blob = Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(2, 10))).encode()
    blob_offset = DATA.index(blob)
    for offset, new in ((1, b"\xff\xff"), (3, b"\xff\xff"), (1, b"\x00\x00"), (21, b"\xff\xff")):
        rows, report = checked(DATA[: blob_offset + offset] + new + DATA[blob_offset + offset + len(new) :])
        assert len(rows) == 14
        assert [damage.kind for damage in report.damages] == ["bad_histogram"]


def test_a_histogram_of_a_format_that_is_not_known_is_unsupported() -> None:
    """A later version may have it: its record is named, and the others are read."""
    offset = DATA.index(Histogram(Buckets.geometric(1.0, 2.0, 8), tuple(range(2, 10))).encode())
    rows, report = checked(DATA[:offset] + b"\x63" + DATA[offset + 1 :])
    assert len(rows) == 14
    assert report.unsupported
    assert not report.damaged
    assert "format 99" in report.damages[0].detail


def test_many_buckets_from_few_bytes_do_not_fill_the_memory() -> None:
    """A blob of 23 bytes can claim 8192 buckets: batches become small, and rows come out all the same."""
    blob = b"\x03\x12\x00" + struct.pack("<Hdd", 8192, 1.0, 1.0)
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(600):
        target.start_new_record(HISTOGRAM)
        target.add_long(n)
        target.add_double(1.0)
        target.add_double(1.0)
        target.add_blob(blob)
        target.add_string("m")
        target.add_map({})
        target.end_record()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.container"
        path.write_bytes(target.optimal_container_bytes()[0])
        batches = list(sawlog.open(path).to_batches())
        assert sum(batch.num_rows for batch in batches) == 600
        assert max(batch.num_rows for batch in batches) <= 128


def test_zeros_after_the_last_container_are_unused_space() -> None:
    rows, report = checked(DATA + bytes(5000))
    assert len(rows) == 15
    assert report.tail.status is TailStatus.PADDING
    assert not report.damaged


def test_containers_after_garbage_are_found() -> None:
    rows, report = checked(FIRST + b"garbage!" * 30 + THIRD)
    assert len(rows) == 11
    assert [(d.kind, d.offset, d.length) for d in report.damages] == [("bad_header", len(FIRST), 240)]


def test_a_container_inside_a_label_is_not_one() -> None:
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    target.start_new_record(GAUGE)
    target.add_long(1)
    target.add_double(1.0)
    target.add_blob(SECOND)
    target.add_map({})
    target.end_record()
    data = target.optimal_container_bytes()[0]
    rows, report = checked(data + THIRD, strings="binary")
    assert len(rows) == 7
    assert rows[0]["_metric_"] == SECOND
    assert not report.damaged


def test_a_file_that_shrinks_meanwhile_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.container"
    path.write_bytes(DATA)
    dataset = sawlog.open(path, **OPTIONS)
    path.write_bytes(DATA[:100])
    with pytest.raises(sawlog.SawlogError, match=r"shrank|became shorter"):
        dataset.to_table()


def test_bad_pointers_among_many_records_cost_their_rows() -> None:
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    offsets = [target.add_from_reader((n, float(n), "heap", {"n": str(n)}), GAUGE) for n in range(1000)]
    data = bytearray(target.optimal_container_bytes()[0])
    bad = {n for n in range(1000) if n % 5 == 0 or n % 7 == 0}
    for n in bad:
        for step, slot in ((5, 22), (7, 26)):
            if n % step == 0:
                struct.pack_into("<I", data, offsets[n] + slot, 0xFFFF)
    rows, report = checked(bytes(data), table="gauge")
    assert [row["timestamp"] for row in rows] == [n for n in range(1000) if n not in bad]
    assert [row["_offset"] for row in rows] == [offsets[n] for n in range(1000) if n not in bad]
    assert [damage.offset for damage in report.damages] == [offsets[n] for n in sorted(bad)]
    assert {damage.kind for damage in report.damages} == {"bad_pointer"}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.container"
        path.write_bytes(data)
        with pytest.warns(DamageWarning):
            keys = sawlog.read(path, view="partkeys", on_damage="skip")
        assert [dict(tags)["n"] for tags in keys["tags"].to_pylist()] == [dict(row["tags"])["n"] for row in rows]
        with pytest.warns(DamageWarning):
            fixed = sawlog.read(path, columns=["timestamp"], on_damage="skip")
        assert fixed["timestamp"].cast("int64").to_pylist() == [n for n in range(1000) if n not in bad]
        with pytest.raises(DamageError):
            sawlog.read(path, columns=["timestamp"])


def test_a_warning_of_what_is_read_out_of_several_files_names_their_directory(tmp_path: Path) -> None:
    """Not the first of them, which is intact."""
    damaged = bytearray(DATA)
    damaged[len(DATA) // 2 :] = bytes(len(DATA) - len(DATA) // 2)
    for number, data in enumerate((DATA, bytes(damaged))):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "1.container").write_bytes(data)
    with pytest.warns(DamageWarning, match=f"^{tmp_path}: skipped"):
        sawlog.read(tmp_path, view="partkeys", on_damage="skip")
    with pytest.warns(DamageWarning, match=f"^{tmp_path}/1/1.container: skipped"):
        sawlog.read(tmp_path / "1", view="partkeys", on_damage="skip")


@pytest.mark.parametrize("columns", [None, [], ["h"], ["count"], ["tags"], ["count", "_metric_"]])
def test_a_damaged_map_costs_its_row_whichever_columns_are_asked_for(columns: list[str] | None) -> None:
    """A record whose map could not be decoded was delivered where the map was not asked for."""
    path = FINDINGS / "projection.container"
    dataset = sawlog.open(path, columns=columns, on_damage="skip", table="all")
    with pytest.warns(DamageWarning):
        assert dataset.to_table().num_rows == dataset.count_rows() == 3
    with pytest.raises(DamageError):
        sawlog.open(path, columns=columns, table="all").to_table()


def test_a_container_that_is_too_long_shows_what_its_builder_left_in_it() -> None:
    """FiloDB reads up to that length as well: nothing but the hash, which ends a record, says that it is none."""
    first, second = (golden.data(f"gauge_100_small_{i:02}") for i in (0, 1))
    end = 4 + int.from_bytes(first[:4], "little")
    room = (int.from_bytes(first[end : end + 4], "little") + 7) // 4 * 4
    assert 0 < room <= len(first) - end
    longer = (end + room - 4).to_bytes(4, "little") + first[4:]
    labels = {row["_offset"]: row["tags"] for row in checked(first + second)[0]}
    rows, report = checked(longer + second)
    assert not report.damaged
    tags_by_offset = {row["_offset"]: row["tags"] for row in rows}
    extra, following = tags_by_offset.pop(end), labels[len(first) + 16]
    assert tags_by_offset == labels
    assert extra == following[: len(extra)] != following
    rows, report = checked(longer + second, verify_hashes=True)
    assert {row["_offset"]: row["tags"] for row in rows} == labels
    assert [(damage.kind, damage.offset, damage.length) for damage in report.damages] == [("hash_mismatch", end, room)]


def test_maps_of_a_file_find_room_after_one_whose_maps_are_all_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room for labels was guessed from the file before, of which nothing was decoded, and doubled for ever."""
    labels = {"n": "x" * 1000}
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    target.add_from_reader((1, 1.0, "heap", labels), GAUGE)
    (data,) = target.optimal_container_bytes()
    (tmp_path / "1.container").write_bytes(data.replace(b"\1n", b"\xffn"))
    (tmp_path / "2.container").write_bytes(data)
    calls: list[int] = []
    gather_maps = assemble.maps.gather_maps

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        assert len(calls) < 20
        return gather_maps(*arguments)

    monkeypatch.setattr(assemble.maps, "gather_maps", counted)
    dataset = sawlog.open(tmp_path, table="gauge", on_damage="skip")
    findings = Findings("skip")
    batches = [batch for fragment in dataset.fragments(1) for batch in fragment.to_batches(findings)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [dict(row["tags"]) for row in rows] == [labels]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3\xa9"])
@pytest.mark.parametrize("text", ["é-key", "é-value", "é-metric", "plain"])
def test_text_is_judged_as_it_is_decoded(text: str, bad: bytes, tmp_path: Path) -> None:
    """Of text beyond ASCII, the judgement of what is not asked for is that of what is: kind, place and detail."""
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP)
    for n in range(3):
        target.add_from_reader((n, 0.5, "é-metric", {"é-key": "1", "plain": "é-value"}), GAUGE)
    data = b"".join(target.optimal_container_bytes())
    offset = data.index(text.encode())
    (tmp_path / "a.container").write_bytes(data[:offset] + bad + data[offset + len(bad) :])
    outcomes = []
    for columns in (None, ["timestamp"], []):
        dataset = sawlog.open(tmp_path / "a.container", table="gauge", columns=columns, on_damage="skip")
        (fragment,), findings = dataset.fragments(None), Findings("skip", drained=True)
        for _ in fragment.to_batches(findings):
            pass
        outcomes.append((findings.rows, [(damage.kind, damage.offset, damage.detail) for damage in findings.damages]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_repair_keeps_every_sound_record_of_whatever_schema(tmp_path: Path) -> None:
    """Schemas that come late, or are known to nobody here, are no damage to what they are a part of."""
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP, container_size=1 << 20)
    for n in range(700):
        target.add_from_reader((n, float(n), "heap", {"n": str(n)}), GAUGE)
    late = Schemas.built_in()["prom-counter"]
    for n in range(100):
        target.add_from_reader((n, float(n), "late", {"n": str(n)}), late)
    stranger = target.add_from_reader((1, 1.0, "x", {}), GAUGE)
    broken = target.add_from_reader((2, 1.0, "y", {}), GAUGE)
    target.add_from_reader((3, 1.0, "z", {}), GAUGE)
    data = bytearray(target.optimal_container_bytes()[0])
    data[stranger + 4 : stranger + 6] = b"\x67\x12"
    data[broken + 22 : broken + 26] = b"\xff\xff\xff\xff"
    path, fixed = tmp_path / "a.container", tmp_path / "b.container"
    path.write_bytes(data)
    (report,) = sawlog.repair(path, fixed, table="gauge,prom-counter").files
    assert report.kinds == {"bad_pointer": 1, "unsupported": 1}
    assert report.rows == 801
    settings: dict[str, Any] = {"table": "gauge,prom-counter", "salvage": "unknown_schemas", "extras": "record"}
    with pytest.warns(DamageWarning):
        before = sawlog.read(path, on_damage="skip", **settings)["_record"].to_pylist()
    assert sawlog.read(fixed, **settings)["_record"].to_pylist() == before
    assert len(before) == 802
    size = sum(map(len, before)) + sum(-len(blob) % 4 for blob in before)
    assert report.account.record + report.account.unsupported == size == len(data) - 16 - report.account.damage
    again = tmp_path / "c.container"
    sawlog.repair(fixed, again, table="gauge,prom-counter")
    assert again.read_bytes() == fixed.read_bytes()


@pytest.mark.parametrize("salvage", [(), "unknown_schemas"])
def test_repair_keeps_records_behind_those_that_only_other_schemas_find_damaged(tmp_path: Path, salvage: Any) -> None:
    """A record that is too long for its schema ends a container where that schema is read, and nowhere else."""
    counter = Schemas.built_in()["prom-counter"]
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP, container_size=1 << 20)
    _, _, short, behind = (
        target.add_from_reader((n, n + 0.5, "m", {}), schema)
        for n, schema in enumerate((GAUGE, counter, counter, GAUGE))
    )
    (content,) = target.optimal_container_bytes()
    cut = content[:short] + struct.pack("<I", 8) + content[short + 4 : short + 12] + content[behind:]
    path, fixed = tmp_path / "a.container", tmp_path / "b.container"
    path.write_bytes(struct.pack("<I", len(cut) - 4) + cut[4:])
    options: dict[str, Any] = {"table": "gauge", "salvage": salvage}
    outcome = check(
        Sample("a", "filodb_record", content, "a.container", options=options, repaired="rows"), path.read_bytes()
    )
    assert (len(outcome.rows), outcome.damages) == (2, [])
    sawlog.repair(path, fixed, **options)
    assert sawlog.read(fixed, table="gauge")["value"].to_pylist() == [0.5, 3.5]
    assert sawlog.read(fixed, table="prom-counter")["count"].to_pylist() == [1.5]


def test_repair_keeps_the_schemas_that_the_reader_took(tmp_path: Path) -> None:
    """A record of another schema is not kept in the place of one that is read: else the copy would have fewer rows."""
    target = RecordBuilder(clock=lambda: golden.TIMESTAMP, container_size=1 << 20)
    target.add_from_reader((0, 1.5, "m1", {"n": "0"}), GAUGE)
    flipped = target.add_from_reader((1, 2.5, "m2", {"n": "1"}), Schemas.built_in()["untyped"])
    target.add_from_reader((2, 3.5, "m3", {"n": "2"}), Schemas.built_in()["prom-counter"])
    data = bytearray(target.optimal_container_bytes()[0])
    pointer_offset = flipped + 4 + 2 + 8 + 8  # the pointer to the metric's name
    data[pointer_offset : pointer_offset + 4] = b"\0\0\0\0"
    path, fixed = tmp_path / "a.container", tmp_path / "b.container"
    path.write_bytes(data)
    with pytest.warns(DamageWarning):
        before = sawlog.read(path, on_damage="skip")
    sawlog.repair(path, fixed)
    after = sawlog.read(fixed)
    assert after.num_rows == 2
    assert after.equals(before.select(after.schema.names))


def test_many_records_of_unknown_schemas_are_told_in_few_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word for each took 20 s for 64 MB."""
    record = struct.pack("<IHxx", 4, 4711)
    data = struct.pack("<IIq", 12 + 8 * 60_000, 1 << 24, 1) + record * 60_000
    path = tmp_path / "a.container"
    path.write_bytes(data)
    calls: list[int] = []
    describe = walk.RecordsWalk.describe

    def counted(self: Any, event: Any) -> Any:
        calls.append(1)
        return describe(self, event)

    monkeypatch.setattr(walk.RecordsWalk, "describe", counted)
    (report,) = sawlog.verify(path, table="gauge").files
    assert report.kinds == {"unsupported": 60_000}
    assert report.account.unsupported == 480_000
    assert len(calls) <= walk.EVENT_ROOM + walk.BLOCK + 1
    calls.clear()
    table = sawlog.read(path, view="damage", table="gauge")
    assert table.num_rows == 60_000
    assert table["offset"].to_pylist() == list(range(16, len(data), 8))
    assert len(calls) < 100


@pytest.mark.parametrize("view", ["rows", "frames"])
@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "findings").glob("*.container")), ids=lambda path: path.stem
)
def test_damage_comes_in_reading_order_however_a_file_is_cut(path: Path, view: str) -> None:
    """That of containers came after that of the records in all containers that were judged with them."""
    dataset = sawlog.open(path, view=view, on_damage="skip")
    orders = []
    for size in (None, 1, 40, 300, 2049):
        outcomes = []
        for fragment in dataset.fragments(size):
            findings = Findings("skip", drained=True)
            assert list(fragment.to_batches(findings)) is not None
            outcomes += [(damage.offset, damage.length, damage.kind) for damage in findings.damages]
        orders.append(outcomes)
    assert orders[0] == sorted(orders[0])
    assert orders[0]
    assert all(order == orders[0] for order in orders)


def test_damage_ends_with_the_file() -> None:
    """A record that the file cuts off within its padding, whose map is broken, too."""
    path = Path(__file__).parent / "cut_behind_a_map.container"
    size = path.stat().st_size
    last = sawlog.read(path, view="damage").to_pylist()[-1]
    assert last["kind"] == "bad_map"
    assert last["offset"] + last["length"] == size
    (report,) = sawlog.verify(path).files
    assert report.account.total == size


@pytest.mark.filterwarnings("ignore::sawlog.format.damage.DamageWarning")
def test_schemas_are_picked_from_containers_whose_length_is_wrong(tmp_path: Path) -> None:
    """The reader takes a length that is no multiple of four for damaged; so does who looks for schemas."""
    path = Path(__file__).parent / "wrong_length.container"
    rows = sawlog.read(path, format="filodb_record", on_damage="skip")
    assert "_schema" not in rows.schema.names
    sawlog.repair(path, tmp_path / "whole.container", format="filodb_record")
    assert sawlog.read(tmp_path / "whole.container", on_damage="skip").equals(rows)


@pytest.mark.parametrize("view", ["rows", "partkeys", "frames"])
def test_the_account_of_part_keys_after_a_damaged_one(view: str) -> None:
    """Every view accounts for all bytes, and `verify` agrees with each read."""
    data = (Path(__file__).parent / "partkeys_account.container").read_bytes()
    repaired = "rows" if view == "rows" else "no"
    outcome = check(Sample("part keys", "filodb_record", data, "a.container", view=view, repaired=repaired))
    assert len(outcome.rows) == (1 if view == "frames" else 8)
    assert outcome.report.account.total == len(data)
