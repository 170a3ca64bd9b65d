"""Gradient descent on the reduced problem, in batches of runs.

The state is `coefficients`, (A_Q, A_K, A_v) of `vitbo_lib.span`, zeros at t = 0. With S and u the derivatives of the
loss at logits and at scalarized values (`token_gradients`), one step is

    A_Q <- A_Q - eta S K,    A_K <- A_K - eta S^T Q,    A_v <- A_v - eta ||w_O||^2 u,

all from old values. It equals a step of gradient descent on eq. (1), which `full_gradient_descent` takes.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vitbo_lib.data import DataSet, positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.span import Problem, Triple
from vitbo_lib.transformer import Weights, attention, gradients, token_gradients

CACHE = 2**22  # bytes
MOST_STEPS = 10**15  # more than anyone will wait for, and counted exactly in float64 and int64
WORTH_SHARING = 2e7  # multiplications in a product, below which two threads cost more than they save


@dataclass(frozen=True)
class Trained:
    """Where training ended, for R runs.

    `coefficients` at the end; `steps` (R) taken, None for flow; `time` (R) = eta t; `train_loss` (R) at the end;
    `reached` (R): whether it is at most epsilon; `snapshots`: states on the way by step (a run that has ended stays at
    its end).
    """

    coefficients: Triple
    steps: Tensor | None
    time: Tensor
    train_loss: Tensor
    reached: Tensor
    snapshots: dict[int, Triple] = field(default_factory=dict)


class Descent:
    """Coefficients of a batch of runs and the buffers of a step: `evaluate`, then `step`."""

    def __init__(self, problem: Problem, coefficients: Triple | None = None):
        train = problem.train
        self.start, self.cross, self.labels = train.start, train.cross, train.labels
        self.coefficients = train.start.map(torch.zeros_like) if coefficients is None else coefficients
        self._seen = train.start.map(torch.empty_like)
        runs, tokens = problem.runs, train.n_tokens
        self._grid = (runs, self.cross.shape[1] // tokens, tokens)
        self._scale = problem.w_o_norm_squared.view(runs, 1, 1)
        # Products inside samples are one batch of small matrices (R*N M h).
        self._products = [
            tuple(part if part.ndim == 3 else part.unsqueeze(-1) for part in parts)
            for parts in zip(self.start.parts, self.coefficients.parts, self._seen.parts)]
        self._queries, self._keys, self._values = self.inside_samples(self._seen)
        self._moved = self.inside_samples(self.coefficients)

    def inside_samples(self, triple: Triple) -> tuple[Tensor, Tensor, Tensor]:
        """Views of a triple, sample by sample: queries and keys (R*N M h), values (R N M)."""
        queries, keys = (part.view(-1, self._grid[-1], part.shape[-1]) for part in triple.parts[:2])
        return queries, keys, triple.values.view(self._grid)

    def evaluate(self) -> Tensor:
        """Training loss of every run (R) at the present coefficients."""
        for start, moved, seen in self._products:
            torch.baddbmm(start, self.cross, moved, out=seen)
        phi = attention(self._queries, self._keys).view(*self._grid, -1)
        loss, self._at_tokens = token_gradients(phi, self._values, self.labels)
        return loss

    def step(self, eta: float) -> None:
        """One step of gradient descent from where `evaluate` looked; all changes use the old queries and keys."""
        self._move(self._moved, eta, keep=1.0)

    def velocity(self, into: tuple[Tensor, Tensor, Tensor]) -> None:
        """Write what flow moves the coefficients by, per unit of time, into views made by `inside_samples`."""
        into[2].zero_()
        self._move(into, 1.0, keep=0.0)

    def _move(self, moved: tuple[Tensor, Tensor, Tensor], eta: float, keep: float) -> None:
        queries, keys, values = moved
        at_logits = self._at_tokens.logits.flatten(0, 1)
        queries.baddbmm_(at_logits, self._keys, beta=keep, alpha=-eta)
        keys.baddbmm_(at_logits.mT, self._queries, beta=keep, alpha=-eta)
        values.addcmul_(self._at_tokens.values, self._scale, value=-eta)


class _Ledger:
    """Final states of runs that end at different steps, and the states on the way that were asked for."""

    def __init__(self, problem: Problem, max_steps: int, snapshot_steps: Iterable[int]):
        self.coefficients = problem.train.start.map(torch.zeros_like)
        self.losses = torch.zeros_like(problem.w_o_norm_squared)
        self.steps = torch.full((problem.runs,), max_steps, device=self.losses.device)
        self.wanted, self.snapshots, self.lock = _steps(snapshot_steps), {}, threading.Lock()

    def close(self, runs: Tensor, t: int, losses: Tensor, coefficients: Triple) -> None:
        """Enter the end of `runs`."""
        self.losses[runs], self.steps[runs] = losses, t
        _enter(self.coefficients, runs, coefficients)

    def keep(self, runs: Tensor, t: int, coefficients: Triple) -> None:
        """Enter the state of `runs` at step t, if it was asked for."""
        if t in self.wanted:
            with self.lock:
                state = self.snapshots.setdefault(t, self.coefficients.map(torch.zeros_like))
            _enter(state, runs, coefficients)

    def trained(self, eta: float, epsilon: float) -> Trained:
        """The answer; in each snapshot a run that had ended stands at its end."""
        for t, state in self.snapshots.items():
            ended = self.steps < t
            _enter(state, ended, self.coefficients.map(lambda part: part[ended]))  # noqa: B023
        time = self.steps.to(self.losses.dtype) * eta  # whole numbers times a float would be float32
        return Trained(self.coefficients, self.steps, time, self.losses, self.losses <= epsilon,
                       dict(sorted(self.snapshots.items())))


def _checked(eta: float, epsilon: float, max_steps: int, dtype: torch.dtype) -> tuple[float, float, int]:
    """The three numbers of descent, once it is sure that they are possible, `eta` also in `dtype`."""
    eta = positive("eta", eta)
    if eta > torch.finfo(dtype).max:
        raise UserError(f"eta = {eta:g} is beyond {str(dtype).removeprefix('torch.')}; give a smaller one")
    return eta, positive("epsilon", epsilon), whole("max_steps", max_steps, 0, MOST_STEPS)


def _steps(steps: Iterable[int]) -> set[int]:
    """Steps to look at, once it is sure that they are possible."""
    if not isinstance(steps, Iterable) or isinstance(steps, str):
        raise UserError(f"steps = {steps!r} are no steps to look at; give a list of whole numbers")
    return {whole("step", t, 0, MOST_STEPS) for t in steps}


def not_finite(loss, dtype: torch.dtype, after: str = "") -> UserError:
    """The complaint about a training loss that is infinite or not a number: `after` some training, or at the start."""
    if after:
        return UserError(f"training diverged {after}")
    return UserError(f"the training loss is {float(loss)} before the first step: these sizes overflow "
                     f"{str(dtype).removeprefix('torch.')}, or data or weights are not finite; "
                     f"give smaller signals, noise or initial weights"
                     f"{', or --dtype float64' if dtype != torch.float64 else ''}")


def _stop_if_not_finite(loss: Tensor, t: int, eta: float) -> None:
    bad = loss[~loss.isfinite()]
    if bad.numel():
        after = f"at step {t} with eta = {eta:g}; give a smaller --eta" if t else ""
        raise not_finite(bad.flatten()[0], loss.dtype, after)


def _enter(book: Triple, runs: Tensor, coefficients: Triple) -> None:
    for kept, new in zip(book.parts, coefficients.parts):
        kept[runs] = new


def runs_in_cache(problem: Problem) -> int:
    """How many runs to train side by side (at least 1): what they touch in a step should stay in the cache."""
    start = problem.train.start
    numbers = (6 * start.queries.numel() + problem.train.cross.numel()) / problem.runs
    return max(1, int(CACHE / (numbers * start.queries.element_size())))


@torch.inference_mode()
def gradient_descent(problem: Problem, *, eta: float, epsilon: float, max_steps: int = 100_000,
                     snapshot_steps: Iterable[int] = ()) -> Trained:
    """Full-batch gradient descent of every run until L_S <= `epsilon`, or `max_steps` (Section 3).

    The answer equals gradient descent on eq. (1) up to rounding. `snapshot_steps` are the steps whose states are kept.
    `UserError` when a loss is no longer finite.
    """
    eta, epsilon, max_steps = _checked(eta, epsilon, max_steps, problem.train.cross.dtype)
    ledger = _Ledger(problem, max_steps, snapshot_steps)
    numbers = torch.arange(problem.runs, device=ledger.steps.device)

    def train(group: slice) -> None:
        _descend(problem.run(group), numbers[group], eta, epsilon, max_steps, ledger)

    together = runs_in_cache(problem)
    groups = [slice(first, min(first + together, problem.runs)) for first in range(0, problem.runs, together)]
    with _threads_for(groups, problem) as at_once:
        if at_once == 1:
            list(map(train, groups))
        else:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(train, groups))  # a list, so that an error in one group is raised here
    return ledger.trained(eta, epsilon)


@torch.no_grad()
def states(problem: Problem, *, eta: float, steps: Iterable[int]) -> Iterator[tuple[int, Tensor, Triple]]:
    """Gradient descent as a stream: step t, training loss (R) and coefficients at each of `steps`, in order.

    Nothing is kept, so that any number of states can be looked at on the way; the coefficients are a copy. It goes on
    to the last of `steps`, whatever the loss. `UserError` for an impossible step or rate, or when a loss is no longer
    finite.

    >>> from vitbo_lib import regime, simulation
    >>> problem = simulation.build(regime.lab_setting("benign"), "reduced", [0])
    >>> [(t, round(float(loss), 2)) for t, loss, _ in states(problem, eta=0.1, steps=(0, 100, 200))]
    [(0, 0.69), (100, 0.35), (200, 0.19)]
    """
    wanted = sorted(_steps(steps))
    if not wanted:
        raise UserError("no steps to look at; give at least one")
    eta, _, last = _checked(eta, 1.0, wanted[-1], problem.train.cross.dtype)
    descent, wanted = Descent(problem), set(wanted)
    for t in range(last + 1):
        loss = descent.evaluate()
        if t in wanted:
            _stop_if_not_finite(loss, t, eta)
            yield t, loss, descent.coefficients.map(torch.clone)
        descent.step(eta)


@contextmanager
def _threads_for(groups: list[slice], problem: Problem) -> Iterator[int]:
    """How many groups to train at once: one for each thread of torch; a single large group has all of them."""
    threads, start = torch.get_num_threads(), problem.train.start.queries
    at_once = min(threads, len(groups)) if start.device.type == "cpu" else 1
    multiplications = start.numel() * start.shape[1]
    torch.set_num_threads(threads if at_once == 1 and multiplications > WORTH_SHARING else 1)
    try:
        yield at_once
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()  # holds for one thread only
def _descend(problem: Problem, runs: Tensor, eta: float, epsilon: float, max_steps: int, ledger: _Ledger) -> None:
    """Train `problem`, whose runs have the numbers `runs` in the ledger; a run that has ended leaves the batch."""
    descent = Descent(problem)
    for t in range(max_steps + 1):
        loss = descent.evaluate()
        ledger.keep(runs, t, descent.coefficients)
        if t == max_steps or not loss.min().item() > epsilon:  # a NaN compares false
            _stop_if_not_finite(loss, t, eta)
            done = (loss <= epsilon) | (t == max_steps)
            ledger.close(runs[done], t, loss[done], descent.coefficients.map(lambda part: part[done]))  # noqa: B023
            if bool(done.all()):
                return
            runs = runs[~done]
            problem = replace(problem, train=problem.train.run(~done),  # the fresh points have no part in this
                              w_o_norm_squared=problem.w_o_norm_squared[~done])
            descent = Descent(problem, descent.coefficients.map(lambda part: part[~done]))  # noqa: B023
            descent.evaluate()
        descent.step(eta)


@torch.no_grad()
def full_gradient_descent(data: DataSet, weights: Weights, *, eta: float, epsilon: float,
                          max_steps: int = 100_000) -> tuple[Weights, int, float]:
    """The same descent on the full weights, d coordinates and all: the slow reference (final weights, steps, loss)."""
    eta, epsilon, max_steps = _checked(eta, epsilon, max_steps, data.noise.dtype)
    tokens = data.tokens
    for t in range(max_steps + 1):
        loss, gradient = gradients(tokens, data.labels, weights)
        _stop_if_not_finite(loss, t, eta)
        if loss <= epsilon or t == max_steps:
            break
        weights = Weights(weights.w_q - eta * gradient.w_q, weights.w_k - eta * gradient.w_k,
                          weights.w_v - eta * gradient.w_v, weights.w_o)
    return weights, t, float(loss)
