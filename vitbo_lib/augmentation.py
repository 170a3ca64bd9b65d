"""Takeaways (Appendix G): does adding noisy copies of the samples help, and how far are copies from fresh samples?

Each of N samples is replaced by k copies whose noise tokens get further noise, s times as strong as their own:
xi + s sigma z. A copy has SNR / sqrt(1 + s^2), and there are k N of them; but copies share their xi. The same number of
fresh samples at the reduced SNR, and the N samples as they are, stand beside them, with the same first noise, the same
weights and the same fresh points (paired seeds). Fresh points follow the law that was there before.

The race of initial rates (`break_even`): the signal, in half of the samples, gains eta ||mu||^2 ||w_O||^2 / (4 M) a
step, whatever is done to the noise. A noise token gains by the copies of its own sample, whose inner products with it
are sigma^2 d (its own (1 + s^2) sigma^2 d): in all eta sigma^2 d (1 + s^2 / k) ||w_O||^2 / (2 N M).
"""

import functools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vitbo_lib import store
from vitbo_lib.data import DataSet
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import TorchInit, sample_weights
from vitbo_lib.intervals import Interval, difference_interval
from vitbo_lib.observables import observe
from vitbo_lib.regime import RESULTS
from vitbo_lib.seeds import stream
from vitbo_lib.span import Problem, concatenate, reduce
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.training import gradient_descent

N, COPIES, M, D, D_H, D_V = 6, 4, 4, 2048, 1024, 256  # Appendix A's tokens and dimensions, fewer samples
SIGMA_P, SIGMA_P_TILDE = 0.05, 1.0
ETA, EPSILON, MAX_STEPS, N_TEST = 0.1, 0.01, 20_000, 500
ARMS = {"none": ("none", 0.0), "copies, s = 1": ("copies", 1.0), "copies, s = 2": ("copies", 2.0),
        "fresh, s = 1": ("fresh", 1.0), "fresh, s = 2": ("fresh", 2.0)}  # what is trained on, strength s
LEVEL, MATTERS = 0.4, 0.02  # the transition: half way from log 2 to the benign plateau; a change of loss that matters
RATIOS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)  # N SNR^2 / C_p^2 before anything is added
BETWEEN = (2.5, 3.5)  # with half as many seeds: where the transitions are
KEY = ("ratio", "arm", "seed")
COLUMNS = ("steps", "reached", "train_loss", "test_loss", "test_error", "attention_signal")


def break_even(arm: str, copies: int = COPIES) -> float:
    """N SNR^2 / C_p^2, of the N samples as they were, at which signal and strong noise start equally fast (ours).

    >>> [break_even(arm) for arm in ("none", "copies, s = 1", "fresh, s = 1")]
    [2.0, 2.5, 1.0]
    """
    kind, s = _arm(arm)
    return 2.0 * {"none": 1.0, "copies": 1 + s**2 / copies, "fresh": (1 + s**2) / copies}[kind]


def _arm(name: str) -> tuple[str, float]:
    if name not in ARMS:
        raise UserError(f"no arm {name!r}; choose one of {'; '.join(ARMS)}")
    return ARMS[name]


def counted(strength: float, copies: int = COPIES) -> float:
    """What happens to N SNR^2 if copies are counted as samples: k / (1 + s^2).

    >>> counted(1.0, copies=4)
    2.0
    """
    return copies / (1 + strength**2)


def signal_norm(ratio: float) -> float:
    """||mu|| at which N SNR^2 / C_p^2 = N ||mu||^2 / (sigma_p_tilde^2 d) is `ratio`."""
    return math.sqrt(ratio * SIGMA_P_TILDE**2 * D / N)


def _noise(samples: int, seed: int, *words) -> np.ndarray:
    """Noise tokens (samples M-1 d), off the two signals' axes (Definition 3.1)."""
    scales = np.array([SIGMA_P_TILDE, *[SIGMA_P] * (M - 2)])[:, None]
    noise = stream(seed, "augmentation", *words).standard_normal((samples, M - 1, D)) * scales
    noise[..., :2] = 0.0
    return noise


def with_copies(noise: np.ndarray, extra: np.ndarray, strength: float) -> np.ndarray:
    """Each sample's noise tokens (N M-1 d) with each of its k draws of extra noise (N k M-1 d): N k samples."""
    return (noise[:, None] + strength * extra).reshape(-1, *noise.shape[1:])


def _data(ratio: float, noise: np.ndarray, labels: np.ndarray) -> DataSet:
    signals = np.eye(2, D) * signal_norm(ratio)
    return DataSet(*(torch.as_tensor(part, dtype=torch.float64) for part in (signals, noise, labels)))


