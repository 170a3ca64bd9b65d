"""One setting, many seeds, one table: draw, train, observe."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from vitbo_lib.data import DataSet, SignalNoise, positive, sample, whole
from vitbo_lib.draw import draw
from vitbo_lib.errors import UserError
from vitbo_lib.flow import FIRST_SNAPSHOT, MOST_SNAPSHOTS, gradient_flow
from vitbo_lib.initialization import GaussianInit, Initialization, sample_weights
from vitbo_lib.intervals import Interval, mean_interval
from vitbo_lib.observables import View, observe, summary
from vitbo_lib.seeds import stream
from vitbo_lib.span import Problem, concatenate, reduce
from vitbo_lib.theory import Parameters
from vitbo_lib.training import MOST_STEPS, Trained, full_gradient_descent, gradient_descent
from vitbo_lib.transformer import Weights, attention, outputs, project

ENGINES = ("drawn", "reduced", "full")
METHODS = ("gd", "flow")
OBSERVABLES = ("steps", "time", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2",
               "v_signal", "v_xi2", "seconds")
MEMORY = 2**30  # bytes that one batch of runs may take
MOST_SEEDS = 10**6
LARGEST_OBSERVED = 1e150  # beyond it a variance over seeds overflows


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything but the seed: data, sizes, initial weights and when to stop.

    N `n_samples` points of `law`; queries and keys in R^`d_h`, values in R^`d_v` (None: as d_h; only a full or reduced
    run with weights of its own needs it). Gradient descent with rate `eta` until the training loss is at most
    `epsilon`, for at most `max_steps` steps (of flow: evaluations); `n_test` fresh points.
    """

    law: SignalNoise
    n_samples: int
    d_h: int
    init: Initialization
    d_v: int | None = None
    eta: float = 0.1
    epsilon: float = 0.01
    max_steps: int = 100_000
    n_test: int = 1000

    def __post_init__(self):
        checked = {"n_samples": whole("N", self.n_samples), "d_h": whole("d_h", self.d_h),
                   "d_v": self.d_h if self.d_v is None else whole("d_v", self.d_v),
                   "eta": positive("eta", self.eta), "epsilon": positive("epsilon", self.epsilon),
                   "max_steps": whole("max_steps", self.max_steps, 1, MOST_STEPS),
                   "n_test": whole("n_test", self.n_test, 1, 10**6)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def setting_of(p: Parameters, **changes) -> Setting:
    """The setting of a row of numbers that Condition 4.1 speaks about, with Gaussian weights and projected noise.

    >>> from vitbo_lib.theory import smallest_configuration
    >>> p = smallest_configuration(N=64, M=2, snr=1.0, epsilon=0.01, delta=0.01)
    >>> setting_of(p, n_test=200).d_h
    40960000
    """
    missing = [name for name, value in vars(p).items() if value is None and name not in ("delta", "eta")]
    if missing:
        raise UserError(f"{', '.join(missing)} not given; a run needs every number of Condition 4.1 but delta")
    law = SignalNoise(n_tokens=p.M, d=p.d, signal_norm=p.signal_norm, sigma_p=p.sigma_p, sigma_p_tilde=p.sigma_p_tilde)
    init = GaussianInit(sigma_h=p.sigma_h, sigma_v=p.sigma_v, w_o_norm=p.w_o_norm)
    fields = {"law": law, "n_samples": p.N, "d_h": p.d_h, "init": init, "epsilon": p.epsilon} | (
        {} if p.eta is None else {"eta": p.eta})
    return Setting(**(fields | changes))


@dataclass(frozen=True)
class Sampled:
    """A problem drawn in full: training set, test set, initial weights."""

    train: DataSet
    test: DataSet
    weights: Weights


def sample_full(setting: Setting, seed: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Sampled:
    """Draw data, fresh points and weights with all their coordinates; each from streams of its own."""
    options = {"dtype": dtype, "device": device}
    train, test = (sample(setting.law, size, stream(seed, word, "labels"), stream(seed, word, "noise"), **options)
                   for word, size in (("train", setting.n_samples), ("test", setting.n_test)))
    weights = sample_weights(setting.init, setting.law.d, setting.d_h, setting.d_v, stream(seed, "weights"), **options)
    return Sampled(train, test, weights)


def build(setting: Setting, engine: str, seeds: Sequence[int], dtype: torch.dtype = torch.float64,
          device: str = "cpu") -> Problem:
    """The reduced problems of all `seeds` (R): drawn directly ("drawn"), or reduced from a draw in full ("reduced")."""
    if engine == "drawn":
        return concatenate([draw(setting.law, setting.n_samples, setting.d_h, setting.init, setting.n_test, seed, dtype,
                                 device) for seed in seeds])
    full = (sample_full(setting, seed, dtype, device) for seed in seeds)
    return concatenate([reduce(one.train, one.test, one.weights) for one in full])


def train(setting: Setting, problem: Problem, method: str = "gd", **options) -> Trained:
    """Train by gradient descent ("gd") or by its flow ("flow")."""
    if method == "flow":
        return gradient_flow(problem, epsilon=setting.epsilon, max_evaluations=setting.max_steps, **options)
    return gradient_descent(problem, eta=setting.eta, epsilon=setting.epsilon, max_steps=setting.max_steps, **options)


def _check(engine: str, method: str, setting: Setting, seeds: Sequence[int]) -> None:
    for name, value, known in (("engine", engine, ENGINES), ("method", method, METHODS)):
        if value not in known:
            raise UserError(f"no {name} {value!r}; choose one of {', '.join(known)}")
    if not 1 <= len(seeds) <= MOST_SEEDS:
        raise UserError(f"{len(seeds) or 'no'} seeds; give from 1 to {MOST_SEEDS:g}")
    if engine == "full" and method == "flow":
        raise UserError("the full engine has no flow; use --method gd, or --engine reduced")
    if engine == "drawn" and not isinstance(setting.init, GaussianInit):
        raise UserError("the direct draw needs Gaussian weights; use --engine reduced, or --init gaussian")
    needed, there = bytes_of_a_run(setting, engine), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        remedy = "--M or --n-test" if engine == "drawn" else "--M, --n-test or --d, or use --engine drawn"
        raise UserError(f"one run needs about {needed / 1e9:.3g} GB of memory, this machine has {there / 1e9:.3g} GB; "
                        f"give a smaller --N, {remedy}")


def bytes_of_a_run(setting: Setting, engine: str = "drawn") -> float:
    """Roughly the memory that one run takes, in float64."""
    tokens, fresh = (size * setting.law.n_tokens for size in (setting.n_samples, setting.n_test))
    hidden = min(setting.d_h, 2 * min(tokens, setting.law.d))
    numbers = tokens * (6 * hidden + tokens) + fresh * (4 * hidden + tokens + 3 * setting.law.n_tokens)
    if engine != "drawn":  # tokens and weights in full
        numbers += setting.law.d * (2 * (tokens + fresh) + 2 * setting.d_h + setting.d_v)
    return 8.0 * numbers


def runs_per_batch(setting: Setting) -> int:
    """How many runs fit into `MEMORY` at once (at least 1)."""
    return max(1, int(MEMORY / bytes_of_a_run(setting)))


def simulate(setting: Setting, seeds: Sequence[int], engine: str = "drawn", method: str = "gd",
             dtype: torch.dtype = torch.float64, device: str = "cpu",
             progress: Callable[[int], None] | None = None) -> pd.DataFrame:
    """Train one network a seed; a table with `seed`, the observables of the command line, and `reached`.

    `steps` (missing for flow), `time` = eta t, `train_loss`, `test_loss`, `test_error`, attention and scalarized V on
    training points (`vitbo_lib.observables.observe`), `seconds` (wall time; a batch shares its time evenly), `reached`:
    whether the training loss came down to epsilon.

    >>> law = SignalNoise(n_tokens=3, d=300, signal_norm=6, sigma_p=0.1, sigma_p_tilde=0.5)
    >>> setting = Setting(law=law, n_samples=8, d_h=100, init=GaussianInit(sigma_h=0.01, sigma_v=0.01), n_test=50)
    >>> simulate(setting, seeds=[0, 1])[["steps", "test_error", "reached"]]
       steps  test_error  reached
    0     71         0.0     True
    1    102         0.0     True
    """
    _check(engine, method, setting, seeds)
    seeds, tables = list(seeds), []
    size = 1 if engine == "full" else runs_per_batch(setting)
    for first in range(0, len(seeds), size):
        batch, began = seeds[first : first + size], time.perf_counter()
        trained, observed = _one_batch(setting, batch, engine, method, dtype, device)
        columns = {"seed": batch, "steps": trained.steps, "time": trained.time} | observed
        columns |= {"seconds": (time.perf_counter() - began) / len(batch), "reached": trained.reached}
        columns = {name: part.tolist() if torch.is_tensor(part) else part for name, part in columns.items()}
        _check_observed(columns, setting, dtype)
        tables.append(pd.DataFrame(columns))
        if progress is not None:
            progress(len(batch))
    return pd.concat(tables, ignore_index=True)


def _check_observed(columns: dict, setting: Setting, dtype: torch.dtype) -> None:
    """Refuse what cannot be averaged over seeds; only xi_2, where M = 1, may have no number."""
    for name in OBSERVABLES[1:-1]:
        missing = setting.law.n_tokens == 1 and name.endswith("xi2")
        wrong = [value for value in columns[name] if not abs(value) <= LARGEST_OBSERVED]
        if wrong and not missing:
            raise UserError(f"{name} = {wrong[0]:g} after training: its numbers overflow "
                            f"{str(dtype).removeprefix('torch.')}; give a smaller --eta, smaller signals, noise or "
                            "initial weights")


def _one_batch(setting: Setting, seeds: Sequence[int], engine: str, method: str, dtype: torch.dtype,
               device: str) -> tuple[Trained, dict]:
    if engine == "full":
        return _simulate_full(setting, seeds[0], dtype, device)
    problem = build(setting, engine, seeds, dtype, device)
    trained = train(setting, problem, method)
    return trained, observe(problem, trained.coefficients)


def _simulate_full(setting: Setting, seed: int, dtype: torch.dtype, device: str) -> tuple[Trained, dict]:
    """The slow reference: every weight, every coordinate."""
    full = sample_full(setting, seed, dtype, device)
    weights, steps, loss = full_gradient_descent(full.train, full.weights, eta=setting.eta, epsilon=setting.epsilon,
                                                 max_steps=setting.max_steps)
    views = [look_at(data, weights) for data in (full.train, full.test)]
    steps = torch.tensor([steps])
    losses = torch.tensor([loss], dtype=dtype)
    return Trained(None, steps, steps.to(dtype) * setting.eta, losses, losses <= setting.epsilon), summary(*views)


def look_at(data: DataSet, weights: Weights) -> View:
    """The network with full weights, looking at `data` (R = 1)."""
    queries, keys, values = (part.unsqueeze(0) for part in project(data.tokens, weights))
    phi = attention(queries, keys)
    return View(phi, values, outputs(phi, values)[1], data.labels.unsqueeze(0))


def trajectory(setting: Setting, seeds: Sequence[int], engine: str = "drawn", method: str = "gd",
               snapshots: int = 40) -> pd.DataFrame:
    """The observables on the way: one row a seed and snapshot, with `t` (steps; of flow, missing) and `time` = eta t.

    Snapshots are even on a logarithmic scale: of steps up to `setting.max_steps`, with the start and the end of each
    run added; of flow, of its final time.
    """
    _check(engine, method, setting, seeds)
    snapshots = whole("snapshots", snapshots, 1, MOST_SNAPSHOTS)
    problem = build(setting, engine, seeds)
    rows = []
    if method == "flow":
        end = train(setting, problem, method, snapshots=snapshots)
        fractions = np.geomspace(FIRST_SNAPSHOT, 1, snapshots)
        for key, state in end.snapshots.items():
            rows.append(_state_rows(problem, state, seeds, math.nan, end.time * float(fractions[key - 1])))
        return _by_seed(rows)
    kept = np.geomspace(1, setting.max_steps, snapshots).round().astype(int).tolist()
    end = train(setting, problem, method, snapshot_steps=[0, *kept])
    for t, state in end.snapshots.items():
        rows.append(_state_rows(problem, state, seeds, t, torch.full_like(end.time, t * setting.eta))[
            (end.steps > t).numpy(force=True)])
    return _by_seed([*rows, _state_rows(problem, end.coefficients, seeds, end.steps, end.time)])


def _state_rows(problem: Problem, state, seeds, t, time_now: torch.Tensor) -> pd.DataFrame:
    observed = {name: part.tolist() for name, part in observe(problem, state).items()}
    t = t.tolist() if torch.is_tensor(t) else t
    return pd.DataFrame({"seed": list(seeds), "t": t, "time": time_now.tolist()} | observed)


def _by_seed(rows: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(rows, ignore_index=True).sort_values(["seed", "time"], ignore_index=True)


def summarize(table: pd.DataFrame) -> dict[str, Interval | None]:
    """Mean and 95 % interval over seeds of every observable; None for one that does not exist (`steps` of flow).

    >>> summarize(pd.DataFrame({name: [1.0, 3.0] for name in OBSERVABLES}))["test_loss"].mean
    2.0
    """
    return {name: None if table[name].isna().all() else mean_interval(table[name]) for name in OBSERVABLES}
