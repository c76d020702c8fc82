"""The package of examples/column_file, as if it were installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins import installed_package

FOLDER = Path(__file__).parent
EXAMPLE = FOLDER.parents[1] / "examples" / "column_file"


@pytest.fixture(scope="package", autouse=True)
def installed() -> Iterator[None]:
    with installed_package("sawlog_column_file", [str(FOLDER / "installed"), str(EXAMPLE)]):
        yield
