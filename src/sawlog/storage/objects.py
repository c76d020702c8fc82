"""Objects of S3, Google, Azure and HTTP servers as file systems of fsspec, reached through obstore."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import os
import posixpath
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import obstore
from fsspec.spec import AbstractFileSystem
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from sawlog.errors import ChangedError, OptionError, StorageError, find_secrets, without_secrets
from sawlog.storage.store_options import make_azure_settings, make_google_settings, make_http_settings, make_s3_settings

if TYPE_CHECKING:
    from obstore import GetOptions

_MAX_COPY_BYTES = 5 << 30
"""Larger objects are not copied in the store: S3 refuses."""
_PART_BYTES = 8 << 20
"""Bytes of one part of an upload; several of them are under way at a time."""
_LISTED_AT_ONCE = 100
"""Objects of a listing that are handed out at a time; a store sends as many of these as it likes."""
_PAGE = 1000
"""Objects that S3 and Google list in one answer."""
_UNORDERED = "--x-s3"
"""How the buckets of S3 Express end, whose listings are in no order."""
_MAX_DELETED = 1000
"""Objects that are deleted by one call."""

_METADATA = "169.254.169.254"
"""The address that gives the machines of a cloud their credentials, which obstore asks last."""
_REFUSED = re.compile(r"status code: 40[13]\b(?!.*169\.254)")
_SIGNED_FOR_GET = re.compile(r"status code: 4(?!04)\d\d")
"""In what a server says when it refuses to describe a file that it sends."""
_NO_LENGTH = "Content-Length Header missing"
_XML = re.compile(r"<\?xml.*<Code>(?P<code>[^<]*)</Code>\s*(?:<Message>(?P<message>[^<]*)</Message>)?.*", re.DOTALL)
"""An answer of a store that is no object; besides what is wrong it repeats the signature."""


class Objects(AbstractFileSystem):  # type: ignore[misc]
    """The objects of the buckets that some options give access to.

    A path is the URL without its scheme: the bucket (in Azure: with its account, where the URL has it) and the key.
    There are directories where there are objects below them.

    Args:
        options: Options of the store, by fsspec's names or by those of obstore.
    """

    cachable = False
    protocol: ClassVar[tuple[str, ...]] = ()
    has_order: ClassVar[bool] = False
    """Whether the service lists in the order of names, from any of them on."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._stores: dict[str, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.partition("://")[2].rstrip("/") if "://" in path else path.rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        return name if "://" in name else f"{self.protocol[0]}://{name}"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe what there is at a path.

        Raises:
            FileNotFoundError: When that is nothing.
            StorageError: When the store does not answer.
        """
        store, key = self._find_place(path)
        info = self._describe(path)
        if info is not None:
            return info
        with _translate_answers(self.unstrip_protocol(path)):
            if next(iter(obstore.list(store, key or None, chunk_size=1)), None):
                return _describe_directory(path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.unstrip_protocol(path))

    def _describe(self, path: str) -> dict[str, Any] | None:
        """Return the description of an object; `None` where there is none."""
        store, key = self._find_place(path)
        with contextlib.suppress(FileNotFoundError), _translate_answers(self.unstrip_protocol(path)):
            return describe_object(path, obstore.head(store, key)) if key else None
        return None

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """Return all objects below a path, or the object that it is."""
        if maxdepth is not None:
            try:
                return super().find(path, maxdepth, withdirs, detail, on_error="raise")
            except FileNotFoundError:
                return {} if detail else []
        infos = {info["name"]: info for page in self.list_pages(path) for info in page}
        if withdirs:
            above = {parent for name in infos for parent in _list_parents(name) if parent.startswith(path)}
            infos |= {name: _describe_directory(name) for name in above if name not in infos}
        return dict(sorted(infos.items())) if detail else sorted(infos)

    def list_pages(self, path: str, last: str = "") -> Iterator[list[dict[str, Any]]]:
        """Return descriptions of all objects below a path, or of the object that it is, some at a time, as they arrive.

        The first request is made at once.

        Args:
            path: The path.
            last: An object after which the listing goes on.
        """
        pages = self._list_pages_below(path, last)
        with ThreadPoolExecutor(1) as pool:
            # What is called as a file is asked for by its name at the same time.
            head = pool.submit(self._describe, path) if "." in posixpath.basename(path) and not last else None
            first = next(pages, None)
            if first is None and not last:
                info = self._describe(path) if head is None else head.result()
                first = None if info is None else [info]
        return itertools.chain([first], pages) if first else pages

    def has_order_in(self, path: str) -> bool:
        """Return whether what is below a path is listed in the order of names, from any of them on."""
        return self.has_order and not path.partition("/")[0].endswith(_UNORDERED)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List what is directly below a path.

        Raises:
            FileNotFoundError: When there is nothing at the path.
        """
        store, key = self._find_place(path)
        with _translate_answers(self.unstrip_protocol(path)):
            answer = obstore.list_with_delimiter(store, key or None)
        bucket = path.partition("/")[0]
        entries = [_describe_directory(f"{bucket}/{prefix.rstrip('/')}") for prefix in answer["common_prefixes"]]
        entries += [
            describe_object(f"{bucket}/{meta['path']}", meta) for meta in answer["objects"] if meta["path"] != key
        ]
        if not entries and key:
            with _translate_answers(self.unstrip_protocol(path)):
                entries = [describe_object(path, obstore.head(store, key))]
        return entries if detail else [entry["name"] for entry in entries]

    def find_names(self, path: str, beginnings: Sequence[str]) -> list[dict[str, Any]]:
        """Describe the objects directly below a path whose names begin so, by one request for each beginning at most.

        The one for the last beginning is made at the same time as the first. More are made where there are more than a
        page of such objects, and all is listed where the service, or the server in its place, cannot begin at a name.
        """
        store, key = self._find_place(path)
        bucket, above = path.partition("/")[0], f"{key}/" if key else ""
        if not self.has_order_in(path):
            return self.ls(path)
        prefixes = sorted(above + beginning for beginning in beginnings)

        def list_page(offset: str) -> Sequence[Any]:
            with _translate_answers(self.unstrip_protocol(path)):
                return next(iter(obstore.list(store, key or None, offset=offset, chunk_size=_PAGE)), [])

        metas: list[Any] = []
        last, has_more, last_offset = "", True, prefixes[-1][:-1]
        with ThreadPoolExecutor(1) as pool:
            last_page = pool.submit(list_page, last_offset)
            for prefix in prefixes:
                while has_more and (last < prefix or last.startswith(prefix)):
                    offset = max(last, prefix[:-1])
                    page = last_page.result() if offset == last_offset else list_page(offset)
                    if page and page[0]["path"] <= offset:
                        return self.ls(path)
                    metas += [meta for meta in page if meta["path"].startswith(tuple(prefixes))]
                    last, has_more = page[-1]["path"] if page else last, len(page) >= _PAGE
        direct = (meta for meta in metas if "/" not in meta["path"][len(above) :])
        objects = (meta for meta in direct if meta["size"] or self._is_object(store, meta["path"]))
        return [describe_object(f"{bucket}/{meta['path']}", meta) for meta in objects]

    def fetch(self, path: str, start: int, end: int, tag: str = "") -> tuple[memoryview, dict[str, Any]]:
        """Return a range of an object in the memory that its answer came in, and the description of what it is of.

        From a server that knows no ranges, it is the whole object.

        Raises:
            ChangedError: When the object does not have the tag.
        """
        store, key = self._find_place(path)
        options: GetOptions = {"if_match": f'"{tag}"'} if tag else {}
        with _translate_answers(self.unstrip_protocol(path)):
            try:
                answer = obstore.get(store, key, options={**options, "range": (start, end)})
            except NotSupportedError:
                answer = obstore.get(store, key, options=options)
            data = memoryview(answer.bytes())
            return data, describe_object(path, answer.meta)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return a range of an object, the whole of it by default."""
        if not start and end is None:
            store, key = self._find_place(path)
            with _translate_answers(self.unstrip_protocol(path)):
                return bytes(obstore.get(store, key).bytes())
        size = self.info(path)["size"] if end is None or end < 0 or (start or 0) < 0 else 0
        start = (start or 0) + (size if (start or 0) < 0 else 0)
        end = size if end is None else end + (size if end < 0 else 0)
        return bytes(self.fetch(path, start, end)[0]) if start < end else b""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Make an object.

        Raises:
            FileExistsError: When there is one, and the mode is `create`.
        """
        store, key = self._find_place(path)
        if mode == "create" and self._is_object(store, key):  # some stores do not know the condition
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.unstrip_protocol(path))
        with _translate_answers(self.unstrip_protocol(path)):
            obstore.put(store, key, value, mode="create" if mode == "create" else "overwrite")

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Upload a local file, several parts at a time."""
        store, key = self._find_place(rpath)
        with _translate_answers(self.unstrip_protocol(rpath)):
            obstore.put(store, key, Path(lpath), chunk_size=_PART_BYTES)

    def open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        """Open an object to read, or to write: it is there when it is closed."""
        if mode != "wb":
            return super().open(path, mode, **settings)
        store, key = self._find_place(path)
        with _translate_answers(self.unstrip_protocol(path)):
            return Upload(obstore.open_writer(store, key, buffer_size=_PART_BYTES), self.unstrip_protocol(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make nothing: a directory is there when something is in it."""

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy an object; within a bucket the store does it."""
        (store, key), (target, place) = self._find_place(path1), self._find_place(path2)
        with _translate_answers(self.unstrip_protocol(path1)):
            if store is target and self.info(path1)["size"] < _MAX_COPY_BYTES:
                obstore.copy(store, key, place)
            else:
                obstore.put(target, place, iter(obstore.get(store, key).stream(_PART_BYTES)), chunk_size=_PART_BYTES)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Copy an object, and delete the first."""
        self.cp_file(path1, path2)
        self.rm_file(path1)

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        store, key = self._find_place(path)
        with _translate_answers(self.unstrip_protocol(path)):
            obstore.delete(store, key)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete an object, or all that are below a path."""
        if not recursive:
            self.rm_file(path)
            return
        store, bucket = self._find_place(path)[0], path.partition("/")[0]
        keys = [name[len(bucket) + 1 :] for name in self.find(path)]
        with _translate_answers(self.unstrip_protocol(path)):
            for first in range(0, len(keys), _MAX_DELETED):
                obstore.delete(store, keys[first : first + _MAX_DELETED])

    def _list_pages_below(self, path: str, last: str) -> Iterator[list[dict[str, Any]]]:
        """Yield descriptions of the objects below a path. Objects that stand for directories are none."""
        store, key = self._find_place(path)
        bucket, _, offset = last.partition("/") if last else (path.partition("/")[0], "", None)
        with _translate_answers(self.unstrip_protocol(path)), contextlib.suppress(FileNotFoundError):
            for metas in obstore.list(store, key or None, offset=offset, chunk_size=_LISTED_AT_ONCE):
                after = (meta for meta in metas if offset is None or meta["path"] > offset)  # servers may not know it
                objects = (meta for meta in after if meta["size"] or self._is_object(store, meta["path"]))
                if infos := [describe_object(f"{bucket}/{meta['path']}", meta) for meta in objects]:
                    yield infos

    def _is_object(self, store: Any, key: str) -> bool:
        """Return whether a name has an object: obstore lists names without a last slash, and cannot find them."""
        with contextlib.suppress(FileNotFoundError), _translate_answers(self.unstrip_protocol(key)):
            obstore.head(store, key)
            return True
        return False

    def _find_place(self, path: str) -> tuple[Any, str]:
        """Return the store of a path, made once, and the key in it."""
        bucket, _, key = path.partition("/")
        return self._connect_once(bucket), key

    def _connect_once(self, name: str) -> Any:
        with self._lock:
            if name not in self._stores:
                with _translate_refusals(name):
                    self._stores[name] = self.connect(name)
            return self._stores[name]

    def connect(self, name: str) -> Any:
        """Return obstore's store for a bucket or a server."""
        raise NotImplementedError


