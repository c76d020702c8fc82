"""Law 9: what is far away and fails gives all rows, or an error that says so."""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sawlog import api
from sawlog.errors import InternalError, SawlogError, StorageError
from sawlog.format.damage import OnDamage
from sawlog.storage import confirm_files
from sawlog.storage.names import HIDDEN
from sawlog.testing.mutations import EFFORT, count_changes, make_random
from sawlog.testing.outcome import list_places, read_rows, render_rows
from sawlog.testing.sample import Sample, Subject, make_scratch
from sawlog.testing.stores import FAULTS, cause_trouble, store_files

Answer = Any
"""What a verb says, to be compared."""


def _answer_fragments(url: str, options: dict[str, Any]) -> Answer:
    dataset = api.open(url, on_damage="skip", **options)
    table, findings = read_rows(dataset)
    confirm_files(dataset.scan.storage)
    return render_rows(table), [place for all_findings in findings for place in list_places(all_findings.damages)]


def _answer_table(url: str, options: dict[str, Any], policy: OnDamage) -> Answer:
    return render_rows(api.open(url, on_damage=policy, **options).to_table())


def _answer_verify(url: str, options: dict[str, Any]) -> Answer:
    reports = api.open(url, on_damage="skip", **options).verify()
    return [(report.path, report.rows, report.account, list_places(report.damages)) for report in reports]


def _answer_watch(url: str, options: dict[str, Any]) -> Answer:
    watch = api.open(url, on_damage="skip", **options).watch()
    return [row for batch in watch.look() for row in render_rows(pa.Table.from_batches([batch]))], watch.positions


def _answer_filtered(url: str, options: dict[str, Any]) -> Answer:
    """Return rows by a filter on the first column that has one."""
    dataset = api.open(url, on_damage="skip", **options)
    names = dataset.schema.names
    dataset = dataset.with_projection(filter=pc.field(names[0]).is_valid() if names else None)
    return render_rows(dataset.to_table()), dataset.count_rows()


def _answer_repair(url: str, all_options: dict[str, Any]) -> Answer:
    """Return the files that `repair` writes; nothing of them is there when it fails."""
    options = {key: value for key, value in all_options.items() if key != "view"}
    return _answer_write(
        lambda target: [(file.rows, list_places(file.damages)) for file in api.repair(url, target, **options).files]
    )


def _answer_write(write: Callable[[str], Answer]) -> Answer:
    """Return an answer, and the files that a verb has written for it."""
    with make_scratch() as directory:
        target = Path(directory, "repaired")
        try:
            answer = write(str(target))
        except SawlogError:
            remnants = [
                str(path)
                for path in (target, *target.rglob("*"))
                if path.is_file() and not path.name.startswith(HIDDEN)
            ]
            if remnants:
                raise AssertionError(f"a command that fails has written {remnants}") from None
            raise
        files = [target] if target.is_file() else sorted(path for path in target.rglob("*") if path.is_file())
        return answer, [(str(path.relative_to(directory)), path.read_bytes()) for path in files]


