"""Programs that reach no network, and cannot write to the source tree."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ALONE = ["unshare", "--user", "--map-root-user", "--mount", "--net"]
_SEAL = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@functools.cache
def sealed(place: Path = ROOT) -> tuple[str, ...]:
    """What begins such a command: nothing where Linux has no namespaces for everyone, and elsewhere."""
    command = (*_ALONE, "sh", "-c", _SEAL, str(place))
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return ()
    return command if done.returncode == 0 else ()
