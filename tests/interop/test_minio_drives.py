"""Milvus' data in a real MinIO that is stopped, killed, or loses drives: every object is read from what it leaves."""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.errors import IncompleteError, UnsupportedError
from sawlog.storage import Storage
from tests.milvus_binlog.support import GOLDEN, manifest, with_etcd
from tests.storage.minio.golden import client
from tests.storage.minio.maker import put_old
from tests.storage.minio.server import IN_PARTS, SEVERAL, running

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning"),
]

SETS = ("2.3.5", "2.3.5-compacted")
LARGE = bytes(range(256)) * 50_000
"""More than twelve blocks."""


def objects() -> dict[str, bytes]:
    """What is put, by key."""
    contents = {
        f"{name}/{file.relative_to(GOLDEN / name)}": file.read_bytes()
        for name in SETS
        for file in (GOLDEN / name).rglob("*")
        if file.is_file()
    }
    return contents | {"large": LARGE, "empty": b"", "a/prefix": b"an object", "a/prefix/and": b"one below it"}


def put_all(options: Mapping[str, Any]) -> None:
    s3 = client(dict(options))
    s3.create_bucket(Bucket="a-bucket")
    for key, data in objects().items():
        s3.put_object(Bucket="a-bucket", Key=key, Body=data)
    upload = {"Bucket": "a-bucket", "Key": "parts", "UploadId": ""}
    upload["UploadId"] = s3.create_multipart_upload(Bucket="a-bucket", Key="parts")["UploadId"]
    etags = [s3.upload_part(**upload, PartNumber=n, Body=LARGE)["ETag"] for n in (1, 3)]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in zip((1, 3), etags, strict=True)]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


EXPECTED = objects() | {"parts": LARGE + LARGE}


@pytest.fixture(scope="module", params=["inline", "parts", "four", "four in parts"])
def stopped_drives(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Drives of a server that was stopped."""
    root = tmp_path_factory.mktemp("volumes")
    count = 4 if "four" in request.param else 1
    drives = [root / f"d{number}" for number in range(1, count + 1)]
    settings = (SEVERAL if count > 1 else {}) | (IN_PARTS if "parts" in request.param else {})
    with running(drives, settings) as options:
        put_all(options)
    return drives


def read_all(root: Path, bucket: Path) -> dict[str, bytes]:
    storage = Storage()
    return {file.path.removeprefix(f"{bucket}/"): storage.read(file) for file in storage.find(root)}


def test_every_object_is_what_was_put(stopped_drives: Sequence[Path]) -> None:
    root = stopped_drives[0].parent
    assert read_all(root, stopped_drives[0] / "a-bucket") == EXPECTED


@pytest.mark.parametrize("name", SETS)
def test_every_row_is_that_of_the_bare_binlogs(stopped_drives: Sequence[Path], name: str) -> None:
    files = stopped_drives[0] / "a-bucket" / name
    for collection in manifest(name):
        options: dict[str, Any] = {"table": collection, "metadata": f"{files}/etcd.json"}
        for view in ("rows", "history"):
            expected = with_etcd(name, collection, view=view).to_table()
            assert sawlog.read(files, view=view, **options).equals(expected)
    report = sawlog.verify(files)
    bare = sawlog.verify(GOLDEN / name)
    assert report.verdict == bare.verdict == "clean"
    assert (report.rows, len(report.files)) == (bare.rows, len(bare.files))


@pytest.mark.parametrize("lost_drives", [[1], [4], [1, 2], [1, 4]])
def test_drives_are_lost(stopped_drives: Sequence[Path], tmp_path: Path, lost_drives: list[int]) -> None:
    if len(stopped_drives) == 1:
        pytest.skip("one drive is all there is")
    drives = [drive for number, drive in enumerate(stopped_drives, 1) if number not in lost_drives]
    for drive in drives:
        shutil.copytree(drive, tmp_path / drive.name)
    assert read_all(tmp_path, tmp_path / drives[0].name / "a-bucket") == EXPECTED
    for drive in drives[1:]:
        shutil.rmtree(tmp_path / drive.name)
    if len(drives) > 1:
        storage = Storage()
        (large,) = (file for file in storage.find(tmp_path) if file.name == "large")
        with pytest.raises(IncompleteError, match="2 shards are needed"):
            storage.read(large)


@pytest.mark.parametrize("count", [1, 4])
def test_a_server_that_is_killed_in_the_middle(tmp_path: Path, count: int) -> None:
    """All that a client got an answer for is there, and nothing is read that was not put."""
    drives = [tmp_path / f"d{number}" for number in range(1, count + 1)]
    done: list[int] = []

    def put(options: dict[str, Any]) -> None:
        s3 = client(options)
        try:
            for number in range(10_000):
                s3.put_object(Bucket="bucket", Key=f"k{number % 50}", Body=(f"{number:08}" * 40_000).encode())
                done.append(number)
        except Exception:  # noqa: BLE001 - of a server that is gone
            return

    with running(drives, SEVERAL if count > 1 else {}, killed=True) as options:
        client(options).create_bucket(Bucket="bucket")
        thread = threading.Thread(target=put, args=(options,))
        thread.start()
        while len(done) < 120:
            thread.join(0.05)
    thread.join()
    storage = Storage()
    contents = {file.name: storage.read(file) for file in storage.find(tmp_path)}
    newest = {f"k{number % 50}": number for number in done}
    for name, number in newest.items():
        content = contents[name]
        assert len(content) == 320_000
        later = int(content[:8])
        assert content == f"{later:08}".encode() * 40_000
        assert later == number or (later == done[-1] + 1 and later % 50 == number % 50)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {
                "MINIO_KMS_SECRET_KEY": f"key:{base64.b64encode(bytes(range(32))).decode()}",
                "MINIO_KMS_AUTO_ENCRYPTION": "on",
            },
            "encrypted by MinIO",
        ),
        ({"MINIO_COMPRESSION_ENABLE": "on", "MINIO_COMPRESSION_EXTENSIONS": ".csv"}, "compressed by MinIO"),
    ],
)
def test_encrypted_and_compressed_objects_are_refused_by_name(
    tmp_path: Path, settings: dict[str, str], named: str
) -> None:
    with running([tmp_path / "d"], settings) as options:
        s3 = client(options)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="rows.csv", Body=b"0123456789\n" * 10_000)
    storage = Storage()
    (file,) = storage.find(tmp_path)
    with pytest.raises(UnsupportedError, match=named):
        storage.read(file)


@pytest.mark.parametrize("algorithm", ["highwayhash256S", "highwayhash256", "sha256", "blake2b"])
def test_version_1_as_the_tests_make_it_is_what_a_server_reads(tmp_path: Path, algorithm: str) -> None:
    drive = tmp_path / "d"
    with running([drive]) as options:
        client(options).create_bucket(Bucket="bucket")
    about = drive / ".minio.sys" / "format.json"
    about.write_text(about.read_text().replace("SIPMOD+PARITY", "CRCMOD"))  # as on drives of that time
    parts = [LARGE[: 6 << 20], LARGE[:1000]]
    put_old(drive, "bucket/old", parts, algorithm)
    with running([drive]) as options:
        assert client(options).get_object(Bucket="bucket", Key="old")["Body"].read() == b"".join(parts)
    storage = Storage()
    (file,) = storage.find(drive)
    assert storage.read(file) == b"".join(parts)
