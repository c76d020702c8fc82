"""Filters over single labels: decided by the bytes of the map, before anything of a record is decoded."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog import OptionError, SchemaError
from sawlog.cli import main
from sawlog.filodb import RecordBuilder, Schemas, assemble
from sawlog.format.damage import DamageWarning

from . import golden
from .support import make_gauges, write_containers

GAUGE = Schemas.built_in()["gauge"]
COUNTER = Schemas.built_in()["prom-counter"]
JOBS = ("api", "apiserver", "node", "", "é")
ROWS = 300


def labels(n: int) -> dict[str, str]:
    tags = {"_ns_": f"App-{n % 3}", "k": "v" * (n % 5), "label": str(n)}
    return tags if n % 7 == 0 else {**tags, "job": JOBS[n % len(JOBS)]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = RecordBuilder(container_size=4096, clock=lambda: golden.TIMESTAMP)
    for n in range(ROWS):
        target.add_from_reader((n, float(n), "heap", labels(n)), COUNTER if n % 11 == 0 else GAUGE)
    place = tmp_path_factory.mktemp("filters") / "a.container"
    place.write_bytes(b"".join(target.optimal_container_bytes()))
    return place


CONDITIONS: list[tuple[str, str, Any, Callable[[str], bool]]] = [
    ("tags['job']", "=", "api", lambda job: job == "api"),
    ('tags["job"]', "!=", "api", lambda job: job != "api"),
    ("tags['job']", "in", ["node", ""], lambda job: job in ("node", "")),
    ("tags['job']", "not in", ["node"], lambda job: job != "node"),
    ("tags['job']", ">", "b", lambda job: job > "b"),
    ("tags['job']", "~", "^api", lambda job: job.startswith("api")),
    ("tags['job']", "~", "^(é|node)$", lambda job: job in ("é", "node")),
    ("tags['job']", "!~", "e", lambda job: re.search("e", job) is None),
]


@pytest.mark.parametrize(
    ("column", "op", "value", "holds"), CONDITIONS, ids=lambda argument: "" if callable(argument) else str(argument)
)
def test_filters_of_labels_choose_rows(
    path: Path, column: str, op: str, value: Any, holds: Callable[[str], bool]
) -> None:
    expected = [n for n in range(ROWS) if "job" in labels(n) and holds(labels(n)["job"])]
    for columns in (None, ["timestamp"], ["tags", "_offset"]):
        dataset = sawlog.open(path, columns=columns, filters=[(column, op, value)])
        table = dataset.to_table()
        assert table.num_rows == len(expected) == dataset.count_rows()
        if columns != ["tags", "_offset"]:
            assert table["timestamp"].cast("int64").to_pylist() == expected
    assert sawlog.read(path, filters=[[(column, op, value)], [("value", "<", 0.0)]]).num_rows == len(expected)


@pytest.mark.parametrize(
    ("op", "value", "holds"),
    [
        ("in", ["node", None], lambda job: job in ("node", None)),
        ("not in", ["node", None], lambda job: job not in ("node", None)),
        ("is null", None, lambda job: job is None),
        ("is not null", None, lambda job: job is not None),
        ("=", None, lambda job: False),
        ("!=", None, lambda job: False),
        (">", None, lambda job: False),
        ("like", "a%r", lambda job: job == "apiserver"),
    ],
)
def test_labels_that_records_do_not_have(path: Path, op: str, value: Any, holds: Callable[[str | None], bool]) -> None:
    table = sawlog.read(path, columns=["timestamp"], filters=[("tags['job']", op, value)])
    expected = [n for n in range(ROWS) if holds(labels(n).get("job"))]
    assert table["timestamp"].cast("int64").to_pylist() == expected


def test_labels_that_no_schema_predefines_or_that_repeat_are_filtered(tmp_path: Path) -> None:
    place = tmp_path / "a.container"
    write_containers(make_gauges([(1, 1.0, "m", [("x", "first"), ("x", "last")])]), place, table="gauge")
    assert sawlog.read(place, filters=[("tags['x']", "=", "last")]).num_rows == 1
    assert sawlog.read(place, filters=[("tags['x']", "=", "first")]).num_rows == 0
    assert sawlog.read(place, filters=[("tags['x']", "=", b"last")], strings="binary").num_rows == 1


def test_only_rows_that_meet_the_filter_are_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    gather = assemble.maps.gather_maps

    def counted(payloads: Any, *arguments: Any) -> Any:
        decoded.append(len(payloads.positions))
        return gather(payloads, *arguments)

    monkeypatch.setattr(assemble.maps, "gather_maps", counted)
    table = sawlog.read(path, filters=[("tags['job']", "=", "api"), ("tags['_ns_']", "~", "-[12]$")])
    assert 0 < table.num_rows < ROWS / 4
    assert sum(decoded) == table.num_rows
    decoded.clear()
    assert sawlog.read(path, filters=[("tags['job']", "=", "nothing")]).num_rows == 0
    assert sum(decoded) == 0


def test_damaged_maps_are_told_whatever_the_filter(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    dice = random.Random(5)
    for _ in range(40):
        offset = dice.randrange(len(data))
        changed = tmp_path / "b.container"
        changed.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << dice.randrange(8)]) + data[offset + 1 :])
        options: dict[str, Any] = {"on_damage": "skip", "table": "gauge,prom-counter", "format": "filodb_record"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            table = sawlog.read(changed, **options)
            result_table = sawlog.read(changed, filters=[("tags['job']", "~", "api")], **options)
        jobs = [dict(row).get("job", "") for row in table["tags"].to_pylist()]
        assert result_table["tags"].to_pylist() == [
            row for row, job in zip(table["tags"].to_pylist(), jobs, strict=True) if "api" in job
        ]


def test_what_is_no_label(path: Path) -> None:
    for column in ("value['job']", "tags[job]", "labels['job']", "tags['job'"):
        with pytest.raises(SchemaError, match="no column"):
            sawlog.read(path, filters=[(column, "=", "api")])
    with pytest.raises(SchemaError, match="string"):
        sawlog.read(path, filters=[("tags['job']", "=", 7)])
    with pytest.raises(OptionError, match="unknown operator '~' for column 'value', double"):
        sawlog.read(path, filters=[("value", "~", "api")])
    with pytest.raises((SchemaError, OptionError)):
        sawlog.read(path, filters=[("tags['job']", "~", "(")])


@pytest.mark.parametrize("text", ["tags['job'] = api", "tags['job'] ~ '^api$'", "tags['job'] in (api)"])
def test_from_the_command_line(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(path), "--filter", text, "--json"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == sum(labels(n).get("job") == "api" for n in range(ROWS))
