"""Drawn workloads, replayed by releases of each engine: sawlog's state is the engine's own answer.

One seed again: `make interop ARGS="-k rocksdbjni-11.8.1-7"`. More seeds: `python -m tests.interop.engines --help`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.engines.engines import ENGINES, Engine, difference

pytestmark = pytest.mark.interop
CACHE = Path(".cache/engines")
SEEDS = range(24)


@pytest.fixture(scope="module", params=ENGINES, ids=[engine.name for engine in ENGINES])
def engine(request: pytest.FixtureRequest) -> tuple[Engine, Sequence[str]]:
    """A release, fetched and built."""
    return request.param, request.param.ready(CACHE)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_engine_answers(engine: tuple[Engine, Sequence[str]], seed: int, tmp_path: Path) -> None:
    release, command = engine
    assert difference(release, command, seed, tmp_path) == ""
