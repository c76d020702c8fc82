"""Pictures of the documentation that are drawn from the code are those that the code draws."""

from __future__ import annotations

import pytest

from sawlog.format.recognition import load_formats
from tools import pictures


@pytest.mark.parametrize("name", pictures.LAYOUTS)
def test_layouts_have_the_numbers_of_the_code(name: str) -> None:
    path = pictures.IMAGES / f"layout-{name}.svg"
    assert path.read_text() == pictures.drawn(name), "run tools/pictures.py"


def test_the_terminal_shows_what_the_command_prints() -> None:
    assert (pictures.IMAGES / "verify.svg").read_text() == pictures.terminal(), "run tools/pictures.py"


def test_every_format_has_a_layout() -> None:
    built_in = {name for name, format in load_formats().items() if type(format).__module__.startswith("sawlog.")}
    assert built_in == set(pictures.LAYOUTS)


def test_pictures_ask_for_nothing() -> None:
    for path in pictures.IMAGES.glob("*.svg"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
        assert "http" not in text.replace("https://www.textualize.io", ""), path
