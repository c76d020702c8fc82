"""A dataset behaves like one: expressions, scanners, lengths, and what Polars, DuckDB and pandas push into it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.dataset.dataset import export_reader
from sawlog.errors import SchemaError
from sawlog.format.query import And, bind_query, filter_batch, iterate_conditions
from sawlog.leveldb.records.writes import WriteRange
from tests.samples import samples

__all__ = ["samples"]

SHOP = Path(__file__).parents[2] / "examples" / "data" / "shop"
KEY, SEQUENCE, OPERATION = map(pc.field, ("key", "sequence", "operation"))


@pytest.fixture(scope="module")
def all_writes() -> pa.Table:
    return sawlog.read(SHOP, view="writes")


METADATA_KEYS = {
    "leveldb_log": "",
    "leveldb_table": "",
    "deephaven_log": "charset type",
    "deephaven_table": "type",
    "filodb_record": "filodb_record.records filodb_record.schemas type",
    "milvus_binlog": "milvus.dim milvus.field_id milvus.primary_key milvus.type",
}


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", METADATA_KEYS)
def test_keys_of_schema_metadata_do_not_follow_modules(name: str, samples: dict[str, Path]) -> None:
    """They are in Parquet files that users have, so moving code must not change them."""
    schema = sawlog.open(samples[name]).schema
    keys = {key for field in schema for key in field.metadata or ()} | set(schema.metadata or ())
    assert sorted(keys) == [f"sawlog.{key}".encode() for key in METADATA_KEYS[name].split()]


EXPRESSIONS = {
    "equal": (KEY == b"user:000001"),
    "and": (KEY >= b"user:000100") & (SEQUENCE < 1000),
    "or": (KEY == b"user:000001") | (SEQUENCE == 7),
    "isin": OPERATION.isin(["delete"]),
    "is_null": pc.field("value").is_null() & (SEQUENCE > 100),
    "not": ~(OPERATION == "put"),
    "function": pc.starts_with(KEY, b"cart:"),
    "column against column": pc.field("column_family") == SEQUENCE,
    "nothing": SEQUENCE < 0,
    "position": pc.field(0) < 1000,
    "positions": pc.field(0) > pc.field(2),
    "position and name": pc.field(0).isin([1, 2, 3]) & KEY.is_valid(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_choose_what_arrow_chooses(all_writes: pa.Table, name: str) -> None:
    expression = EXPRESSIONS[name]
    expected = all_writes.filter(expression)
    assert sawlog.read(SHOP, view="writes", filter=expression) == expected
    dataset = sawlog.open(SHOP, view="writes")
    assert dataset.to_table(filter=expression) == expected
    assert dataset.count_rows(filter=expression) == expected.num_rows
    table = dataset.to_table(columns=["value"], filter=expression)
    assert table == expected.select(["value"])
    twice = sawlog.open(SHOP, view="writes", filter=expression, filters=[("sequence", "<", 5000)])
    assert twice.to_table(filter=OPERATION == "put") == expected.filter((SEQUENCE < 5000) & (OPERATION == "put"))


def test_lists_of_lists_are_alternatives(all_writes: pa.Table) -> None:
    table = sawlog.read(
        SHOP, view="writes", filters=[[("sequence", "<", 3)], [("sequence", "in", [9, 10]), ("operation", "=", "put")]]
    )
    assert table["sequence"].to_pylist() == [1, 2, 9, 10]
    assert sawlog.read(SHOP, view="writes", filters=[[("sequence", "<", 3)]]).num_rows == 2
    assert sawlog.read(SHOP, view="writes", filters=[]) == all_writes


def test_what_is_no_expression_of_the_columns_is_refused() -> None:
    with pytest.raises(sawlog.SchemaError, match=r"nothing.*columns: sequence"):
        sawlog.open(SHOP, view="writes", filter=pc.field("nothing") == 1)
    with pytest.raises(sawlog.SchemaError, match="columns: sequence"):
        sawlog.open(SHOP, view="writes", filter=SEQUENCE == "text")
    with pytest.raises(sawlog.OptionError, match=r"expected a pyarrow\.compute\.Expression"):
        sawlog.open(SHOP, view="writes", filter=[("sequence", "=", 1)])


def test_columns_are_computed_by_expressions(all_writes: pa.Table) -> None:
    shop = sawlog.open(SHOP, view="writes")
    sequence, key = pc.field("sequence"), pc.field("key")
    columns = {"twice": sequence * 2, "bytes": pc.binary_length(key), "key": key, "one": pc.scalar(1)}
    expected = pa.table(
        {
            "twice": pc.multiply(all_writes["sequence"], 2),
            "bytes": pc.binary_length(all_writes["key"]),
            "key": all_writes["key"],
            "one": pa.array([1] * all_writes.num_rows, pa.int64()),
        }
    )
    for table in (
        shop.to_table(columns=columns),
        sawlog.read(SHOP, view="writes", columns=columns),
        pa.Table.from_batches(shop.to_batches(columns=columns, batch_size=1000)),
        shop.scanner(columns=columns).to_table(),
        pa.table(shop.scanner(columns=columns)),
    ):
        assert table.cast(expected.schema) == expected
    recent = sequence > 22000
    late = shop.to_table(columns={"n": sequence - 22000}, filter=recent)
    assert pc.min(late["n"]).as_py() == 1
    assert late.num_rows == shop.count_rows(recent)
    assert shop.to_table(columns={"one": pc.scalar(1)}).num_rows == all_writes.num_rows
    assert shop.to_table(columns={"n": sequence}, filter=sequence < 0).num_rows == 0
    computed = sawlog.open(SHOP, view="writes", columns=columns)
    assert computed.schema.names == list(columns)
    assert computed.head(3) == computed.to_table().slice(0, 3)
    assert len(computed) == all_writes.num_rows
    assert computed.to_table(columns=["bytes"]) == computed.to_table().select(["bytes"])


def test_only_what_expressions_need_is_decoded() -> None:
    decoded: list[list[str]] = []
    decode = WriteRange.decode

    def noted(self: WriteRange, schema: pa.Schema, findings: object) -> Iterator[pa.RecordBatch]:
        decoded.append(schema.names)
        return decode(self, schema, findings)  # type: ignore[arg-type]

    with patch.object(WriteRange, "decode", noted):
        shop = sawlog.open(SHOP, view="writes", use_threads=False)
        shop.to_table(columns={"twice": pc.field("sequence") * 2}, filter=pc.field("key").is_valid())
        assert {tuple(names) for names in decoded} == {("sequence", "key")}
        decoded.clear()
        shop.to_table(columns={"one": pc.scalar(1)})
        assert {tuple(names) for names in decoded} == {("_offset",)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": "key"}, "expected a name and a pyarrow.compute.Expression"),
        ({1: pc.field("key")}, "expected a name and a pyarrow.compute.Expression"),
        ("key", "expected a list of names, or a dict of names and expressions"),
        (7, "expected a list of names, or a dict of names and expressions"),
        ({"a": pc.field("keys")}, "No match for FieldRef.Name(keys)"),
        ({"a": pc.field("key") * 2}, "no kernel matching input types"),
        ({"a": pc.field("key").cast(pa.int64())}, "Failed to parse string"),
    ],
)
def test_wrong_columns_are_one_clear_line(columns: object, message: str) -> None:
    with pytest.raises(sawlog.SawlogError) as error:
        sawlog.open(SHOP, view="writes").to_table(columns=columns)  # type: ignore[arg-type]
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_filter_of_another_kind_is_one_clear_line() -> None:
    shop = sawlog.open(SHOP, view="writes")
    for work in (shop.to_table, shop.count_rows, shop.scanner):
        with pytest.raises(sawlog.OptionError, match="filter is str: expected"):
            work(filter="key = 1")


def test_scanners_keep_to_batch_sizes(all_writes: pa.Table) -> None:
    scanner = sawlog.open(SHOP, view="writes").scanner(columns=["key"], batch_size=1000)
    assert scanner.projected_schema == scanner.schema == pa.schema([all_writes.schema.field("key")])
    assert max(batch.num_rows for batch in scanner.to_batches()) == 1000
    assert scanner.to_table() == all_writes.select(["key"])
    assert scanner.head(3) == all_writes.select(["key"]).slice(0, 3)
    assert scanner.count_rows() == all_writes.num_rows
    assert pa.table(scanner) == all_writes.select(["key"])
    assert max(b.num_rows for b in sawlog.open(SHOP, view="writes").to_batches(batch_size=7)) == 7


def test_a_dataset_has_a_length_batches_and_a_face(all_writes: pa.Table) -> None:
    dataset = sawlog.open(SHOP, view="writes")
    assert len(dataset) == all_writes.num_rows
    assert pa.Table.from_batches(iter(dataset)) == all_writes
    assert dataset
    assert dataset.to_pandas()["key"][0] == b"user:000000"
    html = dataset._repr_html_()
    assert "<th>sequence</th>" in html
    assert html.count("<tr>") == 12
    assert "user:000000" in html


COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.binary()), ("s", pa.string()), ("x", pa.float64()), ("t", pa.bool_())])
VALUES = {
    "a": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "b": st.one_of(st.none(), st.binary(max_size=3)),
    "s": st.one_of(st.none(), st.text("ab\0é", max_size=3)),
    "x": st.one_of(st.none(), st.floats()),
    "t": st.one_of(st.none(), st.booleans()),
}
COMPARE: list[Callable[[Any, Any], Any]] = [
    pc.equal,
    pc.not_equal,
    pc.less,
    pc.less_equal,
    pc.greater,
    pc.greater_equal,
]


@st.composite
def comparisons(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(VALUES)))
    value = draw(VALUES[name].filter(lambda sample: sample is not None))
    sides = [pc.field(name), pc.scalar(value)]
    return draw(st.sampled_from(COMPARE))(*(sides if draw(st.booleans()) else reversed(sides)))


EXPRESSION = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=5,
)


@given(EXPRESSION, st.lists(st.fixed_dictionaries(VALUES), max_size=8))
def test_what_is_pruned_by_holds_for_every_row_that_is_kept(expression: Any, rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, COLUMNS)
    matches = batch.filter(expression)
    query = bind_query([], expression, COLUMNS, COLUMNS)
    assert str(filter_batch(query, batch).to_pylist()) == str(matches.to_pylist())  # NaN equals nothing
    assert str(filter_batch(And(tuple(iterate_conditions(query))), matches).to_pylist()) == str(matches.to_pylist())


def test_comparisons_that_must_hold_are_found() -> None:
    a, b = pc.field("a"), pc.field("b")

    def list_conditions(expression: Any) -> list[tuple[str, str, Any]]:
        return [
            (condition.column, condition.op, condition.value)
            for condition in iterate_conditions(bind_query([], expression, COLUMNS, COLUMNS))
        ]

    assert list_conditions((a >= 5) & (pc.scalar(9) > a) & (b == b"x")) == [
        ("a", ">=", 5),
        ("a", "<", 9),
        ("b", "=", b"x"),
    ]
    assert list_conditions(a.isin([1, 2]) & (pc.starts_with(b, b"x") | b.is_null())) == [("a", "in", [1, 2])]
    assert list_conditions(b.is_valid() & (pc.field("a") > pc.field("a"))) == [("b", "is not null", None)]
    assert list_conditions((a >= 5) | (b == b"x")) == []
    assert list_conditions(~(a >= 5)) == []


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str] | int]:
    """What was decoded: which columns, and how many rows of them."""
    from sawlog.dataset.dataset import Fragment

    work: dict[str, Any] = {"columns": set(), "rows": 0}
    to_batches = Fragment.to_batches

    def counted(self: Any, findings: Any = None) -> Any:
        work["columns"] |= set(self.projection.decoded.names)
        for batch in to_batches(self, findings):
            work["rows"] += batch.num_rows
            yield batch

    monkeypatch.setattr(Fragment, "to_batches", counted)
    return work


def test_polars_pushes_columns_rows_and_limits_down(
    all_writes: pa.Table, decoded: dict[str, Any], samples: dict[str, Path]
) -> None:
    frame = sawlog.polars.scan(SHOP, view="writes")
    rows = frame.filter(pl.col("sequence") > 22_000).select("key").collect()
    assert rows["key"].to_list() == all_writes.filter(SEQUENCE > 22_000)["key"].to_pylist()
    assert decoded["columns"] == {"key", "sequence"}
    decoded["columns"].clear()
    assert frame.select(pl.len()).collect().item() == all_writes.num_rows
    assert len(decoded["columns"]) <= 1
    assert frame.collect().height == all_writes.num_rows
    decoded["rows"] = 0
    assert sawlog.polars.scan(samples["leveldb_log"], format="leveldb_log").head(5).collect().height == 5
    assert decoded["rows"] < 100_000


DUCKDB = """
import sys, duckdb, sawlog
from sawlog.dataset.dataset import Fragment
seen = {"columns": set(), "rows": 0}
whole = Fragment.to_batches
def counted(self, findings=None):
    seen["columns"] |= set(self.projection.decoded.names)
    for batch in whole(self, findings):
        seen["rows"] += batch.num_rows
        yield batch
