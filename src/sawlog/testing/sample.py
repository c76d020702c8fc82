"""The samples that a format hands to the suite: small files, and the facts known of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa

Files = Mapping[str, bytes]
"""Contents by path, relative to the directory they are put into."""


@dataclass(frozen=True)
class Span:
    """A range of bytes.

    Attributes:
        offset: Its first byte.
        length: How many bytes it has.
        file: The file it is in, for samples of several files.
    """

    offset: int
    length: int
    file: str = ""


@dataclass(frozen=True, eq=False)
class Sample:
    """A small file of a format, or a directory of them, and what is known of it.

    A sample is intact: reading it finds no damage. A few hundred bytes are enough; the suite reads it thousands of
    times.

    Attributes:
        name: Part of the names of tests.
        format: The format's name.
        files: The bytes of one file, or the bytes of several by their paths.
        file_name: What the one file is called.
        root: What is opened where there are several files: a path among theirs; `""` is the directory they are in.
        view: The view to be read.
        options: Read options; in texts, `{root}` stands for the directory that the files are in.
        headers: Headers and lengths: every bit of them is flipped.
        checked: Whether a checksum covers every row: then no change may make a row that was not there.
        ordered: Whether rows are in the file in the order in which they are returned, and each by itself.
        beside: Files and directories that `verify` checks and reading the view has no need of: what is damaged there is
            damage only to `verify`.
        blocks: Whether the place of a row is that of its block, and so that of damage after it there.
        pages: Whether rows of one place are in pages of which each may be damaged: some of those at the last place
            before a damage may follow it.
        within: Kinds of damage that take a value from a row which is returned: the row begins before its value.
        folded: Whether rows are put together of several records, such as the last of each key: `verify` counts what is
            read for them.
        advisory: Kinds of damage that take nothing from any row, such as that of an index: `verify` names them, and
            reading does without what is damaged. A pattern such as `*.blob: unsupported` is for some files.
        rows: What reading returns, as somebody else knows it.
        grows: Whether the view can be followed while the file grows.
        repaired: What `repair` makes of the intact sample: the same `bytes`, the same `rows`; `no`: it cannot.
        kept: Kinds of damage that `repair` leaves in, because only a reader who knows too little finds them, such as
            records of an unknown schema.
        written: A table that can be written to give the same rows back; `None` where the view is not written.
        write_options: Options for that.
        body: Where the records begin, in the one file or in the one that is named: from there on it may be repeated,
            for the law of linear work.
        filters: Filters to be tried besides those that the suite derives from the rows.
        earlier: Earlier states of the same thing, as whole directories: each file of theirs is put in place of the
            sample's of the same path, for the law of removal.
        effort: How many changes are tried, where they are chosen, of those that other samples get: less than 1 for one
            of several alike.
    """

    name: str
    format: str
    files: bytes | Files
    file_name: str = "sample"
    root: str = ""
    view: str = "rows"
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Sequence[Span] = ()
    checked: bool = False
    ordered: bool = True
    beside: Sequence[str] = ()
    blocks: bool = False
    pages: bool = False
    within: Sequence[str] = ()
    folded: bool = False
    advisory: Sequence[str] = ()
    rows: pa.Table | None = None
    grows: bool = False
    repaired: Literal["bytes", "rows", "no"] = "bytes"
    kept: Sequence[str] = ()
    written: pa.Table | None = None
    write_options: Mapping[str, Any] = field(default_factory=dict)
    body: int | Span | None = None
    filters: Sequence[Sequence[tuple[str, str, Any]]] = ()
    earlier: Sequence[Files] = ()
    effort: float = 1.0

    @property
    def content(self) -> dict[str, bytes]:
        """The files by path, in the order of these: what is drawn of them is the same wherever an engine made them."""
        return {self.file_name: self.files} if isinstance(self.files, bytes) else dict(sorted(self.files.items()))

    @property
    def opened(self) -> str:
        """The path that is opened, relative to the directory that the files are in."""
        return self.file_name if isinstance(self.files, bytes) else self.root

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(map(len, self.content.values()))

    def find_file(self, span: Span) -> str:
        """Return the file that a span is in."""
        return span.file or self.file_name


@dataclass(frozen=True)
class Mutation:
    """A change of a sample.

    Attributes:
        label: What it was, for messages.
        files: The contents it made.
        spans: Where it was done.
    """

    label: str
    files: Files
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A sample, as it is or changed, put into a directory.

    Attributes:
        sample: The sample.
        directory: Where its files are.
        files: Their contents.
        mutation: What was done to it.
    """

    sample: Sample
    directory: str
    files: Files
    mutation: Mutation | None = None

    @property
    def is_intact(self) -> bool:
        """Whether nothing was done to it."""
        return self.mutation is None or self.files == self.sample.content

    @property
    def path(self) -> str:
        """The path that is opened."""
        return os.path.join(self.directory, self.sample.opened) if self.sample.opened else self.directory

    @property
    def options(self) -> dict[str, Any]:
        """The read options of the sample, for this place."""
        return {
            name: value.replace("{root}", self.directory) if isinstance(value, str) else value
            for name, value in self.sample.options.items()
        }


SCRATCH = "/dev/shm" if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) else None  # noqa: S108
"""Where samples are put, which are written thousands of times: into memory, unless `TMPDIR` says where files go."""


def make_scratch() -> TemporaryDirectory[str]:
    """Return a directory for samples."""
    return TemporaryDirectory(prefix="sawlog-laws-", dir=SCRATCH)


@contextmanager
def place_sample(sample: Sample, mutation: Mutation | None = None) -> Iterator[Subject]:
    """Hold a sample in a directory of its own, in the block."""
    files = sample.content if mutation is None else mutation.files
    with make_scratch() as directory:
        put(directory, files)
        yield Subject(sample, directory, files, mutation)


def put(directory: str, files: Files) -> None:
    """Write files into a directory."""
    for name, data in files.items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
