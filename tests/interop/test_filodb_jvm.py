"""FiloDB's containers on a JVM, with the libraries and the arithmetic that FiloDB uses, both ways."""

from __future__ import annotations

import json
import math
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.filodb import Buckets, Histogram, Schemas
from sawlog.filodb.schemas import make_default_partition
from sawlog.filodb.schemas.record import hash_params
from sawlog.filodb.values import find_shards

pytestmark = pytest.mark.interop

ARTIFACTS = ("com.typesafe:config:1.4.3", "org.lz4:lz4-java:1.8.0")
FOLDER = Path(__file__).parent
KEYS = ("_ws_", "_ns_", "job", "instance")
TIMESTAMP = 1_700_000_000_000
ROWS = 1500


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run one of the programs next to this file."""
    place = tmp_path_factory.mktemp("jvm")
    for artifact in ARTIFACTS:
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}"]
        subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    path = ":".join([str(place), *map(str, place.glob("*.jar"))])
    sources = [str(FOLDER / f"{name}.java") for name in ("FiloRecords", "ConfigHashes")]
    subprocess.run(["javac", "-d", str(place), "-cp", path, *sources], check=True)

    def run(program: str, *arguments: object, text: str = "") -> list[str]:
        command = ["java", "-cp", path, program, *map(str, arguments)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


NESTED = {"t": "ts", "v": "double", "s": "string"}
"""The columns of nested records."""


def bits(value: float) -> str:
    return f"{struct.unpack('<Q', struct.pack('<d', value))[0]:x}"


def histogram(dice: random.Random) -> Histogram:
    if dice.random() < 0.05:
        return Histogram(Buckets.empty(), ())
    count = dice.randint(1, 20)
    first, multiplier = dice.choice([1.0, 2.0, 0.5]), dice.choice([2.0, 1.5, 3.0, 1.1])
    buckets = dice.choice(
        [
            Buckets.geometric(first, multiplier, count),
            Buckets.geometric(first, multiplier, count, minus_one=True),
            Buckets.custom([*sorted({dice.uniform(0, 100) for _ in range(count)}), math.inf]),
            Buckets.exponential(dice.randint(-3, 8), dice.randint(-20, 20), count),
        ]
    )
    xor = dice.random() < 0.4 and buckets.kind != "geometric_1"
    values, total = [], 0.0
    for _ in buckets.tops:
        total += dice.uniform(0, 50) if xor else dice.choice([0, 0, 1, 7, 1000, 10**9])
        values.append(total)
    return Histogram(buckets, tuple(values), xor)


def show_histogram(histogram: Histogram) -> str:
    blob = histogram.encode()
    size = int.from_bytes(blob[1:3], "little")
    texts = [",".join(map(bits, numbers)) for numbers in (histogram.values, histogram.buckets.tops)]
    return f"h{blob[0]}|{blob[3 : 3 + size].hex()}|{texts[0]}|{texts[1]}"


def value(kind: str, dice: random.Random) -> Any:
    text = "".join(dice.choice("aé日\U0001f600-_ 0") for _ in range(dice.randrange(12)))
    if kind == "map":
        keys = sorted(
            {dice.choice([*KEYS, "le", "é", "x" * 150, text]) for _ in range(dice.randrange(6))}, key=str.encode
        )
        return [(key, dice.choice(["", "v", text, "w" * 300])) for key in keys]
    return {
        "ts": TIMESTAMP + dice.randrange(10**9),
        "int": dice.randint(-(2**31), 2**31 - 1),
        "long": dice.randint(-(2**63), 2**63 - 1),
        "double": dice.choice([0.0, -0.0, 1.5, math.inf, dice.uniform(-1e300, 1e300)]),
        "string": text,
        "hist": histogram(dice) if kind == "hist" else None,
        "br": {name: value(inner, dice) for name, inner in NESTED.items()} if kind == "br" else None,
    }[kind]


def text_of(kind: str, value: Any) -> str:
    if kind == "map":
        return "m" + ",".join(f"{key.encode().hex()}:{item.encode().hex()}" for key, item in value)
    if kind == "string":
        return "x" + value.encode().hex()
    if kind == "hist":
        return show_histogram(value)
    if kind == "br":
        return "/".join(text_of(inner, value[name]) for name, inner in NESTED.items())
    return bits(value) if kind == "double" else str(value)


def schema_of(dice: random.Random) -> tuple[Schemas, list[str], list[str]]:
    """A schema, and the notation of its data and partition columns."""
    data = [
        "t:ts",
        *(
            f"d{n}:{dice.choice(['int', 'long', 'double', 'string', 'hist', 'br'])}"
            for n in range(dice.randrange(1, 6))
        ),
    ]
    data = [f"{column}:{{counter=false,delta=true}}" if column.endswith("hist") else column for column in data]
    data = [
        f"{column}:detectDrops=true" if column.endswith("double") and dice.random() < 0.5 else column for column in data
    ]
    names = [column.partition(":")[0] for column in data if column.endswith(":br")]
    nested = {name: {"columns": [f"{inner}:{kind}" for inner, kind in NESTED.items()]} for name in names}
    keys = [f"p{n}:{dice.choice(['string', 'long', 'int'])}" for n in range(dice.randrange(3))] + ["tags:map"]
    definition = {
        "partition-schema": {"columns": keys, "predefined-keys": list(KEYS)},
        "schemas": {"s": {"columns": data, "nested": nested}},
    }
    return Schemas.parse(json.dumps(definition)), data, keys


def as_column(kind: str, values: list[Any]) -> pa.Array:
    if kind == "br":
        fields = [as_column(inner, [value[name] for value in values]) for name, inner in NESTED.items()]
        return pa.StructArray.from_arrays(fields, list(NESTED))
    if kind == "map":
        return pa.array(values, pa.map_(pa.string(), pa.string()))
    if kind == "hist":
        items = [
            {
                "tops": list(value.buckets.tops),
                "values": list(value.values),
                "buckets": value.encode()[:1] + value.buckets.definition,
            }
            for value in values
        ]
        return pa.array(items)
    types = {
        "ts": pa.timestamp("ms", "UTC"),
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
    }
    return pa.array(values, types[kind])


def close(line: str, expected_line: str) -> bool:
    """Whether two lines are equal, but for the last bit of tops: `Math.pow` and `Math.exp` may be one off."""
    for a, b in zip(line.split("\t"), expected_line.split("\t"), strict=True):
        if a == b:
            continue
        if not a.startswith("h") or a.split("|")[:3] != b.split("|")[:3]:
            return False
        tops = [[int(top, 16) for top in text.split("|")[3].split(",")] for text in (a, b)]
        if any(abs(x - y) > 2 for x, y in zip(*tops, strict=True)):
            return False
    return True


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("records", ["ingestion", "partkeys"])
def test_records_of_random_schemas_both_ways(java: Any, tmp_path: Path, seed: int, records: str) -> None:
    dice = random.Random(seed)
    schemas, data, keys = schema_of(dice)
    schema = schemas["s"]
    assert java("FiloRecords", "id", ";".join(data), ";".join(keys)) == [str(schema.schema_id)]
    columns = [column.split(":")[:2] for column in (keys if records == "partkeys" else [*data, *keys])]
    rows = [[value(kind, dice) for _, kind in columns] for _ in range(ROWS)]
    lines = ["\t".join(text_of(kind, item) for (_, kind), item in zip(columns, row, strict=True)) for row in rows]
    table = pa.table(
        {name: as_column(kind, [row[n] for row in rows]) for n, (name, kind) in enumerate(columns)},
    )
    start = 0 if records == "partkeys" else len(data)
    layout = (",".join(kind for _, kind in columns), start, schema.schema_id, ",".join(KEYS))
    for is_whole in (False, True):
        ours = tmp_path / f"ours-{is_whole}.container"
        sawlog.write(
            table,
            ours,
            format="filodb_record",
            schema=schemas,
            table="s",
            records=records,
            container_size=16384,
            whole=is_whole,
            container_timestamp=TIMESTAMP,
        )
        lines_read = java("FiloRecords", "read", ours, 16384 if is_whole else 0, *layout)
        assert len(lines_read) == ROWS
        assert all(map(close, lines_read, lines))
    theirs = tmp_path / "theirs.container"
    java("FiloRecords", "write", theirs, 16384, *layout, text="\n".join(lines) + "\n")
    assert theirs.read_bytes() == (tmp_path / "ours-True.container").read_bytes()
    options: dict[str, Any] = {"schema": schemas, "table": "s", "records": records}
    back = sawlog.read(theirs, verify_hashes=True, **options)
    assert not sawlog.verify(theirs, **options).damaged
    for n, (name, kind) in enumerate(columns):
        if kind not in ("hist", "double"):
            expected = as_column(kind, [row[n] for row in rows]).to_pylist()
            assert back[name].to_pylist() == expected, name


def test_shards_are_those_of_the_jvm(java: Any) -> None:
    dice = random.Random(7)
    names = ["_ns_", "_ws_", "le", "job", "é", "日", "\U0001f600", "\uffee", "_bucket"]
    rows = []
    for _ in range(3000):
        metric = dice.choice(["up", "é", "", "_sum"]) + dice.choice(["", "_bucket", "_count", "_sum", "_sum_count"])
        labels = {name: value("string", dice) for name in dice.sample(names, dice.randrange(len(names)))}
        rows.append((metric, labels))
    metrics = pa.array([metric for metric, _ in rows])
    maps = pa.array([list(labels.items()) for _, labels in rows], pa.map_(pa.string(), pa.string()))
    for count, spread in ((1, 0), (64, 3), (256, 8), (1024, 0)):
        lines = [f"{text_of('string', a)[1:]}\t{text_of('map', b.items())[1:]}\t{count}\t{spread}" for a, b in rows]
        lines_read = java("FiloRecords", "shards", text="\n".join(lines) + "\n")
        assert lines_read == list(
            map(str, find_shards(metrics, maps, count, spread, make_default_partition()).to_pylist())
        )


def test_tops_are_those_of_the_jvm(java: Any, tmp_path: Path) -> None:
    """Correctly rounded powers: of two thousand, `Math.pow` gives the same but for about one, which is one bit off."""
    dice = random.Random(1)
    multipliers = [1.1, 1.5, 2.0, *(dice.uniform(1.01, 4) for _ in range(20))]
    shapes = [(dice.choice([1.0, 2.0, 0.001, 5.0]), dice.choice(multipliers)) for _ in range(60)]
    rows = [Histogram(Buckets.geometric(first, by, 80), tuple(range(80))) for first, by in shapes]
    lines = ["\t".join([str(TIMESTAMP), show_histogram(row), "m"]) for row in rows]
    path = tmp_path / "a.container"
    layout = ("ts,hist,map", 2, 1, ",".join(KEYS))
    java("FiloRecords", "write", path, 1 << 18, *layout, text="\n".join(lines) + "\n")
    lines_read = java("FiloRecords", "read", path, 0, *layout)
    pairs = [
        (int(theirs, 16), int(ours, 16))
        for line, mine in zip(lines_read, lines, strict=True)
        for theirs, ours in zip(
            line.split("\t")[1].split("|")[3].split(","), mine.split("\t")[1].split("|")[3].split(","), strict=True
        )
    ]
    assert len(pairs) == 4800
    different = [(a, b) for a, b in pairs if a != b]
    assert len(different) <= 10
    assert all(abs(a - b) == 1 for a, b in different)


def test_parameters_hash_alike(java: Any) -> None:
    cases = json.loads((FOLDER.parent / "filodb_record" / "config_hashes.json").read_text("utf-8"))["cases"]
    hashes = java("ConfigHashes", text="\n".join(case["params"].replace("\n", "\\n") for case in cases) + "\n")
    assert hashes == [str(case["config_hash"]) for case in cases]
    assert hash_params({}) == 70602
