"""Theorems 4.1 and 4.2 measured: in their own regime, and on the two examples of Appendix A."""

import math

import numpy as np
import pandas as pd

from vitbo_lib import regime, symbolic, theory
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, LIMIT, SCALE, Claim, Evidence
from vitbo_lib.intervals import Interval, format_interval, mean_interval, proportion_interval, slope_interval

REACHED = 1 + 1e-4  # flow stops within its tolerance of epsilon
EXPONENT = 0.05  # a measured exponent this close to the theorem's is taken as that
CUT_OFF = 0.2  # below it a test loss counts as small: the paper's own cut-off in Figure 1(b)
FLOOR = 0.1  # the printed lower bound on the harmful test loss (Lemma E.6)
NAMES = {"1 / epsilon": "1/ε", "N": "N", "mu": "‖μ‖", "noise energy": "σ_p²d", "w_o": "‖w_O‖"}


def _meets_all(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["items"] == 10]


def own_runs(side: str) -> pd.DataFrame:
    """Runs that meet all ten items and the proof's own constant on N SNR^2, at epsilon = 0.01: one a seed."""
    rows = _meets_all(regime.transition(regime.load()))
    return rows[rows["snr"] == (regime.BENIGN_SNR if side == "benign" else regime.HARMFUL_SNR)]


def training_loss(side: str) -> Evidence:
    """Runs that come down to epsilon, of all well inside the phase that meet the ten items."""
    rows = _meets_all(regime.winning(regime.load(), side))
    reached = int((rows["train_loss"] <= rows["epsilon"] * REACHED).sum())
    return Evidence(HOLDS if reached == len(rows) else DIFFERS, f"{reached} of {len(rows)} runs reach ε",
                    reached / len(rows))


def own_test_loss() -> Evidence:
    """Harmful test loss where the proof's own constant is met: bounded from below and, at log 2, from above."""
    loss = mean_interval(own_runs("harmful")["test_loss"])
    bounded = loss.low >= FLOOR and loss.high <= 1.05 * math.log(2)
    return Evidence.of(HOLDS if bounded else DIFFERS, f"test loss {format_interval(loss, 3)}; log 2 is 0.693", loss)


def vanishing_test_loss() -> Evidence:
    """Benign test loss as epsilon falls: a log-log slope above 0 is a trend to 0, not a proof of it."""
    slope = regime.loss_trend(regime.load())
    runs = regime.epsilon_runs(regime.load())
    means = runs[runs["side"] == "benign"].groupby("epsilon")["test_loss"].mean()
    falls = slope.low > 0 and means.is_monotonic_increasing
    finding = (f"test loss {means.iloc[-1]:.2f} at ε = {means.index[-1]:g}, {means.iloc[0]:.4f} at ε = "
               f"{means.index[0]:g}; as ε to the power {format_interval(slope)}")
    return Evidence.of(LIMIT if falls else DIFFERS, finding, slope)


def _near(interval: Interval, exponent: float) -> bool:
    return abs(interval.mean - exponent) <= EXPONENT


def _exponents(side: str, names) -> Evidence:
    found = {name: both for name, both in regime.slopes(regime.load(), side).items() if name in names}
    finding = ", ".join(f"in {NAMES[name]} {format_interval(i)} for {exponent:.0f}"
                        for name, (i, exponent) in found.items())
    right = all(_near(*both) for both in found.values())
    return Evidence.of(HOLDS if right else DIFFERS, f"exponent {finding}", next(iter(found.values()))[0])


def length(side: str) -> Evidence:
    """T in the theorem's own unit: right exponents leave one constant, which is measured."""
    rows = regime.load()
    constant = regime.time_ratio(rows, side)
    factor = 2 if side == "benign" else 1 / (25 * regime.M)  # predicted T in that unit: 2, and 1 / C_p^2
    scaled = Interval(*(factor * x for x in (constant.mean, constant.low, constant.high)), constant.n)
    right = all(_near(*both) for both in regime.slopes(rows, side).values())
    unit = "1/(ηε‖μ‖²‖w_O‖²)" if side == "benign" else "N/(ηεσ_p²d‖w_O‖²)"
    return Evidence.of(CONSTANT if right else DIFFERS,
                       f"T = {format_interval(scaled, 3 if side == 'benign' else 4)} × {unit}", scaled)