Fragment.to_batches = counted
path = sys.argv[1]
database = duckdb.connect()
sawlog.duckdb.register(database, "log", path, view="writes")
print(database.sql("select count(key) from log where sequence > 22000 and operation = 'put'").fetchall())
print(sorted(seen["columns"]), seen["rows"])
print(database.sql("select count(*) from log a join log b using (sequence) where a.key is not null").fetchall())
seen["columns"].clear()
print(sawlog.duckdb.sql(f"select max(sequence) from '{path}#writes'").fetchall(), sorted(seen["columns"]))
print(sawlog.duckdb.sql(f"select count(*) from '{path}' r, '{path}#writes' w where w.sequence = 1").fetchall())
"""


def test_duckdb_pushes_columns_and_rows_down(all_writes: pa.Table) -> None:
    # In a process of its own: DuckDB's module complains on leaving one.
    done = subprocess.run([sys.executable, "-c", DUCKDB, str(SHOP)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]  # the others are of a progress bar
    expected = all_writes.filter((SEQUENCE > 22_000) & (OPERATION == "put"))
    assert lines[0] == f"[({pc.count(expected['key'])},)]"
    assert lines[1] == f"['key', 'operation', 'sequence'] {expected.num_rows}"
    assert lines[2] == f"[({pc.count(all_writes['key'])},)]"
    assert lines[3] == f"[({all_writes.num_rows},)] ['sequence']"
    assert lines[4] == "[(3903,)]"


def test_names_that_the_c_stream_would_cut_are_refused() -> None:
    reader = pa.RecordBatchReader.from_batches(pa.schema([("S\0x", pa.int64())]), [])
    with pytest.raises(SchemaError, match="NUL in its name"):
        export_reader(reader)
