"""What moves Figure 1's boundary: the ladder of single changes, and the sizes of the classes that were drawn.

Reads the table of `vitbo_lib.finite_size` and those of `vitbo_lib.phase_diagram`; computes nothing anew.
"""

import functools
import math

import numpy as np
import pandas as pd

from vitbo_lib import phase_diagram, store
from vitbo_lib.data import sample_labels
from vitbo_lib.finite_size import DIMENSIONS, RUNGS, crossings, derived, geometric, rung_path
from vitbo_lib.intervals import Interval, difference_interval, mean_interval
from vitbo_lib.seeds import stream


@functools.cache
def figure_1_rows(reading: str, init: str = "gaussian", n_samples: int | None = 10) -> pd.DataFrame:
    """Rows of Figure 1's stored table in this module's terms: `ratio`, `share`; labels as they come."""
    stored = phase_diagram.table(reading)
    rows = store.load(stored.path, stored.command)[0]
    rows = rows[(rows["init"] == init) & ((rows["N"] == n_samples) | (n_samples is None))]
    snr = rows["signal_norm"].map(phase_diagram.snr)
    return derived(rows.assign(ratio=rows["N"] * snr**2 / phase_diagram.LAW.c_p**2))


def rung_rows(rows: pd.DataFrame, reading: str, rung: str) -> pd.DataFrame:
    """Rows of one rung; "as in Figure 1" stands for the stored table of that figure, N = 10, "regime" for M = 16 at the
    largest d."""
    if rung == "as in Figure 1":
        return figure_1_rows(reading)
    if rung == "regime":
        return rows[(rows["path"] == "M = 16") & (rows["d"] == max(DIMENSIONS))]
    return rows[rows["path"] == rung_path(reading, rung)]


def ladder(rows: pd.DataFrame, criterion: str = "attention") -> pd.DataFrame:
    """Position of the boundary at each rung: reading, rung, mean, low, high, and its factor against flow with interval.

    A rung whose seeds do not all pass has no position. "regime" (||w_O|| = 1) belongs to neither reading and stands
    once, with the undivided one.
    """
    found = []
    for reading in phase_diagram.READINGS:
        base = np.log(crossings(rung_rows(rows, reading, "flow"), criterion))
        for rung in ("as in Figure 1", *RUNGS, *(("regime",) if reading == "undivided" else ())):
            part = rung_rows(rows, reading, rung)
            if part.empty:
                continue
            passed = crossings(part, criterion)
            at, factor = geometric(passed), _factor(np.log(passed), base)
            found.append({"reading": reading, "rung": rung, "mean": at.mean, "low": at.low, "high": at.high,
                          "factor": factor.mean, "factor_low": factor.low, "factor_high": factor.high})
    return pd.DataFrame(found)


def _factor(logs: pd.Series, base: pd.Series) -> Interval:
    """exp of the mean difference of logarithms; seed by seed where the base has all seeds of the rung."""
    if logs.isna().any() or base.isna().any() or logs.empty or base.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    paired = logs.index.isin(base.index).all()
    found = difference_interval(logs, base[logs.index] if paired else base, paired=bool(paired))
    return Interval(*(math.exp(part) for part in (found.mean, found.low, found.high)), found.n)


# ---------------------------------------------------------------------------------------------------------- the classes

@functools.cache
def larger_class(seed: int, n_samples: int) -> float:
    """Share of the larger class among the first N samples of Figure 1's runs with this seed.

    >>> larger_class(0, 4), larger_class(3, 10)
    (1.0, 0.6)
    """
    labels = sample_labels(max(phase_diagram.SAMPLES), stream(seed, "train", "labels"))[:n_samples]
    return float(max((labels > 0).mean(), (labels < 0).mean()))


def classes(reading: str) -> pd.DataFrame:
    """Where attention changes sides in Figure 1's stored runs: reading, N, seed, `share` of the larger class, `ratio`.

    Runs that do not pass from one side to the other on the grid are left out.
    """
    found = [{"reading": reading, "N": n, "seed": seed, "share": larger_class(int(seed), int(n)), "ratio": at}
             for n, part in figure_1_rows(reading, "uniform", None).groupby("N")
             for seed, at in crossings(part).items() if math.isfinite(at)]
    return pd.DataFrame(found, columns=["reading", "N", "seed", "share", "ratio"])


def class_effect(found: pd.DataFrame) -> tuple[Interval, Interval]:
    """Exponents a, b of ratio ~ (1 / share)^a N^b, fitted for each seed; intervals over seeds.

    Equal initial rates of the larger class's signal and of xi_2 alone would give a = 1, b = 0.
    """
    fits = []
    for _, runs in found.groupby("seed"):
        design = np.column_stack([np.ones(len(runs)), -np.log(runs["share"]), np.log(runs["N"])])
        fits.append(np.linalg.lstsq(design, np.log(runs["ratio"]), rcond=None)[0])
    return tuple(mean_interval([fit[k] for fit in fits]) for k in (1, 2))
