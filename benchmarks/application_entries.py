"""Entries of databases of applications, drawn, for `application_views`."""

from __future__ import annotations

from itertools import cycle
from operator import xor
from random import Random
from struct import pack
from typing import Any

from sawlog.kernels.varints import encode_varint
from sawlog.leveldb.applications import bedrock_layout as bedrock
from sawlog.leveldb.applications import bitcoin_layout as bitcoin
from sawlog.leveldb.applications import indexed_db_layout as script
from sawlog.leveldb.applications.chromium_services import SHARED, SITES
from sawlog.leveldb.applications.chromium_workers import NOTIFICATIONS
from sawlog.leveldb.applications.protobuf import FIXED32, FIXED64, VARINT, Field, Messages

Entry = tuple[bytes, bytes]
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "new", "message", "from", "friend")
SERVICES = {
    38: ("SignalDatabase", 40),
    19: ("StrikeService", 10),
    37: ("SegmentInfoDatabase", 15),
    4: ("FeatureEngagementTrackerAvailabilityStore", 10),
    3: ("FeatureEngagementTrackerEventStore", 10),
    21: ("DownloadDB", 10),
    32: ("CartDatabase", 5),
}
"""Services that share a database, by number: their messages, and of a hundred how many."""
INDEXED_DB_NAMES = {
    bytes(4) + b"\xc9\x04" + "site".encode("utf-16-be") + b"\x04" + "base".encode("utf-16-be"): b"\1",
    bytes([0, 1, 0, 0, 50, 1, 0]): "store".encode("utf-16-be"),
}
"""The database with the ID 1, and its object store."""
TABS = {b"namespace-%036d-https://site%d.example" % (number, number): b"%d" % number for number in range(50)}
"""Tabs, and the numbers of the maps with their items."""
OBFUSCATION_KEY = bytes.fromhex("b12dcefd8f872536")
SCRIPTS = {
    bitcoin.SPECIAL + 22: (22, 35),
    bitcoin.SPECIAL + 34: (34, 25),
    bitcoin.P2PKH: (bitcoin.SCRIPT_HASH_SIZE, 25),
    bitcoin.P2SH: (bitcoin.SCRIPT_HASH_SIZE, 13),
    bitcoin.P2PK[0]: (bitcoin.PUBLIC_KEY_SIZE, 2),
}
"""How scripts are compressed: the bytes behind that, and of a hundred coins how many."""


def draw_text(dice: Random, most_words: int = 12) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(0, most_words)))


