"""A file or directory of every format, of several batches and windows each."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sawlog
from sawlog.testing import Laws

ROWS = 150_000
MANY = 1_500_000
"""Rows of column files: of a few bytes each, and as many as make several batches."""
ALL = {"deephaven_table": MANY, "filodb_record": 3 * ROWS}


def big_tables() -> dict[str, tuple[pa.Table, dict[str, object]]]:
    """Per format a table of several batches, and options to write it with."""
    numbers = pa.array(np.arange(ROWS))
    texts = pc.utf8_lpad(numbers.cast(pa.string()), 90, "x")
    keys = pc.utf8_lpad(numbers.cast(pa.string()), 90, "0").cast(pa.binary())
    labels = pa.array([[("_ws_", "demo"), ("_ns_", "app")]], pa.map_(pa.string(), pa.string()))
    count = np.arange(3 * ROWS)  # of which more than a window has to be read
    gauges = pa.table(
        {
            "timestamp": pa.array(count).cast(pa.timestamp("ms", "UTC")),
            "value": count * 0.5,
            "_metric_": pa.repeat(pa.scalar("heap"), len(count)),
            "tags": labels.take(pa.array(np.zeros(len(count), np.int64))),
        }
    )
    dice = np.random.default_rng(1)  # whose numbers no codec makes small
    noise = dice.standard_normal(ROWS * 16, np.float32)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(90), ROWS, [None, pa.py_buffer(dice.bytes(90 * ROWS))])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(noise), 16)
    return {
        "leveldb_log": (pa.table({"record": texts.cast(pa.binary())}), {}),
        "deephaven_log": (pa.table({"i": numbers, "s": texts}), {}),
        "deephaven_table": (pa.table({"i": np.arange(MANY), "x": np.arange(MANY) * 0.5}), {}),
        "leveldb_table": (pa.table({"key": keys, "value": values.cast(pa.binary())}), {}),
        "filodb_record": (gauges, {"table": "gauge", "container_timestamp": 0}),
        "milvus_binlog": (
            in_chunks(pa.table({"pk": numbers, "vec": vectors})),
            {"timestamp": 1 << 40, "segment_bytes": 3 << 20},
        ),
    }


def in_chunks(table: pa.Table) -> pa.Table:
    """A table that a writer takes in several batches, so that it may make several segments."""
    return pa.Table.from_batches(table.to_batches(max_chunksize=ROWS // 3))


FORMATS = ("leveldb_log", "leveldb_table", "deephaven_log", "deephaven_table", "filodb_record", "milvus_binlog")


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sample_paths(tmp_path_factory.getbasetemp() / "samples")


@cache
def sample_paths(root: Path) -> dict[str, Path]:
    """The samples, written once for all test modules."""
    root.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (table, options) in big_tables().items():
            sawlog.write(table, root / name, format=name, **options)
    return {name: root / name for name in FORMATS}


def law_samples() -> list[Any]:
    """All samples of the laws, as parameters of a test."""
    modules = ("leveldb_log", "leveldb_table", "leveldb_database", "deephaven_log", "deephaven_table", "filodb_record")
    samples_by_key = {}
    for name in (*modules, "milvus_binlog"):
        module = importlib.import_module(f"tests.{name}.test_laws")
        for laws in vars(module).values():
            if isinstance(laws, type) and laws.__name__.startswith("Test") and issubclass(laws, Laws):
                with contextlib.suppress(pytest.skip.Exception):  # where what writes its samples is not there
                    samples_by_key |= {(name, sample.view, sample.name): sample for sample in laws.samples()}
    return [pytest.param(sample, id="-".join(key)) for key, sample in samples_by_key.items()]
