"""`sawlog import` and `sawlog merge`: Deephaven's logs to an intraday tree, and a date of it to history."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Outcome, Output, counted


class NamespaceSet(StrEnum):
    """Which historical tree."""

    SYSTEM = "System"
    USER = "User"


class Unstorable(StrEnum):
    """What becomes of values that column files cannot hold."""

    ERROR = "error"
    NULL = "null"
    REPLACE = "replace"


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
    on_unstorable: Annotated[
        Unstorable,
        typer.Option("--on-unstorable", help="What becomes of values that column files cannot hold."),
    ] = Unstorable.ERROR,
    option: arguments.ReadOptions = None,
    write_option: arguments.WriteOptions = None,
    storage: arguments.StorageOptions = None,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Import what Deephaven's binary logs have got since the last time, each row once.

    Can be killed and run again at any time. Exit code 1 if damage stopped it, 3 if damage was skipped or values were
    stored as others.
    """
    given = {"schema": schema, "namespace": namespace, "table": table}
    options = {**arguments.format_options(option), **{name: one for name, one in given.items() if one is not None}}
    from sawlog.spark.sessions import QUIET, for_command

    with for_command("sawlog import", {**QUIET, **arguments.key_values(conf, "--conf")}) as spark:
        from sawlog.deephaven_import.spark import import_logs

        done = import_logs(
            spark,
            src,
            root,
            on_damage=on_damage,
            on_unstorable=on_unstorable.value,
            write_options=arguments.format_options(write_option, "-O"),
            storage_options=arguments.storage_options(storage),
            **options,
        )
    facts = [("written", path) for path in done.locations]
    facts += [("deleted", f"{path}, by DELETE_PARTITION") for path in done.removed]
    document = {"source": src, "root": root, **asdict(done)}
    summary = f"imported into {counted(done.partitions, 'partition')}"
    Output.of(json).done(Outcome(document, counted(done.rows, "row"), summary, facts))
    for remark in (*done.skipped, *done.remarks):
        complain(remark)
    return Exit.LOST if done.skipped or done.unstorable else Exit.OK


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
    append: Annotated[bool, typer.Option("--append", help="Add to history that no merge of sawlog made.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make the date anew, sorted and spread as a whole.")
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
    from sawlog.spark.sessions import QUIET, for_command

    with for_command("sawlog merge", {**QUIET, **arguments.key_values(conf, "--conf")}) as spark:
        from sawlog.deephaven_import.spark import merge as run

        done = run(
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
            replace=replace,
            delete_intraday=delete_intraday,
            write_options=arguments.format_options(write_option, "-O"),
            **arguments.format_options(option),
        )
    facts = [("checksum", f"{done.checksum:016x}")]
    facts += [("written" if done.written else "there", path) for path in done.locations]
    if done.grouped:
        facts.append(("grouped", ", ".join(done.grouped)))
    if done.deleted:
        facts += [("deleted", path) for path in done.merged]
    name = f"{namespace}.{table}"
    document = {"table": name, "date": date, **asdict(done)}
    state = "merged and proven" if done.written else "merged before, proven again"
    Output.of(json).done(Outcome(document, counted(done.rows, "row"), f"of {name} {date} {state}", facts))
    for remark in done.remarks:
        complain(remark)
    return Exit.OK
