"""What a pipeline's file says, as frozen dataclasses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sawlog.format import formats
from sawlog.pipeline.document import Document, Path, Table
from sawlog.storage import is_remote, normalize

Mode = Literal["batch", "stream"]
OnDamage = Literal["fail", "skip", "quarantine"]

SAWLOG = "sawlog"
"""The format that is recognised."""
AVAILABLE_NOW = "available-now"
STORAGE = "storage_options"
"""The option of sawlog's sources and sinks that holds, as JSON, what fsspec needs."""
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_FILES = ("csv", "json", "orc", "parquet", "text", "avro")
"""Formats of Spark that are nothing without a path or a table."""
_PLACED = ("format", "path", "table", "options", "storage")


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may come: the column of their time, and the delay, as in `10 minutes`."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    """A named source.

    Attributes:
        name: How SQL calls it.
        format: A format of sawlog, `sawlog` for one that is recognised, or a format of Spark.
        paths: Where it lies; local paths are absolute.
        table: A table of Spark's catalog, instead.
        stream: Whether what is added later is read too.
        on_damage: What happens at damage: `fail` stops, `skip` goes on and counts, `quarantine` also writes down what
            was left out.
        schema: Columns and types, as DDL.
        watermark: How late rows may come.
        options: For the data source.
    """

    name: str
    format: str
    paths: tuple[str, ...]
    table: str | None
    stream: bool
    on_damage: OnDamage
    schema: str | None
    watermark: Watermark | None
    options: Mapping[str, str] = field(repr=False)

    @property
    def own(self) -> bool:
        """Whether sawlog reads it."""
        return is_own(self.format)

    @property
    def key(self) -> Path:
        """Where it stands in the file."""
        return ("sources", self.name)


@dataclass(frozen=True, slots=True)
class Step:
    """A named query on sources and earlier steps."""

    name: str
    sql: str
    watermark: Watermark | None

    @property
    def key(self) -> Path:
        """Where it stands in the file."""
        return ("steps", self.name)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go.

    Attributes:
        name: Of the sink; of the checkpoint of a stream as well.
        source: The source or step whose rows they are.
        format: A format of sawlog, or one of Spark.
        path: A directory, or
        table: a table of Spark's catalog; neither for sinks that have no place, such as Kafka.
        mode: In batches: `append` or `overwrite`.
        output_mode: In streams: `append`, `update` or `complete`.
        partition_by: Columns whose values become directories.
        options: For the data source.
        key: Where it stands in the file.
    """

    name: str
    source: str
    format: str
    path: str | None
    table: str | None
    mode: str
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    key: Path

    @property
    def own(self) -> bool:
        """Whether sawlog writes it."""
        return is_own(self.format)

    @property
    def place(self) -> str:
        """Path or table, for people."""
        return self.path or self.table or ""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where Prometheus finds the metrics."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline, as its file says.

    Attributes:
        name: Of the pipeline; also of the Spark application.
        mode: `batch` runs once over what is there; `stream` goes on with what is added.
        checkpoint: Directory in which streams remember how far they are.
        trigger: Time between micro-batches, as in `10 seconds`; `available-now` ends when all is read that was there at
            the start; None: each begins when the one before has ended.
        spark: Settings of Spark, by their full names.
        sources: By name, in the order of the file.
        steps: By name, in the order of the file, which is the order in which they are defined.
        sinks: In the order of the file.
        quarantine: The sink for descriptions of damage.
        metrics: Where metrics are served.
        document: The file.
    """

    name: str
    mode: Mode
    checkpoint: str | None
    trigger: str | None
    spark: Mapping[str, str] = field(repr=False)
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: tuple[Sink, ...]
    quarantine: Sink | None
    metrics: Metrics | None
    document: Document

    @property
    def guarded(self) -> list[Source]:
        """Sources whose damage is counted, and perhaps written down, instead of stopping the pipeline."""
        return [source for source in self.sources.values() if source.on_damage != "fail"]


def load(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read and check a pipeline's file; nothing is run and nothing is opened.

    Args:
        path: The file. Local paths in it are relative to its directory.
        environment: What `${env:NAME}` refers to; by default the environment of the process.

    Raises:
        OptionError: For any mistake; names file, line and key.
        OSError: When the file cannot be read.
    """
    return _Reader(Document.load(os.fspath(path), environment)).pipeline()


