"""The laws of formats, as a suite of tests for any format, and as a fuzzer.

See "The laws of formats" in the documentation.
"""

from sawlog.testing.laws import Complaint, Exemption, Laws, check
from sawlog.testing.outcome import Outcome
from sawlog.testing.sample import Mutation, Sample, Span, Subject, place_sample

__all__ = [
    "Complaint",
    "Exemption",
    "Laws",
    "Mutation",
    "Outcome",
    "Sample",
    "Span",
    "Subject",
    "check",
    "place_sample",
]
