"""Drawn problems beside the symmetric limit: what is left of their differences, and what the limit drops.

Condition 4.1 leaves initial logits and values that do not vanish beside what they meet. Three ways to start: `asked`,
as the condition's smallest problem has it; `values`, with initial values a million times smaller, which item (7)
allows; `both`, with d_h larger by 10^10 at the same gain as well, so that initial logits are 10^5 times smaller, which
item (8) does not allow. Labels are even, as in the limit.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from vitbo_lib import regime, simulation, store, symmetric
from vitbo_lib.data import one_of, seeds_of_even_classes
from vitbo_lib.errors import UserError
from vitbo_lib.observables import by_token_type, observe, view
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Parameters, needs

STARTS = ("asked", "values", "both")
SMALLER_VALUES, LARGER_D_H = 1e-6, 10**10
SIZES = {(64, 2): (0.3, 0.7, 1.1, 1.6, 1.9, 2.1, 2.4, 2.8, 3.5, 5.0),
         (16, 4): (0.3, 0.7, 1.2, 1.8, 2.3, 2.75, 3.05, 3.5, 4.2, 6.0)}
FIRST_SEED = 41_000  # seeds with even classes are looked for from here on
RESULTS = symmetric.RESULTS
OBSERVED = ("attention_signal", "test_loss", "test_error", "v_signal", "v_xi2", "v_weak", "mu_query", "xi2_query",
            "weak_query", "time")
WITHIN = {"attention_signal": 0.02, "v_signal": 0.05, "v_xi2": 0.05, "test_loss": 0.01}  # what counts as agreement


@functools.cache
def even_seeds(n_samples: int, count: int) -> tuple[int, ...]:
    """The first `count` seeds from `FIRST_SEED` on that draw as many +1 as -1."""
    return seeds_of_even_classes(FIRST_SEED, n_samples, count)


def parameters(n_samples: int, tokens: int, ratio: float, start: str = "asked") -> Parameters:
    """The problem of Condition 4.1 at a ratio, begun in one of the three ways.

    >>> asked, both = (parameters(64, 2, 2.0, start) for start in ("asked", "both"))
    >>> round(both.sigma_h**2 * both.d_h / (asked.sigma_h**2 * asked.d_h), 9), both.d_h > asked.d_h
    (1.0, True)
    """
    one_of("start", start, STARTS)
    p = regime.parameters(n_samples, tokens, regime.snr_at(ratio, n_samples, tokens))
    if start != "asked":
        p = dataclasses.replace(p, sigma_v=p.sigma_v * SMALLER_VALUES)
    if start == "both":
        p = dataclasses.replace(p, d_h=p.d_h * LARGER_D_H, sigma_h=p.sigma_h / math.sqrt(LARGER_D_H))
    return p


def initial_sizes(p: Parameters) -> tuple[float, float]:
    """Sizes (std) of an initial logit of xi_2 on itself, and of xi_2's initial value over that which moves attention.

    With E = sigma_p_tilde^2 d: sigma_h^2 d_h^(1/2) E, which under item (8) is C_p^2 / lg^(7/4) for SNR below 1, free of
    d_h; and sigma_V ||w_O|| E^(1/2) over (gain E)^(-1/2), at which attention of xi_2 begins to move: at the cap of item
    (7) it is C_p^2 / lg^(7/8), free of d_h as well.
    """
    needs(p, "sigma_h", "sigma_v", "d_h", "d", "sigma_p_tilde", "w_o_norm")
    energy = p.sigma_p_tilde**2 * p.d
    return (p.sigma_h**2 * math.sqrt(p.d_h) * energy,
            p.sigma_v * p.w_o_norm * math.sqrt(energy) * math.sqrt(p.sigma_h**2 * p.d_h * energy))


@dataclass(frozen=True)
class Cell:
    """One run: a row of the table."""

    N: int
    M: int
    start: str
    ratio: float
    seed: int


def compute(cell: Cell) -> dict:
    """Train one drawn network by gradient flow; observables by token type, means over the samples."""
    setting = simulation.setting_of(parameters(cell.N, cell.M, cell.ratio, cell.start), n_test=500)
    problem = simulation.build(setting, "drawn", [cell.seed])
    trained = simulation.train(setting, problem, "flow")
    found = observe(problem, trained.coefficients) | by_token_type(view(problem.train, trained.coefficients))
    found = {name: float(value) for name, value in (found | {"time": trained.time}).items()}
    return dataclasses.asdict(cell) | {name: None if math.isnan(found[name]) else found[name] for name in OBSERVED}


def table(folder: str | Path = RESULTS, cells: Sequence[Cell] = ()) -> Table:
    """The stored table of drawn runs."""
    return Table(Path(folder) / "symmetric_drawn.csv", key=("N", "M", "start", "ratio", "seed"), columns=OBSERVED,
                 seeds=sorted({cell.seed for cell in cells}), command="vitbo results --only symmetric_drawn",
                 parameters={"epsilon": regime.EPSILON, "delta": regime.DELTA, "n_test": 500, "engine": "drawn",
                             "method": "flow", "smaller_values": SMALLER_VALUES, "larger_d_h": LARGER_D_H})


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """All `SIZES` and `STARTS`: 3 seeds at `lab`, 8 at `paper`, two runs at `smoke`."""
    seeds = {"smoke": 1, "lab": 3, "paper": 8}[profile]
    wanted = [Cell(n, m, start, ratio, seed) for (n, m), ratios in SIZES.items() for start in STARTS
              for ratio in ratios for seed in even_seeds(n, seeds)]
    if profile == "smoke":
        wanted = [cell for cell in wanted if (cell.N, cell.ratio) in ((64, 0.3), (64, 5.0)) and cell.start != "values"]
    return Plan(table=table(folder, wanted), cells=wanted, compute=compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored runs."""
    rows = store.load(table().path, table().command)[0]
    return rows.astype({"v_weak": float, "weak_query": float})


