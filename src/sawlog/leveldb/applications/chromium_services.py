"""Views of what Chromium keeps for its own services: sites, push messages, and databases that share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, make_fixed_array
from sawlog.kernels.jit import kernel
from sawlog.kernels.json_text import put_unsigned
from sawlog.kernels.memory import load_big_u64
from sawlog.kernels.numbers import _EIGHT, _ONE, _ZERO
from sawlog.kernels.signature import OutBytes, OutInt32s
from sawlog.kernels.text import put_latin_1
from sawlog.kernels.vector import SLACK, copy_short
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.protobuf import Messages, find_integer, make_message_columns
from sawlog.leveldb.applications.protobuf_rows import (
    KeyPart,
    KeyPattern,
    KeyPatterns,
    Lookup,
    MessageRows,
    convert_times,
    make_spans,
    take_texts,
)

_SITE_VERSION = b"database_metadata"
_DIGITS = 32
"""Characters of a key of a site: the MD5 of its host."""
SITES = Messages("""
Site: 1 last_loaded uint, 2 updates_favicon_in_background Feature, 3 updates_title_in_background Feature,
 4 uses_audio_in_background Feature, 5 uses_notifications_in_background Feature, 6 load_time_estimates Estimates
Feature: 1 observation_duration int, 2 use_timestamp int
Estimates: 1 avg_cpu_usage_us float, 2 avg_footprint_kb float, 3 avg_load_duration_us float
""")
_SITE_ROWS = MessageRows(SITES, {"Site": {"last_loaded": ("last_loaded",)}})
_SITE_KEYS = KeyPatterns(
    [
        KeyPattern(_SITE_VERSION, "version", (), k.PLAIN_TEXT),
        KeyPattern(b"", "site", (KeyPart("host_md5", "hex"),), "Site"),
    ],
    _SITE_ROWS,
)


class SiteCharacteristics(view.ApplicationView):
    """View of what Chromium has seen sites do in the background: a row per host."""

    title = "Chromium's Site Characteristics: MD5 of a host, when it was loaded, what it does in the background (JSON)"
    directory: ClassVar = "/Site Characteristics Database"
    own_key: ClassVar = _SITE_VERSION
    columns: ClassVar = view.make_columns("kind host_md5 time:time value")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows:
        """Return sites, and the version."""
        del context
        stored = _SITE_KEYS.read(keys)
        rendered = _SITE_ROWS.render(values, stored.roots)
        columns = {
            "kind": stored.kinds,
            "host_md5": stored.make_texts("host_md5"),
            "time": convert_times(
                rendered.select_numbers("last_loaded"), rendered.are_there("last_loaded"), 1_000_000, 0
            ),
            "value": rendered.make_values(),
        }
        return view.PlainRows(rendered.is_plain & np.isin(stored.select_lengths("host_md5"), (-1, _DIGITS)), columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return a message in protobuf."""
        del context
        if entry.key == _SITE_VERSION:
            return {"kind": "version"} | view.read_columns(entry.value, _read_text)
        if len(entry.key) != _DIGITS or entry.key.strip(b"0123456789abcdef"):
            raise view.UnknownBytesError("a key that is not the MD5 of a host")
        return {"kind": "site", "host_md5": entry.key.decode("ascii")} | view.read_columns(entry.value, _read_site)


def _read_site(value: bytes) -> dict[str, Any]:
    site, reason = SITES.read(value, "Site")
    return make_message_columns(site, reason) | {
        "time": view.convert_time(find_integer(site, "last_loaded"), 1_000_000, 0)
    }


_read_text = partial(view.read_text, "value")


def _read_time(value: bytes) -> dict[str, Any]:
    """Return the time that a value is: microseconds since 1601, in decimal digits."""
    return {"time": view.convert_time(view.parse_integer(value))}


