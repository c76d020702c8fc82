"""What a scan finds besides rows: damage, the state of the tail, and where every byte went."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, get_args

import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.errors import Damage as Damage  # noqa: PLC0414 - belongs here, too
from sawlog.errors import DamageError, OptionError, UnsupportedError, warn, without_secrets

OnDamage = Literal["fail", "skip"]

DAMAGE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("dropped", pa.int64()),
    ]
)
"""Schema of every format's `damage` view: one row per damaged range."""

MAX_LISTED = 1000
"""A report lists this many damaged ranges per file and counts the rest, lest hostile files fill the memory."""


UNSUPPORTED = "unsupported"
"""Kind of a range that is intact as far as is known, but of a version, codec or block that this version does not know.

It is not damage: it does not make a file `damaged`, and has a line of its own in accounts and reports.
"""


class DamageWarning(UserWarning):
    """An answer is incomplete: damage was skipped, an unfinished tail left unread, or files with rows were."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class TailStatus(StrEnum):
    """How a file ends."""

    CLEAN = "clean"
    """The last record is complete and nothing follows it."""
    TORN = "torn"
    """The file stops inside a header or a payload: a writer died, or is still at work."""
    OPEN = "open"
    """The last record, or transaction, was begun and not finished."""
    PADDING = "padding"
    """Unused space (zeros) up to the end of the file."""
    STALE = "stale"
    """A recycled file: what follows was written in its former life."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: its status, and the range of bytes that belong to no complete record."""

    status: TailStatus
    offset: int
    length: int
    detail: str = ""

    @property
    def unfinished(self) -> bool:
        """Whether a record was begun here that may yet be completed by a living writer."""
        return self.status in (TailStatus.TORN, TailStatus.OPEN)

    def of(self, path: str) -> Tail:
        """The tail of one of several files that are read as one: its text names the file."""
        return replace(self, detail=f"{posixpath.basename(path)}: {self.detail}")


@dataclass(slots=True)
class Account:
    """Where the bytes of a file went. The six add up to what was scanned.

    Attributes:
        header: Headers and metadata of the file.
        record: Complete, delivered records with their framing.
        padding: Unused space that the format allows.
        tail: An unfinished or stale end (padding at the end counts as padding).
        damage: Damaged ranges.
        unsupported: Ranges that this version does not know how to read.
    """

    header: int = 0
    record: int = 0
    padding: int = 0
    tail: int = 0
    damage: int = 0
    unsupported: int = 0

    @property
    def total(self) -> int:
        """All bytes accounted for."""
        return self.header + self.record + self.padding + self.tail + self.damage + self.unsupported

    @classmethod
    def sum(cls, accounts: Iterable[Account]) -> Account:
        """Bytes by use, over several files."""
        total = cls()
        for account in accounts:
            total.add(account)
        return total

    def add(self, other: Account) -> None:
        """Add another account to this one."""
        self.header += other.header
        self.record += other.record
        self.padding += other.padding
        self.tail += other.tail
        self.damage += other.damage
        self.unsupported += other.unsupported


