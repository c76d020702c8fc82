"""Whether what would be released works: sdist and wheel are built, and the wheel is tried in a clean environment.

    make release-check
    make release-check ARGS="--tag v0.3.0"

It is checked that the version is written once, that the changelog has notes for it, that the wheel holds every file of
the package, and that the wheel, installed without anything else with each Python that is there, reads, verifies, draws
and converts. Of a tag it is also checked that it is the version's, that the notes have a date, and that the metadata
says where the project is, and that the wheel holds the jars for all supported versions of Spark.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import jars

ROOT = Path(__file__).resolve().parents[1]
SHOP = ROOT / "examples" / "data" / "shop"
LOG = str(SHOP / "000003.log")
SMALLEST_NOTES = 200
"""Characters of the notes of a version."""


def main() -> None:
    version = stated_version()
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--tag", help="what is about to be released")
    arguments.add_argument("--notes", action="store_true", help="print the notes of the version, and do nothing else")
    options = arguments.parse_args()
    _, notes_text = notes(version)
    if options.notes:
        print(notes_text)
        return
    if options.tag:
        tagged(version, options.tag)
    with tempfile.TemporaryDirectory() as place:
        target = Path(place)
        run(sys.executable, "-m", "build", "--outdir", str(target), str(ROOT))
        (wheel,) = target.glob("*.whl")
        (source,) = target.glob("*.tar.gz")
        assert f"-{version}" in wheel.name, wheel.name
        assert source.name == f"sawlog-{version}.tar.gz", source.name
        contents(wheel, complete=options.tag is not None)
        for python in pythons():
            try_out(target, wheel, version, python)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for archive in (wheel, source):
            archive.replace(dist / archive.name)
    print(f"sawlog {version}: sdist and wheel are in dist/, and the wheel works in a clean environment")


def stated_version() -> str:
    """The version, which is in one file."""
    matches = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/sawlog/__init__.py").read_text(), re.MULTILINE)
    assert len(matches) == 1, matches
    assert "version =" not in (ROOT / "pyproject.toml").read_text().partition("[build-system]")[2].partition("[tool")[0]
    return str(matches[0])


def notes(version: str) -> tuple[str, str]:
    """What follows the version in the changelog, and its notes."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    _, heading, remaining = changes.partition(f"\n## {version}")
    assert heading, f"CHANGELOG.md has no section for {version}"
    beside, _, notes_text = remaining.partition("\n## ")[0].partition("\n")
    assert len(notes_text) > SMALLEST_NOTES, f"the section for {version} says too little"
    return beside, notes_text.strip()


def tagged(version: str, tag: str) -> None:
    """The tag, the date of the notes, and where the project is."""
    assert tag == f"v{version}", f"the tag is {tag}, and the version is {version}"
    beside, _ = notes(version)
    assert re.fullmatch(r", \d{4}-\d\d-\d\d", beside), f"CHANGELOG.md: '## {version}' needs a date: ', 2026-12-31'"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    missing = {"Repository", "Documentation", "Issues", "Changelog"} - set(project.get("urls", {}))
    assert not missing, f"pyproject.toml: [project.urls] lacks {', '.join(sorted(missing))}"


def contents(wheel: Path, *, complete: bool) -> None:
    """The wheel holds every file of the package, the library of kernels and jars, and nothing else, for every Python.

    Args:
        wheel: The wheel.
        complete: Whether it has to hold the jars for all supported versions of Spark, and not only those of the tree.
    """
    assert "-py3-none-" in wheel.name, wheel.name
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name.removeprefix("src/") for name in listed.stdout.split()}
    jars_carried = {f"sawlog/_jars/{path.name}" for path in jars.CARRIED.glob("*")}
    assert not complete or len(jars_carried) == 2 * len(jars.SPARKS), (
        f"make jars makes those for {', '.join(jars.SPARKS)}"
    )
    jars_carried |= {"sawlog/_native/kernels.so", "sawlog/_native/kernels.json"}
    assert packed == expected | jars_carried, packed ^ (expected | jars_carried)


def pythons() -> list[str]:
    """This Python, and one of each other version that the package is for, where the machine, `pyenv` or `uv` has it."""
    versions = {sys.version_info[1]: sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = shutil.which("uv")
    for minor in range(11, 15):
        name = f"python3.{minor}"
        output = (
            subprocess.run([uv, "python", "find", name], capture_output=True, text=True, check=False) if uv else None
        )
        for path in (shutil.which(name), *map(str, pyenv.glob(f"*/bin/{name}")), output and output.stdout.strip()):
            if path and makes_environments(path):
                versions.setdefault(minor, path)
    return [versions[version] for version in sorted(versions)]


def makes_environments(python: str) -> bool:
    """Whether a Python runs, which a command of pyenv's need not, and has what `python -m venv` takes."""
    return subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0


def try_out(target: Path, wheel: Path, version: str, python: str) -> None:
    """Install the wheel where nothing else is, and use it from elsewhere: there is no Numba there."""
    clean = target / "clean"
    run(python, "-m", "venv", "--clear", str(clean))
    python, sawlog = (str(clean / "bin" / name) for name in ("python", "sawlog"))
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SAWLOG_", "NUMBA_"))}

    def say(*command: str) -> str:
        done = subprocess.run(command, cwd=target, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    assert say(sawlog, "--version") == f"sawlog {version}\n"
    without = "import importlib.util as i; print(i.find_spec('numba'), i.find_spec('llvmlite'))"
    assert say(python, "-c", without) == "None None\n"
    assert "10495" in say(python, "-c", f"import sawlog; print(sawlog.read({LOG!r}).num_rows)")
    say(sawlog, "verify", str(SHOP))
    say(sawlog, "map", str(SHOP), "--output", "map.html")
    say(sawlog, "convert", str(SHOP), "shop.parquet")
    assert (target / "map.html").read_text("utf-8").startswith("<!doctype html>")
    print(say(python, "-c", "import sys; print('works with Python', sys.version.split()[0])"), end="")


def run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
