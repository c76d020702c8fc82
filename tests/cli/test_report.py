"""`sawlog report`: verdicts, views and hashes of a folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.examination import RecordingStorage, examine
from sawlog.dataset.folder import open_folder
from sawlog.dataset.timeline import MAX_DAYS, MAX_EVENTS, Timeline
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "tests" / "golden" / "leveldb_database" / "chromium-156"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A profile of Chromium, a database with a flipped byte, and a file of no format."""
    shutil.copytree(PROFILE, tmp_path / "folder" / "Default")
    shutil.copytree(ROOT / "examples" / "data" / "shop", tmp_path / "folder" / "shop <b>")
    log = tmp_path / "folder" / "shop <b>" / "000003.log"
    data = bytearray(log.read_bytes())
    data[2000] ^= 1
    log.write_bytes(data)
    (tmp_path / "folder" / "notes.txt").write_text("of no format")
    return tmp_path / "folder"


def test_a_report_has_each_dataset_with_its_verdict_and_its_views(run: Run, folder: Path) -> None:
    result = run("report", folder, "--json")
    assert result.code == 1
    document = json.loads(result.out)
    parts = {Path(part["path"]).name: part for part in document["parts"]}
    assert parts["shop <b>"]["verdict"] == "damaged"
    assert parts["http_127.0.0.1_8123.indexeddb.leveldb"]["views"] == {"rows": 269, "indexed_db": 269}
    assert "notes.txt" in {Path(skipped["path"]).name for skipped in document["skipped"]}
    listed = json.loads(run("ls", folder, "--json").out)
    assert {part["path"] for part in document["parts"]} == {part["path"] for part in listed["parts"] if part["format"]}


