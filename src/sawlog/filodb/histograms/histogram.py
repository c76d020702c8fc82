"""Single histograms: buckets, cumulative values, the blobs they are stored as, quantiles. Section 8 of the format."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sawlog.errors import FormatError, SchemaError
from sawlog.filodb import layout
from sawlog.filodb.hashing import render_java_double
from sawlog.filodb.histograms import nibblepack
from sawlog.filodb.layout import HistogramFormat

_GEOMETRIC = struct.Struct("<Hdd")
_EXPONENTIAL = struct.Struct("<HhiHiH")

BucketKind = Literal["geometric", "geometric_1", "custom", "exponential", "empty"]

_FORMATS: dict[HistogramFormat, tuple[BucketKind, bool]] = {
    HistogramFormat.EMPTY: ("empty", False),
    HistogramFormat.GEOMETRIC_DELTA: ("geometric", False),
    HistogramFormat.GEOMETRIC_1_DELTA: ("geometric_1", False),
    HistogramFormat.CUSTOM_DELTA: ("custom", False),
    HistogramFormat.EXPONENTIAL_DELTA: ("exponential", False),
    HistogramFormat.GEOMETRIC_XOR: ("geometric", True),
    HistogramFormat.CUSTOM_XOR: ("custom", True),
    HistogramFormat.EXPONENTIAL_XOR: ("exponential", True),
}
_CODES = {meaning: code for code, meaning in _FORMATS.items()}


def parse_format_code(code: int) -> tuple[BucketKind, bool]:
    """Return the kind of buckets that a format code says, and whether values are stored as doubles.

    Raises:
        FormatError: For a code that is none.
    """
    try:
        return _FORMATS[HistogramFormat(code)]
    except ValueError as error:
        raise FormatError(f"histogram: unknown format code {code}") from error


def choose_format_code(kind: BucketKind, *, xor: bool) -> int:
    """Return the format code of a kind of buckets; where values cannot be stored as doubles, that of whole numbers."""
    return _CODES.get((kind, xor), _CODES[kind, False])


@dataclass(frozen=True)
class Buckets:
    """Buckets of a histogram, by where they end. Made by `geometric`, `custom`, `exponential` or `empty`.

    Attributes:
        kind: How they are defined.
        tops: The upper edge of each bucket.
        definition: The definition as it is stored, without its length.
    """

    kind: BucketKind
    tops: tuple[float, ...]
    definition: bytes = field(repr=False)

    @classmethod
    def geometric(cls, first: float, multiplier: float, count: int, *, minus_one: bool = False) -> Buckets:
        """Return buckets with the tops `first * multiplier**i`, each less one if `minus_one`."""
        _check_count(count, layout.MAX_BUCKETS)

        from sawlog.filodb.kernels.histograms import compute_geometric_tops

        tops = np.zeros(count)
        with np.errstate(all="ignore"):
            compute_geometric_tops(float(first), float(multiplier), 1.0 if minus_one else 0.0, tops)
        kind: BucketKind = "geometric_1" if minus_one else "geometric"
        return cls(kind, tuple(tops.tolist()), _GEOMETRIC.pack(count, first, multiplier))

    @classmethod
    def custom(cls, tops: Sequence[float]) -> Buckets:
        """Return buckets with any tops, in ascending order; usually the last is infinite."""
        _check_count(len(tops), layout.MAX_BUCKETS - 1)
        if any(not after > before for before, after in itertools.pairwise(tops)):
            raise SchemaError("histogram: the tops of custom buckets must ascend")
        definition = len(tops).to_bytes(2, "little") + nibblepack.pack_doubles(tops)
        return cls("custom", tuple(map(float, tops)), definition)

    @classmethod
    def exponential(cls, scale: int, start: int, positive: int) -> Buckets:
        """Return OpenTelemetry's: one for zero, then tops `base**(start + i)` for i from 1, base `2**(2**-scale)`."""
        if abs(scale) > layout.MAX_SCALE:
            raise SchemaError(f"histogram: scale {scale}; expected -{layout.MAX_SCALE} to {layout.MAX_SCALE}")
        if not 0 <= positive <= layout.MAX_EXPONENTIAL:
            raise SchemaError(f"histogram: {positive} positive buckets; expected 0 to {layout.MAX_EXPONENTIAL}")

        from sawlog.filodb.kernels.histograms import compute_exponential_tops

        tops = np.zeros(positive + 1)
        compute_exponential_tops(scale, start, tops)
        return cls("exponential", tuple(tops.tolist()), _EXPONENTIAL.pack(positive + 1, scale, start, positive, 0, 0))

    @classmethod
    def empty(cls) -> Buckets:
        """Return the buckets of a histogram that has none."""
        return cls("empty", (), b"")

    @classmethod
    def decode(cls, kind: BucketKind, definition: bytes) -> Buckets:
        """Return buckets from their stored definition.

        Raises:
            FormatError: When it is none.
        """
        try:
            if kind == "custom":
                count = int.from_bytes(definition[:2], "little")
                tops = nibblepack.unpack_doubles(definition[2:], count) if count else []
                return cls(kind, tuple(tops), definition)
            if kind == "exponential":
                _, scale, start, positive, _, _ = _EXPONENTIAL.unpack(definition)
                return cls.exponential(scale, start, positive)
            count, first, multiplier = _GEOMETRIC.unpack(definition)
            return cls.geometric(first, multiplier, count, minus_one=kind == "geometric_1")
        except (struct.error, SchemaError) as error:
            raise FormatError(f"histogram: not a definition of {kind} buckets: {error}") from error


