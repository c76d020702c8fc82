"""`sawlog map`: a path as a picture."""

from __future__ import annotations

import os
import re
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from sawlog.cli import arguments
from sawlog.cli.errors import Exit, complain
from sawlog.cli.output import Outcome, progress, show, text_sink
from sawlog.cli.scan import size_of
from sawlog.dataset.dataset import Dataset
from sawlog.dataset.folder import open_folder
from sawlog.errors import InternalError, OptionError, SawlogError
from sawlog.format.printing import ascii_json
from sawlog.storage import Storage

_PAGE = re.compile(r"-|[^=]*[./][^=]*")
"""What `-o` may still be given as the name of the page."""


def map(
    paths: arguments.Paths,
    output: Annotated[
        str, typer.Option("--output", metavar="FILE", help="The page; - writes it to stdout.")
    ] = "map.html",
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    format: arguments.FormatName = None,
    view: arguments.View = "rows",
    option: arguments.ReadOptions = None,
    threads: arguments.Threads = None,
    storage: arguments.StorageOptions = None,
    json: Annotated[bool, typer.Option("--json", help="Write the data of the page to stdout instead.")] = False,
) -> int:
    """Draw where every byte went, damage, rows and their content, as one HTML file.

    A folder of several datasets has a page for each: FILE, then FILE-2 and so on. Exit code 0 clean, 1 damaged,
    2 unusable, 4 unsupported in part.
    """
    for page in [text for text in option or () if _PAGE.fullmatch(text)]:
        complain(f"warning: -o {page}: names the page with --output; -o is for options of the format")
        output, option = page, [text for text in option or () if text != page]
    folder = open_folder(
        list(paths),
        format=format,
        view=view,
        on_damage="skip",
        storage_options=Storage(arguments.storage_options(storage)),
        use_threads=True if threads is None else threads,
        **arguments.format_options(option),
    )
    if output == "-" and not (json or folder.is_single):
        raise OptionError(f"stdout takes one page, and there are {len(folder.parts)} parts; name a file with --output")
    for skipped in folder.skipped:
        if skipped.missed:
            complain(f"warning: {skipped.path}: not drawn: {skipped.reason}")
    codes = {Exit.DAMAGED for skipped in folder.skipped if skipped.missed}
    for number, part in enumerate(folder.parts, 1):
        path = "" if folder.is_single else part.path
        page = _page_name(output, number)
        try:
            codes.add(_draw(part.open(), path, page, json=json, browse=browse and number == 1))
        except (SawlogError, OSError) as error:
            if folder.is_single or isinstance(error, InternalError):
                raise
            complain(f"warning: {part.path}: not drawn: {error}")
            codes.add(Exit.DAMAGED)
    return next((code for code in (Exit.DAMAGED, Exit.UNSUPPORTED) if code in codes), Exit.OK)


def _page_name(output: str, number: int) -> str:
    """Return the path of the page of a part."""
    stem, suffix = os.path.splitext(output)
    return output if number == 1 else f"{stem}-{number}{suffix}"


def _draw(dataset: Dataset, path: str, output: str, *, json: bool, browse: bool) -> Exit:
    """Write the page of a dataset, or its data, and return its exit code; `path` names it among several."""
    from sawlog.map import render, survey

    with progress(size_of(dataset), "looking at every byte") as advance:
        found = survey(dataset, advance)
    if json:
        sys.stdout.write(f"{ascii_json(found.to_dict())}\n")
    elif output == "-":
        text_sink(sys.stdout.buffer.write)(render(found).encode("utf-8", "surrogatepass"))
    else:
        _write(render(found).encode("utf-8", "surrogatepass"), output)
        facts = [("path", path)] if path else []
        facts += [("format", found.title), ("damage", "found" if found.damaged else "none")]
        if found.incomplete:
            facts.append(("incomplete", "files are missing, or metadata is cut; sawlog verify lists them"))
        show(Outcome({}, f"{found.rows:,} rows", f"drawn in {output}", facts), json=False)
        if browse and not webbrowser.open(Path(output).resolve().as_uri()):
            complain(f"no browser was found; open {output}")
    if found.damaged or found.incomplete:
        return Exit.DAMAGED
    return Exit.UNSUPPORTED if found.unsupported else Exit.OK


def _write(page: bytes, path: str) -> None:
    """Write the page; it appears whole."""
    storage = Storage()
    staged = storage.stage(path)
    try:
        staged.write(page)
        storage.publish([staged.finish()])
    except BaseException:
        staged.discard(storage)
        raise
