"""The file of a pipeline as pydantic models: keys, types and rules across keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from sawlog.format.recognition import load_formats
from sawlog.pipeline.document import Document, Path
from sawlog.pipeline.mistakes import MistakeError, describe_kind, explain_first_mistake
from sawlog.storage import is_remote, normalize

Mode = Literal["batch", "stream"]
OnDamage = Literal["fail", "skip", "quarantine"]

SAWLOG = "sawlog"
"""The format that is recognised."""
AVAILABLE_NOW = "available-now"
STORAGE_OPTION = "storage_options"
"""The option of sawlog's sources and sinks that holds, as JSON, what fsspec needs."""
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_FILES = ("csv", "json", "orc", "parquet", "text", "avro")
"""Formats of Spark that are nothing without a path or a table."""


def _make_absolute(path: str, info: ValidationInfo) -> str:
    name = normalize(path)
    if is_remote(name) or _URL.match(name):
        return path  # Spark's formats need Hadoop's spelling
    return os.path.normpath(os.path.join((info.context or {}).get("base", ""), name))


def _convert_scalar(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flatten_options(values: Any, *keys: str) -> dict[str, str]:
    """Return all values as Spark takes options: strings, with the names of tables joined by dots."""
    options = {}
    if not isinstance(values, dict):
        raise MistakeError(f"expected a table; found {describe_kind(values)}", *keys)
    for key, value in values.items():
        if isinstance(value, dict):
            options.update({f"{key}.{name}": text for name, text in _flatten_options(value, *keys, key).items()})
        elif isinstance(value, str | int | float):
            options[key] = _convert_scalar(value)
        elif not isinstance(value, list):
            raise MistakeError(f"expected a string or a number; found {describe_kind(value)}", *keys, key)
        elif all(isinstance(item, str | int | float) for item in value):
            options[key] = ",".join(map(_convert_scalar, value))
        else:
            raise MistakeError("expected strings or numbers in the list", *keys, key)
    return options


def _unwrap(values: dict[str, Any]) -> dict[str, Any]:
    _flatten_options(values)  # refuses what is no plain data
    return values


Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Place: TypeAlias = Annotated[Text, AfterValidator(_make_absolute)]
Options: TypeAlias = Annotated[dict[str, str], BeforeValidator(_flatten_options)]


def is_own(format: str) -> bool:
    """Return whether a format is one of sawlog's, third-party ones included."""
    return format == SAWLOG or format in load_formats()


class _Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    def gives(self, key: str) -> bool:
        """Return whether the file has a key, rather than leaving it to its default."""
        return key in self.model_fields_set


class _Named(_Table):
    """A table that the user gives a name."""

    _key: Path = PrivateAttr(())

    @property
    def key(self) -> Path:
        """Return the dotted key of this table in the file."""
        return self._key

    @property
    def name(self) -> str:
        """Return the name of this table: in SQL that of sources and steps, in checkpoints that of sinks."""
        return self._key[-1]

    def with_key(self, *key: str) -> Self:
        """Return the same, at a place of the file."""
        copy = self.model_copy()
        copy._key = key
        return copy


class _Placed(_Named):
    """Base of sources and sinks: a format, a path or table, options.

    Attributes:
        path: A file, a directory or a glob; local ones are absolute.
        table: A table of Spark's catalog, instead.
        own_options: Options for the data source, but for those that have keys of their own.
        storage: What fsspec needs to reach a URL.
    """

    path: Place | None = None
    table: Text | None = None
    own_options: Options = Field(default={}, alias="options", repr=False)
    storage: Annotated[dict[str, Any], AfterValidator(_unwrap)] = Field(default={}, repr=False)
    format: Text

    @property
    def is_sawlog(self) -> bool:
        """Whether sawlog reads or writes it."""
        return is_own(self.format)

    @property
    def options(self) -> dict[str, str]:
        """All options for the data source."""
        return {**self.own_options, **({STORAGE_OPTION: json.dumps(self.storage)} if self.storage else {})}

    def _check_place(self, path: str | None, expected: str) -> None:
        if path is not None and self.table is not None:
            raise MistakeError("give a path or a table, not both", "table")
        if path is None and (self.is_sawlog or (self.format in _FILES and self.table is None)):
            raise MistakeError(f"key 'path' is missing; expected {expected}")
        if self.storage and not self.is_sawlog:
            raise MistakeError("only sawlog's formats have it; Spark's own are set in [spark] or options", "storage")


class Watermark(_Table):
    """Column of event time and the delay that late rows may have, as in `10 minutes`."""

    column: Text
    delay: Text


class Source(_Placed):
    """A named source.

    Attributes:
        format: A format of sawlog, `sawlog` for one that is recognised, or a format of Spark.
        several: Paths, instead of one.
        view: A view of sawlog's format.
        columns: The columns to decode.
        stream: Whether what is added later is read too.
        on_damage: What happens at damage: `fail` stops, `skip` goes on and counts, `quarantine` also writes down what
            was left out.
        ddl: Columns and types, as DDL.
        watermark: How late rows may come.
    """

    format: Text = SAWLOG
    several: list[Place] = Field(default=[], alias="paths")
    view: Text | None = None
    columns: list[Text] = []
    ddl: Text | None = Field(default=None, alias="schema")
    on_damage: OnDamage = "fail"
    stream: bool = False
    watermark: Watermark | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the source."""
        return tuple(self.several) if self.path is None else (self.path,)

    @property
    def options(self) -> dict[str, str]:
        """All options for the data source."""
        source_options = {"columns": ",".join(self.columns) if self.gives("columns") else None, "view": self.view}
        return {**super().options, **{key: value for key, value in source_options.items() if value is not None}}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None and self.several:
            raise MistakeError("give path or paths, not both", "paths")
        self._check_place(next(iter(self.paths), None), "a file, a directory or a glob")
        for key in ("view", "columns", "on_damage"):
            if self.gives(key) and not self.is_sawlog:
                raise MistakeError(f"{self.format} is read by Spark; only sources of sawlog have it", key)
            if key in self.own_options or (key == "on_damage" and "mode" in self.own_options):
                raise MistakeError(f"{key} has a key of its own, outside options", "options")
        return self


class Step(_Named):
    """A named query on sources and earlier steps."""

    sql: Text
    watermark: Watermark | None = None


class _Target(_Placed):
    """Base of sinks and quarantines. Kafka and the like have neither path nor table.

    Attributes:
        format: A format of sawlog, or one of Spark.
        mode: In batches: whether rows are added to what is there.
        partition_by: Columns whose values become directories.
    """

    mode: Literal["append", "overwrite"] = "append"
    partition_by: list[Text] = []

    @property
    def place(self) -> str:
        """Path or table, for people."""
        return self.path or self.table or ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.format == SAWLOG:
            raise MistakeError(
                f"expected the name of a format: {', '.join(load_formats())}, parquet, delta ...", "format"
            )
        self._check_place(self.path, "a directory")
        if self.partition_by and self.is_sawlog:
            raise MistakeError(f"{self.format} has no directories by value", "partition_by")
        return self


class Sink(_Target):
    """A named sink.

    Attributes:
        source: The source or step whose rows it takes.
        output_mode: In streams: as Spark has it.
    """

    source: Text = Field(alias="from")
    output_mode: Literal["append", "update", "complete"] = "append"


class Quarantine(_Target):
    """The sink for descriptions of damage."""

    source: ClassVar[str] = "damage"
    output_mode: ClassVar[str] = "append"


Target: TypeAlias = Sink | Quarantine
"""Whatever rows go to."""


class Metrics(_Table):
    """Address at which Prometheus reads the metrics."""

    address: Text = "127.0.0.1"
    port: int = Field(ge=0, lt=1 << 16, description="the number of a port")


class Head(_Table):
    """The table `pipeline`.

    Attributes:
        name: Of the pipeline; also of the Spark application.
        mode: `batch` runs once over what is there; `stream` goes on with what is added.
        checkpoint: Directory in which streams remember how far they are.
        trigger: Time between micro-batches, as in `10 seconds`; `available-now` ends when all is read that was there at
            the start; None: each begins when the one before has ended.
    """

    name: Text | None = None
    mode: Mode = "batch"
    checkpoint: Place | None = None
    trigger: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in ("checkpoint", "trigger"):
            if self.mode == "batch" and self.gives(key):
                raise MistakeError('only streams have one; say mode = "stream"', key)
        if self.mode == "stream" and self.checkpoint is None:
            raise MistakeError("key 'checkpoint' is missing; streams remember there how far they are")
        return self


class Pipeline(_Table):
    """A pipeline, as its file says.

    Attributes:
        head: What is said of all of it.
        settings: Settings of Spark, by the names that the file gives them.
        sources: By name, in the order of the file.
        steps: By name, in the order of the file, which is the order in which they are defined.
        named_sinks: By name, in the order of the file.
        quarantine: The sink for descriptions of damage.
        metrics: Where metrics are served.
    """

    head: Head = Field(default=Head(), alias="pipeline")
    settings: Options = Field(default={}, alias="spark", repr=False)
    sources: dict[str, Source] = {}
    steps: dict[str, Step] = {}
    named_sinks: dict[str, Sink] = Field(default={}, alias="sinks")
    quarantine: Quarantine | None = None
    metrics: Metrics | None = None
    _document: Document = PrivateAttr()

    @property
    def document(self) -> Document:
        """The file."""
        return self._document

    @property
    def name(self) -> str:
        """Of the pipeline; by default that of its file."""
        return self.head.name or os.path.splitext(os.path.basename(self.document.name))[0]

    @property
    def mode(self) -> Mode:
        """Return the mode of the pipeline, see `Head`."""
        return self.head.mode

    @property
    def checkpoint(self) -> str | None:
        """Return the directory of checkpoints, see `Head`."""
        return self.head.checkpoint

    @property
    def trigger(self) -> str | None:
        """Return the trigger of streams, see `Head`."""
        return self.head.trigger

    @property
    def spark(self) -> dict[str, str]:
        """Settings by Spark's full names; the file may leave `spark.` out."""
        return {name if name.startswith("spark.") else f"spark.{name}": text for name, text in self.settings.items()}

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """All sinks but the quarantine."""
        return tuple(self.named_sinks.values())

    def of(self, document: Document) -> Pipeline:
        """Return the same, with everything that only the whole file says: names, and whether sources are streams."""
        streams = self.mode == "stream"
        sources = {
            name: source.with_key("sources", name).model_copy(
                update={} if source.gives("stream") else {"stream": streams}
            )
            for name, source in self.sources.items()
        }
        placed_tables = {
            "sources": sources,
            "steps": {name: step.with_key("steps", name) for name, step in self.steps.items()},
            "named_sinks": {name: sink.with_key("sinks", name) for name, sink in self.named_sinks.items()},
            "quarantine": self.quarantine and self.quarantine.with_key("quarantine"),
        }
        pipeline = self.model_copy(update=placed_tables)
        pipeline._document = document
        return pipeline

    @model_validator(mode="after")
    def _check(self) -> Self:
        for table in ("sources", "steps", "named_sinks"):
            for name in getattr(self, table):
                if not _IDENTIFIER.fullmatch(name):
                    place = table.removeprefix("named_")
                    raise MistakeError(
                        "expected a name of letters, digits and underscores, as SQL calls it", place, name
                    )
        for name in self.steps:
            if name in self.sources:
                raise MistakeError("a source has this name already", "steps", name)
        for table in ("sources", "sinks"):
            if not getattr(self, table):
                raise MistakeError(f"expected at least one {table[:-1]}, as in [{table}.NAME]", table)
        for name, source in self.sources.items():
            if source.stream and self.mode == "batch":
                raise MistakeError(
                    'the pipeline is a batch; say mode = "stream" in [pipeline]', "sources", name, "stream"
                )
            if source.on_damage == "quarantine" and self.quarantine is None:
                message = "the file has no [quarantine], which says where damage is written"
                raise MistakeError(message, "sources", name, "on_damage")
        for name, sink in self.named_sinks.items():
            self._check_sink(name, sink)
        if self.quarantine is not None and self.mode == "stream" and self.quarantine.gives("mode"):
            raise MistakeError("streams always append", "quarantine", "mode")
        return self

    def _check_sink(self, name: str, sink: Sink) -> None:
        known_inputs = [*self.sources, *self.steps]
        if sink.source not in known_inputs:
            message = f"no source or step is called {sink.source!r}; there are {', '.join(known_inputs)}"
            raise MistakeError(message, "sinks", name, "from")
        if self.mode == "stream" and sink.gives("mode"):
            raise MistakeError("streams have output_mode: append, update or complete", "sinks", name, "mode")
        if self.mode == "batch" and sink.gives("output_mode"):
            raise MistakeError("batches have mode: append or overwrite", "sinks", name, "output_mode")
        if self.mode == "batch" and not sink.gives("mode"):
            raise MistakeError("key 'mode' is missing; expected one of append, overwrite", "sinks", name)


def load(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read and check a pipeline's file; nothing is run and nothing is opened.

    Args:
        path: The file. Local paths in it are relative to its directory.
        environment: What `${env:NAME}` refers to; by default the environment of the process.

    Raises:
        OptionError: For any mistake; names file, line and key.
        OSError: When the file cannot be read.
    """
    document = Document.load(os.fspath(path), environment)
    base = os.path.dirname(os.path.abspath(document.name))
    try:
        return Pipeline.model_validate(document.root, context={"base": base}).of(document)
    except ValidationError as error:
        raise explain_first_mistake(document, Pipeline, error) from None
