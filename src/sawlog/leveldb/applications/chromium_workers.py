"""Views of Chromium's service workers: registrations, scripts, what services keep for one, and notifications.

See `service_worker_database.cc` and `notification_database.cc` in Chromium's source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.arrow import call_function, fill_null, make_array, unpack_booleans, view_binary, view_values
from sawlog.guard import Undecodable, decode_json
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
    take_texts,
)
from sawlog.leveldb.applications.script_values import decode_script_value, encode_base64, to_json
from sawlog.leveldb.records.kernels import Strings

MESSAGES = Messages("""
Embedder = NONE_OR_NOT_EXIST|REQUIRE_CORP|CREDENTIALLESS
Referrer = ALWAYS|DEFAULT|NO_REFERRER_WHEN_DOWNGRADE|NEVER|ORIGIN|ORIGIN_WHEN_CROSS_ORIGIN|
 STRICT_ORIGIN_WHEN_CROSS_ORIGIN|SAME_ORIGIN|STRICT_ORIGIN
Mode = kSameOriginMode|kNoCorsMode|kCorsMode|kCorsWithForcedPreflightMode|kNavigateMode
Destination = kEmptyDestination|kAudioDestination|kAudioWorkletDestination|kDocumentDestination|kEmbedDestination|
 kFontDestination|kFrameDestination|kIframeDestination|kImageDestination|kManifestDestination|kObjectDestination|
 kPaintWorkletDestination|kReportDestination|kScriptDestination|kServiceWorkerDestination|kSharedWorkerDestination|
 kStyleDestination|kTrackDestination|kVideoDestination|kWebBundleDestination|kWorkerDestination|kXsltDestination|
 kFencedframeDestination|kWebIdentityDestination|kDictionaryDestination|kSpeculationRulesDestination|kJsonDestination|
 kSharedStorageWorkletDestination
Failure = NONE|CANCELLED_FROM_UI|CANCELLED_BY_DEVELOPER|BAD_STATUS|FETCH_ERROR|SERVICE_WORKER_UNAVAILABLE|
 QUOTA_EXCEEDED|DOWNLOAD_TOTAL_EXCEEDED
Pair: 1 key text, 2 value text
Fixed: 1 value text
Wildcard: 1 name text, 2 prefix text, 3 value text, 4 suffix text
Part: 1 modifier kNone|kOptional|kZeroOrMore|kOneOrMore, 2 fixed Fixed, 4 segment_wildcard Wildcard,
 5 full_wildcard Wildcard
PatternOptions: 1 ignore_case bool
Pattern: 1 legacy_pathname Part*, 2 hostname Part*, 3 protocol Part*, 4 username Part*, 5 password Part*, 6 port Part*,
 7 pathname Part*, 8 search Part*, 9 hash Part*, 10 options PatternOptions
RoutedRequest: 1 method text, 2 mode Mode, 3 destination Destination
Running: 1 status kRunning|kNotRunning
Inner: 1 url_pattern Pattern, 2 request RoutedRequest, 3 running_status Running
Object: 1 conditions Inner*
Objects: 1 objects Object*
Not: 1 object Object
Condition: 1 url_pattern Pattern, 2 request RoutedRequest, 3 running_status Running, 4 or_condition Objects,
 5 not_condition Not
Nothing:
Cache: 1 cache_name text
RacedCache: 1 cache_source Cache
Source: 1 network_source Nothing, 2 race_network_and_fetch_event_source Nothing, 3 fetch_event_source Nothing,
 4 cache_source Cache, 5 race_network_and_cache_source RacedCache
Rule: 1 condition Condition*, 2 source Source*
Rules: 1 version int, 2 v1 Rule*
Feature: 1 name text, 2 tokens text*
Trials: 1 features Feature*
Preload: 1 enabled bool, 2 header text
Policies: 1 referrer_policy Referrer, 2 sandbox_flags int, 3 ip_address_space UNKNOWN|LOOPBACK|PRIVATE|PUBLIC
Registration: 1 registration_id int, 2 scope_url text, 3 script_url text, 4 version_id int, 5 is_active bool,
 6 has_fetch_handler bool, 7 last_update_check_time int, 8 resources_total_size_bytes uint,
 11 origin_trial_tokens Trials, 12 navigation_preload_state Preload, 13 used_features uint*,
 14 update_via_cache IMPORTS|ALL|NONE, 15 script_type CLASSIC|MODULE, 16 script_response_time int,
 17 cross_origin_embedder_policy_value Embedder, 18 cross_origin_embedder_policy_reporting_endpoint text,
 19 cross_origin_embedder_policy_report_only_value Embedder,
 20 cross_origin_embedder_policy_report_only_reporting_endpoint text,
 21 ancestor_frame_type NORMAL_FRAME|FENCED_FRAME,
 22 fetch_handler_skippable_type |NOT_SKIPPABLE|SKIPPABLE_EMPTY_FETCH_HANDLER,
 23 policy_container_policies Policies, 24 router_rules Rules, 25 has_hid_event_handlers bool,
 26 has_usb_event_handlers bool
