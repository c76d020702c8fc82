"""Have a Chromium write what it keeps for itself: sync, push messages, sites, downloads; and keep what it shows of it.

`python tests/interop/chromium/make_services.py CHROMIUM TARGET`; needs nothing but Python and the browser. Its own sync
server in a file takes the place of Google's, and this script that of the servers for push messages. `truth.json` is
what the browser's pages and extensions read: see `visit`.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

PORT = 8124
HOSTS = ("localhost", "a.localhost")
SITE = f"http://127.0.0.1:{PORT}"
FOLDERS = ("GCM Store", "Site Characteristics Database", "Sync Data/LevelDB", "shared_proto_db")
MANIFEST = {
    "manifest_version": 3,
    "name": "services",
    "version": "1",
    "permissions": ["readingList", "tabGroups", "tabs", "gcm"],
    "background": {"service_worker": "worker.js"},
}
SUBSCRIBE = """(async () => {
  const registration = await navigator.serviceWorker.register("/worker.js");
  await navigator.serviceWorker.ready;
  const pair = await crypto.subtle.generateKey({name: "ECDSA", namedCurve: "P-256"}, true, ["sign"]);
  const applicationServerKey = await crypto.subtle.exportKey("raw", pair.publicKey);
  const subscription = await registration.pushManager.subscribe({userVisibleOnly: true, applicationServerKey});
  return JSON.parse(JSON.stringify(subscription));
})()"""
EXTEND = """(async () => {
  await chrome.readingList.addEntry({url: "https://example.com/read", title: "To read", hasBeenRead: false});
  await chrome.readingList.addEntry({url: "https://example.org/größe", title: "Größe 😀", hasBeenRead: true});
  const tabs = await chrome.tabs.query({url: "http://127.0.0.1/*"});
  const group = await chrome.tabs.group({tabIds: tabs.map((tab) => tab.id)});
  await chrome.tabGroups.update(group, {title: "Group", color: "red"});
  const registered = await new Promise((done) => chrome.gcm.register(["1234567890"], done));
  const destinationId = "1234567890@gcm.googleapis.com";
  const message = {destinationId, messageId: "m1", timeToLive: 3600, data: {hello: "world"}};
  const sent = await new Promise((done) => chrome.gcm.send(message, done));
  return {registered, sent, message, reading: await chrome.readingList.query({}), id: chrome.runtime.id};
})()"""
NODES = """import("chrome://resources/js/cr.js")
  .then((cr) => cr.sendWithPromise("getAllNodes"))
  .then((types) => types.flatMap((type) => type.nodes))
  .then((nodes) => nodes.filter((node) => node.metadata))
  .then((nodes) => nodes.map((node) => ({type: node.dataType, specifics: node.SPECIFICS, metadata: node.metadata})))"""
SITES = """import("chrome://discards/site_data.mojom-webui.js")
  .then((data) => data.SiteDataProvider.getRemote().getSiteDataArray(["http://a.localhost:8124", "http://localhost:8124"]))
  .then((rows) => JSON.parse(JSON.stringify(rows, (_, value) => typeof value === "bigint" ? Number(value) : value)))"""


def field(number: int, value: int | bytes) -> bytes:
    """A field of protobuf."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def checked_in() -> bytes:
    """What Google answers to a device: `AndroidCheckinResponse`."""
    settings = {b"gcm_hostname": b"push.example", b"checkin_interval": b"172800"}
    numbers = b"".join(varint(number << 3 | 1) + struct.pack("<Q", 4242424242424242 + number) for number in (7, 8))
    answer = field(1, 1) + field(3, int(time.time() * 1000)) + field(4, b"digest") + field(9, 0) + numbers
    return answer + b"".join(field(5, field(1, name) + field(2, value)) for name, value in settings.items())


class Servers(http.server.BaseHTTPRequestHandler):
    """A site, and Google's servers for push messages."""

    def do_GET(self) -> None:
        if self.path == "/download":
            self.answer(b"x" * 1000, "application/octet-stream", 100_000_000)
            time.sleep(600)
        elif self.path == "/worker.js":
            self.answer(b"self.addEventListener('push', () => {})", "text/javascript")
        else:
            self.answer(b"<title>site</title>", "text/html")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(checked_in() if self.path == "/checkin" else b"token=a:token", "application/octet-stream")

    def answer(self, body: bytes, kind: str, length: int = 0) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *arguments: object) -> None:
        pass


