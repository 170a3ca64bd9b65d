"""The transition from harmful to benign: its place by M and N, its width, and the exponent of eta."""

import math
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import theilslopes

from vitbo_lib import stages
from vitbo_lib import transition_map as reading
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, Claim, Evidence
from vitbo_lib.intervals import Interval, format_interval, mean_interval, slope_interval

CHAPTER = "sharp_transition"
REACHED = 1 + 1e-4  # flow stops within its tolerance of epsilon
EXPONENT = 0.05  # a measured exponent this close to the theorem's is taken as that
CONSTANT_FACTOR = 3.0  # a place this close to the predicted one is taken as that up to a constant
BENIGN_FROM, HARMFUL_TO = 9.0, 0.5  # ratios well inside a phase
JUMP = 1.1  # a factor of N SNR^2 within which a run is called to jump
LARGEST_MOVE = 1.5  # a place that moves by less than this factor over all N is one place up to a constant
CLASS_TOLERANCE = 0.15
ETA_EXPONENT = 0.02
PLATEAU = 0.9 * math.log(2)  # a test loss above it is on the plateau of guessing
SMALL_ERROR = 0.1


def the_map() -> pd.DataFrame:
    """The stored runs with classes of equal size."""
    return reading.even(reading.load())


def train_loss() -> Evidence:
    """Every run of the map comes down to epsilon, on either side and in between."""
    rows = reading.load()
    reached, count = int((rows["train_loss"] <= reading.EPSILON * REACHED).sum()), len(rows)
    complete = count > 0 and reached == count
    return Evidence(HOLDS if complete else DIFFERS, f"{reached} of {count:,} runs reach ε = {reading.EPSILON:g}",
                    reached / max(count, 1))


def inside(side: str) -> pd.DataFrame:
    """Runs well inside a phase, with T in units of its theorem as `unit`."""
    rows = the_map()
    rows = rows[rows["ratio"] >= BENIGN_FROM] if side == "benign" else rows[rows["ratio"] <= HARMFUL_TO]
    return rows.assign(unit=rows[f"time_{side}"])


def plateau_slopes(side: str) -> dict[int, Interval]:
    """For each M the log-log slope of T in the theorem's unit over N SNR^2: Theil's median slope of each N and seed.

    A median, because a single sample that goes over to the other side early can make a run take several times as long.
    """
    found = {}
    for m, group in inside(side).groupby("M"):
        curves = [one for _, one in group.groupby(["N", "seed"]) if len(one) > 2]
        found[int(m)] = mean_interval([float(theilslopes(np.log(one["unit"]), np.log(one["ratio"]))[0])
                                       for one in curves])
    return found


def plateau_levels(side: str) -> dict[int, Interval]:
    """For each M, T in the theorem's unit: median of each N and seed, their mean and interval."""
    return {int(m): mean_interval(group.groupby(["N", "seed"])["unit"].median())
            for m, group in inside(side).groupby("M")}


def late(side: str) -> int:
    """Runs well inside a phase that take more than 1.5 times what is usual at their M."""
    rows = inside(side)
    return int((rows["unit"] > 1.5 * rows.groupby("M")["unit"].transform("median")).sum())


def plateau_time(side: str) -> Evidence:
    """T in the theorem's unit does not move with N SNR^2: one constant for each M."""
    slopes, levels = plateau_slopes(side), plateau_levels(side)
    flat = bool(slopes) and all(abs(slope.mean) <= EXPONENT for slope in slopes.values())
    text = "; ".join(f"M = {m}: {format_interval(level)}" for m, level in levels.items())
    steepest = max((slope.mean for slope in slopes.values()), key=abs, default=math.nan)
    unit = "1/(ηε‖μ‖²‖w_O‖²)" if side == "benign" else "N/(ηεC_p²σ_p²d‖w_O‖²)"
    return Evidence.of(CONSTANT if flat else DIFFERS,
                       f"T in units of {unit}: {text}; slope over N SNR² at most {steepest:.3f} in size; "
                       f"{late(side)} of {len(inside(side))} runs take more than 1.5 times as long", levels[2])


