"""`sawlog spark-jar`: where the jar for Spark is."""

from __future__ import annotations

import typer

from sawlog.cli.errors import Exit


def spark_jar() -> int:
    """Print the path of the jar that makes Spark read faster, carried or compiled; for `spark-submit --jars`."""
    from sawlog.spark.jar import spark_jar as find

    typer.echo(find())
    return Exit.OK
