"""TFRecord files against the packages crc32c and tfrecord, through every way in, and as a package of its own."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tfrecord.reader import tfrecord_iterator

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.format.damage import DamageWarning
from sawlog.kernels import native
from sawlog.map import survey

from .conftest import FOLDER, PACKAGE
from .reference import frame, offsets

EXAMPLE = FOLDER.parents[1] / "examples" / "tfrecord"


def make_records(count: int, longest: int = 300) -> list[bytes]:
    dice = random.Random(count)
    return [dice.randbytes(dice.randrange(longest)) for _ in range(count)]


def make_table(rows: list[bytes]) -> pa.Table:
    return pa.table({"record": pa.array(rows, pa.binary())})


def test_what_it_writes_is_what_others_write_and_read(tmp_path: Path) -> None:
    rows = [b"", *make_records(200), bytes(70_000), b"end"]
    path = tmp_path / "a.tfrecord"
    sawlog.write(make_table(rows), path, format="tfrecord")
    assert path.read_bytes() == frame(*rows)
    assert [bytes(record) for record in tfrecord_iterator(str(path))] == rows
    assert sawlog.read(path, provenance=True).column("_offset").to_pylist() == offsets(*rows)


def test_a_large_file_is_cut_and_read_in_bounded_batches(tmp_path: Path) -> None:
    rows = [b"%d" % n * 100 for n in range(40_000)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(*rows))
    dataset = sawlog.open(path)
    fragments = dataset.fragments(1 << 20)
    assert len(fragments) > 10
    assert all((1 << 20) <= fragment.size < (1 << 20) + 1000 for fragment in fragments[:-1])
    assert sum(fragment.size for fragment in fragments) == path.stat().st_size
    assert [
        value for fragment in fragments for batch in fragment.to_batches() for value in batch.column(0).to_pylist()
    ] == rows
    assert max(batch.nbytes for batch in dataset.to_batches()) < 5 << 20
    assert dataset.count_rows() == len(rows)


def test_the_damage_says_what_was_expected(tmp_path: Path) -> None:
    rows = make_records(9)
    data = bytearray(frame(*rows))
    starts = offsets(*rows)
    data[starts[2]] ^= 1
    data[starts[5] + 12] ^= 1
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    (report,) = sawlog.verify(path).files
    assert [(damage.kind, damage.offset, damage.length) for damage in report.damages] == [
        ("bad_length", starts[2], starts[3] - starts[2]),
        ("bad_checksum", starts[5], starts[6] - starts[5]),
    ]
    assert "the checksum of the length should be 0x" in report.damages[0].detail
    with pytest.warns(DamageWarning):
        values = sawlog.read(path, on_damage="skip").column(0).to_pylist()
    assert values == [row for n, row in enumerate(rows) if n not in (2, 5)]
    sawlog.repair(path, tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == frame(*values)
    with pytest.warns(DamageWarning, match="1 bad_length"):
        assert sawlog.read(path, verify_checksums=False, on_damage="skip").num_rows == 8


def test_options_and_columns_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(b"long" * 10, b"short"))
    with pytest.warns(DamageWarning, match="record_too_large"):
        assert sawlog.read(path, max_item_bytes=10, on_damage="skip").column(0).to_pylist() == [b"short"]
    with pytest.raises(OptionError, match="max_item_bytes=-1"):
        sawlog.read(path, max_item_bytes=-1)
    with pytest.raises(SchemaError, match="a tfrecord holds one column, 'record'; found: n"):
        sawlog.write(pa.table({"n": [1]}), path, format="tfrecord")
    with pytest.raises(SchemaError, match="column 'record', row 1: a TFRecord file cannot hold null"):
        sawlog.write(pa.table({"record": pa.array([b"", None], pa.binary())}), path, format="tfrecord")


def test_it_is_declared_as_it_is_installed_here() -> None:
    declared = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = ConfigParser()
    installed.read(next((FOLDER / "installed").glob("*.dist-info")) / "entry_points.txt")
    assert {group: dict(installed[group]) for group in installed.sections()} == declared


def run(environment: dict[str, str], *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_command_line_knows_it(tmp_path: Path, installed: dict[str, str]) -> None:
    rows = make_records(9)
    path = tmp_path / "train.tfrecord"
    path.write_bytes(frame(*rows)[:-1])
    done = run(installed, "-m", "sawlog", "verify", path, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["rows"], document["paths"][0]["format"]) == (8, "tfrecord")
    done = run(installed, "-m", "sawlog", "convert", path, tmp_path / "train.parquet")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "train.parquet").column(0).to_pylist() == rows[:-1]
    done = run(installed, "-m", "sawlog", "convert", tmp_path / "train.parquet", tmp_path / "again.tfrecord")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.tfrecord").read_bytes() == frame(*rows[:-1])


@pytest.mark.nightly
def test_without_a_library_it_is_compiled_and_helpers_stay_inside_of_kernels(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    path = tmp_path / "train.tfrecord"
    path.write_bytes(frame(b"one"))
    script = f"""
