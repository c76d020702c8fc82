"""Every exception sawlog raises on purpose, in one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sawlog.damage import Damage


class SawlogError(Exception):
    """Base of all sawlog errors. The message says what was expected, what was found, and where."""


class FormatError(SawlogError):
    """The path holds no such format, or a version of it that is not supported."""


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