@dataclass(frozen=True)
class Histogram:
    """A histogram: cumulative values, one per bucket; the last is the total.

    Attributes:
        buckets: Where the buckets end.
        values: How much is at or below each top.
        xor: Whether values are stored as doubles (as in query results) and not as whole numbers (as in ingestion).
    """

    buckets: Buckets
    values: tuple[float, ...]
    xor: bool = False

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Histogram:
        """Return a histogram from its blob, without the length in front of it.

        Raises:
            FormatError: When it is none.
        """
        data = bytes(blob)
        if not data or data[0] not in _FORMATS:
            raise FormatError(f"histogram: unknown format code {data[0] if data else None}")
        kind, xor = _FORMATS[HistogramFormat(data[0])]
        if kind == "empty":
            return cls(Buckets.empty(), ())
        start = layout.HISTOGRAM_HEADER_SIZE
        end = start + int.from_bytes(data[1:start], "little")
        if end > len(data):
            raise FormatError(f"histogram: the bucket definition ends at byte {end} of {len(data)}")
        buckets = Buckets.decode(kind, data[start:end])
        count = len(buckets.tops)
        if xor:
            return cls(buckets, tuple(nibblepack.unpack_doubles(data[end:], count)) if count else (), xor=True)
        return cls(buckets, tuple(map(float, nibblepack.unpack_delta(data[end:], count))))

    def encode(self) -> bytes:
        """Return the blob, without the length in front of it.

        Raises:
            SchemaError: When the values do not fit: another number than buckets, or, unless `xor`, values that are
                not whole or that decrease.
        """
        if not self.values:
            return bytes((HistogramFormat.EMPTY,))
        if len(self.values) != len(self.buckets.tops):
            raise SchemaError(f"histogram: {len(self.values)} values for {len(self.buckets.tops)} buckets")
        code = _CODES.get((self.buckets.kind, self.xor))
        if code is None:
            raise SchemaError(f"histogram: {self.buckets.kind} buckets cannot have their values stored as doubles")
        if self.xor:
            packed = nibblepack.pack_doubles(self.values)
        else:
            if not all(float(value).is_integer() for value in self.values):
                raise SchemaError("histogram: values that are not whole numbers can only be stored with xor=True")
            packed = nibblepack.pack_delta([int(value) for value in self.values])
        definition = self.buckets.definition
        blob = bytes((code,)) + len(definition).to_bytes(2, "little") + definition + packed
        if len(blob) > layout.MAX_PAYLOAD:
            raise SchemaError(f"histogram: {len(blob)} bytes; at most {layout.MAX_PAYLOAD}")
        return blob

    @property
    def count(self) -> float:
        """The total; NaN without buckets."""
        return self.values[-1] if self.values else math.nan

    def quantile(self, q: float, *, minimum: float | None = None, maximum: float | None = None) -> float:
        """Return a quantile, as Prometheus and FiloDB estimate it.

        Linear inside a bucket; logarithmic for exponential buckets. `minimum` and `maximum`, where known, narrow the
        bucket they lie in.
        """
        from sawlog.filodb.kernels.histograms import compute_quantiles

        out = np.zeros(1)
        with np.errstate(all="ignore"):
            compute_quantiles(self._pack_row(), np.array([float(q)]), *_pack_bounds(minimum, maximum), out)
        return float(out[0])

    def fraction(
        self, lower: float, upper: float, *, minimum: float | None = None, maximum: float | None = None
    ) -> float:
        """Return the share of values between two bounds, as Prometheus and FiloDB estimate it; NaN without values.

        Raises:
            SchemaError: When a bound is negative.
        """
        from sawlog.filodb.kernels.histograms import compute_fractions

        if lower < 0 or upper < 0:
            raise SchemaError(f"histogram: the fraction from {lower} to {upper}: bounds cannot be negative")
        out = np.zeros(1)
        with np.errstate(all="ignore"):
            compute_fractions(self._pack_row(), float(lower), float(upper), *_pack_bounds(minimum, maximum), out)
        return float(out[0])

    def _pack_row(self) -> Any:
        from sawlog.filodb.kernels.histograms import Histograms

        ends = np.array([0, len(self.values)], np.int32)
        exponential = np.array([self.buckets.kind == "exponential"], np.uint8)
        return Histograms(ends, np.array(self.buckets.tops, float), np.array(self.values, float), exponential)

    def __str__(self) -> str:
        """Return the histogram as FiloDB prints it."""
        tops = ", ".join(map(render_java_double, self.buckets.tops))
        pairs = zip(self.buckets.tops, self.values, strict=True)
        text = ", ".join(f"{render_java_double(top)}={render_java_double(value)}" for top, value in pairs)
        return f"<BinHistogram: buckets[{tops}]: {{{text}}}>"


def _pack_bounds(minimum: float | None, maximum: float | None) -> tuple[Any, Any]:
    lower_bound = -math.inf if minimum is None else minimum
    return np.array([float(lower_bound)]), np.array([math.inf if maximum is None else float(maximum)])


def _check_count(count: int, max_count: int) -> None:
    if not 0 <= count <= max_count:
        raise SchemaError(f"histogram: {count} buckets; expected 0 to {max_count}")
