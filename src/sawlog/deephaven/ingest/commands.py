"""`sawlog import` and `sawlog merge`: Deephaven's logs to an intraday tree, and a date of it to history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Outcome, render_count, show
from sawlog.errors import OptionError

if TYPE_CHECKING:
    from sawlog.deephaven.ingest.spark import Import, LogPoll, Merge, Nightly


class NamespaceSet(StrEnum):
    """The historical trees of an installation."""

    SYSTEM = "System"
    USER = "User"


class UnstorablePolicy(StrEnum):
    """The treatments of values that column files cannot hold."""

    ERROR = "error"
    NULL = "null"
    REPLACE = "replace"


Namespace = Annotated[str | None, typer.Argument(metavar="NAMESPACE", help="Namespace of the table.")]
Table = Annotated[str | None, typer.Argument(metavar="TABLE", help="The table.")]
Date = Annotated[str | None, typer.Argument(metavar="DATE", help="Column partition, such as 2024-03-01.")]
EveryNight = Annotated[
    bool,
    typer.Option("--nightly", help="Merge all past dates of all tables, check them, and delete the intraday rows."),
]
Before = Annotated[
    str | None, typer.Option("--before", metavar="DATE", help="With --nightly: merge dates before this one.")
]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of `sawlog import`: which logs are read, and how their rows are stored."""

    schema: arguments.SchemaFile = None
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only logs of this namespace.")] = None
    table: Annotated[str | None, typer.Option("--table", help="Only logs of this table.")] = None
    on_damage: Annotated[
        arguments.OnDamage,
        typer.Option("--on-damage", help="fail: stop a partition in front of damage. skip: import everything intact."),
    ] = arguments.OnDamage.FAIL
    on_unstorable: Annotated[
        UnstorablePolicy, typer.Option("--on-unstorable", help="What to do with values that column files cannot hold.")
    ] = UnstorablePolicy.ERROR
    option: arguments.ReadOptions = None
    write_option: arguments.WriteOptions = None

    def collect_settings(self) -> dict[str, Any]:
        """Return the options as arguments of `import_logs`."""
        names = {"schema": self.schema, "namespace": self.namespace, "table": self.table}
        return {
            "on_damage": self.on_damage,
            "on_unstorable": self.on_unstorable.value,
            "write_options": arguments.parse_format_options(self.write_option, "-O"),
            **arguments.parse_format_options(self.option),
            **{name: value for name, value in names.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Options of `sawlog merge`: how the rows of a date are arranged, and what is there already."""

    schema: arguments.SchemaFile = None
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="A,B", help="Grouping columns, not the schema's.")
    ] = None
    sort: Annotated[
        list[str] | None, typer.Option("--sort", metavar="A,B", help="Columns to sort the rows of a group by.")
    ] = None
    internal_partitions: Annotated[
        int | None,
        typer.Option("--internal-partitions", min=1, help="Number of internal partitions; one per GiB if not given."),
    ] = None
    namespace_set: Annotated[
        NamespaceSet, typer.Option("--namespace-set", help="History below ROOT/Systems or ROOT/Users.")
    ] = NamespaceSet.SYSTEM
    append: Annotated[bool, typer.Option("--append", help="Add to history that sawlog did not merge.")] = False
    replace: Annotated[bool, typer.Option("--replace", help="Rebuild the whole date, sorted and spread.")] = False
    delete_intraday: Annotated[
        bool, typer.Option("--delete-intraday", help="Delete the intraday rows once they are checked to be in history.")
    ] = False
    option: arguments.ReadOptions = None
    write_option: arguments.WriteOptions = None

    def collect_settings(self) -> dict[str, Any]:
        """Return the options as arguments of `merge` and `nightly`, but for `delete_intraday`, which only one has."""
        return {
            "schema": self.schema,
            "group": arguments.parse_column_names(self.group),
            "sort": arguments.parse_column_names(self.sort) or (),
            "internal_partitions": self.internal_partitions,
            "namespace_set": self.namespace_set.value,
            "append": self.append,
            "replace": self.replace,
            "write_options": arguments.parse_format_options(self.write_option, "-O"),
            **arguments.parse_format_options(self.option),
        }


def load(
    src: Annotated[str, typer.Argument(metavar="SRC", help="Directory of logs, a log, a glob or fsspec URL.")],
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Root of the tree; the rows go to ROOT/Intraday.")],
    *,
    options: ImportOptions,
    follow: Annotated[
        float | None,
        typer.Option("--follow", min=0.1, metavar="SECONDS", help="Poll for new rows at this interval, until stopped."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=1, help="Bytes of a partition to import at a time; 64 MiB with --follow."),
    ] = None,
    storage: arguments.StorageOptions = None,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Import Deephaven logs into an intraday tree.

    New rows of the logs, each once. Can be killed and run again at any time. Exit code 1 if damage stopped it, 3 if
    damage was skipped or values were stored as others.
    """
    settings = {"storage_options": arguments.parse_storage_options(storage), **options.collect_settings()}
    from sawlog.spark.sessions import QUIET_SETTINGS, hold_session

    def check() -> None:
        from sawlog.deephaven.ingest.spark.load import check_source

        if follow is None:  # a follower may wait for the first log
            check_source(src, root, **settings)

    with hold_session(
        "sawlog import", {**QUIET_SETTINGS, **arguments.parse_key_values(conf, "--conf")}, check
    ) as spark:
        from sawlog.deephaven.ingest.spark import follow_logs, import_logs

        if follow is not None:
            size_option: dict[str, Any] = {} if max_bytes is None else {"max_bytes": max_bytes}
            lines: list[str] = []
            for look in follow_logs(spark, src, root, seconds=follow, **size_option, **settings):
                _say_look(src, root, look, lines, json=json)
        done = import_logs(spark, src, root, max_bytes=max_bytes, **settings)
        _say_imported(src, root, done, json=json)
        return Exit.LOST if done.skipped or done.unstorable else Exit.OK


def _say_imported(src: str, root: str, done: Import, *, json: bool) -> None:
    facts = [("written", path) for path in done.locations]
    facts += [("deleted", f"{path}, by DELETE_PARTITION") for path in done.removed]
    document = {"source": src, "root": root, **asdict(done)}
    summary = f"imported into {render_count(done.partitions, 'partition')}"
    show(Outcome(document, render_count(done.rows, "row"), summary, facts), json=json)
    for remark in (*done.skipped, *done.remarks):
        complain(remark)


def _say_look(src: str, root: str, look: LogPoll, lines: list[str], *, json: bool) -> None:
    """Return a line of metrics for a look that found something, and what went wrong if it was not said before."""
    done = look.done
    if done.locations or done.removed:
        waiting = render_count(sum(done.lag.values()), "byte")
        summary = f"and {render_count(done.bytes, 'byte')} into {render_count(done.partitions, 'partition')}"
        facts = [(partition, f"{render_count(lag, 'byte')} behind") for partition, lag in done.lag.items()]
        document = {"source": src, "root": root, **asdict(done), "seconds": look.seconds, "errors": look.errors}
        summary += f" in {look.seconds:.2f} s, {waiting} behind"
        show(Outcome(document, render_count(done.rows, "row"), summary, facts), json=json)
    for remark in (*done.skipped, *look.errors):
        if remark not in lines:
            complain(remark)
    lines[:] = look.errors


def status(
    src: Annotated[str, typer.Argument(metavar="SRC", help="Directory of logs, a log, a glob or fsspec URL.")],
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Root of the tree that they are imported into.")],
    storage: arguments.StorageOptions = None,
    json: arguments.Json = False,
) -> int:
    """Show how far each log was imported.

    And how many bytes of it were not.
    """
    from sawlog.deephaven.ingest.publication import import_status

    statuses = import_status(src, root, storage_options=arguments.parse_storage_options(storage))
    lag = sum(status.lag for status in statuses)
    facts = [
        (str(status.partition), f"{status.log}: {status.lag} of {status.size} bytes behind") for status in statuses
    ]
    document = {
        "source": src,
        "root": root,
        "lag": lag,
        "logs": [{**asdict(status), "lag": status.lag} for status in statuses],
    }
    show(
        Outcome(document, render_count(lag, "byte"), f"behind, in {render_count(len(statuses), 'log')}", facts),
        json=json,
    )
    return Exit.OK


def merge(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Root of the trees.")],
    *,
    namespace: Namespace = None,
    table: Table = None,
    date: Date = None,
    every_night: EveryNight = False,
    before: Before = None,
    options: MergeOptions,
    conf: arguments.SparkSettings = None,
    json: arguments.Json = False,
) -> int:
    """Merge a date of an intraday tree into history.

    The rows are sorted, grouped, and checked to be the same. With --nightly all dates that are over, of all tables;
    what is checked is deleted from the intraday tree. Can be killed and run again at any time; a date that is merged
    already is only checked again. Exit code 1 if --nightly could not merge a date.
    """
    if not every_night and None in (namespace, table, date):
        raise OptionError("expected NAMESPACE, TABLE and DATE, or --nightly")
    settings = options.collect_settings()
    from sawlog.deephaven.ingest.tree import require_root, require_table
    from sawlog.spark.sessions import QUIET_SETTINGS, hold_session

    def check() -> None:
        if every_night:
            require_root(root)
        elif namespace and table and date:
            require_table(root, namespace, table, date)

    with hold_session("sawlog merge", {**QUIET_SETTINGS, **arguments.parse_key_values(conf, "--conf")}, check) as spark:
        from sawlog.deephaven.ingest.spark import merge as run
        from sawlog.deephaven.ingest.spark import nightly

        if every_night:
            return _say_nightly(root, nightly(spark, root, before=before, namespace=namespace, **settings), json)
        assert namespace is not None
        assert table is not None
        assert date is not None
        done = run(spark, root, namespace, table, date, delete_intraday=options.delete_intraday, **settings)
    return _say_merged(f"{namespace}.{table}", date, done, json)


def _say_merged(name: str, date: str, done: Merge, json: bool) -> int:
    facts = [("checksum", f"{done.checksum:016x}")]
    facts += [("written" if done.written else "there", path) for path in done.locations]
    if done.grouped:
        facts.append(("grouped", ", ".join(done.grouped)))
    if done.deleted:
        facts += [("deleted", path) for path in done.merged]
    document = {"table": name, "date": date, **asdict(done)}
    state = "merged and checked" if done.written else "merged before, checked again"
    show(Outcome(document, render_count(done.rows, "row"), f"of {name} {date} {state}", facts), json=json)
    for remark in done.remarks:
        complain(remark)
    return Exit.OK


def _say_nightly(root: str, done: Nightly, json: bool) -> int:
    facts = []
    for date in done.dates:
        rows = date.error if date.merge is None else render_count(date.merge.rows, "row")
        facts.append((f"{date.namespace}.{date.table} {date.date}", rows))
    merged = len(done.dates) - len(done.failed)
    document = {"root": root, "dates": [asdict(date) for date in done.dates]}
    show(Outcome(document, render_count(merged, "date"), f"merged, {len(done.failed)} not", facts), json=json)
    return Exit.DAMAGED if done.failed else Exit.OK
