"""Have a Chromium write small profiles, and keep their databases with what the pages put in.

`python tests/interop/chromium/make_profiles.py CHROMIUM TARGET`; needs nothing but Python and the browser. Pages say
what they have stored: `truth.json`. The browser is killed, so that sessions stay in the files.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

FOLDER = Path(__file__).parent
PORT = 8123
FOLDERS = ("IndexedDB", "Local Extension Settings", "Local Storage", "Session Storage", "Sync Extension Settings")
SETTLING = 8


class Pages(http.server.SimpleHTTPRequestHandler):
    truth: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.truth[self.path.rpartition("/")[2]] = json.loads(body)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def serve(directory: Path) -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", PORT), lambda *arguments: Pages(*arguments, directory=str(directory))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def visit(chromium: str, profile: Path, extension: Path, url: str, expected: set[str]) -> None:
    """Open a page, wait until it has said what it stored, and kill the browser."""
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
    features = "--disable-features=DisableLoadExtensionCommandLineSwitch"
    command = [chromium, *arguments, features, f"--load-extension={extension}", url]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, start_new_session=True, stdout=quiet, stderr=quiet) as browser:
        for _ in range(1200):
            if expected <= Pages.truth.keys() or "error" in Pages.truth:
                break
            time.sleep(0.1)
        time.sleep(SETTLING)
        os.killpg(browser.pid, signal.SIGKILL)
    if not expected <= Pages.truth.keys():
        sys.exit(f"{url}: {Pages.truth.get('error', 'the page said nothing')}")


def main(chromium: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        site = Path(scratch, "site")
        shutil.copytree(FOLDER, site)
        worker = site / "extension" / "worker.js"
        worker.write_text(worker.read_text().replace("PORT", str(PORT)))
        profile = Path(scratch, "profile")
        server = serve(site)
        pages = {"indexed_db.html": {"indexed_db", "extension"}, "storage.html": {"storage"}}
        for page, expected in pages.items():
            visit(chromium, profile, site / "extension", f"http://127.0.0.1:{PORT}/{page}", expected)
        server.shutdown()
        target.mkdir(parents=True)
        for name in FOLDERS:
            unwanted = shutil.ignore_patterns("LOCK", "LOG", "LOG.old")
            shutil.copytree(profile / "Default" / name, target / name, ignore=unwanted)
        (target / "truth.json").write_text(json.dumps(Pages.truth, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
