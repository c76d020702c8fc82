"""Remote files: reached through fsspec, every request through `ask`, every byte through `StoreObject.fetch`."""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import errno
import inspect
import os
import posixpath
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeVar

from sawlog.errors import ChangedError, OptionError, SawlogError, StorageError, find_secrets, without_secrets
from sawlog.guard import FAULTS, install

if TYPE_CHECKING:
    from sawlog.storage.objects import Objects

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS: tuple[float, ...] = (0.1, 0.4, 1.6)
"""Seconds after which a request that a store did not answer is made again."""

_TAG_KEYS = ("ETag", "etag", "versionId", "md5Hash", "generation")
"""What stores call that which is another for all other contents, the best first."""
_TIME_KEYS = ("LastModified", "Last-Modified", "last_modified", "mtime", "updated", "created")
"""What they call the time of that."""

IN_FLIGHT = "bytes_in_flight"
"""The option that says how many bytes of a read are on their way at most; it is sawlog's, not the store's."""

_OBJECTS = ("s3", "gs", "gcs", "abfs", "abfss", "az", "adl", "http", "https")
"""Schemes of the stores that obstore reaches."""
_EXTRAS = {**dict.fromkeys(_OBJECTS, "remote"), "kafka": "kafka"}
"""The extra of sawlog that brings what is needed for a scheme."""
_TOPICS = "sawlog.storage.kafka.Topics"

_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "HTTP", "NO_PROXY", "STORAGE_EMULATOR_HOST")
"""What the names of the variables begin with that stores heed."""
_CONNECTING = threading.Lock()
_FILE_SYSTEMS: dict[Any, Objects] = {}
"""File systems of objects, by process, class and options."""

_READING = {"cat_file", "find", "find_names", "glob", "info"}
"""Requests that are made again when a store does not answer."""
_WRITING = {"makedirs", "mv", "open", "put_file", "rm"}

_ANSWERS = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""What a store says of a path: answers, not faults."""


def connect(url: str, options: Mapping[str, Any]) -> tuple[StoreFileSystem, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        SawlogError: When what fsspec needs for it is missing; says how to get it.
        OptionError: For a scheme that is not known, or options that it does not take.
        StorageError: When the store does not answer.
    """
    import fsspec

    fsspec.register_implementation("kafka", _TOPICS, clobber=True)
    options = {name: value for name, value in options.items() if name != IN_FLIGHT}
    try:
        scheme = url.partition("://")[0]
        if scheme in _OBJECTS:
            return StoreFileSystem(_open_objects(scheme, options), url).resolve_url(url)
        fs, path = ask(url, fsspec.core.url_to_fs, url, **options)
    except ImportError as error:
        scheme = url.partition(":")[0]
        extra = _EXTRAS.get(scheme)
        advice = install(extra) if extra else f"install what fsspec needs for {scheme}: {error}"
        raise SawlogError(f"{url}: {advice}") from error
    except StorageError as error:
        if isinstance(error.__cause__, ValueError):  # what fsspec says of a scheme that it does not know
            raise OptionError(f"{url}: {error.__cause__}") from error.__cause__
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise SawlogError(
                f"{url}: HDFS is reached through Java: set JAVA_HOME and HADOOP_HOME, and CLASSPATH to what"
                " `hadoop classpath --glob` prints"
            ) from error
        raise
    return StoreFileSystem(fs, url), path


def _open_objects(scheme: str, options: Mapping[str, Any]) -> Objects:
    """Return the file system for objects of a scheme, with its connections: one per process for the same options."""
    from sawlog.storage.objects import SCHEMES

    kind = SCHEMES[scheme]
    variables = sorted(item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES))
    key = (os.getpid(), kind, repr(sorted(options.items())), repr(variables))
    with _CONNECTING:
        if key not in _FILE_SYSTEMS:
            _FILE_SYSTEMS[key] = kind(**options)
        return _FILE_SYSTEMS[key]


class RequestCount:
    """Requests that this process has made to stores; one that is made again counts again.

    Attributes:
        total: Their number.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one."""
        with self._lock:
            self.total += 1


