"""What one installation of sawlog makes of many paths: one JSON line per path on stdout.

Runs with the released version and with the tree alike, so it uses only what both have: the public API, the command
line, and one helper of the suite of laws. Rows become digests; everything else stays readable, so that a difference
explains itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog
from sawlog.cli import main
from sawlog.testing import outcome

simplify_type: Callable[[pa.DataType], pa.DataType] = getattr(outcome, "simplify_type", None) or vars(outcome)["plain"]
"""The types of plain values; releases before 0.3 have it under another name."""

LONGEST = 1000
"""Characters of a text that is kept as it is; a longer one becomes a digest."""


VIEWS = {"entries": "frames", "containers": "frames", "blocks": "frames", "events": "frames"}
"""What older versions call views."""
OPTIONS = {
    "leveldb_log": {"table": "kind", "properties": "schema", "max_item_bytes": "max_record_bytes"},
    "leveldb_table": {"max_item_bytes": "max_block_bytes"},
    "leveldb_database": {"table": "column_family"},
    "deephaven_log": {"max_item_bytes": "max_entry_bytes"},
    "milvus_binlog": {"table": "collection", "max_item_bytes": "max_page_bytes"},
    "filodb_record": {"table": "schema", "schema": "schemas"},
}
"""What they call options."""
SALVAGE = {
    "damaged": {"resync": "true"},
    "stale": {"stale": "include"},
    "orphans": {"orphans": "true"},
    "incomplete": {"incomplete": "emit"},
    "unknown_versions": {"force": "true"},
    "unknown_schemas": {"unknown_schemas": "raw"},
}
"""What they have instead of `salvage`."""


def named(format: Any, subject: dict[str, Any]) -> dict[str, Any]:
    """A subject with the names of views and options that the installed version has."""
    view = next((old for old, new in VIEWS.items() if new == subject["view"] and old in format.views), subject["view"])
    fields_of_subject = {**subject, "view": view}
    for key, kind in (("options", format.read_options), ("write_options", format.write_options)):
        known_options = {field.name for field in fields(kind)}
        renames = {} if known_options & {"max_item_bytes", "salvage", "table"} else OPTIONS.get(subject["format"], {})
        options = {renames.get(name, name): value for name, value in subject.get(key, {}).items()}
        if "salvage" not in known_options:
            for word in options.pop("salvage", "").split(","):
                options |= SALVAGE.get(word, {})
        fields_of_subject[key] = options
    return fields_of_subject


def observe(subject: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Everything that users can see of one path."""
    path, name = subject["path"], subject["format"]
    subject = named(sawlog.formats()[name], subject)
    options = subject["options"]
    observation: dict[str, Any] = {"recognized": seeing(lambda: sawlog.open(path).format.name)}
    for view in sawlog.formats()[name].views:
        for policy in ("fail", "skip"):
            settings = {"format": name, "view": view, "on_damage": policy, **options}
            observation[f"{VIEWS.get(view, view)} {policy} rows"] = seeing(
                lambda settings=settings: observe_rows(sawlog.open(path, **settings))
            )
        observation[f"{VIEWS.get(view, view)} count"] = seeing(
            lambda settings=settings: sawlog.open(path, **settings).count_rows()
        )
        observation[f"{VIEWS.get(view, view)} info"] = seeing(
            lambda settings=settings: sawlog.open(path, **settings).info()
        )
    settings = {"format": name, "view": subject["view"], **options}
    observation["places"] = seeing(lambda: places(path, settings))
    observation["verify"] = seeing(lambda: sawlog.verify(path, **settings).to_dict())
    observation["repair"] = seeing(lambda: repaired(path, name, options, scratch))
    if subject["grows"]:
        observation["follow"] = seeing(lambda: followed(path, settings))
    for verb in ("info", "verify"):
        texts = [text for key, value in options.items() for text in ("-o", f"{key}={value}")]
        observation[f"sawlog {verb}"] = command(
            [verb, path, "--json", "--format", name, "--view", subject["view"], *texts]
        )
    if "table" in subject:
        observation["write"] = seeing(lambda: write_table(subject, scratch))
    return observation


