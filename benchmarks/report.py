"""Write results, `benchmarks/results/*.json`, into two pages: headlines with their picture, and all tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.chart import chart
from benchmarks.compare import read_results
from benchmarks.harness import RESULTS, Line, in_digits, lines

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PICTURE = "![Per headline the speeds of sawlog and its peers; longer is faster](images/speed.svg)"
SECTIONS = {
    "application_views": (
        "Views of applications",
        """Processor time of one thread that reads a database of drawn entries by the view of its application, next to
that of the same rows as they are stored, the view `live`. Repeat it with `make bench ARGS=application_views`.""",
    ),
    "stores": (
        "In an object store",
        """A server of S3 on the same machine, near, and through a proxy that holds every byte back for 15 ms each way.
Downloads by peers decode nothing.""",
    ),
    "small_files": (
        "Many small files",
        """Processor time of one thread that opens and reads each file of 100 rows, or each database, location or
collection, which is a directory of as many files as its row says. Next to it is pyarrow with the same rows in one
Parquet file for each of them.""",
    ),
}
"""Benchmarks that have a section of their own behind the headlines, and what it begins with."""
UNMEASURED = "No results are in `benchmarks/results` yet: `make bench` measures, `make report` puts them here."


def main() -> None:
    """Write the headlines into docs/performance.md, and the tables into docs/measurements.md."""
    results = read_results(RESULTS)
    docs = ROOT / "docs"
    if results:
        (docs / "images").mkdir(exist_ok=True)
        (docs / "images" / "speed.svg").write_text(
            chart(result for result in results if result["benchmark"] not in SECTIONS)
        )
    write_between_marks(docs / "performance.md", f"{PICTURE}\n\n{headlines(results)}" if results else UNMEASURED)
    write_between_marks(docs / "measurements.md", pages(results) if results else UNMEASURED)


def write_between_marks(path: Path, text: str) -> None:
    """Replace the measured part of a page."""
    head, _, text_after = path.read_text().partition(BEGIN)
    _, _, tail = text_after.partition(END)
    path.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


def pages(results: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(page(result) for result in results)


def page(result: dict[str, Any]) -> str:
    facts = result["environment"]
    packages = ", ".join(f"{name} {facts[name]}" for name in facts if name not in ("cpu", "cores", "system"))
    machine = f"{facts['cores']} cores of {facts['cpu']}, {facts['system']}"
    settings = f"Logs of {result['settings']['size'] / 1e6:,.0f} MB, each side {result['settings']['repeat']} times."
    parts = [f"## `{result['benchmark']}`", f"Measured {result['made']} on {machine}; {packages}. {settings}"]
    for case in result["cases"]:
        parts += [f"### {case['what']}", case_table(case)]
        notes = [f"- {side['name']}: {side['note']}" for side in case["sides"] if side["note"]]
        parts += ["\n".join(notes)] if notes else []
    for probe in result["probes"]:
        rows = [["", probe["unit"]], *([name, in_digits(number)] for name, number in probe["numbers"].items())]
        parts += [f"### {probe['what'].capitalize()}", table(rows)]
    return "\n\n".join(parts)


def case_table(case: dict[str, Any]) -> str:
    rows = [["", "best", "median", "GB/s", "million rows/s", "sawlog is (best)", "(median)"]]
    for line in lines(case):
        ours = line.name == case["sides"][0]["name"]
        ratios = ["", ""] if ours else [f"{line.ratio_best:.2f} x", f"{line.ratio_median:.2f} x"]
        speeds = [f"{line.gigabytes:.2f}", f"{line.rows / 1e6:,.3g}" if line.rows else ""]
        name = f"**{line.name}**" if ours else line.name
        rows.append([name, f"{line.best:.3f} s", f"{line.median:.3f} s", *speeds, *ratios])
    return table(rows)


def without_sections(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in results if result["benchmark"] not in SECTIONS]


def headlines(results: list[dict[str, Any]]) -> str:
    """One table of what is measured in bytes and rows a second, and the sections."""
    parts = [summary(without_sections(results))]
    for result in results:
        if result["benchmark"] in SECTIONS:
            title, text = SECTIONS[result["benchmark"]]
            parts += [f"## {title}", text, section(result)]
    return "\n\n".join(part for part in parts if part)


def section(result: dict[str, Any]) -> str:
    """A row per case: its time, or that of each of its files, and those of its peers."""
    rows = [["", "sawlog", "peers", "sawlog is"]]
    for case in result["cases"]:
        ours, *other_lines = lines(case)
        times = [f"{line.name} {spent(line, case)}" for line in other_lines]
        rows.append([case["what"], spent(ours, case), "; ".join(times), "; ".join(map(ratio, other_lines))])
    return table(rows, "|---|---:|---|---|")


def spent(line: Line, case: dict[str, Any]) -> str:
    """The best time of one side."""
    return f"{line.best / case['files'] * 1e3:.2f} ms each" if case.get("files") else f"{line.best:.2f} s"


def summary(results: Iterable[dict[str, Any]]) -> str:
    rows = [["", "", "sawlog", "is"]]
    for result in results:
        format = f"`{result['benchmark']}`"
        for case in result["cases"]:
            if case["headline"]:
                ours, *peers = lines(case)
                other_lines = [line for line in peers if not line.name.startswith("sawlog")]
                rows.append([format, case["what"], speed(ours), "; ".join(map(ratio, other_lines))])
        for probe in result["probes"]:
            unit, numbers = probe["unit"], probe["numbers"].items()
            rows.append(
                [format, probe["what"], ", ".join(f"{name} {in_digits(number)} {unit}" for name, number in numbers), ""]
            )
    return table(rows, "|---|---|---:|---|") if len(rows) > 1 else ""


def speed(line: Line) -> str:
    return f"{line.gigabytes:.2f} GB/s, {line.rows / 1e6:,.3g} M rows/s"


def ratio(line: Line) -> str:
    return f"{line.ratio_best:.2f} x {line.name}"


def table(rows: list[list[str]], alignment: str = "") -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, alignment or "|---|" + "---:|" * (len(rows[0]) - 1), *body])


if __name__ == "__main__":
    main()
