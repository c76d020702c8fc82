"""Stores that obstore reaches: options, faults, conditions, and servers of HTTP that know little."""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

import sawlog
from sawlog.errors import ChangedError, OptionError, StorageError
from sawlog.storage import Storage, flight, objects, store_options
from sawlog.storage.remote import connect
from tests.support import write_records

DATA = bytes(range(256)) * 40
LIST = obstore.list


class Files(BaseHTTPRequestHandler):
    """Sends one file, as well as it is told to."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[tuple[str, str, dict[str, str]]]] = []
    knows: ClassVar[set[str]] = set()
    tags: ClassVar[list[str]] = []
    faults: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.requests.append((self.command, self.path, dict(self.headers)))
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, ranged = DATA, self.headers.get("Range")
        if ranged and "ranges" in self.knows:
            start, end = map(int, ranged.removeprefix("bytes=").split("-"))
            data = DATA[start : end + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(DATA)}")
        else:
            self.send_response(200)
        if "tags" in self.knows:
            self.send_header("ETag", f'"{self.tags[0] if self.command == "HEAD" else self.tags[-1]}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        if fault == "cut":
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Files.requests, Files.faults = [], []
    Files.knows, Files.tags = {"ranges", "tags"}, ["a"]
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("knows", [{"ranges", "tags"}, {"ranges"}, {"tags"}, set()])
def test_a_file_of_a_server_is_read_in_ranges_or_whole(
    server: str, knows: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "REMOTE_RANGE", 3000)
    Files.knows = knows
    (file,) = Storage().find(f"{server}/a%20b.log?q=%2F")
    assert file.size == len(DATA)
    with closing(Storage().open(file)) as source:
        assert b"".join(source.read_window(offset, 1000).tobytes() for offset in range(0, len(DATA), 1000)) == DATA
    assert {path for _, path, _ in Files.requests} == {"/a%20b.log?q=%2F"}
    ranged = [headers for command, _, headers in Files.requests if command == "GET" and "range" in headers]
    assert all(("if-match" in headers) == ("tags" in knows) for headers in ranged)


def test_a_server_is_told_who_asks(server: str) -> None:
    url = f"{server.replace('//', '//me:hunter2@')}/x.log"
    assert Storage({"headers": {"X-Team": "logs"}}).read(url, 10, 5) == DATA[10:15]
    for _, _, headers in Files.requests:
        assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:hunter2"
        assert headers["x-team"] == "logs"


def test_another_tag_in_an_answer_is_another_file(server: str) -> None:
    Files.tags = ["a", "b"]
    with pytest.raises(ChangedError, match="was replaced while it was read"):
        Storage().read(f"{server}/x.log")


@pytest.mark.parametrize("faults", [["503"], ["429"], ["cut"], ["cut", "503"]])
def test_requests_are_made_again(server: str, faults: list[str]) -> None:
    storage = Storage()
    storage.find(f"{server}/x.log")
    Files.faults = list(faults)
    assert storage.read(f"{server}/x.log") == DATA
    assert len(Files.requests) == 2 + len(faults)


def test_requests_are_not_made_again_for_ever(server: str) -> None:
    storage = Storage()
    storage.find(f"{server}/x.log")
    Files.faults = ["500"] * 100
    with pytest.raises(StorageError, match="500"):
        storage.read(f"{server}/x.log")
    assert len(Files.requests) < 12


def test_signed_urls_for_get_only_are_read(server: str) -> None:
    Files.faults = ["403"]
    assert Storage().read(f"{server}/x.log?signature=abc") == DATA


@pytest.mark.parametrize("url", ["s3://bucket/x.log", "http://127.0.0.1:{port}/x.log", "gs://bucket/x.log"])
def test_where_nobody_listens_reading_fails_in_seconds(url: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options: dict[str, Any] = {"endpoint_url": f"http://127.0.0.1:{port}"}
    options |= {"key": "k", "secret": "hunter2"} if url.startswith("s3") else {"token": "anon"}
    start_time = time.monotonic()
    with pytest.raises(StorageError, match="127") as raised:
        Storage({} if url.startswith("http") else options).find(url.format(port=port))
    assert time.monotonic() - start_time < 10
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "options", "name"),
    [
        ("s3://b/x", {"key": "k", "secret": "s", "endpoint_url": "http://h", "colour": 1}, "colour"),
        ("s3://b/x", {"client_kwargs": {"endpoint": "http://h"}}, "endpoint"),
        ("s3://b/x", {"config_kwargs": {"tcp": 1}}, "tcp"),
        ("gs://b/x", {"token": "anon", "colour": 1}, "colour"),
        ("gs://b/x", {"token": "/nowhere.json"}, "token"),
        ("az://b/x", {"account_name": "a", "colour": 1}, "colour"),
        ("az://b/x", {"account_name": "a", "credential": "hunter2"}, "credential"),
        ("http://h/x", {"colour": 1}, "colour"),
    ],
)
def test_an_unknown_option_is_refused_by_name(url: str, options: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError, match=name) as raised:
        Storage(options).find(url)
    assert "hunter2" not in str(raised.value)


def test_every_range_has_the_tag_of_the_listing(s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "REMOTE_RANGE", 100_000)
    url = "s3://logs/tags/1.log"
    write_records(url, [bytes(300_000)], storage_options=s3)
    requests_seen: list[dict[str, Any]] = []
    get = obstore.get

    def counted(store: Any, path: str, *, options: Any = None) -> Any:
        requests_seen.append(options)
        return get(store, path, options=options)

    monkeypatch.setattr(obstore, "get", counted)
    assert sawlog.read("s3://logs/tags", storage_options=s3).num_rows == 1
    assert len(requests_seen) >= 3
    assert len({options["if_match"] for options in requests_seen}) == 1


def test_what_stands_for_a_directory_is_no_file(s3: dict[str, Any]) -> None:
    fs = fsspec.filesystem("s3", **s3)
    fs.pipe_file("logs/marked/1.log", b"x")
    for key in ("marked/", "marked/deep/"):
        fs.call_s3("put_object", Bucket="logs", Key=key, Body=b"")
    fs.pipe_file("logs/marked/empty.log", b"")
    assert [file.name for file in Storage(s3).find("s3://logs/marked")] == ["1.log", "empty.log"]


def test_a_profile_is_read_by_boto3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text("[default]\naws_access_key_id=d\naws_secret_access_key=e\n[team]\n"
                           "aws_access_key_id=k\naws_secret_access_key=s\n")  # fmt: skip
    config.write_text("[profile team]\nregion=eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    settings = store_options.make_s3_settings({"profile": "team"}, "bucket")
    assert settings["config"]["region"] == "eu-west-1"
    assert settings["credential_provider"]()["access_key_id"] == "k"
    plain = store_options.make_s3_settings({"endpoint_url": "http://h"}, "bucket")
    assert plain["credential_provider"]()["access_key_id"] == "d"
    with pytest.raises(OptionError, match="nobody"):
        store_options.make_s3_settings({"profile": "nobody"}, "bucket")


def test_names_of_fsspec_are_those_of_obstore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    options: dict[str, Any] = {
        "key": "k",
        "secret": "s",
        "token": "t",
        "requester_pays": True,
        "client_kwargs": {"endpoint_url": "http://h:1", "region_name": "r", "verify": False},
        "config_kwargs": {"s3": {"addressing_style": "virtual"}, "read_timeout": 3, "proxies": {"https": "http://p"}},
        "s3_additional_kwargs": {"ServerSideEncryption": "AES256"},
    }
    settings = store_options.make_s3_settings(options, "b")
    assert settings["config"] == {
        "access_key_id": "k",
        "secret_access_key": "s",
        "session_token": "t",
        "request_payer": True,
        "endpoint": "http://b.h:1",
        "region": "r",
        "virtual_hosted_style_request": True,
        "server_side_encryption": "AES256",
    }
    client = settings["client_options"]
    assert (client["allow_http"], client["allow_invalid_certificates"], client["proxy_url"]) == (True, True, "http://p")
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account"}))
    google = store_options.make_google_settings({"token": str(key), "project": "p"})["config"]
    assert google == {"application_credentials": str(key)}
    text = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:1/a"
    azure = store_options.make_azure_settings({"connection_string": text}, "")
    assert azure["config"] == {"account_name": "a", "account_key": "k==", "endpoint": "http://127.0.0.1:1/a"}
    assert azure["client_options"]["allow_http"]
    assert store_options.make_azure_settings({"sas_token": "?s"}, "a.dfs.core.windows.net")["config"] == {
        "sas_key": "?s",
        "account_name": "a",
    }


def test_a_listing_takes_at_most_1_kb_of_memory_per_object(monkeypatch: pytest.MonkeyPatch) -> None:
    count, store = 2000, MemoryStore()
    for number in range(count):
        obstore.put(store, f"logs/{number:06}.log", b"x")
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    storage = Storage({"key": "of-listings", "secret": "b"})
    assert len(storage.find("s3://few/logs/000001.log")) == 1  # which imports
    tracemalloc.start()
    try:
        files = storage.find("s3://bucket/logs")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    names = sum(sys.getsizeof(file.path) for file in files)
    tags = 2 * 32 * count  # those of S3 are so much longer
    assert (peak - names + tags) / count <= 1000


class Description(dict[str, Any]):
    """What a listing says of an object, as something that can be counted while it is alive."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("knows_offsets", [True, False])
