"""The command line: one module per verb, one `Output` for people and for programs."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence

from sawlog.cli.signals import BUG, WORDS, ended, terminable

_YOUNG = 100_000
"""Objects between two collections: a verb that imports half a million, and is over then, leaves no garbage behind."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `sys.argv` by default) and return its exit code."""
    collecting = gc.get_threshold()
    gc.set_threshold(_YOUNG, *collecting[1:])
    with terminable():
        try:
            from sawlog.cli.app import run

            code = run(args)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001, whatever it is, it must not look like damage
            found = ended(error)
            if found is None:
                from sawlog.cli.render import printable_lines

                sys.stderr.write(printable_lines(traceback.format_exc()))
                sys.stderr.write("sawlog: this is an error in sawlog itself; please report it\n")
                return BUG
            code = found
    gc.set_threshold(*collecting)
    if code in WORDS:
        sys.stderr.write(f"sawlog: {WORDS[code]}\n")
    return code
