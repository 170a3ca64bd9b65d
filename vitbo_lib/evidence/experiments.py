"""Figures 1 and 2: what the stored tables say."""

import functools
import math

import numpy as np
import pandas as pd
from scipy import stats

from vitbo_lib import mnist, mnist_experiment, phase_diagram, stages, store
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, SCALE, Claim, Evidence
from vitbo_lib.intervals import Interval, difference_interval, format_interval, mean_interval

WIDEST_SLOPE, WIDEST_LEVEL = 0.3, 0.15  # half an interval (of a level: relative) that still tells one value from others
NEAR_MINUS_2 = 0.5  # a slope this close to -2 still means that N SNR^2 decides, and not N SNR or N SNR^3


@functools.cache
def _phase(reading: str) -> pd.DataFrame:
    return store.load(phase_diagram.table(reading).path, f"vitbo results --only figure_1_{reading}")[0]


@functools.cache
def _digits() -> pd.DataFrame:
    return store.load(mnist_experiment.PATH, mnist_experiment.COMMAND)[0]


def _uniform(reading: str) -> pd.DataFrame:
    rows = _phase(reading)
    return rows[rows["init"] == "uniform"]


def grid() -> Evidence:
    """The printed range of SNR in terms of signal norms."""
    ends = [phase_diagram.snr(norm) for norm in (1, 100)]
    right = [round(end, digits) for end, digits in zip(ends, (2, 1))] == [0.16, 15.6]
    return Evidence(HOLDS if right else DIFFERS, f"SNR {ends[0]:.3f} to {ends[1]:.2f} is ‖μ‖ from 1 to 100", ends[1])


def falls(reading: str) -> Evidence:
    """Rank correlation of the test loss with N and with SNR, one number a seed."""
    found = {axis: mean_interval([stats.spearmanr(rows[column], rows["test_loss"]).statistic
                                  for _, rows in _uniform(reading).groupby("seed")])
             for axis, column in (("N", "N"), ("SNR", "signal_norm"))}
    finding = ", ".join(f"with {axis} {format_interval(i)}" for axis, i in found.items())
    verdict = HOLDS if all(i.high < 0 for i in found.values()) else DIFFERS
    return Evidence.of(verdict, f"rank correlation {finding}", found["SNR"])


def _fit(reading: str) -> phase_diagram.Boundary:
    rows = _phase(reading)
    return phase_diagram.fit_boundary(phase_diagram.boundary_points(rows, phase_diagram.middle_level(rows)))


def slope(reading: str) -> Evidence:
    """The boundary in log N over log SNR is a line of slope -2."""
    found = _fit(reading).slope
    narrow = (found.high - found.low) / 2 <= WIDEST_SLOPE
    near = CONSTANT if abs(found.mean + 2) < NEAR_MINUS_2 else DIFFERS
    verdict = near if -2 not in found else HOLDS if narrow else SCALE
    return Evidence.of(verdict, f"slope {format_interval(found)}{_too_wide(verdict)}", found)


def _too_wide(verdict: str) -> str:
    return "; the interval is too wide to tell" if verdict == SCALE else ""


def level(reading: str, claimed: float) -> Evidence:
    """N SNR^2 on the boundary."""
    found = _fit(reading).n_snr2
    narrow = (found.high - found.low) / 2 <= WIDEST_LEVEL * found.mean
    near = CONSTANT if 0.5 < found.mean / claimed < 2 else DIFFERS
    verdict = near if claimed not in found else HOLDS if narrow else SCALE
    return Evidence.of(verdict, f"N SNR² = {format_interval(found, 0)} on the boundary{_too_wide(verdict)}", found)


def cut_off(reading: str) -> Evidence:
    """Whether the benign corner is below the cut-off of Figure 1(b)."""
    rows = _uniform(reading)
    corner = rows[(rows["N"] >= 18) & (rows["signal_norm"] >= 92)]
    found = mean_interval(corner.groupby("seed")["test_loss"].mean())
    verdict = HOLDS if found.high < phase_diagram.CUT_OFF else DIFFERS if found.low > phase_diagram.CUT_OFF else SCALE
    return Evidence.of(verdict, f"test loss {format_interval(found)} for N ≥ 18, SNR ≥ 14.4", found)


def wrong_in_loss_only() -> Evidence:
    """Between N SNR^2 = 250 and 500, below both curves, w_O undivided: test loss and test error, N >= 10."""
    rows = _uniform("undivided")
    rows = rows.assign(n_snr2=rows["N"] * rows["signal_norm"].map(phase_diagram.snr) ** 2)
    band = rows[rows["n_snr2"].between(250, 500) & (rows["N"] >= 10)].groupby("seed")
    loss, error = (mean_interval(band[name].mean()) for name in ("test_loss", "test_error"))
    verdict = HOLDS if loss.low > 0.3 and error.high < 0.25 else DIFFERS
    return Evidence.of(verdict, f"test loss {format_interval(loss)}, test error {format_interval(error)}", error)


def same_with_gaussian_weights() -> Evidence:
    """Test loss of Gaussian weights drawn directly minus that of uniform weights, mean over cells, seed by seed."""
    rows = _phase("undivided")
    wide = rows.pivot_table(index=["N", "signal_norm", "seed"], columns="init", values="test_loss").dropna()
    per_seed = wide.groupby("seed").mean()
    found = difference_interval(per_seed["gaussian"], per_seed["uniform"])
    cells = wide.groupby(["N", "signal_norm"]).mean()
    correlation = float(np.corrcoef(cells["gaussian"], cells["uniform"])[0, 1])
    verdict = HOLDS if 0 in found and correlation > 0.95 else DIFFERS
    return Evidence.of(verdict, f"mean difference {format_interval(found, 3)}, correlation of cells {correlation:.3f}",
                       found)


