"""Datastore and Firestore exports: all types of values, both schemas, the metadata tree, damage."""

from __future__ import annotations

import base64
import json
import math
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.appengine.datastore import entity_bytes_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, FormatError, SchemaError
from sawlog.format.damage import DamageWarning, Findings

from .datastore import (
    Blob,
    ByteString,
    Geo,
    Nested,
    Raw,
    Reference,
    User,
    Vector,
    add,
    entity,
    field,
    save_export,
)
from .fragments import offsets, write
from .support import assert_agreement, render

WHEN = datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)
ALICE = Reference("s~demo", [("teams", 7), ("users", "alice")])
ALICE_JSON = {
    "project": "demo",
    "database": "",
    "namespace": "",
    "kind": "users",
    "id": None,
    "name": "alice",
    "key": "teams/7/users/alice",
}


def write_export(place: Path, *records: bytes) -> Path:
    path = place / "output-0"
    path.write_bytes(write(*records))
    return path


def read_entities(path: Path, **arguments: Any) -> list[dict]:
    return sawlog.read(path, format="leveldb_log", view="entities", **arguments).to_pylist()


def properties(path: Path, **arguments: Any) -> list[dict]:
    return [json.loads(row["properties"]) for row in read_entities(path, **arguments)]


VALUES = [
    (None, None),
    (True, True),
    (False, False),
    (0, 0),
    (-7, -7),
    (2**63 - 1, 2**63 - 1),
    (-(2**63), -(2**63)),
    (1.5, 1.5),
    (0.1, 0.1),
    (5e-324, 5e-324),
    (1.7976931348623157e308, 1.7976931348623157e308),
    (math.nan, "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    ("", ""),
    ('héllo 😀 "\\/\b\f\n\r\t\x00\x1f\x7f', 'héllo 😀 "\\/\b\f\n\r\t\x00\x1f\x7f'),
    (Blob(bytes(range(256))), base64.b64encode(bytes(range(256))).decode()),
    (Blob(b""), ""),
    (ByteString(b"\xff"), "/w=="),
    (ByteString(b"\xff\xfe"), "//4="),
    (Raw(b"\xff no utf-8"), base64.b64encode(b"\xff no utf-8").decode()),
    (WHEN, "2024-01-02T03:04:05.123456Z"),
    (datetime(1960, 2, 29, tzinfo=UTC), "1960-02-29T00:00:00Z"),
    (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    (datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "9999-12-31T23:59:59.999999Z"),
    (Geo(35.5, -139.25), {"latitude": 35.5, "longitude": -139.25}),
    (ALICE, ALICE_JSON),
    (
        Reference("e~other", [("c", 5)], "ns", "db"),
        {"project": "other", "database": "db", "namespace": "ns", "kind": "c", "id": 5, "name": None, "key": "c/5"},
    ),
    (User("a@b.c", "d"), {"email": "a@b.c", "auth_domain": "d", "nickname": None, "user_id": None}),
    ({}, {}),
    ({"a": {"b": {"c": [1, None]}}, "d": []}, {"a": {"b": {"c": [1, None]}}, "d": []}),
    (Nested(ALICE, {"x": 1}), {"x": 1, "__key__": ALICE_JSON}),
    ([], []),
    ([1, "two", None, {"k": "v"}, {}, Vector([3.0])], [1, "two", None, {"k": "v"}, {}, [3.0]]),
    ([[]] and [Geo(1.0, 2.0), WHEN], [{"latitude": 1.0, "longitude": 2.0}, "2024-01-02T03:04:05.123456Z"]),
    (Vector([1.0, 2.5, -0.0]), [1.0, 2.5, -0.0]),
]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(("value", "expected"), VALUES, ids=str)
def test_every_type_as_json(tmp_path: Path, value: Any, expected: Any, indexed: bool) -> None:
    record = entity({"before": 1, "it": value, "after": [True, False]}, indexed=indexed)
    decoded = properties(write_export(tmp_path, record, entity({"it": "plain"})))
    empty_first = {} if value != [] else {"it": []}
    assert decoded == [{**empty_first, "before": 1, "it": expected, "after": [True, False]}, {"it": "plain"}]


def test_a_timestamp_that_no_calendar_has_stays_a_number(tmp_path: Path) -> None:
    message = pb.EntityProto.FromString(entity({}))
    add(message, "late", 2**62, meaning=pb.Property.GD_WHEN)
    assert properties(write_export(tmp_path, message.SerializeToString())) == [{"late": 2**62}]


def test_keys_of_entities_are_read_part_by_part(tmp_path: Path) -> None:
    path = write_export(
        tmp_path,
        entity({}, [("users", "alice")]),
        entity({"r": ALICE}, [("teams", 7), ("users", "älice"), ("posts", 2**62)], "dev~p", "ns", "db"),
        entity({}, [("a/b", "c/d")], "no partition"),
    )
    assert read_entities(path, columns=["project", "database", "namespace", "kind", "id", "name", "key", "path"]) == [
        {
            "project": "demo",
            "database": "",
            "namespace": "",
            "kind": "users",
            "id": None,
            "name": "alice",
            "key": "users/alice",
            "path": [{"kind": "users", "id": None, "name": "alice"}],
        },
        {
            "project": "p",
            "database": "db",
            "namespace": "ns",
            "kind": "posts",
            "id": 2**62,
            "name": None,
            "key": f"teams/7/users/älice/posts/{2**62}",
            "path": [
                {"kind": "teams", "id": 7, "name": None},
                {"kind": "users", "id": None, "name": "älice"},
                {"kind": "posts", "id": 2**62, "name": None},
            ],
        },
        {
            "project": "no partition",
            "database": "",
            "namespace": "",
            "kind": "a/b",
            "id": None,
            "name": "c/d",
            "key": "a/b/c/d",
            "path": [{"kind": "a/b", "id": None, "name": "c/d"}],
        },
    ]


def test_app_engine_reads_the_same(tmp_path: Path) -> None:
    value = {"name": "Ada", "age": 36, "tags": ["a", "b"], "score": 1.25, "ok": True, "none": None}
    record = entity(value, indexed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.appengine.api import datastore
    assert dict(datastore.Entity.FromPb(pb.EntityProto.FromString(record))) == value
    assert properties(write_export(tmp_path, record)) == [value]


NOT_PLAIN = (Raw, Reference, User, Nested)


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=str)
def test_the_kernel_writes_what_the_library_writes(value: Any, expected: Any) -> None:
    record = entity({"a": [1.5, 2.5], "it": value, "b": {"c": value}})
    plain = assert_agreement(entity({}), record, entity({"d": 2.25}))
    special = isinstance(value, NOT_PLAIN) or (isinstance(value, float) and not math.isfinite(value))
    assert plain.plain.tolist() == [1, 0 if special else 1, 1]


texts = st.text(max_size=8)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    texts,
    st.binary(max_size=9).map(Blob),
    st.datetimes(timezones=st.just(UTC)),
    st.builds(Geo, st.floats(-90, 90), st.floats(-180, 180)),
    st.builds(lambda name: Reference("s~p", [("k", name)]), texts.filter(bool)),
    st.lists(st.floats(-9, 9), min_size=1, max_size=3).map(Vector),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner.filter(lambda value: type(value) is not list), max_size=3),
        st.dictionaries(texts.filter(lambda name: name != "__vector__"), inner, max_size=3),
    ),
    max_leaves=8,
)
entities = st.builds(
    entity,
    st.dictionaries(texts, values, max_size=5),
    st.lists(st.tuples(texts, st.one_of(texts, st.integers(1, 2**63 - 1))), min_size=1, max_size=3),
    st.sampled_from(["s~demo", "x", ""]),
    texts,
    texts,
    indexed=st.booleans(),
)