def loss_exponent() -> Evidence:
    """The power of epsilon in the benign test loss, (2M - 1) / M^2 = 3/4 at M = 2."""
    slope, predicted = regime.loss_trend(regime.load()), (2 * regime.M - 1) / regime.M**2
    return Evidence.of(HOLDS if _near(slope, predicted) else DIFFERS,
                       f"power {format_interval(slope, 3)}, predicted {predicted:g}", slope)


def needed_ratio() -> Evidence:
    """How large N SNR^2 must be for a small test loss, against what the proof needs, at M = 2."""
    rows = regime.transition(regime.load())
    c_p_squared = 25 * regime.M
    at = mean_interval([c_p_squared * x for x in regime.crossings(rows, regime.middle_level(rows))])
    proof = float(symbolic.benign_floor().parts["at_c_p"].subs(symbolic.M, regime.M))
    finding = f"the test loss passes its middle at N SNR² = {format_interval(at, 0)}; the proof needs {proof:,.0f}"
    return Evidence.of(CONSTANT if at.high < proof else DIFFERS, finding, at)  # beyond it the theorem would fail


def probability(side: str) -> Evidence:
    """With as many runs as there are, rarer failures go unseen."""
    runs = own_runs(side)
    bad = int((runs["test_loss"] > CUT_OFF).sum() if side == "benign" else (runs["test_loss"] < FLOOR).sum())
    share = proportion_interval(len(runs) - bad, len(runs))
    d = regime.parameters().d
    claimed = 1 - 1 / d
    verdict = HOLDS if share.low >= claimed else SCALE if bad == 0 else DIFFERS
    return Evidence.of(verdict, f"{bad} failures in {len(runs)} runs, so at least {share.low:.2f}; claimed: 1 − "
                                f"{theory.scientific(1 / d)}", share)


def fresh_attention() -> Evidence:
    """Lemma D.8: on fresh points the signal still looks at itself with at least 1 / (2M)."""
    rows = _meets_all(regime.winning(regime.load(), "benign"))
    smallest, bound = float(rows["fresh_attention"].min()), 1 / (2 * regime.M)
    return Evidence(HOLDS if smallest >= bound else DIFFERS, f"mean over fresh points at least {smallest:.2f}; bound "
                                                             f"{bound:g}", smallest)


def fresh_noise() -> Evidence:
    """Lemma D.9: values of fresh noise tokens stay within 1."""
    rows = _meets_all(regime.winning(regime.load(), "benign"))
    largest = float(rows["fresh_noise_largest"].max())
    return Evidence(HOLDS if largest <= 1 else DIFFERS, f"largest of all fresh points and runs {largest:.2f}", largest)


def lab_end(side: str, reading: str) -> Evidence:
    """The two examples of Appendix A: losses at the end."""
    rows = regime.load_lab()
    rows = rows[(rows["phase"] == side) & (rows["reading"] == reading)]
    loss, error = mean_interval(rows["test_loss"]), mean_interval(rows["test_error"])
    fitted = bool((rows["train_loss"] <= regime.EPSILON).all())
    right = loss.high < CUT_OFF if side == "benign" else loss.low >= FLOOR
    finding = f"test loss {format_interval(loss)}, test error {format_interval(error)}, {len(rows)} seeds"
    return Evidence.of(HOLDS if fitted and right else DIFFERS, finding, loss)


def plateau() -> pd.DataFrame:
    """Where the test loss is at least 0.95 log 2 with its interval: the ratio, loss and error (means, intervals)."""
    rows = regime.transition(regime.load())
    loss, error = (regime.over_seeds(rows, "ratio", value) for value in ("test_loss", "test_error"))
    both = loss.merge(error, on="ratio", suffixes=("_loss", "_error"))
    return both[both["low_loss"] >= 0.95 * math.log(2)]


