"""Which rendering of results a command line asks for."""

from __future__ import annotations

from sawlog.cli.output import JsonOutput, Output


def rendering(json: bool) -> Output:
    """JSON for programs, or text for people; Rich is loaded only for these."""
    if json:
        return JsonOutput()
    from sawlog.cli.console import ConsoleOutput

    return ConsoleOutput()
