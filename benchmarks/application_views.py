"""Views of applications: processor time of one thread, next to that of the same rows raw."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import sawlog
from benchmarks import application_entries as drawn
from benchmarks.harness import Case, Settings, Side
from benchmarks.leveldb_table import read
from sawlog.leveldb.applications.bitcoin_layout import OBFUSCATION
from sawlog.leveldb.applications.indexed_db_layout import COMPARATOR

ROWS = 100_000
"""Of each database, at most."""
ROW_BYTES = 500
"""Bytes of the size asked for, for each row."""


class Application(NamedTuple):
    """Database of an application.

    Attributes:
        title: What it is.
        view: That of its rows.
        draw: Draws an entry, given a number that no other entry has.
        entries: What is in it once.
        comparator: Names its order of keys, in which those drawn are as their bytes are.
    """

    title: str
    view: str
    draw: Callable[[random.Random, int], drawn.Entry]
    entries: Mapping[bytes, bytes] = {}
    comparator: str = ""


APPLICATIONS = {
    "local_storage": Application("Local Storage", "local_storage", drawn.draw_item, {b"VERSION": b"1"}),
    "session_storage": Application("Session Storage", "session_storage", drawn.draw_session_item, drawn.TABS),
    "indexed_db": Application("IndexedDB", "indexed_db", drawn.draw_record, drawn.INDEXED_DB_NAMES, COMPARATOR),
    "sites": Application("Site Characteristics", "site_characteristics", drawn.draw_site, {b"database_metadata": b"1"}),
    "shared_proto": Application("`shared_proto_db`", "shared_proto", drawn.draw_shared_message),
    "notifications": Application("Platform Notifications", "notifications", drawn.draw_notification),
    "bedrock": Application("a world of Minecraft Bedrock", "bedrock", drawn.draw_part_of_world),
    "bitcoin_blocks": Application("Bitcoin's index of blocks", "bitcoin_blocks", drawn.draw_block),
    "bitcoin_chainstate": Application(
        "Bitcoin's chainstate", "bitcoin_chainstate", drawn.draw_coin, {OBFUSCATION: b"\x08" + drawn.OBFUSCATION_KEY}
    ),
}


def cases(settings: Settings) -> Iterator[Case]:
    for name, application in APPLICATIONS.items():
        if settings.wanted(name):
            yield case_of(name, application, settings)


def case_of(name: str, application: Application, settings: Settings) -> Case:
    import plyvel

    dice = random.Random(7)
    entries = dict(application.entries)
    entries.update(application.draw(dice, number) for number in range(min(ROWS, settings.size // ROW_BYTES)))
    options: dict[str, Any] = {}
    if application.comparator:
        options = {"comparator": compare_bytes, "comparator_name": application.comparator.encode()}
    path = settings.place / name
    with plyvel.DB(str(path), create_if_missing=True, **options) as database:
        for entry in entries.items():
            database.put(*entry)
        database.compact_range()
    reasons = sawlog.read(path, format="leveldb_database", view=application.view, columns=["reason"]).column("reason")
    assert len(reasons) == reasons.null_count == len(entries), reasons.unique()
    size = sum(len(key) + len(value) for key, value in entries.items())
    sides = tuple(
        Side(side, partial(read, path, "leveldb_database", view=view), size, len(entries))
        for side, view in (("sawlog", application.view), ("sawlog, live", "live"))
    )
    return Case(name, f"{application.title}, {len(entries):,} rows", sides, "rows", processor_time=True)


def compare_bytes(key: bytes, other_key: bytes) -> int:
    return (key > other_key) - (key < other_key)
