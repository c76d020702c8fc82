"""Schemas of time series: data columns and partition columns, and sets of them by name and by schema ID.

Section 5 of the format. A set comes from FiloDB's own configuration (HOCON), from TOML with the same names, or from
Python; `BUILT_IN` names the eighteen that FiloDB ships.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sawlog.errors import SchemaError
from sawlog.filodb.schemas.record import Column, RecordSchema, hash_columns, parse_columns
from sawlog.guard import Undecodable, call_decoder, import_optional, wrap_decoder

_REMOTE = re.compile(r"^[^#\n]*\binclude\b[^#\n]*\b(?:url|package)\s*\(", re.MULTILINE)


@dataclass(frozen=True)
class DatasetOptions:
    """Options by which FiloDB chooses shards and trims metrics.

    Attributes:
        shard_key_columns: Labels (and the metric) that choose the group of shards.
        metric_column: The column of the metric's name.
        ignore_shard_key_column_suffixes: Suffixes that are cut off shard key values, by column.
        ignore_tags_on_partition_key_hash: Labels that do not spread series over shards.
    """

    shard_key_columns: tuple[str, ...] = ()
    metric_column: str = "__name__"
    ignore_shard_key_column_suffixes: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("__name__", ("_bucket", "_count", "_sum")),
    )
    ignore_tags_on_partition_key_hash: tuple[str, ...] = ("le",)

    @property
    def non_metric_shard_columns(self) -> tuple[str, ...]:
        """The shard key columns without the metric, sorted."""
        return tuple(sorted(name for name in self.shard_key_columns if name != self.metric_column))


@dataclass(frozen=True)
class PartitionSchema:
    """The columns that name a time series.

    Raises:
        SchemaError: For more than one map, or one that is not last.
    """

    columns: tuple[Column, ...]
    predefined_keys: tuple[str, ...] = ()
    options: DatasetOptions = field(default_factory=DatasetOptions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", parse_columns(self.columns))
        if any(column.type == "map" for column in self.columns[:-1]):
            raise SchemaError("partition columns: there can be one map, and it must be the last column")

    @cached_property
    def hash(self) -> int:
        """Hash of the columns, 16 bits."""
        return hash_columns(self.columns)


@dataclass(frozen=True)
class Schema:
    """The columns of a sample, under a name.

    Attributes:
        name: Its name.
        data_columns: Columns of the sample, or their notation; the first is `ts` or `long`, none is a map.
        partition: The columns of the series; without them records have no schema ID and no hash, as in query results.
        value_column: The column that queries take by default.
        downsample_schema: Name of the schema that samples are aggregated to.

    Raises:
        SchemaError: When the columns are not of that shape.
    """

    name: str
    data_columns: tuple[Column, ...]
    partition: PartitionSchema | None
    value_column: str | None = None
    downsample_schema: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_columns", parse_columns(self.data_columns))
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"schema {self.name!r}: two columns are named {name!r}")
        if not names:
            raise SchemaError(f"schema {self.name!r}: no columns")
        if self.partition is not None:
            if not self.data_columns or self.data_columns[0].type not in ("ts", "long"):
                raise SchemaError(f"schema {self.name!r}: the first data column must be of type ts or long")
            for column in self.data_columns:
                if column.type == "map":
                    raise SchemaError(f"schema {self.name!r}: data column {column.name!r} cannot be a map")
        if self.value_column is not None and self.value_column not in [c.name for c in self.data_columns]:
            raise SchemaError(f"schema {self.name!r}: there is no value column {self.value_column!r}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, in the order they have in a record."""
        return (*self.data_columns, *(self.partition.columns if self.partition else ()))

    @cached_property
    def data_hash(self) -> int:
        """Hash of the data columns, 16 bits."""
        return hash_columns(self.data_columns)

    @cached_property
    def schema_id(self) -> int:
        """The ID in the records, 0 to 65535."""
        return ((self.partition.hash if self.partition else 0) + 31 * self.data_hash) & 0xFFFF

    @cached_property
    def ingestion(self) -> RecordSchema:
        """Layout of samples."""
        start = len(self.data_columns) if self.partition else None
        return RecordSchema(self.columns, start, self.partition.predefined_keys if self.partition else ())

    @cached_property
    def part_key(self) -> RecordSchema:
        """Layout of part keys."""
        return self.ingestion.part_key_schema

    def definition(self) -> dict[str, Any]:
        """Return plain data, as `Schemas.parse` takes it."""
        definition: dict[str, Any] = _describe_columns(self.data_columns)
        if self.partition is None:
            definition["partitioned"] = False
        if self.value_column:
            definition["value-column"] = self.value_column
        if self.downsample_schema:
            definition["downsample-schema"] = self.downsample_schema
        return definition