REQUESTS = RequestCount()


def ask(url: str, request: Callable[P, T], *args: P.args, **settings: P.kwargs) -> T:
    """Make a request to a store; where it does not answer, again after each of `RETRY_SECONDS`.

    Raises:
        OSError: What the store says of the path: that there is nothing, or who may not look.
        StorageError: When it does not answer.
    """
    for wait in (*RETRY_SECONDS, None):
        REQUESTS.add()
        try:
            return request(*args, **settings)
        except Exception as error:  # noqa: BLE001 - each library has its own, and all of them are raised again
            fault = _make_fault(error, url)
            if wait is None or not _is_transient(fault):
                raise fault from fault.__cause__
        time.sleep(wait)
    raise AssertionError("the last wait is none")


def _make_fault(error: Exception, url: str) -> Exception:
    """Return the error to raise when a request has failed, without secrets in it."""
    if isinstance(error, TypeError):
        return OptionError(f"{url}: {error}; expected the options that its store takes")
    if isinstance(error, (SawlogError, *FAULTS)):
        return error
    if isinstance(error, _ANSWERS):
        has_secrets = any(isinstance(text, str) and text != without_secrets(text) for text in error.args)
        return type(error)(without_secrets(str(error))) if has_secrets else error
    text = str(error)
    for secret in find_secrets(url):
        text = text.replace(secret, "***")
    answer = StorageError(f"{url}: {type(error).__name__}: {text}")
    answer.__cause__ = error
    return answer


def _is_transient(error: Exception) -> bool:
    """Return whether a request may be answered when it is made again."""
    cause = error.__cause__
    if type(cause).__module__.startswith("obstore"):  # which has made it again, but for answers that ended too soon
        return isinstance(error, StorageError) and "response body error" in str(cause)
    final = (
        isinstance(cause, ValueError | LookupError | NotImplementedError) or getattr(cause, "errno", 0) == errno.EINVAL
    )
    return type(error) is StorageError and not final


