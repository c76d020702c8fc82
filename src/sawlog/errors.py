"""Every exception sawlog raises on purpose, in one tree, and the damage that one of them carries."""

from __future__ import annotations

from dataclasses import dataclass


class SawlogError(Exception):
    """Base of all sawlog errors. The message says what was expected, what was found, and where."""


class FormatError(SawlogError):
    """The path holds no such format, or a version of it that is not supported."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One range of bytes that could not be decoded.

    Attributes:
        path: The file, as it was named to sawlog.
        offset: First damaged byte, counted from the start of the file.
        length: Bytes in the damaged range; ranges of one scan never overlap.
        kind: A short name from the format's own list.
        detail: What was expected and what was found.
        dropped: What the original system's reader would count as lost for this event, where it counts at all.
    """

    path: str
    offset: int
    length: int
    kind: str
    detail: str
    dropped: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.kind} at byte {self.offset} ({self.length} bytes): {self.detail}"


class DamageError(SawlogError):
    """Damaged bytes were met while `on_damage="fail"` was in force. Carries the `Damage`."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f'{damage}; read on past it with on_damage="skip"')
        self.damage = damage

    def __reduce__(self) -> tuple[type[DamageError], tuple[Damage]]:
        """Pickle by the damage, so that Spark workers can hand the error to the driver."""
        return (DamageError, (self.damage,))


class SchemaError(SawlogError):
    """Columns, types or values that a format cannot represent, or that do not exist."""


class OptionError(SawlogError):
    """An unknown option, or a value it cannot take."""


class ChangedError(SawlogError, OSError):
    """A file became shorter, or was replaced, while it was read."""

    @classmethod
    def shorter(cls, path: str, expected: int, found: int) -> ChangedError:
        """For a file that has lost its end."""
        return cls(f"{path}: expected {expected} bytes, found {found}: the file became shorter while it was read")
