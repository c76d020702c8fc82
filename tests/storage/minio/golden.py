"""Makes the golden volumes with a real MinIO: `python -m tests.storage.minio.golden`."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import boto3

from tests.milvus_binlog.support import GOLDEN as MILVUS
from tests.milvus_binlog.support import id_of
from tests.storage.minio.server import SEVERAL, running

GOLDEN = Path(__file__).parents[2] / "golden" / "minio"
LARGE = b"".join(f"{number:07}\n".encode() for number in range(5000))
"""An object in a file of its own."""


def make_files() -> dict[str, bytes]:
    """A small collection of Milvus, and what else is put, by key."""
    source = MILVUS / "2.3.5"
    below = source.glob(f"*/{id_of('2.3.5', 'autoid')}/**/*")
    collection = {str(file.relative_to(source)): file.read_bytes() for file in below if file.is_file()}
    return {f"files/{key}": data for key, data in collection.items()}


def client(options: dict[str, Any]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=options["client_kwargs"]["endpoint_url"],
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        region_name="us-east-1",
    )


def put_all(options: dict[str, Any]) -> None:
    """A bucket with a collection, and one with versions, deletions and a large object."""
    s3 = client(options)
    s3.create_bucket(Bucket="a-bucket")
    for key, data in make_files().items():
        s3.put_object(Bucket="a-bucket", Key=key, Body=data)
    s3.create_bucket(Bucket="versions")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for data in (b"first", b"second"):
        s3.put_object(Bucket="versions", Key="twice", Body=data)
    s3.put_object(Bucket="versions", Key="deleted", Body=b"gone")
    s3.delete_object(Bucket="versions", Key="deleted")
    s3.put_object(Bucket="versions", Key="again", Body=b"first")
    s3.delete_object(Bucket="versions", Key="again")
    s3.put_object(Bucket="versions", Key="again", Body=b"again")
    s3.put_object(Bucket="versions", Key="empty", Body=b"")
    s3.put_object(Bucket="versions", Key="folder/", Body=b"")
    s3.put_object(Bucket="versions", Key="large", Body=LARGE)
    upload = s3.create_multipart_upload(Bucket="versions", Key="multipart")["UploadId"]
    part = {"Bucket": "versions", "Key": "multipart", "UploadId": upload, "PartNumber": 1}
    etag = s3.upload_part(**part, Body=LARGE[::-1])["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(Bucket="versions", Key="multipart", UploadId=upload, MultipartUpload=parts)


EXPECTED = {
    "versions/twice": b"second",
    "versions/again": b"again",
    "versions/empty": b"",
    "versions/large": LARGE,
    "versions/multipart": LARGE[::-1],
}
"""The objects besides those of the collection, by bucket and key."""


def pack(root: Path, target: Path) -> None:
    """Drives as an archive, without what a server keeps for itself but its word on the drives."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_file() and (".minio.sys" not in name or name.endswith(".minio.sys/format.json")):
                entry = tarfile.TarInfo(name)
                entry.size = path.stat().st_size
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def make_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    settings = {"MINIO_STORAGE_CLASS_INLINE_BLOCK": "512B"}
    for name, count in (("one", 1), ("four", 4)):
        with tempfile.TemporaryDirectory() as folder:
            drives = [Path(folder) / f"d{number}" for number in range(1, count + 1)]
            with running(drives, settings | (SEVERAL if count > 1 else {})) as options:
                put_all(options)
            pack(Path(folder), GOLDEN / f"{name}.tar.gz")


if __name__ == "__main__":
    make_golden()
