"""The command line: one module per verb, one `Output` for people and for programs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from sawlog.cli.signals import BUG, INTERRUPTED, TERMINATED, Terminated, terminable


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `sys.argv` by default) and return its exit code."""
    try:
        with terminable():
            from sawlog.cli.app import run

            return run(args)
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001, whatever it is, it must not look like damage
        traceback.print_exc()
        sys.stderr.write("sawlog: this is an error in sawlog itself; please report it\n")
        return BUG
