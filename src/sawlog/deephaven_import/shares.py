"""Filling one location: the rows of a share, and the position record that is published with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.deephaven_import.records import RECORD_NAME
from sawlog.deephaven_import.schema import conform
from sawlog.deephaven_import.unstorable import UNSTORABLE_NAME, Mender, OnUnstorable
from sawlog.deephaven_table.writer import LocationWriter
from sawlog.errors import SchemaError
from sawlog.format import PROVENANCE
from sawlog.scan import Projection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sawlog.deephaven_import.plan import Share
    from sawlog.deephaven_log.fragments import RowRange
    from sawlog.storage import Staged, Storage


@dataclass(frozen=True, slots=True)
class Filled:
    """A location that is complete, and not published.

    Attributes:
        staged: Where it is, and where it will be.
        rows: Its rows.
        skipped: What damage left out of it, a sentence each.
        unstorable: Values that it could not hold.
    """

    staged: Sequence[Staged]
    rows: int
    skipped: tuple[str, ...]
    unstorable: int = 0


@dataclass(frozen=True)
class Filler:
    """Fills locations of one table. Picklable.

    Attributes:
        schema: The columns that every location has.
        options: The options for writing column files.
        storage: Where the tree is.
        on_unstorable: What becomes of values that column files cannot hold.
    """

    schema: pa.Schema
    options: Any
    storage: Storage
    on_unstorable: OnUnstorable = "error"

    def __call__(self, item: tuple[Share, str]) -> Filled:
        """Decode the ranges of a share, and stage its location, which will be at a path.

        Raises:
            DamageError: Where a log is damaged, when that is the policy.
            SchemaError: For a value that column files cannot hold, when that is the policy.
        """
        share, path = item
        try:
            return self._fill(share, path)
        except SchemaError:
            if self.on_unstorable == "error":
                raise
            return self._fill(share, path, mending=True)

    def _fill(self, share: Share, path: str, *, mending: bool = False) -> Filled:
        writer = LocationWriter(path, self.schema, self.options, self.storage)
        mender = Mender(self.schema, writer.specs, self.on_unstorable) if mending else None
        rows = 0
        skipped: list[str] = []
        try:
            for fragment in share.fragments:
                findings = Findings(fragment.scan.on_damage)
                read = fragment if mender is None else _with_provenance(fragment)
                for batch in read.to_batches(findings):
                    writer.write(conform(batch, self.schema) if mender is None else mender.mend(batch))
                    rows += batch.num_rows
                skipped += findings.remarks(fragment.path)
            writer.add_file(RECORD_NAME, replace(share.record, rows=rows).to_json())
            if mender is not None:
                writer.add_file(UNSTORABLE_NAME, mender.listing())
            return Filled(writer.finish(), rows, tuple(skipped), mender.count if mender is not None else 0)
        except BaseException:
            writer.abort()
            raise


def _with_provenance(fragment: RowRange) -> RowRange:
    """The fragment with the columns that say where a row comes from."""
    schema = pa.schema([*fragment.projection.schema, *PROVENANCE])
    return replace(fragment, projection=Projection(schema, schema))
