"""`sawlog validate`: whether the locations of a table are what they should be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Outcome, render_count, show

if TYPE_CHECKING:
    from sawlog.deephaven.table.validation import Expectations

Names = list[str] | None


@dataclass(frozen=True, slots=True)
class ExpectationOptions:
    """Options of `sawlog validate` that add to the expectations of a file."""

    min_rows: Annotated[int | None, typer.Option("--min-rows", min=0, help="Rows of a location, at least.")] = None
    max_rows: Annotated[int | None, typer.Option("--max-rows", min=0, help="Rows of a location, at most.")] = None
    no_nulls: Annotated[Names, typer.Option("--no-nulls", metavar="A,B", help="Columns without nulls.")] = None
    ascending: Annotated[Names, typer.Option("--sorted", metavar="A,B", help="Columns that ascend.")] = None
    ascending_in_groups: Annotated[
        Names, typer.Option("--sorted-in-groups", metavar="A,B", help="Columns that ascend within groups.")
    ] = None
    grouped: Annotated[Names, typer.Option("--grouped", metavar="A,B", help="Columns that have groups.")] = None

    def add_to(self, expected: Expectations) -> Expectations:
        """Return expectations with these among them."""
        limits = {"min_rows": self.min_rows, "max_rows": self.max_rows}
        counts: dict[str, Any] = {name: count for name, count in limits.items() if count is not None}
        expected = _expect_columns(replace(expected, **counts), self.no_nulls, max_nulls=0)
        expected = _expect_columns(expected, self.ascending, sorted="location")
        expected = _expect_columns(expected, self.ascending_in_groups, sorted="groups")
        return _expect_columns(expected, self.grouped, grouped=True)


def validate(
    tree: Annotated[str, typer.Argument(metavar="TREE", help="A tree or a location of column files.")],
    *,
    expect: Annotated[str | None, typer.Option("--expect", metavar="FILE", help="A TOML file of expectations.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="DATE", help="Only this column partition.")
    ] = None,
    expectations: ExpectationOptions,
    schema: arguments.SchemaFile = None,
    option: arguments.ReadOptions = None,
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Check the locations of a Deephaven table.

    Damage, rows, nulls, order and groups. Exit code 0 all as expected, 1 not, 2 unusable.
    """
    from sawlog.deephaven.table.validation import Expectations
    from sawlog.deephaven.table.validation import validate as run

    expected = expectations.add_to(Expectations.read(expect) if expect is not None else Expectations())
    options = {**({} if schema is None else {"schema": schema}), **arguments.parse_format_options(option, call=run)}
    validation = run(
        tree, expected, column_partition=partition, storage_options=arguments.parse_storage_options(storage), **options
    )
    facts = [(location.path, render_count(location.rows, "row")) for location in validation.locations]
    document = {
        "tree": tree,
        "valid": validation.valid,
        "rows": validation.rows,
        "locations": [asdict(location) for location in validation.locations],
    }
    summary = (
        f"in {render_count(len(validation.locations), 'location')}: {render_count(len(validation.problems), 'problem')}"
    )
    show(Outcome(document, render_count(validation.rows, "row"), summary, facts), json=json)
    for problem in validation.problems:
        complain(problem)
    return Exit.OK if validation.valid else Exit.DAMAGED


def _expect_columns(expected: Expectations, columns: list[str] | None, **changes: object) -> Expectations:
    for name in arguments.parse_column_names(columns) or ():
        expected = expected.expect(name, **changes)
    return expected
