"""Findings of a scan besides rows: damage, the state of the tail, and where every byte went."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, Literal, Self, get_args

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.errors import Damage as Damage  # noqa: PLC0414 - belongs here, too
from sawlog.errors import DamageError, IncompleteError, OptionError, UnsupportedError, warn, without_secrets

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

MISSING_FILE = "missing_file"
"""Kind of a file that metadata names, or that must be there, and is not."""
CUT_METADATA = "cut_metadata"
"""Kind of metadata that ends, or is damaged, before it has said what it must say."""
MISMATCHED_FILE = "mismatched_file"
"""Kind of a file that is there and is of another state than the metadata says."""
INCOMPLETE_KINDS = frozenset({MISSING_FILE, CUT_METADATA, MISMATCHED_FILE})
"""Kinds that make a dataset incomplete. They are not damage, and take no bytes of the account."""


class DamageKind(IntEnum):
    """Base of a format's kinds of damage, whose numbers kernels write.

    A member is a number, or a number and its detail, or these and `UNSUPPORTED` where a newer or another writer may
    have meant what the bytes say.

    Attributes:
        detail: The text of a damage of this kind; two numbers that explain it are filled in.
        label: Its name in the `kind` column.
    """

    def __new__(cls, number: int, *_: str) -> Self:
        kind = int.__new__(cls, number)
        kind._value_ = number
        return kind

    def __init__(self, number: int, detail: str = "", label: str = "") -> None:
        del number
        self.detail = detail
        self.label = label or self.name.lower()


class Verdict(StrEnum):
    """The state of a file or a dataset, and what a kind of finding says of it.

    Attributes:
        CLEAN: Nothing was found, and everything that may hold rows was read.
        DAMAGED: Bytes could not be decoded.
        INCOMPLETE: Something that metadata names is missing, or metadata is cut, or files with rows were not read.
        UNSUPPORTED: This version does not know how to read a part.
    """

    CLEAN = "clean"
    DAMAGED = "damaged"
    INCOMPLETE = "incomplete"
    UNSUPPORTED = "unsupported"


def judge_kind(kind: str) -> Verdict:
    """Return what a finding of this kind makes of its file."""
    if kind in INCOMPLETE_KINDS:
        return Verdict.INCOMPLETE
    return Verdict.UNSUPPORTED if kind == UNSUPPORTED else Verdict.DAMAGED


def count_kinds(kinds: Mapping[str, int], verdict: Verdict) -> dict[str, int]:
    """Return the kinds with this verdict, sorted by name, and how often each was found."""
    return {kind: count for kind, count in sorted(kinds.items()) if count and judge_kind(kind) is verdict}


_WORST_FIRST = (Verdict.DAMAGED, Verdict.INCOMPLETE, Verdict.UNSUPPORTED)


class HasVerdict(ABC):
    """Base of what scans have found in files: whether these are damaged, incomplete or unsupported."""

    __slots__ = ()

    @abstractmethod
    def count(self, verdict: Verdict) -> int:
        """Return how many findings have this verdict."""

    @property
    def damaged(self) -> bool:
        """Whether anything is damaged; what is merely unsupported is not."""
        return self.count(Verdict.DAMAGED) > 0

    @property
    def incomplete(self) -> bool:
        """Whether something that metadata names is missing, of another state or cut, or files were not read."""
        return self.count(Verdict.INCOMPLETE) > 0

    @property
    def unsupported(self) -> bool:
        """Whether anything is not supported by this version."""
        return self.count(Verdict.UNSUPPORTED) > 0

    @property
    def verdict(self) -> Verdict:
        """The worst of what was found: damage, then what is missing, then what is not supported."""
        return next((verdict for verdict in _WORST_FIRST if self.count(verdict)), Verdict.CLEAN)


class DamageWarning(UserWarning):
    """An answer is incomplete: damage was skipped, an unfinished tail left unread, or files with rows were."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class TailStatus(StrEnum):
    """Status of the end of a file."""

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
        """Return the tail of one of several files that are read as one: its text names the file."""
        return replace(self, detail=f"{posixpath.basename(path)}: {self.detail}")


