"""Schemas: layouts and IDs against FiloDB's own, definitions in HOCON, TOML and Python, and their errors."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from sawlog import OptionError, SchemaError
from sawlog.filodb import Column, PartitionSchema, RecordSchema, Schema, Schemas
from sawlog.filodb.schemas import BUILT_IN
from sawlog.filodb.schemas.record import hash_params, parse_columns

from . import golden

SCHEMAS = golden.facts("schemas")

FILODB_CONF = """
# as in filodb-defaults.conf
filodb {
  partition-schema {
    columns = ["_metric_:string", "tags:map"]
    predefined-keys = ["_ws_", "_ns_", "app", "__name__", "instance", "dc", "le", "job", "exporter", "_pi_"]
    options {
      copyTags = { "_ns_" = [ "_ns", "exporter", "job" ] }
      ignoreShardKeyColumnSuffixes = { "_metric_" = ["_bucket", "_count", "_sum"] }
      ignoreTagsOnPartitionKeyHash = ["le"]
      metricColumn = "_metric_"
      shardKeyColumns = [ "_ws_", "_ns_", "_metric_" ]
    }
  }
  schemas {
    gauge {  // one line
      columns = ["timestamp:ts", "value:double:detectDrops=false"]
      value-column = "value"
      downsamplers = [ "tTime(0)", "dMin(1)" ]
      downsample-schema = "ds-gauge"
    }
    otel-exp-delta-histogram {
      columns = [
        "timestamp:ts"
        "sum:double:{detectDrops=false,delta=true}"
        "count:double:{detectDrops=false,delta=true}"
        "h:hist:{counter=false,delta=true,exp=true}"
        "min:double:{detectDrops=false,delta=true}"
        "max:double:{detectDrops=false,delta=true}"
      ],
      value-column = "h"
    }
  }
}
"""

TOML = """
[partition-schema]
columns = ["series:string", "tags:map"]

[schemas.machine]
columns = ["timestamp:ts", "min:double", "avg:double", "max:double", "count:long"]
value-column = "avg"