Resource: 1 resource_id int, 2 url text, 3 size_bytes int, 4 sha256_checksum text
Syncs: 1 registration Sync*, 3 origin text
Sync: 2 tag text, 7 num_attempts int, 8 delay_until int, 9 periodic_sync_options Period, 10 max_attempts int
Period: 1 min_interval int
Cookies: 1 subscriptions Cookie*
Cookie: 1 url text, 2 name text, 3 match_type EQUALS|STARTS_WITH
Fetch: 1 creation_microseconds_since_unix_epoch int, 2 origin text, 3 registration FetchState, 4 options FetchOptions,
 5 num_fetches int, 6 isolation_info bytes
FetchState: 1 unique_id text, 2 developer_id text, 3 upload_total uint, 4 uploaded uint, 5 download_total uint,
 6 downloaded uint, 7 result UNSET|FAILURE|SUCCESS, 8 failure_reason Failure
FetchOptions: 1 title text, 2 icons Icon*, 3 download_total uint
Icon: 1 src text, 2 sizes Size*, 3 type text, 4 purpose |ANY|MONOCHROME|MASKABLE*
Size: 1 width int, 2 height int
FetchTitle: 1 title text, 2 icon bytes
Referred: 1 url text, 2 policy int
FetchRequest: 1 url text, 2 method text, 3 headers Pair*, 4 referrer Referred, 5 is_reload bool, 6 mode int,
 7 is_main_resource_load bool, 9 credentials_mode int, 10 cache_mode int, 11 redirect_mode int, 12 integrity text,
 13 keepalive bool, 16 is_history_navigation bool, 17 target_address_space int
Fetched: 1 unique_id text, 2 request_index int, 3 serialized_request FetchRequest, 4 download_guid text,
 5 request_body_size uint, 6 request_body_size uint
Completed: 1 unique_id text, 2 request_index int, 3 serialized_request FetchRequest, 4 download_guid text,
 6 failure_reason Failure
