"""Views that decode what one application puts into keys and values; packages add them by entry points."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from sawlog.storage import Storage


class UnknownBytesError(Exception):
    """Why a key or a value is delivered as bytes only; the message becomes the reason."""


class Entry(NamedTuple):
    """One entry of a database.

    Attributes:
        key: Its key.
        value: Its value; `None` for a deletion.
        sequence: Its sequence number.
    """

    key: bytes
    value: bytes | None
    sequence: int


@dataclass(frozen=True)
class Home:
    """Where a database is, for applications that keep files next to it.

    Attributes:
        path: Its directory.
        storage: Where the directory is.
        longest: Bytes that are read of a file, or made of a compressed value, at most.
    """

    path: str
    storage: Storage
    longest: int

    def read(self, path: str) -> bytes:
        """A file next to the directory, by its path relative to that which both are in.

        Raises:
            UnknownBytesError: When there is none, or it is too large.
        """
        path = posixpath.join(posixpath.dirname(self.path), path)
        try:
            found = self.storage.read(path, 0, self.longest + 1)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UnknownBytesError(f"the value is in {posixpath.basename(path)}, a file that is not there") from error
        if len(found) > self.longest:
            raise UnknownBytesError(f"{posixpath.basename(path)} has more than {self.longest} bytes")
        return found


class ApplicationView(ABC):
    """One view. It gives one row per entry: what is decoded, then `reason`, the bytes, and columns of the entry."""

    title: ClassVar[str]
    """One line about it."""
    columns: ClassVar[pa.Schema]
    """What it decodes; all of it may be null."""
    names: ClassVar[tuple[bytes, bytes | None] | None] = None
    """Between which keys there is what other entries are explained by; `None`: each explains itself."""

    @abstractmethod
    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """Whether a database looks like one of the application's.

        Args:
            path: Its directory.
            comparator: The name of the order of its keys.
            keys: Some of its keys, such as the first and last ones of tables.
        """

    def context(self, entries: Iterable[Entry], home: Home) -> Any:
        """What explains other entries, made of those in the range `names`, deleted and older ones included.

        Args:
            entries: By key, newest first.
            home: Where the database is.
        """
        del entries, home

    @abstractmethod
    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """Columns of an entry; those that are not there are null. `reason` says what is not known of it.

        Raises:
            UnknownBytesError: When nothing is known of the entry.
        """
