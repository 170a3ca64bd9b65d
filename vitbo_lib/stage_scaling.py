"""How the stages depend on d_h, SNR, N and ||w_O||: event times, growth of the gaps, leaks, sums of alpha and beta.

Drawn at d = 10^21 and any d_h, trained by gradient flow; eta, sigma_V and sigma_h follow d_h by items (6) to (8) of
Condition 4.1. Small d_h leave item (1) unmet: that is the point, as the stages part only when d_h is large.
"""

import dataclasses
import functools
import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vitbo_lib import regime, simulation, stage_events, store, theory
from vitbo_lib.coefficients import coefficients
from vitbo_lib.intervals import Interval, slope_interval
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Parameters

D = 10**21
HIDDEN = (*(10**k for k in (4, 6, 8, 10, 12, 13, 14, 15, 16, 17)),)
BASE_HIDDEN = 10**14
SNRS = {"benign": (4.0, 5.6, 8.0, 14.0), "harmful": (0.0625, 0.125, 0.25, 0.4)}  # 3M dominance comes early
BASE_SNR = {"benign": 8.0, "harmful": 0.25}
SAMPLES = (16, 32, 128)  # beside 64
W_O_NORMS = (0.3, 3.0)  # beside 1
SNAPSHOTS = 50
KEY = ("side", "N", "M", "snr", "w_o_norm", "d_h", "seed")
SUMS = {"own": "alpha_{+,+}", "signal_keys": "alpha_{n,+,i}", "own_beta": "beta_{n,+,i}", "to_signal": "alpha_{n,i,+}",
        "to_signal_beta": "beta_{n,i,+}", "same": "alpha_{n,i,n,j}", "same_beta": "beta_{n,j,n,i}",
        "cross": "alpha_{n,i,m,j}", "cross_beta": "beta_{n,j,m,i}"}
AT_QUERIES = ("c", "c_least", "power", "power_from_0", "leak_t_2", "leak")
COLUMNS = (*stage_events.EVENTS, *(f"{name}_{query}" for query in ("signal", "noise") for name in AT_QUERIES),
           "logit_2", "logit_3", "cross", "cross_start", *(f"{name}_{stage}" for name in SUMS for stage in (2, 3)))


@dataclass(frozen=True)
class Cell:
    """One run."""

    side: str
    N: int
    M: int
    snr: float
    w_o_norm: float
    d_h: int
    seed: int

    @property
    def parameters(self) -> Parameters:
        return scaled(self.N, self.M, self.snr, self.d_h, self.w_o_norm)


def scaled(n_samples: int, tokens: int, snr: float, d_h: int, w_o_norm: float = 1.0) -> Parameters:
    """Numbers at d = 10^21 and the given d_h: eta, sigma_V at the caps (6), (7), sigma_h amid the window (8).

    >>> p = scaled(64, 2, 4.0, 10**12)
    >>> [item.number for item in theory.condition_4_1(p) if not item.met]
    []
    """
    sigma_p = 1 / (snr * math.sqrt(D))
    p = Parameters(N=n_samples, M=tokens, d=D, d_h=d_h, signal_norm=1.0, sigma_p=sigma_p, epsilon=regime.EPSILON,
                   sigma_p_tilde=5 * math.sqrt(tokens) * sigma_p, delta=regime.DELTA, w_o_norm=w_o_norm)
    return theory.at_condition(p)


# ------------------------------------------------------------------------------------------------------------- one run

def compute(cell: Cell) -> dict:
    """Train one network by the flow and read the stages off its way."""
    p = cell.parameters
    way = stage_events.flow_way(simulation.setting_of(p, n_test=1), [cell.seed], SNAPSHOTS)
    run = stage_events.record(way, [cell.seed])
    ends = stage_events.events(run, cell.side, cell.M)
    gap = "lambda" if cell.side == "benign" else "psi"
    found = dict(ends)
    for query in ("signal", "noise"):
        found |= {f"{name}_{query}": value for name, value in growth(run, f"{gap}_{query}", ends).items()}
        leak = leaks(run, cell.side, query)
        found[f"leak_{query}"] = at(run["time"], leak, ends["derivative"])
        found[f"leak_t_2_{query}"] = at(run["time"], leak, stage_events.predicted(p, cell.side)["t_2"])
    found |= {"logit_2": at(run["time"], run["logit_largest"], ends["derivative"]),
              "logit_3": float(run["logit_largest"].iloc[-1]),
              "cross": float(run[["cross_sample", "cross_class"]].iloc[-1].max()),
              "cross_start": float(run[["cross_sample", "cross_class"]].iloc[0].max())}
    return dataclasses.asdict(cell) | found | sums(way, ends)


def leaks(run: pd.DataFrame, side: str, query: str) -> pd.Series:
    """Attention that does not go to the winner: of the signal's query, or of noise queries."""
    if side == "benign":
        return run[f"leak_{query}"]
    return 1 - run[f"xi2_{query}"]


