"""What this version does not support has a line and an exit code of its own; it is not damage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.cli import main
from sawlog.errors import UnsupportedError
from sawlog.format.damage import UNSUPPORTED, Damage, DamageWarning, Findings
from sawlog.leveldb.log.walk import LogRange
from tests.support import write_records


@pytest.fixture
def unsupported_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose last 100 bytes are of a kind that is not supported."""
    path = tmp_path / "1.log"
    write_records(path, [b"x" * 200])
    decode = LogRange.decode

    def partly(self: LogRange, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        yield from decode(self, schema, findings)
        findings.account.record -= 100
        findings.add_damage(Damage(self.path, self.end - 100, 100, UNSUPPORTED, "expected codec 1, found 77"))

    monkeypatch.setattr(LogRange, "decode", partly)
    return path


def test_verify_says_so(unsupported_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(unsupported_log)]) == 4
    output = capsys.readouterr().out
    assert output.startswith("unsupported ")
    assert "0 clean, 0 damaged, 1 unsupported" in output
    assert "100 bytes unsupported" in output
    assert "expected codec 1, found 77" in output
    assert main(["verify", str(unsupported_log), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["damaged"], document["unsupported"], document["bytes"]["unsupported"]) == (False, True, 100)


def test_reading_stops_or_goes_on(unsupported_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match="expected codec 1, found 77"):
        sawlog.read(unsupported_log)
    with pytest.warns(DamageWarning, match="100 bytes in 1 ranges that this version"):
        assert sawlog.read(unsupported_log, on_damage="skip").num_rows == 1
    assert main(["cat", str(unsupported_log), "--on-damage", "fail"]) == 4
    assert "found 77" in capsys.readouterr().err
    assert main(["cat", str(unsupported_log)]) == 4
    captured = capsys.readouterr()
    assert "x" * 200 in captured.out
    assert "100 bytes in 1 ranges that this version" in captured.err
    (row,) = sawlog.read(unsupported_log, view="damage").to_pylist()
    assert (row["kind"], row["length"]) == (UNSUPPORTED, 100)


def test_a_listing_does_not_call_it_clean(unsupported_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(unsupported_log.parent)]) == 0
    assert "1 row, in part unsupported" in capsys.readouterr().out
