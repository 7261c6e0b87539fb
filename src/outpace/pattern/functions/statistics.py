"""Statistical aggregates: variance, covariance, regression and their relatives, in double.

Two-argument aggregates leave out rows in which either argument is NULL, and take (y, x) as in SQL.
Where numbers are too large or infinite to be computed with, the result is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from outpace.pattern.functions.function import Aggregator, returns

#: The values of the arguments, row by row.
ArgumentRows = Sequence[tuple[Any, ...]]


def _moment(given: Sequence[float], power: int) -> float:
    mean = math.fsum(given) / len(given)
    return math.fsum((value - mean) ** power for value in given)


def _over_values(compute: Callable[[Sequence[float]], float | None], least: int) -> Any:
    def fold(rows: ArgumentRows) -> float | None:
        given = [row[0] for row in rows]
        return _or_nan(compute, given) if len(given) >= least else None

    return fold


def _over_pairs(
    compute: Callable[[Sequence[float], Sequence[float]], float | None], least: int
) -> Any:
    def fold(rows: ArgumentRows) -> float | None:
        known = [row for row in rows if row[1] is not None]
        if len(known) < least:
            return None
        return _or_nan(compute, [row[0] for row in known], [row[1] for row in known])

    return fold


def _or_nan(compute: Callable[..., float | None], *given: Sequence[float]) -> float | None:
    try:
        return compute(*given)
    except (ValueError, ArithmeticError):
        return math.nan


def _squares(given: Sequence[float]) -> float:
    """Add up the squares of the distances from the mean, one value after the other.

    So compiled code does, too; the way is that of Welford (Technometrics 4, 1962).
    """
    mean = total = 0.0
    for count, value in enumerate(given, 1):
        distance = value - mean
        mean += distance / count
        total += distance * (value - mean)
    return total


def _variance(given: Sequence[float]) -> float:
    return _squares(given) / (len(given) - 1)


def _population_variance(given: Sequence[float]) -> float:
    return _squares(given) / len(given)


def _skewness(given: Sequence[float]) -> float | None:
    second = _moment(given, 2)
    if second == 0:
        return None
    return math.sqrt(len(given)) * _moment(given, 3) / float(second**1.5)


def _kurtosis(given: Sequence[float]) -> float | None:
    """Excess kurtosis with the sample correction, as Trino and DuckDB have it."""
    count = len(given)
    second = _moment(given, 2)
    if second == 0:
        return None
    scale = count * (count + 1) / ((count - 1) * (count - 2) * (count - 3))
    variance = second / (count - 1)
    correction = 3 * (count - 1) ** 2 / ((count - 2) * (count - 3))
    return float(scale * _moment(given, 4) / variance**2 - correction)


def _geometric_mean(given: Sequence[float]) -> float | None:
    if any(value < 0 for value in given):
        return math.nan
    if any(value == 0 for value in given):
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in given) / len(given))


def _entropy(given: Sequence[float]) -> float:
    """The entropy in bits of counts that say how often each of several things occurred."""
    total = math.fsum(given)
    if total == 0 or any(value < 0 for value in given):
        return 0.0
    return math.fsum(-c / total * math.log2(c / total) for c in given if c > 0)


def _crossed(first: Sequence[float], second: Sequence[float]) -> float:
    first_mean = math.fsum(first) / len(first)
    second_mean = math.fsum(second) / len(second)
    return math.fsum(
        (a - first_mean) * (b - second_mean) for a, b in zip(first, second, strict=True)
    )


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    spread = _moment(first, 2) * _moment(second, 2)
    return None if spread == 0 else _crossed(first, second) / math.sqrt(spread)


def _slope(dependent: Sequence[float], independent: Sequence[float]) -> float | None:
    spread = _moment(independent, 2)
    return None if spread == 0 else _crossed(dependent, independent) / spread


def _intercept(dependent: Sequence[float], independent: Sequence[float]) -> float | None:
    slope = _slope(dependent, independent)
    if slope is None:
        return None
    return (math.fsum(dependent) - slope * math.fsum(independent)) / len(dependent)


def _one(
    name: str, compute: Callable[[Sequence[float]], float | None], least: int, about: str,
    *aliases: str,
) -> Aggregator:  # fmt: skip
    fold = _over_values(compute, least)
    return Aggregator(name, 1, 1, returns(pa.float64(), "double"), lambda _: fold, about, aliases)


def _two(
    name: str, compute: Callable[[Sequence[float], Sequence[float]], float | None], least: int,
    about: str,
) -> Aggregator:  # fmt: skip
    fold = _over_pairs(compute, least)
    return Aggregator(name, 2, 2, returns(pa.float64(), "double"), lambda _: fold, about)


STATISTICS: tuple[Aggregator, ...] = (
    _one("variance", _variance, 2, "of a sample", "var_samp"),
    _one("var_pop", _population_variance, 1, "variance of all there is"),
    _one("stddev", lambda given: math.sqrt(_variance(given)), 2, "standard deviation of a sample",
         "stddev_samp", "std"),
    _one("stddev_pop", lambda given: math.sqrt(_population_variance(given)), 1,
         "standard deviation of all there is"),
    _one("skewness", _skewness, 3, "how far one side outweighs the other"),
    _one("kurtosis", _kurtosis, 4, "how heavy the ends are, 0 for a normal distribution"),
    _one("geometric_mean", _geometric_mean, 1, "the n-th root of the product", "geomean"),
    _one("entropy", _entropy, 1, "in bits, of counts"),
    _two("corr", _correlation, 2, "correlation; `corr(y, x)`"),
    _two("covar_samp", lambda y, x: _crossed(y, x) / (len(y) - 1), 2, "covariance of a sample"),
    _two("covar_pop", lambda y, x: _crossed(y, x) / len(y), 1, "covariance of all there is"),
    _two("regr_slope", _slope, 2, "slope of the line through the points; `regr_slope(y, x)`"),
    _two("regr_intercept", _intercept, 2, "where that line meets x = 0"),
)  # fmt: skip
