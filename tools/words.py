"""Keeps words out of prose that plain English says otherwise: `python tools/words.py`, part of `make lint`.

`words.txt` is a dictionary of codespell. It is applied to comments and texts of Python, without names in backquotes and
braces, and to what pages say outside of blocks of code. `words.toml` has idioms that may stay, and says how many words
there may be in a folder: lower it when there are fewer. `page_words.txt` has words that only the sources use: pages and
the help of commands have others. The `names` of `words.toml` are words that no name in `src` may have, but for those
listed with a word.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(__file__).parent
PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Z]*[a-z0-9]+|[A-Z]+")
NAMES = (r"`[^`\n]*`", r"\{[^{}\n]*\}")


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    """The tokens of a file of Python; none of other files."""
    if path.suffix != ".py":
        return []
    with path.open("rb") as file:
        return list(tokenize.tokenize(file.readline))


def prose(path: Path, parts: list[tokenize.TokenInfo]) -> str:
    """A file, line by line, with spaces for all that is not prose."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    lines = text.splitlines()
    kept_lines = [[" "] * len(line) for line in lines]
    for token in parts:
        if token.type in PROSE and " " in token.string:
            (first, begin), (last, end) = token.start, token.end
            for line in range(first, last + 1):
                part = slice(begin if line == first else 0, end if line == last else None)
                kept_lines[line - 1][part] = lines[line - 1][part]
    return "\n".join(map("".join, kept_lines))


def named(path: Path, parts: list[tokenize.TokenInfo], avoided: dict[str, list[str]]) -> list[str]:
    """Where names in a file have words to avoid."""
    places = []
    for token in parts:
        words = WORD.findall(token.string) if token.type == tokenize.NAME else []
        if any(token.string not in avoided.get(word.lower(), [token.string]) for word in words):
            places.append(f"{path}:{token.start[0]}: {token.string}")
    return places


def find_misspellings(place: Path, dictionary: str, folders: list[str], ignored: str) -> list[str]:
    """What codespell says of folders, or files, in a place."""
    command = [sys.executable, "-m", "codespell_lib", "-D", str(TOOLS / dictionary), "--ignore-regex", ignored]
    return subprocess.run(
        [*command, *folders], cwd=place, capture_output=True, text=True, check=False
    ).stdout.splitlines()


def main() -> int:
    """How many folders have more than they may."""
    settings = tomllib.loads((TOOLS / "words.toml").read_text())
    limits = {"words.txt": settings["most"], "page_words.txt": settings["pages"]}
    ignored = "|".join((*NAMES, *settings["idioms"]))
    roots = [ROOT / folder for folder in sorted({folder for folders in limits.values() for folder in folders})]
    paths = {path for root in roots for path in (root, *root.rglob("*")) if path.suffix in (".py", ".md")}
    exceeded = 0
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(path.relative_to(ROOT) for path in paths if path.is_file()):
            parts = tokens(ROOT / path)
            copy = Path(place, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(prose(ROOT / path, parts), "utf-8")
            names = named(path, parts, settings["names"]) if path.parts[0] == "src" else []
            print(*names, sep="\n", end="\n" if names else "")
            exceeded |= bool(names)
        for dictionary, most_of in limits.items():
            lines = find_misspellings(Path(place), dictionary, list(most_of), ignored)
            for folder, limit in most_of.items():
                words = [line for line in lines if Path(line.partition(":")[0]).is_relative_to(folder)]
                if len(words) > limit:
                    print(*words, sep="\n")
                    exceeded += 1
                if len(words) != limit:
                    print(f"{folder}: {len(words)} words of {dictionary} to avoid; tools/words.toml says {limit}")
    return exceeded


if __name__ == "__main__":
    sys.exit(main())
