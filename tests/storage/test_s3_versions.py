"""Objects in S3 are asked for by the ETag that was listed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import sawlog
from sawlog.errors import ChangedError
from sawlog.storage import Storage, confirm_files
from sawlog.testing.stores import cause_trouble, store_files
from tests.support import write_records

pytest.importorskip("s3fs")

URL = "s3://logs/versions/1.log"


def test_an_object_that_is_replaced_is_an_error_that_says_so(s3: dict[str, Any]) -> None:
    for rows in ([b"old"], [b"new"]):
        write_records(URL, rows, storage_options=s3)
        if rows == [b"old"]:
            storage = Storage(s3)
            storage.find(URL)
    with pytest.raises(ChangedError, match="was replaced while it was read"):
        storage.open(URL).read_window(0, 7)
    assert sawlog.read(URL, storage_options=s3).column("record").to_pylist() == [b"new"]


@pytest.mark.parametrize("scheme", ["s3", "hostile"])
def test_a_listing_in_between_does_not_change_which_object_is_read(scheme: str, request: pytest.FixtureRequest) -> None:
    """Of one file, two reads give the same bytes, or an error, whatever was listed or confirmed between them."""
    old, new = {"1.log": b"a" * 100}, {"1.log": b"a" * 50 + b"b" * 50}
    with contextlib.ExitStack() as stack:
        if scheme == "hostile":
            root = stack.enter_context(store_files(old, new, is_whole=False))
            storage = Storage()
            directory = root.rstrip("/")
        else:
            directory = "s3://logs/listed"
            storage = Storage(request.getfixturevalue("s3"))
            _put(storage, f"{directory}/1.log", old["1.log"])
        (file,) = storage.find(directory)
        assert storage.read(file) == old["1.log"]
        confirm_files(storage)
        if scheme == "hostile":
            stack.enter_context(cause_trouble("changes", 1))
        else:
            _put(Storage(request.getfixturevalue("s3")), f"{directory}/1.log", new["1.log"])
        (listed,) = storage.list_files(directory, fresh=True)
        assert listed.version != file.version
        with contextlib.suppress(ChangedError):
            assert storage.read(file) == old["1.log"]  # which may still be there, as one read ahead
        assert storage.read(listed) == new["1.log"]


def _put(storage: Storage, url: str, data: bytes) -> None:
    staged = storage.stage(url)
    staged.write(data)
    storage.publish([staged.finish()])