def at(times: pd.Series, values: pd.Series, time: float) -> float:
    """A positive quantity at a time, interpolated on logarithmic axes; NaN outside the run or for a missing time."""
    inside = (times > 0) & (values > 0)
    if not (inside.any() and times[inside].min() <= time <= times.max()):
        return math.nan
    return float(np.exp(np.interp(math.log(time), np.log(times[inside]), np.log(values[inside]))))


def growth(run: pd.DataFrame, gap: str, ends: dict[str, float]) -> dict[str, float]:
    """How e^gap grows within stage II: from twice the time of dominance T_1 to half the time at which -l' leaves 1/2.

    `power`: log-log slope of e^gap - e^gap(T_1) in t - T_1; `power_from_0`: of e^gap - e^gap(0) in t; `c`: the latter
    over t^2 at the end of that window; `c_least`: the least of the former over (t - T_1)^2 from T_1 on. NaN where the
    window has fewer than four states.
    """
    t_1, t_2 = ends["dominance"], ends["derivative"] / 2
    inside = run[(run["time"] >= 2 * t_1) & (run["time"] <= t_2)]
    if len(inside) < 4:
        return dict.fromkeys(AT_QUERIES[:4], math.nan)
    later = run[(run["time"] > 1.1 * t_1) & (run["time"] <= ends["derivative"])]
    found = {"c_least": float((_grown(run, gap, t_1, later) / (later["time"] - t_1) ** 2).min())}
    for name, since in (("power", t_1), ("power_from_0", 0.0)):
        grown = _grown(run, gap, since, inside)
        fine = bool((grown > 0).all())
        found[name] = slope_interval(np.log(inside["time"] - since), np.log(grown)).mean if fine else math.nan
    return found | {"c": float(grown.iloc[-1] / inside["time"].iloc[-1] ** 2)}


def _grown(run: pd.DataFrame, gap: str, since: float, where: pd.DataFrame) -> pd.Series:
    """e^gap less what it was at the time `since`."""
    return np.exp(where[gap]) - math.exp(float(np.interp(since, run["time"], run[gap])))


@torch.no_grad()
def sums(way: stage_events.Way, ends: dict[str, float]) -> dict[str, float]:
    """Integrals of |alpha| and |beta| over stage II (dominance to -l' < 0.4) and stage III (to the end), R = 1.

    For each kind of coefficient (`SUMS`) the largest integral of all entries of that kind. NaN for stages out of order.
    """
    cuts = (ends["dominance"], ends["derivative"], ends["end"])
    times = torch.cat(way.times).tolist()
    sizes = [_sizes(way, state) for state in way.states]
    found = {}
    for stage, (low, high) in zip((2, 3), itertools.pairwise(cuts)):
        total = _integral(times, sizes, low, high)
        for name in SUMS:
            matrix, mask = _kind(name, way)
            found[f"{name}_{stage}"] = math.nan if total is None else float(total[matrix][mask].max())
    return found


def _sizes(way: stage_events.Way, state) -> torch.Tensor:
    """|alpha| and |beta| (2 K K) per unit of time."""
    found = coefficients(way.problem.train, state, eta=1.0)
    return torch.stack([found.alpha[0].abs(), found.beta[0].abs()])


def _integral(times: list[float], sizes: list[torch.Tensor], low: float, high: float):
    """Trapezoid rule between `low` and `high`; None where they are no interval."""
    if not low < high:
        return None
    def value(t):
        k = min(max(int(np.searchsorted(times, t)), 1), len(times) - 1)
        share = (t - times[k - 1]) / (times[k] - times[k - 1])
        return sizes[k - 1] * (1 - share) + sizes[k] * share

    inner = [(t, size) for t, size in zip(times, sizes) if low < t < high]
    points = [(low, value(low)), *inner, (high, value(high))]
    return sum((b - a) * (x + y) / 2 for (a, x), (b, y) in itertools.pairwise(points))


def _kind(name: str, way: stage_events.Way) -> tuple[int, torch.Tensor]:
    """Which matrix (0: alpha, 1: beta) and which of its entries (K K) belong to a kind of coefficient."""
    samples, tokens = way.problem.train.labels.shape[1], way.problem.train.n_tokens
    sample = torch.cat([torch.tensor([-1, -2]), torch.arange(samples).repeat_interleave(tokens - 1)])
    signal = sample < 0
    rows, columns = signal.unsqueeze(1), signal.unsqueeze(0)
    same = sample.unsqueeze(1) == sample
    noise = ~rows & ~columns
    masks = {"own": rows & columns & same, "signal_keys": rows & ~columns, "to_signal": ~rows & columns,
             "same": noise & same, "cross": noise & ~same}
    matrix = int(name.endswith("_beta"))
    kind = name.removesuffix("_beta")
    return matrix, masks["signal_keys" if name == "own_beta" else kind]


# ---------------------------------------------------------------------------------------------------------- the table

