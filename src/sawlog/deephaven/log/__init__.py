"""Deephaven's intraday binary logs: rows in checksummed entries after a header that holds their schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sawlog.api import read
from sawlog.deephaven.log.layout import DELETE_PARTITION

if TYPE_CHECKING:
    from sawlog.deephaven.log.logger import Logger

__all__ = ["DELETE_PARTITION", "Logger", "read_bin", "read_bin_dir"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the logger when it is asked for, so that listing formats stays quick."""
        if name == "Logger":
            from sawlog.deephaven.log.logger import Logger

            return Logger
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def read_bin(paths: Any, **arguments: Any) -> Any:
    """Read logs into a table, under the name the vendor's tools use. Arguments are those of `sawlog.read`."""
    return read(paths, format="deephaven_log", **arguments)


def read_bin_dir(path: str, glob: str = "*.bin*", **arguments: Any) -> Any:
    """Read the logs of a directory whose names match `glob`, as one table. Arguments are those of `sawlog.read`."""
    return read_bin(f"{path.rstrip('/')}/{glob}", **arguments)
