"""Views of what Chromium keeps for its own services: sites, push messages, and databases that share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.chromium import microseconds
from sawlog.leveldb.applications.protobuf import Messages, integer
from sawlog.leveldb.applications.view import ApplicationView, Entry, Home, UnknownBytesError, columns_of, row_of, text

_TIME = pa.field("time", pa.timestamp("us", "UTC"))

SITE_VERSION = b"database_metadata"
_DIGITS = 32
"""Characters of a key of a site: the MD5 of its host."""
_SITES = Messages("""
Site: 1 last_loaded uint, 2 updates_favicon_in_background Feature, 3 updates_title_in_background Feature,
 4 uses_audio_in_background Feature, 5 uses_notifications_in_background Feature, 6 load_time_estimates Estimates
Feature: 1 observation_duration int, 2 use_timestamp int
Estimates: 1 avg_cpu_usage_us float, 2 avg_footprint_kb float, 3 avg_load_duration_us float
""")


class SiteCharacteristics(ApplicationView):
    """View of what Chromium has seen sites do in the background: a row per host."""

    title = "Chromium's Site Characteristics: MD5 of a host, when it was loaded, what it does in the background (JSON)"
    columns: ClassVar = pa.schema([("kind", pa.string()), ("host_md5", pa.string()), _TIME, ("value", pa.string())])

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or the key of its version."""
        del comparator
        return path.endswith("/Site Characteristics Database") or SITE_VERSION in keys

    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """A message in protobuf."""
        del context
        if entry.key == SITE_VERSION:
            return {"kind": "version"} | columns_of(entry.value, _plain)
        if len(entry.key) != _DIGITS or entry.key.strip(b"0123456789abcdef"):
            raise UnknownBytesError("a key that is not the MD5 of a host")
        return {"kind": "site", "host_md5": entry.key.decode("ascii")} | columns_of(entry.value, _site)


def _site(value: bytes) -> dict[str, Any]:
    site, _ = _SITES.read(value, "Site")
    return _SITES.show(value, "Site") | {"time": microseconds(integer(site, "last_loaded"), 1_000_000, 0)}


def _plain(value: bytes) -> dict[str, Any]:
    """The text of a value."""
    plain, wrong = text(value, "utf-8")
    return {"value": plain, "reason": wrong}


def _time(value: bytes) -> dict[str, Any]:
    """The time that a value is: microseconds since 1601, in decimal digits."""
    return {"time": microseconds(_number(value))}


_LONGEST_NUMBER = 19
"""Digits of the largest integer of 64 bits."""


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _LONGEST_NUMBER:
        raise UnknownBytesError(f"{value[:40]!r}, expected a number in decimal digits")
    return int(value)


_PUSH = Messages("""
DataMessage: 2 id text, 3 from text, 4 to text, 5 category text, 6 token text, 7 app_data Data*,
 8 from_trusted_server bool, 9 persistent_id text, 10 stream_id int, 11 last_stream_id_received int, 13 reg_id text,
 16 device_user_id int, 17 ttl int, 18 sent int, 19 queued int, 20 status int, 21 raw_data bytes, 24 immediate_ack bool
Data: 1 key text, 2 value text
Encryption: 1 app_id text, 2 keys KeyPair*, 3 auth_secret bytes, 4 authorized_entity text, 5 private_key bytes
KeyPair: 1 type ECDH_P256|, 2 private_key bytes, 4 public_key bytes
""")
_DATA_MESSAGE = 8
"""The tag of a message of an application, before its bytes."""


def _encrypted(value: bytes) -> dict[str, Any]:
    raise UnknownBytesError(f"encrypted by the browser ({value[:3].decode('ascii', 'replace')})")


def _registration(value: bytes) -> dict[str, Any]:
    """A token, the senders before it, and when it was validated."""
    head, _, checked = value.rpartition(b"#") if b"#" in value else (value, b"", b"")
    senders, _, token = head.rpartition(b"=")
    row = _plain(token) | ({"sender": senders.decode("utf-8", "replace")} if senders else {})
    return row | (_time(checked) if checked else {})


def _instance(value: bytes) -> dict[str, Any]:
    """An ID, and when it was made."""
    name, _, created = value.partition(b",")
    return _plain(name) | (_time(created) if created else {})


def _incoming(value: bytes) -> dict[str, Any]:
    """When a message is forgotten; older ones have only their ID."""
    name, _, end = value.partition(b"|")
    return _plain(name) | (_time(end) if end else {})


