"""Mergeable latency sketches: counts in buckets whose bounds grow by a constant factor.

Every quantile is accurate within 1 %. Two sketches merge by adding counts, which SQL can do as well.

The buckets are DDSketch's (Masson, Rim, Lee: "DDSketch", VLDB 2019): value v is in bucket
``ceil(log(v) / log(GAMMA))``, and 0 stands for all values up to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ERROR = 0.01
"""Relative error of a quantile, at most."""

GAMMA = (1 + ERROR) / (1 - ERROR)

Ints = NDArray[np.int64]


def buckets(values: NDArray[Any]) -> Ints:
    """Return the bucket of each value (microseconds here); negative values count as 0."""
    numbers: Ints = np.ceil(np.log(np.maximum(values, 1)) / np.log(GAMMA) - 1e-9).astype(np.int64)
    return numbers


def value(bucket: Ints) -> NDArray[np.float64]:
    """Return the value that represents a bucket: within ``ERROR`` of all values in it."""
    middle: NDArray[np.float64] = np.where(bucket <= 0, 1.0, 2 * GAMMA**bucket / (GAMMA + 1))
    return middle


def quantiles(bucket: Ints, counts: Ints, wanted: Sequence[float]) -> list[float]:
    """Return quantiles of a sketch; NaN if it is empty.

    Args:
        bucket: bucket numbers in any order; a bucket may occur more than once.
        counts: number of values in each.
        wanted: the quantiles, 0 to 1.
    """
    if not len(bucket):
        return [float("nan")] * len(wanted)
    order = np.argsort(bucket, kind="stable")
    sums = np.cumsum(counts[order])
    ranks = np.ceil(np.asarray(wanted) * sums[-1])
    at = np.searchsorted(sums, np.maximum(ranks, 1))
    return [float(each) for each in value(bucket[order][at])]


__all__ = ["ERROR", "GAMMA", "Ints", "buckets", "quantiles", "value"]