@dataclass(slots=True)
class Findings:
    """Collects what a scan found; applies the damage policy.

    Attributes:
        on_damage: `fail` raises at the first damage, `skip` records it and goes on.
        rows: Rows decoded so far, before any filter.
        account: Bytes so far, by use.
        damages: The first `MAX_LISTED` damaged ranges since the last `drain`.
        kinds: How often each kind of damage was found.
        tail: The end of the file, once the scan reached it.
        drained: Whether the caller drains damage as it is found; then all are kept until taken.
        notes: Counts of what is not damage and yet worth knowing, e.g. rows of transactions that were aborted.
        columns: Damage in bulk, as batches of `DAMAGE_SCHEMA`, where the caller drains it so; else `None`.
        observe: Called with what rows are made from, where the format has a `sawlog.format.Counting`; else `None`.
        intact: Accounts of files, by path, that a fragment of several has read whole, and found nothing wrong with;
            `None` where nobody asks for them.
    """

    on_damage: OnDamage = "fail"
    rows: int = 0
    account: Account = field(default_factory=Account)
    damages: list[Damage] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    tail: Tail | None = None
    drained: bool = False
    notes: Counter[str] = field(default_factory=Counter)
    columns: list[pa.RecordBatch] | None = None
    observe: Callable[[Any], None] | None = None
    intact: dict[str, Account] | None = None

    def damage(self, damage: Damage) -> None:
        """Take in one damaged or unsupported range.

        Raises:
            DamageError: When the policy is `fail`.
            UnsupportedError: Likewise, where the kind is `UNSUPPORTED`.
        """
        if self.on_damage == "fail":
            raise (UnsupportedError if damage.kind == UNSUPPORTED else DamageError)(damage)
        self.tally(damage.kind, 1, damage.length)
        if self.listing:
            self.damages.append(damage)

    @property
    def listing(self) -> bool:
        """Whether damaged ranges are still wanted one by one; otherwise `tally` will do."""
        return self.drained or self.on_damage == "fail" or len(self.damages) < MAX_LISTED

    def tally(self, kind: str, count: int, length: int) -> None:
        """Count damaged ranges without listing them: how many of a kind, and their bytes in all."""
        self.kinds[kind] += count
        if kind == UNSUPPORTED:
            self.account.unsupported += length
        else:
            self.account.damage += length

    def add(self, other: Findings) -> None:
        """Take in the findings of a later part of the same file; damaged ranges stay where they are listed."""
        self.rows += other.rows
        self.account.add(other.account)
        self.kinds += other.kinds
        self.notes += other.notes
        self.tail = other.tail or self.tail

    def drain(self) -> list[Damage]:
        """Take away the damaged ranges listed so far."""
        taken, self.damages = self.damages, []
        return taken

    def drain_batch(self) -> pa.RecordBatch | None:
        """Take the damaged ranges listed so far, as a batch of `DAMAGE_SCHEMA`, in reading order; `None` for none."""
        batches = [damage_batch(self.drain())] if self.damages else []
        if self.columns:
            batches, self.columns = [*self.columns, *batches], []
        if len(batches) < 2:
            return batches[0] if batches else None
        return pa.concat_batches(batches).sort_by("offset")

    def remarks(self, path: str) -> list[str]:
        """What a read left out, one sentence each: damaged ranges, and an unfinished tail."""
        found = []
        if self.kinds:
            kinds = {kind: count for kind, count in sorted(self.kinds.items()) if kind != UNSUPPORTED}
            if kinds:
                listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
                damaged = self.account.damage
                lost = f"skipped {damaged} damaged bytes" if damaged else places(sum(kinds.values()))
                found.append(f"{path}: {lost} ({listed}); sawlog verify lists them")
            if unsupported := self.kinds[UNSUPPORTED]:
                found.append(
                    f"{path}: skipped {self.account.unsupported} bytes in {unsupported} ranges that this version of"
                    " sawlog does not support; sawlog verify lists them"
                )
        if self.tail is not None and self.tail.unfinished:
            found.append(
                f"{path}: {self.tail.status} tail of {self.tail.length} bytes at byte {self.tail.offset}"
                f" was not read: {self.tail.detail}"
            )
        return found

    def warn(self, path: str) -> None:
        """Warn about skipped files that contain rows, once per scan."""
        for remark in self.remarks(path):
            warn(remark, DamageWarning)


def places(count: int) -> str:
    """What is said of damage without bytes: something is missing altogether, such as the footer of an emptied file."""
    return f"{count:,} damaged place{'' if count == 1 else 's'}"


