"""What a fresh process imports: nothing that a path does not call for, and never pandas, Numba or a compiler.

Verbs run without a network, and with a source tree that cannot be written to.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.format.recognition import load_formats
from sawlog.kernels import native
from tests.sealed import ROOT, sealed

SHOP = Path(__file__).parents[1] / "examples" / "data" / "shop"
PEBBLE = Path(__file__).parent / "golden" / "leveldb_database" / "pebble-1.1.5-ranges-alone" / "db"
GOLDEN = Path(__file__).parent / "golden" / "milvus" / "synthetic"
ROWS = 20

SCRIPT = """
import importlib.abc, json, os, sys, tempfile, traceback, warnings

warnings.simplefilter("ignore")
asked = []

class Watched(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "numba", "llvmlite", "pyspark", "duckdb", "pydantic"):
            last = [f"{f.filename}:{f.lineno}: {f.line}" for f in traceback.extract_stack() if "sawlog" in f.filename]
            asked.append(f"{name}: {last[-1]}")
        return None

sys.meta_path.insert(0, Watched())
"""
VERBS = """
from sawlog.cli import main
path, name, views, options = sys.argv[1], sys.argv[2], sys.argv[3].split(","), json.loads(sys.argv[4])
real, sys.stdout = sys.stdout, open(os.devnull, "w")
verbs = [["info"], ["cat", "--limit", "5"], ["cat", "--sample", "3"], ["verify"], ["diff", path]]
codes = [main([*verb, path]) for verb in verbs]
import pyarrow as pa
import pyarrow.compute as pc
import sawlog
with tempfile.TemporaryDirectory() as place:
    main(["repair", path, place + "/repaired"])  # databases have none
    main(["map", path, "--output", place + "/map.html"])
    main(["validate", path])  # for tables of Deephaven
    main(["ls", path])
    main(["index", path, "--output", place + "/an.index"])
    main(["vacuum", os.path.dirname(path), "--dry-run"])
    if options is not None:
        sawlog.write(sawlog.open(path, format=name), place + "/" + os.path.basename(path), format=name, **options)
    table = sawlog.read(path, format=name)
    if name == "deephaven_table":
        days = table.set_column(1, "s", table["s"].cast("string"))
        sawlog.write(days, place + "/T/0", format=name, partition_by="s")
    if name == "milvus_binlog":
        root = pa.table({"id": table.column(0), "_partition": table.column(0)})
        spread = {"primary_key": "id", "timestamp": 1 << 40, "partition_by": "_partition"}
        sawlog.write(root, place + "/root", format=name, **spread)
    if name == "leveldb_log":
        sawlog.write(sawlog.read(path, view="writes"), place + "/000004.log", format=name, view="writes")
    for to in ("a.parquet", "a.arrow", "a.jsonl", "a.csv"):
        main(["convert", path, place + "/" + to, "--provenance"])
for view in views:
    for policy in ("fail", "skip"):
        table = sawlog.read(path, format=name, view=view, on_damage=policy, provenance=True)
    same = pc.field("_file") == pc.field("_file")
    made = {"same": same, "offset": pc.field("_offset") + pc.field("_offset")}
    sawlog.read(path, format=name, view=view, columns=made, provenance=True, filter=same, on_damage="skip")
    for column in table.schema.names if table.num_rows else ():
        if str(table.schema.field(column).type) in ("int64", "string", "binary"):  # Arrow asks pandas for times
            value = table.column(column)[0].as_py()
            either = [[(column, "<", value)], [(column, "==", value)]]
            for filters in ([(column, "==", value)], [(column, ">=", value)], [(column, "in", [value])], either):
                sawlog.read(path, format=name, view=view, filters=filters, on_damage="skip")