@functools.cache
def limit_curve(n_samples: int, tokens: int) -> pd.DataFrame:
    """The symmetric limit at the ratios of the drawn runs."""
    one_of("pair (N, M)", (n_samples, tokens), SIZES)
    return symmetric.curve(n_samples, tokens, SIZES[n_samples, tokens])


def against_limit(rows: pd.DataFrame) -> pd.DataFrame:
    """Drawn runs with the limit's value of every observable, `limit_...`, at their N, M and ratio."""
    pairs = rows[["N", "M"]].drop_duplicates().itertuples(index=False, name=None)
    if rows.empty:
        raise UserError("no drawn runs to compare with the limit; give at least one row")
    curves = pd.concat([limit_curve(int(n), int(m)) for n, m in pairs], ignore_index=True)
    names = {name: f"limit_{name}" for name in curves if name not in ("N", "M", "ratio")}
    return rows.merge(curves.rename(columns=names), on=["N", "M", "ratio"], how="left", validate="many_to_one")


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Largest |drawn - limit| over seeds, by N, M, start and ratio, a column for each of `WITHIN`."""
    both = against_limit(rows)
    off = both.assign(**{name: (both[name] - both[f"limit_{name}"]).abs() for name in WITHIN})
    return off.groupby(["N", "M", "start", "ratio"], as_index=False)[list(WITHIN)].agg(_largest)


def _largest(values: pd.Series) -> float:
    return float(np.max(values.to_numpy()))  # NaN stays NaN, where pandas would pass over it


def agrees(off: pd.DataFrame) -> pd.Series:
    """Which rows of `differences` are within `WITHIN` in every observable."""
    return pd.concat([off[name] <= bound for name, bound in WITHIN.items()], axis=1).all(axis=1)


def undecided_width(rows: pd.DataFrame, n_samples: int, tokens: int, start: str) -> tuple[float, float]:
    """The ratios between which mean attention on the signal of single runs lies within 0.05 and 0.95 (NaN: none)."""
    runs = rows[(rows["N"] == n_samples) & (rows["M"] == tokens) & (rows["start"] == start)]
    between = runs[(runs["attention_signal"] > 0.05) & (runs["mu_query"] < 0.95)]["ratio"]
    return (float(between.min()), float(between.max())) if len(between) else (math.nan, math.nan)
