"""Functions of columns of histograms: structs of `tops`, `values` and `buckets`, as reading returns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import combine_column, fill_null, make_array, make_scalar, unpack_booleans, view_values
from sawlog.errors import SchemaError
from sawlog.filodb.histograms.histogram import Buckets, Histogram, choose_format_code, parse_format_code
from sawlog.filodb.histograms.merge import add, merge

Bound: TypeAlias = "float | pa.Array | None"

HISTOGRAM = pa.struct(
    [
        pa.field("tops", pa.list_(pa.float64())),
        pa.field("values", pa.list_(pa.float64())),
        pa.field("buckets", pa.binary()),
    ]
)
"""The struct that `histogram_add` and `histogram_merge` give."""


def histogram_quantile(histograms: pa.Array, q: float, minimum: Bound = None, maximum: Bound = None) -> pa.Array:
    """Return a quantile of each histogram, as Prometheus and FiloDB estimate it.

    Args:
        histograms: A column of histograms.
        q: 0 to 1; values outside give infinities.
        minimum: The least of the values, where it is known: of all, or a column. It narrows the bucket that has it.
        maximum: The greatest.

    Returns:
        Doubles: NaN without values, null where the histogram is null.
    """
    from sawlog.filodb.kernels.histograms import compute_quantiles

    rows = _pack_histograms(histograms)
    out = np.zeros(len(histograms))
    with np.errstate(all="ignore"):
        compute_quantiles(
            rows, np.array([float(q)]), _convert_bound(minimum, -np.inf), _convert_bound(maximum, np.inf), out
        )
    return _make_doubles(out, histograms)


def histogram_fraction(
    histograms: pa.Array, lower: float, upper: float, minimum: Bound = None, maximum: Bound = None
) -> pa.Array:
    """Return the share of each histogram's values between two bounds, as Prometheus and FiloDB estimate it.

    Args:
        histograms: A column of histograms.
        lower: Not negative.
        upper: Not negative.
        minimum: As for `histogram_quantile`.
        maximum: As for `histogram_quantile`.

    Returns:
        Doubles: NaN without values, null where the histogram is null.

    Raises:
        SchemaError: When a bound is negative.
    """
    from sawlog.filodb.kernels.histograms import compute_fractions

    if lower < 0 or upper < 0:
        raise SchemaError(f"histogram_fraction from {lower} to {upper}: bounds cannot be negative")
    rows = _pack_histograms(histograms)
    out = np.zeros(len(histograms))
    with np.errstate(all="ignore"):
        bounds = _convert_bound(minimum, -np.inf), _convert_bound(maximum, np.inf)
        compute_fractions(rows, float(lower), float(upper), *bounds, out)
    return _make_doubles(out, histograms)


def histogram_add(first: pa.Array, second: pa.Array) -> pa.Array:
    """Return the sums of histograms, row by row; see `sawlog.filodb.histograms.merge.add`.

    Returns:
        Histograms: with NaN for values where buckets cannot be united, null where one of the two is null.
    """
    sums = [
        None if histogram is None or addend is None else add(histogram, addend)
        for histogram, addend in zip(_iterate_histograms(first), _iterate_histograms(second), strict=True)
    ]
    return make_array([None if sum is None else as_struct(sum) for sum in sums], HISTOGRAM)


def histogram_merge(histograms: pa.Array) -> pa.StructScalar:
    """Return the sum of all histograms of a column, those that are null left out; null if there is none."""
    valid = [histogram for histogram in _iterate_histograms(histograms) if histogram is not None]
    return make_scalar(as_struct(merge(valid)) if valid else None, HISTOGRAM)


def _pack_histograms(histograms: pa.Array) -> Any:
    """Return a column as what kernels take."""
    import pyarrow.compute as pc

    from sawlog.filodb.arrays import list_parts
    from sawlog.filodb.kernels.histograms import Histograms

    tops, values, buckets = _split_fields(histograms)
    top_ends, all_tops = list_parts(tops)
    ends, all_values = list_parts(values)
    if not np.array_equal(top_ends, ends):
        raise SchemaError("histograms: a row has more values than tops, or fewer")
    exponential = np.zeros(len(histograms), np.uint8)
    for row, code in enumerate(pc.binary_slice(buckets, 0, 1).to_pylist()):
        exponential[row] = bool(code) and parse_format_code(code[0])[0] == "exponential"
    return Histograms(ends, all_tops, all_values, exponential)


def _split_fields(histograms: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return tops, values and buckets of a column, with nothing in rows that are null."""
    import pyarrow.compute as pc

    if not pa.types.is_struct(histograms.type):
        raise SchemaError(f"expected histograms, structs of tops and values, found {histograms.type}")
    names = [field.name for field in histograms.type]
    if "tops" not in names or "values" not in names:
        raise SchemaError("histograms have the fields tops and values, and may have buckets")
    doubles = pa.list_(pa.float64())
    # Both begin at their first value then, whatever they are slices of.
    tops, values = (
        pc.if_else(histograms.is_valid(), pc.struct_field(histograms, [name]).cast(doubles), make_scalar([], doubles))
        for name in ("tops", "values")
    )
    buckets = pa.nulls(len(histograms), pa.binary())
    if "buckets" in names:
        buckets = pc.struct_field(histograms, ["buckets"]).cast(pa.binary())
    return fill_null(tops, []), fill_null(values, []), buckets


def _convert_bound(bound: Bound, unknown: float) -> NDArray[np.float64]:
    if bound is None:
        return np.array([unknown])
    if isinstance(bound, pa.Array | pa.ChunkedArray):
        array = combine_column(bound) if isinstance(bound, pa.ChunkedArray) else bound
        return view_values(fill_null(array.cast(pa.float64()), unknown), np.float64)
    return np.array([float(bound)])


def _make_doubles(values: NDArray[np.float64], histograms: pa.Array) -> pa.Array:

    mask = unpack_booleans(histograms.is_null()) if histograms.null_count else None
    return make_array(values, pa.float64(), mask)


def _iterate_histograms(column: pa.Array) -> Iterator[Histogram | None]:
    """Yield rows as histograms; those with equal buckets share them."""
    known_buckets: dict[bytes | tuple[float, ...], Buckets] = {}
    valid = column.is_valid().to_pylist()
    for is_valid, tops, values, buckets in zip(
        valid, *(field.to_pylist() for field in _split_fields(column)), strict=True
    ):
        if not is_valid:
            yield None
            continue
        key = buckets or tuple(tops)
        kind, xor = parse_format_code(buckets[0]) if buckets else ("custom", True)
        if key not in known_buckets:
            known_buckets[key] = Buckets.decode(kind, buckets[1:]) if buckets else Buckets.custom(tops)
        yield Histogram(known_buckets[key], tuple(values), xor)


def as_struct(histogram: Histogram) -> dict[str, Any]:
    """Return a histogram as a value of the type `HISTOGRAM`."""
    code = choose_format_code(histogram.buckets.kind, xor=histogram.xor)
    buckets = bytes((code,)) + histogram.buckets.definition
    return {"tops": list(histogram.buckets.tops), "values": list(histogram.values), "buckets": buckets}
