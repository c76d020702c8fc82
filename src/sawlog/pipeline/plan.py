"""From what a pipeline's file says to DataFrames, and to a description of them for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from sawlog.errors import OptionError, PipelineError, SawlogError
from sawlog.format.damage import DAMAGE_SCHEMA
from sawlog.format.recognition import load_formats
from sawlog.format.scan import BYTES_COLUMN
from sawlog.pipeline.settings import SAWLOG, STORAGE_OPTION, Pipeline, Source, Target, Watermark
from sawlog.spark.errors import explain, is_transient, list_spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_UNKNOWN = re.compile("Failed to find (the )?data source")
_NO_SOURCES = ("memory",)
"""Sinks of Spark's that it does not look up."""


@dataclass(frozen=True)
class PlanPart:
    """A source, step or sink of a plan."""

    kind: str
    name: str
    facts: dict[str, str]
    schema: dict[str, str]


class Plan:
    """The DataFrames of a pipeline, defined and analysed; nothing is read yet but headers.

    Raises:
        OptionError: For what Spark or sawlog cannot do; names line and key.
        PipelineError: When a store does not answer, or Spark fails in a way that may pass.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.frames: dict[str, DataFrame] = {}
        for source in pipeline.sources.values():
            with self._locate_faults((*source.key, "path" if source.paths else "table" if source.table else "format")):
                self._define(source.name, self._read(source, source.options), source.watermark)
        for step in pipeline.steps.values():
            with self._locate_faults((*step.key, "sql")):
                self._define(step.name, spark.sql(step.sql), step.watermark)
        for sink in pipeline.sinks:
            self._check(sink, self.frames[sink.source].schema)
        self.quarantined = self._read_damage("quarantine")
        """Damage that is written down: `source`, the columns of the view `damage`, and `bytes`, the first of each."""
        self.skipped = self._read_damage("skip")
        """Damage that is only counted."""
        if pipeline.quarantine is not None and self.quarantined is not None:
            self._check(pipeline.quarantine, self.quarantined.schema)

    def list_parts(self) -> list[PlanPart]:
        """Return the plan in the order in which rows flow."""
        plan_parts = []
        for source in self.pipeline.sources.values():
            facts = {
                "format": "recognised" if source.format == SAWLOG else source.format,
                "path": ", ".join(source.paths),
                "table": source.table or "",
                "reads": "what is there, and what is added" if source.stream else "what is there",
                "on damage": source.on_damage if source.is_sawlog else "",
                "options": _render_options(source.options),
                "watermark": _render_watermark(source.watermark),
            }
            plan_parts.append(self._make_part("source", source.name, facts, self.frames[source.name]))
        for step in self.pipeline.steps.values():
            facts = {"sql": " ".join(step.sql.split()), "watermark": _render_watermark(step.watermark)}
            plan_parts.append(self._make_part("step", step.name, facts, self.frames[step.name]))
        plan_parts += [
            self._make_part("sink", sink.name, self._describe_sink(sink), self.frames[sink.source])
            for sink in self.pipeline.sinks
        ]
        if self.pipeline.quarantine is not None and self.quarantined is not None:
            facts = self._describe_sink(self.pipeline.quarantine)
            plan_parts.append(self._make_part("quarantine", "", facts, self.quarantined))
        return plan_parts

    def _describe_sink(self, sink: Target) -> dict[str, str]:
        stream = self.pipeline.mode == "stream"
        return {
            "from": sink.source,
            "format": sink.format,
            "path": sink.path or "",
            "table": sink.table or "",
            "writes": sink.output_mode if stream else sink.mode,
            "partitions": ", ".join(sink.partition_by),
            "options": _render_options(sink.options),
        }

    def _make_part(self, kind: str, name: str, facts: dict[str, str], frame: DataFrame) -> PlanPart:
        columns = {
            field.name: field.dataType.simpleString() + ("" if field.nullable else " not null")
            for field in frame.schema
        }
        return PlanPart(kind, name, {key: value for key, value in facts.items() if value}, columns)

    def _define(self, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)
        self.frames[name] = frame
        _ = frame.schema  # a Spark Connect server finds mistakes only now

    def _read(self, source: Source, options: Mapping[str, str], **extra_options: str) -> DataFrame:
        reader: Any = self.spark.readStream if source.stream else self.spark.read
        reader = reader.format(SAWLOG if source.is_sawlog else source.format).options(**{**options, **extra_options})
        if source.is_sawlog and source.format != SAWLOG:
            reader = reader.option("format", source.format)
        if source.is_sawlog and source.on_damage != "fail":
            reader = reader.option("mode", "DROPMALFORMED")
        if source.ddl is not None and "view" not in extra_options:
            reader = reader.schema(source.ddl)
        if len(source.paths) > 1 and source.is_sawlog:
            reader = reader.option("paths", json.dumps(source.paths))
        load: Callable[..., DataFrame] = reader.load if source.table is None else reader.table
        if source.table is not None:
            return load(source.table)
        if len(source.paths) > 1 and source.is_sawlog:
            return load()
        if len(source.paths) > 1 and source.stream:
            raise OptionError(f"Spark's stream of {source.format} takes one path, which may be a glob")
        if len(source.paths) > 1:
            return load(list(source.paths))
        return load(*source.paths)

    def _read_damage(self, policy: str) -> DataFrame | None:
        from pyspark.sql import functions as sql

        frames = []
        for source in self.pipeline.sources.values():
            if source.on_damage == policy:
                with self._locate_faults((*source.key, "on_damage")):
                    options = {key: value for key, value in source.options.items() if key != "columns"}
                    if policy == "quarantine":
                        options["columns"] = ",".join([*DAMAGE_SCHEMA.names, BYTES_COLUMN])
                    damage = self._read(source, options, view="damage")
                    named = damage.select(sql.lit(source.name).alias("source"), *damage.columns)
                    frames.append(named.withColumnRenamed(BYTES_COLUMN, "bytes"))
        return reduce(lambda first, second: first.unionByName(second), frames) if frames else None

    def _check(self, sink: Target, schema: StructType) -> None:
        """Refuse, before anything runs, unknown formats, and what a format of sawlog cannot represent."""
        with self._locate_faults((*sink.key, "format")):
            if not sink.is_sawlog and sink.format not in _NO_SOURCES:
                self._require_format(sink.format)
        with self._locate_faults(sink.key):
            missing = [name for name in sink.partition_by if name not in schema.names]
            if missing:
                raise OptionError(f"no column {missing[0]!r} to partition by; columns: {', '.join(schema.names)}")
            if sink.is_sawlog:
                from sawlog.spark.writer import make_writer

                lower = {name.lower(): value for name, value in sink.options.items()}
                make_writer({**lower, "path": str(sink.path)}, sink.format, schema, overwrite=sink.mode == "overwrite")

    def _require_format(self, format: str) -> None:
        """Refuse a format that nobody knows. What else Spark says of a format does not matter: nothing is read."""
        try:
            _ = self.spark.read.format(format).load().schema
        except list_spark_errors() as error:
            if _UNKNOWN.search(str(error)):
                raise OptionError(
                    f"neither sawlog nor Spark has a format {format!r}; if it is one, its jar is missing:"
                    f" jars.packages in [spark]. Formats of sawlog: {', '.join(load_formats())}"
                ) from error

    @contextmanager
    def _locate_faults(self, key: tuple[str, ...]) -> Iterator[None]:
        """Name file, line and key of what goes wrong, in the block."""
        expected: tuple[type[Exception], ...] = (SawlogError, *list_spark_errors())
        try:
            yield
        except expected as error:
            document = self.pipeline.document
            message = document.secrets.redact(explain(error))
            if is_transient(error):
                raise PipelineError(f"{document.describe_place(key)}: {message}", transient=True) from error
            raise document.make_error(key, message) from error


def _render_options(options: Any) -> str:
    return ", ".join(name if name == STORAGE_OPTION else f"{name}={value}" for name, value in options.items())


def _render_watermark(watermark: Watermark | None) -> str:
    return "" if watermark is None else f"{watermark.column}, {watermark.delay}"
