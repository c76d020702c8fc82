"""View of what Chromium syncs: entities of each data type, as protobuf, and metadata on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import call_function, cast, fill_null, make_array, make_constant, view_values
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.protobuf import Messages, find_integer, make_message_columns
from sawlog.leveldb.applications.protobuf_rows import (
    KeyPart,
    KeyPattern,
    KeyPatterns,
    MessageRows,
    convert_times,
    match_texts,
)
from sawlog.leveldb.columns import convert_codes

_KEY = re.compile(rb"(?:([A-Z]+)-)?([a-z][a-z0-9_]*)-(?:(dt|md)-(.*)|GlobalMetadata)", re.DOTALL)
"""Keys: the kind of storage, the data type, whether the entry is an entity or metadata on it, and the entity's key."""
_KINDS = {b"dt": "data", b"md": "metadata", None: "state"}
_STATE_KEY = b"GlobalMetadata"
SCHEMA = b"_mts_schema_descriptor"
_PICKLED = "sessions"
"""The data type whose keys are not text."""
_VERSION = b"DATABASE_METADATA"
"""The key of an entry of a data type that holds its version."""

MESSAGES = Messages("""
InitialSync = INITIAL_SYNC_STATE_UNSPECIFIED||INITIAL_SYNC_PARTIALLY_DONE|INITIAL_SYNC_DONE|INITIAL_SYNC_UNNECESSARY
DeviceType = TYPE_UNSET|TYPE_WIN|TYPE_MAC|TYPE_LINUX|TYPE_CROS|TYPE_OTHER|TYPE_PHONE|TYPE_TABLET
OsType = OS_TYPE_UNSPECIFIED|OS_TYPE_WINDOWS|OS_TYPE_MAC|OS_TYPE_LINUX|OS_TYPE_CHROME_OS_ASH|OS_TYPE_ANDROID|
 OS_TYPE_IOS|OS_TYPE_CHROME_OS_LACROS|OS_TYPE_FUCHSIA
FormFactor = DEVICE_FORM_FACTOR_UNSPECIFIED|DEVICE_FORM_FACTOR_DESKTOP|DEVICE_FORM_FACTOR_PHONE|
 DEVICE_FORM_FACTOR_TABLET|DEVICE_FORM_FACTOR_AUTOMOTIVE|DEVICE_FORM_FACTOR_WEARABLE|DEVICE_FORM_FACTOR_TV
BrowserType = BROWSER_TYPE_UNKNOWN|TYPE_TABBED|TYPE_POPUP|TYPE_CUSTOM_TAB|TYPE_AUTH_TAB
Transition = LINK|TYPED|AUTO_BOOKMARK|AUTO_SUBFRAME|MANUAL_SUBFRAME|GENERATED|AUTO_TOPLEVEL|FORM_SUBMIT|RELOAD|KEYWORD|
 KEYWORD_GENERATED
Password = PASSWORD_STATE_UNKNOWN|NO_PASSWORD_FIELD|HAS_PASSWORD_FIELD
Color = SAVED_TAB_GROUP_COLOR_UNSPECIFIED|SAVED_TAB_GROUP_COLOR_GREY|SAVED_TAB_GROUP_COLOR_BLUE|
 SAVED_TAB_GROUP_COLOR_RED|SAVED_TAB_GROUP_COLOR_YELLOW|SAVED_TAB_GROUP_COLOR_GREEN|SAVED_TAB_GROUP_COLOR_PINK|
 SAVED_TAB_GROUP_COLOR_PURPLE|SAVED_TAB_GROUP_COLOR_CYAN|SAVED_TAB_GROUP_COLOR_ORANGE
Receiving = SEND_TAB_RECEIVING_TYPE_CHROME_OR_UNSPECIFIED|SEND_TAB_RECEIVING_TYPE_CHROME_AND_PUSH_NOTIFICATION
Launch = PINNED|REGULAR|FULLSCREEN|WINDOW
Schema: 1 version_number int
Version: 1 version int
State: 1 progress_marker Progress, 2 type_context Context, 3 encryption_key_name text, 5 cache_guid text,
 6 authenticated_account_id text, 7 invalidations Invalidation*, 8 notes_enabled_before_initial_sync_for_passwords bool,
 9 initial_sync_state InitialSync
Progress: 1 data_type_id int, 2 token bytes, 6 gc_directive Collection
Collection: 1 type int, 2 version_watermark int, 3 age_watermark_in_days int
Context: 1 data_type_id int, 2 context bytes, 3 version int
Invalidation: 1 hint bytes, 2 version int
Metadata: 1 client_tag_hash text, 2 server_id text, 3 is_deleted bool, 4 sequence_number int,
 5 acked_sequence_number int, 6 server_version int, 7 creation_time int, 8 modification_time int,
 9 specifics_hash text, 10 base_specifics_hash text, 11 unique_position Position, 12 bookmark_favicon_hash fixed,
 13 possibly_trimmed_base_specifics Specifics, 14 deleted_by_version text
Position: 1 value bytes, 2 compressed_value bytes, 3 uncompressed_length uint, 4 custom_compressed_v1 bytes
Entity: 8 name text, 21 specifics Specifics
Specifics: 1 encrypted Encrypted, 31729 autofill Fields, 32904 bookmark Bookmark, 37702 preference Preference,
 40781 typed_url Fields, 41210 theme Theme, 45873 password Fields, 47745 nigori Fields, 48119 extension Extension,
 48364 app App, 50119 session Session, 63951 autofill_profile Fields, 88610 search_engine SearchEngine,
 96159 extension_setting ExtensionSetting, 103656 app_setting AppSetting, 150251 history_delete_directive Directive,
 154522 device_info Device, 163425 priority_preference WrappedPreference, 170540 dictionary Word,
 186662 managed_user_setting Preference, 229170 app_list Fields, 306270 autofill_wallet Fields,
 330441 wallet_metadata Fields, 340906 arc_package Fields, 410745 printer Printer, 411028 reading_list ReadingList,
 455206 user_event UserEvent, 556014 user_consent Fields, 600372 security_event Fields,
 601980 send_tab_to_self SendTab, 662827 wifi_configuration Fields, 673225 web_app WebAppSpecifics,
 702141 os_preference WrappedPreference, 703915 os_priority_preference WrappedPreference,
 728866 sharing_message Fields, 774329 autofill_offer Fields, 874841 workspace_desk Fields,
 895275 webauthn_credential Credential, 963985 history Fields, 1004874 saved_tab_group TabGroup,
 1034378 contact_info Fields, 1073150 power_bookmark Fields, 1239418 shared_tab_group_data Fields,
 1281100 cookie Fields
Fields:
Encrypted: 1 key_name text, 2 blob text, 3 blob_v2 bytes, 4 key_id_v2 uint
Bookmark: 1 url text, 2 favicon bytes, 3 legacy_canonicalized_title text, 4 creation_time_us int, 5 icon_url text,
 6 meta_info Pair*, 10 guid text, 11 full_title text, 12 parent_guid text, 13 type UNSPECIFIED|URL|FOLDER
Pair: 1 key text, 2 value text
Preference: 1 name text, 2 value text
WrappedPreference: 1 preference Preference
Theme: 1 use_custom_theme bool, 2 use_system_theme_by_default bool, 3 custom_theme_name text, 4 custom_theme_id text,
 5 custom_theme_update_url text
Extension: 1 id text, 2 version text, 3 update_url text, 4 enabled bool, 5 incognito_enabled bool, 6 name text,
 7 remote_install bool, 8 installed_by_custodian bool, 9 all_urls_enabled bool, 10 disable_reasons int
App: 1 extension Extension, 3 app_launch_ordinal text, 4 page_ordinal text, 5 launch_type Launch,
 6 bookmark_app_url text, 7 bookmark_app_description text, 10 bookmark_app_scope text
SearchEngine: 1 short_name text, 2 keyword text, 3 favicon_url text, 4 url text, 5 safe_for_autoreplace bool,
 6 originating_url text, 7 date_created int, 8 input_encodings text, 10 suggestions_url text, 11 prepopulate_id int,
 17 last_modified int, 18 sync_guid text, 19 alternate_urls text*, 21 image_url text, 22 search_url_post_params text,
 23 suggestions_url_post_params text, 25 image_url_post_params text, 26 new_tab_url text, 27 is_active int,
 28 starter_pack_id int
ExtensionSetting: 1 extension_id text, 2 key text, 3 value text
AppSetting: 1 extension_setting ExtensionSetting
Directive: 1 global_id_directive GlobalIds, 2 time_range_directive TimeRange
GlobalIds: 1 global_id int*, 2 start_time_usec int, 3 end_time_usec int
TimeRange: 1 start_time_usec int, 2 end_time_usec int
Word: 1 word text
Device: 1 cache_guid text, 2 client_name text,
 3 device_type DeviceType,
 4 sync_user_agent text, 5 chrome_version text, 7 signin_scoped_device_id text, 8 last_updated_timestamp int,
 9 feature_fields Features, 10 sharing_fields Sharing, 11 model text, 12 manufacturer text,
 13 pulse_interval_in_minutes int, 14 invalidation_fields Invalidations, 15 paask_fields Fields,
 16 full_hardware_class text, 17 chrome_version_info ChromeVersion, 18 google_play_services_version_info Fields,
 19 os_type OsType,
 20 device_form_factor FormFactor, 21 android_os_build_fingerprint_prefix text
Features: 1 send_tab_to_self_receiving_enabled bool, 2 send_tab_to_self_receiving_type Receiving,
 3 auto_sign_out_last_signin_timestamp_windows_epoch_micros int, 4 desktop_to_ios_promo_receiving_enabled bool,
 5 desktop_to_ios_promo_receiving_types int*, 7 glic_experimental_triggering_state int
Sharing: 4 enabled_features int*, 8 sender_id_fcm_token_v2 text, 9 sender_id_p256dh_v2 bytes,
 10 sender_id_auth_secret_v2 bytes, 11 chime_representative_target_id text
Invalidations: 1 instance_id_token text, 2 interested_data_type_ids int*
ChromeVersion: 1 version_number text
Printer: 1 id text, 2 display_name text, 3 description text, 4 manufacturer text, 5 model text, 6 uri text, 7 uuid text,
 10 updated_timestamp int, 11 make_and_model text
ReadingList: 1 entry_id text, 2 title text, 3 url text, 4 creation_time_us int, 5 update_time_us int,
 6 status UNREAD|READ|UNSEEN, 7 first_read_time_us int, 8 update_title_time_us int, 9 estimated_read_time_seconds int
LocalReadingList: 1 entry_id text, 2 title text, 3 url text, 4 creation_time_us int, 5 update_time_us int,
 6 status UNREAD|READ|UNSEEN, 7 distillation_state WAITING|PROCESSING|PROCESSED|WILL_RETRY|DISTILLATION_ERROR,
 8 distilled_path text, 9 failed_download_counter int, 10 backoff text, 11 first_read_time_us int,
 12 update_title_time_us int, 13 distilled_url text, 14 distillation_time_us int, 15 distillation_size int,
 17 estimated_read_time_seconds int
UserEvent: 1 event_time_usec int, 2 navigation_id int, 3 session_id fixed
LocalSendTab: 1 specifics SendTab
SendTab: 1 title text, 2 url text, 3 shared_time_usec int, 4 device_name text, 5 guid text,
 7 target_device_sync_cache_guid text, 8 opened bool, 9 notification_dismissed bool, 11 navigation Navigation*,
 12 current_navigation_index int, 13 received_time_windows_epoch_micros int, 14 opened_time_windows_epoch_micros int
Credential: 1 sync_id bytes, 2 credential_id bytes, 3 rp_id text, 4 user_id bytes,
 5 newly_shadowed_credential_ids bytes*, 6 creation_time int, 7 user_name text, 8 user_display_name text,
 9 private_key bytes, 11 third_party_payments_support bool, 12 encrypted bytes
LocalTabGroup: 1 version int, 2 specifics TabGroup, 3 local_tab_group_data GroupHere
GroupHere: 1 local_group_id text, 2 created_before_syncing_tab_groups bool,
 4 last_user_interaction_time_windows_epoch_micros int, 5 is_tab_pending_sanitization bool,
 6 originating_tab_group_guid text, 7 is_group_hidden bool
TabGroup: 1 guid text, 2 creation_time_windows_epoch_micros int, 3 update_time_windows_epoch_micros int,
 4 group Group, 5 tab GroupTab, 6 attribution_metadata Attributions
Group: 1 position int, 2 title text, 3 color Color, 4 pinned_position int
GroupTab: 1 group_guid text, 2 position int, 3 url text, 4 title text
Attributions: 1 created Attribution, 2 updated Attribution
Attribution: 1 device_info AttributedDevice
AttributedDevice: 1 cache_guid text
Session: 1 session_tag text, 2 header Header, 3 tab Tab, 4 tab_node_id int
Header: 2 window Window*, 3 client_name text,
 4 device_type DeviceType,
 5 device_form_factor FormFactor, 6 session_start_time_unix_epoch_millis int
Window: 1 window_id int, 2 selected_tab_index int, 3 browser_type BrowserType, 4 tab int*
Tab: 1 tab_id int, 2 window_id int, 3 tab_visual_index int, 4 current_navigation_index int, 5 pinned bool,
 6 extension_app_id text, 7 navigation Navigation*, 8 favicon bytes, 11 favicon_source text,
 13 browser_type BrowserType, 14 last_active_time_unix_epoch_millis int
Navigation: 2 virtual_url text, 3 referrer text, 4 title text, 6 page_transition Transition,
 7 redirect_type |CLIENT_REDIRECT|SERVER_REDIRECT, 8 unique_id int, 9 timestamp_msec int,
 10 navigation_forward_back bool, 11 navigation_from_address_bar bool, 12 navigation_home_page bool, 15 global_id int,
 16 search_terms text, 17 favicon_url text, 20 http_status_code int, 24 last_navigation_redirect_url text,
 25 correct_referrer_policy int, 26 password_state Password, 30 page_language text
WebApp: 1 sync_data WebAppSpecifics, 2 name text, 3 theme_color uint, 4 description text, 5 display_mode int,
 6 scope text, 10 icon_infos Icon*, 15 last_launch_time int, 16 install_time int, 26 launch_query_params text,
 30 manifest_url text, 31 last_badging_time int
WebAppSpecifics: 1 start_url text, 2 name text, 3 user_display_mode UNSPECIFIED|BROWSER||STANDALONE, 4 theme_color uint,
 5 scope text, 6 icon_infos Icon*, 7 user_page_ordinal text, 8 user_launch_ordinal text, 9 manifest_id text
Icon: 1 size_in_px int, 2 url text, 3 purpose UNSPECIFIED|ANY|MASKABLE|MONOCHROME
""")
_SYNCABLE = (
    "preferences priority_preferences os_preferences os_priority_preferences search_engines themes extensions apps "
    "extension_settings app_settings dictionary managed_user_settings history_delete_directives app_list arc_package"
)
_DATA = {
    **dict.fromkeys(_SYNCABLE.split(), "Entity"),
    "device_info": "Device",
    "printers": "Printer",
    "reading_list": "LocalReadingList",
    "saved_tab_group": "LocalTabGroup",
    "send_tab_to_self": "LocalSendTab",
    "sessions": "Session",
    "user_events": "UserEvent",
    "web_apps": "WebApp",
    "webauthn_credential": "Credential",
}
"""Messages of entities by data type; those of others have numbers only."""
_TIMES: Mapping[str, tuple[tuple[str, ...], int, int]] = {
    "device_info": (("last_updated_timestamp",), 1_000, 0),
    "printers": (("updated_timestamp",), 1_000, 0),
    "reading_list": (("update_time_us",), 1, 0),
    "saved_tab_group": (("specifics", "update_time_windows_epoch_micros"), 1, view.EPOCH),
    "send_tab_to_self": (("specifics", "shared_time_usec"), 1, view.EPOCH),
    "sessions": (("tab", "navigation", "timestamp_msec"), 1_000, 0),
    "user_events": (("event_time_usec",), 1, view.EPOCH),
    "web_apps": (("install_time",), 1_000, 0),
    "webauthn_credential": (("creation_time",), 1_000, 0),
}
"""Where entities have a time: the last of a list; its microseconds, and those from its beginning to 1970."""
_ENTITIES = MessageRows(
    MESSAGES,
    {
        "Metadata": {"time": ("modification_time",)},
        **{data_type: {"time": _TIMES[data_type][0]} if data_type in _TIMES else {} for data_type in _DATA},
        **{name: {} for name in ("", "State", "Version", "Schema")},
    },
    _DATA,
)
_ENTITY_KEYS = KeyPatterns(
    [
        KeyPattern(SCHEMA, "schema", (), "Schema"),
        *(
            KeyPattern(
                f"{_PICKLED}-{form}-".encode(),
                _KINDS[form.encode()],
                (KeyPart("size", "size"), KeyPart("key", "pickled"), KeyPart("node", "int32")),
                message,
            )
            for form, message in (("dt", _PICKLED), ("md", "Metadata"))
        ),
        KeyPattern(b"", "", (KeyPart("data_type", "name", b"-"), KeyPart("form", "ascii", b"-"), KeyPart("key"))),
        KeyPattern(b"", "", (KeyPart("data_type", "name", b"-"), KeyPart("form", "ascii"))),
    ],
    _ENTITIES,
)
_NEITHER, _OTHER = (k.UNREAD, 1, 0), (_ENTITIES.nodes[""], 1, 0)
_READINGS = {**{name: (_ENTITIES.nodes[name], *_TIMES.get(name, ((), 1, 0))[1:]) for name in _DATA}, _PICKLED: _NEITHER}
"""By data type: the number of the message of its entities, and unit and beginning of the time in it."""


