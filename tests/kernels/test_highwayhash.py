"""HighwayHash-256 against what two implementations published: the self-test of MinIO, and vectors of its authors."""

from __future__ import annotations

import numpy as np
import pytest

from sawlog.kernels.highwayhash import HighwayHash256

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python

MINIO_KEY = bytes.fromhex("4be734fa8e238acd263e83e6bb968552040f935da39f441497e09d1322de36a0")


def digest(data: bytes, key: bytes, step: int = 1 << 20) -> bytes:
    hasher = HighwayHash256(key)
    for start in range(0, len(data), step):
        hasher.update(np.frombuffer(data, np.uint8)[start : start + step])
    return hasher.digest()


def test_hashes_of_hashes_are_those_of_the_self_test_of_minio() -> None:
    message, total = b"", b""
    for _ in range(32):
        total = digest(message, MINIO_KEY)
        assert digest(message, MINIO_KEY, 64) == total
        message += total
    assert total.hex() == "39c0407ed3f01b18d22c85db4aeff11e060ca5f43131b0126731ca197cd42313"


def test_the_key_of_minio_is_the_hash_of_pi() -> None:
    digits = "1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679"
    assert digest(f"3.{digits}".encode(), bytes(32)) == MINIO_KEY or digest(digits.encode(), bytes(32)) == MINIO_KEY
