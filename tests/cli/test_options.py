"""`-o` gives the same options in every verb, and is refused with the same words."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import typer

import sawlog
from sawlog.cli.app import app
from sawlog.format.options import as_text
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
VERBS = {
    "info": ["{path}"],
    "cat": ["{path}", "--json"],
    "verify": ["{path}"],
    "map": ["{path}", "--output", "{new}.html"],
    "report": ["{path}", "--output", "{new}.html"],
    "repair": ["{path}", "{new}"],
    "convert": ["{path}", "{new}.parquet"],
    "diff": ["{path}", "{path}"],
    "sql": ["select * from '{path}'", "--json"],
    "index": ["{path}", "--output", "{new}.index"],
}
OF_FORMATS = {
    "compact": ("milvus_binlog", ["{path}", "{new}"]),
    "import": ("deephaven_log", ["{path}", "{new}"]),
    "merge": ("deephaven_table", ["{path}", "N", "T", "2026-01-02"]),
    "validate": ("deephaven_table", ["{path}"]),
}
PAIRS = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
NUMBERS = pa.table({"n": [1, 2]})
LOG_NAME = "N.T.System.w.2026-01-02.bin.2026-01-02.00-00-00.000+0000"
WRITTEN_TABLES: dict[str, tuple[str, pa.Table]] = {
    "leveldb_log": ("000003.log", pa.table({"record": [b"x", b"y"]})),
    "leveldb_table": ("000005.ldb", PAIRS),
    "deephaven_log": (LOG_NAME, NUMBERS),
    "deephaven_table": ("Intraday/N/T/I/2026-01-02/T", NUMBERS),
    "milvus_binlog": ("", NUMBERS),
}
COPIED = {
    "leveldb_database": ROOT / "examples/data/shop",
    "filodb_record": ROOT / "tests/golden/filodb/gauge_100_small_00.container",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small directory of each format."""
    root = tmp_path_factory.mktemp("formats")
    for name, (file, rows) in WRITTEN_TABLES.items():
        sawlog.write(rows, root / name / file if file else root / name, format=name)
    for name, source in COPIED.items():
        (root / name).mkdir()
        for path in source.iterdir() if source.is_dir() else [source]:
            shutil.copy(path, root / name)
    return {name: root / name for name in [*WRITTEN_TABLES, *COPIED]}


def run_words(run: Run, words: list[str], path: Path, new: Path, *extra_words: str) -> tuple[int, str]:
    """Exit code and error of a command line, but for warnings."""
    done = run(*(word.format(path=path, new=new) for word in words), *extra_words)
    errors = [line for line in done.err.splitlines() if "warning:" not in line]
    return done.code, " ".join(errors)


def test_every_verb_is_tried() -> None:
    group = typer.main.get_command(app)
    context = typer.Context(group)
    taking = set()
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        verb = group.resolve_command(context, [name])[1]  # type: ignore[attr-defined]
        if any("-o" in parameter.opts for parameter in verb.params):
            taking.add(name)
    assert taking == {*VERBS, *OF_FORMATS, "ls"}  # which takes no --format: test_folder tries it


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.spread(6)
@pytest.mark.parametrize("name", [*WRITTEN_TABLES, *COPIED])
def test_options_of_a_format(run: Run, places: dict[str, Path], tmp_path: Path, name: str) -> None:
    def tried(verb: str, option: str, value: object) -> tuple[int, str]:
        words = [verb, *VERBS[verb], "--format", name, "-o", f"{option}={value}"]
        return run_words(run, words, places[name], tmp_path / f"{verb}-{option}")

    repaired = name not in ("leveldb_database", "deephaven_table")  # whose files are not repaired one by one
    opening = [verb for verb in VERBS if verb != "index" and (repaired or verb != "repair")]
    for option in dataclasses.fields(sawlog.formats()[name].read_options):
        if option.default not in (None, dataclasses.MISSING):
            for verb in opening:
                assert tried(verb, option.name, as_text(option.default)) == (0, ""), (verb, option.name)
        refused = {tried(verb, option.name, "~") for verb in opening}
        assert len(refused) == 1, refused
    for option in ("nope", "Table", "mode", "statistic", "query"):
        outcomes = {tried(verb, option, "1") for verb in VERBS}
        refusals = {outcome for outcome in outcomes if "not an option of a format" in outcome[1]}
        (other_outcome,) = outcomes - refusals
        assert other_outcome[0] == 2
        assert f"reading {name}: unknown option {option!r}" in other_outcome[1]
        assert refusals <= {(2, f"sawlog: -o {option}: not an option of a format; see --help for how to give it")}


@pytest.mark.parametrize("verb", [*VERBS, *OF_FORMATS])
def test_what_is_no_option_of_a_format(run: Run, places: dict[str, Path], tmp_path: Path, verb: str) -> None:
    name, words = OF_FORMATS.get(verb, ("leveldb_log", VERBS.get(verb, [])))

    def tried(setting: str) -> tuple[int, str]:
        return run_words(run, [verb, *words, "-o", setting], places[name], tmp_path / "new")

    assert tried("nope") == (2, "sawlog: -o 'nope': expected KEY=VALUE")
    for setting in ("view=rows", "columns=a", "storage_options=1"):
        message = f"sawlog: -o {setting.partition('=')[0]}: not an option of a format; see --help for how to give it"
        assert tried(setting) == (2, message)
    code, message = tried("nope=1")
    assert (code, "unknown option 'nope'" in message) == (2, True), message
