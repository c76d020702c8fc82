"""Ratios of a run beside those of the page: which moved by more than a fifth, and which rows are in one of both only.

python -m benchmarks.compare DIRECTORY    where `--out` put the results of the run

Seconds are not compared: the run is another machine's, and of another size. The exit status is 1 when the run lacks
rows of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, lines

FIFTH = 0.2
Row = tuple[str, ...]
"""The benchmark, the case or probe, and a side or number of it."""


@dataclass(frozen=True)
class Comparison:
    """What differs between a page and a run.

    Attributes:
        moved: Ratios of both, by row, that differ by more than a fifth of the page's.
        removed: Rows of the page that the run lacks.
        new: Rows that the page lacks.
    """

    moved: dict[Row, tuple[float, float]]
    removed: list[Row]
    new: list[Row]

    @classmethod
    def of(cls, page: Iterable[dict[str, Any]], run: Iterable[dict[str, Any]]) -> Comparison:
        """Compare benchmarks that are in both; a row that only one of them has is missing in the other."""
        results = {result["benchmark"]: result for result in run}
        before = ratios(result for result in page if result["benchmark"] in results)
        now = ratios(results.values())
        ratios_now = {row: (ratio, now[row]) for row, ratio in before.items() if row in now}
        moved = {row: pair for row, pair in ratios_now.items() if pair[0] and abs(pair[1] / pair[0] - 1) > FIFTH}
        removed, new = (
            [row for row in ratios_here if row not in ratios_there]
            for ratios_here, ratios_there in ((before, now), (now, before))
        )
        return cls(moved, removed, new)

    def text(self) -> str:
        """Markdown."""
        parts = [f"## Ratios that moved by more than a fifth: {len(self.moved)}"]
        if self.moved:
            rows = [f"| {name(row)} | {a:.2f} x | {b:.2f} x | {b / a:.2f} |" for row, (a, b) in self.moved.items()]
            parts.append("\n".join(["| | page | this run | of the page's |", "|---|---:|---:|---:|", *rows]))
        for rows, heading in (
            (self.removed, "Rows of the page that the run lacks"),
            (self.new, "Rows that the page lacks"),
        ):
            if rows:
                parts += [f"## {heading}: {len(rows)}", "\n".join(f"- {name(row)}" for row in rows)]
        return "\n\n".join(parts) + "\n"


def name(row: Row) -> str:
    return ", ".join(row)


def ratios(results: Iterable[dict[str, Any]]) -> dict[Row, float]:
    """How many times as fast as each side sawlog is, by row; 0 where a row is no ratio."""
    ratio_by_row: dict[Row, float] = {}
    for result in results:
        benchmark = result["benchmark"]
        for case in result["cases"]:
            ours, *other_lines = lines(case)
            ratio_by_row[benchmark, case["name"], ours.name] = 0
            ratio_by_row |= {(benchmark, case["name"], line.name): line.ratio_best for line in other_lines}
        for probe in result["probes"]:
            is_ratio = probe["unit"] == "x"
            ratio_by_row |= {
                (benchmark, probe["name"], name): number if is_ratio else 0 for name, number in probe["numbers"].items()
            }
    return ratio_by_row


def read_results(directory: Path) -> list[dict[str, Any]]:
    """All results in a directory."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]


def main() -> None:
    comparison = Comparison.of(read_results(RESULTS), read_results(Path(sys.argv[1])))
    sys.stdout.write(comparison.text())
    sys.exit(1 if comparison.removed else 0)


if __name__ == "__main__":
    main()