print(json.dumps([codes, asked]), file=real)
"""


@cache
def small(root: Path) -> dict[str, tuple[Path, list[str], dict[str, object] | None]]:
    """A small path of every format, the views that it can be read by, and options for writing rows if it can be."""
    numbers = np.arange(ROWS)
    texts = pa.array([f"{n:04}" for n in range(ROWS)])
    labels = pa.array([[("_ws_", "demo"), ("_ns_", "app")]] * ROWS, pa.map_(pa.string(), pa.string()))
    times = pa.array(numbers).cast(pa.timestamp("ms", "UTC"))
    gauges = {"timestamp": times, "value": numbers * 0.5, "_metric_": pa.array(["heap"] * ROWS), "tags": labels}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(ROWS * 4, np.float32)), 4)
    shared_columns = {"i": numbers, "s": texts}
    tables: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
        "deephaven_log": ("a.bin", shared_columns, {}),
        "deephaven_table": ("table", shared_columns, {}),
        "filodb_record": ("a.container", gauges, {"table": "gauge", "container_timestamp": 0}),
        "leveldb_table": ("a.ldb", {"key": texts.cast(pa.binary()), "value": texts.cast(pa.binary())}, {}),
        "milvus_binlog": ("insert_log", {"pk": numbers, "vec": vectors}, {"timestamp": 1 << 40}),
    }
    samples_by_name: dict[str, tuple[Path, list[str], dict[str, object] | None]] = {
        "leveldb_log": (SHOP / "000003.log", ["rows", "writes", "damage"], {}),
        "leveldb_database": (PEBBLE, ["rows", "all", "damage", "indexed_db"], None),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (file, columns, options) in tables.items():
            sawlog.write(pa.table(columns), root / file, format=name, **options)
            samples_by_name[name] = (root / file, list(load_formats()[name].views), options)
    return samples_by_name


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", sorted(load_formats().keys() - {"boxes", "lines", "tfrecord"}))
def test_every_verb_and_view_does_without_pandas_and_compilers(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, views, options = small(tmp_path_factory.getbasetemp())[name]
    done = subprocess.run(
        [*sealed(), sys.executable, "-c", SCRIPT + VERBS, str(path), name, ",".join(views), json.dumps(options)],
        env={**os.environ, "SAWLOG_KERNELS": "library" if native.find_misfit() is None else "python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes, modules_asked = json.loads(done.stdout)
    assert (codes, list(dict.fromkeys(modules_asked))) == ([0, 0, 0, 0, 0], [])


@pytest.mark.skipif(not sealed(), reason="no mounts without being root here")
def test_that_they_have_neither_network_nor_a_tree_to_write_to() -> None:
    script = f"""
import os, socket
places = {[str(ROOT), str(ROOT / "src/sawlog/_native"), native.find_folder()]!r}
print([os.access(one, os.W_OK) for one in places], socket.socket().connect_ex(("127.0.0.1", 9)))
"""
    done = subprocess.run([*sealed(), sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"[False, False, False] {errno.ENETUNREACH}\n", done.stderr


LIGHT = {"applications", "columns", "datastore", "format", "head", "judge", "layout", "names", "paths", "types"}
"""Modules by which formats know whether names and first bytes are theirs."""
PARTS = {"leveldb_database": {"leveldb_log", "leveldb_table"}, "leveldb_table": {"leveldb_log"}}
"""Formats whose modules others are made of."""
PACKAGES = {
    name: type(format_object).__module__.rpartition(".")[0].split(".") for name, format_object in load_formats().items()
}


def is_of_others(module: list[str], name: str) -> bool:
    """Whether a module belongs to another system, or to a format of the same system that this one is not made of."""
    if module[1] != PACKAGES[name][1]:
        return module[:2] in [package[:2] for package in PACKAGES.values()]
    return any(
        module[:3] == PACKAGES[other_name][:3] for other_name in load_formats().keys() - {name} - PARTS.get(name, set())
    )


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", sorted(load_formats().keys() - {"boxes", "lines", "tfrecord"}))
def test_a_path_imports_its_own_format_alone(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = SHOP if name == "leveldb_database" else small(tmp_path_factory.getbasetemp())[name][0]
    script = f"""
import json, sys
from sawlog.cli import main
codes, of_arrow = [], []
for verb in (["info"], ["cat", "--limit", "5"], ["verify"]):
    codes.append(main([*verb, {str(path)!r}]))
    of_arrow.append([one for one in ("pyarrow.compute", "pyarrow.parquet") if one in sys.modules])