def test_hashes_are_those_of_all_files_that_a_read_opens(run: Run, folder: Path) -> None:
    document = json.loads(run("report", folder, "--json").out)
    for part in document["parts"]:
        for file in part["hashes"]:
            data = Path(file["path"]).read_bytes()
            assert (file["size"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
            assert file["modified"][-6] in "+-"
            assert file["path"].startswith(f"{part['path']}/"), "parts are examined at a time, and do not mix"
    hashed = {file["path"] for part in document["parts"] for file in part["hashes"]}
    traced = subprocess.run(
        [sys.executable, "-c", TRACED, str(folder)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    read = {path for path in traced if Path(path).is_file()}
    assert len(read) > 10
    assert read <= hashed


TRACED = """
import sys
opened = set()
sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
import sawlog
from sawlog.dataset.folder import open_folder
from sawlog.dataset.timeline import MAX_DAYS, MAX_EVENTS, Timeline
folder = open_folder(sys.argv[1], on_damage="skip")
opened.clear()
for part in folder.parts:
    part.open().to_table()
print(*sorted(path for path in opened if path.startswith(sys.argv[1])), sep="\\n")
"""
"""The files that Python opens for a read, seen from outside."""


def test_the_page_takes_no_name_for_markup(run: Run, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("report", folder, "--output", page)
    assert result.code == 1
    text = page.read_text("utf-8")
    assert "shop &lt;b&gt;" in text
    assert "shop <b>" not in text
    assert "<script" not in text
    assert "checksum_mismatch" in text


def test_a_clean_log_ends_with_0(run: Run, tmp_path: Path) -> None:
    log = ROOT / "examples" / "data" / "shop" / "000003.log"
    assert run("report", log, "--output", tmp_path / "r.html").code == 0
    assert run("report", tmp_path / "missing", "--output", tmp_path / "r.html").code == 2


def test_a_file_that_changes_before_it_is_hashed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "000003.log"
    shutil.copy(ROOT / "examples" / "data" / "shop" / "000003.log", log)
    recorder = RecordingStorage()
    folder = open_folder(str(log), storage_options=recorder, on_damage="skip")
    report = Dataset.report

    def replaced(dataset: Dataset, *args: Any, **options: Any) -> Any:
        verify_report = report(dataset, *args, **options)
        other_path = tmp_path / "other"
        other_path.write_bytes(log.read_bytes()[::-1])
        other_path.replace(log)
        return verify_report

    monkeypatch.setattr(Dataset, "report", replaced)
    with pytest.raises(sawlog.ChangedError):
        examine(folder, [str(log)], recorder)


DAY = 86_400_000


def test_a_timeline_has_the_times_of_all_datasets_in_order(run: Run, folder: Path, tmp_path: Path) -> None:
    counts = range(0, 3 * DAY, DAY // 100)
    sent = pa.array([None if count == DAY else count for count in counts], pa.timestamp("ms", "UTC"))
    columns = {"When": pa.array(counts, pa.timestamp("ms", "UTC")), "Sym": [f"<s{count}" for count in counts]}
    place = folder / "tree" / "Intraday" / "N" / "T" / "w" / "2024-05-06" / "T"
    sawlog.write(pa.table({**columns, "Sent": sent}), place, format="deephaven_table")
    page = tmp_path / "report.html"
    assert run("report", folder, "--output", page).code == 1
    timeline = json.loads(run("report", folder, "--json").out)["timeline"]
    storage = str(folder / "Default" / "Local Storage" / "leveldb")
    events = timeline["events"]
    assert [event["time"][:22] for event in events] == sorted(event["time"][:22] for event in events)
    (table,) = {event["part"] for event in events} - {storage}
    assert table.startswith(str(folder / "tree"))
    newest = [event for event in events if event["part"] == table]
    assert len(newest) == timeline["newest_of_each_part"] == MAX_EVENTS
    assert {event["column"] for event in newest} == {"When", "Sent"}
    assert newest[-1] | {"column": ""} == {
        "time": "1970-01-03T23:45:36.000000000Z",
        "zone": "UTC",
        "part": table,
        "view": "rows",
        "column": "",
        "label": f"Sym=<s{counts[-1]}, Date=2024-05-06",
    }
    days = [(day["day"], day["column"], day["count"]) for day in timeline["days"] if day["part"] == table]
    missing = {("1970-01-02", "Sent"): 1}
    all_days = ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert sorted(days) == [
        (day, name, 100 - missing.get((day, name), 0)) for day in all_days for name in ("Sent", "When")
    ]
    text = page.read_text("utf-8")
    assert "Newest 100 of each part" in text
    assert f"&lt;s{counts[-1]}" in text


def test_a_timeline_is_bounded_and_takes_every_time() -> None:
    class Rows:
        def __init__(self, table: pa.Table) -> None:
            self.schema, self._table = table.schema, table

        def to_batches(self, columns: list[str]) -> list[pa.RecordBatch]:
            return list(self._table.select(columns).to_batches(max_chunksize=500))

    timeline = Timeline("part")
    hours = pa.array(range(0, 2 * MAX_DAYS * 86_400, 3600), pa.timestamp("s"))
    assert timeline.read(Rows(pa.table({"hour": hours})), "first") == len(hours)  # type: ignore[arg-type]
    assert timeline.read(Rows(pa.table({"key": [b"a"]})), "raw") is None  # type: ignore[arg-type]
    none = pa.array([None], pa.timestamp("us"))
    assert timeline.read(Rows(pa.table({"never": none})), "empty") == 1  # type: ignore[arg-type]
    first, *days = timeline.days
    assert (first.count, {day.count for day in days}, len(days)) == (24 * MAX_DAYS, {24}, MAX_DAYS)
    assert first.day == f"before {days[0].day}"
    far = pa.array([2**62, -(2**62), None], pa.timestamp("s", "UTC"))
    assert timeline.read(Rows(pa.table({"far": far, "key": [b"\xff" * 99, b"", b""]})), "far") == 3  # type: ignore[arg-type]
    assert sum(day.count for day in timeline.days) == len(hours) + 2
    assert len(timeline.events) == MAX_EVENTS
    last = timeline.events[-1]
    assert (last.time, len(last.label)) == (f"<value out of range: {2**62}>", len("key=") + 80 + 1)


def test_a_time_that_is_out_of_range_is_text_on_the_page(run: Run, tmp_path: Path) -> None:
    rows = {
        "timestamp": pa.array([2**61], pa.timestamp("ms", "UTC")),
        "value": [1.0],
        "_metric_": ["m"],
        "tags": pa.array([[("_ws_", "demo")]], pa.map_(pa.string(), pa.string())),
    }
    path, page = tmp_path / "g.container", tmp_path / "report.html"
    sawlog.write(pa.table(rows), path, format="filodb_record", table="gauge", container_timestamp=0)
    assert run("report", path, "--output", page).code == 0
    assert f"<td>&lt;value out of range: {2**61}&gt;</td>" in page.read_text("utf-8")
