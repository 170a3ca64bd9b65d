"""Intervals against numbers by hand, against SciPy, and against how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from vitbo_lib import intervals
from vitbo_lib.errors import UserError
from vitbo_lib.intervals import (
    Interval,
    difference_interval,
    format_interval,
    mean_interval,
    proportion_interval,
    slope_interval,
)
from vitbo_lib.seeds import stream


def ends(i: Interval) -> tuple[float, float]:
    return i.low, i.high


def test_mean_by_hand():
    """1, 2, 3: s = 1, t_2 at 97.5 % is 4.3027 (any printed table), so 2 +- 4.3027 / sqrt(3)."""
    i = mean_interval([1, 2, 3])
    assert (i.mean, i.n) == (2, 3)
    assert ends(i) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert 1.9 in i
    assert 7 not in i


def test_mean_and_differences_agree_with_scipy():
    a, b = stream(0, "a").normal(size=9), stream(0, "b").normal(1, 3, size=14)
    for level in (0.5, 0.95, 0.99):
        assert ends(mean_interval(a, level)) == pytest.approx(tuple(stats.ttest_1samp(a, 0).confidence_interval(level)))
        assert ends(difference_interval(a, b, level)) == pytest.approx(
            tuple(stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)))
        assert ends(difference_interval(a, b[:9], level, paired=True)) == pytest.approx(
            tuple(stats.ttest_rel(a, b[:9]).confidence_interval(level)))


def test_proportion_by_hand():
    """Wilson at 8 of 10 with z = 1.96: (0.8 + z^2/20 +- z sqrt(0.016 + z^2/400)) / (1 + z^2/10)."""
    z = 1.959964
    i = proportion_interval(8, 10)
    middle, half, scale = 0.8 + z**2 / 20, z * math.sqrt(0.016 + z**2 / 400), 1 + z**2 / 10
    assert i.mean == 0.8
    assert ends(i) == pytest.approx(((middle - half) / scale, (middle + half) / scale), abs=1e-6)
    assert proportion_interval(0, 50).low == 0
    assert proportion_interval(50, 50).high == 1
    assert 0 < proportion_interval(0, 50).high < 0.1


def test_slope_by_hand():
    """Points (0,0) (1,1) (2,1) (3,3): slope 0.9, residual square 0.7 over 2 degrees, t_2 = 4.3027, sum of x^2 = 5."""
    i = slope_interval([0, 1, 2, 3], [0, 1, 1, 3])
    half = 4.3027 * math.sqrt(0.7 / 2 / 5)
    assert (i.mean, *ends(i)) == pytest.approx((0.9, 0.9 - half, 0.9 + half), abs=1e-4)


def test_too_few_values_give_no_interval():
    for i in (mean_interval([3.0]), difference_interval([3.0], [1.0, 2.0]),
              difference_interval([1.0], [2.0], paired=True), slope_interval([0, 1], [0, 2])):
        assert math.isnan(i.low)
        assert math.isnan(i.high)
        assert math.isfinite(i.mean)
        assert 0 not in i


def test_equal_values_give_exactly_no_width():
    for value in (0.1, 0.7, 1e-300, 1e300):
        assert mean_interval([value] * 7) == Interval(value, value, value, 7)
    assert difference_interval([0.3] * 3, [0.1] * 5) == Interval(0.3 - 0.1, 0.3 - 0.1, 0.3 - 0.1, 8)
    assert ends(slope_interval([1, 2, 3], [5, 5, 5])) == (0, 0)


@pytest.mark.parametrize("bad", [[1.0, math.nan], [1.0, math.inf], [], [[1.0, 2.0]], ["a"], 3.0, [1, None]])
def test_values_that_cannot_be(bad):
    for call in (lambda: mean_interval(bad), lambda: difference_interval([1.0, 2.0], bad),
                 lambda: slope_interval([0, 1], bad)):
        with pytest.raises(UserError):
            call()


@pytest.mark.parametrize("call", [lambda: mean_interval([1, 2], level=1), lambda: mean_interval([1, 2], level=math.nan),
                                  lambda: proportion_interval(3, 2), lambda: proportion_interval(0, 0),
                                  lambda: proportion_interval(0.5, 2), lambda: proportion_interval(math.nan, 2),
                                  lambda: proportion_interval(-1, 2),
                                  lambda: difference_interval([1], [1, 2], paired=True),
                                  lambda: slope_interval([1, 1, 1], [1, 2, 3]),
                                  lambda: slope_interval([1, 2], [1, 2, 3])])
def test_requests_that_cannot_be_met(call):
    with pytest.raises(UserError, match=r"give|need"):
        call()


@pytest.mark.parametrize(("i", "digits", "text"), [
    (Interval(0.1234, 0.1, 0.14, 8), 2, "0.12 [0.10, 0.14]"), (Interval(-0.001, -0.004, 12.5, 8), 1, "0.0 [0.0, 12.5]"),
    (Interval(3.0, math.nan, math.nan, 1), 2, "3.00 [no interval, n = 1]"),
    (Interval(20, 19.6, 20.4, 3), 0, "20 [20, 20]")])
def test_format(i, digits, text):
    assert format_interval(i, digits) == text


# ----------------------------------------------------------------------------------------------------------- coverage

RUNS = 1000


def coverage(kind: str, level: float) -> float:
    """Share of RUNS data sets whose interval holds the truth."""
    normal = stream(1, "coverage", kind).normal
    makers = {
        "mean": lambda: 2.0 in mean_interval(normal(2, 3, 4), level),
        "difference": lambda: -1.0 in difference_interval(normal(1, 1, 5), normal(2, 4, 12), level),
        "paired": lambda: -1 in difference_interval((x := normal(0, 9, 4)) + normal(size=4), x + 1, level, paired=True),
        "slope": lambda: 0.5 in slope_interval(np.arange(5), 0.5 * np.arange(5) + normal(size=5), level),
    }
    return sum(makers[kind]() for _ in range(RUNS)) / RUNS


def holds_as_often_as_it_says(kind: str, level: float) -> None:
    """Within five standard errors of the simulation."""
    assert abs(coverage(kind, level) - level) < 5 * math.sqrt(level * (1 - level) / RUNS), kind


@pytest.mark.parametrize("kind", ["mean", "difference", "paired", "slope"])
def test_coverage(kind):
    holds_as_often_as_it_says(kind, 0.9)


@pytest.mark.parametrize("kind", ["mean", "paired", "slope"])
def test_planted_normal_quantile_is_seen(kind, monkeypatch):
    """1.64 in place of Student's quantile is far too sure at four or five values."""
    monkeypatch.setattr(intervals.stats.t, "ppf", lambda q, _: stats.norm.ppf(q))
    with pytest.raises(AssertionError):
        holds_as_often_as_it_says(kind, 0.9)


