"""Which rows become which location, and what the position records say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.deephaven.ingest.records import ImportedRange, Partition, PositionRecord, Progress
from sawlog.errors import DamageError, FormatError, SawlogError

from .support import Logs, batch, logs, plan, read_numbers

__all__ = ["logs"]


def test_rows_in_order_of_the_logs(logs: Logs) -> None:
    logs.write(0, 100)
    logs.write(100, 200)
    (split,) = plan(logs, Progress()).splits
    assert read_numbers(split) == list(range(200))
    assert (split.record.sequence, split.record.truncates, len(split.record.logs)) == (0, False, 2)


def test_nothing_new_nothing_planned(logs: Logs) -> None:
    logs.write(0, 100)
    (split,) = plan(logs, Progress()).splits
    assert plan(logs, Progress.of([split.record])).splits == ()


def test_only_what_is_new(logs: Logs) -> None:
    logs.write(0, 100)
    (first,) = plan(logs, Progress()).splits
    logs.write(100, 200)
    (second,) = plan(logs, Progress.of([first.record])).splits
    assert read_numbers(second) == list(range(100, 200))
    assert (first.record.sequence, second.record.sequence) == (0, 1)


def test_a_location_has_about_the_bytes_that_are_asked_for(logs: Logs) -> None:
    for start in range(0, 3000, 500):
        logs.write(start, start + 500)
    splits = plan(logs, Progress(), 8000).splits
    assert [number for split in splits for number in read_numbers(split)] == list(range(3000))
    assert [split.record.sequence for split in splits] == list(range(len(splits)))
    sizes = [sum(fragment.size for fragment in split.fragments) for split in splits]
    assert len(sizes) > 10
    assert max(sizes) < 8200


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=4), st.integers(500, 20_000), st.integers(0, 10))
@pytest.mark.nightly
def test_restarts_at_any_location_and_with_other_sizes(sizes: list[int], location_bytes: int, count: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        logs = Logs(Path(directory) / "logs")
        total = 0
        for index, size in enumerate(sizes):
            with logs.begin() as logger:
                logger.write(batch(total, total + size))
                if index == 1:
                    logger.delete_partition()
                    logger.transaction(batch(total + size, total + size + 50))
            total += size + 50 * (index == 1)
        live = sum(sizes[:2]) if len(sizes) > 1 else 0
        splits = plan(logs, Progress(), location_bytes).splits
        assert [n for split in splits for n in read_numbers(split)] == list(range(live, total))
        published = [split.record for split in splits[:count]]
        assert [PositionRecord.from_json(record.to_json(), "here") for record in published] == published
        later_splits = plan(logs, Progress.of(published), location_bytes // 2).splits
        before = [n for split in splits[:count] for n in read_numbers(split)]
        assert before + [n for split in later_splits for n in read_numbers(split)] == list(range(live, total))
        assert not any(split.record.truncates for split in later_splits if published)


def test_a_deleted_partition_knows_what_its_past_knew(logs: Logs) -> None:
    logs.write(0, 100)
    first = [split.record for split in plan(logs, Progress()).splits]
    with logs.begin() as logger:
        logger.write(batch(100, 200))
        logger.delete_partition()
        logger.write(batch(200, 210))
    (split,) = plan(logs, Progress.of(first)).splits
    assert read_numbers(split) == list(range(200, 210))
    assert (split.record.truncates, split.record.sequence) == (True, 1)
    # The void location and its record are gone: nothing of the first log comes back.
    assert plan(logs, Progress.of([split.record])).splits == ()
    # Its deletion was under way, and nothing else: all is planned again.
    (again,) = plan(logs, Progress()).splits
    assert read_numbers(again) == list(range(200, 210))


def test_a_late_log_before_a_deletion_is_void(logs: Logs) -> None:
    early = logs.write(0, 100)
    hidden = early.rename(early.with_name(".hidden"))
    with logs.begin() as logger:
        logger.delete_partition()
        logger.write(batch(200, 210))
    records = [split.record for split in plan(logs, Progress()).splits]
    hidden.rename(early)
    assert plan(logs, Progress.of(records)).splits == ()


def test_a_late_log_is_imported_and_told(logs: Logs) -> None:
    early = logs.write(0, 100)
    hidden = early.rename(early.with_name(".hidden"))
    logs.write(100, 200)
    records = [split.record for split in plan(logs, Progress()).splits]
    hidden.rename(early)
    import_plan = plan(logs, Progress.of(records))
    assert [read_numbers(split) for split in import_plan.splits] == [list(range(100))]
    assert "came after later logs" in import_plan.remarks[0]


def test_what_is_being_written_waits(logs: Logs) -> None:
    path = logs.write(0, 100)
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    import_plan = plan(logs, Progress())
    assert read_numbers(import_plan.splits[0]) == list(range(99))
    assert "wait for their end" in import_plan.remarks[0]
    path.write_bytes(data)
    (last_split,) = plan(logs, Progress.of([import_plan.splits[0].record])).splits
    assert read_numbers(last_split) == [99]


def test_a_log_without_its_header_is_left_out_and_told(logs: Logs) -> None:
    path = logs.write(0, 100)
    data = bytearray(path.read_bytes())
    data[20] = 0xFF
    path.write_bytes(data)
    logs.write(100, 200)
    with pytest.raises(FormatError):
        plan(logs, Progress())
    import_plan = plan(logs, Progress(), on_damage="skip")
    assert [read_numbers(split) for split in import_plan.splits] == [list(range(100, 200))]
    assert str(path) in import_plan.skipped[0]
    # One that is only begun waits.
    path.write_bytes(data[:30])
    assert plan(logs, Progress()).skipped == ()


def test_damage_at_the_end_waits_while_a_log_grows(logs: Logs) -> None:
    path = logs.write(0, 100)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert read_numbers(plan(logs, Progress()).splits[0]) == list(range(99))
    logs.write(100, 200)
    with pytest.raises(DamageError):
        read_numbers(plan(logs, Progress()).splits[0])


@pytest.mark.parametrize("change", ["shrunk", "replaced"])
def test_another_log_under_the_same_name(logs: Logs, change: str) -> None:
    path = logs.write(0, 100)
    records = [split.record for split in plan(logs, Progress()).splits]
    data = path.read_bytes()
    path.write_bytes(data[:200] if change == "shrunk" else data[:-1] + b"\0" + data[100:])
    with pytest.raises(
        SawlogError, match="cut or replaced" if change == "shrunk" else "taken this one's name"
    ) as error:
        plan(logs, Progress.of(records))
    assert str(path) in str(error.value)
    path.unlink()
    logs.write(100, 200)
    assert plan(logs, Progress.of(records)).splits


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1}',
        b"\xff",
        b"[" * 100_000,
        b'{"version": 1, "partition": {"namespace": "N"}, "logs": {}, "rows": 1, "sequence": 0}',
    ],
)
def test_records_of_others(data: bytes) -> None:
    with pytest.raises(FormatError, match="here"):
        PositionRecord.from_json(data, "here")


@pytest.mark.parametrize("field", ["sequence", "rows", "end", "partition", "truncates", "truncated_in"])
def test_records_that_lie(field: str) -> None:
    record = PositionRecord(Partition("N", "T", "i", "c"), 3, 4, True, "log", {"log": ImportedRange(1, 5, "00000000")})
    text = record.to_json().decode()
    wrong = {
        "sequence": ('"sequence": 3', '"sequence": -3'),
        "rows": ('"rows": 4', '"rows": "4"'),
        "end": ('"end": 5', '"end": 5.5'),
        "partition": ('"internal_partition": "i"', '"internal_partition": 7'),
        "truncates": ('"truncates": true', '"truncates": 1'),
        "truncated_in": ('"truncated_in": "log"', '"truncated_in": 9'),
    }[field]
    assert PositionRecord.from_json(text.encode(), "here") == record
    assert wrong[0] in text
    with pytest.raises(FormatError, match="here: not a position record"):
        PositionRecord.from_json(text.replace(*wrong).encode(), "here")
