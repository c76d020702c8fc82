"""What pages tell readers to type does what they say; a block that is not run says why."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests import documents_world as worlds
from tests.documents import ROOT, SHOWN, blocks, pages, read_page

ELSEWHERE = {
    "docs/adding-a-format.md": "tests/tfrecord_example compares every block with the package",
    "docs/cli.md": "tests/cli/test_documents.py runs its console blocks in order",
}
LANGUAGES = {"python", "py", "sh", "bash", "toml", *SHOWN}
SPARK = re.compile(r"\bspark\b", re.MULTILINE)


def needs_spark(page: str) -> bool:
    return any(SPARK.search(one.text) for one in blocks(page) if one.language == "python" and not one.reason)


OURS = [page for page in pages() if page not in ELSEWHERE and blocks(page)]
SPARK_ALONE = ["docs/cookbooks/cluster.md", "docs/import-and-merge.md", "docs/spark.md", "docs/streams.md"]
"""Pages that say nothing without Spark."""
PLAIN = [page for page in OURS if page not in SPARK_ALONE]
"""What of these is for Spark is only compiled here, and the names that it imports are looked up."""
ON_SPARK = [page for page in OURS if needs_spark(page)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory beside the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", PLAIN)
def test_a_page_from_start_to_end(page: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worlds.of(page, monkeypatch) as world:
        read_page(page, world.names, world.places, skip=SPARK)


def test_every_block_is_run_or_says_why() -> None:
    everything = [one for page in pages() for one in blocks(page)]
    assert len(everything) > 100
    for block in everything:
        if block.page not in ELSEWHERE:
            assert block.reason or block.language in LANGUAGES, block
        assert not block.reason or len(block.reason) > 10, block
    run = [one for one in everything if not one.reason and one.language not in SHOWN]
    assert len(run) > 0.75 * sum(one.language not in SHOWN for one in everything)


@pytest.mark.parametrize("page", ON_SPARK)
def test_pages_about_spark_name_what_there_is(page: str) -> None:
    for block in blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text, str(block))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sawlog"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, one.name) for one in node.names), block