def cells(seeds: int = 4) -> list[Cell]:
    """The sweep over d_h on both sides; SNR and ||w_O|| on both, N on the benign one."""
    runs = [(side, 64, 2, BASE_SNR[side], 1.0, d_h) for side in stage_events.SIDES for d_h in HIDDEN]
    runs += [(side, 64, 2, snr, 1.0, BASE_HIDDEN) for side in stage_events.SIDES for snr in SNRS[side]]
    runs += [(side, 64, 2, BASE_SNR[side], w, BASE_HIDDEN) for side in stage_events.SIDES for w in W_O_NORMS]
    runs += [(side, n, 2, BASE_SNR[side], 1.0, BASE_HIDDEN) for side in stage_events.SIDES for n in SAMPLES]
    return [Cell(*run, seed) for run in dict.fromkeys(runs) for seed in range(seeds)]


def plan(folder: str | Path = regime.RESULTS, profile: str = "lab") -> Plan:
    """The stored table: 4 seeds at `lab`, 8 at `paper`; at `smoke` a single run."""
    seeds = {"smoke": 1, "lab": 4, "paper": 8}[profile]
    wanted = [Cell("benign", 8, 2, 4.0, 1.0, 10**8, 0)] if profile == "smoke" else cells(seeds)
    return Plan(_table(folder, seeds), wanted, compute)


def _table(folder: str | Path, seeds: int) -> Table:
    return Table(Path(folder) / "stage_scaling.csv", key=KEY, columns=COLUMNS, seeds=tuple(range(seeds)),
                 parameters={"d": D, "epsilon": regime.EPSILON, "delta": regime.DELTA, "snapshots": SNAPSHOTS},
                 command="vitbo results --only stage_scaling")


@functools.cache
def load() -> pd.DataFrame:
    """The stored table."""
    table = _table(regime.RESULTS, 4)
    return store.load(table.path, table.command)[0]


def along(rows: pd.DataFrame, side: str, free: str) -> pd.DataFrame:
    """The runs of a side that differ by `free` and seed alone."""
    base = {"N": 64, "snr": BASE_SNR[side], "w_o_norm": 1.0, "d_h": BASE_HIDDEN}
    kept = rows[rows["side"] == side]
    for name in set(base) - {free}:
        kept = kept[np.isclose(kept[name].astype(float), base[name])]
    return kept.sort_values([free, "seed"])


def power(rows: pd.DataFrame, side: str, free: str, value: str, least: float = 0.0, divided_by=None) -> Interval:
    """Log-log slope of a column in `free` (from `least` on) over all runs with a value; NaNs if there are too few."""
    kept = along(rows, side, free)
    kept = kept[kept[free] >= least]
    y = kept[value] if divided_by is None else kept[value] / kept.apply(divided_by, axis=1)
    good = (y > 0) & np.isfinite(y)
    if kept[free][good].nunique() < 3:
        return Interval(math.nan, math.nan, math.nan, int(good.sum()))
    return slope_interval(np.log(kept[free][good].astype(float)), np.log(y[good]))


def logit_energy(row) -> float:
    """sigma_h^2 d_h of a run: what its logits are measured in."""
    p = scaled(int(row["N"]), int(row["M"]), float(row["snr"]), int(row["d_h"]), float(row["w_o_norm"]))
    return p.sigma_h**2 * p.d_h


def formula_times(side: str) -> pd.DataFrame:
    """The paper's T_1, T_2 and T_3 (constants 1) along the sweep over d_h, in time eta t: columns d_h, t_1, t_2, t_3.

    >>> formula_times("harmful").shape
    (10, 5)
    """
    return pd.DataFrame([{"d_h": d_h} | stage_events.predicted(scaled(64, 2, BASE_SNR[side], d_h), side)
                         for d_h in HIDDEN])


def order_of_events(side: str) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Event times of four settings and the paper's formulas for each, for `vitbo_lib.figures.stages.timeline`."""
    names = {"App. A, undivided": "App. A, $w_O$ not divided", "App. A": "App. A, $w_O$ divided",
             "regime": "smallest problem of the condition"}
    events = stage_events.all_events(stage_events.load())
    events = events[(events["side"] == side) & events["case"].isin(names)]
    large = along(load(), side, "d_h")
    large = large[large["d_h"] == 10**16].assign(setting="$d_h = 10^{16}$")
    formulas = {name: stage_events.predicted(stage_events.parameters(case, side), side) for case, name in names.items()}
    formulas["$d_h = 10^{16}$"] = stage_events.predicted(scaled(64, 2, BASE_SNR[side], 10**16), side)
    order = [events[events["case"] == case].assign(setting=name) for case, name in names.items()]
    return pd.concat([*order, large], ignore_index=True)[["setting", "seed", *stage_events.EVENTS]], formulas


def values_figure_slopes(run: pd.DataFrame, side: str, ends: dict[str, float]) -> dict[str, float]:
    """The slopes that `vitbo_lib.figures.stages.values` draws, for a run of the case "regime"."""
    p = stage_events.parameters("regime", side)
    lowest, highest = stage_events.envelopes(p, side)
    column = "v_plus" if side == "benign" else "v_xi2"
    return {"linear": stage_events.linear_stage(run, column, ends).slope, "low": lowest, "high": highest,
            "exponential": stage_events.exponential_slope(p, side, float(run["share_plus"].iloc[0]))}