@dataclass(slots=True)
class Account:
    """Account of the bytes of a file. The six numbers add up to what was scanned.

    Attributes:
        header: Headers and metadata of the file.
        record: Complete records, with their framing.
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
        """Return the account of several files together."""
        total = cls()
        for account in accounts:
            total.add(account)
        return total

    def add(self, added: Account) -> None:
        """Add another account to this one."""
        self.header += added.header
        self.record += added.record
        self.padding += added.padding
        self.tail += added.tail
        self.damage += added.damage
        self.unsupported += added.unsupported


_ERRORS: dict[Verdict, type[DamageError | UnsupportedError | IncompleteError]] = {
    Verdict.DAMAGED: DamageError,
    Verdict.INCOMPLETE: IncompleteError,
    Verdict.UNSUPPORTED: UnsupportedError,
}
_MAX_GAPS = 3


_make_counter = partial(Counter[str].__new__, Counter)  # an empty one, in a fifth of the time that `Counter()` takes


@dataclass(slots=True)
class Findings:
    """Collects what a scan found; applies the damage policy.

    Attributes:
        on_damage: `fail` raises at the first damage, `skip` records it and goes on.
        rows: Rows decoded so far, before any filter.
        account: Bytes so far, by use.
        damages: The first `MAX_LISTED` damaged ranges that were not taken yet.
        kinds: How often each kind of damage was found.
        tail: The end of the file, once the scan reached it.
        drained: Whether the caller drains damage as it is found; then all are kept until taken.
        notes: Counts of what is not damage and yet worth knowing, e.g. rows of transactions that were aborted.
        columns: Damage in bulk, as batches of `DAMAGE_SCHEMA`, where the caller drains it so; else `None`.
        observe: Called with what makes rows, where the format has a `sawlog.format.capabilities.Counting`; else `None`.
        intact: Accounts of files, by path, that a fragment of several has read whole, and found nothing wrong with;
            `None` where nobody asks for them.
        gaps: The first of those among the damaged ranges that make the dataset incomplete, for warnings.
    """

    on_damage: OnDamage = "fail"
    rows: int = 0
    account: Account = field(default_factory=Account)
    damages: list[Damage] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=_make_counter)
    tail: Tail | None = None
    drained: bool = False
    notes: Counter[str] = field(default_factory=_make_counter)
    columns: list[pa.RecordBatch] | None = None
    observe: Callable[[Any], None] | None = None
    intact: dict[str, Account] | None = None
    gaps: list[Damage] = field(default_factory=list)

    def add_damage(self, damage: Damage) -> None:
        """Take in one damaged or unsupported range.

        Raises:
            DamageError: When the policy is `fail`.
            UnsupportedError: Likewise, where the kind is `UNSUPPORTED`.
            IncompleteError: Likewise, where the kind is one of `INCOMPLETE_KINDS`.
        """
        if self.on_damage == "fail":
            raise _ERRORS[judge_kind(damage.kind)](damage)
        self.tally(damage.kind, 1, damage.length)
        if damage.kind in INCOMPLETE_KINDS and len(self.gaps) < _MAX_GAPS:
            self.gaps.append(damage)
        if self.listing:
            self.damages.append(damage)

    @property
    def listing(self) -> bool:
        """Whether damaged ranges are still wanted one by one; otherwise `tally` will do."""
        return self.drained or self.on_damage == "fail" or len(self.damages) < MAX_LISTED

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to warn of, nor an end other than that of a whole file."""
        return not self.kinds and (self.tail is None or self.tail.status is TailStatus.CLEAN)

    def tally(self, kind: str, count: int, length: int) -> None:
        """Count damaged ranges without listing them: how many of a kind, and their bytes in all."""
        self.kinds[kind] += count
        verdict = judge_kind(kind)
        if verdict is Verdict.UNSUPPORTED:
            self.account.unsupported += length
        elif verdict is Verdict.DAMAGED:
            self.account.damage += length


def merge_findings(findings: Findings, later: Findings) -> None:
    """Add the findings of a later part of the same file; damaged ranges stay where they are listed."""
    findings.rows += later.rows
    findings.account.add(later.account)
    if later.kinds or later.notes:  # sums of counters take longer than all else here
        findings.kinds += later.kinds
        findings.notes += later.notes
    findings.gaps += later.gaps[: _MAX_GAPS - len(findings.gaps)]
    findings.tail = later.tail or findings.tail


