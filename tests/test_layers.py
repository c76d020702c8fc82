"""How the house is built: what may import what, and how large its parts are."""

from __future__ import annotations

import ast
import builtins
import gc
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tools import house

GROUPS = ("sawlog.formats", "sawlog.commands", "sawlog.spark")


@pytest.fixture(scope="module", autouse=True)
def syntax_trees() -> Iterator[None]:
    """Half a million nodes, as long as tests want them: to look for garbage among them takes longer than to parse."""
    gc.disable()
    yield
    house.modules.cache_clear()
    house.nodes.cache_clear()
    gc.enable()


def format_packages() -> set[str]:
    """Packages that belong to a format, as their entry points say."""
    packages = {
        entry_point.value.split(":")[0].split(".")[1] for group in GROUPS for entry_point in entry_points(group=group)
    }
    assert packages >= {"leveldb", "deephaven"}
    return packages


def shared_modules() -> dict[str, ast.Module]:
    """Modules that belong to no format, by name."""
    packages = format_packages()
    return {name: module for name, module in house.modules().items() if packages.isdisjoint(name.split(".")[1:2])}


def imported(module: ast.Module, *, types: bool = True) -> set[str]:
    """Whatever a module imports, also when it is called and, if wanted, for types."""
    nodes = house.nodes(module)
    only_types = [
        range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
        for node in nodes
        if isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING" and not types
    ]
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and not any(node.lineno in lines for lines in only_types):
            prefix = ""
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"line {node.lineno}: a relative import"
                prefix = f"{node.module}."
            names |= {prefix + name.name for name in node.names}
    return names


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions, by the names of their modules."""
    for name, module in house.modules().items():
        for node in house.nodes(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}", node


def dotted(node: ast.AST) -> str:
    """A name, or one of an attribute; what is no name has none."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether Numba compiles it."""
    return bool(
        {"kernel", "wide_kernel", "inlined", "always_inlined"}.intersection(map(dotted, function.decorator_list))
    )


def rooms() -> list[str]:
    """The packages from the ground up, as the page on architecture lists them."""
    page = Path("docs/architecture.md").read_text("utf-8")
    section = page.split("## Packages", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"`sawlog\.(\w+)`", "\n".join(line.split("|")[1] for line in section.split("\n") if "|" in line))


ADDITIONS = {"spark", "commands"}
"""Modules of a system that are found through entry points: they may import Spark's room and the command line."""
UPWARD = {("sawlog.dataset.dataset", "sawlog.map.notebook")}
"""A dataset draws itself in a notebook."""


def test_a_room_imports_only_rooms_below_it() -> None:
    order = {name: floor for floor, name in enumerate(rooms())}
    order["__main__"] = order["cli"]
    wrong = set()
    for name, module in house.modules().items():
        room = name.split(".")[1:2]
        if not room or ADDITIONS & set(name.split(".")[2:]):
            continue
        for imported_module in imported(module, types=False):
            above = imported_module.split(".")[1:2] if imported_module.startswith("sawlog.") else []
            if above and above[0] in order and order[above[0]] > order[room[0]]:
                wrong.add((name, ".".join(imported_module.split(".")[:3])))
    assert wrong <= UPWARD


def test_few_modules_stand_at_the_top() -> None:
    top = [path.name for path in Path("src/sawlog").glob("*.py")]
    assert len(top) <= 8
    rooms_there = {path.name for path in Path("src/sawlog").iterdir() if (path / "__init__.py").exists()}
    assert rooms_there | {path.removesuffix(".py") for path in top} - {"__init__", "__main__"} == set(rooms())


def test_nothing_shared_imports_a_format() -> None:
    packages = {f"sawlog.{name}" for name in format_packages()}
    wrong = {
        (name, imported_module)
        for name, module in shared_modules().items()
        for imported_module in imported(module, types=name != "sawlog")  # which names them for type checkers
        if any(f"{imported_module}.".startswith(f"{package}.") for package in packages)
    }
    assert not wrong


def test_no_format_is_loaded_before_it_is_asked_for() -> None:
    names = [name for name in shared_modules() if name != "sawlog.__main__"]
    script = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
packages = {format_packages()!r}
print(*(name for name in sys.modules if name.startswith("sawlog.") and name.split(".")[1] in packages))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_nothing_imports_in_circles() -> None:
    """Neither when modules are loaded nor when functions are called: no import is late only to break a circle."""
    trees = house.modules()
    graph = {
        name: {
            imported_name if imported_name in trees else imported_name.rpartition(".")[0]
            for imported_name in imported(module, types=False)
        }
        & trees.keys()
        for name, module in trees.items()
    }
    # An import from `sawlog` itself imports what it offers.
    graph = {
        name: {imported_name for imported_name in imports if imported_name not in ("sawlog", name)}
        for name, imports in graph.items()
    }
    graphlib.TopologicalSorter(graph).prepare()


