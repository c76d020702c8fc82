"""Remote files: reached through fsspec, and what their stores tell of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sawlog.errors import OptionError, SawlogError

_VERSIONS = ("ETag", "etag", "versionId", "md5Hash", "LastModified", "last_modified", "mtime", "updated", "created")
"""What object stores call that which changes when an object is written anew, the best first."""
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
"""What they call the time of that."""

_EXTRAS = {
    **dict.fromkeys(("s3", "http", "https"), "remote"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure"),
}
"""The extra of sawlog that brings what fsspec needs for a scheme."""


def connected(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        SawlogError: When what fsspec needs for it is missing; says how to get it.
        OptionError: For a scheme that is not known, or options that it does not take.
    """
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        scheme = url.partition(":")[0]
        extra = _EXTRAS.get(scheme)
        how = f"pip install 'sawlog[{extra}]'" if extra else f"install what fsspec needs for {scheme}: {error}"
        raise SawlogError(f"{url}: {how}") from error
    except ValueError as error:  # what fsspec says of a scheme that it does not know
        raise OptionError(f"{url}: {error}") from error
    except OSError as error:
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise SawlogError(
                f"{url}: HDFS is reached through Java: set JAVA_HOME and HADOOP_HOME, and CLASSPATH to what"
                " `hadoop classpath --glob` prints"
            ) from error
        raise
    return fs, path


def version_of(info: Mapping[str, Any]) -> str:
    """What changes when an object is written anew; empty where its store says nothing."""
    return next((str(info[key]) for key in _VERSIONS if info.get(key)), "")


def modified_at(info: Mapping[str, Any]) -> float | None:
    """When a file was written, in seconds since the epoch, where its store says so."""
    return next((stamp for key in _TIMES if (stamp := _seconds(info.get(key))) is not None), None)


def _seconds(time: Any) -> float | None:
    """A time as a store tells it, in seconds since the epoch."""
    if isinstance(time, str):
        try:
            time = dt.datetime.fromisoformat(time)
        except ValueError:
            return None
    return time.timestamp() if isinstance(time, dt.datetime) else float(time) if isinstance(time, int | float) else None
