"""Figure 1: test loss over the number of samples and the signal-to-noise ratio, with the paper's sizes (Section 6).

What the paper leaves open is a choice here: w_O is divided by 16 like the other weights ("divided") or not
("undivided"); labels are Rademacher, so that a class may be missing; all cells of one seed share noise vectors,
initial weights and fresh noise (N samples are the first N), so that cells differ by N and SNR alone and intervals are
over seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from vitbo_lib.data import SignalNoise, sample
from vitbo_lib.draw import draw
from vitbo_lib.initialization import GaussianInit, TorchInit, sample_weights
from vitbo_lib.intervals import Interval, mean_interval
from vitbo_lib.observables import observe
from vitbo_lib.seeds import stream
from vitbo_lib.span import Problem, Seen, assemble, first_samples, look
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.training import gradient_descent

LAW = SignalNoise(n_tokens=16, d=1024, signal_norm=1.0, sigma_p=0.2, sigma_p_tilde=4.0, project=False)
D_H = D_V = 512
ETA, EPSILON, DIVISOR, N_TEST = 0.1, 0.01, 16, 100
READINGS = {"divided": 1 / DIVISOR, "undivided": 1.0}  # what w_O is multiplied by
SAMPLES = tuple(range(2, 21))
# ||mu|| from 1 to 100, SNR from 0.16 to 15.6: few where nothing changes, dense around the boundary
SIGNAL_NORMS = tuple(float(x) for x in (1, 20, 28, *range(36, 101, 4)))
CUT_OFF = 0.2  # of Figure 1(b)
PAPER_CURVE = 1000.0  # N SNR^2 of the red curve
MAX_STEPS = 20_000
RESULTS = Path(__file__).resolve().parents[1] / "results"
KEY = ("reading", "init", "N", "signal_norm", "seed")
COLUMNS = ("steps", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2", "v_signal", "v_xi2")


def snr(signal_norm: float) -> float:
    """||mu|| / (sigma_p sqrt(d)) at the sizes of Figure 1.

    >>> [round(snr(norm), 2) for norm in (1, 100)]
    [0.16, 15.62]
    """
    return replace(LAW, signal_norm=signal_norm).snr


@dataclass(frozen=True)
class Cell:
    """All SNR of one reading, initialisation, N and seed: they share noise and weights."""

    reading: str
    init: str
    N: int
    seed: int
    signal_norm: tuple[float, ...] = SIGNAL_NORMS


def with_signal_norm(seen: Seen, norm: float) -> Seen:
    """Tokens seen with signals of norm 1, with signals of norm `norm` instead: everything is linear in them."""
    def scaled(part, dims=(0,)):
        part = part.clone()
        for dim in dims:
            part.narrow(dim, 0, 2).mul_(norm)
        return part

    return Seen(*map(scaled, (seen.queries, seen.keys, seen.values)), scaled(seen.inner_products, (0, 1)), seen.labels)


def uniform_problem(reading: str, n_samples: int, signal_norm: float, seed: int) -> Problem:
    """The reduced problem of one cell with PyTorch's initialisation over 16, from a draw in full (R = 1)."""
    return _uniform_problems(Cell(reading, "uniform", n_samples, seed))(signal_norm)


def _uniform_problems(cell: Cell):
    """Problems of a cell by signal norm; noise, weights and fresh noise are looked at once."""
    train, test = (sample(LAW, size, stream(cell.seed, word, "labels"), stream(cell.seed, word, "noise"))
                   for word, size in (("train", max(SAMPLES)), ("test", N_TEST)))
    init = TorchInit(scale=1 / DIVISOR, w_o_scale=READINGS[cell.reading])
    weights = sample_weights(init, LAW.d, D_H, D_V, stream(cell.seed, "weights"))
    seen = first_samples(look(train, weights), cell.N)
    fresh = look(test, weights, train)
    fresh = replace(fresh, inner_products=fresh.inner_products[:, : len(seen.values)])
    return lambda norm: assemble(with_signal_norm(seen, norm), with_signal_norm(fresh, norm), weights.w_o @ weights.w_o)


def _gaussian_problems(cell: Cell):
    """The same with Gaussian weights of the same standard deviations, drawn directly."""
    w_o_norm = READINGS[cell.reading] / math.sqrt(3)  # root mean square of the uniform law's
    deviation = 1 / (DIVISOR * math.sqrt(3 * LAW.d))
    init = GaussianInit(sigma_h=deviation, sigma_v=deviation, w_o_norm=w_o_norm)
    return lambda norm: draw(replace(LAW, signal_norm=norm), cell.N, D_H, init, N_TEST, cell.seed)


def compute(cell: Cell) -> list[dict]:
    """Rows of a cell: one a signal norm."""
    problem_at = (_uniform_problems if cell.init == "uniform" else _gaussian_problems)(cell)
    rows = []
    for norm in cell.signal_norm:
        problem = problem_at(norm)
        trained = gradient_descent(problem, eta=ETA, epsilon=EPSILON, max_steps=MAX_STEPS)
        observed = {name: float(value) for name, value in observe(problem, trained.coefficients).items()}
        rows.append({"reading": cell.reading, "init": cell.init, "N": cell.N, "signal_norm": norm, "seed": cell.seed,
                     "steps": int(trained.steps)} | observed)
    return rows