DECODERS = {
    *("json.load", "json.loads", "tomllib.load", "tomllib.loads", "iterparse", "fromstring", "parse_string"),
    *("fastavro.reader", "fastavro.schemaless_reader", "ParquetFile", "pq.ParquetFile", "pq.read_table"),
    *("read_json", "json.open_json", "csv.open_csv", "pa.ipc.open_file", "pa.ipc.open_stream", "pa.ipc.read_schema"),
    *("base64.b64decode", "bytes.fromhex", "zlib.decompress", "zlib.decompressobj", "bz2.BZ2Decompressor"),
    *("zstandard.ZstdDecompressor", "zstandard.frame_content_size", "pa.CompressedInputStream", "parquet.ParquetFile"),
    *("pickle.loads", "pickle.load", "marshal.loads", "yaml.load", "lzma.decompress"),
}
"""Calls that make something of bytes, and say by exceptions of any kind that they cannot."""
DECODING = {"FromString", "ParseFromString", "decompress"}
"""Methods that do, whatever they are of."""
CALLERS = {"call_decoder", "wrap_decoder", "decode_json"}
"""What takes their word: `sawlog.guard`."""
OUR_OWN_BYTES = {
    "sawlog.kernels.native",  # the table of its own library
    "sawlog.spark.jar",  # the digests of the jars that it carries
    "sawlog.format.query",  # an expression that pyarrow has just pickled
    "sawlog.deephaven.ingest.runs",  # a file that this process has just written
    "sawlog.format.printing",  # hexadecimal digits that a pattern has matched
    "sawlog.deephaven.table.groups.java_output",  # constants
    "sawlog.spark.planner",  # what the jar sends to the Python source
    "sawlog.stream.offset",  # digests of a proof that is an offset's own
}


def decoders_called(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module calls a decoder itself: neither by `sawlog.guard`, nor in a function that it hands to that."""
    handed = {
        name.rpartition(".")[2]
        for call in house.nodes(module)
        if isinstance(call, ast.Call) and dotted(call.func) in CALLERS and call.args
        for name in (dotted(call.args[0]),)
    }
    bodies = {node.name: node for node in house.nodes(module) if isinstance(node, ast.FunctionDef)}
    while handed_on := {
        name
        for inner in handed & bodies.keys()
        for call in ast.walk(bodies[inner])
        if isinstance(call, ast.Call)
        for name in (dotted(call.func).rpartition(".")[2],)
        if name in bodies and name not in handed
    }:
        handed |= handed_on
    inside = {call for name in handed & bodies.keys() for call in ast.walk(bodies[name])}
    for call in house.nodes(module):
        if (
            isinstance(call, ast.Call)
            and call not in inside
            and not all(isinstance(arg, ast.Constant) for arg in call.args)
        ):
            name = dotted(call.func)
            if name in DECODERS or name.rpartition(".")[2] in DECODING:
                yield call.lineno, name


def test_only_one_place_calls_decoders() -> None:
    """What they say of bytes is damage, or an error that names the file; what else they raise is a fault of sawlog."""
    callers = {
        (name, *call)
        for name, module in house.modules().items()
        if name not in OUR_OWN_BYTES and not name.startswith("sawlog.testing")
        for call in decoders_called(module)
    }
    assert not callers
    assert list(decoders_called(ast.parse("def f(x):\n  return json.loads(x)")))
    assert not list(decoders_called(ast.parse("def g(x):\n  return json.loads(x)\ndef f(x):\n  call_decoder(g, x)")))


def test_no_signal_of_ours_is_an_exception_of_python() -> None:
    """A `ValueError` may be anybody's; who waits for one of ours would take it for a word about bytes."""
    ours = {
        (name, node.name)
        for name, module in house.modules().items()
        for node in house.nodes(module)
        if isinstance(node, ast.ClassDef)
        for bases in ([dotted(base) for base in node.bases],)
        if any(base.endswith("Error") and hasattr(builtins, base) for base in bases)
        and not {"SawlogError", "InternalError"} & set(bases)
    }
    assert ours == {("sawlog.pipeline.mistakes", "MistakeError")}  # pydantic asks its validators for a ValueError


MOST_PARAMETERS = 8
LONGEST_FUNCTION = 80


def test_kernels_have_few_parameters() -> None:
    kernels = [(name, node) for name, node in functions() if is_kernel(node)]
    assert len(kernels) > 200
    counts = [(sum(isinstance(part, ast.arg) for part in ast.walk(node.args)), name) for name, node in kernels]
    assert not [(count, name) for count, name in counts if count > MOST_PARAMETERS]


def test_functions_are_short() -> None:
    """Kernels, too: what they call is compiled into them."""
    lengths = [((node.end_lineno or 0) - node.lineno + 1, name) for name, node in functions()]
    assert not [(count, name) for count, name in lengths if count > LONGEST_FUNCTION]


TESTS = Path(__file__).parent


def private_names(module: ast.Module) -> Iterator[str]:
    """Private names of sawlog's modules, and of what they define, that a module of tests takes or sets."""
    nodes = house.nodes(module)
    ours = {"sawlog"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sawlog":
            ours |= {name.asname or name.name for name in node.names}
            yield from (name.name for name in node.names if is_private(name.name))
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr) and root_of(node.value) in ours:
            yield node.attr
        elif isinstance(node, ast.Call) and len(node.args) > 1 and dotted(node.func).endswith("setattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)) and root_of(node.args[0]) in ours:
                yield str(name.value)
        elif isinstance(node, ast.Tuple) and len(node.elts) > 1:  # parameters of a test that sets them
            owner, name = node.elts[:2]
            if isinstance(name, ast.Constant) and is_private(str(name.value)) and root_of(owner) in ours:
                yield str(name.value)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def root_of(node: ast.AST) -> str:
    """The name that an expression of attributes begins with."""
    return dotted(node).partition(".")[0]


def test_tests_go_by_no_private_names() -> None:
    names_by_file = {
        path.relative_to(TESTS).as_posix(): set(private_names(ast.parse(path.read_text())))
        for path in TESTS.rglob("*.py")
    }
    assert {name: names for name, names in names_by_file.items() if names} == {}


def test_tests_are_in_rooms() -> None:
    """Tests of a package are in a directory of its name, or of its format's; loose are those of modules at the top."""
    loose = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}
    modules = {path.stem for path in (house.ROOT / "src/sawlog").glob("*.py")}
    of_the_project = {"arrow_input", "benchmarks", "documents", "extras", "layers", "pictures", "startup", "types"}
    assert loose <= modules | of_the_project