class SyncData(view.ApplicationView):
    """View of the database of entities that are synced: a row per entity, metadata on it, or state of a data type."""

    title = "Chromium's Sync Data: kind, storage, data_type, key, time, value (JSON)"
    directory: ClassVar = "/Sync Data/LevelDB"
    own_key: ClassVar = SCHEMA
    columns: ClassVar = view.make_columns("kind storage data_type key time:time value")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows:
        """Return all that is without the kind of a storage."""
        del context
        stored = _ENTITY_KEYS.read(keys)
        data_types, names = (stored.make_texts(name) for name in ("data_type", "key"))
        forms = stored.find_texts("form")
        encoded = call_function("dictionary_encode", data_types)
        types = encoded.dictionary.to_pylist()
        type_places = view_values(fill_null(encoded.indices, len(types)), np.int32)
        # A name begins with a letter, and what comes after the last one is not read.
        are_names = np.array([*(name[:1].isalpha() for name in types), False])
        nodes, units, epochs = np.array(
            [*(_READINGS.get(name, _OTHER if name[:1].isalpha() else _NEITHER) for name in types), _NEITHER], np.int64
        )[type_places].T
        are_metadata, are_schemas = match_texts(forms, b"md"), stored.are_of("schema")
        have_keys, has_node = stored.are_there("key"), stored.are_there("node")
        are_entities = (are_metadata | match_texts(forms, b"dt")) & have_keys & (nodes != k.UNREAD)
        are_states = match_texts(forms, _STATE_KEY) & ~have_keys & are_names[type_places]
        roots = np.where(are_entities, np.where(are_metadata, _ENTITIES.nodes["Metadata"], nodes), stored.roots)
        roots[are_entities & match_texts(stored.find_texts("key"), _VERSION)] = _ENTITIES.nodes["Version"]
        roots[are_states] = _ENTITIES.nodes["State"]
        rendered = _ENTITIES.render(values, roots)
        are_metadata |= stored.are_of(_KINDS[b"md"])
        units, epochs = np.where(are_metadata | has_node, 1_000, units), np.where(are_metadata | has_node, 0, epochs)
        if has_node.any():
            tabs = call_function(
                "binary_join_element_wise", names, cast(stored.make_integers("node"), pa.string()), ":"
            )
            names = call_function("coalesce", tabs, names)
            tab_types = make_constant(_PICKLED, pa.string(), len(keys))
            data_types = call_function("if_else", make_array(has_node, pa.bool_()), tab_types, data_types)
        kinds = np.where(are_states, 2, np.where(are_schemas, 3, are_metadata))
        columns = {
            "kind": convert_codes(kinds, (*_KINDS.values(), "schema")),
            "data_type": data_types,
            "key": names,
            "time": convert_times(rendered.select_numbers("time"), rendered.are_there("time"), units, epochs),
            "value": rendered.make_values(),
        }
        return view.PlainRows(rendered.is_plain, columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return a key of several parts; a message in protobuf."""
        del context
        if entry.key == SCHEMA:
            return {"kind": "schema"} | view.read_columns(entry.value, partial(MESSAGES.show, name="Schema"))
        match = _KEY.fullmatch(entry.key)
        if match is None:
            raise view.UnknownBytesError("a key that is neither of an entity (-dt-, -md-) nor of a data type's state")
        storage, data_type, kind, stored = match.groups()
        name = data_type.decode("ascii")
        key, wrong = (None, None) if stored is None else _decode_key(name, stored)
        row = {"kind": _KINDS[kind], "storage": storage and storage.decode("ascii"), "data_type": name, "key": key}
        if kind is None:
            return row | view.read_columns(entry.value, partial(MESSAGES.show, name="State"))
        if stored == _VERSION:
            return row | view.read_columns(entry.value, partial(MESSAGES.show, name="Version"))
        return view.make_row(
            row, wrong, view.read_columns(entry.value, partial(_read_data, name) if kind == b"dt" else _read_metadata)
        )


def _decode_key(data_type: str, stored: bytes) -> tuple[str, str | None]:
    """Return the text of an entity's key; of a session, its tag and the number of a tab, with a colon between them."""
    if data_type != _PICKLED:
        return view.decode_text(stored, "utf-8")
    cursor = view.Cursor(stored)
    try:
        cursor.take_unsigned(4)  # bytes that follow
        length = cursor.take_unsigned(4)
        tag, wrong = view.decode_text(cursor.take(length, "tag"), "utf-8")
        cursor.take(-length % 4, "padding")
        node = int.from_bytes(cursor.take(4, "number"), "little", signed=True)
        cursor.check_end()
    except view.UnknownBytesError as unknown:
        return view.decode_text(stored, "utf-8")[0], f"key: {unknown}"
    return f"{tag}:{node}", wrong


def _read_metadata(value: bytes) -> dict[str, Any]:
    message, reason = MESSAGES.read(value, "Metadata")
    return make_message_columns(message, reason) | {
        "time": view.convert_time(find_integer(message, "modification_time"), 1_000, 0)
    }


def _read_data(data_type: str, value: bytes) -> dict[str, Any]:
    """Return an entity, and its time."""
    message, reason = MESSAGES.read(value, _DATA.get(data_type, ""))
    path, unit, epoch = _TIMES.get(data_type, ((), 1, view.EPOCH))
    return make_message_columns(message, reason) | {
        "time": view.convert_time(find_integer(message, *path), unit, epoch)
    }