Content: 1 description Described, 2 timestamp int, 3 launch_url text, 4 is_top_level_context bool
Described: 1 id text, 2 title text, 3 description text, 4 category int, 5 icons ContentIcon*, 6 launch_url text
ContentIcon: 1 src text, 2 sizes text, 3 type text
SerializedIcons: 1 icons SerializedIcon*
SerializedIcon: 1 icon bytes
""")
_USER_DATA: Mapping[str, str] = {
    "BackgroundSyncUserData": "Syncs",
    "PeriodicBackgroundSyncUserData": "Syncs",
    "cookie_store_subscriptions": "Cookies",
    "push_registration_id": "",
    "push_sender_id": "",
    "bgfetch_active_registration_unique_id_": "",
    "bgfetch_storage_version_": "",
    "bgfetch_registration_": "Fetch",
    "bgfetch_ui_options_": "FetchTitle",
    "bgfetch_pending_request_": "Fetched",
    "bgfetch_active_request_": "Fetched",
    "bgfetch_completed_request_": "Completed",
    "content_index:entry_": "Content",
    "content_index:icon_": "SerializedIcons",
}
"""How the names of what services keep for a worker begin, and the messages that it is; without a name, it is text."""
_TIMES: Mapping[str, tuple[str, int]] = {
    "Fetch": ("creation_microseconds_since_unix_epoch", 0),
    "Content": ("timestamp", view.EPOCH),
}
"""Fields that hold the time of a message, and from when it counts."""

_IDS = ("registration_id", "version_id", "resource_id")


class Kind(NamedTuple):
    """Entries whose keys begin alike.

    Attributes:
        kind: What the view calls them.
        key: Columns of the rest of the key, with the byte 0 between them.
        read: What makes columns of the value; `None` where it is empty.
    """

    kind: str
    key: tuple[str, ...]
    read: Callable[[bytes], dict[str, Any]] | None = None


def _read_version(value: bytes) -> dict[str, Any]:
    return {"value": to_json(view.parse_integer(value))}


def _read_registration(value: bytes) -> dict[str, Any]:
    """Return columns of a registration and of the version that it has."""
    message, reason = MESSAGES.read(value, "Registration")
    return make_message_columns(message, reason) | {
        "version_id": find_integer(message, "version_id"),
        "scope": _find_text(message, "scope_url"),
        "url": _find_text(message, "script_url"),
        "size": _limit_size(find_integer(message, "resources_total_size_bytes")),
        "time": view.convert_time(find_integer(message, "last_update_check_time")),
        "script_time": view.convert_time(find_integer(message, "script_response_time")),
    }


def _read_resource(value: bytes) -> dict[str, Any]:
    """Return columns of a script: its address and size, and its SHA-256 as JSON."""
    message, reason = MESSAGES.read(value, "Resource")
    columns = {"url": _find_text(message, "url"), "size": _limit_size(find_integer(message, "size_bytes"))}
    return make_message_columns(message, reason) | columns


def _find_text(message: Mapping[str, Any], name: str) -> str | None:
    value = message.get(name)
    return value if isinstance(value, str) else None


def _limit_size(value: int | None) -> int | None:
    return value if value is not None and value < 1 << 63 else None


def _read_user_data(name: str, value: bytes) -> dict[str, Any]:
    """Return the data that a service keeps for a worker, as JSON."""
    kind = next((kind for prefix, kind in _USER_DATA.items() if name.startswith(prefix)), None)
    if kind:
        message, reason = MESSAGES.read(value, kind)
        path, epoch = _TIMES.get(kind, ("", 0))
        return make_message_columns(message, reason) | {
            "time": view.convert_time(find_integer(message, path), 1, epoch)
        }
    try:
        document: Any = value.decode("utf-8")
    except UnicodeDecodeError:
        document = {"$bytes": encode_base64(value)}
    return {"value": to_json(document), "reason": "of a service that is not known" if kind is None else None}


_KINDS: Mapping[bytes, Kind] = {
    b"INITDATA_DB_VERSION": Kind("version", (), _read_version),
    b"INITDATA_NEXT_REGISTRATION_ID": Kind("next_registration_id", (), partial(view.read_integer, "registration_id")),
    b"INITDATA_NEXT_VERSION_ID": Kind("next_version_id", (), partial(view.read_integer, "version_id")),
    b"INITDATA_NEXT_RESOURCE_ID": Kind("next_resource_id", (), partial(view.read_integer, "resource_id")),
    b"INITDATA_DISKCACHE_MIGRATION_NOT_NEEDED": Kind("disk_cache_migrated", ()),
    b"INITDATA_OLD_DISKCACHE_DELETION_NOT_NEEDED": Kind("old_disk_cache_deleted", ()),
    b"INITDATA_UNIQUE_ORIGIN:": Kind("site", ("storage_key",)),
    b"INITDATA_FOREIGN_FETCH_ORIGIN:": Kind("foreign_fetch_site", ("storage_key",)),
    b"REG:": Kind("registration", ("storage_key", "registration_id"), _read_registration),
    b"REGID_TO_ORIGIN:": Kind("registration_site", ("registration_id",), partial(view.read_text, "storage_key")),
    b"REG_HAS_USER_DATA:": Kind("has_user_data", ("name", "registration_id")),
    b"REG_USER_DATA:": Kind("user_data", ("registration_id", "name")),
    b"RES:": Kind("resource", ("version_id", "resource_id"), _read_resource),
    b"URES:": Kind("uncommitted_resource", ("resource_id",)),
    b"PRES:": Kind("purgeable_resource", ("resource_id",)),
}
"""By the key up to its first colon; the only key of a kind has none."""
_WORKERS = MessageRows(
    MESSAGES,
    {
        "Registration": {
            "version_id": ("version_id",),
            "scope": ("scope_url",),
            "url": ("script_url",),
            "size": ("resources_total_size_bytes",),
            "time": ("last_update_check_time",),
            "script_time": ("script_response_time",),
        },
        "Resource": {"url": ("url",), "size": ("size_bytes",)},
        **{kind: {"time": (_TIMES[kind][0],)} if kind in _TIMES else {} for kind in _USER_DATA.values() if kind},
    },
)
_READERS: Mapping[str, str | int] = {
    "registration": "Registration",
    "registration_site": k.PLAIN_TEXT,
    "resource": "Resource",
}
"""By kind, what values are that are neither empty nor left to Python."""
_WORKER_KEYS = KeyPatterns(
    [
        KeyPattern(
            prefix,
            kind.kind,
            tuple(
                KeyPart(name, "int" if name in _IDS else "text", b"\0" if name != kind.key[-1] else b"")
                for name in kind.key
            ),
            _READERS.get(kind.kind, k.UNREAD if kind.read or kind.kind == "user_data" else k.EMPTY),
        )
        for prefix, kind in _KINDS.items()
    ],
    _WORKERS,
)
_USER_KEYS = KeyPatterns(
    [
        KeyPattern(prefix.encode(), kind, (KeyPart("suffix", "bytes"),), kind or k.QUOTED_TEXT)
        for prefix, kind in _USER_DATA.items()
    ],
    _WORKERS,
)
"""Names of what services keep."""
_EPOCHS = np.array(
    [0 if pattern is None else _TIMES.get(pattern, ("", 0))[1] for pattern in (None, *_USER_DATA.values())]
)
"""By pattern of such a name plus one, from when times count."""
_VERSION_TAGS = np.array(
    [tag << 3 for tag, field in MESSAGES.fields["Registration"].items() if field.name == "version_id"], np.int64
)
_SITES, _AFTER_SITES = b"REG:", b"REG_"
"""From and up to which key there are registrations and their sites."""


class Registrations(NamedTuple):
    """Registrations of workers, as they were last written.

    Attributes:
        sites: Their storage keys, by ID.
        versions: The IDs of registrations, by those of their versions.
    """

    sites: Lookup
    versions: Lookup


class ServiceWorker(view.ApplicationView):
    """View of service workers: a row per registration, script, and piece of data that a service keeps for one."""

    title = "Chromium's service workers: kind, storage_key, scope, url of scripts, times, value (JSON)"
    directory: ClassVar = "/Service Worker/Database"
    own_key: ClassVar = b"INITDATA_.*"
    columns: ClassVar = view.make_columns(
        "kind storage_key registration_id:int version_id:int resource_id:int scope url name size:int "
        "time:time script_time:time value"
    )
    names: ClassVar = (_SITES, _AFTER_SITES)

    def make_context(self, entries: view.Entries, home: view.Home) -> Registrations:
        """Return sites of registrations, and registrations of versions, newest first."""
        del home
        stored, values = _WORKER_KEYS.read(entries.keys), fill_null(entries.values, b"")
        are_sites = stored.are_of("registration_site")
        texts = _WORKERS.render(values, np.where(are_sites, k.PLAIN_TEXT, k.NOTHING))
        versions = np.empty(len(values), np.int64)
        k.find_integers(Strings(*view_binary(values)), _VERSION_TAGS, versions)
        have_versions = stored.are_of("registration") & (versions >= 0)
        is_plain = (have_versions | are_sites & texts.is_plain) & unpack_booleans(
            call_function("is_valid", entries.values)
        )
        doubtful_rows = []
        for entry in entries.filter(make_array(~is_plain, pa.bool_())):
            try:
                doubtful_rows.append(_decode_row(entry))
            except view.UnknownBytesError:
                doubtful_rows.append({})  # which its own row says
        columns = {
            "registration_id": stored.make_integers("registration_id"),
            "version_id": make_array(versions, pa.int64(), ~have_versions),
            "storage_key": take_texts(stored.find_texts("storage_key"), texts.find_values(are_sites)),
        }
        numbers, version_ids, sites = (
            view.put_rows(
                column, np.flatnonzero(~is_plain), make_array([row.get(name) for row in doubtful_rows], column.type)
            )
            for name, column in columns.items()
        )
        return Registrations(_explain(numbers, sites), _explain(version_ids, numbers))

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Registrations) -> view.PlainRows:
        """Return all but numbers, and data of services that are not known."""
        stored = _WORKER_KEYS.read(keys)
        are_data, are_resources = stored.are_of("user_data"), stored.are_of("resource")
        spans = stored.find_spans("name")
        names = _USER_KEYS.read(spans._replace(ends=np.where(are_data, spans.ends, spans.starts - 1)))
        rendered = _WORKERS.render(values, np.where(are_data, names.roots, stored.roots))
        version_ids = stored.make_integers("version_id"), rendered.make_integers("version_id")
        registrations = stored.make_integers("registration_id")
        if are_resources.any():
            versions = context.versions.take(stored.select_numbers("version_id"))
            registrations = call_function("if_else", make_array(are_resources, pa.bool_()), versions, registrations)
        are_explained = are_resources | are_data | stored.are_of("has_user_data")
        known_sites = context.sites.find_texts(view_values(fill_null(registrations, -1), np.int64))
        sites = take_texts(
            stored.find_texts("storage_key"),
            rendered.find_values(stored.are_of("registration_site")),
            known_sites._replace(lengths=np.where(are_explained, known_sites.lengths, -1)),
        )
        epochs = np.where(are_data, _EPOCHS[names.patterns], view.EPOCH)
        are_documents = are_data | stored.are_of("registration") | are_resources
        columns = {
            "kind": stored.kinds,
            "storage_key": sites,
            "registration_id": registrations,
            "version_id": call_function("coalesce", *version_ids),
            "resource_id": stored.make_integers("resource_id"),
            "name": stored.make_texts("name"),
            **rendered.make_text_columns("scope", "url"),
            "size": rendered.make_integers("size"),
            "time": convert_times(rendered.select_numbers("time"), rendered.are_there("time"), 1, epochs),
            "script_time": convert_times(rendered.select_numbers("script_time"), rendered.are_there("script_time")),
            "value": rendered.make_values(are_documents),
        }
        return view.PlainRows(rendered.is_plain, columns)

    def decode(self, entry: view.Entry, context: Registrations) -> Mapping[str, Any]:
        """Return IDs and names of the key, a message in protobuf or text, and the site of the registration."""
        row = _decode_row(entry)
        if row["kind"] == "resource" and (number := context.versions.find(row["version_id"])) is not None:
            row["registration_id"] = number
        if row["kind"] in ("resource", "user_data", "has_user_data"):
            row["storage_key"] = context.sites.find(row.get("registration_id", -1))
        return row


def _explain(numbers: pa.Array, values: pa.Array) -> Lookup:
    """Return the values of numbers, where neither is null."""
    are_there = call_function("and", *(call_function("is_valid", column) for column in (numbers, values)))
    return Lookup(view_values(numbers.filter(are_there), np.int64), values.filter(are_there))


def _decode_row(entry: view.Entry) -> dict[str, Any]:
    """Return columns of an entry, without those that others explain."""
    head, colon, suffix = entry.key.partition(b":")
    kind = _KINDS.get(head + colon)
    if kind is None:
        raise view.UnknownBytesError("a key that is none of the service workers'")
    row: dict[str, Any] = {"kind": kind.kind}
    wrong = None
    split = suffix.split if kind.key[:1] == ("registration_id",) else suffix.rsplit
    parts = split(b"\0", len(kind.key) - 1) if kind.key else []
    if len(parts) != len(kind.key):
        raise view.UnknownBytesError(f"a key of {kind.kind} without the byte 0 in it")
    for column, part in zip(kind.key, parts, strict=True):
        if column in _IDS:
            row[column] = view.parse_integer(part)
        else:
            row[column], damage = view.decode_text(part, "utf-8")
            wrong = wrong or damage
    read = partial(_read_user_data, row["name"]) if kind.kind == "user_data" else kind.read
    return view.make_row(row, wrong, view.read_columns(entry.value, read or _read_nothing))


def _read_nothing(value: bytes) -> dict[str, Any]:
    if value:
        raise view.UnknownBytesError(f"{len(value)} bytes, where nothing is expected")
    return {}


def _decode_script(data: bytes, reasons: list[str]) -> Any:
    """Return a value of a script that a notification carries; its bytes, where it is none."""
    reason: str | None
    value: Any
    try:
        document, reason = decode_script_value(data)
        value = decode_json(document)
    except view.UnknownBytesError as unknown:
        value, reason = {"$bytes": encode_base64(data)}, str(unknown)
    if isinstance(value, Undecodable):
        value, reason = {"$bytes": encode_base64(data)}, value.detail
    reasons += [f"data: {reason}"] if reason else []
    return value


NOTIFICATIONS = Messages(
    """