PUSH = Messages("""
DataMessage: 2 id text, 3 from text, 4 to text, 5 category text, 6 token text, 7 app_data Data*,
 8 from_trusted_server bool, 9 persistent_id text, 10 stream_id int, 11 last_stream_id_received int, 13 reg_id text,
 16 device_user_id int, 17 ttl int, 18 sent int, 19 queued int, 20 status int, 21 raw_data bytes, 24 immediate_ack bool
Data: 1 key text, 2 value text
Encryption: 1 app_id text, 2 keys KeyPair*, 3 auth_secret bytes, 4 authorized_entity text, 5 private_key bytes
KeyPair: 1 type ECDH_P256|, 2 private_key bytes, 4 public_key bytes
""")
_DATA_MESSAGE = 8
"""The tag of a message of an application, before its bytes."""


def _read_encrypted(value: bytes) -> dict[str, Any]:
    raise view.UnknownBytesError(f"encrypted by the browser ({value[:3].decode('ascii', 'replace')})")


def _read_registration(value: bytes) -> dict[str, Any]:
    """Return a token, the senders before it, and when it was validated."""
    head, _, checked = value.rpartition(b"#") if b"#" in value else (value, b"", b"")
    senders, _, token = head.rpartition(b"=")
    row = _read_text(token) | ({"sender": senders.decode("utf-8", "replace")} if senders else {})
    return row | (_read_time(checked) if checked else {})


def _read_timed_text(separator: bytes, value: bytes) -> dict[str, Any]:
    """Return a text, and the time after it: when an ID was made, or when a message is forgotten; some have none."""
    text, _, time = value.partition(separator)
    return _read_text(text) | (_read_time(time) if time else {})


def _read_outgoing(value: bytes) -> dict[str, Any]:
    """Return a message of the protocol, after its tag."""
    if value[:1] != bytes([_DATA_MESSAGE]):
        raise view.UnknownBytesError(f"a message with tag {value[:1].hex() or 'missing'}, expected {_DATA_MESSAGE:02x}")
    message, reason = PUSH.read(value[1:], "DataMessage")
    row = make_message_columns(message, reason) | {"time": view.convert_time(find_integer(message, "sent"), 1_000_000)}
    for column, name in (("app", "category"), ("sender", "to")):
        row |= {column: message[name]} if isinstance(message.get(name), str) else {}
    return row


def _read_account(value: bytes) -> dict[str, Any]:
    """Return an address, its status, when that changed, and the ID of a message."""
    parts = value.split(b"&")
    if len(parts) not in (3, 4):
        raise view.UnknownBytesError(f"{len(parts)} parts of an account, expected 3 or 4")
    return _read_text(value) | _read_time(parts[2])


