"""The map of the transition: how training ends over N SNR^2 / C_p^2, for several M and N, in the theorems' regime.

Each run is the smallest problem of Condition 4.1 for its N, M and SNR (`vitbo_lib.regime.parameters`), drawn directly
and trained by gradient flow to epsilon = 0.01. Item (3), N above a power of log d, fails where N is small; `items`
says how many of the ten are met. Runs of one seed share noise, weights and labels (SNR changes their scale), so that
each seed has a curve and a position of its own.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from vitbo_lib import regime, simulation, store
from vitbo_lib.data import one_of, sample_labels, seeds_of_even_classes, whole
from vitbo_lib.intervals import Interval, mean_interval, slope_interval
from vitbo_lib.observables import by_token_type, observe, view
from vitbo_lib.phase_diagram import crossing
from vitbo_lib.seeds import stream
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Parameters
from vitbo_lib.training import gradient_descent

EPSILON = regime.EPSILON
N_TEST = 1000
FIRST_SEED, FIRST_AS_DRAWN = 7000, 9000  # where this table looks for seeds with even classes, and for any
AS_DRAWN = (2, 32)
PAIRS = ((2, 8), (2, 16), (2, 32), (2, 64), (3, 8), (3, 16), (3, 32), (4, 8), (4, 16), (4, 32), (8, 8), (8, 12),
         (8, 16))
LARGE = ((3, 64), (8, 24), (4, 48))  # (M, N) that take seconds a run: the fewest ratios
LARGEST = ((2, 128),)  # the same, but with M = 2 the transition begins early
SEEDS = 5
RATIOS = (0.01, 0.05, 0.2, 0.5, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.9, 3.4, 4.0, 4.8, 5.8, 7.0, 9.0, 13.0,
          30.0, 100.0)
LARGE_RATIOS = (0.2, 1.5, 2.0, 2.25, 2.5, 2.9, 3.4, 4.0, 9.0)
LARGEST_RATIOS = (0.5, 0.8, 1.0, 1.25, *LARGE_RATIOS)
FEWER_RATIOS = (0.2, 1.0, 1.5, 1.75, 2.0, 2.25, 2.5, 2.9, 3.4, 4.0, 5.8, 9.0, 30.0)
ETA_SIZES, ETA_EPSILON = (8, 2), 0.05  # N and M: descent takes the steps that flow does not
ETA_RATIO = {"benign": 4.0, "harmful": 0.1}
ETAS = {"benign": (0.5, 0.16, 0.05, 0.016, 0.005), "harmful": (0.02, 0.0063, 0.002, 0.00063, 0.0002)}
MOST_STEPS = 100_000
CALM, CALM_SCALE = (2, 32), 0.1
CALM_UNEVEN_SAMPLES = 16
CALM_UNEVEN_RATIOS = (1.0, 1.15, 1.25, 1.35, 1.5, 1.75, 2.5, 3.4, 3.8, 4.2, 4.6, 5.0, 6.0)
CALM_RATIOS = (1.25, 1.5, 1.75, 1.9, 2.0, 2.1, 2.25, 2.5, 2.9)
RESULTS = Path(__file__).resolve().parents[1] / "results"
KEY = ("M", "N", "ratio", "seed")
COLUMNS = ("time", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2", "mu_query",
           "xi2_query", "weak_query", "v_signal", "v_xi2", "v_weak", "fresh_attention", "fresh_noise_attention",
           "samples_between", "share_plus", "share_minus", "positives", "items", "seconds")
BETWEEN = (0.1, 0.9)  # a sample whose share of attention lies there has not decided


@dataclass(frozen=True)
class Cell:
    """One run: a row of the table."""

    M: int
    N: int
    ratio: float
    seed: int


def compute(cell: Cell) -> dict:
    """Train one network by gradient flow and look at it, token type by token type."""
    p = regime.parameters(cell.N, cell.M, regime.snr_at(cell.ratio, cell.N, cell.M), EPSILON)
    setting = simulation.setting_of(p, n_test=N_TEST)
    began = time.process_time()
    problem = simulation.build(setting, "drawn", [cell.seed])
    trained = simulation.train(setting, problem, "flow")
    seconds = time.process_time() - began
    seen, fresh = (view(points, trained.coefficients) for points in (problem.train, problem.test))
    found = observe(problem, trained.coefficients) | by_token_type(seen)
    found = {name: None if value.isnan() else float(value) for name, value in found.items()}
    on_signal, on_xi2 = seen.phi[0, ..., 0], seen.phi[0, ..., 1]  # (N M): by sample and query
    share = on_signal.mean(-1) / (on_signal + on_xi2).mean(-1)
    plus = seen.labels[0] > 0
    return dataclasses.asdict(cell) | found | {
        "time": float(trained.time), "fresh_attention": float(fresh.phi[..., 0, 0].mean()),
        "fresh_noise_attention": float(fresh.phi[..., 1:, 0].mean()),
        "samples_between": float(((share > BETWEEN[0]) & (share < BETWEEN[1])).double().mean()),
        "share_plus": float(share[plus].mean()) if plus.any() else None,
        "share_minus": float(share[~plus].mean()) if not plus.all() else None, "positives": int(plus.sum()),
        "items": regime.items_met(p), "seconds": seconds}


@functools.cache
def _even_seeds(n_samples: int, count: int) -> tuple[int, ...]:
    return seeds_of_even_classes(FIRST_SEED, n_samples, count)


def even_seeds(n_samples: int, count: int) -> list[int]:
    """The first `count` seeds from `FIRST_SEED` on whose N labels are half +1 and half -1; `UserError` for odd N.

    >>> seeds = even_seeds(8, 3)
    >>> [int(sample_labels(8, stream(seed, "train", "labels")).sum()) for seed in seeds]
    [0, 0, 0]
    """
    return list(_even_seeds(n_samples, count))


def cells(seeds: int = SEEDS, as_drawn: int = 12) -> list[Cell]:
    """The runs of the map, those that take longest last."""
    def runs(pairs, ratios):
        return [Cell(m, n, ratio, seed) for m, n in pairs for seed in even_seeds(n, seeds)
                for ratio in ratios]

    uneven = [Cell(*AS_DRAWN, ratio, FIRST_AS_DRAWN + k) for k in range(as_drawn) for ratio in FEWER_RATIOS]
    large = runs(LARGE, LARGE_RATIOS) + runs(LARGEST, LARGEST_RATIOS)
    return runs(sorted(PAIRS, key=math.prod), RATIOS) + uneven + large


def table_seeds(count: int = SEEDS) -> tuple[int, ...]:
    """All seeds with even classes that the map takes, at any N."""
    return tuple(sorted({seed for _, n in PAIRS + LARGE + LARGEST for seed in even_seeds(n, count)}))


def table(folder: str | Path = RESULTS, wanted: Sequence[Cell] = ()) -> Table:
    """The stored table of the map."""
    return Table(Path(folder) / "transition_map.csv", key=KEY, columns=COLUMNS,
                 seeds=sorted({cell.seed for cell in wanted}), command="vitbo results --only transition_map",
                 parameters={"delta": regime.DELTA, "epsilon": EPSILON, "signal_norm": 1.0, "n_test": N_TEST,
                             "engine": "drawn", "method": "flow", "largest_d": regime.LARGEST_D})


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The map: 5 seeds at `lab`, 10 at `paper`, four runs at `smoke`."""
    if profile == "smoke":
        wanted = [Cell(m, 8, ratio, even_seeds(8, 1)[0]) for m in (2, 3) for ratio in (0.1, 20.0)]
    else:
        wanted = cells(*{"lab": (SEEDS, 12), "paper": (10, 24)}[profile])
    return Plan(table=table(folder, wanted), cells=wanted, compute=compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored map, with what follows from its keys (`derived`)."""
    return derived(store.load(table().path, table().command)[0])


def derived(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `share`, the signal's part of the attention that signal and xi_2 have, and T in the theorems' units.

    `time_benign` = T eta epsilon ||mu||^2 ||w_O||^2 and `time_harmful` = T eta epsilon sigma_p_tilde^2 d ||w_O||^2 / N,
    which is C_p^2 times the unit of Theorem 4.2. Predicted: 2 and 1 (`vitbo_lib.stages`).
    """
    both = rows["attention_signal"] + rows["attention_xi2"]
    return rows.assign(share=rows["attention_signal"] / both, time_benign=rows["time"] * EPSILON,
                       time_harmful=rows["time"] * EPSILON / rows["ratio"])


def even(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs of the map, with classes of equal size; a pair (M, N) counts once all of its `SEEDS` seeds are there."""
    rows = rows[rows["seed"] < FIRST_AS_DRAWN]
    grids = ((PAIRS, RATIOS), (LARGE, LARGE_RATIOS), (LARGEST, LARGEST_RATIOS))
    needed = {pair: SEEDS * len(ratios) for pairs, ratios in grids for pair in pairs}
    sizes = rows.groupby(["M", "N"])["seed"].transform("size")
    pairs = zip(rows["M"], rows["N"])
    return rows[np.array([size >= needed.get(pair, math.inf) for pair, size in zip(pairs, sizes)], dtype=bool)]


def as_drawn(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs with labels as they come, at (M, N) = `AS_DRAWN`."""
    return rows[rows["seed"] >= FIRST_AS_DRAWN]


# ---------------------------------------------------------------------------------- where, how wide, and does N matter

def positions(rows: pd.DataFrame, value: str, part: float = 0.5) -> pd.DataFrame:
    """N SNR^2 / C_p^2 at which a seed is `part` of the way through the transition: columns M, N, seed, position.

    `value` "share": the share of attention on the signal passes `part`. "test_loss": that part of the drop between the
    plateaus is done, which are the means over seeds at the smallest and the largest ratio.
    """
    one_of("column", value, list(rows))
    found = []
    for (m, n), group in rows.sort_values("ratio").groupby(["M", "N"]):
        if value == "test_loss":
            means = group.groupby("ratio")[value].mean()
            level, sign = means.iloc[0] - part * (means.iloc[0] - means.iloc[-1]), 1
        else:
            level, sign = -part, -1
        found += [{"M": m, "N": n, "seed": seed,
                   "position": crossing(one["ratio"].to_numpy(), sign * one[value].to_numpy(), level)}
                  for seed, one in group.groupby("seed")]
    return pd.DataFrame(found, columns=["M", "N", "seed", "position"])


def summary(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """By M and N: position (mean, low, high over seeds), standard deviation over seeds, and width.

    `spread` is the standard deviation of the logarithm of the position; `width` the factor by which N SNR^2 grows
    while a seed goes from 10 % to 90 % of the way, its geometric mean over seeds.
    """
    at = positions(rows, value)
    ends = [positions(rows, value, part)["position"] for part in (0.1, 0.9)]
    at = at.assign(log_width=np.log(ends[1] / ends[0]))
    found = []
    for (m, n), group in at.groupby(["M", "N"]):
        i = mean_interval(group["position"])
        found.append((m, n, i.mean, i.low, i.high, float(np.log(group["position"]).std()),
                      math.exp(group["log_width"].mean())))
    return pd.DataFrame(found, columns=["M", "N", "mean", "low", "high", "spread", "width"])


@dataclass(frozen=True)
class Dependence:
    """How the position of one M depends on N: fits with the same seeds.

    `constant`: mean position; `power`: exponent of N; `per_log`: what one unit of log N adds; `residuals`: root mean
    square of what constant, logarithm and power leave, as a part of the position.
    """

    constant: Interval
    power: Interval
    per_log: Interval
    residuals: tuple[float, float, float]


def dependence(rows: pd.DataFrame, value: str = "share") -> dict[int, Dependence]:
    """For each M, the position over N fitted by a constant, a + b log N and a N^b."""
    found = {}
    for m, group in positions(rows, value).groupby("M"):
        log_n, at = np.log(group["N"].to_numpy(float)), group["position"].to_numpy()
        fits = (np.full_like(at, at.mean()), np.polyval(np.polyfit(log_n, at, 1), log_n),
                np.exp(np.polyval(np.polyfit(log_n, np.log(at), 1), log_n)))
        residuals = tuple(float(np.sqrt(np.mean((at / fit - 1) ** 2))) for fit in fits)
        found[int(m)] = Dependence(mean_interval(at), slope_interval(log_n, np.log(at)), slope_interval(log_n, at),
                                   residuals)
    return found


def undecided(rows: pd.DataFrame) -> pd.DataFrame:
    """By M: the largest mean share over seeds, of all N and ratios, of samples that look at both signal and xi_2."""
    means = rows.groupby(["M", "N", "ratio"])["samples_between"].mean()
    return means.groupby("M").max().reset_index()


def class_positions(rows: pd.DataFrame) -> pd.DataFrame:
    """Where each class of each run as drawn changes sides, beside N / |S_y|: `predicted`, `position`, `seed`.

    The break-even of the initial rates is C_p^2 N / |S_y| (`vitbo_lib.stages.predicted_boundary`).
    """
    found = []
    for seed, group in rows.sort_values("ratio").groupby("seed"):
        n, plus = int(group["N"].iloc[0]), int(group["positives"].iloc[0])
        for name, size in (("share_plus", plus), ("share_minus", n - plus)):
            if size:
                found.append((seed, n / size, crossing(group["ratio"].to_numpy(), -group[name].to_numpy(), -0.5)))
    return pd.DataFrame(found, columns=["seed", "predicted", "position"])


def _calm(n_samples: int, ratios: Sequence[float], seeds: Sequence[int]) -> pd.DataFrame:
    """Runs at M = 2 from W_V of `CALM_SCALE` times the cap of item (7), which the item allows; logits start as drawn.

    Columns M, N, ratio, seed, positives, share, share_plus, share_minus as in the map.
    """
    parts = []
    for ratio in ratios:
        p = regime.parameters(n_samples, 2, regime.snr_at(ratio, n_samples, 2), EPSILON)
        setting = simulation.setting_of(dataclasses.replace(p, sigma_v=CALM_SCALE * p.sigma_v), n_test=1)
        problem = simulation.build(setting, "drawn", seeds)
        seen = view(problem.train, simulation.train(setting, problem, "flow").coefficients)
        share, plus = seen.phi[..., 0].mean(-1), seen.labels > 0  # (R N); with two tokens attention is the share
        parts.append(pd.DataFrame({
            "M": 2, "N": n_samples, "ratio": ratio, "seed": seeds, "positives": plus.sum(-1).tolist(),
            "share": share.mean(-1).tolist(), "share_plus": _mean_where(share, plus),
            "share_minus": _mean_where(share, ~plus)}))
    return pd.concat(parts, ignore_index=True)


def _mean_where(values: Tensor, chosen: Tensor) -> list[float]:
    return ((values * chosen).sum(-1) / chosen.sum(-1)).tolist()


@functools.cache
def calm_runs(seeds: int = 3) -> pd.DataFrame:
    """Runs with small initial values and even classes (`_calm`)."""
    return _calm(CALM[1], CALM_RATIOS, even_seeds(CALM[1], seeds))


@functools.cache
def calm_uneven_runs(seeds: int = 3) -> pd.DataFrame:
    """Runs with small initial values, one class with a quarter of the samples: the least that Lemma C.1 allows."""
    n, seeds = CALM_UNEVEN_SAMPLES, whole("seeds", seeds)
    uneven = (seed for seed in itertools.count(FIRST_AS_DRAWN)
              if abs(sample_labels(n, stream(seed, "train", "labels")).sum()) == n / 2)
    return _calm(n, CALM_UNEVEN_RATIOS, list(itertools.islice(uneven, seeds)))


# ----------------------------------------------------------------------------------------- the sixth exponent, of eta

def eta_parameters(side: str) -> Parameters:
    """The problem whose step size is varied; it is small enough for descent, eight of the ten items are met."""
    one_of("side", side, ETAS)
    return regime.parameters(*ETA_SIZES, regime.snr_at(ETA_RATIO[side], *ETA_SIZES), ETA_EPSILON)


@functools.cache
def eta_runs(side: str, seeds: int = 4) -> pd.DataFrame:
    """Steps of gradient descent to epsilon for step sizes over two decades: columns `seed`, `eta`, `steps`."""
    setting = simulation.setting_of(eta_parameters(side), n_test=1)
    chosen = even_seeds(setting.n_samples, seeds)
    problem = simulation.build(setting, "drawn", chosen)
    parts = []
    for eta in ETAS[side]:
        steps = gradient_descent(problem, eta=eta, epsilon=ETA_EPSILON, max_steps=MOST_STEPS).steps
        parts.append(pd.DataFrame({"seed": chosen, "eta": eta, "steps": steps.tolist()}))
    return pd.concat(parts, ignore_index=True)


def eta_exponent(rows: pd.DataFrame) -> Interval:
    """Slope of log T over log eta, one a seed: mean and interval."""
    return mean_interval([float(np.polyfit(np.log(one["eta"]), np.log(one["steps"]), 1)[0])
                          for _, one in rows.groupby("seed")])