def plateau_error() -> Evidence:
    """On the harmful plateau the sign is right more often than not, and more and more often."""
    at = plateau()
    rows = regime.transition(regime.load())
    rows = rows[rows["ratio"] <= at["ratio"].max()]
    slope = slope_interval(np.log(rows["ratio"]), rows["test_error"])
    last = at.iloc[-1]
    finding = (f"error {at['mean_error'].iloc[0]:.2f} at N SNR²/C_p² = {at['ratio'].iloc[0]:g}, "
               f"{last['mean_error']:.2f} [{last['low_error']:.2f}, {last['high_error']:.2f}] at {last['ratio']:g}, "
               f"where the loss is {last['mean_loss']:.2f}")
    better = (at["high_error"] < 0.5).all() and slope.high < 0
    return Evidence(HOLDS if better else DIFFERS, finding, *(float(last[f"{part}_error"]) for part in
                                                             ("mean", "low", "high")))


def right_but_unsure() -> pd.DataFrame:
    """The runs across the transition with test error at most 0.05 and test loss above the paper's cut-off."""
    rows = regime.transition(regime.load())
    return rows[(rows["test_error"] <= 0.05) & (rows["test_loss"] > CUT_OFF)]


def small_error() -> Evidence:
    """How many seeds have an SNR at which nearly all signs are right and the loss counts as harmful."""
    runs, seeds = right_but_unsure(), regime.transition(regime.load())["seed"].nunique()
    share = proportion_interval(runs["seed"].nunique(), seeds)
    if not len(runs):
        return Evidence.of(DIFFERS, "no such run", share)
    worst = runs.loc[runs["test_loss"].idxmax()]
    return Evidence.of(HOLDS if share.low > 0.5 else SCALE,
                       f"so in {runs['seed'].nunique()} of {seeds} seeds at some SNR; at most a loss of "
                       f"{worst['test_loss']:.2f} with an error of {worst['test_error']:.3f}", share)


def jump(value: str) -> Evidence:
    """Where `value` passes its middle, in units of C_p^2, against the break-even of initial rates, 2."""
    rows = regime.transition(regime.load())
    if value == "attention_signal":
        at = mean_interval(regime.crossings(rows.assign(elsewhere=1 - rows[value]), 0.5, "elsewhere"))
    else:
        at = mean_interval(regime.crossings(rows, regime.middle_level(rows), value))
    verdict = HOLDS if 2 in at else CONSTANT if 1 / 3 < at.mean / 2 < 3 else DIFFERS
    return Evidence.of(verdict, f"at N SNR² = {format_interval(at)} C_p²", at)


def _claim(id: str, statement: str, where: str, chapter: str, check, expected: str, **changes) -> Claim:
    fields = {"kind": "statistical", "seeds": tuple(range(16)), "quantity": "test loss", "tolerance": "the interval"}
    return Claim(id=id, statement=statement, where=where, chapter=chapter, expected=expected, check=check,
                 **(fields | changes))


