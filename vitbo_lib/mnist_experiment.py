"""Two cells of the paper's Figure 2: N = 3000 digits at SNR 0.2 and at 2.0, trained to a loss of 0.01, several seeds.

`plan` is the grid of results/figure_2_first_look.csv.
"""

import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pandas as pd
import torch

from vitbo_lib import mnist, store, sweep
from vitbo_lib.errors import UserError
from vitbo_lib.intervals import Interval, difference_interval, mean_interval
from vitbo_lib.vit import PRESETS, Training, train_digits

PATH = Path(__file__).resolve().parents[1] / "results" / "figure_2_first_look.csv"
COMMAND = "vitbo results --only figure_2_first_look"
KEY = ("setting", "N", "snr", "seed")
COLUMNS = ("epochs", "train_loss", "train_error", "test_loss", "test_error", "seconds")

TRAINING = Training()
SNRS = (0.2, 2.0)
N = 3000
N_TEST = 10_000
# The bare network takes five times as long as the usual one, and its numbers lie far further apart.
SEEDS = {"bare": (0, 1, 2), "usual": (0, 1, 2, 3, 4)}


@dataclass(frozen=True)
class Cell:
    """One training run: `setting` names a network of `vitbo_lib.vit.PRESETS`; trained as TRAINING says."""

    setting: str
    N: int
    snr: float
    seed: int
    n_test: int = N_TEST

    def __post_init__(self):
        if self.setting not in PRESETS:
            raise UserError(f"setting = {self.setting!r} is unknown; choose one of {', '.join(PRESETS)}")
        mnist.factors(self.snr)


@cache
def _digits() -> mnist.Digits:
    return mnist.load()


def compute(cell: Cell) -> list[dict]:
    """Train one cell on one thread; the row has the columns KEY and COLUMNS.

    One thread, because sums over several threads may be taken in another order and then round differently.
    """
    torch.set_num_threads(1)
    train = mnist.training_set(_digits(), cell.N, cell.snr, cell.seed)
    test = mnist.fresh_set(_digits(), cell.snr, cell.seed, cell.n_test)
    outcome = train_digits(train, test, cell.seed, PRESETS[cell.setting], TRAINING, progress=False)
    return [{name: getattr(cell, name) for name in KEY} | asdict(outcome)]


def grid(path: str | os.PathLike = PATH, *, seeds: tuple[int, ...] | None = None,
         settings: tuple[str, ...] = tuple(SEEDS), n_samples: int = N, n_test: int = N_TEST) -> sweep.Plan:
    """Both SNR, each of `settings`, each seed; a cell has `n_samples` training digits and `n_test` test digits.

    `seeds` are those of every setting; by default each has its own, SEEDS. Runs of one seed share digits, noise and
    initial weights between the two SNR, so that their difference can be taken seed by seed. `UserError` for a damaged
    file of digits.
    """
    seeds_of = {setting: tuple(SEEDS.get(setting, (0,)) if seeds is None else seeds) for setting in settings}
    parameters = {"settings": {name: asdict(config) for name, config in PRESETS.items()}, "training": asdict(TRAINING),
                  "n_test": n_test, "border_width": mnist.BORDER_WIDTH, "noise": "standard normal, added",
                  "dtype": "float32"}
    table = store.Table(path, key=KEY, columns=COLUMNS, parameters=parameters, command=COMMAND,
                        seeds=sorted({seed for some in seeds_of.values() for seed in some}))
    mnist.load()  # a damaged file is one line here, not one in each worker
    cells = [Cell(setting, n_samples, snr, seed, n_test) for setting, some in seeds_of.items() for seed in some
             for snr in SNRS]  # in SEEDS the slow network comes first, so that no worker waits for it at the end
    return sweep.Plan(table, cells, compute)


def plan(folder: str | os.PathLike = PATH.parent, profile: str = "lab") -> sweep.Plan:
    """The first look of the book; at `smoke` one network and few digits."""
    sizes = {"seeds": (0,), "n_samples": 200, "n_test": 500, "settings": ("usual",)} if profile == "smoke" else {}
    return grid(Path(folder) / PATH.name, **sizes)


def summary(rows: pd.DataFrame, column: str) -> dict[tuple[str, float], Interval]:
    """Mean and 95 % t interval over seeds of `column`, for each (setting, snr) in the table.

    >>> rows = pd.DataFrame({"setting": "usual", "snr": 2.0, "seed": [0, 1, 2], "test_loss": [0.4, 0.5, 0.6]})
    >>> round(summary(rows, "test_loss")["usual", 2.0].mean, 3)
    0.5
    """
    return {cell: mean_interval(found[column]) for cell, found in rows.groupby(["setting", "snr"])}


def drop(rows: pd.DataFrame, column: str, setting: str) -> Interval:
    """By how much `column` falls from SNR 0.2 to SNR 2.0, seed by seed: mean difference with its 95 % t interval.

    `UserError` when a seed is missing at one of the two.

    >>> rows = pd.DataFrame({"setting": "usual", "snr": [0.2] * 3 + [2.0] * 3, "seed": [0, 1, 2, 2, 1, 0],
    ...                      "test_loss": [0.5, 0.6, 0.7, 0.6, 0.5, 0.4]})
    >>> round(drop(rows, "test_loss", "usual").mean, 3)
    0.1
    """
    runs = rows[rows["setting"] == setting]
    wide = runs.pivot(index="seed", columns="snr", values=column).reindex(columns=list(SNRS))
    if wide.empty or wide.isna().any(axis=None):
        raise UserError(f"not every seed has both SNR at {setting!r}; `{COMMAND}` computes what is missing")
    return difference_interval(wide[SNRS[0]], wide[SNRS[1]], paired=True)
