"""The command line: one module per verb, one `Output` for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `sys.argv` by default) and return its exit code."""
    try:
        from sawlog.cli.app import run

        return run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