def _of_a_theorem(side: str, number: str, chapter: str, needs: str) -> tuple[Claim, ...]:
    where = f"Theorem {number}"
    unit = "$1/(\\eta\\epsilon\\norm{\\mu}^2\\norm{w_O}^2)$" if side == "benign" else (
        "$N/(\\eta\\epsilon\\sigma_p^2 d\\norm{w_O}^2)$")
    others = ("mu", "w_o", "N", "noise energy")
    alone, rest = ("C52", "C53") if side == "benign" else ("C54-epsilon", "C54")
    scaling = {"kind": "scaling", "quantity": "log-log slope of T",
               "tolerance": f"{EXPONENT}: logarithms and the start of training bend the line a little"}
    powers = ("$T \\propto \\norm{\\mu}^{-2} \\norm{w_O}^{-2}$, whatever $N$ and $\\sigma_p$" if side == "benign" else
              "$T \\propto N (\\sigma_p^2 d)^{-1} \\norm{w_O}^{-2}$, whatever $\\norm{\\mu}$")
    return (
        _claim(f"thm-{number}-train", "The training loss comes down to $\\epsilon$", where, chapter,
               lambda: training_loss(side), HOLDS, quantity="share of runs", tolerance="none: every run"),
        _claim(f"thm-{number}-time", f"It does so after $T = \\Theta(1) \\cdot$ {unit}", where, chapter,
               lambda: length(side), CONSTANT, **(scaling | {"quantity": "T in that unit"})),
        _claim(alone, "$T \\propto \\epsilon^{-1}$", where, chapter, lambda: _exponents(side, ("1 / epsilon",)), HOLDS,
               **scaling),
        _claim(rest, powers, where, chapter, lambda: _exponents(side, others), HOLDS, **scaling),
        _claim(f"thm-{number}-probability", "With probability at least $1 - 1/d$", where, chapter,
               lambda: probability(side), SCALE, quantity="share of runs", tolerance="Wilson interval"),
        *(_claim(f"{'C55' if side == 'benign' else 'C56'}-{reading}",
                 f"Appendix A, $w_O$ {reading}: training loss $\\epsilon$, test loss {needs}", "App. A", chapter,
                 lambda reading=reading: lab_end(side, reading), HOLDS, seeds=tuple(range(8)),
                 tolerance=f"{CUT_OFF}: the paper's cut-off" if side == "benign" else f"{FLOOR}: Lemma E.6")
          for reading in regime.LAB_READINGS))


BENIGN, HARMFUL = "theorem_4_1", "theorem_4_2"
CLAIMS = (
    *_of_a_theorem("benign", "4.1", BENIGN, "small"),
    _claim("thm-4.1-test", "The test loss is $o(1)$", "Theorem 4.1", BENIGN, vanishing_test_loss, LIMIT,
           quantity="power of ε", tolerance="the interval lies above 0; a trend over three decades is no limit"),
    _claim("test-exponent", "It falls like $\\epsilon^{(2M-1)/M^2}$", "ours", BENIGN, loss_exponent, HOLDS,
           kind="scaling", quantity="log-log slope of the test loss over ε", tolerance=f"{EXPONENT}, as for T"),
    _claim("thm-4.1-omega", "$N \\cdot \\SNR^2 = \\Omega(1)$ suffices", "Theorem 4.1", BENIGN, needed_ratio, CONSTANT,
           quantity="N SNR² at the middle of the two plateaus", tolerance="the proof's constant"),
    _claim("C60", "A fresh signal looks at itself with at least $1/(2M)$", "Lemma D.8", BENIGN, fresh_attention, HOLDS,
           quantity="attention", tolerance="none"),
    _claim("C63", "Values of fresh noise are at most 1", "Lemma D.9", BENIGN, fresh_noise, HOLDS,
           quantity="largest value", tolerance="none"),
    *_of_a_theorem("harmful", "4.2", HARMFUL, "of constant size"),
    _claim("thm-4.2-test", "The test loss is $\\Theta(1)$", "Theorem 4.2, Lemma E.6", HARMFUL, own_test_loss, HOLDS,
           tolerance="between 0.1 (printed) and 1.05 log 2"),
    _claim("harmful-error", "On the harmful plateau of the loss, the error is below that of guessing and falls", "ours",
           HARMFUL, plateau_error, HOLDS, quantity="test error", tolerance="error below 1/2, slope below 0"),
    _claim("harmful-error-small", "A loss above 0.2, harmful by the cut-off, can go with an error of at most 0.05",
           "ours", HARMFUL, small_error, HOLDS, quantity="share of seeds with such an SNR", tolerance="more than half"),
    _claim("jump-attention", "Attention changes sides at $N \\cdot \\SNR^2 = 2 C_p^2$", "ours", HARMFUL,
           lambda: jump("attention_signal"), HOLDS, quantity="N SNR² / C_p² where half of it is on the signal",
           tolerance="the interval; else a factor of 3"),
    _claim("jump-loss", "The test loss jumps there too", "ours", HARMFUL, lambda: jump("test_loss"), CONSTANT,
           quantity="N SNR² / C_p² at the middle of the plateaus", tolerance="the interval; else a factor of 3"),
)