def seeing(look: Callable[[], Any]) -> Any:
    """What a look finds, or raises, and what it warns of."""
    with warnings.catch_warnings(record=True) as warning_records:
        warnings.simplefilter("always")
        try:
            batches = look()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what a user sees
            batches = {"raises": type(error).__name__, "message": str(error)}
    warning_lines = sorted({f"{record.category.__name__}: {record.message}" for record in warning_records})
    return {"found": batches, "warnings": warning_lines}


def observe_rows(dataset: sawlog.Dataset) -> dict[str, Any]:
    """Schema, and rows up to the error that ends them, if one does."""
    schema = f"{dataset.schema}\n{dataset.schema.metadata}"
    batches: list[pa.RecordBatch] = []
    ended = None
    try:
        batches.extend(dataset.to_batches())
    except (sawlog.SawlogError, OSError) as error:
        ended = {"raises": type(error).__name__, "message": str(error)}
    table = pa.Table.from_batches(batches, dataset.schema)
    return {"schema": digest(schema), "count": table.num_rows, "rows": content(table), "ended": ended}


def content(table: pa.Table) -> str:
    """A digest of values that no layout of batches changes, without the wording of damage."""
    digest_state = hashlib.sha256()
    for column in table.select([name for name in table.column_names if name != "detail"]).columns:
        digest_state.update(repr(column.cast(simplify_type(column.type)).to_pylist()).encode())
    return digest_state.hexdigest()[:16]


def places(path: str, settings: dict[str, Any]) -> str:
    """Where every row comes from."""
    table = sawlog.open(path, columns=["_file", "_offset"], on_damage="skip", **settings).to_table()
    return content(table)


def repaired(path: str, name: str, options: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """The report of a repair, and what it wrote."""
    target = scratch / "repaired"
    report = sawlog.repair(path, target, format=name, **options).to_dict()
    return {"report": report, "files": digest_files(target)}


def digest_files(path: Path) -> dict[str, str]:
    """Digests of all files at a path."""
    paths = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file_path.relative_to(path)): digest(file_path.read_bytes()) for file_path in paths}


def followed(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What a first look delivers, and the position that a second one goes on from."""
    watch = sawlog.open(path, on_damage="skip", **settings).watch()
    count = sum(batch.num_rows for batch in watch.look())
    again = sum(batch.num_rows for batch in watch.look())
    return {"rows": count, "again": again, "ends": sorted(end for end in ends(watch.positions) if end)}


def ends(positions: dict[str, Any]) -> Iterator[int]:
    """The committed end of every file, whatever else a position holds."""
    for value in positions.get("files", positions).values():
        yield value if isinstance(value, int) else value[0]


def command(words: list[str]) -> dict[str, Any]:
    """What the command line prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(words)
    data = out.getvalue()
    with contextlib.suppress(ValueError):
        data = json.loads(data)
    return {"exit": int(code), "stdout": data, "stderr": err.getvalue()}


def write_table(subject: dict[str, Any], scratch: Path) -> dict[str, str]:
    """The bytes that a table is written as."""
    target = scratch / "written"
    with pa.ipc.open_file(subject["table"]) as reader:
        sawlog.write(reader.read_all(), target, format=subject["format"], **subject["write_options"])
    return digest_files(target)


def digest(data: bytes | str) -> str:
    """A short digest."""
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:16]


def cleaned(value: Any, places: dict[str, str]) -> Any:
    """An observation as plain JSON, without the names of directories that differ from run to run."""
    text = json.dumps(value, default=str)
    for place, name in places.items():
        text = text.replace(place, name)
    return shortened(json.loads(text))


def shortened(value: Any) -> Any:
    """The same with digests in place of long texts."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    long = isinstance(value, str) and len(value) > LONGEST
    return f"{len(value)} characters, {digest(value)}" if long else value


def run(work: Path) -> None:
    """Observe every path of a work list."""
    with work.open(encoding="utf-8") as lines:
        for line in lines:
            subject = json.loads(line)
            scratch = Path(tempfile.mkdtemp(prefix="sawlog-same-"))
            try:
                observation = observe(subject, scratch)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            places = {subject["directory"]: "", str(scratch): ""}
            answer = {key: cleaned(value, places) for key, value in observation.items()}
            sys.stdout.write(json.dumps({"id": subject["id"], "seen": answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
