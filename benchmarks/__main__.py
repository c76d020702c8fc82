"""Run benchmarks: `python -m benchmarks leveldb_log --size 50MB`."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.harness import RESULTS, Case, Results, Settings, run_case, run_probe

BENCHMARKS = (
    "leveldb_log",
    "leveldb_payloads",
    "leveldb_table",
    "application_views",
    "deephaven_log",
    "deephaven_table",
    "deephaven_import",
    "filodb_record",
    "milvus_binlog",
    "streams",
    "stores",
    "small_files",
    "threads",
    "spark_columnar",
    "first_query",
    "small_questions",
    "kernels",
    "startup",
)
ROOT = Path(__file__).parents[1]
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def main() -> None:
    arguments = parse_arguments()
    build = [sys.executable, "-m", "sawlog.kernels.build", "benchmarks", "--if-needed"]
    subprocess.run(build, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    together = len(arguments.benchmarks) == 1 or not arguments.repeat
    with tempfile.TemporaryDirectory(prefix="sawlog-bench-", dir=arguments.dir) as place:
        for name in arguments.benchmarks:
            if name == "kernels" and os.environ.get("SAWLOG_KERNELS") != "jit":
                measure_apart(name, arguments, SAWLOG_KERNELS="jit")
            elif together:
                measure(name, arguments, place)
            else:
                measure_apart(name, arguments)
        stop_spark()


def measure_apart(name: str, arguments: argparse.Namespace, **variables: str) -> None:
    """In a process of its own: this one may have imported kernels, or have a session of Spark with other settings."""
    options = {option: value for option, value in vars(arguments).items() if option != "benchmarks"}
    words = [f"--{option}={value}" for option, value in options.items() if value is not None]
    command = [sys.executable, "-m", "benchmarks", name, *words]
    subprocess.run(command, env={**os.environ, **variables}, check=True)


def measure(name: str, arguments: argparse.Namespace, program: str) -> None:
    """In this process: benchmarks of one program share a directory, and in it a session of Spark."""
    console = Console() if sys.stdout.isatty() else Console(width=140)
    module = importlib.import_module(f"benchmarks.{name}")
    with (
        tempfile.TemporaryDirectory(prefix=name, dir=program) as place,
        tempfile.TemporaryDirectory(prefix="sawlog-bench-", dir=arguments.dir or roomy(arguments.size)) as memory,
    ):
        places = map(Path, (place, memory, program))
        settings = Settings(arguments.size, arguments.big, arguments.repeat, arguments.only, *places)
        results = Results.begin(name, settings)
        console.print(f"[bold]{name}[/] in {place}: " + ", ".join(results.environment.values()))
        target = (arguments.out or RESULTS) / f"{name}.json"
        for item in module.cases(settings):
            if isinstance(item, Case):
                results.cases.append(run_case(item, settings, console))
            else:
                results.probes.append(run_probe(item, console))
            results.save(target)  # whoever has to stop keeps what was measured
        console.print(f"written to {target}")


def stop_spark() -> None:
    """End a session of Spark, whose files are in a directory that goes."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is not None:
            spark.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--size", type=size, default=size("500MB"), help="bytes of the large logs (500MB)")
    parser.add_argument("--big", type=size, default=size("4GB"), help="bytes of the log read for its memory use (4GB)")
    parser.add_argument("--repeat", type=int, default=5, help="measured runs of each side (5); 0: see that all works")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this in their names")
    parser.add_argument("--dir", type=Path, help="where to put the data")
    parser.add_argument("--out", type=Path, help="where to put the results (benchmarks/results)")
    arguments = parser.parse_args()
    for name in arguments.benchmarks:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}; there is {', '.join(BENCHMARKS)}")
    return arguments


def size(text: str) -> int:
    """Bytes, from `50MB` and the like."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?B?)", text)
    if match is None or match[2] not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size such as 500MB")
    return int(float(match[1]) * _UNITS[match[2]])


def roomy(size: int) -> str:
    """A file system in memory if it holds what is written with room to spare, else the place for temporary files."""
    memory = "/dev/shm"
    if os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 * size:
        return memory
    return tempfile.gettempdir()


if __name__ == "__main__":
    main()
