"""Workloads drawn from a seed: a small language that a driver of each engine replays.

A workload is a list of steps, one JSON object a line; keys and values are hexadecimal.

    {"do": "open", "options": {...}}                     what is drawn for the engine, see its profile
    {"do": "write", "of": [["put", KEY, VALUE], ...]}    one batch; "family" names a column family, "sync" syncs
    {"do": "ingest", "tables": [{"of": [...]}, ...]}     tables written apart; with "low" and "high", an excise
    {"do": "flush"}, {"do": "compact", "low": KEY, "high": KEY}
    {"do": "snapshot"}, {"do": "release"}                a snapshot is taken; all are released
    {"do": "reopen"}                                     closed and opened

Operations: put, delete, single_delete, delete_sized (with the value that was put), merge, delete_range, range_key_set,
range_key_delete, log_data.

A driver is called with a directory and the file of a workload. It replays the workload, iterates over everything that
the engine holds, prints `[FAMILY, KEY, VALUE]` a line, and then `open`. The caller then kills it, or ends
its input, whereupon it closes the database.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]
Operation = list[str]


@dataclass(frozen=True)
class Profile:
    """What is drawn for a database of an engine.

    Attributes:
        options: How it is opened.
        operations: The operations that it knows, and how often each is drawn, relative to the others.
        steps: The same for what follows writes.
        table: Draws what a table that is ingested is like.
        ingested: The operations that such tables may hold.
        families: Column families besides the default one.
    """

    options: dict[str, Any]
    operations: dict[str, int]
    steps: dict[str, int]
    table: Callable[[random.Random], dict[str, Any]] = lambda _: {}
    ingested: tuple[str, ...] = ("put",)
    families: int = 0


def workload(profile: Callable[[random.Random], Profile], seed: int) -> list[Step]:
    """The workload of a seed."""
    dice = random.Random(seed)
    return _Draw(profile(dice), dice).steps()


def _hex(data: bytes | str) -> str:
    return (data.encode() if isinstance(data, str) else data).hex()


class _Draw:
    """Draws one workload."""

    def __init__(self, profile: Profile, dice: random.Random) -> None:
        self._profile = profile
        self._dice = dice
        self._shape = dice.choice(["words", "versions", "bytes"])
        self._space = dice.choice([20, 100, 400])
        self._long = dice.choice([0, 0, 0.02, 0.2])
        self._families = ["default", *(f"family {number}" for number in range(dice.randint(0, profile.families)))]
        self._once: dict[tuple[str, str], str] = {}
        """Keys that are deleted by `single_delete` or `delete_sized` only, and the value that each has."""

    def steps(self) -> list[Step]:
        """All of it."""
        dice, profile = self._dice, self._profile
        steps: list[Step] = [{"do": "open", "options": profile.options, "families": self._families[1:]}]
        names, weights = list(profile.steps), list(profile.steps.values())
        for _ in range(dice.choice([2, 6, 15, 40])):
            for _ in range(dice.randint(1, 6)):
                steps.append(self._write())
            steps.append(self._step(dice.choices(names, weights)[0]))
        if dice.random() < 0.7:
            steps.append(self._write())
        # What a process that is killed holds back is lost to itself, too.
        last: Step = {"do": "write", "family": "default", "sync": True, "of": [["put", _hex("~last"), _hex("x")]]}
        return [*(step for step in steps if step), last]

    def _key(self) -> str:
        number = self._dice.randrange(self._space)
        if self._shape == "words":
            return _hex(f"user/{number * 7919 % 1000:04d}/name")
        if self._shape == "versions":
            letters = "".join(chr(97 + int(digit)) for digit in f"{number // 4:04d}")
            return _hex(letters if number % 4 == 3 else f"{letters}@{number % 4:02d}")
        # Without an @, which begins a version.
        return _hex(random.Random(number).randbytes(number % 12).replace(b"@", b"A") or b"\0")

    def _value(self) -> str:
        dice = self._dice
        if dice.random() < self._long:
            length = dice.choice([600, 5000, 40000])
            return _hex((dice.randbytes(37) * (length // 37 + 1))[:length])
        kind = dice.randrange(4)
        if kind == 0:
            return ""
        return _hex(dice.randbytes(dice.randint(1, 60)) if kind == 1 else "".join(dice.choices("abcd", k=kind * 40)))

    def _range(self) -> tuple[str, str]:
        low, high = sorted((self._key(), self._key()))
        return low, high if low < high else high + "00"

    def _write(self) -> Step:
        family = self._dice.choice(self._families)
        weighed = dict(self._profile.operations)
        if self._long:
            # Pebble 1 fails where it flushes a large batch with remarks in it.
            weighed.pop("log_data", None)
        names, weights = list(weighed), list(weighed.values())
        count = self._dice.choice([1, 1, 3, 20, 60])
        names_drawn = self._dice.choices(names, weights, k=count)
        return {
            "do": "write",
            "family": family,
            "sync": self._dice.random() < 0.3,
            "of": [operation for name in names_drawn for operation in self._operation(name, family)],
        }

    def _operation(self, name: str, family: str) -> list[Operation]:
        if name in ("single_delete", "delete_sized"):
            # A key of its own kind, in no range: it is put once before each time that it is deleted.
            key = _hex(f"\x7f{name[0]}{self._dice.randrange(9)}")
            value = self._once.pop((family, key), None)
            if value is None:
                self._once[family, key] = value = self._value()
                return [["put", key, value]]
            return [[name, key, *([value] if name == "delete_sized" else [])]]
        if name == "log_data":
            return [[name, self._value()]]
        if name.startswith(("delete_range", "range_key")):
            bounds = self._range()
            return [[name, *bounds, *([_hex("@5"), self._value()] if name == "range_key_set" else [])]]
        return [[name, self._key(), *([self._value()] if name in ("put", "merge") else [])]]

    def _step(self, name: str) -> Step:
        family = self._dice.choice(self._families)
        if name == "compact":
            low, high = self._range()
            return {"do": name, "family": family, "low": low, "high": high}
        if name in ("ingest", "excise"):
            return self._ingest(name, family)
        return {"do": name, "family": family}

    def _ingest(self, name: str, family: str) -> Step:
        keys = sorted({self._key() for _ in range(self._dice.choice([1, 5, 40]))})
        parts = self._dice.choice([1, 1, 1, 2, 3])
        size = -(-len(keys) // parts)
        tables = [self._table(keys[index : index + size]) for index in range(0, len(keys), size)]
        if name == "ingest":
            return {"do": "ingest", "family": family, "tables": tables}
        # Pebble excises no versions of a key without the others.
        low, high = (_hex(bytes.fromhex(bound).partition(b"@")[0]) for bound in self._range())
        high = max(high, low + "00")
        inside = [table for table in tables if all(low <= key < high for _, key, *_ in table["of"])]
        inside = [row for row in inside if not any(op[0] in ("delete_range", "range_key_set") for op in row["of"])]
        return {"do": "ingest", "family": family, "tables": inside, "low": low, "high": high}

    def _table(self, keys: list[str]) -> Step:
        """A table that is written apart: its keys in order, each once; or only range keys or range deletions."""
        dice, ingested = self._dice, self._profile.ingested
        table = self._profile.table(dice)
        ranges = [name for name in ("delete_range", "range_key_set") if name in ingested]
        only = dice.choice(ranges) if ranges and dice.random() < 0.2 else None
        points = [name for name in ingested if name not in ranges]
        operations: list[Operation] = []
        for key, behind in zip(keys, [*keys[1:], keys[-1] + "00"], strict=True):
            name = only or (dice.choice(points) if dice.random() < 0.5 else "put")
            if ranges and only is None and dice.random() < 0.15:
                name = dice.choice(ranges)
            if name == "range_key_set" and b"@" in bytes.fromhex(key + behind):
                # Range keys begin and end before all versions of a key.
                name = "put"
            if name in ranges:
                extra = [_hex("@5"), self._value()] if name == "range_key_set" else []
                operations.append([name, key, behind, *extra])
            else:
                operations.append([name, key, *([self._value()] if name != "delete" else [])])
        return {**table, "of": operations}
