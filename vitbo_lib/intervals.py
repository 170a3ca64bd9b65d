"""Intervals: how sure a measured mean, share, difference or slope is.

All are two-sided at `level` (0.95 unless said otherwise) and speak of independent runs: one number a seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from vitbo_lib.errors import UserError


@dataclass(frozen=True)
class Interval:
    """An estimate (`mean`), its interval [`low`, `high`], and the number `n` of values behind it.

    `low` and `high` are NaN where there are too few values to say how sure the estimate is.
    """

    mean: float
    low: float
    high: float
    n: int

    def __contains__(self, value: float) -> bool:
        """Whether the value lies in the interval; never, where there is none."""
        return self.low <= value <= self.high


def _sample(name: str, values) -> np.ndarray:
    """Values as floats, (n,), once it is sure that they are finite numbers."""
    try:
        sample = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} are not all numbers ({error}); give one number a run") from error
    if sample.ndim != 1 or sample.size == 0:
        raise UserError(f"{name} have shape {sample.shape}; give a list of at least one number")
    if not np.isfinite(sample).all():
        bad = np.sum(~np.isfinite(sample))
        raise UserError(f"{bad} of {sample.size} {name} are not finite; an interval of the others would mislead: "
                        "find out why, or leave these runs out on purpose")
    return sample


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise UserError(f"level = {level} is not possible; give a number between 0 and 1, say 0.95")


def _moments(sample: np.ndarray) -> tuple[float, float]:
    """Mean and variance (n - 1 below); exact for equal values, where the last bits of a sum would give a width."""
    if (sample == sample[0]).all():
        return float(sample[0]), 0.0
    return float(sample.mean()), float(sample.var(ddof=1))


def _student(mean: float, error: float, freedom: float, level: float, n: int) -> Interval:
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error if error > 0 else 0.0
    return Interval(mean, mean - half, mean + half, n)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of independent values, (n,), with Student's interval: mean +- t_{n-1} s / sqrt(n).

    One value alone says nothing about the next: n = 1 gives low = high = NaN. Equal values give an interval of width
    zero, which says that they did not vary, not that the next one cannot. `UserError` for no values or one not finite.

    >>> i = mean_interval([1.0, 2.0, 3.0])
    >>> i.mean, round(i.low, 4), round(i.high, 4), i.n
    (2.0, -0.4841, 4.4841, 3)
    """
    _check_level(level)
    sample = _sample("values", values)
    mean, variance = _moments(sample)
    if sample.size == 1:
        return Interval(mean, math.nan, math.nan, 1)
    return _student(mean, math.sqrt(variance / sample.size), sample.size - 1, level, sample.size)


def proportion_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Share of successes in n independent trials, with Wilson's interval: inside [0, 1], and of some width at 0 and n.

    `UserError` unless successes and n are whole numbers with 0 <= successes <= n and n >= 1.

    >>> i = proportion_interval(0, 10)
    >>> i.mean, i.low, round(i.high, 4)
    (0.0, 0.0, 0.2775)
    """
    _check_level(level)
    try:
        whole = int(successes) == successes and int(n) == n
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or not 0 <= successes <= n or n < 1:
        raise UserError(f"{successes} successes of {n} is not possible; give numbers 0 <= successes <= n and n >= 1")
    found = stats.binomtest(int(successes), int(n)).proportion_ci(level, method="wilson")
    return Interval(int(successes) / int(n), float(found.low), float(found.high), int(n))


def difference_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95, paired: bool = False) -> Interval:
    """Mean of a minus mean of b, with Welch's interval, or Student's of a - b where a[i], b[i] share a seed (`paired`).

    Lengths (n_a,) and (n_b,), equal when paired; `n` is the number of pairs, or of all values. One value on a side
    gives low = high = NaN. `UserError` as in `mean_interval`, and for pairs of unequal number.

    >>> i = difference_interval([3.0, 4.0, 5.0], [1.0, 2.0, 3.0], paired=True)
    >>> i.mean, i.low, i.high, i.n
    (2.0, 2.0, 2.0, 3)
    """
    _check_level(level)
    a, b = _sample("values of a", a), _sample("values of b", b)
    if paired:
        if a.size != b.size:
            raise UserError(f"{a.size} values and {b.size} are not pairs; give as many of each, or paired=False")
        return mean_interval(a - b, level)
    (mean_a, variance_a), (mean_b, variance_b) = _moments(a), _moments(b)
    mean, n = mean_a - mean_b, a.size + b.size
    if min(a.size, b.size) == 1:
        return Interval(mean, math.nan, math.nan, n)
    share_a, share_b = variance_a / a.size, variance_b / b.size
    total = share_a + share_b
    if total == 0:
        return Interval(mean, mean, mean, n)
    # in shares of the total, so that tiny variances do not underflow when squared
    freedom = 1 / ((share_a / total) ** 2 / (a.size - 1) + (share_b / total) ** 2 / (b.size - 1))
    return _student(mean, math.sqrt(total), freedom, level, n)


def slope_interval(x: Sequence[float], y: Sequence[float], level: float = 0.95) -> Interval:
    """Least-squares slope of y on x, both (n,), with its t interval (n - 2 degrees of freedom).

    Two points give low = high = NaN. `UserError` as in `mean_interval`, and where x does not vary.

    >>> i = slope_interval([0, 1, 2, 3], [1, 3, 5, 7])
    >>> round(i.mean, 12), i.n
    (2.0, 4)
    """
    _check_level(level)
    x, y = _sample("values of x", x), _sample("values of y", y)
    if x.size != y.size:
        raise UserError(f"{x.size} values of x and {y.size} of y are not points; give as many of each")
    if (x == x[0]).all():
        raise UserError("all values of x are equal, so there is no slope; give at least two different ones")
    fit = stats.linregress(x, y)
    if x.size == 2:
        return Interval(float(fit.slope), math.nan, math.nan, 2)
    return _student(float(fit.slope), float(fit.stderr), x.size - 2, level, x.size)


def format_interval(i: Interval, digits: int = 2) -> str:
    """An interval as text; with one value it says that there is none.

    >>> format_interval(Interval(0.123, 0.101, 0.144, 8))
    '0.12 [0.10, 0.14]'
    >>> format_interval(Interval(3.0, math.nan, math.nan, 1), digits=1)
    '3.0 [no interval, n = 1]'
    """
    if math.isnan(i.low) or math.isnan(i.high):
        return f"{i.mean:z.{digits}f} [no interval, n = {i.n}]"
    return f"{i.mean:z.{digits}f} [{i.low:z.{digits}f}, {i.high:z.{digits}f}]"
