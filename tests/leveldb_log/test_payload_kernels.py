"""Small inputs that reach every branch of the payload kernels: quick enough for plain Python and for checked builds."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sawlog
from sawlog.format.damage import Findings
from sawlog.leveldb.records.layout import MARKS
from tests.leveldb_log.support import batch, length_prefixed, put

from .datastore import Blob, Geo, Raw, Reference, Vector, entity
from .support import DAMAGED, TAGS, as_table, assert_agreement, delete, save

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes do, in plain Python


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and events so small that they run out everywhere."""
    monkeypatch.setattr("sawlog.leveldb.records.writes.BATCH_ROWS", 3)
    monkeypatch.setattr("sawlog.leveldb.records.writes.EVENT_ROOM", 2)


def model(record: bytes) -> tuple[list[tuple], bool]:
    """The operations of a write batch, and whether it is intact: section 10.1 of the format in plain Python."""
    rows: list[tuple] = []
    if len(record) < 12:
        return rows, False
    sequence, count = int.from_bytes(record[:8], "little"), int.from_bytes(record[8:12], "little")
    tags = {tag[0]: (tag, name) for tag, name, *_ in TAGS}
    offset, row_count = 12, 0

    def varint() -> int:
        nonlocal offset
        value = 0
        for i in range(5):
            byte = record[offset]
            offset += 1
            value |= (byte & 127) << 7 * i
            if byte < 128:
                return value & 0xFFFFFFFF
        raise IndexError

    def string() -> bytes:
        nonlocal offset
        length = varint()
        if length > len(record) - offset:
            raise IndexError
        offset += length
        return record[offset - length : offset]

    while offset < len(record):
        tag = record[offset]
        if tag not in tags:
            return rows, False
        (_, name, _, key, value, counted), offset = next(t for t in TAGS if t[0][0] == tag), offset + 1
        try:
            family = varint() if tag in (4, 5, 6, 8, 0x0E, 0x10, 0x17, 0x19) else 0
            if tag == 0x15:
                stamp = string()
                parts = (string(), stamp)
            else:
                parts = (string() if key is not None else None, string() if value is not None else None)
                if name == "timed_put" and len(parts[1]) >= 8:  # the time of the write is after the value
                    parts = (parts[0], parts[1][:-8])
        except IndexError:
            return rows, False
        signed = sequence - (1 << 64) if sequence >= 1 << 63 else sequence
        rows.append((signed, name, family, *parts))
        sequence = (sequence + counted) % (1 << 64)
        row_count += counted
    return rows, row_count == count


def scan(path: Path) -> tuple[list[tuple], int]:
    findings = Findings("skip")
    (fragment,) = sawlog.open(path, format="leveldb_log", view="writes", on_damage="skip").fragments(None)
    rows = [tuple(row.values()) for part in fragment.to_batches(findings) for row in part.to_pylist()]
    assert findings.rows == len(rows)
    assert findings.account.total == path.stat().st_size
    return rows, sum(findings.kinds.values())


def test_every_tag_and_every_damage_is_decoded_alike(tmp_path: Path) -> None:
    records = [batch(9, counted, tag) for tag, *_, counted in TAGS] + [record for record, *_ in DAMAGED]
    plain = [
        tag for tag, name, *_ in TAGS if name not in MARKS
    ]  # operations of transactions have numbers by other rules
    records.append(batch(1, len(plain), *plain))
    rows, damages = scan(save(tmp_path, *records))
    expected = [model(record) for record in records]
    assert rows == [row for rows_of_batch, _ in expected for row in rows_of_batch]
    assert damages == sum(not intact for _, intact in expected)


def test_kernel_and_decoder_agree_on_changed_batches(tmp_path: Path) -> None:
    chance = random.Random(5)
    whole_batch = batch(
        1,
        6,
        put(b"key", b"value" * 30),
        delete(b"k"),
        b"\x05\x03" + length_prefixed(b"k") + length_prefixed(b""),
        b"\x03" + length_prefixed(b"x"),
    )
    records = []
    for _ in range(150):
        record = bytearray(whole_batch)
        for _ in range(chance.randrange(1, 4)):
            record[chance.randrange(len(record))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        records.append(bytes(record[: chance.choice([len(record), chance.randrange(len(record))])]))
    rows, damages = scan(save(tmp_path, *records))
    expected = [model(record) for record in records]
    assert rows == [row for rows_of_batch, _ in expected for row in rows_of_batch]
    assert damages == sum(not intact for _, intact in expected)


def test_batches_that_kernels_built_are_scanned_back(tmp_path: Path) -> None:
    operations = [
        ("put", b"", b"v" * 200),
        ("delete", b"k" * 130, None),
        ("log_data", None, b"x"),
        ("noop", None, None),
    ]
    path = tmp_path / "000001.log"
    sawlog.write(as_table(operations), path, format="leveldb_log", view="writes", operations_per_batch=3)
    rows, damages = scan(path)
    assert [(name, key, value) for _, name, _, key, value in rows] == operations
    assert damages == 0


FULL_ENTITY = entity(
    {
        "text": 'a"\\\n\x01é€😀',
        "blob": Blob(b"12345"),
        "when": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
        "numbers": [1, -(2**63), 1.5, True, None],
        "place": Geo(1.5, -2.5),
        "map": {"inner": {"list": [{}, {"x": 0.25}], "empty": []}, "vector": Vector([1.0, 2.0])},
    },
    [("users", 12), ("posts", "näme")],
    namespace="ns",
    database="db",
)
OTHER_ENTITIES = [entity({}), entity({"r": Reference("a", [("b", 1)])}), entity({"raw": Raw(b"\xff")}), b"", b"\xff"]


def test_kernel_and_decoder_agree_on_entities() -> None:
    assert assert_agreement(FULL_ENTITY, *OTHER_ENTITIES, FULL_ENTITY).plain.tolist() == [1, 1, 0, 0, 0, 0, 1]


def test_kernel_and_decoder_agree_on_changed_entities() -> None:
    chance = random.Random(6)
    for _ in range(60):
        records = []
        for _ in range(3):
            record = bytearray(FULL_ENTITY)
            for _ in range(chance.randrange(1, 3)):
                record[chance.randrange(len(record))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
            records.append(bytes(record[: chance.choice([len(record), chance.randrange(len(record))])]))
        assert_agreement(*records)
