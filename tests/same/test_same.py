"""The comparison finds what differs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sawlog.testing import Mutation
from tests.leveldb_log.test_laws import TestLaws as Laws

from .__main__ import OBSERVER, compare, report, subject
from .observe import cleaned, observe

RELEASED = {
    "sawlog": {"SawlogError", "formats", "open", "repair", "verify", "write"},
    "sawlog.cli": {"main"},
    "sawlog.testing": {"outcome"},
}
"""What the observer takes of sawlog: names that the release has, too."""


def test_the_observer_uses_only_what_the_release_has() -> None:
    used = set()
    for node in ast.walk(ast.parse(OBSERVER.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sawlog"):
            used |= {(node.module, name.name) for name in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "sawlog":
            used.add(("sawlog", node.attr))
    only_a_type = ("sawlog", "Dataset")
    assert used - {only_a_type} == {(module, name) for module, names in RELEASED.items() for name in names}


@pytest.mark.parametrize(
    ("new_value", "places"),
    [
        ({"a": 1, "b": [1, {"c": 2}]}, []),
        ({"a": 1, "b": [1, {"c": 2, "new": 3}], "new": 4}, []),
        ({"a": 2, "b": [1, {"c": 2}]}, ["/a"]),
        ({"b": [1, {"c": 2}]}, ["/a"]),
        ({"a": 1, "b": [1, {"c": 3}]}, ["/b/1/c"]),
        ({"a": 1, "b": [1]}, ["/b"]),
    ],
)
def test_differences_are_found_at_any_depth(new_value: object, places: list[str]) -> None:
    assert [place for place, _, _ in compare({"a": 1, "b": [1, {"c": 2}]}, new_value)] == places


@pytest.mark.parametrize(
    ("place", "new_text", "is_same"),
    [
        ("/ended/message", "/a: bad_block at byte 7 (9 bytes): in other words", True),
        ("/ended/message", "/a: bad_block at byte 8 (9 bytes): a block", False),
        ("/ended/message", "/b: bad_block at byte 7 (9 bytes): a block", False),
        ("/warnings/0", "UserWarning: /a: bad_block at byte 7 (9 bytes): a block", False),
        ("/ended/message", "", False),
        ("/rows", "/a: bad_block at byte 7 (9 bytes): in other words", False),
    ],
)
def test_words_of_messages_are_free(place: str, new_text: str, is_same: bool) -> None:
    assert list(compare("/a: bad_block at byte 7 (9 bytes): a block", new_text, place)) == (
        [] if is_same else [(place, "/a: bad_block at byte 7 (9 bytes): a block", new_text)]
    )


def test_what_is_meant_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(view: str, rows: int) -> dict[str, object]:
        report = {"rows": 1, "bytes": {"damage": 0}, "files": []}
        return {"seen": {"sawlog info": {"stdout": {"view": view}}, "count": rows, "verify": {"found": report}}}

    assert report(["deephaven_log x: intact"], [answer("entries", 1)], [answer("frames", 1)]) == 0
    assert "1 meant: The layer below the rows is called frames" in capsys.readouterr().out
    assert report(["deephaven_log x: intact"], [answer("entries", 1)], [answer("frames", 2)]) == 1
    assert "1 not explained: deephaven_log: /count" in capsys.readouterr().out


def test_one_flipped_bit_is_seen_by_every_verb(tmp_path: Path) -> None:
    sample = Laws.samples()[0]
    data = bytearray(sample.files)
    data[20] ^= 1
    answers = []
    for name, files in (("intact", sample.files), ("changed", bytes(data))):
        sample_subject = subject(tmp_path / name, sample, Mutation("intact", {sample.file_name: files}))
        places = {sample_subject["directory"]: "", str(tmp_path): ""}
        answers.append(cleaned(observe(sample_subject, tmp_path / f"{name}-scratch"), places))
    assert answers[0]["rows fail rows"]["found"]["count"] == len(sample.rows)
    assert answers[0]["write"]["found"] == {".": answers[0]["repair"]["found"]["files"]["."]}
    different = {place.split("/")[1] for place, _, _ in compare(*answers)}
    assert {
        "rows fail rows",
        "rows skip rows",
        "rows count",
        "verify",
        "repair",
        "follow",
        "sawlog verify",
    } <= different
