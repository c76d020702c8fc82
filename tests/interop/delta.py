"""Delta Lake for Spark: its jars, fetched once, with Maven, and the settings that it needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
CACHE = Path(__file__).parents[2] / ".cache" / "delta-4.4.0"
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>sawlog</groupId><artifactId>delta</artifactId><version>1</version>
<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency></dependencies>
</project>"""
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jars() -> str:
    """For `spark.jars`; fetched unless they are there."""
    ready = CACHE / ".ready"
    if not ready.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "pom.xml").write_text(POM.format(*DELTA.split(":")))
        fetch = ["dependency:copy-dependencies", f"-DoutputDirectory={CACHE / 'jars'}"]
        without = "-DexcludeGroupIds=org.apache.spark,org.apache.hadoop"
        subprocess.run(["mvn", "--quiet", "--batch-mode", *fetch, without], cwd=CACHE, check=True)
        ready.touch()
    return ",".join(str(jar) for jar in sorted((CACHE / "jars").glob("*.jar")))
