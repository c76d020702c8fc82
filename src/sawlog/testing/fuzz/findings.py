"""The findings of the fuzzer: by cause, with the smallest input that shows it."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from pathlib import Path

from sawlog.testing.fuzz.inputs import FuzzInputs
from sawlog.testing.sample import put


class FindingLog:
    """Causes, as directories: `README` says what and how to repeat it, the files next to it are the input.

    Args:
        directory: Where the causes are kept.
        name: The class of laws, for the line that repeats an input.
        seed: The seed, for the same.
    """

    def __init__(self, directory: Path, name: str, seed: str) -> None:
        self.causes: Counter[str] = Counter()
        self._directory = directory
        self._name = name
        self._seed = seed
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, inputs: FuzzInputs, number: int, law: str, text: str, *, is_made: bool = True) -> bool:
        """Note that an input breaks a law, or that it could not even be made; return whether that is news."""
        cause = f"{law}: {_generalize(text)}"
        description, files = "it cannot be made", dict[str, bytes]()
        if is_made:
            sample, mutation, _ = inputs.make(number)
            description = f"sample {sample.name}, view {sample.view}, options {dict(sample.options)}: {mutation.label}"
            files = dict(mutation.files)
        size = sum(map(len, files.values()))
        with self._lock:
            self.causes[cause] += 1
            news = cause not in self._sizes
            if news or size < self._sizes[cause]:
                self._sizes[cause] = size
                command = f"python -m sawlog.testing.fuzz {self._name} --seed {self._seed} --number {number}"
                self._keep(cause, files, f"{law}: {text}\n{description}\n{command}\n")
            return news

    def _keep(self, cause: str, files: object, readme: str) -> None:
        slug = re.sub(r"[^a-z]+", "-", cause.lower())[:60].strip("-")
        place = self._directory / f"{slug}-{hashlib.sha256(cause.encode()).hexdigest()[:6]}"
        place.mkdir(parents=True, exist_ok=True)
        put(str(place), files)  # type: ignore[arg-type]
        (place / "README").write_text(readme, "utf-8")


_KINDS = re.compile(r"'([a-z_]+)'")
"""Kinds of damage, in a list of damaged ranges."""


def _generalize(text: str) -> str:
    """Return a complaint without what differs from input to input: numbers, names, what is in quotes."""
    text = re.sub(
        r"\[[^\]]*\]( and \d+ more)?|Place\(.*?\)",
        lambda damages: ",".join(sorted(set(_KINDS.findall(damages[0])))) or "none",
        text,
    )
    text = re.sub(r"'[^']*/[^']*'|\"[^\"]*\"|/[^ ,;:')]+|0x[0-9a-f]+|-?\d+(\.\d+)?", "#", text)
    return re.sub(r"#([ ,.:#]*#)+", "#", text)[:160]