def _outgoing(value: bytes) -> dict[str, Any]:
    """A message of the protocol, after its tag."""
    if value[:1] != bytes([_DATA_MESSAGE]):
        raise UnknownBytesError(f"a message with tag {value[:1].hex() or 'missing'}, expected {_DATA_MESSAGE:02x}")
    message, _ = _PUSH.read(value[1:], "DataMessage")
    row: dict[str, Any] = {"time": microseconds(integer(message, "sent"), 1_000_000)}
    for column, name in (("app", "category"), ("sender", "to")):
        row |= {column: message[name]} if isinstance(message.get(name), str) else {}
    return row | _PUSH.show(value[1:], "DataMessage")


def _account(value: bytes) -> dict[str, Any]:
    """An address, its status, when that changed, and the ID of a message."""
    parts = value.split(b"&")
    if len(parts) not in (3, 4):
        raise UnknownBytesError(f"{len(parts)} parts of an account, expected 3 or 4")
    return _plain(value) | _time(parts[2])


_PREFIXES: Mapping[bytes, tuple[str, str, Callable[[bytes], dict[str, Any]]]] = {
    b"reg1-": ("registration", "app", _registration),
    b"incoming1-": ("incoming_message", "name", _incoming),
    b"outgoing1-": ("outgoing_message", "name", _outgoing),
    b"gservice1-": ("setting", "name", _plain),
    b"account1-": ("account", "name", _account),
    b"heartbeat1-": ("heartbeat", "name", _plain),
    b"iid1-": ("instance_id", "app", _instance),
}
"""How keys begin: the kind, the column of the rest of the key, and how the value is read."""
_SINGLE: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    b"device_aid_key": ("device_id", _plain),
    b"device_token_key": ("device_token", _encrypted),
    b"gservices_digest": ("settings_digest", _plain),
    b"last_checkin_accounts_count": ("last_checkin_accounts", _plain),
    b"last_checkin_time": ("last_checkin", _time),
    b"last_token_fetch_time": ("last_token_fetch", _time),
}
_TOKEN = b"iid-"
"""How the rest of a key begins that has application, sender and scope, with commas between them."""


class GcmStore(ApplicationView):
    """View of Google Cloud Messaging: registrations of applications, messages, and their keys."""

    title = "Chromium's GCM Store (push messages): kind, app, sender, scope, name, value, time"
    columns: ClassVar = pa.schema(
        [(name, pa.string()) for name in ("kind", "app", "sender", "scope", "name", "value")] + [_TIME]
    )

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directories, or by keys that only it has."""
        del comparator
        return path.endswith(("/GCM Store", "/GCM Store/Encryption")) or not _SINGLE.keys().isdisjoint(keys)

    def context(self, entries: Iterable[Entry], home: Home) -> bool:
        """Whether the database holds the keys of applications, by its directory."""
        del entries
        return home.path.endswith("/Encryption")

    def decode(self, entry: Entry, context: bool) -> Mapping[str, Any]:
        """Text, and protobuf where a message or keys are stored."""
        if context:
            return _row("encryption_keys", ("app", "sender"), entry.key, entry.value, _keys)
        if entry.key in _SINGLE:
            kind, read = _SINGLE[entry.key]
            return {"kind": kind} | columns_of(entry.value, read)
        prefix = next((prefix for prefix in _PREFIXES if entry.key.startswith(prefix)), None)
        if prefix is None:
            raise UnknownBytesError("a key that is none of Google Cloud Messaging's")
        kind, column, read = _PREFIXES[prefix]
        suffix = entry.key[len(prefix) :]
        if kind == "registration" and suffix.startswith(_TOKEN):
            return _row("token", ("app", "sender", "scope"), suffix[len(_TOKEN) :], entry.value, _registration)
        return _row(kind, (column,), suffix, entry.value, read)


def _keys(value: bytes) -> dict[str, Any]:
    return _PUSH.show(value, "Encryption")


def _row(
    kind: str, columns: Sequence[str], key: bytes, value: bytes | None, read: Callable[[bytes], dict[str, Any]]
) -> dict[str, Any]:
    """Columns of a key, of which all but the last end with a comma, and those of its value."""
    name, wrong = text(key, "utf-8")
    parts = dict(zip(columns, name.split(",", len(columns) - 1), strict=False))
    return row_of({"kind": kind, **parts}, wrong, columns_of(value, read))
