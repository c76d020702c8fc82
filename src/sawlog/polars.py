"""Lazy frames of Polars over logs, which decode no more than the columns and rows that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sawlog import api
from sawlog.dataset.dataset import Dataset, Scanner
from sawlog.errors import SawlogError
from sawlog.guard import install
from sawlog.storage.inputs import Input

if TYPE_CHECKING:
    import polars as pl


def scan(source: Input | Dataset, **options: Any) -> pl.LazyFrame:
    """Return a lazy frame over what `sawlog.open` opens: only what a query needs is decoded, no rows past its limit.

    Args:
        source: A dataset, or what `sawlog.open` takes.
        **options: What `sawlog.open` takes besides.

    Raises:
        SawlogError: When Polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise SawlogError(f"lazy frames need Polars: {install('notebook')}") from error
    dataset = source if isinstance(source, Dataset) else api.open(source, **options)

    def read_frames(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        projected = dataset.with_projection(columns)
        if limit is not None:
            projected = replace(projected, scan=replace(projected.scan, threads=1))  # nothing is read ahead
        remaining = limit
        for batch in Scanner(projected, batch_size).to_batches():
            if remaining is not None and remaining <= 0:
                return
            frame = pl.DataFrame(pl.from_arrow(batch))
            frame = frame if remaining is None else frame.head(remaining)
            remaining = None if remaining is None else remaining - frame.height
            yield frame if predicate is None else frame.filter(predicate)

    empty = pl.DataFrame(pl.from_arrow(dataset.schema.empty_table()))
    return register_io_source(read_frames, schema=empty.schema)
