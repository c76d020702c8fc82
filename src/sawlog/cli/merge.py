"""`sawlog merge`: an intraday date of a Deephaven table to history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Output

if TYPE_CHECKING:
    from sawlog.spark.deephaven import Merge


@dataclass(slots=True)
class Merged:
    """The outcome of `sawlog merge`."""

    table: str
    date: str
    outcome: Merge

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"table": self.table, "date": self.date, **asdict(self.outcome)}


class NamespaceSet(StrEnum):
    """Which historical tree."""

    SYSTEM = "System"
    USER = "User"


def merge(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Root of the trees.")],
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE", help="Namespace of the table.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    date: Annotated[str, typer.Argument(metavar="DATE", help="Column partition, such as 2024-03-01.")],
    schema: arguments.SchemaFile = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="A,B", help="Grouping columns, not the schema's.", show_default=False),
    ] = None,
    sort: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="A,B", help="Sort the rows of a group further.", show_default=False),
    ] = None,
    internal_partitions: Annotated[
        int | None,
        typer.Option("--internal-partitions", min=1, help="Spread over so many; one per GiB if not given."),
    ] = None,
    namespace_set: Annotated[
        NamespaceSet, typer.Option("--namespace-set", help="History below ROOT/Systems or ROOT/Users.")
    ] = NamespaceSet.SYSTEM,
    append: Annotated[
        bool, typer.Option("--append", help="Add rows that came late to a date that was merged and deleted.")
    ] = False,
    delete_intraday: Annotated[
        bool, typer.Option("--delete-intraday", help="Delete the intraday rows once they are proven to be in history.")
    ] = False,
    option: arguments.ReadOptions = None,
    write_option: arguments.WriteOptions = None,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Merge an intraday date into history: sorted, grouped, and proven to hold the same rows.

    Can be killed and run again at any time; a date that is merged already is only proven again.
    """
    groups = arguments.column_names(group)
    from sawlog.spark.session import QUIET, session

    with session("sawlog merge", {**QUIET, **arguments.key_values(conf, "--conf")}) as spark:
        from sawlog.spark.deephaven import merge as run

        outcome = run(
            spark,
            root,
            namespace,
            table,
            date,
            schema=schema,
            group=groups,
            sort=arguments.column_names(sort) or (),
            internal_partitions=internal_partitions,
            namespace_set="User" if namespace_set is NamespaceSet.USER else "System",
            append=append,
            delete_intraday=delete_intraday,
            write_options=arguments.format_options(write_option, "-O"),
            **arguments.format_options(option),
        )
    Output.of(json).merged(Merged(f"{namespace}.{table}", date, outcome))
    for remark in outcome.remarks:
        complain(remark)
    return Exit.OK
