"""Have a Chromium keep files, workers and notifications of a site, with what the site and the browser say of them.

`python tests/interop/chromium/make_sites.py CHROMIUM TARGET`; needs nothing but Python and the browser.
"""

from __future__ import annotations

import http.server
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import make_services
from make_services import Browser, Servers

PORT = 8125
SITE = f"http://127.0.0.1:{PORT}"
FOLDERS = ("File System", "Platform Notifications", "Service Worker/Database")
WORKER = b"""importScripts("/part.js");
addEventListener("install", (event) => event.addRoutes({condition: {urlPattern: "/routed/*"}, source: "network"}));
addEventListener("activate", (event) => event.waitUntil((async () => {
  await registration.navigationPreload.enable();
  await registration.navigationPreload.setHeaderValue("preloaded");
})()));
addEventListener("fetch", () => {});"""
FILES = """(async () => {
  const listed = async (entry, path) => {
    const details = await new Promise((done, failed) => entry.getMetadata(done, failed));
    const list = [{path, is_directory: entry.isDirectory, size: details.size, time: +details.modificationTime}];
    if (entry.isDirectory) {
      const children = await new Promise((done, failed) => entry.createReader().readEntries(done, failed));
      for (const child of children) list.push(...await listed(child, child.fullPath));
    }
    return list;
  };
  const fs = await new Promise((done, failed) => webkitRequestFileSystem(TEMPORARY, 1 << 20, done, failed));
  const made = (how, path) => new Promise((done, failed) => fs.root[how](path, {create: true}, done, failed));
  const written = async (path, text) => {
    const file = await made("getFile", path);
    const writer = await new Promise((done, failed) => file.createWriter(done, failed));
    await new Promise((done) => { writer.onwriteend = done; writer.write(new Blob([text])); });
    return file;
  };
  for (const path of ["größe 😀", "größe 😀/inner", "empty"]) await made("getDirectory", path);
  for (const path of ["a.txt", "größe 😀/b:c.txt", "größe 😀/inner/d.txt"]) await written(path, "content of " + path);
  const gone = await written("gone.txt", "deleted");
  await new Promise((done, failed) => gone.remove(done, failed));
  const moved = await written("old name.txt", "moved");
  const folder = await made("getDirectory", "empty");
  await new Promise((done, failed) => moved.moveTo(folder, "new name.txt", done, failed));
  const own = await navigator.storage.getDirectory();
  const inner = await own.getDirectoryHandle("private", {create: true});
  const names = [];
  for (const name of ["one.bin", "two.bin"]) {
    const stream = await (await inner.getFileHandle(name, {create: true})).createWritable();
    await stream.write(new Uint8Array(7));
    await stream.close();
    names.push(name);
  }
  return {temporary: await listed(fs.root, "/"), private: {private: names}};
})()"""
WORKERS = """(async () => {
  const registered = async (script, options) => {
    const one = await navigator.serviceWorker.register(script, options);
    while (!one.active) await new Promise((done) => setTimeout(done, 100));
    return one;
  };
  const first = await registered("/worker.js", {scope: "/"});
  await registered("/module.js", {scope: "/module/", type: "module", updateViaCache: "none"});
  await (await registered("/module.js?gone", {scope: "/gone/"})).unregister();
  await first.cookies.subscribe([{name: "session", url: "/module/"}]);
  await first.sync.register("tag of sync");
  const pair = await crypto.subtle.generateKey({name: "ECDSA", namedCurve: "P-256"}, true, ["sign"]);
  const applicationServerKey = await crypto.subtle.exportKey("raw", pair.publicKey);
  await first.pushManager.subscribe({userVisibleOnly: true, applicationServerKey});
  const sender = btoa(String.fromCharCode(...new Uint8Array(applicationServerKey)));
  const fetched = await first.backgroundFetch.fetch("fetched", ["/slow"], {title: "Größe", downloadTotal: 1000});
  await new Promise((done) => setTimeout(done, 2000));
  return {preload: await first.navigationPreload.getState(), cookies: await first.cookies.getSubscriptions(), sender,
    fetched: {id: fetched.id, total: fetched.downloadTotal}};
})()"""
NOTIFICATIONS = """(async () => {
  const registration = await navigator.serviceWorker.getRegistration("/");
  await registration.showNotification("Größe 😀", {
    body: "two\\nlines", tag: "first", lang: "de", dir: "rtl", requireInteraction: true, vibrate: [100, 50],
    icon: "/icon.png", timestamp: 1700000000123, data: {list: [1, "two", new Date(0)], nested: {deep: true}},
    actions: [{action: "yes", title: "Yes"}, {action: "answer", title: "Answer", type: "text", placeholder: "why"}],
  });
  await registration.showNotification("Second", {silent: true});
  await registration.showNotification("Closed", {tag: "closed"});
  await new Promise((done) => setTimeout(done, 2000));
  for (const one of await registration.getNotifications({tag: "closed"})) one.close();
  await new Promise((done) => setTimeout(done, 2000));
  const names = ["title", "body", "tag", "lang", "dir", "requireInteraction", "vibrate", "icon", "timestamp", "silent",
    "actions"];
  return (await registration.getNotifications()).map((one) =>
    Object.fromEntries([...names.map((name) => [name, one[name]]), ["data", one.data && JSON.stringify(one.data)]]));
})()"""
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d"
    "0000000049454e44ae426082"
)


class Site(http.server.BaseHTTPRequestHandler):
    """A page, scripts of its workers, and what takes long to fetch."""

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(60)
        kinds = {".js": (WORKER if self.path == "/worker.js" else b"// nothing", "text/javascript")}
        body, kind = {**kinds, ".png": (PIXEL, "image/png")}.get(
            Path(self.path.partition("?")[0]).suffix, (b"<title>site</title>", "text/html")
        )
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def visit(browser: Browser) -> dict[str, Any]:
    """Have the browser keep something of each kind, and return what the page and the browser say of it."""
    time.sleep(5)
    browser("Browser.grantPermissions", permissions=["notifications", "backgroundSync", "backgroundFetch"], origin=SITE)
    page = browser.page(f"{SITE}/page")
    truth = {"files": browser.run(page, FILES), "worker": browser.run(page, WORKERS)}
    truth["notifications"] = browser.run(page, NOTIFICATIONS)
    browser("ServiceWorker.enable", page)
    time.sleep(2)
    browser.run(page, "0")  # reads the events before its answer
    for name in ("Registration", "Version"):
        events = [
            event["params"] for event in browser.events if event["method"] == f"ServiceWorker.worker{name}Updated"
        ]
        listed = [entry for event in events for entry in event[f"{name.lower()}s"]]
        truth[f"{name.lower()}s"] = {entry[f"{name.lower()}Id"]: entry for entry in listed}
    time.sleep(6)
    return truth


def main(chromium: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        for port, handler in ((PORT, Site), (make_services.PORT, Servers)):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(chromium, scratch)
        try:
            truth = visit(browser)
        finally:
            browser.process.kill()
            browser.process.wait()
        target.mkdir(parents=True)
        for place in FOLDERS:
            unwanted = shutil.ignore_patterns("LOCK", "LOG", "LOG.old", ".usage")
            shutil.copytree(scratch / "profile" / "Default" / place, target / place, ignore=unwanted)
        (target / "truth.json").write_text(json.dumps(truth, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