@given(st.lists(entities, max_size=5))
def test_kernel_and_decoder_agree_on_any_entities(records: list[bytes]) -> None:
    assert_agreement(*records)


@given(
    st.lists(entities, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 400),
)
def test_kernel_and_decoder_agree_on_broken_entities(
    records: list[bytes], changes: list[tuple[int, int]], cut: int
) -> None:
    broken = bytearray(records[0])
    for place, byte in changes:
        broken[place % len(broken)] = byte
    broken = broken[: max(0, len(broken) - cut)] if cut < 40 else broken
    assert_agreement(bytes(broken), *records[1:])


def test_columns_of_an_export_are_inferred(tmp_path: Path) -> None:
    root = save_export(
        tmp_path,
        {
            "users": [
                [entity({"name": "a", "n": 1, "mixed": 1, "when": WHEN, "geo": Geo(1.0, 2.0), "empty": []})],
                [
                    entity(
                        {
                            "name": None,
                            "n": 0.5,
                            "mixed": "x",
                            "tags": ["a", None],
                            "map": {"x": 1, "deep": {"y": Blob(b"1")}},
                        }
                    ),
                    entity({"ref": ALICE, "map": {"z": 2.0}, "vector": Vector([1.0]), "big": 2**60, "nothing": None}),
                    entity({"big": 0.5, "map": {"x": 2, "odd": [1, {"a": WHEN}]}}),
                ],
            ]
        },
    )
    table = sawlog.read(root, view="entities", properties="infer")
    when = pa.timestamp("us", "UTC")
    types = {f.name: f.type for f in table.schema}
    assert next(iter(types)) == "__key__"
    assert {name: types[name] for name in ("name", "n", "mixed", "when", "tags", "vector", "big", "nothing")} == {
        "name": pa.string(),
        "n": pa.float64(),
        "mixed": pa.string(),
        "when": when,
        "tags": pa.list_(pa.field("element", pa.string())),
        "vector": pa.list_(pa.field("element", pa.float64())),
        "big": pa.string(),
        "nothing": pa.string(),
    }
    as_json = [f.name for f in table.schema if (f.metadata or {}).get(b"sawlog.type") == b"json"]
    assert as_json == ["mixed", "big", "nothing"]
    first_row, two, three, four = table.to_pylist()
    assert (first_row["name"], first_row["n"], first_row["mixed"], first_row["when"], first_row["empty"]) == (
        "a",
        1.0,
        "1",
        WHEN,
        [],
    )
    assert first_row["geo"] == {"latitude": 1.0, "longitude": 2.0}
    assert (two["mixed"], two["tags"]) == ('"x"', ["a", None])
    assert two["map"] == {"x": 1, "deep": {"y": b"1"}, "z": None, "odd": None}
    assert three["ref"] == ALICE_JSON
    assert (three["big"], four["big"]) == (str(2**60), "0.5")
    assert four["map"]["odd"] == ["1", '{"a":"2024-01-02T03:04:05.123456Z"}']
    assert first_row["__key__"]["key"] == "users/alice"
    assert first_row["__key__"]["path"] == [{"kind": "users", "id": None, "name": "alice"}]
    # The same columns from each part of the export, as Spark reads it.
    dataset = sawlog.open(root, view="entities", properties="infer", columns=["n", "_file"])
    parts = [batch for fragment in dataset.fragments() for batch in fragment.to_batches(Findings())]
    assert [n for part in parts for n in part["n"].to_pylist()] == [1.0, 0.5, None, None]