class S3Objects(Objects):
    """Objects of S3, and of what speaks its protocol."""

    protocol = ("s3",)
    has_order = True

    def connect(self, name: str) -> S3Store:
        return S3Store(name, **make_s3_settings(self._options, name))


class GoogleObjects(Objects):
    """Objects of Google's Cloud Storage."""

    protocol = ("gs", "gcs")
    has_order = True

    def connect(self, name: str) -> GCSStore:
        return GCSStore(name, **make_google_settings(self._options))


class AzureObjects(Objects):
    """Blobs of Azure."""

    protocol = ("abfs", "abfss", "az", "adl")

    def connect(self, name: str) -> AzureStore:
        container, _, host = name.partition("@")
        return AzureStore(container, **make_azure_settings(self._options, host))


class HttpObjects(Objects):
    """Files of servers of HTTP; paths are URLs, and there are no directories."""

    protocol = ("http", "https")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return the file at a URL; of size `None` where its server does not say so."""
        store, key = self._find_place(path)
        try:
            with _translate_answers(self.unstrip_protocol(path)):
                try:
                    meta = obstore.head(store, key)
                except BaseError as error:
                    if not _SIGNED_FOR_GET.search(str(error)):
                        raise
                    meta = obstore.get(store, key, options={"range": (0, 1)}).meta
        except StorageError as error:
            if _NO_LENGTH not in str(error):
                raise
            return {"name": path, "size": None, "type": "file"}
        return describe_object(path, meta)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Raise `FileNotFoundError`: servers have no directories."""
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), without_secrets(path))

    def open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        """Open a file to read; one whose server does not say how long it is, from its beginning to its end."""
        if mode == "rb" and self.info(path)["size"] is None:
            headers, url = _split_authorization(path)
            headers |= make_http_settings(self._options)["client_options"].get("default_headers", {})
            return urllib.request.urlopen(urllib.request.Request(url, headers=headers))  # noqa: S310, HTTP only
        return super().open(path, mode, **settings)

    def _find_place(self, path: str) -> tuple[Any, str]:
        """Return the store of a server and the path there; that of a URL itself where it is more than a path."""
        parts = urllib.parse.urlsplit(path)
        key = urllib.parse.unquote(parts.path).strip("/")
        if parts.query or urllib.parse.quote(key) != urllib.parse.quote(parts.path.strip("/"), "/%"):
            return self._connect_once(path), ""
        return self._connect_once(f"{parts.scheme}://{parts.netloc}"), key

    def connect(self, name: str) -> HTTPStore:
        settings = make_http_settings(self._options)
        headers, url = _split_authorization(name)
        client = settings["client_options"]
        return HTTPStore(
            url,
            **{
                **settings,
                "client_options": {**client, "default_headers": headers | client.get("default_headers", {})},
            },
        )