class Schemas(Mapping[str, Schema]):
    """A set of schemas that share their partition columns, by name; `by_id` finds them by schema ID.

    Args:
        schemas: The schemas.
        partition: Their partition columns; taken from the first schema that has any, if not given.

    Raises:
        SchemaError: When two have the same name, or data columns of the same hash.
    """

    def __init__(self, schemas: Iterable[Schema], partition: PartitionSchema | None = None) -> None:
        self._schemas: dict[str, Schema] = {}
        self._by_id: dict[int, Schema] = {}
        for schema in schemas:
            if schema.name in self._schemas:
                raise SchemaError(f"two schemas are named {schema.name!r}")
            self._schemas[schema.name] = schema
            if schema.partition is None:
                continue
            same_id = self._by_id.setdefault(schema.schema_id, schema)
            if same_id is not schema:
                raise SchemaError(
                    f"schemas {same_id.name!r} and {schema.name!r} have the same schema ID, {schema.schema_id}"
                )
        shared_partition = next((s.partition for s in self._schemas.values() if s.partition), None)
        self.partition = partition or shared_partition

    @classmethod
    def parse(cls, text: str, *, source: str = "schema definitions", directory: str | None = None) -> Schemas:
        """Return schemas from FiloDB's configuration: HOCON, or TOML with the same names.

        Understood are `partition-schema` (`columns`, `predefined-keys`, `options`) and `schemas` (`columns`,
        `value-column`, `downsample-schema`), at the top or under `filodb`. Without `partition-schema` the built-in one
        holds. `partitioned = false` in a schema makes its records have no partition columns; `nested` in a schema
        defines, by name, what is in its `br` columns (`columns`, `predefined-keys`, `nested`, and `partition-start`,
        the number of the first partition column of records with a schema ID).

        Raises:
            SchemaError: When it is not understood.
        """
        document = _parse_document(text, source, directory)
        document = document.get("filodb", document)
        partition_value = document.get("partition-schema")
        partition = (
            _parse_partition_schema(partition_value, source)
            if partition_value is not None
            else make_default_partition()
        )
        schemas = document.get("schemas")
        if not isinstance(schemas, dict) or not schemas:
            raise SchemaError(f"{source}: expected schemas.NAME.columns; found: {', '.join(document) or 'nothing'}")
        return cls((_parse_schema(name, schema, partition, source) for name, schema in schemas.items()), partition)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schemas:
        """Return schemas from a file; see `parse`.

        Raises:
            SchemaError: When it is not understood, or not there.
        """
        try:
            text = call_decoder(Path(path).read_text, "utf-8")
            if isinstance(text, Undecodable):
                raise SchemaError(f"schema definitions: {os.fspath(path)}: {text.detail}")
            return cls.parse(text, source=os.fspath(path), directory=os.path.dirname(os.path.abspath(path)))
        except OSError as error:
            raise SchemaError(f"schema definitions: {error}") from error

    @classmethod
    def from_text(cls, text: str) -> Schemas:
        """Return schemas by an option: the path of a file with definitions, or the definitions themselves."""
        return cls.parse(text) if "\n" in text or "{" in text else cls.load(text)

    @classmethod
    def built_in(cls) -> Schemas:
        """Return the schemas that FiloDB ships."""
        return _make_schemas()

    def by_id(self, schema_id: int) -> Schema | None:
        """Return the schema of an ID, or None."""
        return self._by_id.get(schema_id)

    def get_schema(self, name: str) -> Schema:
        """Return the schema of a name.

        Raises:
            SchemaError: When there is none.
        """
        if name not in self._schemas:
            raise SchemaError(f"no schema {name!r}; schemas: {', '.join(self._schemas)}")
        return self._schemas[name]

    def select(self, names: Sequence[str]) -> tuple[Schema, ...]:
        """Return schemas by name; `all` for all that have partition columns.

        Raises:
            SchemaError: When there is none of a name.
        """
        if tuple(names) == ("all",):
            return tuple(self._by_id.values())
        return tuple(self.get_schema(name) for name in names)

    @cached_property
    def digest(self) -> str:
        """The same for equal definitions, and for no others."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self, names: Sequence[str] | None = None) -> str:
        """Return definitions of some schemas, of all by default, as `parse` takes them."""
        schemas = self._schemas.values() if names is None else [self._schemas[name] for name in names]
        definitions: dict[str, Any] = {"schemas": {schema.name: schema.definition() for schema in schemas}}
        if self.partition is not None:
            options = self.partition.options
            definitions["partition-schema"] = {
                "columns": [str(column) for column in self.partition.columns],
                "predefined-keys": list(self.partition.predefined_keys),
                "options": {
                    "shardKeyColumns": list(options.shard_key_columns),
                    "metricColumn": options.metric_column,
                    "ignoreShardKeyColumnSuffixes": {k: list(v) for k, v in options.ignore_shard_key_column_suffixes},
                    "ignoreTagsOnPartitionKeyHash": list(options.ignore_tags_on_partition_key_hash),
                },
            }
        return json.dumps(definitions)

    def __eq__(self, value: object) -> bool:
        """Return whether definitions are equal: of schemas, in their order, and of partition columns."""
        return self.digest == value.digest if isinstance(value, Schemas) else super().__eq__(value)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __getitem__(self, name: str) -> Schema:
        return self._schemas[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def __repr__(self) -> str:
        return f"<Schemas {', '.join(self._schemas)}>"


def _parse_document(text: str, source: str, directory: str | None) -> dict[str, Any]:
    """Return a document as plain data: JSON, as files of ours carry it, TOML, or else HOCON."""
    for load in (json.loads, tomllib.loads):
        document = call_decoder(wrap_decoder(load, RecursionError), text)
        if isinstance(document, dict):
            return document
    return _parse_hocon(text, source=source, directory=directory)


def _parse_hocon(text: str, *, source: str, directory: str | None) -> dict[str, Any]:
    """Parse a configuration file of FiloDB's, with substitutions and includes; `include` finds files only."""
    pyhocon = import_optional("pyhocon", "filodb", f"{source}: definitions in HOCON")
    if _REMOTE.search(text):
        raise SchemaError(f"{source}: include: only files can be included")
    if directory is None and re.search(r"^[^#\n]*\binclude\b\s*[\"(r]", text, re.MULTILINE):
        raise SchemaError(f"{source}: include: give the path of the definitions, so that files are found next to it")
    read = wrap_decoder(pyhocon.ConfigFactory.parse_string, RecursionError, TypeError, AttributeError)
    tree = call_decoder(read, text, basedir=directory or os.devnull)
    if isinstance(tree, Undecodable):
        raise SchemaError(f"{source}: {tree.detail}")
    if not isinstance(tree, pyhocon.ConfigTree):
        raise SchemaError(f"{source}: expected an object, found a list")
    plain: dict[str, Any] = _unwrap_tree(tree)
    return plain


