"""Rows as they are written, from positions that can be saved."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sawlog
from sawlog.cli.cat import follow_rows
from tests.cli.conftest import Run, run
from tests.support import write_records

__all__ = ["run"]


def add(path: Path, *records: bytes) -> None:
    write_records(path, records, append=path.exists())


def look(watch: sawlog.dataset.watch.Watch) -> list[bytes]:
    return [value for batch in watch.look() for value in batch.column("record").to_pylist()]


def test_rows_are_delivered_once_as_they_are_written(tmp_path: Path) -> None:
    add(tmp_path / "000001.log", b"a", b"b")
    dataset = sawlog.open(tmp_path, format="leveldb_log")
    watch = dataset.watch()
    assert look(watch) == [b"a", b"b"]
    assert look(watch) == []
    add(tmp_path / "000001.log", b"c")
    add(tmp_path / "000002.log", b"d")
    assert look(watch) == [b"c", b"d"]
    saved = json.loads(json.dumps(watch.positions))
    data = (tmp_path / "000002.log").read_bytes()
    add(tmp_path / "000002.log", b"e" * 100)
    file_data = (tmp_path / "000002.log").read_bytes()
    (tmp_path / "000002.log").write_bytes(file_data[: len(data) + 50])
    assert look(watch) == [], "what is not finished waits"
    (tmp_path / "000002.log").write_bytes(file_data)
    assert look(watch) == [b"e" * 100]
    assert look(sawlog.open(tmp_path, format="leveldb_log").watch(saved)) == [b"e" * 100]


def test_what_is_watched_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("000001.log")
    add(path, b"a")
    data = path.read_bytes()
    url = f"memory://{tmp_path.name}"
    write_records(f"{url}/000001.log", [b"a"])
    watches = [sawlog.open(place, format="leveldb_log").watch() for place in (".", path, tmp_path, data, url)]
    for watch in watches:
        assert look(watch) == [b"a"]
        assert look(watch) == []
    add(path, b"b")
    write_records(f"{url}/000002.log", [b"c"])
    assert [look(watch) for watch in watches] == [[b"b"], [b"b"], [b"b"], [], [b"c"]]


def test_an_iterator_waits_for_rows(tmp_path: Path) -> None:
    add(tmp_path / "000001.log", b"a")
    watch = sawlog.open(tmp_path, format="leveldb_log").watch(poll=0.001)
    batches = iter(watch)
    assert next(batches).num_rows == 1
    size = (tmp_path / "000001.log").stat().st_size
    assert watch.positions["files"]["000001.log"][0] == size, "the end of the last batch that was handed out"
    add(tmp_path / "000001.log", b"b", b"c")
    assert next(batches).num_rows == 2


def test_a_log_that_shrinks_and_a_view_that_does_not_grow_are_told(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    add(path, b"a" * 1000)
    watch = sawlog.open(tmp_path, format="leveldb_log").watch()
    watch.look()
    path.write_bytes(b"")
    with pytest.raises(sawlog.SawlogError, match="shrank"):
        watch.look()
    with pytest.raises(sawlog.OptionError, match="cannot be followed"):
        sawlog.open(Path(__file__).parents[2] / "examples/data/shop", view="files").watch().look()


def test_cat_follows_until_it_is_interrupted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    add(path, b"a")
    command = [sys.executable, "-m", "sawlog", "cat", str(path), "-f", "--json", "--format", "leveldb_log"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == '{"record":"a"}\n'
    add(path, b"b")
    assert child.stdout.readline() == '{"record":"b"}\n'
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    child.stdout.close()
    assert run("cat", path, "-f", "--limit", 1, "--json").out == '{"record":"a"}\n'
    assert run("cat", path, "-f", "--sample", 1).code == 2


def test_cat_follows_from_the_last_rows(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    add(path, *(b"%d" % n for n in range(5000)))
    command = [
        sys.executable,
        "-m",
        "sawlog",
        "cat",
        str(path),
        "-f",
        "--tail",
        "2",
        "--json",
        "--format",
        "leveldb_log",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ['{"record":"4998"}\n', '{"record":"4999"}\n']
        add(path, *(b"new %d" % n for n in range(3)))
        assert [child.stdout.readline() for _ in range(3)] == [f'{{"record":"new {n}"}}\n' for n in range(3)]
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130


def test_the_last_rows_are_those_of_the_first_look_only(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    add(path, b"a")
    watch = sawlog.open(path, format="leveldb_log").watch(poll=0.001)
    watch.look()
    batches = follow_rows(watch, 2)
    add(path, b"b", b"c", b"d")
    assert next(batches).column(0).to_pylist() == [b"c", b"d"]
    add(path, b"e", b"f", b"g")
    assert next(batches).column(0).to_pylist() == [b"e", b"f", b"g"]


def test_cat_follows_a_log_that_rotates_and_says_when_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    add(path, b"a")
    command = [sys.executable, "-m", "sawlog", "cat", f"{tmp_path}/*", "-f", "--json", "--format", "leveldb_log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == '{"record":"a"}\n'
        add(path, b"b")
        path.rename(tmp_path / "000001.log.1")
        add(path, b"c" * 100)
        rows = {child.stdout.readline() for _ in range(2)}
        assert rows == {'{"record":"b"}\n', f'{{"record":"{"c" * 100}"}}\n'}
        path.unlink()
        add(path, b"d" * 200)
        assert child.wait(60) == 2
        assert child.stdout.read() == ""
        assert f"{path}: the file was replaced or rewritten" in child.stderr.read()


SHOP = str(Path(__file__).parents[2] / "examples" / "data" / "shop")


def cat_rows(run: Run, *args: object) -> list[dict[str, object]]:
    result = run("cat", SHOP, "--view", "writes", "--json", *args)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_cat_shows_the_last_rows_and_some_rows(run: Run) -> None:
    values = sawlog.read(SHOP, view="writes")["sequence"].to_pylist()
    assert [row["sequence"] for row in cat_rows(run, "--tail", 3)] == values[-3:]
    assert cat_rows(run, "--tail", 0) == []
    sequences = [row["sequence"] for row in cat_rows(run, "--sample", 50)]
    assert len(set(sequences)) == 50
    assert sequences == sorted(sequences)
    assert set(sequences) <= set(values)
    assert max(sequences) > 15_000, "from everywhere"
    assert len(cat_rows(run, "--sample", 100_000, "--columns", "sequence")) == len(values)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("key like 'user:00000_'", lambda key, value: key.startswith("user:00000") and len(key) == 11),
        ("key not like user:%", lambda key, value: not key.startswith("user:")),
        (
            "key ~ ^cart:0+1",
            lambda key, value: key.startswith("cart:") and key[5:].lstrip("0")[:1] == "1" and key[5] == "0",
        ),
        ("key !~ '^(user|cart)'", lambda key, value: not key.startswith(("user", "cart"))),
        ("value is null", lambda key, value: value is None),
        ("value is not null", lambda key, value: value is not None),
    ],
)
def test_filters_know_patterns_and_nulls(run: Run, condition: str, expected: object) -> None:
    rows = sawlog.read(SHOP, view="writes").select(["key", "value"]).to_pylist()
    result_rows = [row for row in rows if expected(row["key"].decode(), row["value"])]  # type: ignore[operator]
    matching_rows = cat_rows(run, "--filter", condition, "--columns", "key")
    assert [row["key"] for row in matching_rows] == [row["key"].decode() for row in result_rows]


def test_bad_patterns_are_told(run: Run) -> None:
    for condition, message in (
        ("key ~ (", "missing )"),
        ("sequence like 1%", "like is for text and bytes"),
        ("keys like x", "did you mean 'key'?"),
    ):
        result = run("cat", SHOP, "--view", "writes", "--filter", condition)
        assert result.code == 2
        assert message in result.err


SQL = """
import json, sys
from sawlog.cli import main
print([int(main(["sql", "--json", *words])) for words in json.loads(sys.argv[1])])
"""
"""In a process of its own: DuckDB's module complains on leaving one."""


