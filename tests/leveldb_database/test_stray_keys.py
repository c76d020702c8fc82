"""A table that holds keys which its MANIFEST does not know of, below a valid checksum: none of them is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.damage import Findings

DATABASE = Path(__file__).parent / "stray_keys"


@pytest.mark.parametrize("size", [1, 200])
def test_every_part_of_a_table_is_read_once(size: int) -> None:
    """The key '\"' stands in a table that begins with 'a', as the MANIFEST has it; the first range ends below 'a'."""
    dataset = sawlog.open(DATABASE, format="leveldb_database", view="all", on_damage="skip")

    def entries(fragments: list[sawlog.format.Fragment]) -> Counter[str]:
        found = Findings("skip", drained=True)
        batches = [batch for one in fragments for batch in one.to_batches(found)]
        table = pa.Table.from_batches(batches, dataset.schema).drop_columns(["live"])
        return Counter(map(repr, table.to_pylist()))

    whole = entries(dataset.fragments(None))
    parts = dataset.fragments(size)
    assert entries(parts) == whole
    assert sum(whole.values()) == 12
    assert any("b'\"'" in entry for entry in whole)
