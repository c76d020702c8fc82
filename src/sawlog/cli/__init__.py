"""The command line: one module per command, one `Output` for people and for programs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from sawlog.cli.signals import BUG, ENDING_MESSAGES, find_exit_code, raise_on_signals


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `sys.argv` by default) and return its exit code."""
    with raise_on_signals():
        try:
            from sawlog.cli.app import run

            code = run(args)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001, whatever it is, it must not look like damage
            exit_code = find_exit_code(error)
            if exit_code is None:
                from sawlog.format.printing import escape_lines

                sys.stderr.write(escape_lines(traceback.format_exc()))
                sys.stderr.write("sawlog: this is an error in sawlog itself; please report it\n")
                return BUG
            code = exit_code
    if code in ENDING_MESSAGES:
        sys.stderr.write(f"sawlog: {ENDING_MESSAGES[code]}\n")
    return code