def test_planted_pooled_variance_is_seen(monkeypatch):
    """One variance for both sides, where the smaller sample varies less, is too wide."""
    def pooled(a, b, level):
        return Interval(0, *stats.ttest_ind(a, b, equal_var=True).confidence_interval(level), len(a) + len(b))

    monkeypatch.setitem(globals(), "difference_interval", pooled)
    with pytest.raises(AssertionError):
        holds_as_often_as_it_says("difference", 0.9)


def share_coverage(share: float, n: int, interval) -> float:
    """How often the interval of a share holds it: exact, a sum over all counts."""
    counts = np.arange(n + 1)
    return float(stats.binom.pmf(counts, n, share)[[share in interval(int(k), n) for k in counts]].sum())


@pytest.mark.parametrize(("share", "n"), [(0.3, 100), (0.05, 100), (0.5, 20)])
def test_coverage_of_shares(share, n):
    assert share_coverage(share, n, proportion_interval) == pytest.approx(0.95, abs=0.025)


def test_planted_wald_interval_is_seen():
    """The textbook p +- 1.96 sqrt(p (1 - p) / n) misses rare events far too often."""
    def wald(k, n):
        half = 1.96 * math.sqrt(k * (n - k) / n**3)
        return Interval(k / n, k / n - half, k / n + half, n)

    assert share_coverage(0.05, 100, wald) < 0.925