_PREFIXES: Mapping[bytes, tuple[str, str, Callable[[bytes], dict[str, Any]]]] = {
    b"reg1-": ("registration", "app", _read_registration),
    b"incoming1-": ("incoming_message", "name", partial(_read_timed_text, b"|")),
    b"outgoing1-": ("outgoing_message", "name", _read_outgoing),
    b"gservice1-": ("setting", "name", _read_text),
    b"account1-": ("account", "name", _read_account),
    b"heartbeat1-": ("heartbeat", "name", _read_text),
    b"iid1-": ("instance_id", "app", partial(_read_timed_text, b",")),
}
"""How keys begin: the kind, the column of the rest of the key, and how the value is read."""
_SINGLE: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    b"device_aid_key": ("device_id", _read_text),
    b"device_token_key": ("device_token", _read_encrypted),
    b"gservices_digest": ("settings_digest", _read_text),
    b"last_checkin_accounts_count": ("last_checkin_accounts", _read_text),
    b"last_checkin_time": ("last_checkin", _read_time),
    b"last_token_fetch_time": ("last_token_fetch", _read_time),
}
_TOKEN = b"iid-"
"""How the rest of a key begins that has application, sender and scope, with commas between them."""
_PUSH_ROWS = MessageRows(
    PUSH, {"Encryption": {}, "DataMessage": {"category": ("category",), "to": ("to",), "sent": ("sent",)}}
)
_ENCRYPTION_KEYS = KeyPatterns(
    [KeyPattern(b"", "encryption_keys", (KeyPart("app", "text", b","), KeyPart("sender")), "Encryption")], _PUSH_ROWS
)
_PUSH_READERS: Mapping[str, str | int] = {
    "outgoing_message": "DataMessage",
    "setting": k.PLAIN_TEXT,
    "heartbeat": k.PLAIN_TEXT,
}
"""By kind, what values are that are not left to Python."""
_TOKEN_COLUMNS = "app", "sender", "scope"
_PUSH_KEYS = KeyPatterns(
    [
        KeyPattern(
            b"reg1-" + _TOKEN,
            "token",
            tuple(KeyPart(column, "text", b"" if column == _TOKEN_COLUMNS[-1] else b",") for column in _TOKEN_COLUMNS),
        ),
        *(
            KeyPattern(prefix, kind, (KeyPart(column),), _PUSH_READERS.get(kind, k.UNREAD))
            for prefix, (kind, column, _) in _PREFIXES.items()
        ),
    ],
    _PUSH_ROWS,
)
_TIME_SEPARATORS = {"token": b"#", "registration": b"#", "instance_id": b",", "incoming_message": b"|"}
"""By kind of entries whose values are a text, what is between that and a time."""
_PUSH_VALUES = KeyPatterns(
    [
        KeyPattern(b"", kind, (*sender, *value), group=_PUSH_KEYS.kinds.index(kind))
        for kind, separator in _TIME_SEPARATORS.items()
        for sender in ((KeyPart("sender", "token", b"="),), ())
        for value in ((KeyPart("value", "token", separator), KeyPart("time", "int")), (KeyPart("value", "token"),))
        if separator == b"#" or not sender
    ],
    _PUSH_ROWS,
)


class GcmStore(view.ApplicationView):
    """View of Google Cloud Messaging: registrations of applications, messages, and their keys."""

    title = "Chromium's GCM Store (push messages): kind, app, sender, scope, name, value, time"
    directory: ClassVar = "/GCM Store(/Encryption)?"
    own_key: ClassVar = b"|".join(map(re.escape, _SINGLE))
    columns: ClassVar = view.make_columns("kind app sender scope name value time:time")

    def make_context(self, entries: view.Entries, home: view.Home) -> bool:
        """Return whether the database holds the keys of applications, by its directory."""
        del entries
        return home.path.endswith("/Encryption")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: bool) -> view.PlainRows:
        """Return messages, settings, registrations, and keys of applications."""
        patterns = _ENCRYPTION_KEYS if context else _PUSH_KEYS
        stored = patterns.read(keys)
        spans = make_spans(values)
        are_sent = stored.are_of("outgoing_message") & (spans.ends > spans.starts)
        are_sent[are_sent] = spans.data[spans.starts[are_sent]] == _DATA_MESSAGE
        roots = np.where(stored.are_of("outgoing_message") & ~are_sent, k.UNREAD, stored.roots)
        rendered = _PUSH_ROWS.render(spans._replace(starts=spans.starts + are_sent), roots)
        columns = {"kind": stored.kinds, **{name: stored.make_texts(name) for name in patterns.names}}
        if context:
            return view.PlainRows(rendered.is_plain, {**columns, "value": rendered.make_values()})
        texts = _PUSH_VALUES.read(spans, stored.patterns)
        are_texts = (texts.patterns > 0) & (texts.select_lengths("sender") != 0)
        numbers = np.where(are_texts, texts.select_numbers("time"), rendered.select_numbers("sent"))
        are_times = texts.are_there("time") | rendered.are_there("sent")
        # Both are in values.
        senders = k.Texts(
            spans.data,
            np.where(are_texts, texts.select_numbers("sender"), rendered.select_numbers("to")),
            np.where(are_texts, texts.select_lengths("sender"), rendered.select_lengths("to")),
        )
        columns |= {
            "app": take_texts(stored.find_texts("app"), rendered.find_texts("category")),
            "sender": take_texts(stored.find_texts("sender"), senders),
            "value": take_texts(texts.find_texts("value"), rendered.find_values(rendered.is_plain)),
            "time": convert_times(numbers, are_times, np.where(are_texts, 1, 1_000_000)),
        }
        return view.PlainRows(rendered.is_plain | are_texts, columns)

    def decode(self, entry: view.Entry, context: bool) -> Mapping[str, Any]:
        """Return the text, and protobuf where a message or keys are stored."""
        if context:
            show = partial(PUSH.show, name="Encryption")
            return _decode_row("encryption_keys", ("app", "sender"), entry.key, entry.value, show)
        if entry.key in _SINGLE:
            kind, read = _SINGLE[entry.key]
            return {"kind": kind} | view.read_columns(entry.value, read)
        prefix = next((prefix for prefix in _PREFIXES if entry.key.startswith(prefix)), None)
        if prefix is None:
            raise view.UnknownBytesError("a key that is none of Google Cloud Messaging's")
        kind, column, read = _PREFIXES[prefix]
        suffix = entry.key[len(prefix) :]
        if kind == "registration" and suffix.startswith(_TOKEN):
            return _decode_row("token", _TOKEN_COLUMNS, suffix[len(_TOKEN) :], entry.value, _read_registration)
        return _decode_row(kind, (column,), suffix, entry.value, read)


