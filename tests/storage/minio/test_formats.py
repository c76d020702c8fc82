"""Formats read through objects on drives of MinIO: the same rows, and the verdicts of stores."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

import sawlog
from sawlog.dataset.examination import RecordingStorage, examine
from sawlog.dataset.folder import open_folder
from sawlog.errors import BitrotError, IncompleteError, UnsupportedError
from sawlog.format.damage import Verdict
from tests.milvus_binlog.support import GOLDEN, id_of, with_etcd
from tests.storage.minio.maker import StoredVersion, format_drives, put, xl_meta
from tests.support import write_records

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")

SOURCE = GOLDEN / "2.3.5"
COLLECTION = id_of("2.3.5", "autoid")
TABLE = with_etcd("2.3.5", "autoid").to_table()


def volume(root: Path, *, inline: bool) -> Path:
    """A drive with a collection and its metadata; the directory above it."""
    drive = root / "volumes" / "minio"
    format_drives([drive])
    files = [file for file in SOURCE.glob(f"*/{COLLECTION}/**/*") if file.is_file()]
    for file in [*files, SOURCE / "etcd.json"]:
        put(drive, f"a-bucket/files/{file.relative_to(SOURCE)}", StoredVersion([file.read_bytes()], inline=inline))
    return root / "volumes"


@pytest.mark.parametrize("inline", [True, False])
def test_a_collection_is_read_from_its_volumes(tmp_path: Path, *, inline: bool) -> None:
    root = volume(tmp_path, inline=inline)
    metadata = str(root / "minio/a-bucket/files/etcd.json")
    assert sawlog.read(root, table="autoid", metadata=metadata).equals(TABLE)
    report = sawlog.verify(root)
    assert (report.verdict, report.rows, len(report.files)) == (Verdict.CLEAN, 45, 8)


def flip_data(meta: Path) -> None:
    (part,) = meta.parent.glob("*/part.1")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)


def flip_metadata(meta: Path) -> None:
    data = bytearray(meta.read_bytes())
    data[40] ^= 1
    meta.write_bytes(data)


def remove_part(meta: Path) -> None:
    next(meta.parent.glob("*/part.1")).unlink()


def encrypt(meta: Path) -> None:
    data = next(meta.parent.glob("*/part.1")).read_bytes()[32:]
    system = {"X-Minio-Internal-Server-Side-Encryption-Iv": b"x"}
    meta.write_bytes(xl_meta([StoredVersion([data], inline=False, system=system)]))


@pytest.mark.parametrize(
    ("change", "verdict", "kind", "error"),
    [
        (flip_data, Verdict.DAMAGED, "read_error", sawlog.DamageError),
        (flip_metadata, Verdict.DAMAGED, "read_error", sawlog.DamageError),
        (remove_part, Verdict.INCOMPLETE, "missing_file", IncompleteError),
        (encrypt, Verdict.UNSUPPORTED, "unsupported", UnsupportedError),
    ],
)
@pytest.mark.parametrize("field", ["1", "100", "101"])
def test_verdicts_are_those_of_the_store(
    tmp_path: Path, field: str, change: Callable[[Path], None], verdict: Verdict, kind: str, error: type[Exception]
) -> None:
    root = volume(tmp_path, inline=False)
    (meta,) = root.glob(f"minio/a-bucket/files/insert_log/*/*/*/{field}/*/xl.meta")
    change(meta)
    metadata = str(root / "minio/a-bucket/files/etcd.json")
    report = sawlog.verify(root)
    assert report.verdict == verdict
    (damage,) = (damage for file in report.files for damage in file.damages)
    assert (damage.path, damage.kind) == (str(meta.parent), kind)
    options = {"table": "autoid", "metadata": metadata}
    with pytest.raises(error):
        sawlog.read(root, **options)
    with pytest.warns(sawlog.DamageWarning):
        assert sawlog.read(root, on_damage="skip", **options).num_rows == 0


def test_a_log_is_read_up_to_the_block_that_is_damaged(tmp_path: Path) -> None:
    records = [f"{number:06}".encode() * 20 for number in range(60_000)]
    write_records(tmp_path / "plain.log", records)
    data = (tmp_path / "plain.log").read_bytes()
    meta = put(tmp_path / "drive", "b/000003.log", StoredVersion([data], inline=False))
    assert sawlog.read(meta.parent).equals(sawlog.read(tmp_path / "plain.log"))
    part = next(meta.parent.glob("*/part.1"))
    stored = bytearray(part.read_bytes())
    stored[3 << 20] ^= 1
    part.write_bytes(stored)
    report = sawlog.verify(meta.parent)
    (damage,) = report.files[0].damages
    assert damage.kind == "read_error"
    assert str(part) in damage.detail
    with pytest.warns(sawlog.DamageWarning):
        rows = sawlog.read(meta.parent, on_damage="skip")
    assert rows.num_rows == (2 << 20) // 127 - 1  # records, with their headers, up to the third block
    with pytest.raises((sawlog.DamageError, BitrotError)):
        sawlog.read(meta.parent)


def wrapped(source: Path, target: Path) -> Path:
    """The files of a directory as objects in a bucket of a drive; the bucket."""
    format_drives([target])
    for number, file in enumerate(sorted(source.rglob("*"))):
        if file.is_file():
            put(
                target, f"bucket/{file.relative_to(source)}", StoredVersion([file.read_bytes()], inline=number % 2 == 0)
            )
    return target / "bucket"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "source",
    [
        Path("examples/data/shop"),
        Path("tests/golden/leveldb_database/pebble-2.1.7-minlz"),
        Path("tests/golden/leveldb_database/chromium-156"),
        Path("tests/golden/filodb/gauge_100.container"),
        Path("tests/golden/milvus/2.1.0"),
    ],
    ids=lambda path: path.name,
)
def test_every_format_reads_the_same(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "plain"
    if source.is_dir():
        shutil.copytree(source, folder)
    else:
        folder.mkdir()
        shutil.copy(source, folder)
    bucket = wrapped(folder, tmp_path / "drive")
    for view in ("rows", "damage"):
        assert answer(bucket, view) == answer(folder, view)
    ours, plain = sawlog.verify(bucket), sawlog.verify(folder)
    assert (ours.verdict, ours.rows, len(ours.files)) == (plain.verdict, plain.rows, len(plain.files))
    assert [(file.size, file.account, file.kinds) for file in ours.files] == [
        (file.size, file.account, file.kinds) for file in plain.files
    ]


def answer(path: Path, view: str) -> object:
    """The rows of a view, without names of files; what an error says where it is refused."""
    try:
        rows = sawlog.read(path, view=view, on_damage="skip")
    except sawlog.SawlogError as error:
        return str(error).replace(str(path), "")
    texts = [name for name in rows.schema.names if name in ("file", "_file", "detail")]
    return repr(rows.drop_columns(texts).to_pylist())  # where NaN equals NaN


def test_a_deephaven_table_is_read_from_a_drive(tmp_path: Path) -> None:
    table = pa.table({"Sym": ["a", "b", "a"] * 1000, "Price": pa.array(range(3000), pa.float64())})
    sawlog.write(table, tmp_path / "plain" / "Trades", format="deephaven_table")
    bucket = wrapped(tmp_path / "plain", tmp_path / "drive")
    assert sawlog.read(bucket / "Trades").equals(sawlog.read(tmp_path / "plain" / "Trades"))
    assert sawlog.verify(bucket).verdict == Verdict.CLEAN


def test_drives_in_other_stores_are_read(tmp_path: Path) -> None:
    root = volume(tmp_path, inline=False)
    store = fsspec.filesystem("memory")
    store.put(str(root), "/volumes-of-minio", recursive=True)
    try:
        metadata = "memory:///volumes-of-minio/minio/a-bucket/files/etcd.json"
        table = sawlog.read("memory:///volumes-of-minio", table="autoid", metadata=metadata)
        assert table.equals(TABLE)
        assert sawlog.verify("memory:///volumes-of-minio/minio/a-bucket").verdict == Verdict.CLEAN
    finally:
        store.rm("/volumes-of-minio", recursive=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [flip_data, flip_metadata, remove_part])
def test_repair_leaves_out_what_the_store_refuses(tmp_path: Path, change: Callable[[Path], None]) -> None:
    root = volume(tmp_path, inline=False)
    (meta,) = root.glob("minio/a-bucket/files/insert_log/*/*/*/100/*/xl.meta")
    change(meta)
    sawlog.repair(root / "minio/a-bucket/files", tmp_path / "repaired")
    assert sawlog.verify(tmp_path / "repaired").verdict == Verdict.CLEAN


def test_a_report_hashes_the_files_of_drives(tmp_path: Path) -> None:
    root = volume(tmp_path, inline=False)
    (meta,) = root.glob("minio/a-bucket/files/insert_log/*/*/*/100/*/xl.meta")
    flip_data(meta)
    recorder = RecordingStorage()
    folder = open_folder(str(root), storage_options=recorder, on_damage="skip")
    part, *_ = examine(folder, [str(root)], recorder).parts
    assert part.report.verdict == Verdict.DAMAGED
    hashes = {file.path: file.sha256 for file in part.files}
    (data,) = meta.parent.glob("*/part.1")
    for file in (meta, data):
        assert hashes[str(file)] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(meta.parent) not in hashes
