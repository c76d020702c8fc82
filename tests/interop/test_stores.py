"""Each row of the table of storage options in docs/stores.md, against real servers of S3, Google and Azure."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config

import sawlog
from sawlog.errors import ChangedError, StorageError
from sawlog.storage import Storage
from sawlog.storage.remote import connect
from tests.support import find_free_port

pytestmark = pytest.mark.interop

CACHE = Path(__file__).parents[2] / ".cache"
MODULES = {
    "minio": "github.com/minio/minio@latest",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.0.10",
    "fake-gcs-server": "github.com/fsouza/fake-gcs-server@latest",
}
KEY, SECRET = "sawlog", "sawlog-secret"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What every Azurite has, and everybody knows."""


def program(name: str) -> str:
    """A server; built once, unless a variable such as `SAWLOG_MINIO` names one that is at hand."""
    if named := os.environ.get(f"SAWLOG_{name.upper().replace('-', '_')}"):
        return named
    built = CACHE / "bin" / name
    if not built.exists() and name in MODULES:
        environment = {**os.environ, "GOBIN": str(CACHE / "bin"), "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "install", MODULES[name]], check=True, env=environment)
    elif not built.exists():
        package = name.partition("-")[0]
        command = ["npm", "install", "--no-fund", "--no-audit", "--prefix", str(CACHE / "npm"), package]
        subprocess.run(command, check=True)
        return str(CACHE / "npm" / "node_modules" / ".bin" / name)
    return str(built)


@contextlib.contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server, once it listens."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env={**os.environ, **environment}, **quiet)  # type: ignore[call-overload]
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(2)
        yield
    finally:
        server.terminate()
        server.wait(30)


def works(root: str, options: dict[str, Any]) -> None:
    """Write, list, read, replace, delete, and make what may only be made once."""
    table = pa.table({"record": pa.array([b"x" * 1000] * 9000, pa.binary())})
    sawlog.write(table, f"{root}/d/1.log", format="leveldb_log", storage_options=options)
    assert sawlog.read(f"{root}/d", storage_options=options).num_rows == 9000
    assert sawlog.read(f"{root}/d/*.log", storage_options=options, format="leveldb_log").num_rows == 9000
    storage = Storage(options)
    storage.find(f"{root}/d")
    sawlog.write(table.slice(1), f"{root}/d/1.log", format="leveldb_log", storage_options=options)
    with pytest.raises(ChangedError):
        storage.open(f"{root}/d/1.log").read_window(0, 7)
    directories = Storage(options).directories
    directories.create(f"{root}/d/once", b"1")
    with pytest.raises(FileExistsError):
        directories.create(f"{root}/d/once", b"2")
    assert directories.read_now(f"{root}/d/once") == b"1"
    for name in ("1.log", "once"):
        directories.remove(f"{root}/d/{name}")
    assert not Storage(options).exists(f"{root}/d")
    with pytest.raises(FileNotFoundError):
        Storage(options).find(f"{root}/d/1.log")


@pytest.fixture(scope="module", params=["minio", "versitygw"])
def s3_like(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that speaks S3, with a bucket `logs`."""
    data, port = tmp_path_factory.mktemp("data"), find_free_port()
    (data / "logs").mkdir()
    names = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [program("minio"), "server", "--address", f"127.0.0.1:{port}", "--console-address", "127.0.0.1:0"]
    if request.param == "versitygw":
        side = tmp_path_factory.mktemp("side")
        command = [program("versitygw"), "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(side)]
    with running([*command, str(data)], port, **names):
        yield f"http://127.0.0.1:{port}"


def client(endpoint: str, service: str = "s3") -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": ""}},
        {"key": KEY, "secret": SECRET, "endpoint_url": "", "client_kwargs": {"region_name": "us-east-1"}},
        {"username": KEY, "password": SECRET, "endpoint_url": "", "use_ssl": False},
        {"client_kwargs": {"endpoint_url": "", "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}},
        {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": "", "region": "us-east-1"},
        {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "aws_endpoint": ""},
        {
            "key": KEY,
            "secret": SECRET,
            "endpoint_url": "",
            "config_kwargs": {
                "connect_timeout": 3,
                "read_timeout": 9,
                "retries": {"max_attempts": 1},
                "s3": {"addressing_style": "path"},
            },
        },
    ],
)
def test_objects_of_s3_are_read_by_every_option(s3_like: str, options: dict[str, Any]) -> None:
    filled = json.loads(json.dumps(options).replace('""', json.dumps(s3_like)))
    works("s3://logs/rows", filled)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_variables_of_aws_are_heeded(s3_like: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1", name: s3_like}
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    works("s3a://logs/variables", {})


@pytest.mark.parametrize("options", [{"profile": "team"}, {}])
def test_profiles_of_aws_are_heeded(
    s3_like: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "credentials"
    sections = (f"[{name}]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n" for name in ("team", "default"))
    credentials.write_text("".join(sections))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    works("s3://logs/profiles", {**options, "endpoint_url": s3_like})


def test_public_objects_are_read_without_a_key(s3_like: str, request: pytest.FixtureRequest) -> None:
    if "versitygw" in request.node.name:
        pytest.skip("this version knows no one without a name")
    s3 = client(s3_like)
    table = pa.table({"record": [b"x"]})
    options = {"key": KEY, "secret": SECRET, "endpoint_url": s3_like}
    sawlog.write(table, "s3://logs/public/1.log", format="leveldb_log", storage_options=options)
    with pytest.raises(PermissionError):
        sawlog.read("s3://logs/public", storage_options={"anon": True, "endpoint_url": s3_like})
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": ["arn:aws:s3:::logs", "arn:aws:s3:::logs/*"],
    }
    s3.put_bucket_policy(Bucket="logs", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    try:
        for name in ("anon", "skip_signature"):
            read = sawlog.read("s3://logs/public", storage_options={name: True, "endpoint_url": s3_like})
            assert read.num_rows == 1
    finally:
        s3.delete_bucket_policy(Bucket="logs")


def test_wrong_secrets_are_refused_and_not_shown(s3_like: str) -> None:
    options = {"key": KEY, "secret": "hunter2", "endpoint_url": s3_like}
    with pytest.raises(PermissionError) as raised:
        Storage(options).find("s3://logs/x")
    assert "hunter2" not in str(raised.value)


def test_urls_that_are_signed(s3_like: str) -> None:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": s3_like}
    sawlog.write(pa.table({"record": [b"x"]}), "s3://logs/signed/1.log", format="leveldb_log", storage_options=options)
    url = client(s3_like).generate_presigned_url("get_object", {"Bucket": "logs", "Key": "signed/1.log"})
    assert sawlog.read(url, format="leveldb_log").num_rows == 1


class Proxy(BaseHTTPRequestHandler):
    """Hands requests on, and keeps their headers."""

    protocol_version = "HTTP/1.1"
    headers_of: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.headers_of.append({name.lower(): value for name, value in self.headers.items()})
        request = urllib.request.Request(self.path, headers=dict(self.headers), method=self.command)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            answer = opener.open(request)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                self.send_header(name, value)
        length = answer.headers.get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.mark.parametrize("name", ["config_kwargs", "client_options", "http_proxy"])
def test_requests_go_through_a_proxy(s3_like: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": s3_like}
    sawlog.write(pa.table({"record": [b"x"]}), "s3://logs/proxied/1.log", format="leveldb_log", storage_options=options)
    Proxy.headers_of = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        settings: dict[str, Any] = {
            "config_kwargs": {"config_kwargs": {"proxies": {"http": address}}},
            "client_options": {"client_options": {"proxy_url": address}},
            "http_proxy": {},
        }[name]
        if name == "http_proxy":
            monkeypatch.setenv(name, address)
        read = sawlog.read("s3://logs/proxied", storage_options={**options, **settings, "requester_pays": True})
        server.shutdown()
        thread.join()
    assert read.num_rows == 1
    assert Proxy.headers_of
    assert all(headers["x-amz-request-payer"] == "requester" for headers in Proxy.headers_of)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_certificates_of_servers_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates, data, port = tmp_path / "certificates", tmp_path / "data", find_free_port()
    certificates.mkdir()
    (data / "logs").mkdir(parents=True)
    authority, request = tmp_path / "authority.crt", tmp_path / "request"
    names = tmp_path / "names"
    names.write_text("subjectAltName=IP:127.0.0.1")
    new = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
    signed = ["-CA", authority, "-CAkey", tmp_path / "authority.key", "-CAcreateserial", "-extfile", names]
    for command in (
        ["req", "-x509", *new, "/CN=authority", "-keyout", tmp_path / "authority.key", "-out", authority],
        ["req", *new, "/CN=server", "-keyout", certificates / "private.key", "-out", request],
        ["x509", "-req", "-in", request, *signed, "-days", "2", "-out", certificates / "public.crt"],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    server = [program("minio"), "server", "--address", f"127.0.0.1:{port}", "--certs-dir", str(certificates), str(data)]
    options: dict[str, Any] = {"key": KEY, "secret": SECRET, "endpoint_url": f"https://127.0.0.1:{port}"}
    with running(server, port, MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET):
        with pytest.raises(sawlog.StorageError):
            works("s3://logs/tls", options)
        for verify in (False, str(authority)):
            works("s3://logs/tls", {**options, "client_kwargs": {"verify": verify}})
        works("s3://logs/tls", {**options, "client_options": {"root_certificate": authority.read_text()}})
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
        works("s3://logs/tls", options)


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that speaks Google's protocol, with a bucket `logs`."""
    port = find_free_port()
    address = f"http://127.0.0.1:{port}"
    command = [program("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    arguments = ["-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-external-url", address]
    with running([*command, *arguments], port):
        body, headers = b'{"name": "logs"}', {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{address}/storage/v1/b", body, headers))
        yield address


def upload(address: str, name: str, data: bytes) -> None:
    """Make an object of Google's by its JSON API: the server takes none by the XML API, which is obstore's."""
    urllib.request.urlopen(
        urllib.request.Request(f"{address}/upload/storage/v1/b/logs/o?uploadType=media&name={name}", data)
    )


class Credentials:
    """As google-auth has them."""

    valid, token, expiry = False, "", None

    def refresh(self, transport: Any) -> None:
        self.valid, self.token = True, "token"


NO_ACCOUNT = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint_url": "", "anon": True},
        {"endpoint_url": "", "token": "anon", "project": "sawlog"},
        {"base_url": "", "skip_signature": True},
        {"endpoint_url": "", "token": NO_ACCOUNT},
        {"endpoint_url": "", "token": Credentials()},
        {},
    ],
    ids=["anon", "token", "base_url", "mapping", "google-auth", "STORAGE_EMULATOR_HOST"],
)
def test_objects_of_google_are_read(
    google: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not options:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", google)
    options = {name: google if value == "" else value for name, value in options.items()}
    if isinstance(options.get("token"), dict):
        options["token"] = {**options["token"], "gcs_base_url": google}
    table = pa.table({"record": pa.array([b"x" * 1000] * 20_000, pa.binary())})
    sawlog.write(table, tmp_path / "1.log", format="leveldb_log")
    upload(google, "rows/1.log", (tmp_path / "1.log").read_bytes())
    for path in ("gs://logs/rows/1.log", "gcs://logs/rows", "gs://logs/rows/*.log"):
        assert sawlog.read(path, storage_options=options, format="leveldb_log").num_rows == 20_000
    storage = Storage(options)
    assert [file.is_tagged for file in storage.find("gs://logs/rows")] == [True]
    upload(google, "rows/1.log", b"other")
    with pytest.raises(ChangedError):
        storage.open("gs://logs/rows/1.log").read_window(0, 7)
    Storage(options).directories.remove("gs://logs/rows/1.log")
    with pytest.raises(FileNotFoundError):
        Storage(options).find("gs://logs/rows")
    with pytest.raises(StorageError, match="nobody"):
        Storage(options).find("gs://nobody/rows")


def test_a_listing_of_google_goes_on_after_an_object(google: str) -> None:
    for number in range(3):
        upload(google, f"pages/{number}.log", b"x")
    store = connect("gs://logs/pages", {"endpoint_url": google, "anon": True})[0]
    pages = store.fs.list_pages("logs/pages", "logs/pages/0.log")
    assert [info["name"] for page in pages for info in page] == ["logs/pages/1.log", "logs/pages/2.log"]


class XmlApi(BaseHTTPRequestHandler):
    """Google's XML API, by which obstore puts objects, before a server that takes them by the JSON API only."""

    address: ClassVar[str]
    rival: ClassVar[bytes] = b""
    """What somebody else puts there just before."""

    def do_HEAD(self) -> None:
        self.pass_on(urllib.request.Request(self.address + self.path, method="HEAD"))

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.removeprefix("/logs/")
        if self.rival:
            upload(self.address, name, self.rival)
        generation = self.headers["x-goog-if-generation-match"]
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        url = f"{self.address}/upload/storage/v1/b/logs/o?uploadType=media&name={name}{condition}"
        self.pass_on(urllib.request.Request(url, data))

    def pass_on(self, request: urllib.request.Request) -> None:
        try:
            with urllib.request.urlopen(request) as answer:
                status, headers = answer.status, answer.headers
        except urllib.error.HTTPError as error:
            status, headers = error.code, error.headers
        self.send_response(status)
        for name in ("ETag", "Last-Modified", "X-Goog-Generation"):
            self.send_header(name, headers[name] or '"1"')
        self.send_header("Content-Length", headers["Content-Length"] if self.command == "HEAD" else "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def test_an_object_of_google_is_made_once(google: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition is the store's: also where somebody else is faster after a look."""
    monkeypatch.setattr(XmlApi, "address", google, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), XmlApi) as server:
        Thread(target=server.serve_forever).start()
        fs = connect("gs://logs", {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "anon": True})[0].fs
        fs.pipe_file("logs/once", b"first", mode="create")
        with pytest.raises(FileExistsError):
            fs.pipe_file("logs/once", b"second", mode="create")
        monkeypatch.setattr(XmlApi, "rival", b"rival")
        with pytest.raises(FileExistsError):
            fs.pipe_file("logs/raced", b"late", mode="create")
        fs.pipe_file("logs/once", b"third")
        server.shutdown()
    read = connect("gs://logs", {"endpoint_url": google, "anon": True})[0].fs.cat_file
    assert (read("logs/once"), read("logs/raced")) == (b"third", b"rival")


def container(address: str, name: str) -> None:
    """Make a container, with the signature that Azure wants."""
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    text = f"PUT{chr(10) * 12}{headers}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(f"{address}/{name}?restype=container", method="PUT")
    request.add_header("Authorization", f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}")
    for line in headers.split("\n"):
        request.add_header(*line.split(":", 1))
    urllib.request.urlopen(request)


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Azurite's account, with a container `logs`."""
    port = find_free_port()
    data = str(tmp_path_factory.mktemp("azure"))
    command = [program("azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", data]
    with running([*command, "--skipApiVersionCheck", "--silent"], port):
        address = f"http://127.0.0.1:{port}/{ACCOUNT}"
        container(address, "logs")
        yield address


def connection(address: str) -> str:
    return f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={address};"


@pytest.mark.parametrize("root", ["az://logs/rows", f"abfs://logs@{ACCOUNT}.dfs.core.windows.net/rows"])
def test_blobs_of_azure_are_read_by_every_credential(azure: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works(root, {"connection_string": connection(azure)})
    works(root, {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": azure})
    works(root, {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "account_host": azure})
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection(azure))
    works(root, {})


def test_a_signature_for_azure_is_accepted(azure: str) -> None:
    expiry = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "2020-12-06"
    fields = ["rwdlac", "", expiry, f"/blob/{ACCOUNT}/logs", "", "", "https,http", version, "c", *[""] * 7]
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote(base64.b64encode(digest), "")
    token = f"sp=rwdlac&se={urllib.parse.quote(expiry)}&spr=https,http&sv={version}&sr=c&sig={signature}"
    works("az://logs/signed", {"account_name": ACCOUNT, "sas_token": token, "endpoint": azure})