class Browser:
    """A Chromium that gets its orders through a pipe."""

    def __init__(self, chromium: str, scratch: Path) -> None:
        orders, self.orders = os.pipe()
        self.answers, replies = os.pipe()
        push = [f"--gcm-checkin-url={SITE}/checkin", f"--gcm-registration-url={SITE}/register"]
        arguments = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"),
            *("--enable-local-sync-backend", f"--local-sync-backend-dir={scratch / 'sync'}", *push),
            *(f"--user-data-dir={scratch / 'profile'}", f"--load-extension={scratch / 'extension'}"),
            *("--disable-features=DisableLoadExtensionCommandLineSwitch", "about:blank"),
        ]
        shell = ["sh", "-c", f'exec "$@" 3<&{orders} 4>&{replies}', "sh", chromium, *arguments]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(shell, pass_fds=(orders, replies), stdout=quiet, stderr=quiet)
        os.close(orders)
        os.close(replies)
        self.received, self.number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __call__(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        os.write(self.orders, json.dumps(order | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            while b"\0" not in self.received:
                self.received += os.read(self.answers, 1 << 16) or sys.exit(f"{method}: the browser has ended")
            message, _, self.received = self.received.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self.number:
                return answer["result"] if "result" in answer else sys.exit(f"{method}: {answer}")
            self.events += [answer] if "method" in answer else []

    def attach(self, target: str) -> str:
        session: str = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return session

    def page(self, url: str) -> str:
        session = self.attach(self("Target.createTarget", url=url)["targetId"])
        time.sleep(3)
        return session

    def run(self, session: str, script: str) -> Any:
        answer = self("Runtime.evaluate", session, expression=script, awaitPromise=True, returnByValue=True)
        return answer["result"].get("value") if "exceptionDetails" not in answer else sys.exit(json.dumps(answer))


def visit(browser: Browser, scratch: Path) -> dict[str, Any]:
    """Have the browser keep something of each kind, and return what its pages show of it."""
    time.sleep(5)
    browser("Browser.grantPermissions", permissions=["notifications"], origin=SITE)
    truth = {"subscription": browser.run(browser.page(f"{SITE}/page"), SUBSCRIBE)}
    for host in HOSTS:
        browser.page(f"http://{host}:{PORT}/other")
    targets = browser("Target.getTargets")["targetInfos"]
    (worker,) = (target["targetId"] for target in targets if target["url"].startswith("chrome-extension:"))
    truth["extension"] = browser.run(browser.attach(worker), EXTEND)
    browser("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(scratch))
    browser("Target.createTarget", url=f"{SITE}/download")
    time.sleep(3)
    for target in (target["targetId"] for target in targets if target["url"].endswith("/other")):
        browser("Target.closeTarget", targetId=target)
    urls = browser.page("chrome://chrome-urls")
    browser.run(urls, "document.querySelector('chrome-urls-app').shadowRoot.querySelector('cr-button').click()")
    time.sleep(10)
    truth["push"] = browser.run(browser.page("chrome://gcm-internals"), "document.body.innerText")
    discards = browser.page("chrome://discards/database")
    browser.run(discards, SITES)  # has the browser load what the next call shows
    time.sleep(2)
    truth["sites"] = browser.run(discards, SITES)["result"]["dbRows"]
    truth["nodes"] = browser.run(browser.page("chrome://sync-internals"), NODES)  # last: pages are tabs that are synced
    return truth


def main(chromium: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "extension").mkdir()
        (scratch / "extension" / "manifest.json").write_text(json.dumps(MANIFEST))
        (scratch / "extension" / "worker.js").write_text("")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Servers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(chromium, scratch)
        try:
            truth = visit(browser, scratch)
        finally:
            browser.process.kill()
            browser.process.wait()
            server.shutdown()
        target.mkdir(parents=True)
        for place in FOLDERS:
            unwanted = shutil.ignore_patterns("LOCK", "LOG", "LOG.old")
            shutil.copytree(scratch / "profile" / "Default" / place, target / place, ignore=unwanted)
        (target / "truth.json").write_text(json.dumps(truth, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