class StoreFileSystem:
    """A file system of fsspec whose faults are errors of sawlog, and which is asked again where it does not answer.

    Attributes:
        fs: The file system.
    """

    def __init__(self, fs: Any, url: str) -> None:
        self.fs = fs
        self._url = url

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.fs, name)
        if name in _READING:
            return partial(ask, self._url, attribute)
        return partial(self._change, attribute) if name in _WRITING else attribute

    @property
    def http(self) -> bool:
        """Whether it is a plain HTTP server: there are files, and no directories."""
        return not {"http", "https"}.isdisjoint(
            [self.fs.protocol] if isinstance(self.fs.protocol, str) else self.fs.protocol
        )

    @property
    def has_objects(self) -> bool:
        """Whether it is reached through obstore: each answer says of what it is, and there are no directories."""
        return hasattr(self.fs, "fetch")

    def resolve_url(self, url: str) -> tuple[StoreFileSystem, str]:
        """Return the same file system for another URL, and the path of that."""
        return StoreFileSystem(self.fs, url), self.fs._strip_protocol(url)

    def unstrip_protocol(self, path: str) -> str:
        """Return the URL of a path. Unlike fsspec's own, it has the host, where paths of the file system do not."""
        if self.has_objects:
            return path if "://" in path else f"{self._url.partition('://')[0]}://{path}"
        url = self._url.rstrip("/")
        inner = self.fs._strip_protocol(url).rstrip("/")
        root = url.removesuffix(inner)
        if "::" in url or "://" in path or not url.endswith(inner) or not root.partition("://")[2]:
            return str(self.fs.unstrip_protocol(path))
        return root + path

    def list_below(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what `find` returns; objects as they arrive, for there may be a million of them.

        Where a store stops answering, it goes on after the last name; where names come in no order, it begins again.
        """
        if self.http or not self.has_objects:
            yield from self.find(path).items()
            return
        last, has_order, yielded = "", self.fs.has_order_in(path), set[str]()
        while True:
            pages = ask(self._url, self.fs.list_pages, path, last)
            try:
                for page in pages:
                    yield from ((info["name"], info) for info in page if info["name"] not in yielded)
                    last = page[-1]["name"] if has_order else ""
                    yielded.update(info["name"] for info in page if not has_order)
                return
            except StorageError as error:
                if not _is_transient(error):
                    raise

    def find(self, path: str) -> dict[str, dict[str, Any]]:
        """Return all files below a path, or the file that it is; none where it is missing.

        Unlike fsspec's own, it fails where a directory cannot be listed.
        """
        if self.http:
            return {path: self.info(path)}
        inherited = getattr(type(self.fs), "_find", type(self.fs).find).__module__
        strict = {"on_error": "raise"} if inherited in ("fsspec.spec", "fsspec.asyn") else {}
        try:
            infos: dict[str, dict[str, Any]] = ask(self._url, self.fs.find, path, withdirs=False, detail=True, **strict)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        within = f"{path.rstrip('/')}/{posixpath.basename(path)}"
        if list(infos) == [within] and (info := self.info(path))["type"] == "file":
            return {path: info}  # which FTP servers list as if it lay in itself
        return {name: info or self.info(path) for name, info in infos.items()}

    def ls(self, path: str, *, detail: bool) -> list[Any]:
        """List a directory, as it is now: not what another thread has put into fsspec's cache."""
        options = inspect.signature(getattr(self.fs, "_ls", self.fs.ls)).parameters
        fresh = {"refresh": True} if "refresh" in options else {}
        entries: list[Any] = ask(self._url, self.fs.ls, path, detail=detail, **fresh)
        return entries

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory.

        Unlike fsspec's own, it fails where the store does not answer.
        """
        return self._find_type(path) is not None

    def isdir(self, path: str) -> bool:
        """Return whether there is a directory. Unlike fsspec's own, it fails where the store does not answer."""
        return self._find_type(path) == "directory"

    def _find_type(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _change(self, request: Callable[..., T], *args: Any, **settings: Any) -> T:
        """Make a request that is not made again."""
        try:
            return request(*args, **settings)
        except Exception as error:  # noqa: BLE001 - each library has its own, and all of them are raised again
            fault = _make_fault(error, self._url)
            raise fault from fault.__cause__


@dataclass(frozen=True, slots=True)
class ObjectState:
    """State of an object in its store: its size, and what distinguishes this content from others.

    Attributes:
        size: Bytes in it.
        tags: What is another for all other contents, by name.
        time: When it was written, in seconds since the epoch; without tags, an object that has grown may be the same.
    """

    size: int
    tags: Mapping[str, str]
    time: float | None

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ObjectState:
        """From fsspec's description."""
        tags = {key.lower(): _normalize_tag(str(info[key])) for key in _TAG_KEYS if info.get(key)}
        return cls(int(info["size"]), tags, find_modified_time(info))

    def recall_earlier(self, size: int, version: str, time: float | None) -> ObjectState:
        """Return the state that was noted before, where no more than `find_version` is known of it."""
        tag = _normalize_tag(version)
        name = next((key for key, value in self.tags.items() if value == tag), next(iter(self.tags), None))
        return ObjectState(size, {name: tag} if name and tag else {}, time)

    def is_same(self, now: ObjectState) -> bool:
        """Return whether this is still the object, as far as its store knows."""
        if self.tags and self.tags == now.tags:
            return True
        if common := self.tags.keys() & now.tags.keys():
            return all(self.tags[key] == now.tags[key] for key in common)
        if now.size != self.size or self.time is None or now.time is None:
            return now.size >= self.size
        rounded = self.time.is_integer() != now.time.is_integer()
        return self.time == now.time or (rounded and int(self.time) == int(now.time))

    def check(self, now: ObjectState, url: str) -> None:
        """Compare with what a store says later.

        Raises:
            ChangedError: When it is another object, or has become shorter.
        """
        if now.size < self.size:
            raise ChangedError.from_sizes(url, self.size, now.size)
        if not self.is_same(now):
            raise ChangedError(f"{url}: the file was replaced while it was read; open it again")


def _normalize_tag(text: str) -> str:
    """Return a tag in one spelling: some stores put it into quotes only where they are asked for one object."""
    return text.removeprefix("W/").strip('"')


class StoreObject:
    """An object of a store: all requests for its bytes are made here."""

    def __init__(self, store: StoreFileSystem, path: str, url: str, state: ObjectState) -> None:
        self._store = store
        self._path = path
        self.url = url
        self.state = state
        self._has_fetched = False
        self._copy: IO[bytes] | None = None  # of all of it, from a server that knows no ranges
        self._is_closed = False
        self._lock = threading.RLock()  # the garbage collector may close a source in any call

    def fetch(self, start: int, end: int) -> memoryview:
        """Return the bytes from `start` up to `end`, no more and no fewer.

        Raises:
            ChangedError: When the object is not the one that was found.
            StorageError: When the store does not deliver them.
        """
        try:
            data = ask(self.url, self._read_range, start, end)
        except StorageError:
            self.check()  # which says more
            raise
        if self._has_fetched and not self._store.has_objects:
            self.check()
        self._has_fetched = True
        return data

    def close(self) -> None:
        """Let go of the copy, if there is one; requests that are under way make no other."""
        with self._lock:
            self._is_closed = True
            if self._copy is not None:
                self._copy.close()
                self._copy = None

    __del__ = close

    def check(self) -> None:
        """Ask whether it is still the object that was found.

        Raises:
            ChangedError: When it is not.
        """
        self._store.invalidate_cache()
        self.state.check(ObjectState.of(self._store.info(self._path)), self.url)

    def _read_range(self, start: int, end: int) -> memoryview:
        length = end - start
        if length <= 0:
            return memoryview(b"")
        data = self._request_range(start, end)
        if len(data) != length and len(data) == self.state.size:
            with self._lock:  # of several requests the first one makes a copy
                if self._copy is None and not self._is_closed:
                    self._copy = _write_copy(data)
            data = data[start:end]
        if len(data) != length:
            raise StorageError(f"{self.url}: expected {length} bytes at byte {start}, the store sent {len(data)}")
        return data

    def _request_range(self, start: int, end: int) -> memoryview:
        fs = self._store.fs
        if self._copy is not None:
            with self._lock:
                if self._copy is not None:
                    return memoryview(os.pread(self._copy.fileno(), end - start, start))
        if not self._store.has_objects:
            return memoryview(fs.cat_file(self._path, start=start, end=end))
        data, info = fs.fetch(self._path, start, end, self.state.tags.get("etag", ""))
        self.state.check(ObjectState.of(info), self.url)  # of a server that does not know the condition
        return memoryview(data)


def _write_copy(data: memoryview) -> IO[bytes]:
    """Return a temporary file with some bytes, which the caller closes."""
    copy = tempfile.TemporaryFile(prefix="sawlog-")
    try:
        copy.write(data)
        copy.flush()
    except BaseException:
        copy.close()
        raise
    return copy


def find_version(info: Mapping[str, Any]) -> str:
    """Return a tag that changes when an object is written again; empty where its store says nothing."""
    return next((str(info[key]) for key in (*_TAG_KEYS, *_TIME_KEYS) if info.get(key)), "")


def find_modified_time(info: Mapping[str, Any]) -> float | None:
    """Return when a file was written, in seconds since the epoch; None where its store does not say so."""
    return next((stamp for key in _TIME_KEYS if (stamp := _convert_seconds(info.get(key))) is not None), None)


def _convert_seconds(time: Any) -> float | None:
    """Return a time as a store gives it, in seconds since the epoch."""
    if isinstance(time, str):
        try:
            time = dt.datetime.fromisoformat(time)
        except ValueError:
            with contextlib.suppress(ValueError):  # as HTTP has it, `Wed, 21 Oct 2015 07:28:00 GMT`
                time = email.utils.parsedate_to_datetime(time)
    return time.timestamp() if isinstance(time, dt.datetime) else float(time) if isinstance(time, int | float) else None
