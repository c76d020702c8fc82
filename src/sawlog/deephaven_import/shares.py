"""Filling one location: the rows of a share, and the position record that is published with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sawlog.damage import Findings
from sawlog.deephaven_import.records import RECORD_NAME
from sawlog.deephaven_import.schema import conform
from sawlog.deephaven_table.writer import LocationWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sawlog.deephaven_import.plan import Share
    from sawlog.storage import Staged, Storage


@dataclass(frozen=True, slots=True)
class Filled:
    """A location that is complete, and not published.

    Attributes:
        staged: Where it is, and where it will be.
        rows: Its rows.
        skipped: What damage left out of it, a sentence each.
    """

    staged: Sequence[Staged]
    rows: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Filler:
    """Fills locations of one table. Picklable.

    Attributes:
        schema: The columns that every location has.
        options: The options for writing column files.
        storage: Where the tree is.
    """

    schema: pa.Schema
    options: Any
    storage: Storage

    def __call__(self, item: tuple[Share, str]) -> Filled:
        """Decode the ranges of a share, and stage its location, which will be at a path.

        Raises:
            DamageError: Where a log is damaged, when that is the policy.
            SchemaError: For a value that column files cannot hold.
        """
        share, path = item
        writer = LocationWriter(path, self.schema, self.options, self.storage)
        rows = 0
        skipped: list[str] = []
        try:
            for fragment in share.fragments:
                findings = Findings(fragment.scan.on_damage)
                for batch in fragment.to_batches(findings):
                    writer.write(conform(batch, self.schema))
                    rows += batch.num_rows
                skipped += findings.remarks(fragment.path)
            writer.add_file(RECORD_NAME, replace(share.record, rows=rows).to_json())
            return Filled(writer.finish(), rows, tuple(skipped))
        except BaseException:
            writer.abort()
            raise
