"""`sawlog import` and `sawlog merge`: thin over `sawlog.spark`, in the session that is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sawlog
from sawlog.cli import main
from sawlog.guard import install
from tests.deephaven_import.support import DATE, Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_import_and_merge(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, db = Logs(tmp_path / "logs"), tmp_path / "db"
    path = logs.write(0, 1000)
    assert main(["import", str(logs.directory), str(db)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1,000 rows imported into 1 partition",
        f"written   {db}/Intraday/Ns/T/vm1/{DATE}/T",
    ]
    with path.open("ab") as file:
        file.write(b"\0\0\0\x20\x03half of an entry")
    assert main(["import", str(logs.directory), str(db), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rows"] == 0
    assert captured.err.splitlines()[-1].endswith("wait for their end")
    arguments = ["merge", str(db), "Ns", "T", DATE]
    assert main([*arguments, "--group", "Sym"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1,000 rows of Ns.T {DATE} merged and checked"
    assert lines[2:] == [f"written   {db}/Systems/Ns/Partitions/0/{DATE}/T", "grouped   Sym"]
    assert main([*arguments, "--delete-intraday", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["written"], document["deleted"]) == (1000, False, True)
    assert main(arguments) == 2
    assert "there are no rows of 2024-01-01 to merge" in capsys.readouterr().err
    assert spark.range(3).count() == 3, "the session that was there goes on"


def test_an_import_fails_at_damage_or_skips_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, db = Logs(tmp_path / "logs"), tmp_path / "db"
    path = logs.write(0, 1000)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert main(["import", str(logs.directory), str(db)]) == 1
    assert "--on-damage skip" in capsys.readouterr().err
    assert main(["import", str(logs.directory), str(db), "--on-damage", "skip"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("999 rows imported")
    assert "damaged bytes" in captured.err


@pytest.mark.nightly
def test_dates_that_are_over_are_merged_every_night(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dates that are over, of all tables; one that cannot be merged does not keep the others."""
    logs, db = Logs(tmp_path / "logs"), tmp_path / "db"
    logs.write(0, 100)
    logs.write(0, 10, column="2024-01-02")
    logs.write(0, 10, column="2024-01-03")
    logs.write(0, 5, table="U")
    assert main(["import", str(logs.directory), str(db)]) == 0
    (db / "Intraday/Ns/U/vm1" / DATE / "U/table.schema").unlink()
    capsys.readouterr()
    assert main(["merge", str(db), "--nightly", "--before", "2024-01-03", "--json"]) == 1
    dates = json.loads(capsys.readouterr().out)["dates"]
    assert [(date["table"], date["date"], date["merge"] and date["merge"]["rows"]) for date in dates] == [
        ("T", DATE, 100),
        ("T", "2024-01-02", 10),
        ("U", DATE, None),
    ]
    assert "its type is unknown" in dates[2]["error"]
    assert {row["Date"] for row in sawlog.read(db / "Intraday/Ns/T").to_pylist()} == {"2024-01-03"}
    assert sawlog.read(db / "Systems").num_rows == 110
    assert main(["merge", str(db), "--nightly", "--before", "tomorrow"]) == 2
    assert main(["merge", str(db), "Ns"]) == 2
    logs.write(100, 110)
    capsys.readouterr()
    assert main(["import-status", str(logs.directory), str(db), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    lags = {Path(log["log"]).name.split(".")[1] + log["partition"]["column_partition"]: log for log in document["logs"]}
    assert [log["lag"] == log["size"] for log in document["logs"] if log["taken"] == 0] == [True]
    assert sum(log["lag"] > 0 for log in document["logs"]) == 1
    assert document["lag"] == lags[f"T{DATE}"]["lag"]
    assert lags["T2024-01-03"]["rows"] == 10


def test_import_goes_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, db = Logs(tmp_path / "logs"), tmp_path / "db"
    logs.directory.mkdir()
    rounds = iter([lambda: logs.write(0, 10), lambda: logs.write(10, 30), lambda: None])

    def sleep(seconds: float) -> None:
        assert 0 <= seconds <= 0.5
        for following in rounds:
            following()
            return
        raise KeyboardInterrupt

    monkeypatch.setattr("sawlog.deephaven.ingest.spark.follow.sleep", sleep)
    main(["import", str(logs.directory), str(db), "--follow", "0.5", "--json"])
    captured = capsys.readouterr()
    assert re.findall(r'"rows": (\d+)', captured.out) == ["10", "20"]
    looks = [json.loads(line) for line in re.sub(r"\n(?!\{)", "", captured.out).splitlines()]
    assert [sorted(look["lag"].values()) for look in looks] == [[], []]
    assert sum(look["bytes"] for look in looks) < sum(path.stat().st_size for path in logs.directory.iterdir())
    assert all(look["seconds"] > 0 for look in looks)
    assert "no binary log" in captured.err
    assert sawlog.read(db / "Intraday").column("N").to_pylist() == list(range(30))


@pytest.mark.parametrize("arguments", [["import", "logs", "db"], ["merge", "db", "Ns", "T", DATE]])
def test_commands_without_pyspark_say_what_is_missing(arguments: list[str]) -> None:
    script = "import sys; sys.modules['pyspark'] = None; from sawlog.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    missing = f"sawlog {arguments[0]} runs on PySpark, which is missing: {install('spark')}"
    assert missing in done.stderr