own = [one for one in sys.modules if one.startswith("sawlog.") and not hasattr(sys.modules[one], "__path__")]
print(json.dumps([codes, of_arrow, own]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes, of_arrow, own_modules = json.loads(done.stdout.splitlines()[-1])
    modules = [module.split(".") for module in own_modules]
    assert codes == [0, 0, 0]
    assert [*PACKAGES[name], "format"] in modules
    assert [".".join(module) for module in modules if is_of_others(module, name) and LIGHT.isdisjoint(module)] == []
    assert ["sawlog", "dataset", "watch"] not in modules
    merged = ["pyarrow.compute"] if name == "leveldb_database" else []
    assert of_arrow == [[], merged, merged]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="OpenBLAS starts no thread on a single core")
def test_the_program_starts_no_threads_for_products_of_matrices() -> None:
    """They are counted where NumPy has just been loaded: what is read starts threads of its own, sooner or later."""
    script = """
import atexit, os, sys
from sawlog.__main__ import program
sys.argv = ["sawlog", "--version"]

def count():
    import numpy
    print(len(os.listdir("/proc/self/task")))

atexit.register(count)
program()
"""

    def threads(**variables: str) -> int:
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | variables
        command = [sys.executable, "-c", script]
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout.split()[-1])

    assert threads() == threads(OPENBLAS_NUM_THREADS="1") < threads(OPENBLAS_NUM_THREADS="2")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], [], ["--show-completion", "bash"]])
def test_what_reads_nothing_does_not_import_arrow(arguments: list[str]) -> None:
    script = f"""
import atexit, sys
from sawlog.cli import main
atexit.register(lambda: print([one for one in ("pyarrow", "numpy", "rich") if one in sys.modules]))
main({arguments!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("word", ["--view", "-o"])
def test_completion_imports_neither_pydantic_nor_rich(word: str) -> None:
    line = f"sawlog cat {SHOP} {word} "
    script = """
import atexit, sys
from sawlog.cli import main
atexit.register(lambda: print([one for one in ("pydantic", "rich") if one in sys.modules]))
main([])
"""
    completion = {"_SAWLOG_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = {**os.environ, **completion, "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    *completed, imported = done.stdout.splitlines()
    assert (imported, len(completed) > 5) == ("[]", True), done.stdout + done.stderr


def test_the_latest_state_of_each_key_does_without_pandas(tmp_path: Path) -> None:
    operations = ["put", "put", "delete_range"]
    keys, values = pa.array([b"a", b"b", b"b"]), pa.array([b"1", b"2", b"c"])
    table = pa.table({"operation": operations, "key": keys, "value": values, "column_family": [0, 1, 1]})
    sawlog.write(table, tmp_path / "000001.log", format="leveldb_log", view="writes")
    script = (
        SCRIPT
        + f"""
import sawlog
table = sawlog.read({str(tmp_path)!r}, format="leveldb_log", view="writes", latest=True, provenance=True)
print(json.dumps([table["operation"].to_pylist(), asked]))
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["put", "delete"], []]


MILVUS_READS: dict[str, dict[str, object]] = {
    "deletes": {"view": "deletes"},
    "history": {"view": "history"},
    "dedupe": {"dedupe": True},
    "as_of": {"as_of": (1 << 40) + 7},
    "dynamic fields": {"dynamic_fields": ["*"]},
}
"""What is read of a collection with deletes and a dynamic field besides its views."""


def test_deletes_and_dynamic_fields_of_milvus_do_without_pandas(tmp_path: Path) -> None:
    dynamic = pa.field("$meta", pa.string(), metadata={"sawlog.milvus.type": "JSON", "sawlog.milvus.dynamic": "true"})
    schema = pa.schema([pa.field("pk", pa.int64(), nullable=False), dynamic])
    rows = pa.table([pa.array([1, 2, 2]), pa.array(['{"a": 3}', '{"b": "x"}', "{}"])], schema=schema)
    places = {
        name: pa.array([number]) for name, number in [("timestamp", (1 << 40) + 5), ("partition", 2), ("segment", 100)]
    }
    tree = tmp_path / "root"
    sawlog.write(rows, tree, format="milvus_binlog", timestamp=1 << 40, primary_key="pk", tree="backup")
    sawlog.write(pa.table({"pk": [1], **places}), tree, format="milvus_binlog", content="deletes", tree="backup")
    columns = GOLDEN / "delta" / "multi_field_int64"
    script = (
        SCRIPT
        + f"""
import sawlog
counts = [sawlog.read({str(tree)!r}, format="milvus_binlog", **one).num_rows for one in {list(MILVUS_READS.values())!r}]
counts.append(sawlog.read({str(columns)!r}, format="milvus_binlog").num_rows)
print(json.dumps([counts, asked]))
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[1, 3, 1, 2, 2, 2], []]