def draw_item(dice: Random, number: int) -> Entry:
    """An item of a page; every twentieth entry is the time and the size of a page's items."""
    site = b"https://site%d.example" % (number // 20)
    if number % 20 == 0:
        return b"META:" + site, b"\x08" + encode_varint(10**16 + number) + b"\x10" + encode_varint(number)
    text = f'{{"id":{number},"text":"{draw_text(dice)}"}}'
    value = b"\0" + text.encode("utf-16-le") if number % 5 == 0 else b"\1" + text.encode("latin-1")
    return b"_%b\0\1item-%d" % (site, number), value


def draw_session_item(dice: Random, number: int) -> Entry:
    return b"map-%d-item-%d" % (number % len(TABS), number), draw_text(dice).encode("utf-16-le")


def draw_record(dice: Random, number: int) -> Entry:
    """A record of IndexedDB, or that it exists."""
    record, place = divmod(number, 2)
    name = f"record-{record:08}"
    value = encode_varint(record) + (b"" if place else draw_script_value(dice, record))
    index = script.EXISTS if place else script.RECORD
    return bytes([0, 1, 1, index, script.STRING, len(name)]) + name.encode("utf-16-be"), value


def draw_site(dice: Random, number: int) -> Entry:
    return b"%032x" % dice.getrandbits(128), draw_message(dice, SITES, "Site")


def draw_shared_message(dice: Random, number: int) -> Entry:
    (service,) = dice.choices(list(SERVICES), [share for _, share in SERVICES.values()])
    name, _ = SERVICES[service]
    signal = dice.choice(b"ueh").to_bytes(8, "little") + pack(">QQQ", dice.getrandbits(64), number, number)
    key = signal if name == "SignalDatabase" else b"key%d" % number
    return b"%d_%b" % (service, key), draw_message(dice, SHARED, name)


def draw_notification(dice: Random, number: int) -> Entry:
    site = b"https://site%d.example" % dice.randrange(500)
    return b"DATA:%b\0p#%b/#0%d" % (site, site, number), draw_message(dice, NOTIFICATIONS, "Notification")


def draw_message(dice: Random, messages: Messages, name: str) -> bytes:
    """A message of protobuf with every field that is declared, and up to three of each that is repeated."""
    message = b""
    for number, field in messages.fields[name].items():
        for _ in range(dice.randint(0, 3) if field.is_repeated else 1):
            message += encode_varint(number << 3 | field.wires[0]) + draw_field(dice, messages, field)
    return message


def draw_field(dice: Random, messages: Messages, field: Field) -> bytes:
    wire = field.wires[0]
    if wire == VARINT:
        limits = {"bool": 2, "enum": len(field.values)}
        limit = 10**15 if "time" in field.name else 10 ** dice.randint(1, 9)
        return encode_varint(dice.randrange(limits.get(field.kind, limit)))
    if wire in (FIXED32, FIXED64):
        return pack("<f" if wire == FIXED32 else "<d", dice.random() * 1e6)
    if field.kind == "script":
        value = draw_script_value(dice, dice.randrange(10**6))
    elif field.kind == "path":
        path = b"/home/user/Downloads/%011d" % dice.randrange(10**9)
        value = pack("<II", 4 + len(path), len(path)) + path
    elif field.kind in messages.fields:
        value = draw_message(dice, messages, field.kind)
    else:
        value = draw_text(dice, 2).encode()
    return encode_varint(len(value)) + value


def draw_script_value(dice: Random, number: int) -> bytes:
    """An object, after the versions of Blink and V8."""
    value = {"id": number, "name": draw_text(dice, 3), "seen": number % 3 == 0, "score": dice.random()}
    head = bytes([script.VERSION_TAG, 21, script.TRAILER_TAG]) + bytes(script.TRAILER_SIZE)
    nested = {"url": f"https://example.com/{number}", "place": {"row": number % 80, "text": draw_text(dice, 6)}}
    return head + bytes([script.VERSION_TAG, 16]) + encode_script_value(value | nested)


def encode_script_value(value: Any) -> bytes:
    if isinstance(value, dict):
        parts = b"".join(encode_script_value(part) for item in value.items() for part in item)
        return bytes([script.OBJECT_TAG]) + parts + bytes([script.OBJECT_END_TAG]) + encode_varint(len(value))
    if isinstance(value, bool):
        return bytes([script.TRUE_TAG if value else script.FALSE_TAG])
    if isinstance(value, int):
        return bytes([script.INT_TAG]) + encode_varint(2 * value)
    if isinstance(value, float):
        return bytes([script.DOUBLE_TAG]) + pack("<d", value)
    return bytes([script.LATIN_1_TAG]) + encode_varint(len(value)) + value.encode("latin-1")


def draw_part_of_world(dice: Random, number: int) -> Entry:
    """Of ten entries four are subchunks, two actors, two lists of items, the others a list of actors and a number."""
    kind, place = number % 10, pack("<ii", number // 10 % 300, number // 3000)
    if kind < 4:
        bits = dice.randint(1, 3)
        words = dice.randbytes(4 * -(-bedrock.BLOCKS // (bedrock.WORD_BITS // bits)))
        palette = [encode_root({"name": f"minecraft:{name}", "version": 18_163_713}) for name in WORDS[: 1 << bits]]
        value = bytes([9, 1, kind, bits << 1]) + words + pack("<I", len(palette)) + b"".join(palette)
        return place + bytes([bedrock.SUBCHUNK, kind]), value
    if kind < 6:
        names = ("health", "movement", "follow_range", "luck")
        flags = ("OnGround", "IsBaby", "Invulnerable", "Sheared", "Sitting")
        actor: dict[str, Any] = dict.fromkeys(flags, number & 1 == 0)
        actor |= {"identifier": "minecraft:cow", "Air": 300, "Pos": [dice.random() * 1000 for _ in range(3)]}
        actor |= {"Attributes": [{"Base": 20.0, "Current": dice.random(), "Name": name} for name in names]}
        return bedrock.ACTOR + number.to_bytes(bedrock.ACTOR_SIZE, "big"), encode_root(actor)
    if kind < 8:
        items = [{"Count": True, "Damage": 0, "Name": "minecraft:coal", "Slot": slot} for slot in range(kind)]
        return place + bytes([43 + kind]), encode_root({"id": "Chest", "Items": items, "x": number, "y": 64})
    if kind == 8:
        return bedrock.DIGEST + place, dice.randbytes(bedrock.ACTOR_SIZE * dice.randint(1, 4))
    return place + bytes([54]), pack("<I", 2)


def encode_root(value: Any, name: str = "") -> bytes:
    """A tag of NBT with a name."""
    kind, data = encode_tag(value)
    return bytes([kind]) + encode_tag(name)[1] + data


def encode_tag(value: Any) -> tuple[int, bytes]:
    """A tag of NBT: its type, and its bytes."""
    if isinstance(value, dict):
        return bedrock.COMPOUND, b"".join(encode_root(part, name) for name, part in value.items()) + b"\0"
    if isinstance(value, list):
        tags = [encode_tag(item) for item in value]
        return bedrock.LIST, bytes([tags[0][0]]) + pack("<i", len(tags)) + b"".join(data for _, data in tags)
    if isinstance(value, str):
        return bedrock.TEXT, pack("<H", len(value)) + value.encode("ascii")
    kind = 1 if isinstance(value, bool) else 5 if isinstance(value, float) else 3
    return kind, pack(bedrock.NUMBERS[kind], value)


def draw_block(dice: Random, number: int) -> Entry:
    """A block of Bitcoin's; every two hundredth entry is a file of blocks."""
    if number % 200 == 0:
        return bitcoin.FILE + pack("<I", number // 200), encode_numbers(200, 2**27, 2**24, number, number + 200, 9, 9)
    status = 133 | bitcoin.HAVE_DATA | bitcoin.HAVE_UNDO
    place = number // 200, dice.randrange(2**27), dice.randrange(2**24)
    previous, merkle_root = dice.randbytes(bitcoin.HASH_SIZE), dice.randbytes(bitcoin.HASH_SIZE)
    header = bitcoin.HEADER.pack(2**29, previous, merkle_root, 1_231_006_505 + number, 0x17034219, dice.getrandbits(32))
    value = encode_numbers(259_900, number, status, dice.randrange(4000), *place) + header
    return bitcoin.BLOCK + dice.randbytes(bitcoin.HASH_SIZE), value


def draw_coin(dice: Random, number: int) -> Entry:
    (kind,) = dice.choices(list(SCRIPTS), [share for _, share in SCRIPTS.values()])
    size, _ = SCRIPTS[kind]
    amount = dice.randrange(10 ** dice.randint(2, 10))
    value = encode_numbers(2 * dice.randrange(900_000), amount, kind) + dice.randbytes(size)
    key = bitcoin.COIN + dice.randbytes(bitcoin.HASH_SIZE) + encode_numbers(number % 7)
    return key, bytes(map(xor, value, cycle(OBFUSCATION_KEY)))


def encode_numbers(*numbers: int) -> bytes:
    """Numbers of Bitcoin's: seven bits per byte, high ones first, each byte but the last less than it says by 1."""
    out = bytearray()
    for number in reversed(numbers):
        out.append(number & 127)
        high = number >> 7
        while high:
            high -= 1
            out.append(high & 127 | 128)
            high >>= 7
    return bytes(reversed(out))