[schemas.result]
columns = ["timestamp:ts", "value:double"]
partitioned = false
"""


@pytest.mark.parametrize("expected", SCHEMAS["default_schemas"], ids=lambda expected: expected["name"])
def test_built_in_schemas_are_those_of_filodb(expected: dict) -> None:
    schema = Schemas.built_in()[expected["name"]]
    assert schema.schema_id == expected["schema_id"]
    assert schema.data_hash == expected["data_hash"]
    assert schema.partition is not None
    assert schema.partition.hash == expected["partition_hash_of_schema"]
    assert [str(column) for column in schema.data_columns] == expected["data_columns"]
    layout = schema.ingestion
    assert list(layout.field_offsets) == expected["fields"]["field_offsets"]
    assert layout.hash_offset == expected["fields"]["hash_offset"]
    assert layout.variable_area_start == expected["fields"]["variable_area_start"]
    assert list(layout.predefined_keys) == SCHEMAS["predefined_keys"]
    assert Schemas.built_in().by_id(expected["schema_id"]) is schema


def test_there_are_eighteen() -> None:
    assert set(BUILT_IN) == {schema["name"] for schema in SCHEMAS["default_schemas"]} == set(Schemas.built_in())
    assert len(BUILT_IN) == 18


@pytest.mark.parametrize("expected", SCHEMAS["other_checks"], ids=lambda expected: expected["name"])
def test_ids_are_those_in_filodbs_tests(expected: dict) -> None:
    partition = PartitionSchema(parse_columns(expected["partition_columns"]))
    schema = Schema("x", parse_columns(expected["data_columns"]), partition)
    assert schema.schema_id == expected["expected_in_filodb_tests"]
    assert schema.data_hash == expected["data_hash"]
    assert partition.hash == expected["partition_schema_hash"]


@pytest.mark.parametrize("expected", golden.facts("hashes")["param_config_hashes"], ids=lambda case: case["params"])
def test_parameters_are_hashed_as_by_the_original(expected: dict) -> None:
    assert hash_params(Column.parse(f"x:int:{expected['params']}").params) == expected["config_hash"]


def test_parameters_hash_as_typesafe_config_hashes_them() -> None:
    cases = json.loads((Path(__file__).parent / "config_hashes.json").read_text("utf-8"))["cases"]
    assert len(cases) > 100
    for case in cases:
        text = case["params"].replace(":", "=")
        column = Column.parse(f"x:int:{text}")
        assert hash_params(column.params) == case["config_hash"], text
        assert hash_params(Column.parse(str(column)).params) == case["config_hash"], text


PUBLISHED = """
dataset-prometheus = { include required("source.conf") }
defaults { cycle = 15 minutes }
filodb {
  partition = ""
  metrics { tick = ${defaults.cycle}
    buckets = [ 0.00001, 1, 2.5 ]
    resource-attributes = { "service.name" = "filodb" } }
  cassandra {
    hosts = localhost
    hosts = ${?SAWLOG_TEST_HOST}
  }
  inline-dataset-configs = [ ${dataset-prometheus} ]
  partition-schema {
    columns = ["_metric_:string", "tags:map"]
    predefined-keys = ${keys} ["dc"]
    options {
      copyTags = { "_ns_" = ["_ns", "exporter", "job"] }
      ignoreShardKeyColumnSuffixes = { "_metric_" = ["_bucket", "_count", "_sum"] }
      metricColumn = "_metric_"
      shardKeyColumns = [ "_ws_", "_ns_", "_metric_" ]
    }
  }
  schemas {
    gauge { // the plain one
      columns = ["timestamp:ts", "value:double:detectDrops=false"]
      value-column = "value"
      downsamplers = [ "tTime(0)", "dMin(1)" ]
      downsample-schema = "ds-gauge"
    }
    prom-counter = ${filodb.schemas.gauge} {
      columns = ["timestamp:ts", "count:double:detectDrops=true"], value-column = "count"
    }
  }
}
keys = ["_ws_", "_ns_"]
"""


def test_substitutions_and_includes_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "source.conf").write_text('dataset = "prometheus"\nsourceconfig { bootstrap.servers = ${?SERVERS} }\n')
    (tmp_path / "server.conf").write_text(PUBLISHED)
    schemas = Schemas.load(tmp_path / "server.conf")
    assert list(schemas) == ["gauge", "prom-counter"]
    assert schemas["prom-counter"].value_column == "count"
    assert schemas["prom-counter"].schema_id == Schemas.built_in()["prom-counter"].schema_id
    assert schemas.partition is not None
    assert schemas.partition.predefined_keys == ("_ws_", "_ns_", "dc")
    (tmp_path / "source.conf").unlink()
    with pytest.raises(SchemaError, match=r"source\.conf"):
        Schemas.load(tmp_path / "server.conf")


@pytest.mark.parametrize("name", ["gauge_100", "otel_exp_delta_histogram_10", "no_partition_5", "str_long_12"])
def test_layouts_of_records_are_those_of_the_original(name: str) -> None:
    description = golden.facts(name)["schema"]
    layout = golden.record_schema(description)
    assert list(layout.field_offsets) == description["field_offsets"]
    assert layout.hash_offset == description["hash_offset"]
    assert layout.variable_area_start == description["variable_area_start"]


def test_custom_schema_matches_golden() -> None:
    description = golden.facts("str_long_12")
    assert golden.STR_LONG.schema_id == description["schema"]["schema_id"]
    assert list(golden.STR_LONG.part_key.field_offsets) == description["partkey_schema"]["field_offsets"]


def test_configuration_of_filodb_is_parsed() -> None:
    schemas = Schemas.parse(FILODB_CONF)
    built_in = Schemas.built_in()
    assert list(schemas) == ["gauge", "otel-exp-delta-histogram"]
    for name, schema in schemas.items():
        assert schema.schema_id == built_in[name].schema_id
    assert schemas["gauge"].partition == built_in["gauge"].partition
    assert schemas["gauge"].downsample_schema == "ds-gauge"
    assert schemas["otel-exp-delta-histogram"].value_column == "h"


def test_without_pyhocon_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyhocon", None)
    with pytest.raises(OptionError, match=r"definitions in HOCON: pip install '.*\[filodb\]'"):
        Schemas.parse(FILODB_CONF)
    assert len(Schemas.built_in()) == 18


def test_schemas_are_loaded_from_toml(tmp_path: Path) -> None:
    place = tmp_path / "schemas.toml"
    place.write_text(TOML)
    schemas = Schemas.load(place)
    assert schemas["machine"].schema_id == 11228
    assert schemas["result"].partition is None
    assert not schemas["result"].ingestion.has_partition
    assert list(Schemas.from_text(str(place))) == list(Schemas.from_text(TOML)) == ["machine", "result"]


def test_definitions_come_back() -> None:
    for schemas in (Schemas.built_in(), Schemas.parse(FILODB_CONF), Schemas.parse(TOML)):
        again = Schemas.parse(schemas.to_json())
        assert dict(again) == dict(schemas)
        assert again.partition == schemas.partition
        assert dict(pickle.loads(pickle.dumps(schemas))) == dict(schemas)


def test_parameters_keep_their_order() -> None:
    for text in ("value:double:{detectDrops=false,delta=true}", "h:hist:counter=true", 'x:int:a="b c"', "s:string"):
        assert str(Column.parse(text)) == text


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["timestamp"], "expected name:type"),
        (["timestamp:ts:{a="], "parameters of column 'timestamp'"),
        (["timestamp:ts", "h:hist"], "needs the parameter counter"),
        (["timestamp:ts", "col, umn1:int"], "a name"),
        (["timestamp:ts", "x:bitmap"], "unknown type 'bitmap'"),
        (["value:double"], "first data column must be of type ts or long"),
        (["timestamp:ts", "labels:map"], "cannot be a map"),
        (["timestamp:ts", "timestamp:int"], "two columns are named"),
        ([], "first data column"),
    ],
)
def test_columns_that_a_schema_cannot_have_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema("x", columns, PartitionSchema(parse_columns(("tags:map",))))


def test_schemas_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(SchemaError, match="must be the last column"):
        PartitionSchema(parse_columns(("tags:map", "name:string")))
    with pytest.raises(SchemaError, match="no value column 'y'"):
        Schema("x", parse_columns(("timestamp:ts",)), None, value_column="y")
    gauge = Schemas.built_in()["gauge"]
    twin = Schema("twin", gauge.data_columns, gauge.partition)
    with pytest.raises(SchemaError, match="same schema ID, 2200"):
        Schemas([gauge, twin])
    with pytest.raises(SchemaError, match="no schema 'guage'; schemas: gauge"):
        Schemas([gauge]).get_schema("guage")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schemas { a { columns = [1] } }", "expected a list of strings"),
        ("schemas { a { columns = ${x} } }", "x"),
        ('include "other.conf"', "give the path of the definitions"),
        ('include url("http://localhost/other.conf")', "only files can be included"),
        ("schemas {", "line:1"),
        ("a = b", "expected schemas.NAME.columns; found: a"),
        ("x = " + "[" * 40, "line:1"),
        ("x = " + "[" * 4000, "schema definitions"),
    ],
)
def test_definitions_that_cannot_be_parsed_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schemas.parse(text)


def test_limits_of_record_schemas_are_checked() -> None:
    with pytest.raises(SchemaError, match="65 predefined keys"):
        RecordSchema(["tags:map"], 0, [f"k{i}" for i in range(65)])
    with pytest.raises(SchemaError, match="at most 191 bytes"):
        RecordSchema(["tags:map"], 0, ["k" * 192])
    with pytest.raises(SchemaError, match="partition_field_start=1"):
        RecordSchema(["tags:map"], 1)
    with pytest.raises(SchemaError, match="at least one column"):
        RecordSchema([])


def test_equality_is_by_types_start_and_keys() -> None:
    assert RecordSchema(["a:int"], 0) == RecordSchema(["b:int"], 0)
    assert RecordSchema(["a:int"], 0) != RecordSchema(["a:int"])
    assert RecordSchema(["a:int"], 0) != RecordSchema(["a:long"], 0)
    assert RecordSchema(["a:map"], 0, ["x"]) != RecordSchema(["a:map"], 0, ["y"])
