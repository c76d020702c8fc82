"""A session of tests fails that leaves files where it runs."""

from __future__ import annotations

import pytest

HOOKS = "from tests.conftest import pytest_sessionfinish, pytest_sessionstart, pytest_terminal_summary"


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("name", "processes", "fails"),
    [
        ("derby.log", ("-n", "1"), True),
        ("new/.part-0", (), True),
        ("__pycache__/new.pyc", (), False),
        (".coverage.7", (), False),
    ],
)
def test_what_a_session_leaves(pytester: pytest.Pytester, name: str, processes: tuple[str, ...], fails: bool) -> None:
    pytester.makeconftest(HOOKS)
    pytester.makepyfile(
        f"""
        from pathlib import Path

        def test_that_passes():
            Path({name!r}).parent.mkdir(exist_ok=True)
            Path({name!r}).write_text("")
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *processes)
    result.assert_outcomes(passed=1)
    assert (name in result.outlines) == (result.ret == pytest.ExitCode.TESTS_FAILED) == fails