def factors() -> Evidence:
    """Image and noise factors of the two SNR of Figure 2."""
    printed = {0.2: (1 / 6, 5 / 6), 2.0: (2 / 3, 1 / 3)}
    same = all(math.isclose(a, b) for snr, pair in printed.items() for a, b in zip(mnist.factors(snr), pair))
    return Evidence(HOLDS if same else DIFFERS, "s/(1+s) and 1/(1+s) give both pairs")


def digits_fitted() -> Evidence:
    """Whether every run came down to a training loss of 0.01."""
    rows = _digits()
    worst = float(rows["train_loss"].max())
    finding = f"all {len(rows)} runs; largest training loss {worst:.4f}"
    return Evidence(HOLDS if worst <= 0.01 else DIFFERS, finding, worst)


def digits_drop(setting: str, column: str) -> Evidence:
    """Fall from SNR 0.2 to SNR 2.0, seed by seed."""
    found: Interval = mnist_experiment.drop(_digits(), column, setting)
    verdict = HOLDS if found.low > 0 else DIFFERS if found.high < 0 else SCALE
    return Evidence.of(verdict, f"by {format_interval(found, 2 if column == 'test_loss' else 3)}", found)


FIVE = tuple(range(5))


def _claim(id: str, statement: str, where: str, check, quantity: str, tolerance: str, expected: str = HOLDS,
           chapter: str = "figure_1", kind: str = "figure") -> Claim:
    return Claim(id=id, statement=statement, where=where, kind=kind, quantity=quantity, tolerance=tolerance,
                 chapter=chapter, expected=expected, check=check, seeds=FIVE)


def _of_reading(reading: str) -> tuple[Claim, ...]:
    """The claims about Figure 1 under one reading of w_O."""
    said = "$w_O$ divided" if reading == "divided" else "$w_O$ not divided"
    return (
        _claim(f"C75-{reading}", f"Test loss falls as $N$ and SNR grow, {said}", "Figure 1(a)", lambda: falls(reading),
               "rank correlation", "0, outside the 95 % interval"),
        _claim(f"C76-{reading}", f"The boundary has slope $-2$, {said}", "Figure 1(b)", lambda: slope(reading),
               "slope of log N over log SNR", f"95 % interval over seeds, at most ±{WIDEST_SLOPE}", SCALE),
        _claim(f"C76-1000-{reading}", f"The boundary is at $N \\cdot \\SNR^2 = 1000$, {said}", "Figure 1(b)",
               lambda: level(reading, phase_diagram.PAPER_CURVE), "N SNR² on the boundary",
               f"95 % interval over seeds, at most ±{WIDEST_LEVEL:.0%}", SCALE if reading == "divided" else CONSTANT),
        _claim(f"C77-{reading}", f"The boundary is at $2C_p^2 = 800$, {said}", "ours",
               lambda: level(reading, stages.predicted_boundary(phase_diagram.LAW.c_p)), "N SNR² on the boundary",
               f"95 % interval over seeds, at most ±{WIDEST_LEVEL:.0%}", SCALE),
        _claim(f"cut-off-{reading}", f"The benign corner has a test loss below 0.2, {said}", "Figure 1(b)",
               lambda: cut_off(reading), "test loss at large N and SNR", "95 % interval over seeds",
               DIFFERS if reading == "divided" else HOLDS),
    )


CLAIMS = (
    _claim("C03", "SNR from 0.16 to 15.6 is $\\norm{\\mu}$ from 1 to 100", "Section 6", grid, "SNR", "as printed",
           kind="exact"),
    *_of_reading("divided"), *_of_reading("undivided"),
    _claim("loss-only", "Just below the curve the loss is large and few predictions are wrong, $w_O$ not divided",
           "ours", wrong_in_loss_only, "test loss and test error, 250 ≤ N SNR² ≤ 500, N ≥ 10",
           "loss above 0.3, error below 0.25"),
    _claim("init-law", "Gaussian weights, drawn directly, give the same diagram as uniform ones", "ours",
           same_with_gaussian_weights, "difference of test losses", "95 % interval over seeds; correlation 0.95",
           kind="statistical"),
    _claim("C81", "SNR 0.2 and 2.0 stand for the factors (1/6, 5/6) and (2/3, 1/3)", "Figure 2(a, b)", factors,
           "factors", "exact", chapter="figure_2_mnist", kind="exact"),
    _claim("C80-train", "Digits at $N = 3000$ are fitted to a training loss of 0.01", "Figure 2", digits_fitted,
           "training loss", "0.01", chapter="figure_2_mnist"),
    *(_claim(f"C80-{setting}-{what}", f"Test {what} falls from SNR 0.2 to 2.0 at $N = 3000$, {setting} network",
             "Figure 2(c)", functools.partial(digits_drop, setting, f"test_{what}"), f"difference of test {what}",
             "0, outside the 95 % interval of paired seeds", chapter="figure_2_mnist")
      for setting in ("usual", "bare") for what in ("loss", "error")),
)