def eta_exponent(side: str) -> Evidence:
    """Steps of descent against the step size, over two decades."""
    rows = reading.eta_runs(side)
    found = reading.eta_exponent(rows)
    right = abs(found.mean + 1) <= ETA_EXPONENT
    steps = f"{rows['steps'].min():,} to {rows['steps'].max():,} steps"
    return Evidence.of(HOLDS if right else DIFFERS, f"exponent {format_interval(found, 4)} for −1; {steps}", found)


def place(m: int) -> Evidence:
    """Where attention changes sides at one M, over N and seeds, against the break-even of the initial rates."""
    found = reading.dependence(the_map())[m].constant
    by_loss = mean_interval(reading.positions(the_map(), "test_loss").query("M == @m")["position"])
    predicted = stages.predicted_boundary(1.0)
    close = 1 / CONSTANT_FACTOR < found.mean / predicted < CONSTANT_FACTOR
    verdict = HOLDS if predicted in found else CONSTANT if close else DIFFERS
    return Evidence.of(verdict, f"by attention at N SNR² = {format_interval(found)} C_p², by test loss at "
                                f"{format_interval(by_loss)} C_p²; predicted {predicted:g}", found)


def jumps() -> Evidence:
    """By what factor N SNR^2 grows while a seed goes from 10 % to 90 % of the way."""
    widths = reading.summary(the_map(), "share")
    narrow = (widths["width"] <= JUMP).all() and len(widths) > 0
    least, most = (widths.loc[widths["width"].agg(which)] for which in ("idxmin", "idxmax"))
    finding = (f"10 % to 90 % within a factor of {least['width']:.2f} (M = {least['M']:.0f}, N = {least['N']:.0f}) to "
               f"{most['width']:.2f} (M = {most['M']:.0f}, N = {most['N']:.0f})")
    verdict = HOLDS if narrow else CONSTANT if most["width"] <= CONSTANT_FACTOR else DIFFERS
    return Evidence(verdict, finding, float(most["width"]))


def width_from_values() -> Evidence:
    """The same problems, logits and all, with initial values ten times smaller: is the transition narrower?"""
    m, n = reading.CALM
    rows = the_map()
    rows = rows[(rows["M"] == m) & (rows["N"] == n)]
    own, calm = (reading.summary(one, "share").iloc[0] for one in (rows, reading.calm_runs()))
    narrower = math.log(calm["width"]) <= math.log(own["width"]) / 2
    return Evidence(HOLDS if narrower else DIFFERS,
                    f"10 % to 90 % within a factor of {calm['width']:.2f} instead of {own['width']:.2f}, at "
                    f"N SNR² = {calm['mean']:.2f} C_p² [{calm['low']:.2f}, {calm['high']:.2f}]", float(calm["width"]))


def between() -> Evidence:
    """For M > 2, the place at every N against the two bounds of the argument."""
    places = reading.summary(the_map(), "share").query("M > 2")
    inside = (places["low"] >= 2) & (places["high"] <= 2 * (places["M"] - 1))
    complete = len(places) > 0 and inside.all()
    text = "; ".join(f"M = {m}: {one['mean'].min():.2f} to {one['mean'].max():.2f}, upper bound {2 * (m - 1)}"
                     for m, one in places.groupby("M"))
    return Evidence(HOLDS if complete else DIFFERS, text or "no runs", float(inside.mean()))


def on_n() -> Evidence:
    """Whether N SNR^2 at the transition depends on N: the exponent of N at each M, and how far the place moves."""
    powers = {m: one.power for m, one in reading.dependence(the_map()).items()}
    moves = reading.summary(the_map(), "share").groupby("M")["mean"].agg(lambda means: means.max() / means.min())
    largest = max(powers.values(), key=lambda power: abs(power.mean))
    fixed = all(0 in power for power in powers.values())
    verdict = HOLDS if fixed else CONSTANT if (moves <= LARGEST_MOVE).all() else DIFFERS
    text = "; ".join(f"M = {m}: {format_interval(power)}, over all N a factor of {moves[m]:.2f}"
                     for m, power in powers.items())
    return Evidence.of(verdict, f"exponent of N: {text}", largest)


