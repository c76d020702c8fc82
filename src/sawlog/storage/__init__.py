"""Bytes near and far: files found, read and published; local ones, inputs without a path, and remote ones by fsspec."""

from sawlog.storage.directories import Directories, File
from sawlog.storage.files import (
    Storage,
    ask_ahead,
    confirm_files,
    discard_staged,
    find_answer,
    map_files,
    note_answer,
    read_indexed,
)
from sawlog.storage.names import PathLike, is_remote, normalize
from sawlog.storage.sources import Bytes, Source
from sawlog.storage.staging import Staged, StagedDirectory, StagedFile

__all__ = [
    "Bytes",
    "Directories",
    "File",
    "PathLike",
    "Source",
    "Staged",
    "StagedDirectory",
    "StagedFile",
    "Storage",
    "ask_ahead",
    "confirm_files",
    "discard_staged",
    "find_answer",
    "is_remote",
    "map_files",
    "normalize",
    "note_answer",
    "read_indexed",
]
