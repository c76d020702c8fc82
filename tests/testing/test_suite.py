"""The suite of laws sees what is wrong: of a format that keeps them all, each fault breaks the law that forbids it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sawlog import api
from sawlog.dataset import opening
from sawlog.dataset.dataset import Dataset
from sawlog.format.damage import Report, Verdict
from sawlog.testing import Complaint, Exemption, Laws, Mutation, Sample, Span, check, mutations
from sawlog.testing.mutations import flip
from sawlog.testing.removal import iterate_removals

from . import toy

TEXTS = [b"", b"one", b"two" * 4, b"x" * 40, b"three"]
STARTS = [sum(map(len, map(toy.record, TEXTS[:n]))) for n in range(len(TEXTS))]
ROWS = pa.table({"text": pa.array(TEXTS, pa.binary())})
SAMPLE = Sample(
    "texts",
    "toy",
    b"".join(map(toy.record, TEXTS)),
    "a.toy",
    headers=[Span(start, toy.HEADER) for start in STARTS],
    checked=True,
    rows=ROWS,
    grows=True,
    written=ROWS,
    body=0,
)


class ToyLaws(Laws):
    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [SAMPLE]


OTHER_LAWS = ("test_exemptions_are_documented", "test_removal")  # which a sample of one file has no need of
LAWS = [name.removeprefix("test_") for name in dir(Laws) if name.startswith("test_") and name not in OTHER_LAWS]
SEVERAL = replace(
    SAMPLE, name="several", files={"a.toy": SAMPLE.content["a.toy"], "b.toy": toy.record(b"b")}, rows=None
)


@pytest.fixture(autouse=True)
def register_toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (api, opening):
        monkeypatch.setattr(module, "get_format", lambda _: toy.Toy())
    count_rows, head = Dataset.count_rows, Dataset.head
    monkeypatch.setattr(Dataset, "count_rows", lambda self: count_rows(self) + ("counts one more" in toy.FAULTS))
    monkeypatch.setattr(Dataset, "head", lambda self, n=10: head(self, n + ("head is longer" in toy.FAULTS)))
    monkeypatch.setattr(mutations, "EFFORT", 1.0)
    yield
    toy.FAULTS.clear()


def law(name: str, sample: Sample = SAMPLE, suite: Laws | None = None) -> None:
    getattr(suite or ToyLaws(), f"test_{name}")(sample)


@pytest.mark.parametrize("name", LAWS)
def test_a_format_without_faults_keeps_all_laws(name: str) -> None:
    law(name)


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("fault", "broken", "message"),
    [
        ("loses a row at a cut", "any_fragments", "tasks of 1 bytes: expected 5 rows, found 1"),
        ("counts one more", "same_counts", r"count_rows\(\) is 6, of 5 rows"),
        ("head is longer", "same_counts", r"head\(1\) differs"),
        ("verify is blind", "bits", "skip finds .*bad_record.*verify"),
        ("verify is blind", "every_header_bit", "skip finds"),
        ("fails early", "bits", "fail returns 0 rows, . are before"),
        ("silent", "every_header_bit", "rows instead of 5, and not a word"),
        ("silent", "bits", "other rows, and not a word|not a word"),
        ("forgets the tail", "cuts", "adds up to"),
        ("trusts", "bits", "rows that were not there, under checksums"),
        ("trusts", "splices", "a row that was not there, under checksums"),
        ("leaks", "lying_numbers", "InternalError left.*IndexError"),
        ("hungry", "lying_numbers", "bytes of memory for"),
        ("rereads", "linear_work", "looked at"),
        ("gives up on repair", "repair", "repair gives up, where skip returns 5 rows"),
        ("repairs by copying", "repair", "is not clean|not clean|or others"),
        ("reads tails", "follow", "looks after"),
        ("passes over damage", "follow_damaged", "4 rows, one read gives 3"),
        ("refuses what is verified", "bits", "skip refuses .*, verify returns . rows"),
        ("shortens", "write_and_read_back", "wrote 5 rows, read 5, or others"),
        ("claims everything", "intact", "a text of nobody's format is recognised by its content"),
        ("takes failures for damage", "stores", "a store that .* from then on: "),
    ],
)
def test_each_fault_breaks_its_law(fault: str, broken: str, message: str) -> None:
    toy.FAULTS.add(fault)
    with pytest.raises(AssertionError, match=f"(?s)law {broken}, sample texts: broken .*({message})"):
        law(broken)


@pytest.mark.parametrize("name", ["bits", "splices", "any_fragments", "same_counts", "same_filters", "two_threads"])
def test_what_all_verbs_refuse_once_they_read_is_refused(name: str) -> None:
    toy.FAULTS.add("refuses")
    law(name)


def test_check_tells_what_the_verbs_made_of_a_file_and_where_they_do_not_agree() -> None:
    outcome = check(SAMPLE)
    assert (outcome.rows, outcome.refused, outcome.report.damaged) == (check(SAMPLE, SAMPLE.files).rows, None, False)
    assert [offset for _, offset in outcome.origins or ()] == STARTS
    damaged = bytearray(SAMPLE.content["a.toy"])
    damaged[STARTS[3] + toy.HEADER] ^= 1
    outcome = check(SAMPLE, bytes(damaged))
    assert outcome.table["text"].to_pylist() == TEXTS[:3]
    assert outcome.report.damaged
    for fault, message in (
        ("loses a row at a cut", "tasks of 1 bytes"),
        ("verify is blind", "skip finds"),
        ("repairs by copying", "is not clean"),
    ):
        toy.FAULTS.add(fault)
        with pytest.raises(AssertionError, match=message):
            check(SAMPLE, bytes(damaged))
        toy.FAULTS.clear()


def test_a_sample_that_holds_something_else() -> None:
    other_sample = Sample("other", "toy", SAMPLE.files, "a.toy", rows=ROWS.slice(1))
    with pytest.raises(AssertionError, match="expected 4 rows, found 5"):
        law("intact", other_sample)


def exempting(page: Path | None = None, *exemptions: Exemption) -> Any:
    return type("Exempting", (ToyLaws,), {"exemptions": exemptions, "page": page})()


def test_exemptions_excuse_what_they_are_about_and_nothing_else(tmp_path: Path) -> None:
    toy.FAULTS.add("silent")
    law("every_header_bit", suite=exempting(None, Exemption("every_header_bit", "It is silent.")))
    with pytest.raises(AssertionError, match="not a word"):
        law("every_header_bit", suite=exempting(None, Exemption("bits", "It is silent.")))
    with pytest.raises(AssertionError, match="not a word"):
        law("every_header_bit", suite=exempting(None, Exemption("every_header_bit", "", spans=[SAMPLE.headers[0]])))
    with pytest.raises(AssertionError, match="not a word"):
        law("every_header_bit", suite=exempting(None, Exemption("every_header_bit", "", samples=["another"])))


def test_exemptions_must_be_needed_and_documented(tmp_path: Path) -> None:
    page = tmp_path / "toy.md"
    page.write_text("Much is said,\n  over two lines.")
    with pytest.raises(AssertionError, match=r"exemptions that nothing needs: .*over two"):
        law("bits", suite=exempting(None, Exemption("bits", "said, over two")))
    exempting(page, Exemption("bits", "said, over two lines")).test_exemptions_are_documented()
    for suite in (exempting(page, Exemption("bits", "never said")), exempting(None, Exemption("bits", "said"))):
        with pytest.raises(AssertionError, match="does not say"):
            suite.test_exemptions_are_documented()


def test_a_span_that_was_changed_must_be_covered_whole() -> None:
    exemption = Exemption("bits", "", spans=[Span(3, 2)])
    for bit, excused in ((23, False), (24, True), (39, True), (40, False)):
        complaint = Complaint("", flip(SAMPLE, "a.toy", bit))
        assert exemption.excuses(complaint, SAMPLE) is excused
    assert not exemption.excuses(Complaint("", Mutation("", {})), SAMPLE) or not Mutation("", {}).spans


@pytest.mark.nightly
def test_pytest_runs_each_law_for_each_sample(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from sawlog.testing import Laws, Sample

        class TestMine(Laws):
            @classmethod
            def samples(cls):
                return [Sample(name, "nothing", b"x", checked=True) for name in ("one", "two")]
        """
    )
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    names = [line.partition("::test_")[2] for line in result.outlines if "::test_" in line]
    assert {"bits[one]", "bits[two]", "intact[one]", "any_bytes[two]", "exemptions_are_documented"} <= set(names)
    result = pytester.runpytest_subprocess("-q", "-k", "bits or cuts")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*the sample itself is refused: *unknown format 'nothing'*"])


def test_files_that_nothing_names_break_the_law_of_removal() -> None:
    with pytest.raises(AssertionError, match=r"without a\.toy: 5 of 6 rows are missing, 0 are new, and all is clean"):
        law("removal", SEVERAL)


def test_files_are_taken_away_emptied_cut_and_replaced() -> None:
    earlier = {"a.toy": toy.record(b"old"), "b.toy": SEVERAL.content["b.toy"]}
    files_by_label = {removal.label: removal.files for removal in iterate_removals(replace(SEVERAL, earlier=[earlier]))}
    assert "a.toy" not in files_by_label["without a.toy"]
    assert files_by_label["nothing of b.toy"]["b.toy"] == b""
    assert files_by_label["that of earlier state 0 instead of a.toy"]["a.toy"] == earlier["a.toy"]
    assert "that of earlier state 0 instead of b.toy" not in files_by_label
    sizes = [len(data) for data in SEVERAL.content.values()]
    assert len(files_by_label) == sum(sizes) + 3  # every length, no file at all, and the earlier one


def test_a_verdict_that_passes_over_a_finding_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Report, "verdict", Verdict.CLEAN)
    with pytest.raises(AssertionError, match="the verdict is clean, found was"):
        law("every_header_bit")