@dataclass(slots=True)
class FileReport:
    """What `verify` or `repair` found in one file."""

    path: str
    size: int
    rows: int
    account: Account
    tail: Tail
    damages: list[Damage]
    kinds: Counter[str]
    notes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, path: str, size: int, found: Iterable[Findings]) -> FileReport:
        """The findings of a file's fragments, in order, as one report."""
        report = cls(path, size, 0, Account(), Tail(TailStatus.CLEAN, size, 0), [], Counter())
        for findings in found:
            report.rows += findings.rows
            report.account.add(findings.account)
            report.damages += findings.damages
            report.kinds += findings.kinds
            report.notes += findings.notes
            report.tail = findings.tail or report.tail
        report.damages.sort(key=lambda damage: damage.offset)
        return report

    @property
    def damaged(self) -> bool:
        """Whether any range of the file is damaged; what is merely unsupported is not."""
        return bool(self.kinds.keys() - {UNSUPPORTED})

    @property
    def unsupported(self) -> bool:
        """Whether the file holds what this version does not support."""
        return UNSUPPORTED in self.kinds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "bytes": asdict(self.account),
            "tail": asdict(self.tail),
            "damage_count": sum(count for kind, count in self.kinds.items() if kind != UNSUPPORTED),
            "damage_kinds": {kind: count for kind, count in sorted(self.kinds.items()) if kind != UNSUPPORTED},
            "notes": dict(sorted(self.notes.items())),
            "damages": [asdict(damage) for damage in self.damages if damage.kind != UNSUPPORTED],
            "unsupported_count": self.kinds[UNSUPPORTED],
            "unsupported": [asdict(damage) for damage in self.damages if damage.kind == UNSUPPORTED],
        }


@dataclass(slots=True)
class Report:
    """What `verify` or `repair` found: one entry per file, in reading order."""

    format: str
    files: list[FileReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    """What the path holds and was not looked at."""
    rescue: str = ""
    """What more could be read of damaged files, and by which option, as a phrase; empty if nothing is known."""

    @property
    def damaged(self) -> bool:
        """Whether any file holds damage."""
        return any(file.damaged for file in self.files)

    @property
    def unsupported(self) -> bool:
        """Whether any file holds what this version does not support."""
        return any(file.unsupported for file in self.files)

    @property
    def rows(self) -> int:
        """Rows that can be read, over all files."""
        return sum(file.rows for file in self.files)

    @property
    def account(self) -> Account:
        """Bytes by use, over all files."""
        return Account.sum(file.account for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "format": self.format,
            "damaged": self.damaged,
            "unsupported": self.unsupported,
            "rows": self.rows,
            "bytes": asdict(self.account),
            "files": [file.to_dict() for file in self.files],
            "skipped": [one.to_dict() for one in self.skipped],
            "rescue": self.rescue or None,
        }


def damage_batch(damages: list[Damage]) -> pa.RecordBatch:
    """Damaged ranges as a record batch of `DAMAGE_SCHEMA`."""
    rows = [(d.path, d.offset, d.length, d.kind, d.detail, d.dropped) for d in damages]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(DAMAGE_SCHEMA)
    arrays = [array_of(column, field.type) for column, field in zip(columns, DAMAGE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=DAMAGE_SCHEMA)


def check_on_damage(value: str) -> OnDamage:
    """Validate an `on_damage` policy.

    Raises:
        OptionError: For anything but `fail` and `skip`.
    """
    if value == "fail":
        return "fail"
    if value == "skip":
        return "skip"
    raise OptionError(f"on_damage={value!r}: expected one of {', '.join(get_args(OnDamage))}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a part of one, that a dataset's path holds and the dataset does not read.

    Attributes:
        path: The file.
        reason: Why it is left out, as a phrase.
        bytes: How many of its bytes are left out.
        missed: Whether rows that belong into the view are there: the answer is incomplete without them.
    """

    path: str
    reason: str
    bytes: int
    missed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def by_reason(skipped: Iterable[Skipped]) -> dict[str, list[Skipped]]:
    """What was left out, gathered by reason."""
    found: dict[str, list[Skipped]] = {}
    for one in skipped:
        found.setdefault(one.reason, []).append(one)
    return found


def remarks(skipped: Iterable[Skipped]) -> list[str]:
    """One sentence for every reason why an answer is incomplete."""
    found = []
    for reason, group in by_reason(one for one in skipped if one.missed).items():
        files = "was" if len(group) == 1 else f"and {len(group) - 1} more were"
        found.append(
            f"{group[0].path} {files} not read ({sum(one.bytes for one in group)} bytes): {reason};"
            " sawlog info lists what is left out"
        )
    return found