@given(st.lists(entities, min_size=1, max_size=6))
def test_typed_columns_are_what_the_library_gives(records: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "output-0"
        path.write_bytes(write(*records, *records[:1]))
        table = sawlog.read(path, view="entities", properties="infer")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sawlog.leveldb.datastore.entities.MAX_BYTES", -1)
            expected = sawlog.read(path, view="entities", properties="infer")
    assert table.schema.equals(expected.schema, check_metadata=True)
    assert [str(row) for row in table.to_pylist()] == [str(row) for row in expected.to_pylist()]
    table.validate(full=True)


def test_one_entity_of_each_kind_tells_the_schema() -> None:
    alike = [entity({"a": i, "tags": ["x"] * (i % 5 + 1), "map": {"y": float(i)}}, [("k", i + 1)]) for i in range(99)]
    other_entities = [entity({"a": 2**60}), entity({"a": "x"}), entity({"b": 1}), entity({"a": 1, "map": {"y": True}})]
    plain, _ = render(*alike, *other_entities, *alike, entity({"reference": ALICE}))
    samples: set[int] = set()
    assert plain.select_samples(samples).tolist() == [0, 99, 100, 101, 102, 202]
    assert plain.select_samples(samples).tolist() == [202]


def test_an_export_of_one_kind_has_its_columns(tmp_path: Path) -> None:
    users = [entity({"a": i}, [("users", i + 1)]) for i in range(3)]
    strange_entity = entity({"r": ALICE}, [("users", "odd"), ("posts", 1)])
    root = save_export(tmp_path, {"users": [[*users, strange_entity]], "posts": [[entity({"b": 1}, [("posts", 9)])]]})
    assert [row["key"] for row in read_entities(root, table="posts", columns=["key"])] == ["posts/9"]
    assert [row["key"] for row in read_entities(root, table="users")] == ["users/1", "users/2", "users/3"]
    assert read_entities(root, filters=[("kind", "=", "posts")], columns=["key"]) == [
        {"key": "posts/9"},
        {"key": "users/odd/posts/1"},
    ]
    assert sawlog.open(root, view="entities").count_rows() == 5
    assert sawlog.open(root, view="entities", table="users").count_rows() == 3
    schema = sawlog.open(root, view="entities", properties="infer", table="users").schema
    assert schema.names == ["__key__", "a"]
    (flat := tmp_path / "output-7").write_bytes(write(*users, strange_entity))
    assert [row["key"] for row in read_entities(flat, table="posts")] == ["users/odd/posts/1"]


def test_the_metadata_tree_is_read(tmp_path: Path) -> None:
    root = save_export(tmp_path, {"users": [[entity({"a": 1})], [entity({"a": 2})]], "none": []})
    overall = root / "2024-export.overall_export_metadata"
    kind = root / "default_namespace/kind_users/default_namespace_kind_users.export_metadata"
    for path in (root, overall, kind, root / "default_namespace/kind_users"):
        assert properties(path) == [{"a": 1}, {"a": 2}]
    dataset = sawlog.open(overall, view="entities")
    assert [file.name for file in dataset.files] == ["output-0", "output-1"]
    info = sawlog.open(root, format="leveldb_log", view="entities").info()
    assert {name: info[name] for name in ("export", "started", "entities")} == {
        "export": "2024-export",
        "started": "2023-11-14T22:13:20+00:00",
        "entities": 2,
    }

    (kind.parent / "output-1").unlink()
    for path in (root, overall, kind):
        with pytest.raises(FormatError, match="output-1, which is missing"):
            read_entities(path)
    assert properties(kind.parent / "output-0") == [{"a": 1}]
    overall.write_bytes(write(b"\x34", field(1, b"")))
    with pytest.raises(FormatError, match="version 33; found 34"):
        read_entities(overall)
    kind.write_bytes(b"\xff")
    with pytest.raises(FormatError, match="expected the metadata of an export"):
        read_entities(kind)


@pytest.mark.parametrize(("label", "slash"), [(b"", "/"), (b"__all__", "/"), (b"", "\\")])
def test_exports_of_google_and_of_the_emulator(tmp_path: Path, label: bytes, slash: str) -> None:
    root = save_export(tmp_path, {"users": [[entity({"a": 1})], [entity({"a": 2})]]}, label=label, slash=slash)
    assert properties(root / "2024-export.overall_export_metadata") == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", ["../output-0", "/etc/passwd", "a/../../b", "C:\\output-0", ""])
def test_metadata_that_leads_out_of_the_export(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.export_metadata"
    path.write_bytes(field(1, field(1, b"x")) + field(2, field(2, name.encode())))
    with pytest.raises(FormatError, match="expected the name of a file of the export"):
        read_entities(path)


def test_an_empty_export(tmp_path: Path) -> None:
    root = save_export(tmp_path, {"users": []})
    table = sawlog.read(root, format="leveldb_log", view="entities")
    assert table.num_rows == 0
    assert sawlog.open(root, format="leveldb_log", view="entities", properties="infer").schema.names == ["__key__"]


DEEP = {"x": 1}
for _ in range(150):
    DEEP = {"x": DEEP}
DAMAGED = [
    (b"\xff\xff", "EntityProto"),
    (b"", "with a key"),
    (entity({}, []), "with a key"),
    (entity({"a": "b"})[:-1], "EntityProto"),
    (entity(DEEP), "more than 100 deep"),
    (entity({"x": Reference("s~p", [])}), "reference with a path"),
    # Text that is no UTF-8: in the project, a kind, a name, a namespace, a property's name, a user's address.
    (entity({"x": 1}, app="s~dem?").replace(b"?", b"\xf0"), "EntityProto"),
    (entity({"x": 1}, [("k?", 1)]).replace(b"?", b"\xf0"), "EntityProto"),
    (entity({"x": 1}, [("k", "n?")]).replace(b"?", b"\xf0"), "EntityProto"),
    (entity({"x": 1}, namespace="n?").replace(b"?", b"\xf0"), "EntityProto"),
    (entity({"x?": 1}).replace(b"?", b"\xf0"), "EntityProto"),
    (entity({"x": User("a?", "b")}).replace(b"?", b"\xf0"), "EntityProto"),
]


def test_repair_says_that_the_meaning_is_damaged(tmp_path: Path) -> None:
    """The framing is sound, and kept; the view of entities finds the same damage in the copy."""
    path = write_export(tmp_path, entity({"a": 1}), DAMAGED[0][0], entity({"a": 2}))
    report = sawlog.repair(path, tmp_path / "copy", format="leveldb_log")
    text = "1 record is no valid entity: damaged in meaning, not in framing; the copy has it unchanged"
    assert report.remarks == [sawlog.format.damage.Remark(str(path), text)]
    assert (report.verdict, report.rows, report.skipped) == ("clean", 3, [])
    path = write_export(tmp_path, entity({"a": 1}), DAMAGED[0][0], b"", entity({"a": 2}))
    (remark,) = sawlog.repair(path, tmp_path / "copy", format="leveldb_log").remarks
    assert remark.text.startswith("2 records are no valid entity: ")
    assert remark.text.endswith("the copy has them unchanged")
    assert (
        sawlog.repair(write_export(tmp_path, entity({"a": 1})), tmp_path / "other", format="leveldb_log").remarks == []
    )


@pytest.mark.parametrize(("record", "detail"), DAMAGED, ids=[str(i) for i in range(len(DAMAGED))])
@pytest.mark.parametrize("schema", ["json", "infer"])
def test_a_record_that_is_no_entity_is_damage(tmp_path: Path, record: bytes, detail: str, schema: str) -> None:
    records = [entity({"a": 1}), record, entity({"a": 2, "r": ALICE}), entity({"a": 3})]
    path = write_export(tmp_path, *records)
    with pytest.warns(DamageWarning, match="bad_entity"):
        assert len(read_entities(path, on_damage="skip", properties=schema)) == 3
    with pytest.raises(DamageError, match=detail) as caught:
        read_entities(path, properties=schema)
    start, end = offsets(*records)[1:3]
    assert (caught.value.damage.offset, caught.value.damage.length) == (start, end - start)
    (report,) = sawlog.verify(path, view="entities").files
    assert (report.rows, report.account.damage, report.account.total) == (3, end - start, report.size)


def test_what_precedes_damage_is_delivered(tmp_path: Path) -> None:
    path = write_export(tmp_path, entity({"a": 1}), entity({"r": ALICE}), b"\xff", entity({"a": 2}))
    row_counts: list[int] = []
    with pytest.raises(DamageError):
        row_counts.extend(batch.num_rows for batch in sawlog.open(path, view="entities").to_batches())
    assert sum(row_counts) == 2


@pytest.mark.parametrize("task_bytes", [1, 50_000, None])
def test_fragments_together_have_every_entity_once(tmp_path: Path, task_bytes: int | None) -> None:
    records = [
        entity({"i": i, "text": "x" * (i * 37 % 900), "r": ALICE if i % 5 == 0 else None}, [("k", i + 1)])
        for i in range(400)
    ]
    path = write_export(tmp_path, *records)
    fragments = sawlog.open(path, view="entities", provenance=True).fragments(task_bytes)
    rows = [row for fragment in fragments for batch in fragment.to_batches() for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == list(range(1, 401))
    assert [json.loads(row["properties"])["i"] for row in rows] == list(range(400))
    assert [row["_offset"] for row in rows] == offsets(*records)
    assert {row["_file"] for row in rows} == {str(path)}


def test_typed_columns_take_room_as_the_entities_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entity takes room in every column: properties are few, and a batch has a bounded number of values."""
    monkeypatch.setattr("sawlog.leveldb.datastore.typed.MAX_FIELDS", 50)
    monkeypatch.setattr("sawlog.leveldb.datastore.entities.CELLS", 1000)
    path = write_export(tmp_path, *(entity({f"p{i % 49}": i, "r": ALICE if i % 9 == 0 else None}) for i in range(300)))
    batches = list(sawlog.open(path, view="entities", properties="infer").to_batches())
    assert sum(batch.num_rows for batch in batches) == 300
    assert max(batch.num_rows * batch.num_columns for batch in batches) <= 1000
    for unlike in (
        [entity({f"p{i}": i}) for i in range(51)],
        [entity({"m": {f"p{i}": i}}) for i in range(51)],
        [entity({"m": [{f"p{i}": i} for i in range(51)]})],
        [entity({f"p{i}": i, f"m{i}": {"x": 1, "y": 2}}) for i in range(25)],
    ):
        with pytest.raises(SchemaError, match="at most 50 can be columns"):
            read_entities(write_export(tmp_path, *unlike), properties="infer")
        assert len(read_entities(path)) == len(unlike)
