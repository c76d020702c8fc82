"""`sawlog import`: Deephaven's logs to an intraday tree."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Output

if TYPE_CHECKING:
    from sawlog.spark.deephaven import Import


@dataclass(slots=True)
class Imported:
    """The outcome of `sawlog import`."""

    source: str
    root: str
    outcome: Import

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"source": self.source, "root": self.root, **asdict(self.outcome)}


def load(
    src: Annotated[str, typer.Argument(metavar="SRC", help="Directory of logs, a log, a glob or fsspec URL.")],
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Root of the tree; the rows go to ROOT/Intraday.")],
    schema: arguments.SchemaFile = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only logs of this namespace.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only logs of this table.")] = None,
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="fail: stop a partition in front of damage. skip: import everything intact."),
    ] = arguments.OnDamage.FAIL,
    option: arguments.ReadOptions = None,
    write_option: arguments.WriteOptions = None,
    storage: arguments.StorageOptions = None,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Import what Deephaven's binary logs have got since the last time, each row once.

    Can be killed and run again at any time. Exit code 1 if damage stopped it, 3 if damage was skipped.
    """
    given = {"schema": schema, "namespace": namespace, "table": table}
    options = {**arguments.format_options(option), **{name: one for name, one in given.items() if one is not None}}
    from sawlog.spark.session import QUIET, session

    with session("sawlog import", {**QUIET, **arguments.key_values(conf, "--conf")}) as spark:
        from sawlog.spark.deephaven import import_logs

        outcome = import_logs(
            spark,
            src,
            root,
            on_damage=on_damage,
            write_options=arguments.format_options(write_option, "-O"),
            storage_options=arguments.storage_options(storage),
            **options,
        )
    Output.of(json).imported(Imported(src, root, outcome))
    for remark in (*outcome.skipped, *outcome.remarks):
        complain(remark)
    return Exit.LOST if outcome.skipped else Exit.OK
