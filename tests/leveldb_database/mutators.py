"""Changes to the files of databases below their checksums, which are made good again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from sawlog.testing import Mutation, Sample
from sawlog.testing.mutations import changed
from tests.leveldb_log.mutators import MUTATORS as OF_LOGS
from tests.leveldb_table.mutators import MUTATORS as OF_TABLES


def one_file(sample: Sample, dice: Random) -> Mutation:
    """A log, a MANIFEST or a table changed as one alone would be."""
    names = [name for name, data in sorted(sample.content.items()) if data and name != "CURRENT"]
    if not names:
        return Mutation("nothing left", sample.content)
    name = dice.choice(names)
    kind = dice.choice(OF_TABLES if name.endswith((".ldb", ".sst")) else OF_LOGS)
    mutated = kind(replace(sample, files=sample.content[name], file_name=name), dice)
    return changed(sample, name, dict(mutated.files)[name], mutated.label)


MUTATORS = (one_file,)
