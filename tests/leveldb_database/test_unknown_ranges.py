"""Range deletions whose reach is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog.errors import UnsupportedError
from sawlog.format.damage import DamageWarning, Verdict
from tests.leveldb_database.support import rename_comparator


@pytest.mark.parametrize("view", ["live", "all"])
def test_range_deletions_in_an_order_that_is_not_known_are_unsupported(view: str, tmp_path: Path) -> None:
    """Entries that are newer than they are cannot be deleted by them, and are read."""
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(tmp_path), options)
    for key in b"abcd":
        database[bytes([key])] = b"old"
    database.delete_range(b"b", b"c")
    database[b"b"] = b"new"
    database.flush()
    database.close()
    rename_comparator(tmp_path, "leveldb.BytewiseComparator", "leveldb.BytewiseComparatoX")
    settings = {"format": "leveldb_database", "view": view}
    with pytest.raises(UnsupportedError, match="range deletions in an order"):
        sawlog.read(tmp_path, **settings)
    with pytest.warns(DamageWarning, match="does not support"):
        rows = sawlog.read(tmp_path, on_damage="skip", **settings).to_pylist()
    assert [(row["key"], row["value"]) for row in rows if row.get("live", True)] == [(b"b", b"new")]
    assert len(rows) == (1 if view == "live" else 5)  # the flush has left out what was deleted
    assert sawlog.verify(tmp_path, format="leveldb_database").verdict is Verdict.UNSUPPORTED