def class_exponent(points: pd.DataFrame) -> Interval:
    """Exponent of N / |S_y| in the place of a class, between the two classes of one run."""
    logs = np.log(points[["predicted", "position"]])
    centred = logs - logs.groupby(points["seed"]).transform("mean")
    return slope_interval(centred["predicted"], centred["position"])


def by_class() -> Evidence:
    """With classes of unequal size each class has its own transition, at C_p^2 N / |S_y|."""
    calm = reading.class_positions(reading.calm_uneven_runs())
    exponent, drawn = class_exponent(calm), class_exponent(reading.class_positions(reading.as_drawn(reading.load())))
    ratio = mean_interval(calm["position"] / calm["predicted"])
    right = abs(exponent.mean - 1) <= CLASS_TOLERANCE and abs(ratio.mean - 1) <= CLASS_TOLERANCE and drawn.low > 0
    return Evidence.of(HOLDS if right and 1 in drawn else DIFFERS,
                       f"with small initial values {format_interval(ratio)} times that, exponent of N over the class's "
                       f"size {format_interval(exponent)} for 1; as drawn, exponent {format_interval(drawn)}", ratio)


def best_plateau_error() -> pd.DataFrame:
    """For each M the smallest error on the plateau of the loss: mean over the seeds of one N and ratio."""
    means = the_map().groupby(["M", "N", "ratio"])[["test_loss", "test_error"]].mean().reset_index()
    on = means[means["test_loss"] >= PLATEAU]
    return on.loc[on.groupby("M")["test_error"].idxmin()]


def plateau_error() -> Evidence:
    """Somewhere on the plateau of the loss nearly every sign is right."""
    best = best_plateau_error()
    right = len(best) > 0 and set(best["M"]) == set(the_map()["M"]) and (best["test_error"] <= SMALL_ERROR).all()
    text = "; ".join(f"M = {row.M:.0f}: error {row.test_error:.3f} with loss {row.test_loss:.2f}"
                     for row in best.itertuples())
    return Evidence(HOLDS if right else DIFFERS, text or "no such run",
                    float(best["test_error"].max()) if len(best) else math.nan)


def by_query() -> Evidence:
    """For M > 2, where the signal's own query changes sides against where the query of xi_2 does."""
    rows = the_map()
    rows = rows[rows["M"] > 2]
    mu, xi2 = (reading.positions(rows, name).set_index(["M", "N", "seed"])["position"] for name in
               ("mu_query", "xi2_query"))
    apart = np.log(xi2 / mu)
    ratios = {m: mean_interval(one) for m, one in apart.groupby("M")}
    text = "; ".join(f"M = {m}: {math.exp(i.mean):.2f} [{math.exp(i.low):.2f}, {math.exp(i.high):.2f}]"
                     for m, i in ratios.items())
    later = bool(ratios) and all(i.low > 0 for i in ratios.values())
    least = min(ratios.values(), key=lambda i: i.mean)
    return Evidence(HOLDS if later else DIFFERS, f"N SNR² for the query of ξ₂ over that for the signal's: {text}",
                    *(math.exp(x) for x in (least.mean, least.low, least.high)))


def _claim(id: str, statement: str, where: str, check, expected: str, **changes) -> Claim:
    fields = {"kind": "statistical", "seeds": reading.table_seeds(), "tolerance": "the interval",
              "quantity": "N SNR² / C_p²"}
    return Claim(id=id, statement=statement, where=where, chapter=CHAPTER, expected=expected, check=check,
                 **(fields | changes))


