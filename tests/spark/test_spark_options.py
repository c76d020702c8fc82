from __future__ import annotations

import re

import pytest

from sawlog.errors import OptionError
from sawlog.spark.options import make_read_request, make_write_request


def test_options_are_sorted_by_whom_they_are_for() -> None:
    request = make_read_request(
        {
            "path": "/a",
            "view": "damage",
            "mode": "failFast",
            "columns": "a, b",
            "provenance": "TRUE",
            "task_bytes": "1000",
            "storage.anon": "true",
            "storage.token": "12345",
            "storage.client_kwargs": '{"region_name": "eu-1"}',
            "storage_options": '{"Mixed": 1, "anon": false}',
            "dialect": "rocksdb",
        },
        "leveldb_log",
    )
    assert request.paths == ("/a",)
    source_options = request.source_options
    assert (source_options.format, source_options.view, source_options.mode, source_options.columns) == (
        "leveldb_log",
        "damage",
        "FAILFAST",
        ("a", "b"),
    )
    assert (source_options.provenance, source_options.task_bytes) == (True, 1000)
    assert request.storage.options == {
        "Mixed": 1,
        "anon": True,
        "token": "12345",
        "client_kwargs": {"region_name": "eu-1"},
    }
    assert request.format_options == {"dialect": "rocksdb"}


def test_paths_of_options_lose_schemes_of_hadoop() -> None:
    assert make_read_request({"paths": '["/a", "s3a://b/c,d"]'}, None).paths == ("/a", "s3://b/c,d")
    assert make_read_request({"path": "file:///a b"}, None).paths == ("/a b",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'path' is required"),
        ({"path": ""}, "option 'path' is required"),
        ({"path": "/a", "paths": '["/b"]'}, "options path and paths: give one of them"),
        ({"paths": "/a"}, "option paths='/a': expected a JSON list of paths"),
        ({"paths": "[1]"}, "expected a JSON list of paths"),
        ({"paths": "[]"}, "expected a JSON list of paths"),
        ({"path": "/a", "task_bytes": "many"}, "option task_bytes='many': expected int"),
        ({"path": "/a", "task_bytes": "0"}, "option task_bytes=0: expected a positive number"),
        ({"path": "/a", "provenance": "perhaps"}, "option provenance='perhaps': expected bool"),
        ({"path": "/a", "mode": "x"}, "option mode='X': expected one of FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({"path": "/a", "on_damage": "skip"}, "is spelled mode in Spark"),
        ({"path": "/a", "location": "/a", "provider": "sawlog"}, "use CREATE TEMPORARY VIEW"),
    ],
)
def test_options_that_are_wrong_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        make_read_request(options, None)


@pytest.mark.parametrize("name", ["storage.key", "storage_options"])
def test_secrets_stay_out_of_messages(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: expected .*JSON") as caught:
        make_read_request({"path": "/a", name: "{hunter2"}, None)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(make_read_request({"path": "/a", "storage.key": "hunter2", "other": "hunter2"}, None))


def test_a_write_has_one_directory() -> None:
    with pytest.raises(OptionError, match="expected one directory, found 2 paths"):
        make_write_request({"paths": '["/a", "/b"]'}, "leveldb_log")