def _unwrap_tree(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {_unquote(key): _unwrap_tree(value) for key, value in tree.items()}
    return [_unwrap_tree(subtree) for subtree in tree] if isinstance(tree, list) else tree


def _unquote(key: str) -> str:
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key


def _parse_partition_schema(value: Any, source: str) -> PartitionSchema:
    columns = _parse_texts(value, "columns", f"{source}: partition-schema")
    keys = _parse_texts(value, "predefined-keys", f"{source}: partition-schema") if "predefined-keys" in value else ()
    options = value.get("options", {})
    defaults = DatasetOptions()
    place = f"{source}: partition-schema.options"
    suffixes = options.get("ignoreShardKeyColumnSuffixes")
    return PartitionSchema(
        parse_columns(columns),
        keys,
        DatasetOptions(
            _parse_texts(options, "shardKeyColumns", place)
            if "shardKeyColumns" in options
            else defaults.shard_key_columns,
            str(options.get("metricColumn", defaults.metric_column)),
            defaults.ignore_shard_key_column_suffixes
            if suffixes is None
            else tuple((column, _parse_texts(suffixes, column, place)) for column in suffixes),
            _parse_texts(options, "ignoreTagsOnPartitionKeyHash", place)
            if "ignoreTagsOnPartitionKeyHash" in options
            else defaults.ignore_tags_on_partition_key_hash,
        ),
    )


def _describe_columns(columns: Sequence[Column]) -> dict[str, Any]:
    """Return columns as plain data, and what is nested in them."""
    definition: dict[str, Any] = {"columns": [str(column) for column in columns]}
    nested = {column.name: column.schema for column in columns if column.schema}
    if nested:
        definition["nested"] = {}
    for name, schema in nested.items():
        nested_definition = definition["nested"][name] = _describe_columns(schema.columns)
        nested_definition["predefined-keys"] = list(schema.predefined_keys)
        if schema.partition_field_start is not None:
            nested_definition["partition-start"] = schema.partition_field_start
    return definition


def _parse_column_texts(value: Any, source: str) -> tuple[Column, ...]:
    """Return columns of a definition, with what is nested in them."""
    columns = parse_columns(_parse_texts(value, "columns", source))
    nested = value.get("nested", {})
    names = [column.name for column in columns if column.type == "br"]
    for name in nested if isinstance(nested, dict) else [nested]:
        if name not in names:
            raise SchemaError(f"{source}: nested.{name}: there is no column of that name and type br")
    return tuple(
        replace(column, schema=_parse_nested(nested[column.name], f"{source}: nested.{column.name}"))
        if column.name in nested
        else column
        for column in columns
    )


def _parse_nested(value: Any, source: str) -> RecordSchema:
    columns = _parse_column_texts(value, source)
    keys = _parse_texts(value, "predefined-keys", source) if "predefined-keys" in value else ()
    start = value.get("partition-start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise SchemaError(f"{source}: partition-start is {start!r}; expected the number of a column")
    return RecordSchema(columns, start, keys)


def _parse_schema(name: str, value: Any, partition: PartitionSchema, source: str) -> Schema:
    return Schema(
        name,
        _parse_column_texts(value, f"{source}: schemas.{name}"),
        partition if value.get("partitioned", True) else None,
        value.get("value-column"),
        value.get("downsample-schema"),
    )


def _parse_texts(value: Any, key: str, source: str) -> tuple[str, ...]:
    texts = value.get(key) if isinstance(value, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SchemaError(f"{source}: {key}: expected a list of strings, found {texts!r}")
    return tuple(texts)


_D0 = ":detectDrops=false"
_D1 = ":detectDrops=true"
_DELTA = ":{detectDrops=false,delta=true}"
_COUNTER_HIST = "h:hist:counter=true"
_DELTA_HIST = "h:hist:{counter=false,delta=true}"
_EXP_HIST = "h:hist:{counter=false,delta=true,exp=true}"
_MIN_MAX_DELTA = f"min:double{_DELTA} max:double{_DELTA}"
_SUM_COUNT = f"sum:double{_D1} count:double{_D1}"
_SUM_LAST = f"sumLast:double{_DELTA}"
_SUM_COUNT_DELTA = f"sum:double{_DELTA} count:double{_DELTA}"
_PREAGG_DELTA = f"{_SUM_COUNT_DELTA} tscount:double{_DELTA}"
_PREAGG_GAUGE = f"count:double{_D0} min:double{_D0} sum:double{_D0} max:double{_D0}"
_PREAGG_LAST = f"countl:double{_D0} minl:double{_D0} suml:double{_D0} maxl:double{_D0}"

# Name: data columns after `timestamp:ts`, value column, downsample schema ("=" for itself).
_BUILT_IN = {
    "gauge": (f"value:double{_D0}", "value", "ds-gauge"),
    "untyped": ("number:double", "number", None),
    "prom-counter": (f"count:double{_D1}", "count", "="),
    "delta-counter": (f"count:double{_DELTA}", "count", "="),
    "prom-histogram": (f"{_SUM_COUNT} {_COUNTER_HIST}", "h", "="),
    "delta-histogram": (f"{_SUM_COUNT_DELTA} {_DELTA_HIST}", "h", "="),
    "otel-cumulative-histogram": (f"{_SUM_COUNT} {_COUNTER_HIST} min:double{_D1} max:double{_D1}", "h", "="),
    "otel-delta-histogram": (f"{_SUM_COUNT_DELTA} {_DELTA_HIST} {_MIN_MAX_DELTA}", "h", "="),
    "delta-histogram-v2": (f"{_SUM_COUNT_DELTA} {_DELTA_HIST} {_MIN_MAX_DELTA} {_SUM_LAST}", "h", "="),
    "otel-exp-delta-histogram": (f"{_SUM_COUNT_DELTA} {_EXP_HIST} {_MIN_MAX_DELTA}", "h", "="),
    "preagg-gauge": (_PREAGG_GAUGE, "sum", "="),
    "preagg-gauge-v2": (f"{_PREAGG_GAUGE} {_PREAGG_LAST}", "sum", "="),
    "preagg-delta-counter": (f"count:double{_DELTA} min:double{_D0} sum:double{_DELTA} max:double{_D0}", "sum", "="),
    "preagg-delta-histogram": (f"{_PREAGG_DELTA} {_DELTA_HIST}", "h", "="),
    "preagg-otel-delta-histogram": (f"{_PREAGG_DELTA} {_DELTA_HIST} {_MIN_MAX_DELTA}", "h", "="),
    "preagg-otel-exp-delta-histogram": (f"{_PREAGG_DELTA} {_EXP_HIST} {_MIN_MAX_DELTA}", "h", "="),
    "preagg-delta-histogram-v2": (f"{_PREAGG_DELTA} {_DELTA_HIST} {_MIN_MAX_DELTA} {_SUM_LAST}", "h", "="),
    "ds-gauge": ("min:double max:double sum:double count:double avg:double", "avg", None),
}
BUILT_IN = tuple(_BUILT_IN)
"""Names of the schemas that FiloDB ships."""

_PREDEFINED_KEYS = ("_ws_", "_ns_", "app", "__name__", "instance", "dc", "le", "job", "exporter", "_pi_")
"""FiloDB's predefined keys, in order."""


@cache
def make_default_partition() -> PartitionSchema:
    """Return FiloDB's partition columns: the metric and a map of labels."""
    options = DatasetOptions(
        shard_key_columns=("_ws_", "_ns_", "_metric_"),
        metric_column="_metric_",
        ignore_shard_key_column_suffixes=(("_metric_", ("_bucket", "_count", "_sum")),),
    )
    return PartitionSchema(parse_columns(("_metric_:string", "tags:map")), _PREDEFINED_KEYS, options)


@cache
def _make_schemas() -> Schemas:
    return Schemas(
        Schema(
            name,
            parse_columns(("timestamp:ts", *columns.split())),
            make_default_partition(),
            value,
            name if downsample == "=" else downsample,
        )
        for name, (columns, value, downsample) in _BUILT_IN.items()
    )