def _of_m(m: int, expected: str) -> Claim:
    return _claim(f"transition-M{m}", f"At $M = {m}$ attention changes sides at $N \\cdot \\SNR^2 = 2 C_p^2$", "ours",
                  partial(place, m), expected, tolerance=f"the interval; else a factor of {CONSTANT_FACTOR:g}")


def _of_side(side: str, number: str, unit: str) -> tuple[Claim, Claim]:
    time, eta = ("plateau-time-benign", "C53-eta") if side == "benign" else ("plateau-time-harmful", "C54-eta")
    where = f"Theorem {number}"
    return (
        _claim(time, f"$T$ is one multiple of {unit} throughout the phase, for each $M$", where,
               partial(plateau_time, side), CONSTANT, kind="scaling", quantity="T in that unit",
               tolerance=f"slope over $N \\cdot \\SNR^2$ within {EXPONENT}"),
        _claim(eta, f"$T \\propto \\eta^{{-1}}$ when training ends {side}", where, partial(eta_exponent, side), HOLDS,
               kind="scaling", quantity="log-log slope of T", seeds=tuple(reading.even_seeds(reading.ETA_SIZES[0], 4)),
               tolerance=f"{ETA_EXPONENT}: at the largest step descent leaves its flow a little"))


CLAIMS = (
    _claim("map-train", "The training loss reaches $\\epsilon$ on both sides of the transition and in it",
           "Theorems 4.1 and 4.2", train_loss, HOLDS, quantity="share of runs", tolerance="none"),
    *_of_side("benign", "4.1", "$1/(\\eta\\epsilon\\norm{\\mu}^2\\norm{w_O}^2)$"),
    *_of_side("harmful", "4.2", "$N/(\\eta\\epsilon\\sigma_p^2 d\\norm{w_O}^2)$"),
    _claim("plateau-error", f"A test loss of at least $0.9 \\log 2$ can go with an error of at most {SMALL_ERROR:g}, "
           "at every $M$", "ours", plateau_error, HOLDS, quantity="test error", tolerance="none"),
    *(_of_m(m, expected) for m, expected in ((2, HOLDS), (3, CONSTANT), (4, CONSTANT), (8, CONSTANT))),
    _claim("transition-jumps", "With $\\sigma_V$ at the cap of item (7) the transition is a jump in $N \\cdot \\SNR^2$",
           "“sharp”, read as a jump", jumps, CONSTANT, quantity="factor of N SNR² from 10 % to 90 %",
           tolerance=f"a factor of {JUMP}; else of {CONSTANT_FACTOR}"),
    _claim("transition-width", "Initial values at their cap make the width: at a tenth of $\\sigma_V$ its logarithm "
           "halves at least", "ours", width_from_values, HOLDS, quantity="factor of N SNR² from 10 % to 90 %",
           tolerance="half of the logarithm", seeds=tuple(reading.even_seeds(reading.CALM[1], 5))),
    _claim("transition-between", "For $M > 2$ it lies between $2 C_p^2$ and $2 (M - 1) C_p^2$", "ours", between, HOLDS,
           quantity="share of the places (M, N) that do", tolerance="the interval of each"),
    _claim("transition-of-N", "The transition is at a fixed $N \\cdot \\SNR^2$, whatever $N$ is",
           "Theorems 4.1 and 4.2", on_n, CONSTANT, kind="scaling", quantity="exponent of N",
           tolerance=f"0 in the intervals; else a factor of {LARGEST_MOVE} over all $N$"),
    _claim("transition-classes",
           "With unequal classes each has its own transition, at $C_p^2 N / \\lvert S_y \\rvert$", "ours", by_class,
           HOLDS, seeds=tuple(range(reading.FIRST_AS_DRAWN, reading.FIRST_AS_DRAWN + 12)),
           quantity="measured over predicted",
           tolerance=f"{CLASS_TOLERANCE} with small initial values; the interval as drawn"),
    _claim("transition-queries", "For $M > 2$ the signal's own query changes sides before that of $\\xi_2$", "ours",
           by_query, HOLDS, quantity="ratio of the two places", tolerance="the interval"),
)
