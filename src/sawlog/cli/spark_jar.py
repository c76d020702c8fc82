"""`sawlog spark-jar`: where the jar for Spark is."""

from __future__ import annotations

import typer

from sawlog.cli.errors import Exit


def spark_jar() -> int:
    """Print the path of the jar for Spark.

    With the jar, Spark reads faster; give it to `spark-submit --jars`.
    """
    from sawlog.spark.jar import locate_jar as find

    typer.echo(find())
    return Exit.OK
