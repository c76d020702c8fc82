"""Objects in S3 are asked for by the ETag that was listed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import ChangedError
from sawlog.storage import Storage

pytest.importorskip("s3fs")

URL = "s3://logs/versions/1.log"


def test_an_object_that_is_replaced_is_an_error_that_says_so(s3: dict[str, Any]) -> None:
    for rows in ([b"old"], [b"new"]):
        sawlog.write(pa.table({"record": rows}), URL, format="leveldb_log", storage_options=s3)
        if rows == [b"old"]:
            storage = Storage(s3)
            storage.find(URL)
    with pytest.raises(ChangedError, match="was replaced while it was read"):
        storage.open(URL).read_window(0, 7)
    assert sawlog.read(URL, storage_options=s3).column("record").to_pylist() == [b"new"]