def is_own(format: str) -> bool:
    """Whether a format is one of sawlog's, third-party ones included."""
    return format == SAWLOG or format in formats()


class _Reader:
    """Takes the tables of a document apart."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._base = os.path.dirname(os.path.abspath(document.name))
        self._mode: Mode = "batch"

    def pipeline(self) -> Pipeline:
        document = self._document
        root = document.table()
        root.known(["pipeline", "spark", "sources", "steps", "sinks", "quarantine", "metrics"])
        head = root.table("pipeline")
        head.known(["name", "mode", "checkpoint", "trigger"])
        self._mode = head.choice("mode", ("batch", "stream"), "batch")
        checkpoint = head.text("checkpoint", None)
        trigger = head.text("trigger", None)
        for key in ("checkpoint", "trigger"):
            if self._mode == "batch" and key in head.values:
                raise head.error(key, 'only streams have one; say mode = "stream"')
        if self._mode == "stream" and checkpoint is None:
            raise head.error(None, "key 'checkpoint' is missing; streams remember there how far they are")
        sources = {name: self._source(name, table) for name, table in root.table("sources").tables()}
        steps = {name: self._step(name, table) for name, table in root.table("steps").tables()}
        for name in steps:
            if name in sources:
                raise document.error(("steps", name), "a source has this name already")
        if not sources:
            raise document.error(("sources",), "expected at least one source, as in [sources.NAME]")
        sinks = tuple(self._sink(name, table, (*sources, *steps)) for name, table in root.table("sinks").tables())
        if not sinks:
            raise document.error(("sinks",), "expected at least one sink, as in [sinks.NAME]")
        quarantine = self._quarantine(root.table("quarantine")) if "quarantine" in root.values else None
        for source in sources.values():
            if source.on_damage == "quarantine" and quarantine is None:
                raise document.error(
                    (*source.key, "on_damage"), "the file has no [quarantine], which says where damage is written"
                )
        return Pipeline(
            name=head.text("name", os.path.splitext(os.path.basename(document.name))[0]),
            mode=self._mode,
            checkpoint=None if checkpoint is None else self._absolute(checkpoint),
            trigger=trigger,
            spark=_spark_names(root.table("spark")),
            sources=sources,
            steps=steps,
            sinks=sinks,
            quarantine=quarantine,
            metrics=self._metrics(root.table("metrics")) if "metrics" in root.values else None,
            document=document,
        )

    def _source(self, name: str, table: Table) -> Source:
        self._check_name(name, table)
        table.known([*_PLACED, "paths", "view", "columns", "schema", "on_damage", "stream", "watermark"])
        format = table.text("format", SAWLOG)
        path, paths = table.text("path", None), table.texts("paths")
        if path is not None and paths:
            raise table.error("paths", "give path or paths, not both")
        catalog = table.text("table", None)
        if catalog is not None and (path is not None or paths):
            raise table.error("table", "give a path or a table, not both")
        needed = is_own(format) or (format in _FILES and catalog is None)
        if needed and path is None and not paths:
            raise table.error(None, "key 'path' is missing; expected a file, a directory or a glob")
        options = self._options(table, is_own(format))
        for key in ("view", "columns", "on_damage"):
            if key in table.values and not is_own(format):
                raise table.error(key, f"{format} is read by Spark; only sources of sawlog have it")
            if key in options or (key == "on_damage" and "mode" in options):
                raise table.table("options").error(None, f"{key} has a key of its own, beside options")
        if "columns" in table.values:
            options["columns"] = ",".join(table.texts("columns"))
        if "view" in table.values:
            options["view"] = table.text("view")
        stream = table.truth("stream", self._mode == "stream")
        if stream and self._mode == "batch":
            raise table.error("stream", 'the pipeline is a batch; say mode = "stream" in [pipeline]')
        return Source(
            name=name,
            format=format,
            paths=tuple(self._absolute(one) for one in ([path] if path is not None else paths)),
            table=catalog,
            stream=stream,
            on_damage=table.choice("on_damage", ("fail", "skip", "quarantine"), "fail"),
            schema=table.text("schema", None),
            watermark=self._watermark(table),
            options=options,
        )

    def _step(self, name: str, table: Table) -> Step:
        self._check_name(name, table)
        table.known(["sql", "watermark"])
        return Step(name, table.text("sql"), self._watermark(table))

    def _sink(self, name: str, table: Table, known: tuple[str, ...]) -> Sink:
        self._check_name(name, table)
        table.known([*_PLACED, "from", "mode", "output_mode", "partition_by"])
        source = table.text("from")
        if source not in known:
            raise table.error("from", f"no source or step is called {source!r}; there are {', '.join(known)}")
        if self._mode == "stream" and "mode" in table.values:
            raise table.error("mode", "streams have output_mode: append, update or complete")
        if self._mode == "batch" and "output_mode" in table.values:
            raise table.error("output_mode", "batches have mode: append or overwrite")
        mode = table.choice("mode", ("append", "overwrite")) if self._mode == "batch" else "append"
        return self._placed(name, table, source, mode)

    def _quarantine(self, table: Table) -> Sink:
        table.known([*_PLACED, "mode", "partition_by"])
        mode = table.choice("mode", ("append", "overwrite"), "append")
        if self._mode == "stream" and "mode" in table.values:
            raise table.error("mode", "streams always append")
        return self._placed("quarantine", table, "damage", mode)

    def _placed(self, name: str, table: Table, source: str, mode: str) -> Sink:
        format = table.text("format")
        path, catalog = table.text("path", None), table.text("table", None)
        if path is not None and catalog is not None:
            raise table.error("table", "give a path or a table, not both")
        if format == SAWLOG:
            raise table.error("format", f"expected the name of a format: {', '.join(formats())}, parquet, delta ...")
        if path is None and (is_own(format) or (format in _FILES and catalog is None)):
            raise table.error(None, "key 'path' is missing; expected a directory")
        partition_by = table.texts("partition_by")
        if partition_by and is_own(format):
            raise table.error("partition_by", f"{format} has no directories by value")
        return Sink(
            name=name,
            source=source,
            format=format,
            path=None if path is None else self._absolute(path),
            table=catalog,
            mode=mode,
            output_mode=table.choice("output_mode", ("append", "update", "complete"), "append"),
            partition_by=partition_by,
            options=self._options(table, is_own(format)),
            key=table.path,
        )

    def _options(self, table: Table, own: bool) -> dict[str, str]:
        options = table.table("options").options()
        storage = table.table("storage")
        if storage.values and not own:
            raise table.error("storage", "only sawlog's formats have it; Spark's own are told in [spark] or options")
        if storage.values:
            storage.options()  # refuses what is no plain data
            options[STORAGE] = json.dumps(storage.values)
        return options

    def _watermark(self, table: Table) -> Watermark | None:
        if "watermark" not in table.values:
            return None
        given = table.table("watermark")
        given.known(["column", "delay"])
        return Watermark(given.text("column"), given.text("delay"))

    def _metrics(self, table: Table) -> Metrics:
        table.known(["address", "port"])
        return Metrics(table.text("address", "127.0.0.1"), table.port("port"))

    def _check_name(self, name: str, table: Table) -> None:
        if not _IDENTIFIER.fullmatch(name):
            raise table.error(None, "expected a name of letters, digits and underscores, as SQL calls it")

    def _absolute(self, path: str) -> str:
        name = normalize(path)
        if is_remote(name) or _URL.match(name):
            return path  # Spark's formats need Hadoop's spelling
        return os.path.normpath(os.path.join(self._base, name))


def _spark_names(table: Table) -> dict[str, str]:
    """Settings by Spark's full names; the table may leave `spark.` out."""
    return {name if name.startswith("spark.") else f"spark.{name}": value for name, value in table.options().items()}