def take_listed_damage(findings: Findings) -> list[Damage]:
    """Take the damaged ranges that were listed so far out of findings."""
    listed, findings.damages = findings.damages, []
    return listed


def take_damage_batch(findings: Findings) -> pa.RecordBatch | None:
    """Take the damaged ranges out of findings, as a batch of `DAMAGE_SCHEMA` in reading order; `None` for none."""
    batches = [_make_damage_batch(take_listed_damage(findings))] if findings.damages else []
    if findings.columns:
        batches, findings.columns = [*findings.columns, *batches], []
    if len(batches) < 2:
        return batches[0] if batches else None
    return pa.concat_batches(batches).sort_by("offset")


def describe_losses(findings: Findings, path: str) -> list[str]:
    """Return what a read left out, one sentence each: damaged ranges, and an unfinished tail."""
    sentences = []
    if findings.kinds:
        if kinds := count_kinds(findings.kinds, Verdict.DAMAGED):
            listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            damaged = findings.account.damage
            loss = f"skipped {damaged} damaged bytes" if damaged else describe_places(sum(kinds.values()))
            sentences.append(f"{path}: {loss} ({listed}); sawlog verify lists them")
        if gaps := count_kinds(findings.kinds, Verdict.INCOMPLETE):
            listed = ", ".join(f"{count} {kind}" for kind, count in gaps.items())
            details = "; ".join(f"{gap.path}: {gap.detail}" for gap in findings.gaps[:3])
            sentences.append(f"{path}: incomplete ({listed}): {details or 'sawlog verify says what is missing'}")
        if unsupported := findings.kinds[UNSUPPORTED]:
            sentences.append(
                f"{path}: skipped {findings.account.unsupported} bytes in {unsupported} ranges that this version of"
                " sawlog does not support; sawlog verify lists them"
            )
    if findings.tail is not None and findings.tail.unfinished:
        sentences.append(
            f"{path}: {findings.tail.status} tail of {findings.tail.length} bytes at byte {findings.tail.offset}"
            f" was not read: {findings.tail.detail}"
        )
    return sentences


def warn_of_losses(findings: Findings, path: str) -> None:
    """Warn about skipped files that contain rows, once per scan."""
    for remark in describe_losses(findings, path):
        warn(remark, DamageWarning)


def describe_places(count: int) -> str:
    """Return a sentence on damage without bytes: something is missing, such as the footer of an emptied file."""
    return f"{count:,} damaged place{'' if count == 1 else 's'}"


@dataclass(slots=True)
class FileReport(HasVerdict):
    """Findings of `verify` or `repair` in one file."""

    path: str
    size: int
    rows: int
    account: Account
    tail: Tail
    damages: list[Damage]
    kinds: Counter[str]
    notes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, path: str, size: int, fragment_findings: Iterable[Findings]) -> FileReport:
        """Return the findings of a file's fragments, in order, as one report."""
        total, damages = Findings("skip"), list[Damage]()
        for findings in fragment_findings:
            merge_findings(total, findings)
            damages += findings.damages
        damages.sort(key=lambda damage: damage.offset)
        tail = total.tail or Tail(TailStatus.CLEAN, size, 0)
        return cls(path, size, total.rows, total.account, tail, damages, total.kinds, total.notes)

    def count(self, verdict: Verdict) -> int:
        return count_findings([self.kinds], (), verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "bytes": asdict(self.account),
            "tail": asdict(self.tail),
            "damage_count": self.count(Verdict.DAMAGED),
            "damage_kinds": count_kinds(self.kinds, Verdict.DAMAGED),
            "notes": dict(sorted(self.notes.items())),
            "damages": dump_ranges(self.damages, Verdict.DAMAGED),
            "incomplete_count": self.count(Verdict.INCOMPLETE),
            "incomplete": dump_ranges(self.damages, Verdict.INCOMPLETE),
            "unsupported_count": self.count(Verdict.UNSUPPORTED),
            "unsupported": dump_ranges(self.damages, Verdict.UNSUPPORTED),
        }


def dump_ranges(damages: Iterable[Damage], verdict: Verdict) -> list[dict[str, Any]]:
    """Return the damaged ranges with this verdict as plain data for JSON."""
    return [asdict(damage) for damage in damages if judge_kind(damage.kind) is verdict]


