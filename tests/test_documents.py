"""What pages ask readers to type does what they say; a block that is not run says why."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import sawlog
from tests import documents_world as worlds
from tests.documents import ROOT, blocks, pages, parsed, python, read_page
from tools import reference

ELSEWHERE = {
    "docs/adding-a-format.md": "tests/tfrecord_example compares every block with the package",
}
SPARK = re.compile(r"\bspark\b", re.MULTILINE)
INCLUDED = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
LINK = re.compile(r"\]\((.+?)\)")


def needs_spark(page: str) -> bool:
    return any(SPARK.search(block.parsed) for block in blocks(page, python))


OURS = [page for page in pages() if page not in ELSEWHERE and list(parsed(page))]
SPARK_ALONE = ["docs/cookbooks/cluster.md", "docs/import-and-merge.md", "docs/spark.md", "docs/streams.md"]
"""Pages that say nothing without Spark."""
PLAIN = [page for page in OURS if page not in SPARK_ALONE]
"""What of these is for Spark is only compiled here, and the names that it imports are looked up."""
ON_SPARK = [page for page in OURS if needs_spark(page)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory next to the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.spread(1)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", PLAIN)
def test_a_page_from_start_to_end(page: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worlds.of(page, monkeypatch) as world:
        read_page(page, world.names, world.places, skip=SPARK)


def test_every_block_is_run_or_says_why() -> None:
    """A language that is not in `RUN` fails already when a page is parsed, and so does a fence without an end."""
    run = [block for page in pages() for block in blocks(page)]
    skips = [block for page in pages() for block in parsed(page) if isinstance(block.parsed, tuple)]
    assert len(run) > 100
    assert len(run) > 3 * len(skips)
    for skip in skips:
        action, reason = skip.parsed
        assert action == "next", skip
        assert len(reason) > 10, skip


def test_no_page_is_overlooked() -> None:
    read = {*PLAIN, *SPARK_ALONE, *ELSEWHERE}
    assert read == {page for page in pages() if list(parsed(page))}
    assert {page for page in SPARK_ALONE if blocks(page, python)} <= {*ON_SPARK}


PUBLIC = ("", ".spark", ".testing", ".map", ".pipeline", ".deephaven.log", ".deephaven.ingest.spark", ".filodb")
REFERENCE = re.compile(r"^::: (?P<name>\S+)", re.MULTILINE)
SECTION = re.compile(r"^(?P<indent> *)(?:Args|Attributes):\n(?P<text>(?:(?P=indent) {4}.*\n|\n)+)", re.MULTILINE)
MENTION = re.compile(r"`(sawlog(?:\.\w+)+)`")


def find_object(name: str) -> object:
    """What a reference names: a module, or something in one."""
    module, _, attributes = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attributes)


def test_the_reference_covers_what_is_public() -> None:
    pytest.importorskip("pyspark")
    named = {match["name"] for page in pages() for match in REFERENCE.finditer((ROOT / page).read_text("utf-8"))}
    documented = {id(find_object(name)) for name in named}
    public = [find_object(entry_point.value.replace(":", ".")) for entry_point in entry_points(group="sawlog.spark")]
    missing = [str(public_object) for public_object in public if id(public_object) not in documented]
    for short in (*PUBLIC, ".milvus"):
        module = importlib.import_module(f"sawlog{short}")
        for name in module.__all__:
            if f"{module.__name__}.{name}" not in named and id(getattr(module, name)) not in documented:
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


def has_name(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one, such as a field of a class."""
    place, _, attribute = name.rpartition(".")
    try:
        find_object(name)
    except (ImportError, AttributeError):
        owner = find_object(place) if place.count(".") > 1 and has_name(place) else None
        return hasattr(owner, attribute) or attribute in getattr(owner, "__annotations__", ())
    return True


def test_names_that_docstrings_and_pages_mention_are_there() -> None:
    """Others are keys of metadata, and groups of entry points, which the code has as text."""
    pytest.importorskip("pyspark")
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    text = "".join([sources, *((ROOT / page).read_text("utf-8") for page in pages())])
    mentions = {name for name in MENTION.findall(text) if f'"{name}"' not in sources}
    assert len(mentions) > 50
    assert {name for name in mentions if not has_name(name)} == set()


Definition = ast.ClassDef | ast.FunctionDef


def read_described_names(node: Definition) -> set[str]:
    """The names of parameters and attributes that a docstring describes."""
    return {
        name.lstrip("*")
        for section in SECTION.finditer(f"{ast.get_docstring(node)}\n")
        for name in re.findall(rf"^{section['indent']} {{4}}([*\w]+)[^:\n]*:", section["text"], re.MULTILINE)
    }