def test_a_listing_is_read_as_it_arrives_and_goes_on_where_it_stopped(
    knows_offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two pages are held; an answer that ends too soon is asked for again from there on.

    Servers that know no offsets send all of it again.
    """
    count, store = 1000, MemoryStore()
    for number in range(count):
        obstore.put(store, f"logs/{number:06}.log", b"x")
    alive: weakref.WeakSet[Description] = weakref.WeakSet()
    peaks, offsets, descriptions = [0], [], [0]
    list_entries, describe = obstore.list, objects.describe_object

    def list_objects(place: MemoryStore, prefix: str, *, offset: str | None, chunk_size: int) -> Iterator[Any]:
        offsets.append(offset)
        for number, page in enumerate(
            list_entries(place, prefix, offset=offset if knows_offsets else None, chunk_size=chunk_size)
        ):
            if offset is None and number == 2:
                raise GenericError("response body error")
            yield page

    def described(path: str, meta: Any) -> Description:
        description = Description(describe(path, meta))
        alive.add(description)
        descriptions[0] += 1
        peaks[0] = max(peaks[0], len(alive))
        return description

    monkeypatch.setattr(obstore, "list", list_objects)
    monkeypatch.setattr(objects, "describe_object", described)
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    files = Storage({"key": f"of-pages-{knows_offsets}", "secret": "b"}).find("s3://bucket/logs")
    assert [file.path for file in files] == [f"s3://bucket/logs/{number:06}.log" for number in range(count)]
    assert offsets == [None, "logs/000199.log"]
    assert descriptions[0] == count
    assert peaks[0] < count / 2


@pytest.mark.parametrize("knows_offsets", [True, False])
@pytest.mark.parametrize("owner", ["leveldb", "pebble", "rocksdb"])
def test_a_log_opened_by_itself_asks_only_for_files_that_say_whose_it_is(
    knows_offsets: bool, owner: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Few names are listed for its dialect, however many logs lie next to it and whatever is below."""
    count, store = 3500, MemoryStore()
    write_records(tmp_path / "log", [b"x"])
    for number in range(count):
        obstore.put(store, f"logs/{number:06}.log", (tmp_path / "log").read_bytes())
        obstore.put(store, f"logs/below/{number:06}.log", b"x")
    names = {
        "leveldb": [],
        "pebble": ["marker.format-version.000001.013"],
        "rocksdb": ["OPTIONS-000007", "OPTIONS-old", "OPTIONS-000009"],
    }[owner]
    for name in names:
        obstore.put(store, f"logs/{name}", b"[Version]\n  rocksdb_version=8.0.0\n" if owner == "rocksdb" else b"")
    listed, requests = [0], [0]
    list_entries, in_directory = obstore.list, obstore.list_with_delimiter

    def list_objects(place: MemoryStore, prefix: str, offset: str | None = None, **settings: Any) -> Iterator[Any]:
        requests[0] += 1
        for page in list_entries(place, prefix, offset=offset if knows_offsets else None, **settings):
            listed[0] += len(page)
            yield page

    def list_directory(place: MemoryStore, prefix: str) -> Any:
        requests[0] += 1
        answer = in_directory(place, prefix)
        listed[0] += len(answer["objects"])
        return answer

    monkeypatch.setattr(obstore, "list", list_objects)
    monkeypatch.setattr(obstore, "list_with_delimiter", list_directory)
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    options = {"key": f"of-owners-{owner}-{knows_offsets}", "secret": "b"}
    for number in (5, 3000):
        requests[0] = listed[0] = 0
        dataset = sawlog.open(f"s3://bucket/logs/{number:06}.log", storage_options=options)
        assert dataset.count_rows() == 1
        assert dataset.info()["dialect"] == owner
        if knows_offsets:
            assert requests[0] <= 6
            assert listed[0] <= 1000 + 10  # a page of what is below


def test_all_is_listed_where_a_store_lists_in_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for name in ("IDENTITY", "OPTIONS-000007", "a.log"):
        obstore.put(store, f"logs/{name}", b"x")
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    fs = connect("s3://zonal--use1-az4--x-s3/logs", {"key": "of-express", "secret": "b"})[0]
    listed = fs.find_names("zonal--use1-az4--x-s3/logs", ["OPTIONS-"])
    assert sorted(info["name"].rpartition("/")[2] for info in listed) == ["IDENTITY", "OPTIONS-000007", "a.log"]


@pytest.mark.parametrize("url", ["s3://zonal--use1-az4--x-s3/logs", "az://container/logs"])
def test_a_listing_in_no_order_begins_again_where_it_stopped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time in another order, and the first page has the last name; each object is handed out once."""
    store, count = MemoryStore(), 1000
    for number in range(count):
        obstore.put(store, f"logs/{number:06}.log", b"x")
    offsets: list[str | None] = []

    def list_objects(place: MemoryStore, prefix: str, *, offset: str | None, chunk_size: int) -> Iterator[Any]:
        offsets.append(offset)
        metas = [meta for page in LIST(place, prefix) for meta in page if offset is None or meta["path"] > offset]
        metas.sort(key=lambda meta: meta["path"][-5 - len(offsets)], reverse=True)
        for first in range(0, len(metas), chunk_size):
            if first and len(offsets) < 4:
                raise GenericError("response body error")
            yield metas[first : first + chunk_size]

    monkeypatch.setattr(obstore, "list", list_objects)
    for kind in (objects.S3Objects, objects.AzureObjects):
        monkeypatch.setattr(kind, "connect", lambda self, name: store)
    fs, path = connect(url, {"key": "of-no-order", "secret": "b"} if url.startswith("s3") else {"anon": True})
    names = [name for name, _ in fs.list_below(path)]
    assert sorted(names) == [f"{url.partition('://')[2]}/{number:06}.log" for number in range(count)]
    assert offsets == [None] * 4


def test_names_that_fill_pages_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(2500):
        obstore.put(store, f"logs/OPTIONS-{number:06}", b"x")
    obstore.put(store, "logs/marker.a", b"x")
    obstore.put(store, "logs/zz", b"x")
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    infos = objects.S3Objects().find_names("bucket/logs", ["OPTIONS-", "marker."])
    assert len({info["name"] for info in infos}) == len(infos) == 2501


def test_a_log_opened_by_itself_waits_for_few_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file has no log of jobs; its end is asked for once, for all that look there; names are asked for at a time."""
    store, requests = MemoryStore(), Counter[str]()
    write_records(tmp_path / "log", [bytes(1000)] * 500)
    log = (tmp_path / "log").read_bytes()
    obstore.put(store, "logs/000003.log", log)
    ends: list[tuple[int, int]] = []
    get = obstore.get

    def count(name: str) -> Callable[..., Any]:
        call = getattr(obstore, name)
        return lambda *arguments, **settings: requests.update([name]) or call(*arguments, **settings)

    def note_range(store: MemoryStore, key: str, *, options: Any) -> Any:
        ends.append(options["range"])
        return get(store, key, options=options)

    for name in ("list", "list_with_delimiter", "head"):
        monkeypatch.setattr(obstore, name, count(name))
    monkeypatch.setattr(obstore, "get", note_range)
    monkeypatch.setattr(objects.S3Objects, "connect", lambda self, name: store)
    dataset = sawlog.open("s3://bucket/logs/000003.log", storage_options={"key": "of-few-answers", "secret": "b"})
    assert dataset.count_rows() == 500
    assert requests == {"head": 1, "list": 3}, "the object, what is below its name, and names of two beginnings"
    assert len([start for start, end in ends if end == len(log) and start > len(log) // 2]) == 1