SCHEMES: Mapping[str, type[Objects]] = {
    scheme: kind for kind in (S3Objects, GoogleObjects, AzureObjects, HttpObjects) for scheme in kind.protocol
}
"""The file system of each scheme."""


class Upload:
    """A writer of obstore that raises errors of sawlog."""

    def __init__(self, writer: Any, url: str) -> None:
        self._writer = writer
        self._url = url
        self._has_failed = False

    def write(self, data: Any) -> int:
        """Append bytes, copied: they are sent later, when their buffer may have others."""
        with self._convert_faults():
            return int(self._writer.write(bytes(data)))

    def close(self) -> None:
        """Have the object made, unless a part of it could not be sent."""
        if not (self._has_failed or self._writer.closed()):
            with self._convert_faults():
                self._writer.close()

    @contextlib.contextmanager
    def _convert_faults(self) -> Iterator[None]:
        """Raise faults as errors of sawlog. What has failed is not closed: obstore would send the rest elsewhere."""
        try:
            with _translate_answers(self._url):
                yield
        except OSError as error:
            self._has_failed = True
            if isinstance(error, StorageError | PermissionError) or error.errno is not None:
                raise
            raise StorageError(f"{self._url}: {_describe_error(error, self._url)}") from error


@contextlib.contextmanager
def _translate_answers(url: str) -> Iterator[None]:
    """Raise what a store says of a path as Python has it; faults as `StorageError`, with no secret in them."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), without_secrets(url)) from error
    except AlreadyExistsError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), without_secrets(url)) from error
    except PreconditionError as error:
        raise ChangedError(f"{url}: the file was replaced while it was read; open it again") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, without_secrets(f"{url}: {_describe_error(error, url)}")) from error
    except BaseError as error:
        text = _describe_error(error, url)
        if _REFUSED.search(text):  # a listing
            raise PermissionError(errno.EACCES, without_secrets(f"{url}: {text}")) from error
        raise StorageError(f"{url}: {text}") from error


@contextlib.contextmanager
def _translate_refusals(name: str) -> Iterator[None]:
    """Raise what obstore says of options as an `OptionError`."""
    try:
        yield
    except (BaseError, TypeError, ValueError) as error:
        raise OptionError(
            f"{name}: {_describe_error(error, name)}; expected the options that its store takes"
        ) from error


def _describe_error(error: Exception, url: str) -> str:
    """Return what obstore says, in one line."""
    text = _XML.sub(r"\g<code>: \g<message>", str(error).partition("\n\nDebug source")[0])
    for secret in find_secrets(url):
        text = text.replace(secret, "***")
    if _METADATA in text:
        text = f"no credentials are given, and this machine has none of its own ({text}); see storage_options"
    return " ".join(text.split())


def _split_authorization(url: str) -> tuple[dict[str, str], str]:
    """Return the headers that say who asks, and the URL without it."""
    parts = urllib.parse.urlsplit(url)
    user, sign, host = parts.netloc.rpartition("@")
    if not sign:
        return {}, url
    text = urllib.parse.unquote(user if ":" in user else f"{user}:")
    headers = {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}
    return headers, urllib.parse.urlunsplit(parts._replace(netloc=host))


def describe_object(path: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as fsspec describes it."""
    info = {"name": path, "size": meta["size"], "type": "file"}
    if meta["last_modified"].timestamp():  # which is 1970 where the server does not say it
        info["LastModified"] = meta["last_modified"]
    return {**info, "ETag": meta["e_tag"]} if meta["e_tag"] else info


def _describe_directory(path: str) -> dict[str, Any]:
    return {"name": path, "size": 0, "type": "directory"}


def _list_parents(path: str) -> Iterator[str]:
    """Yield the directories above a path, up to its bucket."""
    while "/" in path:
        path = posixpath.dirname(path)
        yield path
