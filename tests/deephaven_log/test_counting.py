"""Counts of many small logs: one walk serves them, and what is remarkable is found as by a walk of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.deephaven.log.walk import RowWalk
from sawlog.errors import SawlogError
from sawlog.format.contract import Fragment
from sawlog.format.damage import Findings

from .reference import Col, header, row
from .support import FLAGS, HEADER, make

PLAIN = make([3, 1, 0, 2, 3])
"""A log of five rows."""
CHANGES = st.one_of(
    st.just(lambda data: data),
    st.integers(1, 60).map(lambda cut: lambda data: data[:-cut]),
    st.integers(1, 60).map(lambda zeros: lambda data: data + bytes(zeros)),
    st.integers(0, 400).map(lambda place: lambda data: change(data, len(HEADER) + place)),
)


def change(data: bytes, place: int) -> bytes:
    return data[:place] + bytes(byte ^ 1 for byte in data[place : place + 1]) + data[place + 1 :]


def scanned(scan: Callable[[Findings], Findings], policy: str) -> object:
    """The findings, or the error."""
    try:
        return scan(Findings(policy))
    except SawlogError as error:
        return repr(error)


@given(st.lists(st.tuples(FLAGS, CHANGES), min_size=1, max_size=4), st.sampled_from(["fail", "skip"]), st.booleans())
def test_what_is_found_is_what_a_walk_finds(logs, policy, verify) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = [PLAIN, PLAIN, *(change(make(flags)) for flags, change in logs), PLAIN]
        for number, data in enumerate(written):
            (Path(folder) / f"{number}.bin").write_bytes(data)
        options = {"on_damage": policy, "verify_checksums": verify, "deletes": "ignore"}
        fragments = sawlog.open(folder, format="deephaven_log", **options).fragments()
        for fragment in fragments:
            by_walk = scanned(lambda findings: Fragment.scan_into(fragment, findings), policy)  # noqa: B023
            assert scanned(fragment.scan_into, policy) == by_walk


def test_a_walk_serves_all_of_many_small_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up: list[str] = []
    plain = RowWalk.__init__
    monkeypatch.setattr(
        RowWalk, "__init__", lambda walk, *args, **named: (set_up.append(""), plain(walk, *args, **named))[1]
    )
    for number in range(40):
        (tmp_path / f"{number}.bin").write_bytes(PLAIN)
    dataset = sawlog.open(tmp_path, format="deephaven_log", use_threads=False)
    assert dataset.count_rows() == dataset.to_table().num_rows == 200
    set_up.clear()
    assert dataset.count_rows() == 200
    assert len(set_up) <= 2


def test_values_that_have_to_be_looked_at_are(tmp_path: Path) -> None:
    good, bad = (row([Col("E", "Enum", table=("a", "b"))], {"E": index}) for index in (1, 7))
    head = header([Col("E", "Enum", table=("a", "b"))])
    for number, body in enumerate((good, good, bad, good)):
        (tmp_path / f"{number}.bin").write_bytes(head + body)
    reports = sawlog.verify(tmp_path, format="deephaven_log").files
    assert [report.damaged for report in reports] == [False, False, True, False]


def test_a_log_that_was_replaced_is_no_other_one(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(PLAIN)
    fragments = sawlog.open(tmp_path, format="deephaven_log").fragments()
    (tmp_path / "2.bin").write_bytes(PLAIN.replace(b"N", b"M"))
    assert [fragment.scan_into(Findings("fail")).rows for fragment in fragments[:2]] == [5, 5]
    with pytest.raises(SawlogError, match="the header is not the one"):
        fragments[2].scan_into(Findings("fail"))