def _run_command(verb: str, url: str, all_options: dict[str, Any], *arguments: str) -> Answer:
    from sawlog.cli import main

    options = {key: value for key, value in all_options.items() if key not in ("format", "view")}
    words = [verb, url, *arguments, "--format", all_options["format"], "--json"]
    words += ["--view", all_options["view"]] if verb == "cat" else []
    for key, value in options.items():
        words += ["-o", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    printed, complained = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        code = main(words)
    if code == 70:
        raise InternalError(complained.getvalue()[-400:])
    if code == 2:
        raise StorageError(complained.getvalue())
    printed.flush()
    return code, printed.buffer.getvalue()


_VERBS: dict[str, Callable[[str, dict[str, Any]], Answer]] = {
    "fail": lambda url, options: _answer_table(url, options, "fail"),
    "skip": lambda url, options: _answer_table(url, options, "skip"),
    "fragments": _answer_fragments,
    "head": lambda url, options: render_rows(api.open(url, on_damage="skip", **options).head(3)),
    "count_rows": lambda url, options: api.open(url, on_damage="skip", **options).count_rows(),
    "a filter": _answer_filtered,
    "verify": _answer_verify,
    "the damage view": lambda url, options: render_rows(api.open(url, **{**options, "view": "damage"}).to_table()),
    "repair": _answer_repair,
    "watch": _answer_watch,
    "sawlog verify": lambda url, options: _run_command("verify", url, options),
    "sawlog cat": lambda url, options: _run_command("cat", url, options),
    "sawlog info": lambda url, options: _run_command("info", url, options),
    "sawlog repair": lambda url, options: _answer_write(lambda target: _run_command("repair", url, options, target)[0]),
}
_OF_SOME: dict[str, Callable[[Sample], bool]] = {
    "watch": lambda sample: sample.grows,
    "repair": lambda sample: sample.repaired != "no",
    "sawlog repair": lambda sample: sample.repaired != "no",
}
"""Verbs that not all samples have."""


_VERBS_PER_SAMPLE = 3
"""Verbs that a sample is read with, about."""
_FEW_REQUESTS = 64
"""Requests of a verb of which each is tried with `--all`."""


def _deal_verbs(samples: Sequence[Sample], sample: Sample) -> list[str]:
    """Return the verbs that a sample is read with: some of those that there are, and all of them over all samples."""
    verbs = []
    for number, verb in enumerate(_VERBS):
        takers = [candidate for candidate in samples if verb not in _OF_SOME or _OF_SOME[verb](candidate)]
        step = min(len(takers), max(1, round(len(_VERBS) / (_VERBS_PER_SAMPLE * EFFORT))))
        if sample in takers and (takers.index(sample) - number) % step == 0:
            verbs.append(verb)
    return verbs


def check_stores(samples: Sequence[Sample], subject: Subject) -> Iterator[str]:
    """Yield complaints where a store that fails or changes at a request makes answers wrong, and nobody says so."""
    changed_files = {  # of the same size and beginning: a read of one cannot go on with the other
        name: data[: len(data) // 2] + bytes(byte ^ 0x55 for byte in data[len(data) // 2 :])
        for name, data in subject.files.items()
    }
    options = {"format": subject.sample.format, "view": subject.sample.view, **subject.options}
    for number, verb in enumerate(_deal_verbs(samples, subject.sample)):
        ask, is_whole = _VERBS[verb], number % 2 == 1
        with store_files(subject.files, {}, is_whole=is_whole) as root:
            url = root + subject.path.removeprefix(subject.directory)
            with cause_trouble() as trouble:
                expected, count = _try_answer(ask, url, options), trouble.request_count
            if isinstance(expected, StorageError) and verb.startswith("sawlog "):
                continue  # which takes no options of other views
            if isinstance(expected, StorageError):
                yield f"a store that is well: {verb}: {_show(expected)}"
                continue
            for fault, first, lasting in _choose_faults(subject, verb, count):
                with cause_trouble(fault, first, lasting=lasting):
                    answer = _try_answer(ask, url, options)
                if answer == expected or (lasting and isinstance(answer, StorageError)):
                    continue
                times = "from then on" if lasting else "once"
                yield f"a store that {fault} at request {first} of {count}, {times}: {verb}: {_show(answer)}"
        requests: Sequence[int] = range(1, count + 1)
        if EFFORT < 1 or count > _FEW_REQUESTS:
            requests = sorted({first for _, first, _ in _choose_faults(subject, verb, count)})
        for first in requests:
            with store_files(subject.files, changed_files, is_whole=is_whole) as root:
                url = root + subject.path.removeprefix(subject.directory)
                with cause_trouble("changes", first):
                    answer = _try_answer(ask, url, options)
                with cause_trouble():
                    after = _try_answer(ask, url, options)
            if verb == "watch" and isinstance(answer, tuple) and not answer[1]["files"]:
                continue  # nothing was read: the next look may
            if not isinstance(answer, StorageError) and _strip_places(answer) not in (
                _strip_places(expected),
                _strip_places(after),
            ):
                yield f"objects that are replaced at request {first} of {count}: {verb}: {_show(answer)}"


def _choose_faults(subject: Subject, verb: str, requests: int) -> Iterator[tuple[str, int, bool]]:
    """Yield faults, the requests at which they occur, and whether they last."""
    dice = make_random(subject.sample.name, verb)
    for fault in FAULTS:
        for _ in range(count_changes(subject.sample, 1) if requests else 0):
            yield fault, dice.randint(1, requests), dice.random() < 0.5


def _try_answer(ask: Callable[[str, dict[str, Any]], Answer], url: str, options: dict[str, Any]) -> Answer:
    """Return the answer of a verb; refusals as text, and faults of the store as the errors they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ask(url, options)
        except StorageError as error:
            return error
        except InternalError:
            raise
        except SawlogError as error:
            return f"{type(error).__name__}: {error}"


def _strip_places(answer: Answer) -> str:
    return re.sub(r"hostile://?/?\d+", "", repr(answer))


def _show(answer: Answer) -> str:
    return repr(answer)[:300]