def collect_names(node: Definition, classes: dict[str, ast.ClassDef]) -> set[str]:
    """The names of parameters, fields, methods and attributes in a definition, and in what it derives from."""
    inner = list(ast.walk(node))
    names = {argument.arg for argument in inner if isinstance(argument, ast.arg)}
    if isinstance(node, ast.ClassDef):
        names |= {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
        names |= {part.id for part in inner if isinstance(part, ast.Name)}
        names |= {part.attr for part in inner if isinstance(part, ast.Attribute)}
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        names = names.union(*(collect_names(classes[base], classes) for base in bases if base != node.name))
    return names


@pytest.fixture
def no_collections() -> Iterator[None]:
    """No garbage is looked for: to go through the trees of all modules again and again is most of the work."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_docstrings_describe_parameters_and_attributes_that_there_are() -> None:
    paths = [path for folder in ("src", "tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")]
    texts = {path: path.read_text("utf-8") for path in sorted(paths)}
    # Classes that others derive from are in src.
    bases = {path for path, text in texts.items() if path.is_relative_to(ROOT / "src") and "\nclass " in text}
    trees = [ast.parse(text) for path, text in texts.items() if path in bases or SECTION.search(text)]
    nodes = [node for tree in trees for node in iterate_definitions(tree)]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    described = {node: read_described_names(node) for node in nodes}
    assert sum(map(len, described.values())) > 1000
    wrong = {node.name: names - collect_names(node, classes) for node, names in described.items() if names}
    assert {name: missing for name, missing in wrong.items() if missing} == {}


def iterate_definitions(tree: ast.AST) -> Iterator[Definition]:
    """Classes and functions, as statements hold them; no expression does."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield node
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from iterate_definitions(node)


def test_links_of_files_that_pages_include_are_whole() -> None:
    """A file from outside docs has other neighbours there, so that a relative link would lead nowhere."""
    included = {name for page in (ROOT / "docs").rglob("*.md") for name in INCLUDED.findall(page.read_text("utf-8"))}
    assert included
    relative = [(name, link) for name in sorted(included) for link in LINK.findall((ROOT / name).read_text("utf-8"))]
    assert [link for link in relative if not link[1].startswith("https://")] == []


def test_tables_of_views_and_options_are_those_of_the_program() -> None:
    written = {page: (ROOT / page).read_text("utf-8") for page in pages()}
    assert [page for page, text in written.items() if text != reference.with_tables(text)] == [], "run make docs"
    tables = [table for text in written.values() for table in reference.TABLE.finditer(text)]
    for name in {table["format"] for table in tables}:
        for kind in ("options", "write options"):
            expected_names = dict(reference.TABLES[kind][2](sawlog.formats()[name])).keys()
            of_kind = [table["names"].split() for table in tables if (table["kind"], table["format"]) == (kind, name)]
            assert {option for names in of_kind for option in names or expected_names} == set(expected_names), (
                kind,
                name,
            )


@pytest.mark.nightly
def test_code_hosts_show_the_reference_that_the_site_has() -> None:
    assert reference.PAGE.read_text("utf-8") == reference.reference(), "run make docs"


@pytest.mark.parametrize("page", ON_SPARK)
def test_pages_about_spark_name_what_there_is(page: str) -> None:
    for block in (block for block in parsed(page) if block.region.evaluator is python):
        for node in ast.walk(ast.parse(block.parsed, page)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sawlog"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), block


def test_every_format_cites_its_specification() -> None:
    for page in sorted((ROOT / "docs" / "formats").glob("*.md")):
        if page.name != "index.md":
            _, _, cited = page.read_text("utf-8").partition("\n## Specification\n")
            assert "](https://" in cited, page


def test_what_is_supported_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    lines = "\n".join([*requirements, "python" + project["requires-python"]])
    lowest_versions = dict(re.findall(r"^(\w+).*>=([\d.]+)", lines, re.MULTILINE))
    page = (ROOT / "docs" / "releases.md").read_text("utf-8")
    stated = re.findall(r"^\| (\w+) \| ([\d.]+) and newer", page, re.MULTILINE)
    expected = {name: lowest_versions[name] for name in ("python", "pyarrow", "numpy", "pyspark")} | {"java": "17"}
    assert {name.lower(): version for name, version in stated} == expected
    assert f"sawlog {'.'.join(sawlog.__version__.split('.')[:2])}." in page
