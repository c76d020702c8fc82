"""`merge` on Spark: the same tests as in threads, as many as show that Spark does the same work."""

from __future__ import annotations

from tests.deephaven_import.support import db, logs
from tests.deephaven_import.test_trees import (
    imported,
    test_a_failed_proof_takes_everything_back,
    test_deletions_carry_over,
    test_every_type_to_the_nanosecond,
    test_sorted_grouped_and_spread,
    test_without_groups_rows_stay_in_order,
)

__all__ = [
    "db",
    "imported",
    "logs",
    "test_a_failed_proof_takes_everything_back",
    "test_deletions_carry_over",
    "test_every_type_to_the_nanosecond",
    "test_sorted_grouped_and_spread",
    "test_without_groups_rows_stay_in_order",
]
