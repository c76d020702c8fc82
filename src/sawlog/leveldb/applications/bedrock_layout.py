"""Every number of Minecraft Bedrock's worlds: keys, tags of NBT, subchunks."""

from __future__ import annotations

from collections.abc import Mapping

CHUNK_SIZES = (9, 10, 13, 14)
"""Of keys of chunks: x and z, then the dimension if it is not the overworld, a tag, and the height of a subchunk."""
PLACE_SIZE = 8
"""Of x and z."""
DIMENSION_SIZE = 4
SUBCHUNK = 47
ACTOR, DIGEST = b"actorprefix", b"digp"
"""How keys of actors begin, before a number of 8 bytes, and of lists of a chunk's actors, before its place."""
ACTOR_SIZE = 8
HASH_SIZE = 8
DICTIONARY = "LevelChunkMetaDataDictionary"
BLOCKS = 16**3
WORD_BITS = 32
BLOCK_BITS = (0, 1, 2, 3, 4, 5, 6, 8, 16)
"""How many bits the number of a block has; with none, there is one kind of blocks only."""
VERSIONS = (1, 8, 9)
"""Of subchunks: from 8 on they have several layers, from 9 on a height."""
WORLD_CHUNKS = 30_000_000 // 16
"""How far from its middle a world has chunks: 30 million blocks."""

NUMBERS = {1: "b", 2: "<h", 3: "<i", 4: "<q", 5: "<f", 6: "<d"}
"""Tags of NBT that are numbers, as `struct` has them."""
BYTES, TEXT, LIST, COMPOUND = 7, 8, 9, 10
ARRAYS = {BYTES: "b", 11: "<i", 12: "<q"}
"""Tags of NBT that are a count and numbers."""
NAMES = frozenset(
    {
        "~local_player",
        "AutonomousEntities",
        "BiomeData",
        "BiomeIdsTable",
        DICTIONARY,
        "Nether",
        "Overworld",
        "TheEnd",
        "game_flatworldlayers",
        "mVillages",
        "mobevents",
        "portals",
        "schedulerWT",
        "scoreboard",
    }
)
"""Keys of what is not of a chunk."""
PREFIXES = ("player_", "map_", "VILLAGE_", "tickingarea_", "structuretemplate_", "dimension")

TAGS: Mapping[int, tuple[str, str]] = {
    43: ("Data3D", ""),
    44: ("Version", "number"),
    45: ("Data2D", ""),
    46: ("Data2DLegacy", ""),
    SUBCHUNK: ("SubChunkPrefix", "subchunk"),
    48: ("LegacyTerrain", ""),
    49: ("BlockEntity", "roots"),
    50: ("Entity", "roots"),
    51: ("PendingTicks", "roots"),
    52: ("LegacyBlockExtraData", ""),
    53: ("BiomeState", ""),
    54: ("FinalizedState", "number"),
    55: ("ConversionData", ""),
    56: ("BorderBlocks", ""),
    57: ("HardcodedSpawners", ""),
    58: ("RandomTicks", "roots"),
    59: ("Checksums", ""),
    60: ("GenerationSeed", "number"),
    61: ("GeneratedPreCavesAndCliffsBlending", "number"),
    62: ("BlendingBiomeHeight", ""),
    63: ("MetaDataHash", "number"),
    64: ("BlendingData", ""),
    65: ("ActorDigestVersion", "number"),
    118: ("LegacyVersion", "number"),
}
"""Contents of a chunk, by tag: what they are, and what the value is: nothing where it is not decoded."""