def table(reading: str, folder: str | Path = RESULTS, seeds: Sequence[int] = range(5)) -> Table:
    """The stored table of one reading of w_O."""
    parameters = {"law": LAW, "d_h": D_H, "d_v": D_V, "eta": ETA, "epsilon": EPSILON, "divisor": DIVISOR,
                  "w_o_scale": READINGS[reading], "n_test": N_TEST}
    return Table(Path(folder) / f"figure_1_{reading}.csv", key=KEY, columns=COLUMNS, parameters=parameters,
                 seeds=tuple(seeds), command=f"vitbo results --only figure_1_{reading}")


def grid(reading: str, folder: str | Path = RESULTS, seeds: Sequence[int] = range(5),
         samples: Sequence[int] = SAMPLES, signal_norms: Sequence[float] = SIGNAL_NORMS) -> Plan:
    """The grid of one reading; large N first, so that both workers end together.

    With the undivided reading, cheap, Gaussian weights drawn directly stand beside the uniform ones in every cell;
    with the divided one for N = 4, 7 and 10.
    """
    norms = tuple(signal_norms)
    uniform = [Cell(reading, "uniform", n, seed, norms) for n in sorted(samples, reverse=True) for seed in seeds]
    gaussian = [replace(cell, init="gaussian") for cell in uniform if reading == "undivided" or cell.N in (4, 7, 10)]
    return Plan(table(reading, folder, seeds), uniform + gaussian, compute)


def plan(reading: str, folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The paper's grid with 5 seeds at `lab`, with 10 at `paper`; two cells at `smoke`."""
    if profile == "smoke":
        return grid(reading, folder, range(2), (2, 4), (1.0, 100.0))
    return grid(reading, folder, range(10 if profile == "paper" else 5))


# ----------------------------------------------------------------------------------------------- reading the diagram

def means(rows: pd.DataFrame, value: str = "test_loss", init: str = "uniform") -> pd.DataFrame:
    """Mean of `value` over seeds, one row an N, one column an SNR."""
    chosen = rows[rows["init"] == init].assign(snr=lambda frame: frame["signal_norm"].map(snr))
    return chosen.pivot_table(index="N", columns="snr", values=value, aggfunc="mean")


def crossing(ratios: np.ndarray, losses: np.ndarray, level: float) -> float:
    """SNR at which the loss falls below `level` for good, interpolated in log SNR; NaN where it never does.

    >>> round(crossing(np.array([1.0, 4.0, 16.0]), np.array([0.7, 0.5, 0.1]), 0.3), 9)
    8.0
    """
    above = np.flatnonzero(losses > level)
    last = above[-1] if len(above) else -1
    if last < 0 or last == len(losses) - 1:
        return math.nan
    share = (losses[last] - level) / (losses[last] - losses[last + 1])
    return float(math.exp(math.log(ratios[last]) + share * math.log(ratios[last + 1] / ratios[last])))


def middle_level(rows: pd.DataFrame, init: str = "uniform") -> float:
    """The test loss half way between the plateaus: mean over N at the smallest SNR, and the smallest cell mean."""
    grid = means(rows, init=init)
    return float((grid.iloc[:, 0].mean() + grid.to_numpy().min()) / 2)


def boundary_points(rows: pd.DataFrame, level: float, init: str = "uniform") -> pd.DataFrame:
    """The SNR at which each seed's test loss crosses `level`, for every N: columns seed, N, snr (missing: never)."""
    points = [{"seed": seed, "N": n, "snr": crossing(group["signal_norm"].map(snr).to_numpy(),
                                                     group["test_loss"].to_numpy(), level)}
              for (seed, n), group in rows[rows["init"] == init].sort_values("signal_norm").groupby(["seed", "N"])]
    return pd.DataFrame(points)


@dataclass(frozen=True)
class Boundary:
    """The fitted boundary N = constant * SNR^slope: 95 % intervals over seeds, and from which N on it was fitted.

    `n_snr2` is the geometric mean of N SNR^2 on the boundary (the paper's curve has 1000, slope -2).
    """

    slope: Interval
    n_snr2: Interval
    smallest_n: int | None


def fit_boundary(points: pd.DataFrame) -> Boundary:
    """Straight line through log SNR over log N for each seed; its slope inverted, intervals over seeds.

    Only N at which every seed crosses the level are used: to use those that happen to would bend the line.

    >>> exact = pd.DataFrame([(s, n, (900 + s) ** 0.5 / n ** 0.5) for s in (0, 1) for n in (4, 9, 16)],
    ...                      columns=["seed", "N", "snr"])
    >>> found = fit_boundary(exact)
    >>> round(found.slope.mean, 6), round(found.n_snr2.mean)
    (-2.0, 900)
    """
    complete = points.groupby("N").filter(lambda group: group["snr"].notna().all())
    if complete["N"].nunique() < 3:
        nothing = Interval(math.nan, math.nan, math.nan, 0)
        return Boundary(nothing, nothing, None)
    lines, levels = [], []
    for _, group in complete.groupby("seed"):
        log_n, log_snr = np.log(group["N"]), np.log(group["snr"])
        lines.append(np.polyfit(log_n, log_snr, 1)[0])
        levels.append(float(np.mean(log_n + 2 * log_snr)))
    line, level = mean_interval(lines), mean_interval(levels)
    low, high = sorted((1 / line.low, 1 / line.high)) if line.low < line.high < 0 else (-math.inf, 1 / line.low)
    return Boundary(Interval(1 / line.mean, low, high, line.n),
                    Interval(math.exp(level.mean), math.exp(level.low), math.exp(level.high), level.n),
                    int(complete["N"].min()))