def test_queries_and_their_errors_are_shown(tmp_path: Path) -> None:
    log = bytearray(next(Path(SHOP).glob("*.log")).read_bytes())
    log[1000] ^= 1
    (tmp_path / "1.log").write_bytes(log)
    damaged = f"SELECT count(*) FROM '{tmp_path}/1.log#writes'"
    queries = [
        [f"SELECT operation, count(*) AS n FROM '{SHOP}#writes' GROUP BY ALL ORDER BY n"],
        ["SELECT max(sequence) AS m FROM shop", "--table", f"shop={SHOP}#writes"],
        ["SELEC 1"],
        [damaged],
        [damaged, "--on-damage", "skip"],
    ]
    command = [sys.executable, "-c", SQL, json.dumps(queries)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *rows, last, counted, codes = done.stdout.splitlines()
    counts = sawlog.read(SHOP, view="writes")["operation"].value_counts().to_pylist()
    expected = sorted(
        ({"operation": count["values"], "n": count["counts"]} for count in counts), key=lambda row: row["n"]
    )
    assert [json.loads(line) for line in rows] == expected
    assert (last, list(json.loads(counted)), codes) == ('{"m":22489}', ["count_star()"], "[0, 0, 2, 1, 0]")
    errors = done.stderr.splitlines()
    assert errors[0].startswith("sawlog: Parser Error")
    (stopped,) = [line for line in errors if "checksum_mismatch at byte" in line and "read on past it" in line]
    assert stopped.startswith(f"sawlog: {tmp_path}/1.log: checksum_mismatch at byte"), done.stderr
    assert stopped.endswith("; read on past it with --on-damage skip")
    assert done.stderr.count("damaged bytes") == 1


@pytest.mark.parametrize("shell", ["zsh", "bash", "fish"])
@pytest.mark.nightly
def test_shells_complete_names(shell: str) -> None:
    def answer(*words: str) -> str:
        """What the shell is given."""
        line = " ".join(["sawlog", *words])
        variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words)), "_TYPER_COMPLETE_ARGS": line}
        environment = {**os.environ, **variables, "_SAWLOG_COMPLETE": f"complete_{shell}"}
        environment["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
        command = [sys.executable, "-c", "from sawlog.cli.app import app; app(prog_name='sawlog')"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    def completed(*words: str) -> set[str]:
        """The words that the shell is given: one per line, or, for zsh, between quotes and before a description."""
        out = answer(*words)
        if shell == "zsh":
            return set(re.findall(r'^(?:_arguments .*\(\()?"((?:\\:|[^":])*)', out, re.MULTILINE))
        return {line.split("\t")[0] for line in out.splitlines()}

    assert completed("cat", SHOP, "--format", "lev") >= {"leveldb_log"}
    assert completed("cat", SHOP, "--view", "w") == {"writes"}
    assert completed("cat", SHOP, "--view", "writes", "--columns", "key,se") == {"key,sequence"}
    assert "verify_checksums=" in completed("cat", SHOP, "-o", "ver")
    if shell != "bash":
        assert "Chromium\u2019s IndexedDB" in answer("cat", SHOP, "--view", "indexed_")
        assert "Import Deephaven" in answer("imp")
    if shell == "zsh":  # whose arguments are between two
        assert answer("imp").count("'") == 2
