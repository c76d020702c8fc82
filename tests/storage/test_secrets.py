"""Passwords and signatures that URLs carry are in no message."""

from __future__ import annotations

import pickle
import warnings

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog
from sawlog.cli import main
from sawlog.errors import Damage, DamageError, SawlogError, StorageError, find_secrets, without_secrets
from sawlog.format.damage import DamageWarning
from tests.support import write_records

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.storage.remote.RETRY_SECONDS", ())


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://user:{SECRET}@127.0.0.1:9/x.log",
        f"http://user:{SECRET}@127.0.0.1:9/x.log?sig={SECRET}",
        f"http://127.0.0.1:9/x.log?expires=7&sig={SECRET}",
        f"nosuch://user:{SECRET}@host/x",
        f"s3://{SECRET}@bucket/x",
        f"memory://x?token={SECRET}",
    ],
)
def test_urls_are_shown_without_secrets(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SawlogError, OSError)) as raised:
        sawlog.read(url, format="leveldb_log")
    assert SECRET not in f"{raised.value} {raised.value!r}"
    assert main(["cat", url, "--format", "leveldb_log"]) == 2
    assert SECRET not in capsys.readouterr().err


def test_neither_damage_nor_warnings_show_them() -> None:
    url = f"memory://user:{SECRET}@x/1.log?sig={SECRET}"
    error = DamageError(Damage(url, 0, 7, "bad", "expected 1"))
    assert SECRET not in f"{error} {pickle.loads(pickle.dumps(error))}"
    assert error.damage.path == url
    with warnings.catch_warnings(record=True) as warning_records:
        warnings.simplefilter("always")
        warnings.warn(f"{url}: skipped", DamageWarning, stacklevel=1)
    assert SECRET not in str(warning_records[0].message)
    assert str(pickle.loads(pickle.dumps(StorageError(url)))) == "memory://***@x/1.log?***"


def test_what_is_no_secret_stays() -> None:
    for text in ("s3://bucket/a/b@c.log", "abfs://box@account/x", "memory://x/0000?.log", "a@b?c=d", "file:///a?b"):
        assert without_secrets(text) == text
        assert not find_secrets(text) or "=" in text
    assert without_secrets("see https://u:p@h/x?a=b now") == "see https://***@h/x?*** now"


def test_an_option_without_a_name_may_be_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", "x", "--storage", SECRET]) == 2
    assert SECRET not in capsys.readouterr().err


def test_files_with_secrets_in_their_urls_are_read() -> None:
    store = MemoryFileSystem()
    write_records("memory://secrets/1.log", [b"x"])
    assert store.exists("/secrets/1.log")
    assert sawlog.read("memory://secrets/1.log", format="leveldb_log").num_rows == 1
