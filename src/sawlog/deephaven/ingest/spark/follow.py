"""Following logs: import after import in one session, each of what the logs have got meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from sawlog.deephaven.ingest.publication import Import
from sawlog.deephaven.ingest.spark.load import LOCATION_BYTES, ImportJob, ImportSettings
from sawlog.deephaven.ingest.unstorable import OnUnstorable
from sawlog.errors import SawlogError
from sawlog.storage import PathLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SECONDS = 0.5
FOLLOWED_BYTES = 64 << 20
"""Bytes of logs that are taken of a partition at a time, so that none waits long for another one."""


@dataclass(slots=True)
class LogPoll:
    """A look at the logs.

    Attributes:
        done: What was imported.
        seconds: How long that took.
        errors: What went wrong, a sentence each; it is tried again with the next look.
    """

    done: Import
    seconds: float
    errors: list[str] = field(default_factory=list)


def follow_logs(
    spark: SparkSession | None,
    source: PathLike | Sequence[PathLike],
    root: PathLike,
    *,
    seconds: float = SECONDS,
    on_damage: str = "fail",
    on_unstorable: OnUnstorable = "error",
    max_bytes: int = FOLLOWED_BYTES,
    write_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[LogPoll]:
    """Import what binary logs get, look after look, without end.

    Little is imported by threads of this process, for which a job of Spark would take longer; much is by Spark. Where
    there is more than `max_bytes`, the next look follows at once.

    Args:
        spark: As for `import_logs`.
        source: As for `import_logs`; likewise the options that are not here.
        root: The root of the tree.
        seconds: From the beginning of one look to that of the next one.
        on_damage: See `import_logs`.
        on_unstorable: See `import_logs`.
        max_bytes: Bytes of logs that are taken of a partition at a time, about.
        write_options: See `import_logs`.
        storage_options: See `import_logs`.
        **options: See `import_logs`.

    Yields:
        What each look did, errors included.

    Raises:
        OptionError: For options that cannot be.
    """
    choices = ImportSettings(on_damage, on_unstorable, LOCATION_BYTES, max_bytes, here_bytes=FOLLOWED_BYTES)
    job = ImportJob(spark, root, choices, write_options or {}, storage_options or {}, options)
    while True:
        start_time = monotonic()
        try:
            done, failed = job.run(source)
            errors = [str(error) for error in failed]
        except (SawlogError, OSError) as error:  # such as a full disk
            done, errors = Import(), [str(error)]
        yield LogPoll(done, monotonic() - start_time, errors)
        if not done.limited:
            sleep(max(0.0, seconds - (monotonic() - start_time)))
