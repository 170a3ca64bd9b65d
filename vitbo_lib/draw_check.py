"""The direct draw against training with every coordinate: thousands of runs of each, compared in law.

At a dimension hardly larger than the number of noise tokens, where a lost degree of freedom shows. Runs with a fault
planted in the draw stand beside them: they show what the comparison can see.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from vitbo_lib import draw, simulation, store
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.intervals import Interval, difference_interval
from vitbo_lib.simulation import Setting
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan

# One fresh point a run: its law is exact. Several of one draw are independent of each other, real ones are not quite.
SMALL = Setting(law=SignalNoise(n_tokens=3, d=24, signal_norm=1.2, sigma_p=0.2, sigma_p_tilde=0.6), n_samples=6, d_h=40,
                d_v=4, init=GaussianInit(sigma_h=0.1, sigma_v=0.02), eta=0.3, epsilon=0.1, n_test=1)
RUNS = {"full": 4000, "drawn": 4000, "fault": 4000}
SIDES = tuple(RUNS)  # side number i has the seeds i, i + 3, i + 6, ...: none is shared, whatever the number of runs
CHUNK = 100
LEVEL = 0.05  # of a false alarm in any of the quantities, in their law or in their mean
DIGITS = 6
QUANTITIES = ("steps", "train_loss", "test_loss", "attention_signal", "attention_xi2", "v_signal", "v_xi2")
EACH = LEVEL / (2 * len(QUANTITIES))  # level of each of the 14 comparisons (Bonferroni)
KEY = ("engine", "seed")
RESULTS = Path(__file__).resolve().parents[1] / "results"
COMMAND = "vitbo results --only draw_in_law"


def index_ignored(rows: int, columns: float, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> np.ndarray:
    """`vitbo_lib.draw.gaussian_factor` with a fault: chi(m) all along the diagonal, where chi(m - i) is right.

    >>> index_ignored(2, 9, np.random.default_rng(0)).shape
    (2, 2)
    """
    factor = np.tril(rng.standard_normal((*batch, rows, min(rows, int(columns)))), -1 if columns >= rows else rows)
    if columns >= rows:
        index = np.arange(rows)
        factor[..., index, index] = np.sqrt(rng.chisquare(float(columns), size=(*batch, rows)))
    return factor


@contextmanager
def planted() -> Iterator[None]:
    """While active, the direct draw has the fault `index_ignored`."""
    right = draw.gaussian_factor
    draw.gaussian_factor = index_ignored
    try:
        yield
    finally:
        draw.gaussian_factor = right


@dataclass(frozen=True)
class Cell:
    """Some runs of one side: "full", "drawn", or "fault" (drawn with the planted fault)."""

    engine: str
    seeds: tuple[int, ...]


def compute(cell: Cell) -> list[dict]:
    """One row a run, numbers to `DIGITS` digits."""
    if cell.engine == "fault":
        with planted():
            found = simulation.simulate(SMALL, cell.seeds, engine="drawn")
    else:
        found = simulation.simulate(SMALL, cell.seeds, engine=cell.engine)
    rows = found[["seed", *QUANTITIES]].to_dict("records")
    return [{name: value if isinstance(value, int) else float(f"{value:.{DIGITS}g}") for name, value in row.items()}
            | {"engine": cell.engine} for row in rows]


def table(folder: str | Path = RESULTS, seeds: Sequence[int] = ()) -> Table:
    """The stored table."""
    return Table(Path(folder) / "draw_in_law.csv", key=KEY, columns=QUANTITIES, parameters={"setting": SMALL},
                 seeds=seeds, command=COMMAND)


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The grid: `RUNS` of each side at `lab`, four times as many at `paper`, 20 at `smoke`."""
    cells = []
    for engine, runs in RUNS.items():
        runs = {"smoke": 20, "lab": runs, "paper": 4 * runs}[profile]
        seeds = range(SIDES.index(engine), 3 * runs, 3)
        cells += [Cell(engine, tuple(seeds[first:first + CHUNK])) for first in range(0, runs, CHUNK)]
    return Plan(table(folder, [seed for cell in cells for seed in cell.seeds]), cells, compute)


# ------------------------------------------------------------------------------------------------ reading the table

@dataclass(frozen=True)
class Comparison:
    """One quantity of two sides: `p` of the two-sample Kolmogorov-Smirnov test, and the `difference` of the means.

    `in_deviations` is the same difference in standard deviations over runs.
    """

    p: float
    difference: Interval
    in_deviations: Interval

    @property
    def differs(self) -> bool:
        """Whether law or mean differ, at the level `EACH`."""
        return self.p <= EACH or 0 not in self.difference


def compare(rows: pd.DataFrame, engine: str = "drawn") -> dict[str, Comparison]:
    """Runs of `engine` against those with all coordinates, quantity by quantity.

    The intervals of the differences (`engine` minus full) are at the level 1 - `EACH`.

    >>> rows = pd.DataFrame({"engine": ["full"] * 5 + ["drawn"] * 5} | {name: range(10) for name in QUANTITIES})
    >>> found = compare(rows)["steps"]
    >>> found.difference.mean, round(found.p, 3), found.differs
    (5.0, 0.008, True)
    """
    full, other = (rows[rows["engine"] == name] for name in ("full", engine))
    found = {}
    for name in QUANTITIES:
        i = difference_interval(other[name], full[name], level=1 - EACH)
        deviation = float(full[name].std())
        found[name] = Comparison(float(stats.ks_2samp(full[name], other[name]).pvalue), i,
                                 Interval(i.mean / deviation, i.low / deviation, i.high / deviation, i.n))
    return found


@functools.cache
def load() -> pd.DataFrame:
    """The stored table."""
    return store.load(table().path, COMMAND)[0]
