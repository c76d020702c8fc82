"""What type checkers say to those who use sawlog."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import sawlog


@pytest.mark.nightly  # `make types` sees what the tests name
def test_public_names_are_known_and_no_others(tmp_path: Path) -> None:
    lines = [*(f"sawlog.{name}" for name in sawlog.__all__), "sawlog.deephaven.log.Logger", "sawlog.polars.scan"]
    wrong = ["sawlog.raed", "sawlog.deephaven.log.Loger", "sawlog.filodb.RecordBuildr"]
    script = tmp_path / "script.py"
    script.write_text("import sawlog\n" + "\n".join([*lines, *wrong]) + "\n")
    report_text, _, _ = api.run(["--follow-imports=silent", "--cache-dir", str(tmp_path), str(script)])
    lines_reported = [
        line.partition(f"{script.name}:")[2].split(":")[0] for line in report_text.splitlines() if ": error:" in line
    ]
    assert lines_reported == [str(number) for number in range(len(lines) + 2, len(lines) + len(wrong) + 2)], report_text