def count_findings(kinds: Iterable[Mapping[str, int]], skipped: Iterable[Skipped], verdict: Verdict) -> int:
    """Return how many findings have this verdict.

    Args:
        kinds: How often each kind was found, file by file.
        skipped: Files that were not read, which make incomplete if they hold rows.
        verdict: The verdict.
    """
    missed = sum(file.missed for file in skipped) if verdict is Verdict.INCOMPLETE else 0
    return missed + sum(sum(count_kinds(of_file, verdict).values()) for of_file in kinds)


@dataclass(slots=True)
class Report(HasVerdict):
    """Findings of `verify` or `repair`: one entry per file, in reading order."""

    format: str
    files: list[FileReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    """What the path holds and was not looked at."""
    rescue: str = ""
    """What more could be read of damaged files, and by which option, as a phrase; empty if nothing is known."""
    path: str = ""
    """Where the dataset is, where it is a part of a folder."""
    remarks: list[Remark] = field(default_factory=list)
    """Files that `repair` has kept although records of them mean nothing."""
    unsupported_in_copy: int = 0
    """Bytes that this version does not support, and that a repaired copy has unchanged."""
    parts: list[Report] = field(default_factory=list)
    """One for each of several datasets of a folder, whose files are listed here, too; empty where there is one."""

    def count(self, verdict: Verdict) -> int:
        return count_findings((file.kinds for file in self.files), self.skipped, verdict)

    @property
    def own_skipped(self) -> list[Skipped]:
        """Entries of `skipped` that are in none of the parts."""
        inside = {id(skipped_file) for part in self.parts for skipped_file in part.skipped}
        return [skipped_file for skipped_file in self.skipped if id(skipped_file) not in inside]

    @property
    def rows(self) -> int:
        """Rows that can be read, over all files."""
        return sum(file.rows for file in self.files)

    @property
    def account(self) -> Account:
        """Bytes by use, over all files."""
        return Account.sum(file.account for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        parts = [{"path": part.path, **part.to_dict()} for part in self.parts]
        return {
            "format": self.format,
            "damaged": self.damaged,
            "incomplete": self.incomplete,
            "unsupported": self.unsupported,
            "rows": self.rows,
            "bytes": asdict(self.account),
            "files": [file.to_dict() for file in self.files],
            "skipped": [skipped_file.to_dict() for skipped_file in self.skipped],
            "rescue": self.rescue or None,
            **({"remarks": [remark.to_dict() for remark in self.remarks]} if self.remarks else {}),
            **({"parts": parts} if parts else {}),
        }


def _make_damage_batch(damages: list[Damage]) -> pa.RecordBatch:
    """Return the damaged ranges as a record batch of `DAMAGE_SCHEMA`."""
    rows = [(d.path, d.offset, d.length, d.kind, d.detail, d.dropped) for d in damages]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(DAMAGE_SCHEMA)
    arrays = [make_array(column, field.type) for column, field in zip(columns, DAMAGE_SCHEMA, strict=True)]
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
        command: What shows the rows of the other dataset that it is of; empty where it is of none.
    """

    path: str
    reason: str
    bytes: int
    missed: bool = False
    command: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Remark:
    """Sentence about a file that is whole, and whose rows do not mean what they should.

    Attributes:
        path: The file.
        text: What is wrong, as a phrase.
    """

    path: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def group_by_reason(skipped: Iterable[Skipped]) -> dict[str, list[Skipped]]:
    """Return what was left out, gathered by reason."""
    grouped: dict[str, list[Skipped]] = {}
    for skipped_file in skipped:
        grouped.setdefault(skipped_file.reason, []).append(skipped_file)
    return grouped


def describe_skipped(skipped: Iterable[Skipped]) -> list[str]:
    """Return a sentence for every reason why rows of a path are not in an answer."""
    sentences = []
    for reason, group in group_by_reason(
        skipped_file for skipped_file in skipped if skipped_file.missed or skipped_file.command
    ).items():
        files = "was" if len(group) == 1 else f"and {len(group) - 1} more were"
        sentences.append(
            f"{group[0].path} {files} not read ({sum(skipped_file.bytes for skipped_file in group)} bytes): {reason};"
            " sawlog info lists what is left out"
        )
    return sentences
