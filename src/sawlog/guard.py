"""The one place where exceptions of other libraries, and those that nobody thought of, become sawlog's own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from sawlog.damage import UNREADABLE, Damage, Findings
from sawlog.errors import DamageError, FormatError, SawlogError

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.format import Fragment

_CYTHON = (".pyx", ".pxi")
_PACKAGE = os.path.dirname(__file__) + os.sep


def raised_by_system(error: BaseException) -> bool:
    """Whether the operating system, or a store, says that a path cannot be read; Arrow raises OSError for bad bytes."""
    return isinstance(error, OSError) and not _innermost(error.__traceback__).endswith(_CYTHON)


def foreign(error: Exception) -> bool:
    """Whether an exception is neither sawlog's own, nor the system's, nor a warning that was made an error."""
    return not (isinstance(error, SawlogError | Warning) or raised_by_system(error))


def explain(error: Exception) -> str:
    """What a foreign exception says, and the place in sawlog that it passed last."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(_PACKAGE)]
    where = f" in {frames[-1].filename.removeprefix(_PACKAGE)}, line {frames[-1].lineno}" if frames else ""
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}{where}{': ' if said else ''}{said}"


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn foreign exceptions into a `FormatError`, whose cause they are.

    Args:
        doing: What is being done, and to which path, for the message.
    """
    try:
        yield
    except Exception as error:
        if not foreign(error):
            raise
        raise FormatError(f"{doing}: {explain(error)}") from error


def decoded(fragment: Fragment, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
    """What a fragment decodes; a foreign exception is damage, of all bytes behind the last batch.

    Raises:
        DamageError: When the policy is `fail`; its cause is the exception.
    """
    rows, kept = 0, findings.mark()
    try:
        for batch in fragment.decode(schema, findings):
            yield batch
            rows, kept = rows + batch.num_rows, findings.mark()
    except Exception as error:
        if not foreign(error):
            raise
        findings.return_to(kept, rows)
        start, length = fragment.extent
        rest = max(0, length - findings.account.total)
        try:
            findings.damage(Damage(fragment.path, start + length - rest, rest, UNREADABLE, explain(error)))
        except DamageError as damage:
            raise damage from error


def _innermost(trace: TracebackType | None) -> str:
    """The file of the frame that raised."""
    name = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return name