import sawlog
from sawlog.chain.kernels import make_head_window
from sawlog_tfrecord import kernels
print(sawlog.open({str(path)!r}).format.name)
kernels.sound(make_head_window(bytes(12), 12), 0, None, None)
"""
    done = run({**installed, "SAWLOG_KERNELS": "jit"}, "-c", script)
    assert (done.returncode, done.stdout) == (1, "tfrecord\n"), done.stderr
    assert done.stderr.endswith("sound is compiled into the kernels that call it: from Python, call a kernel\n")


@pytest.mark.parametrize("module", ["kernels/signature", "kernels/native", "kernels/crc32c", "kernels/layout"])
def test_a_library_made_with_another_sawlog_is_not_called(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = json.loads((Path(native.find_folder(PACKAGE)) / native.TABLE).read_text("utf-8"))
    table["definitions"][f"sawlog/{module}.py"] |= {"file": "0", "digest": "0"}
    monkeypatch.setattr(native, "read_table", {PACKAGE: table, native.SAWLOG: native.read_table(native.SAWLOG)}.get)
    native.find_misfit.cache_clear()
    try:
        assert native.find_misfit(PACKAGE) == f"the library of kernels was made from another sawlog/{module}.py"
    finally:
        native.find_misfit.cache_clear()


def test_the_page_on_adding_a_format_is_about_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are either excerpts of the example, word for word, or run and give what they say."""
    page = (FOLDER.parents[1] / "docs" / "adding-a-format.md").read_text("utf-8")
    sources = "".join(
        path.read_text("utf-8")
        for path in [*EXAMPLE.parent.rglob("sawlog_*/*.py"), *EXAMPLE.glob("*.toml"), *FOLDER.glob("*.py")]
    )
    monkeypatch.chdir(tmp_path)
    excerpts = programs = 0
    names: dict[str, Any] = {}
    for block in re.findall(r"^```(?:python|toml)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        if block in sources:
            excerpts += 1
            continue
        exec(compile(block, "adding-a-format.md", "exec"), names)
        programs += 1
        for expression, value in re.findall(r"^print\((.*)\)  # (\w+)$", block, re.MULTILINE):
            assert str(eval(expression, names)) == value
    assert excerpts >= 14
    assert programs == 1


def test_a_map_without_doing_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(b"one", b"two" * 50, b"three"))
    file_map = survey(sawlog.open(path))
    report = sawlog.verify(path)
    assert (file_map.account, file_map.rows) == (report.account, 3)
    (file,) = file_map.files
    assert [start for start, _ in file.spans] == offsets(b"one", b"two" * 50, b"three")
    assert [excerpt.offset for excerpt in file.excerpts] == offsets(b"one", b"two" * 50, b"three")