def _decode_row(
    kind: str, columns: Sequence[str], key: bytes, value: bytes | None, read: Callable[[bytes], dict[str, Any]]
) -> dict[str, Any]:
    """Return columns of a key, of which all but the last end with a comma, and those of its value."""
    name, wrong = view.decode_text(key, "utf-8")
    parts = dict(zip(columns, name.split(",", len(columns) - 1), strict=False))
    return view.make_row({"kind": kind, **parts}, wrong, view.read_columns(value, read))


_NAMES = """
TestDatabase0 TestDatabase1 TestDatabase2 FeatureEngagementTrackerEventStore FeatureEngagementTrackerAvailabilityStore
UsageStatsWebsiteEvent UsageStatsSuspension UsageStatsTokenMapping DomDistillerStore DownloadService
CachedImageFetcherDatabase FeedContentDatabase FeedJournalDatabase NTPSnippets NTPSnippetImages
NotificationSchedulerIcons NotificationSchedulerImpressions NotificationSchedulerNotifications BudgetManager
StrikeService PreviewsHintCacheStore DownloadDB VideoDecodeStatsDB PrintJobDatabase GCMKeyStore Metadata
FeedStreamDatabase PersistedStateDatabase UpboardingQueryTileStore NearbySharePublicCertificateDatabase
VideoTutorialsDatabase FeedKeyValueDatabase CartDatabase CommerceSubscriptionDatabase MerchantTrustSignalEventDatabase
ShareHistoryDatabase ShareRankingDatabase SegmentInfoDatabase SignalDatabase SignalStorageConfigDatabase
VideoTutorialsV2Database CouponDatabase PageEntityMetadataDatabase WebrtcVideoStatsDB PersistentOriginTrials
NearbyPresenceLocalPublicCredentialDatabase NearbyPresencePrivateCredentialDatabase
NearbyPresenceRemotePublicCredentialDatabase DiscountsDatabase CommerceParcelTrackingDatabase
ClientCertificatesDatabase AutofillAiModelCache DiscountInfosDatabase NotificationTelemetryStore
"""
_CLIENTS = _NAMES.split()
"""Databases that share one, by number: `ProtoDbTypeToString`."""
_APART = {
    "AutofillAiModelCache": "AutofillAiModelCache",
    "AutofillStrikeDatabase": "StrikeService",
    "BudgetDatabase": "BudgetManager",
    "ClientCertificates": "ClientCertificatesDatabase",
    "PersistentOriginTrials": "PersistentOriginTrials",
    "SegmentInfoDB": "SegmentInfoDatabase",
    "SignalDB": "SignalDatabase",
    "SignalStorageConfigDB": "SignalStorageConfigDatabase",
    "chrome_cart_db": "CartDatabase",
    "commerce_subscription_db": "CommerceSubscriptionDatabase",
    "discount_infos_db": "DiscountInfosDatabase",
    "discounts_db": "DiscountsDatabase",
    "optimization_guide_hint_cache_store": "PreviewsHintCacheStore",
    "parcel_tracking_db": "CommerceParcelTrackingDatabase",
}
"""Directories of those that do not share it, as in older versions; their keys have no number."""
_SIGNALS = "SignalDatabase"
_GLOBAL = b"__global"
"""The key of metadata on all of them."""