def _labels(samples: int) -> np.ndarray:
    """Both classes equally large: with six samples chance would often leave one nearly empty."""
    return np.where(np.arange(samples) % 2, -1.0, 1.0)


def problems(ratio: float, seed: int) -> dict[str, Problem]:
    """The reduced problems of one seed by arm: paired noise, weights and fresh points."""
    noise, extra = _noise(N, seed, "noise"), _noise(N * COPIES, seed, "extra").reshape(N, COPIES, M - 1, D)
    more = np.concatenate([noise, _noise(N * (COPIES - 1), seed, "more")])
    test = _data(ratio, _noise(N_TEST, seed, "test"), _labels(N_TEST))
    weights = sample_weights(TorchInit(), D, D_H, D_V, stream(seed, "augmentation", "weights"))

    def training_set(kind: str, s: float) -> DataSet:
        if kind == "copies":
            return _data(ratio, with_copies(noise, extra, s), np.repeat(_labels(N), COPIES))
        return _data(ratio, noise if kind == "none" else more * math.sqrt(1 + s**2),
                     _labels(N if kind == "none" else N * COPIES))

    return {name: reduce(training_set(*arm), test, weights) for name, arm in ARMS.items()}


def compute(cell: dict) -> list[dict]:
    """All arms at one ratio, for some seeds."""
    drawn = [problems(cell["ratio"], seed) for seed in cell["seeds"]]
    rows = []
    for arms in (["none"], [name for name in ARMS if name != "none"]):  # of equal shapes
        names = [(name, seed) for seed in cell["seeds"] for name in arms]
        problem = concatenate([one[name] for one in drawn for name in arms])
        end = gradient_descent(problem, eta=ETA, epsilon=EPSILON, max_steps=MAX_STEPS)
        seen = observe(problem, end.coefficients) | {"steps": end.steps, "reached": end.reached}
        rows += [{"ratio": cell["ratio"], "arm": name, "seed": seed}
                 | {column: seen[column][r].item() for column in COLUMNS} for r, (name, seed) in enumerate(names)]
    return rows


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The stored table: 8 seeds at `lab`, 16 at `paper` (half of them at `BETWEEN`), one run of each arm at `smoke`."""
    seeds = tuple(range({"smoke": 1, "lab": 8, "paper": 16}[profile]))
    parameters = {"N": N, "copies": COPIES, "M": M, "d": D, "d_h": D_H, "d_v": D_V, "sigma_p": SIGMA_P,
                  "sigma_p_tilde": SIGMA_P_TILDE, "eta": ETA, "epsilon": EPSILON, "max_steps": MAX_STEPS,
                  "n_test": N_TEST, "init": TorchInit()}
    table = Table(Path(folder) / "augmentation.csv", key=KEY, columns=COLUMNS, parameters=parameters, seeds=seeds,
                  command="vitbo results --only augmentation")
    wanted = {3.0: seeds} if profile == "smoke" else (
        dict.fromkeys(RATIOS, seeds) | dict.fromkeys(BETWEEN, seeds[: len(seeds) // 2]))
    cells = [{"ratio": ratio, "arm": tuple(ARMS), "seeds": few} for ratio, few in wanted.items()]
    return Plan(table=table, cells=cells, compute=compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored table."""
    table = plan().table
    return store.load(table.path, table.command)[0]


def effects(rows: pd.DataFrame, arm: str, against: str = "none") -> dict[float, Interval]:
    """Test loss of `arm` minus test loss of another, paired by seed, at each ratio; below 0 where `arm` helps."""
    tables = [rows[rows["arm"] == name].sort_values("seed") for name in (arm, against)]
    return {ratio: difference_interval(*(part.loc[part["ratio"] == ratio, "test_loss"] for part in tables), paired=True)
            for ratio in sorted(tables[0]["ratio"].unique())}


def transition(rows: pd.DataFrame, arm: str, level: float = LEVEL) -> tuple[float, float]:
    """Between which two ratios of the grid the test loss of an arm falls below `level`, in every seed with all ratios.

    The fall is a jump, which the grid brackets; interpolation would feign more.
    """
    runs = rows[rows["arm"] == arm]
    runs = runs[runs.groupby("seed")["ratio"].transform("nunique") == rows["ratio"].nunique()]
    above, below = (runs[(runs["test_loss"] > level) == side] for side in (True, False))
    low = above.groupby("seed")["ratio"].max().min()
    return float(low), float(below[below["ratio"] > low].groupby("seed")["ratio"].min().max())


def shift(rows: pd.DataFrame, arm: str) -> tuple[float, float]:
    """The smallest and the largest factor on N SNR^2 by which an arm may have moved the transition."""
    (low, high), (low_0, high_0) = transition(rows, arm), transition(rows, "none")
    return low / high_0, high / low_0
