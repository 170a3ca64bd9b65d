"""From the lab to the regime: one transition at d from 10^3 to 10^16, and what moves Figure 1's boundary.

A `Way` is a sequence of problems that differ by d and what follows from it, at matched N SNR^2 / C_p^2: drawn directly,
trained by gradient flow, ||mu|| = ||w_O|| = 1, C_p = 5 sqrt(M), sigma_h in the middle of window (8). A `Rung` is Figure
1's setting with one thing changed. Samples have classes of equal size, since unequal ones move the boundary at any d
(`stages.predicted_boundary`); one way has labels as they come.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vitbo_lib import phase_diagram, regime, simulation, store, theory
from vitbo_lib.data import SignalNoise, one_of, positive, seeds_of_even_classes, whole
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.intervals import Interval, mean_interval
from vitbo_lib.observables import observe
from vitbo_lib.phase_diagram import crossing
from vitbo_lib.simulation import Setting
from vitbo_lib.span import Points, Problem
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Parameters

EPSILON = DELTA = 0.01
DIMENSIONS = (10**3, 10**4, 10**6, 10**9, 10**12, 10**16)
TOLERANCE = 1e-4  # of the flow; with 1e-6 losses change by less than 0.001 and take twice as long
FIRST_SEED = 3000  # seeds of its own
RESULTS = Path(__file__).resolve().parents[1] / "results"
KEY = ("path", "M", "N", "d", "ratio", "seed")
COLUMNS = ("time", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2", "v_signal", "v_xi2")
COMMAND = "vitbo results --only lab_to_regime"

# N SNR^2 / C_p^2: the ends for the plateaus, dense around each transition
TWO = (0.05, 0.15, 0.3, 0.5, 0.7, 1.0, 1.2, 1.4, 1.6, 1.7, 1.8, 1.85, 1.9, 1.95, 2.0, 2.05, 2.1, 2.2, 2.4, 2.7, 3.3,
       4.5, 8.0, 50.0)
FOUR = (0.05, 0.4, 1.0, 1.4, 1.7, 2.0, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.3, 5.0, 8.0, 50.0)
SIXTEEN = (0.05, 0.6, 1.2, 1.6, 2.0, 2.3, 2.6, 2.9, 3.2, 3.6, 4.5, 7.0, 50.0)
STEPS = (0.05, 1.2, 1.8, 2.2, 2.6, 3.1, 4.5, 20.0)  # of a rung


@dataclass(frozen=True)
class Way:
    """How d grows: M, N, initial values ("zero", or at the "cap" of item (7)), d_h ("half" of d, or as item (2)
    allows, epsilon^2 d / N^2), classes of equal size (`even`) or not, and what is run."""

    tokens: int
    n_samples: int
    ratios: tuple[float, ...]
    seeds: int
    values: str = "zero"
    hidden: str = "half"
    even: bool = True
    dimensions: tuple[int, ...] = DIMENSIONS


WAYS = {
    "M = 2": Way(2, 40, TWO, 8),
    "M = 2 values at cap": Way(2, 40, TWO, 8, values="cap", dimensions=(10**3, 10**9, 10**16)),
    "M = 2 labels as they come": Way(2, 40, TWO, 8, even=False, dimensions=(10**16,)),
    "M = 2 d_h of item (2)": Way(2, 40, TWO, 8, hidden="condition", dimensions=(10**16,)),
    "M = 4": Way(4, 16, FOUR, 4),
    "M = 16": Way(16, 10, SIXTEEN, 3, dimensions=(10**3, 10**16)),
}


def parameters(way: Way, d: int, ratio: float) -> Parameters:
    """The numbers of one problem of a way, sigma_V at its cap (7) whether it is used or not.

    >>> p = parameters(WAYS["M = 2 d_h of item (2)"], 10**16, 2.0)
    >>> p.d_h, regime.items_met(p)
    (625000000, 10)
    >>> regime.items_met(parameters(WAYS["M = 2"], 10**16, 2.0))  # d_h = d / 2 is too large for item (2)
    9
    """
    n, tokens, d = whole("N", way.n_samples), whole("M", way.tokens), whole("d", d, 3)
    d_h = d // 2 if way.hidden == "half" else int(EPSILON**2 * d / n**2)
    sigma_p = 1 / (regime.snr_at(ratio, n, tokens) * math.sqrt(d))
    p = Parameters(N=n, M=tokens, d=d, d_h=d_h, signal_norm=1.0, sigma_p=sigma_p, w_o_norm=1.0, epsilon=EPSILON,
                   sigma_p_tilde=5 * math.sqrt(tokens) * sigma_p, delta=DELTA)
    return theory.at_condition(p)


# ------------------------------------------------------------------------------------------------ Figure 1, one change

@dataclass(frozen=True)
class Rung:
    """Figure 1 near its boundary, noise as in the paper's experiments, Gaussian weights; defaults are the base.

    `start`: "" as drawn, "logits" or "values" set to 0 at t = 0.
    A larger `d` keeps sigma_p^2 d, a larger `d_h` keeps the size of initial logits, sigma_h^2 sqrt(d_h).
    """

    method: str = "flow"
    n_samples: int = 10
    d: int = phase_diagram.LAW.d
    d_h: int = phase_diagram.D_H
    project: bool = False
    start: str = ""
    n_tokens: int = phase_diagram.LAW.n_tokens
    seeds: int = 3

    def setting(self, reading: str, ratio: float) -> Setting:
        """The setting at N SNR^2 / C_p^2 = `ratio`; ||w_O|| at the root mean square of its law."""
        one_of("reading", reading, phase_diagram.READINGS)
        ratio = positive("ratio", ratio)
        law, scale = phase_diagram.LAW, math.sqrt(phase_diagram.LAW.d / self.d)
        signal_norm = math.sqrt(ratio / self.n_samples * law.d) * law.sigma_p_tilde
        deviation = 1 / (phase_diagram.DIVISOR * math.sqrt(3 * law.d))
        w_o_norm = phase_diagram.READINGS[reading] / math.sqrt(3)
        sigma_h = deviation * (phase_diagram.D_H / self.d_h) ** 0.25
        law = SignalNoise(n_tokens=self.n_tokens, d=self.d, signal_norm=signal_norm, sigma_p=law.sigma_p * scale,
                          sigma_p_tilde=law.sigma_p_tilde * scale, project=self.project)
        init = GaussianInit(sigma_h=sigma_h, sigma_v=0.0 if self.start == "values" else deviation, w_o_norm=w_o_norm)
        return Setting(law=law, n_samples=self.n_samples, d_h=self.d_h, init=init, eta=phase_diagram.ETA,
                       epsilon=EPSILON, n_test=200)


RUNGS = {
    "descent": Rung(method="gd"), "flow": Rung(seeds=6), "noise projected": Rung(project=True), "d": Rung(d=10**12),
    "d_h": Rung(d_h=10**9), "logits from 0": Rung(start="logits"), "values from 0": Rung(start="values"),
    "N": Rung(n_samples=4, seeds=6), "M": Rung(n_tokens=2, seeds=12),  # cheap ones with more seeds
}
DIVIDED = ("flow", "M")  # the rungs of the reading whose training is long


def without_initial_logits(problem: Problem) -> Problem:
    """The problem with all logits 0 at t = 0, norms and angles of queries and of keys kept: queries and keys start in
    orthogonal halves of a hidden space of twice the size (R N*M 2h)."""
    def apart(points: Points) -> Points:
        nothing = torch.zeros_like(points.start.queries)
        start = dataclasses.replace(points.start, queries=torch.cat([points.start.queries, nothing], -1),
                                    keys=torch.cat([nothing, points.start.keys], -1))
        return dataclasses.replace(points, start=start, outside_logits=None)

    return dataclasses.replace(problem, train=apart(problem.train), test=apart(problem.test), hidden_basis=None)


# --------------------------------------------------------------------------------------------------------------- cells

@dataclass(frozen=True)
class Cell:
    """One way at one d, or one rung, with one seed: all its N SNR^2 / C_p^2."""

    path: str
    M: int
    N: int
    d: int
    seed: int
    ratio: tuple[float, ...]


def even_seeds(n_samples: int, count: int) -> list[int]:
    """The first seeds whose N labels have as many +1 as -1; `UserError` for odd N.

    >>> even_seeds(4, 2)[0] >= FIRST_SEED
    True
    """
    return list(seeds_of_even_classes(FIRST_SEED, n_samples, count))


def rung_path(reading: str, rung: str) -> str:
    """The name of a rung in the table."""
    return f"Figure 1 {reading}: {rung}"


def problem_of(cell: Cell, ratio: float) -> tuple[Setting, Problem, str]:
    """Setting, drawn problem (R = 1) and method of a cell at one ratio."""
    if cell.path in WAYS:
        way = WAYS[cell.path]
        setting = simulation.setting_of(parameters(way, cell.d, ratio), n_test=200 if way.tokens == 16 else 500)
        if way.values == "zero":
            setting = dataclasses.replace(setting, init=dataclasses.replace(setting.init, sigma_v=0.0))
        return setting, simulation.build(setting, "drawn", [cell.seed]), "flow"
    one_of("path", cell.path, [rung_path(reading, name) for reading in phase_diagram.READINGS for name in RUNGS])
    reading, name = cell.path.removeprefix("Figure 1 ").split(": ")
    rung = RUNGS[name]
    setting = rung.setting(reading, ratio)
    problem = simulation.build(setting, "drawn", [cell.seed])
    return setting, without_initial_logits(problem) if rung.start == "logits" else problem, rung.method


def compute(cell: Cell) -> list[dict]:
    """Rows of a cell: one a ratio."""
    rows = []
    for ratio in cell.ratio:
        setting, problem, method = problem_of(cell, ratio)
        trained = simulation.train(setting, problem, method, **({"tolerance": TOLERANCE} if method == "flow" else {}))
        found = {name: float(value) for name, value in observe(problem, trained.coefficients).items()}
        rows.append(dataclasses.asdict(cell) | {"ratio": ratio, "time": float(trained.time)} | found)
    return rows


def cells(more: int = 1, ways: Sequence[str] = tuple(WAYS), rungs: Sequence[str] = tuple(RUNGS),
          few: bool = False) -> list[Cell]:
    """All cells, seed by seed so that a stopped table has a few of each; `more` times the seeds; `few`: one of each."""
    found = []
    for name in ways:
        one_of("way", name, WAYS)
        way = WAYS[name]
        count = 1 if few else more * way.seeds
        seeds = even_seeds(way.n_samples, count) if way.even else range(FIRST_SEED, FIRST_SEED + count)
        found += [Cell(name, way.tokens, way.n_samples, d, seed, way.ratios) for d in way.dimensions for seed in seeds]
    for reading in ("undivided", "divided"):
        for name in rungs:
            if reading == "undivided" or name in DIVIDED:
                one_of("rung", name, RUNGS)
                rung = RUNGS[name]
                path = rung_path(reading, name)
                found += [Cell(path, rung.n_tokens, rung.n_samples, rung.d, seed, STEPS)
                          for seed in even_seeds(rung.n_samples, 1 if few else more * rung.seeds)]
    return found


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The stored table: all ways and rungs at `lab`, twice the seeds at `paper`, three cells at `smoke`."""
    wanted = {"smoke": lambda: [dataclasses.replace(cell, ratio=cell.ratio[::6]) for cell in
                                cells(ways=("M = 2",), rungs=("flow",), few=True) if cell.d < 10**6],
              "lab": cells, "paper": lambda: cells(more=2)}[profile]()
    shared = {"epsilon": EPSILON, "delta": DELTA, "tolerance": TOLERANCE, "largest_d": max(DIMENSIONS)}
    table = Table(Path(folder) / "lab_to_regime.csv", key=KEY, columns=COLUMNS, parameters=shared,
                  seeds=sorted({cell.seed for cell in wanted}), command=COMMAND)
    return Plan(table, wanted, compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored table with `share` (`derived`)."""
    return derived(store.load(RESULTS / "lab_to_regime.csv", COMMAND)[0])


def derived(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `share`: attention on the signal over that on signal and strong noise (training points).

    It is 1/2 where neither has won, at any M and whatever attention is left on weak noise.
    """
    return rows.assign(share=rows["attention_signal"] / (rows["attention_signal"] + rows["attention_xi2"]))


def items_met(path: str, d: int, ratio: float) -> int:
    """How many of the ten items of Condition 4.1 a problem of a way meets.

    >>> items_met("M = 2", 10**3, 2.0)
    8
    """
    one_of("way", path, WAYS)
    return regime.items_met(parameters(WAYS[path], d, ratio))


# ------------------------------------------------------------------------------------------------------------- reading

def plateaus(rows: pd.DataFrame) -> tuple[float, float]:
    """Mean test loss at the smallest ratio, and the smallest mean."""
    if rows.empty:
        raise UserError("no rows, so no plateaus; give those of one way at one d")
    means = rows.groupby("ratio")["test_loss"].mean()
    return float(means.iloc[0]), float(means.min())


def crossings(rows: pd.DataFrame, criterion: str = "attention", fraction: float = 0.5) -> pd.Series:
    """N SNR^2 / C_p^2 at which each seed passes, by seed; NaN where it never does.

    "attention": `share` rises beyond 1 - `fraction`; "loss": the test loss falls below `fraction` of the way from its
    lower plateau to its upper one; "cut-off": below 0.2, as in Figure 1(b). In each case for good.
    """
    one_of("criterion", criterion, ("attention", "loss", "cut-off"))
    if criterion == "attention":
        values, level = 1 - rows["share"], fraction
    else:
        high, low = plateaus(rows)
        values, level = rows["test_loss"], low + fraction * (high - low)
        level = phase_diagram.CUT_OFF if criterion == "cut-off" else level
    runs = rows.assign(value=values).sort_values("ratio").groupby("seed")
    return pd.Series({seed: crossing(run["ratio"].to_numpy(), run["value"].to_numpy(), level) for seed, run in runs},
                     dtype=float)


def geometric(values: Sequence[float]) -> Interval:
    """Geometric mean with its interval; NaN where a value is missing or there is none.

    >>> round(geometric([1.0, 4.0]).mean, 9)
    2.0
    """
    if len(values) == 0 or not np.isfinite(values).all():
        return Interval(math.nan, math.nan, math.nan, 0)
    logs = mean_interval(np.log(values))
    return Interval(*(math.exp(part) for part in (logs.mean, logs.low, logs.high)), logs.n)


def position(rows: pd.DataFrame, criterion: str = "attention") -> Interval:
    """Middle of the transition in N SNR^2 / C_p^2, geometric mean over seeds."""
    return geometric(crossings(rows, criterion))


def widths(rows: pd.DataFrame, criterion: str = "loss") -> pd.Series:
    """Decades of N SNR^2 from 90 % to 10 % of the way between the plateaus, by seed."""
    return np.log10(crossings(rows, criterion, 0.1) / crossings(rows, criterion, 0.9))


def width(rows: pd.DataFrame, criterion: str = "loss") -> Interval:
    """Mean width over seeds, in decades."""
    found = widths(rows, criterion)
    return mean_interval(found) if len(found) and found.notna().all() else Interval(math.nan, math.nan, math.nan, 0)


def by_dimension(rows: pd.DataFrame, path: str) -> pd.DataFrame:
    """What a way looks like at each d: columns d, items, plateaus, and position, cut-off, width each with low, high.

    `items` counts those of Condition 4.1 that are met at N SNR^2 = 2 C_p^2.
    """
    found = []
    for d, part in rows[rows["path"] == path].groupby("d"):
        high, low = plateaus(part)
        row = {"d": float(d), "items": items_met(path, int(d), 2.0), "upper": high, "lower": low}
        intervals = {"attention": position(part), "loss": position(part, "loss"), "cut_off": position(part, "cut-off"),
                     "width": width(part), "width_attention": width(part, "attention")}
        for name, interval in intervals.items():
            row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        found.append(row)
    return pd.DataFrame(found)


def width_slope(rows: pd.DataFrame, path: str, criterion: str = "loss", up_to: float = math.inf) -> Interval:
    """Slope of log width over log d, one fit a seed (all d share its random numbers), interval over seeds."""
    part = rows[(rows["path"] == path) & (rows["d"] <= up_to)]
    wide = pd.DataFrame({d: widths(run, criterion) for d, run in part.groupby("d")})
    logs = np.log10(wide.columns.to_numpy(dtype=float))
    return mean_interval([np.polyfit(logs, np.log10(line), 1)[0] for line in wide.to_numpy()])