def unpickle_text(data: bytes, reasons: list[str]) -> str:
    """Return the text of a `base::Pickle`: UTF-8, or UTF-16 on Windows."""
    cursor = view.Cursor(data)
    try:
        payload, length = cursor.take_unsigned(4), cursor.take_unsigned(4)
        is_wide = payload != -(-(4 + length) // 4) * 4
        path, wrong = view.decode_text(
            cursor.take(2 * length if is_wide else length), "utf-16-le" if is_wide else "utf-8"
        )
    except view.UnknownBytesError as unknown:
        path, wrong = data.decode("utf-8", "replace"), f"path: {unknown}"
    reasons += [wrong] if wrong else []
    return path


SHARED = Messages(
    """
Metadata: 1 corruptions uint, 3 migration_status int, 4 failure_count uint
StrikeService: 1 num_strikes int, 2 last_update_timestamp int
FeatureEngagementTrackerEventStore: 1 name text, 2 events Count*, 3 last_snooze_time_us int, 4 snooze_dismissed bool
Count: 1 day uint, 2 count uint, 3 snooze_count uint
FeatureEngagementTrackerAvailabilityStore: 1 feature_name text, 2 day uint
CartDatabase: 1 key text, 2 merchant text, 3 merchant_cart_url text, 4 timestamp double, 5 product_image_urls text*,
 6 is_hidden bool, 7 is_removed bool, 9 product_infos Product*
Product: 1 product_id text
SegmentInfoDatabase: 1 segment_id int, 3 prediction_result Prediction, 4 model_version int
Prediction: 1 result float, 2 timestamp_us int
SignalDatabase: 1 samples Sample*
Sample: 1 value int, 2 time_sec_delta int
SignalStorageConfigDatabase: 1 signals Signal*
Signal: 1 name_hash uint, 2 signal_type int, 3 storage_length_s int, 4 collection_start_time_s int, 5 event_hash uint
DownloadDB: 1 download_info Download
Download: 1 guid text, 2 id int, 3 ukm_info Ukm, 4 in_progress_info InProgress
Ukm: 1 download_source int, 2 ukm_download_id int
InProgress: 1 url_chain text*, 2 referrer_url text, 3 site_url text, 4 tab_url text, 5 tab_referrer_url text,
 6 fetch_error_body bool, 7 request_headers Header*, 8 etag text, 9 last_modified text, 10 total_bytes int,
 11 mime_type text, 12 original_mime_type text, 13 current_path path, 14 target_path path, 15 received_bytes int,
 16 start_time int, 17 end_time int, 18 received_slices Slice*, 19 hash bytes, 20 transient bool,
 21 state IN_PROGRESS|COMPLETE|CANCELLED|BUG_140687|INTERRUPTED, 22 danger_type int, 23 interrupt_reason int,
 24 paused bool, 25 metered bool, 26 bytes_wasted int, 27 auto_resume_count int, 30 credentials_mode int,
 31 range_request_from int, 32 range_request_to int
Header: 1 key text, 2 value text
Slice: 1 offset int, 2 received_bytes int, 3 finished bool
""",
    path=unpickle_text,
)
"""Messages by the names of databases, where their definitions are known here; those of others have numbers only."""
_TIMES: Mapping[str, tuple[tuple[str, ...], int]] = {
    "StrikeService": (("last_update_timestamp",), 1),
    "SegmentInfoDatabase": (("prediction_result", "timestamp_us"), 1),
    "DownloadDB": (("download_info", "in_progress_info", "start_time"), 1_000),
}
"""Where messages have a time, and its microseconds."""
_SHARED_ROWS = MessageRows(
    SHARED, {name: {"time": _TIMES[name][0]} if name in _TIMES else {} for name in ("", *_CLIENTS)}
)
_NUMBERED, _APART_KEYS, _SIGNAL_KEYS = range(3)
"""Groups of keys: of the database that is shared, of one apart, and of signals apart."""
_SIGNAL = "signal"
_SHARED_KEYS = KeyPatterns(
    [
        *(KeyPattern(_GLOBAL, "", group=group) for group in (_NUMBERED, _APART_KEYS, _SIGNAL_KEYS)),
        *(
            KeyPattern(prefix, _SIGNAL, (KeyPart(_SIGNAL, "bytes"),), _SIGNALS, group)
            for prefix, group in ((b"%d_" % _CLIENTS.index(_SIGNALS), _NUMBERED), (b"", _SIGNAL_KEYS))
        ),
        KeyPattern(b"", "", (KeyPart("number", "int", b"_"), KeyPart("key")), "", _NUMBERED),
        KeyPattern(b"", "", (KeyPart("key"),), "", _APART_KEYS),
    ],
    _SHARED_ROWS,
)
_CLIENT_NODES = np.array([_SHARED_ROWS.nodes[name] for name in (*_CLIENTS, "")])
_CLIENT_UNITS = np.array([_TIMES.get(name, ((), 1))[1] for name in (*_CLIENTS, "")])
"""By number of a database, and of all others: the message that values are, and the microseconds of its time."""
_NAME_OF = Lookup(np.arange(len(_CLIENTS)), make_array(_CLIENTS, pa.string()))
_SIGNAL_SIZE = 32
"""Bytes of a key of a signal: the kind and three numbers, eight each."""
_SIGNAL_ROOM = 2 + 3 * 21
"""Bytes of its text, at most."""


class SharedProto(view.ApplicationView):
    """View of the database that many services of Chromium share: a row per message of protobuf."""

    title = "Chromium's shared_proto_db: name and number of a database in it, key, value (JSON), time"
    directory: ClassVar = rf"/shared_proto_db(/metadata)?|(^|/)({'|'.join(_APART)})"
    own_key: ClassVar = _GLOBAL
    columns: ClassVar = view.make_columns("database number:int key value time:time")

    def make_context(self, entries: view.Entries, home: view.Home) -> str:
        """Return the name of the directory: that of metadata on the others, and of a database apart."""
        del entries
        return home.path.rpartition("/")[2]

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: str) -> view.PlainRows:
        """Return messages with a number or in a database apart."""
        name = _APART.get(context)
        group = _NUMBERED if name is None else _SIGNAL_KEYS if name == _SIGNALS else _APART_KEYS
        stored = _SHARED_KEYS.read(keys, np.full(len(keys), group, np.uint8))
        signals, other_keys = stored.find_texts(_SIGNAL), stored.find_texts("key")
        are_signals, are_whole = signals.lengths >= 0, signals.lengths == _SIGNAL_SIZE
        numbers = np.where(are_signals, _CLIENTS.index(_SIGNALS), stored.select_numbers("number"))
        if name is not None:
            numbers.fill(_CLIENTS.index(name))
        is_metadata = context == "metadata"
        clients = np.where((numbers >= 0) & (numbers < len(_CLIENTS)), numbers, len(_CLIENTS))
        nodes = _SHARED_ROWS.nodes["Metadata"] if is_metadata else _CLIENT_NODES[clients]
        rendered = _SHARED_ROWS.render(values, np.where(stored.roots != k.UNREAD, nodes, k.UNREAD))
        room = int(np.where(are_whole, _SIGNAL_ROOM, np.maximum(other_keys.lengths, 0)).sum()) + SLACK
        keys_shown = view.TextColumn(len(keys), room)
        _put_keys(signals, other_keys, *keys_shown.buffers)
        columns = {
            "database": take_texts(_NAME_OF.find_texts(numbers)),
            "number": make_fixed_array(pa.int64(), numbers),
            "key": keys_shown.take(pa.string(), are_signals | (other_keys.lengths >= 0)),
            "value": rendered.make_values(),
            "time": convert_times(rendered.select_numbers("time"), rendered.are_there("time"), _CLIENT_UNITS[clients]),
        }
        return view.PlainRows(rendered.is_plain & (~are_signals | are_whole & (not is_metadata)), columns)

    def decode(self, entry: view.Entry, context: str) -> Mapping[str, Any]:
        """Return a key that begins with a number and `_`; a message in protobuf."""
        if entry.key == _GLOBAL:
            return {"key": _GLOBAL.decode("ascii")} | view.read_columns(entry.value, _read_shared_metadata)
        name, suffix = _APART.get(context), entry.key
        if name is not None:
            number = _CLIENTS.index(name)
        else:
            digits, separator, suffix = entry.key.partition(b"_")
            if not separator:
                raise view.UnknownBytesError("a key without a number and _ at its beginning")
            number = view.parse_integer(digits)
            name = _CLIENTS[number] if 0 <= number < len(_CLIENTS) else None
        is_metadata = context == "metadata"
        key, wrong = _signal(suffix) if name == _SIGNALS and not is_metadata else view.decode_text(suffix, "utf-8")
        read = _read_shared_metadata if is_metadata else partial(_read_shared, name or "")
        return view.make_row(
            {"database": name, "number": number, "key": key}, wrong, view.read_columns(entry.value, read)
        )


