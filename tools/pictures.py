"""The pictures of the documentation that are drawn from the code: layouts, a terminal, charts of a map.

    .venv/bin/python tools/pictures.py

A test compares the layouts in docs/images with what is drawn now.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow as pa

import sawlog
from sawlog.deephaven.log import layout as deephaven_log
from sawlog.deephaven.table import layout as deephaven_table
from sawlog.filodb import layout as filodb
from sawlog.leveldb.log import layout as leveldb_log
from sawlog.leveldb.table import layout as leveldb_table
from sawlog.map import render, survey
from sawlog.milvus import layout as milvus

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT, LABEL = 900, 40, 150
COLUMNS = 110
"""Of a terminal."""
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.small{font-size:10px}rect{stroke:#8c959f}"
    ".header{fill:#b6dcf5}.record{fill:#dff1e6}.check{fill:#ffe0b3}.padding{fill:#eef0f2}.box{fill:#f3f5f7}"
    "path{stroke:#8c959f;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.header{fill:#1f4e70}.record{fill:#1f4a33}.check{fill:#6b4a12}"
    ".padding{fill:#30363d}.box{fill:#21262d}}"
)


@dataclass(frozen=True)
class Cell:
    """A part: its name, its bytes as text, how wide it is drawn, and what it is."""

    name: str
    size: str
    width: float = 1
    use: str = "header"


Row = tuple[str, list[Cell]]
_FOOTER = leveldb_table.list_footer_fields("rocksdb", 0)


def n(size: int) -> str:
    return f"{size} B"


LAYOUTS: dict[str, list[Row]] = {
    "leveldb_log": [
        ("file", [Cell("block", f"{leveldb_log.BLOCK_SIZE:,} B", 3, "box")] * 2 + [Cell("…", "", 1, "box")]),
        (
            "block",
            [
                Cell("fragment", "", 3, "record"),
                Cell("fragment", "", 3, "record"),
                Cell("unused", f"< {leveldb_log.HEADER_SIZE} B", 1, "padding"),
            ],
        ),
        (
            "fragment",
            [
                Cell("checksum", n(leveldb_log.CHECKSUM.size), 1.2, "check"),
                Cell("length", n(leveldb_log.LENGTH.size)),
                Cell("type", n(leveldb_log.TYPE.size)),
                Cell("log number", f"{leveldb_log.LOG_NUMBER.size} B, if recycled", 1.5),
                Cell("payload", "length", 3, "record"),
            ],
        ),
    ],
    "leveldb_table": [
        (
            "file",
            [
                Cell("data block", "", 2, "record"),
                Cell("…", "", 0.6, "box"),
                Cell("filter, properties", "", 1.5),
                Cell("metaindex", "", 1.2),
                Cell("index", "", 1.2),
                Cell("footer", f"{leveldb_table.LEVELDB_FOOTER} or {leveldb_table.ROCKSDB_FOOTER} B", 1.5),
            ],
        ),
        (
            "block",
            [
                Cell("entries, restart points", "", 4, "record"),
                Cell("compression", n(leveldb_table.CHECKSUM_OFFSET), 1.2),
                Cell("checksum", n(leveldb_table.TRAILER_SIZE - leveldb_table.CHECKSUM_OFFSET), 1.2, "check"),
            ],
        ),
        (
            "footer",
            [
                Cell("checksum type", f"{_FOOTER['checksum type'].size} B, RocksDB", 1.5),
                Cell("handles", n(_FOOTER["handles"].size), 2),
                Cell("version", f"{_FOOTER['format version'].size} B, RocksDB", 1.5),
                Cell("magic", n(_FOOTER["magic"].size), 1.2),
            ],
        ),
    ],
    "leveldb_database": [
        (
            "directory",
            [
                Cell("CURRENT", "names the MANIFEST", 1.7),
                Cell("MANIFEST-*", "tables alive, by level", 2),
                Cell("*.log", "what came last", 1.5, "record"),
                Cell("*.ldb, *.sst", "sorted tables", 2, "record"),
                Cell("*.blob", "large values", 1.2, "record"),
                Cell("OPTIONS-*, LOCK", "not read", 1.7, "padding"),
            ],
        ),
        (
            "a key",
            [
                Cell("logs", "newest first", 1.5, "record"),
                Cell("level 0", "newest first", 1.5, "record"),
                Cell("level 1", "one table", 1.3, "record"),
                Cell("…", "", 0.6, "box"),
                Cell("last level", "one table", 1.3, "record"),
            ],
        ),
    ],
    "deephaven_log": [
        (
            "file",
            [
                Cell("header", "", 2),
                Cell("entry", "", 1.5, "record"),
                Cell("entry", "", 1.5, "record"),
                Cell("…", "", 1, "box"),
            ],
        ),
        (
            "header",
            [
                Cell("magic", n(deephaven_log.VERSION_OFFSET)),
                Cell("version", n(deephaven_log.REMAINING_OFFSET - deephaven_log.VERSION_OFFSET)),
                Cell("remaining", n(deephaven_log.PREAMBLE_SIZE - deephaven_log.REMAINING_OFFSET)),
                Cell("columns, constants, …", f"{deephaven_log.RECORD_HEADER_SIZE} B and data each", 3),
                Cell("digest", n(deephaven_log.DIGEST_SIZE), 1, "check"),
            ],
        ),
        (
            "entry",
            [
                Cell("size", n(deephaven_log.SIZE_SIZE)),
                Cell("flags", n(deephaven_log.FLAGS_SIZE)),
                Cell("presence", "1 bit a column", 1.3),
                Cell("values", "", 3, "record"),
                Cell("digest", n(deephaven_log.DIGEST_SIZE), 1, "check"),
            ],
        ),
    ],
    "deephaven_table": [
        (
            "location",
            [
                Cell("X.dat", "a file per column", 2, "record"),
                Cell("X.bytes", "variable width", 1.5, "record"),
                Cell("X.sym, X.sym.bytes", "symbols", 2, "record"),
                Cell("table.size", n(deephaven_table.ROW_COUNT_SIZE), 1.2),
            ],
        ),
        (
            ".dat, .sym",
            [
                Cell("metadata size", n(deephaven_table.DATA_START_OFFSET), 1.3),
                Cell("data start", n(deephaven_table.HEADER_SIZE - deephaven_table.DATA_START_OFFSET), 1.3),
                Cell("metadata", "grouping", 1.5),
                Cell("unused", f"up to {deephaven_table.MAX_DATA_START:,} B", 1.5, "padding"),
                Cell("values", "fixed width", 3, "record"),
            ],
        ),
    ],
    "filodb_record": [
        (
            "container",
            [
                Cell("length", n(filodb.LENGTH_SIZE)),
                Cell("version", n(filodb.VERSION_WORD.size)),
                Cell("timestamp", n(filodb.TIMESTAMP.size), 1.2),
                Cell("record", "", 1.5, "record"),
                Cell("…", "", 0.6, "box"),
                Cell("unused", "", 1, "padding"),
            ],
        ),
        (
            "record",
            [
                Cell("length", n(filodb.LENGTH_SIZE)),
                Cell("schema", n(filodb.SCHEMA_ID_SIZE)),
                Cell("slots", "4 or 8 B a column", 2, "record"),
                Cell("hash", n(filodb.HASH_SIZE), 1, "check"),
                Cell("payloads", f"{filodb.PAYLOAD_LENGTH_SIZE} B length each", 2.5, "record"),
                Cell("padding", f"to {filodb.ALIGNMENT} B", 1, "padding"),
            ],
        ),
    ],
    "milvus_binlog": [
        (
            "file",
            [
                Cell("magic", n(len(milvus.MAGIC))),
                Cell("descriptor", "", 2),
                Cell("event", "", 2, "record"),
                Cell("…", "", 0.6, "box"),
            ],
        ),
        (
            "descriptor",
            [
                Cell("event header", n(milvus.HEADER.size), 1.5),
                Cell("ids, timestamps, type", n(milvus.DESCRIPTOR.size), 2),
                Cell("extra", f"{milvus.EXTRA_LENGTH.size} B and JSON", 2),
            ],
        ),
        (
            "event",
            [
                Cell("timestamp", "8 B"),
                Cell("type", "1 B", 0.7),
                Cell("length", "4 B", 0.8),
                Cell("next", "4 B", 0.8),
                Cell("timestamps", n(milvus.EVENT_DATA.size), 1.2),
                Cell("payload", "a Parquet file", 3, "record"),
            ],
        ),
    ],
}


def svg(width: int, height: int, label: str, shapes: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(label)}"><style>{STYLE}</style>{"".join(shapes)}</svg>\n'
    )


def text(x: float, y: float, message: str, *, small: bool = False, middle: bool = True) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    anchor += ' class="small"' if small else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{anchor}>{escape(message)}</text>'


def drawn(name: str) -> str:
    """The layout of a format: files above, what they are made of below."""
    shapes = []
    for number, (title, cells) in enumerate(LAYOUTS[name]):
        y = 6 + number * (HEIGHT + 14)
        shapes.append(text(0, y + HEIGHT / 2 + 4, title, middle=False))
        unit, x = (WIDTH - LABEL) / sum(cell.width for cell in cells), float(LABEL)
        for cell in cells:
            wide = cell.width * unit
            shapes.append(f'<rect class="{cell.use}" x="{x:.0f}" y="{y}" width="{wide:.0f}" height="{HEIGHT}"/>')
            shapes.append(text(x + wide / 2, y + (17 if cell.size else 24), cell.name))
            if cell.size:
                shapes.append(text(x + wide / 2, y + 32, cell.size, small=True))
            x += wide
    return svg(WIDTH + 4, len(LAYOUTS[name]) * (HEIGHT + 14), f"The layout of {name}", shapes)


BOXES = {
    "Python": (0, 20, ""),
    "Terminal": (0, 80, ""),
    "Spark": (0, 140, ""),
    "Format": (160, 80, "recognises, opens, writes"),
    "Dataset": (320, 80, "schema, plan"),
    "Fragments": (480, 80, "each decoded alone"),
    "Storage": (480, 160, "disk, fsspec, pipes"),
    "judge, gather": (640, 80, "one kernel, all verbs"),
    "Arrow batches": (800, 40, "in bounded memory"),
    "Findings": (800, 120, "damage, tail, every byte"),
}
"""Parts, where they are drawn, and what is said of them."""
BOX_WIDTH, BOX_HEIGHT = 136, 44
ARROWS = (
    *(("Python", "Format"), ("Terminal", "Format"), ("Spark", "Format"), ("Format", "Dataset")),
    *(("Dataset", "Fragments"), ("Fragments", "judge, gather"), ("judge, gather", "Arrow batches")),
    *(("judge, gather", "Findings"), ("Storage", "Fragments")),
)


def architecture() -> str:
    """Which way data flows."""
    shapes = []
    for start, end in ARROWS:
        (x1, y1, _), (x2, y2, _) = BOXES[start], BOXES[end]
        if x1 == x2:
            shapes.append(f'<path d="M{x1 + BOX_WIDTH // 2} {y1}V{y2 + BOX_HEIGHT}"/>')
            continue
        middle, level = (x1 + BOX_WIDTH + x2) // 2, y2 + BOX_HEIGHT // 2
        shapes.append(f'<path d="M{x1 + BOX_WIDTH} {y1 + BOX_HEIGHT // 2}H{middle}V{level}H{x2}"/>')
        shapes.append(f'<path d="M{x2 - 5} {level - 4}l5 4l-5 4"/>')
    for name, (x, y, sentence) in BOXES.items():
        use = "header" if sentence else "record"
        shapes.append(f'<rect class="{use}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>')
        shapes.append(text(x + BOX_WIDTH / 2, y + (18 if sentence else 27), name))
        shapes += [text(x + BOX_WIDTH / 2, y + 34, sentence, small=True)] if sentence else []
    return svg(940, 210, "From a path to Arrow record batches", shapes)


def terminal() -> str:
    """`sawlog verify` of a damaged log, as a terminal shows it."""
    with tempfile.TemporaryDirectory() as place:
        data = bytearray((ROOT / "examples/data/shop/000003.log").read_bytes())
        data[50_000] ^= 0x20
        (Path(place) / "000003.log").write_bytes(data[:-3])
        environment = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PATH": ""}
        command = [sys.executable, "-m", "sawlog", "verify", "000003.log"]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    return framed("sawlog verify", "$ sawlog verify 000003.log\n" + done.stdout.decode(), "verify")


def framed(title: str, message: str, unique: str) -> str:
    """A window with what a terminal shows, the command first."""
    from rich.console import Console
    from rich.text import Text

    command, _, output = message.partition("\n")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(command, style="bold"))
    console.print(Text.from_ansi(output))
    drawn = console.export_svg(title=title, unique_id=unique)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # nothing is asked of the network


def streaming() -> str:
    """`sawlog run` while it streams logs that are still being written, as a terminal shows it."""
    with tempfile.TemporaryDirectory() as place:
        logs, pipeline = Path(place) / "logs", Path(place) / "market.toml"
        logs.mkdir()
        pipeline.write_text((ROOT / "examples/market.toml").read_text().replace("../out/demo/market/", ""))
        market = [sys.executable, str(ROOT / "examples/market.py"), str(logs)]
        with subprocess.Popen(market, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as logger:
            output = on_a_terminal([sys.executable, "-m", "sawlog", "run", str(pipeline)], "batch=5 ", place)
            logger.communicate()
    output = output[output.index("event=batch") :]  # not what Java says when it starts
    return framed("sawlog run", f"$ sawlog run market.toml\n{output}", "run")


def on_a_terminal(command: list[str], until: str, place: str) -> str:
    """What is on the screen, colours included, when a text appears; then the program is ended as by Ctrl-C."""
    controller, terminal_side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "40"}
    running = subprocess.Popen(
        command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=terminal_side, stderr=terminal_side
    )
    output = ""
    while until not in output or "last batch" not in output.rpartition(until)[2]:
        output += os.read(controller, 1 << 16).decode()
    running.send_signal(signal.SIGINT)
    Thread(target=lambda: [None for _ in iter(lambda: os.read(controller, 1 << 16), b"")], daemon=True).start()
    running.wait()
    return screen(output)


def screen(message: str) -> str:
    """The lines that a terminal shows, of the few motions that Rich makes: back, up, and erase a line."""
    lines, row = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[1A|\x1b\[2K|\x1b\[\?25[lh])", message):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part != "\r" and not part.startswith("\x1b[?25"):
            lines[row] += part
    return "\n".join(lines)


def trades() -> pa.Table:
    """Trades of 40 minutes, of which one was written twice, with an hour without any after the half of them."""
    dice = np.random.default_rng(1)
    steps = dice.integers(1, 100, 40 * 1200)  # milliseconds, 50 in the mean
    steps[len(steps) // 2] = 3_600_000
    times = np.cumsum(steps) + 1_714_987_800_000
    rows = np.arange(len(times))
    again = np.flatnonzero((times >= times[0] + 480_000) & (times < times[0] + 540_000))
    rows = np.insert(rows, again[-1] + 1, again)
    columns = {
        "timestamp": pa.array(times[rows]).cast(pa.timestamp("ms", "UTC")),
        "size": dice.integers(1, 500, len(rows)),
    }
    return pa.table({**columns, "symbol": np.array(["AAPL", "MSFT", "SPY"])[dice.integers(0, 3, len(rows))]})


def charts(target: Path) -> None:
    """Time and size of a log, as a browser shows them."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit(f"{target.name} needs Chromium: no chromium on PATH (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory() as place:
        log, page = Path(place) / "trades.bin", Path(place) / "page.html"
        sawlog.write(trades(), log, format="deephaven_log")
        file_map = survey(sawlog.open(log, timestamp_columns={"timestamp": "ms"}))
        alone = "<style>header,footer,details,section:not(#time){display:none}section,h2{margin-top:0}</style></head>"
        page.write_text(render(file_map).replace("</head>", alone))
        size = ["--window-size=984,590", f"--screenshot={target}", page.as_uri()]
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--user-data-dir={place}/profile",
            *size,
        ]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    charts(IMAGES / "map-time.png")
    for name in LAYOUTS:
        (IMAGES / f"layout-{name}.svg").write_text(drawn(name))
    (IMAGES / "architecture.svg").write_text(architecture())
    (IMAGES / "verify.svg").write_text(terminal())
    (IMAGES / "run.svg").write_text(streaming())


if __name__ == "__main__":
    main()