Entry: 1 key text, 2 value text
Action: 1 action text, 2 title text, 3 icon text, 4 type BUTTON|TEXT, 5 placeholder text
Data: 1 title text, 2 direction LEFT_TO_RIGHT|RIGHT_TO_LEFT|AUTO, 3 lang text, 4 body text, 5 tag text, 6 icon text,
 7 silent bool, 8 data script, 9 vibration_pattern int*, 10 actions Action*, 11 require_interaction bool,
 12 timestamp int, 13 renotify bool, 14 badge text, 15 image text, 16 show_trigger_timestamp int
Notification: 1 persistent_notification_id int, 2 origin text, 3 service_worker_registration_id int,
 4 notification_data Data, 5 notification_id text, 6 replaced_existing_notification bool, 7 num_clicks int,
 8 num_action_button_clicks int, 9 creation_time_millis int, 10 time_until_first_click_millis int,
 11 time_until_last_click_millis int, 12 time_until_close_millis int, 13 closed_reason USER|DEVELOPER|UNKNOWN,
 14 has_triggered bool, 15 is_shown_by_browser bool, 16 serialized_metadata Entry*
Resources: 1 image bytes, 2 notification_icon bytes, 3 badge bytes, 4 action_icons bytes*
""",
    script=_decode_script,
)
_DATA, _RESOURCES = b"DATA:", b"RESOURCES:"
_SHOWN = MessageRows(
    NOTIFICATIONS,
    {
        "Notification": {
            "registration_id": ("service_worker_registration_id",),
            **{name: ("notification_data", name) for name in ("title", "body", "tag", "timestamp")},
            "time": ("creation_time_millis",),
        },
        "Resources": {},
    },
)
_NOTIFICATION_KEYS = KeyPatterns(
    [
        KeyPattern(prefix, kind, (KeyPart("origin", "text", b"\0"), KeyPart("notification_id")), message)
        for prefix, kind, message in ((_DATA, "notification", "Notification"), (_RESOURCES, "resources", "Resources"))
    ],
    _SHOWN,
)


class Notifications(view.ApplicationView):
    """View of notifications that sites have shown: a row for each, and for its images."""

    title = "Chromium's Platform Notifications: kind, origin, notification_id, title, body, times, value (JSON)"
    directory: ClassVar = "/Platform Notifications"
    own_key: ClassVar = b"(%b|%b).*\0p#.*" % (_DATA, _RESOURCES)
    columns: ClassVar = view.make_columns(
        "kind origin notification_id registration_id:int title body tag time:time timestamp:time value"
    )

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows:
        """Return notifications and images."""
        del context
        stored = _NOTIFICATION_KEYS.read(keys)
        rendered = _SHOWN.render(values, stored.roots)
        columns = {
            "kind": stored.kinds,
            **stored.make_text_columns("origin", "notification_id"),
            "registration_id": rendered.make_integers("registration_id"),
            **rendered.make_text_columns("title", "body", "tag"),
            **{
                name: convert_times(rendered.select_numbers(name), rendered.are_there(name))
                for name in ("time", "timestamp")
            },
            "value": rendered.make_values(),
        }
        return view.PlainRows(rendered.is_plain, columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return the origin and the ID of the key, and a message in protobuf."""
        del context
        prefix = next((prefix for prefix in (_DATA, _RESOURCES) if entry.key.startswith(prefix)), None)
        if prefix is None:
            raise view.UnknownBytesError("a key that is none of a notification's")
        site, end, identifier = entry.key[len(prefix) :].partition(b"\0")
        if not end:
            raise view.UnknownBytesError("a notification without the byte 0 after its origin")
        (origin, wrong), (name, wrong_too) = view.decode_text(site, "utf-8"), view.decode_text(identifier, "utf-8")
        kind, read = ("notification", _read_notification) if prefix == _DATA else ("resources", _read_images)
        row = {"kind": kind, "origin": origin, "notification_id": name}
        return view.make_row(row, wrong or wrong_too, view.read_columns(entry.value, read))


def _read_notification(value: bytes) -> dict[str, Any]:
    """Return columns of a notification: `time` when it was made, `timestamp` as the site says."""
    message, reason = NOTIFICATIONS.read(value, "Notification")
    data = message.get("notification_data")
    content = data if isinstance(data, dict) else {}
    return make_message_columns(message, reason) | {
        "registration_id": find_integer(message, "service_worker_registration_id"),
        **{name: _find_text(content, name) for name in ("title", "body", "tag")},
        "time": view.convert_time(find_integer(message, "creation_time_millis")),
        "timestamp": view.convert_time(find_integer(content, "timestamp")),
    }


_read_images = partial(NOTIFICATIONS.show, name="Resources")