def _read_shared_metadata(value: bytes) -> dict[str, Any]:
    return SHARED.show(value, "Metadata")


def _read_shared(name: str, value: bytes) -> dict[str, Any]:
    """Return a message of a database, and its time."""
    message, reason = SHARED.read(value, name)
    row = make_message_columns(message, reason)
    if name in _TIMES:
        path, unit = _TIMES[name]
        row["time"] = view.convert_time(find_integer(message, *path), unit)
    return row


def _signal(key: bytes) -> tuple[str, str | None]:
    """Return the kind, hash of the name, end and begin of the days of samples, as Chromium prints a key."""
    cursor = view.Cursor(key)
    try:
        kind = cursor.take(8, "kind")[:1].decode("latin-1")
        numbers = [int.from_bytes(cursor.take(8, "number"), "big") for _ in range(3)]
        cursor.check_end()
    except view.UnknownBytesError as unknown:
        return view.decode_text(key, "utf-8")[0], f"key: {unknown}"
    return ":".join([kind, *map(str, numbers)]), None


@kernel
def _put_keys(signals: k.Texts, keys: k.Texts, out: OutBytes, ends: OutInt32s) -> None:
    """Write `_signal` of many keys, and other ones as they are.

    Args:
        signals: `Texts`, keys of signals; of those that do not have all of their bytes, nothing is written.
        keys: `Texts`, other keys.
        out: uint8, with room for all.
        ends: int32, `ends[i + 1]` becomes the end of text i.
    """
    pos = _ZERO
    for row in range(len(keys.lengths)):
        start = np.uint64(signals.starts[row])
        if signals.lengths[row] == _SIGNAL_SIZE:
            pos = put_latin_1(out, pos, signals.data, start, start + _ONE)
            for _ in range(_SIGNAL_SIZE // 8 - 1):
                start += _EIGHT
                out[pos] = 58
                pos = put_unsigned(out, pos + _ONE, load_big_u64(signals.data, start))
        elif keys.lengths[row] > 0:
            length = np.uint64(keys.lengths[row])
            copy_short(out, pos, keys.data, np.uint64(keys.starts[row]), length)
            pos += length
        ends[row + 1] = pos
